//! `cargo xtask test`: everything the project checks about itself, in parts.
//!
//! A part is a group of tests that run in one place: natively, on one adapter, in the browser. Each must run at least
//! one test: a part that finds nothing to do has lost its tests, not passed them. The parts and their numbers are
//! printed at the end as a table.

mod agreement;
mod count;

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::ValueEnum;
use serde::Deserialize;

use crate::check;
use crate::description::Description;
use crate::package;
use crate::platform::{self, SoftwareAdapter};
use crate::process::{output, run_lines, run_logged};
use crate::setup::{self, Needs};
use crate::workspace::Workspace;

use self::count::Counter;

/// The members that are compiled for this machine. Always the same set: another one would unite other features, and
/// cargo would build every dependency again.
pub(crate) const NATIVE: &[&str] = &["--workspace", "--exclude", "monarch-web"];

/// The target of everything that runs in a browser.
pub(crate) const WASM_TARGET: &str = "wasm32-unknown-unknown";

/// Crates that must have tests for the browser: those that hold code for it.
const BROWSER_CRATES: &[&str] = &[WEB_CRATE, "monarch-weights"];
const WEB_CRATE: &str = "monarch-web";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Run only these parts
    #[arg(long, value_delimiter = ',')]
    only: Vec<PartName>,
}

/// The parts, in the order in which they run: what needs no browser first, while the package is being built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PartName {
    Lints,
    Native,
    Docs,
    Lavapipe,
    Swiftshader,
    Types,
    Size,
    Browser,
    Node,
    Page,
    Agreement,
}

impl PartName {
    /// The words of the table.
    fn title(self) -> &'static str {
        match self {
            Self::Lints => "lints and rules",
            Self::Native => "native",
            Self::Docs => "documentation examples",
            Self::Lavapipe => "GPU, lavapipe",
            Self::Swiftshader => "GPU, SwiftShader",
            Self::Types => "TypeScript",
            Self::Size => "package size",
            Self::Browser => "crates in Chromium",
            Self::Node => "crates in Node",
            Self::Page => "page in Chromium",
            Self::Agreement => "same tokens everywhere",
        }
    }

    /// Whether it waits for the package: for its files, or for the tools that build it.
    fn needs_package(self) -> bool {
        match self {
            Self::Lints | Self::Native | Self::Docs | Self::Lavapipe | Self::Swiftshader => false,
            Self::Types
            | Self::Size
            | Self::Browser
            | Self::Node
            | Self::Page
            | Self::Agreement => true,
        }
    }

    fn run(self, workspace: &Workspace) -> Result<Tally> {
        match self {
            Self::Lints => check::lints(workspace),
            Self::Native => native(workspace),
            Self::Docs => counted(
                workspace
                    .cargo()
                    .arg("test")
                    .args(NATIVE)
                    .args(["--locked", "--doc"]),
            ),
            Self::Lavapipe => gpu(workspace, SoftwareAdapter::Lavapipe),
            Self::Swiftshader => gpu(workspace, SoftwareAdapter::Swiftshader),
            Self::Types => check::types(workspace),
            Self::Size => size(workspace),
            Self::Browser => browser(workspace),
            Self::Node => node(workspace),
            Self::Page => page(workspace),
            Self::Agreement => agreement::run_all(workspace),
        }
    }
}

/// How many tests of a part passed and failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    passed: usize,
    failed: usize,
    /// What failed, where the tests have not said so themselves.
    failures: Vec<String>,
}

impl Tally {
    /// Counts one check that has no test program of its own.
    pub(crate) fn record(&mut self, name: &str, result: Result<()>) {
        match result {
            Ok(()) => self.passed += 1,
            Err(error) => {
                eprintln!("FAILED {name}: {error:#}");
                self.failed += 1;
                self.failures.push(name.to_owned());
            }
        }
    }
}

/// One row of the table.
pub(crate) struct Part {
    title: &'static str,
    outcome: Result<Tally>,
    took: Duration,
}

/// Runs one part.
pub(crate) fn part(title: &'static str, run: impl FnOnce() -> Result<Tally>) -> Part {
    eprintln!("\n=== {title}");
    let started = Instant::now();
    let outcome = run();
    if let Err(error) = &outcome {
        eprintln!("FAILED {title}: {error:#}");
    }
    Part {
        title,
        outcome,
        took: started.elapsed(),
    }
}

