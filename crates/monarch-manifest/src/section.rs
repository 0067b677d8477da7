//! Names and sizes of the weight sections, derived from the shape.

use crate::spec::{BLOCK, LayerKind, Shape};

pub(crate) const ROPE_COS: &str = "rope.cos";
pub(crate) const ROPE_SIN: &str = "rope.sin";
pub(crate) const ROPE_COS_EXT: &str = "rope.cos_ext";
pub(crate) const ROPE_SIN_EXT: &str = "rope.sin_ext";

/// A named byte range of `weights.bin`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Such as `L0.conv.in_proj.quant`.
    pub name: String,
    /// First byte in the file, a multiple of 4.
    pub offset_bytes: u64,
    /// Length.
    pub bytes: u64,
    /// Digest of exactly those bytes, checked before they are uploaded.
    pub sha256: Option<[u8; 32]>,
}

impl Section {
    /// First byte after the section.
    pub fn end_bytes(&self) -> u64 {
        self.offset_bytes + self.bytes
    }
}

/// A rotary table that a manifest lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RopeTable<'a> {
    /// f32 `[positions, Dh / 2]`.
    pub cos: &'a Section,
    /// f32 `[positions, Dh / 2]`.
    pub sin: &'a Section,
    /// Rows of both tables.
    pub positions: u32,
}

/// A quantised matrix of the model, y = W x.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Matrix {
    /// N = 3H rows (B, C, x), K = H.
    ConvInProj,
    /// N = H, K = H.
    ConvOutProj,
    /// N = (Hq + 2 Hkv) Dh rows (q, k, v), K = H.
    AttnQkv,
    /// N = H, K = Hq Dh.
    AttnOProj,
    /// N = 2F rows (gate, then up), K = H.
    MlpGateUp,
    /// N = H, K = F.
    MlpDown,
    /// N = V, K = H; logits.
    Head,
    /// N = V, K = H; one row is one token's embedding.
    Embed,
}

/// A part of a [`Matrix`] with a section of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Piece {
    /// 4-bit `[N, K/32, 16 bytes]`, low nibble = even column.
    Codes,
    /// One per block, `[N, K/32]`, f32 or f16.
    Scales,
    /// 4-bit `[N, ceil(K/64) bytes]`, low nibble = even block; absent means 8.
    ZeroPoints,
    /// The codes regrouped as `[K/32, N, 16 bytes]`; only the down projection has them.
    CodesKMajor,
    /// The scales regrouped as `[K/32, N]`; only the down projection has them.
    ScalesKMajor,
    /// f32 `[N]`; only the conv projections have one.
    Bias,
}

/// An f32 vector (or, for the taps, a small matrix) of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Vector {
    /// RMSNorm weight `[H]` in front of the conv operator.
    ConvInProjNorm,
    /// `[H, L]`, last tap = current token.
    ConvTaps,
    /// `[H]`, added to the convolution.
    ConvBias,
    /// RMSNorm weight `[H]` in front of the attention operator.
    AttnNorm,
    /// RMSNorm weight `[Dh]` of every query head.
    QNorm,
    /// RMSNorm weight `[Dh]` of every key head.
    KNorm,
    /// RMSNorm weight `[H]` in front of the MLP.
    MlpNorm,
    /// RMSNorm weight `[H]` in front of the head.
    FinalNorm,
}

/// A section that a shape requires or allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedSection {
    /// The only name it may have.
    pub name: String,
    /// The only size it may have.
    pub bytes: u64,
    /// True when a manifest may leave it out.
    pub optional: bool,
    /// Where the size comes from, such as `N=3072 K=1024`.
    pub dimensions: String,
}

impl Matrix {
    /// Every matrix, in the order of a layer, then head and embedding.
    pub const ALL: [Self; 8] = [
        Self::ConvInProj,
        Self::ConvOutProj,
        Self::AttnQkv,
        Self::AttnOProj,
        Self::MlpGateUp,
        Self::MlpDown,
        Self::Head,
        Self::Embed,
    ];

