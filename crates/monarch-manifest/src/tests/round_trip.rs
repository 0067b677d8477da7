//! Whatever is valid survives being written and read.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::documents::{full, lay_out};
use crate::words::Word;
use crate::{
    ContextSplits, Dequantise, F16Products, Format, Geometry, Manifest, ManifestError, Matrix,
    Matvec, ModelSpec, Section, SelfTest, Shape, Source, TextUrls, Tuning, parse,
};

fn any_word<W: Word + std::fmt::Debug>() -> impl Strategy<Value = W> {
    select(W::WORDS).prop_map(|(_, value)| value)
}

fn any_positive_f32() -> impl Strategy<Value = f32> {
    (1u32..f32::INFINITY.to_bits()).prop_map(f32::from_bits)
}

prop_compose! {
    fn any_shape()(
        layers in vec(any_word(), 1..5),
        (hidden_blocks, ffn_blocks) in (1u32..4, 1u32..6),
        vocab in 1u32..300,
        (kv_heads, group, head_dim) in (1u32..4, 1u32..4, select(&[32u32, 64, 96])),
        conv_window in 2u32..6,
        norm_eps in prop_oneof![Just(1e-5), any_positive_f32()],
        rope_theta in prop_oneof![Just(1e6), any_positive_f32()],
        (conv_bias, tied_embedding) in any::<(bool, bool)>(),
        scale_type in any_word(),
    ) -> Shape {
        Shape {
            layers,
            hidden: 32 * hidden_blocks,
            ffn: 32 * ffn_blocks,
            vocab,
            heads: kv_heads * group,
            kv_heads,
            head_dim,
            conv_window,
            norm_eps,
            rope_theta,
            conv_bias,
            tied_embedding,
            scale_type,
        }
    }
}

prop_compose! {
    fn any_spec()(
        shape in any_shape(),
        align_bytes in select(&[4u64, 16, 256]),
        (k_major, zero_points) in any::<(bool, bool)>(),
        rope_positions in option::of((1u32..50, option::of(0u32..50))),
        digest in option::of(any::<u8>()),
        weights_url in ".{1,20}",
        spare_tokens in 0u32..3,
        urls in option::of(any::<[Option<bool>; 4]>()),
        ids in option::of((vec(0u32..u32::MAX, 1..4), vec(0u32..u32::MAX, 1..4))),
        source in option::of(any::<[Option<String>; 4]>()),
    ) -> ModelSpec {
        let wanted = |name: &str| if name.contains(".k") { k_major } else { zero_points };
        let (mut sections, mut weight_bytes) = lay_out(&shape, align_bytes, wanted);
        let (base, more) = rope_positions.unwrap_or((40, None));
        let positions = base + more.unwrap_or(0);
        let mut push_table = |name: &str, positions: u32| {
            let bytes = shape.rope_row_bytes() * u64::from(positions);
            let offset_bytes = weight_bytes.next_multiple_of(align_bytes);
            weight_bytes = offset_bytes + bytes;
            sections.push(Section { name: name.to_owned(), offset_bytes, bytes, sha256: None });
        };
        if rope_positions.is_some() {
            push_table("rope.cos", base);
            push_table("rope.sin", base);
        }
        if more.is_some() {
            push_table("rope.sin_ext", positions);
            push_table("rope.cos_ext", positions);
        }
        for section in &mut sections {
            // Equal bytes have equal digests.
            let offset = section.offset_bytes.to_le_bytes();
            section.sha256 = digest.map(|byte| std::array::from_fn(|i| byte ^ offset[i % 8]));
        }
        let [a, b, c, d] = urls.unwrap_or_default().map(|url| url.map(|at| format!("at {at}")));
        let within = |ids: Vec<u32>| ids.into_iter().map(|id| id % shape.vocab).collect();
        ModelSpec {
            weights_url,
            weight_bytes,
            sections,
            rope_table_positions: positions,
            context_tokens: positions.saturating_sub(spare_tokens).max(1),
            text: TextUrls { tokenizer: a, tokenizer_config: b, chat_template: c, generation_config: d },
            self_test: ids
                .filter(|(prompt, next)| prompt.len() + next.len() + 2 < positions as usize)
                .map(|(prompt, next)| SelfTest {
                    prompt_ids: within(prompt),
                    continuation_ids: within(next),
                }),
            source: source.map(|[repository, revision, licence, quantiser]| Source {
                repository,
                revision,
                licence,
                quantiser,
            }),
            shape,
        }
    }
}

prop_compose! {
    fn any_geometry()(
        subgroup_size in select(&[4u32, 8, 16, 32, 64]),
        subgroups_per_row in 1u32..3,
        rows_of_subgroups in 1u32..4,
        rows_per_subgroup in 1u32..9,
    ) -> Geometry {
        Geometry {
            workgroup: subgroup_size * subgroups_per_row * rows_of_subgroups,
            subgroup_size,
            rows_per_subgroup,
            subgroups_per_row,
        }
    }
}

fn any_matvec() -> impl Strategy<Value = Matvec> {
    (any_geometry(), any_word::<Dequantise>()).prop_map(|(geometry, dequantise)| Matvec {
        geometry,
        dequantise,
    })
}

