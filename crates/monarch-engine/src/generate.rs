//! The decode loop: passes are submitted ahead, ids come back in groups, text goes out in pieces.

use std::collections::VecDeque;
use std::time::Duration;

use monarch_runtime::{Choice, Pending, Runtime};
use monarch_text::TextStream;
use monarch_weights::Cancel;
use serde::Serialize;
use web_time::Instant;

use crate::error::EngineError;
use crate::model::Model;
use crate::options::{GenerateOptions, Prompt};

/// Groups in flight: while one is read back, the next keeps the GPU busy.
const GROUPS_IN_FLIGHT: usize = 2;
/// A group should take about this long: short enough to look like streaming and to stop soon, long enough that the
/// read-back does not count.
const GROUP_TARGET: Duration = Duration::from_millis(40);
/// Most prompt tokens in one submission: bounds how long the GPU is away from the page.
const FEED_GROUP: u32 = 16;

/// Some new text, and the tokens that came with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Chunk {
    /// Whole characters; may be empty while a character or a stop string is incomplete.
    pub text: String,
    /// New token ids.
    pub ids: Vec<u32>,
}

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum FinishReason {
    /// An end token or a stop string.
    Stop,
    /// `max_tokens`, or the end of the context.
    Length,
    /// The caller stopped it.
    Aborted,
}

/// Token counts of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// New tokens, the end token not counted.
    pub completion_tokens: u32,
    /// Prompt tokens that did not have to be computed again.
    pub cached_tokens: u32,
}

/// How long a call took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Timings {
    /// From the first request for text to the first token, milliseconds.
    pub ttft_ms: f64,
    /// Prompt tokens a second.
    pub prefill_tok_s: f64,
    /// New tokens a second after the first; 0 with fewer than two.
    pub decode_tok_s: f64,
    /// From the first request for text to the end, milliseconds.
    pub total_ms: f64,
}

/// A generation as a whole.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Completion {
    /// All of the text.
    pub text: String,
    /// New token ids; an end token is not among them.
    pub ids: Vec<u32>,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// Token counts.
    pub usage: Usage,
    /// Durations.
    pub timings: Timings,
}

/// Text in the making. Dropping it stops it.
pub struct Generation<'a> {
    model: &'a mut Model,
    /// None for a model without tokenizer.
    stream: Option<TextStream>,
    choice: Choice,
    ignore_eos: bool,
    cancel: Cancel,
    prompt: Vec<u32>,
    /// New tokens at most.
    max_tokens: u32,
    /// Passes that choose a token, submitted so far.
    submitted: u32,
    in_flight: VecDeque<Pending>,
    group: u32,
    text: String,
    ids: Vec<u32>,
    finished: Option<FinishReason>,
    started_at: Option<Instant>,
    first_token_at: Option<Instant>,
    last_read_at: Option<Instant>,
}

impl<'a> Generation<'a> {
    pub(crate) fn new(
        model: &'a mut Model,
        prompt: &Prompt,
        options: &GenerateOptions,
        cancel: &Cancel,
    ) -> Result<Self, EngineError> {
        let text = model.text.as_ref().ok_or(EngineError::NoTokenizer);
        let prompt = match prompt {
            Prompt::Text(prompt) => text?.tokenize(prompt, true)?,
            Prompt::Ids(ids) => ids.clone(),
            Prompt::Chat(chat) => text?.tokenize_chat(chat)?,
        };
        let choice = options.choice()?;
        let stream = match &model.text {
            Some(text) => Some(text.stream(&options.stop, false)?),
            None if options.stop.is_empty() => None,
            None => return Err(EngineError::NoTokenizer),
        };
        model.runtime.check_prompt(&prompt)?;
        let room = model.runtime.plan().context_tokens - prompt.len() as u32;
        Ok(Self {
            max_tokens: options.max_tokens.unwrap_or(u32::MAX).min(room),
            ignore_eos: options.ignore_eos,
            cancel: cancel.clone(),
            model,
            stream,
            choice,
            prompt,
            submitted: 0,
            in_flight: VecDeque::new(),
            group: 1,
            text: String::new(),
            ids: Vec::new(),
            finished: None,
            started_at: None,
            first_token_at: None,
            last_read_at: None,
        })
    }

    /// The next piece of text; `None` once the generation has ended.
    pub async fn next(&mut self) -> Result<Option<Chunk>, EngineError> {
        if self.finished.is_some() {
            return Ok(None);
        }
        if self.started_at.is_none() {
            self.started_at = Some(Instant::now());
            if self.max_tokens == 0 {
                return Ok(self.finish(FinishReason::Length, Chunk::default()));
            }
            self.feed().await?;
        }
        if self.cancel.is_cancelled() {
            return Ok(self.finish(FinishReason::Aborted, Chunk::default()));
        }
        self.submit_ahead();
        let Some(pending) = self.in_flight.pop_front() else {
            return Ok(self.finish(FinishReason::Length, Chunk::default()));
        };
        let ids = self.model.runtime.read(pending).await?;
        self.pace(ids.len() as u32);
        self.take(ids)
    }

