//! Which shapes and geometries are refused, and how large dispatches are folded.

use monarch_kernels::{
    Features, KERNELS, KernelError, Limits, attention_decode, kernel, matvec_q4, mlp_q4, rms_norm,
};

const SHAPE: matvec_q4::Shape = matvec_q4::Shape {
    n: 1024,
    k: 1024,
    y_offset: 0,
    norm_eps: None,
    has_bias: false,
    accumulate: false,
    scales_f16: false,
    has_zero_points: false,
};
const GEOMETRY: matvec_q4::Geometry = matvec_q4::Geometry {
    workgroup: 256,
    lanes: 32,
    rows: 4,
    rows_per_workgroup: 32,
    tile_blocks: 32,
};

fn matvec(shape: matvec_q4::Shape, geometry: matvec_q4::Geometry) -> Result<[u32; 3], KernelError> {
    matvec_q4::workgroups(&shape, &geometry, &Limits::DEFAULT)
}

#[test]
fn what_runs_everywhere_is_accepted() {
    assert_eq!(matvec(SHAPE, GEOMETRY), Ok([32, 1, 1]));
    // The widest row of the 230M model, staged at once.
    let shape = matvec_q4::Shape { k: 2560, ..SHAPE };
    let geometry = matvec_q4::Geometry {
        tile_blocks: 80,
        ..GEOMETRY
    };
    assert_eq!(matvec(shape, geometry), Ok([32, 1, 1]));
}

#[test]
fn what_cannot_run_is_refused_by_field() {
    let shape = |k| matvec_q4::Shape { k, ..SHAPE };
    let message = |result: Result<[u32; 3], KernelError>| result.expect_err("refused").to_string();
    assert_eq!(
        message(matvec(shape(1000), GEOMETRY)),
        "matvec_q4: k is 1000, but must be a positive multiple of 32"
    );
    assert_eq!(
        message(matvec(shape(0), GEOMETRY)),
        "matvec_q4: k is 0, but must be a positive multiple of 32"
    );
    let refused = [
        matvec_q4::Geometry {
            workgroup: 512,
            ..GEOMETRY
        },
        matvec_q4::Geometry {
            workgroup: 96,
            ..GEOMETRY
        },
        matvec_q4::Geometry {
            workgroup: 2,
            ..GEOMETRY
        },
        matvec_q4::Geometry {
            lanes: 2,
            ..GEOMETRY
        },
        matvec_q4::Geometry {
            lanes: 512,
            ..GEOMETRY
        },
        matvec_q4::Geometry {
            rows: 16,
            ..GEOMETRY
        },
        matvec_q4::Geometry {
            rows: 3,
            ..GEOMETRY
        },
        matvec_q4::Geometry {
            rows_per_workgroup: 0,
            ..GEOMETRY
        },
        matvec_q4::Geometry {
            tile_blocks: 0,
            ..GEOMETRY
        },
        matvec_q4::Geometry {
            tile_blocks: 128,
            ..GEOMETRY
        },
        matvec_q4::Geometry {
            tile_blocks: u32::MAX,
            ..GEOMETRY
        },
    ];
    for geometry in refused {
        assert!(matvec(SHAPE, geometry).is_err(), "{geometry:?}");
    }
    assert!(matvec(matvec_q4::Shape { n: 0, ..SHAPE }, GEOMETRY).is_err());
}

#[test]
fn workgroup_memory_is_told_in_bytes() {
    let geometry = matvec_q4::Geometry {
        tile_blocks: 128,
        ..GEOMETRY
    };
    assert_eq!(
        matvec(SHAPE, geometry),
        Err(KernelError::WorkgroupMemory {
            kernel: "matvec_q4",
            needed_bytes: 128 * 144 + 256 * 16,
            limit_bytes: 16 * 1024,
        })
    );
}

