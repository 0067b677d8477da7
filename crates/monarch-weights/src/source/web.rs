use std::fmt;
use std::ops::{ControlFlow, Range};

use js_sys::{Reflect, Uint8Array};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::{
    AbortController, Headers, ReadableStreamDefaultReader, Request, RequestInit, Response, Url,
};

use super::{CHUNK_BYTES, Served, Source};
use crate::http::Head;
use crate::{Cancel, CancelRegistration, WeightsError};

/// Files on the network as a web page sees it: `fetch`, in a window or a worker.
///
/// Relative URLs resolve against the page (or the worker's script), as `fetch` itself does it.
/// Cancelling aborts a request that is under way; so does dropping its future.
#[derive(Clone, Copy, Debug, Default)]
pub struct WebSource;

impl WebSource {
    /// A source with the page's own `fetch`.
    pub fn new() -> Self {
        WebSource
    }
}

impl Source for WebSource {
    fn resolve(&self, base: &str, reference: &str) -> Result<String, WeightsError> {
        let invalid = || WeightsError::InvalidUrl {
            url: reference.to_owned(),
            base: base.to_owned(),
        };
        // A request's `url` is absolute by the rules of this window or worker.
        let base = Request::new_with_str(base).map_err(|_| invalid())?.url();
        let url = Url::new_with_base(reference, &base).map_err(|_| invalid())?;
        require_http(&url)?;
        Ok(url.href())
    }

    async fn read_text(
        &self,
        url: &str,
        limit_bytes: u64,
        cancel: &Cancel,
    ) -> Result<String, WeightsError> {
        let mut fetch = Fetch::start(url, None, cancel).await?;
        let mut text = fetch.head.text_body(url, limit_bytes)?;
        while let Some(chunk) = fetch.next_chunk().await? {
            text.push(chunk)?;
        }
        text.finish()
    }

    async fn read_range(
        &self,
        url: &str,
        range: Range<u64>,
        cancel: &Cancel,
        on_chunk: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Served, WeightsError> {
        let mut fetch = Fetch::start(url, Some(&range), cancel).await?;
        let mut wanted = fetch.head.range_body(url, range)?;
        while !wanted.is_done() {
            let Some(chunk) = fetch.next_chunk().await? else {
                break;
            };
            let chunk = wanted.take(chunk)?;
            if !chunk.is_empty() && on_chunk(chunk).is_break() {
                return Ok(wanted.served());
            }
        }
        wanted.finish()
    }
}

#[wasm_bindgen]
extern "C" {
    // The global one exists in windows and in workers.
    #[wasm_bindgen(js_name = fetch)]
    fn fetch(request: &Request) -> js_sys::Promise;
}

/// A request under way; dropping it ends the transfer.
struct Fetch<'a> {
    url: &'a str,
    cancel: &'a Cancel,
    head: Head,
    expected_bytes: Option<u64>,
    received_bytes: u64,
    /// None for an answer without a body.
    reader: Option<ReadableStreamDefaultReader>,
    /// What the browser delivered last, and how much of it was passed on.
    delivered: Uint8Array,
    passed_on_bytes: u32,
    /// The only copy in wasm memory.
    buffer: Vec<u8>,
    _abort: Abort,
}

