//! The model.

use rayon::prelude::*;

use crate::maths::{add, dot, matmul, rms_norm, rotate, softmax, swiglu};
use crate::{Operator, OperatorState, OracleError, State, Weights};

const OTHER_SHAPE: &str = "the state belongs to another shape";

/// What a pass should return besides the new state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Positions whose logits are wanted.
    pub logits: Positions,
    /// Whether the last position's residual stream is wanted, layer by layer.
    pub hidden: bool,
}

impl Want {
    /// The logits after the last token.
    pub const LAST: Want = Want {
        logits: Positions::Last,
        hidden: false,
    };
    /// The logits after every token.
    pub const ALL: Want = Want {
        logits: Positions::All,
        hidden: false,
    };
    /// Nothing but the state.
    pub const STATE: Want = Want {
        logits: Positions::None,
        hidden: false,
    };
}

/// Positions of one pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Positions {
    /// No position: the output head is not computed.
    None,
    /// The last one.
    Last,
    /// Every one.
    All,
}

/// What a pass returned.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// f32 `[P, V]`, P the number of wanted positions.
    pub logits: Vec<f32>,
    /// f32 `[layers + 2, D]` of the last position, when wanted: row 0 the embedding, row i the residual stream after
    /// layer i - 1, the last row after the final norm.
    pub hidden: Option<Vec<f32>>,
}

