//! The greedy continuation that a packed model is known by, from the plain CPU forward pass.

use std::path::Path;

use anyhow::{Context as _, ensure};
use monarch_manifest::SelfTest;
use monarch_oracle::{State, Want, Weights, forward, greedy};
use monarch_pack::{Packed, record_self_test};

use crate::output;

/// Computes the continuation of `prompt_ids` and writes both into the manifest of `folder`.
pub(crate) fn record(folder: &Path, prompt_ids: Vec<u32>, tokens: usize) -> anyhow::Result<()> {
    let packed = Packed::open(folder)?;
    let context = packed.spec().context_tokens as usize;
    ensure!(
        tokens > 0,
        "a self-test needs a continuation of at least one token"
    );
    ensure!(
        prompt_ids.len().saturating_add(tokens) <= context,
        "a self-test of {} + {tokens} tokens does not fit into a context of {context}",
        prompt_ids.len()
    );
    let continuation_ids = continuation(&packed, &prompt_ids, tokens)?;
    output::message(format!(
        "self-test: {prompt_ids:?} continues with {continuation_ids:?}"
    ));
    record_self_test(
        folder,
        SelfTest {
            prompt_ids,
            continuation_ids,
        },
    )?;
    Ok(())
}

/// The `tokens` ids that follow `prompt_ids` greedily.
pub(crate) fn continuation(
    packed: &Packed,
    prompt_ids: &[u32],
    tokens: usize,
) -> anyhow::Result<Vec<u32>> {
    let weights = Weights::read(packed)?;
    let mut state = State::new(&weights.shape);
    let output = forward(&weights, &mut state, prompt_ids, Want::LAST)
        .context("the self-test's prompt cannot be run")?;
    let steps = greedy(&weights, &mut state, output.logits, tokens)?;
    Ok(steps.iter().map(|step| step.id).collect())
}
