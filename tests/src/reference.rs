//! A second LFM2, to check the first and to be broken on purpose.
//!
//! [`logits`] shares no arithmetic with `monarch-oracle`: all of it is f64, positions are computed from the start at
//! every call, and rotation is written as a complex product. A [`Mutation`] turns one published misreading of the
//! architecture into a model that still produces fluent numbers; the golden check has to refuse every one of them.

use monarch_oracle::{Attention, Operator, ShortConv, Weights};

/// One deviation from the architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Gates of the short conv taken in the order C, B, x.
    SwapBAndC,
    /// SiLU after the convolution, as other gated convolutions have.
    SiluInConv,
    /// First tap for the current token.
    ReverseTaps,
    /// Rotary pairs of neighbouring elements instead of half-split ones.
    InterleavedRotary,
    /// Keys and queries rotated the other way in relation to each other.
    RotateKeysBackwards,
    /// No RMSNorm on the query heads.
    SkipQueryNorm,
    /// No RMSNorm on the key heads.
    SkipKeyNorm,
    /// RMSNorm of queries and keys after the rotation.
    NormAfterRotary,
    /// Head h reads key head h % Hkv instead of h / (Hq / Hkv).
    InterleavedKeyHeads,
    /// Up rows before gate rows.
    SwapGateAndUp,
    /// The final norm on the embedding, as its name in the checkpoint suggests, and none after the last layer.
    NormOnEmbedding,
}

impl Mutation {
    /// Every mutation.
    pub const ALL: [Mutation; 11] = [
        Mutation::SwapBAndC,
        Mutation::SiluInConv,
        Mutation::ReverseTaps,
        Mutation::InterleavedRotary,
        Mutation::RotateKeysBackwards,
        Mutation::SkipQueryNorm,
        Mutation::SkipKeyNorm,
        Mutation::NormAfterRotary,
        Mutation::InterleavedKeyHeads,
        Mutation::SwapGateAndUp,
        Mutation::NormOnEmbedding,
    ];
}

/// Logits after the last of `ids`, f32 `[V]`.
pub fn logits(weights: &Weights, ids: &[u32], mutation: Option<Mutation>) -> Vec<f32> {
    let model = Model { weights, mutation };
    let hidden = weights.shape.hidden as usize;
    let embedding = |&id: &u32| widen(&weights.embed[id as usize * hidden..][..hidden]);
    let mut x: Vec<Vec<f64>> = ids.iter().map(embedding).collect();
    if model.has(Mutation::NormOnEmbedding) {
        x = x
            .iter()
            .map(|row| model.norm(row, &weights.final_norm))
            .collect();
    }
    for layer in &weights.layers {
        let normed: Vec<_> = x
            .iter()
            .map(|row| model.norm(row, &layer.operator_norm))
            .collect();
        let y = match &layer.operator {
            Operator::ShortConv(conv) => model.short_conv(conv, &normed),
            Operator::Attention(attention) => model.attention(attention, &normed),
        };
        for (x, y) in x.iter_mut().zip(&y) {
            add(x, y);
            let gate_up = product(&layer.gate_up, None, &model.norm(x, &layer.ffn_norm));
            let (mut gate, mut up) = gate_up.split_at(gate_up.len() / 2);
            if model.has(Mutation::SwapGateAndUp) {
                (gate, up) = (up, gate);
            }
            let inner: Vec<f64> = gate
                .iter()
                .zip(up)
                .map(|(gate, up)| silu(*gate) * up)
                .collect();
            add(x, &product(&layer.down, None, &inner));
        }
    }
    let mut last = x.pop().expect("at least one token");
    if !model.has(Mutation::NormOnEmbedding) {
        last = model.norm(&last, &weights.final_norm);
    }
    let head = weights.head.as_ref().unwrap_or(&weights.embed);
    product(head, None, &last)
        .into_iter()
        .map(|logit| logit as f32)
        .collect()
}

struct Model<'a> {
    weights: &'a Weights,
    mutation: Option<Mutation>,
}

