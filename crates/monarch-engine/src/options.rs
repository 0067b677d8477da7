//! What callers may ask for.

use monarch_runtime::{Choice, DeviceOptions, PlanChoice};
use monarch_text::Chat;
use serde::{Deserialize, Serialize};

use crate::error::EngineError;

/// How to load a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LoadOptions {
    /// Room for prompt and answer, tokens; what the manifest says when absent.
    pub context_tokens: Option<u32>,
    /// Which plan to run.
    pub plan: PlanChoice,
    /// Which device to open, and which of its features to leave off.
    pub device: DeviceOptions,
}

/// What to continue.
#[derive(Clone, Debug, PartialEq)]
pub enum Prompt {
    /// Text, with the begin token that the tokenizer puts in front.
    Text(String),
    /// Token ids, as they are.
    Ids(Vec<u32>),
    /// Messages, through the model's chat template.
    Chat(Chat),
}

/// How to continue it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GenerateOptions {
    /// New tokens at most; absent means up to the end of the context.
    pub max_tokens: Option<u32>,
    /// 0 (the default) takes the most likely token; otherwise softmax sampling.
    pub temperature: Option<f32>,
    /// Same seed, same tokens; absent draws one.
    pub seed: Option<u64>,
    /// The text ends before any of these.
    pub stop: Vec<String>,
    /// Goes on after an end token.
    pub ignore_eos: bool,
}

impl GenerateOptions {
    /// Largest temperature: beyond it every distribution is flat.
    const MAX_TEMPERATURE: f32 = 100.0;

    pub(crate) fn choice(&self) -> Result<Choice, EngineError> {
        let temperature = self.temperature.unwrap_or(0.0);
        // A subnormal temperature has no finite reciprocal.
        let is_usable = temperature == 0.0
            || temperature.is_normal() && (0.0..=Self::MAX_TEMPERATURE).contains(&temperature);
        if !is_usable {
            return Err(EngineError::Option {
                option: "temperature",
                value: temperature.to_string(),
                allowed: "from 0 to 100",
            });
        }
        let seed = match self.seed {
            Some(seed) => seed,
            // Greedy choice uses no random numbers, so a failing source of them must not matter.
            None if temperature == 0.0 => 0,
            None => getrandom::u64().map_err(|error| EngineError::Option {
                option: "seed",
                value: format!("absent, and the system has no random numbers ({error})"),
                allowed: "given here",
            })?,
        };
        Ok(Choice { temperature, seed })
    }
}
