/**
 * What went wrong, as a word a program can branch on. Codes are stable: a new cause gets a new
 * code, an existing code keeps its meaning.
 *
 * | code | meaning |
 * | --- | --- |
 * | `aborted` | the call's `signal` was aborted; `cause` is `signal.reason` |
 * | `already-read` | a generation was read a second time |
 * | `context-exceeded` | the prompt does not fit into the context |
 * | `crashed` | the engine hit a bug of its own and lost its models; `load` starts afresh |
 * | `device-lost` | the browser took the GPU away; load the model again |
 * | `disposed` | the model was disposed |
 * | `fetch-failed` | a file is missing, cut short or could not be fetched |
 * | `gpu-failed` | the GPU refused an operation; load the model again |
 * | `invalid-option` | an option has an unknown name or a value out of range |
 * | `invalid-prompt` | the prompt or a chat message is not one this model can take |
 * | `manifest-invalid` | the manifest is not one this engine can read |
 * | `out-of-memory` | the GPU has no room for the model |
 * | `self-test-failed` | the GPU computes something else than the model's own check expects |
 * | `text-invalid` | the tokenizer or the chat template does not work |
 * | `unsupported` | this browser or this GPU cannot run the model |
 * | `wasm-failed` | the WebAssembly module could not be fetched or started |
 * | `weights-corrupt` | weights arrived, but not those that the manifest lists |
 */
export type MonarchErrorCode =
  | "aborted"
  | "already-read"
  | "context-exceeded"
  | "crashed"
  | "device-lost"
  | "disposed"
  | "fetch-failed"
  | "gpu-failed"
  | "invalid-option"
  | "invalid-prompt"
  | "manifest-invalid"
  | "out-of-memory"
  | "self-test-failed"
  | "text-invalid"
  | "unsupported"
  | "wasm-failed"
  | "weights-corrupt";

/** Named facts about an error: the section, the URL, both numbers of a mismatch. */
export type ErrorDetails = Readonly<Record<string, unknown>>;

/**
 * The one error type of this package.
 *
 * @example
 * ```ts
 * try {
 *   await load(url, { signal });
 * } catch (error) {
 *   if (error instanceof MonarchError && error.code === "aborted") return;
 *   throw error;
 * }
 * ```
 */
export class MonarchError extends Error {
  /** What went wrong, as a stable word. */
  readonly code: MonarchErrorCode;
  /** The values behind the message. */
  readonly details: ErrorDetails;

  constructor(
    code: MonarchErrorCode,
    message: string,
    options: { details?: ErrorDetails; cause?: unknown } = {},
  ) {
    super(message, "cause" in options ? { cause: options.cause } : undefined);
    // Code that is written for the platform's own cancellable calls looks for this name.
    this.name = code === "aborted" ? "AbortError" : "MonarchError";
    this.code = code;
    this.details = Object.freeze({ ...options.details });
  }
}

/** The error of a call whose `signal` was aborted. */
export function abortedError(signal: AbortSignal): MonarchError {
  return new MonarchError("aborted", "the call was aborted by its signal", { cause: signal.reason });
}

/**
 * Turns what the wasm edge threw into the public error.
 *
 * The edge throws plain `{ code, message, details }` objects. Anything else is a trap or an
 * exception of the browser's inside the engine: our bug, reported as `crashed`.
 */
export function fromEdge(thrown: unknown): MonarchError {
  if (thrown instanceof MonarchError) return thrown;
  if (isEdgeError(thrown)) {
    return new MonarchError(thrown.code, thrown.message, { details: thrown.details ?? {} });
  }
  return new MonarchError("crashed", `the engine crashed: ${String(thrown)}`, { cause: thrown });
}

interface EdgeError {
  readonly code: MonarchErrorCode;
  readonly message: string;
  readonly details?: ErrorDetails;
}

function isEdgeError(thrown: unknown): thrown is EdgeError {
  return (
    typeof thrown === "object" &&
    thrown !== null &&
    !(thrown instanceof Error) &&
    "code" in thrown &&
    typeof thrown.code === "string" &&
    "message" in thrown &&
    typeof thrown.message === "string"
  );
}
