//! The verdicts once more, from a bundle alone: no repository, no harness, no machine of that kind (R3).
//!
//! Whether the bundle is whole and unaltered is another question, which [`evidence::verify`] answers. This one reads what was
//! recorded on the way (digests, coverage, every attempt of the measurement, reports that were kept) and holds each conclusion
//! in `report.json` against what follows from it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use canonical_json::{DiffLimits, Rules, Sha256, diff};
use cpu_placement::CancelToken;
use evidence::Record;
use paired_run::{Attempt, BoxError, Event, Execution, Executor, PairedRun, RunOutcome, events_of};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::campaign::{all_labels, asked_for, exception_reports, labels, measurable, not_covered};
use crate::coverage::{Coverage, WorkloadTotals};
use crate::definition::{CampaignFile, Definition, DefinitionError, Row};
use crate::error::with_causes;
use crate::exception::Exception;
use crate::executor::job_id::JobId;
use crate::executor::merge::{ATTEMPT, AttemptRecord, node_path};
use crate::lifecycle::LifecycleRecord;
use crate::record::{
    Measurable, MeasureRecord, PerformanceVerdict, RepetitionRecord, RowNode, RowOutcome, RowRecord,
    SemanticVerdict, Side,
};
use crate::report::{Report, markdown, performance_verdict, semantic_verdict, stale_reviews};
use crate::stage::build::{growth_of, growth_stops};
use crate::stage::classify::{self, Proofs, TEST_KIND, cover, pair_up};
use crate::stage::judge::{
    CANONICAL_KIND, agreement, canonical_digest, digests_of, expectation, fault_of, options,
    outcome_from_evidence, rules,
};
use crate::stage::measure::{judged, not_measured};
use crate::stage::run::{REPETITION_KIND, metric_missing};

mod judgement;
mod lifecycle;
mod profile;

use lifecycle::kept_reports;

/// What follows from a bundle's evidence.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Recomputed {
    /// The semantic verdict that follows from the rows.
    pub semantic: SemanticVerdict,
    /// The performance verdict that follows from the measurements.
    pub performance: PerformanceVerdict,
    /// Labels that go wherever these verdicts go.
    pub labels: Vec<String>,
    /// Why a person must look at the campaign before its verdicts are used.
    pub stops: Vec<String>,
    /// Conclusions of the bundle that do not follow from its evidence.
    pub disagreements: Vec<String>,
    /// What had to be taken as it was recorded, because what it rests on was not kept.
    pub taken_as_recorded: Vec<String>,
}

impl Recomputed {
    /// Whether everything that could be computed again came out the same.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.disagreements.is_empty()
    }
}

