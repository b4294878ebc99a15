//! Where a regression is: a profile of both arms, summed up by function (M11).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::record::{Both, PerformanceVerdict, Side};

/// When both arms of a row are profiled after its measurement. A profile decides nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ProfileWhen {
    /// When the row is too slow.
    #[default]
    OnFail,
    /// Whenever a row was measured.
    Always,
    /// Never.
    Never,
}

impl ProfileWhen {
    /// Whether a row with this verdict is profiled.
    #[must_use]
    pub fn is_wanted(self, verdict: PerformanceVerdict) -> bool {
        match self {
            ProfileWhen::Never => false,
            ProfileWhen::OnFail => verdict == PerformanceVerdict::Fail,
            // The harness of a blocked row fails; of one that was not measured, nobody asked.
            ProfileWhen::Always => {
                !matches!(verdict, PerformanceVerdict::Blocked | PerformanceVerdict::NotMeasured)
            }
        }
    }
}

/// A profile of both arms, or why there is none: part of `records/measure-NAME.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", tag = "kind")]
#[non_exhaustive]
pub enum Profile {
    /// Both arms were sampled.
    Taken(ProfileSummary),
    /// This machine has no profiler, or refuses one.
    Unavailable {
        /// Why.
        reason: String,
    },
}

/// Samples of both arms, by function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProfileSummary {
    /// The profiler and its version.
    pub tool: String,
    /// What it sampled by.
    pub event: String,
    /// Samples per second of CPU time.
    pub frequency_hz: u32,
    /// Whether both arms did the same semantic work: their reports are equal.
    pub equal_work: bool,
    /// Processes per arm.
    pub runs: Both<u32>,
    /// Samples per arm.
    pub samples: Both<u64>,
    /// Samples per arm in code that has no symbol.
    pub unresolved_samples: Both<u64>,
    /// The functions whose own time per process differs the most, the greatest difference first.
    pub functions: Vec<FunctionSamples>,
}

/// Samples in one function itself, not in what it calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FunctionSamples {
    /// Its name; instances of one generic function are one.
    pub function: String,
    /// Samples per arm.
    pub samples: Both<u64>,
}

/// Functions that a summary names.
pub(crate) const NAMED_FUNCTIONS: usize = 10;

/// Samples by function of any number of processes of one arm.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) runs: u32,
    pub(crate) event: String,
    by_function: BTreeMap<String, u64>,
}

impl Counts {
    /// Adds what `perf report --fields sample,symbol --field-separator TAB` says of one process.
    pub(crate) fn add(&mut self, listing: &str) {
        self.runs += 1;
        let mut event =
            listing.lines().filter_map(|line| line.split_once("of event '")?.1.strip_suffix('\''));
        if let Some(event) = event.next() {
            event.clone_into(&mut self.event);
        }
        for (function, samples) in listing.lines().filter_map(function) {
            *self.by_function.entry(function).or_default() += samples;
        }
    }

    pub(crate) fn samples(&self) -> u64 {
        self.by_function.values().fold(0, |sum, samples| sum.saturating_add(*samples))
    }

    fn of(&self, function: &str) -> u64 {
        self.by_function.get(function).copied().unwrap_or(0)
    }

    fn unresolved(&self) -> u64 {
        let unnamed = self.by_function.iter().filter(|(function, _)| function.starts_with("0x"));
        unnamed.fold(0, |sum, (_, samples)| sum.saturating_add(*samples))
    }
}

/// One line: samples, then `[.] name`, then whatever other columns this version of perf adds.
fn function(line: &str) -> Option<(String, u64)> {
    let mut columns = line.split('\t').map(str::trim);
    let samples = columns.next()?.parse().ok()?;
    let symbol = columns.next()?;
    // `[.]` is user space, `[k]` the kernel.
    let name = symbol.split_once("] ").map_or(symbol, |(_, name)| name).trim();
    Some((name.to_owned(), samples))
}

/// The summary of both arms.
pub(crate) fn summary(
    tool: String,
    frequency_hz: u32,
    equal_work: bool,
    arms: &Both<Counts>,
) -> ProfileSummary {
    let both =
        |of: &dyn Fn(&Counts) -> u64| Both { baseline: of(&arms.baseline), candidate: of(&arms.candidate) };
    let names = arms.baseline.by_function.keys().chain(arms.candidate.by_function.keys());
    let mut functions: Vec<FunctionSamples> = names
        .map(|name| FunctionSamples { function: name.clone(), samples: both(&|arm| arm.of(name)) })
        .collect();
    functions.sort_by(|left, right| left.function.cmp(&right.function));
    functions.dedup();
    // Samples per process, compared without rounding: each side is multiplied by the other's number of processes.
    let difference = |found: &FunctionSamples| {
        let scaled = |samples: u64, runs: u32| u128::from(samples) * u128::from(runs);
        let (baseline, candidate) = (found.samples.baseline, found.samples.candidate);
        scaled(candidate, arms.baseline.runs).abs_diff(scaled(baseline, arms.candidate.runs))
    };
    functions.sort_by_key(|found| std::cmp::Reverse(difference(found)));
    functions.retain(|found| difference(found) > 0);
    functions.truncate(NAMED_FUNCTIONS);
    ProfileSummary {
        tool,
        event: arms.baseline.event.clone(),
        frequency_hz,
        equal_work,
        runs: Both { baseline: arms.baseline.runs, candidate: arms.candidate.runs },
        samples: both(&Counts::samples),
        unresolved_samples: both(&Counts::unresolved),
        functions,
    }
}

