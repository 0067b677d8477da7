//! The file as it is written, field by field in the seed's order.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use crate::parse::{CODE_BITS, DEFAULT_NORM_EPS, DEFAULT_ROPE_THETA};
use crate::section::Section;
use crate::spec::{BLOCK, Manifest, ModelSpec, ScaleType, Shape};
use crate::tuning::{Geometry, Reduction, Tuning};
use crate::words::Word;

impl Manifest {
    /// The manifest as JSON text in the seed's schema; [`parse`](crate::parse) gives it back.
    ///
    /// Fields that state their default are left out, and so is the tuning as a whole when a
    /// manifest that names its format has nothing but defaults: a later engine may know better
    /// ones.
    ///
    /// # Panics
    ///
    /// When the tuning names [`Matrix::Embed`](crate::Matrix::Embed), which
    /// [`Self::validate`] refuses.
    pub fn render(&self) -> String {
        let (spec, shape) = (&self.spec, &self.spec.shape);
        let untuned = self.format.is_some() && self.tuning == Tuning::default_for(shape);
        let tuning = (!untuned).then_some(&self.tuning);
        let document = RawManifest {
            format: self.format.map(Word::word),
            runtime: RawRuntime {
                shape: raw_shape(shape),
                weights_url: &spec.weights_url,
                weight_bytes: spec.weight_bytes,
                sections: spec.sections.iter().map(raw_section).collect(),
                max_positions: spec.rope_table_positions,
                max_total_positions: spec.context_tokens,
                text: raw_text(spec),
                self_test: spec.self_test.as_ref().map(|test| RawSelfTest {
                    prompt_ids: &test.prompt_ids,
                    continuation_ids: &test.continuation_ids,
                }),
                tuning: tuning.map(raw_runtime_tuning),
            },
            candidate: tuning.map(raw_candidate),
            source: spec.source.as_ref().map(|source| RawSource {
                repository: source.repository.as_deref(),
                revision: source.revision.as_deref(),
                licence: source.licence.as_deref(),
                quantiser: source.quantiser.as_deref(),
            }),
        };
        let mut text = serde_json::to_string_pretty(&document).expect("plain data becomes JSON");
        text.push('\n');
        text
    }
}

impl Shape {
    /// The shape as `runtime.shape` of the schema, for programs that print it.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(raw_shape(self)).expect("plain data becomes JSON")
    }
}

#[derive(Serialize)]
struct RawManifest<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<&'a str>,
    runtime: RawRuntime<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    candidate: Option<RawCandidate<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<RawSource<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RawRuntime<'a> {
    shape: RawShape,
    weights_url: &'a str,
    weight_bytes: u64,
    sections: Vec<RawSection<'a>>,
    max_positions: u32,
    max_total_positions: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<RawText<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    self_test: Option<RawSelfTest<'a>>,
    #[serde(flatten)]
    tuning: Option<RawRuntimeTuning>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RawShape {
    layer_types: Vec<&'static str>,
    hidden: u32,
    ffn: u32,
    vocab: u32,
    heads: u32,
    kv_heads: u32,
    head_dim: u32,
    conv_cache: u32,
    quant_bits: u32,
    quant_block: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    norm_eps: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rope_theta: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conv_bias: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tied_embedding: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scale_type: Option<&'static str>,
}

#[derive(Serialize)]
struct RawSection<'a> {
    name: &'a str,
    offset: u64,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RawText<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    tokenizer: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokenizer_config: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chat_template: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation_config: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RawSelfTest<'a> {
    prompt_ids: &'a [u32],
    continuation_ids: &'a [u32],
}

#[derive(Serialize)]
struct RawSource<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    repository: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    licence: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quantiser: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RawRuntimeTuning {
    max_queries: u32,
    sample_partials: u32,
    plan_position: u32,
    knee: Vec<RawKnee>,
    dequant_variant: &'static str,
    flash_optima: Vec<RawOptimum>,
    extra_features: Vec<&'static str>,
    power_preference: &'static str,
    expected_subgroup_size: u32,
}

