//! A blocking connection with any number of calls in flight.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use thiserror::Error;

use crate::detect::{DetectError, Detected, Probe};
use crate::dialect::Dialect;
use crate::error::{DecodeError, ReplyError, RpcErrorCode, RpcFailure};
use crate::frame::{Frame, ResponseHeader};
use crate::rpc::{Call, Request, Rpc};
use crate::session::{Arrived, Located, ProtocolError, Session, SessionOptions, SubmitError, Ticket};
use crate::socket::{Liveness, configure};

/// What becomes of a connection that broke.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reconnect {
    /// It stays broken: every further call says so.
    #[default]
    Never,
    /// The next call connects anew. Calls that were in flight are lost, never sent again.
    UpTo {
        /// How often it is tried.
        attempts: u32,
        /// How long is waited between two attempts.
        pause: Duration,
    },
}

/// How to connect, and what holds for the connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectOptions {
    /// The dialect, or `None` to ask the master for it.
    pub dialect: Option<Dialect>,
    /// How long connecting may take, per address.
    pub connect_timeout: Duration,
    /// How long a call may take unless it says otherwise.
    pub call_timeout: Duration,
    /// What becomes of the connection if it breaks.
    pub reconnect: Reconnect,
    /// When a silent peer counts as gone.
    pub liveness: Liveness,
    /// Buffers and limits.
    pub session: SessionOptions,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        ConnectOptions {
            dialect: None,
            connect_timeout: Duration::from_secs(5),
            call_timeout: Duration::from_secs(10),
            reconnect: Reconnect::Never,
            liveness: Liveness::default(),
            session: SessionOptions::default(),
        }
    }
}

impl ConnectOptions {
    /// The options of a connection in a known dialect.
    #[must_use]
    pub fn in_dialect(dialect: Dialect) -> Self {
        ConnectOptions { dialect: Some(dialect), ..Default::default() }
    }
}

/// No connection came about.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The name means no address.
    #[error("master's address cannot be resolved")]
    Resolve(#[source] io::Error),
    /// The name means an empty list of addresses.
    #[error("master's name has no address")]
    NoAddress,
    /// Nobody answers at the address.
    #[error("{address} does not accept a connection within {timeout_ms} ms")]
    Connect {
        /// The address tried last.
        address: SocketAddr,
        /// How long was waited.
        timeout_ms: u128,
        /// Why.
        source: io::Error,
    },
    /// The socket cannot be set up.
    #[error("connection to {address} cannot be set up")]
    Configure {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The master's dialect is unknown.
    #[error("dialect of the master at {address} is unknown")]
    Detect {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: DetectError,
    },
    /// The master did not answer the question for its dialect.
    #[error("master at {address} was asked for its dialect without success")]
    Probe {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: Box<CallError>,
    },
}

/// A call that has no result.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CallError {
    /// It was not sent.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// No reply came in time. The connection lives on; should the reply come after all, it is dropped.
    #[error("{rpc} was not answered in time")]
    Deadline {
        /// The call.
        rpc: Rpc,
        /// Its number, if it had got one: it may have waited for its turn until the end.
        seq_num: Option<u32>,
    },
    /// The master answered that it cannot read the arguments: it speaks another dialect.
    #[error("master does not take the arguments of {rpc} in dialect {dialect}")]
    DialectMismatch {
        /// The call.
        rpc: Rpc,
        /// The dialect spoken.
        dialect: Dialect,
        /// What the master said.
        source: RpcFailure,
    },
    /// The master's framework refused the call.
    #[error("{rpc} failed")]
    Failed {
        /// The call.
        rpc: Rpc,
        /// What the master said.
        source: RpcFailure,
    },
    /// The reply cannot be read.
    #[error("reply to {rpc} cannot be read")]
    Decode {
        /// The call.
        rpc: Rpc,
        /// Why.
        source: DecodeError,
    },
    /// The master does not keep to the protocol. The connection is broken.
    #[error("master does not keep to the protocol, {lost} calls are lost")]
    Protocol {
        /// How many calls were in flight.
        lost: usize,
        /// What it did.
        source: ProtocolError,
    },
    /// The master closed the connection.
    #[error("master closed the connection, {lost} calls are lost, {partial_bytes} bytes of a reply had come")]
    Closed {
        /// How many calls were in flight.
        lost: usize,
        /// How many bytes had come of a reply that never will.
        partial_bytes: usize,
    },
    /// The connection failed.
    #[error("connection failed, {lost} calls are lost")]
    Io {
        /// How many calls were in flight.
        lost: usize,
        /// How.
        source: io::Error,
    },
    /// The connection broke before, and is not to be made anew.
    #[error("connection broke earlier")]
    Broken,
    /// The connection broke before, and could not be made anew.
    #[error("connection broke earlier and cannot be made anew")]
    Reconnect(#[source] Box<ConnectError>),
    /// No call waits for a reply.
    #[error("no call is in flight")]
    Idle,
    /// Every connection of a pool was in use for too long.
    #[error("none of {connections} connections was free in time")]
    Busy {
        /// How many there may be.
        connections: usize,
    },
}

impl CallError {
    pub(crate) fn of_reply(rpc: Rpc, dialect: Dialect, error: ReplyError) -> CallError {
        match error {
            ReplyError::Failed(source) if source.code == RpcErrorCode::INVALID_RPC_ARGUMENTS => {
                CallError::DialectMismatch { rpc, dialect, source }
            }
            ReplyError::Failed(source) => CallError::Failed { rpc, source },
            ReplyError::Decode(source) => CallError::Decode { rpc, source },
        }
    }

    /// Whether the connection is of no use any more.
    #[must_use]
    pub const fn breaks_connection(&self) -> bool {
        matches!(
            self,
            CallError::Protocol { .. }
                | CallError::Closed { .. }
                | CallError::Io { .. }
                | CallError::Broken
                | CallError::Reconnect(_)
        )
    }
}

/// A reply that came while another was waited for.
#[derive(Debug)]
struct Parked {
    ticket: Ticket,
    header: ResponseHeader,
    body: Vec<u8>,
}

/// A blocking connection to a master.
///
/// [`call`](Connection::call) makes one call and waits for it. To have many in flight, queue them with
/// [`submit`](Connection::submit) and take the replies, in the order they arrive, with [`receive`](Connection::receive).
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    addresses: Vec<SocketAddr>,
    options: ConnectOptions,
    session: Session,
    parked: VecDeque<Parked>,
    /// The reply handed out last, if it had been parked.
    handed: Option<Parked>,
    broken: bool,
    /// The last read took all there was: the next would find nothing before the socket says otherwise.
    drained: bool,
}

