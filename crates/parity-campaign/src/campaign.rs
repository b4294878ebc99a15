//! The pipeline: each stage reads what the ones before it recorded and adds its own.

use std::path::{Path, PathBuf};

use cpu_placement::CancelToken;
use evidence::{Manifest, ManifestError};
use paired_run::RunDefinition;
use paired_stats::{DiagnosticsDefinition, Gate};

use crate::context::{Context, Options, Progress, Purpose, STARTED, Started, same_file};
use crate::definition::{AUTHORITATIVE_METRIC, CampaignFile, Definition, Engine, Row, Topology};
use crate::error::{At, CampaignError, Cause, with_causes};
use crate::exception::Exception;
use crate::executor::Executor;
use crate::executor::slurm::{self, Detached, Driver};
use crate::lifecycle::LifecycleRecord;
use crate::recompute::{read_report, recompute};
use crate::record::{
    Both, BuildRecord, ExceptionReport, FailureRecord, Measurable, MeasureRecord, PerformanceVerdict,
    PinRecord, PlaceRecord, RowNode, RowOutcome, RowRecord,
};
use crate::report::{REPORT_SCHEMA, Report, markdown, performance_verdict, semantic_verdict, stale_reviews};
use crate::scratch::remove_leftover_scratch;
use crate::stage::Stage;
use crate::stage::build::{self, Built};
use crate::stage::classify::{self, Proofs};
use crate::stage::pin::Checkouts;
use crate::stage::search::{self, Neighbourhood, Qualification, Search};
use crate::stage::slice::Sliced;
use crate::stage::{cleanup, judge, lifecycle, measure, pin, place, run, slice};

/// Runs a whole campaign and leaves its evidence in `options.out`.
///
/// # Errors
///
/// [`CampaignError`] when a stage cannot go on: bad input, an unfit host, a harness that cannot be built, a stop for
/// review before anything ran, an interruption. The journal says so, scratch is removed, and the bundle has no
/// manifest. A harness that fails in one row is not an error: the report says so.
pub fn run_campaign(
    file: &CampaignFile,
    options: &Options,
    cancel: &CancelToken,
    progress: &mut dyn Progress,
) -> Result<Report, CampaignError> {
    let leftovers = remove_leftover_scratch(&options.staging).at(Stage::Pin, Cause::HostUnfit)?;
    finish(Context::create(file, options, cancel, progress)?, &leftovers)
}

/// Goes on with a campaign that did not come to its end, because it was interrupted, killed, or could not go on.
///
/// The schedule, every attempt and every finished row are those of the bundle in `options.out`: no sample is lost and none
/// is taken twice. Artifacts, checkouts and the window are made again where they are gone, and must be the same. `file` must
/// be the campaign file that the campaign began with.
///
/// A campaign that came to its end is left as it is: its evidence is verified, its verdicts are computed again, and its report
/// is returned. So a kill after the last record loses nothing, and resuming until it succeeds ends.
///
/// # Errors
///
/// As for [`run_campaign`]; and the bundle is another campaign's, or something that the campaign began with is no longer the
/// same: an artifact, the trace, the host, the placement; or the campaign came to its end and its evidence was altered since.
pub fn resume_campaign(
    file: &CampaignFile,
    options: &Options,
    cancel: &CancelToken,
    progress: &mut dyn Progress,
) -> Result<Report, CampaignError> {
    match evidence::read_manifest(&options.out) {
        Ok(manifest) => concluded(file, options, &manifest, progress),
        Err(ManifestError::NotSealed) => finish(Context::resume(file, options, cancel, progress)?, &[]),
        Err(error) => Err(error).at(Stage::Pin, Cause::BadInput),
    }
}

