//! `cargo xtask check`: what can be judged without running the product.

use anyhow::{Result, anyhow, bail};
use serde_json::Value;

use crate::package;
use crate::process::{output, run};
use crate::rules;
use crate::setup::{self, Needs};
use crate::suite::{self, Tally};
use crate::workspace::Workspace;

/// Folders with a TypeScript project.
const TYPESCRIPT: &[&str] = &["crates/monarch-web", "www", "tests/types"];

pub(crate) fn run_all(workspace: &Workspace) -> Result<()> {
    setup::install(workspace, Needs::BUILD)?;
    package::web(workspace)?;
    suite::finish(&[
        suite::part("lints and rules", || lints(workspace)),
        suite::part("TypeScript", || types(workspace)),
    ])
}

/// The rules of ARCHITECTURE.md.
pub(crate) fn rules_alone(workspace: &Workspace) -> Result<()> {
    suite::finish(&[suite::part("rules", || {
        let mut tally = Tally::default();
        record_rules(workspace, &mut tally)?;
        Ok(tally)
    })])
}

fn record_rules(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    for verdict in rules::judge(workspace)? {
        let broken_by = verdict.broken_by.join("\n  ");
        tally.record(
            &verdict.rule,
            if broken_by.is_empty() {
                Ok(())
            } else {
                Err(anyhow!("\n  {broken_by}"))
            },
        );
    }
    Ok(())
}

/// Formatting, clippy, and the rules of ARCHITECTURE.md.
pub(crate) fn lints(workspace: &Workspace) -> Result<Tally> {
    let mut tally = Tally::default();
    tally.record(
        "formatting",
        run(workspace.cargo().args(["fmt", "--all", "--check"])),
    );
    record_rules(workspace, &mut tally)?;
    tally.record("clippy, native", {
        let mut cargo = workspace.cargo();
        run(cargo.arg("clippy").args(suite::NATIVE).args([
            "--all-targets",
            "--locked",
            "--",
            "--deny",
            "warnings",
        ]))
    });
    tally.record("clippy, browser", clippy_browser(workspace));
    Ok(tally)
}

/// The crates with tests for the browser, and those tests. Their other tests are native.
fn clippy_browser(workspace: &Workspace) -> Result<()> {
    let mut cargo = workspace.cargo();
    cargo.args([
        "clippy",
        "--target",
        suite::WASM_TARGET,
        "--locked",
        "--lib",
    ]);
    cargo.args(suite::browser_selection(&suite::test_targets(workspace)?)?);
    run(cargo.args(["--", "--deny", "warnings"]))
}

/// Every TypeScript project compiles, strictly. Needs the built package: it holds the types of the module.
pub(crate) fn types(workspace: &Workspace) -> Result<Tally> {
    let mut tally = Tally::default();
    for folder in TYPESCRIPT {
        tally.record(folder, typescript(workspace, folder));
    }
    Ok(tally)
}

fn typescript(workspace: &Workspace, folder: &str) -> Result<()> {
    let config = output(
        workspace
            .command("tsc")
            .args(["--showConfig", "--project", folder]),
    )?;
    if !is_strict(&serde_json::from_str(&config)?) {
        bail!("{folder}/tsconfig.json does not say \"strict\": true");
    }
    run(workspace
        .command("tsc")
        .args(["--noEmit", "--project", folder]))
}

fn is_strict(config: &Value) -> bool {
    config["compilerOptions"]["strict"] == true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::is_strict;

    #[test]
    fn a_project_that_is_not_strict_is_refused() {
        assert!(is_strict(&json!({ "compilerOptions": { "strict": true } })));
        assert!(!is_strict(
            &json!({ "compilerOptions": { "strict": false } })
        ));
        assert!(!is_strict(&json!({ "compilerOptions": {} })));
    }
}
