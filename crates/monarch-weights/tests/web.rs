//! [`WebSource`] in a browser: against the test runner's own server, which knows ranges and serves
//! this crate's folder, and against a scripted `fetch` for everything that server never answers.
#![cfg(target_arch = "wasm32")]

use std::cell::Cell;
use std::ops::{ControlFlow, Range};
use std::rc::Rc;

use js_sys::{Array, Promise, Uint8Array};
use monarch_manifest::Section;
use monarch_weights::{
    Cancel, Loaded, SectionSink, Served, Source, WebSource, WeightsError, load_sections,
};
use sha2::{Digest, Sha256};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::{JsFuture, spawn_local};
use wasm_bindgen_test::wasm_bindgen_test;

const FILE: &[u8] = include_bytes!("fixtures/weights.bin");
const URL: &str = "/tests/fixtures/weights.bin";

#[wasm_bindgen(inline_js = r#"
    /// Replaces `fetch`: every request gets this status, these headers and a body of these chunks.
    /// `end` says what comes after the last chunk: "close", "error" or "silence".
    export class Script {
        constructor(status, headers, chunks, end) {
            this.original = globalThis.fetch;
            this.ranges = [];
            this.aborts = 0;
            globalThis.fetch = async (request) => {
                this.ranges.push(request.headers.get("range"));
                request.signal.addEventListener("abort", () => this.aborts++);
                let next = 0;
                const body = new ReadableStream({
                    start(controller) {
                        // As the real one does it.
                        request.signal.addEventListener("abort", () =>
                            controller.error(request.signal.reason));
                    },
                    pull(controller) {
                        if (next < chunks.length) return controller.enqueue(chunks[next++].slice());
                        if (end === "close") return controller.close();
                        if (end === "error") return controller.error(new TypeError("line cut"));
                        return new Promise(() => {});
                    },
                });
                return new Response(body, { status, headers });
            };
        }
        restore() { globalThis.fetch = this.original; }
    }
    export function sleep(ms) { return new Promise((wake) => setTimeout(wake, ms)); }
"#)]
extern "C" {
    type Script;
    #[wasm_bindgen(constructor)]
    fn new(status: u16, headers: &Array, chunks: &Array, end: &str) -> Script;
    #[wasm_bindgen(method, getter)]
    fn ranges(this: &Script) -> Vec<String>;
    #[wasm_bindgen(method, getter)]
    fn aborts(this: &Script) -> u32;
    #[wasm_bindgen(method)]
    fn restore(this: &Script);

    fn sleep(ms: u32) -> Promise;
}

/// A [`Script`] that is taken off again, also when a test fails.
struct Scripted(Script);

impl Drop for Scripted {
    fn drop(&mut self) {
        self.0.restore();
    }
}

fn scripted(status: u16, headers: &[(&str, &str)], chunks: &[&[u8]], end: &str) -> Scripted {
    let pair = |&(name, value): &(&str, &str)| Array::of2(&name.into(), &value.into());
    let headers = headers.iter().map(pair).collect();
    let chunks = chunks
        .iter()
        .map(|chunk| Uint8Array::from(*chunk))
        .collect();
    Scripted(Script::new(status, &headers, &chunks, end))
}

fn section(name: &str, range: Range<usize>) -> Section {
    Section {
        name: name.to_owned(),
        offset_bytes: range.start as u64,
        bytes: range.len() as u64,
        sha256: Some(Sha256::digest(&FILE[range]).into()),
    }
}

#[derive(Default)]
struct Collect {
    sections: Vec<Vec<u8>>,
    complete: Vec<usize>,
    longest_chunk: usize,
}

impl SectionSink for Collect {
    fn chunk(&mut self, section: usize, offset_bytes: u64, bytes: &[u8]) {
        assert_eq!(self.sections[section].len() as u64, offset_bytes);
        self.sections[section].extend_from_slice(bytes);
        self.longest_chunk = self.longest_chunk.max(bytes.len());
    }
    fn complete(&mut self, section: usize) {
        self.complete.push(section);
    }
}

