//! `monarch logits`: the numbers before a choice is made.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use serde::Serialize;

use crate::backend::{Backend, Device, Positions};
use crate::output;

/// Print the logits after token ids, as one JSON object
///
/// {"ids": [...], "logits": [[...], ...]}, one row of as many numbers as the vocabulary has ids for
/// each wanted position.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Packed folder, or a Hugging Face folder, whose weights are then not quantised
    #[arg(value_name = "DIR")]
    model: PathBuf,
    /// Token ids, separated by commas; none is added to them
    #[arg(long, value_delimiter = ',', required = true, value_name = "ID,ID")]
    ids: Vec<u32>,
    /// Positions whose logits are printed
    #[arg(long, value_enum, default_value = "last")]
    positions: Positions,
    /// Where the forward pass runs
    #[arg(long, value_enum, default_value = "cpu")]
    device: Device,
    /// File to write instead of stdout
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report<'a> {
    ids: &'a [u32],
    logits: Vec<&'a [f32]>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let mut backend = Backend::open(&args.model, args.device)?;
    let logits = backend.logits(&args.ids, args.positions)?;
    let vocab = backend.vocab() as usize;
    // JSON has no word for these: they would silently become null.
    if let Some(index) = logits.iter().position(|logit| !logit.is_finite()) {
        let (row, id) = (index / vocab, index % vocab);
        ensure!(
            false,
            "row {row}: the logit of id {id} is {}, which JSON cannot hold",
            logits[index]
        );
    }
    let report = Report {
        ids: &args.ids,
        logits: logits.chunks(vocab).collect(),
    };
    let Some(path) = &args.out else {
        return output::json(&report);
    };

    let written = File::create(path)
        .map_err(anyhow::Error::from)
        .and_then(|file| {
            let mut file = BufWriter::new(file);
            serde_json::to_writer(&mut file, &report)?;
            Ok(file.flush()?)
        });
    written.with_context(|| format!("writing {}", path.display()))?;
    let rows = report.logits.len();
    output::message(format!("{}: {rows} rows of {vocab} logits", path.display()));
    Ok(())
}
