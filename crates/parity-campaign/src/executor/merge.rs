//! From the attempts at a row to the campaign's bundle: only a whole and verified one counts, and every other is kept.

use std::fs;

use canonical_json::Sha256;
use evidence::{Record, read_manifest, verify};
use paired_run::{Event, events_of};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::attempt::{Attempt, RowEnded, RowStarted};
use super::job_id::JobId;
use super::order::{Order, Work};
use super::row::{decided, seen_of};
use super::slurm::Condition;
use crate::context::Context;
use crate::definition::Row;
use crate::error::{At, CampaignError, Cause};
use crate::record::{MeasureRecord, PlaceRecord, RepetitionRecord, RowNode, RowRecord};
use crate::stage::Stage;
use crate::stage::classify::{self, Proofs};
use crate::stage::judge::{CANONICAL_KIND, record_path};
use crate::stage::measure;
use crate::stage::run::{REPETITION_KIND, metric_missing};

/// The journal's kind of an [`AttemptRecord`] of a row.
pub(crate) const ATTEMPT: &str = "row.attempt";
/// The journal's kind of an [`AttemptRecord`] of a job that builds.
pub(crate) const BUILD_ATTEMPT: &str = "build.attempt";

/// `row.attempt` and `build.attempt` in the campaign's journal: one attempt, whether it counts or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct AttemptRecord {
    /// The row; none of a job that builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) row: Option<String>,
    pub(crate) job_id: JobId,
    pub(crate) restart: u32,
    /// The scheduler's name of the node; `None` when the attempt did not come to say it.
    pub(crate) node: Option<String>,
    pub(crate) valid: bool,
    /// The predeclared condition that made it invalid.
    pub(crate) condition: Option<Condition>,
    /// Its exit record; `None` when it was ended from outside.
    pub(crate) ended: Option<RowEnded>,
    /// Its whole journal, in this bundle.
    pub(crate) journal: Option<String>,
    /// Digest of the manifest of its bundle, where it came to its end.
    pub(crate) manifest: Option<Sha256>,
}

/// Where the record of a row's node is.
pub(crate) fn node_path(row: &str) -> String {
    format!("records/node-{row}.json")
}

/// A row that was worked off elsewhere.
pub(crate) struct Merged {
    pub(crate) row: RowRecord,
    pub(crate) measurement: MeasureRecord,
    pub(crate) node: RowNode,
    pub(crate) metric_missing: Option<String>,
}

/// Takes a row over from the last of its attempts, which is complete.
pub(crate) fn merge(
    context: &mut Context<'_>,
    order: &Order,
    row: &Row,
    attempts: &[Attempt],
    conditions: &dyn Fn(JobId) -> Option<Condition>,
    proofs: &mut Proofs,
) -> Result<Merged, CampaignError> {
    let Some((valid, before)) = attempts.split_last() else {
        return Err(CampaignError::new(Stage::Run, Cause::Bug, "a row without an attempt").in_row(&row.name));
    };
    let work = Work::Row(&row.name);
    let started = check(order, work, valid)?;
    refuse_unseen(row, valid, before)?;
    refuse_another_draw(context, row, valid, before)?;
    keep_all(context, work, attempts, conditions)?;
    import(context, row, valid)?;
    files(context, work, valid)?;
    let place: PlaceRecord = record(work, valid, "records/place.json")?;
    let node = RowNode {
        row: row.name.clone(),
        job_id: started.job_id,
        restart: started.restart,
        node: Some(started.node),
        place,
    };
    context.record(Stage::Place, &node_path(&row.name), &node)?;
    let mut judged: RowRecord = record(work, valid, &record_path(row))?;
    classify::settle(context, proofs, &mut judged)?;
    let measurement: MeasureRecord = record(work, valid, &measure::record_path(row))?;
    let missing = repetitions(valid)?;
    let missing = metric_missing(&missing, &context.definition().measure.metric, row);
    context.record(Stage::Gate, &measure::record_path(row), &measurement)?;
    // Last: a row that has this record has everything else.
    context.record(Stage::Classify, &record_path(row), &judged)?;
    Ok(Merged { row: judged, measurement, node, metric_missing: missing })
}

