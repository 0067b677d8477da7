//! Every case of `tests/golden/`: results of the reference implementation, with the model they belong to.
//!
//! The folder's README says how they were made. [`models`] lists them all and refuses to return fewer (or more) than
//! [`CASES`] names, so a loop over it cannot pass by finding nothing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use monarch_manifest::ScaleType;
use monarch_oracle::Weights;
use monarch_pack::{Checkpoint, LayoutOptions, PackOptions, Packed, pack};
use safetensors::{Dtype, SafeTensors};

/// Golden files, relative to `tests/golden/`, with the names of their cases.
pub const CASES: [(&str, &[&str]); 8] = [
    (
        "lfm2.5-230m-synth/golden_f32.safetensors",
        &["len1", "len7", "len64"],
    ),
    (
        "lfm2.5-230m-synth/golden_q4.safetensors",
        &["len1", "len7", "len64"],
    ),
    ("random/a-h128-2q1kv/golden.safetensors", &LENGTHS),
    ("random/b-h256-allconv-bias-L4/golden.safetensors", &LENGTHS),
    ("random/c-h320-5q1kv-autoff-v4/golden.safetensors", &LENGTHS),
    ("random/d-h192-hd32-6q2kv-v5/golden.safetensors", &LENGTHS),
    ("tiny-lfm2/golden_f32.safetensors", &LENGTHS_AND_PROMPTS),
    ("tiny-lfm2/golden_q4.safetensors", &LENGTHS_AND_PROMPTS),
];

const LENGTHS: [&str; 4] = ["len1", "len7", "len64", "len300"];
const LENGTHS_AND_PROMPTS: [&str; 8] = [
    "len1", "len7", "len64", "len300", "prompt0", "prompt1", "prompt2", "prompt3",
];

/// Greedy steps in every case.
pub const GREEDY_STEPS: usize = 32;
/// Largest logits kept of every position.
pub const LARGEST: usize = 20;

/// A model with golden results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoldenModel {
    /// Path of its golden file relative to `tests/golden/`, without the extension.
    pub name: String,
    /// Where its weights come from.
    pub source: ModelSource,
    /// What was done to them before the reference ran.
    pub weights: WeightsKind,
    file: PathBuf,
}

/// Where a model's weights come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelSource {
    /// A Hugging Face folder.
    Folder(PathBuf),
    /// The formula of `monarch synth`, by the name of the shape.
    Synth(&'static str),
}

/// What was done to the weights before the reference ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightsKind {
    /// Nothing: as stored, in f32.
    F32,
    /// The 4-bit round trip, with f32 scales.
    Q4,
}

/// One input and what the reference made of it. T input tokens, V vocabulary, D hidden.
#[derive(Clone, Debug, PartialEq)]
pub struct GoldenCase {
    /// The model's name and the case's, for failure messages.
    pub name: String,
    /// The input, `[T]`.
    pub ids: Vec<u32>,
    /// Logits after the last input token, `[V]`.
    pub last_logits: Vec<f32>,
    /// Ids of the [`LARGEST`] largest logits after every input token, largest first, `[T, 20]`.
    pub top20_ids: Vec<u32>,
    /// Those logits, `[T, 20]`.
    pub top20_logits: Vec<f32>,
    /// Greedy continuation, `[32]`.
    pub greedy_ids: Vec<u32>,
    /// Largest minus second largest logit at each of its steps, `[32]`.
    pub greedy_margin: Vec<f32>,
    /// Residual stream of the last position, `[layers + 2, D]`: embedding, after each layer, after the final norm.
    pub hidden: Option<Vec<f32>>,
}

