//! What each kernel is tested on, once: tests check the cases, benches time them.
//!
//! For every kernel: random shapes with the seed in the case's name, the shapes of LFM2.5-230M and
//! of the small model, every geometry, one row, a ragged last workgroup, and dispatches around the
//! limit of one dimension. Expected values come from the kernel's CPU twin.

use half::f16;
use monarch_kernels::q4::Q4;
use monarch_kernels::{
    Features, KernelError, Limits, advance, argmax_final, argmax_partial, attention_decode,
    attention_merge, conv_in_proj_q4, embed_q4, fold, kernel, matvec_q4, mlp_q4, qk_norm_rope,
    rms_norm, rope_attention_decode, short_conv, subgroup_probe, swiglu,
};

use crate::gpu::{AdapterName, Buffer, Case, Tolerance, Values, Variants};

/// Cases of one kernel, built one by one because the largest hold tens of megabytes.
pub type Cases = Box<dyn Iterator<Item = Case>>;

/// Every kernel's cases, by the kernel's name, in alphabetical order.
pub fn all() -> Vec<(&'static str, Cases)> {
    vec![
        ("advance", advance()),
        ("argmax_final", argmax_final()),
        ("argmax_partial", argmax_partial()),
        ("attention_decode", attention_decode()),
        ("attention_merge", attention_merge()),
        ("conv_in_proj_q4", conv_in_proj_q4()),
        ("embed_q4", embed_q4()),
        ("fold", fold()),
        ("matvec_q4", matvec_q4()),
        ("mlp_q4", mlp_q4()),
        ("qk_norm_rope", qk_norm_rope()),
        ("rms_norm", rms_norm()),
        ("rope_attention_decode", rope_attention_decode()),
        ("short_conv", short_conv()),
        ("subgroup_probe", subgroup_probe()),
        ("swiglu", swiglu()),
    ]
}

/// f32 arithmetic in another order: rounding errors of sums of some thousand terms.
const F32: Tolerance = Tolerance {
    rel_l2: 2e-6,
    worst: 2e-5,
};
/// Products of f16: each is rounded to 11 bits, and where all of one row nearly cancel, that row's
/// relative error grows. Over many rows it stays below [`F16_ROWS`].
const F16: Tolerance = Tolerance {
    rel_l2: 3e-3,
    worst: 5e-3,
};
/// The same over at least some tens of rows.
const F16_ROWS: Tolerance = Tolerance {
    rel_l2: 1e-3,
    worst: 5e-3,
};
/// exp and log of WGSL may be off by some units in the last place of their argument.
const TRANSCENDENTAL: Tolerance = Tolerance {
    rel_l2: 1e-5,
    worst: 1e-4,
};
/// A conv in front of which B, C and x are products: the errors of three multiply.
const F16_GATED: Tolerance = Tolerance {
    rel_l2: 3e-3,
    worst: 2e-2,
};

/// Sizes of the two models that are shipped or measured, as far as kernels see them.
#[derive(Clone, Copy, Debug)]
struct Model {
    name: &'static str,
    hidden: u32,
    ffn: u32,
    vocab: u32,
    heads: u32,
    kv_heads: u32,
}

const MODELS: [Model; 2] = [
    Model {
        name: "tiny",
        hidden: 384,
        ffn: 1152,
        vocab: 8192,
        heads: 6,
        kv_heads: 2,
    },
    Model {
        name: "230M",
        hidden: 1024,
        ffn: 2560,
        vocab: 65_536,
        heads: 16,
        kv_heads: 8,
    },
];
const HEAD_DIM: u32 = 64;
const CONV_WINDOW: u32 = 3;
const EPS: f32 = 1e-5;

/// Numbers from a seed: splitmix64.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In `min..=max`.
    pub fn int(&mut self, min: u32, max: u32) -> u32 {
        min + (self.bits() % u64::from(max - min + 1)) as u32
    }

    /// One of the choices.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.int(0, choices.len() as u32 - 1) as usize]
    }

    /// Between -1 and 1, never 0.
    pub fn unit(&mut self) -> f32 {
        ((self.bits() >> 40) as f32 + 0.5) / (1u64 << 23) as f32 - 1.0
    }

    /// `count` numbers between `-size` and `size`.
    pub fn floats(&mut self, count: u32, size: f32) -> Vec<f32> {
        (0..count).map(|_| self.unit() * size).collect()
    }

    /// `count` RMSNorm weights, around 1.
    fn norm_weights(&mut self, count: u32) -> Vec<f32> {
        (0..count).map(|_| 1.0 + 0.5 * self.unit()).collect()
    }

    fn words(&mut self, count: u32) -> Vec<u32> {
        (0..count).map(|_| self.bits() as u32).collect()
    }
}

/// A random 4-bit matrix in raw words.
#[derive(Clone, Debug)]
struct Matrix {
    columns: u32,
    codes: Vec<u32>,
    scales: Vec<u32>,
    scales_f16: bool,
    zero_points: Option<Vec<u32>>,
}

impl Matrix {
    fn random(rng: &mut Rng, rows: u32, columns: u32, scales_f16: bool, zero_points: bool) -> Self {
        let blocks = columns / 32;
        // Such that a row times activations of 1 gives about 1.
        let size = 0.4 / (columns as f32).sqrt();
        let scales: Vec<f32> = (0..rows * blocks)
            .map(|_| size * (0.75 + 0.25 * rng.unit()))
            .collect();
        let zero_point_bytes = rows * blocks.div_ceil(2);
        Self {
            columns,
            codes: rng.words(rows * columns / 8),
            scales: scale_words(&scales, scales_f16),
            scales_f16,
            zero_points: zero_points.then(|| rng.words(zero_point_bytes.div_ceil(4))),
        }
    }

