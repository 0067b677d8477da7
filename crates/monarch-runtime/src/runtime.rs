//! A plan on a device: buffers, pipelines and bind groups made once, then passes.

use std::collections::HashMap;

use monarch_manifest::{ModelSpec, Tuning};

use crate::buffers::{Activation, BufferId};
use crate::device::{DeviceNeeds, Gpu};
use crate::error::{DeviceError, RuntimeError};
use crate::pipelines::{Pipelines, Step, Variant, create_buffer};
use crate::plan::{Capabilities, Plan, PlanChoice};
use crate::readback::{Pending, StagingRing};
use crate::state::{Choice, State};
use crate::upload::{BufferWriter, SectionUpload};

/// Native writes are staged until the next submission; this many bytes are let through at a time.
const UPLOAD_FLUSH_BYTES: u64 = 16 << 20;

/// A model on its way to the device: everything is allocated and compiled, the weights are missing.
pub struct Loading {
    runtime: Runtime,
    uploads: HashMap<String, u64>,
    current: HashMap<String, SectionUpload>,
    staged_bytes: u64,
}

/// A model on a device.
///
/// The sequence lives on the GPU: [`Runtime::start`] hands over the prompt, every pass moves one token on, and chosen
/// ids are read back in groups. Nothing is allocated between `start` and the end of a generation.
pub struct Runtime {
    gpu: Gpu,
    plan: Plan,
    buffers: HashMap<BufferId, wgpu::Buffer>,
    body: Vec<Step>,
    head: Vec<Step>,
    advance: Step,
    staging: StagingRing,
    vocab: u32,
    /// Position of the token that the next submitted pass reads.
    position: u32,
}

/// What a model needs of a device, before one is opened.
pub fn needs(spec: &ModelSpec, context_tokens: u32) -> DeviceNeeds {
    Plan::needs(spec, context_tokens)
}

impl Loading {
    /// Chooses a plan for this device, allocates its buffers and compiles its pipelines.
    ///
    /// `progress` is told how many of how many pipelines are ready.
    pub async fn new(
        gpu: Gpu,
        spec: &ModelSpec,
        tuning: &Tuning,
        choice: PlanChoice,
        context_tokens: u32,
        progress: &mut dyn FnMut(u32, u32),
    ) -> Result<Self, RuntimeError> {
        let capabilities = Capabilities::of(&gpu);
        let plan = Plan::new(spec, tuning, &capabilities, choice, context_tokens)?;

        let scope = gpu.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let buffers: HashMap<BufferId, wgpu::Buffer> = plan
            .buffers
            .iter()
            .map(|(id, bytes)| (*id, create_buffer(&gpu.device, &format!("{id:?}"), *bytes)))
            .collect();
        let staging = StagingRing::new(&gpu.device);
        if let Some(error) = scope.pop().await {
            return Err(DeviceError::from(error).into());
        }

        let mut pipelines = Pipelines::new(&gpu.device);
        let scope = gpu.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let total = plan.stages().count() as u32;
        let mut steps = Vec::with_capacity(total as usize);
        for (done, stage) in (0..).zip(plan.stages()) {
            progress(done, total);
            let bound: Vec<&wgpu::Buffer> = stage.bindings.iter().map(|id| &buffers[id]).collect();
            steps.push(pipelines.step(
                Variant {
                    kernel: stage.kernel,
                    features: stage.features,
                },
                &stage.label,
                &stage.overrides,
                &bound,
                stage.workgroups,
            ));
        }
        if let Some(error) = scope.pop().await {
            return Err(DeviceError::from(error).into());
        }
        progress(total, total);
        let advance = steps
            .pop()
            .unwrap_or_else(|| unreachable!("every plan ends with `advance`"));
        let head = steps.split_off(plan.body.len());

        let uploads = plan
            .destinations
            .keys()
            .filter_map(|name| {
                spec.section(name)
                    .map(|section| (name.clone(), section.bytes))
            })
            .collect();
        let runtime = Runtime {
            gpu,
            plan,
            buffers,
            body: steps,
            head,
            advance,
            staging,
            vocab: spec.shape.vocab,
            position: 0,
        };
        runtime.write_constants();
        Ok(Self {
            runtime,
            uploads,
            current: HashMap::new(),
            staged_bytes: 0,
        })
    }

