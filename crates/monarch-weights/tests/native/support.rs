use std::cell::RefCell;
use std::ops::{ControlFlow, Range};

use monarch_manifest::Section;
use monarch_weights::{Cancel, Loaded, SectionSink, Served, Source, WeightsError, load_sections};

pub(crate) fn section(name: &str, range: Range<u64>) -> Section {
    Section {
        name: name.to_owned(),
        offset_bytes: range.start,
        bytes: range.end - range.start,
        sha256: None,
    }
}

/// Bytes in which every short run occurs once, so that a shifted copy is never right.
pub(crate) fn file(bytes: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
        (state >> 24) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// What happened to one section.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Received {
    pub(crate) bytes: Vec<u8>,
    pub(crate) complete: bool,
}

/// Keeps everything; checks that sections are filled in order and only until they are complete.
pub(crate) struct Collect(pub(crate) Vec<Received>);

impl SectionSink for Collect {
    fn chunk(&mut self, section: usize, offset_bytes: u64, bytes: &[u8]) {
        let received = &mut self.0[section];
        assert!(
            !received.complete,
            "section {section} goes on after its end"
        );
        assert!(!bytes.is_empty(), "empty chunk for section {section}");
        assert_eq!(received.bytes.len() as u64, offset_bytes);
        received.bytes.extend_from_slice(bytes);
    }

    fn complete(&mut self, section: usize) {
        let received = &mut self.0[section];
        assert!(!received.complete, "section {section} is completed twice");
        received.complete = true;
    }
}

/// Everything that can be seen of a load.
pub(crate) struct Outcome {
    pub(crate) result: Result<(), WeightsError>,
    pub(crate) received: Vec<Received>,
    pub(crate) progress: Vec<Loaded>,
}

pub(crate) fn load(source: &impl Source, url: &str, wanted: &[Section]) -> Outcome {
    load_until(source, url, wanted, u64::MAX)
}

/// Loads, and cancels as soon as the progress says `cancel_at_bytes` or more.
pub(crate) fn load_until(
    source: &impl Source,
    url: &str,
    wanted: &[Section],
    cancel_at_bytes: u64,
) -> Outcome {
    let wanted: Vec<&Section> = wanted.iter().collect();
    let mut sink = Collect(vec![Received::default(); wanted.len()]);
    let mut progress = Vec::new();
    let cancel = Cancel::new();
    let result = pollster::block_on(load_sections(
        source,
        url,
        &wanted,
        &mut sink,
        &mut |loaded| {
            progress.push(loaded);
            if loaded.loaded_bytes >= cancel_at_bytes {
                cancel.cancel();
            }
        },
        &cancel,
    ));
    Outcome {
        result,
        received: sink.0,
        progress,
    }
}

/// The listed bytes of `file`, complete: what a sink holds after a load.
pub(crate) fn expected(file: &[u8], wanted: &[Section]) -> Vec<Received> {
    let received = |section: &Section| {
        let start = section.offset_bytes as usize;
        Received {
            bytes: file[start..start + section.bytes as usize].to_vec(),
            complete: true,
        }
    };
    wanted.iter().map(received).collect()
}

/// One file in memory, handed out in chunks of the given sizes, over and over.
pub(crate) struct MemorySource {
    pub(crate) file: Vec<u8>,
    pub(crate) chunk_bytes: Vec<usize>,
    pub(crate) served: Served,
    pub(crate) requests: RefCell<Vec<Range<u64>>>,
}

impl MemorySource {
    pub(crate) fn new(file: Vec<u8>, chunk_bytes: &[usize]) -> Self {
        MemorySource {
            file,
            chunk_bytes: chunk_bytes.to_vec(),
            served: Served::Range,
            requests: RefCell::default(),
        }
    }
}

impl Source for MemorySource {
    fn resolve(&self, _base: &str, reference: &str) -> Result<String, WeightsError> {
        Ok(reference.to_owned())
    }

    async fn read_text(
        &self,
        _url: &str,
        _limit_bytes: u64,
        _cancel: &Cancel,
    ) -> Result<String, WeightsError> {
        unreachable!("loading sections reads no text")
    }

    async fn read_range(
        &self,
        _url: &str,
        range: Range<u64>,
        _cancel: &Cancel,
        on_chunk: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Served, WeightsError> {
        self.requests.borrow_mut().push(range.clone());
        let mut rest = &self.file[range.start as usize..range.end as usize];
        for &chunk_bytes in self.chunk_bytes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (chunk, after) = rest.split_at(chunk_bytes.min(rest.len()));
            rest = after;
            if on_chunk(chunk).is_break() {
                break;
            }
        }
        Ok(self.served)
    }
}
