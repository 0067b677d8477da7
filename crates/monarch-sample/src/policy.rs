//! How a token is chosen from its logits.

use crate::gumbel;

/// How the next token is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    /// Divides the logits before the draw; 0 takes the largest logit. See [`Policy::new`] for the accepted range.
    pub temperature: f32,
    /// Selects the noise of the whole sequence. Unused when the temperature is 0.
    pub seed: u64,
}

/// A policy that cannot be followed.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// The temperature is negative, not finite, or so small that its reciprocal is not finite.
    #[error(
        "temperature {temperature}: must be 0 (greedy) or a finite number from {} up",
        f32::MIN_POSITIVE
    )]
    Temperature {
        /// The value that was given.
        temperature: f32,
    },
}

impl Policy {
    /// Always the largest logit.
    pub const GREEDY: Policy = Policy {
        temperature: 0.0,
        seed: 0,
    };

    /// A checked policy: temperature 0, or any finite normal number above it.
    pub fn new(temperature: f32, seed: u64) -> Result<Policy, PolicyError> {
        let usable = temperature == 0.0 || (temperature.is_normal() && temperature > 0.0);
        if usable {
            Ok(Policy { temperature, seed })
        } else {
            Err(PolicyError::Temperature { temperature })
        }
    }

    /// What the logits are multiplied by, as the GPU keeps it: `1 / temperature`, and 0 for greedy.
    pub fn inv_temperature(&self) -> f32 {
        if self.temperature == 0.0 {
            0.0
        } else {
            1.0 / self.temperature
        }
    }
}

