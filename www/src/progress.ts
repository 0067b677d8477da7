import type { Progress } from "monarch-webgpu";
import { element } from "./page.js";

/** Shows how far loading has come: a bar, and one line in bytes or counts. */
export class LoadingView {
  readonly #section = element("loading", HTMLElement);
  readonly #title = element("loading-title", HTMLElement);
  readonly #bar = element("loading-bar", HTMLProgressElement);
  readonly #detail = element("loading-detail", HTMLElement);
  #phase: Progress["phase"] | undefined;

  begin(modelName: string): void {
    this.#phase = undefined;
    this.#section.hidden = false;
    this.#title.textContent = `Loading ${modelName}`;
    this.#bar.removeAttribute("value");
    this.#detail.textContent = "Asking the browser for its GPU";
  }

  show(progress: Progress): void {
    // Said once a phase: a screen reader does not want every step.
    this.#detail.ariaLive = progress.phase === this.#phase ? "off" : "polite";
    this.#phase = progress.phase;
    switch (progress.phase) {
      case "fetch":
        this.#bar.value = progress.loadedBytes / progress.totalBytes;
        this.#detail.textContent = `Weights: ${megabytes(progress.loadedBytes)} of ${megabytes(progress.totalBytes)} MB on the GPU`;
        break;
      case "compile":
        this.#bar.value = progress.done / progress.total;
        this.#detail.textContent = `Shaders: ${progress.done} of ${progress.total} compiled`;
        break;
      case "ready":
        this.#bar.value = 1;
        this.#detail.textContent = "Ready";
        break;
    }
  }

  end(): void {
    this.#section.hidden = true;
  }
}

function megabytes(bytes: number): string {
  return (bytes / 1e6).toFixed(1);
}
