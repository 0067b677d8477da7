import { cp } from "node:fs/promises";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { defineConfig, type Plugin } from "vite";

const here = fileURLToPath(new URL(".", import.meta.url));
const model = join(here, "../models/tiny-lfm2");

/** Scripts from here only, WebAssembly allowed, and models from anywhere: `?model=` may name any host. */
const POLICY = [
  "default-src 'self'",
  "script-src 'self' 'wasm-unsafe-eval'",
  "connect-src 'self' http: https:",
  "object-src 'none'",
  "base-uri 'self'",
  "form-action 'none'",
].join("; ");

/** The policy goes into the built page only: the development server injects scripts and styles. */
function contentSecurityPolicy(): Plugin {
  return {
    name: "content-security-policy",
    apply: "build",
    transformIndexHtml: () => [
      {
        tag: "meta",
        attrs: { "http-equiv": "Content-Security-Policy", content: POLICY },
        injectTo: "head-prepend",
      },
    ],
  };
}

/** Puts the small model beside the page, so that `dist/` is all that a host needs. */
function embeddedModel(): Plugin {
  return {
    name: "embedded-model",
    apply: "build",
    async writeBundle({ dir }) {
      if (dir === undefined) return;
      await cp(model, join(dir, "models", basename(model)), {
        recursive: true,
        // The checkpoint it was made from stays behind.
        filter: (from) => basename(from) !== "original",
      });
    },
  };
}

export default defineConfig({
  root: here,
  base: "./", // the page may live in any folder of a host
  plugins: [contentSecurityPolicy(), embeddedModel()],
  build: {
    target: "es2022",
    assetsInlineLimit: 0, // an inlined icon or module would need a wider policy
    modulePreload: { polyfill: false },
  },
});
