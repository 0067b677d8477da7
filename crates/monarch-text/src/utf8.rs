/// Bytes to text as they arrive: the WHATWG decoder of `TextDecoder` with `{ stream: true }`.
///
/// Bytes that may still become a character are kept back, three at most. Every maximal part that
/// can no longer become one is a single U+FFFD, so the joined text is what
/// [`String::from_utf8_lossy`] makes of all bytes at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Utf8Decoder {
    pending: Vec<u8>,
}

impl Utf8Decoder {
    /// Appends the text that `bytes` complete to `out`.
    pub(crate) fn push(&mut self, bytes: &[u8], out: &mut String) {
        // Almost every call starts and ends on a character boundary and copies nothing here.
        let joined;
        let mut rest = if self.pending.is_empty() {
            bytes
        } else {
            self.pending.extend_from_slice(bytes);
            joined = std::mem::take(&mut self.pending);
            &joined[..]
        };
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    out.push_str(text);
                    return;
                }
                Err(error) => {
                    let (valid, invalid) = rest.split_at(error.valid_up_to());
                    out.push_str(std::str::from_utf8(valid).expect("checked by valid_up_to"));
                    match error.error_len() {
                        Some(len) => {
                            out.push(char::REPLACEMENT_CHARACTER);
                            rest = &invalid[len..];
                        }
                        None => {
                            self.pending = invalid.to_vec();
                            return;
                        }
                    }
                }
            }
        }
    }

    /// Ends the text: bytes still kept back become one U+FFFD.
    pub(crate) fn finish(&mut self, out: &mut String) {
        if !self.pending.is_empty() {
            self.pending.clear();
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(chunks: &[&[u8]]) -> Vec<String> {
        let mut decoder = Utf8Decoder::default();
        let mut pieces = Vec::new();
        for chunk in chunks {
            let mut piece = String::new();
            decoder.push(chunk, &mut piece);
            pieces.push(piece);
        }
        let mut last = String::new();
        decoder.finish(&mut last);
        pieces.push(last);
        pieces
    }

    #[test]
    fn a_character_is_shown_with_its_last_byte() {
        assert_eq!(
            decode(&[b"\xF0\x9F", b"\x98", b"\x80!"]),
            ["", "", "😀!", ""]
        );
    }

    #[test]
    fn invalid_parts_are_replaced_one_by_one() {
        assert_eq!(
            decode(&[b"\xF4", b"\x90\x80"]),
            ["", "\u{FFFD}\u{FFFD}\u{FFFD}", ""][..]
        );
        assert_eq!(decode(&[b"a\xE2\x82", b"b"]), ["a", "\u{FFFD}b", ""]);
        assert_eq!(decode(&[b"\xE2\x82"]), ["", "\u{FFFD}"]);
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_text_of_all_bytes_at_once(
            // Bytes from the edges of the UTF-8 tables, where the rules differ.
            bytes in prop::collection::vec(prop_oneof![
                prop::sample::select(&b"\x41\x7F\x80\x8F\x90\x9F\xA0\xBF\xC0\xC2\xDF\xE0\xE1\xED\xEE\xEF\xF0\xF1\xF4\xF5\xFF"[..]),
                any::<u8>(),
            ], 0..40),
            cut in 1usize..5,
        ) {
            let chunks: Vec<&[u8]> = bytes.chunks(cut).collect();
            prop_assert_eq!(decode(&chunks).concat(), String::from_utf8_lossy(&bytes));
        }
    }
}
