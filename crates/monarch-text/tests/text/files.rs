//! What the files say beside the tokenizer, and what is refused.

use monarch_text::{Text, TextError, TextFile, TextFiles, TextStream};
use serde_json::{Value, json};

use crate::{byte_tokenizer, model_file, tiny, tiny_with};

fn with_generation(config: Value) -> Result<Text, TextError> {
    tiny_with(None, None, Some(&config.to_string()))
}

fn with_tokenizer(tokenizer: &str) -> Result<Text, TextError> {
    Text::new(&TextFiles {
        tokenizer,
        tokenizer_config: None,
        chat_template: None,
        generation_config: None,
    })
}

#[test]
fn the_small_models_files() {
    let text = tiny();
    assert_eq!(text.vocab_size(), 8192);
    assert_eq!(text.begin_id(), Some(1));
    // Pitfall E6: 7 is listed, 2 ends a text as well.
    assert_eq!(text.end_ids(), [2, 7]);
    assert!(text.has_chat_template());
    let defaults = text.generation_defaults();
    assert_eq!(defaults.do_sample, Some(true));
    assert_eq!(defaults.temperature, Some(0.7));
    assert_eq!(defaults.min_p, Some(0.1));
    assert_eq!(defaults.repetition_penalty, Some(1.05));
    assert_eq!((defaults.top_k, defaults.top_p), (None, None));
}

#[test]
fn end_ids_come_from_all_places() {
    let end_ids = |added: &[&str], config: Value, generation: Value| {
        Text::new(&TextFiles {
            tokenizer: &byte_tokenizer(added).to_string(),
            tokenizer_config: Some(&config.to_string()),
            chat_template: None,
            generation_config: Some(&generation.to_string()),
        })
        .unwrap()
        .end_ids()
        .to_vec()
    };
    let chatml = ["a", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "</s>"];
    assert_eq!(end_ids(&chatml, json!({}), json!({})), [2, 3]);
    assert_eq!(
        end_ids(&chatml, json!({}), json!({ "eos_token_id": 0 })),
        [0, 2, 3]
    );
    assert_eq!(
        end_ids(&chatml, json!({}), json!({ "eos_token_id": [3, 0, 3] })),
        [0, 2, 3]
    );
    assert_eq!(
        end_ids(&chatml, json!({ "eos_token": "</s>" }), json!({})),
        [2, 3, 4]
    );
    assert_eq!(
        end_ids(
            &chatml,
            json!({ "eos_token": { "content": "</s>" } }),
            json!({})
        ),
        [2, 3, 4]
    );
    // Not ChatML: <|endoftext|> alone may be padding or a separator.
    assert_eq!(
        end_ids(&["<|im_end|>", "<|endoftext|>"], json!({}), json!({})),
        [0u32; 0]
    );
}

#[test]
fn wrong_end_ids_are_refused() {
    let error = with_generation(json!({ "eos_token_id": 8192 })).unwrap_err();
    assert!(
        matches!(
            error,
            TextError::EndId {
                id: 8192,
                vocab_size: 8192
            }
        ),
        "{error}"
    );
    for wrong in [json!("7"), json!([7, -1]), json!(7.5), json!({ "id": 7 })] {
        let error = with_generation(json!({ "eos_token_id": wrong })).unwrap_err();
        let TextError::EndIdType { found } = error else {
            panic!("{error}");
        };
        assert_eq!(found, wrong.to_string());
    }
    assert_eq!(
        with_generation(json!({ "eos_token_id": null }))
            .unwrap()
            .end_ids(),
        [2, 7]
    );
}

#[test]
fn tokens_that_the_tokenizer_lacks_are_refused() {
    for field in ["bos_token", "eos_token"] {
        let config = json!({ field: "</s>" }).to_string();
        let error = tiny_with(Some(&config), None, None).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "tokenizer_config.json: {field} is \"</s>\", which tokenizer.json does not have"
            )
        );
    }
}

#[test]
fn sampling_values_out_of_range_name_the_field() {
    for (field, value) in [
        ("temperature", -0.5),
        ("top_p", 1.5),
        ("top_p", -0.5),
        ("min_p", 2.0),
        ("repetition_penalty", 0.0),
        ("temperature", 1e300),
    ] {
        let error = with_generation(json!({ field: value })).unwrap_err();
        assert!(error.to_string().contains(field), "{error}");
    }
    let accepted =
        json!({ "temperature": 0, "top_p": 1, "min_p": 0.0, "top_k": 0, "unknown": "x" });
    assert_eq!(
        with_generation(accepted)
            .unwrap()
            .generation_defaults()
            .top_k,
        Some(0)
    );
    for wrong in [
        json!({ "top_k": -1 }),
        json!({ "temperature": "hot" }),
        json!([]),
    ] {
        assert!(matches!(
            with_generation(wrong),
            Err(TextError::Json {
                file: TextFile::GenerationConfig,
                ..
            })
        ));
    }
}

#[test]
fn files_above_their_limit_are_refused_unread() {
    let large = |file: TextFile| " ".repeat(file.limit_bytes() as usize + 1);
    let small = "{}";
    for file in [
        TextFile::Tokenizer,
        TextFile::TokenizerConfig,
        TextFile::ChatTemplate,
        TextFile::GenerationConfig,
    ] {
        let large = large(file);
        let pick = |this| if this == file { &large[..] } else { small };
        let error = Text::new(&TextFiles {
            tokenizer: pick(TextFile::Tokenizer),
            tokenizer_config: Some(pick(TextFile::TokenizerConfig)),
            chat_template: Some(pick(TextFile::ChatTemplate)),
            generation_config: Some(pick(TextFile::GenerationConfig)),
        })
        .unwrap_err();
        let limit = file.limit_bytes();
        assert_eq!(
            error.to_string(),
            format!("{file}: {} bytes, at most {limit} are accepted", limit + 1)
        );
    }
}