    /// Output rows N and columns K. The shape has to be valid, see [`Shape::validate`].
    pub fn rows_cols(self, shape: &Shape) -> (u32, u32) {
        let (hidden, query) = (shape.hidden, shape.heads * shape.head_dim);
        match self {
            Self::ConvInProj => (3 * hidden, hidden),
            Self::ConvOutProj => (hidden, hidden),
            Self::AttnQkv => ((shape.heads + 2 * shape.kv_heads) * shape.head_dim, hidden),
            Self::AttnOProj => (hidden, query),
            Self::MlpGateUp => (2 * shape.ffn, hidden),
            Self::MlpDown => (hidden, shape.ffn),
            Self::Head | Self::Embed => (shape.vocab, hidden),
        }
    }

    /// Name of the section that holds `piece`.
    ///
    /// # Panics
    ///
    /// When `layer` is missing for a matrix that every layer has, or given for head or embedding.
    pub fn section(self, layer: Option<u32>, piece: Piece) -> String {
        let (stem, piece) = (self.stem(), piece.suffix());
        match (self.is_per_layer(), layer) {
            (true, Some(layer)) => format!("L{layer}.{stem}.{piece}"),
            (false, None) => format!("{stem}.{piece}"),
            _ => panic!("{self:?} with layer {layer:?}: head and embed have none, others one"),
        }
    }

    /// False for [`Self::Head`] and [`Self::Embed`], which the model has once.
    pub fn is_per_layer(self) -> bool {
        !matches!(self, Self::Head | Self::Embed)
    }

    fn stem(self) -> &'static str {
        match self {
            Self::ConvInProj => "conv.in_proj",
            Self::ConvOutProj => "conv.out_proj",
            Self::AttnQkv => "attn.qkv",
            Self::AttnOProj => "attn.o_proj",
            Self::MlpGateUp => "mlp.gate_up",
            Self::MlpDown => "mlp.down",
            Self::Head => "head",
            Self::Embed => "embed",
        }
    }

    /// Bytes of `piece` for this shape, whether or not a manifest has to list it.
    pub fn piece_bytes(self, shape: &Shape, piece: Piece) -> u64 {
        let (n, k) = self.rows_cols(shape);
        let (n, k, block) = (u64::from(n), u64::from(k), u64::from(BLOCK));
        match piece {
            Piece::Codes | Piece::CodesKMajor => n * k / 2,
            Piece::Scales | Piece::ScalesKMajor => n * (k / block) * shape.scale_type.bytes(),
            Piece::ZeroPoints => n * k.div_ceil(2 * block),
            Piece::Bias => n * 4,
        }
    }
}

impl Piece {
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Codes => "quant",
            Self::Scales => "scales",
            Self::ZeroPoints => "zero_points",
            Self::CodesKMajor => "kquant",
            Self::ScalesKMajor => "kscales",
            Self::Bias => "bias",
        }
    }
}

impl Vector {
    /// Name of its section.
    ///
    /// # Panics
    ///
    /// When `layer` is missing for a vector that layers have, or given for the final norm.
    pub fn section(self, layer: Option<u32>) -> String {
        let stem = match self {
            Self::ConvInProjNorm => "conv.in_proj.norm",
            Self::ConvTaps => "conv.core.taps",
            Self::ConvBias => "conv.core.bias",
            Self::AttnNorm => "attn.qkv.norm",
            Self::QNorm => "attn.qkv.q_norm",
            Self::KNorm => "attn.qkv.k_norm",
            Self::MlpNorm => "mlp.gate_up.norm",
            Self::FinalNorm => "head.norm",
        };
        match (self, layer) {
            (Self::FinalNorm, None) => stem.to_owned(),
            (Self::FinalNorm, Some(_)) | (_, None) => {
                panic!("{self:?} with layer {layer:?}: the final norm has none, others one")
            }
            (_, Some(layer)) => format!("L{layer}.{stem}"),
        }
    }

