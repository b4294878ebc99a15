//! canonicalise, compare, qualify and classify, for one row: from report files to a semantic outcome.

use std::fs;

use canonical_json::{CanonicalError, DiffLimits, Exclusion, Rules, Unordered, diff, digest};

use crate::canonical_report::ReportError;
use crate::context::Context;
use crate::coverage::{CounterValue, Coverage, Expectation, WorkloadTotals};
use crate::definition::{Canonical, Definition, Row};
use crate::divergence::first_divergence;
use crate::error::{At, CampaignError, Cause, with_causes};
use crate::harness::row_options;
use crate::record::{
    Both, CanonicalDigest, CanonicalRecord, DifferenceRecord, RepetitionRecord, RowOutcome, RowRecord, Side,
};
use crate::stage::Stage;
use crate::stage::classify::{Proofs, classify};
use crate::stage::run::{REPETITION_KIND, Repetition};

/// The canonical form of the definition. Every exclusion is optional: a report that the harness already canonicalised
/// lacks the excluded fields.
pub(crate) fn rules(canonical: &Canonical) -> Result<Rules, CampaignError> {
    let mut rules = Rules::default();
    for text in &canonical.exclusions {
        let pattern = text.parse().at(Stage::Canonicalise, Cause::BadInput)?;
        rules.exclusions.push(Exclusion { pattern, required: false });
    }
    for collection in &canonical.unordered {
        let at = collection.at.parse().at(Stage::Canonicalise, Cause::BadInput)?;
        let by = collection.by.parse().at(Stage::Canonicalise, Cause::BadInput)?;
        rules.unordered.push(Unordered { at, by });
    }
    Ok(rules)
}

/// One report with its digest.
struct Canonicalised<'a> {
    repetition: &'a Repetition,
    bytes: Vec<u8>,
    digest: CanonicalDigest,
}

pub(crate) fn judge(
    context: &mut Context<'_>,
    row: &Row,
    repetitions: &[Repetition],
    totals: WorkloadTotals,
    proofs: &mut Proofs,
) -> Result<RowRecord, CampaignError> {
    // What an earlier process saw of this row is not undone by starting again (D4, M8).
    let earlier = Seen::of(context, row)?;
    let fault = earlier.fault.clone();
    if let Some(fault) = fault.or_else(|| repetitions.iter().find_map(target_fault)) {
        return finish(context, row, RowRecord::failed(context.definition(), row, fault));
    }
    let rules = rules(&context.definition().canonical)?;
    let reports = context.timed(Stage::Canonicalise, |_| canonicalise(repetitions, &rules, row))?;
    let reports = match reports {
        Ok(reports) => reports,
        Err(fault) => return finish(context, row, RowRecord::failed(context.definition(), row, fault)),
    };
    for report in &reports {
        let Repetition { side, number, .. } = *report.repetition;
        let digest = report.digest.clone();
        let record = CanonicalRecord { row: row.name.clone(), side, repetition: number, digest };
        context.append(Stage::Canonicalise, CANONICAL_KIND, &record)?;
    }
    let mut record =
        context.timed(Stage::Compare, |context| compare(context, row, &reports, &earlier, &rules))?;
    context.timed(Stage::Qualify, |context| {
        qualify(context.definition(), row, &reports, totals, &mut record);
        Ok(())
    })?;
    if record.outcome == RowOutcome::Differs && !context.exceptions.is_empty() {
        let [left, right] = [Side::Baseline, Side::Candidate].map(|side| of(&reports, side));
        if let ([left, ..], [right, ..]) = (left.as_slice(), right.as_slice()) {
            let texts = [left.bytes.as_slice(), right.bytes.as_slice()];
            context
                .timed(Stage::Classify, |context| classify(context, proofs, &mut record, texts, &rules))?;
        }
    }
    finish(context, row, record)
}

/// The journal's kind of a [`CanonicalRecord`].
pub(crate) const CANONICAL_KIND: &str = "canonical";

/// What earlier processes recorded of a row that they did not finish.
struct Seen {
    digests: Both<Vec<CanonicalDigest>>,
    fault: Option<String>,
}

