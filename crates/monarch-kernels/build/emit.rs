//! The generated table: `OUT_DIR/kernels.rs`.

use std::fmt::Write as _;

use crate::header::Header;
use crate::link::{Conditions, Linked};
use crate::reflect::{Access, Reflected};
use crate::trouble::{Place, Trouble};

/// One row of the table.
pub(crate) struct Kernel {
    name: String,
    summary: String,
    reflected: Reflected,
    needs_f16: bool,
    needs_subgroups: bool,
    /// Text by `f16 + 2 * subgroups`, for the target.
    texts: Vec<String>,
}

/// Variants must differ in their text only: the host binds all of them the same way.
pub(crate) fn disagreement(stem: &str, variants: &[(Linked, Reflected)]) -> Option<Trouble> {
    let (_, first) = variants.first()?;
    let (linked, other) = variants.iter().find(|(_, reflected)| reflected != first)?;
    Some(Trouble {
        message: format!("variants of {stem} disagree: {first:?} is not {other:?}"),
        variant: linked.conditions.label(),
        place: Place {
            file: linked.sources[0].0.clone(),
            line: 1,
            column: 1,
            text: String::new(),
        },
    })
}

impl Kernel {
    pub(crate) fn new(
        stem: &str,
        header: &Header,
        variants: &[(Linked, Reflected)],
        web: bool,
    ) -> Self {
        let texts: Vec<String> = Conditions::all()
            .zip(variants)
            .filter(|(conditions, _)| conditions.web == web)
            .map(|(_, (linked, _))| linked.text.clone())
            .collect();
        Self {
            name: stem.to_owned(),
            summary: header.summary.clone(),
            reflected: variants[0].1.clone(),
            needs_f16: texts[0] != texts[1] || texts[2] != texts[3],
            needs_subgroups: texts[0] != texts[2] || texts[1] != texts[3],
            texts,
        }
    }
}

pub(crate) fn table(kernels: &[Kernel]) -> String {
    let mut out = String::from("&[\n");
    for kernel in kernels {
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "Kernel {{ name: {:?}, summary: {:?}, bindings: &[",
            kernel.name, kernel.summary
        );
        for binding in &kernel.reflected.bindings {
            let access = match binding.access {
                Access::Read => "Read",
                Access::ReadWrite => "ReadWrite",
            };
            let _ = writeln!(
                out,
                "Binding {{ name: {:?}, access: Access::{access}, min_bytes: {} }},",
                binding.name, binding.min_bytes
            );
        }
        let _ = writeln!(
            out,
            "], overrides: &{:?}, needs: Features {{ f16: {}, subgroups: {} }}, texts: [",
            kernel.reflected.overrides, kernel.needs_f16, kernel.needs_subgroups
        );
        for text in &kernel.texts {
            let _ = writeln!(out, "{text:?},");
        }
        out.push_str("] },\n");
    }
    out.push_str("]\n");
    out
}
