//! What must hold in a real browser: in Chromium, and under Node with Chromium's WebGPU.
//!
//! Which of them is the runner's choice (`WASM_BINDGEN_USE_BROWSER`), so nothing is configured here.
#![cfg(target_arch = "wasm32")]

#[path = "web/kernels.rs"]
mod kernels;
#[path = "web/model.rs"]
mod model;
