//! A manifest with a mistake in it is refused, or every word of it is in what was parsed.
//!
//! The property in one sentence: `parse(text)` is an error, or rendering the result says the same
//! as `text`. A reader that ignores a field, keeps the first of two, or puts a default in the
//! place of something it does not understand fails it.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};

use super::documents::{SEED, full, full_json, says_the_same, seed_json};
use crate::{ManifestError, parse};

/// Where a value is: field names and list indices from the outside in.
type Path = Vec<String>;

/// Every value of a document except the outermost.
fn paths(document: &Value) -> Vec<Path> {
    fn visit(value: &Value, path: &Path, to: &mut Vec<Path>) {
        let children: Vec<(String, &Value)> = match value {
            Value::Object(fields) => fields.iter().map(|(name, v)| (name.clone(), v)).collect(),
            Value::Array(items) => (0..)
                .zip(items)
                .map(|(i, v): (usize, _)| (i.to_string(), v))
                .collect(),
            _ => Vec::new(),
        };
        for (name, child) in children {
            let mut path = path.clone();
            path.push(name);
            to.push(path.clone());
            visit(child, &path, to);
        }
    }
    let mut to = Vec::new();
    visit(document, &Path::new(), &mut to);
    to
}

fn at(document: &mut Value, path: impl AsRef<[String]>) -> &mut Value {
    path.as_ref()
        .iter()
        .fold(document, |value, name| match value {
            Value::Array(items) => &mut items[name.parse::<usize>().expect("an index")],
            _ => &mut value[name],
        })
}

fn delete(document: &mut Value, path: &Path) {
    let (name, parent) = path.split_last().expect("not the outermost value");
    match at(document, parent) {
        Value::Array(items) => {
            items.remove(name.parse().expect("an index"));
        }
        Value::Object(fields) => {
            fields.remove(name);
        }
        _ => unreachable!("only lists and objects have children"),
    }
}

/// `runtime.knee[3].shape` without the numbers: what kind of place it is.
fn kind_of(path: &Path) -> String {
    let names: Vec<&str> = path
        .iter()
        .map(|name| {
            if name.parse::<u32>().is_ok() {
                "*"
            } else {
                name
            }
        })
        .collect();
    names.join(".")
}

/// The property; true when the document was accepted.
fn refused_or_whole(document: &Value) -> Result<bool, TestCaseError> {
    match parse(&document.to_string()) {
        Ok(manifest) => {
            prop_assert!(
                says_the_same(document, &manifest),
                "silently changed: {document}"
            );
            Ok(true)
        }
        Err(error) => {
            prop_assert!(!error.to_string().is_empty());
            Ok(false)
        }
    }
}

/// Deletes every value of the document once; the kinds of place where that is accepted.
fn deletable(document: &Value) -> BTreeSet<String> {
    let mut accepted = BTreeSet::new();
    for path in paths(document) {
        let mut changed = document.clone();
        delete(&mut changed, &path);
        if refused_or_whole(&changed).expect("nothing is silent") {
            accepted.insert(kind_of(&path));
        }
    }
    accepted
}

#[test]
fn what_may_be_left_out_of_the_seed() {
    let expected = [
        "candidate.flashBlocks", // by context length then
        "candidate.matvec.attn_o_proj",
        "candidate.matvec.attn_qkv",
        "candidate.matvec.conv_in_proj",
        "candidate.matvec.conv_out_proj",
        "candidate.matvec.head",
        "runtime.extraFeatures.*",
        "runtime.flashOptima.*",
        "runtime.knee.*",
    ];
    let expected: BTreeSet<String> = expected.map(str::to_owned).into();
    assert_eq!(deletable(&seed_json()), expected);
}

#[test]
fn what_may_be_left_out_of_a_document_with_everything() {
    let expected = [
        "candidate.flashBlocks",
        "candidate.matvec.attn_qkv",
        "runtime.extraFeatures.*",
        "runtime.flashOptima.*",
        "runtime.knee.*",
        "runtime.sections.*.sha256",
        "runtime.selfTest",
        "runtime.selfTest.continuationIds.*",
        "runtime.selfTest.promptIds.*",
        "runtime.shape.normEps",
        "runtime.shape.ropeTheta",
        "runtime.text",
        "runtime.text.chatTemplate",
        "runtime.text.generationConfig",
        "runtime.text.tokenizer",
        "runtime.text.tokenizerConfig",
        "format",
        "source",
        "source.licence",
        "source.quantiser",
        "source.repository",
        "source.revision",
    ];
    let expected: BTreeSet<String> = expected.map(str::to_owned).into();
    assert_eq!(deletable(&full_json()), expected);
}

