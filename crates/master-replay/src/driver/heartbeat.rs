//! Pings, from a thread and over connections of their own.

use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use master_wire::{ClientStatus, Dialect, Ping};
use serde::{Deserialize, Serialize};

use super::ReplayOptions;
use super::call::describe;
use super::clients::Clients;
use super::lane::{self, Lane};
use super::sleep::Sockets;
use crate::outcome::Distribution;

/// How long a stop may go unseen.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What the heartbeats found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HeartbeatSummary {
    /// Logical clients.
    pub clients: u64,
    /// From the end of one sweep to the beginning of the next.
    pub interval_ms: u64,
    /// The same by the name that the outputs of unversioned traces have for it; of others it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_after_response_ms: Option<u64>,
    /// Connections.
    pub workers: u32,
    /// Pings.
    pub rpc_calls: u64,
    /// Pings between the beginning and the end of the replay.
    pub calls_during_replay: u64,
    /// Pings that failed, or found a client that the master does not know any more.
    pub failed_calls: u64,
    /// The first failure: of a ping, or of the heartbeats themselves.
    pub first_error: Option<String>,
    /// From sending to reading the answer, to three digits.
    pub client_call_latency_us: Distribution,
}

impl HeartbeatSummary {
    /// Whether no ping failed, and every client could be pinged to the end.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.failed_calls == 0 && self.first_error.is_none()
    }

    /// Adds those of another replayer, with pings that are listed all.
    pub(crate) fn add(&mut self, other: &HeartbeatSummary, pings: &[Pinged]) {
        self.rpc_calls += other.rpc_calls;
        self.calls_during_replay += other.calls_during_replay;
        self.failed_calls += other.failed_calls;
        self.first_error = self.first_error.take().or_else(|| other.first_error.clone());
        let took_us = |ping: &Pinged| ping.finish_us.saturating_sub(ping.start_us).try_into().unwrap_or(0);
        self.client_call_latency_us = Distribution::of(&mut pings.iter().map(took_us).collect::<Vec<u64>>());
    }
}

/// One ping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Pinged {
    /// The client's number.
    pub client: u32,
    /// When it was sent, after the replay's origin; negative before it.
    pub start_us: i64,
    /// When its answer was read.
    pub finish_us: i64,
    /// What went wrong; empty if nothing did.
    pub error: String,
}

/// What the timed part and the heartbeats tell each other.
#[derive(Debug, Default)]
pub(super) struct Signals {
    stop: AtomicBool,
    /// Whether every client is pinged once more before the stop: one that was given up since its last ping is not missed.
    last_sweep: AtomicBool,
    pub(super) failed: AtomicBool,
    /// Between the beginning and the end of the replay.
    pub(super) replaying: AtomicBool,
    pings: AtomicU64,
    first_error: Mutex<Option<String>>,
}

impl Signals {
    pub(super) fn first_error(&self) -> Option<String> {
        self.first_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn fail(&self, error: &str) {
        let mut first = self.first_error.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| error.to_owned());
        self.failed.store(true, Ordering::Release);
    }
}

/// The running heartbeats, a thread for the clients of each trace.
#[derive(Debug, Default)]
pub(super) struct Heartbeats {
    pub(super) signals: Arc<Signals>,
    clients: u64,
    interval_has_another_name: bool,
    threads: Vec<JoinHandle<Found>>,
}

#[derive(Debug, Default)]
struct Found {
    rpc_calls: u64,
    calls_during_replay: u64,
    failed_calls: u64,
    latencies: Option<Histogram<u64>>,
    pings: Vec<(u32, Instant, Instant, String)>,
}

