//! What can be wrong with a checkpoint, a packed folder, or the way between them.

use std::io;
use std::path::PathBuf;

/// Why a checkpoint cannot be read, packed, or a packed folder not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// A file could not be opened, read, written or renamed.
    #[error("cannot {action} {}", path.display())]
    File {
        /// What was being done, as in "read".
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's answer.
        #[source]
        source: io::Error,
    },

    /// A JSON file does not parse, or a field has the wrong type.
    #[error("{} is not the JSON that belongs there", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Where and why.
        #[source]
        source: serde_json::Error,
    },

    /// The folder holds neither `model.safetensors` nor its index.
    #[error("{} has neither model.safetensors nor model.safetensors.index.json", folder.display())]
    NoWeights {
        /// The checkpoint folder.
        folder: PathBuf,
    },

    /// The checkpoint is of another architecture.
    #[error("model type {model_type:?} is not supported, only \"lfm2\" is")]
    ModelType {
        /// `model_type` of config.json.
        model_type: String,
    },

    /// A layer is neither a short convolution nor full attention.
    #[error(
        "layer {layer} has type {layer_type:?}, only \"conv\" and \"full_attention\" are supported"
    )]
    LayerType {
        /// Index of the layer.
        layer: usize,
        /// Its entry in `layer_types`.
        layer_type: String,
    },

    /// The number of layer types differs from the number of layers.
    #[error("layer_types names {listed} layers, num_hidden_layers says {layers}")]
    LayerCount {
        /// Entries of `layer_types`.
        listed: usize,
        /// `num_hidden_layers`.
        layers: u32,
    },

    /// `full_attn_idxs` points past the last layer.
    #[error("full_attn_idxs names layer {index}, the model has {layers} layers")]
    AttentionIndex {
        /// The entry.
        index: u64,
        /// `num_hidden_layers`.
        layers: u32,
    },

    /// A rotary embedding other than the plain one over the whole head.
    #[error("{key} is {value}, only plain rotary embedding over the whole head is supported")]
    Rope {
        /// The field of config.json.
        key: &'static str,
        /// Its value.
        value: String,
    },

    /// config.json lacks a field that has no default.
    #[error("config.json has no {key}")]
    ConfigMissing {
        /// The field; alternatives are joined by "or".
        key: &'static str,
    },

    /// A number of config.json is outside what can be meant.
    #[error("config.json: {key} is {value}, expected {min} to {max}")]
    ConfigRange {
        /// The field.
        key: &'static str,
        /// Its value.
        value: f64,
        /// Smallest accepted value.
        min: f64,
        /// Largest accepted value.
        max: f64,
    },

    /// One number of config.json must divide another and does not.
    #[error("config.json: {key} is {value}, which {divisor_key} = {divisor} does not divide")]
    ConfigDivisor {
        /// The field that should be a multiple.
        key: &'static str,
        /// Its value.
        value: u32,
        /// The field that should divide it.
        divisor_key: &'static str,
        /// Its value.
        divisor: u32,
    },

    /// No built-in shape has this name.
    #[error("no shape is called {name:?}, known: {}", known.join(", "))]
    ShapeName {
        /// The name asked for.
        name: String,
        /// The names that exist.
        known: &'static [&'static str],
    },

    /// A safetensors header is cut short, too large or not as specified.
    #[error("{} has no valid safetensors header", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// What the format's own reader says.
        #[source]
        source: safetensors::SafeTensorError,
    },

    /// A safetensors file is shorter or longer than its header says.
    #[error("{} has {file_bytes} bytes, its header needs {needed_bytes}", path.display())]
    TensorFileLength {
        /// The file.
        path: PathBuf,
        /// Its length.
        file_bytes: u64,
        /// Header plus all tensors.
        needed_bytes: u64,
    },

    /// The index lists a file that is not in the folder.
    #[error("the index lists shard {shard:?} (for {tensor}), which is not in {}", folder.display())]
    ShardMissing {
        /// File name of the shard.
        shard: String,
        /// A tensor that should be in it.
        tensor: String,
        /// The checkpoint folder.
        folder: PathBuf,
    },

    /// The index names a file outside the checkpoint folder.
    #[error("the index lists shard {shard:?}, which is not a plain file name")]
    ShardName {
        /// The entry.
        shard: String,
    },

    /// The model needs a tensor that no file has.
    #[error("the checkpoint has no tensor {tensor}, shape {expected:?}")]
    TensorMissing {
        /// Name of the tensor.
        tensor: String,
        /// The shape that config.json implies.
        expected: Vec<usize>,
    },

    /// A tensor's shape is not the one that config.json implies.
    #[error("tensor {tensor} has shape {found:?}, config.json implies {expected:?}")]
    TensorShape {
        /// Name of the tensor.
        tensor: String,
        /// Its shape in the file.
        found: Vec<usize>,
        /// The shape that config.json implies.
        expected: Vec<usize>,
    },

    /// A tensor is stored in a number format that is not read.
    #[error("tensor {tensor} is stored as {dtype}, only F32, F16 and BF16 are read")]
    TensorType {
        /// Name of the tensor.
        tensor: String,
        /// Its format.
        dtype: safetensors::Dtype,
    },

    /// A tensor was asked for that this model does not have.
    #[error("this model has no tensor {tensor}")]
    TensorUnknown {
        /// The name asked for.
        tensor: String,
    },

    /// A weight is infinite or not a number.
    #[error("{section}: weight {index} is {value}")]
    WeightNotFinite {
        /// The section it would have gone into.
        section: String,
        /// Row-major index in the matrix or vector.
        index: usize,
        /// The value.
        value: f32,
    },

    /// A block's scale does not fit the number format of the scales.
    #[error("{section}: the scale of block {block} is {scale}, f16 holds at most 65504")]
    ScaleRange {
        /// The matrix' scales section.
        section: String,
        /// Row-major index of the block.
        block: usize,
        /// The scale.
        scale: f32,
    },

    /// The sizes do not allow 4-bit blocks, or are outside the engine's limits.
    #[error("this model cannot be packed")]
    Shape {
        /// Which size, and why.
        #[source]
        source: monarch_manifest::ManifestError,
    },

    /// More context was asked for than the model has, or none.
    #[error("a context of {asked} tokens was asked for, this model allows 1 to {max}")]
    Context {
        /// Tokens asked for.
        asked: u32,
        /// Positions of the model.
        max: u32,
    },

    /// A matrix or vector was asked for in a layer that does not have it.
    #[error("this model has no {weights} in {}", place(*layer))]
    NoSuchWeights {
        /// The role, as in `ConvInProj`.
        weights: String,
        /// The layer, or none for those outside the layers.
        layer: Option<u32>,
    },

    /// The manifest does not hold together.
    #[error("{}", path.display())]
    Manifest {
        /// The manifest file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: monarch_manifest::ManifestError,
    },

    /// The manifest's weights are not a file of the same folder.
    #[error("{}: weightsUrl {url:?} is not a file of this folder", path.display())]
    WeightsElsewhere {
        /// The manifest file.
        path: PathBuf,
        /// Its `weightsUrl`.
        url: String,
    },

    /// The weights file is shorter or longer than the manifest says.
    #[error("{} has {file_bytes} bytes, the manifest says {listed_bytes}", path.display())]
    WeightsLength {
        /// The weights file.
        path: PathBuf,
        /// Its length.
        file_bytes: u64,
        /// `weightBytes`.
        listed_bytes: u64,
    },

    /// A section was asked for that the manifest does not list.
    #[error("the manifest lists no section {section}")]
    SectionMissing {
        /// The name asked for.
        section: String,
    },
}

fn place(layer: Option<u32>) -> String {
    match layer {
        Some(layer) => format!("layer {layer}"),
        None => "the model outside its layers".to_owned(),
    }
}

impl PackError {
    /// An I/O error on `path`, for `map_err`.
    pub(crate) fn file(
        action: &'static str,
        path: &std::path::Path,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File {
            action,
            path,
            source,
        }
    }
}
