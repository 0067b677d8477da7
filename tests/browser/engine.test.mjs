// The package in a real browser, as a page would use it, with the small model.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch } from "./chromium.mjs";
import { goldenPrompts } from "./golden.mjs";
import { serve } from "./server.mjs";

const MODEL = "/models/tiny-lfm2/manifest.json";
const WEIGHTS = "/models/tiny-lfm2/weights.bin";
const END_TOKEN = 7;
/** A text, and a chat that ends by itself. A CPU that plays the GPU takes long over each token. */
const prompts = goldenPrompts().filter(({ name }) => ["prompt0", "prompt2"].includes(name));
const GOLDEN_TOKENS = 8;
/** The shortest prompt, for tests that are about something else. */
const prompt = [1, 861];

let server;
let browser;
/** An empty page with the package imported as `monarch` and the small model loaded as `model`. */
let page;
/** What a fresh model says to `prompt`. */
let continuation;

before(async () => {
  server = await serve({ "/pkg/": "crates/monarch-web/pkg", "/models/": "models" });
  browser = await launch();
  page = await emptyPage();
  continuation = await page.evaluate(
    async ({ url, ids }) => {
      globalThis.progress = [];
      globalThis.model = await monarch.load(url, { plan: "plain", onProgress: (step) => progress.push(step) });
      return (await model.generate({ ids }, { maxTokens: 4 }).completion()).ids;
    },
    { url: MODEL, ids: prompt },
  );
  assert.equal(continuation.length, 4);
});

after(async () => {
  await browser?.close();
  await server?.close();
});

