use std::ops::ControlFlow;

use monarch_weights::{Cancel, HttpSource, Source, WeightsError};

use crate::server::{Answer, Asked, Server};
use crate::support::{Outcome, Received, expected, file, load, load_until, section};

const FILE_BYTES: usize = 3000;
/// The right answer to [`load_hundred`].
const HUNDRED: &str = "bytes 100-199/3000";

/// Loads bytes 100..200 from a server that answers by `script`.
fn load_hundred(script: impl Fn(&Asked) -> Answer + Send + 'static) -> Outcome {
    let server = Server::start(script);
    let url = format!("{}/weights.bin", server.url);
    load(&HttpSource::new(), &url, &[section("a", 100..200)])
}

/// The error of such a load, which must name the section and leave it incomplete.
fn refused(script: impl Fn(&Asked) -> Answer + Send + 'static) -> WeightsError {
    let outcome = load_hundred(script);
    assert!(!outcome.received[0].complete);
    match outcome.result {
        Err(WeightsError::Section {
            section,
            url,
            start,
            end,
            source,
        }) => {
            assert_eq!((section.as_str(), start, end), ("a", 100, 200));
            assert!(
                source.to_string().contains(&url),
                "{source} does not name {url}"
            );
            *source
        }
        other => panic!("{other:?}"),
    }
}

fn accepted(script: impl Fn(&Asked) -> Answer + Send + 'static) {
    let outcome = load_hundred(script);
    assert!(outcome.result.is_ok(), "{:?}", outcome.result);
    let wanted = [section("a", 100..200)];
    assert_eq!(outcome.received, expected(&file(FILE_BYTES), &wanted));
}

fn read_text(script: impl Fn(&Asked) -> Answer + Send + 'static) -> Result<String, WeightsError> {
    let server = Server::start(script);
    let url = format!("{}/manifest.json", server.url);
    pollster::block_on(HttpSource::new().read_text(&url, 1000, &Cancel::new()))
}

#[test]
fn range_is_asked_for_and_taken() {
    let server = Server::start(|asked| Answer::range(asked, &file(FILE_BYTES)));
    let url = format!("{}/dir/weights.bin?v=2&sig=abc#fragment", server.url);
    let wanted = [
        section("a", 1..4),
        section("b", 4..1001),
        section("c", 2000..3000),
    ];
    let outcome = load(&HttpSource::new(), &url, &wanted);
    assert!(outcome.result.is_ok(), "{:?}", outcome.result);
    assert_eq!(outcome.received, expected(&file(FILE_BYTES), &wanted));
    let asked = server.asked();
    let ranges: Vec<_> = asked
        .iter()
        .map(|asked| asked.headers["range"].as_str())
        .collect();
    assert_eq!(ranges, ["bytes=1-1000", "bytes=2000-2999"]);
    for asked in asked {
        assert_eq!(asked.path, "/dir/weights.bin?v=2&sig=abc");
        assert_eq!(asked.headers["accept-encoding"], "identity");
    }
}

#[test]
fn unknown_file_length_is_accepted() {
    accepted(|_| {
        Answer::new(206, &file(FILE_BYTES)[100..200]).with("Content-Range", "bytes 100-199/*")
    });
}

#[test]
fn chunked_body_is_accepted() {
    accepted(|_| {
        Answer::chunked(file(FILE_BYTES)[100..200].chunks(33)).with("Content-Range", HUNDRED)
    });
}

#[test]
fn another_range_is_refused() {
    for received in [
        "bytes 0-99/3000",
        "bytes 100-198/3000",
        "bytes 100-200/3000",
        "bytes 101-200/3000",
        "bytes 100-199/150",
        "bytes */3000",
        "items 100-199/3000",
        "bytes 100-199",
        "100-199/3000",
        "",
    ] {
        let error = refused(move |_| {
            Answer::new(206, &file(FILE_BYTES)[100..200]).with("Content-Range", received)
        });
        assert!(
            matches!(&error, WeightsError::ContentRange { start: 100, end: 200, received: header, .. }
                if header == received),
            "{received:?}: {error:?}"
        );
    }
}

#[test]
fn range_cut_at_the_end_of_a_truncated_file_is_refused() {
    let error = refused(|asked| Answer::range(asked, &file(150)));
    assert!(
        matches!(&error, WeightsError::ContentRange { received, .. } if received == "bytes 100-149/150"),
        "{error:?}"
    );
}

#[test]
fn missing_content_range_is_refused() {
    let error = refused(|_| Answer::new(206, &file(FILE_BYTES)[100..200]));
    assert!(
        matches!(error, WeightsError::ContentRangeMissing { .. }),
        "{error:?}"
    );
}