    fn q4(&self) -> Q4<'_> {
        Q4 {
            columns: self.columns,
            codes: &self.codes,
            scales: &self.scales,
            scales_f16: self.scales_f16,
            zero_points: self.zero_points.as_deref(),
        }
    }

    fn buffers(&self) -> [Buffer; 3] {
        let zero_points = self
            .zero_points
            .clone()
            .map_or_else(Buffer::unused, Buffer::In);
        [
            Buffer::In(self.codes.clone()),
            Buffer::In(self.scales.clone()),
            zero_points,
        ]
    }

    /// Codes and scales regrouped column-block-major: `[K/32, N]`.
    fn k_major(&self) -> (Vec<u32>, Vec<u32>) {
        let blocks = self.columns as usize / 32;
        let rows = self.codes.len() / 4 / blocks;
        let mut codes = Vec::with_capacity(self.codes.len());
        let mut scales = Vec::with_capacity(rows * blocks);
        for block in 0..blocks {
            for row in 0..rows {
                let at = row * blocks + block;
                codes.extend_from_slice(&self.codes[at * 4..][..4]);
                scales.push(if self.scales_f16 {
                    let half = self.scales[at / 2] >> (at % 2 * 16);
                    f16::from_bits(half as u16).to_f32()
                } else {
                    f32::from_bits(self.scales[at])
                });
            }
        }
        (codes, scale_words(&scales, self.scales_f16))
    }
}

fn scale_words(scales: &[f32], as_f16: bool) -> Vec<u32> {
    if as_f16 {
        let bits = |scale: f32| u32::from(f16::from_f32(scale).to_bits());
        scales
            .chunks(2)
            .map(|pair| bits(pair[0]) | pair.get(1).map_or(0, |&high| bits(high) << 16))
            .collect()
    } else {
        scales.iter().map(|scale| scale.to_bits()).collect()
    }
}

/// The state buffer: 16 words.
fn state_words(position: u32, prompt_tokens: u32, seed: u64, inv_temperature: f32) -> Vec<u32> {
    let mut words = vec![0; 16];
    words[..5].copy_from_slice(&[
        position,
        prompt_tokens,
        seed as u32,
        (seed >> 32) as u32,
        inv_temperature.to_bits(),
    ]);
    words
}

/// Cosines of each position, then its sines: `[positions, Dh]`.
fn rope_table(positions: u32, head_dim: u32) -> Vec<f32> {
    let half = head_dim / 2;
    let angle = |position: u32, pair: u32| {
        f64::from(position) / 1e6f64.powf(f64::from(pair) / f64::from(half))
    };
    (0..positions)
        .flat_map(|position| {
            let cos = (0..half).map(move |pair| angle(position, pair).cos() as f32);
            cos.chain((0..half).map(move |pair| angle(position, pair).sin() as f32))
        })
        .collect()
}

/// The small model's shapes run in every variant of the large kernels, with few rows at a time.
fn few_of_many(is_small: bool) -> Variants {
    if is_small {
        Variants::All
    } else {
        Variants::Ends
    }
}

/// A case's shape and geometry must run on every WebGPU device.
fn groups(workgroups: Result<[u32; 3], KernelError>) -> [u32; 3] {
    workgroups.unwrap_or_else(|error| panic!("a case cannot run: {error}"))
}

const LIMITS: &Limits = &Limits::DEFAULT;

fn lazily<T: 'static>(list: Vec<T>, build: impl Fn(T) -> Case + 'static) -> Cases {
    Box::new(list.into_iter().map(build))
}

fn advance() -> Cases {
    lazily(vec![0u32, 41], |position| {
        let before = state_words(position, 7, 1, 0.5);
        let mut after = before.clone();
        advance::cpu(&mut after[0]);
        Case {
            name: format!("position {position}"),
            kernel: kernel("advance"),
            overrides: advance::overrides(),
            workgroups: advance::workgroups(),
            buffers: vec![Buffer::State {
                before: Values::U32(before),
                after: Values::U32(after),
                is_sized: true,
            }],
            tolerance: Tolerance::EXACT,
            tolerance_f16: Tolerance::EXACT,
            requires: Features::NONE,
            variants: Variants::All,
        }
    })
}

fn subgroup_probe() -> Cases {
    lazily(vec![4u32, 32, 64, 256], |workgroup| {
        let geometry = subgroup_probe::Geometry { workgroup };
        let found = subgroup_probe::cpu(&geometry, AdapterName::from_env().subgroup_size());
        Case {
            name: format!("{geometry:?}"),
            kernel: kernel("subgroup_probe"),
            overrides: subgroup_probe::overrides(&geometry),
            workgroups: groups(subgroup_probe::workgroups(&geometry, LIMITS)),
            buffers: vec![Buffer::Out(Values::U32(found.to_words().to_vec()))],
            tolerance: Tolerance::EXACT,
            tolerance_f16: Tolerance::EXACT,
            requires: Features {
                f16: false,
                subgroups: true,
            },
            variants: Variants::All,
        }
    })
}

fn rms_norm() -> Cases {
    let mut list = vec![(1, 4), (5, 32), (1023, 256), (4100, 64)];
    list.extend(
        MODELS
            .iter()
            .flat_map(|model| [(model.hidden, 128), (model.hidden, 256)]),
    );
    let seeded = (0..6).map(|seed| {
        let mut rng = Rng::new(seed);
        (rng.int(1, 3000), rng.pick(&[4, 8, 16, 32, 64, 128, 256]))
    });
    list.extend(seeded);
    lazily(list, |(k, workgroup)| {
        let shape = rms_norm::Shape { k, eps: EPS };
        let geometry = rms_norm::Geometry { workgroup };
        let mut rng = Rng::new(k.into());
        // In small rows the epsilon counts.
        let size = if k % 2 == 1 { 3e-3 } else { 3.0 };
        let (x, weight) = (rng.floats(k, size), rng.norm_weights(k));
        let mut y = vec![0.0; k as usize];
        rms_norm::cpu(&shape, &x, &weight, &mut y);
        Case {
            name: format!("{shape:?} {geometry:?}"),
            kernel: kernel("rms_norm"),
            overrides: rms_norm::overrides(&shape, &geometry),
            workgroups: groups(rms_norm::workgroups(&shape, &geometry, LIMITS)),
            buffers: vec![
                Buffer::input(&x),
                Buffer::input(&weight),
                Buffer::Out(Values::F32(y)),
            ],
            tolerance: F32,
            tolerance_f16: F32,
            requires: Features::NONE,
            variants: Variants::All,
        }
    })
}

