//! Every kernel text through the browser's own compiler, and on its device against the CPU twin.

use js_sys::{Array, Function, Object, Promise, Reflect, Uint32Array};
use monarch_kernels::{Features, KERNELS};
use monarch_tests::cases::{self, Cases};
use monarch_tests::gpu::{Buffer, Case, GUARD_WORDS, Values};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use wasm_bindgen_test::wasm_bindgen_test;

/// Cases of each kernel that the browser runs. The native suite runs all of them, on the same
/// drivers; here it is the compiler in front of the driver that is another one.
const CASES_A_KERNEL: usize = 5;
/// Cases above this are left to the native suite.
const CASE_WORDS: usize = 100_000;

/// The features that a kernel variant is written for, by WebGPU's names.
fn names(features: Features) -> Vec<&'static str> {
    [
        ("shader-f16", features.f16),
        ("subgroups", features.subgroups),
    ]
    .into_iter()
    .filter_map(|(name, wanted)| wanted.then_some(name))
    .collect()
}

/// Runs dispatch.js on a request: what it answers, or what it threw.
async fn ask(request: Object) -> JsValue {
    let body = format!(
        "return (async () => {{ {} }})()",
        include_str!("dispatch.js")
    );
    let run = Function::new_with_args("request", &body);
    let promise: Promise = run
        .call1(&JsValue::UNDEFINED, &request)
        .unwrap()
        .unchecked_into();
    JsFuture::from(promise).await.unwrap()
}

fn with(object: Object, key: &str, value: impl Into<JsValue>) -> Object {
    Reflect::set(&object, &key.into(), &value.into()).unwrap();
    object
}

fn strings(texts: &[&str]) -> Array {
    texts.iter().map(|text| JsValue::from_str(text)).collect()
}

/// Features of this browser's adapter.
async fn adapter_features() -> Vec<String> {
    let answer: Array = ask(with(Object::new(), "ask", "features"))
        .await
        .unchecked_into();
    answer.iter().filter_map(|name| name.as_string()).collect()
}

/// The feature sets that this browser can run, the plainest first.
async fn runnable() -> Vec<Features> {
    let has = adapter_features().await;
    let runs = |features: &Features| {
        names(*features)
            .iter()
            .all(|name| has.iter().any(|has| has == name))
    };
    Features::ALL.into_iter().filter(runs).collect()
}

/// What the compiler says against a shader, if anything.
async fn complaint(wgsl: &str, features: Features) -> Option<String> {
    let request = with(Object::new(), "ask", "compile");
    let request = with(request, "wgsl", wgsl);
    ask(with(request, "features", strings(&names(features))))
        .await
        .as_string()
}

/// Runs a case and judges every buffer that the kernel may write.
async fn check(case: &Case, features: Features) -> Result<(), String> {
    let overrides = case
        .overrides
        .iter()
        .fold(Object::new(), |overrides, (name, value)| {
            with(overrides, name, *value)
        });
    let bindings: Array = case
        .buffers
        .iter()
        .map(|buffer| {
            let written = buffer.is_written();
            let words = Uint32Array::from(buffer.start().as_slice());
            let binding = with(
                Object::new(),
                "access",
                if written { "write" } else { "read" },
            );
            let binding = with(binding, "words", words);
            let binding = with(
                binding,
                "offset",
                if written {
                    GUARD_WORDS as f64 * 4.0
                } else {
                    0.0
                },
            );
            JsValue::from(with(binding, "size", buffer.bound_words() as f64 * 4.0))
        })
        .collect();
    let workgroups: Array = case
        .workgroups
        .iter()
        .map(|&groups| JsValue::from(groups))
        .collect();
    let request = with(Object::new(), "ask", "dispatch");
    let request = with(request, "wgsl", case.kernel.wgsl(features));
    let request = with(request, "features", strings(&names(features)));
    let request = with(request, "overrides", overrides);
    let request = with(request, "bindings", bindings);
    let answer = ask(with(request, "workgroups", workgroups)).await;
    if let Some(refused) = answer.as_string() {
        return Err(refused);
    }

    let tolerance = if features.f16 && case.kernel.needs.f16 {
        case.tolerance_f16
    } else {
        case.tolerance
    };
    let written: Array = answer.unchecked_into();
    for ((buffer, binding), words) in case
        .buffers
        .iter()
        .zip(case.kernel.bindings)
        .zip(written.iter())
    {
        if buffer.is_written() {
            let words = words.unchecked_into::<Uint32Array>().to_vec();
            buffer
                .verify(&words, tolerance)
                .map_err(|problem| format!("{}: {problem}", binding.name))?;
        }
    }
    Ok(())
}