async function emptyPage() {
  const page = await browser.newPage();
  page.setDefaultTimeout(300_000);
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

test("streamed greedy ids and text equal the golden ones, and the end token ends an answer", async () => {
  for (const { name, source, inputIds, greedyIds, greedyText } of prompts) {
    const end = greedyIds.indexOf(END_TOKEN);
    const wanted = end === -1 ? greedyIds.slice(0, GOLDEN_TOKENS) : greedyIds.slice(0, end);
    const { chunks, completion } = await page.evaluate(
      async ({ source, maxTokens }) => {
        const options = { maxTokens, temperature: 0 };
        const generation = typeof source === "string" ? model.generate(source, options) : model.chat(source, options);
        const chunks = [];
        for await (const chunk of generation) chunks.push(chunk);
        return { chunks, completion: await generation.completion() };
      },
      { source, maxTokens: end === -1 ? GOLDEN_TOKENS : greedyIds.length },
    );
    assert.deepEqual(chunks.flatMap(({ ids }) => ids), wanted, name);
    assert.deepEqual(completion.ids, wanted, name);
    assert.equal(chunks.map(({ text }) => text).join(""), completion.text, name);
    assert.ok(completion.text.length > 0 && greedyText.startsWith(completion.text), `${name}: ${completion.text}`);
    assert.equal(completion.finishReason, end === -1 ? "length" : "stop", name);
    assert.equal(completion.usage.promptTokens, inputIds.length, name);
    assert.equal(completion.usage.completionTokens, wanted.length, name);
  }
  assert.equal(prompts.filter(({ greedyIds }) => greedyIds.includes(END_TOKEN)).length, 1);
});

test("after leaving the loop half-way the next call is complete and does not wait for the rest", async () => {
  const got = await page.evaluate(async (ids) => {
    const generation = model.generate({ ids }, { maxTokens: 800, ignoreEos: true });
    for await (const _ of generation) break;
    const { ids: next } = await model.generate({ ids }, { maxTokens: 4 }).completion();
    const { finishReason, usage } = await generation.completion();
    return { next, finishReason, tokens: usage.completionTokens };
  }, prompt);
  assert.deepEqual(got.next, continuation);
  assert.equal(got.finishReason, "aborted");
  assert.ok(got.tokens < 100, `${got.tokens} tokens`);
});

test("aborted calls reject with code aborted, and later ones equal a fresh model's", async () => {
  const got = await page.evaluate(async (ids) => {
    const codes = [];
    for (let round = 0; round < 3; round += 1) {
      const controller = new AbortController();
      const generation = model.generate({ ids }, { maxTokens: 800, signal: controller.signal });
      const reading = (async () => {
        for await (const _ of generation) controller.abort();
      })();
      codes.push((await failure(reading))?.code);
    }
    return { codes, after: (await model.generate({ ids }, { maxTokens: 4 }).completion()).ids };
  }, prompt);
  assert.deepEqual(got.codes, ["aborted", "aborted", "aborted"]);
  assert.deepEqual(got.after, continuation);
});

test("overlapping calls equal their serial results", async () => {
  const together = await page.evaluate(async (ids) => {
    const call = async (maxTokens) => (await model.generate({ ids }, { maxTokens }).completion()).ids;
    return Promise.all([call(4), call(1), call(3), call(2)]);
  }, prompt);
  assert.deepEqual(together, [4, 1, 3, 2].map((tokens) => continuation.slice(0, tokens)));
});

test("a seed makes sampling repeatable, and another seed another text", async () => {
  const texts = await page.evaluate(async () => {
    const say = (seed) => model.generate({ ids: [1] }, { temperature: 3, seed, maxTokens: 4 }).text();
    return [await say(1), await say(1), await say(2)];
  });
  assert.equal(texts[0], texts[1]);
  assert.notEqual(texts[0], texts[2]);
});

test("stop strings end the text before them", async () => {
  const completion = await page.evaluate(() =>
    model.generate("Once upon a time, there was a little", { stop: ["d Rosa", "never said"], maxTokens: 40 }).completion(),
  );
  assert.equal(completion.text, " girl name");
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
  let release;
  server.hold.set(WEIGHTS, new Promise((resolve) => (release = resolve)));
  const before = server.requests.length;
  try {
    await page.evaluate((url) => {
      globalThis.controller = new AbortController();
      globalThis.failed = failure(monarch.load(url, { signal: controller.signal }));
    }, MODEL);
    while (!server.requests.slice(before).some(({ path }) => path === WEIGHTS)) {
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    const got = await page.evaluate(async () => {
      const aborted = performance.now();
      controller.abort();
      return { ...(await failed), tookMs: performance.now() - aborted };
    });
    assert.equal(got.code, "aborted");
    assert.ok(got.tookMs < 500, `${got.tookMs} ms`);
  } finally {
    server.hold.delete(WEIGHTS);
    release();
  }

  const got = await page.evaluate(
    async ({ url, ids }) => {
      // Every option there is, so that none is known on one side of the edge only.
      const call = { maxTokens: 4, temperature: 0, seed: 1, stop: ["never said"], ignoreEos: true };
      const say = async (model) => (await model.generate({ ids }, call).completion()).ids;
      const device = {
        allowF16: false,
        allowSubgroups: true,
        allowTimestamps: false,
        powerPreference: "low-power",
        maxBindingBytes: 2 ** 27,
        maxInvocations: 256,
      };
      const second = await monarch.load(url, { plan: "seed", contextTokens: 64, device });
      const { plan, contextTokens } = second.info;
      const said = await say(second);
      await second.dispose();
      const disposed = await failure(second.generate({ ids }).text());
      return { said, plan: plan.name, contextTokens, disposed: disposed.code, first: await say(model) };
    },
    { url: MODEL, ids: prompt },
  );
  // The other plan says the same, and disposing one model leaves the other alone.
  assert.deepEqual(got, {
    said: continuation,
    plan: "seed",
    contextTokens: 64,
    disposed: "disposed",
    first: continuation,
  });
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

test("it runs in a module worker", async () => {
  const ids = await page.evaluate(
    ({ url, ids }) =>
      new Promise((resolve, reject) => {
        const script = `
          import { load } from "${location.origin}/pkg/index.js";
          onmessage = async ({ data: { url, ids } }) => {
            const model = await load(url, { plan: "plain" });
            postMessage((await model.generate({ ids }, { maxTokens: 4 }).completion()).ids);
          };`;
        const address = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
        const worker = new Worker(address, { type: "module" });
        worker.onerror = (event) => reject(new Error(event.message));
        worker.onmessage = ({ data }) => (resolve(data), worker.terminate());
        worker.postMessage({ url: new URL(url, location.href).href, ids });
      }),
    { url: MODEL, ids: prompt },
  );
  assert.deepEqual(ids, continuation);
});
