import { invalidOption } from "./options.js";

/**
 * The absolute address of the manifest.
 *
 * A relative address counts from the page, as it does for `fetch`. One that ends in `/` is a
 * model folder, whose manifest has the usual name.
 */
export function manifestUrl(call: string, source: string | URL): string {
  if (typeof source !== "string" && !(source instanceof URL)) {
    throw invalidOption(call, "source", source, "a string or a URL");
  }
  const base = globalThis.document?.baseURI ?? globalThis.location?.href;
  if (!URL.canParse(source, base)) throw invalidOption(call, "source", String(source), "the address of a manifest");
  const url = new URL(source, base);
  return url.pathname.endsWith("/") ? new URL(`manifest.json${url.search}`, url).href : url.href;
}