async fn load(
    url: &str,
    wanted: &[Section],
    cancel: &Cancel,
) -> (Result<(), WeightsError>, Collect, Vec<Loaded>) {
    let wanted: Vec<&Section> = wanted.iter().collect();
    let mut sink = Collect {
        sections: vec![Vec::new(); wanted.len()],
        ..Collect::default()
    };
    let mut progress = Vec::new();
    let mut on_progress = |loaded| progress.push(loaded);
    let source = WebSource::new();
    let result = load_sections(&source, url, &wanted, &mut sink, &mut on_progress, cancel).await;
    (result, sink, progress)
}

/// Reads bytes 100..200 through a scripted `fetch`; gives all of them, or the error.
async fn read_hundred() -> Result<(Served, Vec<u8>), WeightsError> {
    let mut bytes = Vec::new();
    let mut on_chunk = |chunk: &[u8]| {
        bytes.extend_from_slice(chunk);
        ControlFlow::Continue(())
    };
    let source = WebSource::new();
    let served = source
        .read_range(URL, 100..200, &Cancel::new(), &mut on_chunk)
        .await?;
    Ok((served, bytes))
}

const HUNDRED: &[(&str, &str)] = &[("content-range", "bytes 100-199/5000")];

#[wasm_bindgen_test]
async fn sections_arrive_by_ranges() {
    let wanted = [
        section("a", 1..18),
        section("b", 18..1001),
        section("far", 3000..5000),
        section("tied a", 1..18),
    ];
    let (result, sink, progress) = load(URL, &wanted, &Cancel::new()).await;
    result.unwrap();
    assert_eq!(
        sink.sections,
        [&FILE[1..18], &FILE[18..1001], &FILE[3000..], &FILE[1..18]]
    );
    assert_eq!(sink.complete.len(), 4);
    assert!(progress.is_sorted_by_key(|loaded| loaded.loaded_bytes));
    assert_eq!(
        progress[progress.len() - 1],
        Loaded {
            loaded_bytes: 3000,
            total_bytes: 3000
        }
    );
}

#[wasm_bindgen_test]
async fn wrong_digest_is_found() {
    let mut wanted = [section("a", 0..1000)];
    wanted[0].sha256 = Some([0; 32]);
    let (result, sink, _) = load(URL, &wanted, &Cancel::new()).await;
    assert!(
        matches!(result, Err(WeightsError::Digest { .. })),
        "{result:?}"
    );
    assert!(sink.complete.is_empty());
}

#[wasm_bindgen_test]
async fn text_is_read() {
    let source = WebSource::new();
    let manifest = source.resolve(URL, "manifest.json?v=1").unwrap();
    let text = source
        .read_text(&manifest, 100, &Cancel::new())
        .await
        .unwrap();
    assert_eq!(text, include_str!("fixtures/manifest.json"));
    let error = source
        .read_text(&manifest, 10, &Cancel::new())
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            WeightsError::TextTooLong {
                limit_bytes: 10,
                ..
            }
        ),
        "{error:?}"
    );
    let error = source
        .read_text("/absent.json", 10, &Cancel::new())
        .await
        .unwrap_err();
    assert!(
        matches!(error, WeightsError::Status { status: 404, .. }),
        "{error:?}"
    );
}

#[wasm_bindgen_test]
async fn urls_resolve_as_links_do() {
    let source = WebSource::new();
    let manifest = "https://example.com/models/tiny/manifest.json?v=1#top";
    for (reference, url) in [
        (
            "weights.bin?v=2&sig=abc",
            "https://example.com/models/tiny/weights.bin?v=2&sig=abc",
        ),
        ("/weights.bin", "https://example.com/weights.bin"),
        ("../weights.bin", "https://example.com/models/weights.bin"),
        ("//cdn.example.net/w.bin", "https://cdn.example.net/w.bin"),
    ] {
        assert_eq!(source.resolve(manifest, reference).unwrap(), url);
    }
    let url = source
        .resolve("models/manifest.json", "weights.bin")
        .unwrap();
    assert!(
        url.starts_with("http://127.0.0.1:") && url.ends_with("/models/weights.bin"),
        "{url}"
    );
}

