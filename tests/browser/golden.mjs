// Golden continuations of the small model; tests/golden/README.md says where they come from.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "./server.mjs";

const folder = join(root, "tests/golden/tiny-lfm2");

/** The integer tensor `name` of a safetensors file. */
export function integers(file, name) {
  const bytes = readFileSync(file);
  const headerBytes = Number(bytes.readBigUInt64LE(0));
  const header = JSON.parse(bytes.toString("utf8", 8, 8 + headerBytes));
  const { dtype, data_offsets } = header[name] ?? {};
  if (dtype !== "I32") throw new Error(`${file}: ${name} is ${dtype ?? "missing"}, not I32`);
  const [start, end] = data_offsets.map((offset) => 8 + headerBytes + offset);
  return Array.from({ length: (end - start) / 4 }, (_, index) => bytes.readInt32LE(start + 4 * index));
}

/** Every prompt that has a source text: `{ name, source, inputIds, greedyIds, greedyText }`. */
export function goldenPrompts() {
  const file = join(folder, "golden_q4.safetensors");
  const { cases } = JSON.parse(readFileSync(join(folder, "golden_q4.json"), "utf8"));
  return cases
    .filter(({ source }) => source !== null)
    .map(({ name, source, greedy_text }) => ({
      name,
      source,
      greedyText: greedy_text,
      inputIds: integers(file, `${name}.input_ids`),
      greedyIds: integers(file, `${name}.greedy_ids`),
    }));
}
