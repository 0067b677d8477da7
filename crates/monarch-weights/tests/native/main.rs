//! Planning, loading, and the sources of native programs.
#![cfg(not(target_arch = "wasm32"))]
#![expect(
    clippy::single_range_in_vec_init,
    reason = "lists of one request are meant"
)]

mod folder;
mod http;
mod load;
mod plan;
mod server;
mod support;
