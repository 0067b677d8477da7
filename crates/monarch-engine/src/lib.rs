//! The engine: a model that answers.
//!
//! In go a [`Source`](monarch_weights::Source) and a manifest's URL; out comes a [`Model`], and of it [`Generation`]s,
//! which give text piece by piece. Manifest, weights, runtime and text crates are below; the command line and the web
//! edge are above and add nothing but their own kind of values.
//!
//! ```no_run
//! use monarch_engine::{Cancel, GenerateOptions, LoadOptions, Model, Prompt};
//! use monarch_weights::FolderSource;
//!
//! # async fn run() -> Result<(), monarch_engine::EngineError> {
//! let source = FolderSource::new("models/tiny-lfm2");
//! let cancel = Cancel::new();
//! let mut model = Model::load(&source, "manifest.json", &LoadOptions::default(), &mut |_| {}, &cancel).await?;
//! let options = GenerateOptions { max_tokens: Some(64), ..GenerateOptions::default() };
//! let mut generation = model.generate(&Prompt::Text("Once upon a time".into()), &options, &cancel)?;
//! while let Some(chunk) = generation.next().await? {
//!     print!("{}", chunk.text);
//! }
//! # Ok(())
//! # }
//! ```

mod error;
mod generate;
mod model;
mod options;
mod progress;
mod support;

pub use error::EngineError;
pub use generate::{Chunk, Completion, FinishReason, Generation, Timings, Usage};
pub use model::{Model, ModelInfo, PlanInfo};
pub use monarch_runtime::{AdapterFacts, DeviceOptions, PlanChoice};
pub use monarch_text::{Chat, Message};
pub use monarch_weights::Cancel;
pub use options::{GenerateOptions, LoadOptions, Prompt};
pub use progress::Progress;
pub use support::{Support, SupportStatus, support};
