//! How subgroups really lie in a workgroup.
//!
//! Adapters may report a range of sizes, or a wrong one. Kernels with subgroup operations number
//! subgroups by `local_invocation_index / subgroup_size`, which no specification promises. A
//! device runs this kernel once, and takes the variants without subgroups unless
//! [`Found::is_linear`].

use crate::dispatch::{self, Limits};
use crate::error::KernelError;

const NAME: &str = "subgroup_probe";

/// Words that the kernel writes.
pub const FOUND_WORDS: usize = 4;

/// Sizes chosen by tuning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Invocations of the one workgroup: as many as the kernels that the answer is for.
    pub workgroup: u32,
}

/// What the kernel found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// What the shader reads as its subgroup size; 0 in the variant without subgroups.
    pub reported_size: u32,
    /// Invocations that invocation 0 shares its subgroup with, itself included.
    pub real_size: u32,
    /// Invocations whose subgroup or lane is not the one that their index says.
    pub misplaced: u32,
    /// Invocations of the workgroup.
    pub workgroup: u32,
}

impl Found {
    /// Reads the kernel's output.
    pub fn from_words(
        [reported_size, real_size, misplaced, workgroup]: [u32; FOUND_WORDS],
    ) -> Self {
        Self {
            reported_size,
            real_size,
            misplaced,
            workgroup,
        }
    }

    /// The kernel's output.
    pub fn to_words(&self) -> [u32; FOUND_WORDS] {
        [
            self.reported_size,
            self.real_size,
            self.misplaced,
            self.workgroup,
        ]
    }

    /// Whether the variants with subgroups compute the right thing on this device.
    pub fn is_linear(&self) -> bool {
        let size = self.reported_size;
        size.is_power_of_two() && (4..=128).contains(&size) && self.misplaced == 0
    }
}

/// Workgroups to dispatch, or why this geometry cannot run here.
pub fn workgroups(geometry: &Geometry, limits: &Limits) -> Result<[u32; 3], KernelError> {
    dispatch::workgroup(NAME, geometry.workgroup, limits)?;
    Ok([1, 1, 1])
}

/// Values of the pipeline's overrides.
pub fn overrides(geometry: &Geometry) -> Vec<(&'static str, f64)> {
    vec![("WORKGROUP", geometry.workgroup.into())]
}

/// Twin: what a device with subgroups of `size` in index order finds; 0 is no subgroups.
pub fn cpu(geometry: &Geometry, size: u32) -> Found {
    Found {
        reported_size: size,
        real_size: size.min(geometry.workgroup),
        misplaced: 0,
        workgroup: geometry.workgroup,
    }
}
