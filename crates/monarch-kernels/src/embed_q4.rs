//! The embedding row of the current token.

use crate::dispatch::{self, Limits};
use crate::error::KernelError;
use crate::q4::{BLOCK, Q4};

const NAME: &str = "embed_q4";

/// Sizes fixed by the model and by how its table is cut into bindings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Columns of the table, the hidden size D.
    pub d: u32,
    /// First row of the chunk that is bound.
    pub first_row: u32,
    /// Rows of the chunk that is bound.
    pub rows_here: u32,
    /// Whether scales are f16.
    pub scales_f16: bool,
    /// Whether zero points are bound; without them they are 8.
    pub has_zero_points: bool,
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
    dispatch::multiple(NAME, "d", shape.d, BLOCK)?;
    dispatch::multiple(NAME, "rows_here", shape.rows_here, 1)?;
    dispatch::workgroup(NAME, geometry.workgroup, limits)?;
    Ok([1, 1, 1])
}

/// Values of the pipeline's overrides.
pub fn overrides(shape: &Shape, geometry: &Geometry) -> Vec<(&'static str, f64)> {
    vec![
        ("D", shape.d.into()),
        ("FIRST_ROW", shape.first_row.into()),
        ("ROWS_HERE", shape.rows_here.into()),
        ("SCALES_F16", dispatch::flag(shape.scales_f16)),
        ("HAS_ZERO_POINTS", dispatch::flag(shape.has_zero_points)),
        ("WORKGROUP", geometry.workgroup.into()),
    ]
}

/// Twin: row `token` of the table, if it lies in this chunk; otherwise `x` stays as it is.
pub fn cpu(shape: &Shape, token: u32, table: &Q4<'_>, x: &mut [f32]) {
    let Some(row) = token
        .checked_sub(shape.first_row)
        .filter(|row| *row < shape.rows_here)
    else {
        return;
    };
    for (column, x) in x.iter_mut().enumerate() {
        *x = table.weight(row as usize, column) as f32;
    }
}