fn embed_q4() -> Cases {
    // Shape, token, workgroup.
    let mut list = Vec::new();
    for seed in 0..6 {
        let mut rng = Rng::new(seed);
        let shape = embed_q4::Shape {
            d: 32 * rng.int(1, 20),
            first_row: rng.pick(&[0, 100]),
            rows_here: rng.int(1, 90),
            scales_f16: seed % 2 == 0,
            has_zero_points: seed % 3 != 0,
        };
        let last = shape.first_row + shape.rows_here - 1;
        let token = rng.int(shape.first_row, last);
        list.extend([(shape, token, 32), (shape, last, 256)]);
        // The tokens on either side of the chunk leave x alone.
        list.push((shape, last + 1, 64));
        list.extend(
            shape
                .first_row
                .checked_sub(1)
                .map(|token| (shape, token, 64)),
        );
    }
    for model in MODELS {
        let shape = embed_q4::Shape {
            d: model.hidden,
            first_row: 0,
            rows_here: model.vocab,
            scales_f16: model.vocab < 65_536,
            has_zero_points: true,
        };
        list.push((shape, model.vocab - 1, 256));
    }
    lazily(list, |(shape, token, workgroup)| {
        let geometry = embed_q4::Geometry { workgroup };
        let mut rng = Rng::new(token.into());
        let table = Matrix::random(
            &mut rng,
            shape.rows_here,
            shape.d,
            shape.scales_f16,
            shape.has_zero_points,
        );
        let position = rng.int(0, 9);
        let mut tokens = rng.words(12);
        tokens[position as usize] = token;
        let before = rng.floats(shape.d, 1.0);
        let mut after = before.clone();
        embed_q4::cpu(&shape, token, &table.q4(), &mut after);
        let [codes, scales, zero_points] = table.buffers();
        Case {
            name: format!("token {token} {shape:?} {geometry:?}"),
            kernel: kernel("embed_q4"),
            overrides: embed_q4::overrides(&shape, &geometry),
            workgroups: groups(embed_q4::workgroups(&shape, &geometry, LIMITS)),
            buffers: vec![
                Buffer::In(state_words(position, 0, 0, 0.0)),
                Buffer::In(tokens),
                codes,
                scales,
                zero_points,
                Buffer::state(before, after),
            ],
            tolerance: F32,
            tolerance_f16: F32,
            requires: Features::NONE,
            variants: Variants::All,
        }
    })
}

const MATVEC: matvec_q4::Shape = matvec_q4::Shape {
    n: 0,
    k: 0,
    y_offset: 0,
    norm_eps: None,
    has_bias: false,
    accumulate: false,
    scales_f16: false,
    has_zero_points: false,
};

/// A geometry whose teams are all busy with subgroups of 32.
fn matvec_geometry(workgroup: u32, rows: u32, tile_blocks: u32) -> matvec_q4::Geometry {
    let lanes = 32.min(workgroup);
    let rows_per_workgroup = workgroup / lanes * rows;
    matvec_q4::Geometry {
        workgroup,
        lanes,
        rows,
        rows_per_workgroup,
        tile_blocks,
    }
}

fn matvec_q4() -> Cases {
    let mut list = Vec::new();
    // One row, and a last workgroup with one row of many.
    list.push((
        matvec_q4::Shape {
            n: 1,
            k: 32,
            ..MATVEC
        },
        matvec_geometry(32, 1, 1),
    ));
    list.push((
        matvec_q4::Shape {
            n: 1,
            k: 1024,
            ..MATVEC
        },
        matvec_geometry(256, 8, 32),
    ));
    list.push((
        matvec_q4::Shape {
            n: 65,
            k: 96,
            ..MATVEC
        },
        matvec_geometry(256, 8, 3),
    ));
    list.extend(matvecs_around_the_limit());
    // Every geometry, on a shape that nothing divides.
    for workgroup in [32, 64, 128, 256] {
        for rows in [1, 2, 4, 8] {
            let shape = matvec_q4::Shape {
                n: 67,
                k: 416,
                norm_eps: (rows % 2 == 0).then_some(EPS),
                scales_f16: workgroup > 64,
                has_zero_points: rows > 2,
                ..MATVEC
            };
            let mut geometry = matvec_geometry(workgroup, rows, 5 * rows);
            geometry.lanes = [4, 8, 16, 32][rows.ilog2() as usize];
            geometry.rows_per_workgroup = [rows, 3 * rows + 1, 16, 67][rows.ilog2() as usize];
            list.push((shape, geometry));
        }
    }
    for seed in 0..8 {
        list.push(random_matvec(seed));
    }
    list.extend(model_matvecs());
    lazily(list, |(shape, geometry)| {
        matvec_case(&shape, &geometry, 1.0)
    })
}

fn random_matvec(seed: u64) -> (matvec_q4::Shape, matvec_q4::Geometry) {
    let mut rng = Rng::new(seed);
    let workgroup = rng.pick(&[32, 64, 128, 256]);
    let mut flag = |share: u32| rng.int(1, share) == 1;
    let shape = matvec_q4::Shape {
        y_offset: 0,
        norm_eps: flag(2).then_some(EPS),
        has_bias: flag(3),
        accumulate: flag(2),
        scales_f16: flag(2),
        has_zero_points: flag(2),
        ..MATVEC
    };
    let shape = matvec_q4::Shape {
        n: rng.int(1, 300),
        k: 32 * rng.int(1, 60),
        y_offset: rng.pick(&[0, 17]),
        ..shape
    };
    let geometry = matvec_q4::Geometry {
        workgroup,
        lanes: rng.pick(&[4, 8, 16, 32]),
        rows: rng.pick(&[1, 2, 4, 8]),
        rows_per_workgroup: rng.int(1, 70),
        tile_blocks: rng.int(1, 60),
    };
    (shape, geometry)
}

