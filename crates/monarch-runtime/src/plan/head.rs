//! Residual stream → logits → token: final norm, head, choice in two stages.

use monarch_kernels::{advance, argmax_final, argmax_partial};
use monarch_manifest::{Matrix, Vector};

use super::Builder;
use super::matvec::Matvec;
use crate::buffers::{Activation, BufferId, VectorId};
use crate::error::RuntimeError;

const WORKGROUP: u32 = 256;

impl Builder<'_> {
    pub(super) fn head(&mut self) -> Result<(), RuntimeError> {
        let residual = self.activation(Activation::Residual, self.shape.hidden);
        let norm = self.norm(None, VectorId::FinalNorm, Vector::FinalNorm);
        let (x, norm) = if self.is_seed {
            (residual, Some(norm))
        } else {
            (self.rms_norm(None, residual, norm)?, None)
        };
        let v = self.shape.vocab;
        let logits = self.activation(Activation::Logits, v);
        self.matvec(&Matvec {
            layer: None,
            matrix: Matrix::Head,
            what: "head",
            x,
            norm,
            y: logits,
            accumulate: false,
        })?;

        // Every part needs at least one row.
        let parts = self.tuning.choice_partials.clamp(1, v);
        let partial = BufferId::Activation(Activation::ChoicePartial);
        self.reserve(partial, u64::from(parts) * 8);
        let workgroup = self.workgroup("argmax", WORKGROUP);
        let shape = argmax_partial::Shape { v };
        let geometry = argmax_partial::Geometry { parts, workgroup };
        self.stage(
            None,
            "argmax_partial",
            "",
            argmax_partial::workgroups(&shape, &geometry, &self.limits()),
            argmax_partial::overrides(&shape, &geometry),
            &[logits, BufferId::State, partial],
        )?;
        let geometry = argmax_final::Geometry { parts, workgroup };
        self.stage(
            None,
            "argmax_final",
            "",
            argmax_final::workgroups(&geometry, &self.limits()),
            argmax_final::overrides(&geometry),
            &[partial, BufferId::State, BufferId::Tokens],
        )
    }

    /// The end of a pass that chooses nothing.
    pub(super) fn advance(&mut self) -> Result<(), RuntimeError> {
        self.stage(
            None,
            "advance",
            "",
            Ok(advance::workgroups()),
            advance::overrides(),
            &[BufferId::State],
        )
    }
}
