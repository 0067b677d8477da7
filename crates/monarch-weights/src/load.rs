use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};

use monarch_manifest::Section;
use sha2::{Digest, Sha256};

use crate::{Cancel, Part, Request, Served, Source, WeightsError, plan_requests};

/// Takes the bytes of the wanted sections.
///
/// `section` is a position in the list given to [`load_sections`]. The chunks of one section come
/// in order and without holes; chunks of aliases alternate. Chunks start and end anywhere: a sink
/// that needs multiples of four bytes carries the remainder itself.
pub trait SectionSink {
    /// The next bytes of a section, at `offset_bytes` from its start. Never empty, not yet verified.
    fn chunk(&mut self, section: usize, offset_bytes: u64, bytes: &[u8]);

    /// The section is whole, and its digest is the listed one where the manifest lists one.
    fn complete(&mut self, section: usize);
}

/// How far [`load_sections`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Bytes of the wanted sections that were passed on, aliases counted once. Never decreases.
    pub loaded_bytes: u64,
    /// What `loaded_bytes` ends at: from the manifest, never from a header.
    pub total_bytes: u64,
}

/// Streams the `wanted` sections of the file `url` to `sink`, in file order.
///
/// Each section is followed by [`SectionSink::complete`], once its length and digest are right.
/// After an error or a cancellation the sections without it must not be used. At most one chunk of
/// the source is in memory.
///
/// `on_progress` is called before the first byte, after every chunk, and last with
/// `loaded_bytes == total_bytes`, then only if everything is complete.
///
/// A server that ignores byte ranges costs one request more: after the first whole-file answer all
/// remaining sections are read in a single pass through the file.
pub async fn load_sections<S: Source>(
    source: &S,
    url: &str,
    wanted: &[&Section],
    sink: &mut dyn SectionSink,
    on_progress: &mut dyn FnMut(Loaded),
    cancel: &Cancel,
) -> Result<(), WeightsError> {
    let mut requests = VecDeque::from(plan_requests(wanted));
    let parts = requests.iter().flat_map(|request| &request.parts);
    let total_bytes = parts.map(|part| part.range.end - part.range.start).sum();
    let mut load = Load {
        url,
        wanted,
        sink,
        on_progress,
        progress: Loaded {
            loaded_bytes: 0,
            total_bytes,
        },
    };
    load.complete_empty_sections()?;
    (load.on_progress)(load.progress);

    while let Some(request) = requests.pop_front() {
        if cancel.is_cancelled() {
            return Err(WeightsError::Cancelled);
        }
        let served = load.fetch(source, request, cancel).await?;
        if served == Served::WholeFile {
            requests = Request::joined(requests).into_iter().collect();
        }
    }
    Ok(())
}

/// What stays the same from request to request.
struct Load<'a> {
    url: &'a str,
    wanted: &'a [&'a Section],
    sink: &'a mut dyn SectionSink,
    on_progress: &'a mut dyn FnMut(Loaded),
    progress: Loaded,
}

impl Load<'_> {
    /// No request is planned for sections of 0 bytes.
    fn complete_empty_sections(&mut self) -> Result<(), WeightsError> {
        for (index, section) in self.wanted.iter().enumerate() {
            if section.bytes == 0 {
                verify(section, self.url, &Sha256::digest([]).into())?;
                self.sink.complete(index);
            }
        }
        Ok(())
    }

    async fn fetch<S: Source>(
        &mut self,
        source: &S,
        request: Request,
        cancel: &Cancel,
    ) -> Result<Served, WeightsError> {
        let url = self.url;
        let range = request.range.clone();
        let mut delivery = Delivery::new(self, request);
        let mut failure = None;
        let mut on_chunk = |bytes: &[u8]| {
            if cancel.is_cancelled() {
                failure = Some(WeightsError::Cancelled);
            } else if let Err(error) = delivery.receive(bytes) {
                failure = Some(error);
            }
            match failure {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            }
        };
        let served = source.read_range(url, range, cancel, &mut on_chunk).await;
        match failure {
            Some(error) => Err(error),
            None => delivery.finish(served),
        }
    }
}

