/**
 * How far `load` has come. A union by phase; totals come from the manifest, so the share
 * `loadedBytes / totalBytes` never passes 1 and ends at exactly 1.
 *
 * @example
 * ```ts
 * onProgress(progress) {
 *   if (progress.phase === "fetch") bar.value = progress.loadedBytes / progress.totalBytes;
 * }
 * ```
 */
export type Progress = FetchProgress | CompileProgress | ReadyProgress;

/** Weights are on their way to the GPU: bytes fetched, verified and handed to the upload queue. */
export interface FetchProgress {
  readonly phase: "fetch";
  readonly loadedBytes: number;
  readonly totalBytes: number;
}

/** The browser compiles shaders; counted in pipelines. */
export interface CompileProgress {
  readonly phase: "compile";
  readonly done: number;
  readonly total: number;
}

/** The model answers from now on. Reported once, last. */
export interface ReadyProgress {
  readonly phase: "ready";
}
