//! `monarch verify`: is a packed model whole and sound?

use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use monarch_manifest::TEXT_LIMIT_BYTES;
use monarch_pack::{MANIFEST_FILE, Packed, TEXT_FILES, WEIGHTS_FILE, verify};
use monarch_weights::{Cancel, HttpSource, Source, WeightsError};
use tempfile::TempDir;

use crate::{output, progress, self_test, text};

/// Check file length, digests, numbers, text files and self-test of a packed model
///
/// A model behind a URL is fetched into a temporary folder first. Faults go to stdout, one a line.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Packed folder, or the http(s) URL of one or of its manifest
    #[arg(value_name = "DIR|URL")]
    model: String,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let is_url = args.model.starts_with("http://") || args.model.starts_with("https://");
    let fetched = if is_url {
        Some(pollster::block_on(fetch(&args.model))?)
    } else {
        None
    };
    let folder = match &fetched {
        Some(fetched) => fetched.path().to_owned(),
        None => PathBuf::from(&args.model),
    };

    let packed = Packed::open(&folder)?;
    let bar = progress::bytes("verifying", packed.spec().weight_bytes);
    let report = verify(&packed, &mut |done_bytes| bar.set_position(done_bytes))?;
    bar.finish_and_clear();

    let mut faults: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    // Files that parse may still be no tokenizer, or no template.
    if faults.is_empty()
        && let Err(error) = text::open(&folder, &packed.spec().text)
    {
        faults.push(format!("{error:#}"));
    }
    // Numbers that are known to be wrong say nothing more by what they continue with.
    let self_test = packed
        .spec()
        .self_test
        .as_ref()
        .filter(|_| faults.is_empty());
    if let Some(test) = self_test {
        let expected = &test.continuation_ids;
        let found = self_test::continuation(&packed, &test.prompt_ids, expected.len())?;
        if let Some(at) = (0..expected.len()).find(|&at| found[at] != expected[at]) {
            faults.push(format!(
                "self-test: token {at} of the continuation is {}, the manifest says {}",
                found[at], expected[at]
            ));
        }
    }

    for fault in &faults {
        output::line(fault)?;
    }
    output::line(format!(
        "{} sections, {} bytes: {} digests checked, {} sections without one, {} text files, {}",
        report.sections,
        packed.spec().weight_bytes,
        report.digests,
        report.sections - report.digests,
        report.text_files,
        match (&packed.spec().self_test, self_test) {
            (None, _) => "no self-test".to_owned(),
            (Some(_), None) => "self-test not run".to_owned(),
            (Some(_), Some(test)) => format!("self-test of {} tokens", test.continuation_ids.len()),
        }
    ))?;
    match faults.len() {
        0 => Ok(()),
        1 => bail!("{}: 1 fault", args.model),
        count => bail!("{}: {count} faults", args.model),
    }
}

/// Fetches manifest, weights and text files of a model into a temporary folder.
async fn fetch(model: &str) -> anyhow::Result<TempDir> {
    /// Tokenizers of large vocabularies have about ten megabytes.
    const TEXT_FILE_LIMIT_BYTES: u64 = 64 << 20;

    let (source, cancel) = (HttpSource::new(), Cancel::new());
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let url = manifest_url(model);
    let manifest = source
        .read_text(&url, TEXT_LIMIT_BYTES as u64, &cancel)
        .await?;
    let mut manifest = monarch_manifest::parse(&manifest).with_context(|| url.clone())?;
    let spec = &mut manifest.spec;

    let weights_url = source.resolve(&url, &spec.weights_url)?;
    let path = folder.path().join(WEIGHTS_FILE);
    fetch_weights(&source, &weights_url, spec.weight_bytes, &path, &cancel).await?;

    let listed = [
        &spec.text.tokenizer,
        &spec.text.tokenizer_config,
        &spec.text.chat_template,
        &spec.text.generation_config,
    ];
    for (name, listed) in TEXT_FILES.into_iter().zip(listed) {
        let text_url = source.resolve(&url, listed.as_deref().unwrap_or(name))?;
        match source
            .read_text(&text_url, TEXT_FILE_LIMIT_BYTES, &cancel)
            .await
        {
            Ok(text) => fs::write(folder.path().join(name), text)?,
            // Only a file that the manifest does not name may be missing.
            Err(WeightsError::Status {
                status: 404 | 410, ..
            }) if listed.is_none() => {}
            Err(error) => return Err(error.into()),
        }
    }

    // In the temporary folder everything lies beside the manifest.
    spec.weights_url = WEIGHTS_FILE.to_owned();
    spec.text = Default::default();
    fs::write(folder.path().join(MANIFEST_FILE), manifest.render())?;
    Ok(folder)
}

async fn fetch_weights(
    source: &HttpSource,
    url: &str,
    weight_bytes: u64,
    path: &Path,
    cancel: &Cancel,
) -> anyhow::Result<()> {
    let mut file = File::create(path)?;
    let bar = progress::bytes("fetching", weight_bytes);
    let mut written: io::Result<()> = Ok(());
    source
        .read_range(url, 0..weight_bytes, cancel, &mut |chunk| {
            written = file.write_all(chunk);
            bar.inc(chunk.len() as u64);
            if written.is_ok() {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })
        .await?;
    written.with_context(|| format!("cannot write {}", path.display()))?;
    bar.finish_and_clear();
    Ok(())
}

/// The manifest's URL: as given when it names a JSON file, else that of a folder.
fn manifest_url(model: &str) -> String {
    let path = model.split(['?', '#']).next().unwrap_or(model);
    if path.ends_with(".json") {
        model.to_owned()
    } else {
        format!("{}/{MANIFEST_FILE}", path.trim_end_matches('/'))
    }
}
