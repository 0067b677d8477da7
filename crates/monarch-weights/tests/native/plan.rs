use std::ops::Range;

use monarch_manifest::Section;
use monarch_weights::{Part, Request, SHARED_GAP_BYTES, SHARED_REQUEST_BYTES, plan_requests};
use proptest::prelude::*;

use crate::support::section;

fn plan(sections: &[Section]) -> Vec<Request> {
    plan_requests(&sections.iter().collect::<Vec<_>>())
}

fn ranges(sections: &[Section]) -> Vec<Range<u64>> {
    plan(sections)
        .into_iter()
        .map(|request| request.range)
        .collect()
}

/// What every plan for sections that are equal or disjoint must be.
fn check(sections: &[Section], requests: &[Request]) -> Result<(), String> {
    let parts = || requests.iter().flat_map(|request| &request.parts);

    let mut planned: Vec<usize> = parts().flat_map(|part| part.sections.clone()).collect();
    planned.sort_unstable();
    let wanted: Vec<usize> = (0..sections.len())
        .filter(|&i| sections[i].bytes > 0)
        .collect();
    if planned != wanted {
        return Err(format!(
            "sections {planned:?} are planned, {wanted:?} are wanted"
        ));
    }
    for part in parts() {
        for &index in &part.sections {
            let Section {
                offset_bytes,
                bytes,
                ..
            } = sections[index];
            if part.range != (offset_bytes..offset_bytes + bytes) {
                return Err(format!("section {index} is not {:?}", part.range));
            }
        }
    }
    if !parts().is_sorted_by(|a, b| a.range.end <= b.range.start) {
        return Err("parts overlap or are out of order".to_owned());
    }
    if !requests.is_sorted_by(|a, b| a.range.end <= b.range.start) {
        return Err("requests overlap or are out of order".to_owned());
    }
    for Request { range, parts } in requests {
        let (Some(first), Some(last)) = (parts.first(), parts.last()) else {
            return Err(format!("request {range:?} has no parts"));
        };
        if *range != (first.range.start..last.range.end) {
            return Err(format!("request {range:?} is not the hull of its parts"));
        }
        if parts.len() > 1 && range.end - range.start > SHARED_REQUEST_BYTES {
            return Err(format!("shared request {range:?} is too long"));
        }
        let mut gaps = parts
            .windows(2)
            .map(|pair| pair[1].range.start - pair[0].range.end);
        if let Some(gap) = gaps.find(|&gap| gap > SHARED_GAP_BYTES) {
            return Err(format!("request {range:?} has a gap of {gap} bytes"));
        }
    }
    for pair in requests.windows(2) {
        let next = &pair[1].parts[0].range;
        let gap_bytes = next.start - pair[0].range.end;
        let shared_bytes = next.end - pair[0].range.start;
        if gap_bytes <= SHARED_GAP_BYTES && shared_bytes <= SHARED_REQUEST_BYTES {
            return Err(format!("{next:?} could share request {:?}", pair[0].range));
        }
    }
    Ok(())
}

/// Disjoint sections in random order, some of them aliases, some empty.
fn sections() -> impl Strategy<Value = Vec<Section>> {
    let gap = prop_oneof![3 => Just(0), 2 => 0..3 * SHARED_GAP_BYTES, 1 => 0..10_000_000u64];
    let bytes = prop_oneof![
        1 => Just(0),
        4 => 1..5000u64,
        2 => 1..SHARED_REQUEST_BYTES,
        1 => 1..5 * SHARED_REQUEST_BYTES,
    ];
    let copies = prop_oneof![4 => Just(1usize), 1 => 2..4usize];
    let sections = prop::collection::vec((gap, bytes, copies), 0..40).prop_map(|list| {
        let mut end = 0;
        let mut sections = Vec::new();
        for (gap, bytes, copies) in list {
            let range = end + gap..end + gap + bytes;
            end = range.end;
            let name = |copy| format!("section {}..{} {copy}", range.start, range.end);
            sections.extend((0..copies).map(|copy| section(&name(copy), range.clone())));
        }
        sections
    });
    sections.prop_shuffle()
}

proptest! {
    #[test]
    fn every_wanted_byte_is_requested_once(sections in sections()) {
        let result = check(&sections, &plan(&sections));
        prop_assert!(result.is_ok(), "{}", result.unwrap_err());
    }
}