#[test]
fn whole_file_is_sliced() {
    accepted(|_| Answer::new(200, file(FILE_BYTES)));
}

#[test]
fn whole_file_is_read_twice_at_most() {
    let server = Server::start(|_| Answer::new(200, file(FILE_BYTES)));
    let wanted = [
        section("a", 0..10),
        section("b", 1000..1010),
        section("c", 2000..2010),
        section("d", 2990..3000),
    ];
    let outcome = load(&HttpSource::new(), &format!("{}/w", server.url), &wanted);
    assert!(outcome.result.is_ok(), "{:?}", outcome.result);
    assert_eq!(outcome.received, expected(&file(FILE_BYTES), &wanted));
    assert_eq!(server.asked().len(), 2);
}

#[test]
fn whole_file_that_is_too_short_is_refused() {
    for (file_bytes, received) in [(0, 0), (50, 0), (100, 0), (199, 99)] {
        let error = refused(move |_| Answer::new(200, &file(FILE_BYTES)[..file_bytes]));
        assert!(
            matches!(error, WeightsError::ShortBody { start: 100, expected_bytes: 100, received_bytes, .. }
                if received_bytes == received),
            "{error:?}"
        );
    }
}

#[test]
fn unsatisfiable_range_says_the_file_length() {
    let error = refused(|_| Answer::new(416, "").with("Content-Range", "bytes */150"));
    assert!(
        matches!(
            error,
            WeightsError::RangeNotSatisfiable {
                start: 100,
                end: 200,
                file_bytes: Some(150),
                ..
            }
        ),
        "{error:?}"
    );
    let error = refused(|_| Answer::new(416, ""));
    assert!(
        matches!(
            error,
            WeightsError::RangeNotSatisfiable {
                file_bytes: None,
                ..
            }
        ),
        "{error:?}"
    );
}

#[test]
fn other_statuses_are_errors() {
    for expected in [204, 304, 403, 404, 410, 429, 500, 503] {
        let error = refused(move |_| Answer::new(expected, ""));
        assert!(
            matches!(error, WeightsError::Status { status, .. } if status == expected),
            "{error:?}"
        );
    }
}

#[test]
fn web_page_instead_of_weights_is_refused() {
    let page = |status| {
        move |_: &Asked| {
            Answer::new(status, "<!doctype html><title>My app</title>")
                .with("Content-Type", "Text/HTML; charset=utf-8")
                .with("Content-Range", HUNDRED)
        }
    };
    for status in [200, 206] {
        let error = refused(page(status));
        assert!(
            error.to_string().ends_with(
                "received a web page (content type \"Text/HTML; charset=utf-8\", 36 bytes) \
             instead of 100 bytes of weights"
            ),
            "{error}"
        );
    }
}

#[test]
fn compressed_answers_are_refused() {
    for status in [200, 206] {
        let error = refused(move |_| {
            Answer::new(status, &file(FILE_BYTES)[100..200])
                .with("Content-Range", HUNDRED)
                .with("Content-Encoding", "gzip")
        });
        assert!(
            matches!(&error, WeightsError::ContentEncoding { encoding, .. } if encoding == "gzip"),
            "{error:?}"
        );
    }
    for encoding in ["identity", ""] {
        accepted(move |asked| {
            Answer::range(asked, &file(FILE_BYTES)).with("Content-Encoding", encoding)
        });
    }
}

#[test]
fn short_body_is_refused() {
    for received in [0, 1, 99] {
        let error = refused(move |_| {
            Answer::new(206, &file(FILE_BYTES)[100..100 + received]).with("Content-Range", HUNDRED)
        });
        assert!(
            matches!(error, WeightsError::ShortBody { start: 100, expected_bytes: 100, received_bytes, .. }
                if received_bytes == received as u64),
            "{error:?}"
        );
    }
}

#[test]
fn broken_connection_says_how_far_it_came() {
    for received in [0, 1, 99] {
        let error = refused(move |_| {
            Answer::new(206, &file(FILE_BYTES)[100..100 + received])
                .with("Content-Range", HUNDRED)
                .with("Content-Length", 100)
        });
        assert!(
            matches!(error, WeightsError::Interrupted { received_bytes, expected_bytes: Some(100), .. }
                if received_bytes == received as u64),
            "{error:?}"
        );
    }
}

