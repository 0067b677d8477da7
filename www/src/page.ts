/** The element with this id, which index.html is known to have. */
export function element<E extends HTMLElement>(id: string, type: new () => E): E {
  const found = document.getElementById(id);
  if (!(found instanceof type)) throw new Error(`index.html has no ${type.name} with id "${id}"`);
  return found;
}

/** A new element with text in it. Text, never markup: what a model writes comes through here. */
export function textElement<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  text: string,
  className = "",
): HTMLElementTagNameMap[Tag] {
  const made = document.createElement(tag);
  made.textContent = text;
  if (className !== "") made.className = className;
  return made;
}
