//! A trace in memory.

use std::fmt;

use serde::{Serialize, Serializer};

use super::strings::Strings;

/// What stands in for "no index" in a compact column.
pub(crate) const NONE: u32 = u32::MAX;

macro_rules! names {
    ($(#[doc = $doc:literal])+ $type:ident { $($(#[doc = $item:literal])+ $name:ident = $text:literal,)+ }) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $type { $($(#[doc = $item])+ $name,)+ }

        impl $type {
            /// Every value, in order.
            pub const ALL: &[$type] = &[$($type::$name),+];

            /// The name used in files.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $($type::$name => $text,)+ }
            }

            /// The value with this name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($text => Some($type::$name),)+ _ => None }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }
    };
}

names! {
    /// Which of the three contracts a trace follows.
    Dialect {
        /// One phase, six key operations.
        V1 = "v1",
        /// Setup, workload and teardown, with the storage's life.
        V2 = "v2",
        /// One timeline without a version, one worker per client.
        Unversioned = "u",
    }
}

names! {
    /// A part of the replay; the next one starts when every event of this one has finished.
    Phase {
        /// Registrations and mounts.
        Setup = "setup",
        /// What is measured.
        Workload = "workload",
        /// Unmounts.
        Teardown = "teardown",
    }
}

names! {
    /// What an event asks of the master.
    Op {
        /// Do these keys exist?
        BatchExistKey = "BatchExistKey",
        /// Where are the replicas of these keys?
        BatchGetReplicaList = "BatchGetReplicaList",
        /// Allocate room for these keys.
        BatchPutStart = "BatchPutStart",
        /// These keys are written.
        BatchPutEnd = "BatchPutEnd",
        /// Writing these keys is given up.
        BatchPutRevoke = "BatchPutRevoke",
        /// Forget these keys.
        BatchRemove = "BatchRemove",
        /// Register a client.
        ReMountSegment = "ReMountSegment",
        /// Add capacity.
        MountSegment = "MountSegment",
        /// Take capacity away.
        UnmountSegment = "UnmountSegment",
    }
}

impl Op {
    /// Whether it is about clients and segments, not about keys.
    #[must_use]
    pub const fn is_lifecycle(self) -> bool {
        matches!(self, Op::ReMountSegment | Op::MountSegment | Op::UnmountSegment)
    }

    /// Whether it ends what a [`BatchPutStart`](Op::BatchPutStart) began.
    #[must_use]
    pub const fn is_finaliser(self) -> bool {
        matches!(self, Op::BatchPutEnd | Op::BatchPutRevoke)
    }
}

/// One event, 32 bytes; what varies in length is in columns of the trace, of which it knows its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) timestamp_us: u64,
    pub(crate) client: u32,
    pub(crate) keys_end: u32,
    pub(crate) dependencies_end: u32,
    /// The write of a Start, End or Revoke; the segment of a mount or unmount.
    pub(crate) link: u32,
    pub(crate) op: Op,
    pub(crate) phase: Phase,
}

/// A write: begun by one event, finalised by one.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) start: u32,
    pub(crate) finaliser: u32,
    /// The first of its total sizes, one for each key.
    pub(crate) sizes: u32,
    /// The first of its slice counts, if it has slices.
    pub(crate) slice_counts: u32,
    /// The first of its slices.
    pub(crate) slices: u32,
    pub(crate) replica_num: u64,
    pub(crate) line: u64,
}

/// A mounted segment.
#[derive(Clone, Debug)]
pub(crate) struct Mount {
    pub(crate) event: u32,
    pub(crate) client: u32,
    pub(crate) unmounted: bool,
    pub(crate) size_bytes: u64,
    pub(crate) line: u64,
}

/// Everything but the strings' lookup tables.
#[derive(Clone, Debug, Default)]
pub(crate) struct Columns {
    pub(crate) events: Vec<Row>,
    pub(crate) keys: Vec<u32>,
    pub(crate) dependencies: Vec<u32>,
    pub(crate) writes: Vec<Write>,
    pub(crate) sizes: Vec<u64>,
    pub(crate) slice_counts: Vec<u32>,
    pub(crate) slices: Vec<u64>,
    pub(crate) mounts: Vec<Mount>,
}

