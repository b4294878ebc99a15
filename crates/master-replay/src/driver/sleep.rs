//! Waiting for sockets and for a time, to the nanosecond.
//!
//! `ppoll` takes nanoseconds, which `epoll_wait` does not, and for the few connections of a replayer it costs no more:
//! one system call says both what is readable and that the time has come.
//!
//! For times that many waits share there is an [`Alarm`]. The timeout of a `ppoll` is set when it begins and taken back when
//! a reply comes first, and each of both leaves a virtual machine (some µs); an alarm is set once and stays.

use std::cell::Cell;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::time::clock_gettime;

/// Lets the kernel wake this thread when it asked for, not up to 50 µs later to save power.
pub(super) fn wake_precisely() {
    // Without it sleeps only become a little longer, and what they cost shows in the lag.
    let _ = nix::sys::prctl::set_timerslack(1);
}

/// A timer that is set to an instant, for one set of sockets.
#[derive(Debug)]
pub(super) struct Alarm {
    timer: TimerFd,
    /// What it is set to, unless it rang.
    set_to: Cell<Option<Instant>>,
    /// One moment on both clocks, which are the same one with two names.
    instant: Instant,
    monotonic: Duration,
}

impl Alarm {
    pub(super) fn new() -> io::Result<Self> {
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC)?;
        let monotonic = clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)?.into();
        Ok(Alarm { timer, set_to: Cell::new(None), instant: Instant::now(), monotonic })
    }

    fn set(&self, at: Instant) -> io::Result<()> {
        if self.set_to.get() == Some(at) {
            return Ok(());
        }
        // An instant of zero would set nothing; what is over rings at once.
        let time = self.monotonic.saturating_add(at.saturating_duration_since(self.instant));
        let expiration = Expiration::OneShot(TimeSpec::from_duration(time.max(Duration::from_nanos(1))));
        self.timer.set(expiration, TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
        self.set_to.set(Some(at));
        Ok(())
    }
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

    /// Sleeps until a socket is ready or the alarm rings.
    pub(super) fn wait_until(&mut self, alarm: &'s Alarm, at: Instant) -> io::Result<bool> {
        alarm.set(at)?;
        self.polled.push(PollFd::new(alarm.timer.as_fd(), PollFlags::POLLIN));
        let ready = ppoll(&mut self.polled, None, None);
        let rang = self.polled.pop().and_then(|polled| polled.any()).unwrap_or(true);
        match ready {
            Ok(ready) => {
                if rang {
                    alarm.set_to.set(None);
                }
                Ok(ready > i32::from(rang))
            }
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

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let near = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        (near, listener.accept().expect("accepted").0)
    }

    #[test]
    fn an_alarm_rings_once_for_each_time_and_not_before() {
        let (near, _far) = pair();
        let (streams, alarm) = ([near], Alarm::new().expect("a timer"));
        let mut sockets = Sockets::new(&streams);
        for ahead_us in [0, 1, 500, 500, 3_000] {
            sockets.clear();
            sockets.add(0, false);
            let at = Instant::now() + Duration::from_micros(ahead_us);
            assert!(!sockets.wait_until(&alarm, at).expect("waited"));
            assert!(Instant::now() >= at, "{ahead_us} us");
            // The same time again is over.
            assert!(!sockets.wait_until(&alarm, at).expect("waited"));
        }
    }

    #[test]
    fn a_socket_comes_before_the_alarm_and_leaves_it_set() {
        let (near, mut far) = pair();
        let (streams, alarm) = ([near], Alarm::new().expect("a timer"));
        let mut sockets = Sockets::new(&streams);
        sockets.add(0, false);
        far.write_all(b"reply").expect("written");
        let late = Instant::now() + Duration::from_secs(3_600);
        assert!(sockets.wait_until(&alarm, late).expect("waited"));
        assert_eq!(sockets.readable().collect::<Vec<_>>(), [0]);
        assert!(sockets.wait_until(&alarm, late).expect("waited"), "it is still to be read");
        // An earlier time replaces a later one, with a socket that is ready and without.
        let soon = Instant::now() + Duration::from_millis(5);
        assert!(sockets.wait_until(&alarm, soon).expect("waited"));
        sockets.clear();
        assert!(!sockets.wait_until(&alarm, soon).expect("waited"));
        assert!(Instant::now() >= soon);
    }
}
