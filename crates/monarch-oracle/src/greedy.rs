//! The continuation with the largest logit at every step.

use monarch_sample::{Policy, choose};

use crate::{OracleError, State, Want, Weights, forward};

/// One greedy choice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GreedyStep {
    /// The chosen token.
    pub id: u32,
    /// Its logit minus the second largest: how large a change of the logits it takes to choose otherwise. Infinite in
    /// a vocabulary of one.
    pub margin: f32,
}

/// The next `count` tokens after those in `state`; no token ends it early.
///
/// `logits` (f32 `[V]`) are those after the last token fed. The last chosen token is not fed, so `state` ends
/// `count - 1` positions further (unchanged for a count of 0 or 1).
pub fn greedy(
    weights: &Weights,
    state: &mut State,
    mut logits: Vec<f32>,
    count: usize,
) -> Result<Vec<GreedyStep>, OracleError> {
    let mut steps = Vec::with_capacity(count);
    while steps.len() < count {
        if let Some(&GreedyStep { id, .. }) = steps.last() {
            logits = forward(weights, state, &[id], Want::LAST)?.logits;
        }
        steps.push(largest(&logits, state.position));
    }
    Ok(steps)
}

fn largest(logits: &[f32], position: u32) -> GreedyStep {
    let id = choose(logits, &Policy::GREEDY, position);
    let others = (0u32..).zip(logits).filter(|&(other, _)| other != id);
    let second = others
        .map(|(_, &logit)| logit)
        .fold(f32::NEG_INFINITY, f32::max);
    GreedyStep {
        id,
        margin: logits[id as usize] - second,
    }
}
