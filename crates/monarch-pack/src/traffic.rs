//! How many bytes of weights a token costs.

use monarch_manifest::{Matrix, Piece, Shape, Vector};

use crate::checkpoint::{has_bias, layer_matrices, layer_vectors};

/// Bytes of weights that one decode step has to read.
///
/// Counted are every matrix once (codes, scales, zero points, bias; the head included), one row of
/// the embedding, and all norms and taps. Not counted are second copies of a matrix, rotary tables,
/// keys and values: they depend on the plan and the context, not on the model.
pub fn bytes_per_token(shape: &Shape) -> u64 {
    let matrix = |matrix: Matrix, pieces: &[Piece]| -> u64 {
        pieces
            .iter()
            .map(|&piece| matrix.piece_bytes(shape, piece))
            .sum()
    };
    const SYMMETRIC: &[Piece] = &[Piece::Codes, Piece::Scales];
    const ASYMMETRIC: &[Piece] = &[Piece::Codes, Piece::Scales, Piece::ZeroPoints];

    let mut bytes = matrix(Matrix::Head, ASYMMETRIC);
    bytes += matrix(Matrix::Embed, ASYMMETRIC) / u64::from(shape.vocab);
    bytes += Vector::FinalNorm.elems(shape) * 4;
    for &kind in &shape.layers {
        for m in layer_matrices(kind) {
            bytes += matrix(m, SYMMETRIC);
            if has_bias(shape, m) {
                bytes += m.piece_bytes(shape, Piece::Bias);
            }
        }
        for vector in layer_vectors(shape, kind) {
            bytes += vector.elems(shape) * 4;
        }
    }
    bytes
}
