//! Links every kernel of `shaders/kernels` in all its variants, validates and lints the linked
//! text, and writes the table that `monarch_kernels::KERNELS` is made of.
//!
//! Any trouble fails the build with file, line and caret.

#[path = "build/emit.rs"]
mod emit;
#[path = "build/header.rs"]
mod header;
#[path = "build/link.rs"]
mod link;
#[path = "build/lint.rs"]
mod lint;
#[path = "build/reflect.rs"]
mod reflect;
#[path = "build/trouble.rs"]
mod trouble;
#[path = "build/uniformity.rs"]
mod uniformity;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::{env, fs, process};

use link::Conditions;
use trouble::Trouble;

fn main() {
    let crate_dir = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out_dir = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let web = env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("wasm32");
    let shaders = crate_dir
        .join("../../shaders")
        .canonicalize()
        .expect("shaders/ exists");
    println!("cargo::rerun-if-changed={}", shaders.display());
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed=src");

    let (kernels, troubles) = build(&shaders, &crate_dir.join("src"), web);
    if !troubles.is_empty() {
        let report: Vec<String> = trouble::merged(troubles)
            .iter()
            .map(ToString::to_string)
            .collect();
        let _ = writeln!(io::stderr(), "{}", report.join("\n\n"));
        process::exit(1);
    }
    let table = out_dir.join("kernels.rs");
    fs::write(&table, emit::table(&kernels)).expect("OUT_DIR is writable");
}

/// All kernels for one target, and everything that is wrong with them for any target.
fn build(shaders: &Path, partners: &Path, web: bool) -> (Vec<emit::Kernel>, Vec<Trouble>) {
    let mut kernels = Vec::new();
    let mut troubles = Vec::new();
    for stem in link::stems(shaders) {
        let partner = partners.join(format!("{stem}.rs"));
        if !partner.is_file() {
            troubles.push(Trouble::missing_partner(&stem, &partner));
        }
        match build_kernel(shaders, &stem, web) {
            Ok(kernel) => kernels.push(kernel),
            Err(found) => troubles.extend(found),
        }
    }
    (kernels, troubles)
}

fn build_kernel(shaders: &Path, stem: &str, web: bool) -> Result<emit::Kernel, Vec<Trouble>> {
    let mut variants = Vec::new();
    let mut troubles = Vec::new();
    for conditions in Conditions::all() {
        match link::link(shaders, stem, conditions) {
            Ok(linked) => match reflect::reflect(&linked) {
                Ok(reflected) => variants.push((linked, reflected)),
                Err(found) => troubles.extend(found),
            },
            Err(found) => troubles.extend(found),
        }
    }
    if !troubles.is_empty() {
        return Err(troubles);
    }
    let (linked, reflected) = &variants[0];
    let (file, source) = &linked.sources[0];
    let header = header::parse(stem, file, source)?;
    troubles.extend(header.check(file, source, reflected));
    troubles.extend(emit::disagreement(stem, &variants));
    if !troubles.is_empty() {
        return Err(troubles);
    }
    Ok(emit::Kernel::new(stem, &header, &variants, web))
}