/// Why the golden data cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GoldenError {
    /// The files found are not those of [`CASES`].
    #[error("{}: missing {missing:?}, not listed {unlisted:?}", root.display())]
    Files {
        /// The folder searched.
        root: PathBuf,
        /// Listed and not there.
        missing: Vec<String>,
        /// There and not listed.
        unlisted: Vec<String>,
    },
    /// The cases in a file are not those of [`CASES`].
    #[error("{file}: cases {found:?} instead of {listed:?}")]
    Cases {
        /// The golden file.
        file: String,
        /// Names in the file.
        found: BTreeSet<String>,
        /// Names that [`CASES`] lists.
        listed: BTreeSet<String>,
    },
    /// A tensor has another type or length than the folder's README says.
    #[error(
        "{file}: {tensor} is {dtype:?} {shape:?}, expected {expected_dtype:?} with {expected_elems:?} elements"
    )]
    Tensor {
        /// The golden file.
        file: String,
        /// The tensor.
        tensor: String,
        /// Its type.
        dtype: Dtype,
        /// Its shape.
        shape: Vec<usize>,
        /// The type it should have.
        expected_dtype: Dtype,
        /// The length it should have, where the case fixes one.
        expected_elems: Option<usize>,
    },
    /// A file could not be read.
    #[error("{}: cannot be read", file.display())]
    Read {
        /// The file or folder.
        file: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A golden file is not a safetensors file, or lacks a tensor.
    #[error("{file}: not the expected safetensors file")]
    Format {
        /// The golden file.
        file: String,
        /// Why.
        #[source]
        source: safetensors::SafeTensorError,
    },
}

/// The root of the repository's golden data.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
}

/// Every model with golden results, sorted by name.
///
/// # Panics
///
/// When files are missing or not listed in [`CASES`].
pub fn models() -> Vec<GoldenModel> {
    models_in(&root()).unwrap_or_else(|error| panic!("{error}"))
}

/// The one model called `name`.
///
/// # Panics
///
/// When there is none.
pub fn model(name: &str) -> GoldenModel {
    let found = models().into_iter().find(|model| model.name == name);
    found.unwrap_or_else(|| panic!("no golden model is called {name}"))
}

/// As [`models`], for a copy of the golden folder.
pub fn models_in(root: &Path) -> Result<Vec<GoldenModel>, GoldenError> {
    let found = golden_files(root)?;
    let listed: BTreeSet<String> = CASES.iter().map(|(file, _)| (*file).to_owned()).collect();
    if found != listed {
        return Err(GoldenError::Files {
            root: root.to_owned(),
            missing: listed.difference(&found).cloned().collect(),
            unlisted: found.difference(&listed).cloned().collect(),
        });
    }
    let model = |file: String| {
        let path = root.join(&file);
        let folder = path.parent().expect("joined above").to_owned();
        let source = if file.starts_with("lfm2.5-230m-synth/") {
            ModelSource::Synth("lfm2.5-230m")
        } else if file.starts_with("tiny-lfm2/") {
            ModelSource::Folder(tiny_folder())
        } else {
            ModelSource::Folder(folder)
        };
        let weights = if file.ends_with("golden_q4.safetensors") {
            WeightsKind::Q4
        } else {
            WeightsKind::F32
        };
        GoldenModel {
            name: file.trim_end_matches(".safetensors").to_owned(),
            source,
            weights,
            file: path,
        }
    };
    Ok(found.into_iter().map(model).collect())
}

/// Relative L2 error of logits when scales are f16: each block is off by up to 2^-11, and no two by the same.
pub const F16_SCALES_LIMIT: f64 = 1e-2;

/// The trained small model as it is shipped: packed, with f16 scales.
pub fn shipped_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny-lfm2")
}

/// The Hugging Face folder of the trained small model. Not in the repository: 43 MB. Tests that need it are ignored,
/// and `cargo xtask test` runs them where the folder exists.
pub fn tiny_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny-lfm2/original")
}

/// Files called `golden*.safetensors` below `root`, relative to it, with `/` between names.
fn golden_files(root: &Path) -> Result<BTreeSet<String>, GoldenError> {
    let mut files = BTreeSet::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let unreadable = |source| GoldenError::Read {
            file: root.join(&folder),
            source,
        };
        for entry in root.join(&folder).read_dir().map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = folder.join(&name);
            if entry.file_type().map_err(unreadable)?.is_dir() {
                folders.push(path);
            } else if name.starts_with("golden") && name.ends_with(".safetensors") {
                let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
                files.insert(parts.join("/"));
            }
        }
    }
    Ok(files)
}

