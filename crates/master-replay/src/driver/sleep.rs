//! Waiting for sockets and for a time, to the nanosecond.
//!
//! `ppoll` takes nanoseconds, which `epoll_wait` does not, and for the few connections of a replayer it costs no more:
//! one system call says both what is readable and that the time has come.
//!
//! Times are waited for with [`Alarms`]. Whoever sets a timer that is to ring before every other one of its processor has the
//! hardware set anew, which leaves a virtual machine: half of what a sleep costs there. The times that come next are
//! therefore set ahead, while an earlier one is still to ring; which one is next, the kernel then sees to in its interrupt.

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

/// How many times can be set at once. Two would do if every sleep ended in time; a wake-up takes tens of µs.
const ALARMS: usize = 4;

/// Times closer together than this are not set ahead: one would ring while the call before it is still being sent, and
/// interrupt it.
const APART: Duration = Duration::from_micros(75);

/// How often the two clocks are read after each other, of which the closest readings count: what is between them, as when another
/// thread has the processor meanwhile, all alarms would be late.
const READINGS: usize = 16;

/// Timers that are each set to an instant, for one set of sockets.
#[derive(Debug)]
pub(super) struct Alarms {
    timers: [Timer; ALARMS],
    /// One moment on both clocks, which are the same one with two names; the first was read before the second, so that no alarm is
    /// early.
    instant: Instant,
    monotonic: Duration,
}

#[derive(Debug)]
struct Timer {
    file: TimerFd,
    /// What it is set to, unless it rang.
    set_to: Cell<Option<Instant>>,
}

impl Timer {
    fn new() -> io::Result<Self> {
        let file = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC)?;
        Ok(Timer { file, set_to: Cell::new(None) })
    }
}

