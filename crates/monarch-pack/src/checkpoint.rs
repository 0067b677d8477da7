//! A model's weights as f32, from a Hugging Face folder or from a formula.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use monarch_manifest::{LayerKind, Matrix, Shape, Vector};
use safetensors::Dtype;
use serde::Deserialize;

use crate::config::{self, Config};
use crate::error::PackError;
use crate::synth;
use crate::tensor_file::TensorFile;

/// A checkpoint, opened and checked: every tensor that the model needs is there, with the shape
/// that config.json implies, in a number format that can be read.
///
/// Weights are read from disk (or computed) each time they are asked for; nothing is kept.
#[derive(Debug)]
pub struct Checkpoint {
    config: Config,
    /// Shape of every tensor of the model, by name.
    expected: BTreeMap<String, Vec<usize>>,
    tensors: Tensors,
}

#[derive(Debug)]
enum Tensors {
    Files {
        folder: PathBuf,
        files: Vec<TensorFile>,
        file_of: HashMap<String, usize>,
    },
    Formula,
}

/// `model.safetensors.index.json`.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Checkpoint {
    /// Opens a Hugging Face folder: `config.json` and `model.safetensors`, or the shards that
    /// `model.safetensors.index.json` lists.
    pub fn open(folder: &Path) -> Result<Self, PackError> {
        let config_path = folder.join("config.json");
        let config = config::parse(&read_text(&config_path)?, &config_path)?;
        let expected = tensor_shapes(&config.shape);

        let single = folder.join("model.safetensors");
        let index = folder.join("model.safetensors.index.json");
        let paths = if single.is_file() {
            vec![single]
        } else if index.is_file() {
            shards(folder, &index, &expected)?
        } else {
            return Err(PackError::NoWeights {
                folder: folder.to_owned(),
            });
        };
        let files = paths
            .iter()
            .map(|path| TensorFile::open(path))
            .collect::<Result<Vec<_>, _>>()?;
        let file_of = files
            .iter()
            .enumerate()
            .flat_map(|(i, file)| file.names().into_iter().map(move |name| (name, i)))
            .collect::<HashMap<_, _>>();

        for (name, expected) in &expected {
            let Some(info) = file_of.get(name).and_then(|&i| files[i].info(name)) else {
                return Err(PackError::TensorMissing {
                    tensor: name.clone(),
                    expected: expected.clone(),
                });
            };
            if info.shape != *expected {
                return Err(PackError::TensorShape {
                    tensor: name.clone(),
                    found: info.shape.clone(),
                    expected: expected.clone(),
                });
            }
            if !matches!(info.dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16) {
                return Err(PackError::TensorType {
                    tensor: name.clone(),
                    dtype: info.dtype,
                });
            }
        }
        Ok(Self {
            config,
            expected,
            tensors: Tensors::Files {
                folder: folder.to_owned(),
                files,
                file_of,
            },
        })
    }

    /// The built-in shape called `name` ([`synth::SHAPE_NAMES`]) with weights from a formula.
    pub fn synth(name: &str) -> Result<Self, PackError> {
        let config = synth::config(name)?;
        let expected = tensor_shapes(&config.shape);
        Ok(Self {
            config,
            expected,
            tensors: Tensors::Formula,
        })
    }

    /// Sizes of the network. `scale_type` says nothing here: a checkpoint has no scales.
    pub fn shape(&self) -> &Shape {
        &self.config.shape
    }

    /// Positions that the model was made for.
    pub fn max_positions(&self) -> u32 {
        self.config.max_positions
    }

    /// The Hugging Face folder; none for a formula.
    pub fn folder(&self) -> Option<&Path> {
        match &self.tensors {
            Tensors::Files { folder, .. } => Some(folder),
            Tensors::Formula => None,
        }
    }

    /// Names and shapes of all tensors of the model, sorted by name.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &[usize])> {
        self.expected
            .iter()
            .map(|(name, shape)| (name.as_str(), shape.as_slice()))
    }

    /// A tensor by its name in the checkpoint, row-major.
    pub fn tensor_f32(&self, name: &str) -> Result<Vec<f32>, PackError> {
        let shape = self
            .expected
            .get(name)
            .ok_or_else(|| PackError::TensorUnknown {
                tensor: name.to_owned(),
            })?;
        match &self.tensors {
            Tensors::Files { files, file_of, .. } => {
                let file = file_of.get(name).ok_or_else(|| PackError::TensorUnknown {
                    tensor: name.to_owned(),
                })?;
                files[*file].read_f32(name)
            }
            Tensors::Formula => Ok(synth::tensor(name, shape.iter().product())),
        }
    }

    /// A matrix `[N, K]`, row-major, in the engine's row order: q, k, v stacked; gate (w1), then
    /// up (w3).
    ///
    /// `layer` is none for the head and the embedding. A tied head is the embedding.
    pub fn matrix_f32(&self, layer: Option<u32>, matrix: Matrix) -> Result<Vec<f32>, PackError> {
        let mut parts = matrix_tensors(self.shape(), layer, matrix)
            .ok_or_else(|| no_such_weights(matrix, layer))?
            .into_iter();
        let mut weights = match parts.next() {
            Some(first) => self.tensor_f32(&first)?,
            None => Vec::new(),
        };
        for part in parts {
            weights.extend(self.tensor_f32(&part)?);
        }
        Ok(weights)
    }

    /// A vector, or the taps `[H, L]`. `layer` is none for the final norm.
    pub fn vector_f32(&self, layer: Option<u32>, vector: Vector) -> Result<Vec<f32>, PackError> {
        let name = vector_tensor(self.shape(), layer, vector)
            .ok_or_else(|| no_such_weights(vector, layer))?;
        self.tensor_f32(&name)
    }

    /// The bias `[N]` of a matrix; none when this model has no bias there.
    pub fn bias_f32(
        &self,
        layer: Option<u32>,
        matrix: Matrix,
    ) -> Result<Option<Vec<f32>>, PackError> {
        let tensors = matrix_tensors(self.shape(), layer, matrix)
            .ok_or_else(|| no_such_weights(matrix, layer))?;
        if !has_bias(self.shape(), matrix) {
            return Ok(None);
        }
        let bias = tensors[0].replace(".weight", ".bias");
        self.tensor_f32(&bias).map(Some)
    }
}

