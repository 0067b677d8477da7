use std::ops::{ControlFlow, Range};

use monarch_manifest::Section;
use monarch_weights::{Cancel, Loaded, Served, Source, WeightsError};
use proptest::prelude::*;
use sha2::{Digest, Sha256};

use crate::support::{MemorySource, Outcome, Received, expected, file, load, load_until, section};

const URL: &str = "weights.bin";

fn with_digests(mut sections: Vec<Section>, file: &[u8]) -> Vec<Section> {
    for section in &mut sections {
        let start = section.offset_bytes as usize;
        let bytes = &file[start..start + section.bytes as usize];
        section.sha256 = Some(Sha256::digest(bytes).into());
    }
    sections
}

/// A load that went well, seen from outside.
fn check(outcome: &Outcome, file: &[u8], wanted: &[Section]) {
    assert!(outcome.result.is_ok(), "{:?}", outcome.result);
    assert_eq!(outcome.received, expected(file, wanted));
    let progress = &outcome.progress;
    assert!(progress.is_sorted_by_key(|loaded| loaded.loaded_bytes));
    let mut ranges: Vec<_> = wanted.iter().map(|s| (s.offset_bytes, s.bytes)).collect();
    ranges.sort_unstable();
    ranges.dedup();
    let total_bytes: u64 = ranges.iter().map(|(_, bytes)| bytes).sum();
    assert!(
        progress
            .iter()
            .all(|loaded| loaded.total_bytes == total_bytes)
    );
    assert_eq!(progress[0].loaded_bytes, 0);
    assert_eq!(progress[progress.len() - 1].loaded_bytes, total_bytes);
}

proptest! {
    #[test]
    fn sections_arrive_whatever_the_chunks(
        list in prop::collection::vec((0..600u64, 0..700u64, 1..3usize), 0..20),
        chunk_bytes in prop::collection::vec(1..900usize, 1..8),
        whole_file in any::<bool>(),
        digests in any::<bool>(),
    ) {
        let mut end = 0;
        let mut wanted = Vec::new();
        for (gap, bytes, copies) in list {
            let range = end + gap..end + gap + bytes;
            end = range.end;
            wanted.extend((0..copies).map(|_| section("section", range.clone())));
        }
        wanted.reverse();
        let file = file(end as usize + 100);
        if digests {
            wanted = with_digests(wanted, &file);
        }
        let mut source = MemorySource::new(file.clone(), &chunk_bytes);
        if whole_file {
            source.served = Served::WholeFile;
        }
        check(&load(&source, URL, &wanted), &file, &wanted);
        if whole_file {
            prop_assert!(source.requests.borrow().len() <= 2);
        }
    }
}

#[test]
fn aliases_get_the_same_bytes_from_one_request() {
    let file = file(1000);
    let wanted = [section("head", 10..900), section("embed", 10..900)];
    let source = MemorySource::new(file.clone(), &[7]);
    check(&load(&source, URL, &wanted), &file, &wanted);
    assert_eq!(*source.requests.borrow(), [10..900]);
}

#[test]
fn whole_file_answer_is_followed_by_one_pass_through_the_rest() {
    let file = file(10_000);
    let wanted = [
        section("a", 0..10),
        section("b", 5000..5010),
        section("c", 9000..9500),
    ];
    let mut source = MemorySource::new(file.clone(), &[64]);
    source.served = Served::WholeFile;
    check(&load(&source, URL, &wanted), &file, &wanted);
    assert_eq!(*source.requests.borrow(), [0..10, 5000..9500]);
}

#[test]
fn wrong_digest_names_section_and_both_digests() {
    let mut file = file(300);
    let wanted = with_digests(
        vec![
            section("a", 0..100),
            section("b", 100..200),
            section("c", 200..300),
        ],
        &file,
    );
    file[150] ^= 1;
    let actual: [u8; 32] = Sha256::digest(&file[100..200]).into();
    let outcome = load(&MemorySource::new(file, &[64]), URL, &wanted);

    let Err(WeightsError::Digest {
        section,
        url,
        bytes,
        expected,
        actual: reported,
    }) = outcome.result
    else {
        panic!("{:?}", outcome.result);
    };
    let hex = |digest: [u8; 32]| digest.map(|byte| format!("{byte:02x}")).concat();
    assert_eq!((section.as_str(), url.as_str(), bytes), ("b", URL, 100));
    assert_eq!(expected, hex(wanted[1].sha256.unwrap()));
    assert_eq!(reported, hex(actual));
    let complete: Vec<bool> = outcome
        .received
        .iter()
        .map(|section| section.complete)
        .collect();
    assert_eq!(complete, [true, false, false]);
}

