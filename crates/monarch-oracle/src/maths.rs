//! The arithmetic below [`forward`](crate::forward): f32 in and out, sums in f64.

use rayon::prelude::*;

/// `sum_i a[i] * b[i]` in f64.
///
/// The eight partial sums let the compiler use vector registers; their order is the same at every call, so equal
/// inputs give equal bits.
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f64 {
    debug_assert_eq!(a.len(), b.len());
    const LANES: usize = 8;
    let mut sums = [0.0f64; LANES];
    let (a_lanes, a_rest) = a.as_chunks::<LANES>();
    let (b_lanes, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a_lanes.iter().zip(b_lanes) {
        for lane in 0..LANES {
            sums[lane] += f64::from(a[lane]) * f64::from(b[lane]);
        }
    }
    let rest: f64 = a_rest
        .iter()
        .zip(b_rest)
        .map(|(&a, &b)| f64::from(a) * f64::from(b))
        .sum();
    sums.iter().sum::<f64>() + rest
}

/// `y = x W^T + bias`: x `[T, K]`, w `[N, K]`, bias `[N]` or none, y `[T, N]`.
pub(crate) fn matmul(x: &[f32], w: &[f32], bias: Option<&[f32]>, k: usize) -> Vec<f32> {
    let (t, n) = (x.len() / k, w.len() / k);
    if t == 0 {
        return Vec::new();
    }
    // Weight rows outermost, so that each is fetched from memory once for all positions: y^T [N, T] first.
    let mut transposed = vec![0.0; n * t];
    transposed
        .par_chunks_mut(t)
        .zip(w.par_chunks(k))
        .enumerate()
        .with_min_len(16)
        .for_each(|(row, (y, weights))| {
            let bias = bias.map_or(0.0, |bias| f64::from(bias[row]));
            for (y, x) in y.iter_mut().zip(x.chunks_exact(k)) {
                *y = (dot(weights, x) + bias) as f32;
            }
        });
    if t == 1 {
        return transposed;
    }
    let mut y = vec![0.0; t * n];
    y.par_chunks_mut(n).enumerate().for_each(|(position, y)| {
        for (row, y) in y.iter_mut().enumerate() {
            *y = transposed[row * t + position];
        }
    });
    y
}

/// RMSNorm of each row: `x / sqrt(mean(x^2) + eps) * weight`, x `[rows, K]`, weight `[K]`.
pub(crate) fn rms_norm(x: &[f32], weight: &[f32], eps: f32) -> Vec<f32> {
    let mut y = Vec::with_capacity(x.len());
    for row in x.chunks_exact(weight.len()) {
        let mean_square = dot(row, row) / row.len() as f64;
        let scale = 1.0 / (mean_square + f64::from(eps)).sqrt();
        y.extend(
            row.iter()
                .zip(weight)
                .map(|(&x, &w)| (f64::from(x) * scale * f64::from(w)) as f32),
        );
    }
    y
}

/// Rotary position embedding of one head in the half-split form: elements `i` and `i + Dh/2` are one pair, turned by
/// the angle `position * theta^(-2i/Dh)`.
///
/// Frequency and angle are rounded to f32, as the reference implementation has them: at position 30,000 that moves
/// the angle by up to 1e-3, and the models were trained with it.
pub(crate) fn rotate(head: &mut [f32], position: u32, theta: f32) {
    let half = head.len() / 2;
    let (first, second) = head.split_at_mut(half);
    for (i, (a, b)) in first.iter_mut().zip(second).enumerate() {
        let frequency = f64::from(theta).powf(-(i as f64) / half as f64) as f32;
        let angle = f64::from(position as f32 * frequency);
        let (sin, cos) = angle.sin_cos();
        let (x, y) = (f64::from(*a), f64::from(*b));
        *a = (x * cos - y * sin) as f32;
        *b = (y * cos + x * sin) as f32;
    }
}

/// `exp(scores)` normalised to a sum of 1, in place.
pub(crate) fn softmax(scores: &mut [f64]) {
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    for score in scores.iter_mut() {
        *score = (*score - largest).exp();
    }
    let sum: f64 = scores.iter().sum();
    for score in scores.iter_mut() {
        *score /= sum;
    }
}

/// `silu(gate) * up` of each row: gate_up `[T, 2F]`, result `[T, F]`.
pub(crate) fn swiglu(gate_up: &[f32], ffn: usize) -> Vec<f32> {
    let mut y = Vec::with_capacity(gate_up.len() / 2);
    for row in gate_up.chunks_exact(2 * ffn) {
        let (gate, up) = row.split_at(ffn);
        y.extend(gate.iter().zip(up).map(|(&gate, &up)| {
            let gate = f64::from(gate);
            (gate / (1.0 + (-gate).exp()) * f64::from(up)) as f32
        }));
    }
    y
}

/// `x += y`.
pub(crate) fn add(x: &mut [f32], y: &[f32]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x += y;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(elems: usize) -> Vec<f32> {
        (0..elems)
            .map(|i| ((i * 37 + 11) % 64) as f32 / 16.0 - 2.0)
            .collect()
    }

    #[test]
    fn dot_sums_every_element_once() {
        for elems in 0..40 {
            let (a, b) = (numbers(elems), vec![1.0; elems]);
            let expected: f64 = a.iter().map(|&x| f64::from(x)).sum();
            assert_eq!(dot(&a, &b), expected, "{elems} elements"); // exact: all are multiples of 1/16
        }
    }

    #[test]
    fn dot_keeps_what_f32_sums_would_lose() {
        assert_eq!(dot(&[1e8, 1.0, -1e8], &[1.0, 1.0, 1.0]), 1.0);
    }

    #[test]
    fn matmul_gives_one_row_per_position() {
        // W = [[1, 2, 3], [4, 5, 6]], x = rows [1, 0, 0], [0, 1, 1]
        let w = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let x = [1.0, 0.0, 0.0, 0.0, 1.0, 1.0];
        assert_eq!(matmul(&x, &w, None, 3), [1.0, 4.0, 5.0, 11.0]);
        assert_eq!(matmul(&x, &w, Some(&[0.5, -1.0]), 3), [1.5, 3.0, 5.5, 10.0]);
        assert_eq!(matmul(&x[..3], &w, None, 3), [1.0, 4.0]);
        assert!(matmul(&[], &w, None, 3).is_empty());
    }

    #[test]
    fn rms_norm_scales_each_row_by_itself() {
        let y = rms_norm(&[3.0, 4.0, 0.3, 0.4], &[1.0, 2.0], 0.0);
        let root = 12.5f32.sqrt();
        for (y, expected) in y
            .iter()
            .zip([3.0 / root, 8.0 / root, 3.0 / root, 8.0 / root])
        {
            assert!((y - expected).abs() < 1e-6, "{y} instead of {expected}");
        }
        assert_eq!(rms_norm(&[0.0, 0.0], &[1.0, 1.0], 1e-5), [0.0, 0.0]);
    }

    #[test]
    fn rotation_keeps_lengths_and_depends_on_distance_only() {
        let rotated = |position| {
            let mut head = numbers(8);
            rotate(&mut head, position, 1e4);
            head
        };
        assert_eq!(rotated(0), numbers(8));
        let length = dot(&numbers(8), &numbers(8));
        for position in [1, 5, 1000] {
            assert!((dot(&rotated(position), &rotated(position)) - length).abs() < 1e-5);
        }
        assert!((dot(&rotated(12), &rotated(7)) - dot(&rotated(6), &rotated(1))).abs() < 1e-4);
        assert!((dot(&rotated(12), &rotated(7)) - dot(&rotated(7), &rotated(7))).abs() > 1e-2);
    }

    #[test]
    fn rotation_turns_the_first_pair_by_the_position() {
        let mut head = [1.0, 0.0, 0.0, 0.0];
        rotate(&mut head, 1, 1e4);
        assert_eq!(head, [1f64.cos() as f32, 0.0, 1f64.sin() as f32, 0.0]);
    }

    #[test]
    fn softmax_survives_large_scores() {
        let mut scores = [1e4, 1e4 - 1.0, f64::NEG_INFINITY];
        softmax(&mut scores);
        assert!((scores.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert!((scores[0] / scores[1] - 1f64.exp()).abs() < 1e-9);
        assert_eq!(scores[2], 0.0);
    }

    #[test]
    fn swiglu_gates_up_rows() {
        let y = swiglu(&[0.0, 100.0, -100.0, 3.0, 4.0, 5.0], 3);
        assert_eq!(y[..2], [0.0, 400.0]);
        assert!(y[2].abs() < 1e-30);
    }
}
