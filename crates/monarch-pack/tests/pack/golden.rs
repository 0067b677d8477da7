//! The generator, the quantiser and the seed's table, to the bit.

use monarch_pack::{
    Checkpoint, Layout, LayoutOptions, Matrix, PackOptions, Packed, Vector, pack, quantise,
    read_manifest, verify,
};
use serde_json::Value;

use crate::support::{bits, read_json, repository};

fn vectors() -> serde_json::Map<String, Value> {
    let path = repository("tests/golden/lfm2.5-230m-synth/weights_vectors.json");
    let Value::Object(vectors) = read_json(&path) else {
        panic!("not an object")
    };
    vectors
}

fn hex_bits(value: &Value) -> u32 {
    u32::from_str_radix(value.as_str().unwrap().strip_prefix("0x").unwrap(), 16).unwrap()
}

fn integers(value: &Value) -> Vec<i64> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v.as_i64().unwrap())
        .collect()
}

#[test]
fn every_formula_tensor_equals_its_golden_values() {
    let checkpoint = Checkpoint::synth("lfm2.5-230m").unwrap();
    let mut vectors = vectors();
    vectors.remove("_q4");
    assert_eq!(vectors.len(), 132);
    assert_eq!(checkpoint.tensors().count(), vectors.len());
    for (name, shape) in checkpoint.tensors() {
        let golden = &vectors[name];
        let golden_shape: Vec<usize> = integers(&golden["shape"])
            .iter()
            .map(|&n| n as usize)
            .collect();
        assert_eq!(shape, golden_shape, "{name}");
        let weights = checkpoint.tensor_f32(name).unwrap();
        assert_eq!(weights.len(), shape.iter().product::<usize>(), "{name}");
        let first: Vec<u32> = golden["f32_bits_first8"]
            .as_array()
            .unwrap()
            .iter()
            .map(hex_bits)
            .collect();
        assert_eq!(bits(&weights[..8]), first, "{name}");
        let last = golden["last"].as_f64().unwrap() as f32;
        assert_eq!(weights.last().unwrap().to_bits(), last.to_bits(), "{name}");
    }
}

#[test]
fn symmetric_codes_equal_the_golden_blocks() {
    let golden = &vectors()["_q4"]["model.layers.0.conv.in_proj.weight"];
    let checkpoint = Checkpoint::synth("lfm2.5-230m").unwrap();
    let weights = checkpoint.matrix_f32(Some(0), Matrix::ConvInProj).unwrap();
    let quantised = quantise::symmetric(&weights, 1024);
    assert_eq!(quantised.zero_points, None);
    for block in [0, 31] {
        let codes: Vec<i64> = quantised.codes[block * 16..][..16]
            .iter()
            .flat_map(|&byte| [i64::from(byte & 0xf) - 8, i64::from(byte >> 4) - 8])
            .collect();
        assert_eq!(
            codes,
            integers(&golden[format!("block{block}_q")]),
            "block {block}"
        );
        let scale = hex_bits(&golden[format!("block{block}_scale_bits")]);
        assert_eq!(quantised.scales[block].to_bits(), scale, "block {block}");
    }
    let bytes: Vec<String> = quantised.codes[..16]
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    let golden_bytes: Vec<&str> = golden["nibbles_first16_bytes_low_first"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v.as_str().unwrap())
        .collect();
    assert_eq!(bytes, golden_bytes);
}

#[test]
fn asymmetric_codes_equal_the_golden_blocks() {
    let golden = &vectors()["_q4"]["model.embed_tokens.weight"];
    let checkpoint = Checkpoint::synth("lfm2.5-230m").unwrap();
    let weights = checkpoint.matrix_f32(None, Matrix::Embed).unwrap();
    let quantised = quantise::asymmetric(&weights, 1024);
    let zero_points = quantised.zero_points.unwrap();
    for block in [0, 1] {
        let codes: Vec<i64> = quantised.codes[block * 16..][..16]
            .iter()
            .flat_map(|&byte| [i64::from(byte & 0xf), i64::from(byte >> 4)])
            .collect();
        assert_eq!(
            codes,
            integers(&golden[format!("block{block}_q")]),
            "block {block}"
        );
        let scale = hex_bits(&golden[format!("block{block}_scale_bits")]);
        assert_eq!(quantised.scales[block].to_bits(), scale, "block {block}");
        let zero_point = (zero_points[block / 2] >> (4 * (block % 2))) & 0xf;
        let golden_zero_point = golden[format!("block{block}_zero_point")].as_u64().unwrap();
        assert_eq!(u64::from(zero_point), golden_zero_point, "block {block}");
    }
}

