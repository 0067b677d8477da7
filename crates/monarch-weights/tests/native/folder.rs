use std::path::Path;

use monarch_weights::{Cancel, FolderSource, Source, WeightsError};

use crate::support::{expected, file, load, section};

fn read(source: &FolderSource, url: &str, limit_bytes: u64) -> Result<String, WeightsError> {
    pollster::block_on(source.read_text(url, limit_bytes, &Cancel::new()))
}

/// `models/tiny/{manifest.json,weights.bin}` and `secret`, which is outside `models`.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let models = folder.path().join("models/tiny");
    std::fs::create_dir_all(&models).unwrap();
    std::fs::write(models.join("manifest.json"), "{}").unwrap();
    std::fs::write(models.join("weights 1.bin"), file(600_000)).unwrap();
    std::fs::write(folder.path().join("secret"), "secret").unwrap();
    folder
}

fn source(folder: &tempfile::TempDir) -> FolderSource {
    FolderSource::new(folder.path().join("models"))
}

#[test]
fn resolves_like_a_web_server_with_this_root() {
    let source = FolderSource::new("models");
    for (base, reference, url) in [
        ("manifest.json", "weights.bin", "/weights.bin"),
        ("manifest.json", "/weights.bin", "/weights.bin"),
        ("tiny/manifest.json", "weights.bin", "/tiny/weights.bin"),
        ("/tiny/manifest.json", "weights.bin", "/tiny/weights.bin"),
        ("tiny/manifest.json", "/weights.bin", "/weights.bin"),
        ("tiny/manifest.json", "../weights.bin", "/weights.bin"),
        (
            "tiny/manifest.json?v=1",
            "weights.bin?v=2&sig=a/b",
            "/tiny/weights.bin?v=2&sig=a/b",
        ),
        ("manifest.json", "a b.bin", "/a%20b.bin"),
        ("manifest.json", "../../weights.bin", "/weights.bin"),
    ] {
        assert_eq!(
            source.resolve(base, reference).unwrap(),
            url,
            "{reference} from {base}"
        );
    }
}

#[test]
fn other_hosts_are_outside() {
    let source = FolderSource::new("models");
    for reference in [
        "https://example.com/weights.bin",
        "//example.com/weights.bin",
        "file:///x",
    ] {
        let error = source.resolve("manifest.json", reference).unwrap_err();
        assert!(
            matches!(&error, WeightsError::OutsideFolder { url, folder }
                if url == reference && folder == Path::new("models")),
            "{error:?}"
        );
    }
}

#[test]
fn no_path_leads_out() {
    let folder = folder();
    let source = source(&folder);
    // Links cannot climb above the root; these look for `secret` inside the folder.
    for url in [
        "../secret",
        "/../secret",
        "tiny/../../secret",
        "%2e%2e/secret",
        "..\\secret",
    ] {
        let error = read(&source, url, 100).unwrap_err();
        let inside = source.folder().join("secret");
        assert!(
            matches!(&error, WeightsError::File { path, .. } if *path == inside),
            "{error:?}"
        );
    }
    for url in [
        "..%2fsecret",
        "tiny/..%2f..%2fsecret",
        "..%5csecret",
        "secret%00",
        "c:%5csecret",
    ] {
        let error = read(&source, url, 100).unwrap_err();
        assert!(
            matches!(error, WeightsError::OutsideFolder { .. }),
            "{url}: {error:?}"
        );
    }
}

#[test]
fn reads_sections_and_ignores_the_query() {
    let folder = folder();
    let source = source(&folder);
    let wanted = [
        section("a", 1..3),
        section("b", 1000..599_999),
        section("c", 599_999..600_000),
    ];
    let url = source
        .resolve("tiny/manifest.json", "weights%201.bin?v=2#x")
        .unwrap();
    let outcome = load(&source, &url, &wanted);
    assert!(outcome.result.is_ok(), "{:?}", outcome.result);
    assert_eq!(outcome.received, expected(&file(600_000), &wanted));
}

#[test]
fn file_that_ends_early() {
    let folder = folder();
    let source = source(&folder);
    for (start, received_bytes) in [(599_990, 10), (600_000, 0), (700_000, 0)] {
        let wanted = [section("a", start..start + 100)];
        let error = load(&source, "tiny/weights 1.bin", &wanted)
            .result
            .unwrap_err();
        let expected = format!(
            "tiny/weights 1.bin: expected 100 bytes from offset {start}, received {received_bytes}"
        );
        assert_eq!(error.root().to_string(), expected);
    }
}

#[test]
fn text_is_limited_and_utf8() {
    let folder = folder();
    let source = source(&folder);
    assert_eq!(read(&source, "tiny/manifest.json", 2).unwrap(), "{}");
    let error = read(&source, "tiny/manifest.json", 1).unwrap_err();
    assert!(
        matches!(error, WeightsError::TextTooLong { limit_bytes: 1, .. }),
        "{error:?}"
    );
    std::fs::write(source.folder().join("latin1"), b"caf\xe9").unwrap();
    let error = read(&source, "latin1", 100).unwrap_err();
    assert!(
        matches!(error, WeightsError::NotUtf8 { valid_bytes: 3, .. }),
        "{error:?}"
    );
}

#[test]
fn missing_file_is_named() {
    let folder = folder();
    let source = source(&folder);
    let error = read(&source, "absent.json", 100).unwrap_err();
    assert!(error.is_absent());
    assert!(
        matches!(&error, WeightsError::File { path, source }
            if path.ends_with("models/absent.json")
                && source.kind() == std::io::ErrorKind::NotFound),
        "{error:?}"
    );
}
