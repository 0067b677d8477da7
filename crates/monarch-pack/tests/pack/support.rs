//! Folders and models that several tests use.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use monarch_pack::Checkpoint;
use safetensors::Dtype;
use safetensors::tensor::{TensorView, serialize_to_file};
use serde_json::{Value, json};

/// The four random models of `tests/golden/random`.
pub(crate) const RANDOM_MODELS: [&str; 4] = [
    "a-h128-2q1kv",
    "b-h256-allconv-bias-L4",
    "c-h320-5q1kv-autoff-v4",
    "d-h192-hd32-6q2kv-v5",
];

/// A path in the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// A random model's checkpoint folder.
pub(crate) fn random_model(name: &str) -> PathBuf {
    repository("tests/golden/random").join(name)
}

/// Reads a JSON file.
pub(crate) fn read_json(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// config.json of the "lfm2-nano" formula.
pub(crate) fn nano_config() -> Value {
    json!({
        "model_type": "lfm2",
        "vocab_size": 320,
        "hidden_size": 64,
        "intermediate_size": 96,
        "block_auto_adjust_ff_dim": false,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "layer_types": ["conv", "full_attention", "conv"],
        "conv_L_cache": 3,
        "conv_bias": true,
        "norm_eps": 1e-5,
        "rope_theta": 1e6,
        "tie_word_embeddings": false,
        "max_position_embeddings": 256,
    })
}

/// A tensor of a checkpoint that a test writes.
#[derive(Clone)]
pub(crate) struct Tensor {
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

impl Tensor {
    pub(crate) fn new(shape: &[usize], values: &[f32], dtype: Dtype) -> Self {
        let bytes = match dtype {
            Dtype::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Dtype::F16 => values
                .iter()
                .flat_map(|&v| f16::from_f32(v).to_le_bytes())
                .collect(),
            Dtype::BF16 => values
                .iter()
                .flat_map(|&v| bf16::from_f32(v).to_le_bytes())
                .collect(),
            other => panic!("tests write no {other}"),
        };
        Self {
            dtype,
            shape: shape.to_vec(),
            bytes,
        }
    }
}

/// The tensors of the "lfm2-nano" formula.
pub(crate) fn nano_tensors(dtype: Dtype) -> BTreeMap<String, Tensor> {
    let nano = Checkpoint::synth("lfm2-nano").unwrap();
    nano.tensors()
        .map(|(name, shape)| {
            (
                name.to_owned(),
                Tensor::new(shape, &nano.tensor_f32(name).unwrap(), dtype),
            )
        })
        .collect()
}

/// Writes one safetensors file.
pub(crate) fn write_tensors(path: &Path, tensors: &BTreeMap<String, Tensor>) {
    let views = tensors.iter().map(|(name, t)| {
        (
            name.as_str(),
            TensorView::new(t.dtype, t.shape.clone(), &t.bytes).unwrap(),
        )
    });
    serialize_to_file(views, None, path).unwrap();
}

/// Writes a checkpoint folder with a single safetensors file.
pub(crate) fn write_checkpoint(folder: &Path, config: &Value, tensors: &BTreeMap<String, Tensor>) {
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
    write_tensors(&folder.join("model.safetensors"), tensors);
}

/// Writes a checkpoint folder with `shards` safetensors files and their index.
pub(crate) fn write_sharded(folder: &Path, tensors: &BTreeMap<String, Tensor>, shards: usize) {
    fs::write(folder.join("config.json"), nano_config().to_string()).unwrap();
    let mut parts = vec![BTreeMap::new(); shards];
    let mut weight_map = BTreeMap::new();
    for (i, (name, tensor)) in tensors.iter().enumerate() {
        parts[i % shards].insert(name.clone(), tensor.clone());
        weight_map.insert(name.clone(), shard_name(i % shards, shards));
    }
    for (i, part) in parts.iter().enumerate() {
        write_tensors(&folder.join(shard_name(i, shards)), part);
    }
    let index = json!({ "metadata": { "total_size": 0 }, "weight_map": weight_map });
    fs::write(
        folder.join("model.safetensors.index.json"),
        index.to_string(),
    )
    .unwrap();
}

/// Name of shard number `index`, as Hugging Face writes it.
pub(crate) fn shard_name(index: usize, shards: usize) -> String {
    format!("model-{:05}-of-{shards:05}.safetensors", index + 1)
}

/// Bits of f32 numbers, which compare without surprises.
pub(crate) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}
