import { throwIfAborted, unlessAborted } from "./abort.js";
import { MonarchError } from "./errors.js";
import {
  generateChecks,
  LazyGeneration,
  type Chunk,
  type Completion,
  type GenerateOptions,
  type Generation,
  type Prompt,
  type Run,
} from "./generation.js";
import { checkOptions, objects, type Checks } from "./options.js";
import type { WasmModel } from "./monarch_web.js";
import type { Life } from "./wasm.js";

/** One turn of a conversation. */
export interface Message {
  readonly role: "system" | "user" | "assistant" | "tool";
  readonly content: string;
}

/** Options of {@link Model.chat}. */
export interface ChatOptions extends GenerateOptions {
  /** Descriptions of functions the model may call, as its chat template expects them. */
  readonly tools?: readonly object[] | undefined;
}

const chatChecks: Checks<ChatOptions> = { ...generateChecks, tools: objects };

/** The GPU a model runs on, as the browser describes it. A browser may leave any text empty. */
export interface AdapterInfo {
  readonly vendor: string;
  readonly architecture: string;
  readonly device: string;
  readonly description: string;
  readonly backend: string;
  /** True when the processor plays the GPU: it works, slowly. */
  readonly isSoftware: boolean;
  /** WebGPU features that the engine has a use for and the adapter has. */
  readonly features: readonly string[];
  /** Those that are enabled on the device; empty before there is one. */
  readonly enabledFeatures: readonly string[];
  /** Smallest and largest subgroup the adapter announces; 0 when it does not say. */
  readonly subgroupSizes: readonly [number, number];
  /** Invocations per subgroup as a probe measured them; 0 without subgroups. */
  readonly subgroupSize: number;
  readonly limits: DeviceLimits;
}

/** The limits that decide what fits: the adapter's before there is a device, then the device's. */
export interface DeviceLimits {
  readonly maxBindingBytes: number;
  readonly maxBufferBytes: number;
  readonly maxInvocations: number;
  readonly maxWorkgroupBytes: number;
  readonly maxStorageBuffers: number;
  readonly maxWorkgroups: number;
}

/** The list of dispatches that one token takes. */
export interface PlanInfo {
  readonly name: "plain" | "seed";
  readonly dispatches: number;
  /** What was replaced to run on this GPU, and why; one sentence each. */
  readonly decisions: readonly string[];
}

/** Facts about a loaded model. */
export interface ModelInfo {
  readonly adapter: AdapterInfo;
  readonly plan: PlanInfo;
  /** Room for prompt and answer together. */
  readonly contextTokens: number;
  /** Token ids are below this. */
  readonly vocab: number;
  /** GPU memory of weights, caches and activations. */
  readonly gpuBytes: number;
}

/**
 * A model on the GPU.
 *
 * Calls may overlap: they run one after the other, in the order in which they are first read, and
 * each gives what it would have given alone.
 *
 * @example
 * ```ts
 * await using model = await load(url);
 * for await (const { text } of model.chat([{ role: "user", content: "Hello!" }])) output.append(text);
 * ```
 */
export interface Model {
  /** What was loaded, onto which GPU. */
  readonly info: ModelInfo;
  /** Continues a text, or token ids as they are. */
  generate(prompt: Prompt, options?: GenerateOptions): Generation;
  /** Answers the last message of a conversation. The whole conversation is an argument: nothing is remembered. */
  chat(messages: readonly Message[], options?: ChatOptions): Generation;
  /**
   * Gives the GPU memory back. Calls that are still running or waiting reject with code
   * `disposed`, and so do later ones. A second `dispose` does nothing.
   */
  dispose(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** What the edge is asked to run; the Rust side reads the same names. */
type EdgePrompt =
  | { readonly text: string }
  | { readonly ids: readonly number[] }
  | { readonly chat: EdgeChat };

interface EdgeChat {
  readonly messages: readonly Message[];
  readonly tools?: readonly object[];
  readonly add_generation_prompt: boolean;
}

/** A {@link Model} in the WebAssembly module. */
export class EdgeModel implements Model {
  readonly info: ModelInfo;
  readonly #life: Life;
  readonly #edge: WasmModel;
  /** Settles when the last call that was queued is over. */
  #lastTurn: Promise<unknown> = Promise.resolve();
  readonly #disposal = new AbortController();
  #disposed: Promise<void> | undefined;

  constructor(life: Life, edge: WasmModel) {
    this.#life = life;
    this.#edge = edge;
    this.info = deepFreeze(edge.info() as ModelInfo);
  }

  generate(prompt: Prompt, options: GenerateOptions = {}): Generation {
    return this.#generation(() => {
      const { signal, ...rest } = checkOptions("generate", options, generateChecks);
      return { prompt: edgePrompt(prompt), options: rest, signal };
    });
  }

