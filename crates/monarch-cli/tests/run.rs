//! `monarch logits`, `generate` and `tokenize` as processes, against the golden results.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use monarch_tests::compare;
use monarch_tests::golden::{self, GoldenCase, GoldenModel, ModelSource, WeightsKind};
use serde_json::Value;

fn monarch(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_monarch"))
        .args(args)
        .output()
        .expect("the program starts")
}

/// Standard output of a run that must succeed.
fn stdout(args: &[&str]) -> String {
    let output = monarch(args);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "monarch {args:?}: {message}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn json(args: &[&str]) -> Value {
    let text = stdout(args);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("monarch {args:?}: {error}"))
}

/// The message of a run that must fail, with nothing on standard output.
fn refusal(args: &[&str]) -> String {
    let output = monarch(args);
    assert!(!output.status.success(), "monarch {args:?} succeeded");
    assert!(
        output.stdout.is_empty(),
        "monarch {args:?} failed and wrote data"
    );
    String::from_utf8(output.stderr).expect("UTF-8")
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a UTF-8 path")
}

fn list(ids: &[u32]) -> String {
    ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).expect("a list of ids")
}

/// The folder that gives the weights the reference ran with, and what keeps it on disk.
fn folder(model: &GoldenModel) -> (PathBuf, Option<tempfile::TempDir>) {
    match (&model.source, model.weights) {
        (ModelSource::Folder(folder), WeightsKind::F32) => (folder.clone(), None),
        (source, _) => {
            let out = tempfile::tempdir().expect("a scratch folder");
            let args = match source {
                ModelSource::Folder(folder) => ["convert", path(folder)],
                ModelSource::Synth(shape) => ["synth", &format!("--shape={shape}")],
            };
            stdout(&[&args[..], &["--scales", "f32", "--out", path(out.path())]].concat());
            (out.path().to_owned(), Some(out))
        }
    }
}

fn tiny() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/tiny-lfm2")
}

fn tiny_case(case: &str) -> GoldenCase {
    let name = format!("tiny-lfm2/golden_q4 {case}");
    let cases = golden::model("tiny-lfm2/golden_q4").cases();
    cases
        .into_iter()
        .find(|case| case.name == name)
        .unwrap_or_else(|| panic!("no case {name}"))
}

/// Logits and greedy ids of every case of a model, through the program.
fn check_model(name: &str) {
    let model = golden::model(name);
    let (folder, _guard) = folder(&model);
    for case in model.cases() {
        let prompt = list(&case.ids);
        let printed = json(&["logits", path(&folder), "--ids", &prompt, "--device", "cpu"]);
        assert_eq!(ids(&printed["ids"]), case.ids);
        let rows: Vec<Vec<f32>> =
            serde_json::from_value(printed["logits"].clone()).expect("rows of logits");
        assert_eq!(
            rows.len(),
            1,
            "{}: one row for the last position",
            case.name
        );
        compare::check(&rows[0], &case.last_logits, 1e-4)
            .unwrap_or_else(|error| panic!("{}: {error}", case.name));

        let greedy = [
            "--max-tokens",
            "32",
            "--ignore-eos",
            "--device",
            "cpu",
            "--json",
        ];
        let printed = json(&[&["generate", path(&folder), "--ids", &prompt], &greedy[..]].concat());
        assert_eq!(ids(&printed["ids"]), case.greedy_ids, "{}", case.name);
        assert_eq!(printed["finishReason"], "length");
        assert_eq!(printed["usage"]["promptTokens"], case.ids.len());
        assert_eq!(printed["usage"]["completionTokens"], 32);
        assert!(
            printed["timings"]["ttftMs"]
                .as_f64()
                .is_some_and(|ms| ms > 0.0)
        );
    }
}

