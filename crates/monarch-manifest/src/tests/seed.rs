//! The seed, read unchanged.

use serde_json::Value;

use super::documents::{SEED, seed_json};
use crate::{
    BLOCK, ContextSplits, Dequantise, F16Products, Feature, Geometry, LayerKind, Manifest, Matrix,
    Piece, PowerPreference, Reduction, ScaleType, Vector, parse,
};

fn seed() -> Manifest {
    parse(SEED).expect("the seed is valid")
}

#[test]
fn shape_and_limits() {
    let Manifest { format, spec, .. } = seed();
    assert_eq!(format, None);
    let shape = &spec.shape;
    assert_eq!(shape.layers.len(), 14);
    let attention = (0..14).filter(|&layer| shape.layers[layer] == LayerKind::Attention);
    assert_eq!(attention.collect::<Vec<_>>(), [2, 4, 6, 8, 10, 12]);
    assert_eq!((shape.hidden, shape.ffn, shape.vocab), (1024, 2560, 65_536));
    assert_eq!((shape.heads, shape.kv_heads, shape.head_dim), (16, 8, 64));
    assert_eq!((shape.conv_window, BLOCK), (3, 32));
    // Not in the file: the contract's defaults.
    assert_eq!((shape.norm_eps, shape.rope_theta), (1e-5, 1e6));
    assert_eq!((shape.conv_bias, shape.tied_embedding), (false, true));
    assert_eq!(shape.scale_type, ScaleType::F32);

    assert_eq!(spec.weights_url, "/weights.bin");
    assert_eq!(spec.weight_bytes, 168_647_680);
    assert_eq!(spec.sections.len(), 199);
    assert_eq!(spec.sections[0].name, "L0.conv.in_proj.quant");
    assert_eq!(spec.sections[198].end_bytes(), spec.weight_bytes);
    assert_eq!(
        (spec.rope_table_positions, spec.context_tokens),
        (2560, 2112)
    );
    assert_eq!((spec.text, spec.self_test, spec.source), Default::default());
}

#[test]
fn tuning_in_the_words_of_the_field() {
    let tuning = seed().tuning;
    let geometry = |workgroup, rows_per_subgroup| Geometry {
        workgroup,
        subgroup_size: 32,
        rows_per_subgroup,
        subgroups_per_row: 1,
    };
    assert_eq!(tuning.name, "MIX_M40");
    assert_eq!(
        (tuning.tokens_per_pass, tuning.plan_context_tokens),
        (1, 1024)
    );
    assert_eq!(tuning.choice_partials, 256);

    let tuned = [
        (Matrix::ConvInProj, geometry(512, 6), Dequantise::PerCode),
        (Matrix::ConvOutProj, geometry(256, 1), Dequantise::PerWord),
        (Matrix::AttnQkv, geometry(512, 4), Dequantise::PerCode),
        (Matrix::AttnOProj, geometry(512, 1), Dequantise::PerWord),
        (Matrix::Head, geometry(256, 8), Dequantise::PerWord),
    ];
    assert_eq!(tuning.matvecs.len(), tuned.len());
    for (matrix, geometry, dequantise) in tuned {
        let matvec = tuning.matvec(matrix);
        assert_eq!((matvec.geometry, matvec.dequantise), (geometry, dequantise));
    }
    assert_eq!(tuning.fallback_geometries.len(), 6);
    assert_eq!(
        tuning.fallback_geometries[3],
        (Matrix::ConvInProj, geometry(128, 4))
    );
    // Only a fallback is listed for these two, and nothing at all for the last.
    assert_eq!(tuning.matvec(Matrix::MlpGateUp).geometry, geometry(128, 1));
    assert_eq!(
        tuning.matvec(Matrix::MlpDown).dequantise,
        Dequantise::PerCode
    );
    assert_eq!(tuning.matvec(Matrix::Embed).geometry, Geometry::PLAIN);

    assert!(tuning.attention_split && tuning.attention_online_softmax);
    assert_eq!(tuning.attention_reduction, Reduction::Subgroup);
    assert_eq!(tuning.attention_splits, Some(32));
    let optima = [192, 1024, 2048].map(|context_tokens| ContextSplits {
        context_tokens,
        splits: 16,
    });
    assert_eq!(tuning.attention_splits_by_context, optima);

    assert_eq!(tuning.mlp_reduction, Reduction::Subgroup);
    assert_eq!((tuning.mlp_slices, tuning.mlp_workgroup), (40, 1024));
    assert!(tuning.mlp_paired_rows);
    assert_eq!(tuning.mlp_dot_f16, F16Products::Gate);
    assert_eq!(tuning.mlp_product_f16, F16Products::Down);
    assert_eq!(
        (tuning.fold_lanes, tuning.fold_reduction),
        (16, Reduction::Subgroup)
    );
    assert_eq!(tuning.norm_reduction, Reduction::Subgroup);
    assert!(tuning.fuse_conv && !tuning.plain_plan);
    assert_eq!(tuning.tile_padding_elems, 0);
    let features = [
        Feature::TimestampQuery,
        Feature::ShaderF16,
        Feature::Subgroups,
    ];
    assert_eq!(tuning.extra_features, features);
    assert_eq!(tuning.power_preference, PowerPreference::HighPerformance);
    assert_eq!(tuning.expected_subgroup_size, 32);
}