  chat(messages: readonly Message[], options: ChatOptions = {}): Generation {
    return this.#generation(() => {
      const { signal, tools, ...rest } = checkOptions("chat", options, chatChecks);
      checkMessages(messages);
      const chat: EdgeChat = structuredClone({ messages, ...(tools && { tools }), add_generation_prompt: true });
      return { prompt: { chat }, options: rest, signal };
    });
  }

  dispose(): Promise<void> {
    this.#disposal.abort();
    this.#disposed ??= this.#lastTurn.then(() => {
      // A crash took the model with it.
      if (!this.#life.crashed) this.#edge.free();
    });
    return this.#disposed;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.dispose();
  }

  /** Reads the arguments now, as they are; what is wrong with them rejects when the generation is read. */
  #generation(read: () => Call): Generation {
    let call: Call;
    try {
      call = read();
    } catch (error) {
      return new LazyGeneration(() => Promise.reject(error));
    }
    return new LazyGeneration((deliver, leave) => this.#queue(call, deliver, leave));
  }

  /** Waits for the calls before, then runs. Rejects at once when the call is aborted or the model disposed. */
  #queue(call: Call, ...[deliver, leave]: Parameters<Run>): Promise<Completion> {
    const turn = this.#lastTurn.then(() => this.#run(call, deliver, leave));
    // The next call waits until this one has let go of the GPU, however it ended.
    this.#lastTurn = turn.catch(() => {});
    return unlessAborted(this.#disposal.signal, unlessAborted(call.signal, turn), disposedError);
  }

  async #run(call: Call, ...[deliver, leave]: Parameters<Run>): Promise<Completion> {
    throwIfAborted(call.signal);
    if (this.#disposal.signal.aborted) throw disposedError();
    const stop = AbortSignal.any([leave, this.#disposal.signal, ...(call.signal ? [call.signal] : [])]);
    const onChunk = (chunk: Chunk): void => {
      if (!stop.aborted) deliver(chunk);
    };
    return this.#life.run(
      () => this.#edge.generate(call.prompt, call.options, onChunk, stop) as Promise<Completion>,
    );
  }
}

interface Call {
  readonly prompt: EdgePrompt;
  readonly options: Omit<GenerateOptions, "signal">;
  readonly signal: AbortSignal | undefined;
}

function disposedError(): MonarchError {
  return new MonarchError("disposed", "the model was disposed");
}

function edgePrompt(prompt: Prompt): EdgePrompt {
  if (typeof prompt === "string") return { text: prompt };
  if (typeof prompt === "object" && prompt !== null && "ids" in prompt) {
    const ids = Array.from(prompt.ids);
    const wrong = ids.findIndex((id) => !Number.isInteger(id) || id < 0 || id > 0xffff_ffff);
    if (wrong === -1) return { ids };
    throw new MonarchError("invalid-prompt", `ids[${wrong}] is ${String(ids[wrong])}, which is no token id`, {
      details: { index: wrong, value: ids[wrong] },
    });
  }
  throw new MonarchError("invalid-prompt", "a prompt is a string or { ids }", { details: { value: prompt } });
}

const ROLES: readonly unknown[] = ["system", "user", "assistant", "tool"] satisfies readonly Message["role"][];

function checkMessages(messages: readonly Message[]): void {
  if (!Array.isArray(messages)) {
    throw new MonarchError("invalid-prompt", "messages is not an array", { details: { value: messages } });
  }
  messages.forEach((message: unknown, index) => {
    const { role, content } = (message ?? {}) as Partial<Message>;
    if (!ROLES.includes(role)) {
      throw new MonarchError("invalid-prompt", `messages[${index}].role is ${String(role)}, not ${ROLES.join(" or ")}`, {
        details: { index, role },
      });
    }
    if (typeof content !== "string") {
      throw new MonarchError("invalid-prompt", `messages[${index}].content is not a string`, { details: { index } });
    }
  });
}

function deepFreeze<T>(value: T): T {
  if (typeof value === "object" && value !== null) {
    Object.values(value).forEach(deepFreeze);
    Object.freeze(value);
  }
  return value;
}