impl Seen {
    fn of(context: &Context<'_>, row: &Row) -> Result<Self, CampaignError> {
        let mut seen = Seen { digests: Both { baseline: Vec::new(), candidate: Vec::new() }, fault: None };
        let Some(earlier) = &context.earlier else { return Ok(seen) };
        let repetitions: Vec<RepetitionRecord> = earlier.payloads(REPETITION_KIND)?;
        seen.fault = fault_of(&repetitions, &row.name);
        seen.digests = digests_of(earlier.payloads(CANONICAL_KIND)?, &row.name);
        Ok(seen)
    }
}

/// The first fault of any repetition of a row.
pub(crate) fn fault_of(repetitions: &[RepetitionRecord], row: &str) -> Option<String> {
    repetitions.iter().filter(|record| record.row == row).find_map(|record| {
        let fault = record.fault.as_ref()?;
        Some(format!("{} repetition {}: {fault}", record.side.name(), record.repetition))
    })
}

/// Every digest that was taken of a row, in order.
pub(crate) fn digests_of(records: Vec<CanonicalRecord>, row: &str) -> Both<Vec<CanonicalDigest>> {
    let mut digests = Both { baseline: Vec::new(), candidate: Vec::new() };
    for record in records.into_iter().filter(|record| record.row == row) {
        match record.side {
            Side::Baseline => digests.baseline.push(record.digest),
            Side::Candidate => digests.candidate.push(record.digest),
        }
    }
    digests
}

/// Where the record of a row is.
pub(crate) fn record_path(row: &Row) -> String {
    format!("records/row-{}.json", row.name)
}

fn finish(context: &mut Context<'_>, row: &Row, record: RowRecord) -> Result<RowRecord, CampaignError> {
    context.timed(Stage::Classify, |context| {
        context.record(Stage::Classify, &record_path(row), &record)?;
        let folder = context.work.join("runs").join(&row.name);
        // Matching reports have done their duty (B3); differing ones were copied into the bundle.
        fs::remove_dir_all(&folder).at(Stage::Classify, Cause::HostUnfit)?;
        Ok(record)
    })
}

/// `row, side, repetition: what went wrong`, for a repetition that does not count.
fn target_fault(repetition: &Repetition) -> Option<String> {
    let fault = repetition.record.fault.as_ref()?;
    Some(format!("{} repetition {}: {fault}", repetition.side.name(), repetition.number))
}

type Faulty<T> = Result<T, String>;

fn canonicalise<'a>(
    repetitions: &'a [Repetition],
    rules: &Rules,
    row: &Row,
) -> Result<Faulty<Vec<Canonicalised<'a>>>, CampaignError> {
    let mut reports = Vec::with_capacity(repetitions.len());
    for repetition in repetitions {
        let mut bytes = fs::read(&repetition.report)
            .at(Stage::Canonicalise, Cause::HostUnfit)
            .map_err(|error| error.in_row(&row.name))?;
        match canonical_digest(&mut bytes, rules) {
            Ok(digest) => reports.push(Canonicalised { repetition, bytes, digest }),
            Err(error) => {
                let fault = malformed(repetition, &error);
                return Ok(Err(fault));
            }
        }
    }
    Ok(Ok(reports))
}

/// The file is one line; what the harness put after it is trailing text and an error of the reader.
pub(crate) fn canonical_digest(
    bytes: &mut Vec<u8>,
    rules: &Rules,
) -> Result<CanonicalDigest, CanonicalError> {
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    let digested = digest(bytes, rules)?;
    let excluded_present = digested.excluded_present.iter().map(ToString::to_string).collect();
    Ok(CanonicalDigest { sha256: digested.sha256, bytes: digested.bytes, excluded_present })
}

fn malformed(repetition: &Repetition, error: &(dyn std::error::Error + 'static)) -> String {
    let (side, number) = (repetition.side.name(), repetition.number);
    format!("{side} repetition {number}: the report is malformed: {}", with_causes(error))
}

fn of<'r, 'a>(reports: &'r [Canonicalised<'a>], side: Side) -> Vec<&'r Canonicalised<'a>> {
    reports.iter().filter(|report| report.repetition.side == side).collect()
}

