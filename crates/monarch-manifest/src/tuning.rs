//! How the kernels were tuned: one tuner's result on one GPU, in the field's words.

use std::collections::BTreeMap;

use crate::section::Matrix;
use crate::spec::{BLOCK, Shape};

/// Choices that change speed and never tokens. Defaults to start from, never requirements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// What the tuner called its result.
    pub name: String,
    /// Tokens per pass that the tuner planned for; an engine may raise it for prefill.
    pub tokens_per_pass: u32,
    /// Context length for which split counts are chosen when the plan is built.
    pub plan_context_tokens: u32,
    /// Workgroups of the first stage of the choice; each leaves one (score, id).
    pub choice_partials: u32,

    /// Tuned matrix-vector products; win over [`Self::fallback_geometries`].
    pub matvecs: BTreeMap<Matrix, Matvec>,
    /// Geometry where nothing was tuned, in listing order, one entry per matrix at most.
    pub fallback_geometries: Vec<(Matrix, Geometry)>,
    /// Dequantisation where nothing was tuned.
    pub fallback_dequantise: Dequantise,

    /// True when decode attention is split over positions.
    pub attention_split: bool,
    /// How one split is reduced.
    pub attention_reduction: Reduction,
    /// True when a split keeps a running maximum instead of reading its scores twice.
    pub attention_online_softmax: bool,
    /// Fixed number of splits; `None` means by context length.
    pub attention_splits: Option<u32>,
    /// Number of splits by context length, shortest context first.
    pub attention_splits_by_context: Vec<ContextSplits>,

    /// How the fused MLP reduces its rows.
    pub mlp_reduction: Reduction,
    /// Workgroups that share the F columns of the down projection, at most F / 32.
    pub mlp_slices: u32,
    /// Invocations per workgroup of the fused MLP.
    pub mlp_workgroup: u32,
    /// True when a gate row and its up row are handled together.
    pub mlp_paired_rows: bool,
    /// Which MLP products form their dot products in f16.
    pub mlp_dot_f16: F16Products,
    /// Which MLP products multiply in f16.
    pub mlp_product_f16: F16Products,
    /// Lanes that add up one output when the slices' sums are folded into the residual.
    pub fold_lanes: u32,
    /// How those lanes are reduced.
    pub fold_reduction: Reduction,

    /// How RMSNorm is reduced.
    pub norm_reduction: Reduction,
    /// True when in_proj, gating and convolution are one dispatch.
    pub fuse_conv: bool,
    /// True for the plain plan: one dispatch per operation.
    pub plain_plan: bool,
    /// Extra elements per row of tiles in workgroup memory.
    pub tile_padding_elems: u32,

    /// Device features to request when the adapter has them.
    pub extra_features: Vec<Feature>,
    /// Which adapter to ask for.
    pub power_preference: PowerPreference,
    /// Lanes per subgroup on the tuner's GPU; another size selects another geometry.
    pub expected_subgroup_size: u32,
}

/// Workgroup sizes and rows of one matrix-vector product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Invocations per workgroup, a multiple of [`Self::subgroup_size`].
    pub workgroup: u32,
    /// Lanes per subgroup that the tuner had, a power of two.
    pub subgroup_size: u32,
    /// Output rows that a subgroup handles at a time.
    pub rows_per_subgroup: u32,
    /// Subgroups that share one row's columns; divides the subgroups of a workgroup.
    pub subgroups_per_row: u32,
}

impl Geometry {
    /// What a matrix that no manifest field mentions starts from.
    pub const PLAIN: Self = Self {
        workgroup: 128,
        subgroup_size: 32,
        rows_per_subgroup: 1,
        subgroups_per_row: 1,
    };
}

/// A tuned matrix-vector product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Matvec {
    /// Workgroup sizes and rows.
    pub geometry: Geometry,
    /// How codes become numbers.
    pub dequantise: Dequantise,
}

/// How 4-bit codes become numbers. Both carry the zero point out of the inner product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dequantise {
    /// Codes become floats one by one; the zero point enters once per block, through the sum of
    /// the block's activations, and the scale is applied once per block.
    PerCode,
    /// Two codes at a time by putting them under the exponent of an f16. Needs shader-f16; an
    /// adapter without it uses [`Self::PerCode`].
    PerWord,
}