/// Runs the parts and prints their table.
pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    let started = Instant::now();
    let wanted: Vec<PartName> = PartName::value_variants()
        .iter()
        .copied()
        .filter(|name| arguments.only.is_empty() || arguments.only.contains(name))
        .collect();
    // What downloads comes first; what compiles for the browser runs beside the native parts.
    setup::install(
        workspace,
        Needs {
            wasm: false,
            ..Needs::ALL
        },
    )?;
    let (before, after): (Vec<_>, Vec<_>) =
        wanted.into_iter().partition(|name| !name.needs_package());
    let mut parts = Vec::new();
    thread::scope(|scope| {
        let package = (!after.is_empty()).then(|| scope.spawn(|| build_site(workspace)));
        parts.extend(
            before
                .iter()
                .map(|name| part(name.title(), || name.run(workspace))),
        );
        if let Some(package) = package {
            let waiting = Instant::now();
            let built = package
                .join()
                .unwrap_or_else(|_| Err(anyhow!("the package step panicked")));
            let failed = built.is_err();
            parts.push(Part {
                title: "package and page",
                outcome: built,
                took: waiting.elapsed(),
            });
            for name in after {
                parts.push(part(name.title(), || {
                    if failed {
                        bail!("not run: the package was not built")
                    }
                    name.run(workspace)
                }));
            }
        }
    });
    let result = finish(&parts);
    eprintln!("took {}", minutes(started.elapsed()));
    result
}

/// Builds package and page in a process of its own, so that its messages stay together in a file.
fn build_site(workspace: &Workspace) -> Result<Tally> {
    let program = env::current_exe().context("cannot find this program")?;
    let log = workspace.tools().join("site.log");
    let mut site = workspace.command(&program.to_string_lossy());
    run_logged(site.arg("site"), &log)
        .inspect_err(|error| eprintln!("FAILED package and page: {error:#}"))
        .map(|()| Tally {
            passed: 1,
            ..Tally::default()
        })
}

