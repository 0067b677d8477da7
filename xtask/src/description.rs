//! `wasm-pack.toml`: how the npm package is built.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::workspace::Workspace;

/// The whole file. Unknown keys are refused: a misspelt one would silently change the build.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Description {
    pub(crate) package: Package,
    pub(crate) wasm: Wasm,
    pub(crate) typescript: TypeScript,
    pub(crate) budget: Budget,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Package {
    #[serde(rename = "crate")]
    pub(crate) crate_dir: PathBuf,
    pub(crate) npm_name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Wasm {
    pub(crate) target: String,
    pub(crate) profile: String,
    pub(crate) out_dir: PathBuf,
    pub(crate) out_name: String,
    pub(crate) wasm_opt: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct TypeScript {
    pub(crate) build: PathBuf,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Budget {
    pub(crate) wasm: Sizes,
    pub(crate) js: Sizes,
}

/// Bytes of a group of files, each file compressed by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Sizes {
    pub(crate) raw_bytes: u64,
    pub(crate) gzip_bytes: u64,
    pub(crate) brotli_bytes: u64,
}

impl Description {
    pub(crate) fn read(workspace: &Workspace) -> Result<Self> {
        let text = fs::read_to_string(workspace.path("wasm-pack.toml"))
            .context("cannot read wasm-pack.toml")?;
        toml::from_str(&text).context("wasm-pack.toml")
    }

    /// The optimised module.
    pub(crate) fn wasm_file(&self) -> PathBuf {
        self.wasm
            .out_dir
            .join(format!("{}_bg.wasm", self.wasm.out_name))
    }
}

impl Sizes {
    /// The figures of `self` that are above `budget`, in words.
    pub(crate) fn above(&self, budget: &Self) -> Vec<String> {
        let figures = [
            ("raw", self.raw_bytes, budget.raw_bytes),
            ("gzip", self.gzip_bytes, budget.gzip_bytes),
            ("brotli", self.brotli_bytes, budget.brotli_bytes),
        ];
        figures
            .into_iter()
            .filter(|(_, bytes, allowed)| bytes > allowed)
            .map(|(kind, bytes, allowed)| format!("{kind}: {bytes} bytes, budget {allowed}"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Description, Sizes};
    use crate::workspace::Workspace;

    #[test]
    fn the_file_in_the_repository_is_complete() {
        let description = Description::read(&Workspace::find()).unwrap();
        assert_eq!(description.package.npm_name, "monarch-webgpu");
    }

    #[test]
    fn a_misspelt_key_is_refused() {
        let error =
            toml::from_str::<Sizes>("raw-bytes = 1\ngzip-bytes = 1\nbrotli-byte = 1").unwrap_err();
        assert!(error.to_string().contains("brotli-byte"), "{error}");
    }

    #[test]
    fn one_byte_above_the_budget_is_named() {
        let budget = Sizes {
            raw_bytes: 10,
            gzip_bytes: 10,
            brotli_bytes: 10,
        };
        assert!(budget.above(&budget).is_empty());
        let size = Sizes {
            gzip_bytes: 11,
            ..budget
        };
        assert_eq!(size.above(&budget), ["gzip: 11 bytes, budget 10"]);
    }
}