/// The products of both models, with what is fused around them.
fn model_matvecs() -> Vec<(matvec_q4::Shape, matvec_q4::Geometry)> {
    let mut list = Vec::new();
    for model in MODELS {
        let Model {
            hidden,
            ffn,
            vocab,
            heads,
            kv_heads,
            ..
        } = model;
        let normed = matvec_q4::Shape {
            norm_eps: Some(EPS),
            ..MATVEC
        };
        let residual = matvec_q4::Shape {
            accumulate: true,
            ..MATVEC
        };
        let scales_f16 = model.name == "tiny";
        let qkv = (heads + 2 * kv_heads) * HEAD_DIM;
        for (shape, rows) in [
            (
                matvec_q4::Shape {
                    n: 3 * hidden,
                    k: hidden,
                    ..normed
                },
                4,
            ),
            (
                matvec_q4::Shape {
                    n: hidden,
                    k: hidden,
                    ..residual
                },
                1,
            ),
            (
                matvec_q4::Shape {
                    n: qkv,
                    k: hidden,
                    ..normed
                },
                2,
            ),
            (
                matvec_q4::Shape {
                    n: 2 * ffn,
                    k: hidden,
                    ..normed
                },
                4,
            ),
            (
                matvec_q4::Shape {
                    n: hidden,
                    k: ffn,
                    ..residual
                },
                1,
            ),
            (
                matvec_q4::Shape {
                    n: vocab,
                    k: hidden,
                    has_zero_points: true,
                    ..normed
                },
                8,
            ),
        ] {
            let geometry = matvec_geometry(256, rows, shape.k / 32);
            list.push((
                matvec_q4::Shape {
                    scales_f16,
                    ..shape
                },
                geometry,
            ));
        }
    }
    list
}

/// One row a workgroup, as many as one dimension holds and more. The rows are added to what is
/// there, so that a row which two workgroups write is wrong.
fn matvecs_around_the_limit() -> Vec<(matvec_q4::Shape, matvec_q4::Geometry)> {
    let limit = LIMITS.max_workgroups_per_dimension;
    [limit - 1, limit, limit + 1, 2 * limit + 1]
        .into_iter()
        .map(|n| {
            let shape = matvec_q4::Shape {
                n,
                k: 32,
                accumulate: true,
                ..MATVEC
            };
            let geometry = matvec_q4::Geometry {
                workgroup: 8,
                lanes: 8,
                rows: 1,
                rows_per_workgroup: 1,
                tile_blocks: 1,
            };
            (shape, geometry)
        })
        .collect()
}

/// A product with activations up to `size`.
pub fn matvec_case(shape: &matvec_q4::Shape, geometry: &matvec_q4::Geometry, size: f32) -> Case {
    let mut rng = Rng::new(u64::from(shape.n) << 32 | u64::from(shape.k));
    let weights = Matrix::random(
        &mut rng,
        shape.n,
        shape.k,
        shape.scales_f16,
        shape.has_zero_points,
    );
    let x = rng.floats(shape.k, size);
    let y_elems = shape.y_offset + shape.n;
    let norm = rng.norm_weights(shape.k);
    let bias = rng.floats(y_elems, 1.0);
    let before = rng.floats(y_elems, 1.0);
    let mut after = before.clone();
    let inputs = matvec_q4::Inputs {
        x: &x,
        norm: &norm,
        weights: weights.q4(),
        bias: &bias,
    };
    matvec_q4::cpu(shape, &inputs, &mut after);
    let [codes, scales, zero_points] = weights.buffers();
    let bound = |is_bound: bool, values: &[f32]| {
        if is_bound {
            Buffer::input(values)
        } else {
            Buffer::unused()
        }
    };
    Case {
        name: format!("{shape:?} {geometry:?}"),
        kernel: kernel("matvec_q4"),
        overrides: matvec_q4::overrides(shape, geometry),
        workgroups: groups(matvec_q4::workgroups(shape, geometry, LIMITS)),
        buffers: vec![
            Buffer::input(&x),
            bound(shape.norm_eps.is_some(), &norm),
            codes,
            scales,
            zero_points,
            bound(shape.has_bias, &bias),
            Buffer::state(before, after),
        ],
        tolerance: F32,
        tolerance_f16: if shape.n < 32 { F16 } else { F16_ROWS },
        requires: Features::NONE,
        variants: few_of_many((shape.k == 384 || shape.k == 1152) && geometry.rows <= 2),
    }
}

/// Activations with outliers of 2,000 times weights of up to 4, as f16 sums would overflow on.
pub fn matvec_with_outliers(norm_eps: Option<f32>) -> Case {
    let shape = matvec_q4::Shape {
        n: 40,
        k: 1024,
        norm_eps,
        ..MATVEC
    };
    let geometry = matvec_geometry(256, 4, 32);
    let mut rng = Rng::new(0xc3);
    let mut weights = Matrix::random(&mut rng, shape.n, shape.k, false, false);
    weights.scales.fill(0.5f32.to_bits());
    let x: Vec<f32> = (0..shape.k)
        .map(|k| {
            let size = if k % 8 == 3 { 2e3 } else { 1.0 };
            size * rng.unit()
        })
        .collect();
    let norm = rng.norm_weights(shape.k);
    let mut y = vec![0.0; shape.n as usize];
    let inputs = matvec_q4::Inputs {
        x: &x,
        norm: &norm,
        weights: weights.q4(),
        bias: &[],
    };
    matvec_q4::cpu(&shape, &inputs, &mut y);
    let [codes, scales, zero_points] = weights.buffers();
    Case {
        name: format!("outliers {shape:?} {geometry:?}"),
        kernel: kernel("matvec_q4"),
        overrides: matvec_q4::overrides(&shape, &geometry),
        workgroups: groups(matvec_q4::workgroups(&shape, &geometry, LIMITS)),
        buffers: vec![
            Buffer::input(&x),
            if norm_eps.is_some() {
                Buffer::input(&norm)
            } else {
                Buffer::unused()
            },
            codes,
            scales,
            zero_points,
            Buffer::unused(),
            Buffer::Out(Values::F32(y)),
        ],
        tolerance: F32,
        tolerance_f16: F16_ROWS,
        requires: Features::NONE,
        variants: Variants::All,
    }
}

