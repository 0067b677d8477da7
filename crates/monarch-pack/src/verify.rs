//! Is a packed folder what its manifest says, and are its numbers sound?

use std::fmt;
use std::fs;
use std::path::PathBuf;

use monarch_manifest::{BLOCK, LayerKind, Matrix, Piece, Section};
use sha2::{Digest, Sha256};

use crate::checkpoint::{layer_matrices, layer_vectors};
use crate::error::PackError;
use crate::pack::{TEXT_FILES, k_major};
use crate::packed::{Packed, floats};
use crate::quantise::Quantised;

/// What [`verify`] looked at and found.
#[derive(Clone, Debug, PartialEq)]
pub struct VerifyReport {
    /// Sections listed.
    pub sections: usize,
    /// Sections whose digest was listed and compared.
    pub digests: usize,
    /// Text files beside the manifest that were parsed.
    pub text_files: usize,
    /// Everything that is wrong; empty for a sound folder.
    pub findings: Vec<Finding>,
}

/// Something wrong with a packed folder.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Finding {
    /// A section's bytes are not those that the packer wrote.
    Digest {
        /// The section.
        section: String,
        /// Digest in the manifest.
        listed: [u8; 32],
        /// Digest of the bytes.
        found: [u8; 32],
    },
    /// A scale is infinite or not a number.
    ScaleNotFinite {
        /// The scales section.
        section: String,
        /// Row-major index of the block.
        block: usize,
        /// The scale.
        value: f32,
    },
    /// A scale is zero although the block's codes are not, so weights were lost.
    ScaleZero {
        /// The scales section.
        section: String,
        /// Row-major index of the block.
        block: usize,
    },
    /// A number of a norm, of taps, of a bias or of a rotary table is infinite or not a number.
    ValueNotFinite {
        /// The section.
        section: String,
        /// Index of the number.
        index: usize,
        /// The number.
        value: f32,
    },
    /// The second copy of a down projection is not a regrouping of the first.
    CopyDiffers {
        /// The copy's section.
        section: String,
        /// The section that it should repeat.
        of: String,
        /// First byte of the copy that differs.
        byte: usize,
    },
    /// A text file is there and is not what its name says.
    Text {
        /// The file.
        path: PathBuf,
        /// The parser's words.
        reason: String,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Digest {
                section,
                listed,
                found,
            } => {
                write!(
                    f,
                    "{section}: sha256 is {}, the manifest says {}",
                    hex(found),
                    hex(listed)
                )
            }
            Self::ScaleNotFinite {
                section,
                block,
                value,
            } => {
                write!(f, "{section}: the scale of block {block} is {value}")
            }
            Self::ScaleZero { section, block } => {
                write!(
                    f,
                    "{section}: the scale of block {block} is 0, its codes are not"
                )
            }
            Self::ValueNotFinite {
                section,
                index,
                value,
            } => {
                write!(f, "{section}: number {index} is {value}")
            }
            Self::CopyDiffers { section, of, byte } => {
                write!(f, "{section}: byte {byte} differs from {of}")
            }
            Self::Text { path, reason } => write!(f, "{}: {reason}", path.display()),
        }
    }
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads every section and every text file of an opened folder.
///
/// `progress` gets the bytes hashed so far, at most the length of the weights file. At most one
/// fault of a kind is reported per section: the first. Fails only when reading fails.
pub fn verify(packed: &Packed, progress: &mut dyn FnMut(u64)) -> Result<VerifyReport, PackError> {
    let spec = packed.spec();
    let mut report = VerifyReport {
        sections: spec.sections.len(),
        digests: 0,
        text_files: 0,
        findings: Vec::new(),
    };

    for section in &spec.sections {
        check_digest(packed, section, &mut report)?;
        progress(section.end_bytes());
    }
    for (layer, kind) in (0u32..).map(Some).zip(&spec.shape.layers) {
        check_layer(packed, layer, *kind, &mut report)?;
    }
    for matrix in [Matrix::Head, Matrix::Embed] {
        check_matrix(packed, None, matrix, &mut report)?;
    }
    let outside = [
        "head.norm",
        "rope.cos",
        "rope.sin",
        "rope.cos_ext",
        "rope.sin_ext",
    ];
    for section in outside.iter().filter_map(|name| spec.section(name)) {
        check_floats(packed, section, &mut report)?;
    }
    check_text_files(packed, &mut report);
    Ok(report)
}

fn check_digest(
    packed: &Packed,
    section: &Section,
    report: &mut VerifyReport,
) -> Result<(), PackError> {
    let Some(listed) = section.sha256 else {
        return Ok(());
    };
    let found: [u8; 32] = Sha256::digest(packed.read(section)?).into();
    report.digests += 1;
    if found != listed {
        report.findings.push(Finding::Digest {
            section: section.name.clone(),
            listed,
            found,
        });
    }
    Ok(())
}

