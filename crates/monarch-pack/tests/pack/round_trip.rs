//! Packing loses nothing but what 4 bits lose, and never leaves half a model behind.

use std::fs;
use std::path::Path;

use half::f16;
use monarch_manifest::{BLOCK, LayerKind, ScaleType, SelfTest, Source};
use monarch_pack::{
    Checkpoint, Layout, LayoutOptions, Matrix, PackError, PackOptions, Packed, Quantised, Vector,
    pack, quantise,
};
use safetensors::Dtype;

use crate::support::{
    RANDOM_MODELS, Tensor, bits, nano_config, nano_tensors, random_model, repository,
    write_checkpoint,
};

fn options(layout: Layout, scales: Option<ScaleType>) -> PackOptions {
    PackOptions {
        layout: LayoutOptions {
            layout,
            scales,
            context_tokens: None,
        },
        ..PackOptions::default()
    }
}

/// What a packed matrix should hold, computed apart from the packer.
fn expected(
    checkpoint: &Checkpoint,
    layer: Option<u32>,
    matrix: Matrix,
    scales: ScaleType,
) -> Quantised {
    let (_, cols) = matrix.rows_cols(checkpoint.shape());
    let weights = checkpoint.matrix_f32(layer, matrix).unwrap();
    let mut quantised = match matrix {
        Matrix::Head | Matrix::Embed => quantise::asymmetric(&weights, cols as usize),
        _ => quantise::symmetric(&weights, cols as usize),
    };
    if scales == ScaleType::F16 {
        for scale in &mut quantised.scales {
            *scale = f16::from_f32(*scale).to_f32();
        }
    }
    quantised
}

fn assert_packed_equals_checkpoint(checkpoint: &Checkpoint, packed: &Packed, what: &str) {
    let shape = packed.shape();
    let scales = shape.scale_type;
    let mut matrices = vec![(None, Matrix::Head), (None, Matrix::Embed)];
    let mut vectors = vec![(None, Vector::FinalNorm)];
    for (layer, kind) in (0u32..).map(Some).zip(&shape.layers) {
        let (own, own_vectors): (&[Matrix], &[Vector]) = match kind {
            LayerKind::Conv if shape.conv_bias => (
                &[Matrix::ConvInProj, Matrix::ConvOutProj],
                &[Vector::ConvInProjNorm, Vector::ConvTaps, Vector::ConvBias],
            ),
            LayerKind::Conv => (
                &[Matrix::ConvInProj, Matrix::ConvOutProj],
                &[Vector::ConvInProjNorm, Vector::ConvTaps],
            ),
            LayerKind::Attention => (
                &[Matrix::AttnQkv, Matrix::AttnOProj],
                &[Vector::AttnNorm, Vector::QNorm, Vector::KNorm],
            ),
        };
        matrices.extend([Matrix::MlpGateUp, Matrix::MlpDown].map(|m| (layer, m)));
        matrices.extend(own.iter().map(|&m| (layer, m)));
        vectors.push((layer, Vector::MlpNorm));
        vectors.extend(own_vectors.iter().map(|&v| (layer, v)));
    }
    for (layer, matrix) in matrices {
        let (rows, cols) = matrix.rows_cols(shape);
        let expected = expected(checkpoint, layer, matrix, scales);
        assert_eq!(
            packed.quantised(layer, matrix).unwrap(),
            expected,
            "{what} {layer:?} {matrix:?}"
        );
        let dequantised = packed.matrix_f32(layer, matrix).unwrap();
        assert_eq!(dequantised.len(), (rows * cols) as usize);
        assert_eq!(
            bits(&dequantised),
            bits(&quantise::dequantise(&expected, cols as usize)),
            "{what} {layer:?} {matrix:?}"
        );
        let bias = packed.bias_f32(layer, matrix).unwrap();
        let has_bias =
            shape.conv_bias && matches!(matrix, Matrix::ConvInProj | Matrix::ConvOutProj);
        assert_eq!(bias.is_some(), has_bias, "{what} {layer:?} {matrix:?}");
        assert_eq!(
            bias,
            checkpoint.bias_f32(layer, matrix).unwrap(),
            "{what} {layer:?} {matrix:?}"
        );
    }
    for (layer, vector) in vectors {
        assert_eq!(
            bits(&packed.vector_f32(layer, vector).unwrap()),
            bits(&checkpoint.vector_f32(layer, vector).unwrap()),
            "{what} {layer:?} {vector:?}"
        );
    }
}

#[test]
fn packed_equals_quantised_checkpoint_in_every_layout_and_scale_type() {
    let checkpoints = RANDOM_MODELS
        .iter()
        .map(|name| (*name, Checkpoint::open(&random_model(name)).unwrap()))
        .chain([("lfm2-nano", Checkpoint::synth("lfm2-nano").unwrap())]);
    for (name, checkpoint) in checkpoints {
        for layout in [Layout::Default, Layout::Seed] {
            for scales in [None, Some(ScaleType::F16), Some(ScaleType::F32)] {
                let out = tempfile::tempdir().unwrap();
                let manifest = pack(
                    &checkpoint,
                    out.path(),
                    &options(layout, scales),
                    &mut |_| (),
                )
                .unwrap();
                let packed = Packed::open(out.path()).unwrap();
                assert_eq!(packed.manifest(), &manifest);
                let own = if layout == Layout::Seed {
                    ScaleType::F32
                } else {
                    ScaleType::F16
                };
                assert_eq!(packed.shape().scale_type, scales.unwrap_or(own));
                let what = format!("{name} {layout:?} {scales:?}");
                assert_packed_equals_checkpoint(&checkpoint, &packed, &what);
            }
        }
    }
}

