// The package in a real browser, as a page would use it, with the small model.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch } from "./chromium.mjs";
import { goldenPrompts } from "./golden.mjs";
import { serve } from "./server.mjs";

const MODEL = "/models/tiny-lfm2/manifest.json";
const WEIGHTS = "/models/tiny-lfm2/weights.bin";
const prompts = goldenPrompts();

let server;
let browser;
/** An empty page with the package imported as `monarch` and the small model loaded as `model`. */
let page;

before(async () => {
  server = await serve({ "/pkg/": "crates/monarch-web/pkg", "/models/": "models" });
  browser = await launch();
  page = await emptyPage();
  await page.evaluate(async (url) => {
    globalThis.progress = [];
    globalThis.model = await monarch.load(url, { onProgress: (step) => progress.push(step) });
  }, MODEL);
});

after(async () => {
  await browser?.close();
  await server?.close();
});

async function emptyPage() {
  const page = await browser.newPage();
  page.setDefaultTimeout(120_000);
  await page.goto(`${server.url}/blank.html`);
  await page.evaluate(async () => {
    globalThis.monarch = await import("/pkg/index.js");
    /** What a promise rejects with, as data; undefined when it does not. */
    globalThis.failure = (promise) =>
      promise.then(
        () => undefined,
        (error) => ({
          isMonarchError: error instanceof monarch.MonarchError,
          code: error.code,
          message: error.message,
          details: error.details,
        }),
      );
  });
  return page;
}

test("progress is in bytes of the manifest, never goes back, and ends ready", async () => {
  const progress = await page.evaluate(() => globalThis.progress);
  const fetched = progress.filter(({ phase }) => phase === "fetch");
  const compiled = progress.filter(({ phase }) => phase === "compile");
  assert.ok(fetched.length > 1 && compiled.length > 0, JSON.stringify(progress));
  for (const [index, step] of fetched.entries()) {
    assert.equal(step.totalBytes, fetched[0].totalBytes);
    if (index > 0) assert.ok(step.loadedBytes >= fetched[index - 1].loadedBytes);
  }
  assert.equal(fetched.at(-1).loadedBytes, fetched[0].totalBytes);
  assert.equal(compiled.at(-1).done, compiled[0].total);
  assert.deepEqual(progress.at(-1), { phase: "ready" });
  assert.equal(progress.filter(({ phase }) => phase === "ready").length, 1);
});

test("loading asks for nothing but the package and the model's own files, weights by range", () => {
  const allowed = /^\/(blank\.html|favicon\.ico|pkg\/[\w.]+|models\/tiny-lfm2\/[\w.]+)$/;
  assert.deepEqual(server.requests.filter(({ path }) => !allowed.test(path)), []);
  const weights = server.requests.filter(({ path }) => path === WEIGHTS);
  assert.ok(weights.length > 1);
  assert.deepEqual(weights.filter(({ range }) => !/^bytes=\d+-\d+$/.test(range ?? "")), []);
});

test("the verdict agrees that the model runs here, without asking for weights", async () => {
  const before = server.requests.length;
  const verdict = await page.evaluate((url) => monarch.support(url), MODEL);
  assert.equal(verdict.status, "supported");
  assert.deepEqual(verdict.reasons, []);
  assert.ok(verdict.adapter.features.length > 0);
  assert.deepEqual(server.requests.slice(before).map(({ path }) => path), [MODEL]);
});

test("every wanted feature of the adapter is enabled on the device", async () => {
  const { adapter, native } = await page.evaluate(async () => {
    const { features } = await navigator.gpu.requestAdapter();
    return { adapter: model.info.adapter, native: [...features] };
  });
  const wanted = ["timestamp-query", "shader-f16", "subgroups"].filter((name) => native.includes(name));
  assert.ok(wanted.includes("subgroups"), `this browser has ${native.join(", ")}`);
  assert.deepEqual([...adapter.enabledFeatures].sort(), wanted.sort());
  assert.ok(adapter.subgroupSize >= 4);
});

for (const { name, source, inputIds, greedyIds, greedyText } of prompts) {
  test(`greedy ids and text equal the golden ones: ${name}`, async () => {
    const got = await page.evaluate(
      async ({ source, inputIds, maxTokens }) => {
        const options = { maxTokens, temperature: 0, ignoreEos: true };
        const fromIds = await model.generate({ ids: inputIds }, options).completion();
        const asWritten = typeof source === "string" ? model.generate(source, options) : model.chat(source, options);
        const chunks = [];
        for await (const chunk of asWritten) chunks.push(chunk);
        return { fromIds, chunks, completion: await asWritten.completion() };
      },
      { source, inputIds, maxTokens: greedyIds.length },
    );
    assert.deepEqual(got.fromIds.ids, greedyIds);
    assert.deepEqual(got.chunks.flatMap(({ ids }) => ids), greedyIds);
    assert.equal(got.chunks.map(({ text }) => text).join(""), got.fromIds.text);
    assert.deepEqual(got.completion.ids, greedyIds);
    assert.equal(got.completion.usage.promptTokens, inputIds.length);
    assert.equal(got.completion.usage.completionTokens, greedyIds.length);
    assert.equal(got.completion.finishReason, "length");
    // The golden text writes special tokens out, ours leaves them away.
    assert.equal(got.fromIds.text.trim(), greedyText.replace(/<\|im_(end|start)\|>/g, "").trim());
  });
}

