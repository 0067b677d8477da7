/**
 * Runs LFM2 language models in a web page: Rust and WebGPU inside, promises and async iterators
 * outside.
 *
 * Importing this module does nothing, in a server as in a browser; {@link load} starts the
 * WebAssembly module.
 *
 * @example
 * ```ts
 * import { load, support } from "monarch-webgpu";
 *
 * if ((await support(url)).status === "unsupported") return explain();
 * const model = await load(url, { signal, onProgress });
 * for await (const { text } of model.chat(messages, { signal, maxTokens: 256 })) out.append(text);
 * await model.dispose();
 * ```
 *
 * @module
 */
export { MonarchError, type ErrorDetails, type MonarchErrorCode } from "./errors.js";
export type {
  Chunk,
  Completion,
  FinishReason,
  GenerateOptions,
  Generation,
  Prompt,
  Timings,
  Usage,
} from "./generation.js";
export type { DeviceOptions } from "./device.js";
export { load, type LoadOptions } from "./load.js";
export type {
  AdapterInfo,
  ChatOptions,
  DeviceLimits,
  Message,
  Model,
  ModelInfo,
  PlanInfo,
} from "./model.js";
export type { CompileProgress, FetchProgress, Progress, ReadyProgress } from "./progress.js";
export { support, type Support, type SupportOptions } from "./support.js";
