//! A model on the CPU, in f32: dequantised from a packed folder, or unquantised from a checkpoint.

use std::path::Path;
use std::time::Instant;

use monarch_manifest::TextUrls;
use monarch_oracle::{State, Want, Weights, forward};
use monarch_pack::{Checkpoint, MANIFEST_FILE, Packed};
use monarch_sample::choose;
use monarch_text::{Text, TextError, TextStream};

use crate::backend::{Completion, FinishReason, GenerateOptions, Positions, Timings, Usage};
use crate::{progress, text};

/// Prompt tokens in one pass: enough to read the weights seldom, few enough for a moving bar.
const PASS_TOKENS: usize = 32;

/// Weights, context and tokenizer.
pub(crate) struct CpuModel {
    pub(crate) weights: Weights,
    /// Prompt and new tokens of one sequence.
    context_tokens: u32,
    /// None for a folder without `tokenizer.json`: such a model takes and gives ids.
    pub(crate) text: Option<Text>,
}

/// A prompt or an option that this model cannot follow.
#[derive(Debug, thiserror::Error)]
enum RequestError {
    #[error("the prompt has {prompt_tokens} tokens, the context is {context_tokens}")]
    Context {
        prompt_tokens: usize,
        context_tokens: u32,
    },
    #[error("the tokenizer has {tokenizer_tokens} tokens, the model's vocabulary {vocab}")]
    Vocabulary { tokenizer_tokens: u32, vocab: u32 },
    #[error("stop strings need a tokenizer, this model has none")]
    StopWithoutTokenizer,
}

impl CpuModel {
    /// Reads the folder: packed when it has a `manifest.json`, otherwise a Hugging Face checkpoint.
    pub(crate) fn open(folder: &Path) -> anyhow::Result<CpuModel> {
        let (weights, context_tokens, text) = if folder.join(MANIFEST_FILE).is_file() {
            let packed = Packed::open(folder)?;
            let spec = packed.spec();
            (
                Weights::read(&packed)?,
                spec.context_tokens,
                text::open(folder, &spec.text)?,
            )
        } else {
            let checkpoint = Checkpoint::open(folder)?;
            let text = text::open(folder, &TextUrls::default())?;
            (
                Weights::read(&checkpoint)?,
                checkpoint.max_positions(),
                text,
            )
        };
        let vocab = weights.shape.vocab;
        if let Some(tokenizer_tokens) = text
            .as_ref()
            .map(Text::vocab_size)
            .filter(|&tokens| tokens > vocab)
        {
            return Err(RequestError::Vocabulary {
                tokenizer_tokens,
                vocab,
            }
            .into());
        }
        Ok(CpuModel {
            weights,
            context_tokens,
            text,
        })
    }

    /// Logits at the wanted positions, f32 `[P, V]`.
    pub(crate) fn logits(&self, ids: &[u32], positions: Positions) -> anyhow::Result<Vec<f32>> {
        self.room(ids)?;
        self.feed(&mut State::new(&self.weights.shape), ids, positions)
    }

    /// Continues `prompt`; `on_text` gets the text in pieces, if there is a tokenizer.
    pub(crate) fn generate(
        &self,
        prompt: &[u32],
        options: &GenerateOptions,
        on_text: &mut dyn FnMut(&str) -> anyhow::Result<()>,
    ) -> anyhow::Result<Completion> {
        let max_tokens = options
            .max_tokens
            .unwrap_or(u32::MAX)
            .min(self.room(prompt)?);
        let mut writer = Writer::new(self.text.as_ref(), options)?;
        let mut state = State::new(&self.weights.shape);
        let mut ids = Vec::new();

        let started = Instant::now();
        let mut first_token = None;
        let mut finish_reason = FinishReason::Length;
        while (ids.len() as u32) < max_tokens {
            let logits = match ids.last() {
                None => self.feed(&mut state, prompt, Positions::Last)?,
                Some(&id) => forward(&self.weights, &mut state, &[id], Want::LAST)?.logits,
            };
            let id = choose(&logits, &options.policy, state.position);
            first_token.get_or_insert_with(Instant::now);
            if writer.ends_with(id) {
                finish_reason = FinishReason::Stop;
                break;
            }
            ids.push(id);
            let (piece, stopped) = writer.push(id)?;
            on_text(&piece)?;
            if stopped {
                finish_reason = FinishReason::Stop;
                break;
            }
        }
        let (rest, stopped) = writer.finish();
        on_text(&rest)?;
        if stopped {
            finish_reason = FinishReason::Stop;
        }
        let ended = Instant::now();

        let first_token = first_token.unwrap_or(started);
        let ttft = (first_token - started).as_secs_f64();
        let decode = (ended - first_token).as_secs_f64();
        let rate = |tokens: usize, seconds: f64| {
            if seconds > 0.0 {
                tokens as f64 / seconds
            } else {
                0.0
            }
        };
        Ok(Completion {
            text: writer.text.is_some().then_some(writer.written),
            finish_reason,
            usage: Usage {
                prompt_tokens: prompt.len() as u32,
                completion_tokens: ids.len() as u32,
                cached_tokens: 0,
            },
            timings: Timings {
                ttft_ms: ttft * 1e3,
                prefill_tok_s: rate(prompt.len(), ttft),
                decode_tok_s: rate(ids.len().saturating_sub(1), decode),
                total_ms: (ended - started).as_secs_f64() * 1e3,
            },
            ids,
        })
    }

