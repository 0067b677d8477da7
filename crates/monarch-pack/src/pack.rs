//! A checkpoint to `manifest.json` and `weights.bin`, one matrix at a time.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use half::f16;
use monarch_manifest::{
    BLOCK, Format, Manifest, Matrix, ModelSpec, Piece, ScaleType, Section, SelfTest, Source,
    TextUrls, Tuning, Vector,
};
use sha2::{Digest, Sha256};

use crate::checkpoint::{Checkpoint, layer_matrices, layer_vectors};
use crate::error::PackError;
use crate::layout::{LayoutOptions, Table};
use crate::packed::read_manifest;
use crate::quantise::{self, Quantised};
use crate::rope;

/// Name of the manifest in a packed folder.
pub const MANIFEST_FILE: &str = "manifest.json";
/// Name of the weights in a packed folder.
pub const WEIGHTS_FILE: &str = "weights.bin";
/// Text files that are copied along when the checkpoint has them.
pub const TEXT_FILES: [&str; 4] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "generation_config.json",
];

/// What to write besides the weights themselves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PackOptions {
    /// Sections, scales and context.
    pub layout: LayoutOptions,
    /// A known greedy continuation, recorded as it is.
    pub self_test: Option<SelfTest>,
    /// Where the weights come from, recorded as it is.
    pub source: Option<Source>,
}

/// How far packing has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackProgress {
    /// Bytes of sections that are written.
    pub done_bytes: u64,
    /// Bytes of all sections.
    pub total_bytes: u64,
}

/// Packs `checkpoint` into the folder `out` and returns the manifest that was written.
///
/// `progress` is called after every section. All files are written under other names and renamed
/// at the end, the manifest last: a folder with a manifest is complete. An older packed model in
/// `out` stays whole until then, and none of its text files survives. Other files in `out` are
/// left alone.
pub fn pack(
    checkpoint: &Checkpoint,
    out: &Path,
    options: &PackOptions,
    progress: &mut dyn FnMut(PackProgress),
) -> Result<Manifest, PackError> {
    let table = Table::new(
        checkpoint.shape(),
        checkpoint.max_positions(),
        &options.layout,
    )?;
    let mut spec = ModelSpec {
        shape: table.shape,
        weights_url: WEIGHTS_FILE.to_owned(),
        weight_bytes: table.weight_bytes,
        sections: table.sections,
        rope_table_positions: table.rope_table_positions,
        context_tokens: table.context_tokens,
        text: TextUrls::default(),
        self_test: options.self_test.clone(),
        source: options.source.clone(),
    };
    fs::create_dir_all(out).map_err(PackError::file("create", out))?;
    let mut staged = Staged::default();
    let weights_path = staged.add(out, WEIGHTS_FILE);
    let file = File::create(&weights_path).map_err(PackError::file("create", &weights_path))?;
    file.set_len(spec.weight_bytes)
        .map_err(PackError::file("write", &weights_path))?;
    let mut writer = SectionWriter {
        total_bytes: distinct_bytes(&spec.sections),
        file,
        path: weights_path,
        spec: &mut spec,
        done_bytes: 0,
        progress,
    };
    write_weights(checkpoint, &mut writer)?;
    writer
        .file
        .sync_all()
        .map_err(PackError::file("write", &writer.path))?;

    if let Some(folder) = checkpoint.folder() {
        for name in TEXT_FILES {
            let from = folder.join(name);
            if from.is_file() {
                let to = staged.add(out, name);
                // Not `fs::copy`: a read-only original would leave a copy that cannot be replaced.
                let text = fs::read(&from).map_err(PackError::file("read", &from))?;
                fs::write(&to, text).map_err(PackError::file("write", &to))?;
            }
        }
    }

    let tuning = Tuning::default_for(&spec.shape);
    let manifest = Manifest {
        format: Some(Format::V1),
        spec,
        tuning,
    };
    let text = manifest.render();
    let manifest_path = staged.add(out, MANIFEST_FILE);
    // What we write is what a page will read: refuse here what the reader would refuse there.
    monarch_manifest::parse(&text).map_err(|source| PackError::Manifest {
        path: manifest_path.clone(),
        source,
    })?;
    fs::write(&manifest_path, text).map_err(PackError::file("write", &manifest_path))?;
    staged.publish(out)?;
    Ok(manifest)
}

