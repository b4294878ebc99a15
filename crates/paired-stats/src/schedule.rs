//! Which arm runs first in each pair: balanced, in random order, written down before anything runs.

use serde::{Deserialize, Serialize};

use crate::random::Stream;

/// One side of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Arm {
    /// What the candidate is compared with: the denominator.
    Baseline,
    /// What is judged: the numerator.
    Candidate,
}

impl Arm {
    /// Baseline, then candidate.
    pub const BOTH: [Self; 2] = [Self::Baseline, Self::Candidate];

    /// The other arm.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Baseline => Self::Candidate,
            Self::Candidate => Self::Baseline,
        }
    }

    /// The name used in files: `baseline` or `candidate`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Candidate => "candidate",
        }
    }
}

impl std::fmt::Display for Arm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// The name of the procedure by which [`Schedule::generate`] turns a seed into an order. It is part of every
/// schedule, and a golden file holds what it produces: it can be succeeded, never changed.
pub const SCHEDULE_ALGORITHM: &str = "chacha20-sha256-fisher-yates/1";

/// The order in which a row is measured, with what is needed to make it again.
///
/// Half of the pairs run the baseline first and half the candidate (with an odd count the stream decides
/// which arm gets the one more), in random order. Warm-ups alternate, baseline first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[must_use]
pub struct Schedule {
    /// Always [`SCHEDULE_ALGORITHM`] in schedules made by this release.
    pub algorithm: String,
    /// The seed that was given.
    pub seed: u64,
    /// How many pairs there are.
    pub pairs: u32,
    /// How many warm-ups each arm gets before the first pair.
    pub warmups_per_arm: u32,
    /// The arm of each warm-up, in order.
    pub warmups: Vec<Arm>,
    /// The arm that runs first in each pair, in order; its partner follows at once.
    pub first: Vec<Arm>,
}

impl Schedule {
    /// The schedule of this seed.
    pub fn generate(seed: u64, pairs: u32, warmups_per_arm: u32) -> Self {
        let mut stream = Stream::new("paired-stats schedule 1", seed);
        let mut first: Vec<Arm> = Arm::BOTH.into_iter().cycle().take(pairs as usize / 2 * 2).collect();
        if pairs % 2 == 1 {
            first.push(Arm::BOTH[stream.below(2) as usize]);
        }
        stream.shuffle(&mut first);
        Self {
            algorithm: SCHEDULE_ALGORITHM.to_owned(),
            seed,
            pairs,
            warmups_per_arm,
            warmups: Arm::BOTH.repeat(warmups_per_arm as usize),
            first,
        }
    }

    /// Checks that this schedule, read from a file, is what its own seed produces.
    ///
    /// # Errors
    /// [`ScheduleError`] says whether the algorithm is unknown or the order differs.
    pub fn check(&self) -> Result<(), ScheduleError> {
        if self.algorithm != SCHEDULE_ALGORITHM {
            return Err(ScheduleError::UnknownAlgorithm { algorithm: self.algorithm.clone() });
        }
        let expected = Self::generate(self.seed, self.pairs, self.warmups_per_arm);
        if *self == expected { Ok(()) } else { Err(ScheduleError::NotOfThisSeed { seed: self.seed }) }
    }

    /// The order of one pair (counted from 0): the arm that runs first and the one that follows.
    #[must_use]
    pub fn pair(&self, index: usize) -> Option<[Arm; 2]> {
        self.first.get(index).map(|&first| [first, first.other()])
    }
}

/// Why a schedule in a file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// It was made by a procedure that this release does not know.
    #[error("check a schedule made by the unknown algorithm {algorithm:?}")]
    UnknownAlgorithm {
        /// The name in the file.
        algorithm: String,
    },
    /// The order is not the one that the seed produces.
    #[error("check a schedule whose order is not the one that seed {seed} produces")]
    NotOfThisSeed {
        /// The seed in the file.
        seed: u64,
    },
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `B` and `C` for the first arm of each pair.
    fn letters(arms: &[Arm]) -> String {
        arms.iter().map(|arm| if *arm == Arm::Baseline { 'B' } else { 'C' }).collect()
    }

    /// Lines of `seed pairs warmups order`, never to be regenerated: a changed line is a changed meaning of
    /// old files.
    #[test]
    fn golden_schedules() {
        for line in include_str!("../testdata/schedules.txt").lines().filter(|line| !line.starts_with('#')) {
            let [seed, pairs, warmups, order] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            let schedule =
                Schedule::generate(seed.parse().unwrap(), pairs.parse().unwrap(), warmups.parse().unwrap());
            assert_eq!(letters(&schedule.first), order, "seed {seed}");
        }
    }

    #[test]
    fn warmups_alternate() {
        assert_eq!(letters(&Schedule::generate(1, 2, 5).warmups), "BCBCBCBCBC");
    }

    #[test]
    fn a_schedule_is_checked_against_its_seed() {
        let schedule = Schedule::generate(7, 60, 5);
        assert_eq!(schedule.check(), Ok(()));
        let mut edited = schedule.clone();
        edited.first.swap(0, schedule.first.iter().position(|arm| *arm != schedule.first[0]).unwrap());
        assert_eq!(edited.check(), Err(ScheduleError::NotOfThisSeed { seed: 7 }));
        let foreign = Schedule { algorithm: "sorted".to_owned(), ..schedule };
        assert_eq!(foreign.check(), Err(ScheduleError::UnknownAlgorithm { algorithm: "sorted".to_owned() }));
    }

    proptest! {
        #[test]
        fn balanced_and_the_same_after_a_round_trip(seed: u64, pairs in 0_u32..200, warmups in 0_u32..9) {
            let schedule = Schedule::generate(seed, pairs, warmups);
            let baseline_first = schedule.first.iter().filter(|arm| **arm == Arm::Baseline).count();
            prop_assert_eq!(schedule.first.len(), pairs as usize);
            prop_assert!(baseline_first.abs_diff(pairs as usize - baseline_first) <= 1);
            let text = serde_json::to_string(&schedule).unwrap();
            prop_assert_eq!(serde_json::from_str::<Schedule>(&text).unwrap(), schedule);
        }
    }
}
