//! Rotary tables, for the layout that stores them.

use monarch_manifest::Shape;

/// Cosines and sines, f32 `[positions, Dh/2]` each.
///
/// Frequencies and angles are rounded to f32 where the reference implementation rounds them, so
/// that a table differs from its numbers by the last bit at most, at any position.
pub(crate) fn table(shape: &Shape, positions: u32) -> (Vec<f32>, Vec<f32>) {
    let frequencies: Vec<f32> = (0..shape.head_dim / 2)
        .map(|pair| {
            let exponent = f64::from(2 * pair) / f64::from(shape.head_dim);
            (1.0 / f64::from(shape.rope_theta).powf(exponent)) as f32
        })
        .collect();
    (0..positions)
        .flat_map(|position| {
            frequencies
                .iter()
                .map(move |frequency| position as f32 * frequency)
        })
        .map(|angle| {
            let (sin, cos) = f64::from(angle).sin_cos();
            (cos as f32, sin as f32)
        })
        .unzip()
}