#[test]
fn down_projection_copies_are_the_blocks_column_by_column() {
    let nano = Checkpoint::synth("lfm2-nano").unwrap();
    for scales in [ScaleType::F16, ScaleType::F32] {
        let out = tempfile::tempdir().unwrap();
        pack(
            &nano,
            out.path(),
            &options(Layout::Seed, Some(scales)),
            &mut |_| (),
        )
        .unwrap();
        let packed = Packed::open(out.path()).unwrap();
        let (rows, blocks) = (64, 96 / BLOCK as usize);
        for (piece, copy, elem) in [
            ("quant", "kquant", 16),
            ("scales", "kscales", scales.bytes() as usize),
        ] {
            let original = packed
                .section_bytes(&format!("L2.mlp.down.{piece}"))
                .unwrap();
            let copy = packed
                .section_bytes(&format!("L2.mlp.down.{copy}"))
                .unwrap();
            assert_eq!(original.len(), copy.len());
            for row in 0..rows {
                for block in 0..blocks {
                    let (from, to) = (row * blocks + block, block * rows + row);
                    assert_eq!(
                        original[from * elem..][..elem],
                        copy[to * elem..][..elem],
                        "{piece} row {row} block {block}"
                    );
                }
            }
        }
    }
}

#[test]
fn default_layout_has_aligned_sections_and_nothing_that_can_be_derived() {
    let checkpoint = Checkpoint::open(&random_model("b-h256-allconv-bias-L4")).unwrap();
    let out = tempfile::tempdir().unwrap();
    let manifest = pack(
        &checkpoint,
        out.path(),
        &options(Layout::Default, None),
        &mut |_| (),
    )
    .unwrap();
    assert!(!manifest.spec.sections.is_empty());
    for section in &manifest.spec.sections {
        assert!(section.offset_bytes.is_multiple_of(256), "{}", section.name);
        assert!(section.sha256.is_some(), "{}", section.name);
        let derived = ["kquant", "kscales", "rope"];
        assert!(
            !derived.iter().any(|word| section.name.contains(word)),
            "{}",
            section.name
        );
    }
}

/// The committed small model is what this packer makes of its checkpoint.
#[test]
#[ignore = "needs the 43 MB checkpoint in models/tiny-lfm2/original, see models/README.md"]
fn small_model_is_packed_from_its_checkpoint() {
    let model = repository("models/tiny-lfm2");
    let checkpoint = Checkpoint::open(&model.join("original")).unwrap();
    let committed = Packed::open(&model).unwrap();
    let out = tempfile::tempdir().unwrap();
    let options = PackOptions {
        self_test: committed.spec().self_test.clone(),
        source: committed.spec().source.clone(),
        ..PackOptions::default()
    };
    pack(&checkpoint, out.path(), &options, &mut |_| ()).unwrap();
    let mut compared = 0;
    for entry in fs::read_dir(out.path()).unwrap() {
        let name = entry.unwrap().file_name();
        let (ours, theirs) = (out.path().join(&name), model.join(&name));
        assert!(
            fs::read(ours).unwrap() == fs::read(theirs).unwrap(),
            "{name:?} differs"
        );
        compared += 1;
    }
    assert_eq!(compared, 6, "manifest, weights and four text files");
}

#[test]
fn options_go_into_the_manifest() {
    let nano = Checkpoint::synth("lfm2-nano").unwrap();
    let out = tempfile::tempdir().unwrap();
    let options = PackOptions {
        layout: LayoutOptions {
            context_tokens: Some(100),
            ..LayoutOptions::default()
        },
        self_test: Some(SelfTest {
            prompt_ids: vec![1, 2],
            continuation_ids: vec![3],
        }),
        source: Some(Source {
            licence: Some("CC0".to_owned()),
            ..Source::default()
        }),
    };
    pack(&nano, out.path(), &options, &mut |_| ()).unwrap();
    let packed = Packed::open(out.path()).unwrap();
    assert_eq!(packed.spec().context_tokens, 100);
    assert_eq!(packed.spec().rope_table_positions, 100);
    assert_eq!(packed.spec().self_test, options.self_test);
    assert_eq!(packed.spec().source, options.source);
}

#[test]
fn context_beyond_the_model_is_refused() {
    let nano = Checkpoint::synth("lfm2-nano").unwrap();
    let out = tempfile::tempdir().unwrap();
    for asked in [0, 257] {
        let mut options = options(Layout::Default, None);
        options.layout.context_tokens = Some(asked);
        let error = pack(&nano, out.path(), &options, &mut |_| ()).unwrap_err();
        assert!(matches!(error, PackError::Context { asked: a, max: 256 } if a == asked));
    }
    assert_eq!(names(out.path()), [""; 0]);
}

