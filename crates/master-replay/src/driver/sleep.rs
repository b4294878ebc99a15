//! Waiting for sockets and for a time, to the nanosecond.
//!
//! `ppoll` takes nanoseconds, which `epoll_wait` does not, and for the few connections of a replayer it costs no more:
//! one system call says both what is readable and that the time has come.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

/// Lets the kernel wake this thread when it asked for, not up to 50 µs later to save power.
pub(super) fn wake_precisely() {
    // Without it sleeps only become a little longer, and what they cost shows in the lag.
    let _ = nix::sys::prctl::set_timerslack(1);
}

/// The sockets to be waited for.
#[derive(Debug)]
pub(super) struct Sockets<'s> {
    polled: Vec<PollFd<'s>>,
}

impl<'s> Sockets<'s> {
    pub(super) fn new(streams: &'s [TcpStream]) -> Self {
        let polled = streams.iter().map(|stream| PollFd::new(stream.as_fd(), PollFlags::POLLIN)).collect();
        Sockets { polled }
    }

    /// Says whether the socket is waited for until it can be written too, or not at all any more.
    pub(super) fn set(&mut self, index: usize, write: bool, gone: bool) {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::POLLIN, !gone);
        flags.set(PollFlags::POLLOUT, write && !gone);
        self.polled[index].set_events(flags);
    }

    /// Sleeps until a socket is ready or the time is over.
    pub(super) fn wait(&mut self, time: Duration) -> io::Result<bool> {
        match ppoll(&mut self.polled, Some(TimeSpec::from_duration(time)), None) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::EINTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Whether the last wait found something to read there, or that it is closed.
    pub(super) fn is_readable(&self, index: usize) -> bool {
        let found = self.polled[index].revents().unwrap_or(PollFlags::POLLIN);
        found.intersects(PollFlags::POLLIN | PollFlags::POLLHUP | PollFlags::POLLERR)
            && !self.polled[index].events().is_empty()
    }
}
