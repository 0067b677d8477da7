// A static server with byte ranges that can misbehave on purpose.
import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join, normalize, resolve } from "node:path";
import { fileURLToPath } from "node:url";

/** The repository. */
export const root = fileURLToPath(new URL("../..", import.meta.url));

const TYPES = {
  ".css": "text/css",
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".json": "application/json",
  ".svg": "image/svg+xml",
  ".wasm": "application/wasm",
};

/** Isolation makes the page's clock fine enough to time tokens with. */
const ISOLATED = {
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-embedder-policy": "require-corp",
  "cross-origin-resource-policy": "cross-origin",
};

/**
 * Serves folders by path prefix, the longest prefix first: `{ "/": "www/dist", "/pkg/": ... }`.
 * Folders are absolute or start at the repository. `/blank.html` is an empty page.
 *
 * The result can be told to cut a file short (`cut`, by path: bytes that are left) or to hold an
 * answer back (`hold`, by path: a promise to wait for), and has a log of `requests`.
 */
export async function serve(mounts, { port = 0 } = {}) {
  const prefixes = Object.keys(mounts).sort((a, b) => b.length - a.length);
  const requests = [];
  const cut = new Map();
  const hold = new Map();

  const server = createServer(async (request, response) => {
    const path = decodeURIComponent(new URL(request.url, "http://localhost").pathname);
    const { range } = request.headers;
    requests.push({ path, range });
    for (const [name, value] of Object.entries(ISOLATED)) response.setHeader(name, value);
    await hold.get(path);

    if (path === "/blank.html") {
      response.writeHead(200, { "content-type": "text/html" }).end("<!doctype html><title>blank</title>");
      return;
    }
    const prefix = prefixes.find((prefix) => path.startsWith(prefix));
    const inside = normalize(path.slice(prefix?.length)).replace(/^\/+/, "");
    if (prefix === undefined || inside.startsWith("..")) {
      response.writeHead(404).end();
      return;
    }
    const file = join(resolve(root, mounts[prefix]), path.endsWith("/") ? join(inside, "index.html") : inside);
    const found = await stat(file).catch(() => undefined);
    if (!found?.isFile()) {
      response.writeHead(404, { "content-type": "text/plain" }).end("not found\n");
      return;
    }
    const bytes = Math.min(found.size, cut.get(path) ?? Infinity);
    const headers = {
      "accept-ranges": "bytes",
      "cache-control": "no-store",
      "content-type": TYPES[extname(file)] ?? "application/octet-stream",
    };
    const asked = /^bytes=(\d+)-(\d*)$/.exec(range ?? "");
    const first = asked ? Number(asked[1]) : 0;
    const last = Math.min(bytes - 1, asked?.[2] ? Number(asked[2]) : bytes - 1);
    if (asked && first >= bytes) {
      response.writeHead(416, { ...headers, "content-range": `bytes */${bytes}` }).end();
      return;
    }
    if (asked) headers["content-range"] = `bytes ${first}-${last}/${bytes}`;
    response.writeHead(asked ? 206 : 200, { ...headers, "content-length": last - first + 1 });
    if (last < first) response.end();
    else createReadStream(file, { start: first, end: last }).on("error", () => response.destroy()).pipe(response);
  });

  await new Promise((done) => server.listen(port, "127.0.0.1", done));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    requests,
    cut,
    hold,
    async close() {
      server.closeAllConnections();
      await new Promise((done) => server.close(done));
    },
  };
}
