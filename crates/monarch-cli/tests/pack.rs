//! `convert`, `synth`, `inspect` and `verify` as processes: exit status, stdout, stderr.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

fn monarch(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_monarch"))
        .args(args)
        .output()
        .unwrap()
}

/// Runs a command that must succeed and returns its stdout.
fn ok(args: &[&str]) -> String {
    let output = monarch(args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    stdout(&output)
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn inspect(path: &Path) -> Value {
    serde_json::from_str(&ok(&["inspect", text(path), "--json"])).unwrap()
}

/// The nano formula, packed.
fn synth_nano(folder: &Path, more: &[&str]) {
    let args = ["synth", "--shape", "lfm2-nano", "--out", text(folder)];
    let output = monarch(&[&args, more].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output), "", "no data, so nothing on stdout");
    // A progress bar is for a terminal; here there is one line about what was written.
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
}

#[test]
fn inspect_reads_the_bare_seed_manifest() {
    let seed = repository("tests/golden/seed/manifest.json");
    let report = inspect(&seed);
    assert_eq!(report["sections"].as_array().unwrap().len(), 199);
    assert_eq!(
        report["sections"][0],
        json!({ "name": "L0.conv.in_proj.quant", "offset": 0, "bytes": 1_572_864 })
    );
    assert_eq!(report["weightBytes"], 168_647_680);
    assert_eq!(report["shape"]["hidden"], 1024);
    assert_eq!(report["shape"]["layerTypes"].as_array().unwrap().len(), 14);
    let mut keys: Vec<&String> = report.as_object().unwrap().keys().collect();
    keys.sort();
    assert_eq!(keys, ["bytesPerToken", "sections", "shape", "weightBytes"]);

    // By hand: matrices of eight conv and six attention layers at 5 bits a weight, the head at
    // 5 1/8, one embedding row, a cosine and a sine of each pair, norms and taps.
    let mlp = 3 * 1024 * 2560;
    let weights = 8 * (4 * 1024 * 1024 + mlp) + 6 * (3 * 1024 * 1024 + mlp);
    let head = 65536 * 1024 / 32 * 20 + 65536 * 16;
    let vectors = 14 * 2 * 1024 * 4 + 8 * 3 * 1024 * 4 + 6 * 2 * 64 * 4 + 1024 * 4;
    let row = 1024 / 32 * 20 + 16 + 2 * 32 * 4;
    assert_eq!(
        report["bytesPerToken"],
        weights / 32 * 20 + head + row + vectors
    );
}

#[test]
fn inspect_table_shows_every_section_and_the_sums() {
    let table = ok(&[
        "inspect",
        text(&repository("tests/golden/seed/manifest.json")),
    ]);
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|l| l.split_whitespace().collect())
        .collect();
    for row in [
        ["L13.mlp.down.kscales", "167664640", "327680"],
        ["embed.zero_points", "143523840", "1048576"],
    ] {
        assert!(rows.iter().any(|r| *r == row), "{row:?}");
    }
    let last = table.lines().last().unwrap();
    assert_eq!(
        last,
        "199 sections, 168647680 bytes, 144793488 bytes read per token"
    );
}

#[test]
fn a_folder_and_its_manifest_inspect_the_same() {
    let folder = tempfile::tempdir().unwrap();
    synth_nano(folder.path(), &[]);
    let report = inspect(folder.path());
    assert_eq!(report, inspect(&folder.path().join("manifest.json")));
    assert_eq!(report["shape"]["scaleType"], "f16");
    assert_eq!(report["shape"]["convBias"], true);
    assert_eq!(report["shape"]["tiedEmbedding"], false);
    let weights = fs::metadata(folder.path().join("weights.bin"))
        .unwrap()
        .len();
    assert_eq!(report["weightBytes"], weights);
}

#[test]
fn layout_scales_and_context_are_honoured() {
    let folder = tempfile::tempdir().unwrap();
    synth_nano(folder.path(), &["--layout", "seed", "--context", "100"]);
    let has = |report: &Value, name: &str| -> bool {
        report["sections"]
            .as_array()
            .unwrap()
            .iter()
            .any(|section| section["name"] == name)
    };
    let report = inspect(folder.path());
    assert_eq!(report["shape"]["scaleType"], "f32");
    assert!(has(&report, "L1.mlp.down.kquant"));
    let sections = report["sections"].as_array().unwrap();
    let cos = sections
        .iter()
        .find(|section| section["name"] == "rope.cos")
        .unwrap();
    assert_eq!(cos["bytes"], 100 * 16 * 4);

    synth_nano(folder.path(), &["--scales", "f32"]);
    let report = inspect(folder.path());
    assert_eq!(report["shape"]["scaleType"], "f32");
    assert!(!has(&report, "L1.mlp.down.kquant"));
    assert!(!has(&report, "rope.cos"));
}

