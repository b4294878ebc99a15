//! One connection of the timed part: a socket that never blocks, and the calls in flight on it.

use std::io::{self, ErrorKind, IoSliceMut, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;

use master_wire::{Arrived, Call, Dialect, Session, SessionOptions, SubmitError, Ticket};

use super::call::describe;

/// How much is read at once: many small replies.
const READ_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub(super) struct Lane {
    pub(super) session: Session,
    /// The event of each call in flight, by its place among the session's.
    events: Vec<u32>,
    /// The events whose calls wait to be written; the owner's to keep.
    pub(super) unsent: Vec<u32>,
    /// Why the connection is of no use any more.
    pub(super) broken: Option<String>,
    /// Whether what was in flight on the broken connection has been given up.
    pub(super) given_up: bool,
    /// When the last bytes read had arrived, on the clock of the time of day, if the kernel says so.
    pub(super) arrived: Option<Duration>,
    /// Room for what the kernel says.
    control: Vec<u8>,
}

/// Opens a socket for a lane.
pub(super) fn open(address: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    setsockopt(&stream, sockopt::ReceiveTimestampns, &true)?;
    Ok(stream)
}

impl Lane {
    pub(super) fn new(dialect: Dialect, in_flight: u32) -> Self {
        let mut options = SessionOptions::default();
        options.max_in_flight = in_flight as usize;
        options.buffer_bytes = READ_BYTES;
        let places = (in_flight as usize).max(1).next_power_of_two();
        Lane {
            session: Session::new(dialect, &options),
            events: vec![0; places],
            unsent: Vec::new(),
            broken: None,
            given_up: false,
            arrived: None,
            control: nix::cmsg_space!(TimeSpec),
        }
    }

    pub(super) fn submit<C: Call>(
        &mut self,
        call: &C,
        event: u32,
        deadline: Instant,
    ) -> Result<(), SubmitError> {
        let ticket = self.session.submit(call, Some(deadline))?;
        let place = self.place(ticket);
        self.events[place] = event;
        Ok(())
    }

    fn place(&self, ticket: Ticket) -> usize {
        ticket.seq_num as usize & (self.events.len() - 1)
    }

    pub(super) fn event_of(&self, ticket: Ticket) -> u32 {
        self.events[self.place(ticket)]
    }

    /// The next reply with its event.
    pub(super) fn next_reply(&mut self) -> Option<(u32, Arrived<'_>)> {
        let Lane { session, events, broken, .. } = self;
        match session.next_reply() {
            Ok(arrived) => {
                let arrived = arrived?;
                let place = arrived.ticket.seq_num as usize & (events.len() - 1);
                Some((events[place], arrived))
            }
            Err(error) => {
                *broken = Some(describe(&error));
                None
            }
        }
    }

    pub(super) fn wants_to_write(&self) -> bool {
        self.broken.is_none() && !self.session.outgoing().is_empty()
    }

    /// Writes as much as the socket takes; says whether anything was written.
    pub(super) fn write(&mut self, mut stream: &TcpStream) -> bool {
        let mut written = false;
        while self.wants_to_write() {
            match stream.write(self.session.outgoing()) {
                Ok(0) => self.broken = Some("the connection takes no more bytes".to_owned()),
                Ok(count) => {
                    self.session.sent(count);
                    written = true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => self.broken = Some(format!("the connection broke: {}", error.kind())),
            }
        }
        written
    }

    /// Reads once; says whether anything came.
    pub(super) fn read(&mut self, stream: &TcpStream) -> bool {
        if self.broken.is_some() {
            return false;
        }
        match self.receive(stream) {
            Ok(0) => self.broken = Some("the master closed the connection".to_owned()),
            Ok(count) => {
                self.session.received(count);
                return true;
            }
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(errno) => {
                self.broken = Some(format!("the connection broke: {}", io::Error::from(errno).kind()))
            }
        }
        false
    }

    fn receive(&mut self, stream: &TcpStream) -> Result<usize, Errno> {
        let mut parts = [IoSliceMut::new(self.session.incoming())];
        let control = Some(&mut self.control[..]);
        let received = recvmsg::<()>(stream.as_raw_fd(), &mut parts, control, MsgFlags::empty())?;
        self.arrived = received.cmsgs()?.find_map(|message| match message {
            ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
            _ => None,
        });
        Ok(received.bytes)
    }
}