impl Alarms {
    pub(super) fn new() -> io::Result<Self> {
        let timers = [Timer::new()?, Timer::new()?, Timer::new()?, Timer::new()?];
        let read = || -> io::Result<(Duration, Instant, Duration)> {
            let instant = Instant::now();
            let monotonic = clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)?.into();
            Ok((instant.elapsed(), instant, monotonic))
        };
        let mut closest = read()?;
        for _ in 1..READINGS {
            closest = closest.min(read()?);
        }
        let (_, instant, monotonic) = closest;
        Ok(Alarms { timers, instant, monotonic })
    }

    /// Forgets what is over, whether it rang or nobody waited for it.
    fn forget_before(&self, at: Instant) {
        for timer in self.timers.iter().filter(|timer| timer.set_to.get().is_some_and(|set| set < at)) {
            timer.set_to.set(None);
        }
    }

    fn is_set(&self, at: Instant) -> bool {
        self.timers.iter().any(|timer| timer.set_to.get() == Some(at))
    }

    /// Sets a timer that is free, or else the one that would ring last.
    fn set(&self, at: Instant) -> io::Result<()> {
        if self.is_set(at) {
            return Ok(());
        }
        let free = self.timers.iter().find(|timer| timer.set_to.get().is_none());
        let last = || self.timers.iter().max_by_key(|timer| timer.set_to.get());
        free.or_else(last).map_or(Ok(()), |timer| self.set_timer(timer, at))
    }

    /// Sets the timers that are free to what comes next after this time, as far as it lies apart.
    fn set_ahead(&self, after: Instant, ahead: impl Iterator<Item = Instant>) -> io::Result<()> {
        let mut free = self.timers.iter().filter(|timer| timer.set_to.get().is_none());
        let mut before = after;
        for at in ahead.filter(|at| *at > after) {
            match at.saturating_duration_since(before) {
                Duration::ZERO => continue,
                apart if apart < APART => break,
                _ => before = at,
            }
            if !self.is_set(at) {
                let Some(timer) = free.next() else { break };
                self.set_timer(timer, at)?;
            }
        }
        Ok(())
    }

    fn set_timer(&self, timer: &Timer, at: Instant) -> io::Result<()> {
        // An instant of zero would set nothing; what is over rings at once.
        let time = self.monotonic.saturating_add(at.saturating_duration_since(self.instant));
        let expiration = Expiration::OneShot(TimeSpec::from_duration(time.max(Duration::from_nanos(1))));
        timer.file.set(expiration, TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
        timer.set_to.set(Some(at));
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

    /// Sleeps until a socket is ready or the time has come. Which times will be waited for next, as far as that is known, is
    /// said ahead, in their order; times before the one waited for are forgotten.
    pub(super) fn wait_until(
        &mut self,
        alarms: &'s Alarms,
        at: Instant,
        ahead: impl Iterator<Item = Instant>,
    ) -> io::Result<bool> {
        alarms.forget_before(at);
        alarms.set(at)?;
        alarms.set_ahead(at, ahead)?;
        let sockets = self.polled.len();
        let set = || alarms.timers.iter().filter(|timer| timer.set_to.get().is_some());
        self.polled.extend(set().map(|timer| PollFd::new(timer.file.as_fd(), PollFlags::POLLIN)));
        let found = ppoll(&mut self.polled, None, None);
        let mut rang = 0;
        if found.is_ok() {
            for (timer, polled) in set().zip(&self.polled[sockets..]) {
                if polled.any().unwrap_or(true) {
                    timer.set_to.set(None);
                    rang += 1;
                }
            }
        }
        self.polled.truncate(sockets);
        match found {
            Ok(ready) => Ok(ready > rang),
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
    use std::iter::empty;
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
        let (streams, alarms) = ([near], Alarms::new().expect("timers"));
        let mut sockets = Sockets::new(&streams);
        for ahead_us in [0, 1, 500, 500, 3_000] {
            sockets.clear();
            sockets.add(0, false);
            let at = Instant::now() + Duration::from_micros(ahead_us);
            assert!(!sockets.wait_until(&alarms, at, empty()).expect("waited"));
            assert!(Instant::now() >= at, "{ahead_us} us");
            // The same time again is over.
            assert!(!sockets.wait_until(&alarms, at, empty()).expect("waited"));
        }
    }

    #[test]
    fn a_socket_comes_before_the_alarm_and_leaves_it_set() {
        let (near, mut far) = pair();
        let (streams, alarms) = ([near], Alarms::new().expect("timers"));
        let mut sockets = Sockets::new(&streams);
        sockets.add(0, false);
        far.write_all(b"reply").expect("written");
        let late = Instant::now() + Duration::from_secs(3_600);
        assert!(sockets.wait_until(&alarms, late, empty()).expect("waited"));
        assert_eq!(sockets.readable().collect::<Vec<_>>(), [0]);
        assert!(sockets.wait_until(&alarms, late, empty()).expect("waited"), "it is still to be read");
        assert!(alarms.is_set(late));
        // An earlier time comes before a later one, with a socket that is ready and without.
        let soon = Instant::now() + Duration::from_millis(5);
        assert!(sockets.wait_until(&alarms, soon, empty()).expect("waited"));
        sockets.clear();
        assert!(!sockets.wait_until(&alarms, soon, empty()).expect("waited"));
        assert!(Instant::now() >= soon);
    }

    #[test]
    fn times_ahead_are_set_once_each_and_ring_in_their_turn() {
        let (near, _far) = pair();
        let (streams, alarms) = ([near], Alarms::new().expect("timers"));
        let mut sockets = Sockets::new(&streams);
        sockets.add(0, false);
        let first = Instant::now() + Duration::from_millis(5);
        let times: Vec<Instant> = (0..12).map(|step| first + step * Duration::from_millis(2)).collect();
        for (at, next) in times.iter().enumerate() {
            let ahead = times[at..].iter().copied();
            while Instant::now() < *next {
                assert!(!sockets.wait_until(&alarms, *next, ahead.clone()).expect("waited"));
                assert!(Instant::now() >= *next, "nothing else rings before it");
                let mut set = times.iter().skip(at + 1).take(ALARMS - 1);
                assert!(set.all(|time| alarms.is_set(*time) || Instant::now() >= *time), "{at}");
            }
        }
    }

    fn count_set(alarms: &Alarms) -> usize {
        alarms.timers.iter().filter(|timer| timer.set_to.get().is_some()).count()
    }

    #[test]
    fn only_times_that_lie_apart_are_set_ahead() {
        let alarms = Alarms::new().expect("timers");
        let at = Instant::now() + Duration::from_secs(3_600);
        let [apart, equal, close] = [APART, APART, APART + APART / 2].map(|after| at + after);
        alarms.set(at).expect("set");
        alarms.set_ahead(at, [at, apart, equal, close].into_iter()).expect("set");
        assert!(alarms.is_set(at) && alarms.is_set(apart));
        assert_eq!(count_set(&alarms), 2);
    }

    #[test]
    fn a_time_is_always_set_whatever_was_set_ahead_of_it() {
        let alarms = Alarms::new().expect("timers");
        let far: Vec<Instant> =
            (1..9).map(|hours| Instant::now() + hours * Duration::from_secs(3_600)).collect();
        alarms.set_ahead(far[0], far[2..].iter().copied()).expect("set");
        assert!(far[2..2 + ALARMS].iter().all(|time| alarms.is_set(*time)));
        // The one that would ring last makes room.
        alarms.set(far[0]).expect("set");
        assert!(alarms.is_set(far[0]) && far[2..1 + ALARMS].iter().all(|time| alarms.is_set(*time)));
        // What nobody waits for any more is forgotten, and its timers are free.
        alarms.forget_before(far[4]);
        assert_eq!(count_set(&alarms), 1);
        assert!(alarms.is_set(far[4]));
    }
}
