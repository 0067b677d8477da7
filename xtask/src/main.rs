//! `cargo xtask`: the only door to building, checking, testing and running the project.
//!
//! Goes in: a command from the list below. Comes out: built files, a verdict, or a running page. Every command first
//! sets up what it needs ([`setup`]), so each of them works on a fresh machine that has Rust and Node.
//!
//! ```text
//! cargo xtask demo                     build, serve the page with the small model, print its URL
//! cargo xtask test                     everything the project checks about itself
//! cargo xtask check                    the quick part of it: no test runs
//! cargo xtask rules                    the quickest: ARCHITECTURE.md's rules, nothing is compiled
//! cargo xtask web | site | size        the npm package, the static page, their sizes against the budget
//! cargo xtask headless --model DIR …   generate in a real Chromium through the built package
//! ```
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program: data on stdout, messages on stderr"
)]

mod check;
mod description;
mod headless;
mod package;
mod platform;
mod process;
mod rules;
mod setup;
mod suite;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::workspace::Workspace;

/// Build, check, test and run monarch-webgpu.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Install what building and testing need, or say what to install
    Setup,
    /// Formatting, lints, TypeScript, and the rules of ARCHITECTURE.md
    Check,
    /// The rules of ARCHITECTURE.md alone: seconds, nothing is compiled
    Rules,
    /// Everything: check, native tests, GPU tests on two software adapters, browser tests, page tests
    Test(suite::Arguments),
    /// Build the npm package: wasm-pack, wasm-opt, tsc
    Web,
    /// Build the static page, with the small model, into dist/site
    Site,
    /// Build the page, serve it with the small model, print its URL
    Demo(package::DemoArguments),
    /// Print the sizes of the wasm and JavaScript, raw and compressed; fail above the budget
    Size,
    /// Generate in a real Chromium through the built package
    Headless(headless::Arguments),
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    let workspace = Workspace::find();
    match command {
        Command::Setup => setup::install(&workspace, setup::Needs::ALL),
        Command::Check => check::run_all(&workspace),
        Command::Rules => check::rules_alone(&workspace),
        Command::Test(arguments) => suite::run(&workspace, &arguments),
        Command::Web => package::web(&workspace),
        Command::Site => package::site(&workspace).map(drop),
        Command::Demo(arguments) => package::demo(&workspace, &arguments),
        Command::Size => package::size(&workspace),
        Command::Headless(arguments) => headless::run(&workspace, &arguments),
    }
}
