//! A writer that only produces valid traces.

use std::io::{self, Write};

use thiserror::Error;

use super::check::Builder;
use super::error::Fault;
use super::row::{Layout, Row};
use super::trace::{Dialect, Event, Op, Phase};

/// The sizes of the objects of a write, one for each key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values<'a> {
    /// The size of each object.
    Sizes(Vec<u64>),
    /// The slices of each object.
    Slices(Vec<&'a [u64]>),
}

/// What an event asks, with what it needs for that.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action<'a> {
    /// `BatchExistKey`
    Exist {
        /// The keys.
        keys: Vec<&'a str>,
    },
    /// `BatchGetReplicaList`
    ReplicaList {
        /// The keys.
        keys: Vec<&'a str>,
    },
    /// `BatchPutStart`
    PutStart {
        /// The keys.
        keys: Vec<&'a str>,
        /// The objects' sizes.
        values: Values<'a>,
        /// How many replicas; nothing leaves the member out.
        replica_num: Option<u64>,
    },
    /// `BatchPutEnd`
    PutEnd {
        /// The keys.
        keys: Vec<&'a str>,
        /// The id of the Start.
        put_start: &'a str,
    },
    /// `BatchPutRevoke`
    PutRevoke {
        /// The keys.
        keys: Vec<&'a str>,
        /// The id of the Start.
        put_start: &'a str,
    },
    /// `BatchRemove`
    Remove {
        /// The keys.
        keys: Vec<&'a str>,
    },
    /// `ReMountSegment`
    Register,
    /// `MountSegment`
    Mount {
        /// The segment.
        segment_id: &'a str,
        /// Its size.
        size_bytes: u64,
    },
    /// `UnmountSegment`
    Unmount {
        /// The segment.
        segment_id: &'a str,
    },
}

impl Action<'_> {
    /// The operation's name.
    #[must_use]
    pub const fn op(&self) -> Op {
        match self {
            Action::Exist { .. } => Op::BatchExistKey,
            Action::ReplicaList { .. } => Op::BatchGetReplicaList,
            Action::PutStart { .. } => Op::BatchPutStart,
            Action::PutEnd { .. } => Op::BatchPutEnd,
            Action::PutRevoke { .. } => Op::BatchPutRevoke,
            Action::Remove { .. } => Op::BatchRemove,
            Action::Register => Op::ReMountSegment,
            Action::Mount { .. } => Op::MountSegment,
            Action::Unmount { .. } => Op::UnmountSegment,
        }
    }

    fn keys(&self) -> Option<&[&str]> {
        match self {
            Action::Exist { keys }
            | Action::ReplicaList { keys }
            | Action::PutStart { keys, .. }
            | Action::PutEnd { keys, .. }
            | Action::PutRevoke { keys, .. }
            | Action::Remove { keys } => Some(keys),
            _ => None,
        }
    }
}

/// One event to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent<'a> {
    /// Its name.
    pub id: &'a str,
    /// When it is due, after the origin of its phase.
    pub timestamp_us: u64,
    /// Its client.
    pub client_id: &'a str,
    /// Its phase; only version 2 has phases.
    pub phase: Option<Phase>,
    /// The ids of earlier events that must have finished before, beside those that the contract implies.
    pub depends_on: Vec<&'a str>,
    /// What it asks.
    pub action: Action<'a>,
}

impl<'t> Event<'t> {
    /// The event as something to be written, without the dependencies that the contract implies.
    #[must_use]
    pub fn intent(&self) -> Intent<'t> {
        let keys = || self.keys().collect();
        let action = match self.op() {
            Op::BatchExistKey => Action::Exist { keys: keys() },
            Op::BatchGetReplicaList => Action::ReplicaList { keys: keys() },
            Op::BatchPutStart => Action::PutStart {
                keys: keys(),
                values: match self.value_slices() {
                    Some(slices) => Values::Slices(slices),
                    None => Values::Sizes(self.value_bytes().to_vec()),
                },
                replica_num: self.replica_num().filter(|number| *number != 1),
            },
            Op::BatchPutEnd => Action::PutEnd { keys: keys(), put_start: self.put_start_id() },
            Op::BatchPutRevoke => Action::PutRevoke { keys: keys(), put_start: self.put_start_id() },
            Op::BatchRemove => Action::Remove { keys: keys() },
            Op::ReMountSegment => Action::Register,
            Op::MountSegment => Action::Mount {
                segment_id: self.segment_id().unwrap_or_default(),
                size_bytes: self.size_bytes().unwrap_or_default(),
            },
            Op::UnmountSegment => Action::Unmount { segment_id: self.segment_id().unwrap_or_default() },
        };
        Intent {
            id: self.id(),
            timestamp_us: self.timestamp_us(),
            client_id: self.client_id(),
            phase: (self.trace().dialect() == Dialect::V2).then(|| self.phase()),
            depends_on: self.stated_dependencies().map(|index| self.trace().event(index).id()).collect(),
            action,
        }
    }

    fn put_start_id(&self) -> &'t str {
        self.put_start().map(|start| self.trace().event(start).id()).unwrap_or_default()
    }

    /// Its dependencies without those that the contract implies.
    fn stated_dependencies(&self) -> impl Iterator<Item = u32> + use<'t> {
        let event = *self;
        self.dependencies().iter().copied().filter(move |index| !event.implies(*index))
    }

    fn implies(&self, index: u32) -> bool {
        let other = self.trace().event(index);
        let registers = other.op() == Op::ReMountSegment && other.client() == self.client();
        let mounts = self.op() == Op::UnmountSegment && other.segment() == self.segment();
        self.put_start() == Some(index) || registers && self.op() != Op::ReMountSegment || mounts
    }
}

