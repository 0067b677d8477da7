//! The browser and the software GPUs of this machine.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::workspace::Workspace;

/// Flags under which a headless Chromium has WebGPU on SwiftShader and keeps off the network.
///
/// `--no-sandbox`: containers run as root, where Chromium's sandbox cannot start.
pub(crate) const CHROMIUM_FLAGS: &[&str] = &[
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-unsafe-webgpu",
    "--use-webgpu-adapter=swiftshader",
    "--enable-features=Vulkan",
];

const CHROMIUM_NAMES: &[&str] = &[
    "chromium",
    "chromium-browser",
    "google-chrome-stable",
    "google-chrome",
];
const ICD_FOLDERS: &[&str] = &[
    "/usr/share/vulkan/icd.d",
    "/etc/vulkan/icd.d",
    "/usr/local/share/vulkan/icd.d",
];
const SWIFTSHADER_ICDS: &[&str] = &[
    "/usr/lib/chromium/vk_swiftshader_icd.json",
    "/usr/lib/chromium-browser/vk_swiftshader_icd.json",
    "/opt/google/chrome/vk_swiftshader_icd.json",
];

/// The oldest lavapipe that has subgroups and f16: Mesa 25, which announces Vulkan 1.4.
const LAVAPIPE_VULKAN: (u32, u32) = (1, 4);

/// A Vulkan driver that computes on the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SoftwareAdapter {
    /// Mesa: subgroups of 8, f16, bindings of 128 MiB.
    Lavapipe,
    /// Chromium's: subgroups of 4, no f16, 256 invocations.
    Swiftshader,
}

impl SoftwareAdapter {
    /// The name tests read from `MONARCH_ADAPTER`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lavapipe => "lavapipe",
            Self::Swiftshader => "swiftshader",
        }
    }

    /// The driver's manifest on this machine.
    pub(crate) fn icd(self) -> Option<PathBuf> {
        match self {
            Self::Lavapipe => ICD_FOLDERS
                .iter()
                .find_map(|folder| lavapipe_in(Path::new(folder))),
            Self::Swiftshader => SWIFTSHADER_ICDS
                .iter()
                .map(PathBuf::from)
                .find(|path| path.is_file()),
        }
    }

    /// Makes this the only adapter that `command` sees, and tells it so: a test that gets another one fails.
    pub(crate) fn select(self, command: &mut Command) -> Result<()> {
        let icd = self
            .icd()
            .with_context(|| format!("no {} driver; run `cargo xtask setup`", self.name()))?;
        command
            .env("VK_DRIVER_FILES", &icd)
            .env("VK_ICD_FILENAMES", &icd) // the name older Vulkan loaders read
            .env("MONARCH_ADAPTER", self.name())
            // lavapipe spends longer compiling these kernels than running them: a third less without LLVM's passes.
            .env("GALLIVM_PERF", "nopt");
        quiet_runtime_folder(command);
        Ok(())
    }
}

/// Mesa and Chromium complain on every start where no session manager set this.
pub(crate) fn quiet_runtime_folder(command: &mut Command) {
    if env::var_os("XDG_RUNTIME_DIR").is_none() {
        command.env("XDG_RUNTIME_DIR", env::temp_dir());
    }
}

fn lavapipe_in(folder: &Path) -> Option<PathBuf> {
    // `lvp_icd.json` in some releases, `lvp_icd.x86_64.json` in others.
    let mut found: Vec<PathBuf> = fs::read_dir(folder)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            name.starts_with("lvp_icd") && name.ends_with(".json")
        })
        .filter(|path| fs::read_to_string(path).is_ok_and(|text| is_new_enough(&text)))
        .collect();
    found.sort();
    found.into_iter().next()
}

fn is_new_enough(icd: &str) -> bool {
    let version = serde_json::from_str::<Value>(icd)
        .ok()
        .and_then(|icd| icd["ICD"]["api_version"].as_str().map(str::to_owned))
        .unwrap_or_default();
    let mut numbers = version
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    matches!((numbers.next(), numbers.next()), (Some(major), Some(minor)) if (major, minor) >= LAVAPIPE_VULKAN)
}

