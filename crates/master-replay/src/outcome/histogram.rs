//! Every time of every call, as HDR histograms.

use std::io::{self, Write};
use std::time::Duration;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2Serializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use super::record::{Outcomes, Sample};
use crate::contract::{Op, Phase, Trace};

/// What three digits mean: a value is off by less than a thousandth of itself.
const DIGITS: u8 = 3;

type Time = fn(&Sample<'_>) -> u64;

const TIMES: [(&str, Time, bool); 3] = [
    ("dispatch_lag_us", |sample| sample.dispatch_lag_us(), false),
    ("client_call_latency_us", |sample| sample.call_us(), true),
    ("scheduled_to_completion_us", |sample| sample.from_due_us(), true),
];

/// Writes a histogram log, as the HdrHistogram tools read it: one line for each phase, operation and time, tagged
/// `workload.BatchExistKey.client_call_latency_us`.
///
/// # Errors
///
/// The output cannot be written.
pub fn write_histograms(trace: &Trace, outcomes: &Outcomes, out: &mut impl Write) -> io::Result<()> {
    let mut serializer = V2Serializer::new();
    let mut builder = IntervalLogWriterBuilder::new();
    builder.add_comment("times in us, three digits");
    let mut log = builder.begin_log_with(out, &mut serializer)?;
    for phase in Phase::ALL {
        let origin_us = outcomes.phase_origin_us(*phase).unwrap_or(0);
        let finish_us = outcomes.phase_finish_us(trace, *phase).unwrap_or(origin_us);
        // The tools divide by the length to say how many there were in a second.
        let length = Duration::from_micros(finish_us.saturating_sub(origin_us));
        for op in Op::ALL {
            for (name, time, only_sent) in TIMES {
                let Some(found) = histogram(trace, outcomes, *phase, *op, time, only_sent) else { continue };
                let tag = format!("{phase}.{op}.{name}");
                let tag = Tag::new(&tag).ok_or_else(|| io::Error::other("a tag with a comma or a space"))?;
                let start = Duration::from_micros(origin_us);
                log.write_histogram(&found, start, length, Some(tag)).map_err(io::Error::other)?;
            }
        }
    }
    Ok(())
}

fn histogram(
    trace: &Trace,
    outcomes: &Outcomes,
    phase: Phase,
    op: Op,
    time: Time,
    only_sent: bool,
) -> Option<Histogram<u64>> {
    let mut histogram = Histogram::new(DIGITS).ok()?;
    let events = trace.phase_range(phase).filter(|event| trace.event(*event).op() == op);
    let samples = events.map(|event| outcomes.sample(trace, event));
    for sample in samples.filter(|sample| sample.rpc_sent || !only_sent) {
        // The histogram grows by itself; only a time beyond 2^63 µs does not fit.
        histogram.saturating_record(time(&sample));
    }
    (!histogram.is_empty()).then_some(histogram)
}
