use std::fmt;

use crate::config::{GenerationConfig, TokenizerConfig};
use crate::stream::TextStream;
use crate::template::ChatTemplate;
use crate::utf8::Utf8Decoder;
use crate::vocabulary::Vocabulary;
use crate::{Chat, GenerationDefaults, TextError, TextFile};

/// The contents of the text files of a model, as its repository holds them.
#[derive(Clone, Copy, Debug)]
pub struct TextFiles<'a> {
    /// `tokenizer.json`
    pub tokenizer: &'a str,
    /// `tokenizer_config.json`
    pub tokenizer_config: Option<&'a str>,
    /// `chat_template.jinja`; it wins over a template in `tokenizer_config.json`.
    pub chat_template: Option<&'a str>,
    /// `generation_config.json`
    pub generation_config: Option<&'a str>,
}

/// Tokenizer, chat template and end ids of one model.
pub struct Text {
    vocabulary: Vocabulary,
    template: Option<ChatTemplate>,
    /// The token that every sequence begins with, if the tokenizer puts one there.
    begin_id: Option<u32>,
    end_ids: Vec<u32>,
    generation_defaults: GenerationDefaults,
}

impl Text {
    /// Reads and checks all files.
    ///
    /// # Errors
    ///
    /// Whatever is wrong with one of the files; [`TextFile::limit_bytes`] is checked first.
    pub fn new(files: &TextFiles) -> Result<Text, TextError> {
        check_size(TextFile::Tokenizer, Some(files.tokenizer))?;
        check_size(TextFile::TokenizerConfig, files.tokenizer_config)?;
        check_size(TextFile::ChatTemplate, files.chat_template)?;
        check_size(TextFile::GenerationConfig, files.generation_config)?;

        let vocabulary = Vocabulary::parse(files.tokenizer)?;
        let config = match files.tokenizer_config {
            Some(json) => TokenizerConfig::parse(json)?,
            None => TokenizerConfig::default(),
        };
        let generation = match files.generation_config {
            Some(json) => GenerationConfig::parse(json, vocabulary.size())?,
            None => GenerationConfig::default(),
        };
        Ok(Text {
            template: ChatTemplate::new(files.chat_template, &config)?,
            begin_id: begin_id(&vocabulary, &config)?,
            end_ids: end_ids(&vocabulary, &config, &generation)?,
            generation_defaults: generation.defaults,
            vocabulary,
        })
    }

    /// Text to token ids.
    ///
    /// `add_special` adds what the tokenizer puts around a text, for LFM2 the begin token. The
    /// text of a special token inside `text` becomes that token, as in transformers.
    ///
    /// # Errors
    ///
    /// [`TextError::Tokenize`] for texts from 4 GiB up.
    pub fn tokenize(&self, text: &str, add_special: bool) -> Result<Vec<u32>, TextError> {
        self.vocabulary.tokenize(text, add_special)
    }

    /// Token ids to text: the tokens' bytes, each maximal invalid part of UTF-8 as one U+FFFD.
    ///
    /// `skip_special` leaves special tokens out, otherwise they are written as their own text.
    /// Spaces are never tidied up, whatever `clean_up_tokenization_spaces` says: text that was
    /// streamed cannot be changed afterwards.
    ///
    /// # Errors
    ///
    /// [`TextError::UnknownId`].
    pub fn detokenize(&self, ids: &[u32], skip_special: bool) -> Result<String, TextError> {
        let mut decoder = Utf8Decoder::default();
        let mut text = String::new();
        for &id in ids {
            let bytes = self.token_bytes(id)?;
            if !(skip_special && self.is_special(id)) {
                decoder.push(bytes, &mut text);
            }
        }
        decoder.finish(&mut text);
        Ok(text)
    }

    /// A chat to the prompt text that the model was trained on.
    ///
    /// # Errors
    ///
    /// [`TextError::NoChatTemplate`], or what the template says about the chat.
    pub fn render_chat(&self, chat: &Chat) -> Result<String, TextError> {
        self.template
            .as_ref()
            .ok_or(TextError::NoChatTemplate)?
            .render(chat)
    }

    /// A chat to token ids, with one begin token if the model has one: the template's own, or
    /// else the tokenizer's.
    ///
    /// # Errors
    ///
    /// As for [`render_chat`](Text::render_chat) and [`tokenize`](Text::tokenize).
    pub fn tokenize_chat(&self, chat: &Chat) -> Result<Vec<u32>, TextError> {
        let mut ids = self.tokenize(&self.render_chat(chat)?, false)?;
        if let Some(begin) = self.begin_id
            && ids.first() != Some(&begin)
        {
            ids.insert(0, begin);
        }
        Ok(ids)
    }

