//! What must hold of any model: states, chunks, wanted outputs, refusals.

use std::convert::Infallible;

use monarch_manifest::{LayerKind, Matrix, ScaleType, Shape, Vector};
use monarch_oracle::{
    GreedyStep, Operator, OperatorState, OracleError, Positions, State, Want, WeightSource,
    Weights, forward, greedy,
};
use proptest::prelude::*;

/// A small model whose weights are a formula; sizes on purpose no multiples of anything.
struct Formula {
    shape: Shape,
}

fn shape(conv_window: u32, conv_bias: bool, tied_embedding: bool) -> Shape {
    Shape {
        layers: vec![LayerKind::Conv, LayerKind::Attention, LayerKind::Conv],
        hidden: 18,
        ffn: 26,
        vocab: 37,
        heads: 6,
        kv_heads: 2,
        head_dim: 6,
        conv_window,
        norm_eps: 1e-5,
        rope_theta: 1e4,
        conv_bias,
        tied_embedding,
        scale_type: ScaleType::F32,
    }
}

/// Numbers in [-1, 1) that look random and depend on `seed` (SplitMix64).
fn numbers(seed: u64, elems: usize) -> Vec<f32> {
    let number = |index: u64| {
        let mut z = seed.wrapping_add((index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z >> 40) as f32 / 8_388_608.0 - 1.0
    };
    (0..elems as u64).map(number).collect()
}

fn seed(layer: Option<u32>, role: u64) -> u64 {
    (u64::from(layer.map_or(1000, |layer| layer)) << 40) + (role << 20)
}

impl WeightSource for Formula {
    type Error = Infallible;

    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn matrix_f32(&self, layer: Option<u32>, matrix: Matrix) -> Result<Vec<f32>, Infallible> {
        let (rows, cols) = matrix.rows_cols(&self.shape);
        Ok(numbers(seed(layer, matrix as u64), (rows * cols) as usize))
    }

    fn vector_f32(&self, layer: Option<u32>, vector: Vector) -> Result<Vec<f32>, Infallible> {
        let numbers = numbers(
            seed(layer, 100 + vector as u64),
            vector.elems(&self.shape) as usize,
        );
        Ok(numbers.into_iter().map(|x| 1.0 + x / 8.0).collect())
    }

    fn bias_f32(&self, layer: Option<u32>, matrix: Matrix) -> Result<Option<Vec<f32>>, Infallible> {
        let rows = matrix.rows_cols(&self.shape).0 as usize;
        Ok(self
            .shape
            .conv_bias
            .then(|| numbers(seed(layer, 200 + matrix as u64), rows)))
    }
}

fn model(conv_window: u32) -> Weights {
    Weights::read(&Formula {
        shape: shape(conv_window, true, true),
    })
    .expect("the formula fits its shape")
}

/// Logits of every position and the state, fed in the given chunks.
fn feed<'a>(weights: &Weights, chunks: impl IntoIterator<Item = &'a [u32]>) -> (Vec<f32>, State) {
    let mut state = State::new(&weights.shape);
    let mut logits = Vec::new();
    for chunk in chunks {
        logits.extend(
            forward(weights, &mut state, chunk, Want::ALL)
                .expect("ids of this vocabulary")
                .logits,
        );
    }
    (logits, state)
}

proptest! {
    #[test]
    fn any_cut_of_the_prompt_gives_the_same_bits(
        ids in prop::collection::vec(0u32..37, 1..40),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        conv_window in 1u32..6,
    ) {
        let weights = model(conv_window);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(ids.len())).filter(|&cut| cut > 0).collect();
        cuts.extend([0, ids.len()]);
        cuts.sort_unstable();
        cuts.dedup();
        let chunks = cuts.windows(2).map(|ends| &ids[ends[0]..ends[1]]);
        prop_assert_eq!(feed(&weights, chunks), feed(&weights, [&ids[..]]));
    }
}