/// How partial results of one workgroup come together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reduction {
    /// By subgroup operations.
    Subgroup,
    /// Through workgroup memory.
    Workgroup,
}

/// Which of the MLP's two products use f16. Accumulation is f32 always.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum F16Products {
    /// Neither.
    None,
    /// The gate and up projections.
    Gate,
    /// The down projection.
    Down,
    /// All of them.
    Both,
}

/// Splits of decode attention up to a context length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContextSplits {
    /// Longest context that this entry was measured for.
    pub context_tokens: u32,
    /// Workgroups per query head.
    pub splits: u32,
}

/// A WebGPU feature that kernels can make use of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Feature {
    /// `timestamp-query`.
    TimestampQuery,
    /// `shader-f16`.
    ShaderF16,
    /// `subgroups`.
    Subgroups,
}

/// Which adapter to ask the browser for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PowerPreference {
    /// `high-performance`.
    HighPerformance,
    /// `low-power`.
    LowPower,
}

impl Tuning {
    /// Tuning for a manifest that brings none: portable choices that fit this shape.
    ///
    /// Workgroups stay within 256 invocations, which every adapter has, and all products within
    /// f32.
    pub fn default_for(shape: &Shape) -> Self {
        let wide = Geometry {
            rows_per_subgroup: 4,
            ..Geometry::PLAIN
        };
        Self {
            name: "default".to_owned(),
            tokens_per_pass: 1,
            plan_context_tokens: 1024,
            choice_partials: 256.min(shape.vocab),
            matvecs: BTreeMap::new(),
            fallback_geometries: vec![
                (Matrix::ConvInProj, wide),
                (Matrix::ConvOutProj, Geometry::PLAIN),
                (Matrix::AttnQkv, Geometry::PLAIN),
                (Matrix::AttnOProj, Geometry::PLAIN),
                (Matrix::MlpGateUp, Geometry::PLAIN),
                (Matrix::MlpDown, Geometry::PLAIN),
                (Matrix::Head, wide),
            ],
            fallback_dequantise: Dequantise::PerCode,
            attention_split: true,
            attention_reduction: Reduction::Subgroup,
            attention_online_softmax: true,
            attention_splits: Some(16),
            attention_splits_by_context: Vec::new(),
            mlp_reduction: Reduction::Subgroup,
            mlp_slices: even_slices(shape.ffn / BLOCK),
            mlp_workgroup: 256,
            mlp_paired_rows: true,
            mlp_dot_f16: F16Products::None,
            mlp_product_f16: F16Products::None,
            fold_lanes: 16,
            fold_reduction: Reduction::Subgroup,
            norm_reduction: Reduction::Subgroup,
            fuse_conv: true,
            plain_plan: false,
            tile_padding_elems: 0,
            extra_features: vec![
                Feature::TimestampQuery,
                Feature::ShaderF16,
                Feature::Subgroups,
            ],
            power_preference: PowerPreference::HighPerformance,
            expected_subgroup_size: 32,
        }
    }

    /// Geometry and dequantisation of one matrix: tuned, else fallback, else [`Geometry::PLAIN`].
    pub fn matvec(&self, matrix: Matrix) -> Matvec {
        if let Some(&tuned) = self.matvecs.get(&matrix) {
            return tuned;
        }
        let listed = self.fallback_geometries.iter();
        Matvec {
            geometry: listed
                .filter(|(listed, _)| *listed == matrix)
                .map(|&(_, geometry)| geometry)
                .next()
                .unwrap_or(Geometry::PLAIN),
            dequantise: self.fallback_dequantise,
        }
    }

    /// Splits of decode attention for a context length: the fixed number, else the entry of the
    /// shortest listed context that covers it, else that of the longest; 1 without splitting.
    pub fn attention_splits_for(&self, context_tokens: u32) -> u32 {
        if !self.attention_split {
            return 1;
        }
        let listed = &self.attention_splits_by_context;
        let covering = || listed.iter().find(|l| l.context_tokens >= context_tokens);
        self.attention_splits
            .or_else(|| covering().or(listed.last()).map(|entry| entry.splits))
            .unwrap_or(1)
    }
}

/// The largest number of slices up to 40 that divides `blocks` evenly, so that no slice is ragged.
fn even_slices(blocks: u32) -> u32 {
    (1..=40.min(blocks))
        .rev()
        .find(|slices| blocks.is_multiple_of(*slices))
        .unwrap_or(1)
}
