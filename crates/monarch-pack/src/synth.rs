//! Checkpoints whose weights are a formula of tensor name and index, for tests and benchmarks.
//!
//! Nothing is stored and nothing is random at run time; the numbers are exact in f32 and the same
//! on every machine.

use monarch_manifest::{LayerKind, ScaleType, Shape};
use rayon::prelude::*;

use crate::config::Config;
use crate::error::PackError;

/// Names of the built-in shapes.
pub const SHAPE_NAMES: &[&str] = &["lfm2.5-230m", "lfm2-nano"];

/// The shape called `name`.
pub(crate) fn config(name: &str) -> Result<Config, PackError> {
    use LayerKind::{Attention, Conv};
    match name {
        "lfm2.5-230m" => Ok(Config {
            shape: Shape {
                layers: (0..14)
                    .map(|layer| {
                        if layer > 0 && layer % 2 == 0 {
                            Attention
                        } else {
                            Conv
                        }
                    })
                    .collect(),
                hidden: 1024,
                ffn: 2560,
                vocab: 65536,
                heads: 16,
                kv_heads: 8,
                head_dim: 64,
                conv_window: 3,
                norm_eps: 1e-5,
                rope_theta: 1e6,
                conv_bias: false,
                tied_embedding: true,
                scale_type: ScaleType::F32,
            },
            max_positions: 128_000,
        }),
        // Small enough for a debug build's forward pass, with every kind of layer and section.
        "lfm2-nano" => Ok(Config {
            shape: Shape {
                layers: vec![Conv, Attention, Conv],
                hidden: 64,
                ffn: 96,
                vocab: 320,
                heads: 2,
                kv_heads: 1,
                head_dim: 32,
                conv_window: 3,
                norm_eps: 1e-5,
                rope_theta: 1e6,
                conv_bias: true,
                tied_embedding: false,
                scale_type: ScaleType::F32,
            },
            max_positions: 256,
        }),
        _ => Err(PackError::ShapeName {
            name: name.to_owned(),
            known: SHAPE_NAMES,
        }),
    }
}

/// The first `elems` weights of the tensor called `name`, in row-major order.
pub(crate) fn tensor(name: &str, elems: usize) -> Vec<f32> {
    let key = fnv1a_64(name.as_bytes());
    if name.contains("norm") {
        generate(elems, key, |z| {
            let g = ((z >> 48) as f32 - 32768.0) / 32768.0;
            1.0 + g * 0.125
        })
    } else {
        let scale = scale(name);
        const HALF_RANGE: f32 = (1 << 23) as f32;
        generate(elems, key, |z| {
            let f = ((z >> 40) as f32 - HALF_RANGE) / HALF_RANGE;
            f * scale
        })
    }
}

/// Largest magnitude of the weights of a tensor that is not a norm. Chosen so that the residual
/// stream neither dies out nor explodes over fourteen layers.
fn scale(name: &str) -> f32 {
    const SCALES: &[(&str, f32)] = &[
        ("embed_tokens.weight", 0.125),
        ("lm_head.weight", 0.125),
        ("conv.conv.weight", 1.0),
        ("in_proj.weight", 0.0625),
        ("v_proj.weight", 0.0625),
        ("w1.weight", 0.0625),
        ("w3.weight", 0.0625),
        ("q_proj.weight", 0.03125),
        ("k_proj.weight", 0.03125),
        ("out_proj.weight", 0.03125),
        ("w2.weight", 0.03125),
        (".bias", 0.0625),
    ];
    SCALES
        .iter()
        .find(|(suffix, _)| name.ends_with(suffix))
        .map(|&(_, scale)| scale)
        .unwrap_or_else(|| panic!("no scale for {name}, which is no tensor of an LFM2 model"))
}

/// Element `i` is `f` of output number `i` of SplitMix64 seeded with `key`.
fn generate(elems: usize, key: u64, f: impl Fn(u64) -> f32 + Sync) -> Vec<f32> {
    const GOLDEN_GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;
    (0..elems)
        .into_par_iter()
        .map(|i| {
            let mut z = key.wrapping_add((i as u64 + 1).wrapping_mul(GOLDEN_GAMMA));
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            f(z ^ (z >> 31))
        })
        .collect()
}

fn fnv1a_64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_230m_shape_equals_its_golden_config() {
        let text = include_str!("../../../tests/golden/lfm2.5-230m-synth/config.json");
        let golden = crate::config::parse(text, Path::new("config.json")).unwrap();
        assert_eq!(config("lfm2.5-230m").unwrap(), golden);
    }

    #[test]
    fn every_named_shape_exists_and_can_be_packed() {
        assert!(!SHAPE_NAMES.is_empty());
        for name in SHAPE_NAMES {
            config(name).unwrap().shape.validate().unwrap();
        }
    }

    #[test]
    fn hash_equals_the_published_test_values() {
        // From the reference code of FNV: empty input, "a", "foobar".
        assert_eq!(fnv1a_64(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a_64(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a_64(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
