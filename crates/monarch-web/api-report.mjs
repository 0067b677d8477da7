// The public API as one readable text, made from the declarations that tsc wrote.
//
// A reviewer sees every change of the API as a change of api.md. Comments are left out: they are
// in ts/, and changing a sentence changes no API.
import { readFileSync } from "node:fs";
import { join } from "node:path";

/** The report for the package in `pkg`: every name that index.d.ts exports, with its declaration. */
export function apiReport(pkg) {
  const index = readFileSync(join(pkg, "index.d.ts"), "utf8");
  const exported = [...index.matchAll(/^export (?:type )?\{([^}]*)\} from "\.\/(\w+)\.js";/gm)].flatMap(
    ([, names, file]) => names
        .split(",")
        .map((name) => name.trim().replace(/^type /, ""))
        .filter((name) => name !== "") // the list may end in a comma
        .map((name) => ({ name, file })),
  );
  if (exported.length === 0) throw new Error(`${pkg}/index.d.ts exports nothing`);
  exported.sort((a, b) => (a.name < b.name ? -1 : 1));

  const sections = exported.map(({ name, file }) => {
    const declarations = readFileSync(join(pkg, `${file}.d.ts`), "utf8");
    return `## ${name}\n\n\`\`\`ts\n${declarationOf(name, declarations)}\n\`\`\`\n`;
  });
  return (
    "# API report\n\n" +
    "Every name of `monarch-webgpu`, as `node crates/monarch-web/build.mjs --bless` writes it down.\n" +
    "A change here is a change for users: review it, and list it in CHANGELOG.md.\n\n" +
    sections.join("\n")
  );
}

/** The declaration of `name`, without its comments. */
export function declarationOf(name, declarations) {
  const bare = declarations
    .replace(/\/\*[\s\S]*?\*\//g, "")
    .replace(/^[ \t]*\n/gm, "")
    .replace(/[ \t]+$/gm, "");
  const start = bare.search(new RegExp(`^export (?:declare )?(?:interface|type|class|function|const) ${name}\\b`, "m"));
  if (start === -1) throw new Error(`${name} is exported, but declared nowhere`);
  const rest = bare.slice(start);
  // A declaration ends where the next statement of the file begins.
  const next = rest.slice(1).search(/^(?:export|declare|interface|type|import) /m);
  return (next === -1 ? rest : rest.slice(0, next + 1)).replace(/^export \{\};?$/m, "").trimEnd();
}

/** Where two reports differ first, or undefined when they are equal. */
export function firstDifference(listed, built) {
  if (listed === built) return undefined;
  const listedLines = listed.split("\n");
  const builtLines = built.split("\n");
  const line = builtLines.findIndex((text, index) => text !== listedLines[index]);
  const at = line === -1 ? builtLines.length : line;
  return { line: at + 1, listed: listedLines[at] ?? "(end)", built: builtLines[at] ?? "(end)" };
}