#[test]
fn renders_back_to_the_same_document() {
    let rendered: Value = serde_json::from_str(&seed().render()).expect("rendered text is JSON");
    assert_eq!(rendered, seed_json());
}

#[test]
fn every_listed_section_has_the_derived_size() {
    let spec = seed().spec;
    let expected = spec.shape.section_sizes();
    let mut rope = 0;
    for section in &spec.sections {
        match expected.iter().find(|e| e.name == section.name) {
            Some(expected) => assert_eq!(section.bytes, expected.bytes, "{}", section.name),
            None => rope += 1,
        }
    }
    assert_eq!(rope, 4);
}

#[test]
fn names_of_pieces_and_vectors_are_listed() {
    let spec = seed().spec;
    for name in [
        Matrix::MlpDown.section(Some(0), Piece::CodesKMajor),
        Matrix::MlpDown.section(Some(13), Piece::ScalesKMajor),
        Matrix::AttnQkv.section(Some(2), Piece::Codes),
        Matrix::AttnOProj.section(Some(12), Piece::Scales),
        Matrix::Embed.section(None, Piece::ZeroPoints),
        Vector::ConvInProjNorm.section(Some(0)),
        Vector::ConvTaps.section(Some(0)),
        Vector::AttnNorm.section(Some(2)),
        Vector::QNorm.section(Some(2)),
        Vector::KNorm.section(Some(2)),
        Vector::MlpNorm.section(Some(2)),
        Vector::FinalNorm.section(None),
    ] {
        assert!(spec.section(&name).is_some(), "{name}");
    }
    let absent = Matrix::ConvInProj.section(Some(0), Piece::Bias);
    assert_eq!(spec.section(&absent), None);
}

#[test]
fn the_smallest_rotary_table_that_covers_the_context() {
    let spec = seed().spec;
    let positions = |context| spec.rope_table(context).map(|table| table.positions);
    assert_eq!(positions(1), Some(1024));
    assert_eq!(positions(1024), Some(1024));
    assert_eq!(positions(1025), Some(2560));
    assert_eq!(positions(2560), Some(2560));
    assert_eq!(positions(2561), None);
    let table = spec.rope_table(2112).expect("covered");
    assert_eq!(
        (&*table.cos.name, &*table.sin.name),
        ("rope.cos_ext", "rope.sin_ext")
    );
}

#[test]
fn bytes_read_per_token() {
    // Codes and scales of 14 layers once, head with zero points, norms and taps; one embedding
    // row of 512 + 128 + 16 bytes, two rotary rows of 128.
    let layers: u64 = 101_580_800;
    let head: u64 = 33_554_432 + 8_388_608 + 1_048_576;
    let vectors: u64 = 144_792_576 - 144_572_416;
    assert_eq!(
        seed().spec.weight_bytes_per_token(),
        layers + head + vectors + 656 + 256
    );
}

#[test]
fn full_attention_is_attention() {
    let text = SEED.replacen("\"attention\"", "\"full_attention\"", 1);
    assert_ne!(text, SEED);
    assert_eq!(parse(&text).expect("same meaning"), seed());
}
