//! Broken kernels: each must be caught by its kernel's cases.
//!
//! A mutant is the linked text with one sign, index or bound changed. A list of cases that lets
//! one through has a gap.

use monarch_kernels::{Features, KERNELS, kernel};
use monarch_tests::cases;
use monarch_tests::gpu::{AdapterName, Gpu};

const PLAIN: Features = Features::NONE;
const SUBGROUPS: Features = Features {
    f16: false,
    subgroups: true,
};

/// Kernel, variant, the text that is changed, and what it becomes.
type Mutant = (&'static str, Features, &'static str, &'static str);

const MUTANTS: &[Mutant] = &[
    ("advance", PLAIN, "+= 1u", "+= 2u"),
    (
        "advance",
        PLAIN,
        "state.position +=",
        "state.prompt_tokens +=",
    ),
    (
        "argmax_final",
        PLAIN,
        "next >= state.prompt_tokens",
        "next > state.prompt_tokens",
    ),
    (
        "argmax_final",
        PLAIN,
        "tokens[next] =",
        "tokens[next - 1u] =",
    ),
    ("argmax_final", PLAIN, "b.id < a.id", "b.id > a.id"),
    ("argmax_final", SUBGROUPS, "b.id < a.id", "b.id > a.id"),
    (
        "argmax_partial",
        PLAIN,
        "b.score > a.score",
        "b.score < a.score",
    ),
    (
        "argmax_partial",
        PLAIN,
        "end = min(first + ids_a_part, V)",
        "end = first + ids_a_part - 1u",
    ),
    (
        "argmax_partial",
        PLAIN,
        "-log(exponential)",
        "log(exponential)",
    ),
    (
        "argmax_partial",
        PLAIN,
        "state.position + 1u",
        "state.position",
    ),
    (
        "argmax_partial",
        SUBGROUPS,
        "(best.id, mask)",
        "(best.id, 1u)",
    ),
    (
        "attention_decode",
        PLAIN,
        "exp(score - tile_largest)",
        "exp(score + tile_largest)",
    ),
    (
        "attention_decode",
        PLAIN,
        "head / (HEADS / KV_HEADS)",
        "head % KV_HEADS",
    ),
    (
        "attention_decode",
        PLAIN,
        "state.position + 1u",
        "state.position",
    ),
    (
        "attention_decode",
        PLAIN,
        "my_sum = my_sum * keep + weight",
        "my_sum = my_sum + weight",
    ),
    ("attention_decode", PLAIN, "weighted *= keep;", ""),
    ("attention_merge", PLAIN, "- largest)", "+ largest)"),
    (
        "attention_merge",
        PLAIN,
        "partial[at + dimension]",
        "partial[at + dimension + 1u]",
    ),
    (
        "conv_in_proj_q4",
        PLAIN,
        "- 8.0 * activations.sum",
        "+ 8.0 * activations.sum",
    ),
    (
        "conv_in_proj_q4",
        PLAIN,
        "block_term(2u * H + row",
        "block_term(H + row",
    ),
    (
        "conv_in_proj_q4",
        PLAIN,
        "conv_state[at + H]",
        "conv_state[at]",
    ),
    (
        "conv_in_proj_q4",
        PLAIN,
        "bias[3u * H + channel]",
        "bias[channel]",
    ),
    (
        "embed_q4",
        PLAIN,
        "- zero_point) * scale",
        "+ zero_point) * scale",
    ),
    (
        "embed_q4",
        PLAIN,
        "x[first + 1u] = odd.x",
        "x[first + 1u] = odd.y",
    ),
    (
        "embed_q4",
        PLAIN,
        "token >= FIRST_ROW + ROWS_HERE",
        "token > FIRST_ROW + ROWS_HERE",
    ),
    ("fold", PLAIN, "x[element] += sum", "x[element] -= sum"),
    (
        "fold",
        PLAIN,
        "other = 1u; other < LANES",
        "other = 2u; other < LANES",
    ),
    (
        "matvec_q4",
        PLAIN,
        "- zero_point * activations.sum",
        "+ zero_point * activations.sum",
    ),
    (
        "matvec_q4",
        PLAIN,
        "min(row + 2u, N - 1u)",
        "min(row + 1u, N - 1u)",
    ),
    (
        "matvec_q4",
        PLAIN,
        "if (row < rows_end)",
        "if (row <= rows_end)",
    ),
    ("matvec_q4", PLAIN, "value += y[at]", "value -= y[at]"),
    ("matvec_q4", PLAIN, "((blocks + 1u) / 2u) * 2u", "blocks"),
    ("matvec_q4", PLAIN, "group.y * grid.x + group.x", "group.x"),
    (
        "matvec_q4",
        SUBGROUPS,
        "WORKGROUP / lanes; team += lanes",
        "1u; team += lanes",
    ),
    (
        "mlp_q4",
        PLAIN,
        "column_block * D + row",
        "column_block * D + row + 1u",
    ),
    ("mlp_q4", PLAIN, "silu(gate *", "silu(-gate *"),
    (
        "mlp_q4",
        PLAIN,
        "min(first_column + column + 1u, F - 1u)",
        "first_column + column",
    ),
    (
        "qk_norm_rope",
        PLAIN,
        "low * cos - high * sin",
        "low * cos + high * sin",
    ),
    ("qk_norm_rope", PLAIN, "select(0u, vectors, is_key)", "0u"),
    (
        "qk_norm_rope",
        PLAIN,
        "(HEADS + KV_HEADS) * vectors",
        "HEADS * vectors",
    ),
    ("rms_norm", PLAIN, "+ EPS", "- EPS"),
    ("rms_norm", PLAIN, "weight[k]", "weight[k / 2u]"),
    ("rms_norm", SUBGROUPS, "subgroupAdd(partial)", "partial"),
    (
        "rope_attention_decode",
        PLAIN,
        "position < current",
        "position + 1u < current",
    ),
    (
        "rope_attention_decode",
        PLAIN,
        "high * cos + low * sin",
        "high * cos - low * sin",
    ),
    (
        "rope_attention_decode",
        PLAIN,
        "fresh_value + vector",
        "fresh_value",
    ),
    (
        "rope_attention_decode",
        PLAIN,
        "keys[at] = turned_low",
        "keys[at] = turned_high",
    ),
    ("short_conv", PLAIN, "sum += taps", "sum -= taps"),
    ("short_conv", PLAIN, "conv_state[at + H]", "conv_state[at]"),
    (
        "subgroup_probe",
        SUBGROUPS,
        "subgroup_lane == lane",
        "subgroup_lane == lane + 1u",
    ),
    (
        "subgroup_probe",
        SUBGROUPS,
        "found[1] = neighbours",
        "found[1] = lane",
    ),
    ("swiglu", PLAIN, "exp(-max(x, -80.0))", "exp(max(x, -80.0))"),
    ("swiglu", PLAIN, "gate_up[F + column]", "gate_up[column]"),
];

/// Runs the mutants of one kernel. The cases are the same on every adapter, so one of them is
/// enough to find their gaps: `cargo xtask test` runs this file on lavapipe, which has all features.
fn catch(name: &str) {
    assert!(
        AdapterName::from_env() == AdapterName::Lavapipe,
        "mutants run on lavapipe only"
    );
    let gpus = Gpu::all();
    for &(_, features, from, to) in mutants_of(name) {
        let gpu = gpus.iter().find(|gpu| gpu.features == features);
        let gpu = gpu.expect("lavapipe has all features");
        let mutant = kernel(name).wgsl(features).replacen(from, to, 1);
        let (_, cases) = cases::all()
            .into_iter()
            .find(|(kernel, _)| *kernel == name)
            .expect("every kernel has cases");
        let caught = cases
            .into_iter()
            .any(|case| gpu.check_text(&case, &mutant).is_err());
        assert!(
            caught,
            "{name}: `{from}` became `{to}`, and no case noticed"
        );
    }
}

fn mutants_of(name: &str) -> impl Iterator<Item = &'static Mutant> {
    MUTANTS.iter().filter(move |(kernel, ..)| *kernel == name)
}

macro_rules! kernels {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                catch(stringify!($name));
            }
        )*

        #[test]
        fn every_kernel_has_mutants() {
            let tested = [$(stringify!($name)),*];
            for kernel in KERNELS {
                assert!(tested.contains(&kernel.name), "{} is not run", kernel.name);
                assert!(mutants_of(kernel.name).count() >= 2, "{} has too few", kernel.name);
            }
        }
    };
}

kernels! {
    advance
    argmax_final
    argmax_partial
    attention_decode
    attention_merge
    conv_in_proj_q4
    embed_q4
    fold
    matvec_q4
    mlp_q4
    qk_norm_rope
    rms_norm
    rope_attention_decode
    short_conv
    subgroup_probe
    swiglu
}

#[test]
fn every_mutant_differs_from_its_kernel() {
    for &(name, features, from, to) in MUTANTS {
        let text = kernel(name).wgsl(features);
        assert!(text.contains(from), "{name} has no `{from}`:\n{text}");
        assert_ne!(text, text.replacen(from, to, 1));
    }
}