fn compare(
    context: &Context<'_>,
    row: &Row,
    reports: &[Canonicalised<'_>],
    earlier: &Seen,
    rules: &Rules,
) -> Result<RowRecord, CampaignError> {
    let sides = Both { baseline: of(reports, Side::Baseline), candidate: of(reports, Side::Candidate) };
    let stable = Both { baseline: all_equal(&sides.baseline), candidate: all_equal(&sides.candidate) };
    let equal = all_equal(&reports.iter().collect::<Vec<_>>());
    let pair = differing_pair(&sides, &stable, equal);
    let digests = |side: Side| {
        let now = sides.get(side).iter().map(|report| report.digest.clone());
        earlier.digests.get(side).iter().cloned().chain(now).collect::<Vec<_>>()
    };
    let digests = Both { baseline: digests(Side::Baseline), candidate: digests(Side::Candidate) };
    let (stable, equal) = agreement(&digests);
    let difference = match pair {
        Some((between, left, right)) => Some(describe_difference(context, row, between, left, right, rules)?),
        None => None,
    };
    let outcome = outcome_of_digests(&stable, equal);
    Ok(RowRecord {
        row: row.name.clone(),
        options: options(context.definition(), row),
        digests,
        stable,
        equal,
        coverage: Both { baseline: None, candidate: None },
        difference,
        drift: Vec::new(),
        classification: None,
        outcome,
    })
}

/// What the digests alone say (D4, B2).
fn outcome_of_digests(stable: &Both<bool>, equal: bool) -> RowOutcome {
    let unstable: Vec<Side> = Side::BOTH.into_iter().filter(|side| !stable.get(*side)).collect();
    match (unstable.is_empty(), equal) {
        (false, _) => RowOutcome::Unstable { sides: unstable },
        (true, true) => RowOutcome::Match,
        (true, false) => RowOutcome::Differs,
    }
}

/// The outcome of a row, from its digests and coverage alone; `None` when a report could not be read, which the record
/// says and nothing in it can prove.
pub(crate) fn outcome_from_evidence(record: &RowRecord) -> Option<RowOutcome> {
    if Side::BOTH.into_iter().any(|side| record.digests.get(side).is_empty()) {
        return None;
    }
    let (stable, equal) = agreement(&record.digests);
    let mut findings = Findings::default();
    for side in Side::BOTH {
        findings.note(side, record.coverage.get(side).as_ref()?);
    }
    let by_digests = outcome_of_digests(&stable, equal);
    Some(findings.outcome(&by_digests).unwrap_or(by_digests))
}

/// Whether each revision agrees with itself, and whether both do with each other.
pub(crate) fn agreement(digests: &Both<Vec<CanonicalDigest>>) -> (Both<bool>, bool) {
    let same = |digests: &[CanonicalDigest]| digests.windows(2).all(|two| two[0].sha256 == two[1].sha256);
    let stable = Both { baseline: same(&digests.baseline), candidate: same(&digests.candidate) };
    let all: Vec<CanonicalDigest> = digests.baseline.iter().chain(&digests.candidate).cloned().collect();
    (stable, same(&all))
}

/// What a row and its window promise.
pub(crate) fn expectation<'a>(
    definition: &'a Definition,
    row: &'a Row,
    totals: WorkloadTotals,
) -> Expectation<'a> {
    Expectation::new(row, totals)
        .with_reviewed_exclusions(definition.reviewed_exclusions())
        .with_replay(definition.replay.arrival_speedup_ratio, u64::from(definition.trace.block_size.get()))
}

/// The options that a row is run with, as words.
pub(crate) fn options(definition: &Definition, row: &Row) -> Vec<String> {
    row_options(definition, row).into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect()
}