    /// Tokens that fit behind `prompt`; an error when the prompt itself cannot be fed.
    fn room(&self, prompt: &[u32]) -> anyhow::Result<u32> {
        self.weights.check_ids(prompt)?;
        let context_tokens = self.context_tokens;
        let prompt_tokens = u32::try_from(prompt.len()).ok();
        match prompt_tokens.and_then(|tokens| context_tokens.checked_sub(tokens)) {
            Some(room) => Ok(room),
            None => Err(RequestError::Context {
                prompt_tokens: prompt.len(),
                context_tokens,
            }
            .into()),
        }
    }

    /// Feeds tokens pass by pass, with a bar.
    fn feed(
        &self,
        state: &mut State,
        ids: &[u32],
        positions: Positions,
    ) -> anyhow::Result<Vec<f32>> {
        let bar = progress::tokens("prompt", ids.len() as u64);
        let passes = ids.len().div_ceil(PASS_TOKENS);
        let mut logits = Vec::new();
        for (pass, ids) in ids.chunks(PASS_TOKENS).enumerate() {
            let want = match positions {
                Positions::All => Want::ALL,
                Positions::Last if pass + 1 == passes => Want::LAST,
                Positions::Last => Want::STATE,
            };
            logits.extend(forward(&self.weights, state, ids, want)?.logits);
            bar.inc(ids.len() as u64);
        }
        bar.finish_and_clear();
        Ok(logits)
    }
}

/// Ids to text, when there is a tokenizer.
struct Writer<'a> {
    text: Option<(&'a Text, TextStream)>,
    ignore_eos: bool,
    written: String,
}

impl<'a> Writer<'a> {
    fn new(text: Option<&'a Text>, options: &GenerateOptions) -> anyhow::Result<Writer<'a>> {
        if text.is_none() && !options.stop.is_empty() {
            return Err(RequestError::StopWithoutTokenizer.into());
        }
        let text = match text {
            Some(text) => Some((text, text.stream(&options.stop, false)?)),
            None => None,
        };
        Ok(Writer {
            text,
            ignore_eos: options.ignore_eos,
            written: String::new(),
        })
    }

    /// Whether `id` is an end token that counts.
    fn ends_with(&self, id: u32) -> bool {
        !self.ignore_eos
            && self
                .text
                .as_ref()
                .is_some_and(|(text, _)| text.end_ids().contains(&id))
    }

    /// Text that `id` completes, and whether a stop string ends it.
    fn push(&mut self, id: u32) -> Result<(String, bool), TextError> {
        let Some((text, stream)) = &mut self.text else {
            return Ok((String::new(), false));
        };
        let piece = stream.push(text, id)?;
        self.written += &piece.text;
        Ok((piece.text, piece.stopped))
    }

    /// What was held back, and whether a stop string has appeared.
    fn finish(&mut self) -> (String, bool) {
        let Some((_, stream)) = &mut self.text else {
            return (String::new(), false);
        };
        let rest = stream.finish();
        self.written += &rest;
        (rest, stream.stopped())
    }
}