fn check_layer(
    packed: &Packed,
    layer: Option<u32>,
    kind: LayerKind,
    report: &mut VerifyReport,
) -> Result<(), PackError> {
    let spec = packed.spec();
    for matrix in layer_matrices(kind) {
        check_matrix(packed, layer, matrix, report)?;
        if let Some(bias) = spec.section(&matrix.section(layer, Piece::Bias)) {
            check_floats(packed, bias, report)?;
        }
    }
    for vector in layer_vectors(&spec.shape, kind) {
        if let Some(section) = spec.section(&vector.section(layer)) {
            check_floats(packed, section, report)?;
        }
    }
    let copies = [
        (Piece::Codes, Piece::CodesKMajor),
        (Piece::Scales, Piece::ScalesKMajor),
    ];
    for (piece, copy) in copies {
        check_copy(packed, layer, piece, copy, report)?;
    }
    Ok(())
}

fn check_matrix(
    packed: &Packed,
    layer: Option<u32>,
    matrix: Matrix,
    report: &mut VerifyReport,
) -> Result<(), PackError> {
    let (_, cols) = matrix.rows_cols(packed.shape());
    let section = matrix.section(layer, Piece::Scales);
    let quantised = packed.quantised(layer, matrix)?;
    let scales = &quantised.scales;
    if let Some(block) = scales.iter().position(|scale| !scale.is_finite()) {
        report.findings.push(Finding::ScaleNotFinite {
            section: section.clone(),
            block,
            value: scales[block],
        });
    }
    let lost = |&block: &usize| scales[block] == 0.0 && !is_zero_block(&quantised, block, cols);
    if let Some(block) = (0..scales.len()).find(lost) {
        report.findings.push(Finding::ScaleZero { section, block });
    }
    Ok(())
}

/// True when every code of the block equals its zero point.
fn is_zero_block(quantised: &Quantised, block: usize, cols: u32) -> bool {
    const BLOCK_BYTES: usize = BLOCK as usize / 2;
    let zero_point = quantised.zero_point(block, cols as usize);
    quantised.codes[block * BLOCK_BYTES..][..BLOCK_BYTES]
        .iter()
        .all(|&byte| byte == zero_point | (zero_point << 4))
}

fn check_copy(
    packed: &Packed,
    layer: Option<u32>,
    piece: Piece,
    copy: Piece,
    report: &mut VerifyReport,
) -> Result<(), PackError> {
    let (of, copy) = (
        Matrix::MlpDown.section(layer, piece),
        Matrix::MlpDown.section(layer, copy),
    );
    let Some(section) = packed.spec().section(&copy) else {
        return Ok(());
    };
    let elem_bytes = match piece {
        Piece::Codes => BLOCK as usize / 2,
        _ => packed.shape().scale_type.bytes() as usize,
    };
    let expected = k_major(
        &packed.section_bytes(&of)?,
        packed.shape().hidden as usize,
        elem_bytes,
    );
    let found = packed.read(section)?;
    if let Some(byte) = expected.iter().zip(&found).position(|(a, b)| a != b) {
        report.findings.push(Finding::CopyDiffers {
            section: copy,
            of,
            byte,
        });
    }
    Ok(())
}

fn check_floats(
    packed: &Packed,
    section: &Section,
    report: &mut VerifyReport,
) -> Result<(), PackError> {
    let values = floats(&packed.read(section)?);
    if let Some(index) = values.iter().position(|value| !value.is_finite()) {
        report.findings.push(Finding::ValueNotFinite {
            section: section.name.clone(),
            index,
            value: values[index],
        });
    }
    Ok(())
}

/// Parses the text files that lie beside the manifest. A model without them is complete: it then
/// takes ids instead of text.
fn check_text_files(packed: &Packed, report: &mut VerifyReport) {
    for name in TEXT_FILES {
        let path = packed.weights_path().with_file_name(name);
        if !path.exists() {
            continue;
        }
        report.text_files += 1;
        let reason = match fs::read_to_string(&path) {
            Err(error) => error.to_string(),
            Ok(text) if name.ends_with(".json") => {
                match serde_json::from_str::<serde_json::Value>(&text) {
                    Ok(serde_json::Value::Object(_)) => continue,
                    Ok(_) => "not a JSON object".to_owned(),
                    Err(error) => error.to_string(),
                }
            }
            Ok(text) if text.trim().is_empty() => "empty".to_owned(),
            Ok(_) => continue,
        };
        report.findings.push(Finding::Text { path, reason });
    }
}
