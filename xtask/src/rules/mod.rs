//! The rules that no compiler checks: the last column of the table in ARCHITECTURE.md.
//!
//! Goes in: cargo's dependency graph and the source files. Comes out: for each rule what breaks it, as sentences.
//! [`table`] holds the rules as data, [`graph`] judges dependencies, [`source`] judges text, [`files`] judges the
//! tree. Each judgement is a function of plain values with a test in which it must fail.

mod files;
mod graph;
mod source;
mod table;

use anyhow::Result;

use crate::process::output;
use crate::workspace::Workspace;

/// A rule and what breaks it; an empty list is a pass.
pub(crate) struct Verdict {
    pub(crate) rule: String,
    pub(crate) broken_by: Vec<String>,
}

/// Judges the checkout by every rule.
pub(crate) fn judge(workspace: &Workspace) -> Result<Vec<Verdict>> {
    let metadata =
        output(
            workspace
                .cargo()
                .args(["metadata", "--format-version", "1", "--locked"]),
        )?;
    let graph = graph::Graph::parse(&metadata)?;
    let mut verdicts = Vec::new();

    verdicts.push(Verdict {
        rule: "every crate has a rule".into(),
        broken_by: table::without_rule(&graph.members()),
    });
    for rule in table::CRATES {
        let sources = source::crate_sources(workspace, rule.name)?;
        let mut broken_by = graph.judge(rule);
        broken_by.extend(source::judge(rule.never_writes, &sources));
        verdicts.push(Verdict {
            rule: format!("{} never touches {}", rule.name, rule.never),
            broken_by,
        });
    }

    let mut everything = Vec::new();
    for member in graph.members() {
        everything.extend(source::crate_sources(workspace, &member)?);
    }
    for rule in table::PLACES {
        verdicts.push(Verdict {
            rule: rule.rule.into(),
            broken_by: source::judge(rule.patterns, &everything),
        });
    }

    let mut record = |rule: &str, found: Result<Vec<String>>| {
        // A rule that cannot be judged is broken; the others still are.
        let broken_by = found.unwrap_or_else(|error| vec![format!("{error:#}")]);
        verdicts.push(Verdict {
            rule: rule.into(),
            broken_by,
        });
    };
    record(
        "the page imports only the package",
        files::page_imports(workspace),
    );
    record(
        "every kernel has its Rust side and its cases",
        files::kernel_partners(workspace),
    );
    record(
        "no file names a path of one machine",
        files::machine_paths(workspace),
    );
    let tree = output(workspace.cargo().args(graph::WEB_TREE));
    record(
        "naga and native parts stay out of the browser module",
        tree.map(|tree| graph::judge_web_tree(&tree)),
    );
    Ok(verdicts)
}
