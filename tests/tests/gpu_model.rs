//! Whole models on the GPU against the golden results and the oracle.
#![expect(
    clippy::print_stdout,
    reason = "the distances of a passing run are worth reading"
)]

use monarch_manifest::ScaleType;
use monarch_oracle::{Positions, State, Want, Weights, forward, greedy};
use monarch_pack::Packed;
use monarch_runtime::{Choice, DeviceOptions, PlanChoice, RuntimeError};
use monarch_sample::{Policy, choose};
use monarch_tests::compare;
use monarch_tests::golden::{self, GoldenCase};
use monarch_tests::model::{self, Setup};
use tempfile::TempDir;

/// Relative L2 error of logits in f32: another order of summation, and the device's exp and inverseSqrt.
const LIMIT_F32: f64 = 1e-4;
/// With products in f16: each rounds its activation and its product to 11 bits. The golden README allows f16 engines
/// 5e-2.
const LIMIT_F16: f64 = 2e-2;

/// Plans and variants that must all give the same tokens, as far as the adapter has them.
fn setups() -> Vec<Setup> {
    let (f16, subgroups) = (
        model::adapter_has("shader-f16"),
        model::adapter_has("subgroups"),
    );
    assert!(
        subgroups,
        "without subgroups this would test half the kernels; both software adapters have them"
    );
    let mut setups = Vec::new();
    for plan in [PlanChoice::Plain, PlanChoice::Seed] {
        setups.extend([
            Setup::new(plan, false, false),
            Setup::new(plan, false, true),
        ]);
        if f16 {
            setups.push(Setup::new(plan, true, true));
        }
    }
    setups
}

fn packed(name: &str) -> (TempDir, Weights) {
    let folder = tempfile::tempdir().expect("a scratch folder");
    golden::model(name).pack(folder.path(), ScaleType::F32);
    let packed = Packed::open(folder.path()).expect("a folder just packed");
    let weights = Weights::read(&packed).expect("weights just packed");
    (folder, weights)
}

/// What the GPU has to say about `ids`: the oracle's logits `[T, V]`, its next 32 ids and their margins.
struct Expected {
    logits: Vec<f32>,
    ids: Vec<u32>,
    margins: Vec<f32>,
}

fn oracle(weights: &Weights, ids: &[u32]) -> Expected {
    let mut state = State::new(&weights.shape);
    let want = Want {
        logits: Positions::All,
        hidden: false,
    };
    let logits = forward(weights, &mut state, ids, want)
        .expect("ids of this vocabulary")
        .logits;
    let last = logits[logits.len() - weights.shape.vocab as usize..].to_vec();
    let steps =
        greedy(weights, &mut state, last, golden::GREEDY_STEPS).expect("ids of this vocabulary");
    Expected {
        logits,
        ids: steps.iter().map(|step| step.id).collect(),
        margins: steps.iter().map(|step| step.margin).collect(),
    }
}

/// The ids must be the oracle's up to its first margin below `tie`: two logits off by half of that could change places.
fn check_ids(name: &str, actual: &[u32], expected: &Expected, tie: f64) {
    let decided = expected
        .margins
        .iter()
        .take_while(|margin| f64::from(**margin) > tie)
        .count();
    assert!(
        decided > 0,
        "{name}: the first margin {} says nothing at a tie of {tie}",
        expected.margins[0]
    );
    assert_eq!(
        actual[..decided],
        expected.ids[..decided],
        "{name}: margins {:?}",
        expected.margins
    );
}

/// Logits this close may be in either order in f32.
const TIE_F32: f64 = 1e-4;

