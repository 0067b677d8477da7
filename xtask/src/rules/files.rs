//! Rules about which files there are and what they import.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, bail};

use crate::process::output;
use crate::workspace::Workspace;

/// Where kernels are defined, a file each.
const SHADERS: &str = "shaders/kernels";
/// Where each kernel has its Rust side, in a file of the same stem.
const RUST_SIDES: &str = "crates/monarch-kernels/src";
/// Where each kernel has its cases, in a function of the same name.
const CASES: &str = "tests/src/cases.rs";

/// Kernels that lack a partner.
pub(super) fn kernel_partners(workspace: &Workspace) -> Result<Vec<String>> {
    let kernels = stems(workspace, SHADERS, "wesl")?;
    let rust_sides = stems(workspace, RUST_SIDES, "rs")?;
    let cases = fs::read_to_string(workspace.path(CASES))
        .with_context(|| format!("cannot read {CASES}"))?;
    Ok(without_partner(&kernels, &rust_sides, &cases))
}

/// The stems of the files in a folder that have the given ending.
fn stems(workspace: &Workspace, folder: &str, ending: &str) -> Result<BTreeSet<String>> {
    let entries =
        fs::read_dir(workspace.path(folder)).with_context(|| format!("cannot list {folder}"))?;
    let mut stems = BTreeSet::new();
    for entry in entries {
        let path = entry?.path();
        if let (Some(stem), true) = (
            path.file_stem(),
            path.extension().is_some_and(|found| found == ending),
        ) {
            stems.insert(stem.to_string_lossy().into_owned());
        }
    }
    Ok(stems)
}

fn without_partner(
    kernels: &BTreeSet<String>,
    rust_sides: &BTreeSet<String>,
    cases: &str,
) -> Vec<String> {
    let mut broken_by = Vec::new();
    if kernels.is_empty() {
        broken_by.push(format!("no kernels in {SHADERS}"));
    }
    // The Rust folder holds other files too: only what is missing is wrong.
    broken_by.extend(
        kernels
            .difference(rust_sides)
            .map(|kernel| format!("{RUST_SIDES} has no {kernel}.rs")),
    );
    let untested = kernels
        .iter()
        .filter(|kernel| !cases.contains(&format!("fn {kernel}(")));
    broken_by.extend(untested.map(|kernel| format!("{CASES} has no cases for {kernel}")));
    broken_by
}

/// Imports of the page that reach around the package.
pub(super) fn page_imports(workspace: &Workspace) -> Result<Vec<String>> {
    let mut broken_by = Vec::new();
    let mut seen = 0;
    for path in tracked(workspace, "www")? {
        let is_page = [".ts", ".html"].iter().any(|ending| path.ends_with(ending));
        // Vite's configuration runs in Node, not in the page.
        if !is_page || path.ends_with("vite.config.ts") || path.starts_with("www/tests/") {
            continue;
        }
        seen += 1;
        let text = fs::read_to_string(workspace.path(&path))
            .with_context(|| format!("cannot read {path}"))?;
        broken_by.extend(foreign_imports(&path, &text));
    }
    if seen == 0 {
        broken_by.push("the page has no files".to_owned());
    }
    Ok(broken_by)
}

fn foreign_imports(path: &str, text: &str) -> Vec<String> {
    let mut broken_by = Vec::new();
    for start in [
        "from \"",
        "from '",
        "import \"",
        "import '",
        "import(\"",
        "import('",
        "new URL(\"",
        "src=\"",
    ] {
        for (at, _) in text.match_indices(start) {
            let quoted = &text[at + start.len()..];
            let Some(end) = quoted.find(['"', '\'']) else {
                continue;
            };
            let name = &quoted[..end];
            let is_package = name == "monarch-webgpu" || name.starts_with("monarch-webgpu/");
            if !(is_package || stays_inside(path, name)) {
                broken_by.push(format!("{path} imports {name}"));
            }
        }
    }
    broken_by
}

/// Whether a relative name, seen from `path`, stays in the first folder of `path`.
fn stays_inside(path: &str, name: &str) -> bool {
    // `/src/main.ts` is how a Vite page names its own files.
    if name.starts_with('/') && !name.starts_with("//") {
        return !name.split('/').any(|part| part == "..");
    }
    if !name.starts_with('.') {
        return false;
    }
    let folders = path.split('/').count() - 1;
    let mut depth = folders;
    for part in name.split('/') {
        match part {
            "." | "" => {}
            ".." if depth <= 1 => return false,
            ".." => depth -= 1,
            _ => depth += 1,
        }
    }
    true
}