/// The token id chosen for `position` from `logits` (f32 `[V]`).
///
/// Greedy takes the largest logit; otherwise the largest `logit * inv_temperature + gumbel(seed, position, id)`, which
/// draws each id with its softmax probability. `position` is the index in the sequence of the token being chosen.
/// Equal scores go to the lowest id. NaN never wins; when every score is NaN the answer is id 0.
///
/// # Panics
///
/// When `logits` is empty: a model without a vocabulary is a bug of the caller.
pub fn choose(logits: &[f32], policy: &Policy, position: u32) -> u32 {
    assert!(!logits.is_empty(), "choose: no logits to choose from");
    let inv_temperature = policy.inv_temperature();
    let mut best: Option<(f32, u32)> = None;
    for (id, &logit) in (0u32..).zip(logits) {
        let score = if inv_temperature == 0.0 {
            logit
        } else {
            logit * inv_temperature + gumbel(policy.seed, position, id)
        };
        // Without a best score so far even negative infinity wins, but NaN does not.
        if !score.is_nan() && best.is_none_or(|(best_score, _)| score > best_score) {
            best = Some((score, id));
        }
    }
    best.map_or(0, |(_, id)| id)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(temperature: f32, seed: u64) -> Policy {
        Policy::new(temperature, seed).expect("a usable temperature")
    }

    #[test]
    fn greedy_takes_the_largest_and_the_lowest_of_equals() {
        assert_eq!(choose(&[1.0, 3.0, 2.0], &Policy::GREEDY, 0), 1);
        assert_eq!(choose(&[3.0, 1.0, 3.0, 3.0], &Policy::GREEDY, 5), 0);
        assert_eq!(choose(&[-0.0, 0.0], &Policy::GREEDY, 5), 0);
        assert_eq!(choose(&[1.0], &Policy::GREEDY, 5), 0);
    }

    #[test]
    fn nan_never_wins() {
        let nan = f32::NAN;
        for policy in [Policy::GREEDY, at(0.7, 3)] {
            assert_eq!(choose(&[nan, f32::NEG_INFINITY, nan], &policy, 1), 1);
            assert_eq!(choose(&[nan, nan, -1e30, nan], &policy, 1), 2);
            assert_eq!(choose(&[nan, nan], &policy, 1), 0);
            assert_eq!(choose(&[nan, f32::INFINITY, 1.0], &policy, 1), 1);
        }
    }

    #[test]
    fn nothing_but_negative_infinity_gives_the_first_id() {
        for policy in [Policy::GREEDY, at(1.0, 9)] {
            assert_eq!(choose(&[f32::NEG_INFINITY; 40], &policy, 3), 0);
        }
    }

    #[test]
    fn masked_ids_are_never_drawn() {
        let logits = [f32::NEG_INFINITY, 0.0, f32::NEG_INFINITY, 0.5];
        for position in 0..2_000 {
            assert!([1, 3].contains(&choose(&logits, &at(50.0, 1), position)));
        }
    }

    #[test]
    #[should_panic(expected = "no logits")]
    fn an_empty_vocabulary_is_a_bug_of_the_caller() {
        choose(&[], &Policy::GREEDY, 0);
    }

    #[test]
    fn only_usable_temperatures_make_a_policy() {
        for temperature in [0.0, -0.0, f32::MIN_POSITIVE, 0.1, 1.0, f32::MAX] {
            let policy = Policy::new(temperature, 0).expect("usable");
            assert!(
                policy.inv_temperature().is_finite(),
                "temperature {temperature}"
            );
        }
        for temperature in [
            -1.0,
            f32::NAN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::MIN_POSITIVE / 2.0,
        ] {
            let refused = Policy::new(temperature, 0).expect_err("not usable");
            assert!(refused.to_string().starts_with("temperature "), "{refused}");
        }
    }

    /// Chi-squared statistic of counts against probabilities, and its degrees of freedom. Ids expected fewer than five
    /// times share one bin.
    fn chi_squared(counts: &[u32], probabilities: &[f64]) -> (f64, usize) {
        let draws: f64 = counts.iter().map(|&count| f64::from(count)).sum();
        let (mut rare_count, mut rare_expected) = (0.0, 0.0);
        let mut bins = Vec::new();
        for (&count, probability) in counts.iter().zip(probabilities) {
            let expected = probability * draws;
            if expected < 5.0 {
                rare_count += f64::from(count);
                rare_expected += expected;
            } else {
                bins.push((f64::from(count), expected));
            }
        }
        if rare_expected > 0.0 {
            bins.push((rare_count, rare_expected.max(1.0)));
        }
        let statistic = bins
            .iter()
            .map(|(count, expected)| (count - expected).powi(2) / expected)
            .sum();
        (statistic, bins.len() - 1)
    }

    fn softmax(logits: &[f32], temperature: f32) -> Vec<f64> {
        let weights: Vec<f64> = logits
            .iter()
            .map(|&l| (f64::from(l) / f64::from(temperature)).exp())
            .collect();
        let sum: f64 = weights.iter().sum();
        weights.iter().map(|w| w / sum).collect()
    }

    /// Draws at `draws` positions of one sequence.
    fn count_draws(logits: &[f32], policy: &Policy, draws: u32) -> Vec<u32> {
        let mut counts = vec![0; logits.len()];
        for position in 0..draws {
            counts[choose(logits, policy, position) as usize] += 1;
        }
        counts
    }

    /// Far beyond chance: six standard deviations of the chi-squared distribution above its mean.
    fn is_far(statistic: f64, freedom: usize) -> bool {
        statistic > freedom as f64 + 6.0 * (2.0 * freedom as f64).sqrt()
    }

    const DRAWS: u32 = 30_000;

    fn uneven_logits() -> Vec<f32> {
        (0..40u32)
            .map(|i| ((i * 7) % 40) as f32 / 8.0 - 2.0)
            .collect()
    }

    #[test]
    fn draws_follow_softmax_at_every_temperature() {
        let logits = uneven_logits();
        for temperature in [0.1, 0.3, 0.7, 1.0, 1.5, 5.0, 100.0] {
            for seed in [0, 1, 0xdead_beef_0000_0001] {
                let counts = count_draws(&logits, &at(temperature, seed), DRAWS);
                let (statistic, freedom) = chi_squared(&counts, &softmax(&logits, temperature));
                assert!(
                    !is_far(statistic, freedom),
                    "temperature {temperature}, seed {seed}: chi-squared {statistic:.1} with {freedom} degrees of freedom"
                );
            }
        }
    }

    #[test]
    fn draws_at_one_position_follow_softmax_over_seeds() {
        let logits = uneven_logits();
        let mut counts = vec![0; logits.len()];
        for seed in 0..u64::from(DRAWS) {
            counts[choose(&logits, &at(1.0, seed), 12) as usize] += 1;
        }
        let (statistic, freedom) = chi_squared(&counts, &softmax(&logits, 1.0));
        assert!(
            !is_far(statistic, freedom),
            "chi-squared {statistic:.1} with {freedom} degrees of freedom"
        );
    }

    #[test]
    fn the_chi_squared_check_refuses_a_slightly_different_temperature() {
        let logits = uneven_logits();
        let counts = count_draws(&logits, &at(1.0, 0), DRAWS);
        let (statistic, freedom) = chi_squared(&counts, &softmax(&logits, 1.1));
        assert!(
            is_far(statistic, freedom),
            "chi-squared {statistic:.1} with {freedom} degrees of freedom"
        );
    }

    proptest! {
        #[test]
        fn a_cold_draw_is_greedy(logits in prop::collection::vec(-20.0f32..20.0, 1..200), seed: u64, position: u32) {
            // At this temperature neighbouring scores are much further apart than the noise unless they are equal.
            let rounded: Vec<f32> = logits.iter().map(|l| l.round()).collect();
            let cold = choose(&rounded, &at(1e-3, seed), position);
            let greedy = choose(&rounded, &Policy::GREEDY, position);
            prop_assert_eq!(rounded[cold as usize], rounded[greedy as usize]);
        }

        #[test]
        fn the_choice_is_an_id_of_the_vocabulary(
            logits in prop::collection::vec(any::<f32>(), 1..100), seed: u64, position: u32, temperature in 0.0f32..4.0
        ) {
            prop_assume!(Policy::new(temperature, seed).is_ok());
            let id = choose(&logits, &at(temperature, seed), position);
            prop_assert!((id as usize) < logits.len());
        }
    }
}