    /// Runs to the end and returns the whole.
    pub async fn complete(mut self) -> Result<Completion, EngineError> {
        while self.next().await?.is_some() {}
        Ok(self.completion())
    }

    /// What there is so far; of an ended generation, all of it.
    pub fn completion(&self) -> Completion {
        let seconds = |from: Option<Instant>, to: Option<Instant>| {
            from.zip(to)
                .map_or(0.0, |(from, to)| to.duration_since(from).as_secs_f64())
        };
        let rate = |tokens: u32, seconds: f64| {
            if seconds > 0.0 {
                f64::from(tokens) / seconds
            } else {
                0.0
            }
        };
        let (prompt_tokens, completion_tokens) = (self.prompt.len() as u32, self.ids.len() as u32);
        let ttft = seconds(self.started_at, self.first_token_at);
        let decode = seconds(self.first_token_at, self.last_read_at);
        Completion {
            text: self.text.clone(),
            ids: self.ids.clone(),
            finish_reason: self.finished.unwrap_or(FinishReason::Aborted),
            usage: Usage {
                prompt_tokens,
                completion_tokens,
                cached_tokens: 0,
            },
            timings: Timings {
                ttft_ms: ttft * 1e3,
                prefill_tok_s: rate(prompt_tokens, ttft),
                decode_tok_s: rate(completion_tokens.saturating_sub(1), decode),
                total_ms: seconds(self.started_at, self.last_read_at) * 1e3,
            },
        }
    }

    /// Feeds all prompt tokens but the last, which chooses.
    async fn feed(&mut self) -> Result<(), EngineError> {
        self.model.runtime.start(&self.prompt, &self.choice)?;
        let mut left = self.prompt.len() as u32 - 1;
        while left > 0 && !self.cancel.is_cancelled() {
            let now = left.min(FEED_GROUP);
            self.model.runtime.submit_feed(now);
            left -= now;
            self.model.runtime.idle().await?;
        }
        Ok(())
    }

    /// Keeps the GPU supplied with groups of passes.
    fn submit_ahead(&mut self) {
        while self.in_flight.len() < GROUPS_IN_FLIGHT && self.submitted < self.max_tokens {
            let passes = self.group.min(self.max_tokens - self.submitted);
            self.in_flight
                .push_back(self.model.runtime.submit_choose(passes));
            self.submitted += passes;
        }
    }

    /// Sets the group length so that a group takes about [`GROUP_TARGET`].
    fn pace(&mut self, tokens: u32) {
        let now = Instant::now();
        if let Some(last) = self.last_read_at.replace(now) {
            let token = (now - last).as_secs_f64() / f64::from(tokens.max(1));
            let fitting = (GROUP_TARGET.as_secs_f64() / token.max(1e-6)) as u32;
            // Grow step by step: one fast read-back says little.
            self.group = fitting.clamp(1, (self.group * 2).min(Runtime::MAX_GROUP));
        }
        self.first_token_at.get_or_insert(now);
    }

    /// Turns ids into text, up to an end token, a stop string or the limit. What the GPU ran beyond is dropped.
    fn take(&mut self, ids: Vec<u32>) -> Result<Option<Chunk>, EngineError> {
        let mut chunk = Chunk::default();
        for id in ids {
            let mut stopped = false;
            if let (Some(text), Some(stream)) = (&self.model.text, &mut self.stream) {
                if !self.ignore_eos && text.end_ids().contains(&id) {
                    return Ok(self.finish(FinishReason::Stop, chunk));
                }
                let piece = stream.push(text, id)?;
                chunk.text += &piece.text;
                stopped = piece.stopped;
            }
            self.ids.push(id);
            chunk.ids.push(id);
            if stopped {
                return Ok(self.finish(FinishReason::Stop, chunk));
            }
            if self.ids.len() as u32 == self.max_tokens {
                return Ok(self.finish(FinishReason::Length, chunk));
            }
        }
        self.text += &chunk.text;
        Ok(Some(chunk))
    }

    /// Ends with `chunk` and what the stream held back.
    fn finish(&mut self, reason: FinishReason, mut chunk: Chunk) -> Option<Chunk> {
        let mut reason = reason;
        if let Some(stream) = &mut self.stream {
            chunk.text += &stream.finish();
            // The last characters may complete a stop string.
            if stream.stopped() {
                reason = FinishReason::Stop;
            }
        }
        self.text += &chunk.text;
        self.finished = Some(reason);
        self.in_flight.clear();
        (!chunk.text.is_empty() || !chunk.ids.is_empty()).then_some(chunk)
    }
}
