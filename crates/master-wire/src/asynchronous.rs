//! Connections that many tasks share.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::{TcpStream, ToSocketAddrs, lookup_host};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use crate::connection::{CallError, ConnectError, ConnectOptions, Reconnect};
use crate::detect::{Detected, Probe};
use crate::dialect::Dialect;
use crate::frame::{Frame, ResponseHeader};
use crate::message::{decode_reply, encode_request};
use crate::pool::PoolOptions;
use crate::rpc::{Call, Rpc};
use crate::session::{ProtocolError, Session, SubmitError, Ticket};
use crate::socket::configure;

/// A reply that has left the session's buffer.
#[derive(Debug)]
struct Owned {
    header: ResponseHeader,
    body: Vec<u8>,
}

type Answer = oneshot::Sender<Result<Owned, CallError>>;

/// A call on its way to the task that owns the connection.
#[derive(Debug)]
struct Order {
    rpc: Rpc,
    frame: Vec<u8>,
    answer: Answer,
    /// Held until the reply has come, whether somebody still waits for it or not.
    permit: OwnedSemaphorePermit,
}

/// A connection to a master that many tasks share: each clone makes calls, all are in flight at once.
///
/// A task of its own owns the socket. It ends, and the connection with it, when the last clone is gone, or when the
/// connection breaks; then every call, also those in flight, has an error. It does not reconnect; an [`AsyncPool`] does.
#[derive(Clone, Debug)]
pub struct AsyncConnection {
    orders: mpsc::UnboundedSender<Order>,
    in_flight: Arc<Semaphore>,
    options: Arc<ConnectOptions>,
    dialect: Dialect,
}

impl AsyncConnection {
    /// Connects, and asks for the dialect if the options name none.
    ///
    /// # Errors
    ///
    /// When nobody accepts the connection, or the master speaks no known dialect.
    pub async fn connect(
        address: impl ToSocketAddrs,
        options: &ConnectOptions,
    ) -> Result<AsyncConnection, ConnectError> {
        let addresses: Vec<SocketAddr> = lookup_host(address).await.map_err(ConnectError::Resolve)?.collect();
        AsyncConnection::connect_any(&addresses, options).await
    }

    async fn connect_any(
        addresses: &[SocketAddr],
        options: &ConnectOptions,
    ) -> Result<AsyncConnection, ConnectError> {
        let (address, stream) = open(addresses, options).await?;
        let mut link =
            Link::new(stream, Session::new(options.dialect.unwrap_or(Dialect::NEWEST), &options.session));
        if options.dialect.is_none() {
            let dialect = link.detect(address, options.call_timeout).await?;
            link.session.set_dialect(dialect);
        }
        let dialect = link.session.dialect();
        let (orders, receiver) = mpsc::unbounded_channel();
        tokio::spawn(link.drive(receiver));
        let in_flight =
            Arc::new(Semaphore::new(options.session.max_in_flight.clamp(1, Semaphore::MAX_PERMITS)));
        Ok(AsyncConnection { orders, in_flight, options: Arc::new(options.clone()), dialect })
    }

