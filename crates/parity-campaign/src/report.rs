//! The campaign's conclusion: one semantic verdict, one performance verdict, and everything they rest on.

use serde::{Deserialize, Serialize};

use crate::context::StageTime;
use crate::definition::{Review, ReviewKind};
use crate::lifecycle::LifecycleRecord;
use crate::record::{
    AppliedPatch, BuildDifference, BuildRecord, ExceptionReport, Growth, MeasureRecord, PerformanceVerdict,
    PinRecord, PlaceRecord, RowNode, RowOutcome, RowRecord, SemanticVerdict,
};

mod markdown;

pub use markdown::{PULL_REQUEST_COMMENT_CHARS, markdown};

/// The schema name of `report.json`.
pub const REPORT_SCHEMA: &str = "kvrp.report.v1";

/// `report.json`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// Always [`REPORT_SCHEMA`].
    #[cfg_attr(feature = "schema", schemars(extend("const" = REPORT_SCHEMA)))]
    pub schema: String,
    /// Version of the tool.
    pub written_by: String,
    /// Name of the campaign.
    pub campaign: String,
    /// Digest of the campaign file.
    pub campaign_sha256: canonical_json::Sha256,
    /// Whether this is a preflight, which decides nothing.
    pub preflight: bool,
    /// The semantic verdict.
    pub semantic: SemanticVerdict,
    /// The performance verdict.
    pub performance: PerformanceVerdict,
    /// Why the campaign must be looked at by a person before its verdicts are used.
    pub stops: Vec<String>,
    /// Labels that go wherever the performance result goes.
    pub labels: Vec<String>,
    /// Largest accepted ratio.
    pub limit_ratio: f64,
    /// First row of the window.
    pub window_offset: u64,
    /// The closed list of exclusions.
    pub exclusions: Vec<String>,
    /// Recorded decisions of a reviewer.
    pub reviews: Vec<Review>,
    /// Those of them that nothing in this campaign asked for, as `kind subject`: stale, or meant for something else.
    pub stale_reviews: Vec<String>,
    /// The pinned revisions.
    pub pin: PinRecord,
    /// The artifacts.
    pub build: BuildRecord,
    /// The window.
    pub slice: mooncake_trace::SliceManifest,
    /// The machine and its CPUs.
    pub place: PlaceRecord,
    /// Where each row was worked off, when each had a job of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<RowNode>,
    /// Semantic outcome of each row.
    pub rows: Vec<RowRecord>,
    /// The forced lifecycles.
    #[serde(default)]
    pub lifecycles: Vec<LifecycleRecord>,
    /// The exception records, and what each was worth.
    pub exceptions: Vec<ExceptionReport>,
    /// Performance outcome of each row.
    pub measurements: Vec<MeasureRecord>,
    /// What was left out, skipped or not covered.
    pub not_covered: Vec<String>,
    /// How many processes worked on the campaign: more than one if it was resumed.
    pub sessions: u64,
    /// How long each stage took, in the last of them.
    pub stages: Vec<StageTime>,
}

/// What a campaign's verdicts mean to a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Conclusion {
    /// Semantic PASS and performance pass.
    Pass,
    /// Semantic FAIL or performance FAIL.
    Fail,
    /// Semantic PASS, and the measurement cannot tell.
    Inconclusive,
    /// A revision does not agree with itself.
    Unstable,
    /// The harness failed.
    TargetFailed,
    /// A person must decide.
    StopForReview,
}