impl GoldenModel {
    /// The checkpoint, before any quantisation.
    ///
    /// # Panics
    ///
    /// When it cannot be opened.
    pub fn checkpoint(&self) -> Checkpoint {
        let checkpoint = match &self.source {
            ModelSource::Folder(folder) => Checkpoint::open(folder),
            ModelSource::Synth(shape) => Checkpoint::synth(shape),
        };
        checkpoint.unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// The weights that the reference ran with: those of the checkpoint, or those of a packed folder with f32 scales.
    ///
    /// # Panics
    ///
    /// When they cannot be read.
    pub fn weights(&self) -> Weights {
        let checkpoint = self.checkpoint();
        let weights = match self.weights {
            WeightsKind::F32 => Weights::read(&checkpoint),
            WeightsKind::Q4 => {
                let folder = tempfile::tempdir().expect("a scratch folder");
                self.pack(folder.path(), ScaleType::F32);
                let packed = Packed::open(folder.path())
                    .unwrap_or_else(|error| panic!("{}: {error}", self.name));
                Weights::read(&packed)
            }
        };
        weights.unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// Writes the model as a packed folder in the default layout.
    ///
    /// # Panics
    ///
    /// When it cannot be written.
    pub fn pack(&self, out: &Path, scales: ScaleType) {
        let layout = LayoutOptions {
            scales: Some(scales),
            ..LayoutOptions::default()
        };
        let options = PackOptions {
            layout,
            ..PackOptions::default()
        };
        pack(&self.checkpoint(), out, &options, &mut |_| {})
            .unwrap_or_else(|error| panic!("{}: {error}", self.name));
    }

    /// Its cases, in the order of [`CASES`].
    ///
    /// # Panics
    ///
    /// When the file is not as its README says.
    pub fn cases(&self) -> Vec<GoldenCase> {
        let bytes = std::fs::read(&self.file)
            .unwrap_or_else(|error| panic!("{}: {error}", self.file.display()));
        read_cases(&self.name, &bytes).unwrap_or_else(|error| panic!("{error}"))
    }
}

/// The cases in the bytes of the golden file `name` (without its extension).
fn read_cases(name: &str, bytes: &[u8]) -> Result<Vec<GoldenCase>, GoldenError> {
    let file = format!("{name}.safetensors");
    let tensors = SafeTensors::deserialize(bytes).map_err(|source| GoldenError::Format {
        file: file.clone(),
        source,
    })?;
    let listed = CASES
        .iter()
        .find(|(listed, _)| *listed == file)
        .map_or(&[][..], |(_, cases)| cases);
    let found: BTreeSet<String> = tensors
        .names()
        .iter()
        .filter_map(|name| name.split_once('.'))
        .map(|(case, _)| case.to_owned())
        .collect();
    let listed_set: BTreeSet<String> = listed.iter().map(|&case| case.to_owned()).collect();
    if found != listed_set || found.is_empty() {
        return Err(GoldenError::Cases {
            file,
            found,
            listed: listed_set,
        });
    }
    let reader = Reader { file, tensors };
    listed.iter().map(|case| reader.case(name, case)).collect()
}

struct Reader<'a> {
    file: String,
    tensors: SafeTensors<'a>,
}

impl Reader<'_> {
    fn case(&self, name: &str, case: &str) -> Result<GoldenCase, GoldenError> {
        let tensor = |field: &str| format!("{case}.{field}");
        let ids = self.u32(&tensor("input_ids"), None)?;
        let top20_elems = Some(ids.len() * LARGEST);
        let hidden = tensor("hidden");
        Ok(GoldenCase {
            name: format!("{name} {case}"),
            last_logits: self.f32(&tensor("last_logits"), None)?,
            top20_ids: self.u32(&tensor("top20_ids"), top20_elems)?,
            top20_logits: self.f32(&tensor("top20_logits"), top20_elems)?,
            greedy_ids: self.u32(&tensor("greedy_ids"), Some(GREEDY_STEPS))?,
            greedy_margin: self.f32(&tensor("greedy_margin"), Some(GREEDY_STEPS))?,
            hidden: if self.tensors.names().contains(&hidden.as_str()) {
                Some(self.f32(&hidden, None)?)
            } else {
                None
            },
            ids,
        })
    }

