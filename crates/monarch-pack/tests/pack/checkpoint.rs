//! Every generation of config.json, every way to store tensors, and every way to get them wrong.

use std::fs;

use monarch_manifest::{LayerKind, Matrix, Vector};
use monarch_pack::{Checkpoint, PackError, Packed};
use proptest::prelude::*;
use safetensors::Dtype;
use serde_json::{Value, json};

use crate::support::{
    RANDOM_MODELS, Tensor, bits, nano_config, nano_tensors, random_model, read_json, repository,
    shard_name, write_checkpoint, write_sharded,
};

#[test]
fn golden_configs_give_the_golden_shapes() {
    for name in RANDOM_MODELS {
        let golden = read_json(&random_model(name).join("golden.json"));
        let checkpoint = Checkpoint::open(&random_model(name)).unwrap();
        let shape = checkpoint.shape();
        let number = |key: &str| golden[key].as_f64().unwrap();
        assert_eq!(
            f64::from(shape.ffn),
            number("effective_intermediate_size"),
            "{name}"
        );
        assert_eq!(f64::from(shape.head_dim), number("head_dim"), "{name}");
        assert_eq!(f64::from(shape.rope_theta), number("rope_theta"), "{name}");
        let layers: Vec<&str> = shape
            .layers
            .iter()
            .map(|kind| match kind {
                LayerKind::Conv => "conv",
                LayerKind::Attention => "full_attention",
            })
            .collect();
        assert_eq!(json!(layers), golden["layer_types"], "{name}");
        assert_eq!(checkpoint.max_positions(), 2048, "{name}");
        assert!(shape.tied_embedding, "{name}");
    }
}

#[test]
fn matrices_stack_their_tensors_in_the_engines_order() {
    let checkpoint = Checkpoint::open(&random_model("d-h192-hd32-6q2kv-v5")).unwrap();
    let tensor = |name: &str| checkpoint.tensor_f32(name).unwrap();
    let qkv = [
        tensor("model.layers.0.self_attn.q_proj.weight"),
        tensor("model.layers.0.self_attn.k_proj.weight"),
        tensor("model.layers.0.self_attn.v_proj.weight"),
    ]
    .concat();
    assert_eq!(
        bits(&checkpoint.matrix_f32(Some(0), Matrix::AttnQkv).unwrap()),
        bits(&qkv)
    );
    let gate_up = [
        tensor("model.layers.1.feed_forward.w1.weight"),
        tensor("model.layers.1.feed_forward.w3.weight"),
    ]
    .concat();
    assert_eq!(
        bits(&checkpoint.matrix_f32(Some(1), Matrix::MlpGateUp).unwrap()),
        bits(&gate_up)
    );
    let head = checkpoint.matrix_f32(None, Matrix::Head).unwrap();
    assert_eq!(bits(&head), bits(&tensor("model.embed_tokens.weight")));
    let norm = checkpoint
        .vector_f32(Some(1), Vector::ConvInProjNorm)
        .unwrap();
    assert_eq!(
        bits(&norm),
        bits(&tensor("model.layers.1.operator_norm.weight"))
    );
}

#[test]
fn an_untied_head_is_its_own_tensor() {
    let nano = Checkpoint::synth("lfm2-nano").unwrap();
    let head = nano.matrix_f32(None, Matrix::Head).unwrap();
    assert_eq!(
        bits(&head),
        bits(&nano.tensor_f32("lm_head.weight").unwrap())
    );
    assert_ne!(
        bits(&head),
        bits(&nano.matrix_f32(None, Matrix::Embed).unwrap())
    );
}