fn all_equal(reports: &[&Canonicalised<'_>]) -> bool {
    reports.windows(2).all(|pair| pair[0].digest.sha256 == pair[1].digest.sha256)
}

/// The two reports whose difference explains the most: an unstable revision against itself, before anything else.
fn differing_pair<'r, 'a>(
    sides: &Both<Vec<&'r Canonicalised<'a>>>,
    stable: &Both<bool>,
    equal: bool,
) -> Option<(&'static str, &'r Canonicalised<'a>, &'r Canonicalised<'a>)> {
    let pick = |label, left: &[&'r Canonicalised<'a>], right: &[&'r Canonicalised<'a>]| {
        Some((label, *left.first()?, *right.last()?))
    };
    match (stable.baseline, stable.candidate, equal) {
        (_, _, true) => None,
        (false, _, _) => pick("baseline with itself", &sides.baseline, &sides.baseline),
        (true, false, _) => pick("candidate with itself", &sides.candidate, &sides.candidate),
        // Both agree with themselves, so the first of each stands for all: coverage is taken from it.
        (true, true, false) => {
            Some(("baseline with candidate", *sides.baseline.first()?, *sides.candidate.first()?))
        }
    }
}

fn describe_difference(
    context: &Context<'_>,
    row: &Row,
    between: &str,
    left: &Canonicalised<'_>,
    right: &Canonicalised<'_>,
    rules: &Rules,
) -> Result<DifferenceRecord, CampaignError> {
    let difference = diff(&left.bytes, &right.bytes, rules, &DiffLimits::default())
        .at(Stage::Compare, Cause::TargetFailed)
        .map_err(|error| error.in_row(&row.name))?;
    let mut kept = Vec::new();
    for report in [left, right] {
        let (side, number) = (report.repetition.side, report.repetition.number);
        let path = format!("reports/{}-{}-{number}.json", row.name, side.name());
        context.write_file(Stage::Compare, &path, &report.bytes)?;
        kept.push(path);
    }
    let first_divergence =
        first_divergence(&left.bytes, &right.bytes).at(Stage::Compare, Cause::TargetFailed)?;
    Ok(DifferenceRecord {
        between: between.to_owned(),
        total: difference.total,
        groups: difference.groups,
        truncated: difference.truncated,
        first_divergence,
        kept,
    })
}

/// Proves the coverage of each revision and lets it change the outcome: a row that does not qualify never matches.
fn qualify(
    definition: &Definition,
    row: &Row,
    reports: &[Canonicalised<'_>],
    totals: WorkloadTotals,
    record: &mut RowRecord,
) {
    let expectation = expectation(definition, row, totals);
    let mut findings = Findings::default();
    let mut checked = Side::BOTH.map(|side| {
        let report = of(reports, side).into_iter().next()?;
        findings.take(side, Coverage::check(&report.bytes, &expectation))
    });
    if let Some(baseline) = &checked[0] {
        let seed = row.expected.iter().map(|(name, count)| (name.as_str(), CounterValue::Count(*count)));
        record.drift = baseline.drift(seed);
    }
    record.coverage = Both { baseline: checked[0].take(), candidate: checked[1].take() };
    if let Some(outcome) = findings.outcome(&record.outcome) {
        record.outcome = outcome;
    }
}

/// What qualification found against a row.
#[derive(Default)]
struct Findings {
    failed: Vec<String>,
    reviews: Vec<String>,
    malformed: Vec<String>,
}

impl Findings {
    fn take(&mut self, side: Side, coverage: Result<Coverage, ReportError>) -> Option<Coverage> {
        match coverage {
            Ok(coverage) => {
                self.note(side, &coverage);
                Some(coverage)
            }
            Err(error @ ReportError::ProtocolNeedsUpdating { .. }) => {
                self.reviews.push(format!("{}: {error}", side.name()));
                None
            }
            Err(error) => {
                self.malformed.push(format!("{}: {error}", side.name()));
                None
            }
        }
    }

    fn note(&mut self, side: Side, coverage: &Coverage) {
        let name = side.name();
        self.failed.extend(coverage.failures().map(|(id, finding)| format!("{name}: {id}: {finding}")));
        self.reviews.extend(coverage.reviews().map(|(id, finding)| format!("{name}: {id}: {finding}")));
    }

    /// A stop for review outranks everything: what it asks may explain the rest. Instability outranks coverage, since
    /// coverage of one repetition says nothing about the other.
    fn outcome(self, so_far: &RowOutcome) -> Option<RowOutcome> {
        if let Some(fault) = self.malformed.into_iter().next() {
            return Some(RowOutcome::TargetFailed { fault });
        }
        if !self.reviews.is_empty() {
            return Some(RowOutcome::StopForReview { reason: self.reviews.join("; ") });
        }
        if self.failed.is_empty() || matches!(so_far, RowOutcome::Unstable { .. }) {
            return None;
        }
        Some(RowOutcome::Unqualified { items: self.failed })
    }
}

impl RowRecord {
    /// A row whose harness failed: there is nothing to compare.
    fn failed(definition: &Definition, row: &Row, fault: String) -> Self {
        RowRecord {
            row: row.name.clone(),
            options: options(definition, row),
            digests: Both { baseline: Vec::new(), candidate: Vec::new() },
            stable: Both { baseline: false, candidate: false },
            equal: false,
            coverage: Both { baseline: None, candidate: None },
            difference: None,
            drift: Vec::new(),
            classification: None,
            outcome: RowOutcome::TargetFailed { fault },
        }
    }
}

#[cfg(test)]
mod tests;
