//! Noise as a pure function of seed, position and token id.

/// Standard Gumbel noise of token `id` when the token at `position` is chosen.
///
/// `position` counts from the start of the sequence: after P prompt tokens, the first choice is at position P.
/// Every step is one f32 or u32 operation, so that a shader can repeat it. Values lie in about [-2.8, 17.4], but for
/// one hash in 2^24 whose uniform number rounds to 1: that gives negative infinity, and the id cannot be drawn there.
pub fn gumbel(seed: u64, position: u32, id: u32) -> f32 {
    let (seed_lo, seed_hi) = (seed as u32, (seed >> 32) as u32);
    let key = hash(seed_lo ^ hash(seed_hi));
    let bits = hash(id ^ hash(position ^ key));
    // The middle of one of 2^24 equal cells, never 0.
    let u = ((bits >> 8) as f32 + 0.5) * (1.0 / 16_777_216.0);
    -exponential(u).ln()
}

/// `-ln(1 - u)`: standard exponential noise from a uniform number.
fn exponential(u: f32) -> f32 {
    if u < 0.01 {
        // Small values win the draw, and there `1 - u` has lost their digits: the series has not.
        u * (1.0 + u * (0.5 + u / 3.0))
    } else {
        -(1.0 - u).ln()
    }
}

/// The output permutation of PCG-RXS-M-XS-32, recommended as a hash by Jarzynski and Olano (JCGT 9(3), 2020).
fn hash(v: u32) -> u32 {
    let state = v.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
    let word = ((state >> ((state >> 28) + 4)) ^ state).wrapping_mul(277_803_737);
    (word >> 22) ^ word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_gives_known_words() {
        let known = [
            (0, 129_708_002),
            (1, 2_831_084_092),
            (2, 2_055_130_248),
            (42, 1_223_963_391),
            (u32::MAX, 3_861_530_882),
        ];
        for (v, expected) in known {
            assert_eq!(hash(v), expected, "hash({v})");
        }
    }

    /// Expected values from a separate program in f64, `-ln(-ln(1 - u))`.
    #[test]
    fn gumbel_gives_known_values() {
        let known = [
            (0, 0, 0, 0.220_703_074_664_494_68),
            (0, 0, 1, 5.306_415_467_304_306), // through the series
            (42, 7, 100, 2.302_606_628_988_353),
            (
                0x1234_5678_9abc_def0,
                2_111,
                65_535,
                1.340_505_631_669_201_2,
            ),
            (u64::MAX, 1, 0, 0.043_185_012_862_587_205),
            (0, 268, 49_945, 17.328_679_499_097_472), // the smallest uniform number: the largest value there is
        ];
        for (seed, position, id, expected) in known {
            let value = f64::from(gumbel(seed, position, id));
            assert!(
                (value - expected).abs() < 1e-5,
                "gumbel({seed:#x}, {position}, {id}) = {value}, expected {expected}"
            );
        }
    }

    #[test]
    fn the_largest_hash_gives_negative_infinity_and_never_nan() {
        assert_eq!(gumbel(0, 185, 8_989), f32::NEG_INFINITY);
    }

    #[test]
    fn exponential_is_continuous_where_the_series_ends() {
        for u in [1e-7_f32, 1e-4, 0.009_999, 0.01, 0.010_001, 0.3, 0.999] {
            let expected = -(-f64::from(u)).ln_1p();
            let relative = (f64::from(exponential(u)) - expected).abs() / expected;
            assert!(
                relative < 1e-5,
                "exponential({u}): relative error {relative}"
            );
        }
    }

    #[test]
    fn seed_halves_position_and_id_all_change_the_noise() {
        let base = gumbel(1, 2, 3);
        assert_ne!(base, gumbel(2, 2, 3));
        assert_ne!(base, gumbel(1 | 1 << 32, 2, 3));
        assert_ne!(base, gumbel(1, 3, 3));
        assert_ne!(base, gumbel(1, 2, 4));
    }
}
