//! What each stage leaves in the bundle. Stored types are apart from working types, so that a change of ours shows up
//! as a change of the format. docs/FORMAT.md describes every file and key.

use std::collections::BTreeMap;

use crate::exception::ExceptionRecord;
use canonical_json::{DiffGroup, Sha256};
use paired_stats::Judgement;
use serde::{Deserialize, Serialize};

use crate::coverage::{Coverage, Drift};
use crate::definition::{PatchKind, PatchTarget};
use crate::divergence::Divergence;
use crate::executor::job_id::JobId;
use crate::profile::Profile;
use crate::stage::Stage;

/// Which of the two revisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// The revision compared against.
    Baseline,
    /// The revision that must prove itself.
    Candidate,
}

impl Side {
    /// Both, baseline first.
    pub const BOTH: [Side; 2] = [Side::Baseline, Side::Candidate];

    /// The name used in files and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Side::Baseline => "baseline",
            Side::Candidate => "candidate",
        }
    }

    /// One letter, so that paths of both arms are equally long (M13).
    #[must_use]
    pub const fn letter(self) -> &'static str {
        match self {
            Side::Baseline => "b",
            Side::Candidate => "c",
        }
    }
}

/// A value for each revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Both<T> {
    /// The baseline's.
    pub baseline: T,
    /// The candidate's.
    pub candidate: T,
}

impl<T> Both<T> {
    /// The value of one side.
    pub fn get(&self, side: Side) -> &T {
        match side {
            Side::Baseline => &self.baseline,
            Side::Candidate => &self.candidate,
        }
    }

    /// Makes one value per side.
    pub(crate) fn try_make<E>(mut make: impl FnMut(Side) -> Result<T, E>) -> Result<Self, E> {
        Ok(Both { baseline: make(Side::Baseline)?, candidate: make(Side::Candidate)? })
    }
}

/// `records/pin.json`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PinRecord {
    /// The commits.
    pub revisions: Both<PinnedRevision>,
    /// How the baseline relates to the candidate in the repository's history.
    pub ancestry: String,
    /// The relationship stated in the campaign file.
    pub stated: Option<String>,
    /// Patches applied, kept out of the semantic delta.
    pub patches: Vec<AppliedPatch>,
}

/// One commit.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PinnedRevision {
    /// Full id.
    pub commit: String,
    /// Its tree.
    pub tree: String,
    /// Name from the campaign file.
    pub label: String,
}

/// One patch.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AppliedPatch {
    /// Determinism or timing boundary.
    pub kind: PatchKind,
    /// Which revision got it.
    pub revision: PatchTarget,
    /// Base name of the file.
    pub file: String,
    /// Digest of the file.
    pub sha256: Sha256,
}

/// `records/build.json`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BuildRecord {
    /// One artifact per revision, with everything its build recorded.
    pub artifacts: Both<ArtifactRecord>,
    /// Growth of candidate over baseline.
    pub growth: Growth,
    /// Whether both artifacts are the same bytes.
    pub equal_artifacts: bool,
    /// What is not the same about how they were built; a review explains each.
    #[serde(default)]
    pub differences: Vec<BuildDifference>,
}

/// The two revisions were not built in one way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BuildDifference {
    /// `profile`, `features` or `toolchain`.
    pub subject: String,
    /// How the baseline is built.
    pub baseline: String,
    /// How the candidate is built.
    pub candidate: String,
}

/// One artifact.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ArtifactRecord {
    /// Digest of the executable.
    pub sha256: Sha256,
    /// Its size.
    pub bytes: u64,
    /// Size of its `.text`.
    pub text_bytes: u64,
    /// Explicit features.
    pub features: Vec<String>,
    /// How long the build took.
    pub wall_ms: u64,
    /// What revision-pin recorded: command line, toolchain, environment, configuration files, seeded units.
    #[cfg_attr(feature = "schema", schemars(with = "serde_json::Map<String, serde_json::Value>"))]
    pub details: serde_json::Value,
}

impl ArtifactRecord {
    /// Whether an earlier campaign built it of exactly the same and nothing was compiled now.
    #[must_use]
    pub fn is_taken_over(&self) -> bool {
        self.details.get("taken_over").and_then(serde_json::Value::as_bool) == Some(true)
    }
}

/// Growth as a ratio: 0.05 is five per cent larger.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Growth {
    /// Of the file.
    pub size_ratio: f64,
    /// Of `.text`.
    pub text_ratio: f64,
}

/// `records/place.json`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlaceRecord {
    /// The machine, without its name.
    #[cfg_attr(feature = "schema", schemars(with = "cpu_placement::HostRecord"))]
    pub host: serde_json::Value,
    /// The plan, as cpu-placement made it.
    #[cfg_attr(feature = "schema", schemars(with = "cpu_placement::Plan"))]
    pub plan: serde_json::Value,
    /// CPU list of each concurrent correctness process.
    pub correctness_cpus: Vec<String>,
    /// CPU list of every measured process, the same for both arms.
    pub measured_cpus: String,
    /// What a reader must know about the plan.
    pub notes: Vec<String>,
}

