//! The slices' partial sums join the residual.

use crate::dispatch::{self, Limits};
use crate::error::KernelError;

const NAME: &str = "fold";

/// Sizes fixed by the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Hidden size D.
    pub d: u32,
    /// Slices that are summed.
    pub slices: u32,
}

/// Sizes chosen by tuning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Invocations of a workgroup.
    pub workgroup: u32,
    /// Invocations that share an element.
    pub lanes: u32,
}

/// Workgroups to dispatch, or why this shape cannot run here.
pub fn workgroups(
    shape: &Shape,
    geometry: &Geometry,
    limits: &Limits,
) -> Result<[u32; 3], KernelError> {
    dispatch::multiple(NAME, "d", shape.d, 1)?;
    dispatch::multiple(NAME, "slices", shape.slices, 1)?;
    dispatch::workgroup(NAME, geometry.workgroup, limits)?;
    dispatch::power_of_two(NAME, "lanes", geometry.lanes, 1, geometry.workgroup)?;
    let elements = geometry.workgroup / geometry.lanes;
    dispatch::one_dimension(NAME, shape.d.div_ceil(elements), limits)
}

/// Values of the pipeline's overrides.
pub fn overrides(shape: &Shape, geometry: &Geometry) -> Vec<(&'static str, f64)> {
    vec![
        ("D", shape.d.into()),
        ("SLICES", shape.slices.into()),
        ("WORKGROUP", geometry.workgroup.into()),
        ("LANES", geometry.lanes.into()),
    ]
}

/// Twin: `x[d] += sum_s partial[s, d]`, `partial` is `[slices, D]`.
pub fn cpu(partial: &[f32], x: &mut [f32]) {
    let elements = x.len();
    for (d, x) in x.iter_mut().enumerate() {
        let sum: f64 = partial
            .iter()
            .skip(d)
            .step_by(elements)
            .map(|&p| f64::from(p))
            .sum();
        *x = (f64::from(*x) + sum) as f32;
    }
}
