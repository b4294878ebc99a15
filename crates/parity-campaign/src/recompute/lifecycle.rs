//! The forced lifecycles once more.

use crate::coverage::{Coverage, WorkloadTotals};
use crate::definition::Lifecycle;
use crate::error::with_causes;
use crate::lifecycle::{
    LifecycleEvidence, LifecycleRecord, arguments, is_forced_on, outcome, record_path, report_path,
};
use crate::record::{Both, RepetitionRecord, Side, TestRun};
use crate::stage::judge::{canonical_digest, expectation, rules};
use crate::stage::lifecycle::{RUN_KIND, TEST_KIND, fault_of, run_of};

use super::{Check, RecomputeError, bytes, json, read};

/// The reports that lifecycles kept.
pub(super) fn kept_reports(sides: &Both<Option<LifecycleEvidence>>) -> impl Iterator<Item = &String> {
    let kept = |evidence| match evidence {
        &Some(LifecycleEvidence::Row { ref kept, .. }) => kept.as_ref(),
        _ => None,
    };
    [&sides.baseline, &sides.candidate].into_iter().filter_map(kept)
}

impl Check<'_> {
    pub(super) fn lifecycles(&mut self) -> Result<(), RecomputeError> {
        let report = self.report;
        let stated: Vec<&str> = report.lifecycles.iter().map(|record| record.name.as_str()).collect();
        let defined: Vec<&str> = self.file.definition.lifecycles.iter().map(Lifecycle::name).collect();
        self.compare("lifecycles", &stated, &defined);
        for lifecycle in &self.file.definition.lifecycles {
            let of_name = |record: &&LifecycleRecord| record.name == lifecycle.name();
            if let Some(stated) = report.lifecycles.iter().find(of_name) {
                let found = self.lifecycle(lifecycle, stated)?;
                self.found.lifecycles.push(found);
            }
        }
        Ok(())
    }

    fn lifecycle(
        &mut self,
        lifecycle: &Lifecycle,
        stated: &LifecycleRecord,
    ) -> Result<LifecycleRecord, RecomputeError> {
        let path = record_path(&stated.name);
        let stored: serde_json::Value = read(&self.dir.join(&path), "the record of a lifecycle")?;
        self.compare_briefly(&path, stated, &stored);
        let what = format!("lifecycle {}", stated.name);
        self.compare(&format!("{what}: kind"), &stated.kind, &lifecycle.kind);
        let given = arguments(self.definition(), lifecycle);
        self.compare(&format!("{what}: arguments"), &stated.arguments, &given);
        self.window(&what, lifecycle, stated);
        for side in Side::BOTH.into_iter().filter(|side| is_forced_on(lifecycle, *side)) {
            match stated.sides.get(side) {
                Some(evidence) => self.evidence(&what, lifecycle, stated, side, evidence)?,
                None => self.disagree(format!("{what}: nothing is recorded of the {}", side.name())),
            }
        }
        let found = outcome(lifecycle, &stated.sides);
        self.compare(&format!("{what}: outcome"), &stated.outcome, &found);
        Ok(LifecycleRecord { outcome: found, ..stated.clone() })
    }

    fn window(&mut self, what: &str, lifecycle: &Lifecycle, stated: &LifecycleRecord) {
        let whole = self.definition().trace.count;
        let requests = lifecycle.row.as_ref().map(|_| lifecycle.requests.unwrap_or(whole));
        let found = stated.window.map(|window| window.totals.requests);
        self.compare(&format!("{what}: requests"), &found, &requests);
        if let Some(window) = stated.window.filter(|window| window.totals.requests == whole) {
            let slice = self.report.slice.slice.sha256;
            self.compare(&format!("{what}: window"), &window.sha256, &slice);
        }
    }

    /// What the journal has of one revision, against what the record says of it.
    fn evidence(
        &mut self,
        what: &str,
        lifecycle: &Lifecycle,
        stated: &LifecycleRecord,
        side: Side,
        evidence: &LifecycleEvidence,
    ) -> Result<(), RecomputeError> {
        let name = &stated.name;
        let what = format!("{what}: {}", side.name());
        match evidence {
            LifecycleEvidence::Test { end } => {
                let run = run_of(self.payloads::<TestRun>(TEST_KIND), name, side);
                self.compare(&format!("{what}: test"), &Some(end), &run.map(|run| run.end));
            }
            LifecycleEvidence::Fault { .. } => {}
            LifecycleEvidence::Row { digest, coverage, kept } => {
                let runs = self.payloads::<RepetitionRecord>(RUN_KIND);
                if let Some(fault) = fault_of(&runs, name, side) {
                    self.disagree(format!("{what}: the journal has a fault: {fault}"));
                }
                if !runs.iter().any(|run| run.row == *name && run.side == side) {
                    self.disagree(format!("{what}: the journal has no such run"));
                }
                match kept {
                    None => self
                        .found
                        .taken_as_recorded
                        .push(format!("{what}: digest and coverage, whose report was deleted")),
                    Some(path) if *path == report_path(name, side) => {
                        let totals = stated.window.map(|window| window.totals);
                        let found = self.kept_lifecycle_report(&what, lifecycle, path, totals)?;
                        if json(&Some((digest, coverage))) != json(&found) {
                            self.disagree(format!("{what}: its kept report shows something else"));
                        }
                    }
                    Some(path) => self.disagree(format!("{what}: {path} is not its report")),
                }
            }
        }
        Ok(())
    }

    fn kept_lifecycle_report(
        &mut self,
        what: &str,
        lifecycle: &Lifecycle,
        path: &str,
        totals: Option<WorkloadTotals>,
    ) -> Result<Option<(crate::record::CanonicalDigest, Coverage)>, RecomputeError> {
        let mut text = bytes(&self.dir.join(path))?;
        let (Some(row), Some(totals), Ok(rules)) =
            (&lifecycle.row, totals, rules(&self.definition().canonical))
        else {
            return Ok(None);
        };
        let digest = canonical_digest(&mut text, &rules);
        let coverage = Coverage::check(&text, &expectation(self.definition(), row, totals));
        match (digest, coverage) {
            (Ok(digest), Ok(coverage)) => Ok(Some((digest, coverage))),
            (Err(error), _) => {
                self.disagree(format!("{what}: {}", with_causes(&error)));
                Ok(None)
            }
            (_, Err(error)) => {
                self.disagree(format!("{what}: {}", with_causes(&error)));
                Ok(None)
            }
        }
    }
}