fn short_conv() -> Cases {
    let mut list = Vec::new();
    for model in MODELS {
        list.push((model.hidden, CONV_WINDOW, false, 64));
        list.push((model.hidden, CONV_WINDOW, true, 256));
    }
    for window in 1..=7 {
        list.push((1, window, true, 32));
        list.push((75, window, window % 2 == 0, 32));
    }
    lazily(list, |(h, l, has_bias, workgroup)| {
        let shape = short_conv::Shape { h, l, has_bias };
        let geometry = short_conv::Geometry { workgroup };
        let mut rng = Rng::new(u64::from(h) + u64::from(l));
        let bcx = rng.floats(3 * h, 2.0);
        let taps = rng.floats(h * l, 1.0);
        let bias = rng.floats(h, 1.0);
        let before = rng.floats((l - 1).max(1) * h, 1.0);
        let mut after = before.clone();
        let mut y = vec![0.0; h as usize];
        short_conv::cpu(&shape, &bcx, &taps, &bias, &mut after, &mut y);
        Case {
            name: format!("{shape:?} {geometry:?}"),
            kernel: kernel("short_conv"),
            overrides: short_conv::overrides(&shape, &geometry),
            workgroups: groups(short_conv::workgroups(&shape, &geometry, LIMITS)),
            buffers: vec![
                Buffer::input(&bcx),
                Buffer::input(&taps),
                Buffer::input(&bias),
                Buffer::state(before, after),
                Buffer::Out(Values::F32(y)),
            ],
            tolerance: F32,
            tolerance_f16: F32,
            requires: Features::NONE,
            variants: Variants::All,
        }
    })
}

fn conv_in_proj_q4() -> Cases {
    let mut list = Vec::new();
    let model_shape = |model: Model| conv_in_proj_q4::Shape {
        h: model.hidden,
        l: CONV_WINDOW,
        eps: EPS,
        has_bias: false,
        scales_f16: model.name == "tiny",
    };
    let [tiny, large] = MODELS;
    for (model, rows) in [(tiny, 1), (tiny, 2), (tiny, 4), (large, 2)] {
        let geometry = matvec_geometry(256, rows, model.hidden / 32);
        list.push((model_shape(model), geometry));
    }
    for seed in 0..6 {
        let mut rng = Rng::new(seed);
        let shape = conv_in_proj_q4::Shape {
            h: 32 * rng.int(1, 12),
            l: rng.int(1, 5),
            eps: EPS,
            has_bias: seed % 2 == 0,
            scales_f16: seed % 3 == 0,
        };
        let geometry = matvec_q4::Geometry {
            workgroup: rng.pick(&[32, 64, 128, 256]),
            lanes: rng.pick(&[4, 8, 16, 32]),
            rows: rng.pick(&[1, 2, 4]),
            rows_per_workgroup: rng.int(1, 40),
            tile_blocks: rng.int(1, 12),
        };
        list.push((shape, geometry));
    }
    lazily(list, |(shape, geometry)| {
        let conv_in_proj_q4::Shape { h, l, .. } = shape;
        let mut rng = Rng::new(u64::from(h) * 8 + u64::from(l));
        let weights = Matrix::random(&mut rng, 3 * h, h, shape.scales_f16, false);
        let (x, norm) = (rng.floats(h, 1.0), rng.norm_weights(h));
        let (taps, bias) = (rng.floats(h * l, 1.0), rng.floats(4 * h, 1.0));
        let before = rng.floats((l - 1).max(1) * h, 1.0);
        let mut after = before.clone();
        let mut y = vec![0.0; h as usize];
        let inputs = conv_in_proj_q4::Inputs {
            x: &x,
            norm: &norm,
            weights: weights.q4(),
            taps: &taps,
            bias: &bias,
        };
        conv_in_proj_q4::cpu(&shape, &inputs, &mut after, &mut y);
        let [codes, scales, _] = weights.buffers();
        Case {
            name: format!("{shape:?} {geometry:?}"),
            kernel: kernel("conv_in_proj_q4"),
            overrides: conv_in_proj_q4::overrides(&shape, &geometry),
            workgroups: groups(conv_in_proj_q4::workgroups(&shape, &geometry, LIMITS)),
            buffers: vec![
                Buffer::input(&x),
                Buffer::input(&norm),
                codes,
                scales,
                Buffer::input(&taps),
                Buffer::input(&bias),
                Buffer::state(before, after),
                Buffer::Out(Values::F32(y)),
            ],
            tolerance: F32,
            tolerance_f16: F16_GATED,
            requires: Features::NONE,
            variants: few_of_many(h == 384 && geometry.rows == 1),
        }
    })
}

/// Query heads, KV heads, head size.
type Heads = (u32, u32, u32);

/// The models' heads, then others; the small ones compile fastest.
const HEADS: [Heads; 6] = [
    (6, 2, 64),
    (16, 8, 64),
    (4, 2, 128),
    (5, 1, 32),
    (6, 2, 16),
    (1, 1, 8),
];

fn heads_shape((heads, kv_heads, head_dim): Heads) -> qk_norm_rope::Shape {
    qk_norm_rope::Shape {
        heads,
        kv_heads,
        head_dim,
        eps: EPS,
    }
}

fn qk_norm_rope() -> Cases {
    let mut list = Vec::new();
    for heads in HEADS {
        list.extend([(heads, 0, 64), (heads, 7, 32), (heads, 9, 256)]);
    }
    lazily(list, |(heads, position, workgroup)| {
        let shape = heads_shape(heads);
        let geometry = qk_norm_rope::Geometry { workgroup };
        let mut rng = Rng::new(u64::from(shape.head_dim) + u64::from(position));
        let positions = 10;
        let qkv = rng.floats((shape.heads + 2 * shape.kv_heads) * shape.head_dim, 2.0);
        let qk_norm = rng.norm_weights(2 * shape.head_dim);
        let rope = rope_table(positions, shape.head_dim);
        let row_elems = shape.kv_heads * shape.head_dim;
        let old_keys = rng.floats(positions * row_elems, 1.0);
        let old_values = rng.floats(positions * row_elems, 1.0);
        let (mut keys, mut values) = (old_keys.clone(), old_values.clone());
        let mut q = vec![0.0; (shape.heads * shape.head_dim) as usize];
        let inputs = qk_norm_rope::Inputs {
            qkv: &qkv,
            qk_norm: &qk_norm,
            rope: &rope,
            position,
        };
        qk_norm_rope::cpu(&shape, &inputs, &mut q, &mut keys, &mut values);
        Case {
            name: format!("position {position} {shape:?} {geometry:?}"),
            kernel: kernel("qk_norm_rope"),
            overrides: qk_norm_rope::overrides(&shape, &geometry),
            workgroups: groups(qk_norm_rope::workgroups(&shape, &geometry, LIMITS)),
            buffers: vec![
                Buffer::input(&qkv),
                Buffer::input(&qk_norm),
                Buffer::input(&rope),
                Buffer::In(state_words(position, 0, 0, 0.0)),
                Buffer::Out(Values::F32(q)),
                Buffer::state(old_keys, keys),
                Buffer::state(old_values, values),
            ],
            tolerance: F32,
            tolerance_f16: F32,
            requires: Features::NONE,
            variants: Variants::All,
        }
    })
}

