//! The GPU side: a device that turns token ids into token ids.
//!
//! In go a [`ModelSpec`](monarch_manifest::ModelSpec), its [`Tuning`](monarch_manifest::Tuning) and section bytes; out
//! come chosen tokens. [`Gpu`] opens the device, [`Plan`] decides what a pass does, [`Loading`] allocates, compiles and
//! takes the weights, [`Runtime`] runs passes. `monarch-kernels` is below, `monarch-engine` above. Nothing here fetches
//! or knows text.
//!
//! ```no_run
//! use monarch_runtime::{Choice, DeviceOptions, Gpu, Loading, PlanChoice, needs};
//!
//! # async fn run(manifest: monarch_manifest::Manifest, weights: &[u8]) -> Result<(), monarch_runtime::RuntimeError> {
//! let context_tokens = 256;
//! let gpu = Gpu::request(&DeviceOptions::default(), &needs(&manifest.spec, context_tokens)).await?;
//! let (spec, tuning) = (&manifest.spec, &manifest.tuning);
//! let mut loading = Loading::new(gpu, spec, tuning, PlanChoice::Auto, context_tokens, &mut |_, _| {}).await?;
//! for name in loading.wanted().map(str::to_owned).collect::<Vec<_>>() {
//!     let section = spec.section(&name).expect("plans read sections of the manifest");
//!     loading.push(&name, &weights[section.offset_bytes as usize..section.end_bytes() as usize])?;
//!     loading.complete(&name)?;
//! }
//! let mut runtime = loading.finish()?;
//! runtime.start(&[1, 42, 7], &Choice::default())?;
//! runtime.submit_feed(2);
//! let group = runtime.submit_choose(8);
//! let ids = runtime.read(group).await?;
//! assert_eq!(ids.len(), 8);
//! # Ok(())
//! # }
//! ```

mod buffers;
mod device;
mod error;
mod pipelines;
mod plan;
mod probe;
mod readback;
mod runtime;
mod state;
mod upload;

pub use buffers::{Activation, BufferId, BufferSizes, Layer, VectorId};
pub use device::{
    AdapterFacts, DeviceLimits, DeviceNeeds, DeviceOptions, Gpu, PowerPreference, WANTED_FEATURES,
};
pub use error::{DeviceError, RuntimeError};
pub use plan::{Capabilities, Plan, PlanChoice, Stage};
pub use readback::Pending;
pub use runtime::{Loading, Runtime, needs};
pub use state::Choice;
pub use upload::{Destination, Destinations, Half, Span};
