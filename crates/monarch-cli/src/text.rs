//! The text files of a model in a local folder.

use std::path::Path;

use anyhow::Context as _;
use monarch_manifest::TextUrls;
use monarch_pack::{MANIFEST_FILE, read_manifest};
use monarch_text::{Text, TextFile, TextFiles};
use monarch_weights::{Cancel, FolderSource, Source as _};

/// The tokenizer of a packed or a Hugging Face folder.
pub(crate) fn open_folder(folder: &Path) -> anyhow::Result<Text> {
    let urls = if folder.join(MANIFEST_FILE).is_file() {
        read_manifest(folder)?.spec.text
    } else {
        TextUrls::default()
    };
    open(folder, &urls)?
        .with_context(|| format!("{} has no {}", folder.display(), TextFile::Tokenizer))
}

/// The tokenizer in `folder`; none when there is no `tokenizer.json` and the manifest names none.
pub(crate) fn open(folder: &Path, urls: &TextUrls) -> anyhow::Result<Option<Text>> {
    let Some(tokenizer) = read(folder, TextFile::Tokenizer, &urls.tokenizer)? else {
        return Ok(None);
    };
    let tokenizer_config = read(folder, TextFile::TokenizerConfig, &urls.tokenizer_config)?;
    let chat_template = read(folder, TextFile::ChatTemplate, &urls.chat_template)?;
    let generation_config = read(folder, TextFile::GenerationConfig, &urls.generation_config)?;
    Ok(Some(Text::new(&TextFiles {
        tokenizer: &tokenizer,
        tokenizer_config: tokenizer_config.as_deref(),
        chat_template: chat_template.as_deref(),
        generation_config: generation_config.as_deref(),
    })?))
}

/// One text file. One that the manifest names has to be there, one under its usual name need not.
fn read(folder: &Path, file: TextFile, url: &Option<String>) -> anyhow::Result<Option<String>> {
    if url.is_none() && !folder.join(file.name()).is_file() {
        return Ok(None);
    }
    let source = FolderSource::new(folder);
    let url = source.resolve(MANIFEST_FILE, url.as_deref().unwrap_or(file.name()))?;
    let text = pollster::block_on(source.read_text(&url, file.limit_bytes(), &Cancel::new()))?;
    Ok(Some(text))
}
