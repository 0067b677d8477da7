import { abortedError } from "./errors.js";

/** Throws when `signal` was aborted already. */
export function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw abortedError(signal);
}

/**
 * `work`, but rejecting as soon as `signal` is aborted, whatever `work` still has to wind up.
 *
 * The listener is removed in any case: a signal that outlives many calls keeps none of them alive.
 */
export async function unlessAborted<T>(
  signal: AbortSignal | undefined,
  work: Promise<T>,
  error: (signal: AbortSignal) => unknown = abortedError,
): Promise<T> {
  if (signal === undefined) return work;
  let stopListening = (): void => {};
  const aborted = new Promise<never>((_, reject) => {
    const onAbort = (): void => reject(error(signal));
    if (signal.aborted) return onAbort();
    signal.addEventListener("abort", onAbort, { once: true });
    stopListening = () => signal.removeEventListener("abort", onAbort);
  });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    stopListening();
  }
}