/// Heads, position, splits, workgroup: more and fewer positions than splits, and a tile, one
/// position more than a tile, and several tiles.
fn attention_list() -> Vec<(Heads, u32, u32, u32)> {
    let [tiny, large, wide, narrow, small, smallest] = HEADS;
    vec![
        (small, 0, 1, 64),
        (small, 0, 4, 64),
        (small, 6, 16, 32),
        (small, 31, 1, 32),
        (small, 32, 1, 32),
        (small, 300, 1, 256),
        (smallest, 300, 5, 128),
        (narrow, 99, 3, 32),
        (wide, 99, 3, 32),
        (tiny, 191, 8, 64),
        (large, 2111, 16, 64),
    ]
}

fn attention_decode() -> Cases {
    lazily(
        attention_list(),
        |((heads, kv_heads, head_dim), position, splits, workgroup)| {
            let shape = attention_decode::Shape {
                heads,
                kv_heads,
                head_dim,
            };
            let geometry = attention_decode::Geometry { workgroup, splits };
            let mut rng = Rng::new(u64::from(head_dim) + u64::from(position));
            let q = rng.floats(heads * head_dim, 2.0);
            // One row more than valid: garbage that must not be read.
            let row_elems = kv_heads * head_dim;
            let mut keys = rng.floats((position + 1) * row_elems, 2.0);
            let mut values = rng.floats((position + 1) * row_elems, 1.0);
            let elems = attention_decode::partial_elems(&shape, &geometry);
            let mut partial = vec![0.0; elems as usize];
            attention_decode::cpu(&shape, splits, &q, &keys, &values, position, &mut partial);
            keys.extend(vec![1e30; row_elems as usize]);
            values.extend(vec![1e30; row_elems as usize]);
            Case {
                name: format!("position {position} {shape:?} {geometry:?}"),
                kernel: kernel("attention_decode"),
                overrides: attention_decode::overrides(&shape, &geometry),
                workgroups: groups(attention_decode::workgroups(&shape, &geometry, LIMITS)),
                buffers: vec![
                    Buffer::input(&q),
                    Buffer::input(&keys),
                    Buffer::input(&values),
                    Buffer::In(state_words(position, 0, 0, 0.0)),
                    Buffer::Out(Values::F32(partial)),
                ],
                tolerance: TRANSCENDENTAL,
                tolerance_f16: TRANSCENDENTAL,
                requires: Features::NONE,
                variants: Variants::All,
            }
        },
    )
}

fn rope_attention_decode() -> Cases {
    // A few of `attention_list`, because lavapipe takes seconds to compile this kernel.
    let [_, large, _, narrow, small, smallest] = HEADS;
    let list = vec![
        (small, 0, 4, 64),
        (small, 6, 16, 32),
        (small, 32, 1, 32),
        (smallest, 300, 5, 128),
        (narrow, 99, 3, 32),
        (large, 191, 8, 64),
    ];
    lazily(list, |(heads, position, splits, workgroup)| {
        let shape = heads_shape(heads);
        let geometry = attention_decode::Geometry { workgroup, splits };
        let mut rng = Rng::new(u64::from(shape.head_dim) + u64::from(position));
        let qkv = rng.floats((shape.heads + 2 * shape.kv_heads) * shape.head_dim, 2.0);
        let qk_norm = rng.norm_weights(2 * shape.head_dim);
        let rope = rope_table(position + 1, shape.head_dim);
        let row_elems = shape.kv_heads * shape.head_dim;
        let mut old_keys = rng.floats((position + 2) * row_elems, 1.0);
        let mut old_values = rng.floats((position + 2) * row_elems, 1.0);
        // The rows of this token and of the next one hold garbage.
        let valid = (position * row_elems) as usize;
        old_keys[valid..].fill(1e30);
        old_values[valid..].fill(1e30);
        let (mut keys, mut values) = (old_keys.clone(), old_values.clone());
        let elems = shape.heads * splits * (shape.head_dim + 2);
        let mut partial = vec![0.0; elems as usize];
        let inputs = qk_norm_rope::Inputs {
            qkv: &qkv,
            qk_norm: &qk_norm,
            rope: &rope,
            position,
        };
        rope_attention_decode::cpu(
            &shape,
            splits,
            &inputs,
            &mut keys,
            &mut values,
            &mut partial,
        );
        Case {
            name: format!("position {position} {shape:?} {geometry:?}"),
            kernel: kernel("rope_attention_decode"),
            overrides: rope_attention_decode::overrides(&shape, &geometry),
            workgroups: groups(rope_attention_decode::workgroups(&shape, &geometry, LIMITS)),
            buffers: vec![
                Buffer::input(&qkv),
                Buffer::input(&qk_norm),
                Buffer::input(&rope),
                Buffer::In(state_words(position, 0, 0, 0.0)),
                Buffer::state(old_keys, keys),
                Buffer::state(old_values, values),
                Buffer::Out(Values::F32(partial)),
            ],
            tolerance: TRANSCENDENTAL,
            tolerance_f16: TRANSCENDENTAL,
            requires: Features::NONE,
            variants: Variants::All,
        }
    })
}

