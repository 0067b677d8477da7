use crate::utf8::Utf8Decoder;
use crate::{Text, TextError};

/// What one more token adds to the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Text that can be shown now, often empty. It never has to be taken back.
    pub text: String,
    /// A stop string has appeared: the text is complete and ends before it.
    pub stopped: bool,
}

/// Token ids to text as they arrive, with stop strings.
///
/// Text is held back while its bytes may still become a character, or while it may still become
/// a stop string, and is released as soon as neither is possible. The joined pieces plus
/// [`finish`](TextStream::finish) are [`Text::detokenize`] of all ids, cut where the stop string
/// begins. Of several stop strings the one that is complete first counts, and of those that end
/// at the same byte the longest; so the cut does not depend on how the text is split into tokens.
///
/// Each byte is looked at once: the cost of a text is linear in its length.
///
/// ```
/// # fn show(text: &monarch_text::Text, ids: &[u32]) -> Result<(), monarch_text::TextError> {
/// let mut stream = monarch_text::TextStream::new(&["\nUser:".into()], false)?;
/// let mut shown = String::new();
/// for &id in ids {
///     let piece = stream.push(text, id)?;
///     shown += &piece.text;
///     if piece.stopped {
///         break;
///     }
/// }
/// shown += &stream.finish();
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct TextStream {
    show_special: bool,
    decoder: Utf8Decoder,
    stops: Vec<StopMatcher>,
    /// Decoded text that was not handed out: the longest part of a stop string that it ends with.
    held: String,
    stopped: bool,
}

impl TextStream {
    /// A stream at the start of a text.
    ///
    /// With `show_special` special tokens are written out as their own text, otherwise they add
    /// nothing, as `skip_special` of [`Text::detokenize`] decides for a whole text. Stop strings
    /// are looked for in the text that is shown, so a hidden special token matches none.
    ///
    /// # Errors
    ///
    /// [`TextError::EmptyStop`].
    pub fn new(stop: &[String], show_special: bool) -> Result<TextStream, TextError> {
        if let Some(index) = stop.iter().position(String::is_empty) {
            return Err(TextError::EmptyStop { index });
        }
        Ok(TextStream {
            show_special,
            decoder: Utf8Decoder::default(),
            stops: stop.iter().map(|stop| StopMatcher::new(stop)).collect(),
            held: String::new(),
            stopped: false,
        })
    }

    /// Takes the next token. After a stop nothing more is added.
    ///
    /// # Errors
    ///
    /// [`TextError::UnknownId`]; the stream is unchanged then.
    pub fn push(&mut self, text: &Text, id: u32) -> Result<Piece, TextError> {
        let bytes = text.token_bytes(id)?;
        if self.stopped || (text.is_special(id) && !self.show_special) {
            return Ok(Piece {
                text: String::new(),
                stopped: self.stopped,
            });
        }
        let mut decoded = String::new();
        self.decoder.push(bytes, &mut decoded);
        let text = self.release(&decoded);
        Ok(Piece {
            text,
            stopped: self.stopped,
        })
    }

    /// Ends the text and hands out what was held back: the start of a stop string that did not
    /// come, and U+FFFD for the start of a character that did not.
    ///
    /// Empty after a stop. Even this last text can complete a stop string, see
    /// [`stopped`](TextStream::stopped).
    pub fn finish(&mut self) -> String {
        if self.stopped {
            return String::new();
        }
        let mut decoded = String::new();
        self.decoder.finish(&mut decoded);
        let mut text = self.release(&decoded);
        text += &std::mem::take(&mut self.held);
        self.stops
            .iter_mut()
            .for_each(|stop| stop.matched_bytes = 0);
        text
    }

    /// Whether a stop string has appeared.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// Adds decoded text, and takes away what can be shown.
    fn release(&mut self, decoded: &str) -> String {
        let seen_bytes = self.held.len();
        self.held += decoded;
        for (index, &byte) in decoded.as_bytes().iter().enumerate() {
            let complete = self
                .stops
                .iter_mut()
                .filter_map(|stop| stop.advance(byte))
                .max();
            if let Some(stop_bytes) = complete {
                self.stopped = true;
                let mut text = std::mem::take(&mut self.held);
                text.truncate(seen_bytes + index + 1 - stop_bytes);
                return text;
            }
        }
        // A match begins with the first byte of a stop string, so this is a character boundary.
        let keep_bytes = self
            .stops
            .iter()
            .map(|stop| stop.matched_bytes)
            .max()
            .unwrap_or(0);
        let keep = self.held.split_off(self.held.len() - keep_bytes);
        std::mem::replace(&mut self.held, keep)
    }
}

/// Knuth, Morris and Pratt's automaton for one stop string.
#[derive(Clone, Debug)]
struct StopMatcher {
    stop: Box<[u8]>,
    /// `fallback[n]`: the longest proper prefix of the stop string that its first `n + 1` bytes
    /// end with, in bytes.
    fallback: Box<[usize]>,
    /// The longest prefix of the stop string that the text ends with, in bytes.
    matched_bytes: usize,
}

impl StopMatcher {
    fn new(stop: &str) -> StopMatcher {
        let stop: Box<[u8]> = stop.as_bytes().into();
        let mut fallback = vec![0; stop.len()].into_boxed_slice();
        let mut prefix = 0;
        for end in 1..stop.len() {
            while prefix > 0 && stop[prefix] != stop[end] {
                prefix = fallback[prefix - 1];
            }
            prefix += usize::from(stop[prefix] == stop[end]);
            fallback[end] = prefix;
        }
        StopMatcher {
            stop,
            fallback,
            matched_bytes: 0,
        }
    }

    /// Takes one byte of text; the stop string's length if it is complete.
    fn advance(&mut self, byte: u8) -> Option<usize> {
        while self.matched_bytes > 0 && self.stop[self.matched_bytes] != byte {
            self.matched_bytes = self.fallback[self.matched_bytes - 1];
        }
        self.matched_bytes += usize::from(self.stop[self.matched_bytes] == byte);
        (self.matched_bytes == self.stop.len()).then_some(self.matched_bytes)
    }
}
