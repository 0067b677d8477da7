//! First stage of the choice: the best candidate of each part of the vocabulary.

use crate::dispatch::{self, Limits};
use crate::error::KernelError;

const NAME: &str = "argmax_partial";

/// The id of no candidate.
pub const NO_ID: u32 = u32::MAX;

/// Sizes fixed by the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Vocabulary V.
    pub v: u32,
}

/// Sizes chosen by tuning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Invocations of a workgroup, which takes one part.
    pub workgroup: u32,
    /// Parts that the vocabulary is cut into.
    pub parts: u32,
}

/// Workgroups to dispatch, or why this shape cannot run here.
pub fn workgroups(
    shape: &Shape,
    geometry: &Geometry,
    limits: &Limits,
) -> Result<[u32; 3], KernelError> {
    dispatch::multiple(NAME, "v", shape.v, 1)?;
    dispatch::workgroup(NAME, geometry.workgroup, limits)?;
    dispatch::multiple(NAME, "parts", geometry.parts, 1)?;
    dispatch::workgroup_memory(NAME, geometry.workgroup * 8, limits)?;
    dispatch::one_dimension(NAME, geometry.parts, limits)
}

/// Values of the pipeline's overrides.
pub fn overrides(shape: &Shape, geometry: &Geometry) -> Vec<(&'static str, f64)> {
    vec![
        ("V", shape.v.into()),
        ("PARTS", geometry.parts.into()),
        ("WORKGROUP", geometry.workgroup.into()),
    ]
}

/// How candidates are scored: the part of the conversation's state that a choice reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Seed of the conversation.
    pub seed: u64,
    /// Index of the token that is being chosen: one more than the token that the pass read.
    pub position: u32,
    /// 1 / temperature; 0 is greedy.
    pub inv_temperature: f32,
}

impl Choice {
    /// The score of a candidate: its logit, or a draw whose largest is a sample of the softmax.
    pub fn score(&self, logit: f32, id: u32) -> f64 {
        if self.inv_temperature == 0.0 {
            f64::from(logit)
        } else {
            f64::from(logit) * f64::from(self.inv_temperature)
                + gumbel(self.seed, self.position, id)
        }
    }
}

/// Twin: the largest score and its id in each part. Ties go to the lowest id, NaN never wins.
///
/// `partial` `[parts]`: score and id, [`NO_ID`] for a part without a candidate.
pub fn cpu(choice: &Choice, logits: &[f32], partial: &mut [(f32, u32)]) {
    let ids_a_part = logits.len().div_ceil(partial.len());
    for (part, best) in partial.iter_mut().enumerate() {
        *best = (LOWEST, NO_ID);
        let ids = (part * ids_a_part)..((part + 1) * ids_a_part).min(logits.len());
        let mut largest = f64::from(LOWEST);
        for id in ids {
            let score = choice.score(logits[id], id as u32);
            if score > largest {
                largest = score;
                *best = (score as f32, id as u32);
            }
        }
    }
}

/// Score of no candidate.
const LOWEST: f32 = -3.0e38;

/// The output permutation of PCG (Jarzynski and Olano, 2020).
fn pcg_hash(value: u32) -> u32 {
    let state = value.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
    let word = ((state >> ((state >> 28) + 4)) ^ state).wrapping_mul(277_803_737);
    (word >> 22) ^ word
}

/// Standard Gumbel noise of a candidate.
fn gumbel(seed: u64, position: u32, id: u32) -> f64 {
    let key = pcg_hash(position ^ pcg_hash(seed as u32 ^ pcg_hash((seed >> 32) as u32)));
    let u = (f64::from(pcg_hash(id ^ key) >> 8) + 0.5) / f64::from(1 << 24);
    -(-(-u).ln_1p()).ln()
}
