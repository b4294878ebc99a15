//! Replays a timestamped trace of master RPC intents against a Mooncake master.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod contract;
mod driver;
mod launcher;
mod outcome;
mod schedule;

pub use contract::{
    Action, ConvertError, Dialect, Event, Fault, Intent, Op, OpStats, Phase, PhaseCounts, Rule, Sliced,
    Trace, TraceError, TraceStats, TraceWriter, Values, Window, WriteTraceError, convert_to_v2, slice_trace,
};
pub use driver::{
    Alone, Barrier, EngineReport, HeartbeatSummary, Pinged, Progress, ReplayError, ReplayOptions, Replayed,
    replay,
};
pub use launcher::{
    Drive, DriveError, DriveOptions, DrivePart, Launch, LaunchError, Launched, MasterSettings, MasterSource,
    ReplayReport, Saturated, Saturation, Sweep, SweepPoint, SweepReport, WorkloadProcess,
};
pub use outcome::{
    Distribution, KeyStatus, KeyStatusCounts, OperationSummary, Outcomes, OutputError, PhaseSummary, Sample,
    Summary, Traffic, TrafficBucket, TrafficCounts, TrafficRates, write_histograms, write_samples,
};
pub use schedule::{
    CLOCK_LIMIT_US, ScheduleError, Scheduler, Shard, ShardError, Shares, Speed, SpeedError, Step,
};
