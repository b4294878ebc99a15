//! `samples.jsonl`: one line for every event.

use std::io::{self, Write};
use std::path::PathBuf;

use serde::Serialize;
use thiserror::Error;

use super::record::{KeyStatusCounts, Outcomes};
use crate::contract::{Dialect, Trace};

/// An output could not be written.
#[derive(Debug, Error)]
#[error("write {}", path.display())]
pub struct OutputError {
    /// Which one.
    pub path: PathBuf,
    /// The system's reason.
    pub source: io::Error,
}

/// Writes one object for every event, in the order of the file.
///
/// # Errors
///
/// The output cannot be written.
pub fn write_samples(trace: &Trace, outcomes: &Outcomes, mut out: impl Write) -> io::Result<()> {
    let phases = trace.dialect() != Dialect::Unversioned;
    // Names are written as they are, because serde looks for what is to be escaped in every one of them, every time.
    let mut line = Line::default();
    let mut statuses = Statuses::new()?;
    for event in trace.events() {
        let sample = outcomes.sample(trace, event.index());
        line.bytes.clear();
        line.value(r#"{"id":"#, event.id())?;
        line.value(r#","client_id":"#, event.client_id())?;
        line.name(r#","op":"#, event.op().name());
        if phases {
            line.name(r#","phase":"#, event.phase().name());
            line.value(r#","phase_origin_us":"#, &sample.phase_origin_us)?;
        }
        line.value(r#","scheduled_us":"#, &sample.scheduled_us)?;
        line.value(r#","start_us":"#, &sample.start_us)?;
        line.value(r#","finish_us":"#, &sample.finish_us)?;
        line.value(r#","planned_keys":"#, &event.key_count())?;
        line.value(r#","rpc_sent":"#, &sample.rpc_sent)?;
        line.text(r#","key_status":"#);
        line.text(statuses.json(KeyStatusCounts::of(sample.statuses))?);
        line.value(r#","error":"#, sample.error)?;
        line.text("}\n");
        out.write_all(&line.bytes)?;
    }
    out.flush()
}

#[derive(Default)]
struct Line {
    bytes: Vec<u8>,
}

impl Line {
    fn text(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// A value that needs no escapes.
    fn name(&mut self, before: &str, name: &str) {
        self.text(before);
        self.text("\"");
        self.text(name);
        self.text("\"");
    }

    fn value(&mut self, before: &str, value: &(impl Serialize + ?Sized)) -> io::Result<()> {
        self.text(before);
        Ok(serde_json::to_writer(&mut self.bytes, value)?)
    }
}

/// The counts of the event before as JSON: those of the next are mostly the same.
struct Statuses {
    counts: KeyStatusCounts,
    json: String,
}

impl Statuses {
    fn new() -> io::Result<Self> {
        let counts = KeyStatusCounts::default();
        Ok(Statuses { counts, json: serde_json::to_string(&counts)? })
    }

    fn json(&mut self, counts: KeyStatusCounts) -> io::Result<&str> {
        if counts != self.counts {
            *self = Statuses { counts, json: serde_json::to_string(&counts)? };
        }
        Ok(&self.json)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::contract::{Op, Phase};
    use crate::outcome::KeyStatus;
    use crate::schedule::Speed;

    #[derive(Serialize)]
    struct Expected<'a> {
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

    /// What serde writes of the same event.
    fn expected(trace: &Trace, outcomes: &Outcomes, index: u32) -> String {
        let (event, sample) = (trace.event(index), outcomes.sample(trace, index));
        let phases = trace.dialect() != Dialect::Unversioned;
        let line = Expected {
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
        };
        serde_json::to_string(&line).expect("JSON")
    }

    fn trace(names: &[String], keys: usize) -> Trace {
        let mut text = String::from("{\"type\":\"master_rpc_trace\",\"version\":1,\"time_unit\":\"us\"}\n");
        for (index, name) in names.iter().enumerate() {
            let event = serde_json::json!({
                "id": format!("{name}{index}"), "client_id": format!("{name}c"), "timestamp_us": index,
                "op": "BatchExistKey", "keys": vec![format!("k{name}"); keys],
            });
            text += &format!("{event}\n");
        }
        Trace::parse(text.as_bytes()).expect("a valid trace")
    }

    proptest! {
        #[test]
        fn every_line_is_what_serde_writes(
            names in prop::collection::vec(".{0,12}", 1..8),
            keys in 1..4_usize,
            found in prop::collection::vec((any::<u64>(), any::<u64>(), 0..6_usize, any::<bool>(), ".{0,8}"), 8),
        ) {
            let trace = trace(&names, keys);
            let mut outcomes = Outcomes::new(&trace, Speed::ONE);
            outcomes.begin_phase(Phase::Workload, found[0].0);
            for ((event, (start, finish, status, sent, error)), index) in trace.events().zip(&found).zip(0..) {
                outcomes.start(index, *start);
                outcomes.finish(index, *finish, *sent);
                outcomes.statuses_mut(event.key_range())[0] = KeyStatus::ALL[*status];
                if !error.is_empty() {
                    outcomes.set_error(index, error);
                }
            }
            let mut written = Vec::new();
            write_samples(&trace, &outcomes, &mut written).expect("written");
            let written = String::from_utf8(written).expect("UTF-8");
            let expected: String = (0..).take(trace.len()).map(|index| expected(&trace, &outcomes, index) + "\n").collect();
            prop_assert_eq!(written, expected);
        }
    }

    #[test]
    fn an_unversioned_trace_has_no_phases() {
        let header = r#"{"type":"master_rpc_trace","time_unit":"us"}"#;
        let row = r#"{"id":"a","timestamp_us":0,"client_id":"c","op":"ReMountSegment","segments":[]}"#;
        let trace = Trace::parse(format!("{header}\n{row}\n").as_bytes()).expect("a valid trace");
        assert_eq!(trace.dialect(), Dialect::Unversioned);
        let outcomes = Outcomes::new(&trace, Speed::ONE);
        let mut written = Vec::new();
        write_samples(&trace, &outcomes, &mut written).expect("written");
        assert_eq!(String::from_utf8(written).expect("UTF-8"), expected(&trace, &outcomes, 0) + "\n");
    }
}
