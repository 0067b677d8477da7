//! What happens when our own code panics.

use std::cell::RefCell;
use std::panic::PanicHookInfo;

use js_sys::Function;
use wasm_bindgen::prelude::*;

thread_local! {
    static ON_PANIC: RefCell<Option<Function>> = const { RefCell::new(None) };
}

/// Prepares this instance of the module: call it once, before anything else.
///
/// After a panic the instance is not to be trusted. `on_panic` gets the panic's message, at once and
/// while the stack is still in place, so it should only take note; the next call into the module
/// finds a fresh instance, which has to be set up again. Objects of the old one are dead.
#[wasm_bindgen(js_name = setUp)]
pub fn set_up(on_panic: Function) {
    ON_PANIC.set(Some(on_panic));
    std::panic::set_hook(Box::new(hook));
}

fn hook(info: &PanicHookInfo<'_>) {
    console_error_panic_hook::hook(info);
    wasm_bindgen::handler::schedule_reinit();
    let on_panic = ON_PANIC.take();
    if let Some(on_panic) = on_panic {
        // There is nobody left to tell that the listener failed too.
        let _ = on_panic.call1(&JsValue::UNDEFINED, &info.to_string().into());
    }
}