impl Connection {
    /// Connects, and asks for the dialect if the options name none.
    ///
    /// # Errors
    ///
    /// When nobody accepts the connection, or the master speaks no known dialect.
    pub fn connect(
        address: impl ToSocketAddrs,
        options: &ConnectOptions,
    ) -> Result<Connection, ConnectError> {
        let addresses: Vec<SocketAddr> = address.to_socket_addrs().map_err(ConnectError::Resolve)?.collect();
        Connection::connect_any(addresses, options)
    }

    fn connect_any(addresses: Vec<SocketAddr>, options: &ConnectOptions) -> Result<Connection, ConnectError> {
        let stream = open(&addresses, options)?;
        let mut connection = Connection {
            stream,
            addresses,
            options: options.clone(),
            session: Session::new(options.dialect.unwrap_or(Dialect::NEWEST), &options.session),
            parked: VecDeque::new(),
            handed: None,
            broken: false,
            drained: true,
        };
        if options.dialect.is_none() {
            connection.detect()?;
        }
        Ok(connection)
    }

    /// The dialect spoken.
    #[must_use]
    pub const fn dialect(&self) -> Dialect {
        self.session.dialect()
    }

    /// How many calls are unanswered.
    #[must_use]
    pub const fn in_flight(&self) -> usize {
        self.session.in_flight()
    }

    /// Whether the connection is of no use any more.
    #[must_use]
    pub const fn is_broken(&self) -> bool {
        self.broken
    }

