//! What the build script found out about the shaders.

/// One kernel: its text in every variant, and what a host needs to bind it. Generated.
#[derive(Debug)]
pub struct Kernel {
    /// The file's stem: also the pipeline's label, the timing label and the bench row.
    pub name: &'static str,
    /// What it computes: the first sentence of its header.
    pub summary: &'static str,
    /// Bindings of group 0, in order: entry 0 is binding 0.
    pub bindings: &'static [Binding],
    /// Names of all override constants, in alphabetical order. All variants have the same.
    pub overrides: &'static [&'static str],
    /// The features that change this kernel's text. Variants that differ in others only are equal.
    pub needs: Features,
    texts: [&'static str; 4],
}

/// One storage buffer of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Name in the shader and in its header.
    pub name: &'static str,
    /// Whether the kernel writes it.
    pub access: Access,
    /// Smallest buffer that may be bound, in bytes: the fixed part, or one array element.
    pub min_bytes: u32,
}

/// How a kernel uses a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read-only storage.
    Read,
    /// Read-write storage: outputs and state.
    ReadWrite,
}

/// The device features that kernels have variants for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features {
    /// `shader-f16`: products in f16. Sums are f32 in every variant.
    pub f16: bool,
    /// `subgroups`: reductions by subgroup operations, for any subgroup size.
    pub subgroups: bool,
}

impl Features {
    /// The variant that runs everywhere.
    pub const NONE: Self = Self {
        f16: false,
        subgroups: false,
    };

    /// Every combination, the plainest first.
    pub const ALL: [Self; 4] = [
        Self::NONE,
        Self {
            f16: true,
            subgroups: false,
        },
        Self {
            f16: false,
            subgroups: true,
        },
        Self {
            f16: true,
            subgroups: true,
        },
    ];
}

impl Kernel {
    /// WGSL for a device with these features: for browsers when compiled for wasm32, else for
    /// wgpu's native backends.
    pub fn wgsl(&self, features: Features) -> &'static str {
        self.texts[usize::from(features.f16) + 2 * usize::from(features.subgroups)]
    }

    /// The variants whose texts differ, each with its text. What a browser suite compiles.
    pub fn variants(&self) -> impl Iterator<Item = (Features, &'static str)> + '_ {
        Features::ALL
            .into_iter()
            .filter(|features| {
                (self.needs.f16 || !features.f16) && (self.needs.subgroups || !features.subgroups)
            })
            .map(|features| (features, self.wgsl(features)))
    }
}

/// Every kernel, in alphabetical order.
pub static KERNELS: &[Kernel] = include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

/// The kernel of this name.
///
/// # Panics
///
/// If there is none: names are written in code, so that is a bug of ours.
pub fn kernel(name: &str) -> &'static Kernel {
    match KERNELS.binary_search_by(|kernel| kernel.name.cmp(name)) {
        Ok(index) => &KERNELS[index],
        Err(_) => panic!("no kernel is called {name}"),
    }
}
