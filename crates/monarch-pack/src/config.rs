//! config.json of a checkpoint to a [`Shape`], in one step.
//!
//! Two generations of files exist. The 2025 ones say `block_ff_dim`, `full_attn_idxs`, `theta`,
//! `tie_embedding`; later ones `intermediate_size`, `layer_types`, `rope_parameters`,
//! `tie_word_embeddings`. Some files carry both; then the key wins that the reference
//! implementation (`Lfm2Config` of transformers) lets win. Only keys that have a default in that
//! class may be missing, and they mean that default.

use std::path::Path;

use monarch_manifest::{LayerKind, ScaleType, Shape};
use serde::Deserialize;

use crate::error::PackError;

/// What a checkpoint is, without its weights.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    /// Sizes; `scale_type` is f32 until a packer chooses.
    pub(crate) shape: Shape,
    /// Positions that the model was made for.
    pub(crate) max_positions: u32,
}

/// The fields of config.json that matter, under all their names. Others are ignored: the file
/// also describes training and the tokenizer.
#[derive(Deserialize)]
struct RawConfig {
    model_type: Option<String>,
    vocab_size: Option<u64>,
    hidden_size: Option<u64>,
    block_dim: Option<u64>,
    num_hidden_layers: Option<u64>,
    num_attention_heads: Option<u64>,
    num_heads: Option<u64>,
    num_key_value_heads: Option<u64>,
    head_dim: Option<u64>,
    layer_types: Option<Vec<String>>,
    full_attn_idxs: Option<Vec<u64>>,
    intermediate_size: Option<u64>,
    block_ff_dim: Option<u64>,
    block_auto_adjust_ff_dim: Option<bool>,
    block_multiple_of: Option<u64>,
    block_ffn_dim_multiplier: Option<f64>,
    #[serde(rename = "conv_L_cache")]
    conv_l_cache: Option<u64>,
    conv_bias: Option<bool>,
    norm_eps: Option<f64>,
    block_norm_eps: Option<f64>,
    rope_theta: Option<f64>,
    theta: Option<f64>,
    rope_parameters: Option<RawRope>,
    rope_scaling: Option<RawRope>,
    tie_embedding: Option<bool>,
    tie_word_embeddings: Option<bool>,
    max_position_embeddings: Option<u64>,
}

#[derive(Deserialize)]
struct RawRope {
    rope_theta: Option<f64>,
    rope_type: Option<String>,
    /// Name of `rope_type` in older files.
    #[serde(rename = "type")]
    kind: Option<String>,
    partial_rotary_factor: Option<f64>,
}

/// Largest value of any size; products of three of them still fit in u64.
const MAX_SIZE: u32 = 1 << 20;

/// Reads the text of a config.json; `path` is for messages.
pub(crate) fn parse(text: &str, path: &Path) -> Result<Config, PackError> {
    let raw: RawConfig = serde_json::from_str(text).map_err(|source| PackError::Json {
        path: path.to_owned(),
        source,
    })?;

    let model_type = raw
        .model_type
        .as_deref()
        .ok_or(PackError::ConfigMissing { key: "model_type" })?;
    if model_type != "lfm2" {
        return Err(PackError::ModelType {
            model_type: model_type.to_owned(),
        });
    }

    let hidden = size(
        "hidden_size or block_dim",
        raw.hidden_size.or(raw.block_dim),
    )?;
    let heads = size(
        "num_attention_heads or num_heads",
        raw.num_attention_heads.or(raw.num_heads),
    )?;
    let kv_heads = size("num_key_value_heads", raw.num_key_value_heads)?;
    if heads % kv_heads != 0 {
        return Err(divisor(
            "num_attention_heads",
            heads,
            "num_key_value_heads",
            kv_heads,
        ));
    }
    let head_dim = match raw.head_dim {
        Some(head_dim) => size("head_dim", Some(head_dim))?,
        None if hidden % heads == 0 => hidden / heads,
        None => return Err(divisor("hidden_size", hidden, "num_attention_heads", heads)),
    };
    if head_dim % 2 != 0 {
        return Err(divisor(
            "head_dim",
            head_dim,
            "the pairs of a rotary embedding",
            2,
        ));
    }

    Ok(Config {
        shape: Shape {
            layers: layers(&raw)?,
            hidden,
            ffn: ffn(&raw)?,
            vocab: size("vocab_size", raw.vocab_size)?,
            heads,
            kv_heads,
            head_dim,
            conv_window: size("conv_L_cache", raw.conv_l_cache.or(Some(3)))?,
            norm_eps: real(
                "norm_eps",
                raw.norm_eps.or(raw.block_norm_eps).unwrap_or(1e-5),
                0.0,
                1.0,
            )?,
            rope_theta: rope_theta(&raw)?,
            conv_bias: raw.conv_bias.unwrap_or(false),
            tied_embedding: raw
                .tie_embedding
                .or(raw.tie_word_embeddings)
                .unwrap_or(true),
            scale_type: ScaleType::F32,
        },
        max_positions: match raw.max_position_embeddings {
            None => 128_000,
            // Contexts beyond MAX_SIZE exist; they cost memory only when they are asked for.
            Some(positions) => {
                u32::try_from(positions)
                    .ok()
                    .filter(|&p| p > 0)
                    .ok_or(PackError::ConfigRange {
                        key: "max_position_embeddings",
                        value: positions as f64,
                        min: 1.0,
                        max: f64::from(u32::MAX),
                    })?
            }
        },
    })
}