/// Files that name a folder which exists on one machine only.
pub(super) fn machine_paths(workspace: &Workspace) -> Result<Vec<String>> {
    let mut broken_by = Vec::new();
    for path in tracked(workspace, ".")? {
        // Binary files have no names in them; one that is gone is being moved.
        if let Ok(text) = fs::read_to_string(workspace.path(&path)) {
            broken_by.extend(named_machine_paths(&path, &text));
        }
    }
    Ok(broken_by)
}

fn named_machine_paths(path: &str, text: &str) -> Vec<String> {
    // In pieces, so that this file passes its own rule.
    let homes = [
        ["/ho", "me/"],
        ["/ro", "ot/"],
        ["/Us", "ers/"],
        ["/wo", "rk/"],
        ["/tmp/", "target"],
    ]
    .map(|parts| parts.concat());
    let mut broken_by = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for home in &homes {
            // A folder of the project may have such a name too: a path of a machine starts with its slash.
            let starts = |at: usize| {
                !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-~}*".contains(c))
            };
            if line.match_indices(home.as_str()).any(|(at, _)| starts(at)) {
                broken_by.push(format!("{path}:{}: {home}", number + 1));
            }
        }
    }
    broken_by
}

/// Files that are, or could be, committed: Git's own and new ones it does not ignore.
fn tracked(workspace: &Workspace, folder: &str) -> Result<Vec<String>> {
    let mut git = workspace.command("git");
    let listed = output(git.args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
        "--",
        folder,
    ]))?;
    let files: Vec<String> = listed
        .split('\0')
        .filter(|path| !path.is_empty())
        .map(str::to_owned)
        .collect();
    if files.is_empty() {
        bail!("git lists no files in {folder}");
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{foreign_imports, named_machine_paths, without_partner};

    fn stems(stems: &[&str]) -> BTreeSet<String> {
        stems.iter().map(|stem| (*stem).to_owned()).collect()
    }

    #[test]
    fn kernels_with_all_partners_pass() {
        assert!(
            without_partner(
                &stems(&["fold"]),
                &stems(&["fold", "lib"]),
                "fn fold() -> Cases {"
            )
            .is_empty()
        );
    }

    #[test]
    fn a_kernel_without_its_rust_side_is_found() {
        let broken_by =
            without_partner(&stems(&["fold"]), &stems(&["lib"]), "fn fold() -> Cases {");
        assert_eq!(broken_by, ["crates/monarch-kernels/src has no fold.rs"]);
    }

    #[test]
    fn a_kernel_without_its_cases_is_found() {
        let broken_by = without_partner(
            &stems(&["fold"]),
            &stems(&["fold"]),
            "fn folded() -> Cases {",
        );
        assert_eq!(broken_by, ["tests/src/cases.rs has no cases for fold"]);
    }

    #[test]
    fn no_kernels_at_all_is_no_pass() {
        assert_eq!(
            without_partner(&stems(&[]), &stems(&[]), ""),
            ["no kernels in shaders/kernels"]
        );
    }

    #[test]
    fn the_page_may_import_the_package_and_itself() {
        let text = "import { load } from \"monarch-webgpu\";\nimport \"./style.css\";\nimport { a } from '../chat.js';\n";
        assert!(foreign_imports("www/src/main.ts", text).is_empty());
        assert!(
            foreign_imports(
                "www/index.html",
                "<script type=\"module\" src=\"/src/main.ts\">"
            )
            .is_empty()
        );
    }

    #[test]
    fn the_page_may_not_reach_around_the_package() {
        for name in [
            "../../crates/monarch-web/ts/index.js",
            "lodash",
            "monarch-webgpu-extra",
            "https://x.example/a.js",
            "//x.example/a.js",
        ] {
            let text = format!("import {{ load }} from \"{name}\";");
            assert_eq!(
                foreign_imports("www/src/main.ts", &text),
                [format!("www/src/main.ts imports {name}")]
            );
        }
        assert_eq!(
            foreign_imports("www/a.html", "import('../crates/x.js')").len(),
            1
        );
    }

    #[test]
    fn a_path_of_one_machine_is_found() {
        let home = ["/ho", "me/me/model"].concat();
        let text = format!("fine\nlet model = \"{home}\";\n");
        assert_eq!(named_machine_paths("a.rs", &text).len(), 1);
        assert!(
            named_machine_paths("a.rs", &format!("https://x.example{home} and ../..{home}"))
                .is_empty()
        );
    }
}
