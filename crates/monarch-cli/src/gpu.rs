//! A packed model on the GPU, through the engine that the web package uses.

use std::path::Path;

use monarch_engine::{self as engine, Cancel, LoadOptions, Model, Progress, Prompt};
use monarch_pack::MANIFEST_FILE;
use monarch_runtime::Choice;
use monarch_text::Text;
use monarch_weights::FolderSource;

use crate::backend::{Completion, FinishReason, GenerateOptions, Positions, Timings, Usage};
use crate::{output, progress};

/// Prompt tokens in one submission.
const FEED_TOKENS: u32 = 16;

/// A loaded model.
pub(crate) struct GpuModel(Model);

impl GpuModel {
    /// Loads a packed folder onto this machine's GPU, and says which one that is.
    pub(crate) fn open(folder: &Path) -> anyhow::Result<GpuModel> {
        let source = FolderSource::new(folder);
        let bar = progress::bytes("weights", 0);
        let mut on_progress = |progress| {
            if let Progress::Fetch {
                loaded_bytes,
                total_bytes,
            } = progress
            {
                bar.set_length(total_bytes);
                bar.set_position(loaded_bytes);
            }
        };
        let (options, cancel) = (LoadOptions::default(), Cancel::new());
        let loading = Model::load(&source, MANIFEST_FILE, &options, &mut on_progress, &cancel);
        let model = pollster::block_on(loading)?;
        bar.finish_and_clear();
        let info = model.info();
        output::message(format!(
            "{} ({}), {} plan, {} dispatches a token",
            info.adapter.device, info.adapter.backend, info.plan.name, info.plan.dispatches
        ));
        Ok(GpuModel(model))
    }

    pub(crate) fn text(&self) -> Option<&Text> {
        self.0.text()
    }

    pub(crate) fn vocab(&self) -> u32 {
        self.0.info().vocab
    }

    /// Logits at the wanted positions, f32 `[P, V]`.
    pub(crate) fn logits(&mut self, ids: &[u32], positions: Positions) -> anyhow::Result<Vec<f32>> {
        let runtime = self.0.runtime();
        pollster::block_on(async {
            runtime.start(ids, &Choice::default())?;
            let bar = progress::tokens("prompt", ids.len() as u64);
            let fed = match positions {
                Positions::All => 0,
                Positions::Last => ids.len() as u32 - 1,
            };
            for first in (0..fed).step_by(FEED_TOKENS as usize) {
                let tokens = FEED_TOKENS.min(fed - first);
                runtime.submit_feed(tokens);
                runtime.idle().await?;
                bar.inc(tokens.into());
            }
            let mut logits = Vec::new();
            for _ in fed..ids.len() as u32 {
                let group = runtime.submit_choose(1);
                runtime.read(group).await?;
                logits.extend(runtime.logits().await?);
                bar.inc(1);
            }
            bar.finish_and_clear();
            Ok(logits)
        })
    }

    /// Continues `prompt`; `on_text` gets the text in pieces, if there is a tokenizer.
    pub(crate) fn generate(
        &mut self,
        prompt: &[u32],
        options: &GenerateOptions,
        on_text: &mut dyn FnMut(&str) -> anyhow::Result<()>,
    ) -> anyhow::Result<Completion> {
        let has_text = self.0.text().is_some();
        let prompt = Prompt::Ids(prompt.to_vec());
        let options = engine::GenerateOptions {
            max_tokens: options.max_tokens,
            temperature: Some(options.policy.temperature),
            seed: Some(options.policy.seed),
            stop: options.stop.clone(),
            ignore_eos: options.ignore_eos,
        };
        pollster::block_on(async {
            let cancel = Cancel::new();
            let mut generation = self.0.generate(&prompt, &options, &cancel)?;
            while let Some(chunk) = generation.next().await? {
                on_text(&chunk.text)?;
            }
            Ok(completion(generation.completion(), has_text))
        })
    }
}

/// The engine's completion in the words of this program.
fn completion(ended: engine::Completion, has_text: bool) -> Completion {
    let (usage, timings) = (ended.usage, ended.timings);
    Completion {
        ids: ended.ids,
        text: has_text.then_some(ended.text),
        finish_reason: match ended.finish_reason {
            engine::FinishReason::Stop => FinishReason::Stop,
            // Nothing here stops a generation half-way.
            engine::FinishReason::Length | engine::FinishReason::Aborted => FinishReason::Length,
        },
        usage: Usage {
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
            cached_tokens: usage.cached_tokens,
        },
        timings: Timings {
            ttft_ms: timings.ttft_ms,
            prefill_tok_s: timings.prefill_tok_s,
            decode_tok_s: timings.decode_tok_s,
            total_ms: timings.total_ms,
        },
    }
}
