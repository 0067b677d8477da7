//! The model's weights in f32, by role.

use std::error::Error;

use monarch_manifest::{LayerKind, Matrix, Shape, Vector};
use monarch_pack::{Checkpoint, PackError, Packed};

use crate::OracleError;

/// Anything that can give the weights of a model in f32.
pub trait WeightSource {
    /// Why a tensor could not be given.
    type Error: Error + Send + Sync + 'static;

    /// The sizes of the model.
    fn shape(&self) -> &Shape;
    /// A matrix, row-major `[N, K]`, dequantised when it is stored in 4 bits. `layer` is none for head and embedding.
    fn matrix_f32(&self, layer: Option<u32>, matrix: Matrix) -> Result<Vec<f32>, Self::Error>;
    /// A vector. `layer` is none for the final norm.
    fn vector_f32(&self, layer: Option<u32>, vector: Vector) -> Result<Vec<f32>, Self::Error>;
    /// The bias `[N]` of a matrix, when it has one.
    fn bias_f32(&self, layer: Option<u32>, matrix: Matrix)
    -> Result<Option<Vec<f32>>, Self::Error>;
}

/// As stored, widened to f32.
impl WeightSource for Checkpoint {
    type Error = PackError;

    fn shape(&self) -> &Shape {
        self.shape()
    }

    fn matrix_f32(&self, layer: Option<u32>, matrix: Matrix) -> Result<Vec<f32>, PackError> {
        self.matrix_f32(layer, matrix)
    }

    fn vector_f32(&self, layer: Option<u32>, vector: Vector) -> Result<Vec<f32>, PackError> {
        self.vector_f32(layer, vector)
    }

    fn bias_f32(&self, layer: Option<u32>, matrix: Matrix) -> Result<Option<Vec<f32>>, PackError> {
        self.bias_f32(layer, matrix)
    }
}

/// Dequantised with the scales of the file.
impl WeightSource for Packed {
    type Error = PackError;

    fn shape(&self) -> &Shape {
        self.shape()
    }

    fn matrix_f32(&self, layer: Option<u32>, matrix: Matrix) -> Result<Vec<f32>, PackError> {
        self.matrix_f32(layer, matrix)
    }

    fn vector_f32(&self, layer: Option<u32>, vector: Vector) -> Result<Vec<f32>, PackError> {
        self.vector_f32(layer, vector)
    }

    fn bias_f32(&self, layer: Option<u32>, matrix: Matrix) -> Result<Option<Vec<f32>>, PackError> {
        self.bias_f32(layer, matrix)
    }
}

/// All weights of a model.
///
/// Matrices are row-major `[N, K]` for `y = W x`. Fields are open, so that a test can break a model on purpose.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    /// The sizes of the model.
    pub shape: Shape,
    /// Token embedding, `[V, D]`.
    pub embed: Vec<f32>,
    /// The decoder layers.
    pub layers: Vec<Layer>,
    /// RMSNorm weight after the last layer, `[D]` (`embedding_norm` in the checkpoint).
    pub final_norm: Vec<f32>,
    /// Output head, `[V, D]`; none when it is tied to the embedding.
    pub head: Option<Vec<f32>>,
}

/// One decoder layer: operator, then gated feed-forward, each on a normalised copy of the residual stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// RMSNorm weight before the operator, `[D]`.
    pub operator_norm: Vec<f32>,
    /// Short conv or attention.
    pub operator: Operator,
    /// RMSNorm weight before the feed-forward half, `[D]`.
    pub ffn_norm: Vec<f32>,
    /// Gate rows (w1), then up rows (w3), `[2F, D]`.
    pub gate_up: Vec<f32>,
    /// Down projection (w2), `[D, F]`.
    pub down: Vec<f32>,
}

/// The first half of a layer.
#[derive(Clone, Debug, PartialEq)]
pub enum Operator {
    /// Gated short convolution.
    ShortConv(ShortConv),
    /// Grouped-query attention.
    Attention(Attention),
}

/// Weights of a gated short convolution, H = D channels, L taps.
#[derive(Clone, Debug, PartialEq)]
pub struct ShortConv {
    /// Rows B, C, x, `[3H, D]`.
    pub in_proj: Vec<f32>,
    /// `[3H]`
    pub in_proj_bias: Option<Vec<f32>>,
    /// `[H, L]`, the last tap for the current token.
    pub taps: Vec<f32>,
    /// `[H]`
    pub bias: Option<Vec<f32>>,
    /// `[D, H]`
    pub out_proj: Vec<f32>,
    /// `[D]`
    pub out_proj_bias: Option<Vec<f32>>,
}

/// Weights of a grouped-query attention.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Rows q, k, v, `[(Hq + 2 Hkv) * Dh, D]`.
    pub qkv: Vec<f32>,
    /// RMSNorm weight of each query head, `[Dh]`.
    pub q_norm: Vec<f32>,
    /// RMSNorm weight of each key head, `[Dh]`.
    pub k_norm: Vec<f32>,
    /// `[D, Hq * Dh]`
    pub out_proj: Vec<f32>,
}

