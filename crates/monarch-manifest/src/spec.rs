//! What the model is: sizes fixed by the checkpoint, and where its bytes are.

use crate::section::{
    Matrix, Piece, ROPE_COS, ROPE_COS_EXT, ROPE_SIN, ROPE_SIN_EXT, RopeTable, Section,
};
use crate::tuning::Tuning;

/// Weights that share one scale: this many consecutive columns of one row.
pub const BLOCK: u32 = 32;

/// One manifest, parsed and validated.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// Version of the schema; `None` for the seed's kind of file, which names none.
    pub format: Option<Format>,
    /// The artefact: shape, sections, limits.
    pub spec: ModelSpec,
    /// How kernels were tuned; defaults to start from, never requirements.
    pub tuning: Tuning,
}

/// A schema version that this crate reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// `monarch-webgpu/1`: tuning may be left out as a whole.
    V1,
}

/// The artefact that a manifest describes, without any tuning.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// Sizes of the network.
    pub shape: Shape,
    /// Address of `weights.bin` as written; resolves against the manifest's own URL.
    pub weights_url: String,
    /// Size of `weights.bin`.
    pub weight_bytes: u64,
    /// Named byte ranges of `weights.bin`, in listing order.
    pub sections: Vec<Section>,
    /// Positions that the rotary tables and the KV cache are made for.
    pub rope_table_positions: u32,
    /// Prompt and output tokens of one conversation, at most [`Self::rope_table_positions`].
    pub context_tokens: u32,
    /// Where the text files are when they are not beside the manifest.
    pub text: TextUrls,
    /// A known greedy continuation, checked before the model is handed out.
    pub self_test: Option<SelfTest>,
    /// Where the weights come from.
    pub source: Option<Source>,
}

/// Sizes of the network: everything that decides how many bytes each section has.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// One operator per decoder layer, first layer first.
    pub layers: Vec<LayerKind>,
    /// H (or D): width of the residual stream, a multiple of [`BLOCK`].
    pub hidden: u32,
    /// F: inner width of the MLP, a multiple of [`BLOCK`].
    pub ffn: u32,
    /// V: token ids.
    pub vocab: u32,
    /// Hq: query heads.
    pub heads: u32,
    /// Hkv: key and value heads; divides [`Self::heads`].
    pub kv_heads: u32,
    /// Dh: width of one head, even.
    pub head_dim: u32,
    /// L: tokens that a short convolution sees, the current one included.
    pub conv_window: u32,
    /// Added to the mean square in every RMSNorm.
    pub norm_eps: f32,
    /// Base of the rotary frequencies.
    pub rope_theta: f32,
    /// True when the conv operators' projections and convolution have biases.
    pub conv_bias: bool,
    /// True when `head` and `embed` are the same bytes.
    pub tied_embedding: bool,
    /// Number type of every scales section.
    pub scale_type: ScaleType,
}

/// The operator of a decoder layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LayerKind {
    /// Gated short convolution.
    Conv,
    /// Grouped-query attention; `attention` and `full_attention` in files.
    Attention,
}

/// Number type of the block scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScaleType {
    /// 4 bytes per block.
    F32,
    /// 2 bytes per block.
    F16,
}

impl ScaleType {
    /// Bytes of one scale.
    pub fn bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
        }
    }
}

/// URLs of the text files, as written; `None` means the usual name beside the manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextUrls {
    /// `tokenizer.json`.
    pub tokenizer: Option<String>,
    /// `tokenizer_config.json`.
    pub tokenizer_config: Option<String>,
    /// `chat_template.jinja`; wins over the template inside the tokenizer's configuration.
    pub chat_template: Option<String>,
    /// `generation_config.json`.
    pub generation_config: Option<String>,
}

/// A prompt and its greedy continuation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelfTest {
    /// Token ids fed to the model, at least one.
    pub prompt_ids: Vec<u32>,
    /// Token ids that must follow, at least one.
    pub continuation_ids: Vec<u32>,
}

/// Where the weights come from, as far as the packer knew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// Repository of the checkpoint, such as `LiquidAI/LFM2.5-230M`.
    pub repository: Option<String>,
    /// Revision of that repository.
    pub revision: Option<String>,
    /// Licence of the weights.
    pub licence: Option<String>,
    /// Program and rule that made the 4-bit codes.
    pub quantiser: Option<String>,
}

impl ModelSpec {
    /// The section of that name, if the manifest lists it.
    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// The smallest listed rotary table that covers `context_tokens` positions.
    ///
    /// `None` means that the table has to be computed from [`Shape::rope_theta`].
    pub fn rope_table(&self, context_tokens: u32) -> Option<RopeTable<'_>> {
        let row_bytes = self.shape.rope_row_bytes();
        [(ROPE_COS, ROPE_SIN), (ROPE_COS_EXT, ROPE_SIN_EXT)]
            .into_iter()
            .filter_map(|(cos, sin)| {
                let (cos, sin) = (self.section(cos)?, self.section(sin)?);
                let positions = u32::try_from(cos.bytes / row_bytes).ok()?;
                Some(RopeTable {
                    cos,
                    sin,
                    positions,
                })
            })
            .filter(|table| table.positions >= context_tokens)
            .min_by_key(|table| table.positions)
    }

    /// Weight bytes that decoding one token reads, whatever the context length.
    ///
    /// Every section once, but one row of the embedding and of a rotary table, and of the two
    /// arrangements of the down projection only one.
    pub fn weight_bytes_per_token(&self) -> u64 {
        let shape = &self.shape;
        let once = |section: &&Section| {
            let name = section.name.as_str();
            let second_copy = [Piece::CodesKMajor, Piece::ScalesKMajor]
                .iter()
                .any(|piece| name.ends_with(piece.suffix()));
            let table = name.starts_with("embed.") || name.starts_with("rope.");
            !second_copy && !table
        };
        let whole: u64 = self.sections.iter().filter(once).map(|s| s.bytes).sum();
        let embedding_row: u64 = [Piece::Codes, Piece::Scales, Piece::ZeroPoints]
            .map(|piece| Matrix::Embed.piece_bytes(shape, piece) / u64::from(shape.vocab))
            .iter()
            .sum();
        let rope_rows = if shape.layers.contains(&LayerKind::Attention) {
            2 * shape.rope_row_bytes()
        } else {
            0
        };
        whole + embedding_row + rope_rows
    }
}
