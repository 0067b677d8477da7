//! Runs one kernel on a real device, and holds what it wrote against what it should have written.
//!
//! The adapter is a software one and is named by the environment variable `MONARCH_ADAPTER`, so
//! that a test never passes by running somewhere else than meant. `cargo xtask test` sets it.
//!
//! Outputs start poisoned and stand between guard words, so that elements which are never written
//! and writes outside the output are both found.

use std::fmt;

use monarch_kernels::{Access, Features, Kernel};
use thiserror::Error;

use crate::compare::{self, CompareError};

/// The software adapters that kernels are tested on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdapterName {
    /// Mesa's lavapipe: f16, subgroups of 8.
    Lavapipe,
    /// SwiftShader: no f16, subgroups of 4, 256 invocations a workgroup.
    Swiftshader,
}

impl AdapterName {
    /// The adapter that `MONARCH_ADAPTER` names.
    ///
    /// # Panics
    ///
    /// If the variable is unset or names another adapter.
    pub fn from_env() -> Self {
        match std::env::var("MONARCH_ADAPTER").as_deref() {
            Ok("lavapipe") => Self::Lavapipe,
            Ok("swiftshader") => Self::Swiftshader,
            Ok(other) => panic!("MONARCH_ADAPTER is {other}, expected lavapipe or swiftshader"),
            Err(_) => panic!(
                "MONARCH_ADAPTER is unset: run these tests by `cargo xtask test`, which names the \
                 adapter and points VK_ICD_FILENAMES at its driver"
            ),
        }
    }

    /// What the adapter must offer. An adapter that loses a feature fails the tests instead of
    /// skipping variants.
    pub fn features(self) -> Features {
        match self {
            Self::Lavapipe => Features {
                f16: true,
                subgroups: true,
            },
            Self::Swiftshader => Features {
                f16: false,
                subgroups: true,
            },
        }
    }

    /// Real size of a subgroup.
    pub fn subgroup_size(self) -> u32 {
        match self {
            Self::Lavapipe => 8,
            Self::Swiftshader => 4,
        }
    }

    /// A part of the name that the driver reports.
    fn reported_name(self) -> &'static str {
        match self {
            Self::Lavapipe => "llvmpipe",
            Self::Swiftshader => "SwiftShader",
        }
    }
}

/// A device with some features and the limits that every WebGPU device has.
#[derive(Debug)]
pub struct Gpu {
    /// The features that are switched on. Shaders that need others do not compile.
    pub features: Features,
    device: wgpu::Device,
    queue: wgpu::Queue,
}

impl Gpu {
    /// A device for each combination of the adapter's features, the plainest first.
    ///
    /// # Panics
    ///
    /// If the adapter is not the one that `MONARCH_ADAPTER` names, or lacks one of its features.
    pub fn all() -> Vec<Self> {
        let adapter = adapter();
        let offered = AdapterName::from_env().features();
        let is_offered = |features: &Features| {
            (offered.f16 || !features.f16) && (offered.subgroups || !features.subgroups)
        };
        let masks = Features::ALL.into_iter().filter(is_offered);
        masks
            .map(|features| Self::open(&adapter, features))
            .collect()
    }

    /// A device without optional features.
    ///
    /// # Panics
    ///
    /// If the adapter is not the one that `MONARCH_ADAPTER` names.
    pub fn plain() -> Self {
        Self::open(&adapter(), Features::NONE)
    }

