//! Rules about words in Rust source.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::workspace::Workspace;

/// A word that source may not contain, outside comments and test modules.
pub(super) struct Pattern {
    /// Found as a whole word: `async` is not in `asynchronous`, `wgpu` is not in `wgpu_core`.
    pub(super) word: &'static str,
    /// Starts of paths where it is allowed.
    pub(super) except: &'static [&'static str],
}

/// A file of a crate, without comments and test module; line numbers are the file's own.
pub(super) struct Source {
    /// Relative to the root, with `/`.
    pub(super) path: String,
    pub(super) code: String,
}

impl Source {
    pub(super) fn new(path: &str, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            code: without_tests(&without_comments(text)).to_owned(),
        }
    }
}

/// The files under `src/` of a workspace member.
pub(super) fn crate_sources(workspace: &Workspace, member: &str) -> Result<Vec<Source>> {
    let folder = match member {
        "monarch-tests" => "tests".to_owned(),
        "xtask" => "xtask/src".to_owned(),
        name => format!("crates/{name}/src"),
    };
    let mut sources = Vec::new();
    collect(workspace, Path::new(&folder), &mut sources)?;
    if sources.is_empty() {
        bail!("{folder} has no Rust files");
    }
    Ok(sources)
}

fn collect(workspace: &Workspace, folder: &Path, sources: &mut Vec<Source>) -> Result<()> {
    let full = workspace.path(folder);
    let mut entries: Vec<_> = fs::read_dir(&full)
        .and_then(|entries| entries.collect::<Result<Vec<_>, _>>())
        .with_context(|| format!("cannot list {}", full.display()))?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = folder.join(entry.file_name());
        // Unit tests that grew out of their file: `tests.rs`, or a folder `tests` beside it.
        if folder.ends_with("src") && path.file_stem().is_some_and(|stem| stem == "tests") {
            continue;
        }
        if entry.file_type()?.is_dir() {
            collect(workspace, &path, sources)?;
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(entry.path())
                .with_context(|| format!("cannot read {}", path.display()))?;
            sources.push(Source::new(
                &path.to_string_lossy().replace('\\', "/"),
                &text,
            ));
        }
    }
    Ok(())
}

/// Every place where a pattern occurs.
pub(super) fn judge(patterns: &[Pattern], sources: &[Source]) -> Vec<String> {
    let mut broken_by = Vec::new();
    for source in sources {
        for pattern in patterns {
            if pattern
                .except
                .iter()
                .any(|start| source.path.starts_with(start))
            {
                continue;
            }
            for (number, line) in source.code.lines().enumerate() {
                if has_word(line, pattern.word) {
                    broken_by.push(format!(
                        "{}:{}: `{}`",
                        source.path,
                        number + 1,
                        pattern.word
                    ));
                }
            }
        }
    }
    broken_by
}

fn has_word(line: &str, word: &str) -> bool {
    let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(part_of_name) && !line[at + word.len()..].starts_with(part_of_name)
    })
}

/// Cuts a file before its unit tests: they are the last module of a file.
fn without_tests(code: &str) -> &str {
    code.find("\n#[cfg(test)]\nmod ")
        .map_or(code, |at| &code[..at])
}

/// Blanks comments, keeping lines; strings stay.
fn without_comments(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let taken = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            let length = block_comment(rest);
            code.extend(rest[..length].chars().filter(|c| *c == '\n'));
            length
        } else {
            let length = literal(rest).unwrap_or(c.len_utf8());
            code.push_str(&rest[..length]);
            length
        };
        rest = &rest[taken..];
    }
    code
}

/// Length of the block comment at the start of `text`; they nest.
fn block_comment(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        let here = &text[at..];
        if here.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += here.chars().next().map_or(1, char::len_utf8);
        }
    }
    at
}

/// Length of the string or character literal at the start of `text`, if there is one.
fn literal(text: &str) -> Option<usize> {
    if let Some(raw) = text.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            let body = 1 + hashes + 1;
            return Some(
                text[body..]
                    .find(&end)
                    .map_or(text.len(), |at| body + at + end.len()),
            );
        }
        return None;
    }
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let mut chars = text.char_indices().skip(1);
    if quote == '\'' {
        // A lifetime has no closing quote after one character.
        let (_, first) = chars.next()?;
        let (at, next) = chars.next()?;
        if first != '\\' {
            return (next == '\'').then_some(at + 1);
        }
    }
    let mut escaped = false;
    for (at, c) in chars {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return Some(at + 1),
            _ => {}
        }
    }
    Some(text.len())
}

#[cfg(test)]
mod tests {
    use super::{Pattern, Source, has_word, judge, without_comments};

    const WGPU: Pattern = Pattern {
        word: "wgpu",
        except: &["crates/gpu/"],
    };

    fn found(path: &str, text: &str) -> Vec<String> {
        judge(&[WGPU], &[Source::new(path, text)])
    }

    #[test]
    fn a_word_in_code_is_found_with_its_line() {
        assert_eq!(
            found("crates/a/src/lib.rs", "//! Text.\n\nuse wgpu::Device;\n"),
            ["crates/a/src/lib.rs:3: `wgpu`"]
        );
    }

    #[test]
    fn a_word_in_its_own_place_passes() {
        assert!(found("crates/gpu/src/lib.rs", "use wgpu::Device;\n").is_empty());
    }

    #[test]
    fn comments_and_unit_tests_pass() {
        assert!(
            found(
                "a.rs",
                "// wgpu\n/* wgpu /* wgpu */ wgpu */\nfn f() {} // wgpu\n"
            )
            .is_empty()
        );
        assert!(
            found(
                "a.rs",
                "fn f() {}\n\n#[cfg(test)]\nmod tests {\n    use wgpu::Device;\n}\n"
            )
            .is_empty()
        );
    }

    #[test]
    fn code_after_what_looks_like_a_comment_is_still_read() {
        for text in [
            "let url = \"http://x\"; use_of(wgpu);",
            "let quote = '\"'; // \"\nuse wgpu;",
            "let raw = r#\"\" // \"#; wgpu();",
            "let escaped = \"\\\" // \"; wgpu();",
            "fn f<'a>(x: &'a str) { wgpu(x) }",
            "let tick = '\\''; wgpu();",
            "/* a\n b */ wgpu();",
        ] {
            assert_eq!(found("a.rs", text).len(), 1, "{text}");
        }
    }

    #[test]
    fn only_whole_words_count() {
        assert!(has_word("wgpu::Device", "wgpu"));
        assert!(!has_word("wgpu_core::Device", "wgpu"));
        assert!(!has_word("asynchronous", "async"));
        assert!(has_word("wgpu_core or wgpu", "wgpu"));
    }

    #[test]
    fn blanked_comments_keep_their_lines() {
        assert_eq!(without_comments("a\n/* b\nc */ d // e\nf"), "a\n\n d \nf");
    }
}
