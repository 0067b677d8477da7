//! Weights to 4-bit codes in blocks of 32, and back.
//!
//! Linear weights are symmetric (zero point 8 everywhere), the embedding and the head asymmetric.
//! All steps are f32 with rounding half to even, so that the codes and scales are the same bits
//! on every machine.

use half::f16;
use monarch_manifest::BLOCK;
use rayon::prelude::*;

/// Columns of a block as an index.
const BLOCK_ELEMS: usize = BLOCK as usize;
/// Bytes of a block's codes.
const BLOCK_BYTES: usize = BLOCK_ELEMS / 2;
/// Zero point of symmetric weights.
const MIDDLE: u8 = 8;

/// A quantised matrix `[N, K]`, row-major, `K` a multiple of 32.
///
/// Weight = (code - zero point) * scale.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantised {
    /// `[N, K/32, 16]`: two codes per byte, low nibble = even column.
    pub codes: Vec<u8>,
    /// f32 `[N, K/32]`: one per block.
    pub scales: Vec<f32>,
    /// `[N, ceil(K/64)]`: two zero points per byte, low nibble = even block. `None`: 8 everywhere.
    pub zero_points: Option<Vec<u8>>,
}

/// One block: 32 codes, each below 16, in column order.
struct Block {
    codes: [u8; BLOCK_ELEMS],
    scale: f32,
    zero_point: u8,
}

/// Quantises `weights`, `[N, cols]`, with zero point 8.
///
/// `s = max|w| / 7`, `code = clamp(rint(w / s), -8, 7) + 8`. A block of zeros has scale 0 and
/// codes 8.
///
/// # Panics
///
/// When `cols` is not a positive multiple of 32 or does not divide the number of weights.
pub fn symmetric(weights: &[f32], cols: usize) -> Quantised {
    quantise(weights, cols, false)
}

/// Quantises `weights`, `[N, cols]`, with a zero point per block.
///
/// `lo = min(min w, 0)`, `hi = max(max w, 0)`, `s = (hi - lo) / 15`,
/// `zero point = clamp(rint(-lo / s), 0, 15)`, `code = clamp(rint(w / s) + zero point, 0, 15)`.
/// A block of zeros has scale, zero point and codes 0.
///
/// # Panics
///
/// When `cols` is not a positive multiple of 32 or does not divide the number of weights.
pub fn asymmetric(weights: &[f32], cols: usize) -> Quantised {
    quantise(weights, cols, true)
}

/// The weights that `quantised`, `[N, cols]`, stands for.
///
/// # Panics
///
/// When the parts are not those of a matrix with `cols` columns.
pub fn dequantise(quantised: &Quantised, cols: usize) -> Vec<f32> {
    let blocks_per_row = blocks_per_row(cols);
    assert_eq!(
        quantised.scales.len() % blocks_per_row,
        0,
        "scales of whole rows"
    );
    assert_eq!(
        quantised.codes.len(),
        quantised.scales.len() * BLOCK_BYTES,
        "16 bytes per scale"
    );
    let zero_bytes_per_row = blocks_per_row.div_ceil(2);
    if let Some(zero_points) = &quantised.zero_points {
        let rows = quantised.scales.len() / blocks_per_row;
        assert_eq!(
            zero_points.len(),
            rows * zero_bytes_per_row,
            "a zero point per block"
        );
    }

    let mut weights = vec![0.0; quantised.scales.len() * BLOCK_ELEMS];
    weights
        .par_chunks_mut(cols)
        .enumerate()
        .for_each(|(row, weights)| {
            for (in_row, weights) in weights.chunks_exact_mut(BLOCK_ELEMS).enumerate() {
                let block = row * blocks_per_row + in_row;
                let zero_point = quantised.zero_point(block, cols);
                let codes = &quantised.codes[block * BLOCK_BYTES..][..BLOCK_BYTES];
                for (col, weight) in weights.iter_mut().enumerate() {
                    let steps = i32::from(nibble(codes[col / 2], col)) - i32::from(zero_point);
                    *weight = steps as f32 * quantised.scales[block];
                }
            }
        });
    weights
}

impl Quantised {
    /// Zero point of the block with that row-major index, in a matrix with `cols` columns.
    pub(crate) fn zero_point(&self, block: usize, cols: usize) -> u8 {
        let blocks_per_row = blocks_per_row(cols);
        let (row, in_row) = (block / blocks_per_row, block % blocks_per_row);
        match &self.zero_points {
            None => MIDDLE,
            Some(packed) => nibble(
                packed[row * blocks_per_row.div_ceil(2) + in_row / 2],
                in_row,
            ),
        }
    }

