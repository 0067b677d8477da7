//! Arguments that `convert` and `synth` share, and the packing itself.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::ValueEnum;
use monarch_manifest::{ScaleType, Source};
use monarch_pack::{Checkpoint, Layout, LayoutOptions, PackOptions, pack};

use crate::{output, progress};

/// Where a packed model goes and how it is laid out.
#[derive(clap::Args)]
pub(crate) struct LayoutArgs {
    /// Folder to write manifest.json and weights.bin into
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Set and order of the sections
    #[arg(long, value_enum, default_value = "default")]
    layout: LayoutName,
    /// Number type of the block scales [default: f16, in the seed's layout f32]
    #[arg(long, value_enum)]
    scales: Option<ScaleName>,
    /// Prompt and output tokens of one conversation [default: 4096, in the seed's layout 2112, or what the model allows]
    #[arg(long, value_name = "TOKENS")]
    context: Option<u32>,
}

#[derive(Clone, Copy, ValueEnum)]
enum LayoutName {
    /// Small: nothing that can be derived at load
    Default,
    /// The table of the public LFM2.5-230M engine
    Seed,
}

#[derive(Clone, Copy, ValueEnum)]
enum ScaleName {
    F16,
    F32,
}

impl LayoutArgs {
    /// Packs `checkpoint` with a progress bar, says on stderr what was written, and returns where.
    pub(crate) fn pack(self, checkpoint: &Checkpoint, source: Source) -> anyhow::Result<PathBuf> {
        let options = PackOptions {
            layout: LayoutOptions {
                layout: match self.layout {
                    LayoutName::Default => Layout::Default,
                    LayoutName::Seed => Layout::Seed,
                },
                scales: self.scales.map(|scales| match scales {
                    ScaleName::F16 => ScaleType::F16,
                    ScaleName::F32 => ScaleType::F32,
                }),
                context_tokens: self.context,
            },
            self_test: None,
            source: Some(source),
        };
        let bar = progress::bytes("packing", 0);
        let manifest = pack(checkpoint, &self.out, &options, &mut |progress| {
            bar.set_length(progress.total_bytes);
            bar.set_position(progress.done_bytes);
        });
        bar.finish_and_clear();
        let spec = manifest
            .with_context(|| format!("nothing was written to {}", self.out.display()))?
            .spec;
        output::message(format!(
            "{}: {} sections, {} bytes",
            self.out.display(),
            spec.sections.len(),
            spec.weight_bytes
        ));
        Ok(self.out)
    }
}

/// What goes into the manifest as the program and the rule that made the codes.
pub(crate) fn quantiser() -> String {
    format!(
        "monarch {}: 4 bits in blocks of 32, symmetric; embedding and head asymmetric",
        env!("CARGO_PKG_VERSION")
    )
}