const TEXT_FILES: [&str; 4] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "generation_config.json",
];

#[test]
fn convert_copies_text_files_and_records_source_and_self_test() {
    let out = tempfile::tempdir().unwrap();
    // A small checkpoint, beside the text files of the shipped model.
    let checkpoint = tempfile::tempdir().unwrap();
    let original = checkpoint.path();
    for name in ["config.json", "model.safetensors"] {
        let from = repository("tests/golden/random/a-h128-2q1kv").join(name);
        fs::copy(from, original.join(name)).unwrap();
    }
    for name in TEXT_FILES {
        fs::copy(
            repository("models/tiny-lfm2").join(name),
            original.join(name),
        )
        .unwrap();
    }
    ok(&[
        "convert",
        text(original),
        "--out",
        text(out.path()),
        "--repository",
        "some/where",
        "--licence",
        "MIT",
        "--self-test-ids",
        "1,400,401",
        "--self-test-tokens",
        "4",
    ]);
    for name in TEXT_FILES {
        let (from, to) = (original.join(name), out.path().join(name));
        assert!(fs::read(from).unwrap() == fs::read(to).unwrap(), "{name}");
    }
    let path = out.path().join("manifest.json");
    let mut manifest: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(manifest["source"]["repository"], "some/where");
    assert_eq!(manifest["source"]["licence"], "MIT");
    assert_eq!(
        manifest["runtime"]["selfTest"]["promptIds"],
        json!([1, 400, 401])
    );
    let report = ok(&["verify", text(out.path())]);
    assert!(
        report.ends_with("4 text files, self-test of 4 tokens\n"),
        "{report}"
    );

    // Another continuation than the recorded one is a fault.
    let third = &mut manifest["runtime"]["selfTest"]["continuationIds"][2];
    *third = ((third.as_u64().unwrap() + 1) % 1000).into();
    fs::write(&path, manifest.to_string()).unwrap();
    let output = monarch(&["verify", text(out.path())]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).starts_with("self-test: token 2 of the continuation is "));
}

#[test]
fn verify_refuses_text_files_that_generate_would_refuse() {
    let folder = tempfile::tempdir().unwrap();
    synth_nano(folder.path(), &[]);
    fs::write(folder.path().join("tokenizer.json"), "{}").unwrap();
    let output = monarch(&["verify", text(folder.path())]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stdout(&output).starts_with("tokenizer.json: "),
        "{}",
        stdout(&output)
    );
}

#[test]
fn verify_counts_faults_and_fails() {
    let folder = tempfile::tempdir().unwrap();
    synth_nano(folder.path(), &[]);
    let report = ok(&["verify", text(folder.path())]);
    assert_eq!(report.lines().count(), 1, "{report}");
    assert!(
        report.contains(" 0 sections without one, 0 text files, no self-test"),
        "{report}"
    );

    let path = folder.path().join("weights.bin");
    let mut weights = fs::read(&path).unwrap();
    weights[0] ^= 1;
    *weights.last_mut().unwrap() ^= 1;
    fs::write(&path, &weights).unwrap();
    let output = monarch(&["verify", text(folder.path())]);
    assert_eq!(output.status.code(), Some(1));
    let report = stdout(&output);
    assert!(
        report.starts_with("L0.conv.in_proj.quant: sha256 is "),
        "{report}"
    );
    assert!(
        report
            .lines()
            .nth(1)
            .unwrap()
            .starts_with("embed.zero_points: sha256 is "),
        "{report}"
    );
    assert_eq!(
        stderr(&output),
        format!("error: {}: 2 faults\n", folder.path().display())
    );

    fs::write(&path, &weights[..100]).unwrap();
    let output = monarch(&["verify", text(folder.path())]);
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    assert!(
        message.contains("has 100 bytes, the manifest says"),
        "{message}"
    );
}

