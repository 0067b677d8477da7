#[cfg(not(target_arch = "wasm32"))]
pub(crate) mod folder;
#[cfg(not(target_arch = "wasm32"))]
pub(crate) mod http;
#[cfg(target_arch = "wasm32")]
pub(crate) mod web;

use std::future::Future;
use std::ops::{ControlFlow, Range};

use crate::{Cancel, WeightsError};

/// Most bytes in one chunk, and the size of each source's buffer.
const CHUNK_BYTES: usize = 256 << 10;

/// Where a model's files come from.
///
/// A source answers each call on its own: no retries, no cache. Those wrap a source and are one
/// themselves.
pub trait Source {
    /// The URL of `reference`, as a link on the page `base` would mean it.
    ///
    /// `base` is the manifest's own URL; its query string is no part of the result.
    fn resolve(&self, base: &str, reference: &str) -> Result<String, WeightsError>;

    /// A whole text file (manifest, tokenizer, template) of at most `limit_bytes`.
    fn read_text(
        &self,
        url: &str,
        limit_bytes: u64,
        cancel: &Cancel,
    ) -> impl Future<Output = Result<String, WeightsError>>;

    /// The bytes `range` of a file, in order, each exactly once, in chunks of any non-zero size.
    ///
    /// `range` is not empty. `Ok` means that all of it was passed on, or that `on_chunk` broke off,
    /// which ends the transfer; a source that cannot give all of it, or gets more, fails.
    fn read_range(
        &self,
        url: &str,
        range: Range<u64>,
        cancel: &Cancel,
        on_chunk: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> impl Future<Output = Result<Served, WeightsError>>;
}

/// How a source got at a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// Only the range was transferred.
    Range,
    /// The server ignored the range and sent the file from its first byte; the source dropped what
    /// was not asked for. Another request would transfer the same bytes again.
    WholeFile,
}