/// The report of a campaign that came to its end, if it is this one and its evidence still says the same.
fn concluded(
    file: &CampaignFile,
    options: &Options,
    manifest: &Manifest,
    progress: &mut dyn Progress,
) -> Result<Report, CampaignError> {
    let refuse = |message: &str| CampaignError::new(Stage::Report, Cause::BadInput, message);
    if let Some(began) = manifest.files.iter().find(|recorded| recorded.path == "campaign.toml") {
        same_file(file, began.sha256).map_err(|message| refuse(&message))?;
    }
    let verification = evidence::verify(&options.out).at(Stage::Report, Cause::BadInput)?;
    let report = read_report(&options.out).at(Stage::Report, Cause::BadInput)?;
    if !verification.is_intact() || !recompute(&options.out).at(Stage::Report, Cause::BadInput)?.agrees() {
        return Err(refuse("the campaign came to its end and was altered since; `parity verify` names what"));
    }
    progress.note("the campaign had come to its end and its evidence is intact: nothing is left to do");
    Ok(report)
}

/// Builds or lets a job build, gives every row to Slurm, and leaves: a job that waits for all of them resumes the campaign. `campaign` is the file
/// that `file` was read from; it, the repository, the trace and `options.out` must be where every node sees them.
///
/// # Errors
///
/// As for [`run_campaign`]; jobs that were submitted go on, and `parity resume` or `parity cancel` takes care of them.
pub fn submit_campaign(
    file: &CampaignFile,
    campaign: &Path,
    options: &Options,
    cancel: &CancelToken,
    progress: &mut dyn Progress,
) -> Result<Detached, CampaignError> {
    remove_leftover_scratch(&options.staging).at(Stage::Pin, Cause::HostUnfit)?;
    let mut context = Context::create(file, options, cancel, progress)?;
    match submit(&mut context, campaign) {
        Ok(detached) => {
            context.remove_all_but_artifacts().at(Stage::Cleanup, Cause::HostUnfit)?;
            Ok(detached)
        }
        Err(error) => {
            give_up(&context, &error);
            Err(error)
        }
    }
}

fn submit(context: &mut Context<'_>, campaign: &Path) -> Result<Detached, CampaignError> {
    begin(context, Purpose::Campaign)?;
    context.exceptions = exceptions(context)?;
    let pinned = context.timed(Stage::Pin, |context| pin::pin(context))?;
    slice::find_named(context, pinned.baseline())?;
    let built = match slurm::builds_in_job(context) {
        true => None,
        false => Some(context.timed(Stage::Build, |context| build::build(context, &pinned))?),
    };
    let sliced = context.timed(Stage::Slice, |context| slice::slice(context, pinned.baseline()))?;
    context.timed(Stage::Place, |context| place::place(context))?;
    context.timed(Stage::Run, |context| slurm::submit_all(context, built.as_ref(), &sliced, campaign))
}

/// What rows are compared and measured with.
struct Inputs {
    built: Built,
    sliced: Sliced,
    /// What follows the jobs, where one of them has built.
    driver: Option<Driver>,
}

/// Artifacts and window; a job that builds is submitted together with the rows that wait for it, which need the window.
fn inputs(context: &mut Context<'_>, pinned: &Checkouts) -> Result<Inputs, CampaignError> {
    let slice = |context: &mut Context<'_>| {
        context.timed(Stage::Slice, |context| slice::slice(context, pinned.baseline()))
    };
    if slurm::builds_in_job(context) {
        let sliced = slice(context)?;
        let (built, driver) =
            context.timed(Stage::Build, |context| slurm::build(context, pinned, &sliced))?;
        return Ok(Inputs { built, sliced, driver: Some(driver) });
    }
    let built = context.timed(Stage::Build, |context| build::build(context, pinned))?;
    Ok(Inputs { built, sliced: slice(context)?, driver: None })
}

fn finish(mut context: Context<'_>, leftovers: &[PathBuf]) -> Result<Report, CampaignError> {
    for folder in leftovers {
        context.progress.note(&format!("removed what a killed campaign left in {}", folder.display()));
    }
    match pipeline(&mut context) {
        Ok(report) => {
            context.bundle.seal().map(drop).at(Stage::Report, Cause::HostUnfit)?;
            Ok(report)
        }
        Err(error) => {
            give_up(&context, &error);
            Err(error)
        }
    }
}