impl Model<'_> {
    fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    fn norm(&self, x: &[f64], weight: &[f32]) -> Vec<f64> {
        let mean_square = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        let root = (mean_square + f64::from(self.weights.shape.norm_eps)).sqrt();
        x.iter()
            .zip(weight)
            .map(|(x, &w)| x / root * f64::from(w))
            .collect()
    }

    /// `[T, H]` to `[T, H]`.
    fn short_conv(&self, conv: &ShortConv, x: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let (channels, window) = (
            self.weights.shape.hidden as usize,
            self.weights.shape.conv_window as usize,
        );
        let bcx: Vec<_> = x
            .iter()
            .map(|x| product(&conv.in_proj, conv.in_proj_bias.as_deref(), x))
            .collect();
        let (b, c) = if self.has(Mutation::SwapBAndC) {
            (channels, 0)
        } else {
            (0, channels)
        };
        let gated = |t: usize| -> Vec<f64> {
            let channel = |h: usize| {
                let mut sum = conv.bias.as_ref().map_or(0.0, |bias| f64::from(bias[h]));
                for back in 0..window.min(t + 1) {
                    let tap = if self.has(Mutation::ReverseTaps) {
                        back
                    } else {
                        window - 1 - back
                    };
                    let past = &bcx[t - back];
                    sum += f64::from(conv.taps[h * window + tap])
                        * past[b + h]
                        * past[2 * channels + h];
                }
                if self.has(Mutation::SiluInConv) {
                    sum = silu(sum);
                }
                bcx[t][c + h] * sum
            };
            (0..channels).map(channel).collect()
        };
        (0..x.len())
            .map(|t| product(&conv.out_proj, conv.out_proj_bias.as_deref(), &gated(t)))
            .collect()
    }

    /// `[T, D]` to `[T, D]`.
    fn attention(&self, attention: &Attention, x: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let shape = &self.weights.shape;
        let [heads, kv_heads, dim] =
            [shape.heads, shape.kv_heads, shape.head_dim].map(|n| n as usize);
        let rows: Vec<_> = x.iter().map(|x| product(&attention.qkv, None, x)).collect(); // q, k, v
        let head = |row: &[f64], index: usize| row[index * dim..][..dim].to_vec();
        let query = |t: usize, h: usize| {
            let skip = self.has(Mutation::SkipQueryNorm);
            self.position_head(head(&rows[t], h), &attention.q_norm, skip, t as f64)
        };
        let backwards = if self.has(Mutation::RotateKeysBackwards) {
            -1.0
        } else {
            1.0
        };
        let key = |t: usize, h: usize| {
            let skip = self.has(Mutation::SkipKeyNorm);
            self.position_head(
                head(&rows[t], heads + h),
                &attention.k_norm,
                skip,
                backwards * t as f64,
            )
        };
        let keys: Vec<Vec<_>> = (0..x.len())
            .map(|t| (0..kv_heads).map(|h| key(t, h)).collect())
            .collect();

        let attend = |t: usize| -> Vec<f64> {
            let mut attended = Vec::with_capacity(heads * dim);
            for h in 0..heads {
                let shared = if self.has(Mutation::InterleavedKeyHeads) {
                    h % kv_heads
                } else {
                    h * kv_heads / heads
                };
                let q = query(t, h);
                let weights: Vec<f64> = keys[..=t]
                    .iter()
                    .map(|k| {
                        (q.iter().zip(&k[shared]).map(|(q, k)| q * k).sum::<f64>()
                            / (dim as f64).sqrt())
                        .exp()
                    })
                    .collect();
                let total: f64 = weights.iter().sum();
                let value = |t: usize, i: usize| rows[t][(heads + kv_heads + shared) * dim + i];
                attended.extend((0..dim).map(|i| {
                    weights
                        .iter()
                        .enumerate()
                        .map(|(t, w)| w / total * value(t, i))
                        .sum::<f64>()
                }));
            }
            attended
        };
        (0..x.len())
            .map(|t| product(&attention.out_proj, None, &attend(t)))
            .collect()
    }

    /// A query or key head, normalised and rotated.
    fn position_head(
        &self,
        mut head: Vec<f64>,
        norm: &[f32],
        skip_norm: bool,
        position: f64,
    ) -> Vec<f64> {
        let norm_last = self.has(Mutation::NormAfterRotary);
        if !skip_norm && !norm_last {
            head = self.norm(&head, norm);
        }
        let half = head.len() / 2;
        for i in 0..half {
            let pair = if self.has(Mutation::InterleavedRotary) {
                [2 * i, 2 * i + 1]
            } else {
                [i, i + half]
            };
            let turn =
                position * f64::from(self.weights.shape.rope_theta).powf(-(i as f64) / half as f64);
            let [re, im] = pair.map(|i| head[i]);
            head[pair[0]] = re * turn.cos() - im * turn.sin();
            head[pair[1]] = re * turn.sin() + im * turn.cos();
        }
        if norm_last {
            self.norm(&head, norm)
        } else {
            head
        }
    }
}

fn widen(row: &[f32]) -> Vec<f64> {
    row.iter().map(|&x| f64::from(x)).collect()
}

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

fn add(x: &mut [f64], y: &[f64]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x += y;
    }
}

/// `W x + bias`.
fn product(w: &[f32], bias: Option<&[f32]>, x: &[f64]) -> Vec<f64> {
    let row = |(n, w): (usize, &[f32])| {
        let bias = bias.map_or(0.0, |bias| f64::from(bias[n]));
        w.iter().zip(x).map(|(&w, x)| f64::from(w) * x).sum::<f64>() + bias
    };
    w.chunks_exact(x.len()).enumerate().map(row).collect()
}
