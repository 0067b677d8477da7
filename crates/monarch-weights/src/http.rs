//! What an HTTP answer may look like. No I/O: both HTTP sources use it, tests feed it by hand.

use std::ops::Range;

use crate::{Served, WeightsError};

/// The facts of an answer's head that decide whether its body can be used.
#[derive(Clone, Debug, Default)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) content_type: Option<String>,
    pub(crate) content_range: Option<String>,
    pub(crate) content_encoding: Option<String>,
    /// `Content-Length`. Counts compressed bytes when there is a `content_encoding`.
    pub(crate) content_bytes: Option<u64>,
    /// Whether the client has undone `content_encoding`, as browsers do.
    pub(crate) decoded: bool,
}

impl Head {
    /// The body of this answer to a request for a whole text file of at most `limit_bytes`.
    pub(crate) fn text_body<'a>(
        &self,
        url: &'a str,
        limit_bytes: u64,
    ) -> Result<TextBody<'a>, WeightsError> {
        if self.status != 200 {
            return Err(WeightsError::Status {
                url: url.to_owned(),
                status: self.status,
            });
        }
        self.refuse_web_page(url, None)?;
        self.refuse_encoding(url)?;
        Ok(TextBody::new(url, limit_bytes))
    }

    /// The body of this answer to a request for `range`.
    ///
    /// Status 206 must repeat exactly the range. Status 200 means that the server ignored it and
    /// sends the whole file: usable, from `range.start` on, when nothing else is wrong.
    pub(crate) fn range_body<'a>(
        &self,
        url: &'a str,
        range: Range<u64>,
    ) -> Result<RangeBody<'a>, WeightsError> {
        let served = match self.status {
            206 => Served::Range,
            200 => Served::WholeFile,
            416 => {
                return Err(WeightsError::RangeNotSatisfiable {
                    url: url.to_owned(),
                    start: range.start,
                    end: range.end,
                    file_bytes: self.unsatisfied_file_bytes(),
                });
            }
            status => {
                return Err(WeightsError::Status {
                    url: url.to_owned(),
                    status,
                });
            }
        };
        self.refuse_web_page(url, Some(range.end - range.start))?;
        match served {
            Served::Range => {
                // Ranges of a compressed file are not ranges of the file, decoded or not.
                if let Some(encoding) = self.encoding() {
                    return Err(content_encoding(url, encoding));
                }
                self.require_content_range(url, &range)?;
            }
            Served::WholeFile => self.refuse_encoding(url)?,
        }
        let position = match served {
            Served::Range => range.start,
            Served::WholeFile => 0,
        };
        Ok(RangeBody {
            url,
            range,
            served,
            position,
        })
    }

    fn require_content_range(&self, url: &str, asked: &Range<u64>) -> Result<(), WeightsError> {
        let Some(received) = &self.content_range else {
            return Err(WeightsError::ContentRangeMissing {
                url: url.to_owned(),
                start: asked.start,
                end: asked.end,
            });
        };
        if parse_content_range(received).as_ref() == Some(asked) {
            return Ok(());
        }
        Err(WeightsError::ContentRange {
            url: url.to_owned(),
            start: asked.start,
            end: asked.end,
            received: received.clone(),
        })
    }

    /// A missing file often comes as the site's start page, also in ranges.
    fn refuse_web_page(&self, url: &str, expected_bytes: Option<u64>) -> Result<(), WeightsError> {
        let Some(content_type) = &self.content_type else {
            return Ok(());
        };
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        let page_types = ["text/html", "application/xhtml+xml"];
        if page_types
            .iter()
            .any(|page| essence.eq_ignore_ascii_case(page))
        {
            return Err(WeightsError::WebPage {
                url: url.to_owned(),
                content_type: content_type.clone(),
                content_bytes: self.content_bytes,
                expected_bytes,
            });
        }
        Ok(())
    }

    fn refuse_encoding(&self, url: &str) -> Result<(), WeightsError> {
        match self.encoding() {
            Some(encoding) if !self.decoded => Err(content_encoding(url, encoding)),
            _ => Ok(()),
        }
    }

    fn encoding(&self) -> Option<&str> {
        let encoding = self.content_encoding.as_deref()?.trim();
        (!encoding.is_empty() && !encoding.eq_ignore_ascii_case("identity")).then_some(encoding)
    }

    /// The length in `Content-Range: bytes */length`, which comes with status 416.
    fn unsatisfied_file_bytes(&self) -> Option<u64> {
        let value = strip_bytes_unit(self.content_range.as_deref()?)?;
        value.strip_prefix("*/")?.parse().ok()
    }
}

/// `bytes first-last/length` or `bytes first-last/*`, as a half-open range.
fn parse_content_range(header: &str) -> Option<Range<u64>> {
    let (range, length) = strip_bytes_unit(header)?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let first: u64 = first.parse().ok()?;
    let last: u64 = last.parse().ok()?;
    let end = last.checked_add(1)?;
    if length != "*" && length.parse::<u64>().ok()? < end {
        return None;
    }
    Some(first..end)
}

