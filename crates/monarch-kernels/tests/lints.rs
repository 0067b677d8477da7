//! The build's checks: each accepts what it should and refuses what it must.

#![allow(
    dead_code,
    reason = "the build script uses the parts that these tests do not"
)]

#[path = "../build/header.rs"]
mod header;
#[path = "../build/link.rs"]
mod link;
#[path = "../build/lint.rs"]
mod lint;
#[path = "../build/reflect.rs"]
mod reflect;
#[path = "../build/trouble.rs"]
mod trouble;
#[path = "../build/uniformity.rs"]
mod uniformity;

use std::path::{Path, PathBuf};

use link::{Conditions, Linked};
use reflect::{Access, Binding, Reflected};
use trouble::Trouble;

/// A shader with one output and one input binding around `body` and `functions`.
fn shader(functions: &str, body: &str) -> String {
    format!(
        "\
@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read_write> output: array<f32>;
var<workgroup> shared_values: array<f32, 64>;
{functions}
@compute @workgroup_size(64)
fn main(
    @builtin(local_invocation_index) local_index: u32,
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(subgroup_size) subgroup_size: u32,
) {{
{body}
    output[local_index] = input[local_index];
}}
"
    )
}

fn linked(text: &str) -> Linked {
    Linked {
        stem: "example".to_owned(),
        conditions: Conditions {
            f16: false,
            subgroups: true,
            web: false,
        },
        text: text.to_owned(),
        sources: vec![(PathBuf::from("example.wesl"), text.to_owned())],
    }
}

fn check(text: &str) -> Result<Reflected, Vec<Trouble>> {
    reflect::reflect(&linked(text))
}

#[track_caller]
fn accepts(functions: &str, body: &str) {
    if let Err(troubles) = check(&shader(functions, body)) {
        panic!("refused: {}", troubles[0]);
    }
}

/// Refused with this message, at the line that holds `at`.
#[track_caller]
fn refuses_text(text: &str, message: &str, at: &str) {
    let troubles = check(text).expect_err("must be refused");
    let [trouble] = &troubles[..] else {
        panic!("{} troubles: {troubles:?}", troubles.len())
    };
    assert!(trouble.message.contains(message), "{trouble}");
    assert!(trouble.place.text.contains(at), "{trouble}");
    assert_eq!(
        text.lines().nth(trouble.place.line - 1),
        Some(&*trouble.place.text)
    );
}

#[track_caller]
fn refuses(functions: &str, body: &str, message: &str, at: &str) {
    refuses_text(&shader(functions, body), message, at);
}

const UNREACHED_BARRIER: &str = "a barrier that some invocations may not reach";
const UNREACHED_SUBGROUP: &str = "a subgroup operation that some invocations may not reach";

#[test]
fn barriers_in_uniform_flow_are_accepted() {
    accepts("", "workgroupBarrier();");
    accepts("", "if (group.x == 3u) { workgroupBarrier(); }");
    accepts(
        "",
        "for (var i = 0u; i < 4u + group.x; i++) { workgroupBarrier(); }",
    );
    accepts(
        "",
        "for (var i = 64u / subgroup_size; i > 0u; i /= 2u) { workgroupBarrier(); }",
    );
    accepts(
        "",
        "for (var i = 0u; i < u32(input[0]); i++) { workgroupBarrier(); }",
    );
    // Flow meets again after a branch, and after a loop of different lengths.
    accepts(
        "",
        "if (local_index == 0u) { output[0] = 1.0; } workgroupBarrier();",
    );
    accepts(
        "",
        "for (var i = local_index; i < 9u; i++) { output[i] = 1.0; } workgroupBarrier();",
    );
    accepts(
        "fn wait(count: u32) { for (var i = 0u; i < count; i++) { workgroupBarrier(); } }",
        "wait(3u);",
    );
    // A callee that returns early comes back to the same place.
    accepts(
        "fn pick(i: u32) -> u32 { if (i > 3u) { return 1u; } return 2u; }",
        "output[0] = f32(pick(local_index)); workgroupBarrier();",
    );
}

#[test]
fn a_barrier_after_a_divergent_return_is_refused() {
    refuses(
        "",
        "if (local_index > 9u) { return; }\nworkgroupBarrier();",
        UNREACHED_BARRIER,
        "workgroupBarrier",
    );
    refuses(
        "",
        "if (input[local_index] > 0.0) { return; }\nworkgroupBarrier();",
        UNREACHED_BARRIER,
        "workgroupBarrier",
    );
    refuses(
        "",
        "var last = 3u;\nif (local_index == 1u) { last = 4u; }\nif (last > 3u) { return; }\nworkgroupBarrier();",
        UNREACHED_BARRIER,
        "workgroupBarrier",
    );
}

