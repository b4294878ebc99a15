//! A part of a trace as a trace.

use std::io::Write;
use std::ops::Range;

use serde::Serialize;

use super::trace::{Dialect, Event, Phase, Trace};
use super::write::{TraceWriter, WriteTraceError};

/// Which key operations of the workload a slice keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Window {
    /// Those with these places among the key operations, from 0.
    Events(Range<u64>),
    /// Those whose timestamps lie in this range of µs.
    TimeUs(Range<u64>),
}

/// What a slice kept and what it had to leave out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Sliced {
    /// Events of the slice.
    pub events: u64,
    /// Finalisers that were kept although they lie after the window, because their write lies inside.
    pub finalisers_added: u64,
    /// Finalisers inside the window that were left out because their write lies before it.
    pub finalisers_dropped: u64,
    /// Dependencies on events outside the slice that were left out.
    pub dependencies_dropped: u64,
}

/// Writes the part of a trace that lies in a window, as a valid trace of the same dialect.
///
/// Registrations, mounts and unmounts are all kept. A write whose Start lies in the window is kept whole, one whose
/// Start lies before it is left out whole. Times begin again at the first key operation kept.
///
/// # Errors
///
/// The output cannot be written, or no key operation is left.
pub fn slice_trace<W: Write>(trace: &Trace, window: &Window, out: W) -> Result<(W, Sliced), WriteTraceError> {
    let mut sliced = Sliced::default();
    let kept = choose(trace, window, &mut sliced);
    let first = trace.events().find(|event| kept[event.index() as usize] && !event.op().is_lifecycle());
    let origin_us = first.ok_or(WriteTraceError::NothingLeft)?.timestamp_us();
    let mut writer = TraceWriter::new(out, trace.dialect(), trace.metadata_json())?;
    for event in trace.events().filter(|event| kept[event.index() as usize]) {
        let mut intent = event.intent();
        if trace.dialect() == Dialect::Unversioned || event.phase() == Phase::Workload {
            intent.timestamp_us = intent.timestamp_us.saturating_sub(origin_us);
        }
        let before = intent.depends_on.len();
        let keeps = |index: &u32| !kept[*index as usize];
        let gone: Vec<&str> = event
            .dependencies()
            .iter()
            .filter(|index| keeps(index))
            .map(|index| trace.event(*index).id())
            .collect();
        intent.depends_on.retain(|id| !gone.contains(id));
        sliced.dependencies_dropped += (before - intent.depends_on.len()) as u64;
        writer.event(&intent)?;
        sliced.events += 1;
    }
    Ok((writer.finish()?, sliced))
}

fn choose(trace: &Trace, window: &Window, sliced: &mut Sliced) -> Vec<bool> {
    let mut place = 0;
    let mut kept: Vec<bool> = Vec::with_capacity(trace.len());
    for event in trace.events() {
        let inside = is_inside(&event, window, place);
        if !event.op().is_lifecycle() {
            place += 1;
        }
        let keep = match event.put_start() {
            _ if event.op().is_lifecycle() => true,
            None => inside,
            Some(start) => {
                let start = kept[start as usize];
                sliced.finalisers_added += u64::from(start && !inside);
                sliced.finalisers_dropped += u64::from(!start && inside);
                start
            }
        };
        kept.push(keep);
    }
    kept
}

fn is_inside(event: &Event<'_>, window: &Window, place: u64) -> bool {
    match window {
        Window::Events(places) => places.contains(&place),
        Window::TimeUs(times) => times.contains(&event.timestamp_us()),
    }
}