#[test]
fn extra_bytes_are_refused() {
    let error =
        refused(|_| Answer::new(206, &file(FILE_BYTES)[100..201]).with("Content-Range", HUNDRED));
    assert!(
        matches!(
            error,
            WeightsError::LongBody {
                start: 100,
                expected_bytes: 100,
                received_bytes: 101,
                ..
            }
        ),
        "{error:?}"
    );
}

#[test]
fn source_alone_notices_a_short_body() {
    let server = Server::start(|_| {
        Answer::new(206, &file(FILE_BYTES)[100..199]).with("Content-Range", HUNDRED)
    });
    let (source, cancel) = (HttpSource::new(), Cancel::new());
    let mut on_chunk = |_: &[u8]| ControlFlow::Continue(());
    let url = format!("{}/weights.bin", server.url);
    let read = source.read_range(&url, 100..200, &cancel, &mut on_chunk);
    let error = pollster::block_on(read).unwrap_err();
    assert!(
        matches!(
            error,
            WeightsError::ShortBody {
                received_bytes: 99,
                ..
            }
        ),
        "{error:?}"
    );
}

#[test]
fn server_that_is_not_there() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/weights.bin", listener.local_addr().unwrap());
    drop(listener);
    let outcome = load(&HttpSource::new(), &url, &[section("a", 0..10)]);
    let error = outcome.result.unwrap_err();
    assert!(
        matches!(error.root(), WeightsError::Network { .. }),
        "{error:?}"
    );
}

#[test]
fn redirect_keeps_the_range() {
    let server = Server::start(|asked| match asked.path.as_str() {
        "/weights.bin" => Answer::new(302, "").with("Location", "/moved/weights.bin?sig=1"),
        _ => Answer::range(asked, &file(FILE_BYTES)),
    });
    let wanted = [section("a", 100..200)];
    let outcome = load(
        &HttpSource::new(),
        &format!("{}/weights.bin", server.url),
        &wanted,
    );
    assert!(outcome.result.is_ok(), "{:?}", outcome.result);
    assert_eq!(outcome.received, expected(&file(FILE_BYTES), &wanted));
    let asked = server.asked();
    assert_eq!(asked[1].path, "/moved/weights.bin?sig=1");
    assert_eq!(asked[1].headers["range"], "bytes=100-199");
}

#[test]
fn redirects_without_end_are_an_error() {
    let error = refused(|_| Answer::new(302, "").with("Location", "/weights.bin"));
    assert!(matches!(error, WeightsError::Network { .. }), "{error:?}");
}

#[test]
fn failure_in_a_later_request_leaves_the_earlier_sections_complete() {
    let server = Server::start(|asked| match asked.headers["range"].as_str() {
        "bytes=0-9" => Answer::range(asked, &file(FILE_BYTES)),
        _ => Answer::new(503, ""),
    });
    let url = format!("{}/weights.bin", server.url);
    let wanted = [section("late", 1000..1010), section("early", 0..10)];
    let outcome = load(&HttpSource::new(), &url, &wanted);
    let error = outcome.result.unwrap_err();
    assert!(matches!(&error, WeightsError::Section { section, .. } if section == "late"));
    assert_eq!(outcome.received[0], Received::default());
    assert!(outcome.received[1].complete);
}

#[test]
fn cancel_stops_the_transfer() {
    let file_bytes = 4_000_000;
    let server = Server::start(move |asked| Answer::range(asked, &file(file_bytes)));
    let url = format!("{}/weights.bin", server.url);
    let wanted = [
        section("a", 0..2_000_000),
        section("b", 3_000_000..3_000_001),
    ];
    let outcome = load_until(&HttpSource::new(), &url, &wanted, 1);
    assert!(
        matches!(outcome.result, Err(WeightsError::Cancelled)),
        "{:?}",
        outcome.result
    );
    let received_bytes = outcome.received[0].bytes.len();
    assert!(received_bytes > 0 && received_bytes < 2_000_000);
    assert!(!outcome.received[0].complete);
    assert_eq!(server.asked().len(), 1);
}

#[test]
fn text_is_read() {
    let text = read_text(|asked| {
        assert!(!asked.headers.contains_key("range"));
        Answer::new(200, "{\"é\": 1}").with("Content-Type", "application/json")
    });
    assert_eq!(text.unwrap(), "{\"é\": 1}");
    assert_eq!(read_text(|_| Answer::new(200, "x")).unwrap(), "x");
}

#[test]
fn web_page_instead_of_text_is_refused() {
    let error =
        read_text(|_| Answer::new(200, "<!doctype html>").with("Content-Type", "text/html"));
    let error = error.unwrap_err().to_string();
    let expected = "/manifest.json: received a web page (content type \"text/html\", 15 bytes) \
                    instead of a text file of the model";
    assert!(error.ends_with(expected), "{error}");
}

