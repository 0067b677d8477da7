// Generates in a real Chromium through the built package and prints one JSON object.
//
//   node headless.mjs '{ "package": DIR, "model": DIR, "prompt": … , "options": { … } }'
//
// `prompt` is what `model.generate` takes, or { "chat": TEXT } for one user message. Messages and the page's own
// console go to stderr.
import { launch } from "../../tests/browser/chromium.mjs";
import { serve } from "../../tests/browser/server.mjs";

const request = JSON.parse(process.argv[2]);
const server = await serve({ "/package/": request.package, "/model/": request.model, "/": import.meta.dirname });
const browser = await launch();
try {
  const page = await browser.newPage();
  page.on("console", (message) => process.stderr.write(`page ${message.type()}: ${message.text()}\n`));
  page.on("pageerror", (error) => process.stderr.write(`page error: ${error.message}\n`));
  await page.goto(new URL("headless.html", server.url).href);
  const answer = await page.evaluate(generate, request);
  if (answer.error !== undefined) {
    process.stderr.write(`${answer.error.code ?? "error"}: ${answer.error.message}\n`);
    process.exitCode = 1;
  } else {
    process.stdout.write(`${JSON.stringify(answer.result)}\n`);
  }
} finally {
  await browser.close();
  await server.close();
}

// Runs in the page.
async function generate({ prompt, options }) {
  try {
    const { load } = await import("monarch-webgpu");
    const started = performance.now();
    const model = await load(new URL("model/manifest.json", document.baseURI).href);
    const loadMs = performance.now() - started;
    const generation =
      prompt?.chat === undefined
        ? model.generate(prompt, options)
        : model.chat([{ role: "user", content: prompt.chat }], options);
    const { text, ids, finishReason, usage, timings } = await generation.completion();
    const { adapter, plan } = model.info;
    await model.dispose();
    return { result: { text, ids: [...ids], finishReason, usage, adapter, plan, timings: { loadMs, ...timings } } };
  } catch (error) {
    return { error: { code: error?.code, message: String(error?.message ?? error) } };
  }
}
