//! y = W x with 4-bit weights, one activation row.

use crate::dispatch::{self, Limits};
use crate::error::KernelError;
use crate::q4::{BLOCK, Q4};
use crate::rms_norm::inverse_rms;

const NAME: &str = "matvec_q4";

/// Sizes fixed by the model, and what is fused around the product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Output rows N of the chunk that is bound.
    pub n: u32,
    /// Columns K.
    pub k: u32,
    /// Row `n` of the chunk is element `y_offset + n` of `y` and of `bias`.
    pub y_offset: u32,
    /// RMSNorm of `x` in front, with this epsilon.
    pub norm_eps: Option<f32>,
    /// Whether a bias is added.
    pub has_bias: bool,
    /// Whether the product is added to what `y` holds: the residual.
    pub accumulate: bool,
    /// Whether scales are f16.
    pub scales_f16: bool,
    /// Whether zero points are bound; without them they are 8.
    pub has_zero_points: bool,
}

/// Sizes chosen by tuning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Invocations of a workgroup.
    pub workgroup: u32,
    /// Invocations that share a row on devices without subgroups.
    pub lanes: u32,
    /// Rows that a team works on at a time: 1, 2, 4 or 8.
    pub rows: u32,
    /// Rows of a workgroup. A multiple of the rows that its teams hold keeps all of them busy.
    pub rows_per_workgroup: u32,
    /// Blocks of activations that are staged at a time; K/32 or more stages them once.
    pub tile_blocks: u32,
}

impl Geometry {
    /// Refuses what the shader cannot run, in the name of `kernel`.
    pub(crate) fn check(
        &self,
        kernel: &'static str,
        max_rows: u32,
        limits: &Limits,
    ) -> Result<(), KernelError> {
        dispatch::workgroup(kernel, self.workgroup, limits)?;
        dispatch::power_of_two(kernel, "lanes", self.lanes, 4, self.workgroup)?;
        dispatch::power_of_two(kernel, "rows", self.rows, 1, max_rows)?;
        dispatch::multiple(kernel, "rows_per_workgroup", self.rows_per_workgroup, 1)?;
        dispatch::multiple(kernel, "tile_blocks", self.tile_blocks, 1)
    }

    /// Workgroup memory of the tile in f32 and of reductions without subgroups, in bytes.
    pub(crate) fn workgroup_bytes(&self) -> u32 {
        let staged_bytes = BLOCK * 4 + 4 * 4;
        self.tile_blocks
            .saturating_mul(staged_bytes)
            .saturating_add(self.workgroup.saturating_mul(16))
    }
}

/// Workgroups to dispatch, or why this shape cannot run here.
pub fn workgroups(
    shape: &Shape,
    geometry: &Geometry,
    limits: &Limits,
) -> Result<[u32; 3], KernelError> {
    dispatch::multiple(NAME, "n", shape.n, 1)?;
    dispatch::multiple(NAME, "k", shape.k, BLOCK)?;
    geometry.check(NAME, 8, limits)?;
    dispatch::workgroup_memory(NAME, geometry.workgroup_bytes(), limits)?;
    let total = shape.n.div_ceil(geometry.rows_per_workgroup);
    dispatch::fold(NAME, total.into(), limits)
}

/// Values of the pipeline's overrides.
pub fn overrides(shape: &Shape, geometry: &Geometry) -> Vec<(&'static str, f64)> {
    vec![
        ("N", shape.n.into()),
        ("K", shape.k.into()),
        ("Y_OFFSET", shape.y_offset.into()),
        ("HAS_NORM", dispatch::flag(shape.norm_eps.is_some())),
        ("EPS", shape.norm_eps.unwrap_or_default().into()),
        ("HAS_BIAS", dispatch::flag(shape.has_bias)),
        ("ACCUMULATE", dispatch::flag(shape.accumulate)),
        ("SCALES_F16", dispatch::flag(shape.scales_f16)),
        ("HAS_ZERO_POINTS", dispatch::flag(shape.has_zero_points)),
        ("WORKGROUP", geometry.workgroup.into()),
        ("LANES", geometry.lanes.into()),
        ("ROWS", geometry.rows.into()),
        ("ROWS_PER_WORKGROUP", geometry.rows_per_workgroup.into()),
        ("TILE_BLOCKS", geometry.tile_blocks.into()),
    ]
}

/// What the kernel reads. Slices that the shape does not use may be empty.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// `[K]`.
    pub x: &'a [f32],
    /// RMSNorm weight `[K]`.
    pub norm: &'a [f32],
    /// `[N, K]`.
    pub weights: Q4<'a>,
    /// `[y_offset + N]`.
    pub bias: &'a [f32],
}

/// Twin: `y[y_offset + n] = W[n] · v + bias + (accumulate ? y : 0)`, where v is x or its RMSNorm.
pub fn cpu(shape: &Shape, inputs: &Inputs<'_>, y: &mut [f32]) {
    let v = normed(inputs.x, inputs.norm, shape.norm_eps);
    for row in 0..shape.n as usize {
        let at = shape.y_offset as usize + row;
        let mut sum = inputs.weights.dot(row, |k| v[k]);
        if shape.has_bias {
            sum += f64::from(inputs.bias[at]);
        }
        if shape.accumulate {
            sum += f64::from(y[at]);
        }
        y[at] = sum as f32;
    }
}

/// x, or its RMSNorm when there is an epsilon.
pub(crate) fn normed(x: &[f32], norm: &[f32], norm_eps: Option<f32>) -> Vec<f64> {
    match norm_eps {
        None => x.iter().map(|&x| f64::from(x)).collect(),
        Some(eps) => {
            let scale = inverse_rms(x, eps);
            x.iter()
                .zip(norm)
                .map(|(&x, &weight)| f64::from(x) * scale * f64::from(weight))
                .collect()
        }
    }
}
