//! The shaders' reductions in a model that runs them with any number of lanes.
//!
//! Software adapters have subgroups of 4 and 8; hardware has up to 128. The model follows
//! `shaders/lib/reduce.wesl`, `shaders/lib/argmax.wesl` and the row loop of the matvecs step by
//! step, with the subgroup operations as loops over lanes.

const LANES: [usize; 6] = [4, 8, 16, 32, 64, 128];
const WORKGROUPS: [usize; 9] = [4, 8, 16, 32, 64, 128, 256, 512, 1024];

/// Every subgroup size with every workgroup: `lanes` as the shaders compute it.
fn grids() -> impl Iterator<Item = (usize, usize)> {
    WORKGROUPS
        .into_iter()
        .flat_map(|workgroup| LANES.map(|size| (workgroup, size.min(workgroup))))
}

/// Whole numbers, so that sums are exact in any order.
fn values(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
        (state >> 20) as f32 - 2048.0
    };
    (0..count).map(|_| next()).collect()
}

/// `workgroup_sum` with subgroups.
fn subgroup_sum(values: &[f32], lanes: usize) -> Vec<f32> {
    let workgroup = values.len();
    let partials: Vec<f32> = values.chunks(lanes).map(|team| team.iter().sum()).collect();
    let of_lane: Vec<f32> = (0..workgroup)
        .map(|index| {
            (index % lanes..workgroup / lanes)
                .step_by(lanes)
                .map(|team| partials[team])
                .sum()
        })
        .collect();
    of_lane
        .chunks(lanes)
        .flat_map(|team| vec![team.iter().sum::<f32>(); team.len()])
        .collect()
}

/// `workgroup_max` with subgroups.
fn subgroup_max(values: &[f32], lanes: usize) -> f32 {
    let largest = |team: &[f32]| team.iter().copied().fold(f32::MIN, f32::max);
    let partials: Vec<f32> = values.chunks(lanes).map(largest).collect();
    partials[1..values.len() / lanes]
        .iter()
        .copied()
        .fold(partials[0], f32::max)
}

