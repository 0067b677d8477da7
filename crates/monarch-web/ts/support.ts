import { throwIfAborted, unlessAborted } from "./abort.js";
import { MonarchError } from "./errors.js";
import type { AdapterInfo } from "./model.js";
import { deviceChecks, type DeviceOptions } from "./device.js";
import { abortSignal, address, checkOptions, group, type Checks } from "./options.js";
import { manifestUrl } from "./source.js";
import { enter } from "./wasm.js";
import { support as edgeSupport } from "./monarch_web.js";

/** Whether the model at a source can run here, decided before any weight byte is fetched. */
export interface Support {
  readonly status: "supported" | "unsupported";
  /** Why not: one sentence each, empty when supported. */
  readonly reasons: readonly string[];
  /** The GPU that would run it, when the browser gives one. */
  readonly adapter?: AdapterInfo;
}

/** Options of {@link support}. */
export interface SupportOptions {
  /** Gives up at once; the promise rejects with code `aborted`. */
  readonly signal?: AbortSignal | undefined;
  /** The same as will be given to {@link load}. */
  readonly device?: DeviceOptions | undefined;
  /** Where `monarch_web_bg.wasm` is, when it is not beside the package's JavaScript. */
  readonly wasmUrl?: string | URL | undefined;
}

const checks: Checks<SupportOptions> = {
  signal: abortSignal,
  device: group("support: device", deviceChecks),
  wasmUrl: address,
};

/**
 * Tells whether this browser and GPU can run the model, from its manifest alone.
 *
 * Rejects when the manifest cannot be fetched or read: that says nothing about the browser.
 *
 * @example
 * ```ts
 * const verdict = await support("models/tiny-lfm2/manifest.json");
 * if (verdict.status === "unsupported") explain(verdict.reasons);
 * ```
 *
 * @param source address of the manifest, or of its folder when it ends in `/`
 */
export async function support(source: string | URL, options: SupportOptions = {}): Promise<Support> {
  const { signal = new AbortController().signal, device = {}, wasmUrl } = checkOptions("support", options, checks);
  const url = manifestUrl("support", source);
  throwIfAborted(signal);
  if (!hasWebGpu()) return { status: "unsupported", reasons: [NO_WEBGPU] };
  return unlessAborted(
    signal,
    enter(wasmUrl).then((life) => life.run(() => edgeSupport(url, device, signal) as Promise<Support>)),
  );
}

const NO_WEBGPU = "this browser has no WebGPU here (navigator.gpu is missing; it needs a secure context)";

function hasWebGpu(): boolean {
  return typeof navigator === "object" && "gpu" in navigator && navigator.gpu !== undefined;
}

/** The error `load` rejects with where {@link support} would say that there is no WebGPU. */
export function requireWebGpu(): void {
  if (!hasWebGpu()) throw new MonarchError("unsupported", NO_WEBGPU, { details: { reasons: [NO_WEBGPU] } });
}
