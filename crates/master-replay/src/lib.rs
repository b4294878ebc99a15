//! Replays a timestamped trace of master RPC intents against a Mooncake master.
//!
//! A [`Trace`] says what calls were made: when, by which logical client, on which keys, and what each one waited for.
//! It is read by [strict rules](Rule), each with a name, a line and a column for what breaks it; a [`TraceWriter`] writes
//! only what the reader takes. The [`Scheduler`] decides which event is sent when, without any clock of its own. [`replay`]
//! drives it against a master over a few pipelined connections, with heartbeats from a thread of their own, and gives
//! [`Outcomes`], of which [`Summary`], [`Traffic`] and the outputs are made. A [`Launch`] does all of it with a fresh master
//! in a private network and watches both processes; a [`Sweep`] looks for the speed at which the master falls behind.
//!
//! Two latencies are given for every call. From *sent* to answered is what the master took. From *due* to answered adds
//! what the call waited before it could be sent, because replies to earlier ones were late: a caller who does not wait for
//! our queue would have seen that. A mean of the first alone hides a stall, since few calls are sent during one.
//!
//! ```
//! use master_replay::{Phase, Speed, Trace};
//!
//! let trace = Trace::parse(
//!     br#"{"type":"master_rpc_trace","version":1,"time_unit":"us"}
//! {"id":"put","timestamp_us":0,"client_id":"a","op":"BatchPutStart","keys":["k"],"value_sizes":[4096]}
//! {"id":"end","timestamp_us":900,"client_id":"a","op":"BatchPutEnd","keys":["k"],"put_start":"put"}
//! {"id":"get","timestamp_us":1000,"client_id":"b","op":"BatchGetReplicaList","keys":["k"],"depends_on":["end"]}"#,
//! )?;
//! assert_eq!((trace.len(), trace.clients()), (3, 2));
//! assert_eq!(trace.event(2).dependencies(), [1]);
//! assert_eq!(trace.phase_range(Phase::Workload), 0..3);
//! trace.check_schedulable(Speed::new(0.5)?)?;
//!
//! let fault = Trace::parse(br#"{"type":"master_rpc_trace","version":3,"time_unit":"us"}"#).unwrap_err();
//! assert_eq!((fault.rule.id(), fault.line, fault.column), ("H-VERSION", Some(1), Some(38)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! No payload is stored or moved: a segment is a size that the master believes. Linux only.
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
    Alone, Barrier, EngineReport, EngineTimes, HeartbeatSummary, Pinged, Progress, ReplayError,
    ReplayOptions, Replayed, replay,
};
pub use launcher::{
    Drive, DriveError, DriveOptions, DrivePart, Knee, Launch, LaunchError, Launched, MasterSettings,
    MasterSource, Network, ReplayReport, Saturated, Saturation, Sweep, SweepPoint, SweepReport,
    WorkloadProcess, enter_private_network,
};
pub use outcome::{
    Distribution, KeyStatus, KeyStatusCounts, OperationSummary, Outcomes, OutputError, PhaseSummary, Sample,
    Summary, Traffic, TrafficBucket, TrafficCounts, TrafficRates, write_histograms, write_samples,
};
pub use schedule::{CLOCK_LIMIT_US, ScheduleError, Scheduler, Shares, Speed, SpeedError, Step};