#[derive(Serialize)]
struct RawKnee {
    shape: &'static str,
    geometry: RawGeometry,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RawGeometry {
    workgroup_size: u32,
    subgroup_size: u32,
    rows_per_subgroup: u32,
    subgroups_per_row: u32,
}

#[derive(Serialize)]
struct RawOptimum {
    positions: u32,
    blocks: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RawCandidate<'a> {
    key: &'a str,
    flash: bool,
    unfused: bool,
    padding: u32,
    flash_mode: &'static str,
    matvec: BTreeMap<&'static str, RawMatvec>,
    mlp_mode: &'static str,
    mlp_slices: u32,
    mlp_workgroup: u32,
    norm_subgroup: bool,
    conv_fuse: bool,
    flash_online: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    flash_blocks: Option<u32>,
    mlp_pair: bool,
    fold_lanes: u32,
    fold_subgroup: bool,
    mlp_half_dot: &'static str,
    mlp_half_product: &'static str,
}

#[derive(Serialize)]
struct RawMatvec {
    geometry: RawGeometry,
    variant: &'static str,
}

fn raw_shape(shape: &Shape) -> RawShape {
    RawShape {
        layer_types: shape.layers.iter().map(|kind| kind.word()).collect(),
        hidden: shape.hidden,
        ffn: shape.ffn,
        vocab: shape.vocab,
        heads: shape.heads,
        kv_heads: shape.kv_heads,
        head_dim: shape.head_dim,
        conv_cache: shape.conv_window,
        quant_bits: CODE_BITS,
        quant_block: BLOCK,
        norm_eps: (shape.norm_eps != DEFAULT_NORM_EPS).then(|| shortest(shape.norm_eps)),
        rope_theta: (shape.rope_theta != DEFAULT_ROPE_THETA).then(|| shortest(shape.rope_theta)),
        conv_bias: shape.conv_bias.then_some(true),
        tied_embedding: (!shape.tied_embedding).then_some(false),
        scale_type: (shape.scale_type != ScaleType::F32).then(|| shape.scale_type.word()),
    }
}

/// The f64 that prints like the f32, so that 1e-6 is written as 1e-6 and not with 17 digits.
fn shortest(value: f32) -> f64 {
    let short: f64 = format!("{value:e}")
        .parse()
        .expect("floats print as floats");
    // Rounding twice can miss by one unit in rare cases; then the exact value has to do.
    if short as f32 == value {
        short
    } else {
        f64::from(value)
    }
}

fn raw_section(section: &Section) -> RawSection<'_> {
    let hex = |digest: [u8; 32]| {
        digest.iter().fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").expect("a String takes every write");
            hex
        })
    };
    RawSection {
        name: &section.name,
        offset: section.offset_bytes,
        bytes: section.bytes,
        sha256: section.sha256.map(hex),
    }
}

fn raw_text(spec: &ModelSpec) -> Option<RawText<'_>> {
    let text = &spec.text;
    let raw = RawText {
        tokenizer: text.tokenizer.as_deref(),
        tokenizer_config: text.tokenizer_config.as_deref(),
        chat_template: text.chat_template.as_deref(),
        generation_config: text.generation_config.as_deref(),
    };
    (*text != Default::default()).then_some(raw)
}

fn raw_runtime_tuning(tuning: &Tuning) -> RawRuntimeTuning {
    RawRuntimeTuning {
        max_queries: tuning.tokens_per_pass,
        sample_partials: tuning.choice_partials,
        plan_position: tuning.plan_context_tokens,
        knee: tuning
            .fallback_geometries
            .iter()
            .map(|(matrix, geometry)| RawKnee {
                shape: matrix.word(),
                geometry: raw_geometry(geometry),
            })
            .collect(),
        dequant_variant: tuning.fallback_dequantise.word(),
        flash_optima: tuning
            .attention_splits_by_context
            .iter()
            .map(|entry| RawOptimum {
                positions: entry.context_tokens,
                blocks: entry.splits,
            })
            .collect(),
        extra_features: tuning.extra_features.iter().map(|f| f.word()).collect(),
        power_preference: tuning.power_preference.word(),
        expected_subgroup_size: tuning.expected_subgroup_size,
    }
}

fn raw_candidate(tuning: &Tuning) -> RawCandidate<'_> {
    RawCandidate {
        key: &tuning.name,
        flash: tuning.attention_split,
        unfused: tuning.plain_plan,
        padding: tuning.tile_padding_elems,
        flash_mode: tuning.attention_reduction.word(),
        matvec: tuning
            .matvecs
            .iter()
            .map(|(matrix, matvec)| {
                let raw = RawMatvec {
                    geometry: raw_geometry(&matvec.geometry),
                    variant: matvec.dequantise.word(),
                };
                (matrix.word(), raw)
            })
            .collect(),
        mlp_mode: tuning.mlp_reduction.word(),
        mlp_slices: tuning.mlp_slices,
        mlp_workgroup: tuning.mlp_workgroup,
        norm_subgroup: tuning.norm_reduction == Reduction::Subgroup,
        conv_fuse: tuning.fuse_conv,
        flash_online: tuning.attention_online_softmax,
        flash_blocks: tuning.attention_splits,
        mlp_pair: tuning.mlp_paired_rows,
        fold_lanes: tuning.fold_lanes,
        fold_subgroup: tuning.fold_reduction == Reduction::Subgroup,
        mlp_half_dot: tuning.mlp_dot_f16.word(),
        mlp_half_product: tuning.mlp_product_f16.word(),
    }
}

fn raw_geometry(geometry: &Geometry) -> RawGeometry {
    RawGeometry {
        workgroup_size: geometry.workgroup,
        subgroup_size: geometry.subgroup_size,
        rows_per_subgroup: geometry.rows_per_subgroup,
        subgroups_per_row: geometry.subgroups_per_row,
    }
}
