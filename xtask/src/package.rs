//! The npm package, the page around it, and their sizes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Deserialize;
use serde_json::Value;

use crate::description::{Description, Sizes};
use crate::process::{become_command, output, run};
use crate::setup::{self, Needs};
use crate::workspace::Workspace;

/// Where Vite leaves the page.
const SITE: &str = "www/dist";
/// The model that the page opens by itself.
const SMALL_MODEL: &str = "models/tiny-lfm2";

#[derive(Args)]
pub(crate) struct DemoArguments {
    /// Port to serve on
    #[arg(long, default_value_t = 8080)]
    port: u16,
}

/// Builds the npm package: module, optimiser, TypeScript.
pub(crate) fn web(workspace: &Workspace) -> Result<()> {
    setup::install(workspace, Needs::BUILD)?;
    let description = Description::read(workspace)?;
    let wasm = &description.wasm;
    let mut wasm_pack = workspace.cargo_like("wasm-pack");
    wasm_pack
        .arg("build")
        .arg(&description.package.crate_dir)
        .args(["--target", &wasm.target, "--profile", &wasm.profile])
        // The optimiser's flags are in wasm-pack.toml, and package.json is written by hand.
        .args([
            "--no-opt",
            "--no-pack",
            "--out-name",
            &wasm.out_name,
            "--out-dir",
        ])
        .arg(workspace.path(&wasm.out_dir));
    run(&mut wasm_pack)?;
    optimise(workspace, &description)?;
    run(workspace
        .node()
        .arg(workspace.path(&description.typescript.build)))?;
    check_name(workspace, &description)
}

/// The package that was made is the one that wasm-pack.toml describes.
fn check_name(workspace: &Workspace, description: &Description) -> Result<()> {
    let file = workspace
        .path(&description.wasm.out_dir)
        .join("package.json");
    let text =
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let package: Value = serde_json::from_str(&text).with_context(|| file.display().to_string())?;
    let wanted = &description.package.npm_name;
    if package["name"] != wanted.as_str() {
        bail!(
            "{} is named {}, wasm-pack.toml says {wanted}",
            file.display(),
            package["name"]
        );
    }
    Ok(())
}

/// Runs wasm-opt over the module, unless this very module was optimised with these flags before.
///
/// The optimiser takes longer than an unchanged build, so the last input and output are kept.
fn optimise(workspace: &Workspace, description: &Description) -> Result<()> {
    let module = workspace.path(description.wasm_file());
    let kept = workspace.path("target/wasm-opt");
    fs::create_dir_all(&kept).with_context(|| format!("cannot create {}", kept.display()))?;
    let (input, result, flags) = (
        kept.join("input.wasm"),
        kept.join("output.wasm"),
        kept.join("flags"),
    );
    let wanted_flags = description.wasm.wasm_opt.join(" ");

    let built = fs::read(&module).with_context(|| format!("cannot read {}", module.display()))?;
    let known = result.is_file()
        && fs::read_to_string(&flags).is_ok_and(|flags| flags == wanted_flags)
        && fs::read(&input).is_ok_and(|input| input == built);
    if !known {
        // In this order: whatever is interrupted, a complete set never names the wrong output.
        let _ = fs::remove_file(&flags);
        fs::write(&input, &built).with_context(|| format!("cannot write {}", input.display()))?;
        run(workspace
            .command("wasm-opt")
            .args(&description.wasm.wasm_opt)
            .arg(&input)
            .arg("-o")
            .arg(&result))?;
        fs::write(&flags, wanted_flags)
            .with_context(|| format!("cannot write {}", flags.display()))?;
    }
    fs::copy(&result, &module).with_context(|| format!("cannot write {}", module.display()))?;
    Ok(())
}

/// Builds the package and the page; returns the folder to serve.
pub(crate) fn site(workspace: &Workspace) -> Result<PathBuf> {
    web(workspace)?;
    run(workspace.command("vite").args(["build", "www"]))?;
    let site = workspace.path(SITE);
    let model = site.join(SMALL_MODEL).join("manifest.json");
    if !model.is_file() {
        bail!(
            "the page was built without its model: {} is missing",
            model.display()
        );
    }
    Ok(site)
}

/// Builds the page and serves it until the program is stopped; Vite prints the URL, and takes the next port when this
/// one is in use.
pub(crate) fn demo(workspace: &Workspace, arguments: &DemoArguments) -> Result<()> {
    site(workspace)?;
    let port = arguments.port.to_string();
    become_command(workspace.command("vite").args([
        "preview",
        "www",
        "--host",
        "127.0.0.1",
        "--port",
        &port,
    ]))
}

/// Prints what a user of the package downloads, and fails above the budget.
pub(crate) fn size(workspace: &Workspace) -> Result<()> {
    web(workspace)?;
    let description = Description::read(workspace)?;
    let over = measure(workspace, &description)?;
    if !over.is_empty() {
        bail!("above the budget in wasm-pack.toml: {}", over.join("; "));
    }
    Ok(())
}

/// Prints the size table and returns what is above the budget.
pub(crate) fn measure(workspace: &Workspace, description: &Description) -> Result<Vec<String>> {
    let package = workspace.path(&description.wasm.out_dir);
    let groups = [
        (
            "wasm",
            files_named(&package, ".wasm")?,
            &description.budget.wasm,
        ),
        ("js", files_named(&package, ".js")?, &description.budget.js),
    ];
    println!(
        "{:<6} {:>6} {:>10} {:>10} {:>10}",
        "", "files", "raw", "gzip", "brotli"
    );
    let mut over = Vec::new();
    for (name, files, budget) in groups {
        if files.is_empty() {
            bail!("no {name} files in {}", package.display());
        }
        let size = compressed_sizes(workspace, &files)?;
        for (row, sizes) in [(name, &size), ("budget", budget)] {
            let files = if row == name {
                files.len().to_string()
            } else {
                String::new()
            };
            println!(
                "{row:<6} {files:>6} {:>10} {:>10} {:>10}",
                sizes.raw_bytes, sizes.gzip_bytes, sizes.brotli_bytes
            );
        }
        over.extend(
            size.above(budget)
                .into_iter()
                .map(|figure| format!("{name} {figure}")),
        );
    }
    Ok(over)
}

/// Node compresses: it has both formats built in.
fn compressed_sizes(workspace: &Workspace, files: &[PathBuf]) -> Result<Sizes> {
    #[derive(Deserialize)]
    struct Line {
        raw: u64,
        gzip: u64,
        brotli: u64,
    }
    let text = output(
        workspace
            .node()
            .arg(workspace.path("xtask/node/sizes.mjs"))
            .args(files),
    )?;
    let lines: Vec<Line> =
        serde_json::from_str(&text).context("sizes.mjs printed something else than sizes")?;
    Ok(lines.iter().fold(Sizes::default(), |sum, line| Sizes {
        raw_bytes: sum.raw_bytes + line.raw,
        gzip_bytes: sum.gzip_bytes + line.gzip,
        brotli_bytes: sum.brotli_bytes + line.brotli,
    }))
}

fn files_named(folder: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(ending) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
