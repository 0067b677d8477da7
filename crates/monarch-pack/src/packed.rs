//! A packed folder, opened for reading on the CPU.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use half::f16;
use monarch_manifest::{Manifest, Matrix, ModelSpec, Piece, ScaleType, Section, Shape, Vector};

use crate::checkpoint::{has_bias, has_matrix, has_vector, no_such_weights, read_text};
use crate::error::PackError;
use crate::pack::MANIFEST_FILE;
use crate::quantise::{self, Quantised};

/// A packed folder: its manifest, and `weights.bin` read section by section.
#[derive(Debug)]
pub struct Packed {
    manifest: Manifest,
    weights: PathBuf,
}

/// Reads and checks a manifest; `path` is the file, or the folder that holds it.
pub fn read_manifest(path: &Path) -> Result<Manifest, PackError> {
    let path = manifest_path(path);
    monarch_manifest::parse(&read_text(&path)?)
        .map_err(|source| PackError::Manifest { path, source })
}

fn manifest_path(path: &Path) -> PathBuf {
    if path.is_dir() {
        path.join(MANIFEST_FILE)
    } else {
        path.to_owned()
    }
}

impl Packed {
    /// Opens a packed folder (or its manifest) and checks the length of the weights file.
    ///
    /// Digests are not checked here: that means reading everything, see [`crate::verify`].
    pub fn open(path: &Path) -> Result<Self, PackError> {
        let manifest = read_manifest(path)?;
        let path = manifest_path(path);
        let url = &manifest.spec.weights_url;
        let name = url.split(['?', '#']).next().unwrap_or(url);
        // The seed writes "/weights.bin": on its host the folder is the root.
        let name = name
            .strip_prefix("./")
            .or(name.strip_prefix('/'))
            .unwrap_or(name);
        if Path::new(name).file_name().is_none_or(|file| file != name) {
            return Err(PackError::WeightsElsewhere {
                path,
                url: url.clone(),
            });
        }
        let weights = path.with_file_name(name);
        let file_bytes = std::fs::metadata(&weights)
            .map_err(PackError::file("open", &weights))?
            .len();
        if file_bytes != manifest.spec.weight_bytes {
            return Err(PackError::WeightsLength {
                path: weights,
                file_bytes,
                listed_bytes: manifest.spec.weight_bytes,
            });
        }
        Ok(Self { manifest, weights })
    }

    /// The whole manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The artefact that the manifest describes.
    pub fn spec(&self) -> &ModelSpec {
        &self.manifest.spec
    }

    /// Sizes of the network.
    pub fn shape(&self) -> &Shape {
        &self.manifest.spec.shape
    }

    /// Path of the weights file.
    pub fn weights_path(&self) -> &Path {
        &self.weights
    }

    /// The bytes of a section.
    pub fn section_bytes(&self, name: &str) -> Result<Vec<u8>, PackError> {
        let section = self
            .spec()
            .section(name)
            .ok_or_else(|| PackError::SectionMissing {
                section: name.to_owned(),
            })?;
        self.read(section)
    }

    /// The bytes of one of this manifest's sections.
    pub(crate) fn read(&self, section: &Section) -> Result<Vec<u8>, PackError> {
        let mut file = File::open(&self.weights).map_err(PackError::file("open", &self.weights))?;
        let mut bytes = vec![0; section.bytes as usize];
        file.seek(SeekFrom::Start(section.offset_bytes))
            .and_then(|_| file.read_exact(&mut bytes))
            .map_err(PackError::file("read", &self.weights))?;
        Ok(bytes)
    }

    /// Codes, scales and zero points of a matrix, as stored.
    pub fn quantised(&self, layer: Option<u32>, matrix: Matrix) -> Result<Quantised, PackError> {
        if !has_matrix(self.shape(), layer, matrix) {
            return Err(no_such_weights(matrix, layer));
        }
        let zero_points = matrix.section(layer, Piece::ZeroPoints);
        Ok(Quantised {
            codes: self.section_bytes(&matrix.section(layer, Piece::Codes))?,
            scales: self.scales_f32(&matrix.section(layer, Piece::Scales))?,
            zero_points: match self.spec().section(&zero_points) {
                Some(section) => Some(self.read(section)?),
                None => None,
            },
        })
    }

    /// A matrix `[N, K]`, dequantised, row-major. `layer` is none for the head and the embedding.
    pub fn matrix_f32(&self, layer: Option<u32>, matrix: Matrix) -> Result<Vec<f32>, PackError> {
        let (_, cols) = matrix.rows_cols(self.shape());
        Ok(quantise::dequantise(
            &self.quantised(layer, matrix)?,
            cols as usize,
        ))
    }

    /// A vector, or the taps `[H, L]`. `layer` is none for the final norm.
    pub fn vector_f32(&self, layer: Option<u32>, vector: Vector) -> Result<Vec<f32>, PackError> {
        if !has_vector(self.shape(), layer, vector) {
            return Err(no_such_weights(vector, layer));
        }
        Ok(floats(&self.section_bytes(&vector.section(layer))?))
    }

    /// The bias `[N]` of a matrix; none when this model has no bias there.
    pub fn bias_f32(
        &self,
        layer: Option<u32>,
        matrix: Matrix,
    ) -> Result<Option<Vec<f32>>, PackError> {
        if !has_matrix(self.shape(), layer, matrix) {
            return Err(no_such_weights(matrix, layer));
        }
        if !has_bias(self.shape(), matrix) {
            return Ok(None);
        }
        Ok(Some(floats(
            &self.section_bytes(&matrix.section(layer, Piece::Bias))?,
        )))
    }

    /// A scales section as f32, whatever its number type.
    pub(crate) fn scales_f32(&self, name: &str) -> Result<Vec<f32>, PackError> {
        let bytes = self.section_bytes(name)?;
        Ok(match self.shape().scale_type {
            ScaleType::F32 => floats(&bytes),
            ScaleType::F16 => bytes
                .chunks_exact(2)
                .map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32())
                .collect(),
        })
    }
}

/// Little-endian f32 numbers.
pub(crate) fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        .collect()
}