impl ProfileSummary {
    /// Own time of a function in one process of an arm, in milliseconds.
    #[must_use]
    pub fn self_ms(&self, found: &FunctionSamples, side: Side) -> f64 {
        let runs = f64::from(*self.runs.get(side)).max(1.0);
        to_f64(*found.samples.get(side)) * 1e3 / f64::from(self.frequency_hz) / runs
    }

    /// Own time of a function as a share of its arm.
    #[must_use]
    pub fn share_ratio(&self, found: &FunctionSamples, side: Side) -> f64 {
        to_f64(*found.samples.get(side)) / to_f64(*self.samples.get(side)).max(1.0)
    }
}

fn to_f64(samples: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "samples at a thousand a second stay far below 2^53")]
    let value = samples as f64;
    value
}

/// Where the listing of an arm is: one section per process, each after a line [`SECTION`].
pub(crate) fn listing_path(row: &str, side: Side) -> String {
    format!("logs/profile-{row}-{}.txt", side.name())
}

/// Begins what perf said of one process.
pub(crate) const SECTION: &str = "## process";

/// The counts of an arm, from its listing.
pub(crate) fn counts_of(listing: &str) -> Counts {
    let mut counts = Counts::default();
    listing.split(SECTION).skip(1).for_each(|section| counts.add(section));
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTING: &str = "# Samples: 12  of event 'cpu-clock:u'\n#\n     7\t[.] a::hot\t-      -\n     2\t[.] <T as \
                           b::C>::d\n     1\t[.] <T as b::C>::d\n     2\t[k] 0xffffffff81\n\n";

    #[test]
    fn a_listing_is_summed_by_name() {
        let counts = counts_of(&format!("{SECTION}\n{LISTING}{SECTION}\n{LISTING}"));
        assert_eq!((counts.runs, counts.samples(), counts.unresolved()), (2, 24, 4));
        assert_eq!((counts.of("a::hot"), counts.of("<T as b::C>::d"), counts.of("absent")), (14, 6, 0));
        assert_eq!(counts.event, "cpu-clock:u");
    }

    #[test]
    fn the_greatest_difference_per_process_comes_first() {
        let counts = |runs: u32, functions: &[(&str, u64)]| Counts {
            runs,
            event: "cpu-clock".into(),
            by_function: functions.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
        };
        // Twice as many processes: twice the samples are no difference.
        let arms = Both {
            baseline: counts(2, &[("same", 100), ("gone", 20), ("less", 10)]),
            candidate: counts(4, &[("same", 200), ("new", 200), ("less", 4)]),
        };
        let found = summary("perf".into(), 1_000, true, &arms);
        let names: Vec<&str> = found.functions.iter().map(|found| found.function.as_str()).collect();
        assert_eq!(names, ["new", "gone", "less"]);
        assert!((found.self_ms(&found.functions[0], Side::Candidate) - 50.0).abs() < 1e-9);
        assert!((found.share_ratio(&found.functions[1], Side::Baseline) - 20.0 / 130.0).abs() < 1e-9);
    }

    #[test]
    fn a_summary_names_ten() {
        let functions: BTreeMap<String, u64> = (1..=30).map(|count| (format!("f{count}"), count)).collect();
        let candidate = Counts { runs: 1, event: String::new(), by_function: functions };
        let arms = Both { baseline: Counts { runs: 1, ..Counts::default() }, candidate };
        let found = summary(String::new(), 1, true, &arms);
        assert_eq!((found.functions.len(), found.functions[0].samples.candidate), (10, 30));
    }

    #[test]
    fn a_profile_is_taken_of_what_is_too_slow() {
        use PerformanceVerdict::{Blocked, Fail, Inconclusive, NotMeasured, Pass};
        let all = [Pass, Fail, Inconclusive, Blocked, NotMeasured];
        let wanted = |when: ProfileWhen| all.map(|verdict| when.is_wanted(verdict));
        assert_eq!(wanted(ProfileWhen::OnFail), [false, true, false, false, false]);
        assert_eq!(wanted(ProfileWhen::Always), [true, true, true, false, false]);
        assert_eq!(wanted(ProfileWhen::Never), [false; 5]);
    }
}
