//! The buffers of a plan, by what they hold.

use std::collections::BTreeMap;

use monarch_manifest::{Matrix, Piece};

/// Decoder layer, or none for what exists once per model.
pub type Layer = Option<u32>;

/// Names one GPU buffer of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BufferId {
    /// Bound where a kernel's optional input is switched off: 16 zero bytes.
    Nothing,
    /// Rows of a 4-bit matrix, cut into chunks that fit a binding.
    Matrix {
        /// Layer it belongs to.
        layer: Layer,
        /// Which matrix.
        matrix: Matrix,
        /// Which piece of its data.
        piece: Piece,
        /// Row chunk, from 0.
        chunk: u32,
    },
    /// A small f32 vector, or several that one kernel reads side by side.
    Vector {
        /// Layer it belongs to.
        layer: Layer,
        /// Which vector.
        vector: VectorId,
    },
    /// Rotary table, f32 `[positions, Dh]`: cosines, then sines.
    Rope,
    /// Key rows of an attention layer, f32 `[S, Hkv * Dh]`.
    Keys(u32),
    /// Value rows of an attention layer, f32 `[S, Hkv * Dh]`.
    Values(u32),
    /// Last gated inputs of a conv layer, f32 `[L - 1, D]`.
    ConvState(u32),
    /// Position, prompt length, sampling: [`crate::state::State`].
    State,
    /// The sequence, u32 `[context]`.
    Tokens,
    /// Values that live for part of one pass.
    Activation(Activation),
}

/// Small f32 vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum VectorId {
    /// Norm in front of the operator, `[D]`.
    OperatorNorm,
    /// Norm in front of the MLP, `[D]`.
    MlpNorm,
    /// Norm in front of the head, `[D]`.
    FinalNorm,
    /// Query norm, then key norm, `[2 * Dh]`.
    QkNorm,
    /// Taps of the short convolution, `[D, L]`.
    ConvTaps,
    /// Bias of the short convolution, `[D]`.
    ConvBias,
    /// Bias of the in-projection, then of the short convolution, `[3 D + D]`.
    ConvInProjBiases,
}

/// Values passed from one dispatch to the next. `T = 1` in decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Activation {
    /// Residual stream, `[D]`.
    Residual,
    /// Normalised residual, `[D]`.
    Normed,
    /// B, C and x of the short convolution, `[3 D]`.
    Gates,
    /// Output of the short convolution or of attention, before the out-projection.
    Mixed,
    /// Queries, keys, values, `[(Hq + 2 Hkv) * Dh]`.
    Qkv,
    /// Normalised, rotated queries, `[Hq * Dh]`.
    Query,
    /// Attention splits, `[Hq, splits, Dh + 2]`.
    AttentionPartial,
    /// Gate and up rows, `[2 F]`.
    GateUp,
    /// SwiGLU output, `[F]`.
    Hidden,
    /// MLP slices, `[slices, D]`.
    MlpPartial,
    /// `[V]`.
    Logits,
    /// First stage of the choice, `[parts]` pairs of score and id.
    ChoicePartial,
}

/// Sizes of every buffer of a plan, bytes. Ordered, so that memory figures and tests are stable.
pub type BufferSizes = BTreeMap<BufferId, u64>;
