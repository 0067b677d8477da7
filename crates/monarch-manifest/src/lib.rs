//! Manifest text in, a checked [`ModelSpec`] and a [`Tuning`] out.
//!
//! A manifest describes one packed model: the sizes of the network ([`Shape`]), the named byte
//! ranges of `weights.bin` ([`Section`]), and how its kernels were tuned on the machine of whoever
//! packed it ([`Tuning`]). [`parse`] turns the text into a [`Manifest`] in one step and refuses
//! everything that does not fit together, before the first weight byte is requested;
//! [`Manifest::render`] writes the same schema back.
//!
//! The words of the file (`knee`, `kquant`, `flashBlocks`) stop at this crate's parser. Everybody
//! else sees the field's words. Neighbours: `monarch-pack` writes manifests, `monarch-weights`
//! fetches the sections, `monarch-runtime` plans by shape and tuning. This crate does no I/O, is
//! not async and knows no GPU.
//!
//! ```
//! use monarch_manifest::{Matrix, Piece, parse};
//!
//! # let text = include_str!("../../../tests/golden/seed/manifest.json");
//! let manifest = parse(text)?;
//! let spec = &manifest.spec;
//! assert_eq!(spec.shape.layers.len(), 14);
//!
//! // y = W x of the first layer's convolution: N = 3H rows of K = H columns.
//! assert_eq!(Matrix::ConvInProj.rows_cols(&spec.shape), (3 * 1024, 1024));
//!
//! // Its codes, two per byte, are the first section of the file.
//! let name = Matrix::ConvInProj.section(Some(0), Piece::Codes);
//! let codes = spec.section(&name).expect("validated");
//! assert_eq!((codes.offset_bytes, codes.bytes), (0, 3 * 1024 * 1024 / 2));
//!
//! // The tuned geometry, or the fallback where the tuner left none.
//! assert_eq!(manifest.tuning.matvec(Matrix::ConvInProj).geometry.rows_per_subgroup, 6);
//! # Ok::<(), monarch_manifest::ManifestError>(())
//! ```

mod document;
mod error;
mod parse;
mod render;
mod section;
mod spec;
mod tuning;
mod validate;
mod words;

pub use error::ManifestError;
pub use parse::{TEXT_LIMIT_BYTES, parse};
pub use section::{ExpectedSection, Matrix, Piece, RopeTable, Section, Vector};
pub use spec::{
    BLOCK, Format, LayerKind, Manifest, ModelSpec, ScaleType, SelfTest, Shape, Source, TextUrls,
};
pub use tuning::{
    ContextSplits, Dequantise, F16Products, Feature, Geometry, Matvec, PowerPreference, Reduction,
    Tuning,
};

#[cfg(test)]
mod tests;