#[test]
fn progress_rises_to_exactly_all_bytes() {
    for layout in [Layout::Default, Layout::Seed] {
        let checkpoint = Checkpoint::open(&random_model("b-h256-allconv-bias-L4")).unwrap();
        let out = tempfile::tempdir().unwrap();
        let mut seen = Vec::new();
        pack(&checkpoint, out.path(), &options(layout, None), &mut |p| {
            seen.push(p)
        })
        .unwrap();
        assert!(
            seen.windows(2)
                .all(|pair| pair[0].done_bytes < pair[1].done_bytes)
        );
        let last = seen.last().unwrap();
        assert_eq!(last.done_bytes, last.total_bytes);
    }
}

/// Names of the files in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_failure_leaves_the_old_model_whole_and_nothing_else() {
    let out = tempfile::tempdir().unwrap();
    let nano = Checkpoint::synth("lfm2-nano").unwrap();
    pack(&nano, out.path(), &PackOptions::default(), &mut |_| ()).unwrap();
    let before = fs::read(out.path().join("manifest.json")).unwrap();

    // The last tensor that is read is the embedding, so nearly everything was written by then.
    let folder = tempfile::tempdir().unwrap();
    let mut tensors = nano_tensors(Dtype::F32);
    let mut values = vec![0.5; 320 * 64];
    values[7000] = f32::NAN;
    tensors.insert(
        "model.embed_tokens.weight".to_owned(),
        Tensor::new(&[320, 64], &values, Dtype::F32),
    );
    write_checkpoint(folder.path(), &nano_config(), &tensors);
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let error = pack(
        &checkpoint,
        out.path(),
        &PackOptions::default(),
        &mut |_| (),
    )
    .unwrap_err();
    assert_eq!(error.to_string(), "embed.quant: weight 7000 is NaN");
    assert_eq!(names(out.path()), ["manifest.json", "weights.bin"]);
    assert_eq!(fs::read(out.path().join("manifest.json")).unwrap(), before);
    Packed::open(out.path()).unwrap();
}

#[test]
fn text_files_come_along_and_old_ones_go() {
    let folder = tempfile::tempdir().unwrap();
    write_checkpoint(folder.path(), &nano_config(), &nano_tensors(Dtype::BF16));
    fs::write(folder.path().join("tokenizer.json"), "{\"new\":1}").unwrap();
    fs::write(folder.path().join("unrelated.txt"), "x").unwrap();
    let out = tempfile::tempdir().unwrap();
    for name in ["tokenizer.json", "chat_template.jinja", "MODEL_CARD.md"] {
        fs::write(out.path().join(name), "old").unwrap();
    }
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    pack(
        &checkpoint,
        out.path(),
        &PackOptions::default(),
        &mut |_| (),
    )
    .unwrap();
    assert_eq!(
        names(out.path()),
        [
            "MODEL_CARD.md",
            "manifest.json",
            "tokenizer.json",
            "weights.bin"
        ]
    );
    assert_eq!(
        fs::read_to_string(out.path().join("tokenizer.json")).unwrap(),
        "{\"new\":1}"
    );
}

#[test]
fn scales_that_f16_cannot_hold_are_refused_or_made_zero_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let mut tensors = nano_tensors(Dtype::F32);
    let mut values = vec![0.5; 64 * 96];
    values[32..64].fill(1e6);
    let down = "model.layers.1.feed_forward.w2.weight";
    tensors.insert(down.to_owned(), Tensor::new(&[64, 96], &values, Dtype::F32));
    write_checkpoint(folder.path(), &nano_config(), &tensors);
    let out = tempfile::tempdir().unwrap();
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let error = pack(
        &checkpoint,
        out.path(),
        &PackOptions::default(),
        &mut |_| (),
    )
    .unwrap_err();
    assert!(
        matches!(&error, PackError::ScaleRange { section, block: 1, .. } if section == "L1.mlp.down.scales"),
        "{error}"
    );
    // f32 scales hold it.
    pack(
        &checkpoint,
        out.path(),
        &options(Layout::Default, Some(ScaleType::F32)),
        &mut |_| (),
    )
    .unwrap();

    values[32..64].fill(1e-9);
    tensors.insert(down.to_owned(), Tensor::new(&[64, 96], &values, Dtype::F32));
    write_checkpoint(folder.path(), &nano_config(), &tensors);
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    pack(
        &checkpoint,
        out.path(),
        &PackOptions::default(),
        &mut |_| (),
    )
    .unwrap();
    let packed = Packed::open(out.path()).unwrap();
    let quantised = packed.quantised(Some(1), Matrix::MlpDown).unwrap();
    assert_eq!(quantised.scales[1], 0.0);
    assert_eq!(quantised.codes[16..32], [0x88; 16]);
    assert_eq!(
        monarch_pack::verify(&packed, &mut |_| ()).unwrap().findings,
        []
    );
}