#[test]
fn weights_that_a_layer_does_not_have_are_an_error() {
    let nano = Checkpoint::synth("lfm2-nano").unwrap();
    for (layer, matrix) in [
        (Some(0), Matrix::AttnQkv),
        (Some(1), Matrix::ConvInProj),
        (Some(3), Matrix::MlpDown),
        (Some(0), Matrix::Head),
        (None, Matrix::MlpDown),
    ] {
        let error = nano.matrix_f32(layer, matrix).unwrap_err();
        assert!(
            matches!(error, PackError::NoSuchWeights { .. }),
            "{layer:?} {matrix:?}"
        );
        let error = nano.bias_f32(layer, matrix).unwrap_err();
        assert!(
            matches!(error, PackError::NoSuchWeights { .. }),
            "{layer:?} {matrix:?}"
        );
    }
    for (layer, vector) in [
        (Some(0), Vector::AttnNorm),
        (Some(1), Vector::ConvTaps),
        (Some(0), Vector::FinalNorm),
        (None, Vector::MlpNorm),
    ] {
        let error = nano.vector_f32(layer, vector).unwrap_err();
        assert!(
            matches!(error, PackError::NoSuchWeights { .. }),
            "{layer:?} {vector:?}"
        );
    }
    assert!(matches!(
        nano.tensor_f32("model.nothing"),
        Err(PackError::TensorUnknown { .. })
    ));
    let error = Checkpoint::synth("gpt").unwrap_err();
    assert_eq!(
        error.to_string(),
        "no shape is called \"gpt\", known: lfm2.5-230m, lfm2-nano"
    );
}

#[test]
fn every_number_format_single_or_sharded_reads_the_same() {
    let nano = Checkpoint::synth("lfm2-nano").unwrap();
    for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16] {
        let tensors = nano_tensors(dtype);
        let single = tempfile::tempdir().unwrap();
        write_checkpoint(single.path(), &nano_config(), &tensors);
        let sharded = tempfile::tempdir().unwrap();
        write_sharded(sharded.path(), &tensors, 3);
        let single = Checkpoint::open(single.path()).unwrap();
        let sharded = Checkpoint::open(sharded.path()).unwrap();
        assert_eq!(single.shape(), nano.shape());
        for (name, _) in nano.tensors() {
            let formula = nano.tensor_f32(name).unwrap();
            let rounded: Vec<f32> = match dtype {
                Dtype::F16 => formula
                    .iter()
                    .map(|&v| half::f16::from_f32(v).to_f32())
                    .collect(),
                Dtype::BF16 => formula
                    .iter()
                    .map(|&v| half::bf16::from_f32(v).to_f32())
                    .collect(),
                _ => formula,
            };
            assert_eq!(
                bits(&single.tensor_f32(name).unwrap()),
                bits(&rounded),
                "{name} {dtype}"
            );
            assert_eq!(
                bits(&sharded.tensor_f32(name).unwrap()),
                bits(&rounded),
                "{name} {dtype}"
            );
        }
    }
}

/// Opens the nano checkpoint after a change to its config.
fn open_with(change: impl FnOnce(&mut Value)) -> Result<Checkpoint, PackError> {
    let folder = tempfile::tempdir().unwrap();
    let mut config = nano_config();
    change(&mut config);
    write_checkpoint(folder.path(), &config, &nano_tensors(Dtype::BF16));
    Checkpoint::open(folder.path())
}

fn rename(config: &mut Value, from: &str, to: &str) {
    let fields = config.as_object_mut().unwrap();
    let value = fields.remove(from).unwrap();
    fields.insert(to.to_owned(), value);
}

#[test]
fn both_generations_of_keys_mean_the_same() {
    let nano = Checkpoint::synth("lfm2-nano").unwrap();
    type Change = fn(&mut Value);
    let changes: &[(&str, Change)] = &[
        ("block_dim", |c| rename(c, "hidden_size", "block_dim")),
        ("num_heads", |c| {
            rename(c, "num_attention_heads", "num_heads")
        }),
        ("block_ff_dim", |c| {
            rename(c, "intermediate_size", "block_ff_dim")
        }),
        ("block_norm_eps", |c| {
            rename(c, "norm_eps", "block_norm_eps")
        }),
        ("theta", |c| rename(c, "rope_theta", "theta")),
        ("tie_embedding", |c| {
            rename(c, "tie_word_embeddings", "tie_embedding")
        }),
        ("tie_embedding wins", |c| {
            c["tie_embedding"] = false.into();
            c["tie_word_embeddings"] = true.into();
        }),
        ("full_attn_idxs", |c| {
            c.as_object_mut().unwrap().remove("layer_types");
            c["full_attn_idxs"] = json!([1]);
        }),
        ("attention", |c| c["layer_types"][1] = "attention".into()),
        ("rope_parameters", |c| {
            c["rope_parameters"] = json!({ "rope_theta": 1e6, "rope_type": "default" });
            c.as_object_mut().unwrap().remove("rope_theta");
        }),
        ("rope_scaling null", |c| c["rope_scaling"] = Value::Null),
        ("head_dim", |c| c["head_dim"] = 32.into()),
        ("auto-adjusted width", |c| {
            // int(1.5 * int(2 * 92 / 3)) = int(1.5 * 61) = 91, rounded up to a multiple of 32
            c["intermediate_size"] = 92.into();
            c["block_auto_adjust_ff_dim"] = true.into();
            c["block_ffn_dim_multiplier"] = 1.5.into();
            c["block_multiple_of"] = 32.into();
        }),
        ("the format's own defaults", |c| {
            for key in ["norm_eps", "rope_theta", "conv_L_cache"] {
                c.as_object_mut().unwrap().remove(key);
            }
        }),
    ];
    for (what, change) in changes {
        let checkpoint = open_with(change).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(checkpoint.shape(), nano.shape(), "{what}");
    }
}

