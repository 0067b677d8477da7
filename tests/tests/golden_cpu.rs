//! The oracle against every golden result, and the golden check against models that are wrong on purpose.
#![expect(
    clippy::print_stdout,
    reason = "the distances of a passing run are worth reading"
)]

use monarch_oracle::{Positions, State, Want, Weights, forward, greedy};
use monarch_pack::Packed;
use monarch_tests::compare::{self, CompareError, Difference};
use monarch_tests::golden::{self, GoldenCase};
use monarch_tests::reference::{self, Mutation};

/// Largest relative L2 error of logits and residual streams. The references are f32; another order of summation
/// stays below 1e-5.
const LIMIT: f64 = 1e-4;

/// Checks every case of one golden model: logits, the largest 20 of each position, residual stream, greedy ids.
fn check_model(name: &str) {
    let model = golden::model(name);
    let weights = model.weights();
    for case in model.cases() {
        let difference =
            check_case(&weights, &case).unwrap_or_else(|error| panic!("{}: {error}", case.name));
        println!("{}: {difference}", case.name);
    }
}

fn check_case(weights: &Weights, case: &GoldenCase) -> Result<Difference, CompareError> {
    let vocab = weights.shape.vocab as usize;
    let mut state = State::new(&weights.shape);
    let want = Want {
        logits: Positions::All,
        hidden: case.hidden.is_some(),
    };
    let output = forward(weights, &mut state, &case.ids, want).expect("ids of this vocabulary");

    let last_logits = &output.logits[output.logits.len() - vocab..];
    let difference = compare::check(last_logits, &case.last_logits, LIMIT)?;
    compare::check_largest(
        &output.logits,
        vocab,
        &case.top20_ids,
        &case.top20_logits,
        LIMIT,
    )?;
    if let (Some(actual), Some(expected)) = (&output.hidden, &case.hidden) {
        compare::check(actual, expected, LIMIT)?;
        let rows = weights.shape.hidden as usize;
        for (actual, expected) in actual.chunks(rows).zip(expected.chunks(rows)) {
            compare::check(actual, expected, LIMIT)?;
        }
    }

    let steps = greedy(
        weights,
        &mut state,
        last_logits.to_vec(),
        case.greedy_ids.len(),
    )
    .expect("ids of this vocabulary");
    let ids: Vec<u32> = steps.iter().map(|step| step.id).collect();
    assert_eq!(ids, case.greedy_ids, "{}: greedy continuation", case.name);
    // A margin is the difference of two logits, so small ones carry the error of large numbers.
    let margins: Vec<f32> = steps.iter().map(|step| step.margin).collect();
    compare::check(&margins, &case.greedy_margin, 10.0 * LIMIT)?;
    Ok(difference)
}

