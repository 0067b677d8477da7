//! WESL modules in, one WGSL text per variant out.

use std::fs;
use std::path::{Path, PathBuf};

use wesl::syntax::{DeclarationKind, GlobalDeclaration};
use wesl::{CompileOptions, CompileResult, Feature, ManglerKind, SourceMap, Wesl};

use crate::trouble::{Place, Trouble};

/// The conditions of `@if(..)` that a variant is linked under. No other names exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conditions {
    pub(crate) f16: bool,
    pub(crate) subgroups: bool,
    pub(crate) web: bool,
}

impl Conditions {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..8).map(|bits| Self {
            f16: bits & 1 != 0,
            subgroups: bits & 2 != 0,
            web: bits & 4 != 0,
        })
    }

    pub(crate) fn label(self) -> String {
        let names = [
            (self.f16, "f16"),
            (self.subgroups, "subgroups"),
            (self.web, "web"),
        ];
        let on: Vec<_> = names
            .iter()
            .filter(|(on, _)| *on)
            .map(|(_, n)| *n)
            .collect();
        if on.is_empty() {
            "plain".to_owned()
        } else {
            on.join(" ")
        }
    }
}

/// One variant of a kernel: linked text, and the files it came from.
#[derive(Clone, Debug)]
pub(crate) struct Linked {
    pub(crate) stem: String,
    pub(crate) conditions: Conditions,
    /// WGSL without comments and blank lines.
    pub(crate) text: String,
    /// The kernel's own file first, then its imports.
    pub(crate) sources: Vec<(PathBuf, String)>,
}

/// The kernels' names, in alphabetical order.
pub(crate) fn stems(shaders: &Path) -> Vec<String> {
    let dir = shaders.join("kernels");
    let entries = fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut stems: Vec<String> = entries
        .map(|entry| entry.expect("the folder stays readable").path())
        .filter(|path| path.extension().is_some_and(|e| e == "wesl"))
        .map(|path| {
            path.file_stem()
                .expect("has an extension")
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    stems.sort();
    stems
}

pub(crate) fn link(
    shaders: &Path,
    stem: &str,
    conditions: Conditions,
) -> Result<Linked, Vec<Trouble>> {
    let mut options = CompileOptions {
        // An override that one variant does not use is still part of the kernel's interface.
        keep_root: true,
        ..CompileOptions::default()
    };
    options.features.default = Feature::Error;
    for (name, on) in [
        ("f16", conditions.f16),
        ("subgroups", conditions.subgroups),
        ("web", conditions.web),
    ] {
        options.features.flags.insert(name.to_owned(), on.into());
    }
    let mut wesl = Wesl::new(shaders);
    wesl.set_mangler(ManglerKind::None).set_options(options);
    let root = format!("package::kernels::{stem}")
        .parse()
        .expect("a stem is an identifier");
    let file = shaders.join("kernels").join(format!("{stem}.wesl"));
    let mut compiled = wesl.compile(&root).map_err(|error| {
        // WESL's own report shows file, line and caret of the right module.
        vec![Trouble {
            message: format!("does not link:\n{error}"),
            variant: conditions.label(),
            place: Place {
                file,
                line: 1,
                column: 1,
                text: String::new(),
            },
        }]
    })?;
    sort_declarations(&mut compiled);
    let mut modules = compiled.modules.clone();
    modules[1..].sort_by_key(|module| module.to_string());
    let sources = modules
        .iter()
        .map(|module| {
            let mut path = shaders.to_owned();
            path.extend(&module.components);
            path.set_extension("wesl");
            let text = fs::read_to_string(&path).expect("it was linked a moment ago");
            (path, text)
        })
        .collect();
    let text = compiled
        .to_string()
        .lines()
        .filter(|line| !line.trim().is_empty())
        .fold(String::new(), |text, line| text + line + "\n");
    Ok(Linked {
        stem: stem.to_owned(),
        conditions,
        text,
        sources,
    })
}

/// Overrides first, then the kernel's own declarations, then those of its imports by file, each in
/// the order they were written in.
///
/// WESL's own order changes from run to run, and browsers cache compiled shaders by their text.
/// Overrides come first because naga 30 panics at pipeline creation when one is declared behind a
/// workgroup array whose length is an expression of overrides.
fn sort_declarations(compiled: &mut CompileResult) {
    let sourcemap = compiled.sourcemap.take();
    let sourcemap = sourcemap.expect("source maps are on by default");
    let declarations = &mut compiled.syntax.global_declarations;
    declarations.sort_by_key(|declaration| {
        let is_override = matches!(
            declaration.node(),
            GlobalDeclaration::Declaration(it) if it.kind == DeclarationKind::Override
        );
        let name = match declaration.node() {
            GlobalDeclaration::Declaration(it) => it.ident.to_string(),
            GlobalDeclaration::TypeAlias(it) => it.ident.to_string(),
            GlobalDeclaration::Struct(it) => it.ident.to_string(),
            GlobalDeclaration::Function(it) => it.ident.to_string(),
            GlobalDeclaration::Void | GlobalDeclaration::ConstAssert(_) => String::new(),
        };
        // Only imported declarations are in the map.
        let module = sourcemap.get_decl(&name);
        let module = module.map(|(module, _)| module.to_string());
        (!is_override, module, declaration.span().start)
    });
}

impl Linked {
    /// The text as naga takes it: it refuses `enable subgroups;`, which browsers require.
    /// Offsets stay the same.
    pub(crate) fn naga_text(&self) -> String {
        let line = "enable subgroups;";
        self.text.replace(line, &" ".repeat(line.len()))
    }

    /// Trouble at a byte range of the linked text, told in terms of the source file.
    pub(crate) fn trouble(&self, message: String, offset: usize) -> Trouble {
        Trouble {
            message,
            variant: self.conditions.label(),
            place: self.place(offset),
        }
    }

    /// Where the linked text at `offset` was written. Linking keeps the tokens of a line but not
    /// its spacing, so the line is looked up without spaces.
    fn place(&self, offset: usize) -> Place {
        let offset = offset.min(self.text.len());
        let start = self.text[..offset].rfind('\n').map_or(0, |at| at + 1);
        let end = self.text[offset..]
            .find('\n')
            .map_or(self.text.len(), |at| offset + at);
        let line = &self.text[start..end];
        let before = dense(&self.text[start..offset]).len();
        let wanted = dense(line);
        for (file, source) in &self.sources {
            for (number, text) in source.lines().enumerate() {
                let found = dense(text.split("//").next().unwrap_or_default());
                if let Some(at) = found.find(&wanted).filter(|_| !wanted.is_empty()) {
                    let column = text
                        .char_indices()
                        .filter(|(_, c)| !c.is_whitespace())
                        .nth(at + before)
                        .map_or(1, |(byte, _)| text[..byte].chars().count() + 1);
                    return Place {
                        file: file.clone(),
                        line: number + 1,
                        column,
                        text: text.to_owned(),
                    };
                }
            }
        }
        // The line was joined from several: show it as linked.
        Place {
            file: PathBuf::from(format!("{} (linked)", self.stem)),
            line: self.text[..start].matches('\n').count() + 1,
            column: self.text[start..offset].chars().count() + 1,
            text: line.to_owned(),
        }
    }
}

fn dense(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}
