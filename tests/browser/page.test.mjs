// The built page in a real browser, used the way a person does.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch } from "./chromium.mjs";
import { serve } from "./server.mjs";

const WEIGHTS = "/models/tiny-lfm2/weights.bin";
const ATTACK = `<img src=x onerror="window.attacked=true">`;

let server;
let browser;

before(async () => {
  server = await serve({ "/": "www/dist" });
  browser = await launch();
});

after(async () => {
  await browser?.close();
  await server?.close();
});

/** A page that notes what goes wrong in it. */
async function open({ path = "/", prepare, ...context } = {}) {
  const page = await (await browser.newContext({ viewport: { width: 1280, height: 800 }, ...context })).newPage();
  page.setDefaultTimeout(120_000);
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

test("loads the small model and streams a continuation with its speed", async () => {
  const page = await open();
  await page.locator("#loading").waitFor();
  await ready(page);
  assert.equal(await page.locator("#loading").isVisible(), false);

  await ask(page, "Once upon a time", { maxTokens: 64 });
  const answer = page.locator("#log .model p").first();
  const lengths = new Set();
  while (!(await page.locator("#send").isVisible())) lengths.add((await answer.textContent()).length);
  assert.ok(lengths.size > 2, `the text grew in ${lengths.size} steps`);

  const text = await answer.textContent();
  assert.match(text, /^Once upon a time, there was a \w+/);
  assert.ok(text.length > 100, text);
  assert.match(await page.locator("#log .summary").textContent(), /^64 tokens · [\d.]+ tokens\/s · first after \d+ ms · cut at the limit$/);
  assert.match(await page.locator("#speed").textContent(), /[\d.]+ tokens\/s/);
  const facts = await page.locator("#facts").textContent();
  assert.match(facts, /subgroups/);
  assert.match(facts, /\d+ dispatches per token/);
  assert.deepEqual(page.troubles, []);
  await page.context().close();
});

test("asks no other host, and no file but its own and the model's", async () => {
  const page = await open();
  const foreign = [];
  page.on("request", (request) => {
    if (!request.url().startsWith(server.url) && !request.url().startsWith("blob:")) foreign.push(request.url());
  });
  await ready(page);
  assert.deepEqual(foreign, []);
  const allowed = /^\/(|icon\.svg|assets\/[\w.-]+|models\/tiny-lfm2\/[\w.]+)$/;
  assert.deepEqual(server.requests.filter(({ path }) => !allowed.test(path)), []);
  await page.context().close();
});

test("stops half-way and answers again", async () => {
  const page = await open();
  await ready(page);
  await ask(page, "Once upon a time", { maxTokens: 600 });
  await page.waitForFunction(() => document.querySelector("#log .model p").textContent.length > 40);
  await page.locator("#stop").click();
  await answered(page);
  assert.match(await page.locator("#log .summary").textContent(), /^stopped after \d+ tokens?$/);
  const stopped = await page.locator("#log .model p").first().textContent();

  await ask(page, "Once upon a time", { maxTokens: 16 });
  await answered(page);
  const again = await page.locator("#log .model").nth(1).locator("p").first().textContent();
  assert.equal(again.slice(0, 40), stopped.slice(0, 40));
  assert.deepEqual(page.troubles, []);
  await page.context().close();
});

test("chats, and starts anew", async () => {
  const page = await open();
  await ready(page);
  await ask(page, "What is a volcano?", { mode: "chat" });
  await answered(page);
  assert.match(await page.locator("#log .model p").first().textContent(), /^A volcano is a mountain/);
  assert.equal(await page.locator("#log .user").textContent(), "You:What is a volcano?");
  await page.locator("#clear").click();
  assert.equal(await page.locator("#log li").count(), 0);
  assert.equal(await page.locator("#welcome").isVisible(), true);
  await page.context().close();
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

test("markup in a question stays text", async () => {
  const page = await open();
  await ready(page);
  await ask(page, ATTACK, { mode: "chat", maxTokens: 4 });
  await answered(page);
  await ask(page, ATTACK, { mode: "continue", maxTokens: 4 });
  await answered(page);
  assert.equal(await page.locator("#log .user p").textContent(), ATTACK);
  assert.equal(await page.locator("#log .given").textContent(), ATTACK);
  await assertHarmless(page);
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
  await ask(page, "Once upon a time, there was a little", { maxTokens: 8 });
  await answered(page);
  assert.match(await page.locator("#log .model p").first().textContent(), /a little<img\/src=x/);
  await assertHarmless(page);
});

async function assertHarmless(page) {
  await page.waitForTimeout(200);
  assert.equal(await page.evaluate(() => window.attacked), undefined);
  assert.equal(await page.locator("#log img, #errors img").count(), 0);
  assert.deepEqual(page.troubles, []);
  await page.context().close();
}

test("an address that is none is an error with its code", async () => {
  const page = await open({ path: "/?model=http://" });
  assert.equal(await page.locator("#errors code").textContent(), "invalid-option");
  await page.context().close();
});

test("fits a phone, bright and dark", async () => {
  for (const colorScheme of ["light", "dark"]) {
    const page = await open({ viewport: { width: 360, height: 640 }, colorScheme });
    await ready(page);
    await ask(page, "x".repeat(300), { maxTokens: 4 });
    await answered(page);
    const { overflow, background } = await page.evaluate(() => ({
      overflow: document.documentElement.scrollWidth - innerWidth,
      background: getComputedStyle(document.body).backgroundColor,
    }));
    assert.ok(overflow <= 0, `${overflow} px too wide`);
    const [red] = background.match(/\d+/g).map(Number);
    assert.equal(red > 128, colorScheme === "light");
    await page.context().close();
  }
});
