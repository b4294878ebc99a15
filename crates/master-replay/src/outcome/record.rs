//! One sample for every event, in columns.

use std::io::{self, Read, Write};

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use crate::contract::{Dialect, Phase, Trace};
use crate::schedule::Speed;

fn read_word(input: &mut impl Read) -> io::Result<u64> {
    let mut bytes = [0; 8];
    input.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

macro_rules! statuses {
    ($($(#[doc = $doc:literal])+ $name:ident = $field:ident,)+) => {
        /// What became of one key of one event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum KeyStatus { $($(#[doc = $doc])+ $name,)+ }

        impl KeyStatus {
            /// Every status.
            pub const ALL: &[KeyStatus] = &[$(KeyStatus::$name),+];
        }

        /// How many keys had each status.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct KeyStatusCounts { $($(#[doc = $doc])+ pub $field: u64,)+ }

        impl KeyStatusCounts {
            /// Counts these.
            #[must_use]
            pub fn of(statuses: &[KeyStatus]) -> Self {
                let mut counts = KeyStatusCounts::default();
                statuses.iter().for_each(|status| match status { $(KeyStatus::$name => counts.$field += 1,)+ });
                counts
            }

            /// Adds others.
            pub fn add(&mut self, other: &KeyStatusCounts) {
                $(self.$field += other.$field;)+
            }
        }
    };
}

statuses! {
    /// The master did what was asked.
    Ok = ok,
    /// There is no such object.
    Miss = miss,
    /// There is one, but nobody has finished writing it.
    NotReady = not_ready,
    /// There is one already.
    AlreadyExists = already_exists,
    /// Anything else went wrong.
    Error = error,
    /// The key was not sent, because its write did not start.
    Skipped = skipped,
}

const SENT: u8 = 1;
const FINISHED: u8 = 2;

/// What became of every event of a trace: 17 bytes for an event, one for a key.
#[derive(Clone, Debug)]
pub struct Outcomes {
    speed: Speed,
    phase_origins_us: [Option<u64>; 3],
    start_us: Vec<u64>,
    finish_us: Vec<u64>,
    flags: Vec<u8>,
    statuses: Vec<KeyStatus>,
    /// The few events with an error, and the few texts that those have.
    errors: HashMap<u32, u32>,
    texts: Vec<Box<str>>,
    text_numbers: HashMap<Box<str>, u32>,
}

/// What became of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sample<'o> {
    /// Where its phase began.
    pub phase_origin_us: u64,
    /// When it was due.
    pub scheduled_us: u64,
    /// When it was sent, or was found to have nothing to send.
    pub start_us: u64,
    /// When its reply was read.
    pub finish_us: u64,
    /// Whether anything was sent.
    pub rpc_sent: bool,
    /// What became of each key.
    pub statuses: &'o [KeyStatus],
    /// What went wrong; empty if nothing did.
    pub error: &'o str,
}

impl Sample<'_> {
    /// How long the event waited after it was due.
    #[must_use]
    pub fn dispatch_lag_us(&self) -> u64 {
        self.start_us.saturating_sub(self.scheduled_us)
    }

    /// From sending to reading the reply.
    #[must_use]
    pub fn call_us(&self) -> u64 {
        self.finish_us.saturating_sub(self.start_us)
    }

    /// From when it was due to reading the reply: what a caller would have waited who did not wait for our queue.
    #[must_use]
    pub fn from_due_us(&self) -> u64 {
        self.finish_us.saturating_sub(self.scheduled_us)
    }
}

/// As many values, in memory that is there: a page that is touched for the first time has to be found then, which takes tens of
/// microseconds in a virtual machine, and would be part of the lag and latency of the calls around it.
fn backed<T: Copy>(value: T, count: usize) -> Vec<T> {
    const PAGE_BYTES: usize = 4_096;
    let mut values = vec![value; count];
    let of_a_page = (PAGE_BYTES / size_of::<T>()).max(1);
    values.iter_mut().step_by(of_a_page).for_each(|place| *place = std::hint::black_box(value));
    values
}

impl Outcomes {
    /// Nothing has happened yet.
    #[must_use]
    pub fn new(trace: &Trace, speed: Speed) -> Self {
        Outcomes {
            speed,
            phase_origins_us: [None; 3],
            start_us: backed(0, trace.len()),
            finish_us: backed(0, trace.len()),
            flags: backed(0, trace.len()),
            statuses: backed(KeyStatus::Skipped, trace.planned_keys()),
            errors: HashMap::new(),
            texts: Vec::new(),
            text_numbers: HashMap::new(),
        }
    }

    /// Where a phase began.
    pub fn begin_phase(&mut self, phase: Phase, origin_us: u64) {
        self.phase_origins_us[phase as usize] = Some(origin_us);
    }

    /// Where a phase began, if it did.
    #[must_use]
    pub fn phase_origin_us(&self, phase: Phase) -> Option<u64> {
        self.phase_origins_us[phase as usize]
    }

    /// The speed of the replay.
    #[must_use]
    pub fn speed(&self) -> Speed {
        self.speed
    }

    /// The event was dispatched.
    pub fn start(&mut self, event: u32, now_us: u64) {
        self.start_us[event as usize] = now_us;
    }

    /// The event has ended.
    pub fn finish(&mut self, event: u32, now_us: u64, rpc_sent: bool) {
        self.finish_us[event as usize] = now_us;
        self.flags[event as usize] = FINISHED | if rpc_sent { SENT } else { 0 };
    }

    /// Keeps the event's first error.
    pub fn set_error(&mut self, event: u32, text: &str) {
        if self.errors.contains_key(&event) {
            return;
        }
        let number = match self.text_numbers.get(text) {
            Some(number) => *number,
            None => {
                let number = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
                self.texts.push(text.into());
                self.text_numbers.insert(text.into(), number);
                number
            }
        };
        self.errors.insert(event, number);
    }

    /// What became of some keys, by their places among all planned keys.
    pub fn statuses_mut(&mut self, keys: std::ops::Range<usize>) -> &mut [KeyStatus] {
        &mut self.statuses[keys]
    }

    /// What became of some keys.
    #[must_use]
    pub fn statuses(&self, keys: std::ops::Range<usize>) -> &[KeyStatus] {
        &self.statuses[keys]
    }

    /// Whether the event has ended.
    #[must_use]
    pub fn is_finished(&self, event: u32) -> bool {
        self.flags[event as usize] & FINISHED != 0
    }

    /// The event's error; empty if it has none.
    #[must_use]
    pub fn error(&self, event: u32) -> &str {
        self.errors.get(&event).map_or("", |number| &self.texts[*number as usize])
    }

    /// What became of an event.
    #[must_use]
    pub fn sample(&self, trace: &Trace, event: u32) -> Sample<'_> {
        let found = trace.event(event);
        let phase_origin_us = self.phase_origins_us[found.phase() as usize].unwrap_or(0);
        let due_us = self.speed.due_us(found.timestamp_us()).unwrap_or(u64::MAX);
        Sample {
            phase_origin_us,
            scheduled_us: phase_origin_us.saturating_add(due_us),
            start_us: self.start_us[event as usize],
            finish_us: self.finish_us[event as usize],
            rpc_sent: self.flags[event as usize] & SENT != 0,
            statuses: &self.statuses[found.key_range()],
            error: self.error(event),
        }
    }

    /// How long each event of a phase waited although it was due and everything it has to wait for had finished: what is
    /// our own doing, or that of a master that keeps all calls in flight. In the unversioned dialect an event also waits for
    /// the one before it of its client.
    pub fn own_lags_us<'o>(&'o self, trace: &'o Trace, phase: Phase) -> impl Iterator<Item = u64> + 'o {
        let mut free_us = match trace.dialect() {
            Dialect::Unversioned => vec![0; trace.clients()],
            _ => Vec::new(),
        };
        trace.phase_range(phase).map(move |event| {
            let (found, sample) = (trace.event(event), self.sample(trace, event));
            let finished = found.dependencies().iter().map(|dependency| self.finish_us[*dependency as usize]);
            let client_free_us = free_us.get_mut(found.client() as usize);
            let before_us = client_free_us.map_or(0, |free_us| std::mem::replace(free_us, sample.finish_us));
            let released_us = finished.max().unwrap_or(0).max(before_us);
            sample.start_us.saturating_sub(sample.scheduled_us.max(released_us))
        })
    }

    /// When the last event of a phase finished, after the replay's origin.
    #[must_use]
    pub fn phase_finish_us(&self, trace: &Trace, phase: Phase) -> Option<u64> {
        trace.phase_range(phase).map(|event| self.finish_us[event as usize]).max()
    }

    /// Whether any event has an error, or any key of any event.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        !self.errors.is_empty() || self.statuses.contains(&KeyStatus::Error)
    }

    /// The errors by how many events have them, most frequent first.
    #[must_use]
    pub fn error_counts(&self) -> Vec<(&str, u64)> {
        let mut counts = vec![0; self.texts.len()];
        self.errors.values().for_each(|number| counts[*number as usize] += 1);
        let mut counts: Vec<(&str, u64)> = self.texts.iter().map(|text| &**text).zip(counts).collect();
        counts.sort_by_key(|(text, count)| (std::cmp::Reverse(*count), *text));
        counts
    }

    /// Writes everything, for [`read_from`](Self::read_from).
    ///
    /// # Errors
    ///
    /// The output cannot be written.
    pub fn write_to(&self, mut out: impl Write) -> io::Result<()> {
        for origin_us in self.phase_origins_us {
            out.write_all(&origin_us.unwrap_or(u64::MAX).to_le_bytes())?;
        }
        for time_us in self.start_us.iter().chain(&self.finish_us) {
            out.write_all(&time_us.to_le_bytes())?;
        }
        out.write_all(&self.flags)?;
        for status in &self.statuses {
            out.write_all(&[*status as u8])?;
        }
        let errors: Vec<(u32, &str)> =
            self.errors.iter().map(|(event, number)| (*event, &*self.texts[*number as usize])).collect();
        serde_json::to_writer(&mut out, &errors)?;
        out.flush()
    }

    /// Reads what [`write_to`](Self::write_to) wrote of the same trace.
    ///
    /// # Errors
    ///
    /// The input cannot be read, or was written of another trace.
    pub fn read_from(trace: &Trace, speed: Speed, mut input: impl Read) -> io::Result<Self> {
        let mut outcomes = Outcomes::new(trace, speed);
        for origin_us in &mut outcomes.phase_origins_us {
            *origin_us = Some(read_word(&mut input)?).filter(|origin_us| *origin_us != u64::MAX);
        }
        for time_us in outcomes.start_us.iter_mut().chain(&mut outcomes.finish_us) {
            *time_us = read_word(&mut input)?;
        }
        input.read_exact(&mut outcomes.flags)?;
        let mut statuses = vec![0; outcomes.statuses.len()];
        input.read_exact(&mut statuses)?;
        for (status, byte) in outcomes.statuses.iter_mut().zip(statuses) {
            let known = KeyStatus::ALL.get(byte as usize).copied();
            *status = known.ok_or_else(|| io::Error::other(format!("{byte} is no status of a key")))?;
        }
        let errors: Vec<(u32, String)> = serde_json::from_reader(input)?;
        errors.iter().for_each(|(event, text)| outcomes.set_error(*event, text));
        Ok(outcomes)
    }

    /// Takes the events of another replayer of the same trace, those that `is_theirs` says.
    pub fn merge(&mut self, trace: &Trace, other: &Outcomes, is_theirs: impl Fn(u32) -> bool) {
        for event in trace.events().filter(|event| is_theirs(event.index())) {
            let (index, at) = (event.index(), event.index() as usize);
            self.start_us[at] = other.start_us[at];
            self.finish_us[at] = other.finish_us[at];
            self.flags[at] = other.flags[at];
            self.statuses[event.key_range()].copy_from_slice(other.statuses(event.key_range()));
            if !other.error(index).is_empty() {
                self.set_error(index, other.error(index));
            }
        }
    }
}