    /// Names of the sections this plan reads; the loader fetches these and no others.
    pub fn wanted(&self) -> impl Iterator<Item = &str> {
        self.uploads.keys().map(String::as_str)
    }

    /// Takes the next bytes of a section, in order within the section.
    pub fn push(&mut self, section: &str, bytes: &[u8]) -> Result<(), RuntimeError> {
        if !self.current.contains_key(section) {
            let destination = self.runtime.plan.destinations.get(section).ok_or_else(|| {
                RuntimeError::SectionUnknown {
                    section: section.to_owned(),
                }
            })?;
            self.current
                .insert(section.to_owned(), SectionUpload::new(destination.clone()));
        }
        let mut writer = QueueWriter {
            runtime: &self.runtime,
        };
        if let Some(upload) = self.current.get_mut(section) {
            upload.push(bytes, &mut writer);
        }
        self.staged_bytes += bytes.len() as u64;
        if self.staged_bytes >= UPLOAD_FLUSH_BYTES {
            self.staged_bytes = 0;
            self.runtime.gpu.queue.submit([]);
            self.runtime.gpu.poll()?;
        }
        Ok(())
    }

    /// Ends a section whose bytes were verified.
    pub fn complete(&mut self, section: &str) -> Result<(), RuntimeError> {
        let missing = || RuntimeError::SectionMissing {
            section: section.to_owned(),
        };
        let upload = self.current.remove(section).ok_or_else(missing)?;
        let expected_bytes = self.uploads.remove(section).ok_or_else(missing)?;
        upload.complete(
            section,
            expected_bytes,
            &mut QueueWriter {
                runtime: &self.runtime,
            },
        )
    }

    /// Hands the model over once every wanted section is complete.
    pub fn finish(self) -> Result<Runtime, RuntimeError> {
        if let Some(section) = self.uploads.into_keys().min() {
            return Err(RuntimeError::SectionMissing { section });
        }
        self.runtime.gpu.queue.submit([]);
        self.runtime.gpu.check()?;
        Ok(self.runtime)
    }
}

impl Runtime {
    /// The device.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Bytes of all GPU buffers.
    pub fn buffer_bytes(&self) -> u64 {
        self.plan.buffers.values().sum()
    }

    /// Longest group of passes that one submission may hold.
    pub const MAX_GROUP: u32 = StagingRing::SLOT_TOKENS;

    /// Groups that may be in flight at once.
    pub const MAX_IN_FLIGHT: usize = StagingRing::SLOTS;

    /// Tokens that can still be fed or chosen: a pass reads position `p < context`.
    pub fn remaining_passes(&self) -> u32 {
        self.plan.context_tokens - self.position
    }

    /// Ids a token may have: 0 up to this.
    pub fn vocab(&self) -> u32 {
        self.vocab
    }

    /// Whether a prompt can be started.
    pub fn check_prompt(&self, prompt: &[u32]) -> Result<(), RuntimeError> {
        let tokens = u32::try_from(prompt.len()).unwrap_or(u32::MAX);
        if prompt.is_empty() {
            return Err(RuntimeError::EmptyPrompt);
        }
        if tokens > self.plan.context_tokens {
            return Err(RuntimeError::Context {
                tokens,
                context_tokens: self.plan.context_tokens,
            });
        }
        if let Some(&id) = prompt.iter().find(|id| **id >= self.vocab) {
            return Err(RuntimeError::Token {
                id,
                vocab: self.vocab,
            });
        }
        Ok(())
    }

    /// Begins a sequence: forgets the last one and hands over the prompt.
    pub fn start(&mut self, prompt: &[u32], choice: &Choice) -> Result<(), RuntimeError> {
        self.check_prompt(prompt)?;
        self.gpu.check()?;
        self.staging.reset();
        self.write(BufferId::Tokens, 0, bytemuck::cast_slice(prompt));
        let tokens = prompt.len() as u32;
        self.write(
            BufferId::State,
            0,
            bytemuck::bytes_of(&State::start(tokens, choice)),
        );
        let mut encoder = self
            .gpu
            .device
            .create_command_encoder(&wgpu::CommandEncoderDescriptor {
                label: Some("forget conv state"),
            });
        for (id, buffer) in &self.buffers {
            if matches!(id, BufferId::ConvState(_)) {
                encoder.clear_buffer(buffer, 0, None);
            }
        }
        self.gpu.queue.submit([encoder.finish()]);
        self.position = 0;
        Ok(())
    }

