//! LFM2 as one plain function on the CPU: f32 weights and token ids in, logits out.
//!
//! [`forward`] is the model in the field's words, with the shape beside each buffer. It is the answer that the GPU
//! plans, the packed files and the browser are checked against, so it is written to be read rather than to be fast:
//! f32 storage, every sum in f64, rows in parallel. Each position is computed the same way however the prompt is cut
//! into calls, so a prompt fed whole, in chunks or token by token gives the same bits.
//!
//! - [`Weights`] are read from a [`WeightSource`]: a Hugging Face checkpoint or a packed folder of `monarch-pack`,
//!   whose 4-bit weights are dequantised first.
//! - [`State`] carries the key and value rows and the conv state from one call to the next.
//! - [`greedy`] continues with the largest logit; `monarch-sample` makes other choices.
//!
//! Neighbours: `monarch-pack` below, the `monarch` program's `--device cpu` and the test-suite above.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use monarch_oracle::{State, Want, Weights, forward, greedy};
//! use monarch_pack::Checkpoint;
//!
//! let checkpoint = Checkpoint::open(Path::new("models/tiny-lfm2/original"))?;
//! let weights = Weights::read(&checkpoint)?;
//!
//! let mut state = State::new(&weights.shape);
//! let output = forward(&weights, &mut state, &[1, 412, 87], Want::LAST)?;
//! let next_ids: Vec<u32> = greedy(&weights, &mut state, output.logits, 32)?.iter().map(|step| step.id).collect();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod forward;
mod greedy;
mod maths;
mod state;
mod weights;

pub use error::OracleError;
pub use forward::{Output, Positions, Want, forward};
pub use greedy::{GreedyStep, greedy};
pub use state::{OperatorState, State};
pub use weights::{Attention, Layer, Operator, ShortConv, WeightSource, Weights};
