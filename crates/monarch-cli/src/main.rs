//! The `monarch` program: packs, inspects, verifies and runs models on the command line.
//!
//! One file per command, each with its `Args` and its `run`. Data goes to stdout, messages and
//! progress to stderr, and the exit status is 0 only on success (1 for a failure, 2 for arguments
//! that make no sense). What a library crate could hold is not here.

mod backend;
mod convert;
mod cpu;
mod generate;
mod gpu;
mod inspect;
mod layout;
mod logits;
mod output;
mod progress;
mod self_test;
mod serve;
mod synth;
mod text;
mod tokenize;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// LFM2 language models on WebGPU: pack, inspect, verify and run them.
#[derive(Parser)]
#[command(name = "monarch", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Convert(convert::Args),
    Synth(synth::Args),
    Inspect(inspect::Args),
    Verify(verify::Args),
    Tokenize(tokenize::Args),
    Generate(generate::Args),
    Logits(logits::Args),
    Serve(serve::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Convert(args) => convert::run(args),
        Command::Synth(args) => synth::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Verify(args) => verify::run(args),
        Command::Tokenize(args) => tokenize::run(args),
        Command::Generate(args) => generate::run(args),
        Command::Logits(args) => logits::run(args),
        Command::Serve(args) => serve::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::error(&error);
            ExitCode::FAILURE
        }
    }
}