fn strip_bytes_unit(header: &str) -> Option<&str> {
    let (unit, value) = header.trim().split_once(' ')?;
    unit.eq_ignore_ascii_case("bytes").then(|| value.trim())
}

fn content_encoding(url: &str, encoding: &str) -> WeightsError {
    WeightsError::ContentEncoding {
        url: url.to_owned(),
        encoding: encoding.to_owned(),
    }
}

/// Counts the body of an answer to a range request against what was asked for.
#[derive(Debug)]
pub(crate) struct RangeBody<'a> {
    url: &'a str,
    range: Range<u64>,
    served: Served,
    /// File offset of the next byte of the body.
    position: u64,
}

impl RangeBody<'_> {
    /// The bytes of `chunk`, the next ones of the body, that were asked for.
    pub(crate) fn take<'c>(&mut self, chunk: &'c [u8]) -> Result<&'c [u8], WeightsError> {
        let start = self.position;
        self.position += chunk.len() as u64;
        if self.position > self.range.end && self.served == Served::Range {
            return Err(WeightsError::LongBody {
                url: self.url.to_owned(),
                start: self.range.start,
                expected_bytes: self.range.end - self.range.start,
                received_bytes: self.position - self.range.start,
            });
        }
        // Clamped to the chunk, so both fit.
        let within = |offset: u64| offset.clamp(start, self.position) - start;
        Ok(&chunk[within(self.range.start) as usize..within(self.range.end) as usize])
    }

    /// Whether the rest of the body is of no interest.
    ///
    /// Only true of a whole file: a partial answer is read to its end, to see that it has one.
    pub(crate) fn is_done(&self) -> bool {
        self.served == Served::WholeFile && self.position >= self.range.end
    }

    /// How the server answered.
    pub(crate) fn served(&self) -> Served {
        self.served
    }

    /// To be called at the end of the body.
    pub(crate) fn finish(self) -> Result<Served, WeightsError> {
        if self.position < self.range.end {
            return Err(WeightsError::ShortBody {
                url: self.url.to_owned(),
                start: self.range.start,
                expected_bytes: self.range.end - self.range.start,
                received_bytes: self.position.saturating_sub(self.range.start),
            });
        }
        Ok(self.served)
    }
}

/// Collects a text file.
#[derive(Debug)]
pub(crate) struct TextBody<'a> {
    url: &'a str,
    limit_bytes: u64,
    bytes: Vec<u8>,
}

impl<'a> TextBody<'a> {
    pub(crate) fn new(url: &'a str, limit_bytes: u64) -> Self {
        TextBody {
            url,
            limit_bytes,
            bytes: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, chunk: &[u8]) -> Result<(), WeightsError> {
        if self.bytes.len() as u64 + chunk.len() as u64 > self.limit_bytes {
            return Err(WeightsError::TextTooLong {
                url: self.url.to_owned(),
                limit_bytes: self.limit_bytes,
            });
        }
        self.bytes.extend_from_slice(chunk);
        Ok(())
    }

    pub(crate) fn finish(self) -> Result<String, WeightsError> {
        String::from_utf8(self.bytes).map_err(|error| WeightsError::NotUtf8 {
            url: self.url.to_owned(),
            valid_bytes: error.utf8_error().valid_up_to(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(status: u16) -> RangeBody<'static> {
        let head = Head {
            status,
            content_range: Some("bytes 10-19/100".to_owned()),
            ..Head::default()
        };
        head.range_body("weights.bin", 10..20).unwrap()
    }

    #[test]
    fn partial_answer_is_read_to_its_end() {
        let mut body = body(206);
        assert_eq!(body.take(&[1; 4]).unwrap(), [1; 4]);
        assert_eq!(body.take(&[2; 6]).unwrap(), [2; 6]);
        assert!(!body.is_done());
        let error = body.take(&[3]).unwrap_err();
        assert!(
            matches!(
                error,
                WeightsError::LongBody {
                    start: 10,
                    expected_bytes: 10,
                    received_bytes: 11,
                    ..
                }
            ),
            "{error:?}"
        );
    }

    #[test]
    fn whole_file_is_read_until_the_range_is_there() {
        let mut body = body(200);
        let file: Vec<u8> = (0..100).collect();
        assert!(body.take(&file[..10]).unwrap().is_empty());
        assert_eq!(body.take(&file[10..12]).unwrap(), [10, 11]);
        assert!(!body.is_done());
        assert_eq!(body.take(&file[12..40]).unwrap(), &file[12..20]);
        assert!(body.is_done());
        assert!(body.take(&file[40..]).unwrap().is_empty());
        assert_eq!(body.finish().unwrap(), Served::WholeFile);
    }

    #[test]
    fn one_chunk_may_hold_more_than_the_range_on_both_sides() {
        let file: Vec<u8> = (0..100).collect();
        assert_eq!(body(200).take(&file).unwrap(), &file[10..20]);
    }
}
