//! How many threads a program really uses.

use serde::{Deserialize, Serialize};

use crate::cancel::CancelToken;
use crate::error::SpawnError;
use crate::finished::Finished;
use crate::run::Run;
use crate::watch::Observe;

/// Fewer looks than this say nothing.
pub const MIN_SAMPLES: u64 = 20;

/// At least this share of the processor time must be one thread's: programs start helpers that soon sleep.
pub const BUSIEST_PPM: u64 = 950_000;

/// At least this share of the processor time must be of threads that were seen. Threads that live for less than a
/// look are not.
pub const SEEN_PPM: u64 = 800_000;

/// Whether one core is enough for a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Threads {
    /// One thread does the work: on one core it loses nothing.
    One,
    /// Several threads share the work, at once or by turns.
    Several,
    /// It was looked at less than [`MIN_SAMPLES`] times, or too much of the work was done by threads that were not
    /// seen, or the kernel does not say what each thread used.
    CannotTell,
}

/// How many threads a program really used in one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[must_use]
#[non_exhaustive]
pub struct Preflight {
    /// Whether one core is enough.
    pub threads: Threads,
    /// The share of looks at which more than one thread was running or ready to run, in millionths.
    pub over_one_ppm: u64,
    /// The busiest thread's share of the processor time of the threads seen, in millionths.
    pub busiest_ppm: Option<u64>,
    /// The share of all processor time that the threads seen account for, in millionths.
    pub seen_ppm: Option<u64>,
    /// The run itself. Its times are not to be used: it was watched too closely.
    pub finished: Finished,
}

impl Preflight {
    /// Runs the program once where it will be measured, looking at its threads every millisecond.
    ///
    /// The set must be that of the measurement: many programs choose their number of threads by it. A thread that
    /// waits for a CPU counts as one that wants to run, so several are seen on a single CPU too.
    ///
    /// # Errors
    /// When the program could not be started or waited for.
    pub fn of(run: &Run, cancel: &CancelToken) -> Result<Self, SpawnError> {
        let finished = run.clone().observe(Observe::Closely).wait(cancel)?;
        Ok(Self::judge(finished))
    }

    fn judge(finished: Finished) -> Self {
        let watched = finished.watched.clone().unwrap_or_default();
        let over_one_ppm = ppm(watched.samples_over_one, watched.samples);
        let all_ns = finished.user_ns + finished.system_ns;
        let seen_ns = watched.seen_threads_ns.filter(|seen| *seen > 0);
        let busiest_ppm = watched.busiest_thread_ns.zip(seen_ns).map(|(busiest, seen)| ppm(busiest, seen));
        let seen_ppm = seen_ns.map(|seen| ppm(seen, all_ns).min(1_000_000));
        let enough = watched.samples >= MIN_SAMPLES && seen_ppm.is_some_and(|seen| seen >= SEEN_PPM);
        let threads = match busiest_ppm.filter(|_| enough) {
            None => Threads::CannotTell,
            Some(busiest) if busiest >= BUSIEST_PPM => Threads::One,
            Some(_) => Threads::Several,
        };
        Self { threads, over_one_ppm, busiest_ppm, seen_ppm, finished }
    }
}

fn ppm(part: u64, whole: u64) -> u64 {
    u64::try_from(u128::from(part) * 1_000_000 / u128::from(whole.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finished::Outcome;
    use crate::watch::Watched;

    #[test]
    fn verdicts() {
        let check = |samples, busiest, seen, expected| {
            let mut finished = Finished::with_outcome(Outcome::Exited(0));
            finished.user_ns = 1000;
            let mut watched = Watched::default();
            (watched.samples, watched.busiest_thread_ns, watched.seen_threads_ns) = (samples, busiest, seen);
            finished.watched = Some(watched);
            assert_eq!(Preflight::judge(finished).threads, expected, "{samples} {busiest:?} {seen:?}");
        };
        check(100, Some(1000), Some(1000), Threads::One);
        check(100, Some(855), Some(900), Threads::One);
        check(100, Some(854), Some(900), Threads::Several);
        check(100, Some(333), Some(1000), Threads::Several);
        check(100, Some(700), Some(700), Threads::CannotTell);
        check(19, Some(1000), Some(1000), Threads::CannotTell);
        check(100, None, None, Threads::CannotTell);
    }
}
