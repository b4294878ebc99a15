//! The contract: what a trace is, and reading, writing and changing traces.

mod check;
mod convert;
mod error;
mod read;
mod row;
mod rule;
mod slice;
mod stats;
mod strings;
mod trace;
mod write;

pub use convert::{ConvertError, convert_to_v2};
pub use error::{Fault, TraceError};
pub use rule::Rule;
pub use slice::{Sliced, Window, slice_trace};
pub(crate) use stats::per_second;
pub use stats::{OpStats, TraceStats};
pub use trace::{Dialect, Event, Op, Phase, PhaseCounts, Trace};
pub use write::{Action, Intent, TraceWriter, Values, WriteTraceError};
