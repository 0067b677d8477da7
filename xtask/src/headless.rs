//! `cargo xtask headless`: the built package in a real Chromium, for tests and benchmarks.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Map, Value, json};

use crate::description::Description;
use crate::package;
use crate::platform;
use crate::process::output;
use crate::setup::{self, Needs};
use crate::workspace::Workspace;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Folder with manifest.json, weights.bin and the text files
    #[arg(long)]
    model: PathBuf,
    #[command(flatten)]
    prompt: Prompt,
    /// Stop after this many new tokens
    #[arg(long)]
    max_tokens: Option<u32>,
    /// 0 takes the likeliest token every time
    #[arg(long)]
    temperature: Option<f32>,
    /// Start of the random numbers
    #[arg(long)]
    seed: Option<u64>,
    /// Go on after the model's end token
    #[arg(long)]
    ignore_eos: bool,
    /// Print the whole result as JSON instead of the text
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct Prompt {
    /// Text to continue
    #[arg(long)]
    prompt: Option<String>,
    /// One user message, through the model's chat template
    #[arg(long)]
    chat: Option<String>,
    /// Token ids to continue, taken as they are: 1,2,3
    #[arg(long, value_delimiter = ',')]
    ids: Option<Vec<u32>>,
}

pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    setup::install(workspace, Needs::BROWSER)?;
    package::web(workspace)?;
    let result = generate(
        workspace,
        &arguments.model,
        &arguments.request_prompt(),
        &arguments.options(),
    )?;
    if arguments.json {
        println!("{result}");
    } else {
        println!(
            "{}",
            result["text"]
                .as_str()
                .context("the page's result has no text")?
        );
    }
    Ok(())
}

impl Arguments {
    fn request_prompt(&self) -> Value {
        match &self.prompt {
            Prompt {
                prompt: Some(text), ..
            } => json!(text),
            Prompt {
                chat: Some(text), ..
            } => json!({ "chat": text }),
            Prompt { ids, .. } => json!({ "ids": ids }),
        }
    }

    /// Only what was asked for: everything else is the package's own default.
    fn options(&self) -> Value {
        let mut options = Map::new();
        if let Some(max_tokens) = self.max_tokens {
            options.insert("maxTokens".into(), json!(max_tokens));
        }
        if let Some(temperature) = self.temperature {
            options.insert("temperature".into(), json!(temperature));
        }
        if let Some(seed) = self.seed {
            options.insert("seed".into(), json!(seed));
        }
        if self.ignore_eos {
            options.insert("ignoreEos".into(), json!(true));
        }
        Value::Object(options)
    }
}

/// Runs one generation through the package as it is built now.
pub(crate) fn generate(
    workspace: &Workspace,
    model: &Path,
    prompt: &Value,
    options: &Value,
) -> Result<Value> {
    if !model.join("manifest.json").is_file() {
        bail!("{} has no manifest.json", model.display());
    }
    // The browser's server runs in the root; the folder was named from where the user stands.
    let model = std::path::absolute(model)
        .with_context(|| format!("cannot resolve {}", model.display()))?;
    let request = json!({
        "package": workspace.path(Description::read(workspace)?.wasm.out_dir),
        "model": model,
        "prompt": prompt,
        "options": options,
    });
    let mut node = workspace.node();
    node.arg(workspace.path("xtask/node/headless.mjs"))
        .arg(request.to_string());
    platform::select_chromium(&mut node)?;
    let text = output(&mut node)?;
    serde_json::from_str(&text)
        .with_context(|| format!("headless.mjs printed something else than JSON: {text:?}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::Arguments;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parse(line: &[&str]) -> Result<Arguments, clap::Error> {
        Line::try_parse_from([&["headless", "--model", "m"], line].concat())
            .map(|line| line.arguments)
    }

    #[test]
    fn each_kind_of_prompt_reaches_the_page() {
        assert_eq!(
            parse(&["--prompt", "Once"]).unwrap().request_prompt(),
            json!("Once")
        );
        assert_eq!(
            parse(&["--chat", "Hi"]).unwrap().request_prompt(),
            json!({ "chat": "Hi" })
        );
        assert_eq!(
            parse(&["--ids", "1,2"]).unwrap().request_prompt(),
            json!({ "ids": [1, 2] })
        );
    }

    #[test]
    fn no_prompt_and_two_prompts_are_refused() {
        assert!(parse(&[]).is_err());
        assert!(parse(&["--prompt", "a", "--chat", "b"]).is_err());
    }

    #[test]
    fn only_given_options_are_sent() {
        assert_eq!(parse(&["--prompt", "a"]).unwrap().options(), json!({}));
        let given = parse(&[
            "--prompt",
            "a",
            "--max-tokens",
            "4",
            "--temperature",
            "0",
            "--seed",
            "7",
            "--ignore-eos",
        ]);
        assert_eq!(
            given.unwrap().options(),
            json!({ "maxTokens": 4, "temperature": 0.0, "seed": 7, "ignoreEos": true })
        );
    }
}
