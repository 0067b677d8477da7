//! What is wrong with a shader, and where.

use std::fmt;
use std::path::{Path, PathBuf};

/// One reason to fail the build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// What is wrong, in one sentence.
    pub(crate) message: String,
    /// Which build of the kernel it was seen in, empty when it is all of them.
    pub(crate) variant: String,
    /// The place in a source file.
    pub(crate) place: Place,
}

/// A place in a source file. Lines and columns count from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) file: PathBuf,
    pub(crate) line: usize,
    pub(crate) column: usize,
    /// The whole line, shown above the caret.
    pub(crate) text: String,
}

impl Trouble {
    pub(crate) fn missing_partner(stem: &str, partner: &Path) -> Self {
        Self {
            message: format!("kernel {stem} has no Rust partner"),
            variant: String::new(),
            place: Place {
                file: partner.to_owned(),
                line: 1,
                column: 1,
                text: String::new(),
            },
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place {
            file,
            line,
            column,
            text,
        } = &self.place;
        write!(f, "error: {}", self.message)?;
        if !self.variant.is_empty() {
            write!(f, " [{}]", self.variant)?;
        }
        let gutter = line.to_string().len();
        if text.is_empty() {
            return write!(f, "\n --> {}", file.display());
        }
        write!(
            f,
            "\n{:gutter$}--> {}:{line}:{column}\n{:gutter$} |\n{line} | {text}\n{:gutter$} | {:>column$}",
            "",
            file.display(),
            "",
            "",
            "^",
        )
    }
}

/// Most troubles show up in several variants of a kernel: each is told once, with all of them.
pub(crate) fn merged(troubles: Vec<Trouble>) -> Vec<Trouble> {
    let mut merged: Vec<Trouble> = Vec::new();
    for trouble in troubles {
        let same = merged
            .iter_mut()
            .find(|other| other.message == trouble.message && other.place == trouble.place);
        match same {
            Some(other) => {
                other.variant.push_str(", ");
                other.variant.push_str(&trouble.variant);
            }
            None => merged.push(trouble),
        }
    }
    merged
}
