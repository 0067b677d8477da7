//! Tests of the public interface, on the small trained model's text files.

mod files;
mod golden;
mod stream;
mod template;

use std::path::Path;

use monarch_text::{Text, TextError, TextFiles};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// A file of the small trained model.
fn model_file(name: &str) -> String {
    read(&format!("../../models/tiny-lfm2/{name}"))
}

/// Results that transformers computed, see `tests/golden/README.md`.
fn golden<T: DeserializeOwned>(name: &str) -> Vec<T> {
    let cases: Vec<T> = serde_json::from_str(&read(&format!("../../tests/golden/{name}")))
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(!cases.is_empty(), "{name} has no cases");
    cases
}

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The small trained model's text.
fn tiny() -> Text {
    Text::new(&TextFiles {
        tokenizer: &model_file("tokenizer.json"),
        tokenizer_config: Some(&model_file("tokenizer_config.json")),
        chat_template: Some(&model_file("chat_template.jinja")),
        generation_config: Some(&model_file("generation_config.json")),
    })
    .expect("the small model's files")
}

/// The small model's tokenizer with other files beside it.
fn tiny_with(
    tokenizer_config: Option<&str>,
    chat_template: Option<&str>,
    generation_config: Option<&str>,
) -> Result<Text, TextError> {
    Text::new(&TextFiles {
        tokenizer: &model_file("tokenizer.json"),
        tokenizer_config,
        chat_template,
        generation_config,
    })
}

/// A `tokenizer.json` with `added` as the first ids and a token for every byte behind them.
/// Texts in `<|...|>` are special.
fn byte_tokenizer(added: &[&str]) -> Value {
    // GPT-2's alphabet: printable bytes stand for themselves, the others for U+0100 and up.
    let mut others = 0x100..;
    let alphabet = (0u8..=255).map(|byte| match byte {
        b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => char::from(byte),
        _ => others
            .next()
            .and_then(char::from_u32)
            .expect("68 characters"),
    });
    let tokens = added
        .iter()
        .map(|token| token.to_string())
        .chain(alphabet.map(String::from));
    let vocab: Map<String, Value> = tokens
        .enumerate()
        .map(|(id, token)| (token, json!(id)))
        .collect();
    let added: Vec<Value> = added
        .iter()
        .enumerate()
        .map(|(id, token)| {
            json!({
                "id": id, "content": token, "special": token.starts_with("<|"),
                "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            })
        })
        .collect();
    let byte_level = json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false,
    });
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": null, "pre_tokenizer": byte_level, "post_processor": null,
        "decoder": byte_level, "model": { "type": "BPE", "vocab": vocab, "merges": [] },
    })
}