/// Why a bundle cannot be computed again at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecomputeError {
    /// A file cannot be read.
    #[error("read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A file is not what its name says.
    #[error("read {} as {what}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What it should be.
        what: &'static str,
        /// The cause.
        source: serde_json::Error,
    },
    /// The campaign file in the bundle is not valid.
    #[error("read the campaign file of the bundle")]
    Definition(#[from] DefinitionError),
    /// The journal cannot be read.
    #[error("read the journal")]
    Journal(#[from] evidence::JournalError),
}

/// Computes every verdict of a finished campaign again.
///
/// # Errors
///
/// [`RecomputeError`] when a file that every finished campaign has is absent or is something else.
pub fn recompute(dir: &Path) -> Result<Recomputed, RecomputeError> {
    let report = read_report(dir)?;
    let file = CampaignFile::read(&dir.join("campaign.toml"))?;
    let journal = evidence::read_journal(dir)?;
    let mut check = Check {
        dir,
        file: &file,
        report: &report,
        journal: &journal.records,
        exceptions: Vec::new(),
        proofs: Proofs::new(),
        repetitions: Vec::new(),
        found: Found::default(),
    };
    check.repetitions = check.payloads(REPETITION_KIND);
    check.exceptions();
    check.records()?;
    check.rows()?;
    check.lifecycles()?;
    check.stray_reports()?;
    check.stops();
    check.measurements();
    check.conclusions()?;
    let Found { disagreements, taken_as_recorded, measurements, rows, lifecycles } = check.found;
    Ok(Recomputed {
        semantic: semantic_verdict(&rows, &lifecycles),
        performance: performance_verdict(&asked_for(&file.definition, &measurements)),
        labels: report.labels.clone(),
        stops: report.stops.clone(),
        disagreements,
        taken_as_recorded,
    })
}

/// The report of a bundle.
///
/// # Errors
///
/// [`RecomputeError`] when there is none, or it is something else.
pub fn read_report(dir: &Path) -> Result<Report, RecomputeError> {
    read(&dir.join("report.json"), "a report")
}

fn bytes(path: &Path) -> Result<Vec<u8>, RecomputeError> {
    fs::read(path).map_err(|source| RecomputeError::Read { path: path.to_path_buf(), source })
}

fn read<T: DeserializeOwned>(path: &Path, what: &'static str) -> Result<T, RecomputeError> {
    serde_json::from_slice(&bytes(path)?).map_err(|source| RecomputeError::Malformed {
        path: path.to_path_buf(),
        what,
        source,
    })
}

/// A record as it is in a file.
fn json(record: &impl Serialize) -> serde_json::Value {
    serde_json::to_value(record).expect("records have text for keys, so nothing in them cannot be JSON")
}

#[derive(Default)]
struct Found {
    disagreements: Vec<String>,
    taken_as_recorded: Vec<String>,
    rows: Vec<RowRecord>,
    measurements: Vec<MeasureRecord>,
    lifecycles: Vec<LifecycleRecord>,
}

struct Check<'a> {
    dir: &'a Path,
    file: &'a CampaignFile,
    report: &'a Report,
    journal: &'a [Record],
    exceptions: Vec<Exception>,
    proofs: Proofs,
    repetitions: Vec<RepetitionRecord>,
    found: Found,
}