/// Prints the table; fails when any part failed or ran nothing.
pub(crate) fn finish(parts: &[Part]) -> Result<()> {
    println!(
        "\n{:<24} {:>7} {:>7} {:>8}",
        "part", "passed", "failed", "time"
    );
    for part in parts {
        let (passed, failed) = part
            .outcome
            .as_ref()
            .map_or((0, 0), |tally| (tally.passed, tally.failed));
        let note = trouble(part)
            .map(|trouble| format!("  {trouble}"))
            .unwrap_or_default();
        println!(
            "{:<24} {passed:>7} {failed:>7} {:>8}{note}",
            part.title,
            minutes(part.took)
        );
    }
    let total: usize = parts
        .iter()
        .filter_map(|part| part.outcome.as_ref().ok())
        .map(|tally| tally.passed)
        .sum();
    println!("{:<24} {total:>7}", "all");
    let failed: Vec<_> = parts
        .iter()
        .filter(|part| trouble(part).is_some())
        .map(|part| part.title)
        .collect();
    if parts.is_empty() || !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

/// Why a part did not pass.
fn trouble(part: &Part) -> Option<String> {
    match &part.outcome {
        // The first line: the rest was printed when it happened.
        Err(error) => Some(
            format!("{error}")
                .lines()
                .next()
                .unwrap_or_default()
                .to_owned(),
        ),
        Ok(tally) if tally.failed > 0 && tally.failures.is_empty() => Some("failed".to_owned()),
        Ok(tally) if tally.failed > 0 => Some(format!("failed: {}", tally.failures.join("; "))),
        Ok(tally) if tally.passed == 0 => Some("ran no tests".to_owned()),
        Ok(_) => None,
    }
}

fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

/// Runs a test program and counts what it reports.
fn counted(command: &mut Command) -> Result<Tally> {
    let mut counter = Counter::default();
    // Colours would sit between the words that are counted.
    let status = run_lines(
        command
            .env("CARGO_TERM_COLOR", "never")
            .env("NO_COLOR", "1"),
        &mut |line| counter.read(line),
    )?;
    let tally = counter.tally();
    if !status.success() && tally.failed == 0 {
        bail!("ended with {status} before its tests did");
    }
    if status.success() && tally.failed > 0 {
        bail!("reports {} failed tests but ended well", tally.failed);
    }
    Ok(tally)
}

/// Everything that needs no GPU.
fn native(workspace: &Workspace) -> Result<Tally> {
    let mut cargo = workspace.cargo();
    // Not in the repository, see models/README.md. Where somebody put it, the tests that need it run too.
    let has_checkpoint = workspace.path("models/tiny-lfm2/original").is_dir();
    if setup::has_nextest(workspace) {
        cargo
            .args(["nextest", "run"])
            .args(NATIVE)
            .args(NEXTEST)
            .args(["--filterset", "not binary(/^gpu_/)"]);
        if has_checkpoint {
            cargo.args(["--run-ignored", "all"]);
        }
    } else {
        cargo
            .arg("test")
            .args(NATIVE)
            .args(["--locked", "--no-fail-fast", "--lib", "--bins"]);
        for test in test_targets(workspace)?
            .into_iter()
            .filter(|test| !test.is_gpu() && !test.is_browser())
        {
            cargo.args(["--test", &test.name]);
        }
        if has_checkpoint {
            cargo.args(["--", "--include-ignored"]);
        }
    }
    counted(&mut cargo)
}

/// Finds gaps in the kernels' cases, which are the same on every adapter: once is enough.
const LAVAPIPE_ONLY: &str = "gpu_kernels_mutants";

/// The tests in binaries named `gpu_…`, on one software adapter.
fn gpu(workspace: &Workspace, adapter: SoftwareAdapter) -> Result<Tally> {
    let mut cargo = workspace.cargo();
    let is_elsewhere =
        |binary: &str| binary == LAVAPIPE_ONLY && adapter != SoftwareAdapter::Lavapipe;
    if setup::has_nextest(workspace) {
        cargo
            .args(["nextest", "run"])
            .args(NATIVE)
            .args(NEXTEST)
            .arg("--filterset")
            .arg(if is_elsewhere(LAVAPIPE_ONLY) {
                format!("binary(/^gpu_/) and not binary(={LAVAPIPE_ONLY})")
            } else {
                "binary(/^gpu_/)".to_owned()
            });
    } else {
        cargo
            .arg("test")
            .args(NATIVE)
            .args(["--locked", "--no-fail-fast"]);
        let tests: Vec<_> = test_targets(workspace)?
            .into_iter()
            .filter(|test| test.is_gpu() && !is_elsewhere(&test.name))
            .collect();
        if tests.is_empty() {
            return Ok(Tally::default());
        }
        for test in tests {
            cargo.args(["--test", &test.name]);
        }
    }
    adapter.select(&mut cargo)?;
    counted(&mut cargo)
}

/// All failures in one run, and only failures in the log.
const NEXTEST: &[&str] = &[
    "--locked",
    "--no-fail-fast",
    "--status-level",
    "fail",
    "--final-status-level",
    "slow",
    "--no-tests",
    "pass",
];

/// The wasm-bindgen-test suites, in a headless Chromium.
fn browser(workspace: &Workspace) -> Result<Tally> {
    let mut cargo = workspace.cargo();
    cargo.args([
        "test",
        "--target",
        WASM_TARGET,
        "--locked",
        "--no-fail-fast",
    ]);
    cargo.args(browser_selection(&test_targets(workspace)?)?);
    platform::select_wasm_runner(workspace, &mut cargo)?;
    counted(&mut cargo)
}

/// The web crate's suite once more, in Node: Dawn, Chromium's WebGPU, on lavapipe. That is where Chromium's shader
/// compiler sees the f16 variants, which SwiftShader has no use for, and a whole model runs on them.
///
/// Without the single kernels' numbers: the GPU part has them on this very driver, Chromium has them behind this very
/// compiler, and Dawn would compile their hundreds of pipelines on one core for minutes.
fn node(workspace: &Workspace) -> Result<Tally> {
    let mut cargo = workspace.cargo();
    cargo.args([
        "test",
        "--target",
        WASM_TARGET,
        "--locked",
        "--no-fail-fast",
        "--package",
        WEB_CRATE,
    ]);
    for test in test_targets(workspace)?
        .into_iter()
        .filter(|test| test.package == WEB_CRATE)
    {
        cargo.args(["--test", &test.name]);
    }
    cargo.args(["--", "--skip", "kernels_agree_with_their_twins"]);
    SoftwareAdapter::Lavapipe.select(&mut cargo)?;
    platform::select_node_runner(workspace, &mut cargo)?;
    counted(&mut cargo)
}

/// Cargo's arguments for the test binaries of crates that have tests for the browser.
///
/// One command for all crates: by itself each would have other features, and its dependencies be built again.
pub(crate) fn browser_selection(targets: &[TestTarget]) -> Result<Vec<String>> {
    let mut packages = BTreeSet::new();
    let mut tests = BTreeSet::new();
    for target in targets.iter().filter(|target| target.is_browser()) {
        packages.insert(target.package.as_str());
        tests.insert(target.name.as_str());
    }
    for package in BROWSER_CRATES {
        if !packages.contains(package) {
            bail!("{package} has no tests for the browser");
        }
    }
    let packages = packages
        .into_iter()
        .flat_map(|package| ["--package", package]);
    let tests = tests.into_iter().flat_map(|test| ["--test", test]);
    Ok(packages.chain(tests).map(str::to_owned).collect())
}

/// The built page, driven by Playwright.
fn page(workspace: &Workspace) -> Result<Tally> {
    let folder = workspace.path("tests/browser");
    let mut files = Vec::new();
    for entry in
        fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?
    {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(".test.mjs") {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        // Node would go looking for tests by itself.
        return Ok(Tally::default());
    }
    let mut node = workspace.node();
    // One at a time: each file drives a browser that computes on all cores.
    node.args(["--test", "--test-reporter=spec", "--test-concurrency=1"])
        .args(files);
    platform::select_chromium(&mut node)?;
    counted(&mut node)
}

fn size(workspace: &Workspace) -> Result<Tally> {
    let over = package::measure(workspace, &Description::read(workspace)?)?;
    let mut tally = Tally::default();
    tally.record(
        "size budget",
        if over.is_empty() {
            Ok(())
        } else {
            Err(anyhow!("{}", over.join("; ")))
        },
    );
    Ok(tally)
}

/// A file in some crate's `tests/`.
#[derive(Debug)]
pub(crate) struct TestTarget {
    package: String,
    name: String,
}

impl TestTarget {
    fn is_gpu(&self) -> bool {
        self.name.starts_with("gpu_")
    }

    fn is_browser(&self) -> bool {
        self.package == WEB_CRATE || self.name == "web"
    }
}

pub(crate) fn test_targets(workspace: &Workspace) -> Result<Vec<TestTarget>> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Package>,
    }
    #[derive(Deserialize)]
    struct Package {
        name: String,
        targets: Vec<Target>,
    }
    #[derive(Deserialize)]
    struct Target {
        name: String,
        kind: Vec<String>,
    }
    let text = output(workspace.cargo().args([
        "metadata",
        "--no-deps",
        "--format-version",
        "1",
        "--locked",
    ]))?;
    let metadata: Metadata = serde_json::from_str(&text).context("cargo metadata")?;
    let tests = metadata.packages.into_iter().flat_map(|package| {
        let targets = package
            .targets
            .into_iter()
            .filter(|target| target.kind.iter().any(|kind| kind == "test"));
        targets
            .map(move |target| TestTarget {
                package: package.name.clone(),
                name: target.name,
            })
            .collect::<Vec<_>>()
    });
    Ok(tests.collect())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anyhow::anyhow;

    use super::{Part, Tally, TestTarget, browser_selection, finish, trouble};

    fn part(outcome: anyhow::Result<Tally>) -> Part {
        Part {
            title: "a part",
            outcome,
            took: Duration::ZERO,
        }
    }

    fn tally(passed: usize, failed: usize) -> anyhow::Result<Tally> {
        Ok(Tally {
            passed,
            failed,
            failures: Vec::new(),
        })
    }

    #[test]
    fn a_part_passes_only_with_tests_that_all_pass() {
        assert_eq!(trouble(&part(tally(3, 0))), None);
        assert_eq!(trouble(&part(tally(3, 1))).as_deref(), Some("failed"));
        assert_eq!(trouble(&part(tally(0, 0))).as_deref(), Some("ran no tests"));
        assert_eq!(
            trouble(&part(Err(anyhow!("no driver")))).as_deref(),
            Some("no driver")
        );
    }

    #[test]
    fn one_bad_part_fails_the_run() {
        assert!(finish(&[part(tally(1, 0)), part(tally(2, 0))]).is_ok());
        assert!(finish(&[part(tally(1, 0)), part(tally(0, 0))]).is_err());
        assert!(finish(&[]).is_err());
    }

    #[test]
    fn a_failed_check_is_named() {
        let mut tally = Tally::default();
        tally.record("formatting", Ok(()));
        tally.record("clippy", Err(anyhow!("a warning")));
        assert_eq!((tally.passed, tally.failed), (1, 1));
        assert_eq!(trouble(&part(Ok(tally))).as_deref(), Some("failed: clippy"));
    }

    fn target(package: &str, name: &str) -> TestTarget {
        TestTarget {
            package: package.into(),
            name: name.into(),
        }
    }

    #[test]
    fn browser_tests_are_run_by_one_command() {
        let targets = [
            target("monarch-weights", "native"),
            target("monarch-weights", "web"),
            target("monarch-web", "edge"),
            target("monarch-web", "kernels"),
        ];
        assert_eq!(
            browser_selection(&targets).unwrap().join(" "),
            "--package monarch-web --package monarch-weights --test edge --test kernels --test web"
        );
    }

    #[test]
    fn a_crate_that_lost_its_browser_tests_is_noticed() {
        let error = browser_selection(&[target("monarch-web", "edge")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "monarch-weights has no tests for the browser"
        );
    }
}