#[test]
fn checkpoints_of_both_config_generations_meet_the_golden_results() {
    for name in [
        "a-h128-2q1kv",
        "b-h256-allconv-bias-L4",
        "c-h320-5q1kv-autoff-v4",
        "d-h192-hd32-6q2kv-v5",
    ] {
        check_model(&format!("random/{name}/golden"));
    }
}

#[test]
#[ignore = "needs the 43 MB checkpoint in models/tiny-lfm2/original, see models/README.md"]
fn the_trained_model_meets_the_golden_results() {
    check_model("tiny-lfm2/golden_f32");
}

#[test]
#[ignore = "needs the 43 MB checkpoint in models/tiny-lfm2/original, see models/README.md"]
fn the_converted_trained_model_meets_the_golden_results() {
    check_model("tiny-lfm2/golden_q4");
}

#[test]
fn the_synthetic_230m_meets_the_golden_results() {
    check_model("lfm2.5-230m-synth/golden_q4");
}

#[test]
fn prompts_and_chats_give_the_golden_text() {
    let golden: Value = serde_json::from_slice(
        &std::fs::read(golden::root().join("tiny-lfm2/golden_q4.json")).expect("a golden file"),
    )
    .expect("JSON");
    let shipped = tiny();
    let mut checked = 0;
    for case in golden["cases"].as_array().expect("a list") {
        let (option, text) = match &case["source"] {
            Value::String(text) => ("--prompt", text),
            Value::Array(messages) if messages.len() == 1 => {
                let Value::String(text) = &messages[0]["content"] else {
                    continue;
                };
                ("--chat", text)
            }
            _ => continue,
        };
        let args = [
            "generate",
            path(&shipped),
            option,
            text,
            "--max-tokens",
            "32",
            "--ignore-eos",
            "--json",
        ];
        let printed = json(&args);
        let expected = tiny_case(case["name"].as_str().expect("a name"));
        assert_eq!(ids(&printed["ids"]), expected.greedy_ids, "{option} {text}");
        assert_eq!(printed["usage"]["promptTokens"], expected.ids.len());
        // The golden file writes special tokens out, a reader does not see them.
        let mut seen = case["greedy_text"].as_str().expect("text").to_owned();
        for token in ["<|im_start|>", "<|im_end|>", "<|endoftext|>"] {
            seen = seen.replace(token, "");
        }
        assert_eq!(printed["text"], seen);
        // Without --json the same text comes in pieces.
        assert_eq!(stdout(&args[..args.len() - 1]), seen + "\n");
        checked += 1;
    }
    assert!(checked >= 3, "only {checked} cases with a text");
}

#[test]
fn all_positions_end_with_the_last() {
    let folder = golden::root().join("random/a-h128-2q1kv");
    let all = json(&[
        "logits",
        path(&folder),
        "--ids",
        "3,1,4,1,5",
        "--positions",
        "all",
    ]);
    let last = json(&["logits", path(&folder), "--ids", "3,1,4,1,5"]);
    let rows = all["logits"].as_array().expect("rows");
    assert_eq!(rows.len(), 5);
    assert!(
        rows.iter()
            .all(|row| row.as_array().is_some_and(|row| row.len() == 1000))
    );
    assert_eq!(rows[4], last["logits"][0]);
    assert_ne!(rows[3], rows[4]);
}

#[test]
fn logits_go_to_a_file_when_asked() {
    let folder = golden::root().join("random/a-h128-2q1kv");
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let file = scratch.path().join("logits.json");
    assert_eq!(
        stdout(&[
            "logits",
            path(&folder),
            "--ids",
            "3,1",
            "--out",
            path(&file)
        ]),
        ""
    );
    let written: Value =
        serde_json::from_slice(&std::fs::read(&file).expect("the file")).expect("JSON");
    assert_eq!(written, json(&["logits", path(&folder), "--ids", "3,1"]));
    let missing = scratch.path().join("missing/logits.json");
    assert!(
        refusal(&[
            "logits",
            path(&folder),
            "--ids",
            "3",
            "--out",
            path(&missing)
        ])
        .contains("missing")
    );
}