/// Searches a capacity for one row: probes the neighbourhood of a seed on the baseline only, freezes one value by a rule that
/// is fixed beforehand, and holds it against the candidate (Q4).
///
/// The bundle in `options.out` has the whole response; no row is compared and nothing is timed.
///
/// # Errors
///
/// As for [`run_campaign`]; and the campaign has no such row.
pub fn qualify_row(
    file: &CampaignFile,
    options: &Options,
    row: &str,
    neighbourhood: Neighbourhood,
    cancel: &CancelToken,
    progress: &mut dyn Progress,
) -> Result<Qualification, CampaignError> {
    let Some(row) = file.definition.rows.iter().find(|known| known.name == row) else {
        let names: Vec<&str> = file.definition.rows.iter().map(|row| row.name.as_str()).collect();
        let message = format!("the campaign has no row {row:?}, only {}", names.join(", "));
        return Err(CampaignError::new(Stage::Qualify, Cause::BadInput, message));
    };
    remove_leftover_scratch(&options.staging).at(Stage::Pin, Cause::HostUnfit)?;
    let mut context = Context::create(file, options, cancel, progress)?;
    match search_row(&mut context, row, neighbourhood) {
        Ok(found) => {
            context.bundle.seal().map(drop).at(Stage::Report, Cause::HostUnfit)?;
            Ok(found)
        }
        Err(error) => {
            give_up(&context, &error);
            Err(error)
        }
    }
}

fn search_row(
    context: &mut Context<'_>,
    row: &Row,
    neighbourhood: Neighbourhood,
) -> Result<Qualification, CampaignError> {
    begin(context, Purpose::Search)?;
    let pinned = context.timed(Stage::Pin, |context| pin::pin(context))?;
    slice::find_named(context, pinned.baseline())?;
    let built = context.timed(Stage::Build, |context| build::build(context, &pinned))?;
    let sliced = context.timed(Stage::Slice, |context| slice::slice(context, pinned.baseline()))?;
    let placed = context.timed(Stage::Place, |context| place::place(context))?;
    let search = Search {
        row,
        harness: &built.harness,
        trace: &sliced.path,
        totals: sliced.totals,
        sets: &placed.correctness,
    };
    let found = context.timed(Stage::Qualify, |context| search::search(context, &search, neighbourhood))?;
    context.timed(Stage::Cleanup, |context| cleanup::clean_up(context))?;
    Ok(found)
}

/// Leaves a bundle that says why it has no end.
fn give_up(context: &Context<'_>, error: &CampaignError) {
    let why = context.hide_paths(&with_causes(error));
    let payload = FailureRecord { stage: error.stage, row: error.row.clone(), why };
    if let Err(second) = context.append(error.stage, FAILED, &payload) {
        tracing::warn!(error = &second as &dyn std::error::Error, "the failure could not be recorded");
    }
    cleanup::after_failure(context);
}

fn pipeline(context: &mut Context<'_>) -> Result<Report, CampaignError> {
    begin(context, Purpose::Campaign)?;
    context.exceptions = exceptions(context)?;
    let pinned = context.timed(Stage::Pin, |context| pin::pin(context))?;
    slice::find_named(context, pinned.baseline())?;
    let Inputs { built, sliced, driver } = inputs(context, &pinned)?;
    let placed = context.timed(Stage::Place, |context| place::place(context))?;
    let rows = match context.executor {
        Executor::Local => judge_rows(context, &built, &sliced, &placed)?,
        Executor::Slurm => rows_elsewhere(context, driver, &built, &sliced)?,
    };
    let lifecycles = context.timed(Stage::Lifecycle, |context| {
        lifecycle::force_all(context, &built.harness, &sliced, &placed.correctness)
    })?;
    let stop = rows.metric_missing.as_deref();
    let exceptions = exception_reports(&context.exceptions, &rows.records, &rows.proofs);
    context.record(Stage::Classify, "records/exceptions.json", &exceptions)?;
    let measurements = match rows.measured {
        Some(measured) => measured,
        None => measure_rows(context, &rows.records, &built, &sliced, &placed, stop)?,
    };
    let parts = Parts {
        pin: pinned.record,
        build: built.record,
        slice: sliced.manifest,
        place: placed.record,
        nodes: rows.nodes,
        rows: rows.records,
        lifecycles,
        exceptions,
        measurements,
        stops: built.stops.into_iter().chain(rows.metric_missing).collect(),
    };
    conclude(context, parts)
}

