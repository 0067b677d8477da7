//! `monarch generate`: continue a prompt.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use monarch_sample::Policy;
use monarch_text::{Chat, Message, Text};

use crate::backend::{Backend, Completion, Device, FinishReason, GenerateOptions};
use crate::output;

/// Continue a prompt and print the text as it comes
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Packed folder, or a Hugging Face folder, whose weights are then not quantised
    #[arg(value_name = "DIR")]
    model: PathBuf,
    #[command(flatten)]
    prompt: Prompt,
    /// New tokens at most [default: as many as fit the context]
    #[arg(long, value_name = "N")]
    max_tokens: Option<u32>,
    /// 0 takes the most likely token; above, tokens are drawn from the softmax of logits / T
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    temperature: f32,
    /// Same seed, same text [default: a new one each time]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Go on after an end token
    #[arg(long)]
    ignore_eos: bool,
    /// End before this text; may be given several times
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Where the forward pass runs
    #[arg(long, value_enum, default_value = "cpu")]
    device: Device,
    /// One JSON object at the end instead of text
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Prompt {
    /// Text to continue
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// Message of a user, put into the model's chat template
    #[arg(long, value_name = "TEXT")]
    chat: Option<String>,
    /// Token ids to continue, separated by commas; none is added to them
    #[arg(long, value_delimiter = ',', value_name = "ID,ID")]
    ids: Option<Vec<u32>>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let options = GenerateOptions {
        max_tokens: args.max_tokens,
        policy: Policy::new(args.temperature, seed(&args)?)?,
        stop: args.stop,
        ignore_eos: args.ignore_eos,
    };
    let mut backend = Backend::open(&args.model, args.device)?;
    let prompt = args.prompt.tokenize(backend.text())?;
    if backend.text().is_none() {
        output::message("no tokenizer.json: ids only, and no token ends the answer");
    }
    if args.json {
        let completion = backend.generate(&prompt, &options, &mut |_| Ok(()))?;
        return output::json(&completion);
    }
    let completion = backend.generate(&prompt, &options, &mut |text| output::piece(text))?;
    if completion.text.is_some() {
        output::line("")?;
    } else {
        let ids: Vec<String> = completion.ids.iter().map(u32::to_string).collect();
        output::line(ids.join(","))?;
    }
    output::message(summary(&completion));
    Ok(())
}

/// The seed given, or a fresh one when the choice needs it.
fn seed(args: &Args) -> anyhow::Result<u64> {
    match args.seed {
        Some(seed) => Ok(seed),
        None if args.temperature == 0.0 => Ok(0),
        None => getrandom::u64().context("no --seed, and the system has no random numbers"),
    }
}

impl Prompt {
    fn tokenize(&self, text: Option<&Text>) -> anyhow::Result<Vec<u32>> {
        match (self, text) {
            (Prompt { ids: Some(ids), .. }, _) => Ok(ids.clone()),
            (
                Prompt {
                    prompt: Some(prompt),
                    ..
                },
                Some(text),
            ) => Ok(text.tokenize(prompt, true)?),
            (
                Prompt {
                    chat: Some(message),
                    ..
                },
                Some(text),
            ) => Ok(text.tokenize_chat(&Chat::new(vec![Message::new("user", message)]))?),
            _ => bail!("this model has no tokenizer.json: give the prompt as --ids"),
        }
    }
}

fn summary(completion: &Completion) -> String {
    let why = match completion.finish_reason {
        FinishReason::Stop => "the text ended",
        FinishReason::Length => "no more tokens were allowed",
    };
    format!(
        "{} + {} tokens, {:.0} ms to the first, then {:.1} tokens/s; {why}",
        completion.usage.prompt_tokens,
        completion.usage.completion_tokens,
        completion.timings.ttft_ms,
        completion.timings.decode_tok_s
    )
}
