//! The feed-forward half of a layer: norm, gate and up, SwiGLU, down.

use monarch_kernels::{fold, mlp_q4, rms_norm, swiglu};
use monarch_manifest::{BLOCK, F16Products, Matrix, Piece, Vector};

use super::Builder;
use super::matvec::Matvec;
use crate::buffers::{Activation, BufferId, VectorId};
use crate::error::RuntimeError;

const WORKGROUP: u32 = 128;
const NORM_WORKGROUP: u32 = 256;

impl Builder<'_> {
    pub(super) fn mlp(&mut self, layer: u32) -> Result<(), RuntimeError> {
        if self.is_seed && self.can_fuse_mlp(layer) {
            self.mlp_fused(layer)
        } else {
            self.mlp_plain(layer)
        }
    }

    /// The input of an operator: normalised by its own dispatch in the plain plan, by its consumer in the seed plan.
    pub(super) fn operator_norm(
        &mut self,
        layer: u32,
        residual: BufferId,
        vector: VectorId,
        section: Vector,
    ) -> Result<(BufferId, Option<BufferId>), RuntimeError> {
        let norm = self.norm(Some(layer), vector, section);
        if self.is_seed {
            return Ok((residual, Some(norm)));
        }
        Ok((self.rms_norm(Some(layer), residual, norm)?, None))
    }

    pub(super) fn rms_norm(
        &mut self,
        layer: Option<u32>,
        x: BufferId,
        weight: BufferId,
    ) -> Result<BufferId, RuntimeError> {
        let normed = self.activation(Activation::Normed, self.shape.hidden);
        let shape = rms_norm::Shape {
            k: self.shape.hidden,
            eps: self.shape.norm_eps,
        };
        let geometry = rms_norm::Geometry {
            workgroup: self.workgroup("rms_norm", NORM_WORKGROUP),
        };
        self.stage(
            layer,
            "rms_norm",
            "",
            rms_norm::workgroups(&shape, &geometry, &self.limits()),
            rms_norm::overrides(&shape, &geometry),
            &[x, weight, normed],
        )?;
        Ok(normed)
    }

    /// The fused kernel reads whole, symmetric matrices.
    fn can_fuse_mlp(&mut self, layer: u32) -> bool {
        let matrices = [Matrix::MlpGateUp, Matrix::MlpDown];
        let is_whole = matrices
            .iter()
            .all(|matrix| self.row_chunks(*matrix).len() == 1);
        let is_symmetric = matrices
            .iter()
            .all(|matrix| !self.has_piece(Some(layer), *matrix, Piece::ZeroPoints));
        if !is_whole {
            self.decide(
                "mlp: a projection is larger than a binding, so its steps are separate".to_owned(),
            );
        }
        if !is_symmetric {
            self.decide("mlp: a projection has zero points, so its steps are separate".to_owned());
        }
        is_whole && is_symmetric
    }

    fn mlp_plain(&mut self, layer: u32) -> Result<(), RuntimeError> {
        let residual = self.activation(Activation::Residual, self.shape.hidden);
        let (x, norm) = self.operator_norm(layer, residual, VectorId::MlpNorm, Vector::MlpNorm)?;
        let gate_up = self.activation(Activation::GateUp, 2 * self.shape.ffn);
        self.matvec(&Matvec {
            layer: Some(layer),
            matrix: Matrix::MlpGateUp,
            what: "gate_up",
            x,
            norm,
            y: gate_up,
            accumulate: false,
        })?;
        let hidden = self.activation(Activation::Hidden, self.shape.ffn);
        let shape = swiglu::Shape { f: self.shape.ffn };
        let geometry = swiglu::Geometry {
            workgroup: self.workgroup("swiglu", WORKGROUP),
        };
        self.stage(
            Some(layer),
            "swiglu",
            "",
            swiglu::workgroups(&shape, &geometry, &self.limits()),
            swiglu::overrides(&shape, &geometry),
            &[gate_up, hidden],
        )?;
        self.matvec(&Matvec {
            layer: Some(layer),
            matrix: Matrix::MlpDown,
            what: "down",
            x: hidden,
            norm: None,
            y: residual,
            accumulate: true,
        })
    }

    fn mlp_fused(&mut self, layer: u32) -> Result<(), RuntimeError> {
        let (d, f) = (self.shape.hidden, self.shape.ffn);
        let residual = self.activation(Activation::Residual, d);
        let norm = self.norm(Some(layer), VectorId::MlpNorm, Vector::MlpNorm);
        let slices = self.mlp_slices();
        let partial = self.activation(Activation::MlpPartial, slices * d);
        let [gate_up_codes, gate_up_scales, _] =
            self.matrix_rows(Some(layer), Matrix::MlpGateUp, 0);
        let [down_codes, down_scales] = self.down_k_major(Some(layer));
        let shape = mlp_q4::Shape {
            d,
            f,
            eps: self.shape.norm_eps,
            scales_f16: self.scales_f16(),
        };
        let geometry = self.mlp_geometry(f / slices);
        self.stage(
            Some(layer),
            "mlp_q4",
            "",
            mlp_q4::workgroups(&shape, &geometry, &self.limits()),
            mlp_q4::overrides(&shape, &geometry),
            &[
                residual,
                norm,
                gate_up_codes,
                gate_up_scales,
                down_codes,
                down_scales,
                partial,
            ],
        )?;
        // One variant serves both products of the fused kernel.
        let wanted = [self.tuning.mlp_dot_f16, self.tuning.mlp_product_f16];
        self.products_in_f16(
            wanted.iter().any(|products| *products != F16Products::None),
            "mlp",
        );
        let shape = fold::Shape { d, slices };
        let workgroup = self.workgroup("fold", WORKGROUP);
        let lanes = self
            .tuning
            .fold_lanes
            .clamp(1, slices.next_power_of_two())
            .min(workgroup);
        let geometry = fold::Geometry { workgroup, lanes };
        self.stage(
            Some(layer),
            "fold",
            "",
            fold::workgroups(&shape, &geometry, &self.limits()),
            fold::overrides(&shape, &geometry),
            &[partial, residual],
        )
    }

    fn mlp_geometry(&mut self, slice: u32) -> mlp_q4::Geometry {
        let workgroup = self.workgroup("mlp", self.tuning.mlp_workgroup);
        // Enough rows at a time to give every team work, and no more.
        let lanes = self.tuning.expected_subgroup_size.min(workgroup);
        let teams = workgroup / self.lanes(lanes, workgroup);
        mlp_q4::Geometry {
            workgroup,
            lanes,
            rows: 1 << (slice / teams).clamp(1, 4).ilog2(),
            slice,
            tile_blocks: self
                .tile_blocks(self.shape.hidden, workgroup)
                .max(slice / BLOCK),
        }
    }

    /// Slices of the F columns: what was tuned, or the next smaller number that cuts F into whole blocks evenly.
    fn mlp_slices(&mut self) -> u32 {
        let blocks = self.shape.ffn / BLOCK;
        let tuned = self.tuning.mlp_slices.clamp(1, blocks);
        let even = (1..=tuned)
            .rev()
            .find(|slices| blocks.is_multiple_of(*slices))
            .unwrap_or(1);
        if even != self.tuning.mlp_slices {
            self.decide(format!(
                "mlp: {} slices replaced by {even}, which cuts {blocks} blocks evenly",
                self.tuning.mlp_slices
            ));
        }
        even
    }
}