#[test]
fn no_layer_list_at_all_means_attention_everywhere() {
    // The tensors are those of conv layers, so the first attention tensor is reported missing.
    let error = open_with(|c| {
        c.as_object_mut().unwrap().remove("layer_types");
    })
    .unwrap_err();
    assert!(
        matches!(&error, PackError::TensorMissing { tensor, .. }
            if tensor == "model.layers.0.self_attn.k_layernorm.weight"),
        "{error}"
    );
}

#[test]
fn unsupported_or_senseless_configs_are_named() {
    type Change = fn(&mut Value);
    let cases: &[(Change, &str)] = &[
        (
            |c| c["model_type"] = "lfm2_moe".into(),
            "model type \"lfm2_moe\" is not supported, only \"lfm2\" is",
        ),
        (
            |c| c["layer_types"][2] = "sliding_attention".into(),
            "layer 2 has type \"sliding_attention\", only \"conv\" and \"full_attention\" are supported",
        ),
        (
            |c| c["num_hidden_layers"] = 4.into(),
            "layer_types names 3 layers, num_hidden_layers says 4",
        ),
        (
            |c| {
                c.as_object_mut().unwrap().remove("layer_types");
                c["full_attn_idxs"] = json!([1, 3]);
            },
            "full_attn_idxs names layer 3, the model has 3 layers",
        ),
        (
            |c| c["rope_parameters"] = json!({ "rope_theta": 1e6, "rope_type": "yarn" }),
            "rope_parameters is yarn, only plain rotary embedding over the whole head is supported",
        ),
        (
            |c| c["rope_scaling"] = json!({ "type": "linear", "factor": 2.0 }),
            "rope_scaling is linear, only plain rotary embedding over the whole head is supported",
        ),
        (
            |c| c["rope_parameters"] = json!({ "partial_rotary_factor": 0.5 }),
            "rope_parameters is partial_rotary_factor 0.5, only plain rotary embedding over the whole head is supported",
        ),
        (
            |c| {
                c.as_object_mut().unwrap().remove("vocab_size");
            },
            "config.json has no vocab_size",
        ),
        (
            |c| {
                c.as_object_mut().unwrap().remove("model_type");
            },
            "config.json has no model_type",
        ),
        (
            |c| c["hidden_size"] = 0.into(),
            "config.json: hidden_size or block_dim is 0, expected 1 to 1048576",
        ),
        (
            |c| c["num_hidden_layers"] = 4_000_000_000u64.into(),
            "config.json: num_hidden_layers is 4000000000, expected 1 to 1048576",
        ),
        (
            |c| c["num_key_value_heads"] = 3.into(),
            "config.json: num_attention_heads is 2, which num_key_value_heads = 3 does not divide",
        ),
        (
            |c| c["num_attention_heads"] = 3.into(),
            "config.json: hidden_size is 64, which num_attention_heads = 3 does not divide",
        ),
        (
            |c| c["rope_theta"] = (-1).into(),
            "config.json: rope_theta is -1, expected 1 to 1000000000000",
        ),
    ];
    for (change, message) in cases {
        assert_eq!(open_with(change).unwrap_err().to_string(), *message);
    }
    let error = open_with(|c| c["hidden_size"] = "wide".into()).unwrap_err();
    assert!(matches!(error, PackError::Json { .. }), "{error}");
}

