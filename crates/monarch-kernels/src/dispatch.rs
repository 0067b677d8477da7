//! Checks that all kernels share: geometry against limits, and folding of large dispatches.

use crate::KernelError;

/// What a device allows. Field names follow WebGPU's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `maxComputeWorkgroupsPerDimension`.
    pub max_workgroups_per_dimension: u32,
    /// `maxComputeInvocationsPerWorkgroup`, or `maxComputeWorkgroupSizeX` if that is lower.
    pub max_invocations_per_workgroup: u32,
    /// `maxComputeWorkgroupStorageSize`.
    pub max_workgroup_memory_bytes: u32,
}

impl Limits {
    /// What every WebGPU adapter has.
    pub const DEFAULT: Self = Self {
        max_workgroups_per_dimension: 65_535,
        max_invocations_per_workgroup: 256,
        max_workgroup_memory_bytes: 16 * 1024,
    };
}

/// Smallest workgroup: one subgroup of the smallest size.
const MIN_WORKGROUP: u32 = 4;

pub(crate) fn multiple(
    kernel: &'static str,
    field: &'static str,
    value: u32,
    multiple: u32,
) -> Result<(), KernelError> {
    if value == 0 || !value.is_multiple_of(multiple) {
        return Err(KernelError::NotMultiple {
            kernel,
            field,
            value,
            multiple,
        });
    }
    Ok(())
}

pub(crate) fn range(
    kernel: &'static str,
    field: &'static str,
    value: u32,
    min: u32,
    max: u32,
) -> Result<(), KernelError> {
    if !(min..=max).contains(&value) {
        return Err(KernelError::OutOfRange {
            kernel,
            field,
            value,
            min,
            max,
        });
    }
    Ok(())
}

pub(crate) fn power_of_two(
    kernel: &'static str,
    field: &'static str,
    value: u32,
    min: u32,
    max: u32,
) -> Result<(), KernelError> {
    if !value.is_power_of_two() {
        return Err(KernelError::NotPowerOfTwo {
            kernel,
            field,
            value,
        });
    }
    range(kernel, field, value, min, max)
}

/// A workgroup size that reductions can halve and the device can run.
pub(crate) fn workgroup(
    kernel: &'static str,
    workgroup: u32,
    limits: &Limits,
) -> Result<(), KernelError> {
    let max = limits.max_invocations_per_workgroup;
    power_of_two(kernel, "workgroup", workgroup, MIN_WORKGROUP, max)
}

pub(crate) fn workgroup_memory(
    kernel: &'static str,
    needed_bytes: u32,
    limits: &Limits,
) -> Result<(), KernelError> {
    let limit_bytes = limits.max_workgroup_memory_bytes;
    if needed_bytes > limit_bytes {
        return Err(KernelError::WorkgroupMemory {
            kernel,
            needed_bytes,
            limit_bytes,
        });
    }
    Ok(())
}

/// `total` workgroups, folded into x and y when one dimension does not hold them. A fold may
/// dispatch a few more than `total`: shaders compute `y * grid.x + x` and ignore the surplus.
pub(crate) fn fold(
    kernel: &'static str,
    total: u64,
    limits: &Limits,
) -> Result<[u32; 3], KernelError> {
    let limit = limits.max_workgroups_per_dimension;
    let rows = total.div_ceil(u64::from(limit));
    if rows > u64::from(limit) {
        return Err(KernelError::TooManyWorkgroups {
            kernel,
            total,
            limit,
        });
    }
    let columns = total.div_ceil(rows.max(1));
    match (u32::try_from(columns), u32::try_from(rows)) {
        (Ok(columns), Ok(rows)) => Ok([columns, rows, 1]),
        _ => Err(KernelError::TooManyWorkgroups {
            kernel,
            total,
            limit,
        }),
    }
}

/// A bool override's value.
pub(crate) fn flag(on: bool) -> f64 {
    f64::from(u8::from(on))
}

/// `groups` workgroups along x, for kernels that never need to fold.
pub(crate) fn one_dimension(
    kernel: &'static str,
    groups: u32,
    limits: &Limits,
) -> Result<[u32; 3], KernelError> {
    let limit = limits.max_workgroups_per_dimension;
    if groups > limit {
        return Err(KernelError::TooManyWorkgroups {
            kernel,
            total: groups.into(),
            limit,
        });
    }
    Ok([groups, 1, 1])
}
