import { MonarchError } from "./errors.js";
import { abortSignal, filledStrings, flag, integer, number, type Checks } from "./options.js";

/** A prompt that the model continues: text, or token ids that are taken as they are. */
export type Prompt = string | { readonly ids: readonly number[] | Uint32Array };

/** Options of {@link Model.generate}. */
export interface GenerateOptions {
  /** Stops after this many new tokens. Without it, the model stops by itself or at the end of its context. */
  readonly maxTokens?: number | undefined;
  /** 0, the default, takes the likeliest token every time; higher is more varied. */
  readonly temperature?: number | undefined;
  /** Start of the random numbers: the same seed gives the same text. Without it, a random one. */
  readonly seed?: number | undefined;
  /** Ends the text before any of these strings; they are never delivered. */
  readonly stop?: readonly string[] | undefined;
  /** Goes on after the model's end token, up to `maxTokens`. */
  readonly ignoreEos?: boolean | undefined;
  /** Ends the call at once: what is being read rejects with code `aborted`. */
  readonly signal?: AbortSignal | undefined;
}

const MOST_TOKENS = 2 ** 32 - 1;

/** The checks that {@link GenerateOptions} stand for. */
export const generateChecks: Checks<GenerateOptions> = {
  maxTokens: integer(0, MOST_TOKENS),
  temperature: number(0, 100),
  seed: integer(0, Number.MAX_SAFE_INTEGER),
  stop: filledStrings,
  ignoreEos: flag,
  signal: abortSignal,
};

/** A piece of a generation: whole characters only, and the tokens that came with it. */
export interface Chunk {
  /** Text to append. May be empty while a character or a stop string is still incomplete. */
  readonly text: string;
  /** Ids of the new tokens. */
  readonly ids: readonly number[];
}

/** Why a generation ended. */
export type FinishReason =
  /** The model's end token, or one of the stop strings. */
  | "stop"
  /** `maxTokens`, or the end of the context. */
  | "length"
  /** The reader left the loop. */
  | "aborted";

/** Token counts of one call. */
export interface Usage {
  readonly promptTokens: number;
  readonly completionTokens: number;
  /** Prompt tokens that an earlier call had computed already. */
  readonly cachedTokens: number;
}

/** Where the time of one call went. */
export interface Timings {
  /** From the start of the work to the first token, in milliseconds. */
  readonly ttftMs: number;
  /** Prompt tokens per second. */
  readonly prefillTokS: number;
  /** New tokens per second after the first one; 0 with fewer than two. */
  readonly decodeTokS: number;
  /** From the start of the work to its end, in milliseconds. */
  readonly totalMs: number;
}

/** A generation as a whole. */
export interface Completion {
  readonly text: string;
  /** Ids of the new tokens only; an end token is not among them. */
  readonly ids: readonly number[];
  readonly finishReason: FinishReason;
  readonly usage: Usage;
  readonly timings: Timings;
}

/**
 * The answer to one call: to tokens what a `Response` is to bytes.
 *
 * Cold until it is read, and read once: as a stream by `for await`, or whole by `text()` or
 * `completion()`. A second reading rejects with code `already-read`, with one exception:
 * `completion()` after a stream was begun tells how that stream ended.
 *
 * Leaving the loop stops the model quietly. Options that were wrong reject here, before any work.
 *
 * @example
 * ```ts
 * const generation = model.generate("Once upon a time", { maxTokens: 64 });
 * for await (const { text } of generation) output.append(text);
 * const { finishReason, usage } = await generation.completion();
 * ```
 */
export interface Generation extends AsyncIterable<Chunk, undefined> {
  /** All of the text. */
  text(): Promise<string>;
  /** All of the text, with ids, reason, counts and timings. */
  completion(): Promise<Completion>;
  [Symbol.asyncIterator](): AsyncIterator<Chunk, undefined>;
}

/**
 * Does the work of one call: delivers chunks in order, ends early when `leave` is aborted, and
 * resolves when the last chunk was delivered.
 */
export type Run = (deliver: (chunk: Chunk) => void, leave: AbortSignal) => Promise<Completion>;

/** A {@link Generation} that starts `run` when it is first read. */
export class LazyGeneration implements Generation {
  readonly #run: Run;
  #reading: "cold" | "stream" | "whole" = "cold";
  /** How a stream ends; made with the stream, settled when it is over. */
  readonly #streamed = deferred<Completion>();

  constructor(run: Run) {
    this.#run = run;
    // A stream that fails has told its reader already: nobody has to ask for the completion too.
    this.#streamed.promise.catch(() => {});
  }

  async text(): Promise<string> {
    return (await this.#whole()).text;
  }

  async completion(): Promise<Completion> {
    return this.#reading === "stream" ? this.#streamed.promise : this.#whole();
  }

  [Symbol.asyncIterator](): AsyncIterator<Chunk, undefined> {
    this.#claim("stream");
    return this.#stream();
  }

  async #whole(): Promise<Completion> {
    this.#claim("whole");
    return this.#run(() => {}, new AbortController().signal);
  }

  async *#stream(): AsyncGenerator<Chunk, undefined> {
    const leaving = new AbortController();
    const chunks: Chunk[] = [];
    let news = deferred<void>();
    let failure: { readonly error: unknown } | undefined;
    let ended = false;

    const deliver = (chunk: Chunk): void => {
      chunks.push(chunk);
      news.resolve();
    };
    const completion = this.#run(deliver, leaving.signal);
    this.#streamed.resolve(completion);
    completion.then(
      () => {
        ended = true;
        news.resolve();
      },
      (error: unknown) => {
        failure = { error };
        news.resolve();
      },
    );

    try {
      for (;;) {
        // An error does not wait until the chunks before it were read.
        if (failure !== undefined) throw failure.error;
        const chunk = chunks.shift();
        if (chunk !== undefined) {
          yield chunk;
        } else if (ended) {
          return;
        } else {
          await news.promise;
          news = deferred<void>();
        }
      }
    } finally {
      leaving.abort();
    }
  }

  #claim(reading: "stream" | "whole"): void {
    if (this.#reading !== "cold") {
      throw new MonarchError("already-read", `this generation was read already, as a ${this.#reading}`, {
        details: { reading: this.#reading },
      });
    }
    this.#reading = reading;
  }
}

interface Deferred<T> {
  readonly promise: Promise<T>;
  readonly resolve: (value: T | PromiseLike<T>) => void;
}

function deferred<T>(): Deferred<T> {
  let resolve: Deferred<T>["resolve"] = () => {};
  const promise = new Promise<T>((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
}
