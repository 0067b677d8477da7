//! The WebAssembly edge: JavaScript values in, JavaScript values out.
//!
//! In go an address and plain option objects; out come promises of plain objects and a
//! [`WasmModel`]. The public API is the TypeScript in `ts/`, which checks options, queues calls and
//! makes streams; nothing here is meant to be called by anyone else. `monarch-engine` is below and
//! does the work: this crate knows no layers, sections or kernels.
//!
//! Errors cross as plain `{ code, message, details }` objects. A panic leaves the promise of an
//! asynchronous call unsettled, so the panic hook tells JavaScript, which rejects it; see [`set_up`].
//!
//! ```ts
//! // ts/load.ts, in short
//! setUp((panic) => rejectEverything(panic));
//! const model = await WasmModel.load(url, { contextTokens: 512 }, onProgress, signal);
//! const completion = await model.generate({ text: "Once" }, { maxTokens: 8 }, onChunk, signal);
//! ```
#![cfg(target_arch = "wasm32")]

mod error;
mod panic;
mod signal;

use js_sys::Function;
use monarch_engine::{Chat, DeviceOptions, GenerateOptions, LoadOptions, Model, Prompt};
use monarch_weights::WebSource;
use serde::{Deserialize, Serialize};
use wasm_bindgen::prelude::*;
use web_sys::AbortSignal;

use crate::signal::CancelOnAbort;

pub use crate::panic::set_up;

/// Whether the model can run here: a `Support` object.
///
/// Rejects when the manifest cannot be had or read.
#[wasm_bindgen]
pub async fn support(
    url: String,
    device: JsValue,
    signal: AbortSignal,
) -> Result<JsValue, JsValue> {
    let device: DeviceOptions = from_js("device", device)?;
    let cancel = CancelOnAbort::new(&signal);
    let verdict = monarch_engine::support(&WebSource::new(), &url, &device, cancel.flag())
        .await
        .map_err(|error| error::to_js(&error))?;
    to_js(&verdict)
}

/// A model on the GPU. One call at a time: a second one while the first runs throws.
#[wasm_bindgen]
pub struct WasmModel {
    model: Model,
}

/// What JavaScript asks to continue: an object with one key.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum PromptArgument {
    Text(String),
    Ids(Vec<u32>),
    Chat(Chat),
}

#[wasm_bindgen]
impl WasmModel {
    /// Loads the model of the manifest at `url`, an absolute address.
    ///
    /// `on_progress` is called with `Progress` objects; what it throws is ignored.
    pub async fn load(
        url: String,
        options: JsValue,
        on_progress: Function,
        signal: AbortSignal,
    ) -> Result<WasmModel, JsValue> {
        let options: LoadOptions = from_js("options", options)?;
        let cancel = CancelOnAbort::new(&signal);
        let mut report = |progress| {
            // The caller's own function: whether it threw is the caller's business.
            let _ = to_js(&progress)
                .and_then(|progress| on_progress.call1(&JsValue::UNDEFINED, &progress));
        };
        Model::load(
            &WebSource::new(),
            &url,
            &options,
            &mut report,
            cancel.flag(),
        )
        .await
        .map(|model| WasmModel { model })
        .map_err(|error| error::to_js(&error))
    }

    /// Facts about the model: a `ModelInfo` object.
    pub fn info(&self) -> Result<JsValue, JsValue> {
        to_js(&self.model.info())
    }

    /// Continues `prompt`, hands every `Chunk` to `on_chunk`, and gives the `Completion`.
    ///
    /// An aborted `signal` ends the generation early; that is no error here. What `on_chunk` throws
    /// ends it too, and is what the promise rejects with.
    pub async fn generate(
        &mut self,
        prompt: JsValue,
        options: JsValue,
        on_chunk: Function,
        signal: AbortSignal,
    ) -> Result<JsValue, JsValue> {
        let prompt = match from_js("prompt", prompt)? {
            PromptArgument::Text(text) => Prompt::Text(text),
            PromptArgument::Ids(ids) => Prompt::Ids(ids),
            PromptArgument::Chat(chat) => Prompt::Chat(chat),
        };
        let options: GenerateOptions = from_js("options", options)?;
        let cancel = CancelOnAbort::new(&signal);
        let mut generation = self
            .model
            .generate(&prompt, &options, cancel.flag())
            .map_err(|error| error::to_js(&error))?;
        while let Some(chunk) = generation
            .next()
            .await
            .map_err(|error| error::to_js(&error))?
        {
            on_chunk.call1(&JsValue::UNDEFINED, &to_js(&chunk)?)?;
        }
        to_js(&generation.completion())
    }
}

/// Reads an argument. The TypeScript side has checked it, so a failure is a caller that went past it.
fn from_js<T: for<'de> Deserialize<'de>>(
    argument: &'static str,
    value: JsValue,
) -> Result<T, JsValue> {
    serde_wasm_bindgen::from_value(value).map_err(|error| error::argument(argument, &error))
}

/// Plain objects and arrays; absent values become `undefined`, as an optional property reads.
fn to_js<T: Serialize>(value: &T) -> Result<JsValue, JsValue> {
    let serializer = serde_wasm_bindgen::Serializer::new().serialize_maps_as_objects(true);
    Ok(value.serialize(&serializer)?)
}