    /// Rounds the scales to f16 values.
    ///
    /// A scale too small for f16 becomes 0; the codes of its block then move to the zero point, so
    /// that a zero scale always means a block of zeros. Fails with the index of the first block
    /// whose scale is too large for f16, and the scale.
    pub fn round_scales_to_f16(&mut self, cols: usize) -> Result<(), (usize, f32)> {
        for block in 0..self.scales.len() {
            let scale = self.scales[block];
            let rounded = f16::from_f32(scale).to_f32();
            if !rounded.is_finite() {
                return Err((block, scale));
            }
            if rounded == 0.0 && scale != 0.0 {
                let zero_point = self.zero_point(block, cols);
                self.codes[block * BLOCK_BYTES..][..BLOCK_BYTES]
                    .fill(zero_point | (zero_point << 4));
            }
            self.scales[block] = rounded;
        }
        Ok(())
    }
}

fn quantise(weights: &[f32], cols: usize, with_zero_points: bool) -> Quantised {
    let blocks_per_row = blocks_per_row(cols);
    assert_eq!(
        weights.len() % cols,
        0,
        "{} weights in rows of {cols}",
        weights.len()
    );
    let rows = weights.len() / cols;

    let mut codes = vec![0; weights.len() / 2];
    let mut scales = vec![0.0; weights.len() / BLOCK_ELEMS];
    let mut zero_points = vec![0; rows * blocks_per_row.div_ceil(2)];
    weights
        .par_chunks(cols)
        .zip(codes.par_chunks_mut(cols / 2))
        .zip(scales.par_chunks_mut(blocks_per_row))
        .zip(zero_points.par_chunks_mut(blocks_per_row.div_ceil(2)))
        .for_each(|(((weights, codes), scales), zero_points)| {
            for (in_row, weights) in weights.chunks_exact(BLOCK_ELEMS).enumerate() {
                let block = if with_zero_points {
                    asymmetric_block(weights)
                } else {
                    symmetric_block(weights)
                };
                scales[in_row] = block.scale;
                zero_points[in_row / 2] |= block.zero_point << (4 * (in_row % 2));
                for (byte, pair) in codes[in_row * BLOCK_BYTES..][..BLOCK_BYTES]
                    .iter_mut()
                    .zip(block.codes.chunks(2))
                {
                    *byte = pair[0] | (pair[1] << 4);
                }
            }
        });
    Quantised {
        codes,
        scales,
        zero_points: with_zero_points.then_some(zero_points),
    }
}

fn symmetric_block(weights: &[f32]) -> Block {
    let largest = weights
        .iter()
        .fold(0.0f32, |largest, w| largest.max(w.abs()));
    let scale = largest / 7.0;
    let mut codes = [MIDDLE; BLOCK_ELEMS];
    if scale > 0.0 {
        for (code, w) in codes.iter_mut().zip(weights) {
            *code = ((w / scale).round_ties_even().clamp(-8.0, 7.0) as i8 + MIDDLE as i8) as u8;
        }
    }
    Block {
        codes,
        scale,
        zero_point: MIDDLE,
    }
}

fn asymmetric_block(weights: &[f32]) -> Block {
    let lo = weights.iter().fold(0.0f32, |lo, &w| lo.min(w));
    let hi = weights.iter().fold(0.0f32, |hi, &w| hi.max(w));
    let scale = (hi - lo) / 15.0;
    let mut codes = [0; BLOCK_ELEMS];
    let mut zero_point = 0.0;
    if scale > 0.0 {
        zero_point = (-lo / scale).round_ties_even().clamp(0.0, 15.0);
        for (code, w) in codes.iter_mut().zip(weights) {
            *code = ((w / scale).round_ties_even() + zero_point).clamp(0.0, 15.0) as u8;
        }
    }
    Block {
        codes,
        scale,
        zero_point: zero_point as u8,
    }
}

/// The code or zero point number `index` of a row, `byte` being the one that holds it.
fn nibble(byte: u8, index: usize) -> u8 {
    (byte >> (4 * (index % 2))) & 0xf
}