#[test]
fn no_number_of_the_shape_can_change_alone() {
    for document in [seed_json(), full_json()] {
        let mut tried = 0;
        for path in paths(&document) {
            let mut changed = document.clone();
            let value = at(&mut changed, &path);
            let free = ["normEps", "ropeTheta"].contains(&path[path.len() - 1].as_str());
            let Some(number) = value.as_u64().filter(|_| path[1] == "shape" && !free) else {
                continue;
            };
            for other in [
                0,
                1,
                number - 1,
                number + 1,
                number + 32,
                number * 2,
                number << 40,
            ] {
                if other != number {
                    *at(&mut changed, &path) = json!(other);
                    parse(&changed.to_string()).expect_err("other sizes need other sections");
                    tried += 1;
                }
            }
        }
        assert!(tried >= 9 * 5, "{tried}");
    }
}

#[test]
fn another_type_is_refused_everywhere() {
    let others = [
        json!(null),
        json!(true),
        json!(-1),
        json!(0.5),
        json!("x"),
        json!([]),
        json!({}),
    ];
    for document in [seed_json(), full_json()] {
        let mut tried = 0;
        let mut kinds = BTreeSet::new();
        let first_of_kind = |path: &Path| kinds.insert(kind_of(path));
        for path in paths(&document).into_iter().filter(first_of_kind) {
            for other in &others {
                let mut changed = document.clone();
                let value = at(&mut changed, &path);
                let same_type = std::mem::discriminant(value) == std::mem::discriminant(other);
                // The two floats of the shape take every positive number.
                if same_type && !value.is_u64() || value.is_f64() && *other == json!(0.5) {
                    continue;
                }
                *value = other.clone();
                let error = parse(&changed.to_string()).expect_err("another type");
                let positive = matches!(error, ManifestError::FieldPositive { .. });
                let typed = matches!(error, ManifestError::FieldType { .. });
                assert!(typed || positive && *other == json!(-1), "{path:?} {error}");
                tried += 1;
            }
        }
        assert!(tried > 300, "{tried}");
    }
}

#[test]
fn an_added_field_is_refused_in_every_kind_of_object() {
    let mut kinds = BTreeSet::new();
    for document in [seed_json(), full_json()] {
        for path in std::iter::once(Path::new()).chain(paths(&document)) {
            let mut changed = document.clone();
            // Names of matrices are data; see the refusal of `candidate.matvec.embed`.
            let Some(object) = at(&mut changed, &path).as_object_mut() else {
                continue;
            };
            object.insert("tensor".to_owned(), json!({}));
            let error = parse(&changed.to_string()).expect_err("added");
            let refused = match &error {
                ManifestError::UnknownField { path } => path,
                ManifestError::UnknownWord { path, .. } if path == "candidate.matvec.tensor" => {
                    path
                }
                other => panic!("{path:?}: {other}"),
            };
            assert!(refused.ends_with("tensor"), "{refused}");
            kinds.insert(kind_of(&path));
        }
    }
    // Outermost, candidate, matvec, five of its entries with geometries, runtime, shape, sections,
    // knee and its geometries, flashOptima, text, selfTest, source.
    assert_eq!(kinds.len(), 22, "{kinds:?}");
}

#[test]
fn every_truncation_is_refused() {
    let rendered = full().render();
    for text in [SEED.trim_end(), rendered.trim_end()] {
        // Every length would be quadratic; a prime step visits every kind of place.
        for end in (0..text.len()).step_by(7).chain(text.len() - 9..text.len()) {
            let error = parse(&text[..end]).expect_err("cut off");
            assert!(
                matches!(error, ManifestError::Syntax { .. }),
                "{end}: {error}"
            );
        }
    }
}

#[test]
fn every_repeated_field_is_refused() {
    // Repeats each line that is a whole field, so that nothing but the repetition is wrong.
    let text = serde_json::to_string_pretty(&full_json()).expect("a value becomes JSON");
    let lines: Vec<&str> = text.lines().collect();
    let mut tried = 0;
    for (index, line) in lines.iter().enumerate() {
        let ends = line.ends_with([']', '}', '"']) || line.ends_with(|c: char| c.is_alphanumeric());
        let field = line.trim_start().starts_with('"') && line.contains("\": ");
        if !field || !(line.ends_with(',') || ends) {
            continue;
        }
        let mut repeated = lines.clone();
        let twice = format!("{}, {}", line.trim_end_matches(','), line);
        repeated[index] = &twice;
        let error = parse(&repeated.join("\n")).expect_err("twice");
        assert!(
            matches!(error, ManifestError::DuplicateField { .. }),
            "{line}: {error}"
        );
        tried += 1;
    }
    assert!(tried > 200, "{tried}");
}

#[test]
fn nesting_without_end_is_refused() {
    for open in ["[", "{\"runtime\":"] {
        let error = parse(&open.repeat(100_000)).expect_err("too deep");
        assert!(matches!(error, ManifestError::Syntax { .. }));
    }
}

fn any_document() -> impl Strategy<Value = Value> {
    select(vec![seed_json(), full_json()])
}

