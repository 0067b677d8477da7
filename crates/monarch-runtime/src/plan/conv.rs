//! The gated short convolution: norm, in-projection to B, C and x, convolution over B * x, gate C, out-projection.

use monarch_kernels::{conv_in_proj_q4, short_conv};
use monarch_manifest::{Matrix, Piece, Vector};

use super::Builder;
use super::matvec::Matvec;
use crate::buffers::{Activation, BufferId, VectorId};
use crate::error::RuntimeError;

const WORKGROUP: u32 = 128;

impl Builder<'_> {
    pub(super) fn conv(&mut self, layer: u32) -> Result<(), RuntimeError> {
        let hidden = self.shape.hidden;
        let residual = self.activation(Activation::Residual, hidden);
        let mixed = self.activation(Activation::Mixed, hidden);
        let state = BufferId::ConvState(layer);
        self.reserve(
            state,
            u64::from((self.shape.conv_window - 1).max(1) * hidden) * 4,
        );
        if self.is_seed && self.tuning.fuse_conv && self.can_fuse_conv(layer) {
            self.conv_in_proj_fused(layer, residual, state, mixed)?;
        } else {
            self.conv_in_proj_plain(layer, residual, state, mixed)?;
        }
        self.matvec(&Matvec {
            layer: Some(layer),
            matrix: Matrix::ConvOutProj,
            what: "conv_out_proj",
            x: mixed,
            norm: None,
            y: residual,
            accumulate: true,
        })
    }

    /// The fused kernel reads one chunk of symmetric codes.
    fn can_fuse_conv(&mut self, layer: u32) -> bool {
        let is_whole = self.row_chunks(Matrix::ConvInProj).len() == 1;
        let is_symmetric = !self.has_piece(Some(layer), Matrix::ConvInProj, Piece::ZeroPoints);
        if !is_whole {
            self.decide(
                "conv: in_proj is larger than a binding, so its steps are separate".to_owned(),
            );
        }
        if !is_symmetric {
            self.decide("conv: in_proj has zero points, so its steps are separate".to_owned());
        }
        is_whole && is_symmetric
    }

    fn taps(&mut self, layer: u32) -> BufferId {
        self.norm(Some(layer), VectorId::ConvTaps, Vector::ConvTaps)
    }

    fn conv_in_proj_plain(
        &mut self,
        layer: u32,
        residual: BufferId,
        state: BufferId,
        mixed: BufferId,
    ) -> Result<(), RuntimeError> {
        let hidden = self.shape.hidden;
        let (x, norm) = self.operator_norm(
            layer,
            residual,
            VectorId::OperatorNorm,
            Vector::ConvInProjNorm,
        )?;
        let gates = self.activation(Activation::Gates, 3 * hidden);
        self.matvec(&Matvec {
            layer: Some(layer),
            matrix: Matrix::ConvInProj,
            what: "conv_in_proj",
            x,
            norm,
            y: gates,
            accumulate: false,
        })?;
        let taps = self.taps(layer);
        let bias = if self.shape.conv_bias {
            self.norm(Some(layer), VectorId::ConvBias, Vector::ConvBias)
        } else {
            BufferId::Nothing
        };
        let shape = short_conv::Shape {
            h: hidden,
            l: self.shape.conv_window,
            has_bias: self.shape.conv_bias,
        };
        let geometry = short_conv::Geometry {
            workgroup: self.workgroup("short_conv", WORKGROUP),
        };
        self.stage(
            Some(layer),
            "short_conv",
            "",
            short_conv::workgroups(&shape, &geometry, &self.limits()),
            short_conv::overrides(&shape, &geometry),
            &[gates, taps, bias, state, mixed],
        )
    }

    fn conv_in_proj_fused(
        &mut self,
        layer: u32,
        residual: BufferId,
        state: BufferId,
        mixed: BufferId,
    ) -> Result<(), RuntimeError> {
        let matrix = Matrix::ConvInProj;
        let norm = self.norm(Some(layer), VectorId::OperatorNorm, Vector::ConvInProjNorm);
        let [codes, scales, _] = self.matrix_rows(Some(layer), matrix, 0);
        let taps = self.taps(layer);
        let biases = if self.shape.conv_bias {
            let in_proj = matrix.section(Some(layer), Piece::Bias);
            let conv = Vector::ConvBias.section(Some(layer));
            let hidden = u64::from(self.shape.hidden);
            self.vector(
                Some(layer),
                VectorId::ConvInProjBiases,
                &[(in_proj, 3 * hidden), (conv, hidden)],
            )
        } else {
            BufferId::Nothing
        };
        let shape = conv_in_proj_q4::Shape {
            h: self.shape.hidden,
            l: self.shape.conv_window,
            eps: self.shape.norm_eps,
            has_bias: self.shape.conv_bias,
            scales_f16: self.scales_f16(),
        };
        // The kernel counts channels, three rows each: those of B, C and x.
        let tuned = self.tuning.matvec(matrix).geometry.rows_per_subgroup;
        let channels = 1 << (tuned / 3).clamp(1, 4).ilog2();
        let geometry = self.geometry(matrix, "conv_in_proj", channels);
        self.stage(
            Some(layer),
            "conv_in_proj_q4",
            "",
            conv_in_proj_q4::workgroups(&shape, &geometry, &self.limits()),
            conv_in_proj_q4::overrides(&shape, &geometry),
            &[residual, norm, codes, scales, taps, biases, state, mixed],
        )?;
        self.matvec_in_f16(matrix, "conv_in_proj");
        Ok(())
    }
}
