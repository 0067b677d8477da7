//! Matrix-vector products: geometry, row chunks, one dispatch a chunk.

use monarch_kernels::matvec_q4;
use monarch_manifest::{BLOCK, Dequantise, Matrix, Piece, ScaleType};

use super::Builder;
use crate::buffers::{BufferId, Layer};
use crate::error::RuntimeError;

/// One product in a plan.
pub(super) struct Matvec<'a> {
    pub(super) layer: Layer,
    pub(super) matrix: Matrix,
    /// What the label calls it.
    pub(super) what: &'a str,
    pub(super) x: BufferId,
    /// RMSNorm weight applied to `x` on the way in.
    pub(super) norm: Option<BufferId>,
    pub(super) y: BufferId,
    /// Adds to `y` instead of overwriting it.
    pub(super) accumulate: bool,
}

impl Builder<'_> {
    /// Adds the dispatches of a product, one for each chunk of rows.
    pub(super) fn matvec(&mut self, product: &Matvec<'_>) -> Result<(), RuntimeError> {
        let Matvec { layer, matrix, .. } = *product;
        let (_, k) = matrix.rows_cols(self.shape);
        let geometry = self.matvec_geometry(matrix, product.what);
        let bias = self.bias(layer, matrix);
        for rows in self.row_chunks(matrix) {
            let shape = matvec_q4::Shape {
                n: rows.rows,
                k,
                y_offset: rows.first_row,
                norm_eps: product.norm.map(|_| self.shape.norm_eps),
                has_bias: bias != BufferId::Nothing,
                accumulate: product.accumulate,
                scales_f16: self.scales_f16(),
                has_zero_points: self.has_piece(layer, matrix, Piece::ZeroPoints),
            };
            let [codes, scales, zero_points] = self.matrix_rows(layer, matrix, rows.chunk);
            let norm = product.norm.unwrap_or(BufferId::Nothing);
            self.stage(
                layer,
                "matvec_q4",
                product.what,
                matvec_q4::workgroups(&shape, &geometry, &self.limits()),
                matvec_q4::overrides(&shape, &geometry),
                &[product.x, norm, codes, scales, zero_points, bias, product.y],
            )?;
            self.matvec_in_f16(matrix, product.what);
        }
        Ok(())
    }

    /// The f16 bit trick was tuned for f16 products: the dispatch added last multiplies in f16.
    pub(super) fn matvec_in_f16(&mut self, matrix: Matrix, what: &str) {
        let dequantise = self.tuning.matvec(matrix).dequantise;
        self.products_in_f16(dequantise == Dequantise::PerWord, what);
    }

    pub(super) fn scales_f16(&self) -> bool {
        self.shape.scale_type == ScaleType::F16
    }

    /// The tuned geometry of a product, cut to what kernel and device run.
    fn matvec_geometry(&mut self, matrix: Matrix, what: &str) -> matvec_q4::Geometry {
        let tuned = self.tuning.matvec(matrix).geometry.rows_per_subgroup;
        // The kernel has code for 1, 2, 4 and 8 rows at a time.
        let rows = 1 << tuned.clamp(1, 8).ilog2();
        if rows != tuned {
            self.decide(format!(
                "{what}: {tuned} rows a subgroup replaced by {rows}"
            ));
        }
        self.geometry(matrix, what, rows)
    }

    /// The tuned workgroup of a matrix, with teams that take `rows` at a time.
    pub(super) fn geometry(
        &mut self,
        matrix: Matrix,
        what: &str,
        rows: u32,
    ) -> matvec_q4::Geometry {
        let tuned = self.tuning.matvec(matrix).geometry;
        let (_, k) = matrix.rows_cols(self.shape);
        let workgroup = self.workgroup(what, tuned.workgroup);
        let teams = workgroup / self.lanes(tuned.subgroup_size, workgroup);
        matvec_q4::Geometry {
            workgroup,
            lanes: tuned.subgroup_size.min(workgroup),
            rows,
            rows_per_workgroup: teams * rows,
            tile_blocks: self.tile_blocks(k, workgroup),
        }
    }

    /// Blocks of activations staged at a time: all of them if they fit beside the reductions.
    pub(super) fn tile_blocks(&self, k: u32, workgroup: u32) -> u32 {
        // 32 staged activations and four partial sums a block, and one vec4 an invocation.
        let block_bytes = BLOCK * 4 + 4 * 4;
        let room = self
            .capabilities
            .limits
            .max_workgroup_bytes
            .saturating_sub(workgroup * 16);
        (k / BLOCK).min(room / block_bytes).max(1)
    }
}