impl Heartbeats {
    /// Starts those of these clients; one that is not registered yet is pinged from the sweep after its registration.
    pub(super) fn start(
        &mut self,
        clients: Arc<Clients>,
        address: SocketAddr,
        dialect: Dialect,
        options: &ReplayOptions,
        traced: crate::contract::Dialect,
    ) -> std::io::Result<()> {
        let keep_pings = traced == crate::contract::Dialect::Unversioned;
        self.interval_has_another_name |= keep_pings;
        self.clients += clients.len() as u64;
        let count = u32::try_from(clients.len()).unwrap_or(u32::MAX).max(1);
        let workers = if options.registers(traced) { options.heartbeat_workers.get().min(count) } else { 0 };
        let streams = (0..workers).map(|_| lane::open(address, options.call_timeout));
        let streams = streams.collect::<std::io::Result<Vec<TcpStream>>>()?;
        let (seen, interval, timeout) =
            (Arc::clone(&self.signals), options.heartbeat_interval, options.call_timeout);
        let thread = thread::Builder::new().name("heartbeats".to_owned()).spawn(move || {
            let mut sweeps = Sweeps {
                clients: &clients,
                signals: &seen,
                interval,
                timeout,
                found: Found { latencies: Histogram::new(3).ok(), ..Found::default() },
                keep_pings,
            };
            sweeps.run(&streams, dialect);
            sweeps.found
        })?;
        self.threads.push(thread);
        Ok(())
    }

    /// Stops them; a ping in flight is waited for, and after a replay that came to its end every client is pinged once more.
    pub(super) fn stop(
        mut self,
        options: &ReplayOptions,
        origin: Instant,
        came_to_its_end: bool,
    ) -> (HeartbeatSummary, Vec<Pinged>) {
        // Once one has failed there is nothing left to learn.
        let last_sweep = came_to_its_end && !self.signals.failed.load(Ordering::Acquire);
        self.signals.last_sweep.store(last_sweep, Ordering::Release);
        let found = self.join();
        let after = |instant: Instant| match instant.checked_duration_since(origin) {
            Some(after) => i64::try_from(after.as_micros()).unwrap_or(i64::MAX),
            None => -i64::try_from(origin.duration_since(instant).as_micros()).unwrap_or(i64::MAX),
        };
        let mut pings: Vec<Pinged> = found
            .pings
            .into_iter()
            .map(|(client, start, finish, error)| Pinged {
                client,
                start_us: after(start),
                finish_us: after(finish),
                error,
            })
            .collect();
        pings.sort_by_key(|ping| (ping.client, ping.start_us));
        let count = self.clients;
        let interval_ms = u64::try_from(options.heartbeat_interval.as_millis()).unwrap_or(u64::MAX);
        let summary = HeartbeatSummary {
            clients: count,
            interval_ms,
            interval_after_response_ms: self.interval_has_another_name.then_some(interval_ms),
            workers: options.heartbeat_workers.get().min(u32::try_from(count).unwrap_or(u32::MAX).max(1)),
            rpc_calls: found.rpc_calls,
            calls_during_replay: found.calls_during_replay,
            failed_calls: found.failed_calls,
            first_error: self.signals.first_error(),
            client_call_latency_us: found
                .latencies
                .as_ref()
                .map(Distribution::of_histogram)
                .unwrap_or_default(),
        };
        (summary, pings)
    }

    /// Tells them to stop, and waits until they have.
    fn join(&mut self) -> Found {
        self.signals.stop.store(true, Ordering::Release);
        let mut found = Found::default();
        for thread in self.threads.drain(..) {
            match thread.join() {
                Ok(other) => found.add(other),
                // A panic there was printed; what it had found is lost.
                Err(_) => self.signals.fail("the heartbeats ended before the replay did"),
            }
        }
        found
    }
}

impl Drop for Heartbeats {
    fn drop(&mut self) {
        self.join();
    }
}

impl Found {
    fn add(&mut self, other: Found) {
        self.rpc_calls += other.rpc_calls;
        self.calls_during_replay += other.calls_during_replay;
        self.failed_calls += other.failed_calls;
        self.pings.extend(other.pings);
        self.latencies = match (self.latencies.take(), other.latencies) {
            // Both have three digits and grow: neither can be too small for the other.
            (Some(latencies), Some(others)) => Some(latencies + &others),
            (one, another) => one.or(another),
        };
    }
}