impl Check<'_> {
    fn definition(&self) -> &Definition {
        &self.file.definition
    }

    fn disagree(&mut self, what: impl Into<String>) {
        self.found.disagreements.push(what.into());
    }

    /// What the journal's records of one kind say. One that cannot be understood may have said anything.
    fn payloads<T: DeserializeOwned>(&mut self, kind: &str) -> Vec<T> {
        let mut payloads = Vec::new();
        for record in self.journal.iter().filter(|record| record.kind == kind) {
            match record.payload() {
                Ok(payload) => payloads.push(payload),
                Err(error) => self.disagree(with_causes(&error)),
            }
        }
        payloads
    }

    /// Holds `stated` against `computed`; both are compared as what they are in a file.
    fn compare(&mut self, what: &str, stated: &impl Serialize, computed: &impl Serialize) {
        let (stated, computed) = (json(stated), json(computed));
        if stated != computed {
            self.disagree(format!("{what}: the bundle says {stated}, its evidence says {computed}"));
        }
    }

    /// The exception records as frozen, and how their tests ended.
    fn exceptions(&mut self) {
        let stated = self.report.exceptions.iter();
        let named: BTreeMap<Sha256, &str> =
            stated.map(|stated| (stated.sha256, stated.record.name.as_str())).collect();
        for frozen in &self.file.definition.exceptions {
            let name = named.get(&frozen.sha256).copied().unwrap_or("unnamed");
            let path = self.dir.join(format!("inputs/exception-{name}.toml"));
            match Exception::read(&path, frozen.sha256) {
                Ok(exception) => {
                    if let Err(why) = exception.check_unordered(&self.definition().canonical) {
                        self.disagree(why);
                    }
                    self.exceptions.push(exception);
                }
                Err(error) => self.disagree(with_causes(&error)),
            }
        }
        self.proofs = pair_up(self.payloads(TEST_KIND));
    }

    /// The report repeats the records of the stages.
    fn records(&mut self) -> Result<(), RecomputeError> {
        let report = self.report;
        let value = |part: &str| read::<serde_json::Value>(&self.dir.join("records").join(part), "a record");
        let stored = [value("pin.json")?, value("build.json")?, value("slice.json")?, value("place.json")?];
        let [pin, build, slice, place] = stored;
        self.compare_briefly("records/pin.json", &report.pin, &pin);
        self.compare_briefly("records/build.json", &report.build, &build);
        self.compare_briefly("records/slice.json", &report.slice, &slice);
        self.compare_briefly("records/place.json", &report.place, &place);
        self.nodes()?;
        self.compare("campaign_sha256", &report.campaign_sha256, &self.file.sha256);
        self.definition_and_records()
    }

    /// Where rows were worked off in jobs of their own, and that exactly one attempt at each counts.
    fn nodes(&mut self) -> Result<(), RecomputeError> {
        if self.report.nodes.is_empty() {
            return Ok(());
        }
        let attempts: Vec<AttemptRecord> = self.payloads(ATTEMPT);
        let names: Vec<&str> = self.report.nodes.iter().map(|node| node.row.as_str()).collect();
        let defined: Vec<&str> = self.file.definition.rows.iter().map(|row| row.name.as_str()).collect();
        self.compare("rows of nodes", &names, &defined);
        for stated in &self.report.nodes {
            let path = self.dir.join(node_path(&stated.row));
            let recorded: RowNode = read(&path, "the record of a node")?;
            let what = node_path(&stated.row);
            self.compare_briefly(&what, stated, &json(&RowNode { node: None, ..recorded.clone() }));
            let valid: Vec<(JobId, u32, Option<&String>)> = attempts
                .iter()
                .filter(|attempt| attempt.row.as_deref() == Some(&stated.row) && attempt.valid)
                .map(|attempt| (attempt.job_id, attempt.restart, attempt.node.as_ref()))
                .collect();
            if valid != [(recorded.job_id, recorded.restart, recorded.node.as_ref())] {
                self.disagree(format!("{what}: the journal names other attempts that count: {valid:?}"));
            }
            let of_row = attempts.iter().filter(|attempt| attempt.row.as_deref() == Some(&stated.row));
            for path in of_row.filter(|attempt| !attempt.valid).filter_map(|attempt| attempt.journal.as_ref())
            {
                if let Err(why) = self.no_other_draw(&stated.row, &bytes(&self.dir.join(path))?) {
                    self.disagree(format!("{path}: {why}"));
                }
            }
        }
        Ok(())
    }

    /// Refuses the journal of an attempt that does not count and brought the measurement of its row to an end, when another one
    /// is told of (M7), and one of which that cannot be known.
    fn no_other_draw(&self, row: &str, journal: &[u8]) -> Result<(), String> {
        let kind = format!("measure.{row}");
        let mut theirs: Vec<Event> = Vec::new();
        // What is not a whole line is the end that a killed process left.
        for line in journal.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
            let record: serde_json::Value =
                serde_json::from_slice(line).map_err(|error| error.to_string())?;
            if record["kind"] == kind.as_str() {
                let event = serde_json::from_value(record["payload"].clone());
                theirs.push(event.map_err(|error| error.to_string())?);
            }
        }
        let run = PairedRun::resume(self.definition().measure.run.clone(), &theirs);
        let is_decided = run.map_err(|error| with_causes(&error))?.outcome().is_some();
        let ours = events_of(self.journal, &kind).map_err(|error| with_causes(&error))?;
        if is_decided && !ours.is_empty() && theirs != ours {
            return Err("it came to the end of the measurement, and another one counts".to_owned());
        }
        Ok(())
    }

    /// What the report says of the definition, and what the records say against it.
    fn definition_and_records(&mut self) -> Result<(), RecomputeError> {
        let (report, definition) = (self.report, &self.file.definition);
        self.compare("campaign", &report.campaign, &definition.name);
        self.compare("preflight", &report.preflight, &definition.preflight);
        self.compare("limit_ratio", &report.limit_ratio, &definition.measure.gate.limit_ratio);
        self.compare("window_offset", &report.window_offset, &definition.trace.offset);
        self.compare("exclusions", &report.exclusions, &definition.canonical.exclusions);
        self.compare("reviews", &report.reviews, &definition.reviews);
        let commits = &report.pin.revisions;
        self.compare("baseline", &commits.baseline.commit, &definition.baseline.commit);
        self.compare("candidate", &commits.candidate.commit, &definition.candidate.commit);
        self.compare("trace", &report.slice.source.sha256, &definition.trace.sha256);
        self.compare("window rows", &report.slice.slice.rows.get(), &definition.trace.count);
        self.compare("not_covered", &report.not_covered, &not_covered(definition));
        self.compare("growth", &report.build.growth, &growth_of(&report.build.artifacts));
        let equal = report.build.artifacts.baseline.sha256 == report.build.artifacts.candidate.sha256;
        self.compare("equal_artifacts", &report.build.equal_artifacts, &equal);
        Ok(())
    }

    /// Every reason for a stop that the records give.
    fn stops(&mut self) {
        let report = self.report;
        let mut stops = growth_stops(self.definition(), report.build.growth);
        stops.extend(self.metric_stop());
        self.compare("stops", &report.stops, &stops);
    }

    fn metric_stop(&self) -> Option<String> {
        let definition = self.definition();
        let find = |row: &Row| metric_missing(&self.repetitions, &definition.measure.metric, row);
        definition.rows.iter().find_map(find)
    }

    /// The options that the report says a row was run with.
    fn options(&mut self, stated: &RowRecord) {
        let definition = self.definition();
        let row = definition.rows.iter().find(|row| row.name == stated.row);
        let defined = row.map(|row| options(definition, row));
        self.compare(&format!("row {}: options", stated.row), &Some(&stated.options), &defined);
    }

    /// Faults and digests of a row as the journal has them: what was seen once stays seen.
    fn repetitions(&mut self, row: &RowRecord) {
        if let Some(fault) = fault_of(&self.repetitions, &row.row) {
            if !matches!(row.outcome, RowOutcome::TargetFailed { .. }) {
                self.disagree(format!("row {}: the journal has a fault: {fault}", row.row));
            }
            return;
        }
        let records = self.payloads(CANONICAL_KIND);
        self.compare(&format!("row {}: digests", row.row), &row.digests, &digests_of(records, &row.row));
        let (stable, equal) = agreement(&row.digests);
        self.compare(&format!("row {}: stable", row.row), &row.stable, &stable);
        self.compare(&format!("row {}: equal", row.row), &row.equal, &equal);
        let enough = Side::BOTH.into_iter().all(|side| row.digests.get(side).len() >= 2);
        if !enough && !matches!(row.outcome, RowOutcome::TargetFailed { .. }) {
            self.disagree(format!("row {}: fewer than two digests of a revision", row.row));
        }
    }

    /// Full reports that no row speaks of.
    fn stray_reports(&mut self) -> Result<(), RecomputeError> {
        let path = self.dir.join("reports");
        let read = |source| RecomputeError::Read { path: path.clone(), source };
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(read(error)),
        };
        let named: Vec<&String> = self
            .report
            .rows
            .iter()
            .filter_map(|row| row.difference.as_ref())
            .flat_map(|found| &found.kept)
            .chain(self.report.lifecycles.iter().flat_map(|record| kept_reports(&record.sides)))
            .collect();
        let mut stray = Vec::new();
        for entry in entries {
            let name = format!("reports/{}", entry.map_err(read)?.file_name().to_string_lossy());
            if !named.iter().any(|known| **known == name) {
                stray.push(name);
            }
        }
        stray.sort();
        stray.into_iter().for_each(|name| self.disagree(format!("{name} belongs to no row")));
        Ok(())
    }

    /// For records too long to be shown.
    fn compare_briefly(&mut self, what: &str, stated: &impl Serialize, computed: &serde_json::Value) {
        if json(stated) != *computed {
            self.disagree(format!("{what} is not what report.json repeats of it"));
        }
    }

    fn rows(&mut self) -> Result<(), RecomputeError> {
        let names = |names: Vec<&str>| names.join(", ");
        let stated = names(self.report.rows.iter().map(|row| row.row.as_str()).collect());
        let defined = names(self.definition().rows.iter().map(|row| row.name.as_str()).collect());
        self.compare("rows", &stated, &defined);
        for stated in &self.report.rows {
            let path = self.dir.join(format!("records/row-{}.json", stated.row));
            let stored: serde_json::Value = read(&path, "the record of a row")?;
            self.compare_briefly(&format!("records/row-{}.json", stated.row), stated, &stored);
            self.options(stated);
            self.repetitions(stated);
            let mut outcome = self.outcome_before_exceptions(stated);
            self.items(stated);
            let kept = stated.difference.as_ref().map_or(&[][..], |difference| &difference.kept);
            if outcome == RowOutcome::Differs && kept.len() != 2 {
                self.disagree(format!("row {}: it differs, and the two reports are not kept", stated.row));
            }
            if kept.is_empty() {
                let what = format!("row {}: digests and coverage, whose reports were deleted", stated.row);
                self.found.taken_as_recorded.push(what);
            } else {
                self.kept_reports(stated, kept, &mut outcome)?;
            }
            self.compare(&format!("row {}: outcome", stated.row), &stated.outcome, &outcome);
            self.found.rows.push(RowRecord { outcome, ..stated.clone() });
        }
        Ok(())
    }

    /// Coverage is of every item, and what a row has is not said to be out of place.
    fn items(&mut self, stated: &RowRecord) {
        let Some(row) = self.row(&stated.row).cloned() else { return };
        for side in Side::BOTH {
            if let Some(what) = stated.coverage.get(side).as_ref().and_then(|coverage| coverage.lack(&row)) {
                self.disagree(format!("row {}: coverage of the {}: {what}", stated.row, side.name()));
            }
        }
    }

    fn outcome_before_exceptions(&mut self, row: &RowRecord) -> RowOutcome {
        let Some(outcome) = outcome_from_evidence(row) else {
            let what =
                format!("row {}: its outcome, which rests on a report that could not be read", row.row);
            self.found.taken_as_recorded.push(what);
            // Nothing but these can be known of a report that cannot be read.
            if matches!(row.outcome, RowOutcome::TargetFailed { .. } | RowOutcome::StopForReview { .. }) {
                return row.outcome.clone();
            }
            let stated = json(&row.outcome);
            self.disagree(format!("row {}: it is said to be {stated} without digests and coverage", row.row));
            return RowOutcome::Differs;
        };
        outcome
    }

    /// Digests, coverage and differences of the reports that were kept.
    fn kept_reports(
        &mut self,
        row: &RowRecord,
        kept: &[String],
        outcome: &mut RowOutcome,
    ) -> Result<(), RecomputeError> {
        let Ok(rules) = rules(&self.definition().canonical) else {
            self.disagree("the canonical form of the campaign file cannot be used");
            return Ok(());
        };
        let mut texts = Vec::new();
        for path in kept {
            let mut text = bytes(&self.dir.join(path))?;
            match (place_of(row, path), canonical_digest(&mut text, &rules)) {
                (Some((side, number)), Ok(digest)) => {
                    let stated = row.digests.get(side).get(number - 1);
                    self.compare(&format!("{path}: digest"), &stated, &Some(&digest));
                    self.coverage(row, side, number, &text);
                }
                (None, _) => self.disagree(format!("{path} is no report of row {}", row.row)),
                (_, Err(error)) => self.disagree(format!("{path}: {}", with_causes(&error))),
            }
            texts.push(text);
        }
        if let (Some(difference), [left, right]) = (&row.difference, texts.as_slice()) {
            match diff(left, right, &rules, &DiffLimits::default()) {
                Ok(found) => {
                    self.compare(&format!("row {}: differences", row.row), &difference.total, &found.total);
                    self.compare_groups(row, &difference.groups, &found.groups);
                }
                Err(error) => self.disagree(format!("row {}: {}", row.row, with_causes(&error))),
            }
            if *outcome == RowOutcome::Differs && !self.exceptions.is_empty() {
                self.classify(row, [left, right], &rules, outcome);
            }
        }
        Ok(())
    }

    fn classify(&mut self, row: &RowRecord, reports: [&[u8]; 2], rules: &Rules, outcome: &mut RowOutcome) {
        match cover(&self.exceptions, &row.row, reports, rules) {
            Ok(found) => {
                let what = format!("row {}: classification", row.row);
                self.compare(&what, &row.classification, &Some(&found));
                *outcome = classify::outcome(&found, &self.proofs);
            }
            Err(error) => self.disagree(format!("row {}: {}", row.row, with_causes(&error))),
        }
    }

    fn compare_groups(&mut self, row: &RowRecord, stated: &impl Serialize, found: &impl Serialize) {
        if json(stated) != json(found) {
            self.disagree(format!("row {}: its kept reports differ in another way than recorded", row.row));
        }
    }

    /// Coverage is taken from the first repetition of each revision.
    fn coverage(&mut self, row: &RowRecord, side: Side, number: usize, report: &[u8]) {
        if number != 1 {
            let what =
                format!("row {}: coverage of the {}, whose first report was deleted", row.row, side.name());
            self.found.taken_as_recorded.push(what);
            return;
        }
        let Some(defined) = self.row(&row.row).cloned() else { return };
        let slice = &self.report.slice.slice;
        let totals = WorkloadTotals {
            requests: slice.rows.get(),
            input_tokens: slice.input_tokens,
            output_tokens: slice.output_tokens,
        };
        let found = Coverage::check(report, &expectation(self.definition(), &defined, totals)).ok();
        if json(&found) != json(row.coverage.get(side)) {
            self.disagree(format!("row {}: {} has another coverage than recorded", row.row, side.name()));
        }
    }

    fn row(&self, name: &str) -> Option<&Row> {
        self.definition().rows.iter().find(|row| row.name == name)
    }

    fn measurements(&mut self) {
        let report = self.report;
        let names: Vec<&str> = report.measurements.iter().map(|row| row.row.as_str()).collect();
        let defined: Vec<&str> = self.file.definition.rows.iter().map(|row| row.name.as_str()).collect();
        self.compare("measured rows", &names, &defined);
        for stated in &report.measurements {
            let found = self.measurement(stated);
            self.found.measurements.push(found);
        }
    }

    /// The measurement of one row, from its attempts.
    fn measurement(&mut self, stated: &MeasureRecord) -> MeasureRecord {
        let Some(row) = self.row(&stated.row).cloned() else { return stated.clone() };
        let blank = not_measured(self.definition(), &row, String::new());
        let what = format!("row {}: measurement", row.name);
        let found = match self.judge_attempts(&row, &blank) {
            Ok(Some(found)) => found,
            Ok(None) => blank,
            Err(why) => {
                self.disagree(format!("{what}: {why}"));
                return stated.clone();
            }
        };
        self.compare(&format!("{what}: verdict"), &stated.verdict, &found.verdict);
        let own = labels(self.definition());
        if !own.iter().all(|label| stated.labels.contains(label)) {
            self.disagree(format!("{what}: a label of the campaign is missing"));
        }
        self.compare(&format!("{what}: ratio"), &stated.ratio, &found.ratio);
        self.compare(&format!("{what}: medians"), &stated.median_ms, &found.median_ms);
        if let Some(which) = judgement::difference(stated.judgement.as_ref(), found.judgement.as_ref()) {
            self.disagree(format!("{what}: the judgement does not follow from the attempts: {which}"));
        }
        self.may_be_measured(stated);
        self.profile(stated);
        found
    }

    /// A row whose reports do not allow it has no parity verdict (M12).
    fn may_be_measured(&mut self, stated: &MeasureRecord) {
        let Some(row) = self.report.rows.iter().find(|row| row.row == stated.row) else { return };
        let stop = self.metric_stop();
        let allowed = match measurable(self.definition(), row, stop.as_deref()) {
            Measurable::No { .. } => stated.verdict == PerformanceVerdict::NotMeasured,
            Measurable::UnequalWork => {
                stated.labels.iter().any(|label| label.contains("unequal semantic work"))
            }
            Measurable::Yes => true,
        };
        if !allowed {
            self.disagree(format!("row {}: it was measured although {:?}", stated.row, row.outcome));
        }
    }

    fn judge_attempts(&self, row: &Row, blank: &MeasureRecord) -> Result<Option<MeasureRecord>, String> {
        let kind = format!("measure.{}", row.name);
        let events = events_of(self.journal, &kind).map_err(|error| with_causes(&error))?;
        if events.is_empty() {
            return Ok(None);
        }
        let definition = self.definition();
        let mut run = PairedRun::resume(definition.measure.run.clone(), &events)
            .map_err(|error| with_causes(&error))?;
        let nobody = CancelToken::new();
        nobody.cancel();
        let outcome = run
            .run(&mut NothingRuns, &mut Vec::<Event>::new(), &nobody)
            .map_err(|error| with_causes(&error))?;
        let stopped = |verdict| Ok(Some(MeasureRecord { verdict, ..blank.clone() }));
        match outcome {
            RunOutcome::Complete => {}
            RunOutcome::Failed { .. } => return stopped(PerformanceVerdict::Blocked),
            RunOutcome::Blocked { .. } => return stopped(PerformanceVerdict::Inconclusive),
            _ => return Err("the attempts do not make a whole measurement".to_owned()),
        }
        let sample = run.sample(&definition.measure.metric).map_err(|error| with_causes(&error))?;
        let judgement = definition.measure.gate.judge(&sample).map_err(|error| with_causes(&error))?;
        Ok(Some(judged(blank.clone(), &sample, judgement)))
    }

    fn conclusions(&mut self) -> Result<(), RecomputeError> {
        let report = self.report;
        let (semantic, performance) = (
            semantic_verdict(&self.found.rows, &self.found.lifecycles),
            performance_verdict(&asked_for(self.definition(), &self.found.measurements)),
        );
        self.compare("semantic verdict", &report.semantic, &semantic);
        self.compare("performance verdict", &report.performance, &performance);
        self.compare("labels", &report.labels, &all_labels(self.definition(), &report.measurements));
        let exceptions = exception_reports(&self.exceptions, &self.found.rows, &self.proofs);
        self.compare("exceptions", &report.exceptions, &exceptions);
        let build = &self.definition().build;
        let stale = stale_reviews(
            &self.definition().reviews,
            report.build.growth,
            build.max_growth,
            &report.pin.patches,
            &report.build.differences,
            &report.rows,
        );
        self.compare("stale reviews", &report.stale_reviews, &stale);
        if bytes(&self.dir.join("report.md"))? != markdown(report).into_bytes() {
            self.disagree("report.md is not what report.json says");
        }
        Ok(())
    }
}

/// `reports/ROW-SIDE-NUMBER.json`
fn place_of(row: &RowRecord, path: &str) -> Option<(Side, usize)> {
    let rest = path.strip_prefix("reports/")?.strip_suffix(".json")?.strip_prefix(&row.row)?;
    let (side, number) = rest.strip_prefix('-')?.split_once('-')?;
    let side = Side::BOTH.into_iter().find(|known| known.name() == side)?;
    Some((side, number.parse().ok().filter(|number| *number > 0)?))
}

/// A bundle has no program to run.
struct NothingRuns;

impl Executor for NothingRuns {
    fn execute(&mut self, attempt: &Attempt, _: &CancelToken) -> Result<Execution, BoxError> {
        Err(format!("{attempt} is not in the journal").into())
    }
}
