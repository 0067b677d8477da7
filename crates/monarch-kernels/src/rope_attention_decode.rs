//! Normalised, turned queries and keys, and their attention over the cache, in one dispatch.

use crate::dispatch::{self, Limits};
use crate::error::KernelError;
use crate::{attention_decode, qk_norm_rope};

const NAME: &str = "rope_attention_decode";

/// Sizes fixed by the model.
pub type Shape = qk_norm_rope::Shape;

/// Sizes chosen by tuning.
pub type Geometry = attention_decode::Geometry;

/// What the kernel reads.
pub type Inputs<'a> = qk_norm_rope::Inputs<'a>;

/// Workgroups to dispatch, or why this shape cannot run here.
pub fn workgroups(
    shape: &Shape,
    geometry: &Geometry,
    limits: &Limits,
) -> Result<[u32; 3], KernelError> {
    shape.check(NAME)?;
    geometry.check(NAME, shape.head_dim, limits)?;
    // The fresh key is as large as the query.
    let needed_bytes = geometry.workgroup_bytes(shape.head_dim) + shape.head_dim * 4;
    dispatch::workgroup_memory(NAME, needed_bytes, limits)?;
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
        ("EPS", shape.eps.into()),
        ("WORKGROUP", geometry.workgroup.into()),
    ]
}

/// Twin: [`qk_norm_rope`], then [`attention_decode`].
///
/// `keys` and `values` `[S, Hkv * Dh]`, `partial` `[Hq, splits, Dh + 2]`.
pub fn cpu(
    shape: &Shape,
    splits: u32,
    inputs: &Inputs<'_>,
    keys: &mut [f32],
    values: &mut [f32],
    partial: &mut [f32],
) {
    let head_dim = shape.head_dim as usize;
    let mut query = vec![0.0; shape.heads as usize * head_dim];
    qk_norm_rope::cpu(shape, inputs, &mut query, keys, values);
    let shape = attention_decode::Shape {
        heads: shape.heads,
        kv_heads: shape.kv_heads,
        head_dim: shape.head_dim,
    };
    attention_decode::cpu(
        &shape,
        splits,
        &query,
        keys,
        values,
        inputs.position,
        partial,
    );
}