/// One connection's part of the clients: those whose number leaves this rest.
struct Part {
    lane: Lane,
    first: u32,
    /// The client to be pinged next.
    at: u32,
    /// Whether anybody was pinged in this sweep.
    pinged: bool,
    next_sweep: Instant,
    /// The client whose ping is in flight, and since when.
    waiting: Option<(u32, Instant)>,
    /// Whether there is something to read, or the connection has been closed.
    readable: bool,
    /// Whether this is the last sweep.
    is_last: bool,
}

struct Sweeps<'s> {
    clients: &'s Clients,
    signals: &'s Signals,
    interval: Duration,
    timeout: Duration,
    found: Found,
    keep_pings: bool,
}

impl Sweeps<'_> {
    fn run(&mut self, streams: &[TcpStream], dialect: Dialect) {
        let mut sockets = Sockets::new(streams);
        let now = Instant::now();
        let part = |first: u32| Part {
            lane: Lane::new(dialect, 1),
            first,
            at: first,
            pinged: false,
            next_sweep: now,
            waiting: None,
            readable: false,
            is_last: false,
        };
        let mut parts: Vec<Part> = (0..).take(streams.len()).map(part).collect();
        let mut stopping = false;
        loop {
            if !stopping && self.signals.stop.load(Ordering::Acquire) {
                stopping = true;
                let last_sweep = self.signals.last_sweep.load(Ordering::Acquire);
                for part in parts.iter_mut().filter(|part| last_sweep && part.lane.broken.is_none()) {
                    (part.at, part.next_sweep, part.is_last) = (part.first, Instant::now(), true);
                }
            }
            let mut next = Instant::now() + LOOK_EVERY;
            for (part, stream) in parts.iter_mut().zip(streams) {
                next = next.min(self.advance(part, stream, parts_step(streams.len()), stopping));
            }
            if stopping && parts.iter().all(|part| part.waiting.is_none() && !part.is_last) {
                return;
            }
            sockets.clear();
            for (index, part) in parts.iter().enumerate().filter(|(_, part)| part.lane.broken.is_none()) {
                sockets.add(index, part.lane.wants_to_write());
            }
            let time = next.saturating_duration_since(Instant::now());
            match sockets.wait(time) {
                Ok(true) => sockets.readable().for_each(|index| parts[index].readable = true),
                Ok(false) => {}
                Err(error) => return self.signals.fail(&format!("heartbeats cannot wait: {error}")),
            }
        }
    }

    /// Does what a part can do now; says when it wants to be looked at again.
    fn advance(&mut self, part: &mut Part, stream: &TcpStream, step: u32, stopping: bool) -> Instant {
        let now = Instant::now();
        let readable = std::mem::take(&mut part.readable);
        if readable {
            part.lane.read(stream);
        }
        if part.waiting.is_some() {
            part.lane.write(stream);
            self.take_answer(part);
        }
        if readable && part.waiting.is_none() && !stopping {
            self.expect_nothing(part);
        }
        part.is_last &= part.lane.broken.is_none();
        let goes_on = !stopping || part.is_last;
        while part.waiting.is_none() && goes_on && part.lane.broken.is_none() && part.next_sweep <= now {
            let Some(client) = self.next_client(part, step) else {
                if part.is_last {
                    part.is_last = false;
                    break;
                }
                // A sweep that found nobody registered is repeated soon: the first ping follows the registration.
                let pause = if part.pinged { self.interval } else { LOOK_EVERY.min(self.interval) };
                (part.at, part.pinged) = (part.first, false);
                part.next_sweep = Instant::now() + pause;
                break;
            };
            part.pinged = true;
            self.ping(part, stream, client);
        }
        part.waiting.map_or(part.next_sweep.max(now), |(_, since)| since + self.timeout)
    }

    fn next_client(&self, part: &mut Part, step: u32) -> Option<u32> {
        while (part.at as usize) < self.clients.len() {
            let client = part.at;
            part.at += step;
            if self.clients.is_registered(client) {
                return Some(client);
            }
        }
        None
    }

    fn ping(&mut self, part: &mut Part, stream: &TcpStream, client: u32) {
        let now = Instant::now();
        self.found.rpc_calls += 1;
        self.signals.pings.fetch_add(1, Ordering::Relaxed);
        if self.signals.replaying.load(Ordering::Acquire) {
            self.found.calls_during_replay += 1;
        }
        let call = Ping { client_id: self.clients.id(client) };
        match part.lane.submit(&call, client, now + self.timeout) {
            Ok(()) => {
                part.waiting = Some((client, now));
                part.lane.write(stream);
            }
            Err(error) => self.end(client, now, &describe(&error)),
        }
    }

    fn take_answer(&mut self, part: &mut Part) {
        let Some((client, since)) = part.waiting else { return };
        let answered = match part.lane.session.next_reply() {
            Ok(None) if part.lane.broken.is_some() => Some(part.lane.broken.clone().unwrap_or_default()),
            Ok(None) if since.elapsed() >= self.timeout => {
                part.lane.broken = Some("a ping was not answered in time".to_owned());
                part.lane.broken.clone()
            }
            Ok(None) => None,
            Ok(Some(arrived)) => Some(match arrived.decode::<Ping>() {
                Ok(Ok(report)) if report.client_status == ClientStatus::OK => String::new(),
                Ok(Ok(report)) => format!("the master answered {}", report.client_status),
                Ok(Err(code)) => format!("the master answered {code}"),
                Err(error) => describe(&error),
            }),
            Err(error) => {
                let text = describe(&error);
                part.lane.broken = Some(text.clone());
                Some(text)
            }
        };
        if let Some(error) = answered {
            part.waiting = None;
            self.end(client, since, &error);
        }
    }

    /// Something came on a connection that no ping is in flight on: it was closed, or the master says what it was not asked.
    fn expect_nothing(&self, part: &mut Part) {
        if part.lane.broken.is_none() {
            let problem = match part.lane.session.next_reply() {
                Ok(None) => return,
                Ok(Some(_)) => "the master answered a ping that was not sent".to_owned(),
                Err(error) => describe(&error),
            };
            part.lane.broken = Some(problem);
        }
        // From now on nobody pings the clients of this connection.
        if let Some(error) = &part.lane.broken {
            self.signals.fail(error);
        }
    }

    fn end(&mut self, client: u32, since: Instant, error: &str) {
        let now = Instant::now();
        let latency = u64::try_from(now.duration_since(since).as_micros()).unwrap_or(u64::MAX);
        if let Some(latencies) = &mut self.found.latencies {
            latencies.saturating_record(latency);
        }
        if self.keep_pings {
            self.found.pings.push((client, since, now, error.to_owned()));
        }
        if !error.is_empty() {
            self.found.failed_calls += 1;
            self.signals.fail(error);
        }
    }
}

fn parts_step(parts: usize) -> u32 {
    u32::try_from(parts).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stopped(threads: Vec<JoinHandle<Found>>) -> HeartbeatSummary {
        let mut heartbeats = Heartbeats::default();
        (heartbeats.threads, heartbeats.clients) = (threads, 2);
        heartbeats.stop(&ReplayOptions::default(), Instant::now(), true).0
    }

    #[test]
    fn heartbeats_that_end_early_are_a_failure() {
        let found = || Found { rpc_calls: 3, ..Found::default() };
        let summary = stopped(vec![thread::spawn(found)]);
        assert_eq!((summary.rpc_calls, summary.is_healthy()), (3, true));
        let broken = thread::spawn(|| panic!("as it should in this test"));
        let summary = stopped(vec![broken, thread::spawn(found)]);
        assert_eq!((summary.rpc_calls, summary.failed_calls, summary.is_healthy()), (3, 0, false));
        assert_eq!(summary.first_error.as_deref(), Some("the heartbeats ended before the replay did"));
    }
}
