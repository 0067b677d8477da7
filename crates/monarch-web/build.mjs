// Makes the npm package in pkg/ out of what wasm-bindgen put there and of ts/.
//
//   node crates/monarch-web/build.mjs          build, and fail when api.md is out of date
//   node crates/monarch-web/build.mjs --bless  build, and write api.md anew
//
// `cargo xtask` runs it after the WebAssembly module was built.
import { execFileSync } from "node:child_process";
import { copyFileSync, existsSync, lstatSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { apiReport, firstDifference } from "./api-report.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "../..");
const pkg = join(here, "pkg");
const modules = join(root, "node_modules");

function fail(message) {
  process.stderr.write(`monarch-web: ${message}\n`);
  process.exit(1);
}

if (!existsSync(join(pkg, "monarch_web.d.ts"))) {
  fail("pkg/monarch_web.d.ts is missing: build the WebAssembly module first (cargo xtask web)");
}

// wasm-pack leaves a .gitignore that would empty the published package.
rmSync(join(pkg, ".gitignore"), { force: true });
copyFileSync(join(here, "package.json"), join(pkg, "package.json"));
copyFileSync(join(here, "README.md"), join(pkg, "README.md"));
for (const licence of ["LICENSE-MIT", "LICENSE-APACHE"]) {
  if (existsSync(join(root, licence))) copyFileSync(join(root, licence), join(pkg, licence));
}

try {
  execFileSync(process.execPath, [join(modules, "typescript/bin/tsc"), "-p", here], { stdio: ["ignore", 2, 2] });
} catch {
  fail("the TypeScript sources do not compile");
}

// The page and the type tests import the package by its name, as its users do.
const link = join(modules, "monarch-webgpu");
mkdirSync(modules, { recursive: true });
if (lstatSync(link, { throwIfNoEntry: false }) !== undefined) rmSync(link, { recursive: true });
symlinkSync(relative(modules, pkg), link, "dir");

const report = apiReport(pkg);
const reportFile = join(here, "api.md");
if (process.argv.includes("--bless")) {
  writeFileSync(reportFile, report);
} else {
  const listed = existsSync(reportFile) ? readFileSync(reportFile, "utf8") : "";
  const difference = firstDifference(listed, report);
  if (difference !== undefined) {
    fail(
      `api.md is out of date at line ${difference.line}\n  listed ${difference.listed}\n  built  ${difference.built}\n` +
        "look at the change, then run: node crates/monarch-web/build.mjs --bless",
    );
  }
}
