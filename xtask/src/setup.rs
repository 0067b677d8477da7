//! Installs what building and testing need, or says precisely what to install.
//!
//! Every step looks first and does nothing when its result is there, so the whole costs well under a second on a
//! machine that is set up. Tools that the project builds for itself go into `target/tools`, each beside a stamp that
//! holds the text it was built from.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, anyhow, bail};

use crate::platform::{self, SoftwareAdapter};
use crate::process::{self, output, run, run_logged, shown};
use crate::suite::WASM_TARGET;
use crate::workspace::Workspace;

const WASM_PACK_VERSION: &str = "0.15.1";
/// Vite 8's lower bound.
const NODE_VERSION: (u32, u32) = (20, 19);

/// The groups of tools a command uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    /// wasm-bindgen's tools and wasm-pack.
    pub(crate) wasm: bool,
    /// Node and the locked npm packages.
    pub(crate) npm: bool,
    /// Chromium and ChromeDriver.
    pub(crate) browser: bool,
    /// The Vulkan loader and both software drivers.
    pub(crate) vulkan: bool,
}

impl Needs {
    pub(crate) const ALL: Self = Self {
        wasm: true,
        npm: true,
        browser: true,
        vulkan: true,
    };
    /// Enough to build the package and the page.
    pub(crate) const BUILD: Self = Self {
        browser: false,
        vulkan: false,
        ..Self::ALL
    };
    /// Enough to drive a page.
    pub(crate) const BROWSER: Self = Self {
        vulkan: false,
        ..Self::ALL
    };
}

/// Brings the machine to what `needs` says.
///
/// System packages come first: when they may not be installed, a person should hear so at once. The rest downloads on
/// one side and compiles on the other.
pub(crate) fn install(workspace: &Workspace, needs: Needs) -> Result<()> {
    fs::create_dir_all(workspace.tools().join("bin")).context("cannot create target/tools")?;
    install_system_packages(needs)?;
    install_wasm_target(workspace)?; // for all: the lints compile for it too
    thread::scope(|scope| {
        let npm = scope.spawn(|| {
            if needs.npm {
                install_npm_packages(workspace)
            } else {
                Ok(())
            }
        });
        let tools = if needs.wasm {
            install_wasm_tools(workspace)
        } else {
            Ok(())
        };
        npm.join()
            .map_err(|_| anyhow!("the npm step panicked"))?
            .and(tools)
    })
}

/// A thing that a Debian package brings.
struct SystemPart {
    what: &'static str,
    package: &'static str,
    wanted: bool,
    present: bool,
}

fn install_system_packages(needs: Needs) -> Result<()> {
    let missing: Vec<SystemPart> = system_parts(needs)
        .into_iter()
        .filter(|part| part.wanted && !part.present)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let steps = apt_steps(&missing, backports(&release).as_deref());
    if !is_root() || platform::on_path("apt-get").is_none() {
        let missing: Vec<_> = missing
            .iter()
            .map(|part| format!("  {} (Debian package {})", part.what, part.package))
            .collect();
        let steps: Vec<_> = steps
            .iter()
            .map(|step| format!("  {}", step.shown()))
            .collect();
        bail!(
            "missing on this machine:\n{}\ninstall it, on Debian as root with:\n{}",
            missing.join("\n"),
            steps.join("\n")
        );
    }
    for step in &steps {
        step.run()?;
    }
    let still: Vec<_> = system_parts(needs)
        .into_iter()
        .filter(|part| part.wanted && !part.present)
        .map(|part| part.what)
        .collect();
    if !still.is_empty() {
        bail!(
            "installed the packages, but still without: {}",
            still.join(", ")
        );
    }
    Ok(())
}

fn system_parts(needs: Needs) -> Vec<SystemPart> {
    let loader = [
        "/usr/lib",
        "/usr/lib64",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
    ]
    .iter()
    .any(|folder| Path::new(folder).join("libvulkan.so.1").exists());
    vec![
        SystemPart {
            what: "Chromium",
            package: "chromium",
            wanted: needs.browser,
            present: platform::chromium().is_some(),
        },
        SystemPart {
            what: "ChromeDriver of the same version",
            package: "chromium-driver",
            wanted: needs.browser,
            present: platform::chromedriver().is_some(),
        },
        SystemPart {
            what: "SwiftShader's Vulkan driver, as Chromium ships it",
            package: "chromium",
            wanted: needs.vulkan,
            present: SoftwareAdapter::Swiftshader.icd().is_some(),
        },
        SystemPart {
            what: "the Vulkan loader",
            package: "libvulkan1",
            wanted: needs.vulkan,
            present: loader,
        },
        SystemPart {
            what: "lavapipe of Mesa 25 or newer",
            package: "mesa-vulkan-drivers",
            wanted: needs.vulkan,
            present: SoftwareAdapter::Lavapipe.icd().is_some(),
        },
    ]
}

