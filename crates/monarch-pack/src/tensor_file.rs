//! One safetensors file, read tensor by tensor.
//!
//! The format's own reader wants the whole file as one slice. Reading ranges instead keeps at most
//! one tensor in memory, and a file that changes under us is an error instead of a bus fault.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use rayon::prelude::*;
use safetensors::tensor::{Metadata, TensorInfo};
use safetensors::{Dtype, SafeTensorError};

use crate::error::PackError;

/// A safetensors file whose header has been read and checked against the file's length.
#[derive(Debug)]
pub(crate) struct TensorFile {
    path: PathBuf,
    metadata: Metadata,
    /// Where the first tensor starts.
    data_offset_bytes: u64,
}

impl TensorFile {
    /// Reads the header.
    pub(crate) fn open(path: &Path) -> Result<Self, PackError> {
        /// The limit of the format's own reader.
        const MAX_HEADER_BYTES: u64 = 100_000_000;
        let header_error = |source| PackError::Header {
            path: path.to_owned(),
            source,
        };

        let mut file = File::open(path).map_err(PackError::file("open", path))?;
        let file_bytes = file
            .metadata()
            .map_err(PackError::file("read", path))?
            .len();
        let mut header_bytes = [0; 8];
        if file_bytes < 8 {
            return Err(header_error(SafeTensorError::HeaderTooSmall));
        }
        file.read_exact(&mut header_bytes)
            .map_err(PackError::file("read", path))?;
        let header_bytes = u64::from_le_bytes(header_bytes);
        if header_bytes > MAX_HEADER_BYTES {
            return Err(header_error(SafeTensorError::HeaderTooLarge));
        }
        let data_offset_bytes = 8 + header_bytes;
        if data_offset_bytes > file_bytes {
            return Err(header_error(SafeTensorError::InvalidHeaderLength));
        }
        let mut header = vec![0; header_bytes as usize];
        file.read_exact(&mut header)
            .map_err(PackError::file("read", path))?;
        // Reading into `Metadata` checks that sizes match shapes and ranges touch without overlap.
        let metadata: Metadata = serde_json::from_slice(&header)
            .map_err(|e| header_error(SafeTensorError::InvalidHeaderDeserialization(e)))?;
        let needed_bytes = data_offset_bytes.saturating_add(metadata.data_len() as u64);
        if needed_bytes != file_bytes {
            return Err(PackError::TensorFileLength {
                path: path.to_owned(),
                file_bytes,
                needed_bytes,
            });
        }
        Ok(Self {
            path: path.to_owned(),
            metadata,
            data_offset_bytes,
        })
    }

    /// Names of all tensors, in file order.
    pub(crate) fn names(&self) -> Vec<String> {
        self.metadata.offset_keys()
    }

    /// Format and shape of a tensor.
    pub(crate) fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.metadata.info(name)
    }

    /// The numbers of a tensor, widened to f32.
    pub(crate) fn read_f32(&self, name: &str) -> Result<Vec<f32>, PackError> {
        let info = self.info(name).ok_or_else(|| PackError::TensorUnknown {
            tensor: name.to_owned(),
        })?;
        let (start, end) = info.data_offsets;
        let mut bytes = vec![0; end - start];
        let mut file = File::open(&self.path).map_err(PackError::file("open", &self.path))?;
        file.seek(SeekFrom::Start(self.data_offset_bytes + start as u64))
            .and_then(|_| file.read_exact(&mut bytes))
            .map_err(PackError::file("read", &self.path))?;
        let pair = |b: &[u8]| [b[0], b[1]];
        Ok(match info.dtype {
            Dtype::F32 => bytes
                .par_chunks_exact(4)
                .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .collect(),
            Dtype::F16 => bytes
                .par_chunks_exact(2)
                .map(|b| f16::from_le_bytes(pair(b)).to_f32())
                .collect(),
            Dtype::BF16 => bytes
                .par_chunks_exact(2)
                .map(|b| bf16::from_le_bytes(pair(b)).to_f32())
                .collect(),
            dtype => {
                return Err(PackError::TensorType {
                    tensor: name.to_owned(),
                    dtype,
                });
            }
        })
    }
}