#[test]
fn the_state_holds_one_row_per_position_and_a_window_of_gated_inputs() {
    let weights = model(4);
    let (_, state) = feed(&weights, [&[1, 2][..], &[3, 4, 5]]);
    assert_eq!(state.position, 5);
    let OperatorState::Attention { keys, values } = &state.layers[1] else {
        panic!("layer 1 is attention")
    };
    assert_eq!((keys.len(), values.len()), (5 * 12, 5 * 12));

    // The first layer sees embeddings alone, so its window depends on the last three tokens only.
    let (_, same_end) = feed(&weights, [&[9, 9, 9, 9, 3, 4, 5][..]]);
    assert_eq!(state.layers[0], same_end.layers[0]);
    let (_, other_end) = feed(&weights, [&[1, 2, 9, 4, 5][..]]);
    assert_ne!(state.layers[0], other_end.layers[0]);

    // Before the window is full, zeros stand for what was not there.
    let (_, one_token) = feed(&weights, [&[7][..]]);
    let OperatorState::ShortConv(u) = &one_token.layers[0] else {
        panic!("layer 0 is a short conv")
    };
    assert_eq!(u.len(), 3 * 18);
    assert!(u[..2 * 18].iter().all(|&u| u == 0.0));
    assert!(u[2 * 18..].iter().any(|&u| u != 0.0));
}

#[test]
fn later_tokens_do_not_change_earlier_logits() {
    let weights = model(3);
    let (short, _) = feed(&weights, [&[5, 6, 7][..]]);
    let (long, _) = feed(&weights, [&[5, 6, 7, 8, 9][..]]);
    assert_eq!(short, long[..short.len()]);
}

#[test]
fn order_and_position_matter() {
    let weights = model(1); // without a convolution only attention can tell positions apart
    let (logits, _) = feed(&weights, [&[5, 6, 7, 8][..]]);
    let (swapped, _) = feed(&weights, [&[6, 5, 7, 8][..]]);
    assert_ne!(logits[3 * 37..], swapped[3 * 37..]);
}

#[test]
fn only_what_is_wanted_comes_back() {
    let weights = model(3);
    let run = |want| {
        forward(&weights, &mut State::new(&weights.shape), &[1, 2, 3], want)
            .expect("ids of this vocabulary")
    };
    let all = run(Want::ALL);
    assert_eq!(all.logits.len(), 3 * 37);
    assert_eq!(run(Want::LAST).logits, all.logits[2 * 37..]);
    assert!(run(Want::STATE).logits.is_empty());
    assert_eq!(all.hidden, None);

    let hidden = run(Want {
        logits: Positions::None,
        hidden: true,
    })
    .hidden
    .expect("wanted");
    assert_eq!(hidden.len(), (3 + 2) * 18);
    assert_eq!(hidden[..18], weights.embed[3 * 18..4 * 18]);
    let first_logit: f64 = hidden[4 * 18..]
        .iter()
        .zip(&weights.embed)
        .map(|(&x, &w)| f64::from(x) * f64::from(w))
        .sum();
    assert!((first_logit - f64::from(all.logits[2 * 37])).abs() < 1e-5);
}

#[test]
fn a_head_of_its_own_is_used() {
    let tied = model(3);
    let untied = Weights::read(&Formula {
        shape: shape(3, true, false),
    })
    .expect("the formula fits its shape");
    assert_eq!(tied.head, None);
    assert_ne!(feed(&tied, [&[1, 2][..]]).0, feed(&untied, [&[1, 2][..]]).0);
}

#[test]
fn every_bias_is_used() {
    let with = model(3);
    for drop in 0..3 {
        let mut without = with.clone();
        let Operator::ShortConv(conv) = &mut without.layers[0].operator else {
            panic!("layer 0 is a short conv")
        };
        match drop {
            0 => conv.in_proj_bias = None,
            1 => conv.bias = None,
            _ => conv.out_proj_bias = None,
        }
        assert_ne!(
            feed(&with, [&[1, 2][..]]).0,
            feed(&without, [&[1, 2][..]]).0,
            "bias {drop}"
        );
    }
    let plain = Weights::read(&Formula {
        shape: shape(3, false, true),
    })
    .expect("the formula fits its shape");
    let Operator::ShortConv(conv) = &plain.layers[0].operator else {
        panic!("layer 0 is a short conv")
    };
    assert!(conv.in_proj_bias.is_none() && conv.bias.is_none() && conv.out_proj_bias.is_none());
}

