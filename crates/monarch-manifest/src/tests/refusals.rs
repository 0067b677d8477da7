//! One manifest per reason to refuse it, and the sentence that the reason is told in.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::documents::{SEED, full_json, seed_json};
use crate::{ManifestError, TEXT_LIMIT_BYTES, parse};

/// Name of the variant. Without a wildcard: a new variant does not compile until it is listed, and
/// [`every_reason_has_a_manifest`] fails until a manifest below causes it.
fn reason(error: &ManifestError) -> &'static str {
    macro_rules! names {
        ($($name:ident)*) => {{
            const ALL: &[&str] = &[$(stringify!($name)),*];
            let name = match error {
                $(ManifestError::$name { .. } => stringify!($name),)*
            };
            assert_eq!(ALL.len(), REASONS, "adapt the count of reasons");
            name
        }};
    }
    names! {
        TextTooLong Syntax UnknownFormat MissingField UnknownField DuplicateField FieldType
        FieldRange FieldMultiple FieldPowerOfTwo FieldPositive FieldUnsupported UnknownWord
        EmptyText ListLength DuplicateEntry ContextOrder Digest TokenId SelfTestTooLong HeadGroups ContextTooLong
        UnknownSection MissingSection SectionPartner DuplicateSection SectionSize RopeTableSize
        SectionAlignment SectionPastEnd SectionOverlap SectionGap WeightsTail TiedSections
        AliasDigest
    }
}

const REASONS: usize = 35;

fn refuse(text: &str) -> ManifestError {
    match parse(text) {
        Ok(_) => panic!("accepted: {text}"),
        Err(error) => error,
    }
}

/// The seed with one value replaced, or added.
fn seed_with(pointer: &str, value: Value) -> String {
    with(seed_json(), pointer, value)
}

fn full_with(pointer: &str, value: Value) -> String {
    with(full_json(), pointer, value)
}

fn with(mut document: Value, pointer: &str, value: Value) -> String {
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
    match document.pointer_mut(parent).expect("is there") {
        Value::Array(items) => items[name.parse::<usize>().expect("an index")] = value,
        parent => parent[name] = value,
    }
    document.to_string()
}

/// The seed with one section changed.
fn seed_section(name: &str, change: impl FnOnce(&mut Value)) -> String {
    let mut document = seed_json();
    let sections = document["runtime"]["sections"]
        .as_array_mut()
        .expect("a list");
    let listed = sections.iter_mut().find(|section| section["name"] == name);
    change(listed.expect("listed"));
    document.to_string()
}

fn seed_without_sections(unwanted: &[&str]) -> String {
    let mut document = seed_json();
    let sections = document["runtime"]["sections"]
        .as_array_mut()
        .expect("a list");
    sections.retain(|section| !unwanted.contains(&section["name"].as_str().expect("a name")));
    document.to_string()
}

fn seed_without(pointer: &str) -> String {
    let mut document = seed_json();
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
    let parent = document.pointer_mut(parent).expect("is there");
    parent
        .as_object_mut()
        .expect("an object")
        .remove(name)
        .expect("is there");
    document.to_string()
}

