//! Grouped-query attention: norm, q k v, head norms and rotary, split softmax over the cache, merge, out-projection.

use monarch_kernels::{attention_decode, attention_merge, qk_norm_rope, rope_attention_decode};
use monarch_manifest::{Matrix, Vector};

use super::Builder;
use super::matvec::Matvec;
use crate::buffers::{Activation, BufferId, VectorId};
use crate::error::RuntimeError;

/// Positions below which another split of the cache is not worth its dispatch.
const MIN_SPLIT_TOKENS: u32 = 32;
const WORKGROUP: u32 = 64;

impl Builder<'_> {
    pub(super) fn attention(&mut self, layer: u32) -> Result<(), RuntimeError> {
        let (heads, kv_heads, head_dim) =
            (self.shape.heads, self.shape.kv_heads, self.shape.head_dim);
        let residual = self.activation(Activation::Residual, self.shape.hidden);
        let qkv = self.activation(Activation::Qkv, (heads + 2 * kv_heads) * head_dim);
        let splits = self.attention_splits();
        let partial = self.activation(
            Activation::AttentionPartial,
            heads * splits * (head_dim + 2),
        );
        let mixed = self.activation(Activation::Mixed, heads * head_dim);
        let (keys, values) = (BufferId::Keys(layer), BufferId::Values(layer));
        for cache in [keys, values] {
            self.reserve(
                cache,
                u64::from(self.context_tokens) * u64::from(kv_heads * head_dim) * 4,
            );
        }
        let rope = self.rope();
        let qk_norm = self.vector(
            Some(layer),
            VectorId::QkNorm,
            &[Vector::QNorm, Vector::KNorm]
                .map(|norm| (norm.section(Some(layer)), u64::from(head_dim))),
        );

        let (x, norm) =
            self.operator_norm(layer, residual, VectorId::OperatorNorm, Vector::AttnNorm)?;
        self.matvec(&Matvec {
            layer: Some(layer),
            matrix: Matrix::AttnQkv,
            what: "qkv",
            x,
            norm,
            y: qkv,
            accumulate: false,
        })?;

        let workgroup = self.workgroup(
            "attention",
            WORKGROUP.max((head_dim / 4).next_power_of_two()),
        );
        if self.is_seed {
            let shape = rope_attention_decode::Shape {
                heads,
                kv_heads,
                head_dim,
                eps: self.shape.norm_eps,
            };
            let geometry = rope_attention_decode::Geometry { splits, workgroup };
            self.stage(
                Some(layer),
                "rope_attention_decode",
                "",
                rope_attention_decode::workgroups(&shape, &geometry, &self.limits()),
                rope_attention_decode::overrides(&shape, &geometry),
                &[qkv, qk_norm, rope, BufferId::State, keys, values, partial],
            )?;
        } else {
            let query = self.activation(Activation::Query, heads * head_dim);
            let shape = qk_norm_rope::Shape {
                heads,
                kv_heads,
                head_dim,
                eps: self.shape.norm_eps,
            };
            let geometry = qk_norm_rope::Geometry { workgroup };
            self.stage(
                Some(layer),
                "qk_norm_rope",
                "",
                qk_norm_rope::workgroups(&shape, &geometry, &self.limits()),
                qk_norm_rope::overrides(&shape, &geometry),
                &[qkv, qk_norm, rope, BufferId::State, query, keys, values],
            )?;
            let shape = attention_decode::Shape {
                heads,
                kv_heads,
                head_dim,
            };
            let geometry = attention_decode::Geometry { splits, workgroup };
            self.stage(
                Some(layer),
                "attention_decode",
                "",
                attention_decode::workgroups(&shape, &geometry, &self.limits()),
                attention_decode::overrides(&shape, &geometry),
                &[query, keys, values, BufferId::State, partial],
            )?;
        }

        let shape = attention_merge::Shape { heads, head_dim };
        let geometry = attention_merge::Geometry { splits, workgroup };
        self.stage(
            Some(layer),
            "attention_merge",
            "",
            attention_merge::workgroups(&shape, &geometry, &self.limits()),
            attention_merge::overrides(&shape, &geometry),
            &[partial, mixed],
        )?;
        self.matvec(&Matvec {
            layer: Some(layer),
            matrix: Matrix::AttnOProj,
            what: "o_proj",
            x: mixed,
            norm: None,
            y: residual,
            accumulate: true,
        })
    }

    /// Splits of the cache: what was tuned, but no more than a full context keeps busy.
    fn attention_splits(&mut self) -> u32 {
        let planned = self.tuning.plan_context_tokens.min(self.context_tokens);
        let tuned = self.tuning.attention_splits_for(planned);
        let useful = self.context_tokens.div_ceil(MIN_SPLIT_TOKENS).max(1);
        if useful < tuned {
            self.decide(format!(
                "attention: {tuned} splits replaced by {useful}, enough for {} positions",
                self.context_tokens
            ));
        }
        tuned.clamp(1, useful)
    }
}