/// A valid trace, wholly in memory: about 32 bytes an event and 4 a key beside the strings, each kept once.
///
/// Events are known by their index in file order, from 0.
#[derive(Clone, Debug)]
pub struct Trace {
    pub(crate) dialect: Dialect,
    pub(crate) metadata: Option<Box<str>>,
    pub(crate) ids: Strings,
    pub(crate) clients: Strings,
    pub(crate) keys: Strings,
    pub(crate) segments: Strings,
    pub(crate) columns: Columns,
}

/// How many events each phase has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PhaseCounts {
    /// Events of setup.
    pub setup: u64,
    /// Events of the workload.
    pub workload: u64,
    /// Events of teardown.
    pub teardown: u64,
}

impl Trace {
    /// Which contract it follows.
    #[must_use]
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The header's metadata, as the JSON text it was.
    #[must_use]
    pub fn metadata_json(&self) -> Option<&str> {
        self.metadata.as_deref()
    }

    /// How many events it has; never 0.
    #[expect(clippy::len_without_is_empty, reason = "a trace without events is not valid")]
    #[must_use]
    pub fn len(&self) -> usize {
        self.columns.events.len()
    }

    /// How many logical clients it has.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// The name of a client, by its number.
    ///
    /// # Panics
    ///
    /// There is no client of that number.
    #[must_use]
    pub fn client_name(&self, client: u32) -> &str {
        self.clients.get(client)
    }

    /// How many different keys it names.
    #[must_use]
    pub fn distinct_keys(&self) -> usize {
        self.keys.len()
    }

    /// How many keys its events name, repeats counted.
    #[must_use]
    pub fn planned_keys(&self) -> usize {
        self.columns.keys.len()
    }

    /// How many segments it mounts.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.columns.mounts.len()
    }

    /// The name of a segment, by its number.
    ///
    /// # Panics
    ///
    /// There is no segment of that number.
    #[must_use]
    pub fn segment_name(&self, segment: u32) -> &str {
        self.segments.get(segment)
    }

    /// Bytes of all ids, client names, keys and segment names, each counted once.
    #[must_use]
    pub fn string_bytes(&self) -> usize {
        [&self.ids, &self.clients, &self.keys, &self.segments]
            .iter()
            .map(|strings| strings.text_bytes())
            .sum()
    }

    /// How many events each phase has; nothing in the unversioned dialect, which has no phases.
    #[must_use]
    pub fn phases(&self) -> Option<PhaseCounts> {
        let range = |phase| self.phase_range(phase).len() as u64;
        (self.dialect != Dialect::Unversioned).then(|| PhaseCounts {
            setup: range(Phase::Setup),
            workload: range(Phase::Workload),
            teardown: range(Phase::Teardown),
        })
    }

    /// The events of a phase: consecutive, perhaps none. An unversioned trace is all workload.
    #[must_use]
    pub fn phase_range(&self, phase: Phase) -> std::ops::Range<u32> {
        let events = &self.columns.events;
        let start = events.partition_point(|row| row.phase < phase);
        let end = events.partition_point(|row| row.phase <= phase);
        count(start)..count(end)
    }

    /// The event of this index.
    ///
    /// # Panics
    ///
    /// There is no event of that index.
    #[must_use]
    pub fn event(&self, index: u32) -> Event<'_> {
        Event { trace: self, index, row: &self.columns.events[index as usize] }
    }

    /// All events, in file order.
    pub fn events(&self) -> impl ExactSizeIterator<Item = Event<'_>> {
        let all = self.columns.events.iter().enumerate();
        all.map(|(index, row)| Event { trace: self, index: count(index), row })
    }

    fn end_before(&self, index: u32, end: impl Fn(&Row) -> u32) -> usize {
        index.checked_sub(1).map_or(0, |before| end(&self.columns.events[before as usize]) as usize)
    }
}

fn count(index: usize) -> u32 {
    u32::try_from(index).expect("the reader refuses more than 2^32-2 events")
}

/// One event of a trace.
#[derive(Clone, Copy, Debug)]
pub struct Event<'t> {
    trace: &'t Trace,
    index: u32,
    row: &'t Row,
}

