//! Lending the terminal to a child that reads from it.

use std::io::{self, IsTerminal};

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// While it lives, the child's group is the terminal's foreground group: it may read, and Ctrl-C reaches it.
#[derive(Debug)]
pub(crate) struct Loan {
    owner: Pid,
}

impl Loan {
    /// Lends the terminal on stdin, if stdin is one and is ours to lend.
    pub(crate) fn to(group: Pid) -> Option<Self> {
        let stdin = io::stdin();
        if !stdin.is_terminal() || tcgetpgrp(&stdin).ok()? != getpgrp() {
            return None;
        }
        set_foreground(group);
        Some(Self { owner: getpgrp() })
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        set_foreground(self.owner);
    }
}

/// A process outside the foreground group is stopped for trying this, unless it blocks the signal that stops it.
/// If the terminal is gone there is nothing to hand over.
fn set_foreground(group: Pid) {
    let mut stop = SigSet::empty();
    stop.add(Signal::SIGTTOU);
    let blocked = stop.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK);
    let _ = tcsetpgrp(io::stdin(), group);
    if let Ok(before) = blocked {
        let _ = before.thread_set_mask();
    }
}
