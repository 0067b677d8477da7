//! Rules about dependencies.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::table::CrateRule;

/// Packages by name with the packages that their normal dependencies name.
///
/// Normal only: tests and build scripts may use what the product must not carry.
pub(super) struct Graph {
    members: Vec<String>,
    uses: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    /// Reads the output of `cargo metadata --format-version 1`.
    pub(super) fn parse(metadata: &str) -> Result<Self> {
        let metadata: Metadata = serde_json::from_str(metadata).context("cargo metadata")?;
        let names: BTreeMap<&str, &str> = metadata
            .packages
            .iter()
            .map(|package| (package.id.as_str(), package.name.as_str()))
            .collect();
        let name = |id: &str| {
            names
                .get(id)
                .map(|name| (*name).to_owned())
                .with_context(|| format!("no package {id}"))
        };

        let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for node in &metadata.resolve.nodes {
            // Two versions of one package share an entry: a rule is about the package.
            let used = uses.entry(name(&node.id)?).or_default();
            for dependency in &node.deps {
                if dependency.dep_kinds.iter().any(|kind| kind.kind.is_none()) {
                    used.insert(name(&dependency.pkg)?);
                }
            }
        }
        let members = metadata
            .workspace_members
            .iter()
            .map(|id| name(id))
            .collect::<Result<_>>()?;
        Ok(Self { members, uses })
    }

    pub(super) fn members(&self) -> Vec<String> {
        self.members.clone()
    }

    /// What breaks the dependency part of `rule`.
    pub(super) fn judge(&self, rule: &CrateRule) -> Vec<String> {
        let Some(direct) = self.uses.get(rule.name) else {
            return vec![format!("{} is not in cargo's graph", rule.name)];
        };
        let mut broken_by = Vec::new();
        for used in direct {
            if self.members.contains(used) && !rule.may_use.contains(&used.as_str()) {
                broken_by.push(format!("{} depends on {used}", rule.name));
            }
            if rule.never_names.contains(&used.as_str()) {
                broken_by.push(format!("{} names {used} in its Cargo.toml", rule.name));
            }
        }
        for forbidden in rule.never_reaches {
            if let Some(path) = self.path(rule.name, forbidden) {
                broken_by.push(path.join(" → "));
            }
        }
        broken_by
    }

    /// The shortest chain of dependencies from one package to another.
    fn path(&self, from: &str, to: &str) -> Option<Vec<String>> {
        let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
        let mut queue = VecDeque::from([from]);
        while let Some(here) = queue.pop_front() {
            for next in self.uses.get(here).into_iter().flatten() {
                if next == from || came_from.contains_key(next.as_str()) {
                    continue;
                }
                came_from.insert(next, here);
                if next == to {
                    let mut path = vec![to.to_owned()];
                    let mut at = to;
                    while let Some(before) = came_from.get(at) {
                        path.push((*before).to_owned());
                        at = before;
                    }
                    path.reverse();
                    return Some(path);
                }
                queue.push_back(next);
            }
        }
        None
    }
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: Vec<String>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    /// `null` for a normal dependency, else `dev` or `build`.
    kind: Option<String>,
}

/// Lists, one a line, the packages of the browser module with the features it really has.
///
/// `cargo metadata` will not do: it unites the features of all targets, and natively wgpu uses naga.
pub(super) const WEB_TREE: &[&str] = &[
    "tree",
    "--package",
    "monarch-web",
    "--target",
    "wasm32-unknown-unknown",
    "--edges",
    "normal",
    "--prefix",
    "none",
    "--format",
    "{p}",
    "--locked",
];

/// A shader compiler or a network client in the module would be what the browser has already.
pub(super) fn judge_web_tree(tree: &str) -> Vec<String> {
    let names: BTreeSet<&str> = tree
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    let mut broken_by = Vec::new();
    for forbidden in ["naga", "wgpu-core", "wesl", "ureq", "tokio"] {
        if names.contains(forbidden) {
            broken_by.push(format!("{forbidden} is compiled into monarch-web"));
        }
    }
    if !names.contains("wgpu") {
        broken_by.push(
            "wgpu is not in the tree of monarch-web, so the tree is not the one that ships"
                .to_owned(),
        );
    }
    broken_by
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Graph, judge_web_tree};
    use crate::rules::table::CrateRule;

    fn graph(edges: &[(&str, &[&str])]) -> Graph {
        let uses: BTreeMap<_, _> = edges
            .iter()
            .map(|(name, used)| {
                (
                    (*name).to_owned(),
                    used.iter().map(|used| (*used).to_owned()).collect(),
                )
            })
            .collect();
        Graph {
            members: vec!["a".to_owned(), "b".to_owned()],
            uses,
        }
    }

    const RULE: CrateRule = CrateRule {
        name: "a",
        never: "the GPU",
        may_use: &[],
        never_reaches: &["wgpu"],
        never_names: &["tokio"],
        never_writes: &[],
    };

    #[test]
    fn a_clean_graph_passes() {
        let graph = graph(&[("a", &["serde"]), ("serde", &[]), ("b", &["wgpu"])]);
        assert!(graph.judge(&RULE).is_empty());
    }

    #[test]
    fn a_direct_dependency_is_found() {
        assert_eq!(
            graph(&[("a", &["tokio"])]).judge(&RULE),
            ["a names tokio in its Cargo.toml"]
        );
    }

    #[test]
    fn a_dependency_of_a_dependency_is_found_with_its_path() {
        let graph = graph(&[("a", &["x"]), ("x", &["a", "y"]), ("y", &["x", "wgpu"])]);
        assert_eq!(graph.judge(&RULE), ["a → x → y → wgpu"]);
    }

    #[test]
    fn a_project_crate_that_is_not_listed_is_found() {
        let graph = graph(&[("a", &["b"]), ("b", &[])]);
        assert_eq!(graph.judge(&RULE), ["a depends on b"]);
        assert!(
            graph
                .judge(&CrateRule {
                    may_use: &["b"],
                    ..RULE
                })
                .is_empty()
        );
    }

    #[test]
    fn a_crate_outside_the_graph_does_not_pass() {
        assert_eq!(graph(&[]).judge(&RULE), ["a is not in cargo's graph"]);
    }

    #[test]
    fn tests_and_build_scripts_are_not_held_to_the_rules() {
        let metadata = r#"{
            "packages": [{ "id": "a 1", "name": "a" }, { "id": "wgpu 1", "name": "wgpu" }, { "id": "tokio 1", "name": "tokio" }],
            "workspace_members": ["a 1"],
            "resolve": { "nodes": [
                { "id": "a 1", "deps": [
                    { "pkg": "wgpu 1", "dep_kinds": [{ "kind": "dev", "target": null }, { "kind": "build", "target": null }] },
                    { "pkg": "tokio 1", "dep_kinds": [{ "kind": "dev", "target": null }, { "kind": null, "target": null }] }
                ] },
                { "id": "wgpu 1", "deps": [] },
                { "id": "tokio 1", "deps": [] }
            ] }
        }"#;
        assert_eq!(
            Graph::parse(metadata).unwrap().judge(&RULE),
            ["a names tokio in its Cargo.toml"]
        );
    }

    #[test]
    fn a_shader_compiler_in_the_module_is_found() {
        assert!(
            judge_web_tree("monarch-web v0.1.0 (path)\nwgpu v30.0.2\nnaga-types v30.0.2\n")
                .is_empty()
        );
        assert_eq!(
            judge_web_tree("wgpu v30.0.2\nnaga v30.0.2\n"),
            ["naga is compiled into monarch-web"]
        );
        assert_eq!(judge_web_tree("").len(), 1);
    }
}
