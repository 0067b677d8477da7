import { load, support, MonarchError } from "monarch-webgpu";
import { ChatView } from "./chat.js";
import { ErrorView } from "./errors.js";
import { element, textElement } from "./page.js";
import { LoadingView } from "./progress.js";
import { StatsView } from "./stats.js";

const DEFAULT_MODEL = "models/tiny-lfm2/manifest.json";

const errors = new ErrorView();
const loading = new LoadingView();
const stats = new StatsView();
const chat = new ChatView(stats, errors);

/** Loads the model and opens the chat, or shows why not. */
async function start(manifest: URL): Promise<void> {
  loading.begin(modelName(manifest));
  try {
    const verdict = await support(manifest);
    if (verdict.status === "unsupported") {
      throw new MonarchError("unsupported", verdict.reasons.join(" "));
    }
    const model = await load(manifest, { onProgress: (progress) => loading.show(progress) });
    stats.showModel(model.info);
    chat.open(model);
  } catch (error) {
    errors.show(error, () => void start(manifest));
  } finally {
    loading.end();
  }
}

/** The folder's name is the model's name. */
function modelName(manifest: URL): string {
  return decodeURIComponent(manifest.pathname.split("/").at(-2) ?? "") || manifest.host;
}

/** What may be done with the model. Weights have licences of their own, and travel with them. */
function showNotice(manifest: URL): void {
  const link = (file: string, text: string): HTMLAnchorElement => {
    const anchor = textElement("a", text);
    anchor.href = new URL(file, manifest).href;
    return anchor;
  };
  element("notice", HTMLElement).append(
    `${modelName(manifest)}: see its `,
    link("MODEL_CARD.md", "model card"),
    " and ",
    link("LICENSE.md", "licence"),
    ". “LFM2” names Liquid AI’s architecture; this page is not theirs. What you write stays on this device.",
  );
}

const wanted = new URLSearchParams(location.search).get("model") ?? DEFAULT_MODEL;
if (URL.canParse(wanted, document.baseURI)) {
  const manifest = new URL(wanted, document.baseURI);
  showNotice(manifest);
  void start(manifest);
} else {
  loading.end();
  errors.show(new MonarchError("invalid-option", `?model=${wanted} is not an address`));
}