/// Whether every byte is as it was when the attempt ended, and of this campaign.
pub(crate) fn check(order: &Order, work: Work<'_>, attempt: &Attempt) -> Result<RowStarted, CampaignError> {
    let name = attempt.name(work);
    let verification = verify(&attempt.dir).at(work.stage(), Cause::HostUnfit)?;
    if !verification.is_intact() {
        let message = format!("the evidence of attempt {name} was altered after it ended");
        return Err(work.error(Cause::HostUnfit, message));
    }
    let started = attempt.started().filter(|started| {
        started.row.as_deref() == work.row()
            && started.campaign_sha256 == order.campaign_sha256
            && started.campaign_id == order.campaign_id
            && started.job_id == attempt.job_id
            && started.restart == attempt.restart
            && started.parity_sha256 == order.parity_sha256
    });
    let message = format!("attempt {name} is not of this campaign");
    started.ok_or_else(|| work.error(Cause::HostUnfit, message))
}

/// An attempt whose node only seemed to be gone may have gone on; what it saw after the next one began must not be lost.
fn refuse_unseen(row: &Row, valid: &Attempt, before: &[Attempt]) -> Result<(), CampaignError> {
    let known: Vec<&str> = valid.records.iter().map(Record::payload_json).collect();
    let unseen = seen_of(before).into_iter().find(|record| {
        let is_bad = match record.kind.as_str() {
            REPETITION_KIND => record.payload::<RepetitionRecord>().map_or(true, |one| one.fault.is_some()),
            // The same digest again is no news.
            _ => true,
        };
        is_bad && !known.contains(&record.payload_json())
    });
    let Some(record) = unseen else { return Ok(()) };
    let message = format!(
        "an attempt that was given up saw something that the valid one does not know: {}",
        record.payload_json()
    );
    Err(CampaignError::new(Stage::Run, Cause::StopForReview, message).in_row(&row.name))
}

/// An attempt that was given up may have come to the end of its measurement after the next one began: which of the two counts
/// is not to be chosen by what they say.
fn refuse_another_draw(
    context: &Context<'_>,
    row: &Row,
    valid: &Attempt,
    before: &[Attempt],
) -> Result<(), CampaignError> {
    let Some((events, _)) = decided(before, row, &context.definition().measure.run)? else { return Ok(()) };
    let own = events_of(&valid.records, &format!("measure.{}", row.name));
    let own: Vec<Event> = own.at(Stage::Measure, Cause::HostUnfit)?;
    // A row that turned out unfit to be measured has none.
    if own.is_empty() || own == events {
        return Ok(());
    }
    let message = "an attempt that was given up came to the end of its measurement, and another one was made";
    Err(CampaignError::new(Stage::Measure, Cause::StopForReview, message).in_row(&row.name))
}

/// Keeps the journal of every attempt at some work, and says what each was worth.
pub(crate) fn keep_all(
    context: &Context<'_>,
    work: Work<'_>,
    attempts: &[Attempt],
    conditions: &dyn Fn(JobId) -> Option<Condition>,
) -> Result<(), CampaignError> {
    let kind = if work == Work::Build { BUILD_ATTEMPT } else { ATTEMPT };
    let known = kept(context, kind)?;
    let counts = attempts.iter().rposition(Attempt::is_complete);
    for (at, attempt) in attempts.iter().enumerate() {
        let requeued = attempts.get(at + 1).is_some_and(|next| next.job_id == attempt.job_id);
        let valid = counts == Some(at);
        let condition = if requeued { Some(Condition::Requeued) } else { conditions(attempt.job_id) };
        let record = AttemptRecord {
            row: work.row().map(str::to_owned),
            job_id: attempt.job_id,
            restart: attempt.restart,
            node: attempt.started().map(|started| started.node),
            valid,
            condition: condition.filter(|_| !valid),
            ended: attempt.ended(),
            journal: keep_journal(context, work, attempt)?,
            manifest: manifest(attempt)?,
        };
        if !known.contains(&record) {
            context.append(work.stage(), kind, &record)?;
        }
    }
    Ok(())
}

fn kept(context: &Context<'_>, kind: &str) -> Result<Vec<AttemptRecord>, CampaignError> {
    context.earlier.as_ref().map_or(Ok(Vec::new()), |earlier| earlier.payloads(kind))
}

fn keep_journal(
    context: &Context<'_>,
    work: Work<'_>,
    attempt: &Attempt,
) -> Result<Option<String>, CampaignError> {
    let bytes = match fs::read(attempt.dir.join("journal.jsonl")) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).at(Stage::Run, Cause::HostUnfit),
    };
    let path = format!("samples/{}.jsonl", attempt.name(work));
    context.write_file(work.stage(), &path, &bytes)?;
    Ok(Some(path))
}