impl<'t> Event<'t> {
    /// Its place in the file.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Its name.
    #[must_use]
    pub fn id(&self) -> &'t str {
        self.trace.ids.get(self.index)
    }

    /// What it asks.
    #[must_use]
    pub fn op(&self) -> Op {
        self.row.op
    }

    /// Its phase; an unversioned trace is all workload.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.row.phase
    }

    /// When it is due, after the origin of its phase, at speed 1.
    #[must_use]
    pub fn timestamp_us(&self) -> u64 {
        self.row.timestamp_us
    }

    /// The number of its client.
    #[must_use]
    pub fn client(&self) -> u32 {
        self.row.client
    }

    /// The name of its client.
    #[must_use]
    pub fn client_id(&self) -> &'t str {
        self.trace.clients.get(self.row.client)
    }

    /// The places of its keys among the planned keys of the whole trace.
    #[must_use]
    pub fn key_range(&self) -> std::ops::Range<usize> {
        self.trace.end_before(self.index, |row| row.keys_end)..self.row.keys_end as usize
    }

    /// How many keys it has.
    #[must_use]
    pub fn key_count(&self) -> usize {
        self.key_range().len()
    }

    /// Its keys as numbers; equal keys have equal numbers.
    #[must_use]
    pub fn key_numbers(&self) -> &'t [u32] {
        &self.trace.columns.keys[self.key_range()]
    }

    /// Its keys.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &'t str> + use<'t> {
        let strings = &self.trace.keys;
        self.key_numbers().iter().map(|key| strings.get(*key))
    }

    /// The indexes of the events that must have finished before, ascending.
    #[must_use]
    pub fn dependencies(&self) -> &'t [u32] {
        let start = self.trace.end_before(self.index, |row| row.dependencies_end);
        &self.trace.columns.dependencies[start..self.row.dependencies_end as usize]
    }

    pub(crate) fn trace(&self) -> &'t Trace {
        self.trace
    }

    fn write(&self) -> Option<&'t Write> {
        let writes = self.row.op == Op::BatchPutStart || self.row.op.is_finaliser();
        writes.then(|| &self.trace.columns.writes[self.row.link as usize])
    }

    /// The event that began the write which this one finalises.
    #[must_use]
    pub fn put_start(&self) -> Option<u32> {
        self.write().filter(|_| self.row.op.is_finaliser()).map(|write| write.start)
    }

    /// The event that finalises the write which this one begins.
    #[must_use]
    pub fn finaliser(&self) -> Option<u32> {
        self.write().filter(|_| self.row.op == Op::BatchPutStart).map(|write| write.finaliser)
    }

    fn started(&self) -> Option<&'t Write> {
        self.write().filter(|_| self.row.op == Op::BatchPutStart)
    }

    /// How many replicas a write asks for.
    #[must_use]
    pub fn replica_num(&self) -> Option<u64> {
        self.started().map(|write| write.replica_num)
    }

    /// The total size of each object of a write; empty for other events.
    #[must_use]
    pub fn value_bytes(&self) -> &'t [u64] {
        let sizes = |write: &Write| {
            let first = write.sizes as usize;
            first..first + self.key_count()
        };
        self.started().map_or(&[], |write| &self.trace.columns.sizes[sizes(write)])
    }

    /// The slices of each object of a write, if it gives slices.
    #[must_use]
    pub fn value_slices(&self) -> Option<Vec<&'t [u64]>> {
        let write = self.started().filter(|write| write.slice_counts != NONE)?;
        let columns = &self.trace.columns;
        let counts = &columns.slice_counts[write.slice_counts as usize..][..self.key_count()];
        let mut rest = &columns.slices[write.slices as usize..];
        let take = |count: &u32| {
            let (taken, left) = rest.split_at(*count as usize);
            rest = left;
            taken
        };
        Some(counts.iter().map(take).collect())
    }

    /// The number of the segment that is mounted or unmounted.
    #[must_use]
    pub fn segment(&self) -> Option<u32> {
        let has_segment = matches!(self.row.op, Op::MountSegment | Op::UnmountSegment);
        has_segment.then_some(self.row.link)
    }

    /// The name of the segment that is mounted or unmounted.
    #[must_use]
    pub fn segment_id(&self) -> Option<&'t str> {
        self.segment().map(|segment| self.trace.segments.get(segment))
    }

    /// The size of the segment that is mounted.
    #[must_use]
    pub fn size_bytes(&self) -> Option<u64> {
        let mounts = self.row.op == Op::MountSegment;
        mounts.then(|| self.trace.columns.mounts[self.row.link as usize].size_bytes)
    }
}