fn begin(context: &mut Context<'_>, purpose: Purpose) -> Result<(), CampaignError> {
    context.write_file(Stage::Pin, "campaign.toml", &context.file.bytes)?;
    let kind = if context.earlier.is_some() { RESUMED } else { STARTED };
    let payload = Started {
        campaign: context.definition().name.clone(),
        campaign_sha256: context.file.sha256,
        preflight: context.definition().preflight,
        purpose,
        executor: context.executor,
        written_by: written_by(),
    };
    context.append(Stage::Pin, kind, &payload)
}

/// The journal's kind of a [`FailureRecord`].
pub(crate) const FAILED: &str = "campaign.failed";

/// The journal's kind of a process that goes on with a campaign.
pub(crate) const RESUMED: &str = "campaign.resumed";

/// How many processes have worked on this campaign.
fn sessions(context: &Context<'_>) -> Result<u64, CampaignError> {
    let Some(earlier) = &context.earlier else { return Ok(1) };
    let resumed = earlier.records().iter().filter(|record| record.kind == RESUMED).count();
    // The first, those that resumed it before, and this one.
    u64::try_from(resumed).map(|resumed| resumed + 2).at(Stage::Report, Cause::Bug)
}

/// The frozen exception records, which go into the bundle.
fn exceptions(context: &Context<'_>) -> Result<Vec<Exception>, CampaignError> {
    let mut read: Vec<Exception> = Vec::new();
    for frozen in &context.definition().exceptions {
        let exception =
            Exception::read(&context.resolve(&frozen.file), frozen.sha256).at(Stage::Pin, Cause::BadInput)?;
        let name = &exception.record.name;
        if read.iter().any(|other| other.record.name == *name) {
            let message = format!("two exception records are named {name:?}");
            return Err(CampaignError::new(Stage::Pin, Cause::BadInput, message));
        }
        let rows = &context.definition().rows;
        let unknown = exception.record.rows.iter().find(|name| !rows.iter().any(|row| row.name == **name));
        if let Some(row) = unknown {
            let message =
                format!("exception record {name:?} speaks of row {row:?}, which the campaign has not");
            return Err(CampaignError::new(Stage::Pin, Cause::BadInput, message));
        }
        exception.check_unordered(&context.definition().canonical).at(Stage::Pin, Cause::BadInput)?;
        context.write_file(Stage::Pin, &format!("inputs/exception-{name}.toml"), &exception.bytes)?;
        read.push(exception);
    }
    Ok(read)
}

/// What each record was worth.
pub(crate) fn exception_reports(
    exceptions: &[Exception],
    rows: &[RowRecord],
    proofs: &Proofs,
) -> Vec<ExceptionReport> {
    let report = |exception: &Exception| {
        let name = &exception.record.name;
        let covers = |row: &&RowRecord| {
            let records = row.classification.iter().flat_map(|found| &found.records);
            records.into_iter().any(|used| used.name == *name && used.covers > 0)
        };
        let tests = proofs
            .get(name)
            .map(|runs| Both { baseline: runs.baseline.end.clone(), candidate: runs.candidate.end.clone() });
        ExceptionReport {
            record: exception.record.clone(),
            sha256: exception.sha256,
            rows: rows.iter().filter(covers).map(|row| row.row.clone()).collect(),
            tests,
        }
    };
    exceptions.iter().map(report).collect()
}

pub(crate) fn written_by() -> String {
    concat!("parity-campaign ", env!("CARGO_PKG_VERSION")).to_owned()
}

/// What no campaign shows.
const NEVER_COVERED: &str = "production-routing timing (the artifacts route with a seed)";