    /// Whether the model has a chat template.
    pub fn has_chat_template(&self) -> bool {
        self.template.is_some()
    }

    /// Ids that end a text, in ascending order; empty if no file names one.
    ///
    /// They are `eos_token_id` of `generation_config.json`, `eos_token` of
    /// `tokenizer_config.json`, and for a ChatML vocabulary (one with the special tokens
    /// `<|im_start|>` and `<|im_end|>`) also `<|im_end|>` and, where it is special,
    /// `<|endoftext|>`: fine-tuned models end a turn with either, whatever their files say.
    pub fn end_ids(&self) -> &[u32] {
        &self.end_ids
    }

    /// The token that the tokenizer puts in front of every text, if it is the configuration's
    /// `bos_token`.
    pub fn begin_id(&self) -> Option<u32> {
        self.begin_id
    }

    /// Token ids are below this. The model's logits may have more rows, for alignment.
    pub fn vocab_size(&self) -> u32 {
        self.vocabulary.size()
    }

    /// The sampling values of `generation_config.json`.
    pub fn generation_defaults(&self) -> &GenerationDefaults {
        &self.generation_defaults
    }

    /// The id of the token that is written `text`, for instance `<|tool_call_start|>`.
    pub fn token_id(&self, text: &str) -> Option<u32> {
        self.vocabulary.token_id(text)
    }

    /// The bytes a token stands for, often not whole characters; a special token's own text.
    ///
    /// # Errors
    ///
    /// [`TextError::UnknownId`].
    pub fn token_bytes(&self, id: u32) -> Result<&[u8], TextError> {
        self.vocabulary.token_bytes(id)
    }

    /// Whether `id` is a special token, which is no part of a text proper.
    pub fn is_special(&self, id: u32) -> bool {
        self.vocabulary.is_special(id)
    }

    /// A [`TextStream`] at the start of a text.
    ///
    /// # Errors
    ///
    /// [`TextError::EmptyStop`].
    pub fn stream(&self, stop: &[String], show_special: bool) -> Result<TextStream, TextError> {
        TextStream::new(stop, show_special)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Text")
            .field("vocab_size", &self.vocab_size())
            .field("begin_id", &self.begin_id)
            .field("end_ids", &self.end_ids)
            .field("has_chat_template", &self.has_chat_template())
            .field("generation_defaults", &self.generation_defaults)
            .finish_non_exhaustive()
    }
}

pub(crate) fn check_size(file: TextFile, content: Option<&str>) -> Result<(), TextError> {
    let bytes = content.map_or(0, str::len) as u64;
    let limit_bytes = file.limit_bytes();
    if bytes > limit_bytes {
        return Err(TextError::FileSize {
            file,
            bytes,
            limit_bytes,
        });
    }
    Ok(())
}

/// `bos_token`, if the tokenizer begins texts with it.
fn begin_id(vocabulary: &Vocabulary, config: &TokenizerConfig) -> Result<Option<u32>, TextError> {
    let Some(token) = &config.bos_token else {
        return Ok(None);
    };
    let id = configured_id(vocabulary, "bos_token", token.text())?;
    let begins = vocabulary.tokenize("", true)?.first() == Some(&id);
    Ok(begins.then_some(id))
}

fn end_ids(
    vocabulary: &Vocabulary,
    config: &TokenizerConfig,
    generation: &GenerationConfig,
) -> Result<Vec<u32>, TextError> {
    let mut ids = generation.end_ids.clone();
    if let Some(token) = &config.eos_token {
        ids.push(configured_id(vocabulary, "eos_token", token.text())?);
    }
    let turn_end = vocabulary.special_id("<|im_end|>");
    if vocabulary.special_id("<|im_start|>").is_some() && turn_end.is_some() {
        ids.extend(turn_end);
        ids.extend(vocabulary.special_id("<|endoftext|>"));
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

fn configured_id(
    vocabulary: &Vocabulary,
    field: &'static str,
    token: &str,
) -> Result<u32, TextError> {
    vocabulary
        .token_id(token)
        .ok_or_else(|| TextError::UnknownToken {
            field,
            token: token.to_owned(),
        })
}
