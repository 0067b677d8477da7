// The built page in a real browser, used the way a person does.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch } from "./chromium.mjs";
import { serve } from "./server.mjs";

const WEIGHTS = "/models/tiny-lfm2/weights.bin";
/** Where a CPU plays the GPU, the plain plan is the quicker one. */
const QUICK = "/?plan=plain";
const ATTACK = `<img src=x onerror="window.attacked=true">`;

let server;
let browser;
/** One page that has loaded the model, for all tests that need no other; and what it asked for. */
let shared;
const addresses = [];

before(async () => {
  server = await serve({ "/": "www/dist" });
  browser = await launch();
});

after(async () => {
  await browser?.close();
  await server?.close();
});

/** A page that notes what goes wrong in it. */
async function open({ path = QUICK, prepare, ...context } = {}) {
  const page = await (await browser.newContext({ viewport: { width: 1280, height: 800 }, ...context })).newPage();
  page.setDefaultTimeout(300_000);
  page.troubles = [];
  page.on("pageerror", (error) => page.troubles.push(error.message));
  page.on("console", (message) => {
    if (message.type() === "error") page.troubles.push(message.text());
  });
  await prepare?.(page);
  await page.goto(server.url + path);
  return page;
}

const ready = (page) => page.locator("#prompt").waitFor();
const answered = (page) => page.locator("#send").waitFor();

async function ask(page, text, { mode = "continue", maxTokens, temperature = 0 } = {}) {
  await page.locator(`input[name=mode][value=${mode}]`).check({ force: true });
  if (!(await page.locator("input[name=temperature]").isVisible())) await page.getByText("Options").click();
  await page.locator("input[name=temperature]").fill(String(temperature));
  if (maxTokens !== undefined) await page.locator("input[name=maxTokens]").fill(String(maxTokens));
  await page.locator("#prompt").fill(text);
  await page.locator("#prompt").press("Enter");
}

async function assertHarmless(page) {
  await page.waitForTimeout(200);
  assert.equal(await page.evaluate(() => window.attacked), undefined);
  assert.equal(await page.locator("#log img, #errors img").count(), 0);
  assert.deepEqual(page.troubles, []);
}

test("loads the small model from its own host and streams a continuation with its speed", async () => {
  shared = await open({
    prepare: (page) => page.on("request", (request) => addresses.push(request.url())),
  });
  await shared.locator("#loading").waitFor();
  await ready(shared);
  assert.equal(await shared.locator("#loading").isVisible(), false);
  assert.deepEqual(addresses.filter((address) => !address.startsWith(server.url)), []);
  const allowed = /^\/(|icon\.svg|assets\/[\w.-]+|models\/tiny-lfm2\/[\w.]+)$/;
  assert.deepEqual(server.requests.filter(({ path }) => !allowed.test(path)), []);

  await ask(shared, "Once upon a time", { maxTokens: 24 });
  const answer = shared.locator("#log .model p").first();
  const lengths = new Set();
  while (!(await shared.locator("#send").isVisible())) lengths.add((await answer.textContent()).length);
  assert.ok(lengths.size > 2, `the text grew in ${lengths.size} steps`);

  const text = await answer.textContent();
  assert.match(text, /^Once upon a time, there was a little girl named/);
  assert.match(
    await shared.locator("#log .summary").textContent(),
    /^24 tokens · [\d.]+ tokens\/s · first after \d+ ms · cut at the limit$/,
  );
  assert.match(await shared.locator("#speed").textContent(), /[\d.]+ tokens\/s/);
  const facts = await shared.locator("#facts").textContent();
  assert.match(facts, /subgroups/);
  assert.match(facts, /\d+ dispatches per token/);
  assert.deepEqual(shared.troubles, []);
});

test("stops half-way and answers again", async () => {
  const answers = shared.locator("#log .model");
  const before = await answers.count();
  await ask(shared, "Once upon a time", { maxTokens: 800 });
  await shared.waitForFunction((index) => {
    const answer = document.querySelectorAll("#log .model")[index];
    return answer !== undefined && answer.querySelector("p").textContent.length > 24;
  }, before);
  await shared.locator("#stop").click();
  await answered(shared);
  const stopped = answers.nth(before);
  assert.match(await stopped.locator(".summary").textContent(), /^stopped after \d+ tokens?$/);

  await ask(shared, "Once upon a time", { maxTokens: 4 });
  await answered(shared);
  const first = await stopped.locator("p").first().textContent();
  const again = await answers.nth(before + 1).locator("p").first().textContent();
  const common = Math.min(first.length, again.length);
  assert.ok(common > "Once upon a time".length, again);
  assert.equal(again.slice(0, common), first.slice(0, common));
  assert.deepEqual(shared.troubles, []);
});

