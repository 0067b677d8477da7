import { MonarchError } from "monarch-webgpu";
import { element, textElement } from "./page.js";

/** Keeps errors on the page, the first one on top: what comes later is often its consequence. */
export class ErrorView {
  readonly #section = element("errors", HTMLElement);

  /** Shows an error with its code and, when there is a way on, a button for it. */
  show(error: unknown, retry?: () => void): void {
    const box = document.createElement("div");
    box.className = "error";
    const code = error instanceof MonarchError ? error.code : "unexpected";
    const message = error instanceof Error ? error.message : String(error);
    box.append(textElement("code", code), textElement("p", message));
    if (retry !== undefined) {
      const button = textElement("button", "Try again");
      button.type = "button";
      button.addEventListener("click", () => {
        box.remove();
        retry();
      });
      box.append(button);
    }
    this.#section.append(box);
    box.scrollIntoView({ block: "nearest" });
  }
}
