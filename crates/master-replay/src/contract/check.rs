//! The rules, in the order in which they are checked, and the trace they let through.

use super::error::Fault;
use super::row::{Bad, Field, Fields, Item, Node, Row, Word, shortened};
use super::rule::Rule;
use super::strings::{Absent, Interner};
use super::trace::{Columns, Dialect, Mount, NONE, Op, Phase, Row as EventRow, Trace, Write};

/// Builds a trace row by row; every row that breaks a rule is refused.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    dialect: Option<Dialect>,
    metadata: Option<Box<str>>,
    ids: Interner,
    clients: Interner,
    keys: Interner,
    segments: Interner,
    /// The event that registered each client.
    registrations: Vec<u32>,
    columns: Columns,
    line: u64,
    dependencies: Vec<u32>,
    keys_seen: Vec<u32>,
    text: String,
}

/// What later checks of the same row need.
struct Common {
    id: Absent,
    op: Op,
    phase: Phase,
    /// Nothing for a client that no event had before.
    client: Option<u32>,
    timestamp_us: u64,
    /// Where its keys begin in the column of keys.
    keys: usize,
}

impl Builder {
    /// Takes a row that was read from this line.
    pub(crate) fn row(&mut self, line: u64, row: &mut Row<'_>) -> Result<(), Fault> {
        if row.is_blank() {
            return Ok(());
        }
        self.line = line;
        let result = match (row.take_fault(), self.dialect) {
            (Some(bad), _) => Err(bad),
            (None, None) => self.header(row),
            (None, Some(dialect)) => self.event_or_nothing(dialect, row),
        };
        result.map_err(|bad| {
            let dialect = self.dialect.unwrap_or_else(|| guess_dialect(row.text()));
            Fault::at_line(bad, dialect, line, row.text())
        })
    }