/// Numbers that arithmetic on sizes stumbles over, and small ones.
fn any_number() -> impl Strategy<Value = Value> {
    prop_oneof![
        (0u64..100).prop_map(|n| json!(n)),
        (0u32..64, -1i64..2).prop_map(|(bit, d)| json!((1u64 << bit).wrapping_add_signed(d))),
        any::<u64>().prop_map(|n| json!(n)),
        any::<i32>().prop_map(|n| json!(n)),
        any::<f64>().prop_map(|n| json!(n)),
    ]
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(|b| json!(b)),
        any_number(),
        ".{0,8}".prop_map(|text| json!(text)),
        select(vec![
            "conv",
            "subgroup",
            "head",
            "f16",
            "carried",
            "monarch-webgpu/2"
        ])
        .prop_map(|word| json!(word)),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| json!(items)),
            prop::collection::btree_map("[a-z]{1,6}", inner, 0..4).prop_map(|f| json!(f)),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_replaced_value(document in any_document(), place in any::<Index>(), other in any_json()) {
        let mut changed = document.clone();
        *at(&mut changed, place.get(&paths(&document))) = other;
        refused_or_whole(&changed)?;
    }

    #[test]
    fn a_replaced_number(document in any_document(), place in any::<Index>(), other in any_number()) {
        let mut changed = document.clone();
        let numbers: Vec<Path> = paths(&document)
            .into_iter()
            .filter(|path| at(&mut changed, path).is_number())
            .collect();
        *at(&mut changed, place.get(&numbers)) = other;
        refused_or_whole(&changed)?;
    }

    #[test]
    fn two_values_exchanged(document in any_document(), places in any::<[Index; 2]>()) {
        let mut changed = document.clone();
        let paths = paths(&document);
        let [one, other] = places.map(|place| place.get(&paths));
        if !one.starts_with(other) && !other.starts_with(one) {
            let value = std::mem::take(at(&mut changed, one));
            let other_value = std::mem::replace(at(&mut changed, other), value);
            *at(&mut changed, one) = other_value;
            refused_or_whole(&changed)?;
        }
    }

    #[test]
    fn one_field_of_two_sections_exchanged(
        document in any_document(),
        places in any::<[Index; 2]>(),
        field in select(vec!["name", "offset", "bytes"]),
    ) {
        let mut changed = document.clone();
        let sections = changed["runtime"]["sections"].as_array_mut().expect("a list");
        let [one, other] = places.map(|place| place.index(sections.len()));
        let value = sections[one][field].take();
        sections[one][field] = std::mem::replace(&mut sections[other][field], value.clone());
        if one == other {
            sections[one][field] = value;
        }
        refused_or_whole(&changed)?;
    }

    #[test]
    fn a_list_entry_repeated(document in any_document(), place in any::<Index>()) {
        let mut changed = document.clone();
        let lists: Vec<Path> = paths(&document)
            .into_iter()
            .filter(|path| at(&mut changed, path).as_array().is_some_and(|list| !list.is_empty()))
            .collect();
        let list = at(&mut changed, place.get(&lists)).as_array_mut().expect("a list");
        let entry = list[place.index(list.len())].clone();
        list.insert(place.index(list.len()), entry);
        refused_or_whole(&changed)?;
    }

    #[test]
    fn a_renamed_field(document in any_document(), place in any::<Index>(), name in "[a-zA-Z]{1,9}") {
        let mut changed = document.clone();
        let named: Vec<Path> = paths(&document)
            .into_iter()
            .filter(|path| at(&mut changed, &path[..path.len() - 1]).is_object())
            .collect();
        let path = place.get(&named);
        let (old, parent) = path.split_last().expect("not the outermost value");
        let fields = at(&mut changed, parent).as_object_mut().expect("an object");
        let value = fields.remove(old).expect("is there");
        fields.insert(name, value);
        refused_or_whole(&changed)?;
    }

    #[test]
    fn three_mistakes_at_once(
        document in any_document(),
        places in any::<[Index; 3]>(),
        others in [any_json(), any_json(), any_json()],
    ) {
        let mut changed = document;
        for (place, other) in places.iter().zip(others) {
            let path = place.get(&paths(&changed)).clone();
            *at(&mut changed, &path) = other;
        }
        refused_or_whole(&changed)?;
    }

    #[test]
    fn a_flipped_byte(place in any::<Index>(), byte in 0x20u8..0x7f) {
        let mut bytes = SEED.as_bytes().to_vec();
        let index = place.index(bytes.len());
        bytes[index] = byte;
        let text = String::from_utf8(bytes).expect("ASCII");
        if let Ok(manifest) = parse(&text) {
            let document: Value = serde_json::from_str(&text).expect("was parsed");
            prop_assert!(says_the_same(&document, &manifest));
        }
    }

    #[test]
    fn any_text(text in ".*") {
        prop_assert!(parse(&text).is_err());
    }

    #[test]
    fn any_json_value(value in any_json()) {
        prop_assert!(parse(&value.to_string()).is_err());
    }
}
