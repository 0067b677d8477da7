//! Token → residual stream.

use monarch_kernels::embed_q4;
use monarch_manifest::{Matrix, Piece};

use super::Builder;
use crate::buffers::{Activation, BufferId};
use crate::error::RuntimeError;

const WORKGROUP: u32 = 128;

impl Builder<'_> {
    /// The embedding row of the token at the current position. A tied table is the head's.
    pub(super) fn embed(&mut self) -> Result<(), RuntimeError> {
        let matrix = if self.shape.tied_embedding {
            Matrix::Head
        } else {
            Matrix::Embed
        };
        let x = self.activation(Activation::Residual, self.shape.hidden);
        let geometry = embed_q4::Geometry {
            workgroup: self.workgroup("embed", WORKGROUP),
        };
        for rows in self.row_chunks(matrix) {
            let shape = embed_q4::Shape {
                d: self.shape.hidden,
                first_row: rows.first_row,
                rows_here: rows.rows,
                scales_f16: self.scales_f16(),
                has_zero_points: self.has_piece(None, matrix, Piece::ZeroPoints),
            };
            let [codes, scales, zero_points] = self.matrix_rows(None, matrix, rows.chunk);
            self.stage(
                None,
                "embed_q4",
                "",
                embed_q4::workgroups(&shape, &geometry, &self.limits()),
                embed_q4::overrides(&shape, &geometry),
                &[
                    BufferId::State,
                    BufferId::Tokens,
                    codes,
                    scales,
                    zero_points,
                    x,
                ],
            )?;
        }
        Ok(())
    }
}
