//! Data on stdout, messages on stderr.
//!
//! A reader that goes away (`monarch inspect … | head`) is no failure of ours: writing to a closed
//! stdout ends the program quietly, as if it had been stopped by the signal.

use std::io::{self, ErrorKind, Write};

use serde::Serialize;

/// Writes a line of data.
pub(crate) fn line(text: impl AsRef<str>) -> anyhow::Result<()> {
    checked(writeln!(io::stdout().lock(), "{}", text.as_ref()))
}

/// Writes a piece of a line at once, for text that comes bit by bit.
pub(crate) fn piece(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    checked(
        stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush()),
    )
}

/// Writes a value as one line of JSON.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    line(serde_json::to_string(value)?)
}

/// Writes a message for a person.
pub(crate) fn message(text: impl AsRef<str>) {
    // With stderr gone there is nobody left to tell.
    let _ = writeln!(io::stderr().lock(), "{}", text.as_ref());
}

/// Writes an error with its causes, the last one being the deepest.
pub(crate) fn error(error: &anyhow::Error) {
    message(format!("error: {error:#}"));
}

fn checked(result: io::Result<()>) -> anyhow::Result<()> {
    /// What a shell reports for a program that SIGPIPE ended.
    const SIGPIPE_STATUS: i32 = 128 + 13;
    match result {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(SIGPIPE_STATUS),
        other => Ok(other?),
    }
}
