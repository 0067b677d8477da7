//! Four-bit matrices as the kernels bind them, read on the CPU.

use half::f16;

/// Columns that share a scale.
pub const BLOCK: u32 = 32;

/// A 4-bit matrix in raw words, little-endian as in the weights file.
///
/// A weight is `(code - zero_point) * scale`.
#[derive(Clone, Copy, Debug)]
pub struct Q4<'a> {
    /// Columns K, a multiple of 32.
    pub columns: u32,
    /// `[N, K/8]`: eight codes a word, the lowest nibble is the lowest column.
    pub codes: &'a [u32],
    /// `[N, K/32]`: f32 bits, or two f16 a word with the lower index in the lower half.
    pub scales: &'a [u32],
    /// Whether `scales` holds f16.
    pub scales_f16: bool,
    /// Nibbles, a row padded to whole bytes `[N, ceil(K/64)]`; `None` is 8 everywhere.
    pub zero_points: Option<&'a [u32]>,
}

impl Q4<'_> {
    /// The weight at `row`, `column`.
    pub fn weight(&self, row: usize, column: usize) -> f64 {
        let columns = self.columns as usize;
        let blocks = columns / BLOCK as usize;
        let block = column / BLOCK as usize;
        let code = nibble(self.codes, row * columns + column);
        let zero_point = match self.zero_points {
            Some(words) => nibble(words, row * blocks.next_multiple_of(2) + block),
            None => 8,
        };
        let scale = scale(self.scales, self.scales_f16, row * blocks + block);
        (f64::from(code) - f64::from(zero_point)) * scale
    }

    /// `sum_k W[row, k] * x(k)`.
    pub fn dot(&self, row: usize, x: impl Fn(usize) -> f64) -> f64 {
        (0..self.columns as usize)
            .map(|k| self.weight(row, k) * x(k))
            .sum()
    }
}

/// Scale `index` of a section in raw words.
pub(crate) fn scale(words: &[u32], is_f16: bool, index: usize) -> f64 {
    if is_f16 {
        let half = words[index / 2] >> (index % 2 * 16);
        f64::from(f16::from_bits(half as u16))
    } else {
        f64::from(f32::from_bits(words[index]))
    }
}

/// Nibble `index` of a section in raw words.
pub(crate) fn nibble(words: &[u32], index: usize) -> u32 {
    (words[index / 8] >> (index % 8 * 4)) & 15
}
