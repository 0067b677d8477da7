//! `monarch tokenize`: text or a chat to token ids.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use monarch_text::{Chat, Message, Text};
use serde::{Deserialize as _, Serialize};
use serde_json::Value;

use crate::{output, text};

/// Print the token ids of a text or a chat
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Packed folder, or a Hugging Face folder
    #[arg(value_name = "DIR")]
    model: PathBuf,
    #[command(flatten)]
    input: Input,
    /// One JSON object: {"ids"}, for a chat {"rendered", "ids"}
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Input {
    /// Text; the begin token that the tokenizer puts in front is among the ids
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    /// JSON file: a list of messages, which the assistant is to answer, or an object with
    /// "messages" and, if wanted, "tools" and "add_generation_prompt"
    #[arg(long, value_name = "MESSAGES.json")]
    chat: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report {
    #[serde(skip_serializing_if = "Option::is_none")]
    rendered: Option<String>,
    ids: Vec<u32>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let text = text::open_folder(&args.model)?;
    let report = report(&text, &args.input)?;
    if args.json {
        return output::json(&report);
    }
    if let Some(rendered) = &report.rendered {
        output::line(rendered)?;
    }
    let ids: Vec<String> = report.ids.iter().map(u32::to_string).collect();
    output::line(ids.join(","))
}

fn report(text: &Text, input: &Input) -> anyhow::Result<Report> {
    match input {
        Input {
            text: Some(plain), ..
        } => Ok(Report {
            rendered: None,
            ids: text.tokenize(plain, true)?,
        }),
        Input {
            chat: Some(path), ..
        } => {
            let chat = read_chat(path).with_context(|| format!("reading {}", path.display()))?;
            Ok(Report {
                rendered: Some(text.render_chat(&chat)?),
                ids: text.tokenize_chat(&chat)?,
            })
        }
        Input {
            text: None,
            chat: None,
        } => unreachable!("the argument group requires one of them"),
    }
}

fn read_chat(path: &Path) -> anyhow::Result<Chat> {
    let json: Value = serde_json::from_str(&fs::read_to_string(path)?)?;
    if json.is_array() {
        Ok(Chat::new(Vec::<Message>::deserialize(json)?))
    } else {
        Ok(Chat::deserialize(json)?)
    }
}
