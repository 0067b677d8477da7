//! `monarch convert`: a Hugging Face checkpoint to a packed model.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use monarch_manifest::Source;
use monarch_pack::Checkpoint;

use crate::layout::{self, LayoutArgs};
use crate::self_test;

/// Pack a Hugging Face checkpoint: 4-bit weights, manifest, text files
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Checkpoint folder, or the id of a repository that is in the local Hugging Face cache
    #[arg(value_name = "FOLDER|REPO-ID")]
    checkpoint: String,
    /// Where the checkpoint comes from, recorded in the manifest [default: REPO-ID if one is given]
    #[arg(long, value_name = "NAME")]
    repository: Option<String>,
    /// Licence of the weights, recorded in the manifest
    #[arg(long, value_name = "NAME")]
    licence: Option<String>,
    /// Token ids of a prompt whose greedy continuation, computed on the CPU, goes into the manifest
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    self_test_ids: Vec<u32>,
    /// Tokens of that continuation
    #[arg(
        long,
        value_name = "N",
        default_value_t = 32,
        requires = "self_test_ids"
    )]
    self_test_tokens: usize,
    #[command(flatten)]
    layout: LayoutArgs,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let found = find(&args.checkpoint)?;
    let checkpoint = Checkpoint::open(&found.folder)
        .with_context(|| format!("cannot read checkpoint {}", args.checkpoint))?;
    let source = Source {
        repository: args.repository.or(found.repository),
        revision: found.revision,
        licence: args.licence,
        quantiser: Some(layout::quantiser()),
    };
    let out = args.layout.pack(&checkpoint, source)?;
    if !args.self_test_ids.is_empty() {
        self_test::record(&out, args.self_test_ids, args.self_test_tokens)?;
    }
    Ok(())
}

/// A checkpoint on this machine.
struct Found {
    folder: PathBuf,
    repository: Option<String>,
    revision: Option<String>,
}

/// Takes the argument as a folder, else as a repository in the local cache.
fn find(checkpoint: &str) -> anyhow::Result<Found> {
    let folder = Path::new(checkpoint);
    if folder.is_dir() {
        return Ok(Found {
            folder: folder.to_owned(),
            repository: None,
            revision: None,
        });
    }
    let Some((owner, name)) = checkpoint.split_once('/').filter(|(owner, name)| {
        let plain = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.contains('/');
        plain(owner) && plain(name)
    }) else {
        bail!("{checkpoint} is neither a folder nor a repository id of the form OWNER/NAME");
    };
    let cache = cache_folder().context("no home folder, so no Hugging Face cache")?;
    let repository = cache.join(format!("models--{owner}--{name}"));
    let main = repository.join("refs/main");
    let revision = std::fs::read_to_string(&main).with_context(|| {
        format!(
            "{checkpoint} is not a folder, and not in the Hugging Face cache at {}; \
             fetch it with: hf download {checkpoint}",
            cache.display()
        )
    })?;
    let revision = revision.trim().to_owned();
    Ok(Found {
        folder: repository.join("snapshots").join(&revision),
        repository: Some(checkpoint.to_owned()),
        revision: Some(revision),
    })
}

/// The cache that Hugging Face's own programs use, by the same environment variables.
fn cache_folder() -> Option<PathBuf> {
    let set = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    set("HF_HUB_CACHE")
        .or_else(|| Some(set("HF_HOME")?.join("hub")))
        .or_else(|| Some(std::env::home_dir()?.join(".cache/huggingface/hub")))
}
