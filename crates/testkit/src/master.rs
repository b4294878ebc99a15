//! A stand-in for the Mooncake master that does what a script says.
//!
//! It is for what a real master cannot be made to do. Without a script it answers as a real one does, from the same schema
//! as the client's, and it is fast enough not to be what a measurement measures: a thread for each connection reads many
//! requests at once and writes their replies at once.

mod model;
mod script;

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use master_wire::{
    Body, Dialect, ErrorCode, Frame, FrameReader, Request, RequestError, RequestHeader, RpcErrorCode,
    RpcFailure, Style, decode_request,
};

use model::Model;
pub use model::Settings;
pub use script::{Fault, Script};

const BUFFER_BYTES: usize = 256 << 10;
const FRAME_LIMIT_BYTES: usize = 64 << 20;

/// A stand-in master that runs until this goes out of scope.
#[derive(Debug)]
pub struct StandIn {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    dialect: Dialect,
    style: Style,
    state: Mutex<State>,
    streams: Mutex<Vec<TcpStream>>,
    answered: AtomicU64,
    stopping: AtomicBool,
}

struct State {
    model: Model,
    script: Script,
    hear: Option<Box<Hear>>,
}

impl fmt::Debug for State {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("State")
            .field("model", &self.model)
            .field("script", &self.script)
            .finish_non_exhaustive()
    }
}

/// What is told of each request: the number of its connection, from 0, and the request.
type Hear = dyn FnMut(usize, &Request<'_>) + Send;

impl StandIn {
    /// A master of this dialect, on a free port of the loopback interface.
    #[must_use]
    pub fn start(dialect: Dialect, script: Script) -> StandIn {
        StandIn::with(dialect, script, Settings::of(dialect), Style::Official)
    }

    /// A master with settings of its own, and bodies of another style than the published masters'.
    #[must_use]
    pub fn with(dialect: Dialect, script: Script, settings: Settings, style: Style) -> StandIn {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let shared = Arc::new(Shared {
            dialect,
            style,
            state: Mutex::new(State { model: Model::new(dialect, settings), script, hear: None }),
            streams: Mutex::default(),
            answered: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        let acceptor = thread::spawn(move || accept(&listener, &accepting));
        StandIn { address, shared, acceptor: Some(acceptor) }
    }

    /// Where it takes calls.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many requests it has dealt with.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.shared.answered.load(Ordering::Relaxed)
    }

    /// What goes wrong from now on.
    pub fn set_script(&self, script: Script) {
        self.shared.state().script = script;
    }

    /// Tells every request from now on to this, in the order in which they are dealt with.
    pub fn hear(&self, hear: impl FnMut(usize, &Request<'_>) + Send + 'static) {
        self.shared.state().hear = Some(Box::new(hear));
    }

    /// How many connections were made to it.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.streams().len()
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        // Wakes the acceptor, which then sees that it is over.
        let _ = TcpStream::connect(self.address);
        for stream in self.shared.streams().iter() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn streams(&self) -> MutexGuard<'_, Vec<TcpStream>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.stopping.load(Ordering::Relaxed) {
            return;
        }
        let Ok(stream) = stream else { continue };
        stream.set_nodelay(true).expect("a socket takes TCP_NODELAY");
        let number = {
            let mut streams = shared.streams();
            streams.push(stream.try_clone().expect("a socket can be cloned"));
            streams.len() - 1
        };
        let shared = Arc::clone(shared);
        thread::spawn(move || Served::new(stream, number, &shared).serve());
    }
}

/// What becomes of a connection after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Goes,
    Ends,
}

/// One connection.
struct Served<'s> {
    stream: TcpStream,
    number: usize,
    shared: &'s Shared,
    out: Vec<u8>,
    /// A reply to be sent behind the next one.
    held: Vec<u8>,
    stalled: bool,
}

impl<'s> Served<'s> {
    fn new(stream: TcpStream, number: usize, shared: &'s Shared) -> Self {
        let out = Vec::with_capacity(BUFFER_BYTES);
        Served { stream, number, shared, out, held: Vec::new(), stalled: false }
    }

    fn serve(mut self) {
        let mut reader = FrameReader::<RequestHeader>::new(BUFFER_BYTES, FRAME_LIMIT_BYTES);
        loop {
            match self.stream.read(reader.space()) {
                Ok(0) => break,
                Ok(len) => reader.filled(len),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => break,
            }
            let then = self.answer_all(&mut reader);
            if !self.flush() || then == Then::Ends {
                break;
            }
        }
        // A peer that is gone already needs no telling.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn answer_all(&mut self, reader: &mut FrameReader<RequestHeader>) -> Then {
        let shared = self.shared;
        let mut state = shared.state();
        let now = Instant::now();
        let mut answered = 0;
        let mut then = Then::Goes;
        while then == Then::Goes {
            match reader.next_frame() {
                Ok(Some(frame)) => {
                    answered += 1;
                    then = self.answer(&mut state, &frame, now);
                }
                Ok(None) => break,
                // As the real one: it closes and says nothing.
                Err(_) => then = Then::Ends,
            }
        }
        shared.answered.fetch_add(answered, Ordering::Relaxed);
        then
    }