/// Logits of every position and the greedy continuation, in every setup.
fn check_model(name: &str, case: &str, setups: &[Setup]) {
    let (folder, weights) = packed(name);
    let cases = golden::model(name).cases();
    let case: &GoldenCase = cases
        .iter()
        .find(|found| found.name.ends_with(case))
        .expect("a case of this golden model");
    let expected = oracle(&weights, &case.ids);
    for setup in setups {
        let mut runtime = model::load(folder.path(), setup);
        let limit = if setup.f16_products {
            LIMIT_F16
        } else {
            LIMIT_F32
        };
        let name = format!("{} {}", case.name, setup.name());
        let logits = model::logits(&mut runtime, &case.ids);
        let difference = compare::check(&logits, &expected.logits, limit)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        println!("{name}: {difference}");
        let ids = model::generate(
            &mut runtime,
            &case.ids,
            &Choice::default(),
            golden::GREEDY_STEPS as u32,
            8,
        );
        // Two logits, each off by as much as any of the prompt's.
        let tie = if setup.f16_products {
            2.0 * difference.max_abs
        } else {
            TIE_F32
        };
        check_ids(&name, &ids, &expected, tie);
    }
}

#[test]
fn two_heads_one_kv_head() {
    check_model("random/a-h128-2q1kv/golden", "len7", &setups());
}

#[test]
fn no_attention_and_biases_and_four_taps() {
    check_model("random/b-h256-allconv-bias-L4/golden", "len7", &setups());
}

#[test]
fn five_heads_one_kv_head_and_an_adjusted_ffn() {
    check_model("random/c-h320-5q1kv-autoff-v4/golden", "len7", &setups());
}

#[test]
fn heads_of_32_and_another_theta() {
    check_model("random/d-h192-hd32-6q2kv-v5/golden", "len7", &setups());
}

/// More positions than a tile of attention holds, and than one split takes.
#[test]
fn sixty_four_tokens() {
    check_model(
        "random/d-h192-hd32-6q2kv-v5/golden",
        "len64",
        &[Setup::default()],
    );
}

/// The small model as it is shipped, against the golden results themselves: its scales are f16, theirs are not.
#[test]
fn the_shipped_model_meets_the_golden_results() {
    let mut runtime = model::load(&golden::shipped_folder(), &Setup::default());
    let cases = golden::model("tiny-lfm2/golden_q4").cases();
    for case in cases.iter().filter(|case| case.name.contains("prompt")) {
        let logits = model::logits(&mut runtime, &case.ids);
        let last = &logits[logits.len() - case.last_logits.len()..];
        let difference = compare::check(last, &case.last_logits, golden::F16_SCALES_LIMIT)
            .unwrap_or_else(|error| panic!("{}: {error}", case.name));
        println!("{}: {difference}", case.name);
        let ids = model::generate(
            &mut runtime,
            &case.ids,
            &Choice::default(),
            golden::GREEDY_STEPS as u32,
            8,
        );
        assert_eq!(ids, case.greedy_ids, "{}", case.name);
    }
}

/// How tokens are grouped into passes, submissions and read-backs is not part of the answer.
#[test]
fn groups_do_not_change_tokens() {
    let (folder, weights) = packed("random/d-h192-hd32-6q2kv-v5/golden");
    let prompt = [1, 42, 7, 300, 12];
    let expected = oracle(&weights, &prompt);
    let mut runtime = model::load(folder.path(), &Setup::default());
    for group in [1, 2, 3, 7, 32] {
        let ids = model::generate(&mut runtime, &prompt, &Choice::default(), 32, group);
        check_ids(&format!("groups of {group}"), &ids, &expected, TIE_F32);
    }
}

/// A new start forgets keys, values and conv state, also after groups that nobody read.
#[test]
fn a_second_start_equals_the_first() {
    let (folder, _) = packed("random/a-h128-2q1kv/golden");
    let mut runtime = model::load(folder.path(), &Setup::default());
    let first = model::generate(&mut runtime, &[1, 2, 3], &Choice::default(), 24, 4);
    let other = model::generate(&mut runtime, &[500, 501], &Choice::default(), 24, 4);
    assert_ne!(first, other);
    runtime
        .start(&[9, 8, 7], &Choice::default())
        .expect("a prompt");
    drop([runtime.submit_choose(3), runtime.submit_choose(2)]);
    let second = model::generate(&mut runtime, &[1, 2, 3], &Choice::default(), 24, 4);
    assert_eq!(first, second);
}