#[test]
fn a_stop_string_ends_the_text_before_itself() {
    let shipped = tiny();
    let args = [
        "generate",
        path(&shipped),
        "--prompt",
        "Once upon a time",
        "--json",
        "--max-tokens",
        "40",
    ];
    let whole = json(&args);
    let text = whole["text"].as_str().expect("text");
    let stop = &text[text.len() / 2..][..6];
    let stopped = json(&[&args[..], &["--stop", "no such text", "--stop", stop]].concat());
    assert_eq!(stopped["finishReason"], "stop");
    assert_eq!(
        stopped["text"],
        text[..text.find(stop).expect("it is there")]
    );
    let count = stopped["ids"].as_array().expect("ids").len();
    assert_eq!(
        stopped["ids"].as_array().expect("ids")[..],
        whole["ids"].as_array().expect("ids")[..count]
    );
}

#[test]
fn an_end_token_ends_the_text_unless_ignored() {
    // The trained model answers a question and ends its turn.
    let shipped = tiny();
    let args = [
        "generate",
        path(&shipped),
        "--chat",
        "What is a volcano?",
        "--json",
        "--max-tokens",
        "300",
    ];
    let ended = json(&args);
    assert_eq!(ended["finishReason"], "stop");
    let answer = ids(&ended["ids"]);
    assert!(
        !answer.contains(&7),
        "the end token is no part of the answer"
    );

    let went_on = json(
        &[
            &args[..args.len() - 1],
            &[&(answer.len() + 3).to_string(), "--ignore-eos"],
        ]
        .concat(),
    );
    assert_eq!(went_on["finishReason"], "length");
    let ids = ids(&went_on["ids"]);
    assert_eq!((&ids[..answer.len()], ids[answer.len()]), (&answer[..], 7));
}

#[test]
fn the_seed_decides_a_draw() {
    let draw = |seed: &str| {
        let shipped = tiny();
        let args = [
            "--temperature",
            "1.5",
            "--max-tokens",
            "16",
            "--ignore-eos",
            "--seed",
            seed,
            "--json",
        ];
        json(&[&["generate", path(&shipped), "--prompt", "Once"], &args[..]].concat())["ids"]
            .clone()
    };
    assert_eq!(draw("1"), draw("1"));
    assert_ne!(draw("1"), draw("2"));
}

#[test]
fn the_context_limits_prompt_and_answer() {
    let folder = golden::root().join("random/a-h128-2q1kv"); // 2048 positions
    let generate = |prompt_tokens: usize, max_tokens: &str| {
        let prompt = list(&vec![5; prompt_tokens]);
        let args = [
            "generate",
            path(&folder),
            "--ids",
            &prompt,
            "--max-tokens",
            max_tokens,
            "--json",
        ];
        monarch(&args)
    };
    let printed =
        |output: Output| -> Value { serde_json::from_slice(&output.stdout).expect("JSON") };
    let full = printed(generate(2048, "5"));
    assert_eq!(
        (ids(&full["ids"]), &full["finishReason"]),
        (vec![], &Value::from("length"))
    );
    let one_left = printed(generate(2047, "5"));
    assert_eq!(
        (ids(&one_left["ids"]).len(), &one_left["finishReason"]),
        (1, &Value::from("length"))
    );
    let refused = generate(2049, "0");
    assert!(!refused.status.success());
    let message = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(
        message.lines().last(),
        Some("error: the prompt has 2049 tokens, the context is 2048")
    );
    assert_eq!(ids(&printed(generate(3, "0"))["ids"]), Vec::<u32>::new());
}