    /// Submits passes that only feed prompt tokens, without a head.
    ///
    /// # Panics
    ///
    /// When that would run past the context: the caller counts with [`Self::remaining_passes`].
    pub fn submit_feed(&mut self, passes: u32) {
        self.submit(passes, 0);
    }

    /// Submits `passes` passes that each choose a token, and the copy of the chosen ids.
    ///
    /// # Panics
    ///
    /// When that would run past the context, when `passes` is above [`Self::MAX_GROUP`], or when
    /// [`Self::MAX_IN_FLIGHT`] groups are not read back yet.
    pub fn submit_choose(&mut self, passes: u32) -> Pending {
        assert!(passes <= Self::MAX_GROUP, "{passes} passes in a group");
        let first = self.position + 1;
        self.submit(0, passes);
        self.staging.map(first, passes)
    }

    fn submit(&mut self, feed: u32, choose: u32) {
        assert!(
            feed + choose <= self.remaining_passes(),
            "{feed} + {choose} passes at {}",
            self.position
        );
        let mut encoder = self
            .gpu
            .device
            .create_command_encoder(&wgpu::CommandEncoderDescriptor {
                label: Some("passes"),
            });
        {
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            for _ in 0..feed {
                self.body
                    .iter()
                    .chain([&self.advance])
                    .for_each(|step| step.encode(&mut pass));
            }
            for _ in 0..choose {
                self.body
                    .iter()
                    .chain(&self.head)
                    .for_each(|step| step.encode(&mut pass));
            }
        }
        if choose > 0 {
            let first = u64::from(self.position + feed + 1) * 4;
            self.staging.copy(
                &mut encoder,
                &self.buffers[&BufferId::Tokens],
                first,
                u64::from(choose) * 4,
            );
        }
        self.gpu.queue.submit([encoder.finish()]);
        self.position += feed + choose;
    }

    /// Waits for a group and returns the ids its passes chose, first pass first.
    ///
    /// A pass over a prompt token other than the last returns the prompt's next token.
    pub async fn read(&mut self, pending: Pending) -> Result<Vec<u32>, RuntimeError> {
        let ids = self.staging.read(&self.gpu, pending).await;
        self.gpu.check()?;
        Ok(ids?)
    }

    /// Waits until everything submitted is done.
    pub async fn idle(&self) -> Result<(), RuntimeError> {
        crate::readback::idle(&self.gpu).await?;
        Ok(self.gpu.check()?)
    }

    /// Logits of the last pass that chose a token, f32 `[V]`.
    pub async fn logits(&self) -> Result<Vec<f32>, RuntimeError> {
        self.read_activation(Activation::Logits).await
    }

    /// An activation as the last pass left it, all f32 of its buffer.
    pub async fn read_activation(&self, activation: Activation) -> Result<Vec<f32>, RuntimeError> {
        let buffer = &self.buffers[&BufferId::Activation(activation)];
        let bytes = crate::readback::read_buffer(&self.gpu, buffer).await?;
        self.gpu.check()?;
        let mut values: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
        if activation == Activation::Logits {
            values.truncate(self.vocab as usize);
        }
        Ok(values)
    }

    fn write(&self, id: BufferId, offset_bytes: u64, bytes: &[u8]) {
        self.gpu
            .queue
            .write_buffer(&self.buffers[&id], offset_bytes, bytes);
    }

    /// What the host computes itself: the rotary table when the manifest has none.
    fn write_constants(&self) {
        for (id, bytes) in &self.plan.constants {
            self.write(*id, 0, bytes);
        }
    }
}

struct QueueWriter<'a> {
    runtime: &'a Runtime,
}

impl BufferWriter for QueueWriter<'_> {
    fn write(&mut self, buffer: BufferId, offset_bytes: u64, bytes: &[u8]) {
        self.runtime.write(buffer, offset_bytes, bytes);
    }
}