/// The reduction without subgroups: some members join a share each, then all join the shares.
fn in_shares<T: Copy>(values: &[T], lanes: usize, join: impl Fn(T, T) -> T) -> Vec<T> {
    let mut memory = values.to_vec();
    let shares = lanes.min(8);
    for index in 0..memory.len() {
        let (lane, first) = (index % lanes, index - index % lanes);
        if lane < shares {
            let others = (lane + shares..lanes).step_by(shares);
            memory[index] = others.fold(values[index], |share, other| {
                join(share, memory[first + other])
            });
        }
    }
    (0..memory.len())
        .map(|index| {
            let first = index - index % lanes;
            let others = memory[first + 1..first + shares].iter();
            others.fold(memory[first], |all, &share| join(all, share))
        })
        .collect()
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Candidate {
    score: f32,
    id: u32,
}

fn better(a: Candidate, b: Candidate) -> Candidate {
    if b.score > a.score || (b.score == a.score && b.id < a.id) {
        b
    } else {
        a
    }
}

/// `workgroup_best` with subgroups: butterflies within teams, then a walk over the teams.
fn subgroup_best(mine: &[Candidate], lanes: usize) -> Candidate {
    let mut best = mine.to_vec();
    let mut mask = lanes / 2;
    while mask > 0 {
        let other: Vec<Candidate> = (0..best.len()).map(|index| best[index ^ mask]).collect();
        for (mine, other) in best.iter_mut().zip(other) {
            *mine = better(*mine, other);
        }
        mask /= 2;
    }
    let teams: Vec<Candidate> = best.iter().copied().step_by(lanes).collect();
    teams[1..mine.len() / lanes]
        .iter()
        .copied()
        .fold(teams[0], better)
}

#[test]
fn sums_are_the_same_for_every_number_of_lanes() {
    for (workgroup, lanes) in grids() {
        let values = values(workgroup, 1);
        let sum: f32 = values.iter().sum();
        assert_eq!(
            subgroup_sum(&values, lanes),
            vec![sum; workgroup],
            "{workgroup} {lanes}"
        );
        let of_team = in_shares(&values, lanes, |a, b| a + b);
        for (index, &team_sum) in of_team.iter().enumerate() {
            let team = &values[index - index % lanes..][..lanes];
            assert_eq!(team_sum, team.iter().sum::<f32>(), "{workgroup} {lanes}");
        }
        assert_eq!(in_shares(&values, workgroup, |a, b| a + b)[0], sum);
    }
}

#[test]
fn maxima_are_the_same_for_every_number_of_lanes() {
    for (workgroup, lanes) in grids() {
        for peak in 0..workgroup {
            let mut values = values(workgroup, 2);
            values[peak] = 5000.0;
            assert_eq!(
                subgroup_max(&values, lanes),
                5000.0,
                "{workgroup} {lanes} {peak}"
            );
            assert_eq!(in_shares(&values, workgroup, f32::max)[0], 5000.0);
        }
    }
}

#[test]
fn argmax_is_the_same_for_every_number_of_lanes_and_ties_go_to_the_lowest_id() {
    for (workgroup, lanes) in grids() {
        for (seed, peak) in (0..workgroup).step_by(3).enumerate() {
            let scores = values(workgroup, seed as u32);
            let mut mine: Vec<Candidate> = (0u32..)
                .zip(scores)
                .map(|(id, score)| Candidate { score, id })
                .collect();
            // Every fifth candidate from `peak` on is as good as the best.
            for candidate in mine[peak..].iter_mut().step_by(5) {
                candidate.score = 5000.0;
            }
            let best = Candidate {
                score: 5000.0,
                id: peak as u32,
            };
            assert_eq!(subgroup_best(&mine, lanes), best, "{workgroup} {lanes}");
            assert_eq!(
                in_shares(&mine, workgroup, better)[0],
                best,
                "{workgroup} {lanes}"
            );
        }
    }
}

#[test]
fn a_nan_is_never_the_best() {
    for (workgroup, lanes) in grids() {
        let mut mine = vec![
            Candidate {
                score: -3.0e38,
                id: u32::MAX
            };
            workgroup
        ];
        for (id, candidate) in (0u32..).zip(&mut mine) {
            let score = if id == 2 { -1.0 } else { f32::NAN };
            *candidate = better(*candidate, Candidate { score, id });
        }
        assert_eq!(
            subgroup_best(&mine, lanes),
            Candidate { score: -1.0, id: 2 }
        );
    }
}

/// How often the row loop of `matvec_q4` stores each of `n` rows.
fn stores(
    n: usize,
    rows: usize,
    rows_per_workgroup: usize,
    grid: [u32; 3],
    teams: usize,
) -> Vec<u32> {
    let mut stores = vec![0; n];
    for group in 0..(grid[0] * grid[1]) as usize {
        let first_row = group * rows_per_workgroup;
        let rows_end = (first_row + rows_per_workgroup).min(n);
        for step_row in (first_row..rows_end).step_by(teams * rows) {
            for row in
                (0..teams).flat_map(|team| (0..rows).map(move |row| step_row + team * rows + row))
            {
                if row < rows_end {
                    stores[row] += 1;
                }
            }
        }
    }
    stores
}

#[test]
fn every_row_is_stored_once_for_every_number_of_lanes() {
    use monarch_kernels::{Limits, matvec_q4};

    // A small limit folds small dispatches.
    let limits = Limits {
        max_workgroups_per_dimension: 7,
        ..Limits::DEFAULT
    };
    for n in [1, 5, 6, 7, 8, 13, 14, 15, 48, 49] {
        for rows in [1, 2, 4, 8] {
            for rows_per_workgroup in [1, 3, 8, 50] {
                let shape = matvec_q4::Shape {
                    n,
                    k: 32,
                    y_offset: 0,
                    norm_eps: None,
                    has_bias: false,
                    accumulate: false,
                    scales_f16: false,
                    has_zero_points: false,
                };
                let geometry = matvec_q4::Geometry {
                    workgroup: 64,
                    lanes: 4,
                    rows,
                    rows_per_workgroup,
                    tile_blocks: 1,
                };
                let grid = matvec_q4::workgroups(&shape, &geometry, &limits).expect("at most 49");
                assert!(
                    grid.iter().all(|&groups| (1..=7).contains(&groups)),
                    "{grid:?}"
                );
                for lanes in LANES.map(|size| size.min(64)) {
                    let stores = stores(
                        n as usize,
                        rows as usize,
                        rows_per_workgroup as usize,
                        grid,
                        64 / lanes,
                    );
                    assert!(
                        stores.iter().all(|&count| count == 1),
                        "{geometry:?} {lanes}: {stores:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_wrong_fold_is_noticed() {
    // One workgroup short, and one row a workgroup too few.
    assert!(stores(8, 1, 2, [3, 1, 1], 1).contains(&0));
    assert!(
        stores(8, 1, 2, [7, 1, 1], 1)
            .iter()
            .all(|&count| count == 1)
    );
}
