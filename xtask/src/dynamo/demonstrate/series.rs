//! Whether campaigns of equal revisions were inconclusive as often as their reports state.

use std::fmt;

use super::{Ended, INCONCLUSIVE};

/// What happens less often than this does not happen by accident: more than 4 alarms in 20 campaigns, of a rate of 5 in 100.
const RAREST: f64 = 1.0 / 390.0;

/// One campaign, run many times.
#[derive(Debug, Default)]
pub(super) struct Series {
    campaigns: usize,
    inconclusive: usize,
    /// How many of them were to be expected by what the reports state.
    stated: f64,
    /// The probability of as many, or more, by what the reports state.
    as_many: f64,
    /// The probability of as many, or fewer.
    as_few: f64,
    /// In how many a diagnostic was breached.
    breached: usize,
}

impl Series {
    /// Every row of a campaign has to pass for the campaign to pass.
    pub(super) fn of(ended: &[Ended]) -> Self {
        let passes = |end: &Ended| end.measured.iter().map(|row| row.equal_pass_probability).product::<f64>();
        let stated: Vec<f64> = ended.iter().map(|end| 1.0 - passes(end)).collect();
        let inconclusive = ended.iter().filter(|end| end.exit == Some(INCONCLUSIVE)).count();
        let counts = distribution(&stated);
        Self {
            campaigns: ended.len(),
            inconclusive,
            stated: stated.iter().sum(),
            as_many: counts[inconclusive..].iter().sum(),
            as_few: counts[..=inconclusive].iter().sum(),
            breached: ended.iter().filter(|end| end.measured.iter().any(|row| row.is_breached)).count(),
        }
    }

    /// What is not as it must be.
    pub(super) fn missed(&self, inconclusive_at_most: usize, breached_at_most: usize) -> Vec<String> {
        let too_many = (self.inconclusive > inconclusive_at_most).then(|| {
            format!(
                "{} of {} inconclusive, at most {inconclusive_at_most}",
                self.inconclusive, self.campaigns
            )
        });
        let breached = (self.breached > breached_at_most).then(|| {
            format!(
                "a diagnostic breached in {} of {}, at most {breached_at_most}",
                self.breached, self.campaigns
            )
        });
        let unlike = (self.as_many.min(self.as_few) < RAREST)
            .then(|| format!("{} inconclusive, {:.1} stated", self.inconclusive, self.stated));
        too_many.into_iter().chain(breached).chain(unlike).collect()
    }
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { campaigns, inconclusive, stated, as_many, as_few, breached } = self;
        write!(f, "{inconclusive} of {campaigns} inconclusive, {stated:.1} by what their reports state ")?;
        write!(f, "(as many or more: {as_many:.3}, as few or fewer: {as_few:.3}); ")?;
        write!(f, "a diagnostic breached in {breached}")
    }
}

/// How probable each count of successes is, from none to all, of independent trials with these probabilities.
fn distribution(trials: &[f64]) -> Vec<f64> {
    let mut counts = vec![1.0];
    for probability in trials {
        counts.push(0.0);
        for count in (0..counts.len()).rev() {
            let one_less = if count == 0 { 0.0 } else { counts[count - 1] };
            counts[count] = counts[count] * (1.0 - probability) + one_less * probability;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::super::Measured;
    use super::*;

    fn series(campaigns: usize, inconclusive: usize, breached: usize, passes: f64) -> Series {
        let end = |at: usize| Ended {
            name: format!("c-{at}"),
            exit: Some(if at < inconclusive { INCONCLUSIVE } else { 0 }),
            seconds: 1,
            missed: Vec::new(),
            measured: vec![Measured {
                row: "one".to_owned(),
                verdict: "pass".to_owned(),
                ratios: [1.0, 0.9, 1.1],
                equal_pass_probability: passes,
                is_breached: at < breached,
            }],
        };
        Series::of(&(0..campaigns).map(end).collect::<Vec<_>>())
    }

    #[test]
    fn the_rate_is_that_of_the_reports() {
        assert_eq!(series(20, 8, 0, 0.7).missed(8, 4), [""; 0]);
        assert_eq!(series(20, 0, 0, 0.95).missed(4, 4), [""; 0]);
        assert_eq!(series(20, 8, 0, 0.95).missed(8, 4), ["8 inconclusive, 1.0 stated"]);
        // Reports that call everything noise are wrong, too.
        assert_eq!(series(20, 0, 0, 0.3).missed(4, 4), ["0 inconclusive, 14.0 stated"]);
        assert_eq!(series(20, 8, 5, 0.7).missed(8, 4), ["a diagnostic breached in 5 of 20, at most 4"]);
        // That noise accounts for it excuses nothing.
        assert_eq!(series(20, 8, 0, 0.7).missed(4, 4), ["8 of 20 inconclusive, at most 4"]);
        let said = series(20, 8, 1, 0.7).to_string();
        assert!(said.starts_with("8 of 20 inconclusive, 6.0 by what their reports state"), "{said}");
        assert!(said.ends_with("a diagnostic breached in 1"), "{said}");
    }

    #[test]
    fn the_limit_of_alarms_is_as_rare_as_it_says() {
        let more_than_four: f64 = distribution(&[0.05; 20])[5..].iter().sum();
        assert!((more_than_four - RAREST).abs() < 1e-5, "1 in {}", 1.0 / more_than_four);
    }

    #[test]
    fn counts_of_unequal_trials_add_up() {
        let counts = distribution(&[0.5, 0.25, 0.0, 1.0]);
        let expected = [0.0, 0.375, 0.5, 0.125, 0.0];
        assert_eq!(counts.len(), expected.len());
        assert!(
            counts.iter().zip(expected).all(|(found, wanted)| (found - wanted).abs() < 1e-12),
            "{counts:?}"
        );
    }
}