#[wasm_bindgen_test]
async fn only_http_and_https() {
    let source = WebSource::new();
    for (url, expected) in [("data:,x", "data"), ("blob:https://example.com/x", "blob")] {
        for error in [
            source.resolve(URL, url).unwrap_err(),
            source.read_text(url, 10, &Cancel::new()).await.unwrap_err(),
        ] {
            assert!(
                matches!(&error, WeightsError::Scheme { scheme, .. } if scheme == expected),
                "{error:?}"
            );
        }
    }
    let error = source.resolve("http://[", "weights.bin").unwrap_err();
    assert!(
        matches!(error, WeightsError::InvalidUrl { .. }),
        "{error:?}"
    );
}

#[wasm_bindgen_test]
async fn large_deliveries_are_passed_on_in_pieces() {
    let file: Vec<u8> = FILE.iter().copied().cycle().take(1_000_003).collect();
    let chunks = [
        &file[..700_001],
        &file[700_001..700_002],
        &[],
        &file[700_002..],
    ];
    let headers = [("content-range", "bytes 0-1000002/1000003")];
    let script = scripted(206, &headers, &chunks, "close");
    let wanted = [Section {
        name: "a".to_owned(),
        offset_bytes: 0,
        bytes: file.len() as u64,
        sha256: None,
    }];
    let (result, sink, _) = load(URL, &wanted, &Cancel::new()).await;
    result.unwrap();
    assert!(sink.sections[0] == file);
    assert!(
        sink.longest_chunk <= 256 << 10,
        "{} bytes at once",
        sink.longest_chunk
    );
    assert_eq!(script.0.ranges(), ["bytes=0-1000002"]);
}

#[wasm_bindgen_test]
async fn whole_file_is_sliced_also_when_the_browser_decoded_it() {
    let encoded = [("content-encoding", "gzip"), ("content-length", "1234")];
    for headers in [&[][..], &encoded] {
        let script = scripted(
            200,
            headers,
            &[&FILE[..150], &FILE[150..170], &FILE[170..]],
            "close",
        );
        let (served, bytes) = read_hundred().await.unwrap();
        assert_eq!((served, &bytes[..]), (Served::WholeFile, &FILE[100..200]));
        assert_eq!(script.0.ranges(), ["bytes=100-199"]);
        assert_eq!(script.0.aborts(), 1, "the rest of the file is not read");
    }
}

