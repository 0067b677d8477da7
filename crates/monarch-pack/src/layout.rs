//! Which sections a packed model has, and where they are in `weights.bin`.

use monarch_manifest::{LayerKind, Matrix, Piece, ScaleType, Section, Shape, Vector};

use crate::checkpoint::{has_bias, layer_matrices, layer_vectors};
use crate::error::PackError;

/// Which sections are written, and in which order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// Ours: nothing that can be derived at load, f16 scales unless told otherwise, matrices and
    /// vectors of a layer side by side.
    #[default]
    Default,
    /// The table of the public LFM2.5-230M engine: all matrices first, a second copy of the down
    /// projections, rotary tables of two lengths, f32 scales unless told otherwise.
    Seed,
}

/// How a model is packed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LayoutOptions {
    /// Order and set of sections.
    pub layout: Layout,
    /// Number type of the block scales; none for the layout's own.
    pub scales: Option<ScaleType>,
    /// Prompt and output tokens of one conversation; none for the layout's own limit.
    pub context_tokens: Option<u32>,
}

/// The context of the default layout unless told otherwise: 100 MB of f32 keys and values in the
/// 230M model. A load option can raise it.
const DEFAULT_CONTEXT_TOKENS: u32 = 4096;
/// The seed's limit on prompt and output.
const SEED_CONTEXT_TOKENS: u32 = 2112;
/// Sections of the default layout can be bound in place on every adapter.
const DEFAULT_ALIGN_BYTES: u64 = 256;
/// The seed's sizes leave no gaps; this is the least that other shapes need.
const SEED_ALIGN_BYTES: u64 = 4;
/// Positions of the seed's long rotary table.
const SEED_TABLE_POSITIONS: u32 = 2560;
/// Positions of the seed's short rotary table.
const SEED_SHORT_TABLE_POSITIONS: u32 = 1024;

/// Sections, sizes and limits of a packed model; digests are not known yet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Table {
    /// The checkpoint's shape with the scale type that is written.
    pub(crate) shape: Shape,
    pub(crate) sections: Vec<Section>,
    pub(crate) weight_bytes: u64,
    pub(crate) rope_table_positions: u32,
    pub(crate) context_tokens: u32,
}

impl Table {
    /// Lays out a model of that shape.
    pub(crate) fn new(
        shape: &Shape,
        max_positions: u32,
        options: &LayoutOptions,
    ) -> Result<Self, PackError> {
        if let Some(asked) = options.context_tokens
            && !(1..=max_positions).contains(&asked)
        {
            return Err(PackError::Context {
                asked,
                max: max_positions,
            });
        }
        let (scales, positions, context_tokens) = match (options.layout, options.context_tokens) {
            (Layout::Default, None) => {
                let context = DEFAULT_CONTEXT_TOKENS.min(max_positions);
                (ScaleType::F16, context, context)
            }
            (Layout::Default, Some(context)) => (ScaleType::F16, context, context),
            (Layout::Seed, None) => (
                ScaleType::F32,
                SEED_TABLE_POSITIONS.min(max_positions),
                SEED_CONTEXT_TOKENS.min(max_positions),
            ),
            (Layout::Seed, Some(context)) => (ScaleType::F32, context, context),
        };
        shape
            .validate()
            .map_err(|source| PackError::Shape { source })?;
        let mut shape = shape.clone();
        shape.scale_type = options.scales.unwrap_or(scales);

        let align_bytes = match options.layout {
            Layout::Default => DEFAULT_ALIGN_BYTES,
            Layout::Seed => SEED_ALIGN_BYTES,
        };
        let mut writer = Writer {
            shape: &shape,
            sections: Vec::new(),
            end_bytes: 0,
            align_bytes,
        };
        match options.layout {
            Layout::Default => default_layout(&mut writer),
            Layout::Seed => seed_layout(&mut writer, positions),
        }
        let Writer {
            sections,
            end_bytes,
            ..
        } = writer;
        Ok(Self {
            shape,
            sections,
            weight_bytes: end_bytes,
            rope_table_positions: positions,
            context_tokens,
        })
    }
}