#[test]
fn large_dispatches_are_folded() {
    let one_row = matvec_q4::Geometry {
        rows: 1,
        rows_per_workgroup: 1,
        ..GEOMETRY
    };
    for (n, expected) in [
        (1, [1, 1, 1]),
        (65_534, [65_534, 1, 1]),
        (65_535, [65_535, 1, 1]),
        (65_536, [32_768, 2, 1]),
        (131_071, [43_691, 3, 1]),
    ] {
        let groups = matvec(matvec_q4::Shape { n, ..SHAPE }, one_row).expect("folds");
        assert_eq!(groups, expected);
        assert!(groups[0] * groups[1] >= n && groups[0] * (groups[1] - 1) < n);
    }
    let limits = Limits {
        max_workgroups_per_dimension: 10,
        ..Limits::DEFAULT
    };
    let shape = |n| matvec_q4::Shape { n, ..SHAPE };
    assert_eq!(
        matvec_q4::workgroups(&shape(100), &one_row, &limits),
        Ok([10, 10, 1])
    );
    assert_eq!(
        matvec_q4::workgroups(&shape(101), &one_row, &limits),
        Err(KernelError::TooManyWorkgroups {
            kernel: "matvec_q4",
            total: 101,
            limit: 10
        })
    );
}

#[test]
fn heads_need_an_invocation_for_every_four_dimensions() {
    let shape = attention_decode::Shape {
        heads: 4,
        kv_heads: 2,
        head_dim: 128,
    };
    let run = |workgroup| {
        let geometry = attention_decode::Geometry {
            workgroup,
            splits: 3,
        };
        attention_decode::workgroups(&shape, &geometry, &Limits::DEFAULT)
    };
    assert_eq!(run(32), Ok([12, 1, 1]));
    assert!(run(16).is_err());
    let uneven = attention_decode::Shape { heads: 5, ..shape };
    let geometry = attention_decode::Geometry {
        workgroup: 32,
        splits: 3,
    };
    assert!(attention_decode::workgroups(&uneven, &geometry, &Limits::DEFAULT).is_err());
}

#[test]
fn a_slice_must_fit_into_the_tile() {
    let shape = mlp_q4::Shape {
        d: 384,
        f: 1152,
        eps: 1e-5,
        scales_f16: false,
    };
    let run = |slice, tile_blocks| {
        let geometry = mlp_q4::Geometry {
            workgroup: 128,
            lanes: 32,
            rows: 2,
            slice,
            tile_blocks,
        };
        mlp_q4::workgroups(&shape, &geometry, &Limits::DEFAULT)
    };
    assert_eq!(run(32, 12), Ok([36, 1, 1]));
    assert_eq!(run(96, 3), Ok([12, 1, 1]));
    assert!(run(96, 2).is_err());
    assert!(run(48, 12).is_err());
}

#[test]
fn overrides_are_those_of_the_shader() {
    let mut names: Vec<&str> = matvec_q4::overrides(&SHAPE, &GEOMETRY)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    names.sort_unstable();
    assert_eq!(names, kernel("matvec_q4").overrides);
    let shape = rms_norm::Shape { k: 4, eps: 1e-5 };
    let values = rms_norm::overrides(&shape, &rms_norm::Geometry { workgroup: 64 });
    assert_eq!(values[0], ("K", 4.0));
}

#[test]
fn variants_that_do_not_differ_are_listed_once() {
    for kernel in KERNELS {
        let texts: Vec<&str> = kernel.variants().map(|(_, text)| text).collect();
        let count = (1 + usize::from(kernel.needs.f16)) * (1 + usize::from(kernel.needs.subgroups));
        assert_eq!(texts.len(), count, "{}", kernel.name);
        for features in Features::ALL {
            assert!(
                texts.contains(&kernel.wgsl(features)),
                "{} {features:?}",
                kernel.name
            );
        }
    }
}

#[test]
#[should_panic(expected = "no kernel is called matvec")]
fn an_unknown_kernel_is_a_bug() {
    kernel("matvec");
}