#[test]
fn a_tensor_of_another_shape_is_named_with_both_shapes() {
    let folder = tempfile::tempdir().unwrap();
    let mut tensors = nano_tensors(Dtype::F32);
    tensors.insert(
        "model.layers.0.conv.conv.weight".to_owned(),
        Tensor::new(&[64, 3, 1], &[0.0; 192], Dtype::F32),
    );
    write_checkpoint(folder.path(), &nano_config(), &tensors);
    assert_eq!(
        Checkpoint::open(folder.path()).unwrap_err().to_string(),
        "tensor model.layers.0.conv.conv.weight has shape [64, 3, 1], config.json implies [64, 1, 3]"
    );
}

#[test]
fn a_missing_tensor_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut tensors = nano_tensors(Dtype::F32);
    tensors.remove("lm_head.weight");
    write_checkpoint(folder.path(), &nano_config(), &tensors);
    assert_eq!(
        Checkpoint::open(folder.path()).unwrap_err().to_string(),
        "the checkpoint has no tensor lm_head.weight, shape [320, 64]"
    );
}

#[test]
fn a_number_format_that_is_not_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut tensors = nano_tensors(Dtype::F32);
    let bytes = Tensor {
        dtype: Dtype::I8,
        shape: vec![320, 64],
        bytes: vec![1; 320 * 64],
    };
    tensors.insert("lm_head.weight".to_owned(), bytes);
    write_checkpoint(folder.path(), &nano_config(), &tensors);
    let error = Checkpoint::open(folder.path()).unwrap_err();
    assert!(
        matches!(&error, PackError::TensorType { tensor, dtype: Dtype::I8 } if tensor == "lm_head.weight"),
        "{error}"
    );
}

#[test]
fn a_safetensors_file_cut_anywhere_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    write_checkpoint(folder.path(), &nano_config(), &nano_tensors(Dtype::BF16));
    let path = folder.path().join("model.safetensors");
    let whole = fs::read(&path).unwrap();
    let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    for length in [
        0,
        7,
        8,
        100,
        header - 1,
        header,
        header + 1,
        whole.len() - 1,
    ] {
        fs::write(&path, &whole[..length]).unwrap();
        let error = Checkpoint::open(folder.path()).unwrap_err();
        match error {
            PackError::Header { .. } => assert!(length < header, "{length}"),
            PackError::TensorFileLength {
                file_bytes,
                needed_bytes,
                ..
            } => {
                assert!(length >= header, "{length}");
                assert_eq!(
                    (file_bytes, needed_bytes),
                    (length as u64, whole.len() as u64)
                );
            }
            other => panic!("{length}: {other}"),
        }
    }
    fs::write(&path, [&whole[..], b"x"].concat()).unwrap();
    let error = Checkpoint::open(folder.path()).unwrap_err();
    assert!(
        matches!(error, PackError::TensorFileLength { .. }),
        "{error}"
    );
}

#[test]
fn a_file_that_shrinks_after_opening_is_an_error_not_a_fault() {
    let folder = tempfile::tempdir().unwrap();
    write_checkpoint(folder.path(), &nano_config(), &nano_tensors(Dtype::BF16));
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    fs::write(folder.path().join("model.safetensors"), "").unwrap();
    let error = checkpoint.matrix_f32(None, Matrix::Embed).unwrap_err();
    assert!(
        matches!(error, PackError::File { action: "read", .. }),
        "{error}"
    );
}

#[test]
fn shards_that_are_missing_or_elsewhere_are_named() {
    let folder = tempfile::tempdir().unwrap();
    write_sharded(folder.path(), &nano_tensors(Dtype::F32), 2);
    fs::remove_file(folder.path().join(shard_name(1, 2))).unwrap();
    let error = Checkpoint::open(folder.path()).unwrap_err();
    assert!(
        matches!(&error, PackError::ShardMissing { shard, .. } if *shard == shard_name(1, 2)),
        "{error}"
    );

    let index_path = folder.path().join("model.safetensors.index.json");
    let index = read_json(&index_path);
    for outside in ["../model.safetensors", "/etc/hosts", "..", ""] {
        let mut index = index.clone();
        index["weight_map"]["lm_head.weight"] = outside.into();
        fs::write(&index_path, index.to_string()).unwrap();
        let error = Checkpoint::open(folder.path()).unwrap_err();
        assert!(
            matches!(&error, PackError::ShardName { shard } if shard == outside),
            "{error}"
        );
    }

    let mut without = index.clone();
    without["weight_map"]
        .as_object_mut()
        .unwrap()
        .remove("lm_head.weight");
    fs::write(&index_path, without.to_string()).unwrap();
    let error = Checkpoint::open(folder.path()).unwrap_err();
    assert!(
        matches!(&error, PackError::TensorMissing { tensor, .. } if tensor == "lm_head.weight"),
        "{error}"
    );

    fs::write(&index_path, "<html>").unwrap();
    let error = Checkpoint::open(folder.path()).unwrap_err();
    assert!(matches!(error, PackError::Json { .. }), "{error}");
}

