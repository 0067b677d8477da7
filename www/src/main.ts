import { load, support, MonarchError, type LoadOptions } from "monarch-webgpu";
import { ChatView } from "./chat.js";
import { ErrorView } from "./errors.js";
import { element, textElement } from "./page.js";
import { LoadingView } from "./progress.js";
import { StatsView } from "./stats.js";

const EMBEDDED_MODEL = "models/tiny-lfm2/manifest.json";

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
    const model = await load(manifest, { plan, onProgress: (progress) => loading.show(progress) });
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

/** Says which model this is. Weights have licences of their own, which travel with them. */
function introduce(manifest: URL): void {
  const isEmbedded = manifest.href === new URL(EMBEDDED_MODEL, document.baseURI).href;
  element("blurb", HTMLElement).hidden = !isEmbedded;
  const link = (address: string, text: string): HTMLAnchorElement => {
    const anchor = textElement("a", text);
    anchor.href = new URL(address, manifest).href;
    return anchor;
  };
  element("notice", HTMLElement).append(
    ...(isEmbedded
      ? ["tiny-lfm2: ", link("MODEL_CARD.md", "model card"), ", ", link("LICENSE.md", "licence"), ". "]
      : [link(".", modelName(manifest)), " has a licence of its own: look where it comes from. "]),
    "“LFM2” names Liquid AI’s architecture; this page is not theirs. What you write stays on this device.",
  );
}

const parameters = new URLSearchParams(location.search);
const wanted = parameters.get("model") ?? EMBEDDED_MODEL;
/** To compare plans on one's own GPU: `?plan=plain`. A word that is none, `load` refuses. */
const plan = (parameters.get("plan") ?? undefined) as LoadOptions["plan"];
if (URL.canParse(wanted, document.baseURI)) {
  const manifest = new URL(wanted, document.baseURI);
  introduce(manifest);
  void start(manifest);
} else {
  loading.end();
  errors.show(new MonarchError("invalid-option", `?model=${wanted} is not an address`));
}
