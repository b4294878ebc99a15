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
    streams: &'s [TcpStream],
    polled: Vec<PollFd<'s>>,
    /// Which stream each of those is.
    indices: Vec<usize>,
}

impl<'s> Sockets<'s> {
    pub(super) fn new(streams: &'s [TcpStream]) -> Self {
        Sockets { streams, polled: Vec::new(), indices: Vec::new() }
    }

    /// Forgets which sockets were waited for. The kernel enters every socket into a queue and takes it out again at each
    /// wait, so those that nothing is expected from cost as much as the others.
    pub(super) fn clear(&mut self) {
        self.polled.clear();
        self.indices.clear();
    }

    /// Waits for this socket too, until it can be read, or written if that is asked.
    pub(super) fn add(&mut self, index: usize, write: bool) {
        let mut flags = PollFlags::POLLIN;
        flags.set(PollFlags::POLLOUT, write);
        self.polled.push(PollFd::new(self.streams[index].as_fd(), flags));
        self.indices.push(index);
    }

    /// Sleeps until a socket is ready or the time is over.
    pub(super) fn wait(&mut self, time: Duration) -> io::Result<bool> {
        match ppoll(&mut self.polled, Some(TimeSpec::from_duration(time)), None) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::EINTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Every one of them.
    pub(super) fn all(&self) -> impl Iterator<Item = usize> {
        self.indices.iter().copied()
    }

    /// Where the last wait found something to read, or that it is closed.
    pub(super) fn readable(&self) -> impl Iterator<Item = usize> {
        let is_readable = |polled: &PollFd<'_>| {
            let found = polled.revents().unwrap_or(PollFlags::POLLIN);
            found.intersects(PollFlags::POLLIN | PollFlags::POLLHUP | PollFlags::POLLERR)
        };
        let all = self.polled.iter().zip(&self.indices);
        all.filter(move |(polled, _)| is_readable(polled)).map(|(_, index)| *index)
    }
}
