//! The double-gated short convolution of one token.

use crate::dispatch::{self, Limits};
use crate::error::KernelError;

const NAME: &str = "short_conv";

/// Sizes fixed by the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Channels H, the hidden size.
    pub h: u32,
    /// Taps L of the convolution.
    pub l: u32,
    /// Whether a bias is added to the convolution.
    pub has_bias: bool,
}

/// Sizes chosen by tuning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Invocations of a workgroup, one channel each.
    pub workgroup: u32,
}

/// Workgroups to dispatch, or why this shape cannot run here.
pub fn workgroups(
    shape: &Shape,
    geometry: &Geometry,
    limits: &Limits,
) -> Result<[u32; 3], KernelError> {
    dispatch::multiple(NAME, "h", shape.h, 1)?;
    dispatch::multiple(NAME, "l", shape.l, 1)?;
    dispatch::workgroup(NAME, geometry.workgroup, limits)?;
    dispatch::one_dimension(NAME, shape.h.div_ceil(geometry.workgroup), limits)
}

/// Values of the pipeline's overrides.
pub fn overrides(shape: &Shape, geometry: &Geometry) -> Vec<(&'static str, f64)> {
    vec![
        ("H", shape.h.into()),
        ("L", shape.l.into()),
        ("HAS_BIAS", dispatch::flag(shape.has_bias)),
        ("WORKGROUP", geometry.workgroup.into()),
    ]
}

/// Twin: `u = B * x`, `y = C * (taps · (conv_state, u) + bias)`; the state takes `u`.
///
/// `bcx` `[3H]`, `taps` `[H, L]`, `bias` `[H]` or empty, `conv_state` `[L-1, H]` oldest first,
/// `y` `[H]`.
pub fn cpu(
    shape: &Shape,
    bcx: &[f32],
    taps: &[f32],
    bias: &[f32],
    conv_state: &mut [f32],
    y: &mut [f32],
) {
    let channels = shape.h as usize;
    for channel in 0..channels {
        let [b, c, x] = [0, 1, 2].map(|part| f64::from(bcx[part * channels + channel]));
        let bias = if shape.has_bias {
            f64::from(bias[channel])
        } else {
            0.0
        };
        y[channel] = convolve(shape, channel, [b, c, x], taps, bias, conv_state) as f32;
    }
}

/// One channel of the convolution, from its gates and input; moves the channel's state.
pub(crate) fn convolve(
    shape: &Shape,
    channel: usize,
    [b, c, x]: [f64; 3],
    taps: &[f32],
    bias: f64,
    conv_state: &mut [f32],
) -> f64 {
    let (channels, window) = (shape.h as usize, shape.l as usize);
    let taps = &taps[channel * window..][..window];
    let u = b * x;
    let past: f64 = (0..window - 1)
        .map(|age| f64::from(taps[age]) * f64::from(conv_state[age * channels + channel]))
        .sum();
    for age in 1..window - 1 {
        conv_state[(age - 1) * channels + channel] = conv_state[age * channels + channel];
    }
    if window > 1 {
        conv_state[(window - 2) * channels + channel] = u as f32;
    }
    c * (past + f64::from(taps[window - 1]) * u + bias)
}
