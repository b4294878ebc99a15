//! A bounded set of blocking connections to one master.

use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::connection::{CallError, ConnectError, ConnectOptions, Connection};
use crate::rpc::Call;

/// What a pool is made with.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PoolOptions {
    /// How many connections there may be.
    pub max_connections: usize,
    /// How many calls may be in flight over all connections of an asynchronous pool. A blocking pool has as many as its
    /// connections.
    pub max_in_flight: usize,
    /// How long somebody waits for a connection.
    pub checkout_timeout: Duration,
    /// What holds for each connection.
    pub connect: ConnectOptions,
}

impl Default for PoolOptions {
    fn default() -> Self {
        PoolOptions {
            max_connections: 3,
            max_in_flight: 1024,
            checkout_timeout: Duration::from_secs(10),
            connect: ConnectOptions::default(),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Connection>,
    /// Connections there are, in use or not.
    open: usize,
}

/// Connections that threads borrow from each other.
///
/// Each is made when it is first needed. One that broke is given up when it comes back, and another is made in its place.
#[derive(Debug)]
pub struct Pool {
    addresses: Vec<SocketAddr>,
    options: PoolOptions,
    state: Mutex<State>,
    returned: Condvar,
}

impl Pool {
    /// A pool that has no connection yet.
    ///
    /// # Errors
    ///
    /// When the address cannot be resolved.
    pub fn new(address: impl ToSocketAddrs, options: PoolOptions) -> Result<Pool, ConnectError> {
        let addresses = address.to_socket_addrs().map_err(ConnectError::Resolve)?.collect();
        Ok(Pool { addresses, options, state: Mutex::default(), returned: Condvar::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing is left half done by a panic within the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Borrows a connection until the result goes out of scope.
    ///
    /// # Errors
    ///
    /// When all connections stay in use, or no new one comes about.
    pub fn get(&self) -> Result<Pooled<'_>, CallError> {
        let deadline = Instant::now() + self.options.checkout_timeout;
        let mut state = self.state();
        loop {
            if let Some(connection) = state.idle.pop() {
                return Ok(Pooled { pool: self, connection: Some(connection) });
            }
            if state.open < self.options.max_connections {
                state.open += 1;
                break;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(CallError::Busy { connections: self.options.max_connections });
            }
            let woken = self.returned.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(state);
        match Connection::connect(&self.addresses[..], &self.options.connect) {
            Ok(connection) => Ok(Pooled { pool: self, connection: Some(connection) }),
            Err(error) => {
                self.give_back(None);
                Err(CallError::Reconnect(error.into()))
            }
        }
    }

    fn give_back(&self, connection: Option<Connection>) {
        let mut state = self.state();
        match connection {
            Some(connection) => state.idle.push(connection),
            None => state.open -= 1,
        }
        drop(state);
        self.returned.notify_one();
    }

    /// Makes one call on whichever connection is free, and hands its result to `take`.
    ///
    /// # Errors
    ///
    /// When there is no connection, or the call has no result.
    pub fn call<C: Call, R>(&self, call: &C, take: impl FnOnce(C::Reply<'_>) -> R) -> Result<R, CallError> {
        self.get()?.call(call).map(take)
    }

    /// How many connections there are.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.state().open
    }
}

/// A connection borrowed from a [`Pool`].
#[derive(Debug)]
pub struct Pooled<'p> {
    pool: &'p Pool,
    /// There until it is dropped.
    connection: Option<Connection>,
}

impl Deref for Pooled<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection.as_ref().expect("it is given back only when this goes out of scope")
    }
}

impl DerefMut for Pooled<'_> {
    fn deref_mut(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("it is given back only when this goes out of scope")
    }
}

impl Drop for Pooled<'_> {
    fn drop(&mut self) {
        // One that broke, or whose replies somebody stopped waiting for, is nothing to pass on.
        let usable =
            self.connection.take().filter(|connection| !connection.is_broken() && connection.is_idle());
        self.pool.give_back(usable);
    }
}
