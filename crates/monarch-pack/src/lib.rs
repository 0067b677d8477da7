//! A checkpoint in, `manifest.json` and `weights.bin` out; and both of them back as f32.
//!
//! [`Checkpoint`] is a Hugging Face folder or a formula ([`Checkpoint::synth`]), [`pack`] writes
//! the folder that a page loads, [`Packed`] reads such a folder on the CPU. Both give matrices and
//! vectors by the engine's roles ([`Matrix`], [`Vector`]), so that a forward pass does not care
//! which one it runs on.
//!
//! [`quantise`] holds the 4-bit rules, [`LayoutOptions`] which sections are written where. The
//! neighbours are `monarch-manifest`, whose schema is written, `monarch-oracle`, which computes
//! with the weights, and `monarch-cli`, which calls this. This crate knows no GPU and is not async.
//!
//! ```
//! use monarch_pack::{Checkpoint, Matrix, PackOptions, Packed, pack};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let checkpoint = Checkpoint::synth("lfm2-nano")?;
//! let out = tempfile::tempdir()?;
//! let manifest = pack(&checkpoint, out.path(), &PackOptions::default(), &mut |_| ())?;
//!
//! let packed = Packed::open(out.path())?;
//! assert_eq!(packed.spec().weight_bytes, manifest.spec.weight_bytes);
//! let embedding = packed.matrix_f32(None, Matrix::Embed)?;
//! assert_eq!(embedding.len(), 320 * 64);
//! # Ok(())
//! # }
//! ```

mod checkpoint;
mod config;
mod error;
mod layout;
mod pack;
mod packed;
pub mod quantise;
mod rope;
mod synth;
mod tensor_file;
mod verify;

pub use checkpoint::Checkpoint;
pub use error::PackError;
pub use layout::{Layout, LayoutOptions};
pub use monarch_manifest::{Matrix, Vector};
pub use pack::{
    MANIFEST_FILE, PackOptions, PackProgress, TEXT_FILES, WEIGHTS_FILE, pack, record_self_test,
};
pub use packed::{Packed, read_manifest};
pub use quantise::Quantised;
pub use synth::SHAPE_NAMES;
pub use verify::{Finding, VerifyReport, verify};
