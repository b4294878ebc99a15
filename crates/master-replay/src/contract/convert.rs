//! Version 1 and unversioned traces as version 2.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::num::NonZeroU64;

use thiserror::Error;

use super::trace::{Dialect, Event, Op, Phase, Trace};
use super::write::{Action, Intent, TraceWriter, WriteTraceError};

/// Why a trace could not be converted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// It is a version 2 trace already.
    #[error("convert a trace that is version 2 already")]
    AlreadyVersion2,
    /// Version 2 mounts before the workload and unmounts after it; this trace does neither.
    #[error(
        "convert the event {id}: {op} stands between key operations, and version 2 has no topology changes there"
    )]
    LifecycleInWorkload {
        /// The event.
        id: String,
        /// Its operation.
        op: Op,
    },
    /// Version 2 needs at least one mounted segment.
    #[error("convert a trace that mounts nothing")]
    NothingMounted,
    /// The result cannot be written, or would not be valid.
    #[error(transparent)]
    Write(#[from] WriteTraceError),
}

/// Writes a version 1 or unversioned trace as version 2.
///
/// Version 1: the registration and the segment of `segment_bytes` that the replayer gives every client before timing
/// become setup and teardown. Unversioned: registrations and mounts before the first key operation become setup,
/// unmounts after the last one teardown, segments that stay mounted are unmounted at the end, each phase's times
/// begin at its own origin, and each event depends on the one before of its client, because that dialect runs a
/// client's events one at a time.
///
/// # Errors
///
/// The trace cannot be said in version 2, or the output cannot be written.
pub fn convert_to_v2<W: Write>(trace: &Trace, segment_bytes: NonZeroU64, out: W) -> Result<W, ConvertError> {
    let writer = TraceWriter::new(out, Dialect::V2, trace.metadata_json())?;
    match trace.dialect() {
        Dialect::V1 => convert_v1(trace, segment_bytes, writer),
        Dialect::V2 => Err(ConvertError::AlreadyVersion2),
        Dialect::Unversioned => convert_unversioned(trace, writer),
    }
}

/// Ids that no event of the trace has.
struct FreshIds<'t> {
    taken: HashSet<&'t str>,
}

impl<'t> FreshIds<'t> {
    fn new(trace: &'t Trace) -> Self {
        FreshIds { taken: trace.events().map(|event| event.id()).collect() }
    }

    fn id(&self, what: &str, number: usize) -> String {
        let mut id = format!("{what}-{number}");
        while self.taken.contains(id.as_str()) {
            id.push('\'');
        }
        id
    }
}

fn lifecycle<'a>(
    id: &'a str,
    client_id: &'a str,
    phase: Phase,
    timestamp_us: u64,
    action: Action<'a>,
) -> Intent<'a> {
    Intent { id, timestamp_us, client_id, phase: Some(phase), depends_on: Vec::new(), action }
}

fn convert_v1<W: Write>(
    trace: &Trace,
    segment_bytes: NonZeroU64,
    mut writer: TraceWriter<W>,
) -> Result<W, ConvertError> {
    let ids = FreshIds::new(trace);
    let clients: Vec<&str> =
        (0_u32..).take(trace.clients()).map(|client| trace.client_name(client)).collect();
    let size_bytes = segment_bytes.get();
    for (number, client) in clients.iter().enumerate() {
        writer.event(&lifecycle(&ids.id("register", number), client, Phase::Setup, 0, Action::Register))?;
        let (id, segment) = (ids.id("mount", number), format!("segment-{number}"));
        let action = Action::Mount { segment_id: &segment, size_bytes };
        writer.event(&lifecycle(&id, client, Phase::Setup, 0, action))?;
    }
    for event in trace.events() {
        writer.event(&Intent { phase: Some(Phase::Workload), ..event.intent() })?;
    }
    for (number, client) in clients.iter().enumerate() {
        let (id, segment) = (ids.id("unmount", number), format!("segment-{number}"));
        let action = Action::Unmount { segment_id: &segment };
        writer.event(&lifecycle(&id, client, Phase::Teardown, 0, action))?;
    }
    Ok(writer.finish()?)
}

/// The events of an unversioned trace by the phase they come to stand in.
struct Parts {
    workload: std::ops::Range<u32>,
    setup_end_us: u64,
    workload_end_us: u64,
}

fn parts(trace: &Trace) -> Result<Parts, ConvertError> {
    let is_key = |event: &Event<'_>| !event.op().is_lifecycle();
    let first = trace.events().find(is_key).map(|event| event.index());
    let last = trace.events().filter(is_key).last().map(|event| event.index());
    let count = u32::try_from(trace.len()).unwrap_or(u32::MAX);
    // Without a key operation, what unmounts is teardown.
    let unmount = trace.events().find(|event| event.op() == Op::UnmountSegment).map(|event| event.index());
    let start = first.or(unmount).unwrap_or(count);
    let end = last.map_or(start, |last| last + 1);
    for event in trace.events() {
        let fits = match event.op() {
            Op::ReMountSegment | Op::MountSegment => event.index() < start,
            Op::UnmountSegment => event.index() >= end,
            _ => true,
        };
        if !fits {
            return Err(ConvertError::LifecycleInWorkload { id: event.id().to_owned(), op: event.op() });
        }
    }
    let time_before =
        |index: u32| index.checked_sub(1).map_or(0, |before| trace.event(before).timestamp_us());
    Ok(Parts { workload: start..end, setup_end_us: time_before(start), workload_end_us: time_before(end) })
}

fn convert_unversioned<W: Write>(trace: &Trace, mut writer: TraceWriter<W>) -> Result<W, ConvertError> {
    if trace.segments() == 0 {
        return Err(ConvertError::NothingMounted);
    }
    let parts = parts(trace)?;
    let mut before: HashMap<u32, &str> = HashMap::new();
    let mut end_us = 0;
    for event in trace.events() {
        let index = event.index();
        let (phase, origin_us) = match () {
            () if index < parts.workload.start => (Phase::Setup, 0),
            () if index < parts.workload.end => (Phase::Workload, parts.setup_end_us),
            () => (Phase::Teardown, parts.workload_end_us),
        };
        let mut intent = event.intent();
        intent.phase = Some(phase);
        intent.timestamp_us -= origin_us;
        end_us = if phase == Phase::Teardown { intent.timestamp_us } else { 0 };
        let previous = before.insert(event.client(), event.id());
        if let Some(previous) = previous.filter(|previous| !intent.depends_on.contains(previous)) {
            intent.depends_on.push(previous);
        }
        writer.event(&intent)?;
    }
    unmount_the_rest(trace, &mut writer, end_us)?;
    Ok(writer.finish()?)
}

fn unmount_the_rest<W: Write>(
    trace: &Trace,
    writer: &mut TraceWriter<W>,
    end_us: u64,
) -> Result<(), WriteTraceError> {
    let ids = FreshIds::new(trace);
    for (number, mount) in trace.columns.mounts.iter().enumerate().filter(|(_, mount)| !mount.unmounted) {
        let mounted = trace.event(mount.event);
        let id = ids.id("unmount", number);
        let action = Action::Unmount { segment_id: mounted.segment_id().unwrap_or_default() };
        writer.event(&lifecycle(&id, mounted.client_id(), Phase::Teardown, end_us, action))?;
    }
    Ok(())
}