/// Text, variant, message.
fn refusals() -> Vec<(String, &'static str, &'static str)> {
    let digest = "0g".repeat(32);
    vec![
        (
            " ".repeat(TEXT_LIMIT_BYTES + 1),
            "TextTooLong",
            "manifest is 8388609 bytes long, the limit is 8388608",
        ),
        (
            "<!doctype html>".to_owned(),
            "Syntax",
            "manifest is not JSON: line 1, column 1",
        ),
        (
            full_with("/format", json!("monarch-webgpu/2")),
            "UnknownFormat",
            "format \"monarch-webgpu/2\" is not known here, only \"monarch-webgpu/1\" is",
        ),
        // Fields.
        ("{}".to_owned(), "MissingField", "runtime is missing"),
        (
            "[]".to_owned(),
            "FieldType",
            "manifest: expected an object, found a list of 0",
        ),
        (
            seed_without("/runtime/shape/hidden"),
            "MissingField",
            "runtime.shape.hidden is missing",
        ),
        (
            seed_without("/candidate"),
            "MissingField",
            "candidate is missing",
        ),
        (
            seed_without("/runtime/sections/3/bytes"),
            "MissingField",
            "runtime.sections[3].bytes is missing",
        ),
        (
            seed_with("/candidat", json!({})),
            "UnknownField",
            "candidat is not a field of this schema",
        ),
        (
            seed_with("/runtime/shape/normEpsilon", json!(1e-6)),
            "UnknownField",
            "runtime.shape.normEpsilon is not a field of this schema",
        ),
        (
            seed_with("/candidate/matvec/head/geometry/rows", json!(1)),
            "UnknownField",
            "candidate.matvec.head.geometry.rows is not a field of this schema",
        ),
        (
            SEED.replacen("\"hidden\":", "\"hidden\": 2048, \"hidden\":", 1),
            "DuplicateField",
            "runtime.shape.hidden is written twice",
        ),
        (
            seed_with("/runtime/shape/hidden", json!("1024")),
            "FieldType",
            "runtime.shape.hidden: expected a non-negative whole number, found text \"1024\"",
        ),
        (
            seed_with("/runtime/shape/hidden", json!(1024.0)),
            "FieldType",
            "runtime.shape.hidden: expected a non-negative whole number, found number 1024",
        ),
        (
            seed_with("/runtime/weightsUrl", json!(["/weights.bin"])),
            "FieldType",
            "runtime.weightsUrl: expected a text, found a list of 1",
        ),
        // Numbers.
        (
            seed_with("/runtime/shape/hidden", json!(0)),
            "FieldRange",
            "runtime.shape.hidden: 0 is outside 1..=131072",
        ),
        (
            seed_with("/runtime/shape/vocab", json!(5_000_000_000u64)),
            "FieldRange",
            "runtime.shape.vocab: 5000000000 is outside 0..=4294967295",
        ),
        (
            seed_with("/runtime/shape/vocab", json!(16_777_217)),
            "FieldRange",
            "runtime.shape.vocab: 16777217 is outside 1..=16777216",
        ),
        (
            seed_with("/runtime/shape/convCache", json!(1)),
            "FieldRange",
            "runtime.shape.convCache: 1 is outside 2..=64",
        ),
        (
            seed_with("/runtime/weightBytes", json!(1u64 << 41)),
            "FieldRange",
            "runtime.weightBytes: 2199023255552 is outside 1..=1099511627776",
        ),
        (
            seed_with("/runtime/maxPositions", json!(0)),
            "FieldRange",
            "runtime.maxPositions: 0 is outside 1..=16777216",
        ),
        (
            seed_with("/candidate/mlpSlices", json!(81)),
            "FieldRange",
            "candidate.mlpSlices: 81 is outside 1..=80",
        ),
        (
            seed_with("/runtime/knee/2/geometry/workgroupSize", json!(2048)),
            "FieldRange",
            "runtime.knee[2].geometry.workgroupSize: 2048 is outside 1..=1024",
        ),
        (
            seed_with("/runtime/flashOptima/1/blocks", json!(0)),
            "FieldRange",
            "runtime.flashOptima[1].blocks: 0 is outside 1..=65535",
        ),
        (
            seed_with("/runtime/shape/hidden", json!(1040)),
            "FieldMultiple",
            "runtime.shape.hidden: 1040 is not a multiple of 32",
        ),
        (
            seed_with("/runtime/shape/ffn", json!(2561)),
            "FieldMultiple",
            "runtime.shape.ffn: 2561 is not a multiple of 32",
        ),
        (
            seed_with("/runtime/shape/headDim", json!(63)),
            "FieldMultiple",
            "runtime.shape.headDim: 63 is not a multiple of 2",
        ),
        (
            full_with("/runtime/shape/headDim", json!(14)),
            "FieldMultiple",
            "runtime.shape: heads * headDim: 84 is not a multiple of 32",
        ),
        (
            seed_with("/candidate/matvec/head/geometry/subgroupsPerRow", json!(3)),
            "FieldMultiple",
            "candidate.matvec.head.geometry.workgroupSize: 256 is not a multiple of 96",
        ),
        (
            seed_with("/runtime/expectedSubgroupSize", json!(48)),
            "FieldPowerOfTwo",
            "runtime.expectedSubgroupSize: 48 is not a power of two",
        ),
        (
            seed_with("/candidate/foldLanes", json!(12)),
            "FieldPowerOfTwo",
            "candidate.foldLanes: 12 is not a power of two",
        ),
        (
            full_with("/runtime/shape/normEps", json!(0)),
            "FieldPositive",
            "runtime.shape.normEps: 0e0 is not a positive, finite 32-bit float",
        ),
        (
            // Positive as written, zero as an f32.
            full_with("/runtime/shape/normEps", json!(1e-51)),
            "FieldPositive",
            "runtime.shape.normEps: 1e-51 is not a positive, finite 32-bit float",
        ),
        (
            full_with("/runtime/shape/ropeTheta", json!(1e39)),
            "FieldPositive",
            "runtime.shape.ropeTheta: 1e39 is not a positive, finite 32-bit float",
        ),
        (
            seed_with("/runtime/shape/quantBits", json!(8)),
            "FieldUnsupported",
            "runtime.shape.quantBits: 8 is not supported, only 4 is",
        ),
        (
            seed_with("/runtime/shape/quantBlock", json!(64)),
            "FieldUnsupported",
            "runtime.shape.quantBlock: 64 is not supported, only 32 is",
        ),
        (
            seed_with("/runtime/shape/heads", json!(12)),
            "HeadGroups",
            "runtime.shape: 12 heads are not a multiple of 8 kvHeads",
        ),
        (
            seed_with("/runtime/maxTotalPositions", json!(2561)),
            "ContextTooLong",
            "runtime.maxTotalPositions: 2561 tokens do not fit into maxPositions 2560",
        ),
        // Words and lists.
        (
            seed_with("/runtime/shape/layerTypes/3", json!("mamba")),
            "UnknownWord",
            "runtime.shape.layerTypes[3]: \"mamba\" is not one of conv, attention, full_attention",
        ),
        (
            seed_with("/candidate/matvec/embed", json!({})),
            "UnknownWord",
            "candidate.matvec.embed: \"embed\" is not one of conv_in_proj, conv_out_proj, \
             attn_qkv, attn_o_proj, mlp_gate_up, mlp_down, head",
        ),
        (
            seed_with("/candidate/mlpHalfDot", json!("up")),
            "UnknownWord",
            "candidate.mlpHalfDot: \"up\" is not one of none, gate, down, both",
        ),
        (
            seed_with("/runtime/weightsUrl", json!("")),
            "EmptyText",
            "runtime.weightsUrl is empty",
        ),
        (
            full_with("/runtime/text/chatTemplate", json!("")),
            "EmptyText",
            "runtime.text.chatTemplate is empty",
        ),
        (
            seed_with("/runtime/shape/layerTypes", json!([])),
            "ListLength",
            "runtime.shape.layerTypes has 0 entries, needs 1 to 1024",
        ),
        (
            seed_with("/runtime/shape/layerTypes", json!(vec!["conv"; 1025])),
            "ListLength",
            "runtime.shape.layerTypes has 1025 entries, needs 1 to 1024",
        ),
        (
            full_with("/runtime/selfTest/promptIds", json!(vec![1; 500])),
            "SelfTestTooLong",
            "runtime.selfTest: 500 promptIds and 2 continuationIds are more than \
             maxTotalPositions 500",
        ),
        (
            full_with("/runtime/selfTest/promptIds", json!([])),
            "ListLength",
            "runtime.selfTest.promptIds has 0 entries, needs 1 to 500",
        ),
        (
            seed_without("/candidate/flashBlocks")
                .replace(&seed_json()["runtime"]["flashOptima"].to_string(), "[]"),
            "ListLength",
            "runtime.flashOptima has 0 entries, needs 1 to 1024",
        ),
        (
            seed_with("/runtime/knee/1/shape", json!("attn_o_proj")),
            "DuplicateEntry",
            "runtime.knee[1].shape: attn_o_proj is listed twice",
        ),
        (
            seed_with("/runtime/extraFeatures/2", json!("shader-f16")),
            "DuplicateEntry",
            "runtime.extraFeatures[2]: shader-f16 is listed twice",
        ),
        (
            seed_with("/runtime/flashOptima/1/positions", json!(192)),
            "ContextOrder",
            "runtime.flashOptima[1].positions: 192 tokens do not come after the 192 before them",
        ),
        (
            full_with("/runtime/sections/0/sha256", json!("00")),
            "Digest",
            "runtime.sections[0].sha256: \"00\" is not a SHA-256 digest of 64 hexadecimal digits",
        ),
        (
            full_with("/runtime/sections/0/sha256", json!(digest)),
            "Digest",
            "runtime.sections[0].sha256: \
             \"0g0g0g0g0g0g0g0g0g0g0g0g0g0g0g0g0g0g0g0g0g0g0g0g0g0g0g0g0g0g0g0g\" \
             is not a SHA-256 digest of 64 hexadecimal digits",
        ),
        (
            full_with("/runtime/selfTest/continuationIds/1", json!(777)),
            "TokenId",
            "runtime.selfTest.continuationIds[1]: token id 777 is outside the vocabulary of 777",
        ),
        // Sections.
        (
            seed_section("L3.mlp.down.quant", |s| {
                s["name"] = json!("L3.mlp.down.codes")
            }),
            "UnknownSection",
            "section L3.mlp.down.codes: no part of a model of this shape has that name",
        ),
        (
            // An attention layer's name in a conv layer.
            seed_section("L3.conv.in_proj.quant", |s| {
                s["name"] = json!("L3.attn.qkv.quant")
            }),
            "UnknownSection",
            "section L3.attn.qkv.quant: no part of a model of this shape has that name",
        ),
        (
            seed_without_sections(&["embed.zero_points"]),
            "MissingSection",
            "section embed.zero_points: missing, shape N=65536 K=1024 needs 1048576 bytes of it",
        ),
        (
            seed_without_sections(&["L3.mlp.down.kscales"]),
            "SectionPartner",
            "section L3.mlp.down.kquant: listed without its partner L3.mlp.down.kscales",
        ),
        (
            seed_without_sections(&["rope.cos", "rope.sin"]),
            "SectionPartner",
            "section rope.cos_ext: listed without its partner rope.cos",
        ),
        (
            seed_without_sections(&["rope.sin", "rope.cos_ext", "rope.sin_ext"]),
            "SectionPartner",
            "section rope.cos: listed without its partner rope.sin",
        ),
        (
            seed_without_sections(&["rope.cos_ext"]),
            "SectionPartner",
            "section rope.sin_ext: listed without its partner rope.cos_ext",
        ),
        (
            seed_section("rope.sin", |s| s["name"] = json!("rope.cos")),
            "DuplicateSection",
            "section rope.cos: listed twice, as number 167 and number 168",
        ),
        (
            seed_section("L0.conv.in_proj.quant", |s| s["bytes"] = json!(1_572_860)),
            "SectionSize",
            "section L0.conv.in_proj.quant: manifest says 1572860 bytes, shape N=3072 K=1024 \
             needs 1572864",
        ),
        (
            seed_with("/runtime/shape/scaleType", json!("f16")),
            "SectionSize",
            "section L0.conv.in_proj.scales: manifest says 393216 bytes, shape N=3072 K=1024 \
             needs 196608",
        ),
        (
            seed_section("L2.attn.qkv.q_norm", |s| s["bytes"] = json!(128)),
            "SectionSize",
            "section L2.attn.qkv.q_norm: manifest says 128 bytes, shape Dh=64 needs 256",
        ),
        (
            seed_section("L0.conv.core.taps", |s| s["bytes"] = json!(16_384)),
            "SectionSize",
            "section L0.conv.core.taps: manifest says 16384 bytes, shape H=1024 L=3 needs 12288",
        ),
        (
            seed_section("rope.sin_ext", |s| s["bytes"] = json!(327_552)),
            "SectionSize",
            "section rope.sin_ext: manifest says 327552 bytes, shape positions=2560 Dh/2=32 \
             needs 327680",
        ),
        (
            seed_section("rope.sin", |s| s["bytes"] = json!(131_200)),
            "SectionSize",
            "section rope.sin: manifest says 131200 bytes, shape positions=1024 Dh/2=32 \
             needs 131072",
        ),
        (
            // A base table alone has to cover everything.
            seed_without_sections(&["rope.cos_ext", "rope.sin_ext"]),
            "SectionSize",
            "section rope.cos: manifest says 131072 bytes, shape positions=2560 Dh/2=32 \
             needs 327680",
        ),
        (
            seed_section("rope.cos", |s| s["bytes"] = json!(131_073)),
            "RopeTableSize",
            "section rope.cos: manifest says 131073 bytes, a table has 128 bytes for each of \
             1 to 2560 positions",
        ),
        (
            seed_section("rope.cos", |s| s["bytes"] = json!(327_808)),
            "RopeTableSize",
            "section rope.cos: manifest says 327808 bytes, a table has 128 bytes for each of \
             1 to 2560 positions",
        ),
        (
            seed_section("L0.conv.in_proj.scales", |s| s["offset"] = json!(1_572_866)),
            "SectionAlignment",
            "section L0.conv.in_proj.scales: offset 1572866 is not a multiple of 4",
        ),
        (
            seed_with("/runtime/weightBytes", json!(168_647_676)),
            "SectionPastEnd",
            "section rope.sin_ext: offset 168320000 and 327680 bytes go past the 168647676 bytes \
             of the weights",
        ),
        (
            seed_section("head.norm", |s| s["offset"] = json!(u64::MAX - 3)),
            "SectionPastEnd",
            "section head.norm: offset 18446744073709551612 and 4096 bytes go past the 168647680 \
             bytes of the weights",
        ),
        (
            seed_section("L0.conv.in_proj.scales", |s| s["offset"] = json!(1_572_860)),
            "SectionOverlap",
            "section L0.conv.in_proj.scales: offset 1572860 lies inside section \
             L0.conv.in_proj.quant, which ends at 1572864",
        ),
        (
            // The same start but another length is no alias.
            seed_section("L0.conv.in_proj.norm", |s| s["offset"] = json!(144_576_512)),
            "SectionGap",
            "section L0.conv.in_proj.norm: begins at 144576512, but the one before it ends at \
             144572416",
        ),
        (
            seed_section("L0.conv.core.taps", |s| s["offset"] = json!(144_572_416)),
            "SectionOverlap",
            "section L0.conv.core.taps: offset 144572416 lies inside section \
             L0.conv.in_proj.norm, which ends at 144576512",
        ),
        (
            seed_without_sections(&["L3.mlp.down.kquant", "L3.mlp.down.kscales"]),
            "SectionGap",
            "section L4.mlp.down.kquant: begins at 151608320, but the one before it ends at \
             149969920",
        ),
        (
            seed_with("/runtime/weightBytes", json!(168_647_684)),
            "WeightsTail",
            "runtime.weightBytes: 168647684 bytes, but the last section ends at 168647680",
        ),
        (
            full_with("/runtime/shape/tiedEmbedding", json!(true)),
            "TiedSections",
            "section head.quant: offset 178944, but the embedding is tied and embed.quant has \
             offset 222976",
        ),
        (
            alias_digests(),
            "AliasDigest",
            "section embed.quant: same bytes as section head.quant, but another sha256",
        ),
    ]
}