/// Adds a self-test to the manifest of a packed folder, or replaces the one it has.
///
/// For a continuation that only the packed weights can tell, so that it is not known when
/// [`pack`] is called.
pub fn record_self_test(folder: &Path, self_test: SelfTest) -> Result<Manifest, PackError> {
    let path = folder.join(MANIFEST_FILE);
    let mut manifest = read_manifest(&path)?;
    manifest.spec.self_test = Some(self_test);
    manifest.validate().map_err(|source| PackError::Manifest {
        path: path.clone(),
        source,
    })?;
    let temporary = temporary_path(folder, MANIFEST_FILE);
    let replaced =
        fs::write(&temporary, manifest.render()).and_then(|()| fs::rename(&temporary, &path));
    if let Err(error) = replaced {
        let _ = fs::remove_file(&temporary);
        return Err(PackError::file("replace", &path)(error));
    }
    Ok(manifest)
}

fn temporary_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!(".{name}.{}.partial", std::process::id()))
}

/// Files written under temporary names; removed on drop unless published.
#[derive(Default)]
struct Staged {
    /// Temporary and final path, in the order of publishing.
    files: Vec<(PathBuf, PathBuf)>,
}

impl Staged {
    /// Reserves a temporary name beside the final one.
    fn add(&mut self, out: &Path, name: &str) -> PathBuf {
        let temporary = temporary_path(out, name);
        self.files.push((temporary.clone(), out.join(name)));
        temporary
    }

    /// Renames everything. The old manifest goes first and the new one comes last, so that no
    /// moment shows a manifest beside weights that are not its own.
    fn publish(self, out: &Path) -> Result<(), PackError> {
        // A template of another model beside these weights would be used without a word.
        for name in [MANIFEST_FILE].into_iter().chain(TEXT_FILES) {
            let old = out.join(name);
            if old.exists() {
                fs::remove_file(&old).map_err(PackError::file("replace", &old))?;
            }
        }
        for (temporary, path) in &self.files {
            fs::rename(temporary, path).map_err(PackError::file("rename", temporary))?;
        }
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        for (temporary, _) in &self.files {
            // Nobody is left to tell; a file that stays has a name that no reader looks for.
            let _ = fs::remove_file(temporary);
        }
    }
}

/// Writes sections into their places and notes their digests.
struct SectionWriter<'a> {
    file: File,
    path: PathBuf,
    spec: &'a mut ModelSpec,
    done_bytes: u64,
    total_bytes: u64,
    progress: &'a mut dyn FnMut(PackProgress),
}

impl SectionWriter<'_> {
    /// Writes a section that the layout has, and nothing for one that it leaves out.
    fn write(&mut self, name: &str, bytes: &[u8]) -> Result<(), PackError> {
        let Some(at) = self
            .spec
            .sections
            .iter()
            .position(|section| section.name == name)
        else {
            return Ok(());
        };
        let section = &self.spec.sections[at];
        let range = (section.offset_bytes, section.bytes);
        assert_eq!(
            bytes.len() as u64,
            range.1,
            "{name}: the layout planned another size"
        );
        self.file
            .seek(SeekFrom::Start(range.0))
            .and_then(|_| self.file.write_all(bytes))
            .map_err(PackError::file("write", &self.path))?;
        let digest: [u8; 32] = Sha256::digest(bytes).into();
        for section in &mut self.spec.sections {
            if (section.offset_bytes, section.bytes) == range {
                section.sha256 = Some(digest);
            }
        }
        self.done_bytes += range.1;
        (self.progress)(PackProgress {
            done_bytes: self.done_bytes,
            total_bytes: self.total_bytes,
        });
        Ok(())
    }

    fn floats(&mut self, name: &str, values: &[f32]) -> Result<(), PackError> {
        check_finite(name, values)?;
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.write(name, &bytes)
    }
}

/// Bytes of all sections, aliases counted once.
pub(crate) fn distinct_bytes(sections: &[Section]) -> u64 {
    let ranges: BTreeSet<_> = sections.iter().map(|s| (s.offset_bytes, s.bytes)).collect();
    ranges.iter().map(|(_, bytes)| bytes).sum()
}

