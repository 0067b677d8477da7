//! Why a kernel cannot run.

use thiserror::Error;

/// Why a shape or a geometry cannot be dispatched.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KernelError {
    /// A size of the model is not a multiple of what the kernel works in.
    #[error("{kernel}: {field} is {value}, but must be a positive multiple of {multiple}")]
    NotMultiple {
        /// The kernel's name.
        kernel: &'static str,
        /// The field of its shape or geometry.
        field: &'static str,
        /// What it is.
        value: u32,
        /// What it must be a multiple of.
        multiple: u32,
    },
    /// A field of a shape or geometry lies outside its range.
    #[error("{kernel}: {field} is {value}, but must lie in {min}..={max}")]
    OutOfRange {
        /// The kernel's name.
        kernel: &'static str,
        /// The field of its shape or geometry.
        field: &'static str,
        /// What it is.
        value: u32,
        /// Smallest good value.
        min: u32,
        /// Largest good value, on this device.
        max: u32,
    },
    /// A field of a geometry must be a power of two.
    #[error("{kernel}: {field} is {value}, but must be a power of two")]
    NotPowerOfTwo {
        /// The kernel's name.
        kernel: &'static str,
        /// The field of its geometry.
        field: &'static str,
        /// What it is.
        value: u32,
    },
    /// The geometry needs more workgroup memory than the device has.
    #[error(
        "{kernel}: needs {needed_bytes} bytes of workgroup memory, the device has {limit_bytes}"
    )]
    WorkgroupMemory {
        /// The kernel's name.
        kernel: &'static str,
        /// For its largest variant.
        needed_bytes: u32,
        /// `maxComputeWorkgroupStorageSize`.
        limit_bytes: u32,
    },
    /// More workgroups than two dispatch dimensions hold.
    #[error("{kernel}: {total} workgroups, two dimensions of {limit} hold fewer")]
    TooManyWorkgroups {
        /// The kernel's name.
        kernel: &'static str,
        /// Workgroups that the shape needs.
        total: u64,
        /// `maxComputeWorkgroupsPerDimension`.
        limit: u32,
    },
}