fn words(case: &Case) -> usize {
    case.buffers.iter().map(|buffer| buffer.start().len()).sum()
}

/// The first cases of a kernel that are small enough, with what `features` need to give their results.
fn small(cases: Cases, features: Features) -> impl Iterator<Item = Case> {
    cases
        .filter(move |case| {
            let needs = case.requires;
            (features.f16 || !needs.f16)
                && (features.subgroups || !needs.subgroups)
                && words(case) <= CASE_WORDS
        })
        .take(CASES_A_KERNEL)
}

#[wasm_bindgen_test]
async fn every_kernel_compiles_in_every_variant_that_the_device_may_have() {
    let runnable = runnable().await;
    assert!(runnable.contains(&Features::NONE));
    assert!(
        runnable.len() >= 2,
        "a browser without subgroups tests little: {runnable:?}"
    );
    let mut compiled = 0;
    for kernel in KERNELS {
        for (features, wgsl) in kernel
            .variants()
            .filter(|(features, _)| runnable.contains(features))
        {
            if let Some(complaint) = complaint(wgsl, features).await {
                panic!("{} {features:?}: {complaint}", kernel.name);
            }
            compiled += 1;
        }
    }
    assert!(compiled >= KERNELS.len());
}

#[wasm_bindgen_test]
async fn a_shader_that_only_browsers_refuse_is_noticed() {
    // A barrier that some invocations never reach.
    let wgsl = "@compute @workgroup_size(64)
        fn main(@builtin(local_invocation_index) i: u32) {
            if (i > 3u) { return; }
            workgroupBarrier();
        }";
    let complaint = complaint(wgsl, Features::NONE).await;
    assert!(
        complaint
            .as_ref()
            .is_some_and(|text| text.contains("uniform")),
        "{complaint:?}"
    );
}

#[wasm_bindgen_test]
async fn kernels_agree_with_their_twins() {
    for features in runnable().await {
        // What the probe must find is a fact about one driver; loading a model runs it on this one.
        for (name, cases) in cases::all()
            .into_iter()
            .filter(|(name, _)| *name != "subgroup_probe")
        {
            let mut checked = 0;
            for case in small(cases, features) {
                if let Err(problem) = check(&case, features).await {
                    panic!("{name} {features:?}, {}: {problem}", case.name);
                }
                checked += 1;
            }
            assert!(checked > 0, "{name} {features:?}: no case is small enough");
        }
    }
}

#[wasm_bindgen_test]
async fn one_wrong_element_is_noticed() {
    let (_, cases) = cases::all()
        .into_iter()
        .find(|(name, _)| *name == "swiglu")
        .unwrap();
    let mut case = small(cases, Features::NONE).next().unwrap();
    assert_eq!(check(&case, Features::NONE).await, Ok(()));
    let Some(Buffer::Out(Values::F32(expected))) = case.buffers.last_mut() else {
        panic!("swiglu writes f32")
    };
    let last = expected.len() - 1;
    expected[last] += 0.01;
    let problem = check(&case, Features::NONE).await.unwrap_err();
    assert!(problem.contains(&format!("at {last}")), "{problem}");
}