/// One thing done as root.
#[derive(Debug, PartialEq, Eq)]
enum AptStep {
    AddSource { file: PathBuf, line: String },
    Run(Vec<String>),
}

impl AptStep {
    fn shown(&self) -> String {
        match self {
            Self::AddSource { file, line } => format!("echo '{line}' > {}", file.display()),
            Self::Run(words) => words.join(" "),
        }
    }

    fn run(&self) -> Result<()> {
        match self {
            Self::AddSource { file, line } => fs::write(file, format!("{line}\n"))
                .with_context(|| format!("cannot write {}", file.display())),
            Self::Run(words) => {
                let mut command = Command::new(&words[0]);
                command
                    .args(&words[1..])
                    .env("DEBIAN_FRONTEND", "noninteractive");
                run(&mut command)
            }
        }
    }
}

/// The backports suite when this release's own Mesa is too old.
fn backports(os_release: &str) -> Option<String> {
    os_release
        .lines()
        .any(|line| line == "VERSION_CODENAME=bookworm")
        .then(|| "bookworm-backports".to_owned())
}

fn apt_steps(missing: &[SystemPart], backports: Option<&str>) -> Vec<AptStep> {
    let words = |text: &str| AptStep::Run(text.split(' ').map(str::to_owned).collect());
    let (mesa, others): (Vec<&str>, Vec<&str>) = missing
        .iter()
        .map(|part| part.package)
        .partition(|package| *package == "mesa-vulkan-drivers");
    let mut others = others;
    others.sort_unstable();
    others.dedup();

    let mut steps = Vec::new();
    if let (false, Some(suite)) = (mesa.is_empty(), backports) {
        steps.push(AptStep::AddSource {
            file: PathBuf::from(format!("/etc/apt/sources.list.d/{suite}.list")),
            line: format!("deb http://deb.debian.org/debian {suite} main"),
        });
    }
    steps.push(words("apt-get update"));
    if !others.is_empty() {
        steps.push(words(&format!(
            "apt-get install -y --no-install-recommends {}",
            others.join(" ")
        )));
    }
    if !mesa.is_empty() {
        let suite = backports
            .map(|suite| format!("-t {suite} "))
            .unwrap_or_default();
        steps.push(words(&format!(
            "apt-get install -y --no-install-recommends {suite}mesa-vulkan-drivers"
        )));
    }
    steps
}

fn is_root() -> bool {
    // The owner of this process' own entry, without a crate for one system call.
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        fs::metadata("/proc/self").is_ok_and(|entry| entry.uid() == 0)
    }
    #[cfg(not(unix))]
    {
        false
    }
}

fn install_npm_packages(workspace: &Workspace) -> Result<()> {
    let mut node = workspace.node();
    let version = output(node.arg("--version"))
        .context("Node is needed: install Node 20.19 or newer (https://nodejs.org, or Debian packages nodejs and npm)")?;
    if !node_is_new_enough(&version) {
        bail!(
            "Node {} is too old: {}.{} or newer is needed",
            version.trim(),
            NODE_VERSION.0,
            NODE_VERSION.1
        );
    }
    let lock = fs::read_to_string(workspace.path("package-lock.json"))
        .context("cannot read package-lock.json")?;
    let stamp = workspace.path("node_modules/.monarch-lock"); // inside, so that it goes when the packages go
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == lock) {
        return Ok(());
    }
    run(workspace
        .command("npm")
        .args(["ci", "--no-audit", "--no-fund"]))?;
    fs::write(&stamp, lock).with_context(|| format!("cannot write {}", stamp.display()))
}

fn node_is_new_enough(version: &str) -> bool {
    let mut numbers = version
        .trim()
        .trim_start_matches('v')
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    matches!((numbers.next(), numbers.next()), (Some(major), Some(minor)) if (major, minor) >= NODE_VERSION)
}

fn install_wasm_tools(workspace: &Workspace) -> Result<()> {
    install_wasm_bindgen(workspace)?;
    install_wasm_pack(workspace)
}

fn install_wasm_target(workspace: &Workspace) -> Result<()> {
    let mut rustc = workspace.command("rustc");
    let folder = output(rustc.args(["--print", "target-libdir", "--target", WASM_TARGET]))?;
    if Path::new(folder.trim()).is_dir() {
        return Ok(());
    }
    run(workspace
        .command("rustup")
        .args(["target", "add", WASM_TARGET]))
    .with_context(|| {
        format!("install Rust's {WASM_TARGET} target for the toolchain in rust-toolchain.toml")
    })
}

