//! Chat templates: equality with Python's jinja2, and what happens to broken or hostile ones.

use monarch_text::{Chat, DateTime, Message, Text, TextError, TextFiles};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{byte_tokenizer, read, tiny, tiny_with};

#[derive(Deserialize)]
struct Chats {
    cases: Vec<ChatCase>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChatCase {
    template: String,
    chat: Chat,
    rendered: Option<String>,
    refused: Option<String>,
}

#[derive(Deserialize)]
struct Snippets {
    context: Map<String, Value>,
    cases: Vec<Snippet>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Snippet {
    source: String,
    rendered: Option<String>,
    fails: Option<String>,
}

const CONFIG: &str = r#"{"bos_token": "<|startoftext|>", "eos_token": {"content": "<|im_end|>"}}"#;

/// A model of `<|startoftext|>`, `<|im_end|>` and bytes, with this template.
fn try_template(source: &str) -> Result<Text, TextError> {
    Text::new(&TextFiles {
        tokenizer: &byte_tokenizer(&["<|startoftext|>", "<|im_end|>"]).to_string(),
        tokenizer_config: Some(CONFIG),
        chat_template: Some(source),
        generation_config: None,
    })
}

fn with_template(source: &str) -> Text {
    try_template(source).unwrap()
}

fn hello() -> Chat {
    Chat::new(vec![Message::new("user", "Hello")])
}

#[test]
fn whole_templates_render_as_in_python() {
    let chats: Chats = serde_json::from_str(&read("tests/fixtures/templates/chats.json")).unwrap();
    assert!(!chats.cases.is_empty());
    for case in chats.cases {
        let text = with_template(&read(&format!(
            "tests/fixtures/templates/{}.jinja",
            case.template
        )));
        match (text.render_chat(&case.chat), case.rendered, case.refused) {
            (Ok(ours), Some(python), None) => assert_eq!(ours, python, "{}", case.template),
            (Err(TextError::TemplateRefused { message, line }), None, Some(python)) => {
                assert_eq!(message, python);
                assert_eq!(line, 21);
            }
            (ours, python, refused) => panic!("{ours:?}, in Python {python:?} {refused:?}"),
        }
    }
}

#[test]
fn snippets_render_as_in_python() {
    let snippets: Snippets =
        serde_json::from_str(&read("tests/fixtures/templates/snippets.json")).unwrap();
    assert!(!snippets.cases.is_empty());
    let chat = Chat {
        variables: snippets.context,
        now: Some(DateTime::new(2026, 3, 5, 7, 8, 9).unwrap()),
        ..Chat::default()
    };
    for case in snippets.cases {
        let ours = try_template(&case.source).and_then(|text| text.render_chat(&chat));
        match (ours, case.rendered, case.fails) {
            (Ok(ours), Some(python), None) => assert_eq!(ours, python, "{}", case.source),
            (Err(_), None, Some(_)) => {}
            (ours, python, fails) => {
                panic!("{}: {ours:?}, in Python {python:?} {fails:?}", case.source)
            }
        }
    }
}

#[test]
fn a_chat_begins_with_one_begin_token_whoever_adds_it() {
    for source in [
        "{{ bos_token }}{{ messages[0].content }}",
        "{{ messages[0].content }}",
    ] {
        let text = tiny_with(Some(CONFIG), Some(source), None).unwrap();
        assert_eq!(text.tokenize_chat(&hello()).unwrap(), [1, 930], "{source}");
    }
    // A tokenizer that adds none leaves the template's text alone.
    let text = with_template("{{ messages[0].content }}");
    assert_eq!(text.begin_id(), None);
    assert_eq!(text.tokenize_chat(&hello()).unwrap().len(), "Hello".len());
}

#[test]
fn the_template_file_wins_over_the_configuration() {
    let config = json!({ "chat_template": "from the configuration" }).to_string();
    let render = |file| {
        tiny_with(Some(&config), file, None)
            .unwrap()
            .render_chat(&hello())
    };
    assert_eq!(render(None).unwrap(), "from the configuration");
    assert_eq!(render(Some("from the file")).unwrap(), "from the file");
}

#[test]
fn named_templates_are_chosen_by_use() {
    let config = json!({ "chat_template": [
        { "name": "tool_use", "template": "with tools" },
        { "name": "default", "template": "plain" },
    ]});
    let text = tiny_with(Some(&config.to_string()), None, None).unwrap();
    assert_eq!(text.render_chat(&hello()).unwrap(), "plain");
    let chat = Chat {
        tools: Some(vec![]),
        ..hello()
    };
    assert_eq!(text.render_chat(&chat).unwrap(), "with tools");

    let config = json!({ "chat_template": [{ "name": "rag", "template": "" }] }).to_string();
    let Err(TextError::NoDefaultTemplate { names }) = tiny_with(Some(&config), None, None) else {
        panic!("a list without \"default\" was accepted");
    };
    assert_eq!(names, ["rag"]);
}

#[test]
fn a_model_without_a_template_says_so() {
    let text = tiny_with(Some(CONFIG), None, None).unwrap();
    assert!(!text.has_chat_template());
    assert!(matches!(
        text.render_chat(&hello()),
        Err(TextError::NoChatTemplate)
    ));
}

#[test]
fn syntax_errors_are_found_at_load_with_their_line() {
    let result = try_template("{% if true %}\n\n{% endfor %}");
    let Err(error @ TextError::TemplateSyntax { line: 3, .. }) = result else {
        panic!("{:?}", result.err());
    };
    assert!(
        error
            .to_string()
            .starts_with("chat template, line 3: syntax error"),
        "{error}"
    );
}

#[test]
fn render_errors_carry_their_line() {
    let error = with_template("\n{{ messages[5].role }}")
        .render_chat(&hello())
        .unwrap_err();
    assert!(
        matches!(error, TextError::TemplateRender { line: 2, .. }),
        "{error}"
    );
}

#[test]
fn refusals_keep_the_templates_words_through_macros() {
    let source = "{% macro check(m) %}\n{{ raise_exception('no ' ~ m.role) }}{% endmacro %}\n{{ check(messages[0]) }}";
    let error = with_template(source).render_chat(&hello()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "chat template, line 2, refuses the chat: no user"
    );
}

#[test]
fn the_date_is_the_callers() {
    let text = with_template("{{ strftime_now('%d %b %Y') }}");
    let now = DateTime::new(2024, 2, 29, 23, 59, 59).unwrap();
    assert_eq!(
        text.render_chat(&Chat {
            now: Some(now),
            ..hello()
        })
        .unwrap(),
        "29 Feb 2024"
    );
    assert!(matches!(
        text.render_chat(&hello()),
        Err(TextError::TemplateClock { line: 1 })
    ));

    let text = with_template("{{ strftime_now('%Q') }}");
    let error = text
        .render_chat(&Chat {
            now: Some(now),
            ..hello()
        })
        .unwrap_err();
    assert!(error.to_string().contains("\"%Q\""), "{error}");
}

#[test]
fn dates_out_of_range_name_the_field() {
    for (date, field) in [
        ((0, 1, 1, 0, 0, 0), "year"),
        ((2026, 13, 1, 0, 0, 0), "month"),
        ((2026, 2, 29, 0, 0, 0), "day"),
        ((2100, 2, 29, 0, 0, 0), "day"),
        ((2026, 1, 1, 24, 0, 0), "hour"),
        ((2026, 1, 1, 0, 60, 0), "minute"),
        ((2026, 1, 1, 0, 0, -1), "second"),
    ] {
        let (year, month, day, hour, minute, second) = date;
        let error = DateTime::new(year, month, day, hour, minute, second).unwrap_err();
        assert!(error.to_string().contains(field), "{error}");
    }
    let json = json!({ "messages": [], "now": { "year": 2026, "month": 0, "day": 1 } });
    let error = serde_json::from_value::<Chat>(json).unwrap_err();
    assert!(
        error.to_string().contains("month is 0, expected 1 to 12"),
        "{error}"
    );
}

#[test]
fn hostile_templates_end() {
    let nest = "[".repeat(400) + &"]".repeat(400);
    for (source, expected) in [
        (
            "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
            "steps",
        ),
        (
            "{% set ns = namespace(s='x' * 64) %}{% for a in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
            "steps",
        ),
        ("{{ 'x' * 9999999999 }}", "steps"),
        (
            "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
            "recursion",
        ),
        (
            "{% set ns = namespace(l=[]) %}{% for a in range(999) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l | tojson }}",
            "nested deeper",
        ),
        ("{{ messages | tojson(indent=300) }}", "line 1"),
        (&format!("{{{{ {nest} }}}}"), "recursion"),
    ] {
        let result = try_template(source).and_then(|text| text.render_chat(&hello()));
        let error = result.expect_err(source).to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn variables_cannot_replace_the_chat() {
    let text = with_template("{{ greeting }} {{ bos_token }}");
    let chat = |name: &str| Chat {
        variables: Map::from_iter([(name.to_owned(), json!("Hi"))]),
        ..hello()
    };
    assert_eq!(
        text.render_chat(&chat("greeting")).unwrap(),
        "Hi <|startoftext|>"
    );
    assert_eq!(text.render_chat(&chat("bos_token")).unwrap(), " Hi");
    for name in ["messages", "tools", "add_generation_prompt", "strftime_now"] {
        let error = text.render_chat(&chat(name)).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn chats_keep_fields_and_their_order() {
    let json = r#"{"messages":[{"role":"assistant","content":null,"tool_calls":[{"z":1,"a":2}]},{"role":"x"}],"tools":[{"z":1,"a":2}],"add_generation_prompt":true}"#;
    let chat: Chat = serde_json::from_str(json).unwrap();
    assert_eq!(serde_json::to_string(&chat).unwrap(), json);
    let text = with_template(
        "{% for m in messages %}{{ m | tojson }} {{ m.content is none }} {{ m.content is defined }}\n{% endfor %}",
    );
    assert_eq!(
        text.render_chat(&chat).unwrap(),
        "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"z\": 1, \"a\": 2}]} True True\n\
         {\"role\": \"x\"} False False\n"
    );
    let unknown = serde_json::from_str::<Chat>(r#"{"messages":[],"tool":[]}"#).unwrap_err();
    assert!(unknown.to_string().contains("tool"), "{unknown}");
}

#[test]
fn template_text_in_messages_is_not_run() {
    let chat = Chat::new(vec![Message::new("user", "{{ bos_token }}{% raw %}")]);
    let rendered = tiny().render_chat(&chat).unwrap();
    assert!(
        rendered.contains("user\n{{ bos_token }}{% raw %}<|im_end|>"),
        "{rendered}"
    );
}
