//! Second stage of the choice: the chosen token joins the sequence.

use crate::argmax_partial::NO_ID;
use crate::dispatch::{self, Limits};
use crate::error::KernelError;

const NAME: &str = "argmax_final";

/// Sizes chosen by tuning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Invocations of the one workgroup.
    pub workgroup: u32,
    /// Parts of the first stage.
    pub parts: u32,
}

/// Workgroups to dispatch, or why this geometry cannot run here.
pub fn workgroups(geometry: &Geometry, limits: &Limits) -> Result<[u32; 3], KernelError> {
    dispatch::workgroup(NAME, geometry.workgroup, limits)?;
    dispatch::multiple(NAME, "parts", geometry.parts, 1)?;
    dispatch::workgroup_memory(NAME, geometry.workgroup * 8, limits)?;
    Ok([1, 1, 1])
}

/// Values of the pipeline's overrides.
pub fn overrides(geometry: &Geometry) -> Vec<(&'static str, f64)> {
    vec![
        ("PARTS", geometry.parts.into()),
        ("WORKGROUP", geometry.workgroup.into()),
    ]
}

/// Twin: the best of all parts goes to `tokens[position + 1]`, unless a prompt token is there or
/// the context ends; `position` moves up by one.
pub fn cpu(partial: &[(f32, u32)], prompt_tokens: u32, position: &mut u32, tokens: &mut [u32]) {
    let candidates = partial.iter().filter(|(_, id)| *id != NO_ID);
    let best = candidates.reduce(|best, other| {
        let is_better = other.0 > best.0 || (other.0 == best.0 && other.1 < best.1);
        if is_better { other } else { best }
    });
    *position += 1;
    if *position >= prompt_tokens
        && let Some(token) = tokens.get_mut(*position as usize)
    {
        *token = best.map_or(0, |(_, id)| *id);
    }
}
