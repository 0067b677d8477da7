//! The rules as data.

use super::source::Pattern;

/// What one crate may never touch. `never` is the wording of ARCHITECTURE.md; the other fields make it checkable.
pub(super) struct CrateRule {
    pub(super) name: &'static str,
    pub(super) never: &'static str,
    /// Project crates its normal dependencies may name. What is not listed is refused.
    pub(super) may_use: &'static [&'static str],
    /// Packages that no chain of normal dependencies may reach.
    pub(super) never_reaches: &'static [&'static str],
    /// Packages that its own Cargo.toml may not name.
    pub(super) never_names: &'static [&'static str],
    /// Words that its source may not contain.
    pub(super) never_writes: &'static [Pattern],
}

/// A rule about words that belong in one place only.
pub(super) struct PlaceRule {
    pub(super) rule: &'static str,
    pub(super) patterns: &'static [Pattern],
}

const GPU: &[&str] = &["wgpu", "wgpu-core", "wgpu-hal", "monarch-runtime"];
const GPU_AND_ASYNC: &[&str] = &[
    "wgpu",
    "wgpu-core",
    "wgpu-hal",
    "monarch-runtime",
    "tokio",
    "futures",
    "pollster",
];
const JS: &[&str] = &[
    "wasm-bindgen",
    "wasm-bindgen-futures",
    "js-sys",
    "web-sys",
    "serde-wasm-bindgen",
];

/// `async` as a word; the code of such a crate runs to its end when it is called.
const ASYNC: Pattern = Pattern {
    word: "async",
    except: &[],
};

pub(super) const CRATES: &[CrateRule] = &[
    CrateRule {
        name: "monarch-manifest",
        never: "async, I/O, the GPU",
        may_use: &[],
        never_reaches: GPU_AND_ASYNC,
        never_names: JS,
        never_writes: &[
            ASYNC,
            Pattern {
                word: "std::fs",
                except: &[],
            },
            Pattern {
                word: "std::io",
                except: &[],
            },
            Pattern {
                word: "std::net",
                except: &[],
            },
            Pattern {
                word: "std::env",
                except: &[],
            },
        ],
    },
    CrateRule {
        name: "monarch-weights",
        never: "the GPU",
        may_use: &["monarch-manifest"],
        never_reaches: GPU,
        never_names: &[],
        never_writes: &[],
    },
    CrateRule {
        name: "monarch-kernels",
        never: "the GPU API, any project crate",
        may_use: &[],
        never_reaches: GPU_AND_ASYNC,
        never_names: JS,
        never_writes: &[ASYNC],
    },
    CrateRule {
        name: "monarch-runtime",
        never: "fetch, text",
        may_use: &["monarch-manifest", "monarch-kernels"],
        never_reaches: &[
            "ureq",
            "tokenizers",
            "minijinja",
            "monarch-weights",
            "monarch-text",
        ],
        never_names: &[],
        never_writes: &[],
    },
    CrateRule {
        name: "monarch-sample",
        never: "any project crate",
        may_use: &[],
        never_reaches: GPU_AND_ASYNC,
        never_names: JS,
        never_writes: &[ASYNC],
    },
    CrateRule {
        name: "monarch-text",
        never: "any project crate",
        may_use: &[],
        never_reaches: GPU_AND_ASYNC,
        never_names: JS,
        never_writes: &[ASYNC],
    },
    CrateRule {
        name: "monarch-engine",
        never: "JavaScript values, the GPU API",
        may_use: &[
            "monarch-manifest",
            "monarch-weights",
            "monarch-kernels",
            "monarch-runtime",
            "monarch-sample",
            "monarch-text",
        ],
        never_reaches: &[],
        never_names: &[
            "wgpu",
            "wasm-bindgen",
            "wasm-bindgen-futures",
            "js-sys",
            "web-sys",
            "serde-wasm-bindgen",
        ],
        never_writes: &[Pattern {
            word: "JsValue",
            except: &[],
        }],
    },
    CrateRule {
        name: "monarch-pack",
        never: "the GPU, async",
        may_use: &["monarch-manifest"],
        never_reaches: GPU_AND_ASYNC,
        never_names: JS,
        never_writes: &[ASYNC],
    },
    CrateRule {
        name: "monarch-oracle",
        never: "the GPU, async",
        may_use: &["monarch-manifest", "monarch-pack", "monarch-sample"],
        never_reaches: GPU_AND_ASYNC,
        never_names: JS,
        never_writes: &[ASYNC],
    },
    CrateRule {
        name: "monarch-cli",
        never: "anything a library crate could hold",
        may_use: &[
            "monarch-manifest",
            "monarch-weights",
            "monarch-kernels",
            "monarch-runtime",
            "monarch-sample",
            "monarch-text",
            "monarch-engine",
            "monarch-pack",
            "monarch-oracle",
        ],
        never_reaches: &["monarch-web"],
        // What a command computes lives in a library: these are the libraries' own dependencies.
        never_names: &[
            "wgpu",
            "naga",
            "wesl",
            "tokenizers",
            "minijinja",
            "safetensors",
            "half",
        ],
        never_writes: &[],
    },
    CrateRule {
        name: "monarch-web",
        never: "model knowledge (layers, sections, kernels)",
        // The weights crate only for its browser source: where bytes come from is the page's choice.
        may_use: &["monarch-engine", "monarch-weights"],
        never_reaches: &["monarch-pack", "monarch-oracle"],
        never_names: &[
            "wgpu",
            "monarch-manifest",
            "monarch-kernels",
            "monarch-runtime",
        ],
        never_writes: &[
            Pattern {
                word: "layer",
                except: &[],
            },
            Pattern {
                word: "layers",
                except: &[],
            },
            Pattern {
                word: "LayerKind",
                except: &[],
            },
            Pattern {
                word: "section",
                except: &[],
            },
            Pattern {
                word: "sections",
                except: &[],
            },
            Pattern {
                word: "Section",
                except: &[],
            },
            Pattern {
                word: "kernel",
                except: &[],
            },
            Pattern {
                word: "kernels",
                except: &[],
            },
            Pattern {
                word: "Kernel",
                except: &[],
            },
            Pattern {
                word: "Shape",
                except: &[],
            },
            Pattern {
                word: "Tuning",
                except: &[],
            },
            Pattern {
                word: "Matrix",
                except: &[],
            },
        ],
    },
];