fn attention_merge() -> Cases {
    let list = vec![
        (6, 64, 1, 64),
        (6, 64, 4, 64),
        (16, 64, 8, 256),
        (16, 64, 33, 128),
        (1, 8, 3, 32),
        (5, 32, 16, 64),
    ];
    lazily(list, |(heads, head_dim, splits, workgroup)| {
        let shape = attention_merge::Shape { heads, head_dim };
        let geometry = attention_merge::Geometry { workgroup, splits };
        let mut rng = Rng::new(u64::from(head_dim) + u64::from(splits));
        let row = head_dim as usize + 2;
        let mut partial = rng.floats(heads * splits * row as u32, 3.0);
        for (split, out) in partial.chunks_exact_mut(row).enumerate() {
            // Scores far above and far below 0; the last splits of a head are empty.
            out[row - 2] *= 30.0;
            out[row - 1] = out[row - 1].abs() + 0.1;
            if split as u32 % splits > splits / 2 {
                out.fill(0.0);
            }
        }
        let mut y = vec![0.0; (heads * head_dim) as usize];
        attention_merge::cpu(&shape, splits, &partial, &mut y);
        Case {
            name: format!("{shape:?} {geometry:?}"),
            kernel: kernel("attention_merge"),
            overrides: attention_merge::overrides(&shape, &geometry),
            workgroups: groups(attention_merge::workgroups(&shape, &geometry, LIMITS)),
            buffers: vec![Buffer::input(&partial), Buffer::Out(Values::F32(y))],
            tolerance: TRANSCENDENTAL,
            tolerance_f16: TRANSCENDENTAL,
            requires: Features::NONE,
            variants: Variants::All,
        }
    })
}

fn swiglu() -> Cases {
    let mut list = vec![(1, 32), (33, 32), (257, 256), (4096, 64)];
    list.extend(MODELS.iter().map(|model| (model.ffn, 128)));
    lazily(list, |(f, workgroup)| {
        let shape = swiglu::Shape { f };
        let geometry = swiglu::Geometry { workgroup };
        let mut gate_up = Rng::new(f.into()).floats(2 * f, 10.0);
        // Gates at which a careless exp overflows.
        for (gate, extreme) in gate_up.iter_mut().zip([-90.0, 90.0, -500.0, 500.0, 0.0]) {
            if f > 5 {
                *gate = extreme;
            }
        }
        let mut h = vec![0.0; f as usize];
        swiglu::cpu(&gate_up, &mut h);
        Case {
            name: format!("{shape:?} {geometry:?}"),
            kernel: kernel("swiglu"),
            overrides: swiglu::overrides(&shape, &geometry),
            workgroups: groups(swiglu::workgroups(&shape, &geometry, LIMITS)),
            buffers: vec![Buffer::input(&gate_up), Buffer::Out(Values::F32(h))],
            tolerance: TRANSCENDENTAL,
            tolerance_f16: TRANSCENDENTAL,
            requires: Features::NONE,
            variants: Variants::All,
        }
    })
}

fn mlp_q4() -> Cases {
    let mut list = Vec::new();
    let [tiny, large] = MODELS;
    for (model, rows, slice, workgroup) in [
        (tiny, 1, 32, 128),
        (tiny, 2, 64, 256),
        (tiny, 4, 96, 256),
        (large, 2, 64, 256),
    ] {
        let shape = mlp_q4::Shape {
            d: model.hidden,
            f: model.ffn,
            eps: EPS,
            scales_f16: model.name == "tiny",
        };
        let geometry = mlp_q4::Geometry {
            workgroup,
            lanes: 32,
            rows,
            slice,
            tile_blocks: model.hidden / 32,
        };
        list.push((shape, geometry));
    }
    for seed in 0..6 {
        let mut rng = Rng::new(seed);
        let shape = mlp_q4::Shape {
            d: 32 * rng.int(1, 12),
            f: 32 * rng.int(1, 12),
            eps: EPS,
            scales_f16: seed % 2 == 0,
        };
        let geometry = mlp_q4::Geometry {
            workgroup: rng.pick(&[32, 64, 128, 256]),
            lanes: rng.pick(&[4, 8, 16, 32]),
            rows: rng.pick(&[1, 2, 4]),
            slice: 32 * rng.int(1, 3),
            tile_blocks: rng.int(3, 12),
        };
        list.push((shape, geometry));
    }
    lazily(list, |(shape, geometry)| {
        let mlp_q4::Shape {
            d, f, scales_f16, ..
        } = shape;
        let mut rng = Rng::new(u64::from(d) * 4096 + u64::from(f));
        let gate_up = Matrix::random(&mut rng, 2 * f, d, scales_f16, false);
        let down = Matrix::random(&mut rng, d, f, scales_f16, false);
        let (down_codes, down_scales) = down.k_major();
        let (x, norm) = (rng.floats(d, 1.0), rng.norm_weights(d));
        let mut partial = vec![0.0; (mlp_q4::slices(&shape, &geometry) * d) as usize];
        let inputs = mlp_q4::Inputs {
            x: &x,
            norm: &norm,
            gate_up: gate_up.q4(),
            down_codes_k_major: &down_codes,
            down_scales_k_major: &down_scales,
        };
        mlp_q4::cpu(&shape, geometry.slice, &inputs, &mut partial);
        let [codes, scales, _] = gate_up.buffers();
        Case {
            name: format!("{shape:?} {geometry:?}"),
            kernel: kernel("mlp_q4"),
            overrides: mlp_q4::overrides(&shape, &geometry),
            workgroups: groups(mlp_q4::workgroups(&shape, &geometry, LIMITS)),
            buffers: vec![
                Buffer::input(&x),
                Buffer::input(&norm),
                codes,
                scales,
                Buffer::In(down_codes),
                Buffer::In(down_scales),
                Buffer::Out(Values::F32(partial)),
            ],
            tolerance: TRANSCENDENTAL,
            tolerance_f16: F16_GATED,
            requires: Features::NONE,
            variants: few_of_many(d == 384 && geometry.rows == 1),
        }
    })
}

fn fold() -> Cases {
    let list = vec![
        (1024, 80, 256, 4),
        (1024, 80, 64, 64),
        (384, 36, 128, 1),
        (1, 1, 32, 8),
        (65, 7, 32, 16),
        (1000, 3, 256, 8),
    ];
    lazily(list, |(d, slices, workgroup, lanes)| {
        let shape = fold::Shape { d, slices };
        let geometry = fold::Geometry { workgroup, lanes };
        let mut rng = Rng::new(d.into());
        let partial = rng.floats(d * slices, 1.0);
        let before = rng.floats(d, 1.0);
        let mut after = before.clone();
        fold::cpu(&partial, &mut after);
        Case {
            name: format!("{shape:?} {geometry:?}"),
            kernel: kernel("fold"),
            overrides: fold::overrides(&shape, &geometry),
            workgroups: groups(fold::workgroups(&shape, &geometry, LIMITS)),
            buffers: vec![Buffer::input(&partial), Buffer::state(before, after)],
            tolerance: F32,
            tolerance_f16: F32,
            requires: Features::NONE,
            variants: Variants::All,
        }
    })
}