/// `records/node-ROW.json`: where a row was worked off, when that was in a job of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RowNode {
    /// The row.
    pub row: String,
    /// The scheduler's name of the job.
    pub job_id: JobId,
    /// How often the scheduler had put the job back into its queue.
    pub restart: u32,
    /// The scheduler's name of the node; not in a report, which names no host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The machine and its CPUs, planned inside what the job was given.
    pub place: PlaceRecord,
}

/// One start of the harness for a correctness repetition: a journal record of kind `repetition`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RepetitionRecord {
    /// The row.
    pub row: String,
    /// The revision.
    pub side: Side,
    /// 1 or 2.
    pub repetition: u32,
    /// The CPUs it was given.
    pub cpus: String,
    /// The arguments, with paths relative to its folder.
    pub arguments: Vec<String>,
    /// How it ended and what it used, as cpu-placement saw it.
    #[cfg_attr(feature = "schema", schemars(with = "cpu_placement::Finished"))]
    pub finished: serde_json::Value,
    /// The report it wrote.
    pub report: Option<ReportFile>,
    /// The timing record it wrote, as text.
    pub timing: Option<String>,
    /// Why this attempt does not count.
    pub fault: Option<String>,
}

/// A report as the harness wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReportFile {
    /// Digest of the file.
    pub sha256: Sha256,
    /// Its size.
    pub bytes: u64,
}

/// `records/row-NAME.json`: everything about a row up to its semantic outcome.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RowRecord {
    /// The row.
    pub row: String,
    /// The frozen options as given to the harness.
    pub options: Vec<String>,
    /// Canonical digests of each repetition.
    pub digests: Both<Vec<CanonicalDigest>>,
    /// Whether each revision agrees with itself.
    pub stable: Both<bool>,
    /// Whether the revisions agree.
    pub equal: bool,
    /// What each revision exercised.
    pub coverage: Both<Option<Coverage>>,
    /// The first differences, when something differs.
    pub difference: Option<DifferenceRecord>,
    /// Counters of the baseline that are not those of the row's golden seed.
    pub drift: Vec<Drift>,
    /// What exception records cover of a difference between the revisions, where the campaign has records.
    pub classification: Option<Classification>,
    /// The conclusion.
    pub outcome: RowOutcome,
}

/// The differences of one row, held against the exception records.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Classification {
    /// The records that speak of this row.
    pub records: Vec<ExceptionUse>,
    /// How many differences no record covers.
    pub uncovered_total: u64,
    /// These by shape.
    pub uncovered: Vec<DiffGroup>,
}

/// What one exception record does for one row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExceptionUse {
    /// The record.
    pub name: String,
    /// How many differences it covers.
    pub covers: u64,
    /// Its patterns that are wider than what differs.
    pub over_broad: Vec<String>,
}

/// `exception.test` in the journal: the regression test of a record in one checkout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TestRun {
    /// The exception record.
    pub record: String,
    /// The checkout.
    pub side: Side,
    /// How it ended.
    pub end: TestEnd,
}

/// How a regression test ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum TestEnd {
    /// Status 0.
    Passed,
    /// Another status.
    Failed,
    /// Nothing was tested: not started, not prepared, or not finished in time.
    NotRun {
        /// Why.
        why: String,
    },
}

impl std::fmt::Display for TestEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TestEnd::Passed => f.write_str("passed"),
            TestEnd::Failed => f.write_str("failed"),
            TestEnd::NotRun { why } => write!(f, "not run: {why}"),
        }
    }
}

/// An exception record and what it was worth in a campaign.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExceptionReport {
    /// The record.
    pub record: ExceptionRecord,
    /// Digest of its file.
    pub sha256: Sha256,
    /// Rows with a difference that it covers; none makes it stale.
    pub rows: Vec<String>,
    /// Its regression test in both checkouts; run only when it covers something.
    pub tests: Option<Both<TestEnd>>,
}

/// `canonical` in the journal: the digest of one repetition's report. Every digest ever taken of a row counts: a repetition
/// that disagreed is not undone by a process that starts again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CanonicalRecord {
    /// The row.
    pub row: String,
    /// The revision.
    pub side: Side,
    /// 1 or 2.
    pub repetition: u32,
    /// The digest.
    pub digest: CanonicalDigest,
}

/// One canonical digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CanonicalDigest {
    /// Digest of the canonical form.
    pub sha256: Sha256,
    /// Length of the canonical form.
    pub bytes: u64,
    /// Which exclusions were present in the report.
    pub excluded_present: Vec<String>,
}

/// Two reports that differ.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DifferenceRecord {
    /// What was compared: `baseline with itself`, `candidate with itself`, `baseline with candidate`.
    pub between: String,
    /// How many values differ.
    pub total: u64,
    /// Differences grouped by shape.
    pub groups: Vec<DiffGroup>,
    /// Whether the list was cut.
    pub truncated: bool,
    /// The first divergence in virtual time.
    pub first_divergence: Option<Divergence>,
    /// The full reports kept in the bundle.
    pub kept: Vec<String>,
}

