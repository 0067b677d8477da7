import { MonarchError, type Completion, type GenerateOptions, type Generation, type Message, type Model } from "monarch-webgpu";
import type { ErrorView } from "./errors.js";
import { element, textElement } from "./page.js";
import { AnswerClock, type StatsView } from "./stats.js";

type Mode = "chat" | "continue";

const SUGGESTIONS: readonly { readonly mode: Mode; readonly text: string }[] = [
  { mode: "continue", text: "Once upon a time" },
  { mode: "chat", text: "Tell me a story about a fox who lost her red hat." },
  { mode: "chat", text: "Who are you?" },
];

const PLACEHOLDERS: Readonly<Record<Mode, string>> = {
  chat: "Ask for a story",
  continue: "Begin a text",
};

/** The conversation: what was said, the field to write in, and the answer that is being written. */
export class ChatView {
  readonly #chat = element("chat", HTMLElement);
  readonly #welcome = element("welcome", HTMLElement);
  readonly #log = element("log", HTMLOListElement);
  readonly #composer = element("composer", HTMLFormElement);
  readonly #prompt = element("prompt", HTMLTextAreaElement);
  readonly #send = element("send", HTMLButtonElement);
  readonly #stop = element("stop", HTMLButtonElement);
  readonly #clear = element("clear", HTMLButtonElement);
  readonly #stats: StatsView;
  readonly #errors: ErrorView;
  #model: Model | undefined;
  #messages: Message[] = [];
  #answering: AbortController | undefined;

  constructor(stats: StatsView, errors: ErrorView) {
    this.#stats = stats;
    this.#errors = errors;
    this.#composer.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.#submit();
    });
    this.#composer.addEventListener("change", () => this.#showMode());
    this.#prompt.addEventListener("keydown", (event) => {
      // While an input method composes a character, Enter belongs to it.
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.#composer.requestSubmit();
      }
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.#answering?.abort();
    });
    this.#stop.addEventListener("click", () => this.#answering?.abort());
    this.#clear.addEventListener("click", () => this.#reset());
    element("suggestions", HTMLUListElement).append(...SUGGESTIONS.map((suggestion) => this.#suggestion(suggestion)));
  }

  /** Opens the conversation with a model that is ready. */
  open(model: Model): void {
    this.#model = model;
    this.#chat.hidden = false;
    this.#composer.hidden = false;
    this.#showMode();
    this.#prompt.focus();
  }

  get #mode(): Mode {
    return new FormData(this.#composer).get("mode") === "continue" ? "continue" : "chat";
  }

  #showMode(): void {
    this.#prompt.placeholder = PLACEHOLDERS[this.#mode];
  }

  #suggestion({ mode, text }: (typeof SUGGESTIONS)[number]): HTMLLIElement {
    const button = textElement("button", mode === "continue" ? `${text} …` : text, "suggestion");
    button.type = "button";
    button.addEventListener("click", () => {
      const radio = this.#composer.elements.namedItem("mode");
      if (radio instanceof RadioNodeList) radio.value = mode;
      this.#showMode();
      this.#prompt.value = text;
      void this.#submit();
    });
    const item = document.createElement("li");
    item.append(button);
    return item;
  }

  async #submit(): Promise<void> {
    const text = this.#prompt.value;
    if (this.#model === undefined || this.#answering !== undefined || text.trim() === "") return;
    const mode = this.#mode;
    const answering = new AbortController();
    this.#answering = answering;
    this.#showAnswering(true);
    this.#prompt.value = "";

    const options = { ...this.#options(), signal: answering.signal };
    let generation: Generation;
    let answer: HTMLElement;
    if (mode === "chat") {
      this.#messages.push({ role: "user", content: text });
      this.#log.append(entry("user", textElement("p", text)));
      generation = this.#model.chat(this.#messages, options);
      answer = entry("model", textElement("p", ""));
    } else {
      generation = this.#model.generate(text, options);
      const paragraph = textElement("p", "");
      paragraph.append(textElement("span", text, "given"));
      answer = entry("model", paragraph);
    }
    this.#log.append(answer);

    try {
      const written = await this.#write(generation, answer);
      if (mode === "chat") this.#messages.push({ role: "assistant", content: written });
    } catch (error) {
      // The question stays on the page, but an answer that failed is no part of the conversation.
      if (mode === "chat") this.#messages.pop();
      this.#errors.show(error);
    } finally {
      this.#answering = undefined;
      this.#showAnswering(false);
      this.#prompt.focus();
    }
  }

  /** Writes an answer as it comes. Gives what was written; stopping half-way is no error. */
  async #write(generation: Generation, answer: HTMLElement): Promise<string> {
    const paragraph = answer.querySelector("p") ?? answer;
    const text = document.createTextNode("");
    paragraph.append(text);
    answer.classList.add("writing");
    answer.ariaBusy = "true";
    const clock = new AnswerClock();
    try {
      for await (const chunk of generation) {
        clock.count(chunk.ids.length);
        this.#stats.showRunning(clock);
        this.#append(text, chunk.text);
      }
      const completion = await generation.completion();
      this.#stats.showCompletion(completion);
      answer.append(textElement("p", summary(completion), "summary"));
    } catch (error) {
      if (!(error instanceof MonarchError) || error.code !== "aborted") throw error;
      answer.append(textElement("p", `stopped after ${count(clock.tokens, "token")}`, "summary"));
    } finally {
      answer.classList.remove("writing");
      answer.ariaBusy = "false";
      this.#follow(true);
    }
    return text.data;
  }

  #append(text: Text, more: string): void {
    const atEnd = this.#atEnd();
    text.appendData(more);
    this.#follow(atEnd);
  }

  /** Whether the reader sees the end of the log; one who scrolled up is left alone. */
  #atEnd(): boolean {
    return this.#chat.scrollHeight - this.#chat.scrollTop - this.#chat.clientHeight < 80;
  }

  #follow(wanted: boolean): void {
    if (wanted) this.#chat.scrollTop = this.#chat.scrollHeight;
  }

  #options(): GenerateOptions {
    const data = new FormData(this.#composer);
    const number = (name: string): number | undefined => {
      const value = data.get(name);
      return typeof value === "string" && value !== "" ? Number(value) : undefined;
    };
    const given = { temperature: number("temperature"), maxTokens: number("maxTokens"), seed: number("seed") };
    return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
  }

  #showAnswering(answering: boolean): void {
    this.#welcome.hidden = true;
    this.#clear.hidden = answering;
    this.#send.hidden = answering;
    this.#stop.hidden = !answering;
    this.#follow(true);
  }

  #reset(): void {
    this.#messages = [];
    this.#log.replaceChildren();
    this.#welcome.hidden = false;
    this.#clear.hidden = true;
    this.#prompt.focus();
  }
}

function entry(from: "user" | "model", content: HTMLElement): HTMLLIElement {
  const item = document.createElement("li");
  item.className = from;
  item.append(textElement("span", from === "user" ? "You:" : "Model:", "unseen"), content);
  return item;
}

function summary({ usage, timings, finishReason }: Completion): string {
  const parts = [count(usage.completionTokens, "token")];
  if (usage.completionTokens > 1) parts.push(`${timings.decodeTokS.toFixed(1)} tokens/s`);
  if (usage.completionTokens > 0) parts.push(`first after ${timings.ttftMs.toFixed(0)} ms`);
  if (finishReason === "length") parts.push("cut at the limit");
  return parts.join(" · ");
}

function count(amount: number, thing: string): string {
  return `${amount} ${thing}${amount === 1 ? "" : "s"}`;
}