/// True when this matrix has a bias in this model.
pub(crate) fn has_bias(shape: &Shape, matrix: Matrix) -> bool {
    shape.conv_bias && matches!(matrix, Matrix::ConvInProj | Matrix::ConvOutProj)
}

/// The matrices of a layer, in the order in which they are used.
pub(crate) fn layer_matrices(kind: LayerKind) -> [Matrix; 4] {
    match kind {
        LayerKind::Conv => [
            Matrix::ConvInProj,
            Matrix::ConvOutProj,
            Matrix::MlpGateUp,
            Matrix::MlpDown,
        ],
        LayerKind::Attention => [
            Matrix::AttnQkv,
            Matrix::AttnOProj,
            Matrix::MlpGateUp,
            Matrix::MlpDown,
        ],
    }
}

/// The vectors of a layer, in the order in which they are used.
pub(crate) fn layer_vectors(shape: &Shape, kind: LayerKind) -> Vec<Vector> {
    match kind {
        LayerKind::Conv if shape.conv_bias => {
            vec![
                Vector::ConvInProjNorm,
                Vector::ConvTaps,
                Vector::ConvBias,
                Vector::MlpNorm,
            ]
        }
        LayerKind::Conv => vec![Vector::ConvInProjNorm, Vector::ConvTaps, Vector::MlpNorm],
        LayerKind::Attention => {
            vec![
                Vector::AttnNorm,
                Vector::QNorm,
                Vector::KNorm,
                Vector::MlpNorm,
            ]
        }
    }
}

pub(crate) fn no_such_weights(weights: impl std::fmt::Debug, layer: Option<u32>) -> PackError {
    PackError::NoSuchWeights {
        weights: format!("{weights:?}"),
        layer,
    }
}

/// Kind of a layer; none when there is no such layer.
pub(crate) fn kind_of(shape: &Shape, layer: u32) -> Option<LayerKind> {
    shape.layers.get(layer as usize).copied()
}

/// True when the model has this matrix in this place.
pub(crate) fn has_matrix(shape: &Shape, layer: Option<u32>, matrix: Matrix) -> bool {
    match layer {
        None => !matrix.is_per_layer(),
        Some(layer) => {
            kind_of(shape, layer).is_some_and(|kind| layer_matrices(kind).contains(&matrix))
        }
    }
}

/// True when the model has this vector in this place.
pub(crate) fn has_vector(shape: &Shape, layer: Option<u32>, vector: Vector) -> bool {
    match layer {
        None => vector == Vector::FinalNorm,
        Some(layer) => {
            kind_of(shape, layer).is_some_and(|kind| layer_vectors(shape, kind).contains(&vector))
        }
    }
}

/// Tensors whose rows, one after the other, are the matrix.
fn matrix_tensors(shape: &Shape, layer: Option<u32>, matrix: Matrix) -> Option<Vec<String>> {
    if !has_matrix(shape, layer, matrix) {
        return None;
    }
    let stems: &[&str] = match matrix {
        Matrix::ConvInProj => &["conv.in_proj"],
        Matrix::ConvOutProj => &["conv.out_proj"],
        Matrix::AttnQkv => &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
        Matrix::AttnOProj => &["self_attn.out_proj"],
        Matrix::MlpGateUp => &["feed_forward.w1", "feed_forward.w3"],
        Matrix::MlpDown => &["feed_forward.w2"],
        Matrix::Head if !shape.tied_embedding => &["lm_head"],
        Matrix::Head | Matrix::Embed => &["model.embed_tokens"],
    };
    Some(
        stems
            .iter()
            .map(|stem| match layer {
                Some(layer) => format!("model.layers.{layer}.{stem}.weight"),
                None => format!("{stem}.weight"),
            })
            .collect(),
    )
}

