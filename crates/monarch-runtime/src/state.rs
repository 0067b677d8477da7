//! What the GPU knows about the sequence between passes.

use bytemuck::{Pod, Zeroable};

/// Mirror of the shaders' `State`: 64 bytes, written by the host before a generation, advanced by the GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct State {
    /// Position of the token that the next pass reads.
    pub(crate) position: u32,
    /// Tokens given by the caller; the choice never overwrites one.
    pub(crate) prompt_tokens: u32,
    /// Low half of the seed.
    pub(crate) seed_lo: u32,
    /// High half of the seed.
    pub(crate) seed_hi: u32,
    /// 1 / temperature; 0 chooses the largest logit.
    pub(crate) inv_temperature: f32,
    /// Room that the shaders' struct keeps too.
    pub(crate) spare: [u32; 11],
}

/// How a token is chosen from the logits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Choice {
    /// 0 takes the largest logit; otherwise softmax sampling at this temperature.
    pub temperature: f32,
    /// Seed of the random numbers; the same seed gives the same tokens.
    pub seed: u64,
}

impl State {
    pub(crate) fn start(prompt_tokens: u32, choice: &Choice) -> Self {
        Self {
            position: 0,
            prompt_tokens,
            seed_lo: choice.seed as u32,
            seed_hi: (choice.seed >> 32) as u32,
            inv_temperature: if choice.temperature > 0.0 {
                1.0 / choice.temperature
            } else {
                0.0
            },
            spare: [0; 11],
        }
    }
}

const _: () = assert!(size_of::<State>() == 64);