#[test]
fn absent_text_is_told_from_other_failures() {
    let page = || Answer::new(200, "<!doctype html>").with("Content-Type", "text/html");
    assert!(read_text(move |_| page()).unwrap_err().is_absent());
    for (status, absent) in [(404, true), (410, true), (403, false), (500, false)] {
        let error = read_text(move |_| Answer::new(status, "")).unwrap_err();
        assert_eq!(error.is_absent(), absent, "{status}");
    }
    assert!(
        !read_text(|_| Answer::new(200, b"\xff"))
            .unwrap_err()
            .is_absent()
    );
    assert!(refused(|_| Answer::new(404, "")).is_absent());
}

#[test]
fn text_errors() {
    let error = read_text(|_| Answer::new(404, "")).unwrap_err();
    assert!(
        matches!(error, WeightsError::Status { status: 404, .. }),
        "{error:?}"
    );
    let error = read_text(|_| Answer::new(206, "{}")).unwrap_err();
    assert!(
        matches!(error, WeightsError::Status { status: 206, .. }),
        "{error:?}"
    );
    let error = read_text(|_| Answer::new(200, vec![b' '; 1001])).unwrap_err();
    assert!(
        matches!(
            error,
            WeightsError::TextTooLong {
                limit_bytes: 1000,
                ..
            }
        ),
        "{error:?}"
    );
    let error = read_text(|_| Answer::new(200, b"ab\xff")).unwrap_err();
    assert!(
        matches!(error, WeightsError::NotUtf8 { valid_bytes: 2, .. }),
        "{error:?}"
    );
    let error = read_text(|_| Answer::new(200, "{}").with("Content-Encoding", "br")).unwrap_err();
    assert!(
        matches!(error, WeightsError::ContentEncoding { .. }),
        "{error:?}"
    );
    let error = read_text(|_| Answer::new(200, "{}").with("Content-Length", 5)).unwrap_err();
    assert!(
        matches!(
            error,
            WeightsError::Interrupted {
                received_bytes: 2,
                expected_bytes: None,
                ..
            }
        ),
        "{error:?}"
    );
}

#[test]
fn urls_resolve_as_links_do() {
    let source = HttpSource::new();
    let manifest = "https://example.com/models/tiny/manifest.json?v=1#top";
    for (reference, url) in [
        ("weights.bin", "https://example.com/models/tiny/weights.bin"),
        ("/weights.bin", "https://example.com/weights.bin"),
        ("../weights.bin", "https://example.com/models/weights.bin"),
        (
            "weights.bin?v=2&sig=abc",
            "https://example.com/models/tiny/weights.bin?v=2&sig=abc",
        ),
        ("?v=2", "https://example.com/models/tiny/manifest.json?v=2"),
        ("//cdn.example.net/w.bin", "https://cdn.example.net/w.bin"),
        (
            "http://cdn.example.net/w.bin",
            "http://cdn.example.net/w.bin",
        ),
        ("a b.bin", "https://example.com/models/tiny/a%20b.bin"),
    ] {
        assert_eq!(
            source.resolve(manifest, reference).unwrap(),
            url,
            "{reference}"
        );
    }
}

#[test]
fn only_http_and_https() {
    let source = HttpSource::new();
    for (base, reference, expected) in [
        ("https://example.com/m.json", "file:///etc/passwd", "file"),
        ("https://example.com/m.json", "data:,x", "data"),
        (
            "https://example.com/m.json",
            "blob:https://example.com/x",
            "blob",
        ),
        ("ftp://example.com/m.json", "w.bin", "ftp"),
    ] {
        let error = source.resolve(base, reference).unwrap_err();
        assert!(
            matches!(&error, WeightsError::Scheme { scheme, .. } if scheme == expected),
            "{error:?}"
        );
    }
    let cancel = Cancel::new();
    let read = source.read_text("file:///etc/passwd", 100, &cancel);
    let error = pollster::block_on(read).unwrap_err();
    assert!(matches!(error, WeightsError::Scheme { .. }), "{error:?}");
    for base in ["manifest.json", "", "http://"] {
        let error = source.resolve(base, "weights.bin").unwrap_err();
        assert!(
            matches!(error, WeightsError::InvalidUrl { .. }),
            "{error:?}"
        );
    }
    let error = source
        .resolve("http://example.com", "http://[")
        .unwrap_err();
    assert!(
        matches!(&error, WeightsError::InvalidUrl { url, base }
            if url == "http://[" && base == "http://example.com"),
        "{error:?}"
    );
}