/// A chain of operators is a stack frame each in the template parser.
#[test]
fn a_long_template_inside_the_configuration_is_refused_too() {
    let template = format!("{{{{ {}1 }}}}", "1+".repeat(100_000));
    let config = json!({ "chat_template": template }).to_string();
    let error = Text::new(&TextFiles {
        tokenizer: &model_file("tokenizer.json"),
        tokenizer_config: Some(&config),
        chat_template: None,
        generation_config: None,
    })
    .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("chat_template.jinja: 200007 bytes, at most 65536"),
        "{error}"
    );
}

#[test]
fn broken_tokenizers_are_refused() {
    for (json, message) in [
        ("", "tokenizer.json: EOF"),
        ("<!doctype html>", "tokenizer.json: expected value"),
        ("[]", "tokenizer.json: "),
        ("{}", "tokenizer.json: "),
        (
            r#"{"version": "3.0", "model": {"type": "BPE", "vocab": {}, "merges": []}}"#,
            "tokenizer.json: ",
        ),
        (
            r#"{"model": {"type": "Unigram", "vocab": []}}"#,
            "tokenizer.json: ",
        ),
        (
            r#"{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}"#,
            "not a byte-level BPE",
        ),
    ] {
        let error = with_tokenizer(json).expect_err(json).to_string();
        assert!(error.contains(message), "{json}: {error}");
    }
}

#[test]
fn absurd_ids_are_refused_before_tables_are_sized_by_them() {
    let mut file: Value = serde_json::from_str(&model_file("tokenizer.json")).unwrap();
    let good = file.clone();
    for wrong in [
        json!(4_000_000_000u32),
        json!(1 << 20),
        json!(-1),
        json!(1.5),
        json!("7"),
    ] {
        file["model"]["vocab"]["!"] = wrong.clone();
        let error = with_tokenizer(&file.to_string()).unwrap_err();
        let TextError::VocabularyId {
            token,
            id,
            limit: 1_048_576,
        } = error
        else {
            panic!("{error}");
        };
        assert_eq!((token, id), ("!".to_owned(), wrong.to_string()));
    }
    file = good;
    file["added_tokens"][3]["id"] = json!(1 << 30);
    let error = with_tokenizer(&file.to_string()).unwrap_err();
    assert!(error.to_string().contains("<|fim_pre|>"), "{error}");
}

#[test]
fn what_the_tokenizer_notices_late_is_refused_at_load() {
    let mut file = byte_tokenizer(&[]);
    file["pre_tokenizer"] = json!({ "type": "Sequence", "pretokenizers": [
        { "type": "Split", "pattern": { "Regex": "(a)\\1+" }, "behavior": "Isolated", "invert": false },
        file["pre_tokenizer"],
    ]});
    let error = with_tokenizer(&file.to_string()).unwrap_err();
    assert!(matches!(error, TextError::Tokenizer { .. }), "{error}");

    let mut file = byte_tokenizer(&["<|startoftext|>"]);
    file["post_processor"] = json!({
        "type": "TemplateProcessing",
        "single": [{ "SpecialToken": { "id": "b", "type_id": 0 } }, { "Sequence": { "id": "A", "type_id": 0 } }],
        "pair": [{ "Sequence": { "id": "A", "type_id": 0 } }, { "Sequence": { "id": "B", "type_id": 1 } }],
        "special_tokens": { "b": { "id": "b", "ids": [257], "tokens": ["b"] } },
    });
    let error = with_tokenizer(&file.to_string()).unwrap_err();
    assert!(
        matches!(
            error,
            TextError::UnknownId {
                id: 257,
                vocab_size: 257
            }
        ),
        "{error}"
    );
    file["post_processor"]["special_tokens"]["b"]["ids"] = json!([0]);
    assert_eq!(
        with_tokenizer(&file.to_string())
            .unwrap()
            .tokenize("", true)
            .unwrap(),
        [0]
    );
}

#[test]
fn unknown_ids_are_refused_by_name_and_size() {
    let text = tiny();
    let message = "token id 8192 is not in the vocabulary of 8192 ids";
    assert_eq!(
        text.detokenize(&[5, 8192], true).unwrap_err().to_string(),
        message
    );
    assert_eq!(text.token_bytes(8192).unwrap_err().to_string(), message);
    assert!(!text.is_special(8192));
    let mut stream = TextStream::new(&[], false).unwrap();
    assert_eq!(stream.push(&text, 8192).unwrap_err().to_string(), message);
    assert!(stream.push(&text, u32::MAX).is_err());
}

#[test]
fn tokens_by_their_text() {
    let text = tiny();
    assert_eq!(text.token_id("<|im_end|>"), Some(7));
    assert_eq!(text.token_id("Hello"), Some(930));
    assert_eq!(text.token_id("<|none|>"), None);
    assert!(text.is_special(7) && !text.is_special(930));
    assert_eq!(text.token_bytes(7).unwrap(), b"<|im_end|>");
}

#[test]
fn every_id_is_decoded_as_the_tokenizer_crate_decodes_it() {
    let file = tokenizers::canonicalize_str(&model_file("tokenizer.json")).unwrap();
    let reference = tokenizers::from_json(&file).unwrap();
    let text = tiny();
    for id in 0..text.vocab_size() {
        for skip in [false, true] {
            let ours = text.detokenize(&[id], skip).unwrap();
            assert_eq!(ours, reference.decode(&[id], skip).unwrap(), "id {id}");
        }
    }
}
