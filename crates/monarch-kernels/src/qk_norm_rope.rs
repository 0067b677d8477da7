//! RMSNorm and rotary embedding of query and key heads; key and value rows go into the cache.

use crate::dispatch::{self, Limits};
use crate::error::KernelError;
use crate::rms_norm::inverse_rms;

const NAME: &str = "qk_norm_rope";

/// Sizes fixed by the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Query heads Hq.
    pub heads: u32,
    /// Key and value heads Hkv.
    pub kv_heads: u32,
    /// Head size Dh.
    pub head_dim: u32,
    /// Epsilon of the RMSNorm of each head.
    pub eps: f32,
}

impl Shape {
    /// Refuses heads that cannot be grouped or turned, in the name of `kernel`.
    pub(crate) fn check(&self, kernel: &'static str) -> Result<(), KernelError> {
        dispatch::multiple(kernel, "kv_heads", self.kv_heads, 1)?;
        dispatch::multiple(kernel, "heads", self.heads, self.kv_heads)?;
        dispatch::multiple(kernel, "head_dim", self.head_dim, 8)
    }
}

/// Sizes chosen by tuning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Invocations of a workgroup, which takes one head.
    pub workgroup: u32,
}

/// Workgroups to dispatch, or why this shape cannot run here.
pub fn workgroups(
    shape: &Shape,
    geometry: &Geometry,
    limits: &Limits,
) -> Result<[u32; 3], KernelError> {
    shape.check(NAME)?;
    dispatch::workgroup(NAME, geometry.workgroup, limits)?;
    dispatch::workgroup_memory(NAME, geometry.workgroup * 16, limits)?;
    dispatch::one_dimension(NAME, shape.heads + shape.kv_heads, limits)
}

/// Values of the pipeline's overrides.
pub fn overrides(shape: &Shape, geometry: &Geometry) -> Vec<(&'static str, f64)> {
    vec![
        ("HEADS", shape.heads.into()),
        ("KV_HEADS", shape.kv_heads.into()),
        ("HEAD_DIM", shape.head_dim.into()),
        ("EPS", shape.eps.into()),
        ("WORKGROUP", geometry.workgroup.into()),
    ]
}

/// What the kernel reads.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// Queries, keys and values `[(Hq + 2 Hkv) * Dh]`.
    pub qkv: &'a [f32],
    /// RMSNorm weights of q, then of k `[2 * Dh]`.
    pub qk_norm: &'a [f32],
    /// Cosines of a position, then its sines `[positions, Dh]`.
    pub rope: &'a [f32],
    /// Index of the token.
    pub position: u32,
}

/// Twin: heads are normalised and turned; row `position` of `keys` and `values` is written.
///
/// `q` `[Hq * Dh]`, `keys` and `values` `[S, Hkv * Dh]`.
pub fn cpu(
    shape: &Shape,
    inputs: &Inputs<'_>,
    q: &mut [f32],
    keys: &mut [f32],
    values: &mut [f32],
) {
    let head_dim = shape.head_dim as usize;
    let (query_elems, row_elems) = (
        shape.heads as usize * head_dim,
        shape.kv_heads as usize * head_dim,
    );
    let row = inputs.position as usize * row_elems;
    for (out, element) in q.iter_mut().enumerate() {
        *element = turned(shape, inputs, out / head_dim, out % head_dim) as f32;
    }
    for at in 0..row_elems {
        let head = shape.heads as usize + at / head_dim;
        keys[row + at] = turned(shape, inputs, head, at % head_dim) as f32;
        values[row + at] = inputs.qkv[query_elems + row_elems + at];
    }
}

/// Dimension `dimension` of query or key head `head`, normalised and turned.
pub(crate) fn turned(shape: &Shape, inputs: &Inputs<'_>, head: usize, dimension: usize) -> f64 {
    let head_dim = shape.head_dim as usize;
    let half = head_dim / 2;
    let values = &inputs.qkv[head * head_dim..][..head_dim];
    let weights = if head < shape.heads as usize {
        &inputs.qk_norm[..head_dim]
    } else {
        &inputs.qk_norm[head_dim..]
    };
    let angles = &inputs.rope[inputs.position as usize * head_dim..][..head_dim];
    let scale = inverse_rms(values, shape.eps);
    let normed = |i: usize| f64::from(values[i]) * scale * f64::from(weights[i]);
    let pair = dimension % half;
    let (cos, sin) = (f64::from(angles[pair]), f64::from(angles[half + pair]));
    if dimension < half {
        normed(dimension) * cos - normed(dimension + half) * sin
    } else {
        normed(dimension) * cos + normed(dimension - half) * sin
    }
}