test("the end token ends an answer and is not shown", async () => {
  const { source, greedyIds } = prompts.find(({ greedyIds }) => greedyIds.includes(7));
  const completion = await page.evaluate((messages) => model.chat(messages).completion(), source);
  assert.deepEqual(completion.ids, greedyIds.slice(0, greedyIds.indexOf(7)));
  assert.equal(completion.finishReason, "stop");
  assert.doesNotMatch(completion.text, /<\|/);
});

test("both plans give the same tokens", async () => {
  const { inputIds, greedyIds } = prompts[0];
  const plain = await page.evaluate(
    async ({ url, ids }) => {
      const model = await monarch.load(url, { plan: "plain", contextTokens: 64 });
      const completion = await model.generate({ ids }, { maxTokens: 8 }).completion();
      const { plan, contextTokens } = model.info;
      await model.dispose();
      return { ids: completion.ids, plan: plan.name, contextTokens };
    },
    { url: MODEL, ids: inputIds },
  );
  assert.deepEqual(plain, { ids: greedyIds.slice(0, 8), plan: "plain", contextTokens: 64 });
});

test("after leaving the loop half-way the next call is complete and starts within a second", async () => {
  const { inputIds, greedyIds } = prompts[0];
  const got = await page.evaluate(async (ids) => {
    const generation = model.generate({ ids }, { maxTokens: 500, ignoreEos: true });
    let tokens = 0;
    for await (const chunk of generation) if ((tokens += chunk.ids.length) >= 3) break;
    const left = performance.now();
    const next = model.generate({ ids }, { maxTokens: 16 })[Symbol.asyncIterator]();
    const first = await next.next();
    const waitedMs = performance.now() - left;
    const rest = [...first.value.ids];
    for (let step = await next.next(); !step.done; step = await next.next()) rest.push(...step.value.ids);
    return { waitedMs, rest, finishReason: (await generation.completion()).finishReason };
  }, inputIds);
  assert.equal(got.finishReason, "aborted");
  assert.deepEqual(got.rest, greedyIds.slice(0, 16));
  assert.ok(got.waitedMs < 1000, `${got.waitedMs} ms`);
});

test("aborted calls reject with code aborted, and later ones equal a fresh model's", async () => {
  const { inputIds, greedyIds } = prompts[0];
  const got = await page.evaluate(async (ids) => {
    const failures = [];
    for (let round = 0; round < 5; round += 1) {
      const controller = new AbortController();
      const { signal } = controller;
      const generation = model.generate({ ids }, { maxTokens: 500, signal });
      failures.push(
        await failure(
          (async () => {
            for await (const _ of generation) controller.abort();
          })(),
        ),
      );
    }
    const { ids: after } = await model.generate({ ids }, { maxTokens: 16 }).completion();
    return { codes: failures.map((failure) => failure?.code), after };
  }, inputIds);
  assert.deepEqual(got.codes, Array(5).fill("aborted"));
  assert.deepEqual(got.after, greedyIds.slice(0, 16));
});

test("overlapping calls equal their serial results", async () => {
  const together = await page.evaluate(
    (prompts) =>
      Promise.all(
        prompts.map(async ({ inputIds }) => (await model.generate({ ids: inputIds }, { maxTokens: 8, ignoreEos: true }).completion()).ids),
      ),
    prompts,
  );
  assert.deepEqual(together, prompts.map(({ greedyIds }) => greedyIds.slice(0, 8)));
});

test("a seed makes sampling repeatable, and another seed another text", async () => {
  const texts = await page.evaluate(async () => {
    const say = (seed) => model.generate("Once upon a time", { temperature: 1.5, seed, maxTokens: 12 }).text();
    return [await say(1), await say(1), await say(2), await say(3)];
  });
  assert.equal(texts[0], texts[1]);
  assert.ok(new Set(texts).size >= 3, texts.join(" | "));
});

test("stop strings end the text before them", async () => {
  const completion = await page.evaluate(() =>
    model.generate("Once upon a time, there was a little", { stop: ["lived in", "never said"], maxTokens: 40 }).completion(),
  );
  assert.equal(completion.text, " girl named Rosa. She ");
  assert.equal(completion.finishReason, "stop");
});