impl Report {
    /// The one conclusion, the gravest first: what a person must decide, then a broken harness, then instability, then
    /// the two verdicts.
    #[must_use]
    pub fn conclusion(&self) -> Conclusion {
        let any = |test: fn(&RowOutcome) -> bool| self.rows.iter().any(|row| test(&row.outcome));
        if !self.stops.is_empty() || any(|outcome| matches!(outcome, RowOutcome::StopForReview { .. })) {
            return Conclusion::StopForReview;
        }
        if any(|outcome| matches!(outcome, RowOutcome::TargetFailed { .. }))
            || self.performance == PerformanceVerdict::Blocked
        {
            return Conclusion::TargetFailed;
        }
        if any(|outcome| matches!(outcome, RowOutcome::Unstable { .. })) {
            return Conclusion::Unstable;
        }
        match (self.semantic, self.performance) {
            (SemanticVerdict::Fail, _) | (_, PerformanceVerdict::Fail) => Conclusion::Fail,
            (_, PerformanceVerdict::Pass) => Conclusion::Pass,
            (SemanticVerdict::Pass | SemanticVerdict::PassWithSemanticExceptions, _) => {
                Conclusion::Inconclusive
            }
        }
    }
}

/// The semantic verdict of a set of rows: PASS needs every row to match, exceptions must cover whatever does not, and every
/// lifecycle must have been forced.
#[must_use]
pub fn semantic_verdict(rows: &[RowRecord], lifecycles: &[LifecycleRecord]) -> SemanticVerdict {
    let matches = |row: &RowRecord| row.outcome == RowOutcome::Match;
    let is_excepted = |row: &RowRecord| matches!(row.outcome, RowOutcome::Excepted { .. });
    match rows {
        [] => SemanticVerdict::Fail,
        _ if !lifecycles.iter().all(LifecycleRecord::is_forced) => SemanticVerdict::Fail,
        rows if rows.iter().all(matches) => SemanticVerdict::Pass,
        rows if rows.iter().all(|row| matches(row) || is_excepted(row)) => {
            SemanticVerdict::PassWithSemanticExceptions
        }
        _ => SemanticVerdict::Fail,
    }
}

/// The performance verdict of a set of rows: the worst one decides, and a row that was not measured is not a pass.
#[must_use]
pub fn performance_verdict(rows: &[MeasureRecord]) -> PerformanceVerdict {
    let has = |verdict| rows.iter().any(|row| row.verdict == verdict);
    if rows.is_empty() || rows.iter().all(|row| row.verdict == PerformanceVerdict::NotMeasured) {
        return PerformanceVerdict::NotMeasured;
    }
    let by_weight = [PerformanceVerdict::Fail, PerformanceVerdict::Blocked, PerformanceVerdict::Inconclusive];
    let worst = by_weight.into_iter().find(|verdict| has(*verdict));
    let incomplete = has(PerformanceVerdict::NotMeasured).then_some(PerformanceVerdict::Inconclusive);
    worst.or(incomplete).unwrap_or(PerformanceVerdict::Pass)
}

/// The reviews that lift nothing: no report states the exclusion, or nothing grew beyond `max_growth`.
pub(crate) fn stale_reviews(
    reviews: &[Review],
    growth: Growth,
    max_growth: f64,
    patches: &[AppliedPatch],
    differences: &[BuildDifference],
    rows: &[RowRecord],
) -> Vec<String> {
    let is_stated = |pointer: &str| {
        let sides = rows.iter().flat_map(|row| [&row.coverage.baseline, &row.coverage.candidate]);
        sides.flatten().any(|coverage| coverage.exclusions.additions.iter().any(|added| added == pointer))
    };
    let is_used = |review: &&Review| match (review.kind, review.subject.as_str()) {
        (ReviewKind::Exclusion, pointer) => is_stated(pointer),
        (ReviewKind::Growth, "size") => growth.size_ratio > max_growth,
        (ReviewKind::Growth, "text") => growth.text_ratio > max_growth,
        (ReviewKind::Growth, _) => false,
        (ReviewKind::Build, subject) => differences.iter().any(|difference| difference.subject == subject),
        (ReviewKind::Patch, name) => patches.iter().any(|patch| patch.file == name),
    };
    let stale = reviews.iter().filter(|review| !is_used(review));
    stale.map(|review| format!("{} {}", review.kind.as_str(), review.subject)).collect()
}

#[cfg(test)]
mod tests;
