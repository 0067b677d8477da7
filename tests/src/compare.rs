//! How far two lists of numbers are apart.

use std::fmt;

/// Distance of `actual` from `expected`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// `|actual - expected| / |expected|` in the Euclidean norm; infinite when only `expected` is zero everywhere.
    pub rel_l2: f64,
    /// Largest absolute difference of two elements.
    pub max_abs: f64,
    /// Where that is.
    pub worst_index: usize,
    /// The element of `actual` there.
    pub worst_actual: f32,
    /// The element of `expected` there.
    pub worst_expected: f32,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "relative L2 {:.2e}, max abs {:.2e} at {} ({} instead of {})",
            self.rel_l2, self.max_abs, self.worst_index, self.worst_actual, self.worst_expected
        )
    }
}

/// Two lists that cannot be compared, or are too far apart.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CompareError {
    /// There is nothing to compare: agreement would mean nothing.
    #[error("nothing to compare: both lists are empty")]
    Empty,
    /// The lists have different lengths.
    #[error("{actual_elems} elements instead of {expected_elems}")]
    Length {
        /// Length of the list under test.
        actual_elems: usize,
        /// Length of the reference.
        expected_elems: usize,
    },
    /// NaN or infinity on either side; no reference here contains any.
    #[error("not finite at {index}: {actual} instead of {expected}")]
    NotFinite {
        /// First such index.
        index: usize,
        /// The element under test.
        actual: f32,
        /// The element of the reference.
        expected: f32,
    },
    /// Further apart than allowed.
    #[error("{difference}; allowed relative L2 {limit:.2e}")]
    TooFar {
        /// How far.
        difference: Difference,
        /// Largest relative L2 error allowed.
        limit: f64,
    },
    /// A rank of a list of largest logits is wrong by more than a tie.
    #[error(
        "position {position}, rank {rank}: id {actual_id} with logit {actual} instead of id {expected_id} with \
         {expected}; allowed difference {limit:.2e}"
    )]
    Rank {
        /// Position in the sequence.
        position: usize,
        /// Rank, 0 for the largest logit.
        rank: usize,
        /// Id at this rank.
        actual_id: u32,
        /// Its logit.
        actual: f32,
        /// Id that should be there.
        expected_id: u32,
        /// Its logit.
        expected: f32,
        /// Largest difference of logits allowed.
        limit: f32,
    },
}

/// Compares two lists of finite numbers.
pub fn compare(actual: &[f32], expected: &[f32]) -> Result<Difference, CompareError> {
    if actual.len() != expected.len() {
        return Err(CompareError::Length {
            actual_elems: actual.len(),
            expected_elems: expected.len(),
        });
    }
    if expected.is_empty() {
        return Err(CompareError::Empty);
    }
    let (mut error_square, mut norm_square) = (0.0, 0.0);
    let (mut max_abs, mut worst_index) = (0.0, 0);
    for (index, (&actual, &expected)) in actual.iter().zip(expected).enumerate() {
        if !(actual.is_finite() && expected.is_finite()) {
            return Err(CompareError::NotFinite {
                index,
                actual,
                expected,
            });
        }
        let error = (f64::from(actual) - f64::from(expected)).abs();
        error_square += error * error;
        norm_square += f64::from(expected) * f64::from(expected);
        if error > max_abs {
            (max_abs, worst_index) = (error, index);
        }
    }
    Ok(Difference {
        // 0 / 0 is agreement.
        rel_l2: if error_square == 0.0 {
            0.0
        } else {
            (error_square / norm_square).sqrt()
        },
        max_abs,
        worst_index,
        worst_actual: actual[worst_index],
        worst_expected: expected[worst_index],
    })
}

/// As [`compare()`], and the relative L2 error must be below `limit`.
pub fn check(actual: &[f32], expected: &[f32], limit: f64) -> Result<Difference, CompareError> {
    let difference = compare(actual, expected)?;
    if difference.rel_l2 < limit {
        Ok(difference)
    } else {
        Err(CompareError::TooFar { difference, limit })
    }
}