test("limits are results or typed errors, and the model works afterwards", async () => {
  const got = await page.evaluate(async () => {
    const none = await model.generate("Once", { maxTokens: 0 }).completion();
    const room = model.info.contextTokens;
    const tooLong = await failure(model.generate({ ids: Array(room + 1).fill(5) }).text());
    const empty = await failure(model.generate({ ids: [] }).text());
    const unknown = await failure(model.generate({ ids: [model.info.vocab] }).text());
    const after = await model.generate("Once", { maxTokens: 2 }).completion();
    return { none, tooLong, empty, unknown, after: after.ids.length };
  });
  assert.deepEqual([got.none.text, got.none.ids, got.none.finishReason], ["", [], "length"]);
  assert.equal(got.tooLong.code, "context-exceeded");
  assert.equal(got.empty.code, "invalid-prompt");
  assert.equal(got.unknown.code, "invalid-prompt");
  assert.equal(got.after, 2);
});

test("load aborted while weights are on their way rejects at once, and loads the next time", async () => {
  const fresh = await emptyPage();
  let release;
  server.hold.set(WEIGHTS, new Promise((resolve) => (release = resolve)));
  try {
    const got = await fresh.evaluate(async (url) => {
      const controller = new AbortController();
      const failed = failure(monarch.load(url, { signal: controller.signal }));
      await new Promise((resolve) => setTimeout(resolve, 1500));
      const aborted = performance.now();
      controller.abort();
      return { ...(await failed), tookMs: performance.now() - aborted };
    }, MODEL);
    assert.equal(got.code, "aborted");
    assert.ok(got.tookMs < 200, `${got.tookMs} ms`);
  } finally {
    server.hold.delete(WEIGHTS);
    release();
  }
  const ids = await fresh.evaluate(async (url) => {
    const model = await monarch.load(url);
    const { ids } = await model.generate("Once upon a time", { maxTokens: 4 }).completion();
    await model.dispose();
    await model.dispose();
    return ids;
  }, MODEL);
  assert.equal(ids.length, 4);
  await fresh.close();
});

test("what onProgress throws rejects load", async () => {
  const got = await page.evaluate(
    (url) =>
      failure(
        monarch.load(url, {
          onProgress() {
            throw new RangeError("mine");
          },
        }),
      ),
    MODEL,
  );
  assert.equal(got.isMonarchError, false);
  assert.equal(got.message, "mine");
});

test("a truncated weights file and a manifest that is a page are typed errors with the address", async () => {
  server.cut.set(WEIGHTS, 5_000_000);
  try {
    const cut = await page.evaluate((url) => failure(monarch.load(url)), MODEL);
    assert.equal(cut.isMonarchError, true);
    assert.equal(cut.code, "fetch-failed");
    assert.match(cut.message, /weights\.bin/);
    assert.ok(cut.details.causes.length > 0);
  } finally {
    server.cut.delete(WEIGHTS);
  }
  const html = await page.evaluate(() => failure(monarch.load("/blank.html")));
  assert.ok(["fetch-failed", "manifest-invalid"].includes(html.code), html.code);
  assert.match(html.message, /blank\.html/);
  const missing = await page.evaluate(() => failure(monarch.load("/models/none/")));
  assert.equal(missing.code, "fetch-failed");
  assert.match(missing.message, /models\/none\/manifest\.json.*404/);
});

test("a disposed model says so; another one is untouched", async () => {
  const got = await page.evaluate(async (url) => {
    const other = await monarch.load(url, { contextTokens: 64 });
    await other.dispose();
    const after = await model.generate("Once", { maxTokens: 2 }).completion();
    return { disposed: await failure(other.generate("Once").text()), after: after.ids.length };
  }, MODEL);
  assert.equal(got.disposed.code, "disposed");
  assert.equal(got.after, 2);
});

test("it runs in a module worker", async () => {
  const { inputIds, greedyIds } = prompts[0];
  const ids = await page.evaluate(
    ({ url, ids }) =>
      new Promise((resolve, reject) => {
        const script = `
          import { load } from "${location.origin}/pkg/index.js";
          onmessage = async ({ data: { url, ids } }) => {
            const model = await load(url);
            postMessage((await model.generate({ ids }, { maxTokens: 8 }).completion()).ids);
          };`;
        const address = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
        const worker = new Worker(address, { type: "module" });
        worker.onerror = (event) => reject(new Error(event.message));
        worker.onmessage = ({ data }) => (resolve(data), worker.terminate());
        worker.postMessage({ url: new URL(url, location.href).href, ids });
      }),
    { url: MODEL, ids: inputIds },
  );
  assert.deepEqual(ids, greedyIds.slice(0, 8));
});