fn manifest(attempt: &Attempt) -> Result<Option<Sha256>, CampaignError> {
    if !attempt.is_sealed {
        return Ok(None);
    }
    let (digest, _) = Sha256::of_file(&attempt.dir.join("manifest.json")).at(Stage::Run, Cause::HostUnfit)?;
    Ok(Some(digest))
}

/// Repeats what the row's verdicts rest on in the campaign's journal. A process that was killed in the middle of it left a
/// beginning, which is not repeated once more.
fn import(context: &Context<'_>, row: &Row, attempt: &Attempt) -> Result<(), CampaignError> {
    let measured = format!("measure.{}", row.name);
    let kinds = [REPETITION_KIND, CANONICAL_KIND, measured.as_str()];
    let is_evidence = |record: &&Record| kinds.contains(&record.kind.as_str());
    let of_row = |record: &&Record| {
        let named = || record.payload::<Value>().is_ok_and(|payload| payload["row"] == row.name.as_str());
        record.kind == measured || is_evidence(record) && named()
    };
    let there = context.earlier.iter().flat_map(|earlier| earlier.records()).filter(of_row);
    let mut there = there.map(|record| (record.kind.as_str(), record.payload_json()));
    for record in attempt.records.iter().filter(is_evidence) {
        match there.next() {
            Some(found) if found == (record.kind.as_str(), record.payload_json()) => continue,
            Some(_) => {
                let message =
                    "the campaign's journal has evidence of this row that its attempt has not".to_owned();
                return Err(Work::Row(&row.name).error(Cause::HostUnfit, message));
            }
            None => {}
        }
        let payload: Value = record.payload().at(Stage::Run, Cause::HostUnfit)?;
        context.append(Stage::Run, &record.kind, &payload)?;
    }
    Ok(())
}

/// Reports that were kept because they differ, and what builds and profilers said.
pub(crate) fn files(context: &Context<'_>, work: Work<'_>, attempt: &Attempt) -> Result<(), CampaignError> {
    let at = |error: CampaignError| work.blame(error);
    let manifest = read_manifest(&attempt.dir).at(Stage::Run, Cause::HostUnfit).map_err(at)?;
    let wanted = ["reports/", "logs/", "profiles/"];
    for file in manifest.files.iter().filter(|file| wanted.iter().any(|folder| file.path.starts_with(folder)))
    {
        let bytes = file.read(&attempt.dir).at(Stage::Run, Cause::HostUnfit).map_err(at)?;
        context.write_file(Stage::Run, &file.path, &bytes)?;
    }
    Ok(())
}

/// A record of an attempt.
pub(crate) fn record<T: serde::de::DeserializeOwned>(
    work: Work<'_>,
    attempt: &Attempt,
    path: &str,
) -> Result<T, CampaignError> {
    let bytes = fs::read(attempt.dir.join(path)).map_err(|error| {
        let message = format!("read {path} of attempt {}: {error}", attempt.name(work));
        work.error(Cause::HostUnfit, message)
    })?;
    serde_json::from_slice(&bytes).map_err(|error| work.error(Cause::HostUnfit, error))
}

fn repetitions(attempt: &Attempt) -> Result<Vec<RepetitionRecord>, CampaignError> {
    let records = attempt.records.iter().filter(|record| record.kind == REPETITION_KIND);
    records.map(Record::payload).collect::<Result<_, _>>().at(Stage::Run, Cause::HostUnfit)
}

/// A row that an earlier process of this campaign has taken over.
pub(crate) fn merged_before(context: &Context<'_>, row: &Row) -> Result<Option<Merged>, CampaignError> {
    let Some(row_record) = context.recorded::<RowRecord>(Stage::Classify, &record_path(row))? else {
        return Ok(None);
    };
    let node = context.recorded(Stage::Place, &node_path(&row.name))?;
    let measurement = context.recorded(Stage::Gate, &measure::record_path(row))?;
    let (Some(node), Some(measurement)) = (node, measurement) else { return Ok(None) };
    let repetitions =
        context.earlier.as_ref().map_or(Ok(Vec::new()), |earlier| earlier.payloads(REPETITION_KIND))?;
    let metric_missing = metric_missing(&repetitions, &context.definition().measure.metric, row);
    Ok(Some(Merged { row: row_record, measurement, node, metric_missing }))
}