    /// Brings near what the next rows will look up.
    ///
    /// Rows wait for one look-up after the other; here none waits, so that the processor fetches many at once.
    pub(crate) fn warm(&mut self, rows: &[Row<'_>]) {
        let ids = rows.iter().filter_map(|row| row.get(Field::Id));
        self.ids.warm(ids.filter_map(|id| id.plain_text()));
        let keys = rows.iter().filter_map(|row| row.array(Field::Keys)).flatten();
        self.keys.warm(keys.filter_map(|(_, key)| key.plain_text()));
    }

    fn header(&mut self, row: &Row<'_>) -> Result<(), Bad> {
        let has = |field| row.has(field);
        let is_header = has(Field::Type) || has(Field::Version) || has(Field::TimeUnit);
        if !is_header && (row.unknown.is_some() || row.first(Field::Metadata.alone().not()).is_some()) {
            return Err(Bad::new(Rule::HField, row.begin(0), "the first row is not the header of a trace"));
        }
        let dialect = match row.get(Field::Version) {
            None => Some(Dialect::Unversioned),
            Some(version) => match version.whole_number() {
                Some(1) => Some(Dialect::V1),
                Some(2) => Some(Dialect::V2),
                _ => None,
            },
        };
        if dialect != Some(Dialect::Unversioned) {
            check_known(row, Rule::HField, Fields::HEADER)?;
        }
        check_word(row, Field::Type, "master_rpc_trace", Rule::HType)?;
        let Some(dialect) = dialect else {
            let message = "`version` is neither 1 nor 2, in plain digits";
            return Err(Bad::new(Rule::HVersion, row.place(Field::Version), message));
        };
        check_word(row, Field::TimeUnit, "us", Rule::HTimeUnit)?;
        match row.get(Field::Metadata) {
            Some(Item { node: Node::Object, .. }) => {
                // Checked by the reader: only UTF-8 comes this far.
                let text = row.metadata.map(String::from_utf8_lossy);
                self.metadata = text.map(|text| text.into());
            }
            Some(_) => {
                let at = row.place(Field::Metadata);
                return Err(Bad::new(Rule::HMetadata, at, "`metadata` is not an object"));
            }
            None => {}
        }
        self.dialect = Some(dialect);
        Ok(())
    }

    /// A refused row leaves neither an event nor a part of one behind, so that a writer can go on after it. Names that it brought
    /// stay interned, which nothing can see.
    fn event_or_nothing(&mut self, dialect: Dialect, row: &Row<'_>) -> Result<(), Bad> {
        let columns = &self.columns;
        let keys = columns.keys.len();
        let sizes = columns.sizes.len();
        let slices = (columns.slice_counts.len(), columns.slices.len());
        self.event(dialect, row).inspect_err(|_| {
            self.columns.keys.truncate(keys);
            self.columns.sizes.truncate(sizes);
            self.columns.slice_counts.truncate(slices.0);
            self.columns.slices.truncate(slices.1);
        })
    }

    fn event(&mut self, dialect: Dialect, row: &Row<'_>) -> Result<(), Bad> {
        check_members(dialect, row)?;
        let id = self.check_new_id(row)?;
        let client = self.client(row)?;
        let op = required_text(row, Field::Op, Rule::EOp)?;
        let phase = self.phase(dialect, row)?;
        let op = check_op(dialect, row, op)?;
        let timestamp_us = self.timestamp(row, phase)?;
        let keys = self.columns.keys.len();
        self.take_keys(row, op)?;
        self.take_dependencies(row)?;
        let common = Common { id, op, phase, client, timestamp_us, keys };
        let mut link = NONE;
        if dialect != Dialect::V1 {
            link = self.lifecycle(dialect, row, &common)?;
        }
        if dialect != Dialect::Unversioned {
            check_lifecycle_fields(row, op)?;
        }
        if dialect == Dialect::V2 && !op.is_lifecycle() && phase != Phase::Workload {
            let message = format!("{op} belongs to the workload, not to {phase}");
            return Err(Bad::new(Rule::KPhase, row.place(Field::Phase), message));
        }
        if op == Op::BatchPutStart {
            link = self.begin_write(row, keys)?;
        } else if dialect != Dialect::Unversioned {
            check_absent(row, Fields::WRITE, Rule::FPutFields, op)?;
        }
        if op.is_finaliser() {
            link = self.finalise(row, &common)?;
        } else if dialect != Dialect::Unversioned {
            check_absent(row, Field::PutStart.alone(), Rule::FPutStart, op)?;
        }
        self.accept(row, &common, link)
    }

    /// Gives the proof that the id is new, with which it is kept once the row has been accepted.
    fn check_new_id(&mut self, row: &Row<'_>) -> Result<Absent, Bad> {
        let id = required_text(row, Field::Id, Rule::EId)?;
        let mut decoded = std::mem::take(&mut self.text);
        let found = self.ids.find(id.decode_in(&mut decoded));
        self.text = decoded;
        match found {
            Err(absent) => Ok(absent),
            Ok(_) => {
                let message = format!("the id `{}` is that of an earlier event", shortened(id.raw()));
                Err(Bad::new(Rule::EIdDup, row.place(Field::Id), message))
            }
        }
    }

    fn client(&mut self, row: &Row<'_>) -> Result<Option<u32>, Bad> {
        let name = required_text(row, Field::ClientId, Rule::EClient)?;
        Ok(self.find(Names::Clients, name))
    }

    /// The event that registered the row's client.
    fn registration(&self, common: &Common) -> Option<u32> {
        let registration = self.registrations[common.client? as usize];
        (registration != NONE).then_some(registration)
    }

    fn phase(&self, dialect: Dialect, row: &Row<'_>) -> Result<Phase, Bad> {
        let place = || row.place(Field::Phase);
        if dialect != Dialect::V2 {
            return match row.has(Field::Phase) && dialect == Dialect::V1 {
                true => Err(Bad::new(Rule::EPhaseV1, place(), "version 1 knows no phases")),
                false => Ok(Phase::Workload),
            };
        }
        let name = row.get(Field::Phase).and_then(|item| item.nonempty_text());
        let Some(phase) = name.and_then(|name| Phase::from_name(&name.decode())) else {
            let message = "`phase` is not one of `setup`, `workload` and `teardown`";
            return Err(Bad::new(Rule::EPhase, place(), message));
        };
        match self.columns.events.last() {
            Some(before) if before.phase > phase => {
                let message = format!("{phase} after {}", before.phase);
                Err(Bad::new(Rule::EPhaseOrder, place(), message))
            }
            _ => Ok(phase),
        }
    }

    fn timestamp(&self, row: &Row<'_>, phase: Phase) -> Result<u64, Bad> {
        let place = || row.place(Field::TimestampUs);
        let found = row.get(Field::TimestampUs).and_then(|item| item.whole_number());
        let Some(timestamp) = found else {
            let message = "`timestamp_us` is not a whole number of plain digits below 2^64";
            return Err(Bad::new(Rule::ETs, place(), message));
        };
        match self.columns.events.last() {
            Some(before) if before.phase == phase && before.timestamp_us > timestamp => {
                let message = format!("the timestamp {timestamp} follows {}", before.timestamp_us);
                Err(Bad::new(Rule::ETsOrder, place(), message))
            }
            _ => Ok(timestamp),
        }
    }

    fn take_keys(&mut self, row: &Row<'_>, op: Op) -> Result<(), Bad> {
        let place = || row.place(Field::Keys);
        if op.is_lifecycle() {
            return match row.has(Field::Keys) {
                true => Err(Bad::new(Rule::EKeysLifecycle, place(), format!("{op} has no keys"))),
                false => Ok(()),
            };
        }
        let before = self.columns.keys.len();
        let bad = |at| Bad::new(Rule::EKeys, at, "`keys` is not a nonempty array of nonempty strings");
        for (_, item) in row.array(Field::Keys).ok_or_else(|| bad(place()))? {
            let key = item.nonempty_text().ok_or_else(|| bad(row.begin(item.after)))?;
            let (key, _) = self.intern(Names::Keys, key, item.after)?;
            self.columns.keys.push(key);
        }
        if self.columns.keys.len() == before { Err(bad(place())) } else { Ok(()) }
    }

    fn take_dependencies(&mut self, row: &Row<'_>) -> Result<(), Bad> {
        self.dependencies.clear();
        if !row.has(Field::DependsOn) {
            return Ok(());
        }
        let place = row.place(Field::DependsOn);
        let not_array = || Bad::new(Rule::EDepsType, place, "`depends_on` is not an array");
        for (_, item) in row.array(Field::DependsOn).ok_or_else(not_array)? {
            let at = row.begin(item.after);
            let Node::Text(id) = item.node else {
                return Err(Bad::new(Rule::EDepsRef, at, "`depends_on` holds something else than an id"));
            };
            let Some(event) = self.find(Names::Ids, id) else {
                let message = format!("`depends_on` names no earlier event `{}`", shortened(id.raw()));
                return Err(Bad::new(Rule::EDepsRef, at, message));
            };
            self.dependencies.push(event);
        }
        Ok(())
    }

    /// The rules of registrations, mounts and unmounts; gives the segment's number.
    fn lifecycle(&mut self, dialect: Dialect, row: &Row<'_>, common: &Common) -> Result<u32, Bad> {
        if common.op == Op::ReMountSegment {
            return self.register(dialect, row, common).map(|()| NONE);
        }
        let Some(registration) = self.registration(common) else {
            let message = format!("the client `{}` is not registered yet", client_name(row));
            return Err(Bad::new(Rule::RRequired, row.place(Field::ClientId), message));
        };
        self.dependencies.push(registration);
        match common.op {
            Op::MountSegment => self.mount(dialect, row, common),
            Op::UnmountSegment => self.unmount(dialect, row, common),
            _ => Ok(NONE),
        }
    }

    fn register(&mut self, dialect: Dialect, row: &Row<'_>, common: &Common) -> Result<(), Bad> {
        if dialect == Dialect::V2 && common.phase != Phase::Setup {
            let message = format!("{} belongs to setup, not to {}", common.op, common.phase);
            return Err(Bad::new(Rule::RSetup, row.place(Field::Phase), message));
        }
        if self.registration(common).is_some() {
            let message = format!("the client `{}` is registered already", client_name(row));
            return Err(Bad::new(Rule::RDup, row.place(Field::ClientId), message));
        }
        if row.array(Field::Segments).is_none_or(|mut elements| elements.next().is_some()) {
            let message = "`segments` of a registration is not the empty array";
            return Err(Bad::new(Rule::RSegments, row.place(Field::Segments), message));
        }
        Ok(())
    }

    fn mount(&mut self, dialect: Dialect, row: &Row<'_>, common: &Common) -> Result<u32, Bad> {
        if dialect == Dialect::V2 && common.phase != Phase::Setup {
            let message = format!("{} belongs to setup, not to {}", common.op, common.phase);
            return Err(Bad::new(Rule::MPhase, row.place(Field::Phase), message));
        }
        let name = required_text(row, Field::SegmentId, Rule::MSegment)?;
        let place = row.place(Field::SegmentId);
        if self.find(Names::Segments, name).is_some() {
            let message = format!("the segment `{}` is mounted twice", shortened(name.raw()));
            return Err(Bad::new(Rule::MDup, place, message));
        }
        let Some(size_bytes) = row.get(Field::SizeBytes).and_then(|item| item.positive()) else {
            return Err(not_positive(Rule::MSize, "`size_bytes`", row.place(Field::SizeBytes)));
        };
        let (segment, _) = self.intern(Names::Segments, name, place)?;
        self.columns.mounts.push(Mount {
            event: self.next_event(),
            client: common.client.unwrap_or(NONE),
            unmounted: false,
            size_bytes,
            line: self.line,
        });
        Ok(segment)
    }

    fn unmount(&mut self, dialect: Dialect, row: &Row<'_>, common: &Common) -> Result<u32, Bad> {
        if dialect == Dialect::V2 && common.phase != Phase::Teardown {
            let message = format!("{} belongs to teardown, not to {}", common.op, common.phase);
            return Err(Bad::new(Rule::UPhase, row.place(Field::Phase), message));
        }
        let name = required_text(row, Field::SegmentId, Rule::USegment)?;
        let segment = self.find(Names::Segments, name);
        let bad = |rule, what: &str| {
            let message = format!("the segment `{}` {what}", shortened(name.raw()));
            Bad::new(rule, row.place(Field::SegmentId), message)
        };
        let segment = segment.ok_or_else(|| bad(Rule::UUnknown, "was never mounted"))?;
        let mount = &mut self.columns.mounts[segment as usize];
        if mount.unmounted {
            return Err(bad(Rule::UTwice, "is unmounted already"));
        }
        if Some(mount.client) != common.client {
            return Err(bad(Rule::UOwner, "was mounted by another client"));
        }
        mount.unmounted = true;
        self.dependencies.push(mount.event);
        Ok(segment)
    }

    /// The rules of writes; gives the write's number.
    fn begin_write(&mut self, row: &Row<'_>, keys: usize) -> Result<u32, Bad> {
        let write = Write {
            start: self.next_event(),
            finaliser: NONE,
            sizes: index(self.columns.sizes.len())?,
            slice_counts: NONE,
            slices: index(self.columns.slices.len())?,
            replica_num: 1,
            line: self.line,
        };
        let key_count = self.columns.keys.len() - keys;
        let slice_counts = match (row.has(Field::ValueSizes), row.has(Field::ValueSlices)) {
            (true, false) => self.take_sizes(row, key_count).map(|()| NONE)?,
            (false, true) => self.take_slices(row, key_count)?,
            (both, _) => {
                let what = if both { "both" } else { "neither" };
                let message = format!("{what} of `value_sizes` and `value_slices` are there");
                return Err(Bad::new(Rule::SOneOf, row.place(Field::ValueSlices), message));
            }
        };
        self.check_keys_once(row, keys)?;
        let replica_num = match row.get(Field::ReplicaNum) {
            None => 1,
            Some(item) => item
                .positive()
                .ok_or_else(|| not_positive(Rule::SReplica, "`replica_num`", row.place(Field::ReplicaNum)))?,
        };
        let number = index(self.columns.writes.len())?;
        self.columns.writes.push(Write { slice_counts, replica_num, ..write });
        Ok(number)
    }

    fn take_sizes(&mut self, row: &Row<'_>, key_count: usize) -> Result<(), Bad> {
        let place = row.place(Field::ValueSizes);
        let sizes = row.array(Field::ValueSizes).filter(|sizes| sizes.clone().count() == key_count);
        let wrong = || Bad::new(Rule::SSizes, place, "`value_sizes` is not an array as long as `keys`");
        for (_, item) in sizes.ok_or_else(wrong)? {
            let at = row.begin(item.after);
            let size = item.positive().ok_or_else(|| not_positive(Rule::SSize, "a size", at))?;
            self.columns.sizes.push(size);
        }
        Ok(())
    }

    fn take_slices(&mut self, row: &Row<'_>, key_count: usize) -> Result<u32, Bad> {
        let place = row.place(Field::ValueSlices);
        let objects = row.array(Field::ValueSlices).filter(|objects| objects.clone().count() == key_count);
        let wrong = || Bad::new(Rule::SSlices, place, "`value_slices` is not an array as long as `keys`");
        let first = index(self.columns.slice_counts.len())?;
        for (at, item) in objects.ok_or_else(wrong)? {
            self.take_object(row, at, &item)?;
        }
        Ok(first)
    }

    /// Takes the slices of one object.
    fn take_object(&mut self, row: &Row<'_>, place: usize, object: &Item<'_>) -> Result<(), Bad> {
        let begin = row.begin(object.after);
        let before = self.columns.slices.len();
        let wrong = || Bad::new(Rule::SSliceList, begin, "an object's slices are not a nonempty array");
        let mut total = 0_u64;
        for (_, item) in row.elements(place).ok_or_else(wrong)? {
            let at = row.begin(item.after);
            let slice = item.positive().ok_or_else(|| not_positive(Rule::SSlice, "a slice", at))?;
            let sum = total.checked_add(slice);
            total = sum.ok_or_else(|| {
                Bad::new(Rule::SOverflow, at, format!("{total} and {slice} add up to more than 2^64-1"))
            })?;
            self.columns.slices.push(slice);
        }
        if self.columns.slices.len() == before {
            return Err(wrong());
        }
        self.columns.slice_counts.push(index(self.columns.slices.len() - before)?);
        self.columns.sizes.push(total);
        Ok(())
    }

    fn check_keys_once(&mut self, row: &Row<'_>, first: usize) -> Result<(), Bad> {
        let keys = &self.columns.keys[first..];
        if keys.len() == 1 {
            return Ok(());
        }
        self.keys_seen.clear();
        self.keys_seen.extend_from_slice(keys);
        self.keys_seen.sort_unstable();
        match self.keys_seen.windows(2).find(|pair| pair[0] == pair[1]) {
            None => Ok(()),
            Some(pair) => {
                let key = shortened(self.keys.get(pair[0]));
                let message = format!("the key `{key}` stands twice in one write");
                Err(Bad::new(Rule::SDupKey, row.place(Field::Keys), message))
            }
        }
    }

    /// The rules of End and Revoke; gives the write's number.
    fn finalise(&mut self, row: &Row<'_>, common: &Common) -> Result<u32, Bad> {
        let id = required_text(row, Field::PutStart, Rule::PField)?;
        let bad = |rule, what: &str| {
            let message = format!("`put_start` names `{}`, which {what}", shortened(id.raw()));
            Bad::new(rule, row.place(Field::PutStart), message)
        };
        let start = self.find(Names::Ids, id).ok_or_else(|| bad(Rule::PRef, "is no earlier event"))?;
        let begun = self.columns.events[start as usize];
        if begun.op != Op::BatchPutStart {
            return Err(bad(Rule::PMatch, &format!("is a {}", begun.op)));
        }
        if Some(begun.client) != common.client {
            return Err(bad(Rule::PMatch, "is another client's"));
        }
        if self.columns.keys[self.key_range(start)] != self.columns.keys[common.keys..] {
            return Err(bad(Rule::PMatch, "has other keys"));
        }
        let event = self.next_event();
        let write = &mut self.columns.writes[begun.link as usize];
        if write.finaliser != NONE {
            return Err(bad(Rule::PTwice, "is finalised already"));
        }
        write.finaliser = event;
        self.dependencies.push(start);
        Ok(begun.link)
    }

    fn key_range(&self, event: u32) -> std::ops::Range<usize> {
        let events = &self.columns.events;
        let start = event.checked_sub(1).map_or(0, |before| events[before as usize].keys_end as usize);
        start..events[event as usize].keys_end as usize
    }

    fn accept(&mut self, row: &Row<'_>, common: &Common, link: u32) -> Result<(), Bad> {
        let id = required_text(row, Field::Id, Rule::EId)?;
        let name = required_text(row, Field::ClientId, Rule::EClient)?;
        let client = match common.client {
            Some(client) => client,
            None => self.new_client(name, row)?,
        };
        if common.op == Op::ReMountSegment {
            self.registrations[client as usize] = self.next_event();
        }
        let mut decoded = std::mem::take(&mut self.text);
        let inserted = self.ids.insert(common.id, id.decode_in(&mut decoded));
        self.text = decoded;
        inserted.ok_or_else(|| too_many(0))?;
        self.dependencies.sort_unstable();
        self.dependencies.dedup();
        self.columns.dependencies.extend_from_slice(&self.dependencies);
        let columns = &mut self.columns;
        columns.events.push(EventRow {
            timestamp_us: common.timestamp_us,
            client,
            keys_end: index(columns.keys.len())?,
            dependencies_end: index(columns.dependencies.len())?,
            link,
            op: common.op,
            phase: common.phase,
        });
        Ok(())
    }

    fn new_client(&mut self, name: Word<'_>, row: &Row<'_>) -> Result<u32, Bad> {
        let (client, _) = self.intern(Names::Clients, name, row.place(Field::ClientId))?;
        self.registrations.push(NONE);
        Ok(client)
    }

    fn next_event(&self) -> u32 {
        // An id is interned for every event, and interning refuses more than fit.
        u32::try_from(self.columns.events.len()).unwrap_or(NONE)
    }

    /// The rules of the whole file.
    pub(crate) fn finish(self) -> Result<Trace, Fault> {
        let fault = |rule, line, dialect, message: &str| Fault::whole_file(rule, dialect, line, message);
        let Some(dialect) = self.dialect else {
            return Err(fault(Rule::TEmpty, None, Dialect::V1, "the file has no header"));
        };
        let columns = &self.columns;
        if columns.events.is_empty() {
            return Err(fault(Rule::TEmpty, None, dialect, "the file has no event"));
        }
        if dialect == Dialect::V2 && columns.mounts.is_empty() {
            return Err(fault(Rule::TNoMount, None, dialect, "no segment is ever mounted"));
        }
        let left = columns.mounts.iter().position(|mount| !mount.unmounted);
        if let Some(left) = left.filter(|_| dialect == Dialect::V2) {
            let segment = shortened(self.segments.get(index(left).unwrap_or(NONE)));
            let message = format!("the segment `{segment}` is never unmounted");
            return Err(fault(Rule::TUnmounted, Some(columns.mounts[left].line), dialect, &message));
        }
        if let Some(write) = columns.writes.iter().find(|write| write.finaliser == NONE) {
            let message = format!("the write `{}` is never finalised", shortened(self.ids.get(write.start)));
            return Err(fault(Rule::TUnfinished, Some(write.line), dialect, &message));
        }
        Ok(self.into_trace(dialect))
    }

    fn into_trace(self, dialect: Dialect) -> Trace {
        let mut columns = self.columns;
        columns.events.shrink_to_fit();
        columns.keys.shrink_to_fit();
        columns.dependencies.shrink_to_fit();
        Trace {
            dialect,
            metadata: self.metadata,
            ids: self.ids.into_strings(),
            clients: self.clients.into_strings(),
            keys: self.keys.into_strings(),
            segments: self.segments.into_strings(),
            columns,
        }
    }

    fn find(&mut self, names: Names, text: Word<'_>) -> Option<u32> {
        let mut decoded = std::mem::take(&mut self.text);
        let found = self.names(names).find(text.decode_in(&mut decoded));
        self.text = decoded;
        found.ok()
    }

    fn intern(&mut self, names: Names, text: Word<'_>, at: usize) -> Result<(u32, bool), Bad> {
        let mut decoded = std::mem::take(&mut self.text);
        let interned = self.names(names).intern(text.decode_in(&mut decoded));
        self.text = decoded;
        interned.ok_or_else(|| too_many(at))
    }

    fn names(&mut self, names: Names) -> &mut Interner {
        match names {
            Names::Ids => &mut self.ids,
            Names::Clients => &mut self.clients,
            Names::Keys => &mut self.keys,
            Names::Segments => &mut self.segments,
        }
    }
}

/// The four separate name spaces.
#[derive(Clone, Copy)]
enum Names {
    Ids,
    Clients,
    Keys,
    Segments,
}

fn index(length: usize) -> Result<u32, Bad> {
    u32::try_from(length).ok().filter(|index| *index != NONE).ok_or_else(|| too_many(0))
}

fn too_many(at: usize) -> Bad {
    // The only rule that such a trace breaks is ours: it does not fit the compact form.
    Bad::new(Rule::TTooLarge, at, "the trace has more than 2^32-2 of something")
}

fn not_positive(rule: Rule, what: &str, at: usize) -> Bad {
    Bad::new(rule, at, format!("{what} is not a whole number between 1 and 2^64-1, in plain digits"))
}

fn check_members(dialect: Dialect, row: &Row<'_>) -> Result<(), Bad> {
    if dialect != Dialect::Unversioned {
        return check_known(row, Rule::EField, Fields::EVENT);
    }
    match row.first(Fields::FOREIGN) {
        None => Ok(()),
        Some(field) => {
            let message = format!("`{}` belongs to another dialect and would be ignored", field.name());
            Err(Bad::new(Rule::UForeign, row.place(field), message))
        }
    }
}

fn check_known(row: &Row<'_>, rule: Rule, known: Fields) -> Result<(), Bad> {
    if let Some((name, after)) = row.unknown {
        let message = format!("unknown field `{}`", shortened(name.raw()));
        return Err(Bad::new(rule, row.begin(after), message));
    }
    check_first(row, known.not(), rule, |field| format!("unknown field `{}`", field.name()))
}

fn check_absent(row: &Row<'_>, unwanted: Fields, rule: Rule, op: Op) -> Result<(), Bad> {
    check_first(row, unwanted, rule, |field| format!("`{}` does not belong to {op}", field.name()))
}

fn check_first(
    row: &Row<'_>,
    unwanted: Fields,
    rule: Rule,
    message: impl Fn(Field) -> String,
) -> Result<(), Bad> {
    match row.first(unwanted) {
        None => Ok(()),
        Some(field) => Err(Bad::new(rule, row.place(field), message(field))),
    }
}

fn check_lifecycle_fields(row: &Row<'_>, op: Op) -> Result<(), Bad> {
    if row.first(Fields::LIFECYCLE).is_none() {
        return Ok(());
    }
    let owners: [(Field, Rule, &[Op]); 3] = [
        (Field::SegmentId, Rule::FSegment, &[Op::MountSegment, Op::UnmountSegment]),
        (Field::SizeBytes, Rule::FSize, &[Op::MountSegment]),
        (Field::Segments, Rule::FSegments, &[Op::ReMountSegment]),
    ];
    owners.iter().try_for_each(|(field, rule, ops)| match ops.contains(&op) {
        true => Ok(()),
        false => check_absent(row, field.alone(), *rule, op),
    })
}

fn check_op(dialect: Dialect, row: &Row<'_>, name: Word<'_>) -> Result<Op, Bad> {
    let name = name.decode();
    let place = || row.place(Field::Op);
    if dialect == Dialect::Unversioned && name == "Ping" {
        return Err(Bad::new(Rule::UPing, place(), "a recorded Ping: heartbeats are the replayer's own"));
    }
    let op = Op::from_name(&name).ok_or_else(|| {
        Bad::new(Rule::EOpUnknown, place(), format!("unknown operation `{}`", shortened(&name)))
    })?;
    match dialect == Dialect::V1 && op.is_lifecycle() {
        true => Err(Bad::new(Rule::EOpV1, place(), format!("version 1 has no {op}"))),
        false => Ok(op),
    }
}

fn check_word(row: &Row<'_>, field: Field, wanted: &str, rule: Rule) -> Result<(), Bad> {
    match row.get(field).map(|item| item.node) {
        Some(Node::Text(found)) if found.decode() == wanted => Ok(()),
        _ => Err(Bad::new(rule, row.place(field), format!("`{}` is not `{wanted}`", field.name()))),
    }
}

#[inline]
fn required_text<'a>(row: &Row<'a>, field: Field, rule: Rule) -> Result<Word<'a>, Bad> {
    row.get(field).and_then(|item| item.nonempty_text()).ok_or_else(|| {
        let what = if row.has(field) { "is not a nonempty string" } else { "is missing" };
        Bad::new(rule, row.place(field), format!("`{}` {what}", field.name()))
    })
}

fn client_name(row: &Row<'_>) -> String {
    let name = row.get(Field::ClientId).and_then(|item| item.nonempty_text());
    name.map(|name| shortened(name.raw()).into_owned()).unwrap_or_default()
}

/// What a header that cannot be read seems to be.
fn guess_dialect(line: &[u8]) -> Dialect {
    let after =
        |name: &[u8]| memchr::memmem::find(line, name).map(|at| line[at + name.len()..].trim_ascii_start());
    match after(b"\"version\"") {
        Some(rest) => match rest.strip_prefix(b":").map(<[u8]>::trim_ascii_start) {
            Some([b'2', next, ..]) if !next.is_ascii_alphanumeric() && *next != b'.' => Dialect::V2,
            _ => Dialect::V1,
        },
        None if after(b"\"time_unit\"").is_some() || after(b"\"type\"").is_some() => Dialect::Unversioned,
        None => Dialect::V1,
    }
}
