//! A small repository to try a campaign on: two revisions of a real, if small, replay simulator, and a trace to replay.
//!
//! The simulator's source ships inside this crate (`demo-harness/`) and depends on the standard library alone, so that it
//! builds in seconds without a network. [`create`] commits it twice. The honest candidate chooses a worker by another
//! algorithm with the same outcome: another artifact, the same reports. A [`Fault`] plants one edit on top of that, and
//! the verdict is expected to name it.
//!
//! ```no_run
//! use parity_campaign::demo::{Fault, create};
//!
//! let demo = create("demo".as_ref(), Some(Fault::Different))?;
//! println!("{} and {} in {}", demo.baseline, demo.candidate, demo.repository.display());
//! # Ok::<(), parity_campaign::demo::DemoError>(())
//! ```

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use canonical_json::Sha256;

use crate::definition::{Build, Row};

mod repository;
mod rows;
mod source;
mod trace;

/// What [`create`] has made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DemoRepository {
    /// The git repository, with a working tree of the candidate.
    pub repository: PathBuf,
    /// Full id of the first commit.
    pub baseline: String,
    /// Full id of the second commit, whose only parent is the first.
    pub candidate: String,
    /// The trace, beside the repository.
    pub trace: PathBuf,
    /// Digest of the trace file.
    pub trace_sha256: Sha256,
    /// Requests in the trace.
    pub trace_rows: u64,
    /// The four frozen rows; each meets its pressure band on the baseline.
    pub rows: Vec<Row>,
    /// How each revision becomes an artifact: the default recipe with another package.
    pub build: Build,
}

/// A fault planted in the candidate, by the verdict that it is to bring about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// A quarter of the replay is done twice.
    Slower,
    /// Ties between workers are broken the other way round.
    Different,
    /// The order of a randomly seeded map reaches the report, while every total stays equal.
    Unstable,
    /// Requests lose their blocks long before these run out, again and again.
    Flood,
    /// Workers have far more blocks than they are told to have, so that none runs out.
    NoPressure,
    /// The timing record lacks the metric.
    MissingMetric,
}

impl Fault {
    /// Every fault, in the order of the documentation.
    pub const ALL: [Fault; 6] = [
        Fault::Slower,
        Fault::Different,
        Fault::Unstable,
        Fault::Flood,
        Fault::NoPressure,
        Fault::MissingMetric,
    ];

    /// The name on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Fault::Slower => "slower",
            Fault::Different => "different",
            Fault::Unstable => "unstable",
            Fault::Flood => "flood",
            Fault::NoPressure => "no-pressure",
            Fault::MissingMetric => "missing-metric",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A word that names no fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown fault {word:?}, expected one of: {}", Fault::ALL.map(Fault::as_str).join(", "))]
pub struct ParseFaultError {
    word: String,
}

impl FromStr for Fault {
    type Err = ParseFaultError;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let known = Fault::ALL.into_iter().find(|fault| fault.as_str() == word);
        known.ok_or_else(|| ParseFaultError { word: word.to_owned() })
    }
}

/// Why the repository could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemoError {
    /// A folder or file could not be made.
    #[error("cannot create {}", path.display())]
    Create {
        /// The folder or file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The place is taken.
    #[error("{} exists already", path.display())]
    Exists {
        /// The repository or trace that is there.
        path: PathBuf,
    },
    /// Git refused.
    #[error("cannot {action} in the repository at {}", path.display())]
    Git {
        /// What was attempted.
        action: &'static str,
        /// The repository.
        path: PathBuf,
        /// The cause.
        #[source]
        source: git2::Error,
    },
    /// The source does not have exactly one place for an edit: the embedded source and its edits no longer belong together.
    #[error("{found} places for the edit {edit:?} in {file}, expected exactly one")]
    Edit {
        /// The edit.
        edit: &'static str,
        /// The file it is for.
        file: &'static str,
        /// How many places there are.
        found: usize,
    },
}

/// Makes `repository/` and `trace.jsonl` below `dir`, which is created if needed. A fault is planted in the candidate only.
///
/// The commits have a fixed author and time and so the same ids everywhere.
///
/// # Errors
///
/// [`DemoError`]: one of the two exists already, or cannot be written.
pub fn create(dir: &Path, fault: Option<Fault>) -> Result<DemoRepository, DemoError> {
    let (repository, trace) = (dir.join("repository"), dir.join("trace.jsonl"));
    if let Some(path) = [&repository, &trace].into_iter().find(|path| path.exists()) {
        return Err(DemoError::Exists { path: path.clone() });
    }
    let (baseline, candidate) = (source::baseline(), source::candidate(fault)?);
    let text = trace::text();
    std::fs::create_dir_all(dir).map_err(|source| DemoError::Create { path: dir.to_owned(), source })?;
    std::fs::write(&trace, &text).map_err(|source| DemoError::Create { path: trace.clone(), source })?;
    let commits = repository::commit(&repository, &baseline, &candidate, fault)?;
    Ok(DemoRepository {
        repository,
        baseline: commits.baseline,
        candidate: commits.candidate,
        trace,
        trace_sha256: Sha256::of(text.as_bytes()),
        trace_rows: trace::ROWS,
        rows: rows::rows(),
        build: Build { package: "demo-replay".to_owned(), ..Build::default() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_named_on_the_command_line() {
        for fault in Fault::ALL {
            assert_eq!(fault.to_string().parse(), Ok(fault));
        }
        let error = "slow".parse::<Fault>().expect_err("no such fault").to_string();
        let names = "slower, different, unstable, flood, no-pressure, missing-metric";
        assert_eq!(error, format!("unknown fault \"slow\", expected one of: {names}"));
    }

    #[test]
    fn ids_and_trace_are_the_same_every_time() {
        let (first, second) = (tempfile::tempdir().expect("folder"), tempfile::tempdir().expect("folder"));
        let made = [&first, &second].map(|dir| create(dir.path(), None).expect("made"));
        assert_eq!(made[0].baseline, made[1].baseline);
        assert_eq!(made[0].candidate, made[1].candidate);
        assert_eq!(made[0].trace_sha256, made[1].trace_sha256);
        let again = create(first.path(), None).expect_err("taken");
        assert!(matches!(again, DemoError::Exists { .. }), "{again}");
    }

    #[test]
    fn a_fault_changes_the_candidate_only() {
        let honest = tempfile::tempdir().expect("folder");
        let honest = create(honest.path(), None).expect("made");
        for fault in Fault::ALL {
            let dir = tempfile::tempdir().expect("folder");
            let made = create(dir.path(), Some(fault)).expect("made");
            assert_eq!(made.baseline, honest.baseline, "{fault}");
            assert_ne!(made.candidate, honest.candidate, "{fault}");
            assert_eq!(made.trace_sha256, honest.trace_sha256, "{fault}");
        }
    }
}
