//! JSON with paths: every field is asked for by name, and whatever is left over is refused.
//!
//! `serde_json` reads the text. The tree is our own because `serde_json::Value` keeps the last of
//! two fields with the same name and derived readers report a line instead of a path; both would
//! hide from whoever wrote the manifest which value is meant.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::error::ManifestError;
use crate::words::Word;

/// A JSON value that remembers repeated fields.
#[derive(Clone, Debug)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Unsigned(u64),
    /// Everything that is not a `u64`: negative, fractional, or too large.
    Float(f64),
    Text(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Type and, when it is short, value; for messages.
    fn describe(&self) -> String {
        const SHORT_CHARS: usize = 40;
        match self {
            Self::Null => "null".to_owned(),
            Self::Bool(value) => format!("{value}"),
            Self::Unsigned(value) => format!("number {value}"),
            Self::Float(value) => format!("number {value}"),
            Self::Text(text) if text.chars().count() <= SHORT_CHARS => format!("text {text:?}"),
            Self::Text(text) => format!("a text of {} bytes", text.len()),
            Self::Array(items) => format!("a list of {}", items.len()),
            Self::Object(fields) => format!("an object of {}", fields.len()),
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Unsigned(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(u64::try_from(value).map_or(Json::Float(value as f64), Json::Unsigned))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Json, E> {
        Ok(Json::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Json::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Json::Object(fields))
    }
}

/// A value and where it is.
#[derive(Debug)]
pub(crate) struct Field {
    path: String,
    value: Json,
}

impl Field {
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn u64(self) -> Result<u64, ManifestError> {
        match self.value {
            Json::Unsigned(value) => Ok(value),
            _ => Err(self.type_error("a non-negative whole number")),
        }
    }

    pub(crate) fn u32(self) -> Result<u32, ManifestError> {
        let path = self.path.clone();
        let value = self.u64()?;
        u32::try_from(value).map_err(|_| ManifestError::FieldRange {
            path,
            value,
            min: 0,
            max: u32::MAX.into(),
        })
    }

    /// The nearest f32. Zero, infinities and negative numbers are refused.
    pub(crate) fn positive_f32(self) -> Result<f32, ManifestError> {
        let value = match self.value {
            Json::Unsigned(value) => value as f64,
            Json::Float(value) => value,
            _ => return Err(self.type_error("a number")),
        };
        let narrow = value as f32;
        if narrow > 0.0 && narrow.is_finite() {
            Ok(narrow)
        } else {
            Err(ManifestError::FieldPositive {
                path: self.path,
                value,
            })
        }
    }

    pub(crate) fn bool(self) -> Result<bool, ManifestError> {
        match self.value {
            Json::Bool(value) => Ok(value),
            _ => Err(self.type_error("true or false")),
        }
    }

    pub(crate) fn text(self) -> Result<String, ManifestError> {
        match self.value {
            Json::Text(value) => Ok(value),
            _ => Err(self.type_error("a text")),
        }
    }

    pub(crate) fn word<W: Word>(self) -> Result<W, ManifestError> {
        let path = self.path.clone();
        let found = self.text()?;
        W::parse(&found).ok_or_else(|| ManifestError::UnknownWord {
            path,
            found,
            known: W::vocabulary(),
        })
    }

    pub(crate) fn list(self) -> Result<Vec<Field>, ManifestError> {
        let Json::Array(items) = self.value else {
            return Err(self.type_error("a list"));
        };
        let path = self.path;
        let at = |(index, value)| Field {
            path: format!("{path}[{index}]"),
            value,
        };
        Ok(items.into_iter().enumerate().map(at).collect())
    }

    pub(crate) fn object(self) -> Result<Object, ManifestError> {
        let Json::Object(fields) = self.value else {
            return Err(self.type_error("an object"));
        };
        let object = Object {
            path: self.path,
            fields,
        };
        let mut seen = HashSet::new();
        for (name, _) in &object.fields {
            if !seen.insert(name) {
                return Err(ManifestError::DuplicateField {
                    path: object.path_of(name),
                });
            }
        }
        Ok(object)
    }

    fn type_error(self, expected: &'static str) -> ManifestError {
        ManifestError::FieldType {
            path: self.path,
            expected,
            found: self.value.describe(),
        }
    }
}

/// An object whose fields are taken out one by one.
#[derive(Debug)]
pub(crate) struct Object {
    path: String,
    fields: Vec<(String, Json)>,
}

impl Object {
    /// The outermost object; its fields' paths are their names.
    pub(crate) fn root(value: Json) -> Result<Self, ManifestError> {
        let path = String::new();
        match value {
            Json::Object(_) => Field { path, value }.object(),
            _ => Err(Field {
                path: "manifest".to_owned(),
                value,
            }
            .type_error("an object")),
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|(listed, _)| listed == name)
    }

    pub(crate) fn optional(&mut self, name: &str) -> Option<Field> {
        let index = self.fields.iter().position(|(listed, _)| listed == name)?;
        let (_, value) = self.fields.swap_remove(index);
        Some(Field {
            path: self.path_of(name),
            value,
        })
    }

    pub(crate) fn required(&mut self, name: &str) -> Result<Field, ManifestError> {
        self.optional(name)
            .ok_or_else(|| ManifestError::MissingField {
                path: self.path_of(name),
            })
    }

    /// Everything that is left, for objects whose field names are data.
    pub(crate) fn into_fields(self) -> impl Iterator<Item = (String, Field)> {
        let path = self.path;
        self.fields.into_iter().map(move |(name, value)| {
            let path = join(&path, &name);
            (name, Field { path, value })
        })
    }

    /// Refuses what nobody asked for.
    pub(crate) fn finish(self) -> Result<(), ManifestError> {
        match self.fields.first() {
            None => Ok(()),
            Some((name, _)) => Err(ManifestError::UnknownField {
                path: self.path_of(name),
            }),
        }
    }

    fn path_of(&self, name: &str) -> String {
        join(&self.path, name)
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}
