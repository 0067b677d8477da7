//! The kernels of monarch-webgpu.
//!
//! In go the shader modules of `shaders/`, and for each kernel a [shape](matvec_q4::Shape) fixed
//! by the model and a [geometry](matvec_q4::Geometry) chosen by tuning. Out come linked WGSL, the
//! tables that a host needs to bind it ([`Kernel`]), the number of workgroups to dispatch, the
//! values of its overrides, and a CPU twin that computes the same thing.
//!
//! The crate makes no GPU calls: `monarch-runtime` turns a [`Kernel`] into a pipeline. Linking,
//! validation and linting happen in the build script, so a shader that does not fit its Rust
//! partner fails the build.
//!
//! ```
//! use monarch_kernels::{Features, Limits, kernel, rms_norm};
//!
//! let shape = rms_norm::Shape { k: 1024, eps: 1e-5 };
//! let geometry = rms_norm::Geometry { workgroup: 256 };
//! let groups = rms_norm::workgroups(&shape, &geometry, &Limits::DEFAULT)?;
//! assert_eq!(groups, [1, 1, 1]);
//!
//! let rms_norm = kernel("rms_norm");
//! let names: Vec<_> = rms_norm.bindings.iter().map(|binding| binding.name).collect();
//! assert_eq!(names, ["x", "weight", "y"]);
//! assert!(rms_norm.wgsl(Features::NONE).contains("fn main"));
//! # Ok::<(), monarch_kernels::KernelError>(())
//! ```

mod dispatch;
mod error;
pub mod q4;
mod table;

pub mod advance;
pub mod argmax_final;
pub mod argmax_partial;
pub mod attention_decode;
pub mod attention_merge;
pub mod conv_in_proj_q4;
pub mod embed_q4;
pub mod fold;
pub mod matvec_q4;
pub mod mlp_q4;
pub mod qk_norm_rope;
pub mod rms_norm;
pub mod rope_attention_decode;
pub mod short_conv;
pub mod subgroup_probe;
pub mod swiglu;

pub use dispatch::Limits;
pub use error::KernelError;
pub use table::{Access, Binding, Features, KERNELS, Kernel, kernel};
