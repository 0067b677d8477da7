// The JavaScript side of the API on its own, in Node: no GPU, no browser, an engine that is played.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { load, MonarchError, support } from "monarch-webgpu";

import { apiReport, firstDifference } from "../../crates/monarch-web/api-report.mjs";

// Not exported to users, so not reachable by the package's name.
const pkg = new URL("../../crates/monarch-web/pkg/", import.meta.url);
const { EdgeModel } = await import(new URL("model.js", pkg).href);
const { Life } = await import(new URL("wasm.js", pkg).href);

/** An engine that says one letter of the prompt per turn, and notes what is going on. */
class PlayedEngine {
  running = 0;
  overlaps = 0;
  freed = 0;
  calls = 0;

  info() {
    return { contextTokens: 64, adapter: { features: ["subgroups"] } };
  }

  free() {
    this.freed += 1;
  }

  async generate(prompt, options, onChunk, signal) {
    this.calls += 1;
    this.running += 1;
    if (this.running > 1) this.overlaps += 1;
    const text = prompt.text ?? prompt.chat?.messages.at(-1).content ?? prompt.ids.join("");
    const ids = [];
    try {
      if (text === "fail") throw { code: "gpu-failed", message: "it failed", details: { causes: ["why"] } };
      for (const letter of text) {
        await turn();
        if (signal.aborted || ids.length === options.maxTokens) break;
        ids.push(letter.codePointAt(0));
        onChunk({ text: letter, ids: ids.slice(-1) });
      }
    } finally {
      this.running -= 1;
    }
    const said = String.fromCodePoint(...ids);
    return { text: said, ids, finishReason: signal.aborted ? "aborted" : "stop" };
  }
}

function play() {
  const engine = new PlayedEngine();
  const life = new Life();
  return { engine, life, model: new EdgeModel(life, engine) };
}

const withCode = (code) => (error) => error instanceof MonarchError && error.code === code;

async function read(generation) {
  let text = "";
  for await (const chunk of generation) text += chunk.text;
  return text;
}

test("importing does nothing, and a missing WebGPU is said before anything is fetched", async () => {
  assert.equal(globalThis.navigator?.gpu, undefined);
  const verdict = await support("http://127.0.0.1:1/manifest.json");
  assert.equal(verdict.status, "unsupported");
  assert.match(verdict.reasons[0], /navigator\.gpu/);
  await assert.rejects(load("http://127.0.0.1:1/manifest.json"), withCode("unsupported"));
});

test("load refuses unknown names, values out of range and addresses that are none", async () => {
  const url = "http://127.0.0.1:1/manifest.json";
  for (const options of [{ maxTokens: 1 }, { contextTokens: 0 }, { plan: "quick" }, { device: { allowF17: true } }, null]) {
    await assert.rejects(load(url, options), withCode("invalid-option"), JSON.stringify(options));
  }
  await assert.rejects(load("not an address"), withCode("invalid-option"));
  await assert.rejects(load(undefined), withCode("invalid-option"));
});

test("an aborted signal rejects load with the reason as cause", async () => {
  const reason = new Error("changed my mind");
  await assert.rejects(load("http://127.0.0.1:1/", { signal: AbortSignal.abort(reason) }), (error) => {
    assert.equal(error.code, "aborted");
    assert.equal(error.name, "AbortError");
    assert.equal(error.cause, reason);
    return true;
  });
});

test("a generation is cold until it is read", async () => {
  const { engine, model } = play();
  const generation = model.generate("abc");
  await turn();
  assert.equal(engine.calls, 0);
  assert.equal(await generation.text(), "abc");
  assert.equal(engine.calls, 1);
});

test("a generation is read once, as a stream or whole", async () => {
  const { model } = play();
  const streamed = model.generate("abc");
  assert.equal(await read(streamed), "abc");
  await assert.rejects(read(streamed), withCode("already-read"));
  await assert.rejects(streamed.text(), withCode("already-read"));
  assert.equal((await streamed.completion()).text, "abc");

  const whole = model.generate("abc");
  assert.equal(await whole.text(), "abc");
  await assert.rejects(whole.text(), withCode("already-read"));
  await assert.rejects(whole.completion(), withCode("already-read"));
  await assert.rejects(read(whole), withCode("already-read"));
});

