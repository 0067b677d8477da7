//! Planning, loading, and the sources of native programs.
#![cfg(not(target_arch = "wasm32"))]

mod folder;
mod http;
mod load;
mod plan;
mod server;
mod support;