/// Checks the largest logits of every position, in order, up to ties.
///
/// `logits` is f32 `[T, V]`; `expected_ids` and `expected_logits` are `[T, ranks]`, largest first. A logit may differ
/// by `relative_limit` times the root mean square of its row; ids may change places when the reference's own logits
/// of both are within that limit.
///
/// Returns the largest difference of two logits of one rank, in units of that root mean square.
pub fn check_largest(
    logits: &[f32],
    vocab: usize,
    expected_ids: &[u32],
    expected_logits: &[f32],
    relative_limit: f64,
) -> Result<f64, CompareError> {
    let positions = logits.len() / vocab;
    if expected_ids.is_empty() || positions == 0 {
        return Err(CompareError::Empty);
    }
    let ranks = expected_ids.len() / positions;
    for (actual_elems, expected_elems) in [
        (logits.len(), positions * vocab),
        (expected_logits.len(), expected_ids.len()),
        (ranks * positions, expected_ids.len()),
    ] {
        if actual_elems != expected_elems {
            return Err(CompareError::Length {
                actual_elems,
                expected_elems,
            });
        }
    }
    let mut largest_difference = 0.0f64;
    for (position, row) in logits.chunks_exact(vocab).enumerate() {
        if let Some(index) = row.iter().position(|logit| !logit.is_finite()) {
            let expected = expected_logits[position * ranks];
            return Err(CompareError::NotFinite {
                index: position * vocab + index,
                actual: row[index],
                expected,
            });
        }
        let mean_square = row
            .iter()
            .map(|&x| f64::from(x) * f64::from(x))
            .sum::<f64>()
            / vocab as f64;
        let unit = mean_square.sqrt();
        let limit = (relative_limit * unit) as f32;
        let ids = largest_ids(row, ranks);
        for rank in 0..ranks {
            let (expected_id, expected) = (
                expected_ids[position * ranks + rank],
                expected_logits[position * ranks + rank],
            );
            let (actual_id, actual) = (ids[rank], row[ids[rank] as usize]);
            let same = actual_id == expected_id;
            let difference = (actual - expected).abs();
            // A swap is a tie only when the expected id is as close.
            let swapped = row
                .get(expected_id as usize)
                .is_some_and(|logit| (logit - actual).abs() <= limit);
            if difference > limit || !(same || swapped) {
                return Err(CompareError::Rank {
                    position,
                    rank,
                    actual_id,
                    actual,
                    expected_id,
                    expected,
                    limit,
                });
            }
            largest_difference = largest_difference.max(f64::from(difference) / unit);
        }
    }
    Ok(largest_difference)
}

