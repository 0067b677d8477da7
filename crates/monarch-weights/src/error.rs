use std::path::PathBuf;

/// Why a file or a section did not arrive.
///
/// Byte ranges are half open, counted from the start of the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// The load was stopped through [`Cancel`](crate::Cancel).
    #[error("loading was cancelled")]
    Cancelled,

    /// The request that a section was part of failed; the source says how.
    #[error("section {section}: could not read bytes {start}..{end} of {url}")]
    Section {
        /// First section of the request that is not complete.
        section: String,
        /// File that holds the section.
        url: String,
        /// First byte asked for.
        start: u64,
        /// One past the last byte asked for.
        end: u64,
        /// What went wrong.
        #[source]
        source: Box<WeightsError>,
    },

    /// All bytes of a section arrived, but they are not the listed ones.
    #[error(
        "section {section}: the manifest lists SHA-256 {expected}, the {bytes} bytes from {url} have {actual}"
    )]
    Digest {
        /// The section's name.
        section: String,
        /// File that holds the section.
        url: String,
        /// Length of the section.
        bytes: u64,
        /// Listed digest, lower-case hex.
        expected: String,
        /// Digest of the received bytes, lower-case hex.
        actual: String,
    },

    /// The text is not a URL, or is relative to something that is none.
    #[error("{url:?} is not a valid URL relative to {base:?}")]
    InvalidUrl {
        /// The text.
        url: String,
        /// What it was resolved against; empty when it had to be absolute.
        base: String,
    },

    /// The URL's scheme is neither `http` nor `https`.
    #[error("{url}: scheme {scheme:?} is not supported, use http or https")]
    Scheme {
        /// The URL.
        url: String,
        /// Its scheme, without the colon.
        scheme: String,
    },

    /// A file of a [`FolderSource`](crate::FolderSource) was to be found outside its folder.
    #[error("{url:?} lies outside the folder {}", folder.display())]
    OutsideFolder {
        /// The path or URL as written.
        url: String,
        /// The source's folder.
        folder: PathBuf,
    },

    /// A local file could not be read.
    #[error("cannot read {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        #[source]
        source: std::io::Error,
    },

    /// No answer.
    #[error("{url}: no answer from the network")]
    Network {
        /// The URL asked for.
        url: String,
        /// What the HTTP client says.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// The connection broke while the body arrived.
    #[error("{url}: the connection broke after {received_bytes} bytes of {}", or_unknown(.expected_bytes))]
    Interrupted {
        /// The URL asked for.
        url: String,
        /// How many bytes of the body had arrived.
        received_bytes: u64,
        /// How many were asked for; none for a text file.
        expected_bytes: Option<u64>,
        /// What the HTTP client says.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// The server answered with a status that carries no content.
    #[error("{url}: the server answered with HTTP status {status}")]
    Status {
        /// The URL asked for.
        url: String,
        /// HTTP status code.
        status: u16,
    },

    /// HTTP 416: the file has no such bytes.
    #[error(
        "{url}: the server has no bytes {start}..{end} (HTTP status 416, file length {})",
        or_unknown(.file_bytes)
    )]
    RangeNotSatisfiable {
        /// The URL asked for.
        url: String,
        /// First byte asked for.
        start: u64,
        /// One past the last byte asked for.
        end: u64,
        /// The file's length, when the server says it.
        file_bytes: Option<u64>,
    },

    /// HTTP 206 without a readable `Content-Range`, so nothing says which bytes these are.
    #[error(
        "{url}: the answer to a request for bytes {start}..{end} has no readable Content-Range header \
         (a server on another origin must list it in Access-Control-Expose-Headers)"
    )]
    ContentRangeMissing {
        /// The URL asked for.
        url: String,
        /// First byte asked for.
        start: u64,
        /// One past the last byte asked for.
        end: u64,
    },

    /// HTTP 206 with other bytes than the ones asked for.
    #[error("{url}: asked for bytes {start}..{end}, the server sent Content-Range {received:?}")]
    ContentRange {
        /// The URL asked for.
        url: String,
        /// First byte asked for.
        start: u64,
        /// One past the last byte asked for.
        end: u64,
        /// The header as received.
        received: String,
    },

    /// A web page came where a file of the model should be: many servers answer so for a missing
    /// file, with status 200.
    #[error(
        "{url}: received a web page (content type {content_type:?}, {} bytes) instead of {}",
        or_unknown(.content_bytes),
        expected_content(.expected_bytes)
    )]
    WebPage {
        /// The URL asked for.
        url: String,
        /// The `Content-Type` header.
        content_type: String,
        /// The `Content-Length` header.
        content_bytes: Option<u64>,
        /// How many bytes were asked for; none for a text file.
        expected_bytes: Option<u64>,
    },

    /// The body is compressed, so its bytes are not the file's bytes.
    #[error(
        "{url}: the answer is compressed (Content-Encoding {encoding:?}), serve it uncompressed"
    )]
    ContentEncoding {
        /// The URL asked for.
        url: String,
        /// The `Content-Encoding` header.
        encoding: String,
    },

    /// The file or the body ended too early.
    #[error(
        "{url}: expected {expected_bytes} bytes from offset {start}, received {received_bytes}"
    )]
    ShortBody {
        /// The URL asked for.
        url: String,
        /// First byte asked for.
        start: u64,
        /// How many bytes were asked for.
        expected_bytes: u64,
        /// How many arrived.
        received_bytes: u64,
    },

    /// The body goes on after the range asked for.
    #[error(
        "{url}: expected {expected_bytes} bytes from offset {start}, received at least {received_bytes}"
    )]
    LongBody {
        /// The URL asked for.
        url: String,
        /// First byte asked for.
        start: u64,
        /// How many bytes were asked for.
        expected_bytes: u64,
        /// How many had arrived when reading was given up.
        received_bytes: u64,
    },

    /// A text file is longer than the caller allows.
    #[error("{url}: longer than the {limit_bytes} bytes allowed for this file")]
    TextTooLong {
        /// The URL asked for.
        url: String,
        /// The caller's limit.
        limit_bytes: u64,
    },

    /// A text file is not UTF-8.
    #[error("{url}: not UTF-8 text after {valid_bytes} bytes")]
    NotUtf8 {
        /// The URL asked for.
        url: String,
        /// Length of the valid start.
        valid_bytes: usize,
    },
}

impl WeightsError {
    /// The error itself, or the one inside [`WeightsError::Section`]: what a program acts on.
    pub fn root(&self) -> &WeightsError {
        match self {
            WeightsError::Section { source, .. } => source.root(),
            other => other,
        }
    }

    /// Whether this says that the file does not exist, as against: could not be had.
    ///
    /// A web page counts: servers of single-page apps know no other way to say it.
    pub fn is_absent(&self) -> bool {
        match self.root() {
            WeightsError::Status { status, .. } => matches!(status, 404 | 410),
            WeightsError::File { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
            WeightsError::WebPage { .. } => true,
            _ => false,
        }
    }
}

fn or_unknown(bytes: &Option<u64>) -> String {
    match bytes {
        Some(bytes) => bytes.to_string(),
        None => "unknown".to_owned(),
    }
}

fn expected_content(bytes: &Option<u64>) -> String {
    match bytes {
        Some(bytes) => format!("{bytes} bytes of weights"),
        None => "a text file of the model".to_owned(),
    }
}
