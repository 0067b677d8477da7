//! Each fault that `verify` looks for is found, and a sound folder has none.

use std::fs;
use std::path::Path;

use monarch_manifest::{Manifest, ScaleType};
use monarch_pack::{
    Checkpoint, Finding, Layout, LayoutOptions, PackOptions, Packed, VerifyReport, pack,
    read_manifest, verify,
};

/// The nano model with second copies and rotary tables, and f32 scales.
fn packed_nano(folder: &Path) {
    let options = PackOptions {
        layout: LayoutOptions {
            layout: Layout::Seed,
            scales: Some(ScaleType::F32),
            context_tokens: None,
        },
        ..PackOptions::default()
    };
    pack(
        &Checkpoint::synth("lfm2-nano").unwrap(),
        folder,
        &options,
        &mut |_| (),
    )
    .unwrap();
}

/// Changes a packed folder's manifest.
fn edit_manifest(folder: &Path, edit: impl FnOnce(&mut Manifest)) {
    let mut manifest = read_manifest(folder).unwrap();
    edit(&mut manifest);
    fs::write(folder.join("manifest.json"), manifest.render()).unwrap();
}

/// Overwrites bytes of a section.
fn patch(folder: &Path, section: &str, at: u64, bytes: &[u8]) {
    let manifest = read_manifest(folder).unwrap();
    let start = (manifest.spec.section(section).unwrap().offset_bytes + at) as usize;
    let path = folder.join("weights.bin");
    let mut weights = fs::read(&path).unwrap();
    weights[start..start + bytes.len()].copy_from_slice(bytes);
    fs::write(path, weights).unwrap();
}

fn report(folder: &Path) -> VerifyReport {
    verify(&Packed::open(folder).unwrap(), &mut |_| ()).unwrap()
}

#[test]
fn a_sound_folder_has_no_findings() {
    let folder = tempfile::tempdir().unwrap();
    packed_nano(folder.path());
    let sections = read_manifest(folder.path()).unwrap().spec.sections.len();
    let mut progress = Vec::new();
    let report = verify(&Packed::open(folder.path()).unwrap(), &mut |bytes| {
        progress.push(bytes)
    })
    .unwrap();
    assert_eq!(
        report,
        VerifyReport {
            sections,
            digests: sections,
            text_files: 0,
            findings: vec![]
        }
    );
    assert_eq!(progress.len(), sections);
}

#[test]
fn one_flipped_bit_anywhere_is_found() {
    let folder = tempfile::tempdir().unwrap();
    packed_nano(folder.path());
    let weights = fs::read(folder.path().join("weights.bin")).unwrap();
    let sections = read_manifest(folder.path()).unwrap().spec.sections;
    for section in &sections {
        for at in [section.offset_bytes, section.end_bytes() - 1] {
            let mut flipped = weights.clone();
            flipped[at as usize] ^= 1;
            fs::write(folder.path().join("weights.bin"), flipped).unwrap();
            let findings = report(folder.path()).findings;
            assert!(
                findings.iter().any(
                    |f| matches!(f, Finding::Digest { section: name, .. } if *name == section.name)
                ),
                "{} byte {at}",
                section.name
            );
        }
    }
}

