//! The splits of decode attention become one row.

use crate::dispatch::{self, Limits};
use crate::error::KernelError;

const NAME: &str = "attention_merge";

/// Sizes fixed by the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Query heads Hq.
    pub heads: u32,
    /// Head size Dh.
    pub head_dim: u32,
}

/// Sizes chosen by tuning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Invocations of a workgroup, one output element each.
    pub workgroup: u32,
    /// Parts that attention cut the positions into.
    pub splits: u32,
}

/// Workgroups to dispatch, or why this shape cannot run here.
pub fn workgroups(
    shape: &Shape,
    geometry: &Geometry,
    limits: &Limits,
) -> Result<[u32; 3], KernelError> {
    dispatch::multiple(NAME, "heads", shape.heads, 1)?;
    dispatch::multiple(NAME, "head_dim", shape.head_dim, 1)?;
    dispatch::multiple(NAME, "splits", geometry.splits, 1)?;
    dispatch::workgroup(NAME, geometry.workgroup, limits)?;
    let elems = shape.heads * shape.head_dim;
    dispatch::one_dimension(NAME, elems.div_ceil(geometry.workgroup), limits)
}

/// Values of the pipeline's overrides.
pub fn overrides(shape: &Shape, geometry: &Geometry) -> Vec<(&'static str, f64)> {
    vec![
        ("HEADS", shape.heads.into()),
        ("HEAD_DIM", shape.head_dim.into()),
        ("SPLITS", geometry.splits.into()),
        ("WORKGROUP", geometry.workgroup.into()),
    ]
}

/// Twin: splits are weighed by `exp(their largest score - the largest of all)`.
///
/// `partial` `[Hq, splits, Dh + 2]`, `y` `[Hq * Dh]`.
pub fn cpu(shape: &Shape, splits: u32, partial: &[f32], y: &mut [f32]) {
    let head_dim = shape.head_dim as usize;
    for (out, element) in y.iter_mut().enumerate() {
        let (head, dimension) = (out / head_dim, out % head_dim);
        let of_head = partial
            .chunks_exact(head_dim + 2)
            .skip(head * splits as usize)
            .take(splits as usize)
            .filter(|split| split[head_dim + 1] > 0.0);
        let largest = of_head
            .clone()
            .map(|split| split[head_dim])
            .fold(f32::MIN, f32::max);
        let (mut weighted, mut sum) = (0.0, 0.0);
        for split in of_head {
            let factor = (f64::from(split[head_dim]) - f64::from(largest)).exp();
            weighted += factor * f64::from(split[dimension]);
            sum += factor * f64::from(split[head_dim + 1]);
        }
        *element = (weighted / sum) as f32;
    }
}
