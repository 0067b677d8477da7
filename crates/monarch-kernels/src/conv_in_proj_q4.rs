//! RMSNorm, input projection and double-gated short convolution of one token.

use crate::dispatch::{self, Limits};
use crate::error::KernelError;
use crate::matvec_q4::{self, normed};
use crate::q4::{BLOCK, Q4};
use crate::short_conv;

const NAME: &str = "conv_in_proj_q4";

/// Sizes fixed by the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Channels H, the hidden size.
    pub h: u32,
    /// Taps L of the convolution.
    pub l: u32,
    /// Epsilon of the RMSNorm.
    pub eps: f32,
    /// Whether projection and convolution have biases.
    pub has_bias: bool,
    /// Whether scales are f16.
    pub scales_f16: bool,
}

/// Sizes chosen by tuning. `rows` and `rows_per_workgroup` count channels, three rows each; `rows`
/// is 1, 2 or 4.
pub type Geometry = matvec_q4::Geometry;

/// Workgroups to dispatch, or why this shape cannot run here.
pub fn workgroups(
    shape: &Shape,
    geometry: &Geometry,
    limits: &Limits,
) -> Result<[u32; 3], KernelError> {
    dispatch::multiple(NAME, "h", shape.h, BLOCK)?;
    dispatch::multiple(NAME, "l", shape.l, 1)?;
    geometry.check(NAME, 4, limits)?;
    dispatch::workgroup_memory(NAME, geometry.workgroup_bytes(), limits)?;
    let total = shape.h.div_ceil(geometry.rows_per_workgroup);
    dispatch::fold(NAME, total.into(), limits)
}

/// Values of the pipeline's overrides.
pub fn overrides(shape: &Shape, geometry: &Geometry) -> Vec<(&'static str, f64)> {
    vec![
        ("H", shape.h.into()),
        ("L", shape.l.into()),
        ("EPS", shape.eps.into()),
        ("HAS_BIAS", dispatch::flag(shape.has_bias)),
        ("SCALES_F16", dispatch::flag(shape.scales_f16)),
        ("WORKGROUP", geometry.workgroup.into()),
        ("LANES", geometry.lanes.into()),
        ("ROWS", geometry.rows.into()),
        ("ROWS_PER_WORKGROUP", geometry.rows_per_workgroup.into()),
        ("TILE_BLOCKS", geometry.tile_blocks.into()),
    ]
}

/// What the kernel reads. `bias` may be empty when the shape has none.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// `[H]`.
    pub x: &'a [f32],
    /// RMSNorm weight `[H]`.
    pub norm: &'a [f32],
    /// `[3H, H]`: rows B, C, x.
    pub weights: Q4<'a>,
    /// `[H, L]`, the last tap is the current token's.
    pub taps: &'a [f32],
    /// Of the projection `[3H]`, then of the convolution `[H]`.
    pub bias: &'a [f32],
}

/// Twin: RMSNorm, projection to B, C and x, and [`short_conv`] of those.
///
/// `conv_state` `[L-1, H]` oldest first, `y` `[H]`.
pub fn cpu(shape: &Shape, inputs: &Inputs<'_>, conv_state: &mut [f32], y: &mut [f32]) {
    let channels = shape.h as usize;
    let v = normed(inputs.x, inputs.norm, Some(shape.eps));
    let bias = |row: usize| {
        if shape.has_bias {
            f64::from(inputs.bias[row])
        } else {
            0.0
        }
    };
    let conv = short_conv::Shape {
        h: shape.h,
        l: shape.l,
        has_bias: shape.has_bias,
    };
    for (channel, y) in y.iter_mut().enumerate() {
        let projected = [0, 1, 2].map(|part| {
            let row = part * channels + channel;
            inputs.weights.dot(row, |k| v[k]) + bias(row)
        });
        let conv_bias = bias(3 * channels + channel);
        *y = short_conv::convolve(
            &conv,
            channel,
            projected,
            inputs.taps,
            conv_bias,
            conv_state,
        ) as f32;
    }
}