    /// Whether no reply is to come and none was left untaken.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.session.in_flight() == 0 && self.parked.is_empty()
    }

    /// The socket, for those who wait on several at once.
    #[must_use]
    pub const fn stream(&self) -> &TcpStream {
        &self.stream
    }

    fn detect(&mut self) -> Result<(), ConnectError> {
        let address = self.stream.peer_addr().unwrap_or(self.addresses[0]);
        let mut probe = Probe::First;
        loop {
            let answer =
                self.ask(probe).map_err(|source| ConnectError::Probe { address, source: source.into() })?;
            let judged = probe.judge(&self.session.reply_at(&answer).frame);
            match judged.map_err(|source| ConnectError::Detect { address, source })? {
                Detected::Ask(next) => probe = next,
                Detected::Dialect(dialect) => {
                    self.session.set_dialect(dialect);
                    return Ok(());
                }
            }
        }
    }

    fn ask(&mut self, probe: Probe) -> Result<Located, CallError> {
        let deadline = Some(Instant::now() + self.options.call_timeout);
        self.session.queue(probe.rpc(), deadline, |out, seq_num| probe.encode(out, seq_num))?;
        self.locate()
    }

    /// Makes a call and waits for its result, for as long as the options allow.
    ///
    /// # Errors
    ///
    /// Whenever there is no result; see [`CallError`].
    #[inline]
    pub fn call<C: Call>(&mut self, call: &C) -> Result<C::Reply<'_>, CallError> {
        self.call_within(call, self.options.call_timeout)
    }

    /// Makes a call and waits for its result, for at most `timeout`.
    ///
    /// # Errors
    ///
    /// Whenever there is no result; see [`CallError`].
    pub fn call_within<C: Call>(&mut self, call: &C, timeout: Duration) -> Result<C::Reply<'_>, CallError> {
        let ticket = self.submit_within(call, timeout)?;
        let dialect = self.dialect();
        let arrived = self.receive_of(ticket)?;
        arrived.decode::<C>().map_err(|error| CallError::of_reply(C::RPC, dialect, error))
    }

    /// Queues a call; it is sent when a reply is waited for, or by [`flush`](Connection::flush).
    ///
    /// # Errors
    ///
    /// When its arguments cannot be written, too many calls are unanswered, or the connection is broken.
    #[inline]
    pub fn submit<C: Call>(&mut self, call: &C) -> Result<Ticket, CallError> {
        self.submit_within(call, self.options.call_timeout)
    }

    /// Queues a call that has to be answered within `timeout` from now.
    ///
    /// # Errors
    ///
    /// As [`submit`](Connection::submit).
    #[inline]
    pub fn submit_within<C: Call>(&mut self, call: &C, timeout: Duration) -> Result<Ticket, CallError> {
        self.restore()?;
        Ok(self.session.submit(call, Instant::now().checked_add(timeout))?)
    }

    /// Queues any call.
    ///
    /// # Errors
    ///
    /// As [`submit`](Connection::submit).
    pub fn submit_request(&mut self, request: &Request<'_>) -> Result<Ticket, CallError> {
        self.restore()?;
        let deadline = Instant::now().checked_add(self.options.call_timeout);
        Ok(self.session.submit_request(request, deadline)?)
    }

    /// Sends everything queued.
    ///
    /// # Errors
    ///
    /// When the connection breaks, or a call's deadline passes before.
    pub fn flush(&mut self) -> Result<(), CallError> {
        if self.broken {
            return Err(CallError::Broken);
        }
        while !self.session.outgoing().is_empty() {
            let progress = self.write()?;
            if !progress {
                self.wait()?;
                // The peer may not read on before what it wrote is taken.
                self.read()?;
            }
        }
        Ok(())
    }

    /// Sends what is queued and waits for the next reply, to whichever call.
    ///
    /// # Errors
    ///
    /// When a call's deadline passes, the connection breaks, or no call is in flight.
    pub fn receive(&mut self) -> Result<Arrived<'_>, CallError> {
        if let Some(parked) = self.parked.pop_front() {
            return Ok(self.hand(parked));
        }
        let located = self.locate()?;
        Ok(self.session.reply_at(&located))
    }

    /// As [`receive`](Connection::receive), of one call; replies to others are kept until they are asked for.
    ///
    /// # Errors
    ///
    /// As [`receive`](Connection::receive). A deadline may be that of another call.
    pub fn receive_of(&mut self, ticket: Ticket) -> Result<Arrived<'_>, CallError> {
        let at = self.parked.iter().position(|parked| parked.ticket == ticket);
        if let Some(parked) = at.and_then(|at| self.parked.remove(at)) {
            return Ok(self.hand(parked));
        }
        loop {
            let located = self.locate()?;
            if located.ticket() == ticket {
                return Ok(self.session.reply_at(&located));
            }
            let Arrived { ticket, frame, .. } = self.session.reply_at(&located);
            self.parked.push_back(Parked { ticket, header: frame.header, body: frame.body.into() });
        }
    }

    fn hand(&mut self, parked: Parked) -> Arrived<'_> {
        let dialect = self.session.dialect();
        let Parked { ticket, header, body } = self.handed.insert(parked);
        Arrived::new(*ticket, Frame { header: *header, body, attachment: &[] }, dialect)
    }

    /// Whether a reply can be taken without waiting.
    ///
    /// # Errors
    ///
    /// When the connection breaks.
    pub fn poll_receive(&mut self) -> Result<Option<Arrived<'_>>, CallError> {
        if let Some(parked) = self.parked.pop_front() {
            return Ok(Some(self.hand(parked)));
        }
        if self.broken {
            return Err(CallError::Broken);
        }
        let mut located = self.take()?;
        if located.is_none() {
            self.write()?;
            if self.read()? {
                located = self.take()?;
            }
        }
        Ok(located.map(|located| self.session.reply_at(&located)))
    }

    fn take(&mut self) -> Result<Option<Located>, CallError> {
        self.session.locate_reply().map_err(|source| {
            self.broken = true;
            CallError::Protocol { lost: self.session.in_flight(), source }
        })
    }

    fn locate(&mut self) -> Result<Located, CallError> {
        if self.broken {
            return Err(CallError::Broken);
        }
        loop {
            if let Some(located) = self.take()? {
                return Ok(located);
            }
            if self.session.awaited() == 0 {
                return Err(CallError::Idle);
            }
            self.write()?;
            if self.drained {
                self.wait()?;
            }
            if self.read()? {
                if let Some(located) = self.take()? {
                    return Ok(located);
                }
                self.expire()?;
            }
        }
    }

    /// Looks at the clock, for a peer that sends something all the time and never the whole.
    fn expire(&mut self) -> Result<(), CallError> {
        match self.session.expire(Instant::now()) {
            Some(Ticket { seq_num, rpc }) => Err(CallError::Deadline { rpc, seq_num: Some(seq_num) }),
            None => Ok(()),
        }
    }

    /// Writes what the socket takes; whether it took anything.
    fn write(&mut self) -> Result<bool, CallError> {
        let mut progress = false;
        while !self.session.outgoing().is_empty() {
            match self.stream.write(self.session.outgoing()) {
                Ok(len) => self.session.sent(len),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(source) => return Err(self.lose(source)),
            }
            progress = true;
        }
        Ok(progress)
    }

    /// Reads what the socket has; whether it had anything.
    fn read(&mut self) -> Result<bool, CallError> {
        loop {
            let space = self.session.incoming();
            let space_bytes = space.len();
            match self.stream.read(space) {
                Ok(0) => {
                    self.broken = true;
                    let partial_bytes = self.session.partial_bytes();
                    return Err(CallError::Closed { lost: self.session.in_flight(), partial_bytes });
                }
                Ok(len) => {
                    self.drained = len < space_bytes;
                    self.session.received(len);
                    return Ok(true);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.drained = true;
                    return Ok(false);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(self.lose(source)),
            }
        }
    }

    fn lose(&mut self, source: io::Error) -> CallError {
        self.broken = true;
        CallError::Io { lost: self.session.in_flight(), source }
    }

    /// Waits until the socket can be read or written, or a deadline passes.
    fn wait(&mut self) -> Result<(), CallError> {
        self.expire()?;
        let timeout = match self.session.next_deadline() {
            None => PollTimeout::NONE,
            Some(deadline) => poll_timeout(deadline.saturating_duration_since(Instant::now())),
        };
        let mut events = PollFlags::POLLIN;
        if !self.session.outgoing().is_empty() {
            events |= PollFlags::POLLOUT;
        }
        let mut sockets = [PollFd::new(self.stream.as_fd(), events)];
        match poll(&mut sockets, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {
                self.drained = false;
                Ok(())
            }
            Err(errno) => Err(self.lose(errno.into())),
        }
    }

    /// Makes a broken connection anew, if that is wanted.
    fn restore(&mut self) -> Result<(), CallError> {
        if !self.broken {
            return Ok(());
        }
        let Reconnect::UpTo { attempts, pause } = self.options.reconnect else {
            return Err(CallError::Broken);
        };
        let mut refused = None;
        for attempt in 0..attempts {
            if attempt > 0 {
                std::thread::sleep(pause);
            }
            match Connection::connect_any(self.addresses.clone(), &self.options) {
                Ok(connection) => {
                    *self = connection;
                    return Ok(());
                }
                Err(error) => refused = Some(error),
            }
        }
        Err(refused.map_or(CallError::Broken, |error| CallError::Reconnect(error.into())))
    }
}

/// In whole milliseconds, rounded up: a wait that ends early would be a loop without sleep.
fn poll_timeout(left: Duration) -> PollTimeout {
    let ms = left.as_nanos().div_ceil(1_000_000);
    PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX)
}

fn open(addresses: &[SocketAddr], options: &ConnectOptions) -> Result<TcpStream, ConnectError> {
    let mut refused = ConnectError::NoAddress;
    for &address in addresses {
        match TcpStream::connect_timeout(&address, options.connect_timeout) {
            Ok(stream) => {
                let configured =
                    configure(&stream, &options.liveness).and_then(|()| stream.set_nonblocking(true));
                return match configured {
                    Ok(()) => Ok(stream),
                    Err(source) => Err(ConnectError::Configure { address, source }),
                };
            }
            Err(source) => {
                let timeout_ms = options.connect_timeout.as_millis();
                refused = ConnectError::Connect { address, timeout_ms, source };
            }
        }
    }
    Err(refused)
}