fn vector_tensor(shape: &Shape, layer: Option<u32>, vector: Vector) -> Option<String> {
    if !has_vector(shape, layer, vector) {
        return None;
    }
    let stem = match vector {
        Vector::ConvInProjNorm | Vector::AttnNorm => "operator_norm.weight",
        Vector::ConvTaps => "conv.conv.weight",
        Vector::ConvBias => "conv.conv.bias",
        Vector::QNorm => "self_attn.q_layernorm.weight",
        Vector::KNorm => "self_attn.k_layernorm.weight",
        Vector::MlpNorm => "ffn_norm.weight",
        Vector::FinalNorm => "embedding_norm.weight",
    };
    Some(match layer {
        Some(layer) => format!("model.layers.{layer}.{stem}"),
        None => format!("model.{stem}"),
    })
}

/// Every tensor of the model with its shape.
fn tensor_shapes(shape: &Shape) -> BTreeMap<String, Vec<usize>> {
    let (hidden, ffn, vocab) = (
        shape.hidden as usize,
        shape.ffn as usize,
        shape.vocab as usize,
    );
    let (heads, kv_heads) = (shape.heads as usize, shape.kv_heads as usize);
    let (head_dim, window) = (shape.head_dim as usize, shape.conv_window as usize);

    let mut tensors = BTreeMap::new();
    for (layer, kind) in shape.layers.iter().enumerate() {
        let mut add = |name: &str, shape: &[usize]| {
            tensors.insert(format!("model.layers.{layer}.{name}"), shape.to_vec());
        };
        add("operator_norm.weight", &[hidden]);
        match kind {
            LayerKind::Conv => {
                add("conv.in_proj.weight", &[3 * hidden, hidden]);
                add("conv.conv.weight", &[hidden, 1, window]);
                add("conv.out_proj.weight", &[hidden, hidden]);
                if shape.conv_bias {
                    add("conv.in_proj.bias", &[3 * hidden]);
                    add("conv.conv.bias", &[hidden]);
                    add("conv.out_proj.bias", &[hidden]);
                }
            }
            LayerKind::Attention => {
                add("self_attn.q_proj.weight", &[heads * head_dim, hidden]);
                add("self_attn.k_proj.weight", &[kv_heads * head_dim, hidden]);
                add("self_attn.v_proj.weight", &[kv_heads * head_dim, hidden]);
                add("self_attn.q_layernorm.weight", &[head_dim]);
                add("self_attn.k_layernorm.weight", &[head_dim]);
                add("self_attn.out_proj.weight", &[hidden, heads * head_dim]);
            }
        }
        add("ffn_norm.weight", &[hidden]);
        add("feed_forward.w1.weight", &[ffn, hidden]);
        add("feed_forward.w3.weight", &[ffn, hidden]);
        add("feed_forward.w2.weight", &[hidden, ffn]);
    }
    tensors.insert("model.embed_tokens.weight".to_owned(), vec![vocab, hidden]);
    tensors.insert("model.embedding_norm.weight".to_owned(), vec![hidden]);
    if !shape.tied_embedding {
        tensors.insert("lm_head.weight".to_owned(), vec![vocab, hidden]);
    }
    tensors
}

/// Paths of the files that hold the model's tensors.
fn shards(
    folder: &Path,
    index_path: &Path,
    expected: &BTreeMap<String, Vec<usize>>,
) -> Result<Vec<PathBuf>, PackError> {
    let index: Index =
        serde_json::from_str(&read_text(index_path)?).map_err(|source| PackError::Json {
            path: index_path.to_owned(),
            source,
        })?;
    let mut names = BTreeMap::new();
    for (tensor, shape) in expected {
        let shard = index
            .weight_map
            .get(tensor)
            .ok_or_else(|| PackError::TensorMissing {
                tensor: tensor.clone(),
                expected: shape.clone(),
            })?;
        names.entry(shard.as_str()).or_insert(tensor);
    }
    names
        .into_iter()
        .map(|(shard, tensor)| {
            // A checkpoint is someone else's file: it must not make us read outside its folder.
            if Path::new(shard)
                .file_name()
                .is_none_or(|name| name != shard)
            {
                return Err(PackError::ShardName {
                    shard: shard.to_owned(),
                });
            }
            let path = folder.join(shard);
            if !path.is_file() {
                return Err(PackError::ShardMissing {
                    shard: shard.to_owned(),
                    tensor: tensor.clone(),
                    folder: folder.to_owned(),
                });
            }
            Ok(path)
        })
        .collect()
}

pub(crate) fn read_text(path: &Path) -> Result<String, PackError> {
    fs::read_to_string(path).map_err(PackError::file("read", path))
}
