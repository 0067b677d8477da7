//! Errors as `{ code, message, details }` objects; `ts/errors.ts` makes a `MonarchError` of them.

use std::error::Error;

use js_sys::{Array, Object, Reflect};
use monarch_engine::EngineError;
use wasm_bindgen::JsValue;

/// The engine's error with its stable code. The message tells the whole chain of causes.
pub(crate) fn to_js(error: &EngineError) -> JsValue {
    let (message, causes) = chain(error);
    object(error.code(), &message, &causes)
}

/// An argument that is not what this edge takes.
pub(crate) fn argument(name: &str, error: &serde_wasm_bindgen::Error) -> JsValue {
    object("invalid-option", &format!("{name}: {error}"), &[])
}

/// All messages from the outside in, joined, and those of the causes alone.
///
/// Some errors quote their source and also name it as such: a cause that has been said is left out.
fn chain(error: &dyn Error) -> (String, Vec<String>) {
    let mut message = error.to_string();
    let mut causes = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
        causes.push(text);
        next = cause.source();
    }
    (message, causes)
}

fn object(code: &str, message: &str, causes: &[String]) -> JsValue {
    let causes: Array = causes.iter().map(JsValue::from).collect();
    let details = with(Object::new(), "causes", &causes);
    let error = with(Object::new(), "code", &code.into());
    let error = with(error, "message", &message.into());
    with(error, "details", &details).into()
}

fn with(object: Object, key: &str, value: &JsValue) -> Object {
    // Setting a property of a fresh plain object does not fail.
    let _ = Reflect::set(&object, &key.into(), value);
    object
}