/// Workspace members that are not part of the product: they may use every crate.
const TOOLS: &[&str] = &["monarch-tests", "xtask"];

pub(super) const PLACES: &[PlaceRule] = &[
    PlaceRule {
        rule: "only monarch-runtime names the GPU API",
        patterns: &[Pattern {
            word: "wgpu",
            // The harness runs single kernels on a device of its own, without the runtime.
            except: &["crates/monarch-runtime/", "tests/", "xtask/"],
        }],
    },
    PlaceRule {
        rule: "browser work-arounds of the runtime are in device.rs only",
        patterns: &[
            Pattern {
                word: "wasm_bindgen",
                except: NOT_RUNTIME,
            },
            Pattern {
                word: "js_sys",
                except: NOT_RUNTIME,
            },
            Pattern {
                word: "web_sys",
                except: NOT_RUNTIME,
            },
        ],
    },
];

/// Everything but the runtime's other files.
const NOT_RUNTIME: &[&str] = &[
    "crates/monarch-runtime/src/device.rs",
    "crates/monarch-cli/",
    "crates/monarch-engine/",
    "crates/monarch-kernels/",
    "crates/monarch-manifest/",
    "crates/monarch-oracle/",
    "crates/monarch-pack/",
    "crates/monarch-sample/",
    "crates/monarch-text/",
    "crates/monarch-web/",
    "crates/monarch-weights/",
    "tests/",
    "xtask/",
];

/// Members that the table forgot, so that a new crate cannot go unjudged.
pub(super) fn without_rule(members: &[String]) -> Vec<String> {
    let mut broken_by: Vec<String> = members
        .iter()
        .filter(|member| !TOOLS.contains(&member.as_str()))
        .filter(|member| CRATES.iter().all(|rule| rule.name != *member))
        .map(|member| format!("{member} has no row in xtask/src/rules/table.rs"))
        .collect();
    let gone = CRATES
        .iter()
        .filter(|rule| !members.iter().any(|member| member == rule.name));
    broken_by.extend(
        gone.map(|rule| format!("{} has a row but is no member of the workspace", rule.name)),
    );
    broken_by
}

#[cfg(test)]
mod tests {
    use super::{CRATES, TOOLS, without_rule};

    fn members() -> Vec<String> {
        CRATES
            .iter()
            .map(|rule| rule.name)
            .chain(TOOLS.iter().copied())
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn a_new_crate_needs_a_row() {
        assert!(without_rule(&members()).is_empty());
        let mut more = members();
        more.push("monarch-extra".to_owned());
        assert_eq!(
            without_rule(&more),
            ["monarch-extra has no row in xtask/src/rules/table.rs"]
        );
    }

    #[test]
    fn a_row_without_a_crate_is_noticed() {
        let fewer: Vec<_> = members()
            .into_iter()
            .filter(|name| name != "monarch-text")
            .collect();
        assert_eq!(
            without_rule(&fewer),
            ["monarch-text has a row but is no member of the workspace"]
        );
    }

    /// The words of the rules are the words of ARCHITECTURE.md: neither can change alone.
    #[test]
    fn architecture_states_every_rule() {
        let text = include_str!("../../../ARCHITECTURE.md");
        for rule in CRATES {
            let row = text
                .lines()
                .find(|line| line.starts_with(&format!("| `{}` |", rule.name)));
            let row = row.unwrap_or_else(|| panic!("ARCHITECTURE.md has no row for {}", rule.name));
            assert!(
                row.ends_with(&format!("| {} |", rule.never)),
                "{}: {row}",
                rule.name
            );
        }
    }
}
