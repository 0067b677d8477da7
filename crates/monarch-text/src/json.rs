//! JSON as Python's `json.dumps` writes it: models were trained on prompts that it wrote.

use std::fmt::Write;

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

/// Nested lists and maps accepted, far beyond any tool description. JSON parsers stop there too.
const MAX_DEPTH: usize = 128;

/// The filter `tojson` of transformers' template environment.
///
/// Unlike Jinja's own filter it escapes nothing for HTML and keeps characters outside ASCII.
/// `ensure_ascii`, `indent`, `separators` and `sort_keys` are those of `json.dumps`.
pub(crate) fn tojson(state: &State, value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent = match options.get::<Option<Value>>("indent")? {
        None => None,
        Some(value) if value.is_none() => None,
        Some(value) => Some(match value.as_str() {
            Some(indent) => indent.to_owned(),
            None => " ".repeat(u8::try_from(value)?.into()),
        }),
    };
    let item = if indent.is_some() { "," } else { ", " };
    let separators = options.get::<Option<Vec<String>>>("separators")?;
    let [item, key] = match separators {
        None => [item.to_owned(), ": ".to_owned()],
        Some(pair) => pair.try_into().map_err(|pair: Vec<_>| {
            let message = format!("separators: {} strings, expected 2", pair.len());
            Error::new(ErrorKind::InvalidOperation, message)
        })?,
    };
    let mut writer = Writer {
        ensure_ascii: options
            .get::<Option<bool>>("ensure_ascii")?
            .unwrap_or(false),
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        indent,
        item,
        key,
        state,
        out: String::new(),
    };
    options.assert_all_used()?;
    writer.value(value, 0)?;
    Ok(writer.out)
}

struct Writer<'a> {
    ensure_ascii: bool,
    sort_keys: bool,
    indent: Option<String>,
    /// Between items.
    item: String,
    /// Between a key and its value.
    key: String,
    state: &'a State<'a, 'a>,
    out: String,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            let message = format!("tojson: nested deeper than {MAX_DEPTH} levels");
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
        self.state.consume_fuel(1)?;
        match value.kind() {
            ValueKind::None => self.out += "null",
            ValueKind::Bool => self.out += if value.is_true() { "true" } else { "false" },
            ValueKind::Number => self.out += &number(value)?,
            ValueKind::String => self.string(value.as_str().unwrap_or_default())?,
            ValueKind::Seq | ValueKind::Iterable => {
                self.out.push('[');
                let mut items = 0;
                for item in value.try_iter()?.checked() {
                    self.begin_item(items, depth);
                    self.value(&item?, depth + 1)?;
                    items += 1;
                }
                self.end_items(items, depth);
                self.out.push(']');
            }
            ValueKind::Map => {
                let mut entries = Vec::new();
                for key in value.try_iter()?.checked() {
                    let key = key?;
                    entries.push((key_text(&key)?, value.get_item(&key)?));
                }
                if self.sort_keys {
                    entries.sort_by(|a, b| a.0.cmp(&b.0));
                }
                self.out.push('{');
                for (index, (key, value)) in entries.iter().enumerate() {
                    self.begin_item(index, depth);
                    self.string(key)?;
                    self.out += &self.key;
                    self.value(value, depth + 1)?;
                }
                self.end_items(entries.len(), depth);
                self.out.push('}');
            }
            kind => return Err(not_json(kind)),
        }
        Ok(())
    }

    fn begin_item(&mut self, index: usize, depth: usize) {
        if index > 0 {
            self.out += &self.item;
        }
        self.new_line(depth + 1);
    }

    fn end_items(&mut self, items: usize, depth: usize) {
        if items > 0 {
            self.new_line(depth);
        }
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(indent.as_str(), depth));
        }
    }

    fn string(&mut self, text: &str) -> Result<(), Error> {
        self.state.consume_fuel(text.len() as u64 / 64)?;
        self.out.push('"');
        for char in text.chars() {
            match char {
                '"' => self.out += "\\\"",
                '\\' => self.out += "\\\\",
                '\n' => self.out += "\\n",
                '\r' => self.out += "\\r",
                '\t' => self.out += "\\t",
                '\u{8}' => self.out += "\\b",
                '\u{c}' => self.out += "\\f",
                '\0'..'\u{20}' => self.escape(char),
                '\u{7f}'.. if self.ensure_ascii => self.escape(char),
                _ => self.out.push(char),
            }
        }
        self.out.push('"');
        Ok(())
    }

    fn escape(&mut self, char: char) {
        for unit in char.encode_utf16(&mut [0; 2]) {
            write!(self.out, "\\u{unit:04x}").expect("writing to a String cannot fail");
        }
    }
}

/// Python turns every key it accepts into a string.
fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.to_owned()),
        ValueKind::None => Ok("null".to_owned()),
        ValueKind::Number => number(key),
        kind => Err(not_json(kind)),
    }
}

fn number(value: &Value) -> Result<String, Error> {
    if value.is_integer() {
        Ok(value.to_string())
    } else {
        f64::try_from(value.clone()).map(json_float)
    }
}

fn json_float(value: f64) -> String {
    match value {
        f64::INFINITY => "Infinity".to_owned(),
        f64::NEG_INFINITY => "-Infinity".to_owned(),
        _ if value.is_nan() => "NaN".to_owned(),
        _ => python_float(value),
    }
}

/// Python's `str` of a float.
pub(crate) fn python_float(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return value.to_string();
    }
    // Both languages print the fewest digits that read back as the same number; they differ in
    // when they write an exponent, and how.
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').expect("format of LowerExp");
    let exponent: i32 = exponent.parse().expect("format of LowerExp");
    if (-4..16).contains(&exponent) {
        format!("{value:?}")
    } else {
        format!("{digits}e{exponent:+03}")
    }
}

fn not_json(kind: ValueKind) -> Error {
    Error::new(
        ErrorKind::InvalidOperation,
        format!("tojson: {kind} has no JSON form"),
    )
}

#[cfg(test)]
mod tests {
    use super::python_float;

    #[test]
    fn floats_are_printed_as_python_prints_them() {
        // python3 -c 'for x in [...]: print(repr(x))'
        for (value, printed) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (-2.5, "-2.5"),
            (100.0, "100.0"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (0.000012345, "1.2345e-05"),
            (1e15, "1000000000000000.0"),
            (123456789012345680.0, "1.2345678901234568e+17"),
            (9007199254740993.0, "9007199254740992.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (5e-324, "5e-324"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(python_float(value), printed);
        }
    }
}
