//! `samples.jsonl`: one line for every event.

use std::io::{self, Write};
use std::path::PathBuf;

use serde::Serialize;
use thiserror::Error;

use super::record::{KeyStatusCounts, Outcomes};
use crate::contract::{Dialect, Op, Phase, Trace};

/// An output could not be written.
#[derive(Debug, Error)]
#[error("write {}", path.display())]
pub struct OutputError {
    /// Which one.
    pub path: PathBuf,
    /// The system's reason.
    pub source: io::Error,
}

#[derive(Serialize)]
struct Line<'a> {
    id: &'a str,
    client_id: &'a str,
    op: Op,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<Phase>,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase_origin_us: Option<u64>,
    scheduled_us: u64,
    start_us: u64,
    finish_us: u64,
    planned_keys: usize,
    rpc_sent: bool,
    key_status: KeyStatusCounts,
    error: &'a str,
}

/// Writes one object for every event, in the order of the file.
///
/// # Errors
///
/// The output cannot be written.
pub fn write_samples(trace: &Trace, outcomes: &Outcomes, mut out: impl Write) -> io::Result<()> {
    let phases = trace.dialect() != Dialect::Unversioned;
    let mut line = Vec::new();
    for event in trace.events() {
        let sample = outcomes.sample(trace, event.index());
        line.clear();
        serde_json::to_writer(
            &mut line,
            &Line {
                id: event.id(),
                client_id: event.client_id(),
                op: event.op(),
                phase: phases.then(|| event.phase()),
                phase_origin_us: phases.then_some(sample.phase_origin_us),
                scheduled_us: sample.scheduled_us,
                start_us: sample.start_us,
                finish_us: sample.finish_us,
                planned_keys: event.key_count(),
                rpc_sent: sample.rpc_sent,
                key_status: KeyStatusCounts::of(sample.statuses),
                error: sample.error,
            },
        )?;
        line.push(b'\n');
        out.write_all(&line)?;
    }
    out.flush()
}