#[test]
fn folders_that_are_no_checkpoint_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = Checkpoint::open(folder.path()).unwrap_err();
    assert!(
        matches!(error, PackError::File { action: "read", .. }),
        "{error}"
    );
    fs::write(folder.path().join("config.json"), nano_config().to_string()).unwrap();
    let error = Checkpoint::open(folder.path()).unwrap_err();
    assert!(matches!(error, PackError::NoWeights { .. }), "{error}");
}

#[test]
fn packed_folders_that_do_not_hold_together_are_named() {
    let seed = repository("tests/golden/seed/manifest.json");
    let folder = tempfile::tempdir().unwrap();
    let manifest = folder.path().join("manifest.json");
    fs::copy(&seed, &manifest).unwrap();
    let error = Packed::open(folder.path()).unwrap_err();
    assert!(
        matches!(error, PackError::File { action: "open", .. }),
        "{error}"
    );

    fs::write(folder.path().join("weights.bin"), "short").unwrap();
    let error = Packed::open(folder.path()).unwrap_err();
    assert!(
        matches!(
            error,
            PackError::WeightsLength {
                file_bytes: 5,
                listed_bytes: 168_647_680,
                ..
            }
        ),
        "{error}"
    );

    let text = fs::read_to_string(&seed).unwrap();
    let elsewhere = text.replace("\"/weights.bin\"", "\"https://host/weights.bin\"");
    assert_ne!(elsewhere, text);
    fs::write(&manifest, elsewhere).unwrap();
    let error = Packed::open(folder.path()).unwrap_err();
    assert!(
        matches!(error, PackError::WeightsElsewhere { .. }),
        "{error}"
    );

    fs::write(&manifest, "<html>").unwrap();
    let error = Packed::open(folder.path()).unwrap_err();
    assert!(matches!(error, PackError::Manifest { .. }), "{error}");
}

proptest! {
    /// Whatever one field of config.json becomes, opening answers; it never panics.
    #[test]
    fn no_config_value_panics(
        field in 0usize..15,
        value in prop_oneof![
            any::<u64>().prop_map(|v| json!(v)),
            any::<i64>().prop_map(|v| json!(v)),
            any::<f64>().prop_map(|v| json!(v)),
            "[a-z_]{0,12}".prop_map(|v| json!(v)),
            proptest::collection::vec(any::<u32>(), 0..4).prop_map(|v| json!(v)),
            Just(Value::Null),
        ],
        auto_adjust in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut config = nano_config();
        config["block_auto_adjust_ff_dim"] = auto_adjust.into();
        let fields = config.as_object_mut().unwrap();
        let key = fields.keys().nth(field % fields.len()).unwrap().clone();
        fields.insert(key, value);
        fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        fs::write(folder.path().join("model.safetensors"), [2, 0, 0, 0, 0, 0, 0, 0, b'{', b'}']).unwrap();
        prop_assert!(Checkpoint::open(folder.path()).is_err());
    }

    /// Whatever bytes a safetensors file has, opening answers; it never panics.
    #[test]
    fn no_safetensors_bytes_panic(at in 0usize..4000, byte in any::<u8>()) {
        let folder = tempfile::tempdir().unwrap();
        write_checkpoint(folder.path(), &nano_config(), &nano_tensors(Dtype::BF16));
        let path = folder.path().join("model.safetensors");
        let mut bytes = fs::read(&path).unwrap();
        bytes[at] = byte;
        fs::write(&path, bytes).unwrap();
        if let Ok(checkpoint) = Checkpoint::open(folder.path()) {
            for (name, _) in checkpoint.tensors() {
                let _ = checkpoint.tensor_f32(name);
            }
        }
    }
}