/// The seed with different digests for the two names of the head's codes.
fn alias_digests() -> String {
    let mut document = seed_json();
    for section in document["runtime"]["sections"]
        .as_array_mut()
        .expect("a list")
    {
        let name = section["name"].as_str().expect("a name");
        let digit = match name {
            "head.quant" => "0",
            "embed.quant" => "1",
            _ => continue,
        };
        section["sha256"] = json!(digit.repeat(64));
    }
    document.to_string()
}

#[test]
fn every_refusal_says_what_and_why() {
    for (text, variant, message) in refusals() {
        let error = refuse(&text);
        assert_eq!(reason(&error), variant, "{error}");
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn every_reason_has_a_manifest() {
    let seen: BTreeSet<&str> = refusals().iter().map(|(_, variant, _)| *variant).collect();
    assert_eq!(seen.len(), REASONS);
}

#[test]
fn limits_are_inclusive() {
    for (pointer, value) in [
        ("/candidate/mlpSlices", 80),
        ("/candidate/mlpWorkgroup", 1),
        ("/runtime/maxTotalPositions", 2560),
        ("/runtime/expectedSubgroupSize", 4),
        ("/runtime/expectedSubgroupSize", 128),
    ] {
        parse(&seed_with(pointer, json!(value))).expect(pointer);
    }
}

#[test]
fn equal_digests_of_one_range_are_accepted() {
    let text = alias_digests().replace(&"1".repeat(64), &"0".repeat(64));
    parse(&text).expect("same bytes, same digest");
}

#[test]
fn digests_may_be_written_in_capitals() {
    let (lower, upper) = ("ab".repeat(32), "AB".repeat(32));
    let parsed = |digest| parse(&full_with("/runtime/sections/0/sha256", json!(digest)));
    let lower = parsed(lower).expect("valid");
    assert_eq!(lower.spec.sections[0].sha256, Some([0xab; 32]));
    assert_eq!(parsed(upper).expect("valid"), lower);
}

#[test]
fn a_half_tuned_manifest_is_refused() {
    let mut document = full_json();
    document
        .as_object_mut()
        .expect("an object")
        .remove("candidate");
    let error = refuse(&document.to_string());
    assert_eq!(error.to_string(), "candidate is missing");
}

#[test]
fn only_a_manifest_that_names_its_format_may_be_untuned() {
    let mut manifest = super::documents::full();
    manifest.tuning = crate::Tuning::default_for(&manifest.spec.shape);
    let untuned = manifest.render();
    parse(&untuned).expect("format and no tuning");
    let error = refuse(&untuned.replace("\"format\": \"monarch-webgpu/1\",", ""));
    assert_eq!(error.to_string(), "candidate is missing");
}