#[test]
fn alias_with_another_digest_is_refused() {
    let file = file(100);
    let mut wanted = with_digests(vec![section("a", 0..100), section("b", 0..100)], &file);
    wanted[1].sha256 = Some([0; 32]);
    let outcome = load(&MemorySource::new(file, &[100]), URL, &wanted);
    assert!(
        matches!(&outcome.result, Err(WeightsError::Digest { section, .. }) if section == "b"),
        "{:?}",
        outcome.result
    );
    assert!(!outcome.received[1].complete);
}

#[test]
fn digest_is_checked_when_only_one_alias_lists_it() {
    let file = file(100);
    let mut wanted = [section("a", 0..100), section("b", 0..100)];
    wanted[1].sha256 = Some([0; 32]);
    let outcome = load(&MemorySource::new(file, &[100]), URL, &wanted);
    assert!(
        matches!(&outcome.result, Err(WeightsError::Digest { section, .. }) if section == "b"),
        "{:?}",
        outcome.result
    );
}

#[test]
fn digest_of_an_empty_section_is_checked() {
    let mut wanted = with_digests(vec![section("empty", 5..5)], &file(10));
    let source = MemorySource::new(file(10), &[1]);
    check(&load(&source, URL, &wanted), &file(10), &wanted);
    assert!(source.requests.borrow().is_empty());
    wanted[0].sha256 = Some([0; 32]);
    let outcome = load(&source, URL, &wanted);
    assert!(
        matches!(outcome.result, Err(WeightsError::Digest { .. })),
        "{:?}",
        outcome.result
    );
}

#[test]
fn nothing_wanted_is_done_at_once() {
    let outcome = load(&MemorySource::new(vec![], &[1]), URL, &[]);
    assert!(outcome.result.is_ok());
    assert_eq!(
        outcome.progress,
        [Loaded {
            loaded_bytes: 0,
            total_bytes: 0
        }]
    );
}

#[test]
fn cancel_is_seen_between_chunks() {
    let file = file(3000);
    let wanted = [section("a", 0..100), section("b", 100..3000)];
    let source = MemorySource::new(file.clone(), &[50]);
    let outcome = load_until(&source, URL, &wanted, 120);
    assert!(
        matches!(outcome.result, Err(WeightsError::Cancelled)),
        "{:?}",
        outcome.result
    );
    assert!(outcome.received[0].complete);
    assert_eq!(
        outcome.received[1],
        Received {
            bytes: file[100..150].to_vec(),
            complete: false
        }
    );
}

#[test]
fn cancel_before_the_start_requests_nothing() {
    let source = MemorySource::new(file(10), &[10]);
    let outcome = load_until(&source, URL, &[section("a", 0..10)], 0);
    assert!(
        matches!(outcome.result, Err(WeightsError::Cancelled)),
        "{:?}",
        outcome.result
    );
    assert!(source.requests.borrow().is_empty());
}

/// Claims success, whatever it gives.
struct Liar(Vec<u8>);

impl Source for Liar {
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
        _range: Range<u64>,
        _cancel: &Cancel,
        on_chunk: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Served, WeightsError> {
        // Goes on whatever it is told.
        let _ = on_chunk(&self.0);
        Ok(Served::Range)
    }
}

#[test]
fn source_that_gives_too_little_is_found_out() {
    let wanted = [section("a", 100..110), section("b", 110..150)];
    let outcome = load(&Liar(file(30)), URL, &wanted);
    let error = outcome.result.unwrap_err();
    assert_eq!(
        error.to_string(),
        "section b: could not read bytes 100..150 of weights.bin"
    );
    assert!(
        matches!(
            error.root(),
            WeightsError::ShortBody {
                start: 100,
                expected_bytes: 50,
                received_bytes: 30,
                ..
            }
        ),
        "{error:?}"
    );
    assert!(outcome.received[0].complete);
    assert!(!outcome.received[1].complete);
}

#[test]
fn source_that_gives_too_much_is_found_out() {
    let outcome = load(&Liar(file(51)), URL, &[section("a", 100..150)]);
    let error = outcome.result.unwrap_err();
    assert!(
        matches!(
            error.root(),
            WeightsError::LongBody {
                start: 100,
                expected_bytes: 50,
                received_bytes: 51,
                ..
            }
        ),
        "{error:?}"
    );
    assert!(!outcome.received[0].complete);
}