/// `layer_types`, or the attention layers by index, or attention everywhere when neither is there.
fn layers(raw: &RawConfig) -> Result<Vec<LayerKind>, PackError> {
    let count = size("num_hidden_layers", raw.num_hidden_layers)?;
    if let Some(types) = &raw.layer_types {
        if types.len() != count as usize {
            return Err(PackError::LayerCount {
                listed: types.len(),
                layers: count,
            });
        }
        return types
            .iter()
            .enumerate()
            .map(|(layer, layer_type)| match layer_type.as_str() {
                "conv" => Ok(LayerKind::Conv),
                "full_attention" | "attention" => Ok(LayerKind::Attention),
                _ => Err(PackError::LayerType {
                    layer,
                    layer_type: layer_type.clone(),
                }),
            })
            .collect();
    }
    let Some(indices) = &raw.full_attn_idxs else {
        return Ok(vec![LayerKind::Attention; count as usize]);
    };
    let mut layers = vec![LayerKind::Conv; count as usize];
    for &index in indices {
        *usize::try_from(index)
            .ok()
            .and_then(|i| layers.get_mut(i))
            .ok_or(PackError::AttentionIndex {
                index,
                layers: count,
            })? = LayerKind::Attention;
    }
    Ok(layers)
}

/// Effective width of the MLP: two thirds of the written width, times the multiplier, rounded up,
/// or the written width when the adjustment is off.
fn ffn(raw: &RawConfig) -> Result<u32, PackError> {
    let written = size(
        "intermediate_size or block_ff_dim",
        raw.block_ff_dim.or(raw.intermediate_size),
    )?;
    if !raw.block_auto_adjust_ff_dim.unwrap_or(true) {
        return Ok(written);
    }
    let multiplier = raw.block_ffn_dim_multiplier.unwrap_or(1.0);
    if !(0.0..=64.0).contains(&multiplier) {
        return Err(PackError::ConfigRange {
            key: "block_ffn_dim_multiplier",
            value: multiplier,
            min: 0.0,
            max: 64.0,
        });
    }
    let multiple = size("block_multiple_of", raw.block_multiple_of.or(Some(256)))?;
    let narrowed = (multiplier * f64::from(2 * written / 3)) as u64;
    size(
        "effective intermediate_size",
        Some(narrowed.next_multiple_of(u64::from(multiple))),
    )
}

fn rope_theta(raw: &RawConfig) -> Result<f32, PackError> {
    for (key, rope) in [
        ("rope_parameters", &raw.rope_parameters),
        ("rope_scaling", &raw.rope_scaling),
    ] {
        let Some(rope) = rope else { continue };
        if let Some(kind) = rope.rope_type.as_ref().or(rope.kind.as_ref())
            && kind != "default"
        {
            return Err(PackError::Rope {
                key,
                value: kind.clone(),
            });
        }
        if let Some(factor) = rope.partial_rotary_factor
            && factor != 1.0
        {
            return Err(PackError::Rope {
                key,
                value: format!("partial_rotary_factor {factor}"),
            });
        }
    }
    let theta = raw
        .rope_parameters
        .as_ref()
        .and_then(|rope| rope.rope_theta)
        .or(raw.theta)
        .or(raw.rope_theta)
        .unwrap_or(1e6);
    real("rope_theta", theta, 1.0, 1e12)
}

/// A size that has to be there and be sensible.
fn size(key: &'static str, value: Option<u64>) -> Result<u32, PackError> {
    let value = value.ok_or(PackError::ConfigMissing { key })?;
    u32::try_from(value)
        .ok()
        .filter(|v| (1..=MAX_SIZE).contains(v))
        .ok_or(PackError::ConfigRange {
            key,
            value: value as f64,
            min: 1.0,
            max: f64::from(MAX_SIZE),
        })
}

fn real(key: &'static str, value: f64, min: f64, max: f64) -> Result<f32, PackError> {
    if (min..=max).contains(&value) {
        Ok(value as f32)
    } else {
        Err(PackError::ConfigRange {
            key,
            value,
            min,
            max,
        })
    }
}

fn divisor(key: &'static str, value: u32, divisor_key: &'static str, divisor: u32) -> PackError {
    PackError::ConfigDivisor {
        key,
        value,
        divisor_key,
        divisor,
    }
}
