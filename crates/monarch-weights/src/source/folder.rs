use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};

use url::Url;

use super::{CHUNK_BYTES, Served, Source};
use crate::http::TextBody;
use crate::{Cancel, WeightsError};

/// Files in a local folder, which plays the part of a web server's root.
///
/// URLs here are paths inside the folder, as in `manifest.json` or `/weights.bin?v=2`. A leading
/// slash means the folder, a query string or fragment means nothing, `%20` means a space. Other
/// hosts and paths that lead out of the folder are refused; links inside it are followed.
#[derive(Clone, Debug)]
pub struct FolderSource {
    folder: PathBuf,
}

impl FolderSource {
    /// A source for the files under `folder`.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        FolderSource {
            folder: folder.into(),
        }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The file that `url`, a result of `resolve` or a relative path, stands for.
    fn path(&self, url: &str) -> Result<PathBuf, WeightsError> {
        let outside = || WeightsError::OutsideFolder {
            url: url.to_owned(),
            folder: self.folder.clone(),
        };
        let mut path = self.folder.clone();
        for segment in self.join("", url)?.path_segments().into_iter().flatten() {
            let segment = percent_encoding::percent_decode_str(segment).decode_utf8();
            let segment = segment.map_err(|_| outside())?;
            // An encoded slash, or a drive letter, would make `push` leave the folder.
            if segment == ".." || segment.contains(['/', '\\', ':', '\0']) {
                return Err(outside());
            }
            path.push(&*segment);
        }
        Ok(path)
    }

    fn join(&self, base: &str, reference: &str) -> Result<Url, WeightsError> {
        // Any host would do: it only lends URL rules to the folder.
        let root = Url::parse("http://folder.invalid/").expect("the constant is a URL");
        let invalid = |_| WeightsError::InvalidUrl {
            url: reference.to_owned(),
            base: base.to_owned(),
        };
        let base = root.join(base).map_err(invalid)?;
        let url = base.join(reference).map_err(invalid)?;
        if base.origin() != root.origin() || url.origin() != root.origin() {
            return Err(WeightsError::OutsideFolder {
                url: reference.to_owned(),
                folder: self.folder.clone(),
            });
        }
        Ok(url)
    }
}

impl Source for FolderSource {
    fn resolve(&self, base: &str, reference: &str) -> Result<String, WeightsError> {
        let url = self.join(base, reference)?;
        Ok(url[url::Position::BeforePath..].to_owned())
    }

    async fn read_text(
        &self,
        url: &str,
        limit_bytes: u64,
        cancel: &Cancel,
    ) -> Result<String, WeightsError> {
        let mut file = OpenFile::open(self.path(url)?)?;
        let mut text = TextBody::new(url, limit_bytes);
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            if cancel.is_cancelled() {
                return Err(WeightsError::Cancelled);
            }
            match file.read(&mut buffer)? {
                0 => return text.finish(),
                read_bytes => text.push(&buffer[..read_bytes])?,
            }
        }
    }

    async fn read_range(
        &self,
        url: &str,
        range: Range<u64>,
        cancel: &Cancel,
        on_chunk: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Served, WeightsError> {
        let mut file = OpenFile::open(self.path(url)?)?;
        file.seek(range.start)?;
        let mut buffer = vec![0; CHUNK_BYTES];
        let mut position = range.start;
        while position < range.end {
            if cancel.is_cancelled() {
                return Err(WeightsError::Cancelled);
            }
            let left_bytes = range.end - position;
            // At most the buffer's length, so it fits.
            let chunk_bytes = left_bytes.min(CHUNK_BYTES as u64) as usize;
            let read_bytes = file.read(&mut buffer[..chunk_bytes])?;
            if read_bytes == 0 {
                return Err(WeightsError::ShortBody {
                    url: url.to_owned(),
                    start: range.start,
                    expected_bytes: range.end - range.start,
                    received_bytes: position - range.start,
                });
            }
            position += read_bytes as u64;
            if on_chunk(&buffer[..read_bytes]).is_break() {
                break;
            }
        }
        Ok(Served::Range)
    }
}

/// A file that names itself in errors.
struct OpenFile {
    file: File,
    path: PathBuf,
}

impl OpenFile {
    fn open(path: PathBuf) -> Result<Self, WeightsError> {
        match File::open(&path) {
            Ok(file) => Ok(OpenFile { file, path }),
            Err(source) => Err(WeightsError::File { path, source }),
        }
    }

    fn seek(&mut self, offset_bytes: u64) -> Result<(), WeightsError> {
        let result = self.file.seek(SeekFrom::Start(offset_bytes));
        result.map(drop).map_err(|source| self.error(source))
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, WeightsError> {
        loop {
            match self.file.read(buffer) {
                Ok(read_bytes) => return Ok(read_bytes),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.error(error)),
            }
        }
    }

    fn error(&self, source: std::io::Error) -> WeightsError {
        WeightsError::File {
            path: self.path.clone(),
            source,
        }
    }
}