/// Every row's semantic outcome, and why the metric cannot be measured, if so.
struct JudgedRows {
    records: Vec<RowRecord>,
    metric_missing: Option<String>,
    proofs: Proofs,
    /// Where each row was worked off and how its measurement ended, if that was elsewhere.
    nodes: Vec<RowNode>,
    measured: Option<Vec<MeasureRecord>>,
}

/// Rows in jobs of their own, correctness and measurement together.
fn rows_elsewhere(
    context: &mut Context<'_>,
    driver: Option<Driver>,
    built: &Built,
    sliced: &Sliced,
) -> Result<JudgedRows, CampaignError> {
    let mut proofs = classify::proofs(context)?;
    let merged = slurm::rows(context, driver, built, sliced, &mut proofs)?;
    let metric_missing = merged.iter().find_map(|row| row.metric_missing.clone());
    if let (Some(stop), true) = (&metric_missing, merged.iter().any(|row| row.measurement.is_measured())) {
        let message = format!("{stop}, but another row was measured");
        return Err(CampaignError::new(Stage::Measure, Cause::StopForReview, message));
    }
    let mut judged =
        JudgedRows { records: Vec::new(), metric_missing, proofs, nodes: Vec::new(), measured: None };
    for row in merged {
        judged.records.push(row.row);
        judged.nodes.push(RowNode { node: None, ..row.node });
        judged.measured.get_or_insert_default().push(row.measurement);
    }
    Ok(judged)
}

fn judge_rows(
    context: &mut Context<'_>,
    built: &Built,
    sliced: &Sliced,
    placed: &place::Placed,
) -> Result<JudgedRows, CampaignError> {
    let proofs = classify::proofs(context)?;
    let mut judged =
        JudgedRows { records: Vec::new(), metric_missing: None, proofs, nodes: Vec::new(), measured: None };
    let earlier = context.earlier.as_ref();
    let repetitions = earlier.map_or(Ok(Vec::new()), |earlier| earlier.payloads(run::REPETITION_KIND))?;
    let mut open = Vec::new();
    let mut records = Vec::new();
    for row in &context.definition().rows {
        match context.recorded(Stage::Classify, &judge::record_path(row))? {
            None => open.push(row),
            Some(record) => {
                let missing = run::metric_missing(&repetitions, &context.definition().measure.metric, row);
                judged.metric_missing = judged.metric_missing.or(missing);
                records.push(record);
            }
        }
    }
    for rows in open.chunks(run::rows_at_once(placed.correctness.len())) {
        for row in rows {
            context.progress.note(&format!("row {}", row.name));
        }
        let repetitions = context.timed(Stage::Run, |context| {
            run::run(context, rows, &built.harness, &sliced.path, &placed.correctness)
        })?;
        for (row, repetitions) in rows.iter().zip(repetitions) {
            let missing = repetitions.iter().find_map(|repetition| repetition.metric_missing.clone());
            judged.metric_missing = judged.metric_missing.or(missing);
            records.push(judge::judge(context, row, &repetitions, sliced.totals, &mut judged.proofs)?);
        }
    }
    judged.records = in_order(context.definition(), records);
    Ok(judged)
}

/// The records in the order of the rows: what an earlier process finished may lie anywhere among them.
fn in_order(definition: &Definition, mut records: Vec<RowRecord>) -> Vec<RowRecord> {
    records.sort_by_key(|record| definition.rows.iter().position(|row| row.name == record.row));
    records
}

/// Whether a row may be measured (M12).
pub(crate) fn measurable(definition: &Definition, row: &RowRecord, metric_stop: Option<&str>) -> Measurable {
    let no = |reason: &str| Measurable::No { reason: reason.to_owned() };
    if let Some(stop) = metric_stop {
        return no(stop);
    }
    if !definition.is_asked_for(&row.row) {
        return no("not asked for: measure.rows does not name it");
    }
    match &row.outcome {
        RowOutcome::Match => Measurable::Yes,
        RowOutcome::Differs | RowOutcome::Excepted { .. } if definition.measure.measure_differing_rows => {
            Measurable::UnequalWork
        }
        RowOutcome::Differs | RowOutcome::Excepted { .. } => {
            no("the digests differ and measure_differing_rows is false")
        }
        RowOutcome::Unstable { .. } => no("a revision does not agree with itself"),
        RowOutcome::Unqualified { .. } => no("the row does not qualify"),
        RowOutcome::TargetFailed { .. } => no("the harness failed"),
        RowOutcome::StopForReview { .. } => no("the row waits for a review"),
    }
}