#[test]
fn seed_layout_of_the_230m_shape_equals_the_seed() {
    let seed = read_manifest(&repository("tests/golden/seed/manifest.json"))
        .unwrap()
        .spec;
    let checkpoint = Checkpoint::synth("lfm2.5-230m").unwrap();
    let out = tempfile::tempdir().unwrap();
    let options = PackOptions {
        layout: LayoutOptions {
            layout: Layout::Seed,
            ..LayoutOptions::default()
        },
        ..PackOptions::default()
    };
    pack(&checkpoint, out.path(), &options, &mut |_| ()).unwrap();

    let packed = Packed::open(out.path()).unwrap();
    let table = |spec: &monarch_manifest::ModelSpec| -> Vec<(String, u64, u64)> {
        spec.sections
            .iter()
            .map(|s| (s.name.clone(), s.offset_bytes, s.bytes))
            .collect()
    };
    assert_eq!(seed.sections.len(), 199);
    assert_eq!(table(packed.spec()), table(&seed));
    assert_eq!(packed.spec().weight_bytes, 168_647_680);
    assert_eq!(packed.spec().weight_bytes, seed.weight_bytes);
    assert_eq!(packed.shape(), &seed.shape);
    assert_eq!(
        packed.spec().rope_table_positions,
        seed.rope_table_positions
    );
    assert_eq!(packed.spec().context_tokens, seed.context_tokens);

    // What the table promises is in the file: second copies, digests, and the weights.
    let report = verify(&packed, &mut |_| ()).unwrap();
    assert_eq!(report.findings, []);
    assert_eq!(report.digests, 199);
    let weights = checkpoint.matrix_f32(Some(13), Matrix::MlpDown).unwrap();
    let round_trip = quantise::dequantise(&quantise::symmetric(&weights, 2560), 2560);
    assert_eq!(
        bits(&packed.matrix_f32(Some(13), Matrix::MlpDown).unwrap()),
        bits(&round_trip)
    );
    let norm = checkpoint.vector_f32(None, Vector::FinalNorm).unwrap();
    assert_eq!(
        bits(&packed.vector_f32(None, Vector::FinalNorm).unwrap()),
        bits(&norm)
    );
}

#[test]
fn rotary_tables_hold_cosines_and_sines_of_position_times_frequency() {
    let out = tempfile::tempdir().unwrap();
    let options = PackOptions {
        layout: LayoutOptions {
            layout: Layout::Seed,
            ..LayoutOptions::default()
        },
        ..PackOptions::default()
    };
    let nano = Checkpoint::synth("lfm2-nano").unwrap();
    pack(&nano, out.path(), &options, &mut |_| ()).unwrap();
    let packed = Packed::open(out.path()).unwrap();
    let table = |name| -> Vec<f32> {
        let bytes = packed.section_bytes(name).unwrap();
        bytes
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
            .collect()
    };
    let (cos, sin) = (table("rope.cos"), table("rope.sin"));
    assert_eq!((cos.len(), sin.len()), (256 * 16, 256 * 16));
    for position in [0, 1, 100, 255] {
        for pair in [0, 1, 15] {
            let angle = f64::from(position) * 1e6f64.powf(-2.0 * f64::from(pair) / 32.0);
            let at = (position * 16 + pair) as usize;
            // Half a unit in the last place of an angle of 255 is 1.5e-5.
            assert!(
                (f64::from(cos[at]) - angle.cos()).abs() < 2e-5,
                "cos {position} {pair}"
            );
            assert!(
                (f64::from(sin[at]) - angle.sin()).abs() < 2e-5,
                "sin {position} {pair}"
            );
        }
    }
}