#[test]
fn failures_say_what_failed_and_write_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("out");
    let empty = scratch.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let cases: &[(&[&str], &str)] = &[
        (
            &["convert", text(&empty), "--out", text(&out)],
            "config.json",
        ),
        (
            &["convert", "no-such-folder", "--out", text(&out)],
            "neither a folder nor a repository id",
        ),
        (
            &["convert", "../../etc", "--out", text(&out)],
            "neither a folder nor a repository id",
        ),
        (
            &["convert", "owner/name", "--out", text(&out)],
            "hf download owner/name",
        ),
        (
            &[
                "synth",
                "--shape",
                "lfm2-nano",
                "--context",
                "257",
                "--out",
                text(&out),
            ],
            "a context of 257 tokens was asked for, this model allows 1 to 256",
        ),
        (&["inspect", text(&empty)], "manifest.json"),
        (&["verify", text(&empty)], "manifest.json"),
        (
            &["verify", "http://127.0.0.1:1/"],
            "http://127.0.0.1:1/manifest.json",
        ),
    ];
    for (args, message) in cases {
        let output = Command::new(env!("CARGO_BIN_EXE_monarch"))
            .args(*args)
            .env("HF_HUB_CACHE", &empty)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert_eq!(stdout(&output), "", "{args:?}");
        assert!(
            stderr(&output).starts_with("error: "),
            "{args:?}: {}",
            stderr(&output)
        );
        assert!(
            stderr(&output).contains(message),
            "{args:?}: {}",
            stderr(&output)
        );
        assert!(!out.exists(), "{args:?}");
    }
}

#[test]
fn arguments_that_make_no_sense_exit_with_2() {
    for args in [
        &["synth", "--shape", "gpt", "--out", "x"][..],
        &["synth", "--shape", "lfm2-nano"],
        &["convert", "x", "--out", "y", "--scales", "f8"],
        &["convert", "x", "--out", "y", "--self-test-tokens", "3"],
        &["inspect"],
        &["nonsense"],
    ] {
        let output = monarch(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert_eq!(stdout(&output), "", "{args:?}");
    }
}

#[test]
fn a_repository_in_the_local_cache_converts_by_its_id() {
    let cache = tempfile::tempdir().unwrap();
    let repository_folder = cache.path().join("models--owner--name");
    let snapshot = repository_folder.join("snapshots/abc123");
    fs::create_dir_all(repository_folder.join("refs")).unwrap();
    fs::create_dir_all(&snapshot).unwrap();
    fs::write(repository_folder.join("refs/main"), "abc123\n").unwrap();
    let model = repository("tests/golden/random/d-h192-hd32-6q2kv-v5");
    for name in ["config.json", "model.safetensors"] {
        fs::copy(model.join(name), snapshot.join(name)).unwrap();
    }
    let out = cache.path().join("out");
    let output = Command::new(env!("CARGO_BIN_EXE_monarch"))
        .args(["convert", "owner/name", "--out", text(&out)])
        .env("HF_HUB_CACHE", cache.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let manifest = fs::read_to_string(out.join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    assert_eq!(manifest["source"]["repository"], "owner/name");
    assert_eq!(manifest["source"]["revision"], "abc123");
}

/// `monarch serve` on a free port; dropping it ends it.
struct Server(Child, String);

impl Server {
    fn start(folder: &Path) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_monarch"))
            .args(["serve", text(folder), "--port", "0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut url = String::new();
        BufReader::new(process.stdout.as_mut().unwrap())
            .read_line(&mut url)
            .unwrap();
        Self(process, url.trim().to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_model_behind_a_url_verifies_like_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    synth_nano(folder.path(), &[]);
    let tokenizer = repository("models/tiny-lfm2/tokenizer.json");
    fs::copy(tokenizer, folder.path().join("tokenizer.json")).unwrap();
    let server = Server::start(folder.path());
    let local = ok(&["verify", text(folder.path())]);
    assert_eq!(ok(&["verify", &server.1]), local);
    assert_eq!(
        ok(&["verify", &format!("{}manifest.json", server.1)]),
        local
    );

    let path = folder.path().join("weights.bin");
    let mut weights = fs::read(&path).unwrap();
    weights[5] ^= 1;
    fs::write(&path, &weights).unwrap();
    let output = monarch(&["verify", &server.1]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).starts_with("L0.conv.in_proj.quant: sha256 is "));

    fs::write(&path, &weights[..weights.len() - 1]).unwrap();
    let output = monarch(&["verify", &server.1]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("weights.bin"),
        "{}",
        stderr(&output)
    );
}