/// Why an event or a trace was not written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WriteTraceError {
    /// It would break a rule. Nothing of it was written, and the writer can go on.
    #[error("write an event that breaks a rule")]
    Invalid(#[from] Fault),
    /// No key operation lies in the window of a slice.
    #[error("slice the trace: no key operation lies in the window")]
    NothingLeft,
    /// The output cannot be written.
    #[error("write the trace")]
    Write(#[from] io::Error),
}

/// Writes a trace event by event and checks each by the rules of the reader, so that what [`finish`](Self::finish)
/// accepts is a valid trace.
///
/// It keeps what the rules need to know of every event, which is about the size of the trace in memory.
///
/// ```
/// use master_replay::{Action, Dialect, Intent, Trace, TraceWriter};
///
/// let mut writer = TraceWriter::new(Vec::new(), Dialect::V1, None)?;
/// writer.event(&Intent {
///     id: "e1",
///     timestamp_us: 0,
///     client_id: "c",
///     phase: None,
///     depends_on: vec![],
///     action: Action::Exist { keys: vec!["k"] },
/// })?;
/// let bytes = writer.finish()?;
/// assert_eq!(Trace::parse(&bytes)?.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TraceWriter<W> {
    out: W,
    builder: Builder,
    layout: Layout,
    line: u64,
}

impl<W: Write> TraceWriter<W> {
    /// Begins a trace of this dialect; `metadata` is the text of a JSON object.
    ///
    /// # Errors
    ///
    /// `metadata` is no JSON object, or the output cannot be written.
    pub fn new(out: W, dialect: Dialect, metadata: Option<&str>) -> Result<Self, WriteTraceError> {
        let version = match dialect {
            Dialect::V1 => "\"version\":1,",
            Dialect::V2 => "\"version\":2,",
            Dialect::Unversioned => "",
        };
        let metadata = metadata.map(|text| format!(",\"metadata\":{text}")).unwrap_or_default();
        let header = format!("{{\"type\":\"master_rpc_trace\",{version}\"time_unit\":\"us\"{metadata}}}");
        let mut writer = TraceWriter { out, builder: Builder::default(), layout: Layout::default(), line: 0 };
        // A row cannot span lines, and between JSON tokens a newline is only space.
        writer.row(header.replace('\n', " ").as_bytes())?;
        Ok(writer)
    }

    /// Writes one event.
    ///
    /// # Errors
    ///
    /// It breaks a rule, and nothing was written; or the output cannot be written.
    pub fn event(&mut self, intent: &Intent<'_>) -> Result<(), WriteTraceError> {
        let mut text = Vec::new();
        write_intent(&mut text, intent)?;
        self.row(&text)
    }

    fn row(&mut self, text: &[u8]) -> Result<(), WriteTraceError> {
        let mut row = Row::new();
        row.read(text, &mut self.layout);
        self.builder.row(self.line + 1, &mut row)?;
        self.line += 1;
        self.out.write_all(text)?;
        self.out.write_all(b"\n")?;
        Ok(())
    }

    /// Ends the trace and gives the output back, flushed.
    ///
    /// # Errors
    ///
    /// A rule of the whole file is broken, for example by a write that is not finalised; or the output cannot be
    /// flushed. What was written is then no valid trace.
    pub fn finish(mut self) -> Result<W, WriteTraceError> {
        self.builder.finish()?;
        self.out.flush()?;
        Ok(self.out)
    }
}

fn write_intent(out: &mut Vec<u8>, intent: &Intent<'_>) -> io::Result<()> {
    out.push(b'{');
    member(out, "id", intent.id)?;
    write!(out, ",\"timestamp_us\":{},", intent.timestamp_us)?;
    member(out, "client_id", intent.client_id)?;
    out.push(b',');
    member(out, "op", intent.action.op().name())?;
    if let Some(phase) = intent.phase {
        out.push(b',');
        member(out, "phase", phase.name())?;
    }
    if !intent.depends_on.is_empty() {
        list(out, "depends_on", &intent.depends_on)?;
    }
    if let Some(keys) = intent.action.keys() {
        list(out, "keys", keys)?;
    }
    write_action(out, &intent.action)?;
    out.push(b'}');
    Ok(())
}

fn write_action(out: &mut Vec<u8>, action: &Action<'_>) -> io::Result<()> {
    match action {
        Action::PutStart { values, replica_num, .. } => {
            match values {
                Values::Sizes(sizes) => list(out, "value_sizes", sizes)?,
                Values::Slices(slices) => list(out, "value_slices", slices)?,
            }
            if let Some(number) = replica_num {
                write!(out, ",\"replica_num\":{number}")?;
            }
        }
        Action::PutEnd { put_start, .. } | Action::PutRevoke { put_start, .. } => {
            out.push(b',');
            member(out, "put_start", put_start)?;
        }
        Action::Register => out.extend_from_slice(b",\"segments\":[]"),
        Action::Mount { segment_id, size_bytes } => {
            out.push(b',');
            member(out, "segment_id", segment_id)?;
            write!(out, ",\"size_bytes\":{size_bytes}")?;
        }
        Action::Unmount { segment_id } => {
            out.push(b',');
            member(out, "segment_id", segment_id)?;
        }
        Action::Exist { .. } | Action::ReplicaList { .. } | Action::Remove { .. } => {}
    }
    Ok(())
}

fn member(out: &mut Vec<u8>, name: &str, value: &str) -> io::Result<()> {
    write!(out, "\"{name}\":")?;
    Ok(serde_json::to_writer(out, value)?)
}

fn list<T: serde::Serialize>(out: &mut Vec<u8>, name: &str, values: &[T]) -> io::Result<()> {
    write!(out, ",\"{name}\":")?;
    Ok(serde_json::to_writer(out, values)?)
}