#[test]
fn greedy_is_the_largest_logit_fed_back() {
    let weights = model(3);
    let (logits, mut state) = feed(&weights, [&[1, 2, 3][..]]);
    let last = logits[2 * 37..].to_vec();
    let before = state.clone();
    assert_eq!(
        greedy(&weights, &mut state, last.clone(), 0).expect("nothing to do"),
        []
    );
    assert_eq!(state, before);

    let steps = greedy(&weights, &mut state, last.clone(), 4).expect("ids of this vocabulary");
    assert_eq!(state.position, 3 + 3);
    let mut ids = vec![1, 2, 3];
    for GreedyStep { id, margin } in steps {
        let (logits, _) = feed(&weights, [&ids[..]]);
        let mut sorted: Vec<f32> = logits[logits.len() - 37..].to_vec();
        assert_eq!(
            sorted[id as usize],
            sorted.iter().copied().fold(f32::NEG_INFINITY, f32::max)
        );
        sorted.sort_by(f32::total_cmp);
        assert_eq!(margin, sorted[36] - sorted[35]);
        ids.push(id);
    }
}

#[test]
fn refused_ids_leave_the_state_as_it_was() {
    let weights = model(3);
    let (_, mut state) = feed(&weights, [&[1, 2][..]]);
    let before = state.clone();
    let refused =
        forward(&weights, &mut state, &[3, 37, 40], Want::LAST).expect_err("37 is outside");
    assert!(matches!(
        refused,
        OracleError::TokenId {
            index: 1,
            id: 37,
            vocab: 37
        }
    ));
    assert_eq!(
        refused.to_string(),
        "token id 37 at index 1: the vocabulary has ids 0 to 36"
    );
    let refused = forward(&weights, &mut state, &[], Want::LAST).expect_err("no ids");
    assert!(matches!(refused, OracleError::NoTokens));
    assert_eq!(state, before);
}

#[test]
#[should_panic(expected = "another shape")]
fn a_state_of_another_model_is_a_bug_of_the_caller() {
    let weights = model(3);
    let mut other = shape(3, true, true);
    other.layers.pop();
    let _ = forward(&weights, &mut State::new(&other), &[1], Want::LAST);
}

#[derive(Debug, thiserror::Error)]
#[error("the disk is gone")]
struct Gone;

/// The formula, wrong in one place.
struct Broken {
    formula: Formula,
    fault: Fault,
}

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    ShortMatrix,
    ShortVector,
    NoBias,
    Unreadable,
}

impl WeightSource for Broken {
    type Error = Gone;

    fn shape(&self) -> &Shape {
        &self.formula.shape
    }

    fn matrix_f32(&self, layer: Option<u32>, matrix: Matrix) -> Result<Vec<f32>, Gone> {
        let Ok(mut weights) = self.formula.matrix_f32(layer, matrix);
        if (layer, matrix) == (Some(1), Matrix::AttnQkv) {
            match self.fault {
                Fault::ShortMatrix => drop(weights.pop()),
                Fault::Unreadable => return Err(Gone),
                Fault::ShortVector | Fault::NoBias => {}
            }
        }
        Ok(weights)
    }

    fn vector_f32(&self, layer: Option<u32>, vector: Vector) -> Result<Vec<f32>, Gone> {
        let Ok(mut weights) = self.formula.vector_f32(layer, vector);
        if vector == Vector::FinalNorm && self.fault == Fault::ShortVector {
            weights.pop();
        }
        Ok(weights)
    }

    fn bias_f32(&self, layer: Option<u32>, matrix: Matrix) -> Result<Option<Vec<f32>>, Gone> {
        let Ok(bias) = self.formula.bias_f32(layer, matrix);
        Ok(bias.filter(|_| !(layer == Some(2) && self.fault == Fault::NoBias)))
    }
}

#[test]
fn unusable_weights_are_named() {
    let message = |fault| {
        let source = Broken {
            formula: Formula {
                shape: shape(3, true, true),
            },
            fault,
        };
        Weights::read(&source)
            .expect_err("a broken source")
            .to_string()
    };
    assert_eq!(
        message(Fault::ShortMatrix),
        "L1 AttnQkv: the source gave 1079 elements, the shape needs 1080"
    );
    assert_eq!(
        message(Fault::ShortVector),
        "FinalNorm: the source gave 17 elements, the shape needs 18"
    );
    assert_eq!(
        message(Fault::NoBias),
        "L2 ConvInProj bias: the shape has conv biases, the source has none here"
    );
    assert_eq!(message(Fault::Unreadable), "L1 AttnQkv: cannot be read");
}

#[test]
fn heads_that_cannot_share_are_refused() {
    let mut uneven = shape(3, false, true);
    uneven.kv_heads = 4;
    let refused = Weights::read(&Formula { shape: uneven }).expect_err("six heads, four key heads");
    assert!(matches!(
        refused,
        OracleError::Heads {
            heads: 6,
            kv_heads: 4
        }
    ));
}