#[test]
fn check_refuses_wrong_plans() {
    let sections = [
        section("a", 0..10),
        section("b", 10..30),
        section("tied a", 0..10),
    ];
    let right = plan(&sections);
    assert_eq!(check(&sections, &right), Ok(()));
    assert_eq!(right.len(), 1);
    let part = |range, sections: &[usize]| Part {
        range,
        sections: sections.to_vec(),
    };
    let request = |parts: &[Part]| Request {
        range: parts[0].range.start..parts[parts.len() - 1].range.end,
        parts: parts.to_vec(),
    };
    let (a, b) = (part(0..10, &[0, 2]), part(10..30, &[1]));
    let wrong: [(&str, Vec<Request>); 7] = [
        ("nothing", vec![]),
        ("a missing section", vec![request(std::slice::from_ref(&a))]),
        (
            "a missing alias",
            vec![request(&[part(0..10, &[0]), b.clone()])],
        ),
        (
            "a shifted part",
            vec![request(&[a.clone(), part(11..30, &[1])])],
        ),
        (
            "bytes fetched twice",
            vec![
                request(&[part(0..10, &[0]), b.clone()]),
                request(&[part(0..10, &[2])]),
            ],
        ),
        (
            "the wrong order",
            vec![
                request(std::slice::from_ref(&b)),
                request(std::slice::from_ref(&a)),
            ],
        ),
        ("neighbours apart", vec![request(&[a]), request(&[b])]),
    ];
    for (name, requests) in wrong {
        assert!(check(&sections, &requests).is_err(), "accepts {name}");
    }
    let far = [section("a", 0..1), section("b", 1000..2_000_000)];
    let shared = request(&[part(0..1, &[0]), part(1000..2_000_000, &[1])]);
    assert!(
        check(&far, &[shared]).is_err(),
        "accepts a shared request that is too long"
    );
}

#[test]
fn gap_limit() {
    let with_gap = |gap| ranges(&[section("a", 0..100), section("b", 100 + gap..200 + gap)]);
    assert_eq!(with_gap(SHARED_GAP_BYTES), [0..456]);
    assert_eq!(with_gap(SHARED_GAP_BYTES + 1), [0..100, 357..457]);
}

#[test]
fn length_limit() {
    let half = SHARED_REQUEST_BYTES / 2;
    let of = |second| ranges(&[section("a", 0..half), section("b", half..half + second)]);
    assert_eq!(of(half), [0..2 * half]);
    assert_eq!(of(half + 1), [0..half, half..2 * half + 1]);
}

#[test]
fn long_section_is_one_request() {
    let long = 5 * SHARED_REQUEST_BYTES;
    let sections = [
        section("a", 0..10),
        section("b", 10..long),
        section("c", long..long + 10),
    ];
    assert_eq!(ranges(&sections), [0..10, 10..long, long..long + 10]);
}

#[test]
fn aliases_are_fetched_once() {
    let sections = [
        section("head.quant", 100..200),
        section("embed.scales", 200..300),
        section("embed.quant", 100..200),
        section("head.scales", 200..300),
    ];
    let [request] = &plan(&sections)[..] else {
        panic!("more than one request");
    };
    assert_eq!(request.range, 100..300);
    let aliases: Vec<_> = request
        .parts
        .iter()
        .map(|part| &part.sections[..])
        .collect();
    assert_eq!(aliases, [[0, 2], [1, 3]]);
}

#[test]
fn nothing_wanted_is_nothing_requested() {
    assert_eq!(plan(&[]), []);
    assert_eq!(plan(&[section("empty", 5..5)]), []);
}

#[test]
fn overlapping_sections_are_still_covered() {
    let sections = [section("outer", 0..100), section("inner", 20..30)];
    assert_eq!(ranges(&sections), [0..100]);
    let sections = [
        section("outer", 0..100),
        section("inner", 20..30),
        section("tail", 90..120),
    ];
    assert_eq!(ranges(&sections), [0..120]);
    let long = SHARED_REQUEST_BYTES;
    let sections = [
        section("outer", 0..long),
        section("tail", long - 1..long + 1),
    ];
    assert_eq!(ranges(&sections), [0..long, long - 1..long + 1]);
}

#[test]
fn seed_manifest_is_fetched_once() {
    let manifest = include_str!("../../../../tests/golden/seed/manifest.json");
    let spec = monarch_manifest::parse(manifest).unwrap().spec;
    let requests = plan(&spec.sections);
    assert_eq!(check(&spec.sections, &requests), Ok(()));
    let bytes = requests
        .iter()
        .map(|request| request.range.end - request.range.start);
    assert_eq!(bytes.sum::<u64>(), spec.weight_bytes);
    assert_eq!((spec.sections.len(), requests.len()), (199, 116));
}