fn measure_rows(
    context: &mut Context<'_>,
    rows: &[RowRecord],
    built: &Built,
    sliced: &Sliced,
    placed: &place::Placed,
    metric_stop: Option<&str>,
) -> Result<Vec<MeasureRecord>, CampaignError> {
    let definition = context.definition();
    let decisions: Vec<Measurable> =
        rows.iter().map(|row| measurable(definition, row, metric_stop)).collect();
    let none = decisions.iter().all(|decision| matches!(decision, Measurable::No { .. }));
    let node = if none {
        None
    } else {
        Some(context.timed(Stage::Measure, |c| measure::Node::prepare(c, built, sliced))?)
    };
    let mut records = Vec::with_capacity(rows.len());
    for (row, decision) in definition.rows.iter().zip(decisions) {
        let path = measure::record_path(row);
        if let Some(record) = context.recorded(Stage::Gate, &path)? {
            records.push(record);
            continue;
        }
        let record = match (decision, &node) {
            (Measurable::No { reason }, _) => measure::not_measured(definition, row, reason),
            (decision, Some(node)) => measure::measure(context, node, row, &decision, &placed.measured)?,
            (_, None) => return Err(CampaignError::new(Stage::Measure, Cause::Bug, "no node was prepared")),
        };
        context.record(Stage::Gate, &path, &record)?;
        records.push(record);
    }
    Ok(records)
}

/// What the report is made of.
struct Parts {
    pin: PinRecord,
    build: BuildRecord,
    slice: mooncake_trace::SliceManifest,
    place: PlaceRecord,
    nodes: Vec<RowNode>,
    rows: Vec<RowRecord>,
    lifecycles: Vec<LifecycleRecord>,
    exceptions: Vec<ExceptionReport>,
    measurements: Vec<MeasureRecord>,
    stops: Vec<String>,
}

fn conclude(context: &mut Context<'_>, parts: Parts) -> Result<Report, CampaignError> {
    // Scratch goes first, so that the report is the last thing written before the seal.
    context.timed(Stage::Cleanup, |context| cleanup::clean_up(context))?;
    context.timed(Stage::Report, |context| {
        let report = assemble(context, parts, sessions(context)?);
        // An earlier process may have been killed between the report and the seal; its times were others.
        let mut bytes = serde_json::to_vec_pretty(&report).at(Stage::Report, Cause::Bug)?;
        bytes.push(b'\n');
        context.write_file(Stage::Report, "report.json", &bytes)?;
        context.write_file(Stage::Report, "report.md", markdown(&report).as_bytes())?;
        Ok(report)
    })
}

fn assemble(context: &Context<'_>, parts: Parts, sessions: u64) -> Report {
    let definition = context.definition();
    Report {
        schema: REPORT_SCHEMA.to_owned(),
        written_by: written_by(),
        campaign: definition.name.clone(),
        campaign_sha256: context.file.sha256,
        preflight: definition.preflight,
        semantic: semantic_verdict(&parts.rows, &parts.lifecycles),
        performance: performance_verdict(&asked_for(definition, &parts.measurements)),
        labels: all_labels(definition, &parts.measurements),
        limit_ratio: definition.measure.gate.limit_ratio,
        window_offset: definition.trace.offset,
        exclusions: definition.canonical.exclusions.clone(),
        reviews: definition.reviews.clone(),
        stale_reviews: stale_reviews(
            &definition.reviews,
            parts.build.growth,
            definition.build.max_growth,
            &parts.pin.patches,
            &parts.build.differences,
            &parts.rows,
        ),
        not_covered: not_covered(definition),
        sessions,
        stages: context.times.clone(),
        stops: parts.stops,
        pin: parts.pin,
        build: parts.build,
        slice: parts.slice,
        place: parts.place,
        nodes: parts.nodes,
        rows: parts.rows,
        lifecycles: parts.lifecycles,
        exceptions: parts.exceptions,
        measurements: parts.measurements,
    }
}

