//! From JavaScript's way to stop a call to the engine's.

use monarch_engine::Cancel;
use wasm_bindgen::prelude::*;
use web_sys::AbortSignal;

/// A [`Cancel`] that is set when an `AbortSignal` is aborted. Dropping it stops listening.
pub(crate) struct CancelOnAbort {
    cancel: Cancel,
    signal: AbortSignal,
    listener: Closure<dyn FnMut()>,
}

impl CancelOnAbort {
    pub(crate) fn new(signal: &AbortSignal) -> Self {
        let cancel = Cancel::new();
        let flag = cancel.clone();
        let listener = Closure::new(move || flag.cancel());
        if signal.aborted() {
            cancel.cancel();
        } else {
            // An AbortSignal takes any listener.
            let _ =
                signal.add_event_listener_with_callback("abort", listener.as_ref().unchecked_ref());
        }
        Self {
            cancel,
            signal: signal.clone(),
            listener,
        }
    }

    pub(crate) fn flag(&self) -> &Cancel {
        &self.cancel
    }
}

impl Drop for CancelOnAbort {
    fn drop(&mut self) {
        let _ = self
            .signal
            .remove_event_listener_with_callback("abort", self.listener.as_ref().unchecked_ref());
    }
}
