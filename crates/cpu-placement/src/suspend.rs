//! Stopping and going on as one job with the program (Ctrl-Z, `fg`, `bg`).

use nix::sys::signal::{Signal, killpg, raise};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, getpgid, getpgrp, getppid, getsid};

use crate::procfs;

/// The signal that stopped a child, if it was stopped since this was last asked.
pub(crate) fn stopped_by(child: Pid) -> Option<Signal> {
    match waitid(Id::Pid(child), WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG) {
        Ok(WaitStatus::Stopped(_, signal)) => Some(signal),
        _ => None,
    }
}

/// Stops this process until somebody continues it; with `whole_group`, the other processes of its job too, which the
/// terminal's signal did not reach. Without a shell that could continue it, it goes on at once.
pub(crate) fn this_job(whole_group: bool) {
    if !somebody_can_continue_us() {
        return;
    }
    // Stopping oneself needs no permission.
    let _ = if whole_group { killpg(getpgrp(), Signal::SIGSTOP) } else { raise(Signal::SIGSTOP) };
}

/// Whether the nearest ancestor outside this process's group is in its session, as a shell with job control is. The
/// kernel uses the same rule when it ignores Ctrl-Z for orphaned groups.
fn somebody_can_continue_us() -> bool {
    let group = getpgrp();
    let mut ancestor = getppid();
    while ancestor.as_raw() > 1 && getpgid(Some(ancestor)) == Ok(group) {
        let parent =
            u32::try_from(ancestor.as_raw()).ok().and_then(procfs::read_stat).map(|stat| stat.parent);
        ancestor = Pid::from_raw(parent.unwrap_or(0));
    }
    ancestor.as_raw() > 0 && getsid(Some(ancestor)).is_ok_and(|session| getsid(None) == Ok(session))
}