/// Hands the bytes of one request to the sections that they belong to.
struct Delivery<'a, 'load> {
    load: &'a mut Load<'load>,
    range: Range<u64>,
    /// File offset of the next byte.
    position: u64,
    /// Parts that are not complete, by offset.
    open: Vec<OpenPart>,
}

struct OpenPart {
    part: Part,
    /// Only when the manifest lists a digest for one of the sections.
    hasher: Option<Sha256>,
}

impl<'a, 'load> Delivery<'a, 'load> {
    fn new(load: &'a mut Load<'load>, request: Request) -> Self {
        let open_part = |part: Part| {
            let mut sections = part.sections.iter();
            let listed = sections.any(|&index| load.wanted[index].sha256.is_some());
            OpenPart {
                hasher: listed.then(Sha256::new),
                part,
            }
        };
        Delivery {
            position: request.range.start,
            open: request.parts.into_iter().map(open_part).collect(),
            range: request.range,
            load,
        }
    }

    fn receive(&mut self, bytes: &[u8]) -> Result<(), WeightsError> {
        let chunk = self.position..self.position + bytes.len() as u64;
        if chunk.end > self.range.end {
            return Err(self.section_error(WeightsError::LongBody {
                url: self.load.url.to_owned(),
                start: self.range.start,
                expected_bytes: self.range.end - self.range.start,
                received_bytes: chunk.end - self.range.start,
            }));
        }
        for OpenPart { part, hasher } in &mut self.open {
            let start = part.range.start.max(chunk.start);
            let end = part.range.end.min(chunk.end);
            if start >= end {
                continue;
            }
            // Both are at most `bytes.len()`, so they fit.
            let bytes = &bytes[(start - chunk.start) as usize..(end - chunk.start) as usize];
            if let Some(hasher) = hasher {
                hasher.update(bytes);
            }
            for &index in &part.sections {
                let offset_bytes = start - part.range.start;
                self.load.sink.chunk(index, offset_bytes, bytes);
            }
            self.load.progress.loaded_bytes += end - start;
        }
        self.position = chunk.end;
        self.complete_parts()?;
        (self.load.on_progress)(self.load.progress);
        Ok(())
    }

    /// Takes the parts that have all their bytes off the list, verified.
    fn complete_parts(&mut self) -> Result<(), WeightsError> {
        let position = self.position;
        for OpenPart { part, hasher } in self
            .open
            .extract_if(.., |open| open.part.range.end <= position)
        {
            let digest = hasher.map(|hasher| <[u8; 32]>::from(hasher.finalize()));
            for &index in &part.sections {
                if let Some(digest) = digest {
                    verify(self.load.wanted[index], self.load.url, &digest)?;
                }
                self.load.sink.complete(index);
            }
        }
        Ok(())
    }

    /// A source that says `Ok` is not trusted to have passed on everything.
    fn finish(self, served: Result<Served, WeightsError>) -> Result<Served, WeightsError> {
        match served {
            Ok(served) if self.open.is_empty() => Ok(served),
            Ok(_) => Err(self.section_error(WeightsError::ShortBody {
                url: self.load.url.to_owned(),
                start: self.range.start,
                expected_bytes: self.range.end - self.range.start,
                received_bytes: self.position - self.range.start,
            })),
            Err(WeightsError::Cancelled) => Err(WeightsError::Cancelled),
            Err(error) => Err(self.section_error(error)),
        }
    }

    /// `error`, with the section that it kept from being complete.
    fn section_error(&self, error: WeightsError) -> WeightsError {
        let Some(open) = self.open.first() else {
            return error;
        };
        WeightsError::Section {
            section: self.load.wanted[open.part.sections[0]].name.clone(),
            url: self.load.url.to_owned(),
            start: self.range.start,
            end: self.range.end,
            source: Box::new(error),
        }
    }
}

/// Compares with the listed digest, if there is one.
fn verify(section: &Section, url: &str, actual: &[u8; 32]) -> Result<(), WeightsError> {
    match &section.sha256 {
        Some(expected) if expected != actual => Err(WeightsError::Digest {
            section: section.name.clone(),
            url: url.to_owned(),
            bytes: section.bytes,
            expected: hex(expected),
            actual: hex(actual),
        }),
        _ => Ok(()),
    }
}

fn hex(digest: &[u8; 32]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
