//! The MLP up to the slices' shares of the down projection.

use crate::dispatch::{self, Limits};
use crate::error::KernelError;
use crate::matvec_q4;
use crate::matvec_q4::normed;
use crate::q4::{BLOCK, Q4, nibble, scale};
use crate::swiglu::silu;

const NAME: &str = "mlp_q4";

/// Sizes fixed by the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Hidden size D.
    pub d: u32,
    /// Feed-forward columns F.
    pub f: u32,
    /// Epsilon of the RMSNorm.
    pub eps: f32,
    /// Whether scales are f16.
    pub scales_f16: bool,
}

/// Sizes chosen by tuning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Invocations of a workgroup, which takes one slice.
    pub workgroup: u32,
    /// Invocations that share a row on devices without subgroups.
    pub lanes: u32,
    /// Columns that a team works on at a time, gate and up row of each: 1, 2 or 4.
    pub rows: u32,
    /// Columns of F a slice, a multiple of 32.
    pub slice: u32,
    /// Blocks of activations that are staged at a time; D/32 or more stages them once.
    pub tile_blocks: u32,
}

/// Slices that F is cut into: rows of `partial`.
pub fn slices(shape: &Shape, geometry: &Geometry) -> u32 {
    shape.f.div_ceil(geometry.slice)
}

/// Workgroups to dispatch, or why this shape cannot run here.
pub fn workgroups(
    shape: &Shape,
    geometry: &Geometry,
    limits: &Limits,
) -> Result<[u32; 3], KernelError> {
    dispatch::multiple(NAME, "d", shape.d, BLOCK)?;
    dispatch::multiple(NAME, "f", shape.f, BLOCK)?;
    dispatch::multiple(NAME, "slice", geometry.slice, BLOCK)?;
    let matvec = matvec_q4::Geometry {
        workgroup: geometry.workgroup,
        lanes: geometry.lanes,
        rows: geometry.rows,
        rows_per_workgroup: geometry.slice,
        tile_blocks: geometry.tile_blocks,
    };
    matvec.check(NAME, 4, limits)?;
    dispatch::range(
        NAME,
        "slice",
        geometry.slice,
        BLOCK,
        geometry.tile_blocks.saturating_mul(BLOCK),
    )?;
    let needed_bytes = matvec
        .workgroup_bytes()
        .saturating_add(geometry.slice.saturating_mul(4));
    dispatch::workgroup_memory(NAME, needed_bytes, limits)?;
    dispatch::one_dimension(NAME, slices(shape, geometry), limits)
}

/// Values of the pipeline's overrides.
pub fn overrides(shape: &Shape, geometry: &Geometry) -> Vec<(&'static str, f64)> {
    vec![
        ("D", shape.d.into()),
        ("F", shape.f.into()),
        ("EPS", shape.eps.into()),
        ("SCALES_F16", dispatch::flag(shape.scales_f16)),
        ("WORKGROUP", geometry.workgroup.into()),
        ("LANES", geometry.lanes.into()),
        ("ROWS", geometry.rows.into()),
        ("SLICE", geometry.slice.into()),
        ("TILE_BLOCKS", geometry.tile_blocks.into()),
    ]
}

/// What the kernel reads.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// `[D]`.
    pub x: &'a [f32],
    /// RMSNorm weight `[D]`.
    pub norm: &'a [f32],
    /// `[2F, D]`: gate rows, then up rows.
    pub gate_up: Q4<'a>,
    /// Codes of the down projection, column block first `[F/32, D]`, four words each.
    pub down_codes_k_major: &'a [u32],
    /// Its scales in the same order, f32 bits or f16 pairs as in `gate_up`.
    pub down_scales_k_major: &'a [u32],
}

/// Twin: `partial[s, d] = sum over the columns f of slice s of down[d, f] * silu(gate[f]) * up[f]`.
///
/// `partial` is `[slices, D]`.
pub fn cpu(shape: &Shape, slice: u32, inputs: &Inputs<'_>, partial: &mut [f32]) {
    let (rows, columns) = (shape.d as usize, shape.f as usize);
    let v = normed(inputs.x, inputs.norm, Some(shape.eps));
    let hidden: Vec<f64> = (0..columns)
        .map(|f| {
            let gate = inputs.gate_up.dot(f, |k| v[k]);
            silu(gate) * inputs.gate_up.dot(columns + f, |k| v[k])
        })
        .collect();
    let down = |row: usize, column: usize| {
        let (block, in_block) = (column / BLOCK as usize, column % BLOCK as usize);
        let at = block * rows + row;
        let code = nibble(inputs.down_codes_k_major, at * BLOCK as usize + in_block);
        (f64::from(code) - 8.0) * scale(inputs.down_scales_k_major, shape.scales_f16, at)
    };
    for (at, element) in partial.iter_mut().enumerate() {
        let (slice_index, row) = (at / rows, at % rows);
        let first = slice_index * slice as usize;
        let end = (first + slice as usize).min(columns);
        *element = (first..end).map(|f| down(row, f) * hidden[f]).sum::<f64>() as f32;
    }
}