impl Weights {
    /// Reads every tensor of the model and checks its length against the shape.
    pub fn read<S: WeightSource>(source: &S) -> Result<Weights, OracleError> {
        let shape = source.shape().clone();
        if shape.kv_heads == 0 || !shape.heads.is_multiple_of(shape.kv_heads) {
            return Err(OracleError::Heads {
                heads: shape.heads,
                kv_heads: shape.kv_heads,
            });
        }
        let reader = Reader {
            source,
            shape: &shape,
        };
        let layers = (0u32..)
            .zip(&shape.layers)
            .map(|(index, &kind)| reader.layer(index, kind))
            .collect::<Result<_, OracleError>>()?;
        Ok(Weights {
            embed: reader.matrix(None, Matrix::Embed)?,
            layers,
            final_norm: reader.vector(None, Vector::FinalNorm)?,
            head: if shape.tied_embedding {
                None
            } else {
                Some(reader.matrix(None, Matrix::Head)?)
            },
            shape,
        })
    }

    /// Whether a pass can be made of `ids`: at least one, all of them in the vocabulary.
    pub fn check_ids(&self, ids: &[u32]) -> Result<(), OracleError> {
        let vocab = self.shape.vocab;
        if ids.is_empty() {
            return Err(OracleError::NoTokens);
        }
        match (0..).zip(ids).find(|&(_, &id)| id >= vocab) {
            Some((index, &id)) => Err(OracleError::TokenId { index, id, vocab }),
            None => Ok(()),
        }
    }
}

struct Reader<'a, S> {
    source: &'a S,
    shape: &'a Shape,
}

impl<S: WeightSource> Reader<'_, S> {
    fn layer(&self, index: u32, kind: LayerKind) -> Result<Layer, OracleError> {
        let layer = Some(index);
        let (norm, operator) = match kind {
            LayerKind::Conv => {
                let conv = ShortConv {
                    in_proj: self.matrix(layer, Matrix::ConvInProj)?,
                    in_proj_bias: self.bias(layer, Matrix::ConvInProj)?,
                    taps: self.vector(layer, Vector::ConvTaps)?,
                    bias: if self.shape.conv_bias {
                        Some(self.vector(layer, Vector::ConvBias)?)
                    } else {
                        None
                    },
                    out_proj: self.matrix(layer, Matrix::ConvOutProj)?,
                    out_proj_bias: self.bias(layer, Matrix::ConvOutProj)?,
                };
                (Vector::ConvInProjNorm, Operator::ShortConv(conv))
            }
            LayerKind::Attention => {
                let attention = Attention {
                    qkv: self.matrix(layer, Matrix::AttnQkv)?,
                    q_norm: self.vector(layer, Vector::QNorm)?,
                    k_norm: self.vector(layer, Vector::KNorm)?,
                    out_proj: self.matrix(layer, Matrix::AttnOProj)?,
                };
                (Vector::AttnNorm, Operator::Attention(attention))
            }
        };
        Ok(Layer {
            operator_norm: self.vector(layer, norm)?,
            operator,
            ffn_norm: self.vector(layer, Vector::MlpNorm)?,
            gate_up: self.matrix(layer, Matrix::MlpGateUp)?,
            down: self.matrix(layer, Matrix::MlpDown)?,
        })
    }

    fn matrix(&self, layer: Option<u32>, matrix: Matrix) -> Result<Vec<f32>, OracleError> {
        let (rows, cols) = matrix.rows_cols(self.shape);
        let given = self.source.matrix_f32(layer, matrix);
        checked(
            || name(layer, format_args!("{matrix:?}")),
            given,
            rows as usize * cols as usize,
        )
    }

    fn vector(&self, layer: Option<u32>, vector: Vector) -> Result<Vec<f32>, OracleError> {
        let given = self.source.vector_f32(layer, vector);
        checked(
            || name(layer, format_args!("{vector:?}")),
            given,
            vector.elems(self.shape) as usize,
        )
    }

    /// The bias of a conv projection, when the shape has conv biases.
    fn bias(&self, layer: Option<u32>, matrix: Matrix) -> Result<Option<Vec<f32>>, OracleError> {
        if !self.shape.conv_bias {
            return Ok(None);
        }
        let tensor = || name(layer, format_args!("{matrix:?} bias"));
        let given = match self.source.bias_f32(layer, matrix) {
            Ok(Some(bias)) => Ok(bias),
            Ok(None) => return Err(OracleError::MissingBias { tensor: tensor() }),
            Err(error) => Err(error),
        };
        checked(tensor, given, matrix.rows_cols(self.shape).0 as usize).map(Some)
    }
}

fn name(layer: Option<u32>, role: std::fmt::Arguments<'_>) -> String {
    match layer {
        Some(layer) => format!("L{layer} {role}"),
        None => role.to_string(),
    }
}

fn checked<E: Error + Send + Sync + 'static>(
    tensor: impl Fn() -> String,
    given: Result<Vec<f32>, E>,
    needed_elems: usize,
) -> Result<Vec<f32>, OracleError> {
    let values = given.map_err(|error| OracleError::Read {
        tensor: tensor(),
        source: Box::new(error),
    })?;
    if values.len() != needed_elems {
        return Err(OracleError::Length {
            tensor: tensor(),
            given_elems: values.len(),
            needed_elems,
        });
    }
    Ok(values)
}