    fn open(adapter: &wgpu::Adapter, features: Features) -> Self {
        let mut required_features = wgpu::Features::empty();
        required_features.set(wgpu::Features::SHADER_F16, features.f16);
        required_features.set(wgpu::Features::SUBGROUP, features.subgroups);
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("kernel tests"),
            required_features,
            required_limits: wgpu::Limits::default(),
            ..Default::default()
        };
        match pollster::block_on(adapter.request_device(&descriptor)) {
            Ok((device, queue)) => Self {
                features,
                device,
                queue,
            },
            Err(error) => panic!("{features:?}: {error}"),
        }
    }

    /// Dispatches the kernel once and checks every buffer that it may write.
    pub fn check(&self, case: &Case) -> Result<(), GpuError> {
        self.check_text(case, case.kernel.wgsl(self.features))
    }

    /// As [`check`](Self::check), with another shader text, for tests that break it on purpose.
    pub fn check_text(&self, case: &Case, wgsl: &str) -> Result<(), GpuError> {
        let tolerance = if self.features.f16 && case.kernel.needs.f16 {
            case.tolerance_f16
        } else {
            case.tolerance
        };
        let written = self.dispatch(case, wgsl)?;
        let bindings = case.kernel.bindings.iter();
        for ((buffer, binding), words) in case.buffers.iter().zip(bindings).zip(written) {
            if let Some(words) = words {
                buffer
                    .verify(&words, tolerance)
                    .map_err(|problem| GpuError::Wrong {
                        binding: binding.name,
                        problem,
                    })?;
            }
        }
        Ok(())
    }

    /// Words of each writable buffer after the dispatch, guards included.
    fn dispatch(&self, case: &Case, wgsl: &str) -> Result<Vec<Option<Vec<u32>>>, GpuError> {
        let Case {
            kernel, buffers, ..
        } = case;
        assert_eq!(
            buffers.len(),
            kernel.bindings.len(),
            "{}: a buffer a binding",
            case.name
        );
        let mut names: Vec<&str> = case.overrides.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        assert_eq!(
            names, kernel.overrides,
            "{}: a value an override",
            case.name
        );
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let pipeline = self.pipeline(case, wgsl);
        let mut held = Vec::new();
        for buffer in buffers {
            held.push(self.upload(&buffer.start()));
        }
        let entries: Vec<_> = held
            .iter()
            .zip(buffers)
            .enumerate()
            .map(|(slot, (held, buffer))| wgpu::BindGroupEntry {
                binding: slot as u32,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer: held,
                    offset: if buffer.is_written() {
                        GUARD_WORDS as u64 * 4
                    } else {
                        0
                    },
                    size: wgpu::BufferSize::new(buffer.bound_words() as u64 * 4),
                }),
            })
            .collect();
        let bind_group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some(kernel.name),
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries,
        });
        let mut encoder = self.device.create_command_encoder(&Default::default());
        {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&pipeline);
            pass.set_bind_group(0, &bind_group, &[]);
            let [x, y, z] = case.workgroups;
            pass.dispatch_workgroups(x, y, z);
        }
        let copies: Vec<Option<wgpu::Buffer>> = held
            .iter()
            .zip(buffers)
            .map(|(held, buffer)| {
                buffer.is_written().then(|| {
                    let copy = self.device.create_buffer(&wgpu::BufferDescriptor {
                        label: Some("read back"),
                        size: held.size(),
                        usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ,
                        mapped_at_creation: false,
                    });
                    encoder.copy_buffer_to_buffer(held, 0, &copy, 0, held.size());
                    copy
                })
            })
            .collect();
        self.queue.submit([encoder.finish()]);
        if let Some(error) = pollster::block_on(scope.pop()) {
            return Err(GpuError::Refused {
                message: error.to_string(),
            });
        }
        copies
            .into_iter()
            .map(|copy| copy.map(|copy| self.read(&copy)).transpose())
            .collect()
    }

    fn pipeline(&self, case: &Case, wgsl: &str) -> wgpu::ComputePipeline {
        let name = case.kernel.name;
        let entries: Vec<_> = (0u32..)
            .zip(case.kernel.bindings)
            .map(|(binding, declared)| wgpu::BindGroupLayoutEntry {
                binding,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer {
                    ty: wgpu::BufferBindingType::Storage {
                        read_only: declared.access == Access::Read,
                    },
                    has_dynamic_offset: false,
                    min_binding_size: wgpu::BufferSize::new(declared.min_bytes.into()),
                },
                count: None,
            })
            .collect();
        let group_layout = self
            .device
            .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
                label: Some(name),
                entries: &entries,
            });
        let layout = self
            .device
            .create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label: Some(name),
                bind_group_layouts: &[Some(&group_layout)],
                ..Default::default()
            });
        let module = self
            .device
            .create_shader_module(wgpu::ShaderModuleDescriptor {
                label: Some(name),
                source: wgpu::ShaderSource::Wgsl(wgsl.into()),
            });
        self.device
            .create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(name),
                layout: Some(&layout),
                module: &module,
                entry_point: Some("main"),
                compilation_options: wgpu::PipelineCompilationOptions {
                    constants: &case.overrides,
                    ..Default::default()
                },
                cache: None,
            })
    }

    fn upload(&self, words: &[u32]) -> wgpu::Buffer {
        let buffer = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: words.len() as u64 * 4,
            usage: wgpu::BufferUsages::STORAGE
                | wgpu::BufferUsages::COPY_DST
                | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        });
        self.queue
            .write_buffer(&buffer, 0, bytemuck::cast_slice(words));
        buffer
    }

    fn read(&self, buffer: &wgpu::Buffer) -> Result<Vec<u32>, GpuError> {
        let lost = |error: &dyn fmt::Display| GpuError::Refused {
            message: error.to_string(),
        };
        buffer.slice(..).map_async(wgpu::MapMode::Read, |_| ());
        self.device
            .poll(wgpu::PollType::wait_indefinitely())
            .map_err(|e| lost(&e))?;
        let view = buffer.slice(..).get_mapped_range().map_err(|e| lost(&e))?;
        // The view may not be aligned for words.
        Ok(view
            .chunks_exact(4)
            .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect())
    }
}

