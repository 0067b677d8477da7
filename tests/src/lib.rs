//! What the tests of the workspace share; the tests themselves are in `tests/tests/`.
//!
//! - [`gpu`] runs one kernel on a software adapter, between guard words; [`cases`] lists what on.
//! - [`golden`] lists every case of `tests/golden/`, with the model it belongs to.
//! - [`compare`] says how far two lists of numbers are apart, and refuses what cannot be compared.
//! - [`model`] puts a packed folder on the GPU and asks it for logits and tokens.
//! - [`reference`] is a second, independent LFM2 in f64 that can be broken on purpose.
//!
//! A case goes in as a model and token ids, and comes out as a verdict:
//!
//! ```no_run
//! use monarch_oracle::{State, Want, Weights, forward};
//! use monarch_tests::{compare, golden};
//!
//! for model in golden::models() {
//!     let weights = Weights::read(&model.checkpoint())?;
//!     for case in model.cases() {
//!         let output = forward(&weights, &mut State::new(&weights.shape), &case.ids, Want::LAST)?;
//!         let difference = compare::compare(&output.logits, &case.last_logits)?;
//!         assert!(difference.rel_l2 < 1e-4, "{}: {difference}", case.name);
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod cases;
pub mod compare;
pub mod golden;
pub mod gpu;
pub mod model;
pub mod reference;
