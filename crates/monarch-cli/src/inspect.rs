//! `monarch inspect`: what a packed model is, from its manifest alone.

use std::path::PathBuf;

use monarch_manifest::{LayerKind, ModelSpec, ScaleType, Shape};
use monarch_pack::read_manifest;
use serde::Serialize;

use crate::output;

/// Show shape, sections, sizes and bytes read per token
///
/// Bytes per token are what one decode step has to read of the weights: every matrix once, the
/// head included, all norms, taps and biases, one row of the embedding and of a rotary table.
/// Second copies, keys and values are not counted.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Packed folder, or a manifest alone
    #[arg(value_name = "DIR|MANIFEST")]
    model: PathBuf,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    shape: ShapeReport,
    sections: Vec<SectionReport<'a>>,
    weight_bytes: u64,
    bytes_per_token: u64,
}

/// The shape in the manifest's words.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShapeReport {
    layer_types: Vec<&'static str>,
    hidden: u32,
    ffn: u32,
    vocab: u32,
    heads: u32,
    kv_heads: u32,
    head_dim: u32,
    conv_cache: u32,
    norm_eps: f32,
    rope_theta: f32,
    conv_bias: bool,
    tied_embedding: bool,
    scale_type: &'static str,
}

#[derive(Serialize)]
struct SectionReport<'a> {
    name: &'a str,
    offset: u64,
    bytes: u64,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let spec = read_manifest(&args.model)?.spec;
    let report = Report {
        shape: shape_report(&spec.shape),
        sections: spec
            .sections
            .iter()
            .map(|section| SectionReport {
                name: &section.name,
                offset: section.offset_bytes,
                bytes: section.bytes,
            })
            .collect(),
        weight_bytes: spec.weight_bytes,
        bytes_per_token: spec.weight_bytes_per_token(),
    };
    if args.json {
        output::json(&report)
    } else {
        table(&spec, &report)
    }
}

fn shape_report(shape: &Shape) -> ShapeReport {
    ShapeReport {
        layer_types: shape
            .layers
            .iter()
            .map(|kind| match kind {
                LayerKind::Conv => "conv",
                LayerKind::Attention => "attention",
            })
            .collect(),
        hidden: shape.hidden,
        ffn: shape.ffn,
        vocab: shape.vocab,
        heads: shape.heads,
        kv_heads: shape.kv_heads,
        head_dim: shape.head_dim,
        conv_cache: shape.conv_window,
        norm_eps: shape.norm_eps,
        rope_theta: shape.rope_theta,
        conv_bias: shape.conv_bias,
        tied_embedding: shape.tied_embedding,
        scale_type: match shape.scale_type {
            ScaleType::F32 => "f32",
            ScaleType::F16 => "f16",
        },
    }
}

fn table(spec: &ModelSpec, report: &Report<'_>) -> anyhow::Result<()> {
    let shape = &report.shape;
    output::line(format!(
        "layers       {} ({})",
        shape.layer_types.len(),
        shape.layer_types.join(" ")
    ))?;
    output::line(format!(
        "hidden       {}, feed-forward {}",
        shape.hidden, shape.ffn
    ))?;
    output::line(format!(
        "heads        {} query, {} key/value, {} wide",
        shape.heads, shape.kv_heads, shape.head_dim
    ))?;
    output::line(format!(
        "conv         window {}, {} bias",
        shape.conv_cache,
        if shape.conv_bias { "with" } else { "no" }
    ))?;
    output::line(format!(
        "vocabulary   {}, {} head",
        shape.vocab,
        if shape.tied_embedding { "tied" } else { "own" }
    ))?;
    output::line(format!(
        "rope, norm   theta {}, eps {}",
        shape.rope_theta, shape.norm_eps
    ))?;
    output::line(format!("context      {} tokens", spec.context_tokens))?;
    output::line(format!("weights      4-bit, scales {}", shape.scale_type))?;
    output::line("")?;

    let width = report
        .sections
        .iter()
        .map(|s| s.name.len())
        .max()
        .unwrap_or(0);
    output::line(format!(
        "{:width$} {:>12} {:>12}",
        "section", "offset", "bytes"
    ))?;
    for section in &report.sections {
        output::line(format!(
            "{:width$} {:>12} {:>12}",
            section.name, section.offset, section.bytes
        ))?;
    }
    output::line("")?;
    output::line(format!(
        "{} sections, {} bytes, {} bytes read per token",
        report.sections.len(),
        report.weight_bytes,
        report.bytes_per_token
    ))
}