/// Pitfall B7: matrices larger than a binding are cut into row chunks, the embedding included.
#[test]
fn small_bindings_do_not_change_tokens() {
    let (folder, weights) = packed("random/c-h320-5q1kv-autoff-v4/golden");
    let prompt = [3, 511, 200, 64];
    let expected = oracle(&weights, &prompt);
    for plan in [PlanChoice::Plain, PlanChoice::Seed] {
        // The head alone is 512 * 160 bytes of codes.
        let device = DeviceOptions {
            max_binding_bytes: Some(128 * 160),
            ..DeviceOptions::default()
        };
        let setup = Setup {
            plan,
            device,
            context_tokens: Some(36),
            ..Setup::default()
        };
        let mut runtime = model::load(folder.path(), &setup);
        let chunks = runtime
            .plan()
            .stages()
            .filter(|stage| stage.label.ends_with("head"))
            .count();
        assert_eq!(chunks, 4, "row chunks of the head");
        let ids = model::generate(&mut runtime, &prompt, &Choice::default(), 32, 8);
        check_ids(&setup.name(), &ids, &expected, TIE_F32);
    }
}

/// Pitfall D8: a prompt may fill the context, not exceed it; the model works afterwards.
#[test]
fn the_context_is_a_wall_and_not_a_cliff() {
    let (folder, _) = packed("random/a-h128-2q1kv/golden");
    let setup = Setup {
        context_tokens: Some(16),
        ..Setup::default()
    };
    let mut runtime = model::load(folder.path(), &setup);
    let prompt: Vec<u32> = (1..=17).collect();
    let error = runtime
        .start(&prompt, &Choice::default())
        .expect_err("17 tokens in a context of 16");
    assert!(
        matches!(
            error,
            RuntimeError::Context {
                tokens: 17,
                context_tokens: 16
            }
        ),
        "{error}"
    );
    assert!(matches!(
        runtime.start(&[], &Choice::default()),
        Err(RuntimeError::EmptyPrompt)
    ));
    let error = runtime
        .start(&[1, 1000], &Choice::default())
        .expect_err("id 1000 of 1000");
    assert!(
        matches!(
            error,
            RuntimeError::Token {
                id: 1000,
                vocab: 1000
            }
        ),
        "{error}"
    );
    let full = model::generate(&mut runtime, &prompt[..16], &Choice::default(), 1, 1);
    assert_eq!(full.len(), 1);
    assert_eq!(runtime.remaining_passes(), 0);
    let short = model::generate(&mut runtime, &prompt[..8], &Choice::default(), 8, 3);
    assert_eq!(short.len(), 8);
}

/// The GPU's choice at a temperature is its CPU twin's, from the logits it chose from.
#[test]
fn sampling_equals_its_twin() {
    let (folder, _) = packed("random/d-h192-hd32-6q2kv-v5/golden");
    for setup in setups() {
        let mut runtime = model::load(folder.path(), &setup);
        for (temperature, seed) in [(0.7, 1), (1.0, 0x1234_5678_9abc_def0), (5.0, u64::MAX)] {
            let prompt = [1, 5, 9];
            let choice = Choice { temperature, seed };
            runtime.start(&prompt, &choice).expect("a prompt");
            runtime.submit_feed(2);
            for position in 3..11 {
                let (id, logits) = pollster::block_on(async {
                    let pending = runtime.submit_choose(1);
                    let ids = runtime.read(pending).await.expect("a pass");
                    (ids[0], runtime.logits().await.expect("logits"))
                });
                let twin = choose(&logits, &Policy { temperature, seed }, position);
                assert_eq!(
                    id,
                    twin,
                    "{} temperature {temperature} position {position}",
                    setup.name()
                );
            }
        }
    }
}
