//! A small random model from manifest to tokens, and what is enabled on the device that runs it.

use std::ops::{ControlFlow, Range};

use js_sys::{Function, Promise, Reflect};
use monarch_engine::{
    Cancel, DeviceOptions, EngineError, FinishReason, GenerateOptions, LoadOptions, Model,
    PlanChoice, Prompt,
};
use monarch_weights::{Served, Source, WeightsError};
use serde::Deserialize;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use wasm_bindgen_test::wasm_bindgen_test;

/// The model in `tests/random-a`, in memory: this suite also runs where nothing serves files.
struct Embedded {
    weights: &'static [u8],
}

impl Embedded {
    fn new() -> Self {
        Self {
            weights: include_bytes!("../random-a/weights.bin"),
        }
    }
}

impl Source for Embedded {
    fn resolve(&self, _base: &str, reference: &str) -> Result<String, WeightsError> {
        Ok(reference.to_owned())
    }

    async fn read_text(
        &self,
        url: &str,
        _limit_bytes: u64,
        _cancel: &Cancel,
    ) -> Result<String, WeightsError> {
        match url {
            "manifest.json" => Ok(include_str!("../random-a/manifest.json").to_owned()),
            "tokenizer.json" => Ok(include_str!("../random-a/tokenizer.json").to_owned()),
            _ => Err(WeightsError::Status {
                url: url.to_owned(),
                status: 404,
            }),
        }
    }

    async fn read_range(
        &self,
        _url: &str,
        range: Range<u64>,
        _cancel: &Cancel,
        on_chunk: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Served, WeightsError> {
        // Odd pieces: nothing may depend on where a network cuts.
        for chunk in self.weights[range.start as usize..range.end as usize].chunks(1013) {
            if on_chunk(chunk).is_break() {
                break;
            }
        }
        Ok(Served::Range)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Greedy {
    prompt_ids: Vec<u32>,
    greedy_ids: Vec<u32>,
}

/// What the CPU oracle says; see `tests/random-a/README.md`.
fn greedy() -> Greedy {
    let text = js_sys::JSON::parse(include_str!("../random-a/greedy.json")).unwrap();
    serde_wasm_bindgen::from_value(text).unwrap()
}

async fn load(source: &Embedded, options: &LoadOptions) -> Result<Model, EngineError> {
    Model::load(
        source,
        "manifest.json",
        options,
        &mut |_| {},
        &Cancel::new(),
    )
    .await
}

/// Every plan on every kind of device that this browser can be.
fn configurations() -> Vec<LoadOptions> {
    let mut all = Vec::new();
    for plan in [PlanChoice::Plain, PlanChoice::Seed] {
        for (allow_f16, allow_subgroups) in [(true, true), (false, true), (false, false)] {
            let device = DeviceOptions {
                allow_f16,
                allow_subgroups,
                ..DeviceOptions::default()
            };
            all.push(LoadOptions {
                plan,
                device,
                ..LoadOptions::default()
            });
        }
    }
    all
}

#[wasm_bindgen_test]
async fn random_model_continues_as_the_oracle_in_every_configuration() {
    let Greedy {
        prompt_ids,
        greedy_ids,
    } = greedy();
    for options in configurations() {
        let mut model = load(&Embedded::new(), &options).await.unwrap();
        let max_tokens = Some(greedy_ids.len() as u32);
        let call = GenerateOptions {
            max_tokens,
            ignore_eos: true,
            ..GenerateOptions::default()
        };
        // Twice: the second call must not see what the first one left.
        for _ in 0..2 {
            let cancel = Cancel::new();
            let generation = model
                .generate(&Prompt::Ids(prompt_ids.clone()), &call, &cancel)
                .unwrap();
            let completion = generation.complete().await.unwrap();
            assert_eq!(completion.ids, greedy_ids, "{options:?}");
            assert_eq!(completion.finish_reason, FinishReason::Length);
        }
    }
}

#[wasm_bindgen_test]
async fn a_flipped_bit_in_the_weights_is_refused() {
    let mut weights = Embedded::new().weights.to_vec();
    weights[200_000] ^= 1;
    let source = Embedded {
        weights: weights.leak(),
    };
    let error = load(&source, &LoadOptions::default())
        .await
        .err()
        .expect("the digest differs");
    assert_eq!(error.code(), "weights-corrupt", "{error}");
}

#[wasm_bindgen_test]
async fn every_wanted_feature_of_the_adapter_is_enabled_on_the_device() {
    let look = Function::new_no_args(
        "return navigator.gpu.requestAdapter().then(adapter => adapter.features)",
    );
    let promise: Promise = look.call0(&JsValue::UNDEFINED).unwrap().unchecked_into();
    let features = JsFuture::from(promise).await.unwrap();
    let has = Reflect::get(&features, &"has".into())
        .unwrap()
        .unchecked_into::<Function>();
    let offered: Vec<&str> = monarch_runtime::WANTED_FEATURES
        .into_iter()
        .filter(|name| has.call1(&features, &(*name).into()).unwrap().is_truthy())
        .collect();
    assert!(
        offered.contains(&"subgroups"),
        "this browser offers {offered:?}"
    );

    let info = load(&Embedded::new(), &LoadOptions::default())
        .await
        .unwrap()
        .info();
    assert_eq!(info.adapter.features, offered);
    assert_eq!(info.adapter.enabled_features, offered);
    assert!(info.adapter.subgroup_size >= 4);

    let device = DeviceOptions {
        allow_f16: false,
        allow_subgroups: false,
        allow_timestamps: false,
        ..DeviceOptions::default()
    };
    let options = LoadOptions {
        device,
        ..LoadOptions::default()
    };
    let info = load(&Embedded::new(), &options).await.unwrap().info();
    assert_eq!(info.adapter.features, offered);
    assert_eq!(info.adapter.enabled_features, Vec::<String>::new());
    assert_eq!(info.adapter.subgroup_size, 0);
}
