//! `monarch verify`: is a packed model whole and sound?

use std::path::PathBuf;

use anyhow::bail;
use monarch_pack::{Packed, verify};

use crate::{output, progress};

/// Check file length, digests, numbers and text files of a packed model
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Packed folder
    #[arg(value_name = "DIR")]
    model: PathBuf,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let packed = Packed::open(&args.model)?;
    let bar = progress::bytes("verifying", packed.spec().weight_bytes);
    let report = verify(&packed, &mut |done_bytes| bar.set_position(done_bytes))?;
    bar.finish_and_clear();

    for finding in &report.findings {
        output::line(finding.to_string())?;
    }
    output::line(format!(
        "{} sections, {} bytes: {} digests checked, {} sections without one, {} text files",
        report.sections,
        packed.spec().weight_bytes,
        report.digests,
        report.sections - report.digests,
        report.text_files
    ))?;
    match report.findings.len() {
        0 => Ok(()),
        1 => bail!("{}: 1 fault", args.model.display()),
        faults => bail!("{}: {faults} faults", args.model.display()),
    }
}
