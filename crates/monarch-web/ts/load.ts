import { throwIfAborted, unlessAborted } from "./abort.js";
import { EdgeModel, type Model } from "./model.js";
import { deviceChecks, type DeviceOptions } from "./device.js";
import { abortSignal, address, callback, checkOptions, group, integer, oneOf, type Checks } from "./options.js";
import type { Progress } from "./progress.js";
import { manifestUrl } from "./source.js";
import { requireWebGpu } from "./support.js";
import { enter } from "./wasm.js";
import { WasmModel } from "./monarch_web.js";

/** Options of {@link load}. */
export interface LoadOptions {
  /** Gives up at once, fetches included; the promise rejects with code `aborted`. */
  readonly signal?: AbortSignal | undefined;
  /** Called often while loading. What it throws rejects `load`. */
  readonly onProgress?: ((progress: Progress) => void) | undefined;
  /** Room for prompt and answer together, up to the model's own context. Without it, what the manifest says. */
  readonly contextTokens?: number | undefined;
  /** `plain` runs one dispatch per operation, to compare with; `auto` the fastest plan. */
  readonly plan?: "auto" | "plain" | "seed" | undefined;
  /** Which GPU to open, and what to leave unused. */
  readonly device?: DeviceOptions | undefined;
  /** Where `monarch_web_bg.wasm` is, when it is not beside the package's JavaScript. The first call decides. */
  readonly wasmUrl?: string | URL | undefined;
}

const checks: Checks<LoadOptions> = {
  signal: abortSignal,
  onProgress: callback,
  contextTokens: integer(1, 2 ** 32 - 1),
  plan: oneOf("auto", "plain", "seed"),
  device: group("load: device", deviceChecks),
  wasmUrl: address,
};

/**
 * Loads a model onto the GPU: manifest, weights by range requests, shaders, self-test.
 *
 * There is no half-loaded model: the promise gives one that answers, or rejects and leaves
 * nothing behind.
 *
 * @example
 * ```ts
 * const model = await load("models/tiny-lfm2/manifest.json", {
 *   signal: AbortSignal.timeout(60_000),
 *   onProgress: (progress) => console.log(progress),
 * });
 * ```
 *
 * @param source address of the manifest, or of its folder when it ends in `/`
 */
export async function load(source: string | URL, options: LoadOptions = {}): Promise<Model> {
  const { signal, onProgress, wasmUrl, ...engine } = checkOptions("load", options, checks);
  const url = manifestUrl("load", source);
  throwIfAborted(signal);
  requireWebGpu();

  const giveUp = new AbortController();
  let thrown: { readonly error: unknown } | undefined;
  const report = (progress: Progress): void => {
    if (giveUp.signal.aborted) return;
    try {
      onProgress?.(progress);
    } catch (error) {
      thrown = { error };
      giveUp.abort();
    }
  };

  const loading = (async () => {
    const life = await enter(wasmUrl);
    const stop = signal === undefined ? giveUp.signal : AbortSignal.any([signal, giveUp.signal]);
    const edge = await life.run(() => WasmModel.load(url, engine, report, stop) as Promise<WasmModel>);
    if (!stop.aborted) return new EdgeModel(life, edge);
    // Aborted in the last moment: nobody will get this model.
    if (!life.crashed) edge.free();
    return undefined;
  })();

  try {
    const model = await unlessAborted(signal, loading);
    if (model !== undefined) return model;
    throwIfAborted(signal);
    throw thrown?.error;
  } catch (error) {
    throw thrown === undefined ? error : thrown.error;
  }
}