test("wrong options and prompts reject when read, before any work", async () => {
  const { engine, model } = play();
  const wrong = [
    [{ maxTokens: -1 }, "invalid-option"],
    [{ maxTokens: 1.5 }, "invalid-option"],
    [{ temperature: Number.NaN }, "invalid-option"],
    [{ temperature: "hot" }, "invalid-option"],
    [{ stop: [""] }, "invalid-option"],
    [{ seed: 2 ** 53 }, "invalid-option"],
    [{ max_tokens: 1 }, "invalid-option"],
    [{ signal: {} }, "invalid-option"],
    [null, "invalid-option"],
  ];
  for (const [options, code] of wrong) {
    await assert.rejects(model.generate("abc", options).text(), withCode(code), JSON.stringify(options));
    await assert.rejects(read(model.generate("abc", options)), withCode(code), JSON.stringify(options));
  }
  await assert.rejects(model.generate({ ids: [1, -1] }).text(), withCode("invalid-prompt"));
  await assert.rejects(model.generate(7).text(), withCode("invalid-prompt"));
  await assert.rejects(model.chat("hello").text(), withCode("invalid-prompt"));
  await assert.rejects(model.chat([{ role: "robot", content: "" }]).text(), withCode("invalid-prompt"));
  await assert.rejects(model.chat([{ role: "user" }]).text(), withCode("invalid-prompt"));
  assert.equal(engine.calls, 0);
  // `undefined` is the same as absent, and what is right still works.
  assert.equal(await model.generate({ ids: new Uint32Array([4, 2]) }, { maxTokens: undefined }).text(), "42");
});

test("arguments are read when the call is made", async () => {
  const { model } = play();
  const messages = [{ role: "user", content: "first" }];
  const options = { maxTokens: 3 };
  const generation = model.chat(messages, options);
  messages[0].content = "second";
  options.maxTokens = 1;
  assert.equal(await generation.text(), "fir");
});

test("overlapping calls wait for each other and equal their serial results", async () => {
  const { engine, model } = play();
  const prompts = ["one", "two", "three", "four"];
  const texts = await Promise.all(
    prompts.map((prompt, index) => (index % 2 ? model.generate(prompt).text() : read(model.generate(prompt)))),
  );
  assert.deepEqual(texts, prompts);
  assert.equal(engine.overlaps, 0);
});

test("leaving the loop stops quietly and frees the way", async () => {
  const { engine, model } = play();
  for (let round = 0; round < 20; round += 1) {
    const generation = model.generate("a long story that nobody wants to hear to its end");
    for await (const { text } of generation) if (text === "n") break;
    assert.equal(await model.generate("next").text(), "next");
    const { finishReason, text } = await generation.completion();
    assert.equal(finishReason, "aborted");
    assert.ok(text.length < 12, text);
  }
  assert.equal(engine.overlaps, 0);
});

test("an iterator that is dropped half-way does not block the next call", async () => {
  const { model } = play();
  const iterator = model.generate("dropped")[Symbol.asyncIterator]();
  await iterator.next();
  assert.equal(await model.generate("next").text(), "next");
});

test("aborting rejects at once, in the stream, whole and in the queue", async () => {
  const { engine, model } = play();
  const stream = new AbortController();
  await assert.rejects(async () => {
    for await (const { text } of model.generate("abcdef", { signal: stream.signal })) if (text === "c") stream.abort();
  }, withCode("aborted"));

  const whole = new AbortController();
  const waiting = new AbortController();
  const first = model.generate("abcdef", { signal: whole.signal }).text();
  const second = model.generate("never", { signal: waiting.signal }).text();
  waiting.abort();
  await assert.rejects(second, withCode("aborted"));
  whole.abort();
  await assert.rejects(first, withCode("aborted"));
  await assert.rejects(model.generate("abc", { signal: AbortSignal.abort() }).text(), withCode("aborted"));
  assert.equal(await model.generate("after").text(), "after");
  assert.equal(engine.overlaps, 0);
});