#[test]
fn barriers_in_divergent_flow_are_refused() {
    refuses(
        "",
        "if (local_index < 4u) {\nworkgroupBarrier();\n}",
        UNREACHED_BARRIER,
        "workgroupBarrier",
    );
    refuses(
        "",
        "for (var i = local_index; i < 9u; i++) {\nworkgroupBarrier();\n}",
        UNREACHED_BARRIER,
        "workgroupBarrier",
    );
    refuses(
        "",
        "for (var i = 0u; i < 9u; i++) {\nworkgroupBarrier();\nif (local_index == i) { break; }\n}",
        UNREACHED_BARRIER,
        "workgroupBarrier",
    );
    // Workgroup memory and writable storage may hold different values for different readers.
    refuses(
        "",
        "if (shared_values[0] > 0.0) {\nworkgroupBarrier();\n}",
        UNREACHED_BARRIER,
        "workgroupBarrier",
    );
    refuses(
        "",
        "if (output[0] > 0.0) {\nworkgroupBarrier();\n}",
        UNREACHED_BARRIER,
        "workgroupBarrier",
    );
    refuses(
        "fn wait(count: u32) {\nfor (var i = 0u; i < count; i++) {\nworkgroupBarrier();\n}\n}",
        "wait(local_index);",
        UNREACHED_BARRIER,
        "workgroupBarrier",
    );
    refuses(
        "fn pick(i: u32) -> u32 { if (i > 3u) { return 1u; } return 2u; }",
        "if (pick(local_index) == 1u) {\nworkgroupBarrier();\n}",
        UNREACHED_BARRIER,
        "workgroupBarrier",
    );
}

#[test]
fn subgroup_operations_follow_the_same_rule() {
    accepts("", "output[0] = subgroupAdd(f32(local_index));");
    accepts(
        "",
        "output[0] = subgroupShuffleXor(f32(local_index), subgroup_size / 2u);",
    );
    refuses(
        "",
        "if (local_index < 4u) {\noutput[0] = subgroupAdd(1.0);\n}",
        UNREACHED_SUBGROUP,
        "subgroupAdd",
    );
    refuses(
        "",
        "if (subgroupAny(local_index == 0u)) {\noutput[0] = subgroupBroadcastFirst(1.0);\n}",
        UNREACHED_SUBGROUP,
        "subgroupBroadcastFirst",
    );
    refuses(
        "",
        "output[0] = subgroupShuffleXor(1.0, local_index);",
        "a shuffle by a distance that differs",
        "subgroupShuffleXor",
    );
}

#[test]
fn nested_subgroup_min_max_is_refused() {
    accepts("", "output[0] = subgroupMax(1.0) + subgroupMin(2.0);");
    accepts("", "output[0] = subgroupMax(subgroupAdd(1.0));");
    // Compared with an extremum is not computed from it.
    accepts(
        "",
        "let most = subgroupMax(input[local_index]);\noutput[0] = f32(subgroupMin(select(64u, local_index, input[local_index] == most)));",
    );
    let message = "subgroup min or max of the result of another one";
    refuses(
        "",
        "output[0] = subgroupMax(subgroupMax(1.0));",
        message,
        "subgroupMax(subgroupMax",
    );
    refuses(
        "",
        "let a = subgroupMin(1.0);\nlet b = a + 1.0;\noutput[0] = subgroupMax(b);",
        message,
        "subgroupMax(b)",
    );
    refuses(
        "",
        "var a = 1.0;\nfor (var i = 0u; i < 2u; i++) {\na = subgroupMax(a);\n}",
        message,
        "subgroupMax(a)",
    );
    refuses(
        "fn most(v: f32) -> f32 { return subgroupMax(v); }",
        "output[0] = subgroupMin(most(1.0));",
        message,
        "subgroupMin(most",
    );
}

#[test]
fn dynamic_indexing_of_local_arrays_is_refused() {
    accepts(
        "",
        "var rows: array<f32, 4>;\nrows[2] = 1.0;\noutput[0] = rows[2];",
    );
    accepts(
        "",
        "var row = vec4<f32>();\noutput[0] = row[local_index % 4u];",
    );
    accepts("", "output[0] = shared_values[local_index];");
    let message = "a function-scope array is indexed dynamically";
    refuses(
        "",
        "var rows: array<f32, 4>;\noutput[0] = rows[local_index];",
        message,
        "rows[local_index]",
    );
    refuses(
        "",
        "var rows: array<f32, 4>;\nfor (var i = 0u; i < 4u; i++) {\nrows[i] = 1.0;\n}",
        message,
        "rows[i]",
    );
}

#[test]
fn bindings_are_used_as_they_are_declared() {
    let good = shader("", "");
    let read_write = good.replace("<storage, read> input", "<storage, read_write> input");
    refuses_text(
        &read_write,
        "binding input is read_write but never written",
        "input: array",
    );
    let unused = good.replace(
        "var<workgroup>",
        "@group(0) @binding(2) var<storage, read> spare: array<f32>;\nvar<workgroup>",
    );
    refuses_text(&unused, "binding spare is never used", "spare");
    refuses_text(
        &good.replace("@binding(1)", "@binding(2)"),
        "number 2, expected 1",
        "output:",
    );
    refuses_text(
        &good.replace("@group(0) @binding(1)", "@group(1) @binding(1)"),
        "in group 1, not 0",
        "output:",
    );
}