fn adapter() -> wgpu::Adapter {
    let name = AdapterName::from_env();
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends: wgpu::Backends::VULKAN,
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    });
    let adapters = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::VULKAN));
    let found: Vec<String> = adapters
        .iter()
        .map(|adapter| adapter.get_info().name)
        .collect();
    adapters
        .into_iter()
        .find(|adapter| adapter.get_info().name.contains(name.reported_name()))
        .unwrap_or_else(|| {
            panic!(
                "MONARCH_ADAPTER asks for {name:?}, but the Vulkan drivers offer {found:?}: \
                 VK_ICD_FILENAMES must point at its driver"
            )
        })
}

/// One dispatch: what goes in and what must come out.
#[derive(Debug)]
pub struct Case {
    /// Shape, geometry and seed, for failure messages and bench rows.
    pub name: String,
    /// The kernel.
    pub kernel: &'static Kernel,
    /// Values of its overrides.
    pub overrides: Vec<(&'static str, f64)>,
    /// Workgroups to dispatch.
    pub workgroups: [u32; 3],
    /// A buffer for each binding, in order.
    pub buffers: Vec<Buffer>,
    /// Allowed error of variants that multiply in f32.
    pub tolerance: Tolerance,
    /// Allowed error of variants that multiply in f16.
    pub tolerance_f16: Tolerance,
    /// Features without which the expected values are others.
    pub requires: Features,
    /// The variants that it runs in.
    pub variants: Variants,
}

/// How much of the variants a case covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variants {
    /// Every combination of features.
    All,
    /// None and all of the features: every `@if` both ways. For kernels that take a software
    /// adapter most of a second to compile, and cases that are many.
    Ends,
}

/// Largest allowed error of f32 results.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// `|actual - expected| / |expected|`, Euclidean.
    pub rel_l2: f64,
    /// Largest difference of one element, in units of the root mean square of all expected ones.
    pub worst: f64,
}

impl Tolerance {
    /// For results that are moved, chosen or counted: not a bit may differ.
    pub const EXACT: Self = Self {
        rel_l2: 0.0,
        worst: 0.0,
    };
}

