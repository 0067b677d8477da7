//! Section bytes → buffers.
//!
//! Bytes arrive in order within a section, in pieces of any length. They are written to the GPU as they come; only
//! what must be regrouped (the down projection when the manifest has no K-major copy, the rotary tables) is kept until
//! its section is complete.

use std::collections::BTreeMap;

use crate::buffers::BufferId;
use crate::error::RuntimeError;

/// Where the bytes of one section go.
#[derive(Clone, Debug, PartialEq)]
pub enum Destination {
    /// Straight into buffers, span after span, without gaps.
    Spans(Vec<Span>),
    /// A matrix of elements, transposed on its way: `[rows, cols]` becomes `[cols, rows]`.
    Transposed {
        /// Receiving buffer.
        buffer: BufferId,
        /// Rows as they arrive.
        rows: u32,
        /// Columns as they arrive.
        cols: u32,
        /// Bytes of an element.
        elem_bytes: u32,
    },
    /// Half of each row of a table `[rows, 2 * half_bytes]`: the rotary cosines or sines.
    HalfRows {
        /// Receiving buffer.
        buffer: BufferId,
        /// Bytes of half a row.
        half_bytes: u32,
        /// Which half.
        half: Half,
    },
}

/// Half of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// Cosines.
    First,
    /// Sines.
    Second,
}

/// Consecutive bytes of a section that land in one buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Length in the section, bytes.
    pub bytes: u64,
    /// Receiving buffer.
    pub buffer: BufferId,
    /// Where in that buffer, bytes; a multiple of 4.
    pub buffer_offset_bytes: u64,
}

/// Destination of every section a plan reads, by section name.
pub type Destinations = BTreeMap<String, Destination>;

/// What an upload writes to: the GPU, or a stand-in in tests.
pub(crate) trait BufferWriter {
    /// Writes `bytes` (a multiple of 4 long) at `offset_bytes` (a multiple of 4).
    fn write(&mut self, buffer: BufferId, offset_bytes: u64, bytes: &[u8]);
}

/// One section on its way to the GPU.
pub(crate) struct SectionUpload {
    destination: Destination,
    /// Bytes taken so far.
    taken_bytes: u64,
    /// Up to three bytes that wait for a fourth: the GPU writes whole words.
    carry: Vec<u8>,
    /// The whole section, where it has to be regrouped.
    collected: Vec<u8>,
}

impl SectionUpload {
    pub(crate) fn new(destination: Destination) -> Self {
        Self {
            destination,
            taken_bytes: 0,
            carry: Vec::with_capacity(4),
            collected: Vec::new(),
        }
    }

    /// Takes the next bytes of the section.
    pub(crate) fn push(&mut self, mut bytes: &[u8], writer: &mut impl BufferWriter) {
        let Destination::Spans(spans) = &self.destination else {
            self.collected.extend_from_slice(bytes);
            self.taken_bytes += bytes.len() as u64;
            return;
        };
        while !bytes.is_empty() {
            let Some((span, within_bytes)) = span_at(spans, self.taken_bytes) else {
                return;
            };
            let room = (span.bytes - within_bytes) as usize;
            let (now, later) = bytes.split_at(bytes.len().min(room));
            let is_span_end = now.len() == room;
            write_words(
                &mut self.carry,
                now,
                span,
                within_bytes,
                is_span_end,
                writer,
            );
            self.taken_bytes += now.len() as u64;
            bytes = later;
        }
    }

    /// Ends the section: regrouped data is written now.
    pub(crate) fn complete(
        self,
        name: &str,
        expected_bytes: u64,
        writer: &mut impl BufferWriter,
    ) -> Result<(), RuntimeError> {
        if self.taken_bytes != expected_bytes {
            return Err(RuntimeError::SectionIncomplete {
                section: name.to_owned(),
                got_bytes: self.taken_bytes,
                needed_bytes: expected_bytes,
            });
        }
        match self.destination {
            Destination::Spans(_) => {}
            Destination::Transposed {
                buffer,
                rows,
                cols,
                elem_bytes,
            } => {
                let transposed = transpose(
                    &self.collected,
                    rows as usize,
                    cols as usize,
                    elem_bytes as usize,
                );
                writer.write(buffer, 0, &padded(transposed));
            }
            Destination::HalfRows {
                buffer,
                half_bytes,
                half,
            } => {
                let within = if half == Half::First {
                    0
                } else {
                    u64::from(half_bytes)
                };
                for (row, bytes) in self.collected.chunks_exact(half_bytes as usize).enumerate() {
                    writer.write(
                        buffer,
                        row as u64 * 2 * u64::from(half_bytes) + within,
                        bytes,
                    );
                }
            }
        }
        Ok(())
    }
}

/// The span that holds byte `at` of the section, and how far into it that is.
fn span_at(spans: &[Span], at: u64) -> Option<(Span, u64)> {
    let mut start = 0;
    for span in spans {
        if at < start + span.bytes {
            return Some((*span, at - start));
        }
        start += span.bytes;
    }
    None
}

