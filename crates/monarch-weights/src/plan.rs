use std::ops::Range;

use monarch_manifest::Section;

/// Largest request that is shared by several sections.
///
/// Big enough that a layer's norms, taps and scales cost one round trip instead of ten, small
/// enough that a broken connection costs little.
pub const SHARED_REQUEST_BYTES: u64 = 1 << 20;

/// Most bytes that are fetched for nothing to let two sections share a request: one alignment step
/// of the usual packers, far below the cost of another request's headers.
pub const SHARED_GAP_BYTES: u64 = 256;

/// One range to ask a server for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Bytes of the file, half open.
    pub range: Range<u64>,
    /// What is inside, by offset. At most [`SHARED_GAP_BYTES`] lie between two of them.
    pub parts: Vec<Part>,
}

/// A byte range and every section that is exactly this range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Bytes of the file, half open.
    pub range: Range<u64>,
    /// Positions in the list given to [`plan_requests`]; more than one when sections are aliases.
    pub sections: Vec<usize>,
}

/// The requests that fetch `sections`, in file order. A section of 0 bytes needs none.
///
/// Aliases (sections with the same range) are one [`Part`] and fetched once. Neighbours share a
/// request while the gap between them is at most [`SHARED_GAP_BYTES`] and the request at most
/// [`SHARED_REQUEST_BYTES`]; only a single section makes a longer one.
///
/// Sections that overlap without being aliases, which a manifest may not list, are still fetched
/// whole; the shared bytes then travel twice when the sections do not fit one request.
pub fn plan_requests(sections: &[&Section]) -> Vec<Request> {
    let mut order: Vec<usize> = (0..sections.len()).collect();
    order.retain(|&index| sections[index].bytes > 0);
    order.sort_by_key(|&index| (range(sections[index]).start, range(sections[index]).end));

    let mut requests: Vec<Request> = Vec::new();
    for index in order {
        let range = range(sections[index]);
        let Some(request) = requests.last_mut() else {
            requests.push(Request::of(range, index));
            continue;
        };
        let last = request.parts.last_mut().filter(|part| part.range == range);
        if let Some(alias) = last {
            alias.sections.push(index);
            continue;
        }
        let gap_bytes = range.start.saturating_sub(request.range.end);
        let end = request.range.end.max(range.end);
        if gap_bytes <= SHARED_GAP_BYTES && end - request.range.start <= SHARED_REQUEST_BYTES {
            request.range.end = end;
            request.parts.push(Part {
                range,
                sections: vec![index],
            });
        } else {
            requests.push(Request::of(range, index));
        }
    }
    requests
}

impl Request {
    fn of(range: Range<u64>, section: usize) -> Self {
        Request {
            range: range.clone(),
            parts: vec![Part {
                range,
                sections: vec![section],
            }],
        }
    }

    /// One request for everything in `requests`, whatever lies between.
    pub(crate) fn joined(requests: impl IntoIterator<Item = Request>) -> Option<Request> {
        requests.into_iter().reduce(|mut all, next| {
            all.range.start = all.range.start.min(next.range.start);
            all.range.end = all.range.end.max(next.range.end);
            all.parts.extend(next.parts);
            all
        })
    }
}

fn range(section: &Section) -> Range<u64> {
    section.offset_bytes..section.offset_bytes.saturating_add(section.bytes)
}