    /// Numbers in it.
    pub fn elems(self, shape: &Shape) -> u64 {
        match self {
            Self::QNorm | Self::KNorm => u64::from(shape.head_dim),
            Self::ConvTaps => u64::from(shape.hidden) * u64::from(shape.conv_window),
            _ => u64::from(shape.hidden),
        }
    }
}

impl Shape {
    /// Every section this shape requires or allows, except the rotary tables.
    ///
    /// Their length is a matter of context, not of shape; see [`Self::rope_row_bytes`]. The order
    /// is the one in which a pass reads them: layers, then head, then embedding.
    pub fn section_sizes(&self) -> Vec<ExpectedSection> {
        let mut sections = Vec::new();
        for (layer, kind) in (0u32..).zip(&self.layers) {
            let layer = Some(layer);
            match kind {
                LayerKind::Conv => {
                    self.push_vector(&mut sections, layer, Vector::ConvInProjNorm);
                    self.push_matrix(&mut sections, layer, Matrix::ConvInProj);
                    self.push_vector(&mut sections, layer, Vector::ConvTaps);
                    if self.conv_bias {
                        self.push_vector(&mut sections, layer, Vector::ConvBias);
                    }
                    self.push_matrix(&mut sections, layer, Matrix::ConvOutProj);
                }
                LayerKind::Attention => {
                    self.push_vector(&mut sections, layer, Vector::AttnNorm);
                    self.push_matrix(&mut sections, layer, Matrix::AttnQkv);
                    self.push_vector(&mut sections, layer, Vector::QNorm);
                    self.push_vector(&mut sections, layer, Vector::KNorm);
                    self.push_matrix(&mut sections, layer, Matrix::AttnOProj);
                }
            }
            self.push_vector(&mut sections, layer, Vector::MlpNorm);
            self.push_matrix(&mut sections, layer, Matrix::MlpGateUp);
            self.push_matrix(&mut sections, layer, Matrix::MlpDown);
        }
        self.push_vector(&mut sections, None, Vector::FinalNorm);
        self.push_matrix(&mut sections, None, Matrix::Head);
        self.push_matrix(&mut sections, None, Matrix::Embed);
        sections
    }

    /// Bytes of one position in one rotary table: f32 `[Dh / 2]`.
    pub fn rope_row_bytes(&self) -> u64 {
        u64::from(self.head_dim / 2) * 4
    }

    fn push_matrix(&self, to: &mut Vec<ExpectedSection>, layer: Option<u32>, matrix: Matrix) {
        let (n, k) = matrix.rows_cols(self);
        let mut push = |piece, optional| {
            to.push(ExpectedSection {
                name: matrix.section(layer, piece),
                bytes: matrix.piece_bytes(self, piece),
                optional,
                dimensions: format!("N={n} K={k}"),
            });
        };
        push(Piece::Codes, false);
        push(Piece::Scales, false);
        // The embedding and the head are quantised asymmetrically, everything else may be.
        push(Piece::ZeroPoints, matrix.is_per_layer());
        if matrix == Matrix::MlpDown {
            push(Piece::CodesKMajor, true);
            push(Piece::ScalesKMajor, true);
        }
        if self.conv_bias && matches!(matrix, Matrix::ConvInProj | Matrix::ConvOutProj) {
            push(Piece::Bias, false);
        }
    }

    fn push_vector(&self, to: &mut Vec<ExpectedSection>, layer: Option<u32>, vector: Vector) {
        let dimensions = match vector {
            Vector::QNorm | Vector::KNorm => format!("Dh={}", self.head_dim),
            Vector::ConvTaps => format!("H={} L={}", self.hidden, self.conv_window),
            _ => format!("H={}", self.hidden),
        };
        to.push(ExpectedSection {
            name: vector.section(layer),
            bytes: vector.elems(self) * 4,
            optional: false,
            dimensions,
        });
    }
}