#[wasm_bindgen_test]
async fn wrong_answers_are_refused() {
    let right = &FILE[100..200];
    let refused = async |status, headers: &[(&str, &str)], body: &[u8], end: &str| {
        let _script = scripted(status, headers, &[body], end);
        read_hundred().await.unwrap_err()
    };
    let error = refused(404, &[], b"", "close").await;
    assert!(
        matches!(error, WeightsError::Status { status: 404, .. }),
        "{error:?}"
    );
    let error = refused(416, &[("content-range", "bytes */150")], b"", "close").await;
    assert!(
        matches!(
            error,
            WeightsError::RangeNotSatisfiable {
                file_bytes: Some(150),
                ..
            }
        ),
        "{error:?}"
    );
    let error = refused(206, &[("content-range", "bytes 0-99/5000")], right, "close").await;
    assert!(
        matches!(error, WeightsError::ContentRange { .. }),
        "{error:?}"
    );
    let error = refused(206, &[], right, "close").await;
    assert!(
        matches!(error, WeightsError::ContentRangeMissing { .. }),
        "{error:?}"
    );
    let headers = [HUNDRED[0], ("content-encoding", "gzip")];
    let error = refused(206, &headers, right, "close").await;
    assert!(
        matches!(error, WeightsError::ContentEncoding { .. }),
        "{error:?}"
    );
    let error = refused(
        200,
        &[("content-type", "text/html")],
        b"<!doctype html>",
        "close",
    )
    .await;
    assert!(
        matches!(
            error,
            WeightsError::WebPage {
                expected_bytes: Some(100),
                ..
            }
        ),
        "{error:?}"
    );
    let error = refused(206, HUNDRED, &FILE[100..199], "close").await;
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
    let error = refused(206, HUNDRED, &FILE[100..201], "close").await;
    assert!(
        matches!(
            error,
            WeightsError::LongBody {
                received_bytes: 101,
                ..
            }
        ),
        "{error:?}"
    );
    let error = refused(206, HUNDRED, &FILE[100..150], "error").await;
    assert!(
        matches!(
            &error,
            WeightsError::Interrupted { received_bytes: 50, expected_bytes: Some(100), source, .. }
                if source.to_string() == "TypeError: line cut"
        ),
        "{error:?}"
    );
}

#[wasm_bindgen_test]
async fn server_that_is_not_there() {
    let wanted = [section("a", 0..10)];
    // Browsers refuse this port without trying.
    let (result, ..) = load("http://127.0.0.1:1/weights.bin", &wanted, &Cancel::new()).await;
    let error = result.unwrap_err();
    assert!(
        matches!(error.root(), WeightsError::Network { url, .. }
            if url == "http://127.0.0.1:1/weights.bin"),
        "{error:?}"
    );
}

#[wasm_bindgen_test]
async fn cancel_wakes_a_read_that_waits() {
    let script = scripted(206, HUNDRED, &[&FILE[100..150]], "silence");
    let cancel = Cancel::new();
    let later = cancel.clone();
    spawn_local(async move {
        JsFuture::from(sleep(20)).await.unwrap();
        later.cancel();
    });
    let (result, sink, _) = load(URL, &[section("a", 100..200)], &cancel).await;
    assert!(matches!(result, Err(WeightsError::Cancelled)), "{result:?}");
    assert_eq!(sink.sections[0], &FILE[100..150]);
    assert!(sink.complete.is_empty());
    assert_eq!(script.0.aborts(), 1);
}

#[wasm_bindgen_test]
async fn breaking_off_aborts_the_request() {
    let script = scripted(206, HUNDRED, &[&FILE[100..150]], "silence");
    let source = WebSource::new();
    let mut on_chunk = |_: &[u8]| ControlFlow::Break(());
    let served = source
        .read_range(URL, 100..200, &Cancel::new(), &mut on_chunk)
        .await;
    assert_eq!(served.unwrap(), Served::Range);
    assert_eq!(script.0.aborts(), 1);
}

#[wasm_bindgen_test]
async fn dropping_the_future_aborts_the_request() {
    let script = scripted(206, HUNDRED, &[&FILE[100..150]], "silence");
    let reading = Rc::new(Cell::new(false));
    let seen = Rc::clone(&reading);
    let cancel = Cancel::new();
    let source = WebSource::new();
    let mut on_chunk = |_: &[u8]| {
        seen.set(true);
        ControlFlow::Continue(())
    };
    let mut read = Box::pin(source.read_range(URL, 100..200, &cancel, &mut on_chunk));
    while !reading.get() {
        assert!(poll_once(read.as_mut()).is_none(), "silence has no end");
        JsFuture::from(sleep(1)).await.unwrap();
    }
    assert_eq!(script.0.aborts(), 0);
    drop(read);
    assert_eq!(script.0.aborts(), 1);
}

/// Polls once; the sleeping loop around it does the waking.
fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.poll(&mut context) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}
