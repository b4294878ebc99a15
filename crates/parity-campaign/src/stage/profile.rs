//! Both arms of a measured row under a profiler, on the CPUs they were measured on (M11).

use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use cpu_placement::{Outcome, Run, SpawnError};

use crate::context::Context;
use crate::error::{At, CampaignError, Cause, with_causes};
use crate::profile::{Counts, Profile, SECTION, listing_path, summary};
use crate::record::{Both, Side};
use crate::stage::Stage;
use crate::stage::run::last_line;

/// Samples per second of CPU time: prime to what beats in round numbers.
const FREQUENCY_HZ: u32 = 997;

/// An arm is started again until it has this many samples, or has been started [`MOST_RUNS`] times.
const ENOUGH_SAMPLES: u64 = 1_000;

const MOST_RUNS: u32 = 5;

/// How one process of an arm is started with something in front of it, in a folder of its own.
pub(crate) type Start<'a> = &'a dyn Fn(Side, &Path, &Path, Vec<OsString>) -> Run;

/// Samples both arms by turns. A machine without a profiler, or one that refuses, is said and is no error.
pub(crate) fn profile(
    context: &Context<'_>,
    row: &str,
    equal_work: bool,
    folder: &Path,
    start: Start<'_>,
) -> Result<Profile, CampaignError> {
    let Some(perf) = find("perf") else {
        return Ok(unavailable("there is no `perf` on the search path"));
    };
    fs::create_dir_all(folder).at(Stage::Measure, Cause::HostUnfit)?;
    let perf = Perf { context, perf, folder, start };
    let taken = perf.both_arms();
    fs::remove_dir_all(folder).at(Stage::Measure, Cause::HostUnfit)?;
    let (tool, arms) = match taken? {
        Ok(taken) => taken,
        Err(reason) => return Ok(unavailable(context.hide_paths(&reason))),
    };
    for side in Side::BOTH {
        let listing = context.hide_paths(&arms.get(side).1);
        context.write_file(Stage::Measure, &listing_path(row, side), listing.as_bytes())?;
    }
    let counts = Both { baseline: arms.baseline.0, candidate: arms.candidate.0 };
    Ok(Profile::Taken(summary(tool, FREQUENCY_HZ, equal_work, &counts)))
}

fn unavailable(reason: impl Into<String>) -> Profile {
    Profile::Unavailable { reason: reason.into() }
}

/// A program on the search path.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// What the profiler did, or why it did not.
type Refusable<T> = Result<Result<T, String>, CampaignError>;

/// Counts and listing of one arm.
type Arm = (Counts, String);

struct Perf<'a, 'c> {
    context: &'a Context<'c>,
    perf: PathBuf,
    folder: &'a Path,
    start: Start<'a>,
}

impl Perf<'_, '_> {
    fn both_arms(&self) -> Refusable<(String, Both<Arm>)> {
        let version = match self.say(Side::Baseline, vec!["--version".into()])? {
            Ok(version) => version.trim().to_owned(),
            Err(reason) => return Ok(Err(reason)),
        };
        let mut arms = Both { baseline: Arm::default(), candidate: Arm::default() };
        for _ in 0..MOST_RUNS {
            for side in Side::BOTH {
                let arm = match side {
                    Side::Baseline => &mut arms.baseline,
                    Side::Candidate => &mut arms.candidate,
                };
                if arm.0.samples() >= ENOUGH_SAMPLES {
                    continue;
                }
                match self.one(side)? {
                    Ok(listing) => add(arm, &listing),
                    Err(reason) => return Ok(Err(reason)),
                }
            }
        }
        let silent = Side::BOTH.into_iter().find(|side| arms.get(*side).0.samples() == 0);
        Ok(match silent {
            Some(side) => Err(format!("{version} took no sample of the {}", side.name())),
            None => Ok((version, arms)),
        })
    }

    /// Samples one process and lists its samples by function.
    fn one(&self, side: Side) -> Refusable<String> {
        let data = self.folder.join("samples");
        let frequency = FREQUENCY_HZ.to_string();
        // Software clock: virtual machines often have no hardware counters. `-N`: no copy of the program elsewhere.
        let record = ["record", "-q", "-N", "-e", "cpu-clock", "-F", &frequency, "-o"];
        let mut arguments: Vec<OsString> = record.map(OsString::from).to_vec();
        arguments.extend([data.clone().into(), "--".into()]);
        let folder = self.folder.join(side.letter());
        fs::create_dir_all(&folder).at(Stage::Measure, Cause::HostUnfit)?;
        let run = (self.start)(side, &self.perf, &folder, arguments);
        if let Err(reason) = self.wait(&run, &folder)? {
            return Ok(Err(reason));
        }
        let report =
            ["report", "--stdio", "-g", "none", "--sort", "symbol", "-F", "sample,symbol", "-t", "\t", "-i"];
        let mut arguments: Vec<OsString> = report.map(OsString::from).to_vec();
        arguments.push(data.into());
        let listing = self.say(side, arguments)?;
        fs::remove_dir_all(&folder).at(Stage::Measure, Cause::HostUnfit)?;
        Ok(listing)
    }

    /// Runs the profiler alone and gives what it printed.
    fn say(&self, side: Side, arguments: Vec<OsString>) -> Refusable<String> {
        let folder = self.folder.join(format!("{}-says", side.letter()));
        fs::create_dir_all(&folder).at(Stage::Measure, Cause::HostUnfit)?;
        let mut run = (self.start)(side, &self.perf, &folder, Vec::new());
        run.args = arguments;
        if let Err(reason) = self.wait(&run, &folder)? {
            return Ok(Err(reason));
        }
        let said = fs::read(folder.join("stdout")).at(Stage::Measure, Cause::HostUnfit)?;
        Ok(Ok(String::from_utf8_lossy(&said).into_owned()))
    }

    fn wait(&self, run: &Run, folder: &Path) -> Refusable<()> {
        let finished = match run.wait(self.context.cancel) {
            Ok(finished) => finished,
            Err(SpawnError::Cancelled { .. }) => return Err(CampaignError::cancelled(Stage::Measure)),
            Err(error) => return Ok(Err(with_causes(&error))),
        };
        match finished.outcome {
            Outcome::Exited(0) => Ok(Ok(())),
            Outcome::Cancelled => Err(CampaignError::cancelled(Stage::Measure)),
            outcome => {
                let said = last_line(&folder.join("stderr")).map(|line| format!(": {line}"));
                Ok(Err(format!("perf ended with {outcome:?}{}", said.unwrap_or_default())))
            }
        }
    }
}

fn add(arm: &mut Arm, listing: &str) {
    arm.0.add(listing);
    // A string takes everything.
    let _ = writeln!(arm.1, "{SECTION}\n{listing}");
}
