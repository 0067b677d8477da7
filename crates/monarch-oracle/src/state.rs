//! What one pass leaves for the next.

use monarch_manifest::{LayerKind, Shape};

/// Everything the model remembers of the tokens it has seen.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// Tokens seen so far: the position of the next one.
    pub position: u32,
    /// One entry per layer.
    pub layers: Vec<OperatorState>,
}

/// What the operator half of one layer remembers.
#[derive(Clone, Debug, PartialEq)]
pub enum OperatorState {
    /// The last L - 1 gated inputs `u = B * x`, oldest first, f32 `[L-1, H]`; zeros before the first token.
    ///
    /// A rolling window: unlike keys and values it cannot be cut back to an earlier position without a copy.
    ShortConv(Vec<f32>),
    /// Normalised and rotated keys, and values, in position order.
    Attention {
        /// f32 `[S, Hkv * Dh]`
        keys: Vec<f32>,
        /// f32 `[S, Hkv * Dh]`
        values: Vec<f32>,
    },
}

impl State {
    /// The state before the first token.
    pub fn new(shape: &Shape) -> State {
        let window_elems = (shape.conv_window as usize - 1) * shape.hidden as usize;
        let layers = shape
            .layers
            .iter()
            .map(|kind| match kind {
                LayerKind::Conv => OperatorState::ShortConv(vec![0.0; window_elems]),
                LayerKind::Attention => OperatorState::Attention {
                    keys: Vec::new(),
                    values: Vec::new(),
                },
            })
            .collect();
        State {
            position: 0,
            layers,
        }
    }
}
