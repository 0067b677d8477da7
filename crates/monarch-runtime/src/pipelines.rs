//! Kernels → pipelines and bound dispatches.

use std::collections::HashMap;

use monarch_kernels::{Access, Features, Kernel};

/// One bound dispatch.
pub(crate) struct Step {
    pipeline: wgpu::ComputePipeline,
    bind_group: wgpu::BindGroup,
    workgroups: [u32; 3],
}

impl Step {
    pub(crate) fn encode(&self, pass: &mut wgpu::ComputePass<'_>) {
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &self.bind_group, &[]);
        let [x, y, z] = self.workgroups;
        pass.dispatch_workgroups(x, y, z);
    }
}

/// One kernel text on its way to the device.
#[derive(Clone, Copy)]
pub(crate) struct Variant {
    pub(crate) kernel: &'static Kernel,
    pub(crate) features: Features,
}

/// Modules and pipelines, each made once: stages that differ only in their buffers share a pipeline.
pub(crate) struct Pipelines<'a> {
    device: &'a wgpu::Device,
    modules: HashMap<(&'static str, Features), Module>,
    pipelines: HashMap<PipelineKey, wgpu::ComputePipeline>,
}

/// A compiled text and the layouts its bindings need.
struct Module {
    shader: wgpu::ShaderModule,
    bind_group_layout: wgpu::BindGroupLayout,
    pipeline_layout: wgpu::PipelineLayout,
}

/// What makes a pipeline.
#[derive(PartialEq, Eq, Hash)]
struct PipelineKey {
    kernel: &'static str,
    features: Features,
    /// Override values as bits: `f64` has no `Eq`.
    overrides: Vec<(&'static str, u64)>,
}

impl<'a> Pipelines<'a> {
    pub(crate) fn new(device: &'a wgpu::Device) -> Self {
        Self {
            device,
            modules: HashMap::new(),
            pipelines: HashMap::new(),
        }
    }

    /// A dispatch of a kernel over `buffers`, one for each of its bindings.
    pub(crate) fn step(
        &mut self,
        variant: Variant,
        label: &str,
        overrides: &[(&'static str, f64)],
        buffers: &[&wgpu::Buffer],
        workgroups: [u32; 3],
    ) -> Step {
        let device = self.device;
        let Variant { kernel, features } = variant;
        let module = self
            .modules
            .entry((kernel.name, features))
            .or_insert_with(|| Module::new(device, variant));
        let key = PipelineKey {
            kernel: kernel.name,
            features,
            overrides: overrides
                .iter()
                .map(|(name, value)| (*name, value.to_bits()))
                .collect(),
        };
        let pipeline = self.pipelines.entry(key).or_insert_with(|| {
            device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(kernel.name),
                layout: Some(&module.pipeline_layout),
                module: &module.shader,
                entry_point: Some("main"),
                compilation_options: wgpu::PipelineCompilationOptions {
                    constants: overrides,
                    // Every kernel writes its workgroup memory before reading it.
                    zero_initialize_workgroup_memory: false,
                },
                cache: None,
            })
        });
        let entries: Vec<wgpu::BindGroupEntry<'_>> = (0..)
            .zip(buffers)
            .map(|(binding, buffer)| wgpu::BindGroupEntry {
                binding,
                resource: buffer.as_entire_binding(),
            })
            .collect();
        let bind_group = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some(label),
            layout: &module.bind_group_layout,
            entries: &entries,
        });
        Step {
            pipeline: pipeline.clone(),
            bind_group,
            workgroups,
        }
    }
}

impl Module {
    fn new(device: &wgpu::Device, Variant { kernel, features }: Variant) -> Self {
        let shader = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some(kernel.name),
            source: wgpu::ShaderSource::Wgsl(kernel.wgsl(features).into()),
        });
        let entries: Vec<wgpu::BindGroupLayoutEntry> = (0..)
            .zip(kernel.bindings)
            .map(|(binding, reflected)| wgpu::BindGroupLayoutEntry {
                binding,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer {
                    ty: wgpu::BufferBindingType::Storage {
                        read_only: reflected.access == Access::Read,
                    },
                    has_dynamic_offset: false,
                    min_binding_size: std::num::NonZeroU64::new(reflected.min_bytes.into()),
                },
                count: None,
            })
            .collect();
        let bind_group_layout = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label: Some(kernel.name),
            entries: &entries,
        });
        let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: Some(kernel.name),
            bind_group_layouts: &[Some(&bind_group_layout)],
            immediate_size: 0,
        });
        Self {
            shader,
            bind_group_layout,
            pipeline_layout,
        }
    }
}

/// A storage buffer that the host can write and copy from.
pub(crate) fn create_buffer(device: &wgpu::Device, label: &str, bytes: u64) -> wgpu::Buffer {
    device.create_buffer(&wgpu::BufferDescriptor {
        label: Some(label),
        size: bytes,
        usage: wgpu::BufferUsages::STORAGE
            | wgpu::BufferUsages::COPY_DST
            | wgpu::BufferUsages::COPY_SRC,
        mapped_at_creation: false,
    })
}
