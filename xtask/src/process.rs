//! Running other programs: what was run is shown, what failed is named.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result, bail};

/// The command as a person would type it, without its path settings.
pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Runs to the end with the terminal's own streams.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    eprintln!("$ {}", shown(command));
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| cannot_start(command))?;
    succeed(command, status)
}

/// Becomes the command, for a server that runs until it is stopped: stopping this process stops it.
pub(crate) fn become_command(command: &mut Command) -> Result<()> {
    eprintln!("$ {}", shown(command));
    #[cfg(unix)]
    {
        use std::os::unix::process::CommandExt;
        Err(command.exec()).with_context(|| cannot_start(command))
    }
    #[cfg(not(unix))]
    {
        let status = command.status().with_context(|| cannot_start(command))?;
        succeed(command, status)
    }
}

/// Runs to the end and returns stdout; stderr is shown.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| cannot_start(command))?;
    succeed(command, output.status)?;
    String::from_utf8(output.stdout)
        .with_context(|| format!("`{}` printed bytes that are not text", shown(command)))
}

/// Runs to the end with both streams in `log`, whose text is shown only when the command fails.
pub(crate) fn run_logged(command: &mut Command, log: &Path) -> Result<()> {
    let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let copy = file
        .try_clone()
        .with_context(|| format!("cannot write {}", log.display()))?;
    let status = command
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(copy)
        .status()
        .with_context(|| cannot_start(command))?;
    if !status.success() {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        bail!("`{}` failed ({status}):\n{text}", shown(command));
    }
    Ok(())
}

/// Runs to the end, echoing both streams line by line and handing each line to `on_line` as well.
pub(crate) fn run_lines(
    command: &mut Command,
    on_line: &mut dyn FnMut(&str),
) -> Result<ExitStatus> {
    eprintln!("$ {}", shown(command));
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| cannot_start(command))?;
    let (sender, lines) = mpsc::channel();
    let streams: [Option<Box<dyn Read + Send>>; 2] = [
        child
            .stdout
            .take()
            .map(|stream| Box::new(stream) as Box<dyn Read + Send>),
        child
            .stderr
            .take()
            .map(|stream| Box::new(stream) as Box<dyn Read + Send>),
    ];
    for stream in streams.into_iter().flatten() {
        let sender = sender.clone();
        thread::spawn(move || {
            let mut reader = BufReader::new(stream);
            let mut line = Vec::new();
            // Bytes, not `lines()`: a test may print what is not UTF-8, and the rest must still be read.
            while let Ok(1..) = reader.read_until(b'\n', &mut line) {
                let text = String::from_utf8_lossy(&line)
                    .trim_end_matches(['\n', '\r'])
                    .to_owned();
                line.clear();
                if sender.send(text).is_err() {
                    break;
                }
            }
        });
    }
    drop(sender);
    for line in lines {
        eprintln!("{line}");
        on_line(&line);
    }
    child
        .wait()
        .with_context(|| format!("lost `{}`", shown(command)))
}

/// Whether the command starts and succeeds, with nothing shown.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn succeed(command: &Command, status: ExitStatus) -> Result<()> {
    if !status.success() {
        bail!("`{}` failed ({status})", shown(command));
    }
    Ok(())
}

fn cannot_start(command: &Command) -> String {
    format!("cannot start `{}`", command.get_program().to_string_lossy())
}