    fn u32(&self, tensor: &str, elems: Option<usize>) -> Result<Vec<u32>, GoldenError> {
        Ok(self
            .words(tensor, Dtype::I32, elems)?
            .map(u32::from_le_bytes)
            .collect())
    }

    fn f32(&self, tensor: &str, elems: Option<usize>) -> Result<Vec<f32>, GoldenError> {
        Ok(self
            .words(tensor, Dtype::F32, elems)?
            .map(f32::from_le_bytes)
            .collect())
    }

    fn words(
        &self,
        tensor: &str,
        expected_dtype: Dtype,
        expected_elems: Option<usize>,
    ) -> Result<impl Iterator<Item = [u8; 4]>, GoldenError> {
        let view = self
            .tensors
            .tensor(tensor)
            .map_err(|source| GoldenError::Format {
                file: self.file.clone(),
                source,
            })?;
        let elems: usize = view.shape().iter().product();
        if view.dtype() != expected_dtype
            || elems == 0
            || expected_elems.is_some_and(|expected| expected != elems)
        {
            return Err(GoldenError::Tensor {
                file: self.file.clone(),
                tensor: tensor.to_owned(),
                dtype: view.dtype(),
                shape: view.shape().to_vec(),
                expected_dtype,
                expected_elems,
            });
        }
        Ok(view.data().as_chunks::<4>().0.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_golden_file_and_case_is_listed() {
        let models = models();
        assert_eq!(models.len(), 8);
        let cases: Vec<GoldenCase> = models.iter().flat_map(GoldenModel::cases).collect();
        assert_eq!(cases.len(), 38);
        assert_eq!(
            cases.iter().filter(|case| case.hidden.is_some()).count(),
            10
        );
        assert_eq!(
            models
                .iter()
                .filter(|model| model.weights == WeightsKind::Q4)
                .count(),
            2
        );
    }

    #[test]
    fn an_empty_folder_is_refused() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let Err(GoldenError::Files {
            missing, unlisted, ..
        }) = models_in(folder.path())
        else {
            panic!("an empty folder passed as golden data");
        };
        assert_eq!((missing.len(), unlisted.len()), (CASES.len(), 0));
    }

    #[test]
    fn a_missing_or_unlisted_file_is_named() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        for (file, _) in &CASES[1..] {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().expect("joined above")).expect("a folder");
            std::fs::write(path, []).expect("a file");
        }
        std::fs::write(folder.path().join("golden_q8.safetensors"), []).expect("a file");
        let Err(GoldenError::Files {
            missing, unlisted, ..
        }) = models_in(folder.path())
        else {
            panic!("an incomplete folder passed as golden data");
        };
        assert_eq!(missing, [CASES[0].0]);
        assert_eq!(unlisted, ["golden_q8.safetensors"]);
    }

    #[test]
    fn a_missing_case_is_refused() {
        // The file of one model under the name of another that has more cases.
        let bytes = std::fs::read(root().join("random/a-h128-2q1kv/golden.safetensors"))
            .expect("a golden file");
        let refused = read_cases("tiny-lfm2/golden_f32", &bytes);
        assert!(
            matches!(refused, Err(GoldenError::Cases { .. })),
            "{refused:?}"
        );
    }

    #[test]
    fn a_cut_file_is_refused() {
        let bytes = std::fs::read(root().join("random/a-h128-2q1kv/golden.safetensors"))
            .expect("a golden file");
        let refused = read_cases("random/a-h128-2q1kv/golden", &bytes[..bytes.len() - 4]);
        assert!(
            matches!(refused, Err(GoldenError::Format { .. })),
            "{refused:?}"
        );
    }
}
