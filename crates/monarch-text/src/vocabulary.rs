use std::collections::HashMap;

use serde_json::Value;
use tokenizers::models::bpe::PipelineBPE;
use tokenizers::pipeline::{EncodeOptions, Override, PipelineModel, PipelineTokenizer};
use tokenizers::utils::byte_level::char_to_byte;

use crate::{TextError, TextFile};

/// One above the largest token id accepted. The largest published vocabularies have 262,144 ids;
/// tables here are indexed by id, so a single absurd id must not size them.
const MAX_VOCAB_SIZE: u32 = 1 << 20;

/// `tokenizer.json`: the tokenizer itself, and the bytes of every token.
///
/// Text becomes ids by the `tokenizers` crate. Ids become text by [`Vocabulary::token_bytes`],
/// because streaming needs the bytes of one token, which the crate does not hand out; whole
/// texts take the same way, so that the two cannot differ.
pub(crate) struct Vocabulary {
    tokenizer: PipelineTokenizer,
    tokens: Vec<Option<Token>>,
    special_ids: HashMap<String, u32>,
}

struct Token {
    bytes: Box<[u8]>,
    special: bool,
}

impl Vocabulary {
    pub(crate) fn parse(json: &str) -> Result<Vocabulary, TextError> {
        let in_file = |source| TextError::Json {
            file: TextFile::Tokenizer,
            source,
        };
        let mut file: Value = serde_json::from_str(json).map_err(in_file)?;
        let vocab_size = vocab_size(&file)?;
        // Files of format 1.0, that is all published ones, are brought to the format that the
        // tokenizer reads.
        tokenizers::canonicalize_value(&mut file)
            .map_err(|source| TextError::Upgrade { source })?;
        let canonical = serde_json::to_string(&file).map_err(in_file)?;
        let tokenizer =
            tokenizers::from_json(&canonical).map_err(|source| TextError::Tokenizer { source })?;
        let PipelineModel::BPE(model) = tokenizer.get_model();
        if !PipelineBPE::is_byte_level(model) {
            return Err(TextError::NotByteLevel);
        }

        let added = tokenizer.get_added_vocabulary();
        let tokens: Vec<_> = (0..vocab_size)
            .map(|id| match added.simple_id_to_token(id) {
                Some(text) => Some(Token {
                    special: added.is_special_token(&text),
                    bytes: text.into_bytes().into(),
                }),
                None => tokenizer.get_model().id_to_token(id).map(|text| Token {
                    bytes: text.chars().filter_map(char_to_byte).collect(),
                    special: false,
                }),
            })
            .collect();
        let special_ids = added
            .get_added_tokens_decoder()
            .into_iter()
            .filter(|(_, token)| token.special)
            .map(|(id, token)| (token.content, id))
            .collect();
        let vocabulary = Vocabulary {
            tokenizer,
            tokens,
            special_ids,
        };
        // The tokenizer notices a pattern that it cannot search for, and an id outside the
        // vocabulary in its post-processor, only when it meets a text.
        let ids = vocabulary
            .tokenize("a", true)
            .map_err(|error| match error {
                TextError::Tokenize { source, .. } => TextError::Tokenizer { source },
                other => other,
            })?;
        for id in ids {
            vocabulary.token(id)?;
        }
        Ok(vocabulary)
    }

    /// One above the largest id.
    pub(crate) fn size(&self) -> u32 {
        self.tokens.len() as u32
    }

    pub(crate) fn tokenize(&self, text: &str, add_special: bool) -> Result<Vec<u32>, TextError> {
        let options = EncodeOptions {
            add_special_tokens: add_special,
            // Text of a special token becomes that token, as in transformers.
            encode_special_tokens: false,
            // Settings of training runs that some files still carry.
            padding: Override::Off,
            truncation: Override::Off,
        };
        let mut ids = Vec::new();
        self.tokenizer
            .encode_into(text, &options, &mut ids)
            .map_err(|source| TextError::Tokenize {
                bytes: text.len(),
                source,
            })?;
        Ok(ids.into_iter().map(u32::from).collect())
    }

    pub(crate) fn token_bytes(&self, id: u32) -> Result<&[u8], TextError> {
        self.token(id).map(|token| &*token.bytes)
    }

    /// Whether `id` is a special token; `false` for ids without a token.
    pub(crate) fn is_special(&self, id: u32) -> bool {
        self.token(id).is_ok_and(|token| token.special)
    }

    /// The id of the special token written `text`.
    pub(crate) fn special_id(&self, text: &str) -> Option<u32> {
        self.special_ids.get(text).copied()
    }

    /// The id of the token written `text`, special or not.
    pub(crate) fn token_id(&self, text: &str) -> Option<u32> {
        self.tokenizer
            .get_added_vocabulary()
            .token_to_id(text)
            .or_else(|| {
                let bytes = text.as_bytes();
                let id = self
                    .tokens
                    .iter()
                    .position(|token| token.as_ref().is_some_and(|token| &*token.bytes == bytes))?;
                Some(id as u32)
            })
    }

    fn token(&self, id: u32) -> Result<&Token, TextError> {
        self.tokens
            .get(id as usize)
            .and_then(Option::as_ref)
            .ok_or(TextError::UnknownId {
                id,
                vocab_size: self.size(),
            })
    }
}

/// One above the largest id of the file, checked before anything is sized by it.
fn vocab_size(file: &Value) -> Result<u32, TextError> {
    // The tokenizer panics on an empty vocabulary.
    let model = file["model"]["vocab"].as_object();
    let model = model
        .filter(|vocab| !vocab.is_empty())
        .ok_or(TextError::NoVocabulary)?;
    let model = model.iter().map(|(token, id)| (token.as_str(), id));
    let added = file["added_tokens"].as_array().into_iter().flatten();
    let added = added.map(|token| (token["content"].as_str().unwrap_or_default(), &token["id"]));
    let mut size = 0;
    for (token, id) in model.chain(added) {
        match id.as_u64() {
            Some(index) if index < u64::from(MAX_VOCAB_SIZE) => size = size.max(index as u32 + 1),
            _ => {
                return Err(TextError::VocabularyId {
                    token: token.to_owned(),
                    id: id.to_string(),
                    limit: MAX_VOCAB_SIZE,
                });
            }
        }
    }
    Ok(size)
}