/// Chromium: `MONARCH_CHROMIUM` when set, else the first known name on `PATH`.
pub(crate) fn chromium() -> Option<PathBuf> {
    if let Some(chosen) = env::var_os("MONARCH_CHROMIUM") {
        return Some(PathBuf::from(chosen));
    }
    CHROMIUM_NAMES.iter().find_map(|name| on_path(name))
}

pub(crate) fn chromedriver() -> Option<PathBuf> {
    on_path("chromedriver")
}

/// The first executable of that name on `PATH`.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// Tells `command` which browser to start and how; `xtask/node/chromium.mjs` reads it.
pub(crate) fn select_chromium(command: &mut Command) -> Result<()> {
    let chromium = chromium().context("no Chromium; run `cargo xtask setup`")?;
    command.env("MONARCH_CHROMIUM", chromium).env(
        "MONARCH_CHROMIUM_FLAGS",
        serde_json::to_string(CHROMIUM_FLAGS)?,
    );
    quiet_runtime_folder(command);
    Ok(())
}

const WASM_RUNNER: (&str, &str) = (
    "CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUNNER",
    "wasm-bindgen-test-runner",
);
/// For a whole test program on a busy two-core machine.
const WASM_TIMEOUT_S: u32 = 900;

/// Makes `command`, a cargo test run for wasm32, run its tests in a headless Chromium.
pub(crate) fn select_wasm_runner(workspace: &Workspace, command: &mut Command) -> Result<()> {
    let chromium = chromium().context("no Chromium; run `cargo xtask setup`")?;
    let chromedriver = chromedriver().context("no ChromeDriver; run `cargo xtask setup`")?;
    let capabilities = json!({
        "goog:chromeOptions": { "binary": chromium, "args": CHROMIUM_FLAGS },
        // ChromeDriver gives up on a page that computes for longer; by itself after five minutes.
        "timeouts": { "pageLoad": WASM_TIMEOUT_S * 1000, "script": WASM_TIMEOUT_S * 1000 },
    });
    let file = workspace.tools().join("webdriver.json");
    fs::write(&file, serde_json::to_string_pretty(&capabilities)?)
        .with_context(|| format!("cannot write {}", file.display()))?;
    command
        .env(WASM_RUNNER.0, WASM_RUNNER.1)
        .env("WASM_BINDGEN_USE_BROWSER", "1")
        .env("WASM_BINDGEN_TEST_TIMEOUT", WASM_TIMEOUT_S.to_string())
        .env("WASM_BINDGEN_TEST_WEBDRIVER_JSON", file)
        .env("CHROMEDRIVER", chromedriver);
    quiet_runtime_folder(command);
    Ok(())
}

/// Makes `command`, a cargo test run for wasm32, run its tests in Node with Dawn as its WebGPU.
pub(crate) fn select_node_runner(workspace: &Workspace, command: &mut Command) -> Result<()> {
    let dawn = workspace.path("xtask/node/dawn.mjs");
    let dawn = dawn.to_str().context("the checkout's path is not text")?;
    command
        .env(WASM_RUNNER.0, WASM_RUNNER.1)
        .env("WASM_BINDGEN_TEST_TIMEOUT", WASM_TIMEOUT_S.to_string())
        .env_remove("WASM_BINDGEN_USE_BROWSER")
        .env("NODE_OPTIONS", format!("--import={dawn}"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::is_new_enough;

    #[test]
    fn an_old_lavapipe_is_refused() {
        assert!(is_new_enough(r#"{ "ICD": { "api_version": "1.4.305" } }"#));
        assert!(is_new_enough(r#"{ "ICD": { "api_version": "2.0" } }"#));
        assert!(!is_new_enough(r#"{ "ICD": { "api_version": "1.3.230" } }"#));
        assert!(!is_new_enough(r#"{ "ICD": {} }"#));
        assert!(!is_new_enough("not JSON"));
    }
}