impl<'a> Fetch<'a> {
    async fn start(
        url: &'a str,
        range: Option<&Range<u64>>,
        cancel: &'a Cancel,
    ) -> Result<Self, WeightsError> {
        if cancel.is_cancelled() {
            return Err(WeightsError::Cancelled);
        }
        let network = |error| WeightsError::Network {
            url: url.to_owned(),
            source: Box::new(JsError::from(error)),
        };
        let controller = AbortController::new().map_err(network)?;
        let options = RequestInit::new();
        options.set_signal(Some(&controller.signal()));
        if let Some(range) = range {
            // Browsers add `Accept-Encoding: identity` to requests with a range.
            let headers = Headers::new().map_err(network)?;
            let value = format!("bytes={}-{}", range.start, range.end - 1);
            headers.append("Range", &value).map_err(network)?;
            options.set_headers_headers(&headers);
        }
        let request = Request::new_with_str_and_init(url, &options);
        let request = request.map_err(|_| WeightsError::InvalidUrl {
            url: url.to_owned(),
            base: String::new(),
        })?;
        require_http(&Url::new(&request.url()).map_err(network)?)?;

        let abort = Abort::new(controller, cancel);
        let response = JsFuture::from(fetch(&request)).await;
        if cancel.is_cancelled() {
            return Err(WeightsError::Cancelled);
        }
        let response: Response = response.map_err(network)?.unchecked_into();
        let headers = response.headers();
        // `get` only fails for a malformed name.
        let header = |name| headers.get(name).ok().flatten();
        let head = Head {
            status: response.status(),
            content_type: header("content-type"),
            content_range: header("content-range"),
            content_encoding: header("content-encoding"),
            content_bytes: header("content-length").and_then(|value| value.parse().ok()),
            decoded: true,
        };
        let reader = response.body().map(|body| body.get_reader());
        Ok(Fetch {
            url,
            cancel,
            head,
            expected_bytes: range.map(|range| range.end - range.start),
            received_bytes: 0,
            reader: reader.map(JsCast::unchecked_into),
            delivered: Uint8Array::new_with_length(0),
            passed_on_bytes: 0,
            buffer: Vec::new(),
            _abort: abort,
        })
    }

    /// The next bytes; none at the end of the body.
    ///
    /// The browser chooses how much it delivers at once. Larger deliveries are passed on in pieces,
    /// so that wasm memory, which never shrinks, holds at most [`CHUNK_BYTES`] of them.
    async fn next_chunk(&mut self) -> Result<Option<&[u8]>, WeightsError> {
        while self.passed_on_bytes == self.delivered.length() {
            let Some(reader) = &self.reader else {
                return Ok(None);
            };
            let result = JsFuture::from(reader.read()).await;
            if self.cancel.is_cancelled() {
                return Err(WeightsError::Cancelled);
            }
            let result = result.map_err(|error| WeightsError::Interrupted {
                url: self.url.to_owned(),
                received_bytes: self.received_bytes,
                expected_bytes: self.expected_bytes,
                source: Box::new(JsError::from(error)),
            })?;
            // `read` settles with `{ done, value }`, where `value` is missing at the end.
            let value = Reflect::get(&result, &JsValue::from_str("value")).ok();
            let Some(value) = value.filter(|value| !value.is_undefined()) else {
                self.reader = None;
                return Ok(None);
            };
            self.delivered = value.unchecked_into();
            self.passed_on_bytes = 0;
            self.received_bytes += u64::from(self.delivered.length());
        }
        let start = self.passed_on_bytes;
        let end = self.delivered.length().min(start + CHUNK_BYTES as u32);
        self.buffer.resize((end - start) as usize, 0);
        self.delivered
            .subarray(start, end)
            .copy_to(&mut self.buffer);
        self.passed_on_bytes = end;
        Ok(Some(&self.buffer))
    }
}

/// Aborts a request when cancelled or dropped; after its end that does nothing.
struct Abort {
    controller: AbortController,
    _registration: CancelRegistration,
}

impl Abort {
    fn new(controller: AbortController, cancel: &Cancel) -> Self {
        let shared = controller.clone();
        Abort {
            controller,
            _registration: cancel.on_cancel(move || shared.abort()),
        }
    }
}

impl Drop for Abort {
    fn drop(&mut self) {
        self.controller.abort();
    }
}

fn require_http(url: &Url) -> Result<(), WeightsError> {
    let protocol = url.protocol();
    match protocol.trim_end_matches(':') {
        "http" | "https" => Ok(()),
        scheme => Err(WeightsError::Scheme {
            url: url.href(),
            scheme: scheme.to_owned(),
        }),
    }
}

/// A JavaScript exception, as text: the value itself may not leave its thread.
#[derive(Debug)]
struct JsError(String);

impl From<JsValue> for JsError {
    fn from(error: JsValue) -> Self {
        let text = match error.dyn_ref::<js_sys::Error>() {
            Some(error) => String::from(error.to_string()),
            None => format!("{error:?}"),
        };
        JsError(text)
    }
}

impl fmt::Display for JsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for JsError {}