#[test]
fn faults_that_a_digest_cannot_show_are_found() {
    let without_digests = |folder: &Path| {
        packed_nano(folder);
        edit_manifest(folder, |manifest| {
            manifest
                .spec
                .sections
                .iter_mut()
                .for_each(|section| section.sha256 = None);
        });
    };
    let nan = f32::NAN.to_le_bytes();
    let infinity = f32::INFINITY.to_le_bytes();
    let zero = 0f32.to_le_bytes();
    let cases: &[(&str, u64, &[u8], &str)] = &[
        (
            "L0.conv.in_proj.scales",
            20,
            &nan,
            "L0.conv.in_proj.scales: the scale of block 5 is NaN",
        ),
        (
            "head.scales",
            4,
            &infinity,
            "head.scales: the scale of block 1 is inf",
        ),
        (
            "embed.scales",
            8,
            &zero,
            "embed.scales: the scale of block 2 is 0, its codes are not",
        ),
        (
            "L1.attn.qkv.scales",
            0,
            &zero,
            "L1.attn.qkv.scales: the scale of block 0 is 0, its codes are not",
        ),
        (
            "L1.attn.qkv.q_norm",
            12,
            &infinity,
            "L1.attn.qkv.q_norm: number 3 is inf",
        ),
        (
            "L0.conv.core.taps",
            4,
            &nan,
            "L0.conv.core.taps: number 1 is NaN",
        ),
        (
            "L2.conv.in_proj.bias",
            8,
            &nan,
            "L2.conv.in_proj.bias: number 2 is NaN",
        ),
        (
            "L2.conv.core.bias",
            0,
            &nan,
            "L2.conv.core.bias: number 0 is NaN",
        ),
        ("head.norm", 0, &nan, "head.norm: number 0 is NaN"),
        ("rope.sin", 0, &nan, "rope.sin: number 0 is NaN"),
        (
            "L1.mlp.down.kscales",
            3,
            &[0xff],
            "L1.mlp.down.kscales: byte 3 differs from L1.mlp.down.scales",
        ),
    ];
    for (section, at, bytes, message) in cases {
        let folder = tempfile::tempdir().unwrap();
        without_digests(folder.path());
        assert_eq!(report(folder.path()).digests, 0);
        assert_eq!(report(folder.path()).findings, []);
        patch(folder.path(), section, *at, bytes);
        let findings: Vec<String> = report(folder.path())
            .findings
            .iter()
            .map(|f| f.to_string())
            .collect();
        assert_eq!(findings, [*message]);
    }
}

#[test]
fn a_zero_scale_is_sound_only_where_every_code_is_the_zero_point() {
    let folder = tempfile::tempdir().unwrap();
    packed_nano(folder.path());
    edit_manifest(folder.path(), |manifest| {
        manifest
            .spec
            .sections
            .iter_mut()
            .for_each(|section| section.sha256 = None);
    });
    patch(folder.path(), "L0.conv.in_proj.scales", 0, &[0; 4]);
    patch(folder.path(), "L0.conv.in_proj.quant", 0, &[0x88; 16]);
    assert_eq!(report(folder.path()).findings, []);

    for byte in [0x87, 0x78] {
        patch(folder.path(), "L0.conv.in_proj.quant", 15, &[byte]);
        assert!(matches!(
            &report(folder.path()).findings[..],
            [Finding::ScaleZero { section, block: 0 }] if section == "L0.conv.in_proj.scales"
        ));
    }
}

#[test]
fn text_files_that_do_not_parse_are_found() {
    let folder = tempfile::tempdir().unwrap();
    packed_nano(folder.path());
    fs::write(folder.path().join("tokenizer.json"), "{}").unwrap();
    fs::write(folder.path().join("chat_template.jinja"), "{{ messages }}").unwrap();
    let sound = report(folder.path());
    assert_eq!((sound.text_files, sound.findings.len()), (2, 0));

    fs::write(folder.path().join("tokenizer.json"), "<html>").unwrap();
    fs::write(folder.path().join("generation_config.json"), "[]").unwrap();
    fs::write(folder.path().join("chat_template.jinja"), " \n").unwrap();
    let faulty = report(folder.path());
    assert_eq!(faulty.text_files, 3);
    let files: Vec<String> = faulty
        .findings
        .iter()
        .map(|finding| match finding {
            Finding::Text { path, .. } => path.file_name().unwrap().to_string_lossy().into_owned(),
            other => panic!("{other}"),
        })
        .collect();
    assert_eq!(
        files,
        [
            "tokenizer.json",
            "chat_template.jinja",
            "generation_config.json"
        ]
    );
}
