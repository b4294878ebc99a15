//! Several replayers of one trace: they begin together, and begin each phase together.
//!
//! Lines over loopback. A replayer says `ready`, and `ended N` when its part of a phase has ended at N; when all have
//! said it, each is told `origin N`, on the clock of the machine, or `phase N`, after that origin.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cpu_placement::CancelToken;
use nix::time::{ClockId, clock_gettime};

use crate::driver::Barrier;

/// The beginning is so far ahead that every replayer has heard of it by then.
const AHEAD: Duration = Duration::from_millis(50);

/// The same for a phase, where everybody is listening already.
const PHASE_AHEAD_US: u64 = 2_000;

/// How often somebody who waits looks whether it still makes sense.
const LOOK: Duration = Duration::from_millis(100);

fn monotonic_us() -> io::Result<u64> {
    let now = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC)?);
    u64::try_from(now.as_micros()).map_err(io::Error::other)
}

/// Reads a line, looking now and then whether to stop.
fn read_line(reader: &mut BufReader<TcpStream>, stop: &dyn Fn() -> bool) -> io::Result<String> {
    let mut line = String::new();
    loop {
        match reader.read_line(&mut line) {
            Ok(_) if line.ends_with('\n') => return Ok(line.trim_end().to_owned()),
            Ok(_) => return Err(ErrorKind::UnexpectedEof.into()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if stop() {
                    return Err(io::Error::other("asked to stop"));
                }
            }
            Err(error) => return Err(error),
        }
    }
}

fn number_after(line: &str, word: &str) -> io::Result<u64> {
    let text = line.strip_prefix(word).map(str::trim).and_then(|text| text.parse().ok());
    text.ok_or_else(|| io::Error::other(format!("{line:?} was said where {word:?} was expected")))
}

/// A replayer's side.
#[derive(Debug)]
pub(super) struct Remote {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
    cancel: CancelToken,
}

impl Remote {
    pub(super) fn connect(address: SocketAddr, cancel: &CancelToken) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(LOOK))?;
        stream.set_nodelay(true)?;
        let reader = BufReader::new(stream.try_clone()?);
        Ok(Remote { stream, reader, cancel: cancel.clone() })
    }

    fn ask(&mut self, line: &str, word: &str) -> io::Result<u64> {
        writeln!(self.stream, "{line}")?;
        let answer = read_line(&mut self.reader, &|| self.cancel.is_cancelled())?;
        number_after(&answer, word)
    }
}

impl Barrier for Remote {
    fn origin(&mut self) -> io::Result<Instant> {
        let origin_us = self.ask("ready", "origin")?;
        let (now_us, now) = (monotonic_us()?, Instant::now());
        let late = || now.checked_sub(Duration::from_micros(now_us - origin_us));
        match origin_us.checked_sub(now_us) {
            Some(ahead) => Ok(now + Duration::from_micros(ahead)),
            None => late().ok_or_else(|| io::Error::other("the origin lies before the clock began")),
        }
    }

    fn next_phase(&mut self, now_us: u64) -> io::Result<u64> {
        self.ask(&format!("ended {now_us}"), "phase")
    }
}

/// The launcher's side: a place where replayers meet.
#[derive(Debug)]
pub(super) struct Meeting {
    listener: TcpListener,
}

impl Meeting {
    pub(super) fn open() -> io::Result<Self> {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        listener.set_nonblocking(true)?;
        Ok(Meeting { listener })
    }

    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Lets so many replayers meet until they have all gone, or `done` is set.
    pub(super) fn hold(&self, count: usize, done: &AtomicBool) -> io::Result<()> {
        let stop = || done.load(Ordering::Acquire);
        let mut peers = Vec::new();
        while peers.len() < count {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false)?;
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(LOOK))?;
                    peers.push((BufReader::new(stream.try_clone()?), stream));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if stop() {
                        return Ok(());
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => return Err(error),
            }
        }
        // Who leaves before the others says why in its own log, and the others end when they find the meeting over.
        if peers.iter_mut().any(|(reader, _)| read_line(reader, &stop).is_err()) {
            return Ok(());
        }
        let ahead_us = u64::try_from(AHEAD.as_micros()).unwrap_or(u64::MAX);
        if tell(&mut peers, &format!("origin {}", monotonic_us()?.saturating_add(ahead_us))).is_err() {
            return Ok(());
        }
        loop {
            let mut latest_us = 0;
            for (reader, _) in &mut peers {
                match read_line(reader, &stop) {
                    Ok(line) => latest_us = latest_us.max(number_after(&line, "ended")?),
                    // All have heard that all have ended, or one of them failed: either way its report says so.
                    Err(_) => return Ok(()),
                }
            }
            if tell(&mut peers, &format!("phase {}", latest_us.saturating_add(PHASE_AHEAD_US))).is_err() {
                return Ok(());
            }
        }
    }
}

fn tell(peers: &mut [(BufReader<TcpStream>, TcpStream)], line: &str) -> io::Result<()> {
    peers.iter_mut().try_for_each(|(_, stream)| writeln!(stream, "{line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replayers_begin_together() {
        let meeting = Meeting::open().expect("a port");
        let address = meeting.address().expect("an address");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let held = scope.spawn(|| meeting.hold(2, &done));
            let peer = |ended_us: u64| {
                scope.spawn(move || {
                    let mut remote = Remote::connect(address, &CancelToken::new()).expect("connected");
                    (remote.origin().expect("an origin"), remote.next_phase(ended_us).expect("a phase"))
                })
            };
            let (one, other) = (peer(70), peer(30));
            let (one, other) = (one.join().expect("one"), other.join().expect("other"));
            assert_eq!((one.1, other.1), (70 + PHASE_AHEAD_US, 70 + PHASE_AHEAD_US));
            let apart = one.0.max(other.0).duration_since(one.0.min(other.0));
            assert!(apart < Duration::from_millis(20), "{apart:?}");
            assert!(held.join().expect("no panic").is_ok());
        });
    }
}
