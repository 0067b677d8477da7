//! RMSNorm of one activation row.

use crate::dispatch::{self, Limits};
use crate::error::KernelError;

const NAME: &str = "rms_norm";

/// Sizes fixed by the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Elements of the row.
    pub k: u32,
    /// Added to the mean square.
    pub eps: f32,
}

/// Sizes chosen by tuning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Invocations of the one workgroup.
    pub workgroup: u32,
}

/// Workgroups to dispatch, or why this shape cannot run here.
pub fn workgroups(
    shape: &Shape,
    geometry: &Geometry,
    limits: &Limits,
) -> Result<[u32; 3], KernelError> {
    dispatch::multiple(NAME, "k", shape.k, 1)?;
    dispatch::workgroup(NAME, geometry.workgroup, limits)?;
    dispatch::workgroup_memory(NAME, geometry.workgroup * 16, limits)?;
    Ok([1, 1, 1])
}

/// Values of the pipeline's overrides.
pub fn overrides(shape: &Shape, geometry: &Geometry) -> Vec<(&'static str, f64)> {
    vec![
        ("K", shape.k.into()),
        ("EPS", shape.eps.into()),
        ("WORKGROUP", geometry.workgroup.into()),
    ]
}

/// Twin: `y[k] = x[k] * weight[k] / sqrt(mean(x^2) + eps)`.
pub fn cpu(shape: &Shape, x: &[f32], weight: &[f32], y: &mut [f32]) {
    let scale = inverse_rms(x, shape.eps);
    for ((y, &x), &weight) in y.iter_mut().zip(x).zip(weight) {
        *y = (f64::from(x) * scale * f64::from(weight)) as f32;
    }
}

/// `1 / sqrt(mean(x^2) + eps)`.
pub(crate) fn inverse_rms(x: &[f32], eps: f32) -> f64 {
    let squares: f64 = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
    1.0 / (squares / x.len() as f64 + f64::from(eps)).sqrt()
}
