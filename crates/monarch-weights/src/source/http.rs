use std::io::{ErrorKind, Read};
use std::ops::{ControlFlow, Range};
use std::time::Duration;

use ureq::http::{HeaderName, header};
use url::Url;

use super::{CHUNK_BYTES, Served, Source};
use crate::http::Head;
use crate::{Cancel, WeightsError};

/// How long a server may keep silent: while connecting, before its answer, between two reads.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);

/// Files on a web server, for native programs.
///
/// Calls block; the futures are ready when first polled. Redirects are followed, up to ten. A
/// connection is reused from one request to the next.
#[derive(Debug)]
pub struct HttpSource {
    agent: ureq::Agent,
}

impl HttpSource {
    /// A source with its own connections.
    pub fn new() -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(SILENCE_LIMIT))
            .timeout_recv_response(Some(SILENCE_LIMIT))
            .timeout_per_read(Some(SILENCE_LIMIT))
            .user_agent(concat!("monarch-webgpu/", env!("CARGO_PKG_VERSION")))
            // A compressed answer would have other ranges.
            .accept_encoding("identity")
            .build();
        HttpSource {
            agent: config.new_agent(),
        }
    }

    fn get(&self, url: &str, range: Option<&Range<u64>>) -> Result<(Head, Body), WeightsError> {
        let url = parse_http_url(url)?;
        let mut request = self.agent.get(url.as_str());
        if let Some(range) = range {
            let last = range.end - 1;
            request = request.header(header::RANGE, format!("bytes={}-{last}", range.start));
        }
        let response = request.call().map_err(|error| WeightsError::Network {
            url: url.to_string(),
            source: Box::new(error),
        })?;
        let header = |name: HeaderName| {
            let value = response.headers().get(name)?;
            Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let head = Head {
            status: response.status().as_u16(),
            content_type: header(header::CONTENT_TYPE),
            content_range: header(header::CONTENT_RANGE),
            content_encoding: header(header::CONTENT_ENCODING),
            content_bytes: header(header::CONTENT_LENGTH).and_then(|value| value.parse().ok()),
            decoded: false,
        };
        let body = Body {
            reader: response.into_body().into_reader(),
            buffer: vec![0; CHUNK_BYTES],
            received_bytes: 0,
        };
        Ok((head, body))
    }
}

impl Default for HttpSource {
    fn default() -> Self {
        Self::new()
    }
}

impl Source for HttpSource {
    fn resolve(&self, base: &str, reference: &str) -> Result<String, WeightsError> {
        let url = parse_http_url(base)?.join(reference);
        let url = url.map_err(|_| WeightsError::InvalidUrl {
            url: reference.to_owned(),
            base: base.to_owned(),
        })?;
        require_http(&url)?;
        Ok(url.into())
    }

    async fn read_text(
        &self,
        url: &str,
        limit_bytes: u64,
        cancel: &Cancel,
    ) -> Result<String, WeightsError> {
        let (head, mut body) = self.get(url, None)?;
        let mut text = head.text_body(url, limit_bytes)?;
        while let Some(chunk) = body.next_chunk(url, None)? {
            if cancel.is_cancelled() {
                return Err(WeightsError::Cancelled);
            }
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
        let expected_bytes = range.end - range.start;
        let (head, mut body) = self.get(url, Some(&range))?;
        let mut wanted = head.range_body(url, range)?;
        while !wanted.is_done() {
            let Some(chunk) = body.next_chunk(url, Some(expected_bytes))? else {
                break;
            };
            if cancel.is_cancelled() {
                return Err(WeightsError::Cancelled);
            }
            let chunk = wanted.take(chunk)?;
            if !chunk.is_empty() && on_chunk(chunk).is_break() {
                return Ok(wanted.served());
            }
        }
        wanted.finish()
    }
}

/// A body as it arrives, through one buffer.
struct Body {
    reader: ureq::BodyReader<'static>,
    buffer: Vec<u8>,
    received_bytes: u64,
}

impl Body {
    /// The next bytes; none at the end of the body, also when it ends too early.
    fn next_chunk(
        &mut self,
        url: &str,
        expected_bytes: Option<u64>,
    ) -> Result<Option<&[u8]>, WeightsError> {
        let read_bytes = loop {
            match self.reader.read(&mut self.buffer) {
                Ok(read_bytes) => break read_bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(WeightsError::Interrupted {
                        url: url.to_owned(),
                        received_bytes: self.received_bytes,
                        expected_bytes,
                        source: Box::new(error),
                    });
                }
            }
        };
        self.received_bytes += read_bytes as u64;
        Ok((read_bytes > 0).then(|| &self.buffer[..read_bytes]))
    }
}

fn parse_http_url(text: &str) -> Result<Url, WeightsError> {
    let url = Url::parse(text).map_err(|_| WeightsError::InvalidUrl {
        url: text.to_owned(),
        base: String::new(),
    })?;
    require_http(&url)?;
    Ok(url)
}

fn require_http(url: &Url) -> Result<(), WeightsError> {
    match url.scheme() {
        "http" | "https" => Ok(()),
        scheme => Err(WeightsError::Scheme {
            url: url.to_string(),
            scheme: scheme.to_owned(),
        }),
    }
}
