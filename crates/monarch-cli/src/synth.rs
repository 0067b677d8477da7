//! `monarch synth`: a model whose weights are a formula, for tests and benchmarks.

use clap::builder::PossibleValuesParser;
use monarch_manifest::Source;
use monarch_pack::{Checkpoint, SHAPE_NAMES};

use crate::layout::{self, LayoutArgs};

/// Pack a model of a known shape whose weights are a formula
///
/// The numbers are the same on every machine and mean nothing: the model is for tests and
/// benchmarks. It has no tokenizer.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Shape of the model
    #[arg(long, value_parser = PossibleValuesParser::new(SHAPE_NAMES))]
    shape: String,
    #[command(flatten)]
    layout: LayoutArgs,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let checkpoint = Checkpoint::synth(&args.shape)?;
    let source = Source {
        repository: Some(format!("formula:{}", args.shape)),
        revision: None,
        licence: None,
        quantiser: Some(layout::quantiser()),
    };
    args.layout.pack(&checkpoint, source)?;
    Ok(())
}