test("an error of the engine comes out with code and details, and the next call works", async () => {
  const { model } = play();
  await assert.rejects(model.generate("fail").text(), (error) => {
    assert.ok(error instanceof MonarchError);
    assert.equal(error.code, "gpu-failed");
    assert.equal(error.message, "it failed");
    assert.deepEqual(error.details, { causes: ["why"] });
    return true;
  });
  await assert.rejects(read(model.generate("fail")), withCode("gpu-failed"));
  assert.equal(await model.generate("abc").text(), "abc");
});

test("dispose rejects what is running and waiting, frees once, and comes last", async () => {
  const { engine, model } = play();
  const running = model.generate("running").text();
  const waiting = model.generate("waiting").text();
  const cold = model.generate("cold");
  await turn();
  const disposed = Promise.all([model.dispose(), model.dispose()]);
  await assert.rejects(running, withCode("disposed"));
  await assert.rejects(waiting, withCode("disposed"));
  await disposed;
  await assert.rejects(cold.text(), withCode("disposed"));
  await model[Symbol.asyncDispose]();
  assert.equal(engine.freed, 1);
  assert.equal(engine.running, 0);
});

test("a panic rejects every call that waits, and the model stays lost", async () => {
  const { engine, life, model } = play();
  engine.generate = () => new Promise(() => {}); // what a panic in a future leaves behind
  const whole = model.generate("whole").text();
  await turn();
  life.end("panicked at 'index out of bounds'");
  await assert.rejects(whole, (error) => error.code === "crashed" && /index out of bounds/.test(error.message));
  await assert.rejects(model.generate("again").text(), withCode("crashed"));
  await model.dispose();
  assert.equal(engine.freed, 0);
});

test("a trap is a crash too", async () => {
  const { engine, model } = play();
  engine.generate = () => {
    throw new WebAssembly.RuntimeError("unreachable");
  };
  await assert.rejects(model.generate("x").text(), withCode("crashed"));
});

test("facts about the model cannot be changed", () => {
  const { model } = play();
  assert.throws(() => model.info.adapter.features.push("shader-f16"), TypeError);
});

test("every code of the engine's errors has a place in the types", () => {
  const engine = readFileSync(new URL("../../crates/monarch-engine/src/error.rs", import.meta.url), "utf8");
  const codes = new Set([...engine.matchAll(/=> "([a-z]+(?:-[a-z]+)*)"/g)].map(([, code]) => code));
  assert.ok(codes.size >= 10, [...codes].join());
  const types = readFileSync(new URL("errors.d.ts", pkg), "utf8");
  const union = /type MonarchErrorCode = ([^;]+);/.exec(types)[1];
  assert.deepEqual([...codes].filter((code) => !union.includes(`"${code}"`)), []);
});

test("the API report notices a changed, a new and a missing declaration", () => {
  const folder = mkdtempSync(join(tmpdir(), "api-report-"));
  const report = (index, declarations) => {
    writeFileSync(join(folder, "index.d.ts"), index);
    writeFileSync(join(folder, "model.d.ts"), declarations);
    return apiReport(folder);
  };
  const index = 'export { load, type Model } from "./model.js";\n';
  const declarations = "/** Says what. */\nexport declare function load(): Model;\nexport interface Model {\n    a: number;\n}\n";
  const listed = report(index, declarations);
  assert.match(listed, /## Model\n\n```ts\nexport interface Model \{\n {4}a: number;\n\}\n```/);
  assert.equal(firstDifference(listed, report(index, declarations.replace("Says what", "Says more"))), undefined);
  const changed = firstDifference(listed, report(index, declarations.replace("a: number", "a: string")));
  assert.deepEqual([changed.listed.trim(), changed.built.trim()], ["a: number;", "a: string;"]);
  assert.ok(firstDifference(listed, report(index.replace("load, ", ""), declarations)));
  assert.throws(() => report(index.replace("load", "lode"), declarations), /lode is exported, but declared nowhere/);
  assert.throws(() => report("", declarations), /exports nothing/);
});