/// Builds `xtask/wasm-tools` and links it under both of its names.
fn install_wasm_bindgen(workspace: &Workspace) -> Result<()> {
    let sources = ["Cargo.toml", "Cargo.lock", "src/main.rs"];
    let mut wanted = String::new();
    for source in sources {
        let file = workspace.path("xtask/wasm-tools").join(source);
        wanted += &fs::read_to_string(&file)
            .with_context(|| format!("cannot read {}", file.display()))?;
    }
    let tools = workspace.tools();
    let stamp = tools.join("wasm-bindgen.stamp");
    let links =
        ["wasm-bindgen", "wasm-bindgen-test-runner"].map(|name| tools.join("bin").join(name));
    if fs::read_to_string(&stamp).is_ok_and(|built| built == wanted)
        && links.iter().all(|link| link.exists())
    {
        return Ok(());
    }
    let build = tools.join("build/wasm-tools");
    fs::create_dir_all(&build).context("cannot create target/tools/build")?;
    let mut cargo = workspace.cargo();
    cargo
        .args([
            "build",
            "--locked",
            "--manifest-path",
            "xtask/wasm-tools/Cargo.toml",
            "--target-dir",
        ])
        .arg(&build);
    announce(&cargo);
    run_logged(&mut cargo, &tools.join("wasm-bindgen.log"))?;
    let binary = build.join("debug/wasm-tools");
    for link in links {
        if link.symlink_metadata().is_ok() {
            fs::remove_file(&link).with_context(|| format!("cannot replace {}", link.display()))?;
        }
        // A hard link: the tool finds out which one it is by the name it was started under.
        fs::hard_link(&binary, &link).with_context(|| format!("cannot link {}", link.display()))?;
    }
    fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))
}

fn install_wasm_pack(workspace: &Workspace) -> Result<()> {
    let tools = workspace.tools();
    let program = tools.join("bin/wasm-pack");
    if program.is_file() {
        let version = output(Command::new(&program).arg("--version"))?;
        if version.trim() == format!("wasm-pack {WASM_PACK_VERSION}") {
            return Ok(());
        }
    }
    let mut cargo = workspace.cargo();
    // `--debug`: built once, run twice; an optimised build costs two and a half times as much.
    cargo
        .args([
            "install",
            "wasm-pack",
            "--version",
            WASM_PACK_VERSION,
            "--locked",
            "--debug",
            "--force",
            "--root",
        ])
        .arg(&tools)
        .env("CARGO_TARGET_DIR", tools.join("build/wasm-pack"))
        .env("CARGO_PROFILE_DEV_DEBUG", "0");
    announce(&cargo);
    run_logged(&mut cargo, &tools.join("wasm-pack.log"))
}

fn announce(command: &Command) {
    eprintln!("$ {}", shown(command));
}

/// Whether `cargo nextest` is there; without it the tests run under `cargo test`.
pub(crate) fn has_nextest(workspace: &Workspace) -> bool {
    process::succeeds(workspace.cargo().args(["nextest", "--version"]))
}

#[cfg(test)]
mod tests {
    use super::{AptStep, SystemPart, apt_steps, backports, node_is_new_enough};

    fn part(package: &'static str) -> SystemPart {
        SystemPart {
            what: "a part",
            package,
            wanted: true,
            present: false,
        }
    }

    fn shown(steps: &[AptStep]) -> Vec<String> {
        steps.iter().map(AptStep::shown).collect()
    }

    #[test]
    fn bookworm_takes_mesa_from_backports() {
        let steps = apt_steps(
            &[
                part("chromium"),
                part("chromium-driver"),
                part("chromium"),
                part("mesa-vulkan-drivers"),
            ],
            Some("bookworm-backports"),
        );
        assert_eq!(
            shown(&steps),
            [
                "echo 'deb http://deb.debian.org/debian bookworm-backports main' > /etc/apt/sources.list.d/bookworm-backports.list",
                "apt-get update",
                "apt-get install -y --no-install-recommends chromium chromium-driver",
                "apt-get install -y --no-install-recommends -t bookworm-backports mesa-vulkan-drivers",
            ]
        );
    }

    #[test]
    fn a_newer_release_needs_no_other_source() {
        assert_eq!(
            shown(&apt_steps(&[part("mesa-vulkan-drivers")], None)),
            [
                "apt-get update",
                "apt-get install -y --no-install-recommends mesa-vulkan-drivers"
            ]
        );
    }

    #[test]
    fn only_bookworm_is_told_to_use_backports() {
        assert_eq!(
            backports("ID=debian\nVERSION_CODENAME=bookworm\n").as_deref(),
            Some("bookworm-backports")
        );
        assert_eq!(backports("ID=debian\nVERSION_CODENAME=trixie\n"), None);
    }

    #[test]
    fn node_before_20_19_is_refused() {
        assert!(node_is_new_enough("v20.19.0\n"));
        assert!(node_is_new_enough("v24.1.0"));
        assert!(!node_is_new_enough("v20.18.3"));
        assert!(!node_is_new_enough("v18.20.0"));
        assert!(!node_is_new_enough("nonsense"));
    }
}
