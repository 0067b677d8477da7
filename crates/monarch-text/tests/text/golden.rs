//! Equality with transformers, field by field, for the small trained model.

use monarch_text::{Chat, Message, Text, TextStream};
use serde::Deserialize;
use serde_json::Value;

use crate::{golden, model_file, tiny, tiny_with};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenizerCase {
    text: String,
    ids: Vec<u32>,
    ids_no_bos: Vec<u32>,
    decoded: String,
    decoded_skip_special: String,
    token_bytes_hex: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamCase {
    source: Option<String>,
    bytes_hex: String,
    ids: Vec<u32>,
    pieces: Vec<String>,
    flush: String,
    whole: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChatCase {
    messages: Vec<Message>,
    tools: Option<Vec<Value>>,
    add_generation_prompt: bool,
    rendered: String,
    ids: Vec<u32>,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn text_becomes_the_same_ids() {
    let text = tiny();
    for case in golden::<TokenizerCase>("text_tokenizer.json") {
        assert_eq!(
            text.tokenize(&case.text, true).unwrap(),
            case.ids,
            "{:?}",
            case.text
        );
        assert_eq!(
            text.tokenize(&case.text, false).unwrap(),
            case.ids_no_bos,
            "{:?}",
            case.text
        );
    }
}

#[test]
fn ids_become_the_same_text() {
    let text = tiny();
    for case in golden::<TokenizerCase>("text_tokenizer.json") {
        assert_eq!(text.detokenize(&case.ids, false).unwrap(), case.decoded);
        assert_eq!(
            text.detokenize(&case.ids, true).unwrap(),
            case.decoded_skip_special
        );
        let bytes: Vec<String> = case
            .ids_no_bos
            .iter()
            .map(|&id| hex(text.token_bytes(id).unwrap()))
            .collect();
        assert_eq!(bytes, case.token_bytes_hex, "{:?}", case.text);
    }
}

#[test]
fn streamed_pieces_are_the_same() {
    let text = tiny();
    for case in golden::<StreamCase>("text_stream.json") {
        let bytes: Vec<u8> = case
            .ids
            .iter()
            .flat_map(|&id| text.token_bytes(id).unwrap())
            .copied()
            .collect();
        assert_eq!(hex(&bytes), case.bytes_hex, "{:?}", case.source);

        let mut stream = TextStream::new(&[], true).unwrap();
        let pieces: Vec<String> = case
            .ids
            .iter()
            .map(|&id| stream.push(&text, id).unwrap().text)
            .collect();
        assert_eq!(pieces, case.pieces, "{:?}", case.source);
        assert_eq!(stream.finish(), case.flush, "{:?}", case.source);
        assert_eq!(text.detokenize(&case.ids, false).unwrap(), case.whole);
        if let Some(source) = &case.source {
            assert_eq!(&text.tokenize(source, false).unwrap(), &case.ids);
        }
    }
}

#[test]
fn chats_become_the_same_prompts_and_ids() {
    chats_are_the_same(&tiny());
}

#[test]
fn chats_are_the_same_with_the_template_of_the_configuration() {
    chats_are_the_same(&tiny_with(Some(&model_file("tokenizer_config.json")), None, None).unwrap());
}

fn chats_are_the_same(text: &Text) {
    for case in golden::<ChatCase>("text_chat.json") {
        let chat = Chat {
            messages: case.messages,
            tools: case.tools,
            add_generation_prompt: case.add_generation_prompt,
            ..Chat::default()
        };
        assert_eq!(text.render_chat(&chat).unwrap(), case.rendered);
        let ids = text.tokenize_chat(&chat).unwrap();
        assert_eq!(ids, case.ids, "{:?}", case.rendered);
        // Pitfall E7: two begin tokens, or none, cost quality.
        assert_eq!(
            ids.iter()
                .filter(|&&id| Some(id) == text.begin_id())
                .count(),
            1
        );
    }
}
