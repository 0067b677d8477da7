// Prints [{ "raw", "gzip", "brotli" }, …]: the bytes of each file named on the command line, plain and compressed
// as a static host would.
import { readFileSync } from "node:fs";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const sizes = process.argv.slice(2).map((file) => {
  const bytes = readFileSync(file);
  return {
    raw: bytes.length,
    gzip: gzipSync(bytes, { level: 9 }).length,
    brotli: brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } }).length,
  };
});
process.stdout.write(JSON.stringify(sizes));