fn blocks_per_row(cols: usize) -> usize {
    assert!(
        cols > 0 && cols.is_multiple_of(BLOCK_ELEMS),
        "{cols} columns in blocks of 32"
    );
    cols / BLOCK_ELEMS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One row of one block, `weights` padded with zeros.
    fn block(weights: &[f32]) -> [f32; 32] {
        let mut block = [0.0; 32];
        block[..weights.len()].copy_from_slice(weights);
        block
    }

    #[test]
    fn symmetric_rounds_half_to_even_and_keeps_the_extremes() {
        // Scale 2, so w / s = 7, -7, 0.5, 1.5, 2.5, -0.5, -1.5.
        let quantised = symmetric(&block(&[14.0, -14.0, 1.0, 3.0, 5.0, -1.0, -3.0]), 32);
        assert_eq!(quantised.scales, [2.0]);
        assert_eq!(quantised.codes[..4], [0x1f, 0xa8, 0x8a, 0x86]);
        assert_eq!(
            dequantise(&quantised, 32)[..8],
            [14.0, -14.0, 0.0, 4.0, 4.0, 0.0, -4.0, 0.0]
        );
    }

    #[test]
    fn asymmetric_zero_is_exact_on_either_side() {
        for (weights, zero_point, scale) in [
            (vec![15.0, 1.0], 0, 1.0),
            (vec![-15.0, -1.0], 15, 1.0),
            (vec![10.0, -5.0], 5, 1.0),
        ] {
            let quantised = asymmetric(&block(&weights), 32);
            assert_eq!(quantised.scales, [scale]);
            assert_eq!(quantised.zero_points, Some(vec![zero_point]));
            let back = dequantise(&quantised, 32);
            assert_eq!(back[..2], weights);
            assert_eq!(back[2..], [0.0; 30]);
        }
    }

    #[test]
    fn blocks_of_zeros_stay_zeros() {
        let quantised = symmetric(&[0.0; 64], 64);
        assert_eq!(
            quantised,
            Quantised {
                codes: vec![0x88; 32],
                scales: vec![0.0; 2],
                zero_points: None,
            }
        );
        assert_eq!(dequantise(&quantised, 64), [0.0; 64]);
        let quantised = asymmetric(&[-0.0; 96], 96);
        assert_eq!(
            quantised,
            Quantised {
                codes: vec![0; 48],
                scales: vec![0.0; 3],
                zero_points: Some(vec![0; 2]),
            }
        );
        assert_eq!(dequantise(&quantised, 96), [0.0; 96]);
    }

    #[test]
    fn zero_points_of_an_odd_number_of_blocks_start_each_row_anew() {
        let row: Vec<f32> = [15.0, -15.0, 15.0]
            .iter()
            .flat_map(|&w| block(&[w]))
            .collect();
        let other: Vec<f32> = row.iter().map(|w| -w).collect();
        let quantised = asymmetric(&[row.clone(), other.clone()].concat(), 96);
        assert_eq!(quantised.zero_points, Some(vec![0xf0, 0x00, 0x0f, 0x0f]));
        assert_eq!(dequantise(&quantised, 96), [row, other].concat());
    }

    #[test]
    fn the_smallest_numbers_do_not_divide_by_zero() {
        // A seventh of the smallest number rounds to a scale of zero.
        let quantised = symmetric(&block(&[f32::from_bits(1)]), 32);
        assert_eq!(quantised.scales, [0.0]);
        assert_eq!(quantised.codes, [0x88; 16]);
    }

    #[test]
    #[should_panic(expected = "33 columns in blocks of 32")]
    fn columns_that_are_no_blocks_are_our_own_bug() {
        symmetric(&[0.0; 33], 33);
    }

    proptest! {
        /// No weight moves by more than half a step, or a whole one where a zero point is rounded too.
        #[test]
        fn error_is_bounded_by_the_step(
            weights in proptest::collection::vec(-100.0f32..100.0, 32),
            offset in -150.0f32..150.0,
        ) {
            let shifted: Vec<f32> = weights.iter().map(|w| w + offset).collect();
            for (weights, quantised) in [
                (&weights, symmetric(&weights, 32)),
                (&weights, asymmetric(&weights, 32)),
                (&shifted, asymmetric(&shifted, 32)),
            ] {
                // With a zero point two roundings add up at the ends of the range.
                let steps = if quantised.zero_points.is_some() { 1.0 } else { 0.5 };
                let limit = quantised.scales[0] * (steps + 1e-4);
                for (w, back) in weights.iter().zip(dequantise(&quantised, 32)) {
                    prop_assert!((w - back).abs() <= limit, "{w} became {back}, step {limit}");
                }
            }
        }
    }
}
