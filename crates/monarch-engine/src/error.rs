//! What can go wrong between a URL and a text.

use monarch_manifest::ManifestError;
use monarch_runtime::{DeviceError, RuntimeError};
use monarch_text::TextError;
use monarch_weights::WeightsError;
use thiserror::Error;

/// Loading or generating failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The manifest describes something that cannot be run.
    #[error("{url}: {source}")]
    Manifest {
        /// Where the manifest came from.
        url: String,
        /// What is wrong with it.
        #[source]
        source: ManifestError,
    },
    /// A file did not arrive, or not as the manifest lists it.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The tokenizer or chat template does not work.
    #[error(transparent)]
    Text(#[from] TextError),
    /// Text went in, or stop strings were given, and there is no `tokenizer.json`.
    #[error("this model has no tokenizer.json: it takes and gives token ids")]
    NoTokenizer,
    /// The GPU side failed.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// A sampling or length option outside its range.
    #[error("{option} is {value}, it must be {allowed}")]
    Option {
        /// Name of the option, as the JavaScript API writes it.
        option: &'static str,
        /// What was given.
        value: String,
        /// What would be right.
        allowed: &'static str,
    },
    /// The tokenizer knows more ids than the model has rows.
    #[error("the tokenizer has {tokenizer_tokens} tokens, the model's vocabulary {vocab}")]
    Vocabulary {
        /// Tokens of the tokenizer.
        tokenizer_tokens: u32,
        /// Rows of the embedding.
        vocab: u32,
    },
    /// The device does not compute what the manifest says it should.
    #[error(
        "self-test: token {index} of the known continuation should be {expected}, this device says {got}"
    )]
    SelfTest {
        /// Index in the continuation.
        index: usize,
        /// Token the manifest lists.
        expected: u32,
        /// Token that was chosen.
        got: u32,
    },
}

impl From<DeviceError> for EngineError {
    fn from(error: DeviceError) -> Self {
        Self::Runtime(error.into())
    }
}

impl EngineError {
    /// A stable name for programs: the `code` of the JavaScript API's errors.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Manifest { .. } => "manifest-invalid",
            Self::Weights(error) => match error.root() {
                WeightsError::Cancelled => "aborted",
                WeightsError::Digest { .. } => "weights-corrupt",
                _ => "fetch-failed",
            },
            Self::Text(_) | Self::Vocabulary { .. } | Self::NoTokenizer => "text-invalid",
            Self::Runtime(RuntimeError::Device(error)) => match error {
                DeviceError::NoWebGpu
                | DeviceError::NoAdapter { .. }
                | DeviceError::Limit { .. } => "unsupported",
                DeviceError::OutOfMemory { .. } => "out-of-memory",
                DeviceError::Lost { .. } => "device-lost",
                _ => "gpu-failed",
            },
            Self::Runtime(RuntimeError::Context { .. } | RuntimeError::ContextTooLong { .. }) => {
                "context-exceeded"
            }
            Self::Runtime(RuntimeError::Token { .. } | RuntimeError::EmptyPrompt) => {
                "invalid-prompt"
            }
            Self::Runtime(RuntimeError::Unsupported { .. } | RuntimeError::Kernel { .. }) => {
                "unsupported"
            }
            Self::Runtime(_) => "fetch-failed",
            Self::Option { .. } => "invalid-option",
            Self::SelfTest { .. } => "self-test-failed",
        }
    }
}
