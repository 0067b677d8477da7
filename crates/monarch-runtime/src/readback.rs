//! GPU → host: chosen ids through a ring of staging buffers, whole buffers for tests and logits.

use futures_channel::oneshot;

use crate::device::Gpu;
use crate::error::DeviceError;

type Mapped = oneshot::Receiver<Result<(), wgpu::BufferAsyncError>>;

/// Staging buffers for chosen ids, used in turn, so that a group can be copied while another is mapped.
pub(crate) struct StagingRing {
    slots: Vec<wgpu::Buffer>,
    /// Groups copied so far; the next uses slot `copied % SLOTS`.
    copied: usize,
    /// Groups read back so far, in the order of their copies.
    read: usize,
}

/// A submitted group whose ids have not been read.
#[must_use = "a group that is never read keeps its staging buffer"]
pub struct Pending {
    index: usize,
    first_position: u32,
    tokens: u32,
    mapped: Mapped,
}

impl Pending {
    /// Position of the first id.
    pub fn first_position(&self) -> u32 {
        self.first_position
    }

    /// How many ids.
    pub fn tokens(&self) -> u32 {
        self.tokens
    }
}

impl StagingRing {
    pub(crate) const SLOTS: usize = 4;
    pub(crate) const SLOT_TOKENS: u32 = 64;

    pub(crate) fn new(device: &wgpu::Device) -> Self {
        let slot = |index| {
            device.create_buffer(&wgpu::BufferDescriptor {
                label: Some(&format!("staging {index}")),
                size: u64::from(Self::SLOT_TOKENS) * 4,
                usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ,
                mapped_at_creation: false,
            })
        };
        Self {
            slots: (0..Self::SLOTS).map(slot).collect(),
            copied: 0,
            read: 0,
        }
    }

    /// Records the copy of `bytes` at `offset_bytes` of `tokens` into the next slot.
    pub(crate) fn copy(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        tokens: &wgpu::Buffer,
        offset_bytes: u64,
        bytes: u64,
    ) {
        assert!(
            self.copied - self.read < Self::SLOTS,
            "{} groups in flight",
            Self::SLOTS
        );
        encoder.copy_buffer_to_buffer(
            tokens,
            offset_bytes,
            &self.slots[self.copied % Self::SLOTS],
            0,
            bytes,
        );
        self.copied += 1;
    }

    /// Forgets groups that nobody will read: a stopped generation leaves some behind.
    pub(crate) fn reset(&mut self) {
        for index in self.read..self.copied {
            self.slots[index % Self::SLOTS].unmap();
        }
        self.read = self.copied;
    }

    /// Asks for the group copied last; call it after its submission.
    pub(crate) fn map(&self, first_position: u32, tokens: u32) -> Pending {
        let index = self.copied - 1;
        let mapped = map(&self.slots[index % Self::SLOTS], u64::from(tokens) * 4);
        Pending {
            index,
            first_position,
            tokens,
            mapped,
        }
    }

    /// Waits for a group's ids. Groups are read in the order of their submission.
    pub(crate) async fn read(
        &mut self,
        gpu: &Gpu,
        pending: Pending,
    ) -> Result<Vec<u32>, DeviceError> {
        assert_eq!(
            pending.index, self.read,
            "groups are read in the order of their submission"
        );
        wait(gpu, pending.mapped).await?;
        let slot = &self.slots[pending.index % Self::SLOTS];
        let ids = bytemuck::pod_collect_to_vec(&mapped_bytes(slot, u64::from(pending.tokens) * 4)?);
        slot.unmap();
        self.read += 1;
        Ok(ids)
    }
}

fn map(buffer: &wgpu::Buffer, bytes: u64) -> Mapped {
    let (sender, receiver) = oneshot::channel();
    buffer.map_async(wgpu::MapMode::Read, ..bytes, move |result| {
        // A receiver that is gone has stopped caring.
        let _ = sender.send(result);
    });
    receiver
}

fn mapped_bytes(buffer: &wgpu::Buffer, bytes: u64) -> Result<wgpu::BufferView, DeviceError> {
    let slice = buffer.slice(..bytes);
    slice.get_mapped_range().map_err(|error| DeviceError::Lost {
        message: error.to_string(),
    })
}

async fn wait(gpu: &Gpu, mapped: Mapped) -> Result<(), DeviceError> {
    gpu.poll()?;
    match mapped.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(DeviceError::Lost {
            message: error.to_string(),
        }),
        Err(oneshot::Canceled) => Err(DeviceError::Lost {
            message: "a read-back was dropped".to_owned(),
        }),
    }
}

/// Waits until the queue has done all it was given.
pub(crate) async fn idle(gpu: &Gpu) -> Result<(), DeviceError> {
    let (sender, receiver) = oneshot::channel();
    gpu.queue.on_submitted_work_done(move || {
        let _ = sender.send(());
    });
    gpu.poll()?;
    receiver
        .await
        .map_err(|oneshot::Canceled| DeviceError::Lost {
            message: "the queue was dropped".to_owned(),
        })
}

/// All bytes of a buffer, through a staging buffer of its own. For logits and tests, not for the decode loop.
pub(crate) async fn read_buffer(gpu: &Gpu, buffer: &wgpu::Buffer) -> Result<Vec<u8>, DeviceError> {
    let staging = gpu.device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("staging, whole buffer"),
        size: buffer.size(),
        usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ,
        mapped_at_creation: false,
    });
    let mut encoder = gpu
        .device
        .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    encoder.copy_buffer_to_buffer(buffer, 0, &staging, 0, buffer.size());
    gpu.queue.submit([encoder.finish()]);
    wait(gpu, map(&staging, buffer.size())).await?;
    Ok(mapped_bytes(&staging, buffer.size())?.to_vec())
}
