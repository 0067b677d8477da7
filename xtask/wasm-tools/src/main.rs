//! `wasm-bindgen` and `wasm-bindgen-test-runner` in one binary, told apart by the name it was started under.

use std::path::Path;

fn main() -> anyhow::Result<()> {
    let args: Vec<_> = std::env::args_os().collect();
    let started_as = args.first().and_then(|name| Path::new(name).file_stem()).and_then(|stem| stem.to_str());
    match started_as {
        Some("wasm-bindgen") => wasm_bindgen_cli::wasm_bindgen::run_cli_with_args(args),
        Some("wasm-bindgen-test-runner") => wasm_bindgen_cli::wasm_bindgen_test_runner::run_cli_with_args(args),
        other => anyhow::bail!("started as {other:?}; link this binary as `wasm-bindgen` or `wasm-bindgen-test-runner`"),
    }
}
