//! A model where it runs, behind one set of questions.

use std::path::Path;

use clap::ValueEnum;
use monarch_sample::Policy;
use monarch_text::Text;
use serde::Serialize;

use crate::cpu::CpuModel;
use crate::gpu::GpuModel;

/// Where the forward pass runs.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Device {
    /// The plain forward pass on the CPU: slow, exact, the reference for the others
    Cpu,
    /// The engine of the npm package, on this machine's GPU; packed folders only
    Gpu,
}

/// Positions whose logits are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Positions {
    /// After every token
    All,
    /// After the last token
    Last,
}

/// A loaded model.
pub(crate) enum Backend {
    Cpu(Box<CpuModel>),
    Gpu(Box<GpuModel>),
}

/// How to continue a prompt.
#[derive(Clone, Debug)]
pub(crate) struct GenerateOptions {
    /// New tokens at most; none for as many as fit the context.
    pub(crate) max_tokens: Option<u32>,
    pub(crate) policy: Policy,
    /// The text ends before any of these.
    pub(crate) stop: Vec<String>,
    /// Goes on after an end token.
    pub(crate) ignore_eos: bool,
}

/// A finished generation, as `generate --json` prints it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Completion {
    /// New token ids; an end token is not among them.
    pub(crate) ids: Vec<u32>,
    /// Their text; null for a model without a tokenizer.
    pub(crate) text: Option<String>,
    pub(crate) finish_reason: FinishReason,
    pub(crate) usage: Usage,
    pub(crate) timings: Timings,
}

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum FinishReason {
    /// An end token or a stop string.
    Stop,
    /// The most tokens asked for, or the end of the context.
    Length,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: u32,
    /// New tokens, the end token not counted.
    pub(crate) completion_tokens: u32,
    /// Prompt tokens that did not have to be computed again.
    pub(crate) cached_tokens: u32,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Timings {
    /// From the start of the prompt to the first token, milliseconds.
    pub(crate) ttft_ms: f64,
    /// Prompt tokens a second.
    pub(crate) prefill_tok_s: f64,
    /// New tokens a second after the first; 0 with fewer than two.
    pub(crate) decode_tok_s: f64,
    /// From the start of the prompt to the end, milliseconds.
    pub(crate) total_ms: f64,
}

impl Backend {
    /// Loads the model in `folder`: packed, or a Hugging Face checkpoint.
    pub(crate) fn open(folder: &Path, device: Device) -> anyhow::Result<Backend> {
        match device {
            Device::Cpu => Ok(Backend::Cpu(Box::new(CpuModel::open(folder)?))),
            Device::Gpu => Ok(Backend::Gpu(Box::new(GpuModel::open(folder)?))),
        }
    }

    /// The tokenizer, if the folder has one.
    pub(crate) fn text(&self) -> Option<&Text> {
        match self {
            Backend::Cpu(model) => model.text.as_ref(),
            Backend::Gpu(model) => model.text(),
        }
    }

    /// Ids a token may have.
    pub(crate) fn vocab(&self) -> u32 {
        match self {
            Backend::Cpu(model) => model.weights.shape.vocab,
            Backend::Gpu(model) => model.vocab(),
        }
    }

    /// Logits at the wanted positions of a sequence, f32 `[P, V]`.
    pub(crate) fn logits(&mut self, ids: &[u32], positions: Positions) -> anyhow::Result<Vec<f32>> {
        match self {
            Backend::Cpu(model) => model.logits(ids, positions),
            Backend::Gpu(model) => model.logits(ids, positions),
        }
    }

    /// Continues a prompt. `on_text` gets the text in pieces.
    pub(crate) fn generate(
        &mut self,
        prompt: &[u32],
        options: &GenerateOptions,
        on_text: &mut dyn FnMut(&str) -> anyhow::Result<()>,
    ) -> anyhow::Result<Completion> {
        match self {
            Backend::Cpu(model) => model.generate(prompt, options, on_text),
            Backend::Gpu(model) => model.generate(prompt, options, on_text),
        }
    }
}