#[test]
fn reflection_lists_bindings_and_overrides() {
    let text = shader(
        "override ROWS: u32 = 4u;\noverride EPS: f32;",
        "output[0] = EPS * f32(ROWS);",
    )
    .replace("input: array<f32>", "input: array<vec4<u32>>")
    .replace("= input[local_index]", "= f32(input[local_index].x)");
    let binding = |name: &str, access, min_bytes| Binding {
        name: name.to_owned(),
        access,
        min_bytes,
    };
    assert_eq!(
        check(&text),
        Ok(Reflected {
            bindings: vec![
                binding("input", Access::Read, 16),
                binding("output", Access::ReadWrite, 4)
            ],
            overrides: vec!["EPS".to_owned(), "ROWS".to_owned()],
        })
    );
}

#[test]
fn what_naga_refuses_is_told_with_its_place() {
    refuses(
        "",
        "output[0] = missing;",
        "no definition in scope for identifier",
        "missing",
    );
    refuses(
        "",
        "output[0] = input[0]\n + vec3<f32>(1.0);",
        "doesn't match the type stored",
        "input[0]",
    );
}

#[test]
fn features_must_be_declared() {
    let mut linked = linked(&shader("", "output[0] = subgroupAdd(1.0);"));
    linked.conditions = Conditions {
        f16: false,
        subgroups: false,
        web: false,
    };
    assert!(reflect::reflect(&linked).is_err());

    linked.conditions = Conditions {
        f16: false,
        subgroups: true,
        web: true,
    };
    let troubles = reflect::reflect(&linked).expect_err("no enable line");
    assert!(
        troubles[0].message.contains("enable subgroups;"),
        "{}",
        troubles[0]
    );
    linked.text.insert_str(0, "enable subgroups;\n");
    assert!(reflect::reflect(&linked).is_ok());
}

#[test]
fn other_entry_points_are_refused() {
    let good = shader("", "");
    assert!(check(&good.replace("fn main", "fn run")).is_err());
    assert!(check(&good.replace("@compute @workgroup_size(64)", "")).is_err());
}

const HEADER: &str = "\
// example: doubles.
//
// in    input   f32 [N]
//                       may be empty
// out   output  f32 [N]
// math  output[n] = 2 input[n]
// grid  1 workgroup
// needs nothing

fn main() {}
";

fn check_header(source: &str, reflected: &Reflected) -> Vec<Trouble> {
    match header::parse("example", Path::new("example.wesl"), source) {
        Ok(header) => header.check(Path::new("example.wesl"), source, reflected),
        Err(troubles) => troubles,
    }
}

#[test]
fn headers_agree_with_the_bindings() {
    let reflected = check(&shader("", "")).expect("is fine");
    assert_eq!(check_header(HEADER, &reflected), []);
    let refused = [
        (HEADER.replace("example:", "sample:"), "must open with"),
        (HEADER.replace("// grid  1 workgroup\n", ""), "has no grid"),
        (
            HEADER.replace("input   f32", "inputs  f32"),
            "the header says inputs",
        ),
        (
            HEADER.replace("// out   output  f32 [N]\n", ""),
            "does not list output",
        ),
        (
            HEADER.replace("// out   output", "// in    output"),
            "binding output is writable",
        ),
        (
            HEADER.replace("// in    input", "// state input"),
            "binding input is only read",
        ),
        (
            HEADER.replace("// math", "//       spare\n// math"),
            "spare, which is not bound",
        ),
    ];
    for (source, message) in refused {
        let troubles = check_header(&source, &reflected);
        assert!(
            troubles.iter().any(|t| t.message.contains(message)),
            "{message}: {troubles:?}"
        );
    }
}

#[test]
fn trouble_points_at_the_source_and_is_told_once() {
    let text = shader("", "if (local_index < 4u) {\n    workgroupBarrier();\n}");
    let troubles = check(&text).expect_err("must be refused");
    let merged = trouble::merged([troubles.clone(), troubles].concat());
    assert_eq!(merged.len(), 1);
    assert_eq!(
        merged[0].to_string(),
        "\
error: a barrier that some invocations may not reach [subgroups, subgroups]
  --> example.wesl:12:5
   |
12 |     workgroupBarrier();
   |     ^"
    );
}

#[test]
fn the_shaders_of_this_repository_link() {
    let shaders = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shaders");
    let stems = link::stems(&shaders);
    assert!(!stems.is_empty());
    for stem in &stems {
        for conditions in Conditions::all() {
            let linked = link::link(&shaders, stem, conditions).expect("links");
            assert!(!linked.text.contains("//"), "{stem}: comments are stripped");
            assert!(
                linked.text.lines().all(|line| !line.trim().is_empty()),
                "{stem}"
            );
            let again = link::link(&shaders, stem, conditions).expect("links");
            assert_eq!(linked.text, again.text, "{stem}: linking is reproducible");
        }
    }
}
