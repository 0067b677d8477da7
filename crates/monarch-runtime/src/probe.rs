//! Measures what an adapter only announces: the real subgroup size, and how lanes are numbered.

use monarch_kernels::subgroup_probe::{self, FOUND_WORDS, Found};
use monarch_kernels::{Features, kernel};

use crate::device::Gpu;
use crate::error::DeviceError;
use crate::pipelines::{Pipelines, Variant, create_buffer};
use crate::readback;

/// Larger than any subgroup, and within what every adapter runs.
const WORKGROUP: u32 = 256;

/// Runs the probe kernel on a device with subgroups.
pub(crate) async fn subgroups(gpu: &Gpu) -> Result<Found, DeviceError> {
    let features = Features {
        f16: false,
        subgroups: true,
    };
    let found = create_buffer(&gpu.device, "subgroup_probe found", FOUND_WORDS as u64 * 4);
    let geometry = subgroup_probe::Geometry {
        workgroup: WORKGROUP,
    };
    let scope = gpu.device.push_error_scope(wgpu::ErrorFilter::Validation);
    let step = Pipelines::new(&gpu.device).step(
        Variant {
            kernel: kernel("subgroup_probe"),
            features,
        },
        "subgroup_probe",
        &subgroup_probe::overrides(&geometry),
        &[&found],
        [1, 1, 1],
    );
    let mut encoder = gpu
        .device
        .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    step.encode(&mut encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default()));
    gpu.queue.submit([encoder.finish()]);
    if let Some(error) = scope.pop().await {
        return Err(error.into());
    }
    let bytes = readback::read_buffer(gpu, &found).await?;
    let mut words = [0; FOUND_WORDS];
    words.copy_from_slice(&bytemuck::pod_collect_to_vec::<u8, u32>(&bytes));
    Ok(Found::from_words(words))
}
