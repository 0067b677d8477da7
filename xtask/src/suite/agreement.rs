//! The small model says the same everywhere: on the oracle, on both software adapters, and through the built package
//! in Chromium.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{NATIVE, Tally};
use crate::headless;
use crate::platform::SoftwareAdapter;
use crate::process::{output, run};
use crate::workspace::Workspace;

const MODEL: &str = "models/tiny-lfm2";
const PROMPT: &str = "Once upon a time";
const MAX_TOKENS: u32 = 64;

pub(super) fn run_all(workspace: &Workspace) -> Result<Tally> {
    // With the tests, as the native parts build it: without them cargo unites other features, and builds everything again.
    run(workspace
        .cargo()
        .arg("build")
        .args(NATIVE)
        .args(["--locked", "--bins", "--tests"]))?;
    let expected = native(workspace, None).context("the oracle gave no tokens")?;
    let mut tally = Tally::default();
    for adapter in [SoftwareAdapter::Lavapipe, SoftwareAdapter::Swiftshader] {
        let got = native(workspace, Some(adapter));
        tally.record(
            &format!("native GPU, {}", adapter.name()),
            got.and_then(|got| compare(&expected, &got)),
        );
    }
    let options = json!({ "maxTokens": MAX_TOKENS, "temperature": 0 });
    let answer = headless::generate(workspace, &workspace.path(MODEL), &json!(PROMPT), &options);
    tally.record(
        "package in Chromium",
        answer.and_then(|answer| compare(&expected, &ids(&answer)?)),
    );
    Ok(tally)
}

/// The ids that `monarch generate` gives, on the CPU or on an adapter.
fn native(workspace: &Workspace, adapter: Option<SoftwareAdapter>) -> Result<Vec<u32>> {
    let mut monarch = workspace.command(
        &target_dir(workspace)?
            .join("debug/monarch")
            .to_string_lossy(),
    );
    monarch.args([
        "generate",
        MODEL,
        "--prompt",
        PROMPT,
        "--temperature",
        "0",
        "--json",
    ]);
    monarch.args([
        "--max-tokens",
        &MAX_TOKENS.to_string(),
        "--device",
        if adapter.is_some() { "gpu" } else { "cpu" },
    ]);
    if let Some(adapter) = adapter {
        adapter.select(&mut monarch)?;
    }
    let text = output(&mut monarch)?;
    ids(&serde_json::from_str(&text)
        .with_context(|| format!("`monarch generate --json` printed {text:?}"))?)
}

fn ids(answer: &Value) -> Result<Vec<u32>> {
    Vec::deserialize(&answer["ids"]).context("the answer has no list of ids")
}

fn compare(expected: &[u32], got: &[u32]) -> Result<()> {
    if expected.is_empty() {
        bail!("no tokens to compare");
    }
    if let Some(at) = expected
        .iter()
        .zip(got)
        .position(|(expected, got)| expected != got)
    {
        bail!(
            "token {at} is {}, the oracle says {}",
            got[at],
            expected[at]
        );
    }
    if expected.len() != got.len() {
        bail!("{} tokens, the oracle gives {}", got.len(), expected.len());
    }
    Ok(())
}

fn target_dir(workspace: &Workspace) -> Result<PathBuf> {
    let text = output(workspace.cargo().args([
        "metadata",
        "--no-deps",
        "--format-version",
        "1",
        "--locked",
    ]))?;
    let metadata: Value = serde_json::from_str(&text).context("cargo metadata")?;
    Ok(PathBuf::from(
        metadata["target_directory"]
            .as_str()
            .context("cargo metadata names no target directory")?,
    ))
}

#[cfg(test)]
mod tests {
    use super::compare;

    #[test]
    fn another_token_is_found() {
        assert!(compare(&[1, 2, 3], &[1, 2, 3]).is_ok());
        let error = compare(&[1, 2, 3], &[1, 9, 3]).unwrap_err();
        assert_eq!(error.to_string(), "token 1 is 9, the oracle says 2");
    }

    #[test]
    fn a_shorter_and_a_longer_answer_are_found() {
        assert!(compare(&[1, 2], &[1]).is_err());
        assert!(compare(&[1, 2], &[1, 2, 3]).is_err());
    }

    #[test]
    fn two_empty_answers_do_not_agree() {
        assert!(compare(&[], &[]).is_err());
    }
}
