import type { Completion, ModelInfo } from "monarch-webgpu";
import { element, textElement } from "./page.js";

/** Shows how fast the last answer was, and what it ran on. */
export class StatsView {
  readonly #section = element("stats", HTMLElement);
  readonly #speed = element("speed", HTMLElement);
  readonly #facts = element("facts", HTMLElement);
  readonly #factsBox = element("facts-box", HTMLDetailsElement);

  constructor() {
    // Beside the chat there is room for the facts; above it, on a phone, there is not.
    this.#factsBox.open = matchMedia("(min-width: 60rem)").matches;
  }

  showModel(info: ModelInfo): void {
    this.#section.hidden = false;
    this.#showSpeed("–", "–", "–");
    this.#facts.replaceChildren(
      ...facts(info).flatMap(([name, value]) => [textElement("dt", name), textElement("dd", value)]),
    );
  }

  /** Numbers of an answer that is being written. */
  showRunning(clock: AnswerClock): void {
    this.#showSpeed(clock.tokensPerSecond, clock.firstTokenMs, String(clock.tokens));
  }

  /** Numbers of an answer that is complete, as the engine measured them. */
  showCompletion({ timings, usage }: Completion): void {
    this.#showSpeed(
      usage.completionTokens > 1 ? timings.decodeTokS.toFixed(1) : "–",
      usage.completionTokens > 0 ? timings.ttftMs.toFixed(0) : "–",
      String(usage.completionTokens),
    );
  }

  #showSpeed(tokensPerSecond: string, firstTokenMs: string, tokens: string): void {
    this.#speed.replaceChildren(
      ...reading("Speed", tokensPerSecond, "tokens/s", "this answer, after its first token"),
      ...reading("First token", firstTokenMs, "ms", "from sending to the first token"),
      ...reading("Length", tokens, "tokens", "this answer"),
    );
  }
}

/** Counts and times the tokens of one answer as the page sees them. */
export class AnswerClock {
  readonly #sentMs = performance.now();
  #firstMs: number | undefined;
  #firstTokens = 0;
  #latestMs = 0;
  tokens = 0;

  count(newTokens: number): void {
    if (newTokens === 0) return;
    this.tokens += newTokens;
    this.#latestMs = performance.now();
    if (this.#firstMs === undefined) {
      this.#firstMs = this.#latestMs;
      this.#firstTokens = newTokens;
    }
  }

  get tokensPerSecond(): string {
    if (this.#firstMs === undefined || this.#latestMs === this.#firstMs) return "–";
    return ((1000 * (this.tokens - this.#firstTokens)) / (this.#latestMs - this.#firstMs)).toFixed(1);
  }

  get firstTokenMs(): string {
    return this.#firstMs === undefined ? "–" : (this.#firstMs - this.#sentMs).toFixed(0);
  }
}

function reading(name: string, value: string, unit: string, scope: string): readonly HTMLElement[] {
  const number = textElement("dd", value);
  number.append(" ", textElement("small", unit));
  number.title = scope;
  const label = textElement("dt", name);
  label.append(textElement("small", scope));
  return [label, number];
}

function facts({ adapter, plan, contextTokens, gpuBytes }: ModelInfo): readonly (readonly [string, string])[] {
  return [
    ["GPU", adapter.description || adapter.device || adapter.architecture || "not named by the browser"],
    ["Vendor", adapter.vendor || "not named by the browser"],
    ...(adapter.isSoftware ? [["Kind", "software: the processor plays a GPU"] as const] : []),
    ["Features", adapter.enabledFeatures.join(", ") || "none"],
    ["Subgroup", adapter.subgroupSize === 0 ? "not used" : `${adapter.subgroupSize} invocations`],
    ["Plan", `${plan.name}, ${plan.dispatches} dispatches per token`],
    ...plan.decisions.map((decision) => ["Instead", decision] as const),
    ["Context", `${contextTokens} tokens`],
    ["GPU memory", `${(gpuBytes / 1e6).toFixed(1)} MB`],
  ];
}