#[test]
fn impossible_requests_are_refused_by_name() {
    let folder = golden::root().join("random/a-h128-2q1kv");
    let folder = path(&folder);
    for (args, expected) in [
        (
            &["logits", folder, "--ids", "1,1000"][..],
            "token id 1000 at index 1: the vocabulary has ids 0 to 999",
        ),
        (
            &["generate", folder, "--ids", "1000"],
            "token id 1000 at index 0",
        ),
        (&["logits", folder, "--ids", ""], "--ids"),
        (&["logits", folder], "--ids"),
        (&["logits", folder, "--ids", "1,-2"], "-2"),
        (&["generate", folder], "--prompt"),
        (
            &["generate", folder, "--ids", "1", "--prompt", "Once"],
            "cannot be used with",
        ),
        (
            &["generate", folder, "--prompt", "Once"],
            "no tokenizer.json",
        ),
        (
            &["generate", folder, "--ids", "1", "--stop", "x"],
            "stop strings need a tokenizer",
        ),
        (
            &["generate", folder, "--ids", "1", "--temperature=-1"],
            "temperature -1",
        ),
        (
            &["generate", folder, "--ids", "1", "--temperature", "NaN"],
            "temperature NaN",
        ),
        (
            &["generate", "no-such-folder", "--ids", "1"],
            "no-such-folder",
        ),
        (
            &["tokenize", folder, "--text", "Once"],
            "has no tokenizer.json",
        ),
        (&["tokenize", path(&tiny())], "--text"),
    ] {
        let message = refusal(args);
        assert!(message.contains(expected), "monarch {args:?}: {message}");
    }
    let empty_stop = refusal(&["generate", path(&tiny()), "--ids", "1", "--stop", ""]);
    assert!(empty_stop.contains("stop"), "{empty_stop}");
}

#[test]
fn a_model_without_a_tokenizer_gives_ids_and_no_text() {
    let folder = golden::root().join("random/a-h128-2q1kv");
    let args = [
        "generate",
        path(&folder),
        "--ids",
        "1,2",
        "--max-tokens",
        "4",
    ];
    let printed = json(&[&args[..], &["--json"]].concat());
    assert_eq!(printed["text"], Value::Null);
    assert_eq!(stdout(&args), format!("{}\n", list(&ids(&printed["ids"]))));
}

#[test]
fn texts_and_chats_are_tokenised_as_in_the_golden_files() {
    let tiny = tiny();
    let read = |name: &str| -> Vec<Value> {
        serde_json::from_slice(&std::fs::read(golden::root().join(name)).expect("a golden file"))
            .expect("a list")
    };
    let texts = read("text_tokenizer.json");
    for case in texts.iter().step_by(7) {
        let text = case["text"].as_str().expect("a text");
        let printed = json(&["tokenize", path(&tiny), &format!("--text={text}"), "--json"]);
        assert_eq!(printed["ids"], case["ids"], "{text:?}");
        assert_eq!(printed.get("rendered"), None);
    }
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let file = scratch.path().join("messages.json");
    for case in read("text_chat.json") {
        let mut chat = case.as_object().expect("an object").clone();
        let (rendered, ids) = (chat.remove("rendered"), chat.remove("ids"));
        std::fs::write(&file, Value::Object(chat).to_string()).expect("a file");
        let printed = json(&["tokenize", path(&tiny), "--chat", path(&file), "--json"]);
        assert_eq!(
            (printed.get("rendered"), printed.get("ids")),
            (rendered.as_ref(), ids.as_ref())
        );

        let lines = stdout(&["tokenize", path(&tiny), "--chat", path(&file)]);
        assert!(lines.starts_with(rendered.as_ref().and_then(Value::as_str).expect("a text")));
    }
    std::fs::write(&file, r#"[{"role": "user", "content": "Hello"}]"#).expect("a file");
    let printed = json(&["tokenize", path(&tiny), "--chat", path(&file), "--json"]);
    assert!(
        printed["rendered"]
            .as_str()
            .is_some_and(|text| text.ends_with("<|im_start|>assistant\n"))
    );
}