/// Where the largest logit stands, or what is odd about the logits.
#[derive(Clone, Copy, Debug)]
enum Logits {
    Random,
    /// The largest logit stands here.
    Peak(u32),
    /// The largest logit stands at both of these.
    Tie(u32, u32),
    /// NaN at every third id, and infinitely low ones between.
    Holes,
    /// Not one candidate.
    AllNan,
}

fn argmax_partial() -> Cases {
    let mut list = vec![
        (1, 1, 32, Logits::Random, 0.0),
        (65_536, 256, 256, Logits::Peak(65_535), 0.0),
        (65_536, 128, 256, Logits::Peak(0), 0.0),
        (65_536, 64, 64, Logits::Tie(511, 512), 0.0),
        (8192, 32, 128, Logits::Random, 0.0),
        (8192, 32, 128, Logits::Holes, 0.0),
        (777, 5, 32, Logits::AllNan, 0.0),
        (777, 5, 64, Logits::Holes, 0.0),
        // More parts than ids: the last ones are empty.
        (10, 16, 32, Logits::Random, 0.0),
        (65_536, 256, 256, Logits::Random, 1.25),
        (8192, 16, 128, Logits::Random, 10.0),
        (777, 5, 32, Logits::Holes, 0.5),
    ];
    // Ties between neighbouring lanes, subgroups, and rounds of a workgroup.
    for (a, b) in [(3, 4), (7, 8), (31, 32), (5, 69), (63, 64)] {
        list.push((256, 1, 64, Logits::Tie(a, b), 0.0));
    }
    lazily(list, |(v, parts, workgroup, kind, inv_temperature)| {
        let shape = argmax_partial::Shape { v };
        let geometry = argmax_partial::Geometry { workgroup, parts };
        let mut logits = Rng::new(v.into()).floats(v, 8.0);
        match kind {
            Logits::Random => {}
            Logits::Peak(id) => logits[id as usize] = 9.0,
            Logits::Tie(a, b) => [a, b]
                .map(|id| logits[id as usize] = 9.0)
                .into_iter()
                .collect(),
            Logits::Holes => {
                for hole in logits.chunks_exact_mut(3) {
                    hole[1] = f32::NEG_INFINITY;
                    hole[2] = f32::NAN;
                }
            }
            Logits::AllNan => logits.fill(f32::NAN),
        }
        let (seed, position) = (0x0123_4567_89ab_cdef, 41);
        let choice = argmax_partial::Choice {
            seed,
            position: position + 1,
            inv_temperature,
        };
        let mut partial = vec![(0.0, 0); parts as usize];
        argmax_partial::cpu(&choice, &logits, &mut partial);
        Case {
            name: format!("{kind:?} 1/temperature {inv_temperature} {shape:?} {geometry:?}"),
            kernel: kernel("argmax_partial"),
            overrides: argmax_partial::overrides(&shape, &geometry),
            workgroups: groups(argmax_partial::workgroups(&shape, &geometry, LIMITS)),
            buffers: vec![
                Buffer::input(&logits),
                Buffer::In(state_words(position, 0, seed, inv_temperature)),
                Buffer::Out(Values::Candidates(partial)),
            ],
            tolerance: if inv_temperature == 0.0 {
                Tolerance::EXACT
            } else {
                TRANSCENDENTAL
            },
            tolerance_f16: TRANSCENDENTAL,
            requires: Features::NONE,
            variants: Variants::All,
        }
    })
}

fn argmax_final() -> Cases {
    // Parts, workgroup, position, prompt tokens, length of the sequence, parts with a candidate.
    let list = vec![
        (256, 256, 41, 5, 64, 256),
        (256, 64, 4, 5, 64, 256),
        // The prompt goes on, or has just ended.
        (32, 32, 3, 5, 64, 32),
        (32, 32, 0, 1, 64, 32),
        // The context ends here.
        (32, 128, 62, 5, 64, 32),
        (32, 128, 63, 5, 64, 32),
        (1, 32, 9, 5, 64, 1),
        (100, 32, 9, 5, 64, 40),
        (100, 32, 9, 5, 64, 0),
    ];
    lazily(
        list,
        |(parts, workgroup, position, prompt_tokens, context, filled)| {
            let geometry = argmax_final::Geometry { workgroup, parts };
            let mut rng = Rng::new(u64::from(parts) + u64::from(position));
            // Whole scores, so that there are ties; ids in falling order, so that ties matter.
            let partial: Vec<(f32, u32)> = (0..parts)
                .map(|part| {
                    if part < filled {
                        ((rng.unit() * 5.0).round(), (parts - part) * 100)
                    } else {
                        (-3.0e38, argmax_partial::NO_ID)
                    }
                })
                .collect();
            let old_tokens = rng.words(context);
            let mut tokens = old_tokens.clone();
            let before = state_words(position, prompt_tokens, 3, 0.0);
            let mut after = before.clone();
            argmax_final::cpu(&partial, prompt_tokens, &mut after[0], &mut tokens);
            let words = partial
                .iter()
                .flat_map(|(score, id)| [score.to_bits(), *id])
                .collect();
            Case {
                name: format!(
                    "position {position} of {prompt_tokens}, {filled} filled, {geometry:?}"
                ),
                kernel: kernel("argmax_final"),
                overrides: argmax_final::overrides(&geometry),
                workgroups: groups(argmax_final::workgroups(&geometry, LIMITS)),
                buffers: vec![
                    Buffer::In(words),
                    Buffer::State {
                        before: Values::U32(before),
                        after: Values::U32(after),
                        is_sized: true,
                    },
                    Buffer::State {
                        before: Values::U32(old_tokens),
                        after: Values::U32(tokens),
                        is_sized: true,
                    },
                ],
                tolerance: Tolerance::EXACT,
                tolerance_f16: Tolerance::EXACT,
                requires: Features::NONE,
                variants: Variants::All,
            }
        },
    )
}
