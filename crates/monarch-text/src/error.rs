use std::fmt;

/// One of the text files that stand beside a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TextFile {
    /// `tokenizer.json`
    Tokenizer,
    /// `tokenizer_config.json`
    TokenizerConfig,
    /// `chat_template.jinja`
    ChatTemplate,
    /// `generation_config.json`
    GenerationConfig,
}

impl TextFile {
    /// The file's usual name, as Hugging Face repositories have it.
    pub fn name(self) -> &'static str {
        match self {
            TextFile::Tokenizer => "tokenizer.json",
            TextFile::TokenizerConfig => "tokenizer_config.json",
            TextFile::ChatTemplate => "chat_template.jinja",
            TextFile::GenerationConfig => "generation_config.json",
        }
    }

    /// Largest file that is accepted, in bytes.
    ///
    /// Several times the size of the largest published files (a 256k-entry `tokenizer.json` is
    /// 33 MB), and small enough that a hostile host cannot fill the memory of a page, or with a
    /// template its stack. Readers should stop fetching at this size.
    pub fn limit_bytes(self) -> u64 {
        match self {
            TextFile::Tokenizer => 64 << 20,
            TextFile::TokenizerConfig => 4 << 20,
            TextFile::ChatTemplate => 64 << 10,
            TextFile::GenerationConfig => 1 << 20,
        }
    }
}

impl fmt::Display for TextFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why text files were refused, or text and token ids could not be turned into each other.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// A file is larger than [`TextFile::limit_bytes`].
    #[error("{file}: {bytes} bytes, at most {limit_bytes} are accepted")]
    FileSize {
        /// Which file.
        file: TextFile,
        /// Its size.
        bytes: u64,
        /// The largest size accepted.
        limit_bytes: u64,
    },

    /// A file is not JSON, or a field of it has another type than expected.
    #[error("{file}: {source}")]
    Json {
        /// Which file.
        file: TextFile,
        /// The parser's message, with line and column.
        #[source]
        source: serde_json::Error,
    },

    /// `tokenizer.json` is of an older format that cannot be brought up to date.
    #[error("tokenizer.json: {source}")]
    Upgrade {
        /// What the conversion refused.
        #[source]
        source: tokenizers::ConvertError,
    },

    /// `tokenizer.json` names a component that the tokenizer does not know, or is inconsistent.
    #[error("tokenizer.json: {source}")]
    Tokenizer {
        /// What the tokenizer refused.
        #[source]
        source: tokenizers::Error,
    },

    /// `tokenizer.json` has no map of tokens to ids, or an empty one.
    #[error("tokenizer.json: model.vocab lists no tokens")]
    NoVocabulary,

    /// `tokenizer.json` is not a byte-level BPE, so its tokens are not byte strings.
    #[error("tokenizer.json: the model is not a byte-level BPE")]
    NotByteLevel,

    /// `tokenizer.json` gives a token an id that is no sensible index.
    #[error("tokenizer.json: token {token:?} has id {id}, ids below {limit} are accepted")]
    VocabularyId {
        /// The token as written in the file.
        token: String,
        /// Its id, as written in the file.
        id: String,
        /// One above the largest id accepted.
        limit: u32,
    },

    /// A configuration names a special token that `tokenizer.json` does not have.
    #[error("tokenizer_config.json: {field} is {token:?}, which tokenizer.json does not have")]
    UnknownToken {
        /// `bos_token` or `eos_token`.
        field: &'static str,
        /// The token's text.
        token: String,
    },

    /// `eos_token_id` of `generation_config.json` is neither an id nor a list of ids.
    #[error("generation_config.json: eos_token_id is {found}, expected an id or a list of ids")]
    EndIdType {
        /// The JSON found there.
        found: String,
    },

    /// `eos_token_id` of `generation_config.json` is outside the vocabulary.
    #[error(
        "generation_config.json: eos_token_id {id} is outside the vocabulary of {vocab_size} ids"
    )]
    EndId {
        /// The id listed.
        id: u64,
        /// Ids in the vocabulary.
        vocab_size: u32,
    },

    /// A sampling value of `generation_config.json` is out of range.
    #[error("generation_config.json: {field} is {value}, expected {expected}")]
    GenerationValue {
        /// The field.
        field: &'static str,
        /// Its value.
        value: f64,
        /// The range accepted.
        expected: &'static str,
    },

    /// A token id without a token.
    #[error("token id {id} is not in the vocabulary of {vocab_size} ids")]
    UnknownId {
        /// The id.
        id: u32,
        /// Ids in the vocabulary: one above the largest.
        vocab_size: u32,
    },

    /// The tokenizer could not split a text.
    #[error("text of {bytes} bytes cannot be tokenized: {source}")]
    Tokenize {
        /// Size of the text.
        bytes: usize,
        /// The tokenizer's reason.
        #[source]
        source: tokenizers::Error,
    },

    /// A chat was given to a model without a chat template.
    #[error(
        "the model has no chat template: neither chat_template.jinja nor chat_template in tokenizer_config.json"
    )]
    NoChatTemplate,

    /// `tokenizer_config.json` lists named templates, none of them called `default`.
    #[error(
        "tokenizer_config.json: chat_template has no template named \"default\", only {names:?}"
    )]
    NoDefaultTemplate {
        /// The names found.
        names: Vec<String>,
    },

    /// The chat template cannot be parsed.
    #[error("chat template, line {line}: {source}")]
    TemplateSyntax {
        /// Line of the template, from 1.
        line: usize,
        /// The parser's message.
        #[source]
        source: minijinja::Error,
    },

    /// The chat template failed while it was rendered.
    #[error("chat template, line {line}: {source}")]
    TemplateRender {
        /// Line of the template, from 1.
        line: usize,
        /// The engine's message.
        #[source]
        source: minijinja::Error,
    },

    /// The chat template called `raise_exception`: it does not accept this chat.
    #[error("chat template, line {line}, refuses the chat: {message}")]
    TemplateRefused {
        /// Line of the template, from 1.
        line: usize,
        /// The template's own words.
        message: String,
    },

    /// The chat template called `strftime_now`, and the chat has no [`now`](crate::Chat::now).
    #[error("chat template, line {line}, asks for the date, and the chat has no `now`")]
    TemplateClock {
        /// Line of the template, from 1.
        line: usize,
    },

    /// Rendering took more work than a chat template is given.
    #[error("chat template, line {line}: more than {limit} steps")]
    TemplateSteps {
        /// Line of the template, from 1, at which the work ran out.
        line: usize,
        /// Steps given: an instruction, or 64 bytes of text.
        limit: u64,
    },

    /// A template variable of the chat has a name that the chat itself sets.
    #[error("template variable {name:?} is set by the chat itself")]
    ReservedVariable {
        /// The variable.
        name: String,
    },

    /// A field of a date and time is out of range.
    #[error("date: {field} is {value}, expected {expected}")]
    DateTime {
        /// The field.
        field: &'static str,
        /// Its value.
        value: i32,
        /// The range accepted.
        expected: &'static str,
    },

    /// An empty stop string would stop every text before it begins.
    #[error("stop string {index} is empty")]
    EmptyStop {
        /// Its place in the list, from 0.
        index: usize,
    },
}
