//! What can go wrong on the GPU side.

use thiserror::Error;

/// A device could not be had, or failed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceError {
    /// The browser has no `navigator.gpu`.
    #[error("this browser has no WebGPU (navigator.gpu is missing)")]
    NoWebGpu,
    /// No adapter answered.
    #[error("no GPU adapter: {message}")]
    NoAdapter {
        /// The browser's or driver's words.
        message: String,
    },
    /// The adapter refused to open a device.
    #[error("the GPU adapter refused to open a device: {message}")]
    Refused {
        /// The browser's or driver's words.
        message: String,
    },
    /// A limit of the adapter is too small for the model.
    #[error("{limit}: the model needs {needed}, the adapter allows {available}")]
    Limit {
        /// WebGPU's name of the limit.
        limit: &'static str,
        /// What the model needs.
        needed: u64,
        /// What there is.
        available: u64,
    },
    /// A feature was requested and granted, and is not on the device.
    #[error("feature {feature} was requested but the device does not have it")]
    FeatureLost {
        /// WebGPU's name of the feature.
        feature: String,
    },
    /// An allocation failed.
    #[error("the GPU is out of memory: {message}")]
    OutOfMemory {
        /// The browser's or driver's words.
        message: String,
    },
    /// The GPU rejected a command: our fault.
    #[error("the GPU rejected a command: {message}")]
    Validation {
        /// The browser's or driver's words.
        message: String,
    },
    /// The device is gone.
    #[error("the GPU device was lost: {message}")]
    Lost {
        /// The browser's or driver's words.
        message: String,
    },
}

impl From<wgpu::Error> for DeviceError {
    fn from(error: wgpu::Error) -> Self {
        let message = error.to_string();
        match error {
            wgpu::Error::OutOfMemory { .. } => Self::OutOfMemory { message },
            wgpu::Error::Validation { .. } => Self::Validation { message },
            wgpu::Error::Internal { .. } => Self::Lost { message },
        }
    }
}

/// A model could not be put on the device, or could not run there.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A kernel cannot run this shape here.
    #[error("{label}: {source}")]
    Kernel {
        /// Stage of the plan.
        label: String,
        /// Why.
        #[source]
        source: monarch_kernels::KernelError,
    },
    /// The shape has a part this runtime has no kernel for.
    #[error("layer {layer}: {operator} with {property} is not supported")]
    Unsupported {
        /// Decoder layer.
        layer: u32,
        /// Its operator.
        operator: &'static str,
        /// What is unusual about it.
        property: &'static str,
    },
    /// A section ended early or ran over.
    #[error("section {section}: {got_bytes} bytes arrived, {needed_bytes} are needed")]
    SectionIncomplete {
        /// Section name.
        section: String,
        /// Bytes that came.
        got_bytes: u64,
        /// Bytes the manifest lists.
        needed_bytes: u64,
    },
    /// A section came that the plan does not read.
    #[error("section {section}: the plan has no use for it")]
    SectionUnknown {
        /// Section name.
        section: String,
    },
    /// A section the plan reads never came.
    #[error("section {section} was not uploaded")]
    SectionMissing {
        /// Section name.
        section: String,
    },
    /// More tokens than the KV cache holds.
    #[error("{tokens} tokens do not fit a context of {context_tokens}")]
    Context {
        /// Prompt and continuation together.
        tokens: u32,
        /// Capacity.
        context_tokens: u32,
    },
    /// A token id outside the vocabulary.
    #[error("token id {id} is outside the vocabulary of {vocab}")]
    Token {
        /// The id.
        id: u32,
        /// Size of the vocabulary.
        vocab: u32,
    },
    /// A pass needs a token to start from.
    #[error("an empty prompt: at least one token is needed")]
    EmptyPrompt,
    /// Asked for a context the model or device cannot have.
    #[error(
        "a context of {asked_tokens} tokens was asked for, the model's table of positions ends at {model_tokens}"
    )]
    ContextTooLong {
        /// Asked for.
        asked_tokens: u32,
        /// The model's limit.
        model_tokens: u32,
    },
}
