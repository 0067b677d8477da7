//! The comment that opens every kernel: its contract.
//!
//! ```text
//! // <stem>: what it computes, in one sentence.
//! //
//! // in    <binding>  <type> [<shape>]   remarks
//! // state <binding>  ...
//! // out   <binding>  ...
//! // math  ...
//! // grid  ...
//! // needs ...
//! ```

use std::path::Path;

use crate::reflect::{Access, Reflected};
use crate::trouble::{Place, Trouble};

/// A kernel's first comment, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The first sentence, without the stem.
    pub(crate) summary: String,
    /// Name, role and line number of each binding, in the order of the header.
    bindings: Vec<(String, Role, usize)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    In,
    State,
    Out,
}

/// Takes the header of a kernel apart; `file` and `source` are the kernel's own.
pub(crate) fn parse(stem: &str, file: &Path, source: &str) -> Result<Header, Vec<Trouble>> {
    let trouble = |line: usize, message: String| Trouble {
        message,
        variant: String::new(),
        place: Place {
            file: file.to_owned(),
            line: line + 1,
            column: 1,
            text: source.lines().nth(line).unwrap_or_default().to_owned(),
        },
    };
    let comment: Vec<&str> = source
        .lines()
        .map_while(|line| line.strip_prefix("//"))
        .collect();
    let opening = format!(" {stem}: ");
    let Some(summary) = comment.first().and_then(|line| line.strip_prefix(&opening)) else {
        return Err(vec![trouble(
            0,
            format!("the header must open with `//{opening}`"),
        )]);
    };
    let mut summary = summary.to_owned();
    for line in comment[1..].iter().take_while(|line| !line.is_empty()) {
        summary.push_str(line);
    }

    let mut bindings = Vec::new();
    let mut role = None;
    let mut missing = vec!["math", "grid", "needs"];
    for (number, line) in comment.iter().enumerate().skip(1) {
        let Some(line) = line.strip_prefix(' ') else {
            continue;
        };
        let (keyword, rest) = line.split_at_checked(6).unwrap_or((line, ""));
        match keyword.trim() {
            "in" => role = Some(Role::In),
            "state" => role = Some(Role::State),
            "out" => role = Some(Role::Out),
            "" => {}
            other => {
                role = None;
                missing.retain(|section| *section != other);
            }
        }
        // A deeper indent continues the remarks of the line above.
        if let Some(role) = role
            && !rest.starts_with(' ')
            && let Some(name) = rest.split_whitespace().next()
        {
            bindings.push((name.to_owned(), role, number));
        }
    }
    if !missing.is_empty() {
        return Err(vec![trouble(
            0,
            format!("the header has no {}", missing.join(", ")),
        )]);
    }
    Ok(Header { summary, bindings })
}

impl Header {
    /// Holds the header against the shader: same bindings, same order, and `in` is what is only
    /// read.
    pub(crate) fn check(&self, file: &Path, source: &str, reflected: &Reflected) -> Vec<Trouble> {
        let mut troubles = Vec::new();
        let count = self.bindings.len().max(reflected.bindings.len());
        for index in 0..count {
            let listed = self.bindings.get(index);
            let declared = reflected.bindings.get(index);
            let message = match (listed, declared) {
                (Some((name, role, _)), Some(binding)) => {
                    let is_read = binding.access == Access::Read;
                    if *name != binding.name {
                        format!(
                            "binding {index} is {}, the header says {name}",
                            binding.name
                        )
                    } else if is_read != (*role == Role::In) {
                        let access = if is_read { "only read" } else { "writable" };
                        format!("binding {name} is {access}, the header lists it as {role:?}")
                    } else {
                        continue;
                    }
                }
                (Some((name, ..)), None) => format!("the header lists {name}, which is not bound"),
                (None, Some(binding)) => format!("the header does not list {}", binding.name),
                (None, None) => continue,
            };
            let line = listed.map_or(0, |(.., line)| *line);
            troubles.push(Trouble {
                message,
                variant: String::new(),
                place: Place {
                    file: file.to_owned(),
                    line: line + 1,
                    column: 1,
                    text: source.lines().nth(line).unwrap_or_default().to_owned(),
                },
            });
        }
        troubles
    }
}
