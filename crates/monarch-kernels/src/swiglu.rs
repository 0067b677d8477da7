//! The gated activation between the MLP's projections.

use crate::dispatch::{self, Limits};
use crate::error::KernelError;

const NAME: &str = "swiglu";

/// Sizes fixed by the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Feed-forward columns F.
    pub f: u32,
}

/// Sizes chosen by tuning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Invocations of a workgroup, one column each.
    pub workgroup: u32,
}

/// Workgroups to dispatch, or why this shape cannot run here.
pub fn workgroups(
    shape: &Shape,
    geometry: &Geometry,
    limits: &Limits,
) -> Result<[u32; 3], KernelError> {
    dispatch::multiple(NAME, "f", shape.f, 1)?;
    dispatch::workgroup(NAME, geometry.workgroup, limits)?;
    dispatch::one_dimension(NAME, shape.f.div_ceil(geometry.workgroup), limits)
}

/// Values of the pipeline's overrides.
pub fn overrides(shape: &Shape, geometry: &Geometry) -> Vec<(&'static str, f64)> {
    vec![
        ("F", shape.f.into()),
        ("WORKGROUP", geometry.workgroup.into()),
    ]
}

/// Twin: `h[f] = silu(gate[f]) * up[f]`, `gate_up` is `[2F]`.
pub fn cpu(gate_up: &[f32], h: &mut [f32]) {
    let (gate, up) = gate_up.split_at(h.len());
    for ((h, &gate), &up) in h.iter_mut().zip(gate).zip(up) {
        *h = (silu(gate.into()) * f64::from(up)) as f32;
    }
}

/// `v / (1 + exp(-v))`.
pub(crate) fn silu(v: f64) -> f64 {
    v / (1.0 + (-v).exp())
}