/// One test per golden model, and one that there are no others.
macro_rules! golden_models {
    ($($(#[$attribute:meta])* $test:ident: $name:literal,)*) => {
        $(
            #[test]
            $(#[$attribute])*
            fn $test() {
                check_model($name);
            }
        )*

        #[test]
        fn every_golden_model_has_a_test() {
            let names: Vec<String> = golden::models().into_iter().map(|model| model.name).collect();
            assert_eq!(names, [$($name),*]);
        }
    };
}

golden_models! {
    synth_230m_f32: "lfm2.5-230m-synth/golden_f32",
    synth_230m_q4: "lfm2.5-230m-synth/golden_q4",
    random_a: "random/a-h128-2q1kv/golden",
    random_b_all_conv_with_biases_and_four_taps: "random/b-h256-allconv-bias-L4/golden",
    random_c_config_of_2025: "random/c-h320-5q1kv-autoff-v4/golden",
    random_d_heads_of_32: "random/d-h192-hd32-6q2kv-v5/golden",
    #[ignore = "needs the 43 MB checkpoint in models/tiny-lfm2/original, see models/README.md"]
    tiny_f32: "tiny-lfm2/golden_f32",
    #[ignore = "needs the 43 MB checkpoint in models/tiny-lfm2/original, see models/README.md"]
    tiny_q4: "tiny-lfm2/golden_q4",
}

/// The small model as it is shipped, with f16 scales, against the reference with f32 scales.
#[test]
fn the_shipped_model_is_close_to_the_golden_results() {
    let packed = Packed::open(&golden::shipped_folder()).expect("the shipped model");
    let weights = Weights::read(&packed).expect("its weights");
    for case in golden::model("tiny-lfm2/golden_q4").cases() {
        let mut state = State::new(&weights.shape);
        let last = forward(&weights, &mut state, &case.ids, Want::LAST)
            .expect("ids of this vocabulary")
            .logits;
        let difference = compare::check(&last, &case.last_logits, golden::F16_SCALES_LIMIT)
            .unwrap_or_else(|error| panic!("{}: {error}", case.name));
        println!("{}: {difference}", case.name);
        let steps = greedy(&weights, &mut state, last, case.greedy_ids.len())
            .expect("ids of this vocabulary");
        let ids: Vec<u32> = steps.iter().map(|step| step.id).collect();
        assert_eq!(ids, case.greedy_ids, "{}: greedy continuation", case.name);
    }
}

#[test]
fn prefill_in_chunks_equals_prefill_at_once() {
    for name in [
        "random/a-h128-2q1kv/golden",
        "random/b-h256-allconv-bias-L4/golden",
        "random/c-h320-5q1kv-autoff-v4/golden",
        "random/d-h192-hd32-6q2kv-v5/golden",
    ] {
        let model = golden::model(name);
        let weights = model.weights();
        let cases = model.cases();
        let case = cases
            .iter()
            .find(|case| case.ids.len() == 64)
            .expect("every model has a case of 64 tokens");
        let mut whole_state = State::new(&weights.shape);
        let whole = forward(&weights, &mut whole_state, &case.ids, Want::ALL)
            .expect("ids of this vocabulary");
        for chunk_tokens in [1, 2, 3, 7, 64] {
            let mut state = State::new(&weights.shape);
            let mut logits = Vec::new();
            for chunk in case.ids.chunks(chunk_tokens) {
                logits.extend(
                    forward(&weights, &mut state, chunk, Want::ALL)
                        .expect("ids of this vocabulary")
                        .logits,
                );
            }
            // To the bit: each position is computed the same way however the prompt is cut.
            assert!(
                logits == whole.logits,
                "{name}: logits differ in chunks of {chunk_tokens}"
            );
            assert!(
                state == whole_state,
                "{name}: keys, values or conv state differ in chunks of {chunk_tokens}"
            );
        }
    }
}

/// A model with both operators, groups of three heads and a small head, and its case of seven tokens.
fn mutable_case() -> (Weights, GoldenCase) {
    let model = golden::model("random/d-h192-hd32-6q2kv-v5/golden");
    let case = model
        .cases()
        .into_iter()
        .find(|case| case.ids.len() == 7)
        .expect("every model has a case of 7 tokens");
    (model.weights(), case)
}

#[test]
fn the_second_model_agrees_with_the_golden_results() {
    for model in golden::models()
        .into_iter()
        .filter(|model| model.name.starts_with("random/"))
    {
        let weights = model.weights();
        for case in model
            .cases()
            .into_iter()
            .filter(|case| case.ids.len() <= 64)
        {
            let logits = reference::logits(&weights, &case.ids, None);
            compare::check(&logits, &case.last_logits, LIMIT)
                .unwrap_or_else(|error| panic!("{}: {error}", case.name));
        }
    }
}

#[test]
fn every_mutation_fails_the_golden_check() {
    let (weights, case) = mutable_case();
    for mutation in Mutation::ALL {
        let logits = reference::logits(&weights, &case.ids, Some(mutation));
        match compare::check(&logits, &case.last_logits, LIMIT) {
            Err(CompareError::TooFar { difference, .. }) => println!("{mutation:?}: {difference}"),
            other => panic!("{mutation:?} passed the golden check: {other:?}"),
        }
    }
}

#[test]
fn a_case_with_one_wrong_number_fails() {
    let (weights, case) = mutable_case();
    check_case(&weights, &case).expect("the case itself passes");

    let broken = |change: fn(&mut GoldenCase)| {
        let mut case = case.clone();
        change(&mut case);
        check_case(&weights, &case)
    };
    assert!(broken(|case| case.last_logits[3] += 0.1).is_err());
    assert!(broken(|case| case.top20_logits[45] += 0.1).is_err());
    assert!(broken(|case| case.top20_ids.swap(20, 21)).is_err());
    assert!(broken(|case| case.hidden.as_mut().expect("recorded")[200] += 0.1).is_err());
    assert!(broken(|case| case.greedy_margin[31] += 0.1).is_err());
    assert!(broken(|case| case.ids[0] ^= 1).is_err());
    assert!(broken(|case| case.last_logits.clear()).is_err());
}

#[test]
#[should_panic(expected = "greedy continuation")]
fn a_wrong_greedy_id_fails() {
    let (weights, mut case) = mutable_case();
    case.greedy_ids[31] ^= 1;
    let _ = check_case(&weights, &case);
}