/// Contents of one binding, before and after.
#[derive(Clone, Debug)]
pub enum Buffer {
    /// Only read.
    In(Vec<u32>),
    /// Written everywhere: starts poisoned and must become this.
    Out(Values),
    /// Written in places. Where the twin leaves an element alone, the kernel must too.
    State {
        /// What it starts as.
        before: Values,
        /// What it must become.
        after: Values,
        /// Whether the kernel looks at the buffer's length, so that nothing may follow it.
        is_sized: bool,
    },
}

/// Elements of a buffer.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Compared within the tolerance.
    F32(Vec<f32>),
    /// Compared exactly.
    U32(Vec<u32>),
    /// Scores within the tolerance, ids exactly.
    Candidates(Vec<(f32, u32)>),
}

impl Values {
    fn words(&self) -> Vec<u32> {
        match self {
            Self::F32(values) => values.iter().map(|value| value.to_bits()).collect(),
            Self::U32(values) => values.clone(),
            Self::Candidates(values) => values
                .iter()
                .flat_map(|(score, id)| [score.to_bits(), *id])
                .collect(),
        }
    }
}

/// Words on either side of an output: 256 bytes, the alignment of a binding.
pub const GUARD_WORDS: usize = 64;
const GUARD: u32 = 0xfeed_face;
/// A NaN, and an absurd integer.
const POISON: u32 = 0x7fc0_dead;

impl Buffer {
    /// f32 input.
    pub fn input(values: &[f32]) -> Self {
        Self::In(bytemuck::cast_slice(values).to_vec())
    }

    /// For a binding that a switched-off flag leaves unused: 16 zero bytes.
    pub fn unused() -> Self {
        Self::In(vec![0; 4])
    }

    /// State of f32 elements.
    pub fn state(before: Vec<f32>, after: Vec<f32>) -> Self {
        Self::State {
            before: Values::F32(before),
            after: Values::F32(after),
            is_sized: false,
        }
    }

    /// Whether the kernel may write it.
    pub fn is_written(&self) -> bool {
        !matches!(self, Self::In(_))
    }

    fn value_words(&self) -> Vec<u32> {
        match self {
            Self::In(words) => words.clone(),
            Self::Out(after) => vec![POISON; after.words().len()],
            Self::State { before, .. } => before.words(),
        }
    }

    /// Words of the whole buffer before the dispatch.
    pub fn start(&self) -> Vec<u32> {
        let mut words = self.value_words();
        if self.is_written() {
            words.splice(0..0, [GUARD; GUARD_WORDS]);
            words.extend([GUARD; GUARD_WORDS]);
        }
        words
    }

    /// Words that the binding covers. It goes on over the guard behind an output: a write past the
    /// end lands there, where a binding that ended would swallow it.
    pub fn bound_words(&self) -> usize {
        let values = self.value_words().len();
        match self {
            Self::In(_) | Self::State { is_sized: true, .. } => values,
            Self::Out(_) | Self::State { .. } => values + GUARD_WORDS,
        }
    }