/// Writes whole words of `bytes`, which begin `within_bytes` into `span`; the rest waits in `carry` unless the span ends.
fn write_words(
    carry: &mut Vec<u8>,
    mut bytes: &[u8],
    span: Span,
    within_bytes: u64,
    is_span_end: bool,
    writer: &mut impl BufferWriter,
) {
    let mut at = span.buffer_offset_bytes + within_bytes - carry.len() as u64;
    if !carry.is_empty() {
        let (first, rest) = bytes.split_at(bytes.len().min(4 - carry.len()));
        carry.extend_from_slice(first);
        bytes = rest;
        if carry.len() == 4 {
            writer.write(span.buffer, at, carry);
            carry.clear();
            at += 4;
        }
    }
    let (words, tail) = bytes.split_at(bytes.len() & !3);
    if !words.is_empty() {
        writer.write(span.buffer, at, words);
        at += words.len() as u64;
    }
    carry.extend_from_slice(tail);
    if is_span_end && !carry.is_empty() {
        // The buffer is a whole number of words long, so the padding overwrites nothing.
        carry.resize(4, 0);
        writer.write(span.buffer, at, carry);
        carry.clear();
    }
}

fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// `[rows, cols]` elements of `elem_bytes` to `[cols, rows]`.
fn transpose(bytes: &[u8], rows: usize, cols: usize, elem_bytes: usize) -> Vec<u8> {
    let mut out = vec![0; bytes.len()];
    for (index, elem) in bytes.chunks_exact(elem_bytes).enumerate() {
        let at = (index % cols * rows + index / cols) * elem_bytes;
        out[at..at + elem_bytes].copy_from_slice(elem);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Buffers as byte vectors, poisoned, with the writes' alignment checked.
    struct Memory(BTreeMap<BufferId, Vec<u8>>);

    impl BufferWriter for Memory {
        fn write(&mut self, buffer: BufferId, offset_bytes: u64, bytes: &[u8]) {
            assert_eq!(offset_bytes % 4, 0, "offset {offset_bytes}");
            assert_eq!(bytes.len() % 4, 0, "length {}", bytes.len());
            let at = offset_bytes as usize;
            self.0.get_mut(&buffer).unwrap()[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }

    fn memory(buffers: &[(BufferId, usize)]) -> Memory {
        Memory(
            buffers
                .iter()
                .map(|(id, bytes)| (*id, vec![0xaa; *bytes]))
                .collect(),
        )
    }

    const A: BufferId = BufferId::Keys(0);
    const B: BufferId = BufferId::Keys(1);

    /// Pieces of every size from 1 up, odd ones included, give the bytes of one whole write.
    #[test]
    fn pieces_of_any_length_land_where_the_whole_would() {
        let section: Vec<u8> = (0..=90).collect();
        let spans = vec![
            Span {
                bytes: 40,
                buffer: A,
                buffer_offset_bytes: 8,
            },
            Span {
                bytes: 51,
                buffer: B,
                buffer_offset_bytes: 0,
            },
        ];
        for piece in 1..=section.len() {
            let mut memory = memory(&[(A, 52), (B, 56)]);
            let mut upload = SectionUpload::new(Destination::Spans(spans.clone()));
            for bytes in section.chunks(piece) {
                upload.push(bytes, &mut memory);
            }
            upload.complete("s", 91, &mut memory).unwrap();
            assert_eq!(memory.0[&A][8..48], section[..40], "pieces of {piece}");
            assert_eq!(
                memory.0[&A][..8],
                [0xaa; 8],
                "neighbour before, pieces of {piece}"
            );
            assert_eq!(
                memory.0[&A][48..],
                [0xaa; 4],
                "neighbour after, pieces of {piece}"
            );
            assert_eq!(memory.0[&B][..51], section[40..], "pieces of {piece}");
            assert_eq!(
                memory.0[&B][51..],
                [0, 0xaa, 0xaa, 0xaa, 0xaa],
                "pieces of {piece}"
            );
        }
    }

    #[test]
    fn a_short_section_is_refused_with_both_numbers() {
        let spans = vec![Span {
            bytes: 8,
            buffer: A,
            buffer_offset_bytes: 0,
        }];
        let mut memory = memory(&[(A, 8)]);
        let mut upload = SectionUpload::new(Destination::Spans(spans));
        upload.push(&[1, 2, 3, 4, 5], &mut memory);
        let error = upload.complete("head.norm", 8, &mut memory).unwrap_err();
        assert_eq!(
            error.to_string(),
            "section head.norm: 5 bytes arrived, 8 are needed"
        );
    }

    #[test]
    fn a_transposed_section_is_column_major() {
        let section: Vec<u8> = (0..24).collect(); // [3, 4] elements of 2 bytes
        let mut memory = memory(&[(A, 24)]);
        let mut upload = SectionUpload::new(Destination::Transposed {
            buffer: A,
            rows: 3,
            cols: 4,
            elem_bytes: 2,
        });
        for bytes in section.chunks(5) {
            upload.push(bytes, &mut memory);
        }
        upload.complete("s", 24, &mut memory).unwrap();
        let expected = [
            0, 1, 8, 9, 16, 17, 2, 3, 10, 11, 18, 19, 4, 5, 12, 13, 20, 21, 6, 7, 14, 15, 22, 23,
        ];
        assert_eq!(memory.0[&A], expected);
    }

    #[test]
    fn cosines_and_sines_share_rows() {
        let mut memory = memory(&[(A, 32)]);
        for (half, value) in [(Half::First, 1), (Half::Second, 2)] {
            let mut upload = SectionUpload::new(Destination::HalfRows {
                buffer: A,
                half_bytes: 8,
                half,
            });
            upload.push(&[value; 16], &mut memory);
            upload.complete("rope", 16, &mut memory).unwrap();
        }
        let row = [1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2];
        assert_eq!(memory.0[&A], [row, row].concat());
    }
}
