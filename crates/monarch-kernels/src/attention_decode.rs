//! Attention of one token over the cache, split over positions.

use crate::dispatch::{self, Limits};
use crate::error::KernelError;

const NAME: &str = "attention_decode";

/// Sizes fixed by the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Query heads Hq.
    pub heads: u32,
    /// Key and value heads Hkv.
    pub kv_heads: u32,
    /// Head size Dh.
    pub head_dim: u32,
}

/// Sizes chosen by tuning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Invocations of a workgroup, which takes one split of one head.
    pub workgroup: u32,
    /// Parts that the positions are cut into.
    pub splits: u32,
}

impl Geometry {
    /// Refuses what the shader cannot run, in the name of `kernel`.
    pub(crate) fn check(
        &self,
        kernel: &'static str,
        head_dim: u32,
        limits: &Limits,
    ) -> Result<(), KernelError> {
        dispatch::workgroup(kernel, self.workgroup, limits)?;
        dispatch::multiple(kernel, "splits", self.splits, 1)?;
        // Every four dimensions of a head need an invocation.
        dispatch::range(
            kernel,
            "head_dim",
            head_dim,
            1,
            self.workgroup.saturating_mul(4),
        )
    }

    /// Workgroup memory of a query, and of slices, weights and the reduction without subgroups.
    pub(crate) fn workgroup_bytes(&self, head_dim: u32) -> u32 {
        let bytes_an_invocation = 16 + 4 + 16;
        head_dim
            .saturating_mul(4)
            .saturating_add(self.workgroup.saturating_mul(bytes_an_invocation))
    }
}

/// Workgroups to dispatch, or why this shape cannot run here.
pub fn workgroups(
    shape: &Shape,
    geometry: &Geometry,
    limits: &Limits,
) -> Result<[u32; 3], KernelError> {
    dispatch::multiple(NAME, "kv_heads", shape.kv_heads, 1)?;
    dispatch::multiple(NAME, "heads", shape.heads, shape.kv_heads)?;
    dispatch::multiple(NAME, "head_dim", shape.head_dim, 4)?;
    geometry.check(NAME, shape.head_dim, limits)?;
    dispatch::workgroup_memory(NAME, geometry.workgroup_bytes(shape.head_dim), limits)?;
    dispatch::fold(
        NAME,
        u64::from(shape.heads) * u64::from(geometry.splits),
        limits,
    )
}

/// Values of the pipeline's overrides.
pub fn overrides(shape: &Shape, geometry: &Geometry) -> Vec<(&'static str, f64)> {
    vec![
        ("HEADS", shape.heads.into()),
        ("KV_HEADS", shape.kv_heads.into()),
        ("HEAD_DIM", shape.head_dim.into()),
        ("SPLITS", geometry.splits.into()),
        ("WORKGROUP", geometry.workgroup.into()),
    ]
}

/// Elements of `partial`: for each head and split, Dh weighted values, the largest score and the
/// sum of weights.
pub fn partial_elems(shape: &Shape, geometry: &Geometry) -> u64 {
    u64::from(shape.heads) * u64::from(geometry.splits) * (u64::from(shape.head_dim) + 2)
}

/// Twin: softmax-weighted values of each split, unnormalised, with its largest score and sum; all
/// zeros for a split without positions.
///
/// `q` `[Hq * Dh]`, `keys` and `values` `[S, Hkv * Dh]`, positions `0..=position` are valid,
/// `partial` `[Hq, splits, Dh + 2]`.
pub fn cpu(
    shape: &Shape,
    splits: u32,
    q: &[f32],
    keys: &[f32],
    values: &[f32],
    position: u32,
    partial: &mut [f32],
) {
    let head_dim = shape.head_dim as usize;
    let q = |head: usize, i: usize| f64::from(q[head * head_dim + i]);
    let row_elems = shape.kv_heads as usize * head_dim;
    let key = |p: usize, kv: usize, i: usize| f64::from(keys[p * row_elems + kv * head_dim + i]);
    let value =
        |p: usize, kv: usize, i: usize| f64::from(values[p * row_elems + kv * head_dim + i]);
    attend(shape, splits, position, q, key, value, partial);
}

/// The twin's arithmetic, over any source of queries `(head, i)`, keys and values
/// `(position, kv_head, i)`.
pub(crate) fn attend(
    shape: &Shape,
    splits: u32,
    position: u32,
    q: impl Fn(usize, usize) -> f64,
    key: impl Fn(usize, usize, usize) -> f64,
    value: impl Fn(usize, usize, usize) -> f64,
    partial: &mut [f32],
) {
    let head_dim = shape.head_dim as usize;
    let valid = position as usize + 1;
    let positions_a_split = valid.div_ceil(splits as usize);
    let outs = partial.chunks_exact_mut(head_dim + 2).enumerate();
    for (unit, out) in outs {
        let (head, split) = (unit / splits as usize, unit % splits as usize);
        let kv_head = head / (shape.heads / shape.kv_heads) as usize;
        let first = (split * positions_a_split).min(valid);
        let end = (first + positions_a_split).min(valid);
        let scores: Vec<f64> = (first..end)
            .map(|p| {
                let dot: f64 = (0..head_dim).map(|i| q(head, i) * key(p, kv_head, i)).sum();
                dot / (head_dim as f64).sqrt()
            })
            .collect();
        let largest = scores.iter().copied().reduce(f64::max).unwrap_or_default();
        let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
        for (i, element) in out[..head_dim].iter_mut().enumerate() {
            let weighted = weights
                .iter()
                .zip(first..end)
                .map(|(w, p)| w * value(p, kv_head, i));
            *element = weighted.sum::<f64>() as f32;
        }
        out[head_dim] = largest as f32;
        out[head_dim + 1] = weights.iter().sum::<f64>() as f32;
    }
}