    /// Judges the words that a dispatch left, guards included.
    pub fn verify(&self, words: &[u32], tolerance: Tolerance) -> Result<(), Problem> {
        let (before, after) = match self {
            Self::In(_) => return Ok(()),
            Self::Out(after) => (None, after),
            Self::State { before, after, .. } => (Some(before.words()), after),
        };
        let values = &words[GUARD_WORDS..words.len() - GUARD_WORDS];
        for (index, &word) in words.iter().enumerate() {
            let is_guard = index < GUARD_WORDS || index >= GUARD_WORDS + values.len();
            if is_guard && word != GUARD {
                let element = index as i64 - GUARD_WORDS as i64;
                return Err(Problem::Guard { element, word });
            }
        }
        let expected = after.words();
        for (element, &word) in values.iter().enumerate() {
            match &before {
                None if word == POISON => return Err(Problem::NeverWritten { element }),
                Some(before) if before[element] == expected[element] && word != before[element] => {
                    return Err(Problem::Touched {
                        element,
                        word,
                        before: before[element],
                    });
                }
                _ => {}
            }
        }
        match after {
            Values::F32(after) => {
                // What must stay was judged to the bit. Left out here, it cannot drown the rest.
                let judged: Vec<usize> = (0..values.len())
                    .filter(|&at| {
                        before
                            .as_ref()
                            .is_none_or(|before| before[at] != expected[at])
                    })
                    .collect();
                if judged.is_empty() && before.is_some() {
                    return Ok(());
                }
                let actual: Vec<f32> = judged
                    .iter()
                    .map(|&at| f32::from_bits(values[at]))
                    .collect();
                let after: Vec<f32> = judged.iter().map(|&at| after[at]).collect();
                close(&actual, &after, tolerance).map_err(|problem| problem.at(&judged))
            }
            Values::U32(after) => equal(values, after),
            Values::Candidates(after) => {
                let ids: Vec<u32> = values.iter().skip(1).step_by(2).copied().collect();
                let expected_ids: Vec<u32> = after.iter().map(|(_, id)| *id).collect();
                equal(&ids, &expected_ids)?;
                let scores = values.iter().step_by(2).map(|&word| f32::from_bits(word));
                let expected_scores: Vec<f32> = after.iter().map(|(score, _)| *score).collect();
                close(&scores.collect::<Vec<_>>(), &expected_scores, tolerance)
            }
        }
    }
}

fn equal(actual: &[u32], expected: &[u32]) -> Result<(), Problem> {
    let differs = actual.iter().zip(expected).position(|(a, b)| a != b);
    differs.map_or(Ok(()), |element| {
        Err(Problem::Differs {
            element,
            actual: actual[element],
            expected: expected[element],
        })
    })
}

fn close(actual: &[f32], expected: &[f32], tolerance: Tolerance) -> Result<(), Problem> {
    let difference = compare::compare(actual, expected)?;
    let squares: f64 = expected.iter().map(|&e| f64::from(e) * f64::from(e)).sum();
    let rms = (squares / expected.len() as f64).sqrt();
    if difference.rel_l2 > tolerance.rel_l2 || difference.max_abs > tolerance.worst * rms {
        return Err(Problem::TooFar {
            difference,
            rms,
            tolerance,
        });
    }
    Ok(())
}

/// What is wrong with one buffer.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum Problem {
    /// A word outside the output was written; elements count from the output's start.
    #[error("guard word at element {element} became {word:#010x}")]
    Guard {
        /// Negative in front of the output.
        element: i64,
        /// What stands there now.
        word: u32,
    },
    /// An element of an output kept its poison.
    #[error("element {element} was never written")]
    NeverWritten {
        /// The first such element.
        element: usize,
    },
    /// An element of a state that the twin leaves alone was changed.
    #[error("element {element} became {word:#010x}, but must stay {before:#010x}")]
    Touched {
        /// The first such element.
        element: usize,
        /// What stands there now.
        word: u32,
        /// What stood there.
        before: u32,
    },
    /// An exact element is another one.
    #[error("element {element} is {actual} instead of {expected}")]
    Differs {
        /// The first such element.
        element: usize,
        /// What the kernel wrote.
        actual: u32,
        /// What the twin wrote.
        expected: u32,
    },
    /// Results are too far from the twin's.
    #[error("{difference}, root mean square {rms:.3e}; allowed {tolerance:?}")]
    TooFar {
        /// How far, and where most.
        difference: compare::Difference,
        /// Of the expected elements.
        rms: f64,
        /// What is allowed.
        tolerance: Tolerance,
    },
    /// Results cannot be compared: NaN, infinity, or nothing at all.
    #[error(transparent)]
    Compare(#[from] CompareError),
}