fn write_weights(checkpoint: &Checkpoint, writer: &mut SectionWriter<'_>) -> Result<(), PackError> {
    let layers = writer.spec.shape.layers.clone();
    for (layer, kind) in (0u32..).map(Some).zip(layers) {
        for matrix in layer_matrices(kind) {
            write_matrix(checkpoint, writer, layer, matrix)?;
        }
        for vector in layer_vectors(&writer.spec.shape, kind) {
            writer.floats(
                &vector.section(layer),
                &checkpoint.vector_f32(layer, vector)?,
            )?;
        }
    }
    let norm = checkpoint.vector_f32(None, Vector::FinalNorm)?;
    writer.floats(&Vector::FinalNorm.section(None), &norm)?;
    write_matrix(checkpoint, writer, None, Matrix::Head)?;
    if !writer.spec.shape.tied_embedding {
        write_matrix(checkpoint, writer, None, Matrix::Embed)?;
    }
    for suffix in ["", "_ext"] {
        let Some(section) = writer.spec.section(&format!("rope.cos{suffix}")) else {
            continue;
        };
        let positions = (section.bytes / writer.spec.shape.rope_row_bytes()) as u32;
        let (cos, sin) = rope::table(&writer.spec.shape, positions);
        writer.floats(&format!("rope.cos{suffix}"), &cos)?;
        writer.floats(&format!("rope.sin{suffix}"), &sin)?;
    }
    Ok(())
}

fn write_matrix(
    checkpoint: &Checkpoint,
    writer: &mut SectionWriter<'_>,
    layer: Option<u32>,
    matrix: Matrix,
) -> Result<(), PackError> {
    let name = |piece| matrix.section(layer, piece);
    let (rows, cols) = matrix.rows_cols(&writer.spec.shape);
    let (rows, cols) = (rows as usize, cols as usize);

    let weights = checkpoint.matrix_f32(layer, matrix)?;
    check_finite(&name(Piece::Codes), &weights)?;
    let mut quantised = quantise_as_stored(matrix, &weights, cols);
    drop(weights);
    if writer.spec.shape.scale_type == ScaleType::F16 {
        quantised
            .round_scales_to_f16(cols)
            .map_err(|(block, scale)| PackError::ScaleRange {
                section: name(Piece::Scales),
                block,
                scale,
            })?;
    }

    writer.write(&name(Piece::Codes), &quantised.codes)?;
    let scales = scale_bytes(&quantised.scales, writer.spec.shape.scale_type);
    writer.write(&name(Piece::Scales), &scales)?;
    if let Some(zero_points) = &quantised.zero_points {
        writer.write(&name(Piece::ZeroPoints), zero_points)?;
    }
    if matrix == Matrix::MlpDown {
        let codes = k_major(&quantised.codes, rows, BLOCK as usize / 2);
        writer.write(&name(Piece::CodesKMajor), &codes)?;
        let scale_bytes = writer.spec.shape.scale_type.bytes() as usize;
        writer.write(
            &name(Piece::ScalesKMajor),
            &k_major(&scales, rows, scale_bytes),
        )?;
    }
    if let Some(bias) = checkpoint.bias_f32(layer, matrix)? {
        writer.floats(&name(Piece::Bias), &bias)?;
    }
    Ok(())
}

/// The quantiser of each kind of matrix: a zero point per block for the embedding and the head,
/// whose values are far from symmetric; none elsewhere.
pub(crate) fn quantise_as_stored(matrix: Matrix, weights: &[f32], cols: usize) -> Quantised {
    match matrix {
        Matrix::Head | Matrix::Embed => quantise::asymmetric(weights, cols),
        _ => quantise::symmetric(weights, cols),
    }
}

/// Scales as they are in the file.
fn scale_bytes(scales: &[f32], scale_type: ScaleType) -> Vec<u8> {
    match scale_type {
        ScaleType::F32 => scales.iter().flat_map(|s| s.to_le_bytes()).collect(),
        ScaleType::F16 => scales
            .iter()
            .flat_map(|&s| f16::from_f32(s).to_le_bytes())
            .collect(),
    }
}

/// `[rows, K/32, elem]` regrouped as `[K/32, rows, elem]`.
pub(crate) fn k_major(bytes: &[u8], rows: usize, elem_bytes: usize) -> Vec<u8> {
    let row_bytes = bytes.len() / rows;
    let mut regrouped = Vec::with_capacity(bytes.len());
    for block in (0..row_bytes).step_by(elem_bytes) {
        for row in bytes.chunks_exact(row_bytes) {
            regrouped.extend_from_slice(&row[block..block + elem_bytes]);
        }
    }
    regrouped
}

fn check_finite(section: &str, values: &[f32]) -> Result<(), PackError> {
    match values.iter().position(|v| !v.is_finite()) {
        None => Ok(()),
        Some(index) => Err(PackError::WeightNotFinite {
            section: section.to_owned(),
            index,
            value: values[index],
        }),
    }
}