/// Feeds `ids` to the model at the positions that follow `state`, and moves `state` past them.
///
/// Comments give each buffer's shape: T new tokens, S positions so far with the new ones, D hidden (H in a short
/// conv), F feed-forward, V vocabulary, Hq / Hkv heads of Dh, L conv window. On an error the state is unchanged.
///
/// # Panics
///
/// When `state` was made for another shape.
pub fn forward(
    weights: &Weights,
    state: &mut State,
    ids: &[u32],
    want: Want,
) -> Result<Output, OracleError> {
    weights.check_ids(ids)?;
    assert_eq!(state.layers.len(), weights.layers.len(), "{OTHER_SHAPE}");
    let shape = &weights.shape;
    let [hidden, ffn, window] = [shape.hidden, shape.ffn, shape.conv_window].map(|n| n as usize);
    let [heads, kv_heads] = [shape.heads, shape.kv_heads].map(|n| n as usize);
    let head_dim = shape.head_dim as usize;
    let (q_elems, kv_elems) = (heads * head_dim, kv_heads * head_dim);
    let (eps, theta) = (shape.norm_eps, shape.rope_theta);
    let start = state.position;

    // The residual stream.
    let mut x = Vec::with_capacity(ids.len() * hidden); // [T, D]
    for &id in ids {
        x.extend_from_slice(&weights.embed[id as usize * hidden..][..hidden]);
    }
    let last = x.len() - hidden;
    let mut trace = x[last..].to_vec(); // [layers + 2, D] in the end

    for (layer, memory) in weights.layers.iter().zip(&mut state.layers) {
        let normed = rms_norm(&x, &layer.operator_norm, eps); // [T, D]
        let y = match (&layer.operator, memory) {
            (Operator::ShortConv(conv), OperatorState::ShortConv(u)) => {
                let bias = conv.in_proj_bias.as_deref();
                let bcx = matmul(&normed, &conv.in_proj, bias, hidden); // [T, 3H], columns B, C, x

                // To the gated inputs of the L - 1 tokens before this pass come those of this pass.
                for row in bcx.chunks_exact(3 * hidden) {
                    let (b, x) = (&row[..hidden], &row[2 * hidden..]);
                    u.extend(b.iter().zip(x).map(|(b, x)| b * x)); // [L - 1 + T, H] in the end
                }

                let mut gated = Vec::with_capacity(ids.len() * hidden); // [T, H]
                for (t, row) in bcx.chunks_exact(3 * hidden).enumerate() {
                    let c = &row[hidden..2 * hidden];
                    for (h, taps) in conv.taps.chunks_exact(window).enumerate() {
                        let mut sum = conv.bias.as_ref().map_or(0.0, |bias| f64::from(bias[h]));
                        for (step, &tap) in taps.iter().enumerate() {
                            // Row t + L - 1, under the last tap, is the current token.
                            sum += f64::from(tap) * f64::from(u[(t + step) * hidden + h]);
                        }
                        gated.push((f64::from(c[h]) * sum) as f32);
                    }
                }
                u.drain(..ids.len() * hidden); // [L - 1, H] again

                let bias = conv.out_proj_bias.as_deref();
                matmul(&gated, &conv.out_proj, bias, hidden) // [T, D]
            }
            (Operator::Attention(attention), OperatorState::Attention { keys, values }) => {
                let qkv = matmul(&normed, &attention.qkv, None, hidden); // [T, (Hq + 2 Hkv) * Dh]

                let mut queries = Vec::with_capacity(ids.len() * q_elems); // [T, Hq * Dh]
                for (position, row) in (start..).zip(qkv.chunks_exact(q_elems + 2 * kv_elems)) {
                    let (q, kv) = row.split_at(q_elems);
                    let (k, v) = kv.split_at(kv_elems);
                    let mut q = rms_norm(q, &attention.q_norm, eps); // each head by itself
                    let mut k = rms_norm(k, &attention.k_norm, eps);
                    q.chunks_exact_mut(head_dim)
                        .for_each(|head| rotate(head, position, theta));
                    k.chunks_exact_mut(head_dim)
                        .for_each(|head| rotate(head, position, theta));
                    queries.extend(q);
                    keys.extend(k); // [S, Hkv * Dh]
                    values.extend_from_slice(v); // [S, Hkv * Dh]
                }

                let mut attended = vec![0.0; ids.len() * q_elems]; // [T, Hq * Dh]
                let queries = queries.par_chunks(head_dim);
                attended
                    .par_chunks_mut(head_dim)
                    .zip(queries)
                    .enumerate()
                    .for_each(|(i, (y, q))| {
                        let (t, head) = (i / heads, i % heads);
                        let seen = start as usize + t + 1; // causal: this position and those before it
                        let kv_head = head / (heads / kv_heads); // neighbouring query heads share one
                        let of_head = |row| part(row, kv_head, head_dim);

                        let scale = 1.0 / (head_dim as f64).sqrt();
                        let keys = keys.chunks_exact(kv_elems).take(seen).map(of_head);
                        let mut scores: Vec<f64> = keys.map(|k| dot(q, k) * scale).collect(); // [seen]
                        softmax(&mut scores);

                        let mut sum = vec![0.0; head_dim]; // [Dh]
                        for (probability, v) in scores.iter().zip(values.chunks_exact(kv_elems)) {
                            for (sum, &v) in sum.iter_mut().zip(of_head(v)) {
                                *sum += probability * f64::from(v);
                            }
                        }
                        y.iter_mut().zip(sum).for_each(|(y, sum)| *y = sum as f32);
                    });
                matmul(&attended, &attention.out_proj, None, q_elems) // [T, D]
            }
            _ => panic!("{OTHER_SHAPE}"),
        };
        add(&mut x, &y);

        let normed = rms_norm(&x, &layer.ffn_norm, eps); // [T, D]
        let gate_up = matmul(&normed, &layer.gate_up, None, hidden); // [T, 2F]
        let y = matmul(&swiglu(&gate_up, ffn), &layer.down, None, ffn); // [T, D]
        add(&mut x, &y);
        trace.extend_from_slice(&x[last..]);
    }
    state.position += ids.len() as u32;

    let first_wanted = match want.logits {
        Positions::None => x.len(),
        Positions::Last => last,
        Positions::All => 0,
    };
    let normed = rms_norm(&x[first_wanted..], &weights.final_norm, eps); // [P, D]
    let head = weights.head.as_ref().unwrap_or(&weights.embed); // [V, D]
    let logits = matmul(&normed, head, None, hidden); // [P, V]
    trace.extend(rms_norm(&x[last..], &weights.final_norm, eps)); // [layers + 2, D]
    Ok(Output {
        logits,
        hidden: want.hidden.then_some(trace),
    })
}

/// Part `index` of a row that consists of parts of `elems` numbers.
fn part(row: &[f32], index: usize, elems: usize) -> &[f32] {
    &row[index * elems..][..elems]
}
