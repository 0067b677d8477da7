use serde::Deserialize;
use serde_json::Value;

use crate::{TextError, TextFile};

/// The fields of `tokenizer_config.json` that text needs. Others are for training or for Python
/// classes.
#[derive(Default, Deserialize)]
pub(crate) struct TokenizerConfig {
    pub(crate) bos_token: Option<TokenText>,
    pub(crate) eos_token: Option<TokenText>,
    unk_token: Option<TokenText>,
    sep_token: Option<TokenText>,
    pad_token: Option<TokenText>,
    cls_token: Option<TokenText>,
    mask_token: Option<TokenText>,
    pub(crate) chat_template: Option<ChatTemplates>,
}

/// A special token: its text, or an object with the text and matching rules.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum TokenText {
    Text(String),
    Object { content: String },
}

/// A template, or several with names.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum ChatTemplates {
    One(String),
    Named(Vec<NamedTemplate>),
}

#[derive(Deserialize)]
pub(crate) struct NamedTemplate {
    pub(crate) name: String,
    pub(crate) template: String,
}

impl TokenText {
    pub(crate) fn text(&self) -> &str {
        match self {
            TokenText::Text(text) | TokenText::Object { content: text } => text,
        }
    }
}

impl TokenizerConfig {
    pub(crate) fn parse(json: &str) -> Result<TokenizerConfig, TextError> {
        serde_json::from_str(json).map_err(|source| TextError::Json {
            file: TextFile::TokenizerConfig,
            source,
        })
    }

    /// Template variables that hold the text of a special token, those that are set.
    pub(crate) fn token_variables(&self) -> Vec<(&'static str, String)> {
        [
            ("bos_token", &self.bos_token),
            ("eos_token", &self.eos_token),
            ("unk_token", &self.unk_token),
            ("sep_token", &self.sep_token),
            ("pad_token", &self.pad_token),
            ("cls_token", &self.cls_token),
            ("mask_token", &self.mask_token),
        ]
        .into_iter()
        .filter_map(|(name, token)| Some((name, token.as_ref()?.text().to_owned())))
        .collect()
    }
}

/// How the model's authors suggest to sample, from `generation_config.json`.
///
/// `None` where the file has no such field: what to do then is the caller's choice.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct GenerationDefaults {
    /// `false`: take the most probable token. The fields below are for `true`.
    pub do_sample: Option<bool>,
    /// Divides the logits, from 0 up; 0 takes the most probable token.
    pub temperature: Option<f32>,
    /// Keep the `top_k` most probable tokens; 0 keeps all.
    pub top_k: Option<u32>,
    /// Keep the most probable tokens that together reach this probability, 0 to 1.
    pub top_p: Option<f32>,
    /// Keep tokens at least this many times as probable as the most probable one, 0 to 1.
    pub min_p: Option<f32>,
    /// Divides (negative logits: multiplies) the logits of tokens already present, above 0;
    /// 1 changes nothing.
    pub repetition_penalty: Option<f32>,
}

impl GenerationDefaults {
    fn validate(&self) -> Result<(), TextError> {
        let check = |field, value: Option<f32>, expected, accept: fn(f32) -> bool| match value {
            Some(value) if !accept(value) => Err(TextError::GenerationValue {
                field,
                value: value.into(),
                expected,
            }),
            _ => Ok(()),
        };
        let probability = |p: f32| (0.0..=1.0).contains(&p);
        check(
            "temperature",
            self.temperature,
            "a finite number from 0 up",
            |t| t.is_finite() && t >= 0.0,
        )?;
        check("top_p", self.top_p, "0 to 1", probability)?;
        check("min_p", self.min_p, "0 to 1", probability)?;
        check(
            "repetition_penalty",
            self.repetition_penalty,
            "a finite number above 0",
            |r| r.is_finite() && r > 0.0,
        )
    }
}

/// `generation_config.json`: sampling defaults, and the end ids that it lists.
#[derive(Default)]
pub(crate) struct GenerationConfig {
    pub(crate) defaults: GenerationDefaults,
    pub(crate) end_ids: Vec<u32>,
}

impl GenerationConfig {
    pub(crate) fn parse(json: &str, vocab_size: u32) -> Result<GenerationConfig, TextError> {
        let in_file = |source| TextError::Json {
            file: TextFile::GenerationConfig,
            source,
        };
        let file: Value = serde_json::from_str(json).map_err(in_file)?;
        let defaults = GenerationDefaults::deserialize(&file).map_err(in_file)?;
        defaults.validate()?;

        let eos = &file["eos_token_id"];
        let listed = match eos {
            Value::Null => &[],
            Value::Array(ids) => &ids[..],
            id => std::slice::from_ref(id),
        };
        let mut end_ids = Vec::new();
        for id in listed {
            let id = id.as_u64().ok_or_else(|| TextError::EndIdType {
                found: eos.to_string(),
            })?;
            if id >= u64::from(vocab_size) {
                return Err(TextError::EndId { id, vocab_size });
            }
            end_ids.push(id as u32);
        }
        Ok(GenerationConfig { defaults, end_ids })
    }
}