/// Appends sections, each at the next aligned offset.
struct Writer<'a> {
    shape: &'a Shape,
    sections: Vec<Section>,
    end_bytes: u64,
    align_bytes: u64,
}

impl Writer<'_> {
    fn push(&mut self, name: String, bytes: u64) {
        let offset_bytes = self.end_bytes.next_multiple_of(self.align_bytes);
        self.sections.push(Section {
            name,
            offset_bytes,
            bytes,
            sha256: None,
        });
        self.end_bytes = offset_bytes + bytes;
    }

    fn piece(&mut self, layer: Option<u32>, matrix: Matrix, piece: Piece) {
        self.push(
            matrix.section(layer, piece),
            matrix.piece_bytes(self.shape, piece),
        );
    }

    fn codes_and_scales(&mut self, layer: Option<u32>, matrix: Matrix) {
        self.piece(layer, matrix, Piece::Codes);
        self.piece(layer, matrix, Piece::Scales);
    }

    fn bias(&mut self, layer: Option<u32>, matrix: Matrix) {
        if has_bias(self.shape, matrix) {
            self.piece(layer, matrix, Piece::Bias);
        }
    }

    fn vector(&mut self, layer: Option<u32>, vector: Vector) {
        self.push(vector.section(layer), vector.elems(self.shape) * 4);
    }

    fn head_and_embedding(&mut self) {
        const PIECES: [Piece; 3] = [Piece::Codes, Piece::Scales, Piece::ZeroPoints];
        let head = self.sections.len();
        for piece in PIECES {
            self.piece(None, Matrix::Head, piece);
        }
        for (i, piece) in PIECES.into_iter().enumerate() {
            if self.shape.tied_embedding {
                let name = Matrix::Embed.section(None, piece);
                let alias = Section {
                    name,
                    ..self.sections[head + i].clone()
                };
                self.sections.push(alias);
            } else {
                self.piece(None, Matrix::Embed, piece);
            }
        }
    }

    fn rope(&mut self, suffix: &str, positions: u32) {
        let bytes = u64::from(positions) * self.shape.rope_row_bytes();
        self.push(format!("rope.cos{suffix}"), bytes);
        self.push(format!("rope.sin{suffix}"), bytes);
    }

    fn layers(&self) -> impl Iterator<Item = (Option<u32>, LayerKind)> + use<> {
        (0u32..).map(Some).zip(self.shape.layers.clone())
    }
}

/// Layer by layer, then norm, head and embedding: the order of a pass.
fn default_layout(writer: &mut Writer<'_>) {
    for (layer, kind) in writer.layers() {
        for matrix in layer_matrices(kind) {
            writer.codes_and_scales(layer, matrix);
            writer.bias(layer, matrix);
        }
        for vector in layer_vectors(writer.shape, kind) {
            writer.vector(layer, vector);
        }
    }
    writer.vector(None, Vector::FinalNorm);
    writer.head_and_embedding();
}

/// All matrices, all vectors, short rotary tables, second copies, long rotary tables.
fn seed_layout(writer: &mut Writer<'_>, positions: u32) {
    for (layer, kind) in writer.layers() {
        for matrix in layer_matrices(kind) {
            writer.codes_and_scales(layer, matrix);
        }
    }
    writer.head_and_embedding();
    for (layer, kind) in writer.layers() {
        for vector in layer_vectors(writer.shape, kind) {
            writer.vector(layer, vector);
        }
        for matrix in layer_matrices(kind) {
            writer.bias(layer, matrix);
        }
    }
    writer.vector(None, Vector::FinalNorm);
    writer.rope("", positions.min(SEED_SHORT_TABLE_POSITIONS));
    for (layer, _) in writer.layers() {
        writer.piece(layer, Matrix::MlpDown, Piece::CodesKMajor);
        writer.piece(layer, Matrix::MlpDown, Piece::ScalesKMajor);
    }
    if positions > SEED_SHORT_TABLE_POSITIONS {
        writer.rope("_ext", positions);
    }
}
