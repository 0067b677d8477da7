import { MonarchError, fromEdge } from "./errors.js";
import init, { setUp } from "./monarch_web.js";

/** Where the WebAssembly module is being started or runs; forgotten when starting it failed. */
let starting: Promise<unknown> | undefined;

/** Calls into the module that have not settled yet, by their way to reject. */
const pending = new Set<(error: MonarchError) => void>();

/**
 * One life of the module's memory. A panic ends it: every object made in it is lost, and the
 * next call of `enter` begins a new one.
 */
export class Life {
  #crash: MonarchError | undefined;

  /**
   * Runs `call` inside the module and brings out its result or a `MonarchError`.
   *
   * A panic inside an asynchronous call leaves that call's promise unsettled for ever, so the
   * panic hook rejects all calls that are still waiting.
   */
  async run<T>(call: () => T | PromiseLike<T>): Promise<T> {
    if (this.#crash !== undefined) throw this.#crash;
    let forget = (): void => {};
    try {
      return await new Promise<T>((resolve, reject) => {
        pending.add(reject);
        forget = () => pending.delete(reject);
        Promise.resolve(call()).then(resolve, reject);
      });
    } catch (error) {
      throw fromEdge(error);
    } finally {
      forget();
    }
  }

  /** True when a panic ended this life. */
  get crashed(): boolean {
    return this.#crash !== undefined;
  }

  /** Ends this life. Called by the panic hook, with the panic's own words. */
  end(panic: string): void {
    this.#crash = new MonarchError("crashed", `the engine crashed: ${panic}`, { details: { panic } });
    if (current === this) current = undefined;
    for (const reject of pending) reject(this.#crash);
    pending.clear();
  }
}

let current: Life | undefined;

/**
 * Starts the module, once per page or worker, and gives the life that it is in.
 *
 * Without `wasmUrl` the module lies beside this file, where bundlers find it as well.
 */
export async function enter(wasmUrl: string | URL | undefined): Promise<Life> {
  if (current !== undefined) return current;
  starting ??= init(wasmUrl === undefined ? undefined : { module_or_path: wasmUrl });
  try {
    await starting;
  } catch (cause) {
    starting = undefined;
    throw new MonarchError(
      "wasm-failed",
      `the WebAssembly module could not be started: ${cause instanceof Error ? cause.message : String(cause)}`,
      { details: { wasmUrl: wasmUrl?.toString() }, cause },
    );
  }
  if (current === undefined) {
    const life = new Life();
    setUp((panic: string) => life.end(panic));
    current = life;
  }
  return current;
}
