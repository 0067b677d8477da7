//! The words of the file and what they mean; read in both directions.

use crate::section::Matrix;
use crate::spec::{Format, LayerKind, ScaleType};
use crate::tuning::{Dequantise, F16Products, Feature, PowerPreference, Reduction};

/// A value that the file writes as a word.
pub(crate) trait Word: Copy + PartialEq + 'static {
    /// Every accepted word; of two words for one value, the first is written.
    const WORDS: &'static [(&'static str, Self)];

    fn parse(word: &str) -> Option<Self> {
        let entry = Self::WORDS.iter().find(|(listed, _)| *listed == word)?;
        Some(entry.1)
    }

    /// # Panics
    ///
    /// When the value has no word: only [`Matrix::Embed`], which is no matrix-vector product and
    /// is refused by validation.
    fn word(self) -> &'static str {
        let entry = Self::WORDS.iter().find(|(_, listed)| *listed == self);
        entry.expect("every value has a word").0
    }

    fn vocabulary() -> String {
        let words: Vec<&str> = Self::WORDS.iter().map(|(word, _)| *word).collect();
        words.join(", ")
    }
}

impl Word for Format {
    const WORDS: &'static [(&'static str, Self)] = &[("monarch-webgpu/1", Self::V1)];
}

impl Word for LayerKind {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("conv", Self::Conv),
        ("attention", Self::Attention),
        ("full_attention", Self::Attention),
    ];
}

impl Word for ScaleType {
    const WORDS: &'static [(&'static str, Self)] = &[("f32", Self::F32), ("f16", Self::F16)];
}

/// The matrix-vector products; the embedding is a row look-up and has no geometry.
impl Word for Matrix {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("conv_in_proj", Self::ConvInProj),
        ("conv_out_proj", Self::ConvOutProj),
        ("attn_qkv", Self::AttnQkv),
        ("attn_o_proj", Self::AttnOProj),
        ("mlp_gate_up", Self::MlpGateUp),
        ("mlp_down", Self::MlpDown),
        ("head", Self::Head),
    ];
}

impl Word for Dequantise {
    const WORDS: &'static [(&'static str, Self)] =
        &[("carried", Self::PerCode), ("v3_both", Self::PerWord)];
}

impl Word for Reduction {
    const WORDS: &'static [(&'static str, Self)] =
        &[("subgroup", Self::Subgroup), ("workgroup", Self::Workgroup)];
}

impl Word for F16Products {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("none", Self::None),
        ("gate", Self::Gate),
        ("down", Self::Down),
        ("both", Self::Both),
    ];
}

impl Word for Feature {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("timestamp-query", Self::TimestampQuery),
        ("shader-f16", Self::ShaderF16),
        ("subgroups", Self::Subgroups),
    ];
}

impl Word for PowerPreference {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("high-performance", Self::HighPerformance),
        ("low-power", Self::LowPower),
    ];
}
