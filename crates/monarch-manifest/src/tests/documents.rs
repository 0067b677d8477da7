//! Manifests to start from, and the comparator: an accepted document is rendered back whole.

use serde_json::{Value, json};

use crate::{
    ContextSplits, Dequantise, F16Products, Feature, Format, Geometry, LayerKind, Manifest, Matrix,
    Matvec, ModelSpec, PowerPreference, Reduction, ScaleType, Section, SelfTest, Shape, Source,
    TextUrls, Tuning,
};

/// The public description of another engine for the 230M model, unchanged.
pub(super) const SEED: &str = include_str!("../../../../tests/golden/seed/manifest.json");

pub(super) fn seed_json() -> Value {
    serde_json::from_str(SEED).expect("the seed is JSON")
}

/// A small model with biases, its own embedding and f16 scales.
pub(super) fn small_shape() -> Shape {
    Shape {
        layers: vec![LayerKind::Conv, LayerKind::Attention, LayerKind::Conv],
        hidden: 96,
        ffn: 160,
        vocab: 777,
        heads: 6,
        kv_heads: 2,
        head_dim: 16,
        conv_window: 4,
        norm_eps: 3e-6,
        rope_theta: 5e5,
        conv_bias: true,
        tied_embedding: false,
        scale_type: ScaleType::F16,
    }
}

/// Sections for a shape one after the other, tied ones at the same place.
///
/// `wanted` decides about the optional ones by their name. Offsets are multiples of `align_bytes`.
pub(super) fn lay_out(
    shape: &Shape,
    align_bytes: u64,
    wanted: impl Fn(&str) -> bool,
) -> (Vec<Section>, u64) {
    let mut sections: Vec<Section> = Vec::new();
    let mut end_bytes = 0u64;
    for expected in shape.section_sizes() {
        if expected.optional && !wanted(&expected.name) {
            continue;
        }
        let head = expected.name.replace("embed.", "head.");
        let tied = sections
            .iter()
            .find(|section| shape.tied_embedding && section.name == head);
        let offset_bytes = match tied {
            Some(head) => head.offset_bytes,
            None => end_bytes.next_multiple_of(align_bytes),
        };
        end_bytes = end_bytes.max(offset_bytes + expected.bytes);
        sections.push(Section {
            name: expected.name,
            offset_bytes,
            bytes: expected.bytes,
            sha256: None,
        });
    }
    (sections, end_bytes)
}

/// A manifest in which every field of the schema says something else than its default.
pub(super) fn full() -> Manifest {
    let shape = small_shape();
    let (mut sections, weight_bytes) = lay_out(&shape, 256, |_| true);
    for (byte, section) in (0u8..=255).cycle().zip(&mut sections) {
        section.sha256 = Some([byte; 32]);
    }
    let text = |name: &str| Some(format!("text/{name}"));
    let ids = |ids: &[u32]| ids.to_vec();
    let geometry = Geometry {
        workgroup: 64,
        subgroup_size: 16,
        rows_per_subgroup: 3,
        subgroups_per_row: 2,
    };
    Manifest {
        format: Some(Format::V1),
        spec: ModelSpec {
            weights_url: "https://example.org/model/weights.bin?v=2#x".to_owned(),
            weight_bytes,
            sections,
            rope_table_positions: 512,
            context_tokens: 500,
            text: TextUrls {
                tokenizer: text("tokenizer.json"),
                tokenizer_config: text("tokenizer_config.json"),
                chat_template: text("chat_template.jinja"),
                generation_config: text("generation_config.json"),
            },
            self_test: Some(SelfTest {
                prompt_ids: ids(&[1, 2, 776]),
                continuation_ids: ids(&[0, 5]),
            }),
            source: Some(Source {
                repository: Some("example/small".to_owned()),
                revision: Some("0123abc".to_owned()),
                licence: Some("MIT".to_owned()),
                quantiser: Some("round to nearest".to_owned()),
            }),
            shape,
        },
        tuning: Tuning {
            name: "small \"one\"".to_owned(),
            tokens_per_pass: 7,
            plan_context_tokens: 300,
            choice_partials: 12,
            matvecs: [(
                Matrix::AttnQkv,
                Matvec {
                    geometry,
                    dequantise: Dequantise::PerWord,
                },
            )]
            .into(),
            fallback_geometries: vec![(Matrix::MlpDown, geometry), (Matrix::Head, geometry)],
            fallback_dequantise: Dequantise::PerWord,
            attention_split: false,
            attention_reduction: Reduction::Workgroup,
            attention_online_softmax: false,
            attention_splits: Some(3),
            attention_splits_by_context: vec![
                ContextSplits {
                    context_tokens: 100,
                    splits: 2,
                },
                ContextSplits {
                    context_tokens: 500,
                    splits: 5,
                },
            ],
            mlp_reduction: Reduction::Workgroup,
            mlp_slices: 5,
            mlp_workgroup: 192,
            mlp_paired_rows: false,
            mlp_dot_f16: F16Products::Both,
            mlp_product_f16: F16Products::Gate,
            fold_lanes: 8,
            fold_reduction: Reduction::Workgroup,
            norm_reduction: Reduction::Workgroup,
            fuse_conv: false,
            plain_plan: true,
            tile_padding_elems: 4,
            extra_features: vec![Feature::Subgroups],
            power_preference: PowerPreference::LowPower,
            expected_subgroup_size: 64,
        },
    }
}

pub(super) fn full_json() -> Value {
    serde_json::from_str(&full().render()).expect("rendered text is JSON")
}

