//! How long the work of this thread takes.

use std::hint::black_box;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every thread has a clock").into()
}

/// Does the work, and lowers `time` to what it took.
pub(crate) fn shorten<T>(time: &mut Duration, work: impl FnOnce() -> T) {
    let start = processor_time();
    black_box(work());
    *time = (processor_time() - start).min(*time);
}