prop_compose! {
    fn any_tuning(shape: &Shape)(
        name in ".*",
        counts in [1u32..1000, 1..1000, 1..1000, 1..1000],
        matvecs in btree_map(any_word::<Matrix>(), any_matvec(), 0..4),
        order in subsequence(Matrix::WORDS, 0..=Matrix::WORDS.len()).prop_shuffle(),
        geometry in any_geometry(),
        flags in any::<[bool; 5]>(),
        reductions in (any_word(), any_word(), any_word(), any_word()),
        half in (any_word::<F16Products>(), any_word::<F16Products>()),
        fixed_splits in option::of(1u32..65),
        splits_by_context in btree_map(1u32..9999, 1u32..65, 1..4),
        slices in 1..=shape.ffn / 32,
        (padding, lanes_log2, subgroup_log2) in (0u32..9, 0u32..8, 2u32..8),
        features in subsequence(
            crate::Feature::WORDS,
            0..=crate::Feature::WORDS.len(),
        ).prop_shuffle(),
        (fallback_dequantise, power_preference) in (any_word(), any_word()),
    ) -> Tuning {
        Tuning {
            name,
            tokens_per_pass: counts[0],
            plan_context_tokens: counts[1],
            choice_partials: counts[2],
            matvecs,
            fallback_geometries: order.into_iter().map(|(_, matrix)| (matrix, geometry)).collect(),
            fallback_dequantise,
            attention_split: flags[0],
            attention_reduction: reductions.0,
            attention_online_softmax: flags[1],
            attention_splits: fixed_splits,
            attention_splits_by_context: splits_by_context
                .into_iter()
                .map(|(context_tokens, splits)| ContextSplits { context_tokens, splits })
                .collect(),
            mlp_reduction: reductions.1,
            mlp_slices: slices,
            mlp_workgroup: counts[3],
            mlp_paired_rows: flags[2],
            mlp_dot_f16: half.0,
            mlp_product_f16: half.1,
            fold_lanes: 1 << lanes_log2,
            fold_reduction: reductions.2,
            norm_reduction: reductions.3,
            fuse_conv: flags[3],
            plain_plan: flags[4],
            tile_padding_elems: padding,
            extra_features: features.into_iter().map(|(_, feature)| feature).collect(),
            power_preference,
            expected_subgroup_size: 1 << subgroup_log2,
        }
    }
}

fn any_manifest() -> impl Strategy<Value = Manifest> {
    any_spec().prop_flat_map(|spec| {
        let tuning = prop_oneof![
            Just(Tuning::default_for(&spec.shape)),
            any_tuning(&spec.shape)
        ];
        (option::of(any_word::<Format>()), Just(spec), tuning).prop_map(|(format, spec, tuning)| {
            Manifest {
                format,
                spec,
                tuning,
            }
        })
    })
}

proptest! {
    #[test]
    fn what_is_rendered_parses_to_the_same_value(manifest in any_manifest()) {
        prop_assert!(manifest.validate().is_ok(), "{:?}", manifest.validate());
        let text = manifest.render();
        prop_assert_eq!(parse(&text).map_err(|e| e.to_string()), Ok(manifest));
    }
}

#[test]
fn the_full_document_round_trips() {
    let manifest = full();
    assert_eq!(parse(&manifest.render()).expect("valid"), manifest);
}

#[test]
fn a_default_tuning_is_left_out_and_comes_back() {
    let mut manifest = full();
    manifest.tuning = Tuning::default_for(&manifest.spec.shape);
    let text = manifest.render();
    assert!(!text.contains("candidate") && !text.contains("knee"));
    assert_eq!(parse(&text).expect("valid"), manifest);
}

#[test]
fn a_document_without_a_format_states_its_tuning() {
    let mut manifest = full();
    manifest.tuning = Tuning::default_for(&manifest.spec.shape);
    manifest.format = None;
    let text = manifest.render();
    assert!(text.contains("candidate") && text.contains("knee"));
    assert_eq!(parse(&text).expect("valid"), manifest);
}

#[test]
fn a_tuning_for_the_embedding_is_refused_before_it_is_rendered() {
    let mut manifest = full();
    let tuned = manifest.tuning.matvec(Matrix::AttnQkv);
    manifest.tuning.matvecs.insert(Matrix::Embed, tuned);
    let error = manifest.validate().expect_err("no matrix-vector product");
    assert!(matches!(error, ManifestError::UnknownWord { found, .. } if found == "embed"));
}

#[test]
fn default_tuning_is_valid_for_odd_shapes() {
    for (ffn, slices) in [
        (32, 1),
        (352, 11),
        (160, 5),
        (256, 8),
        (2560, 40),
        (32 * 41, 1),
    ] {
        let mut manifest = full();
        manifest.spec.shape.ffn = ffn;
        manifest.spec.shape.vocab = 5;
        manifest.spec.self_test = None;
        let shape = &manifest.spec.shape;
        let (sections, weight_bytes) = lay_out(shape, 4, |_| false);
        let tuning = Tuning::default_for(shape);
        assert_eq!((tuning.mlp_slices, tuning.choice_partials), (slices, 5));
        manifest.spec.sections = sections;
        manifest.spec.weight_bytes = weight_bytes;
        manifest.tuning = tuning;
        manifest.validate().expect("valid");
    }
}

#[test]
fn splits_are_fixed_or_by_context() {
    let mut tuning = full().tuning;
    assert_eq!(tuning.attention_splits_for(100), 1);
    tuning.attention_split = true;
    assert_eq!(tuning.attention_splits_for(100), 3);
    tuning.attention_splits = None;
    let splits = [1, 100, 101, 500, 501].map(|context| tuning.attention_splits_for(context));
    assert_eq!(splits, [2, 2, 5, 5, 5]);
}