/// The comparator of every test about silence: does `manifest`, parsed from `document`, still say
/// everything that the document says?
pub(super) fn says_the_same(document: &Value, manifest: &Manifest) -> bool {
    let rendered: Value = serde_json::from_str(&manifest.render()).expect("rendered text is JSON");
    by_contract(document.clone()) == by_contract(rendered)
}

/// The document in one spelling, where the schema has several for the same meaning.
fn by_contract(mut document: Value) -> Value {
    if let Some(shape) = document.pointer_mut("/runtime/shape") {
        // Optional fields that state their default say nothing.
        let defaults = [
            ("normEps", json!(1e-5)),
            ("ropeTheta", json!(1e6)),
            ("convBias", json!(false)),
            ("tiedEmbedding", json!(true)),
            ("scaleType", json!("f32")),
        ];
        for (name, default) in defaults {
            let Some(value) = shape.get_mut(name) else {
                continue;
            };
            // 32-bit floats: 1000000 and 1e6 are the same, and so are digits beyond the eighth.
            if let (true, Some(number)) = (default.is_f64(), value.as_f64()) {
                *value = json!(number as f32);
            }
            let narrow = |value: &Value| value.as_f64().map(|number| number as f32);
            if *value == default || default.is_f64() && narrow(value) == narrow(&default) {
                shape.as_object_mut().expect("has fields").remove(name);
            }
        }
        // The checkpoint's word for the seed's.
        if let Some(Value::Array(layers)) = shape.get_mut("layerTypes") {
            for layer in layers
                .iter_mut()
                .filter(|layer| **layer == "full_attention")
            {
                *layer = json!("attention");
            }
        }
    }
    if let Some(Value::Object(runtime)) = document.get_mut("runtime")
        && runtime.get("text") == Some(&json!({}))
    {
        runtime.remove("text");
    }
    document
}

#[test]
fn the_comparator_notices_one_changed_number() {
    let manifest = crate::parse(SEED).expect("the seed is valid");
    let mut document = seed_json();
    assert!(says_the_same(&document, &manifest));
    document["candidate"]["foldLanes"] = json!(17);
    assert!(!says_the_same(&document, &manifest));
}

#[test]
fn the_comparator_notices_one_ignored_field() {
    let manifest = crate::parse(SEED).expect("the seed is valid");
    let mut document = seed_json();
    document["candidate"]["foldLane"] = json!(16);
    assert!(!says_the_same(&document, &manifest));
}

#[test]
fn the_comparator_notices_a_default_that_was_not_meant() {
    let manifest = crate::parse(SEED).expect("the seed is valid");
    let mut document = seed_json();
    document["runtime"]["shape"]["normEps"] = json!(1e-6);
    assert!(!says_the_same(&document, &manifest));
}

#[test]
fn the_full_document_leaves_no_field_at_its_default() {
    let manifest = full();
    manifest.validate().expect("valid");
    let text = manifest.render();
    for field in [
        "format",
        "normEps",
        "ropeTheta",
        "convBias",
        "tiedEmbedding",
        "scaleType",
        "sha256",
        "text",
        "selfTest",
        "candidate",
        "source",
    ] {
        assert!(text.contains(&format!("\"{field}\"")), "{field}");
    }
}

#[test]
fn sizes_of_a_small_shape_by_hand() {
    // H 96, F 160, V 777, six query heads and two for keys and values of 16, window 4, f16 scales:
    // no size is a power of two, and K = 96 and 160 leave half a byte of zero points unused.
    let sections = small_shape().section_sizes();
    for (name, bytes, optional) in [
        ("L0.conv.in_proj.norm", 96 * 4, false),
        ("L0.conv.in_proj.quant", 288 * 48, false),
        ("L0.conv.in_proj.scales", 288 * 3 * 2, false),
        ("L0.conv.in_proj.zero_points", 288 * 2, true),
        ("L0.conv.in_proj.bias", 288 * 4, false),
        ("L0.conv.core.taps", 96 * 4 * 4, false),
        ("L0.conv.core.bias", 96 * 4, false),
        ("L2.conv.out_proj.quant", 96 * 48, false),
        ("L2.conv.out_proj.bias", 96 * 4, false),
        ("L1.attn.qkv.norm", 96 * 4, false),
        ("L1.attn.qkv.quant", 160 * 48, false),
        ("L1.attn.qkv.q_norm", 16 * 4, false),
        ("L1.attn.qkv.k_norm", 16 * 4, false),
        ("L1.attn.o_proj.scales", 96 * 3 * 2, false),
        ("L1.mlp.gate_up.norm", 96 * 4, false),
        ("L1.mlp.gate_up.quant", 320 * 48, false),
        ("L1.mlp.down.quant", 96 * 80, false),
        ("L1.mlp.down.scales", 96 * 5 * 2, false),
        ("L1.mlp.down.zero_points", 96 * 3, true),
        ("L1.mlp.down.kquant", 96 * 80, true),
        ("L1.mlp.down.kscales", 96 * 5 * 2, true),
        ("head.norm", 96 * 4, false),
        ("head.quant", 777 * 48, false),
        ("embed.scales", 777 * 3 * 2, false),
        ("embed.zero_points", 777 * 2, false),
    ] {
        let found = sections.iter().find(|section| section.name == name);
        let found = found.map(|section| (section.bytes, section.optional));
        assert_eq!(found, Some((bytes, optional)), "{name}");
    }
    // Twice a conv operator with 11 sections, once attention with 9, thrice an MLP with 9, then
    // the final norm, head and embedding.
    assert_eq!(sections.len(), 2 * 11 + 9 + 3 * 9 + 1 + 3 + 3);
    assert_eq!(small_shape().rope_row_bytes(), 8 * 4);
}
