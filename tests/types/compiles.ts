// Code that users write, and that must compile. It is never run.
import {
  load,
  MonarchError,
  support,
  type Chunk,
  type Completion,
  type Generation,
  type LoadOptions,
  type Message,
  type Model,
  type MonarchErrorCode,
  type Progress,
} from "monarch-webgpu";

export async function theExampleOfTheReadme(url: string, out: HTMLElement): Promise<void> {
  if ((await support(url)).status === "unsupported") return;
  const { signal } = new AbortController();
  const model = await load(url, { signal, onProgress: (progress) => show(progress) });
  const messages = [{ role: "user", content: "Hello" }] as const;
  for await (const { text } of model.chat(messages, { signal, maxTokens: 256 })) out.append(text);
  const { text, finishReason, usage } = await model.generate("Once").completion();
  out.append(text, finishReason, String(usage.cachedTokens));
  await model.dispose();
}

export async function everyOption(source: URL): Promise<Model> {
  const options: LoadOptions = {
    signal: AbortSignal.timeout(1000),
    onProgress: () => {},
    contextTokens: 512,
    plan: "plain",
    device: { allowF16: false, allowSubgroups: false, allowTimestamps: false, powerPreference: "low-power" },
    wasmUrl: new URL("engine.wasm", source),
  };
  return load(source, options);
}

export function undefinedCountsAsAbsent(model: Model, signal?: AbortSignal, maxTokens?: number): Generation {
  return model.generate("x", { signal, maxTokens });
}

export async function everyWayToRead(model: Model): Promise<void> {
  await using disposed = model;
  const generation: Generation = disposed.generate({ ids: new Uint32Array([1, 2]) }, { seed: 1, temperature: 0.7 });
  const iterator: AsyncIterator<Chunk, undefined> = generation[Symbol.asyncIterator]();
  const step = await iterator.next();
  if (!step.done) step.value.ids.map((id) => id + 1);
  const whole: string = await disposed.generate("x", { stop: ["\n"], ignoreEos: true }).text();
  const completion: Completion = await disposed.chat([], { tools: [{ name: "clock" }] }).completion();
  const reason: "stop" | "length" | "aborted" = completion.finishReason;
  console.log(whole, reason, completion.timings.decodeTokS.toFixed(1), disposed.info.adapter.enabledFeatures.length);
}

export function show(progress: Progress): string {
  switch (progress.phase) {
    case "fetch":
      return `${progress.loadedBytes} of ${progress.totalBytes}`;
    case "compile":
      return `${progress.done} of ${progress.total}`;
    case "ready":
      return "ready";
    // No default: a phase that is missing here would make the return type an error.
  }
}

export function branchOn(error: unknown): MonarchErrorCode | undefined {
  if (!(error instanceof MonarchError)) return undefined;
  const cause: unknown = error.cause;
  console.log(error.details["section"], cause);
  return error.code === "aborted" ? undefined : error.code;
}

export const history: Message[] = [
  { role: "system", content: "Be kind." },
  { role: "assistant", content: "Hello!" },
  { role: "tool", content: "12:00" },
];