/// The semantic outcome of a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum RowOutcome {
    /// Equal digests, and both revisions exercised what the row claims.
    Match,
    /// The digests differ and nothing explains it.
    Differs,
    /// The digests differ, and proved exception records cover every difference.
    Excepted {
        /// The records.
        records: Vec<String>,
    },
    /// A revision does not agree with itself.
    Unstable {
        /// Which.
        sides: Vec<Side>,
    },
    /// Something the row claims was not exercised.
    Unqualified {
        /// The failed items: `side: item: why`.
        items: Vec<String>,
    },
    /// The harness crashed, hung or wrote something malformed.
    TargetFailed {
        /// What happened.
        fault: String,
    },
    /// A reviewer must decide.
    StopForReview {
        /// What must be decided.
        reason: String,
    },
}

/// What the measuring stage may do with a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Measurable {
    /// Parity holds; the result is a parity verdict.
    Yes,
    /// The digests differ and the campaign asks for the measurement all the same (M12).
    UnequalWork,
    /// It is not measured.
    No {
        /// Why.
        reason: String,
    },
}

/// `records/measure-NAME.json`: the outcome of one row's measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MeasureRecord {
    /// The row.
    pub row: String,
    /// The metric's name.
    pub metric: String,
    /// Labels that go wherever the result goes.
    pub labels: Vec<String>,
    /// The verdict.
    pub verdict: PerformanceVerdict,
    /// Every reason for it.
    pub reasons: Vec<String>,
    /// Everything the verdict rests on: bounds, ranks, coverage, diagnostics, numbers for readers.
    pub judgement: Option<Judgement>,
    /// Median of each arm, in milliseconds.
    pub median_ms: Option<Both<f64>>,
    /// Median ratio with its one-sided bounds.
    pub ratio: Option<RatioBounds>,
    /// Attempts by kind.
    pub attempts: BTreeMap<String, u64>,
    /// How long the row took.
    pub wall_ms: u64,
    /// Where the arms differ, when both were profiled after the measurement (M11).
    #[serde(default)]
    pub profile: Option<Profile>,
}

/// A median ratio with its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RatioBounds {
    /// One-sided lower bound.
    pub lower: Option<f64>,
    /// Sample median.
    pub median: f64,
    /// One-sided upper bound.
    pub upper: Option<f64>,
    /// Rank of the lower bound, from 1.
    pub lower_rank: Option<u64>,
    /// Rank of the upper bound, from 1.
    pub upper_rank: Option<u64>,
    /// Confidence that each bound reaches at least.
    pub confidence: f64,
    /// Pairs.
    pub pairs: u64,
}

/// The performance verdict of a row or a campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PerformanceVerdict {
    /// The upper bound is within the limit.
    Pass,
    /// The lower bound is beyond the limit.
    Fail,
    /// The measurement cannot tell.
    Inconclusive,
    /// The harness failed while it was measured.
    Blocked,
    /// It was not measured.
    NotMeasured,
}

impl PerformanceVerdict {
    /// The word used in reports.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            PerformanceVerdict::Pass => "pass",
            PerformanceVerdict::Fail => "FAIL",
            PerformanceVerdict::Inconclusive => "INCONCLUSIVE",
            PerformanceVerdict::Blocked => "BLOCKED",
            PerformanceVerdict::NotMeasured => "not measured",
        }
    }
}

/// The semantic verdict of a campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum SemanticVerdict {
    /// All authoritative canonical outputs match and every row proved its coverage.
    Pass,
    /// Every mismatch is covered by an exception record whose regression test failed on the baseline and passed on the
    /// candidate.
    PassWithSemanticExceptions,
    /// An unexplained mismatch, missing evidence, an unstable revision or an open review.
    Fail,
}

impl SemanticVerdict {
    /// The word used in reports.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            SemanticVerdict::Pass => "PASS",
            SemanticVerdict::PassWithSemanticExceptions => "PASS_WITH_SEMANTIC_EXCEPTIONS",
            SemanticVerdict::Fail => "FAIL",
        }
    }
}

/// `campaign.failed` in the journal: why a process could not go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FailureRecord {
    /// In which stage.
    pub stage: Stage,
    /// The row it was about, if one.
    pub row: Option<String>,
    /// What happened, without paths of the machine.
    pub why: String,
}

/// `cleanup` in the journal: what became of everything that one process of the campaign made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CleanupRecord {
    /// All of it; the bundle's own files only where they are full outputs.
    pub made: Vec<CleanedUp>,
}

/// Something that a campaign made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CleanedUp {
    /// Where: relative to the bundle, or below a folder named in braces.
    pub path: String,
    /// What it is.
    pub what: String,
    /// What became of it.
    pub fate: Fate,
}

/// What became of something that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Fate {
    /// It was only needed on the way.
    Removed,
    /// It is still there.
    Kept {
        /// Why.
        why: String,
    },
}