    fn answer(&mut self, state: &mut State, frame: &Frame<'_, RequestHeader>, now: Instant) -> Then {
        let seq_num = frame.header.seq_num;
        let start = self.out.len();
        let (dialect, style) = (self.shared.dialect, self.shared.style);
        let out = &mut self.out;
        match decode_request(frame, dialect) {
            Ok(Body { value: request, .. }) => {
                if let Some(hear) = &mut state.hear {
                    hear(self.number, &request);
                }
                let fault = if state.script.is_honest() { None } else { state.script.next(request.rpc()) };
                answer_request(out, &mut state.model, &request, seq_num, (dialect, style), (fault, now));
                if let Some(fault) = fault {
                    return self.spoil(fault, start);
                }
            }
            Err(error) => fail(out, seq_num, &refused(&error), style),
        }
        self.after(start)
    }

    /// What holds for every reply: silence once stalled, and one that was held back follows.
    fn after(&mut self, start: usize) -> Then {
        if self.stalled {
            self.out.truncate(start);
        }
        self.out.append(&mut self.held);
        Then::Goes
    }

    fn spoil(&mut self, fault: Fault, start: usize) -> Then {
        let reply = self.out.split_off(start);
        let mut changed = reply.clone();
        match fault {
            Fault::Delay(time) => {
                self.flush();
                thread::sleep(time);
            }
            Fault::Reorder => {
                self.held = reply;
                return Then::Goes;
            }
            Fault::Truncate(bytes) => {
                self.out.extend_from_slice(&reply[..bytes.min(reply.len())]);
                return Then::Ends;
            }
            Fault::Corrupt { at, mask } => *byte(&mut changed, at) ^= mask,
            Fault::Stall => self.stalled = true,
            Fault::Swallow => changed.clear(),
            Fault::Drop => return Then::Ends,
            Fault::Lie(difference) => {
                let length = &mut changed[8..12];
                let true_length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]);
                length.copy_from_slice(&true_length.wrapping_add_signed(difference).to_le_bytes());
            }
            Fault::Renumber(seq_num) => changed[4..8].copy_from_slice(&seq_num.to_le_bytes()),
            Fault::Repeat => changed.extend_from_slice(&reply),
            Fault::Trickle(pause) => {
                self.flush();
                self.trickle(&reply, pause);
                changed.clear();
            }
            // Those are answers of their own, and were given.
            Fault::Fail(_) | Fault::Refuse(_) | Fault::Miscount(_) => {}
        }
        self.out.extend_from_slice(&changed);
        self.after(start.min(self.out.len()))
    }

    fn trickle(&mut self, reply: &[u8], pause: Duration) {
        for byte in reply {
            if self.shared.stopping.load(Ordering::Relaxed) || self.stream.write_all(&[*byte]).is_err() {
                return;
            }
            thread::sleep(pause);
        }
    }

    /// Sends what there is; whether somebody takes it.
    fn flush(&mut self) -> bool {
        let sent = self.stream.write_all(&self.out).is_ok();
        self.out.clear();
        sent
    }
}

fn byte(reply: &mut [u8], at: usize) -> &mut u8 {
    let len = reply.len();
    reply.get_mut(at).unwrap_or_else(|| panic!("no byte {at} to corrupt in a reply of {len}"))
}

fn answer_request(
    out: &mut Vec<u8>,
    model: &mut Model,
    request: &Request<'_>,
    seq_num: u32,
    (dialect, style): (Dialect, Style),
    (fault, now): (Option<Fault>, Instant),
) {
    let encode = |out: &mut Vec<u8>, response: &master_wire::Response<'_>| {
        response.encode(out, seq_num, dialect, style).expect("the stand-in says what its dialect can say");
    };
    match fault {
        Some(Fault::Fail(code)) => {
            let failure = RpcFailure { code, inner_code: None, message: b"scripted"[..].into() };
            fail(out, seq_num, &failure, style);
        }
        Some(Fault::Refuse(code)) if model::refusal(request, code, |response| encode(out, response)) => {}
        Some(Fault::Miscount(results))
            if model::each(request, Some(results), ErrorCode::OBJECT_NOT_FOUND, |response| {
                encode(out, response);
            }) => {}
        _ => model.answer(request, now, |response| encode(out, response)),
    }
}

/// What a real master says of a request it cannot read.
fn refused(error: &RequestError) -> RpcFailure {
    let (code, message) = match error {
        RequestError::Unknown(_) => {
            (RpcErrorCode::FUNCTION_NOT_REGISTERED, "the rpc function not registered")
        }
        _ => (RpcErrorCode::INVALID_RPC_ARGUMENTS, "invalid rpc arg"),
    };
    RpcFailure { code, inner_code: None, message: message.as_bytes().into() }
}

fn fail(out: &mut Vec<u8>, seq_num: u32, failure: &RpcFailure, style: Style) {
    let failure =
        if failure.code.0 == 255 { &RpcFailure { inner_code: Some(1), ..failure.clone() } } else { failure };
    failure.encode(out, seq_num, style).expect("a message is short");
}