/// Labels that go wherever a timing result goes.
pub(crate) fn labels(definition: &Definition) -> Vec<String> {
    let preflight = definition.preflight.then(|| "PREFLIGHT".to_owned());
    let metric = (!definition.is_authoritative())
        .then(|| format!("NON-AUTHORITATIVE: {} is not {AUTHORITATIVE_METRIC}", definition.measure.metric));
    let cells = missing_cells(definition);
    let matrix = (!cells.is_empty()).then(|| format!("INCOMPLETE MATRIX: no row of {}", cells.join(", ")));
    let rows = &definition.measure.rows;
    let part = (!rows.is_empty()).then(|| {
        let of = definition.rows.len();
        format!("IN PART: {} of {of} rows asked to be measured: {}", rows.len(), rows.join(", "))
    });
    let weaker = weaker_than_the_protocol(definition);
    let gate = (!weaker.is_empty()).then(|| format!("WEAKER THAN THE PROTOCOL: {}", weaker.join(", ")));
    preflight.into_iter().chain(metric).chain(matrix).chain(part).chain(gate).collect()
}

/// What a pass by this definition shows less than a pass by the protocol does (M4 to M8).
fn weaker_than_the_protocol(definition: &Definition) -> Vec<String> {
    if definition.preflight {
        return Vec::new();
    }
    let (gate, run) = (&definition.measure.gate, &definition.measure.run);
    let protocol = Gate::default();
    let weights = &gate.diagnostics.weights;
    let left_out = [
        ("serial_correlation", weights.serial_correlation),
        ("order_trend", weights.order_trend),
        ("elapsed_trend", weights.elapsed_trend),
        ("arm_order", weights.arm_order),
        ("change_point", weights.change_point),
    ];
    let left_out = left_out.into_iter().filter(|(_, weight)| *weight == 0);
    let left_out = left_out.map(|(name, _)| format!("no diagnostic {name}"));
    let said = [
        (gate.limit_ratio > protocol.limit_ratio)
            .then(|| format!("limit {} above {}", gate.limit_ratio, protocol.limit_ratio)),
        (gate.quantile != protocol.quantile)
            .then(|| format!("quantile {}, not the median", gate.quantile.get())),
        (gate.confidence < protocol.confidence)
            .then(|| format!("confidence {} below {}", gate.confidence.get(), protocol.confidence.get())),
        (run.pairs < protocol.pairs).then(|| format!("{} pairs, not {}", run.pairs, protocol.pairs)),
        (run.warmups_per_arm < RunDefinition::default().warmups_per_arm).then(|| {
            format!("warm-ups {}, not {}", run.warmups_per_arm, RunDefinition::default().warmups_per_arm)
        }),
        (gate.diagnostics.lags < protocol.diagnostics.lags)
            .then(|| format!("{} lags", gate.diagnostics.lags)),
        (!gate.corroborate).then(|| "bounds not corroborated".to_owned()),
        (gate.diagnostics.campaign_false_alarm_rate < protocol.diagnostics.campaign_false_alarm_rate).then(
            || {
                let rate = |diagnostics: &DiagnosticsDefinition| diagnostics.campaign_false_alarm_rate.get();
                format!("alarms at {}, not {}", rate(&gate.diagnostics), rate(&protocol.diagnostics))
            },
        ),
        (!gate.diagnostics.require_arm_order).then(|| "order of the arms not required".to_owned()),
    ];
    said.into_iter().flatten().chain(left_out).collect()
}

/// The measurements that the performance verdict rests on: where only some rows are asked for, the label of the verdict says
/// so, and the others are neither passes nor a lack.
pub(crate) fn asked_for(definition: &Definition, measurements: &[MeasureRecord]) -> Vec<MeasureRecord> {
    measurements.iter().filter(|record| definition.is_asked_for(&record.row)).cloned().collect()
}