test("chats, and starts anew", async () => {
  await shared.locator("#clear").click();
  assert.equal(await shared.locator("#log li").count(), 0);
  assert.equal(await shared.locator("#welcome").isVisible(), true);
  await ask(shared, "What is a volcano?", { mode: "chat", maxTokens: 8 });
  await answered(shared);
  assert.match(await shared.locator("#log .model p").first().textContent(), /^A volcano is a mountain/);
  assert.equal(await shared.locator("#log .user p").textContent(), "What is a volcano?");
});

test("markup in a question stays text", async () => {
  await shared.locator("#clear").click();
  await ask(shared, ATTACK, { mode: "chat", maxTokens: 1 });
  await answered(shared);
  await ask(shared, ATTACK, { mode: "continue", maxTokens: 1 });
  await answered(shared);
  assert.equal(await shared.locator("#log .user p").textContent(), ATTACK);
  assert.equal(await shared.locator("#log .given").textContent(), ATTACK);
  await assertHarmless(shared);
});

test("a prompt that is too long is an error with its code, and the next one works", async () => {
  const before = await shared.locator("#log .model").count();
  await ask(shared, "word ".repeat(2000), { maxTokens: 1 });
  await shared.locator("#errors .error").waitFor();
  assert.equal(await shared.locator("#errors code").textContent(), "context-exceeded");
  await ask(shared, "Once", { maxTokens: 1 });
  await answered(shared);
  assert.equal(await shared.locator("#log .model").count(), before + 2);
  assert.equal(await shared.locator("#errors .error").count(), 1);
});

test("fits a phone, bright and dark", async () => {
  await shared.setViewportSize({ width: 360, height: 640 });
  for (const colorScheme of ["light", "dark"]) {
    await shared.emulateMedia({ colorScheme });
    const { overflow, background } = await shared.evaluate(() => ({
      overflow: document.documentElement.scrollWidth - innerWidth,
      background: getComputedStyle(document.body).backgroundColor,
    }));
    assert.ok(overflow <= 0, `${overflow} px too wide`);
    const [red] = background.match(/\d+/g).map(Number);
    assert.equal(red > 128, colorScheme === "light");
  }
});

test("a truncated weights file shows its error code, which stays, and the way on works", async () => {
  server.cut.set(WEIGHTS, 5_000_000);
  const page = await open();
  const error = page.locator("#errors .error");
  await error.waitFor();
  assert.equal(await error.locator("code").textContent(), "fetch-failed");
  assert.match(await error.locator("p").textContent(), /weights\.bin/);
  assert.equal(await page.locator("#composer").isVisible(), false);
  await page.waitForTimeout(1000);
  assert.equal(await error.isVisible(), true);

  server.cut.delete(WEIGHTS);
  await error.getByRole("button", { name: "Try again" }).click();
  await ready(page);
  assert.equal(await error.count(), 0);
  await page.context().close();
});

test("markup that the model writes stays text", async () => {
  const page = await open({
    // The likeliest next token, " girl", gets another spelling.
    prepare: (page) =>
      page.route("**/tokenizer.json", async (route) => {
        const response = await route.fetch();
        const tokenizer = await response.json();
        const { model } = tokenizer;
        const spelling = "<img/src=x/onerror=window.attacked=true>";
        const old = "Ġgirl";
        model.vocab = Object.fromEntries(
          Object.entries(model.vocab).map(([text, id]) => [text === old ? spelling : text, id]),
        );
        model.merges = model.merges.filter((merge) => {
          const [left, right] = Array.isArray(merge) ? merge : merge.split(" ");
          return left + right !== old && left !== old && right !== old && left + right in model.vocab;
        });
        await route.fulfill({ response, json: tokenizer });
      }),
  });
  await ready(page);
  await ask(page, "Once upon a time, there was a little", { maxTokens: 2 });
  await answered(page);
  assert.match(await page.locator("#log .model p").first().textContent(), /a little<img\/src=x/);
  await assertHarmless(page);
  await page.context().close();
});

test("an address that is none is an error with its code", async () => {
  const page = await open({ path: "/?model=http://" });
  assert.equal(await page.locator("#errors code").textContent(), "invalid-option");
  await page.context().close();
});