/// Ids of the `count` largest logits, largest first, equal ones by id.
fn largest_ids(row: &[f32], count: usize) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..row.len() as u32).collect();
    let by_logit = |a: &u32, b: &u32| row[*b as usize].total_cmp(&row[*a as usize]).then(a.cmp(b));
    if count < ids.len() {
        ids.select_nth_unstable_by(count, by_logit);
        ids.truncate(count);
    }
    ids.sort_unstable_by(by_logit);
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPECTED: [f32; 5] = [1.0, -2.0, 0.5, 3.0, 0.0];

    #[test]
    fn equal_lists_have_no_difference() {
        let difference = check(&EXPECTED, &EXPECTED, 1e-30).expect("equal");
        assert_eq!((difference.rel_l2, difference.max_abs), (0.0, 0.0));
        assert_eq!(compare(&[0.0], &[-0.0]).map(|d| d.rel_l2), Ok(0.0));
    }

    #[test]
    fn one_element_off_is_found() {
        for index in 0..EXPECTED.len() {
            let mut actual = EXPECTED;
            actual[index] += 0.01;
            let Err(CompareError::TooFar { difference, .. }) = check(&actual, &EXPECTED, 1e-3)
            else {
                panic!("element {index} off by 0.01 passed");
            };
            assert_eq!(difference.worst_index, index);
            assert_eq!(
                (difference.worst_actual, difference.worst_expected),
                (actual[index], EXPECTED[index])
            );
            assert!((difference.max_abs - 0.01).abs() < 1e-6);
        }
    }

    #[test]
    fn a_shifted_list_is_found() {
        let mut actual = EXPECTED;
        actual.rotate_right(1);
        assert!(matches!(
            check(&actual, &EXPECTED, 0.1),
            Err(CompareError::TooFar { .. })
        ));
    }

    #[test]
    fn an_all_zero_reference_accepts_only_zeros() {
        assert!(check(&[1e-30], &[0.0], 1e30).is_err());
    }

    #[test]
    fn nan_and_infinity_are_refused_on_both_sides() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut broken = EXPECTED;
            broken[3] = bad;
            for (actual, expected) in [(broken, EXPECTED), (EXPECTED, broken), (broken, broken)] {
                let refused = check(&actual, &expected, f64::INFINITY);
                assert!(
                    matches!(refused, Err(CompareError::NotFinite { index: 3, .. })),
                    "{refused:?}"
                );
            }
        }
    }

    #[test]
    fn another_length_is_refused() {
        let refused = Err(CompareError::Length {
            actual_elems: 4,
            expected_elems: 5,
        });
        assert_eq!(compare(&EXPECTED[..4], &EXPECTED), refused);
        assert!(matches!(
            compare(&EXPECTED, &[]),
            Err(CompareError::Length { .. })
        ));
    }

    #[test]
    fn empty_lists_are_refused() {
        assert_eq!(compare(&[], &[]), Err(CompareError::Empty));
        assert_eq!(
            check_largest(&[], 4, &[], &[], 1.0),
            Err(CompareError::Empty)
        );
    }

    /// Two positions of a vocabulary of five, the three largest of each.
    const LOGITS: [f32; 10] = [1.0, 4.0, 3.0, 2.0, 0.0, -1.0, 5.0, 5.00001, 2.0, 6.0];
    const LARGEST_IDS: [u32; 6] = [1, 2, 3, 4, 2, 1];
    const LARGEST: [f32; 6] = [4.0, 3.0, 2.0, 6.0, 5.00001, 5.0];

    #[test]
    fn largest_logits_in_order_pass() {
        assert_eq!(
            check_largest(&LOGITS, 5, &LARGEST_IDS, &LARGEST, 1e-9),
            Ok(0.0)
        );
    }

    #[test]
    fn ids_may_change_places_within_a_tie_only() {
        let mut ids = LARGEST_IDS;
        ids.swap(4, 5);
        assert!(check_largest(&LOGITS, 5, &ids, &LARGEST, 1e-4).is_ok());
        ids.swap(3, 5);
        let refused = check_largest(&LOGITS, 5, &ids, &LARGEST, 1e-4);
        assert!(
            matches!(
                refused,
                Err(CompareError::Rank {
                    position: 1,
                    rank: 0,
                    ..
                })
            ),
            "{refused:?}"
        );
    }

    #[test]
    fn one_wrong_rank_is_found() {
        for rank in 0..LARGEST.len() {
            let mut expected = LARGEST;
            expected[rank] += 0.01;
            let refused = check_largest(&LOGITS, 5, &LARGEST_IDS, &expected, 1e-4);
            assert!(
                matches!(refused, Err(CompareError::Rank { .. })),
                "rank {rank}: {refused:?}"
            );
            let mut ids = LARGEST_IDS;
            ids[rank] = 0;
            let refused = check_largest(&LOGITS, 5, &ids, &LARGEST, 1e-4);
            assert!(
                matches!(refused, Err(CompareError::Rank { .. })),
                "id {rank}: {refused:?}"
            );
        }
    }

    #[test]
    fn largest_logits_refuse_nan_and_other_lengths() {
        let mut logits = LOGITS;
        logits[0] = f32::NAN;
        let refused = check_largest(&logits, 5, &LARGEST_IDS, &LARGEST, 1.0);
        assert!(
            matches!(refused, Err(CompareError::NotFinite { index: 0, .. })),
            "{refused:?}"
        );
        for (logits, ids, largest) in [
            (&LOGITS[..9], &LARGEST_IDS[..], &LARGEST[..]),
            (&LOGITS[..], &LARGEST_IDS[..5], &LARGEST[..5]),
            (&LOGITS[..], &LARGEST_IDS[..], &LARGEST[..4]),
        ] {
            let refused = check_largest(logits, 5, ids, largest, 1.0);
            assert!(
                matches!(refused, Err(CompareError::Length { .. })),
                "{refused:?}"
            );
        }
    }
}