/// The labels of the whole campaign: those of its definition, and those of any row that was measured.
pub(crate) fn all_labels(definition: &Definition, measurements: &[MeasureRecord]) -> Vec<String> {
    let mut all = labels(definition);
    for label in measurements.iter().filter(|row| row.is_measured()).flat_map(|row| &row.labels) {
        if !all.contains(label) {
            all.push(label.clone());
        }
    }
    all
}

/// Cells of the authoritative matrix (B1) that no row is in.
fn missing_cells(definition: &Definition) -> Vec<String> {
    let cells = [Engine::Vllm, Engine::Sglang].into_iter().flat_map(|engine| {
        [Topology::Disaggregated, Topology::Aggregated].map(|topology| (engine, topology))
    });
    let is_missing = |(engine, topology): &(Engine, Topology)| {
        !definition.rows.iter().any(|row| row.engine == *engine && row.topology == *topology)
    };
    cells
        .filter(is_missing)
        .map(|(engine, topology)| format!("{} {}", engine.as_str(), topology.as_str()))
        .collect()
}

/// What the campaign does not show.
pub(crate) fn not_covered(definition: &Definition) -> Vec<String> {
    let cells = missing_cells(definition)
        .into_iter()
        .map(|cell| format!("the authoritative matrix: no row of {cell}"));
    cells.chain(definition.lifecycles_not_covered()).chain([NEVER_COVERED.to_owned()]).collect()
}

/// A performance verdict is only worth its row's semantic outcome.
impl MeasureRecord {
    /// Whether this row was measured at all.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        self.verdict != PerformanceVerdict::NotMeasured
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_that_is_weaker_says_so() {
        let commits = ["a".repeat(40), "b".repeat(40)];
        let trace = canonical_json::Sha256::of(b"");
        let whole = testkit::campaign_toml(Path::new("/r"), &commits, &trace, 20, "")
            .replace("pairs = 6", "pairs = 60");
        let whole = whole.replace("warmups_per_arm = 1", "warmups_per_arm = 5");
        let said = |from: &str, to: &str| {
            assert!(whole.contains(from), "{from}");
            let text = whole.replacen(from, to, 1);
            let file = CampaignFile::parse(text.into_bytes(), PathBuf::new());
            labels(&file.unwrap_or_else(|error| panic!("{to}: {}", with_causes(&error))).definition)
        };
        let gate = "[measure.gate]\n";
        assert_eq!(said(gate, gate), [""; 0]);
        for (key, expected) in [
            ("limit_ratio = 1.1", "limit 1.1 above 1.05"),
            ("confidence = 0.9", "confidence 0.9 below 0.95"),
            ("quantile = 0.4", "quantile 0.4, not the median"),
            ("corroborate = false", "bounds not corroborated"),
            ("diagnostics.campaign_false_alarm_rate = 0.01", "alarms at 0.01, not 0.05"),
            ("diagnostics.require_arm_order = false", "order of the arms not required"),
            ("diagnostics.weights.arm_order = 0", "no diagnostic arm_order"),
            ("diagnostics.lags = 4", "4 lags"),
        ] {
            let label = format!("WEAKER THAN THE PROTOCOL: {expected}");
            assert_eq!(said(gate, &format!("{gate}{key}\n")), [label]);
        }
        // Stricter is no weaker, and a preflight decides nothing.
        assert_eq!(said(gate, "[measure.gate]\nlimit_ratio = 1.02\nconfidence = 0.99\n"), [""; 0]);
        let preflight = said("name = \"stand-in\"\n", "name = \"stand-in\"\npreflight = true\n");
        assert_eq!(preflight, ["PREFLIGHT"]);
        let short = testkit::campaign_toml(Path::new("/r"), &commits, &trace, 20, "");
        let file = CampaignFile::parse(short.into_bytes(), PathBuf::new()).expect("a campaign");
        assert_eq!(
            labels(&file.definition),
            ["WEAKER THAN THE PROTOCOL: 6 pairs, not 60, warm-ups 1, not 5"]
        );
    }
}