    /// The dialect spoken.
    #[must_use]
    pub const fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Whether the connection is of no use any more.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.orders.is_closed()
    }

    /// Makes a call and hands its result to `take`, within the time the options allow.
    ///
    /// # Errors
    ///
    /// Whenever there is no result; see [`CallError`].
    pub async fn call<C: Call, R>(
        &self,
        call: &C,
        take: impl FnOnce(C::Reply<'_>) -> R,
    ) -> Result<R, CallError> {
        self.call_within(call, self.options.call_timeout, take).await
    }

    /// Makes a call and hands its result to `take`, within `limit`. Waiting for its turn counts.
    ///
    /// # Errors
    ///
    /// Whenever there is no result; see [`CallError`].
    pub async fn call_within<C: Call, R>(
        &self,
        call: &C,
        limit: Duration,
        take: impl FnOnce(C::Reply<'_>) -> R,
    ) -> Result<R, CallError> {
        let rpc = C::RPC;
        let reply = timeout(limit, self.request(call)).await;
        let Owned { header, body } = reply.unwrap_or(Err(CallError::Deadline { rpc, seq_num: None }))?;
        let frame = Frame { header, body: &body, attachment: &[] };
        let result = decode_reply::<C>(&frame, self.dialect);
        result.map(take).map_err(|error| CallError::of_reply(rpc, self.dialect, error))
    }

    async fn request<C: Call>(&self, call: &C) -> Result<Owned, CallError> {
        let rpc = C::RPC;
        let mut frame = Vec::new();
        let encoded = encode_request(&mut frame, 0, self.dialect, call, self.options.session.style);
        encoded.map_err(|source| SubmitError::Encode { rpc, source })?;
        let permit = Arc::clone(&self.in_flight).acquire_owned().await.map_err(|_| CallError::Broken)?;
        let (answer, answered) = oneshot::channel();
        self.orders.send(Order { rpc, frame, answer, permit }).map_err(|_| CallError::Broken)?;
        answered.await.unwrap_or(Err(CallError::Broken))
    }
}

async fn open(
    addresses: &[SocketAddr],
    options: &ConnectOptions,
) -> Result<(SocketAddr, TcpStream), ConnectError> {
    let mut refused = ConnectError::NoAddress;
    for &address in addresses {
        let connected = timeout(options.connect_timeout, TcpStream::connect(address)).await;
        match connected.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into())) {
            Ok(stream) => {
                return match configure(&stream, &options.liveness) {
                    Ok(()) => Ok((address, stream)),
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

/// How a connection ended.
enum End {
    Closed { partial_bytes: usize },
    Io(io::Error),
    Protocol(ProtocolError),
}

impl End {
    /// The same for each of those who wait.
    fn error(&self, lost: usize) -> CallError {
        match self {
            End::Closed { partial_bytes } => CallError::Closed { lost, partial_bytes: *partial_bytes },
            End::Io(error) => {
                let copy =
                    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error);
                CallError::Io { lost, source: copy }
            }
            End::Protocol(source) => CallError::Protocol { lost, source: source.clone() },
        }
    }
}

/// The socket, what is in flight on it, and who waits for that.
struct Link {
    stream: TcpStream,
    session: Session,
    waiting: HashMap<u32, (Answer, OwnedSemaphorePermit)>,
}

impl Link {
    fn new(stream: TcpStream, session: Session) -> Self {
        Link { stream, session, waiting: HashMap::new() }
    }

    async fn detect(&mut self, address: SocketAddr, limit: Duration) -> Result<Dialect, ConnectError> {
        let deadline = Instant::now() + limit;
        let mut probe = Probe::First;
        loop {
            let asked = timeout_at(deadline, self.ask(probe)).await;
            let asked = asked.unwrap_or(Err(CallError::Deadline { rpc: probe.rpc(), seq_num: None }));
            let Owned { header, body } =
                asked.map_err(|source| ConnectError::Probe { address, source: source.into() })?;
            let judged = probe.judge(&Frame { header, body: &body, attachment: &[] });
            match judged.map_err(|source| ConnectError::Detect { address, source })? {
                Detected::Ask(next) => probe = next,
                Detected::Dialect(dialect) => return Ok(dialect),
            }
        }
    }

    async fn ask(&mut self, probe: Probe) -> Result<Owned, CallError> {
        self.session.queue(probe.rpc(), None, |out, seq_num| probe.encode(out, seq_num))?;
        loop {
            match self.next_reply() {
                Ok(Some((_, reply))) => return Ok(reply),
                Ok(None) => {}
                Err(end) => return Err(end.error(1)),
            }
            self.ready().await.and_then(|()| self.transfer()).map_err(|end| end.error(1))?;
        }
    }

    /// Serves orders until nobody can give one any more, or the connection ends.
    async fn drive(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        let end = loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(order) => self.take(order),
                    None => return,
                },
                ready = self.ready() => if let Err(end) = ready {
                    break end;
                },
            }
            // Whatever else was ordered meanwhile goes out with it.
            while let Ok(order) = orders.try_recv() {
                self.take(order);
            }
            if let Err(end) = self.transfer().and_then(|()| self.answer()) {
                break end;
            }
        };
        orders.close();
        let lost = self.waiting.len();
        for (_, (answer, _)) in self.waiting.drain() {
            // Whoever gave up has no use for it.
            let _ = answer.send(Err(end.error(lost)));
        }
        while let Ok(order) = orders.try_recv() {
            let _ = order.answer.send(Err(CallError::Broken));
        }
    }

    fn take(&mut self, order: Order) {
        let Order { rpc, frame, answer, permit } = order;
        let queued = self.session.queue(rpc, None, |out, seq_num| {
            let start = out.len();
            out.extend_from_slice(&frame);
            out[start + 4..start + 8].copy_from_slice(&seq_num.to_le_bytes());
            Ok(())
        });
        match queued {
            Ok(Ticket { seq_num, .. }) => {
                self.waiting.insert(seq_num, (answer, permit));
            }
            // Whoever gave up has no use for it.
            Err(error) => drop(answer.send(Err(error.into()))),
        }
    }

    async fn ready(&self) -> Result<(), End> {
        let interest = match self.session.outgoing().is_empty() {
            true => Interest::READABLE,
            false => Interest::READABLE | Interest::WRITABLE,
        };
        self.stream.ready(interest).await.map(drop).map_err(End::Io)
    }

    /// Writes and reads what the socket takes and has.
    fn transfer(&mut self) -> Result<(), End> {
        while !self.session.outgoing().is_empty() {
            match self.stream.try_write(self.session.outgoing()) {
                Ok(len) => self.session.sent(len),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(End::Io(error)),
            }
        }
        match self.stream.try_read(self.session.incoming()) {
            Ok(0) => Err(End::Closed { partial_bytes: self.session.partial_bytes() }),
            Ok(len) => {
                self.session.received(len);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(End::Io(error)),
        }
    }

    fn next_reply(&mut self) -> Result<Option<(u32, Owned)>, End> {
        let arrived = self.session.next_reply().map_err(End::Protocol)?;
        Ok(arrived.map(|arrived| {
            (arrived.ticket.seq_num, Owned { header: arrived.frame.header, body: arrived.frame.body.into() })
        }))
    }

    fn answer(&mut self) -> Result<(), End> {
        while let Some((seq_num, reply)) = self.next_reply()? {
            if let Some((answer, _)) = self.waiting.remove(&seq_num) {
                // Whoever gave up has no use for it.
                let _ = answer.send(Ok(reply));
            }
        }
        Ok(())
    }
}

/// A place for a connection, and how many calls use it.
#[derive(Debug, Default)]
struct Place {
    connection: Mutex<Option<AsyncConnection>>,
    calls: AtomicUsize,
}

/// A bounded number of connections to one master, with a bounded number of calls in flight.
///
/// Each call takes the connection with the fewest calls; connections are made when they are first needed. Whether one
/// that broke is replaced is said by [`ConnectOptions::reconnect`]; a call that was lost with it is never made again.
#[derive(Debug)]
pub struct AsyncPool {
    addresses: Vec<SocketAddr>,
    options: PoolOptions,
    places: Vec<Place>,
    in_flight: Semaphore,
}

impl AsyncPool {
    /// A pool that has no connection yet.
    ///
    /// # Errors
    ///
    /// When the address cannot be resolved.
    pub async fn new(address: impl ToSocketAddrs, options: PoolOptions) -> Result<AsyncPool, ConnectError> {
        let addresses = lookup_host(address).await.map_err(ConnectError::Resolve)?.collect();
        let places = (0..options.max_connections.max(1)).map(|_| Place::default()).collect();
        let in_flight = Semaphore::new(options.max_in_flight.clamp(1, Semaphore::MAX_PERMITS));
        Ok(AsyncPool { addresses, options, places, in_flight })
    }

    /// Makes a call on the connection with the fewest and hands its result to `take`, within the time the options allow.
    ///
    /// # Errors
    ///
    /// Whenever there is no result; see [`CallError`].
    pub async fn call<C: Call, R>(
        &self,
        call: &C,
        take: impl FnOnce(C::Reply<'_>) -> R,
    ) -> Result<R, CallError> {
        let deadline = Instant::now() + self.options.connect.call_timeout;
        let late = CallError::Deadline { rpc: C::RPC, seq_num: None };
        let Ok(permit) = timeout_at(deadline, self.in_flight.acquire()).await else { return Err(late) };
        let _permit = permit.map_err(|_| CallError::Broken)?;
        let place = self.places.iter().min_by_key(|place| place.calls.load(Ordering::Relaxed));
        let used = Used::new(place.unwrap_or(&self.places[0]));
        let Ok(connection) = timeout_at(deadline, self.connection(used.place)).await else {
            return Err(late);
        };
        connection?.call_within(call, deadline - Instant::now(), take).await
    }

    async fn connection(&self, place: &Place) -> Result<AsyncConnection, CallError> {
        let mut held = place.connection.lock().await;
        let attempts = match (held.as_ref(), self.options.connect.reconnect) {
            (Some(connection), _) if !connection.is_broken() => return Ok(connection.clone()),
            (Some(_), Reconnect::Never) => return Err(CallError::Broken),
            (_, Reconnect::UpTo { attempts, pause }) => (attempts.max(1), pause),
            (None, _) => (1, Duration::ZERO),
        };
        let mut refused = CallError::Broken;
        for attempt in 0..attempts.0 {
            if attempt > 0 {
                tokio::time::sleep(attempts.1).await;
            }
            match AsyncConnection::connect_any(&self.addresses, &self.options.connect).await {
                Ok(connection) => return Ok(held.insert(connection).clone()),
                Err(error) => refused = CallError::Reconnect(error.into()),
            }
        }
        Err(refused)
    }

    /// How many connections are open.
    pub async fn connections(&self) -> usize {
        let mut open = 0;
        for place in &self.places {
            let held = place.connection.lock().await;
            open += usize::from(held.as_ref().is_some_and(|connection| !connection.is_broken()));
        }
        open
    }
}

/// Counts a call for as long as it lasts, also if it is cancelled.
struct Used<'p> {
    place: &'p Place,
}

impl<'p> Used<'p> {
    fn new(place: &'p Place) -> Self {
        place.calls.fetch_add(1, Ordering::Relaxed);
        Used { place }
    }
}

impl Drop for Used<'_> {
    fn drop(&mut self) {
        self.place.calls.fetch_sub(1, Ordering::Relaxed);
    }
}