impl Problem {
    /// Tells the worst element by its place in the buffer instead of its place in `judged`.
    fn at(self, judged: &[usize]) -> Self {
        match self {
            Self::TooFar {
                mut difference,
                rms,
                tolerance,
            } => {
                difference.worst_index = judged[difference.worst_index];
                Self::TooFar {
                    difference,
                    rms,
                    tolerance,
                }
            }
            other => other,
        }
    }
}

/// Why a case failed on a device.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum GpuError {
    /// The device refused the shader, a binding or the dispatch.
    #[error("refused: {message}")]
    Refused {
        /// The device's words.
        message: String,
    },
    /// The kernel ran and left something wrong.
    #[error("{binding}: {problem}")]
    Wrong {
        /// The binding's name.
        binding: &'static str,
        /// What is wrong with it.
        problem: Problem,
    },
}

/// Checks all cases in all variants, and returns how many dispatches that took.
///
/// # Panics
///
/// At the first failure, with the case, the variant and the difference; or if there are no cases.
pub fn check_all(gpus: &[Gpu], cases: impl IntoIterator<Item = Case>) -> usize {
    let mut dispatches = 0;
    for case in cases {
        for (index, gpu) in gpus.iter().enumerate() {
            if case.variants == Variants::Ends && index != 0 && index + 1 != gpus.len() {
                continue;
            }
            let Features { f16, subgroups } = gpu.features;
            let needs = case.kernel.needs;
            // The text is the same as without the feature.
            let is_repeated = (f16 && !needs.f16) || (subgroups && !needs.subgroups);
            let requires = case.requires;
            let is_meant = (f16 || !requires.f16) && (subgroups || !requires.subgroups);
            if is_repeated || !is_meant {
                continue;
            }
            dispatches += 1;
            if let Err(error) = gpu.check(&case) {
                let variant = format!("f16 {f16}, subgroups {subgroups}");
                panic!("{} {} ({variant}): {error}", case.kernel.name, case.name);
            }
        }
    }
    assert!(dispatches > 0, "no cases, so nothing was checked");
    dispatches
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Tolerance = Tolerance {
        rel_l2: 1e-3,
        worst: 1e-3,
    };
    const EXPECTED: [f32; 4] = [1.0, -2.0, 0.5, 4.0];

    /// What a dispatch leaves that wrote `values` and nothing else.
    fn left(values: &[f32]) -> Vec<u32> {
        Buffer::state(values.to_vec(), values.to_vec()).start()
    }

    fn output() -> Buffer {
        Buffer::Out(Values::F32(EXPECTED.to_vec()))
    }

    #[test]
    fn the_expected_values_pass() {
        assert_eq!(output().verify(&left(&EXPECTED), LIMIT), Ok(()));
        assert_eq!(output().verify(&left(&EXPECTED), Tolerance::EXACT), Ok(()));
    }

    #[test]
    fn one_element_off_is_found() {
        for index in 0..EXPECTED.len() {
            let mut actual = EXPECTED;
            actual[index] += 0.01;
            let found = output().verify(&left(&actual), LIMIT);
            let Err(Problem::TooFar { difference, .. }) = found else {
                panic!("{found:?}")
            };
            assert_eq!(difference.worst_index, index);
        }
    }

    #[test]
    fn one_element_off_among_many_is_found() {
        // Small in the norm of all, but not beside its neighbours.
        let expected = vec![1.0f32; 1 << 16];
        let mut actual = expected.clone();
        actual[77] = 1.1;
        let found = Buffer::Out(Values::F32(expected)).verify(&left(&actual), LIMIT);
        assert!(matches!(found, Err(Problem::TooFar { .. })), "{found:?}");
    }

    #[test]
    fn a_shifted_output_is_found() {
        let mut actual = EXPECTED;
        actual.rotate_right(1);
        assert!(output().verify(&left(&actual), LIMIT).is_err());
    }

    #[test]
    fn poison_that_stays_is_found() {
        let mut words = left(&EXPECTED);
        words[GUARD_WORDS + 2] = POISON;
        assert_eq!(
            output().verify(&words, LIMIT),
            Err(Problem::NeverWritten { element: 2 })
        );
        assert!(output().verify(&output().start(), LIMIT).is_err());
    }

    #[test]
    fn a_broken_guard_is_found_on_both_sides() {
        for element in [-64, -1, 4, 67] {
            let mut words = left(&EXPECTED);
            words[(element + GUARD_WORDS as i64) as usize] = 0;
            let found = output().verify(&words, LIMIT);
            assert_eq!(found, Err(Problem::Guard { element, word: 0 }));
        }
    }

    #[test]
    fn nan_and_infinity_are_found() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut actual = EXPECTED;
            actual[3] = bad;
            let found = output().verify(&left(&actual), LIMIT);
            assert!(matches!(found, Err(Problem::Compare(_))), "{found:?}");
        }
    }

    #[test]
    fn elements_that_the_twin_leaves_alone_may_not_move_at_all() {
        let mut after = EXPECTED;
        after[1] = 3.0;
        let state = Buffer::state(EXPECTED.to_vec(), after.to_vec());
        assert_eq!(state.verify(&left(&after), LIMIT), Ok(()));
        let mut actual = after;
        actual[2] = f32::from_bits(EXPECTED[2].to_bits() + 1);
        let found = state.verify(&left(&actual), LIMIT);
        assert!(
            matches!(found, Err(Problem::Touched { element: 2, .. })),
            "{found:?}"
        );
        assert!(
            state.verify(&left(&EXPECTED), LIMIT).is_err(),
            "nothing was written"
        );
    }

    #[test]
    fn large_elements_that_stay_do_not_hide_small_ones_that_change() {
        let before = [1e30, 1.0, 2.0];
        let after = [1e30, 1.5, 2.5];
        let state = Buffer::state(before.to_vec(), after.to_vec());
        let found = state.verify(&left(&[1e30, 1.5, 2.0]), LIMIT);
        let Err(Problem::TooFar { difference, .. }) = found else {
            panic!("{found:?}")
        };
        assert_eq!(difference.worst_index, 2);
    }

    #[test]
    fn integers_and_ids_are_exact() {
        let numbers = Buffer::Out(Values::U32(vec![1, 2, 3]));
        let words = |values: &[u32]| Buffer::Out(Values::U32(values.to_vec())).start_with(values);
        assert_eq!(numbers.verify(&words(&[1, 2, 3]), LIMIT), Ok(()));
        let found = numbers.verify(&words(&[1, 2, 4]), LIMIT);
        assert_eq!(
            found,
            Err(Problem::Differs {
                element: 2,
                actual: 4,
                expected: 3
            })
        );

        let candidates = Buffer::Out(Values::Candidates(vec![(1.0, 7), (2.0, 9)]));
        let bits = |score: f32| score.to_bits();
        let good = [bits(1.0), 7, bits(2.0), 9];
        assert_eq!(candidates.verify(&words(&good), LIMIT), Ok(()));
        let other_id = [bits(1.0), 7, bits(2.0), 8];
        assert!(candidates.verify(&words(&other_id), LIMIT).is_err());
        let other_score = [bits(1.1), 7, bits(2.0), 9];
        assert!(candidates.verify(&words(&other_score), LIMIT).is_err());
    }

    impl Buffer {
        /// The buffer's words with `values` between the guards.
        fn start_with(&self, values: &[u32]) -> Vec<u32> {
            let mut words = self.start();
            words[GUARD_WORDS..GUARD_WORDS + values.len()].copy_from_slice(values);
            words
        }
    }

    #[test]
    #[should_panic(expected = "no cases")]
    fn an_empty_list_of_cases_is_refused() {
        check_all(&[], []);
    }
}
