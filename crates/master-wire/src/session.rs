//! One connection's worth of calls in flight, without the connection.

use std::ops::Range;
use std::time::Instant;

use thiserror::Error;

use crate::body::Style;
use crate::dialect::Dialect;
use crate::error::{EncodeError, FrameError, ReplyError};
use crate::frame::{DEFAULT_FRAME_LIMIT_BYTES, Frame, FrameRange, FrameReader, ResponseHeader};
use crate::message::{decode_reply, decode_response, encode_request};
use crate::rpc::{Call, Request, Response, Rpc};

/// What a [`Session`] is made with.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SessionOptions {
    /// How request bodies are written.
    pub style: Style,
    /// How many calls may be unanswered at once.
    pub max_in_flight: usize,
    /// How many bytes are read at once.
    pub buffer_bytes: usize,
    /// The longest reply accepted, header included.
    pub frame_limit_bytes: usize,
}

impl Default for SessionOptions {
    fn default() -> Self {
        SessionOptions {
            style: Style::Compact,
            max_in_flight: 1024,
            buffer_bytes: 256 << 10,
            frame_limit_bytes: DEFAULT_FRAME_LIMIT_BYTES,
        }
    }
}

/// A call could not be queued.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// Its arguments cannot be written.
    #[error("arguments of {rpc} cannot be written")]
    Encode {
        /// The call.
        rpc: Rpc,
        /// Why.
        source: EncodeError,
    },
    /// As many calls as allowed are unanswered.
    #[error("{limit} calls are unanswered, no more are allowed")]
    Full {
        /// How many are allowed.
        limit: usize,
    },
}

/// The peer does not keep to the protocol; nothing it sends from here on can be understood.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// What arrived is no frame.
    #[error("what arrived is no reply")]
    Frame(#[from] FrameError),
    /// A reply to a call that was not made, or was answered before.
    #[error("a reply has seq_num {seq_num}, which no unanswered call has")]
    UnknownReply {
        /// Its seq_num.
        seq_num: u32,
    },
}

/// A call that was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// Its number on the wire.
    pub seq_num: u32,
    /// Which call it is.
    pub rpc: Rpc,
}

/// A reply that has arrived, still in the session's buffer.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'b> {
    /// The call it answers.
    pub ticket: Ticket,
    /// The reply itself.
    pub frame: Frame<'b, ResponseHeader>,
    dialect: Dialect,
}

impl<'b> Arrived<'b> {
    pub(crate) fn new(ticket: Ticket, frame: Frame<'b, ResponseHeader>, dialect: Dialect) -> Self {
        Arrived { ticket, frame, dialect }
    }

    /// Reads the result of a call whose type is known.
    ///
    /// # Errors
    ///
    /// When the reply says that the call failed, or cannot be read, which it cannot as the result of another call.
    #[inline]
    pub fn decode<C: Call>(&self) -> Result<C::Reply<'b>, ReplyError> {
        decode_reply::<C>(&self.frame, self.dialect)
    }

    /// Reads the result of whatever call it was.
    ///
    /// # Errors
    ///
    /// When the reply says that the call failed, or cannot be read.
    pub fn response(&self) -> Result<Response<'b>, ReplyError> {
        decode_response(&self.frame, self.ticket.rpc, self.dialect)
    }
}

/// Where in the reader's buffer a reply lies.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    ticket: Ticket,
    header: ResponseHeader,
    body: Range<usize>,
    attachment: Range<usize>,
}

impl Located {
    pub(crate) const fn ticket(&self) -> Ticket {
        self.ticket
    }
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    seq_num: u32,
    rpc: Rpc,
    deadline: Option<Instant>,
    /// Nobody waits for the reply any more; it is dropped when it comes.
    abandoned: bool,
}

/// Calls in flight on one connection, matched with their replies by `seq_num`.
///
/// Bytes to be sent pile up at [`outgoing`](Session::outgoing); bytes received go into [`incoming`](Session::incoming);
/// replies come out of [`next_reply`](Session::next_reply) in the order of their arrival. Once its buffers have grown to
/// what the calls need, nothing is allocated.
#[derive(Debug)]
pub struct Session {
    dialect: Dialect,
    style: Style,
    out: Vec<u8>,
    sent: usize,
    reader: FrameReader<ResponseHeader>,
    slots: Vec<Option<Slot>>,
    max_in_flight: usize,
    in_flight: usize,
    abandoned: usize,
    /// No deadline is earlier, so that the slots need not be searched each time.
    earliest: Option<Instant>,
    next_seq_num: u32,
}

impl Session {
    /// A session in which no call was made.
    #[must_use]
    pub fn new(dialect: Dialect, options: &SessionOptions) -> Self {
        let max_in_flight = options.max_in_flight.max(1);
        Session {
            dialect,
            style: options.style,
            out: Vec::new(),
            sent: 0,
            reader: FrameReader::new(options.buffer_bytes, options.frame_limit_bytes),
            slots: vec![None; max_in_flight.next_power_of_two()],
            max_in_flight,
            in_flight: 0,
            abandoned: 0,
            earliest: None,
            next_seq_num: 0,
        }
    }

    /// The dialect spoken.
    #[must_use]
    pub const fn dialect(&self) -> Dialect {
        self.dialect
    }

    pub(crate) fn set_dialect(&mut self, dialect: Dialect) {
        self.dialect = dialect;
    }

    /// How many calls are unanswered, those included that nobody waits for any more.
    #[must_use]
    pub const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Queues a call.
    ///
    /// # Errors
    ///
    /// When its arguments cannot be written in the dialect, or too many calls are unanswered.
    #[inline]
    pub fn submit<C: Call>(&mut self, call: &C, deadline: Option<Instant>) -> Result<Ticket, SubmitError> {
        let (dialect, style) = (self.dialect, self.style);
        self.queue(C::RPC, deadline, |out, seq_num| encode_request(out, seq_num, dialect, call, style))
    }

    /// Queues any call.
    ///
    /// # Errors
    ///
    /// As [`submit`](Session::submit).
    pub fn submit_request(
        &mut self,
        request: &Request<'_>,
        deadline: Option<Instant>,
    ) -> Result<Ticket, SubmitError> {
        let (dialect, style) = (self.dialect, self.style);
        self.queue(request.rpc(), deadline, |out, seq_num| request.encode(out, seq_num, dialect, style))
    }

    pub(crate) fn queue(
        &mut self,
        rpc: Rpc,
        deadline: Option<Instant>,
        encode: impl FnOnce(&mut Vec<u8>, u32) -> Result<(), EncodeError>,
    ) -> Result<Ticket, SubmitError> {
        if self.in_flight == self.max_in_flight {
            return Err(SubmitError::Full { limit: self.max_in_flight });
        }
        let seq_num = self.free_seq_num();
        encode(&mut self.out, seq_num).map_err(|source| SubmitError::Encode { rpc, source })?;
        let slot = self.slot_of(seq_num);
        self.slots[slot] = Some(Slot { seq_num, rpc, deadline, abandoned: false });
        self.in_flight += 1;
        self.earliest = [self.earliest, deadline].into_iter().flatten().min();
        self.next_seq_num = seq_num.wrapping_add(1);
        Ok(Ticket { seq_num, rpc })
    }

    /// The next number whose slot is free: one is, because fewer calls are in flight than there are slots.
    fn free_seq_num(&self) -> u32 {
        let mut seq_num = self.next_seq_num;
        while self.slots[self.slot_of(seq_num)].is_some() {
            seq_num = seq_num.wrapping_add(1);
        }
        seq_num
    }

    #[inline]
    fn slot_of(&self, seq_num: u32) -> usize {
        seq_num as usize & (self.slots.len() - 1)
    }

    fn held(&mut self, seq_num: u32) -> Option<&mut Slot> {
        let slot = self.slot_of(seq_num);
        self.slots[slot].as_mut().filter(|held| held.seq_num == seq_num)
    }

    /// What waits to be sent.
    #[must_use]
    pub fn outgoing(&self) -> &[u8] {
        &self.out[self.sent..]
    }

    /// Says that the first `len` bytes of [`outgoing`](Session::outgoing) are on their way.
    ///
    /// # Panics
    ///
    /// When there are fewer.
    pub fn sent(&mut self, len: usize) {
        assert!(
            len <= self.out.len() - self.sent,
            "{len} bytes sent, {} were to be",
            self.out.len() - self.sent
        );
        self.sent += len;
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
        }
    }

    /// Where received bytes go; never empty.
    pub fn incoming(&mut self) -> &mut [u8] {
        self.reader.space()
    }

    /// Says that `len` bytes were put at the beginning of [`incoming`](Session::incoming).
    ///
    /// # Panics
    ///
    /// When there was no space for so many.
    pub fn received(&mut self, len: usize) {
        self.reader.filled(len);
    }

    /// The next reply somebody waits for.
    ///
    /// # Errors
    ///
    /// When the peer does not keep to the protocol.
    #[inline]
    pub fn next_reply(&mut self) -> Result<Option<Arrived<'_>>, ProtocolError> {
        let located = self.locate_reply()?;
        Ok(located.map(|located| self.reply_at(&located)))
    }

    /// Takes the next reply and says where it is. Two steps, because a loop cannot return what it borrows.
    #[inline]
    pub(crate) fn locate_reply(&mut self) -> Result<Option<Located>, ProtocolError> {
        while let Some(FrameRange { header, body, attachment }) = self.reader.next_range()? {
            let seq_num = header.seq_num;
            let slot = self.slot_of(seq_num);
            let Some(held) = self.slots[slot].filter(|held| held.seq_num == seq_num) else {
                return Err(ProtocolError::UnknownReply { seq_num });
            };
            self.slots[slot] = None;
            self.in_flight -= 1;
            self.abandoned -= usize::from(held.abandoned);
            if !held.abandoned {
                let ticket = Ticket { seq_num, rpc: held.rpc };
                return Ok(Some(Located { ticket, header, body, attachment }));
            }
        }
        Ok(None)
    }

    #[inline]
    pub(crate) fn reply_at(&self, located: &Located) -> Arrived<'_> {
        let bytes = |range: &Range<usize>| self.reader.bytes(range.clone());
        let frame = Frame {
            header: located.header,
            body: bytes(&located.body),
            attachment: bytes(&located.attachment),
        };
        Arrived::new(located.ticket, frame, self.dialect)
    }

    /// Stops waiting for a call; its reply is dropped when it comes.
    pub fn abandon(&mut self, ticket: Ticket) {
        if let Some(held) = self.held(ticket.seq_num)
            && !held.abandoned
        {
            held.abandoned = true;
            self.abandoned += 1;
        }
    }

    /// A time before which no deadline passes; `None` while no awaited call has one.
    #[must_use]
    pub const fn next_deadline(&self) -> Option<Instant> {
        self.earliest
    }

    /// A call whose deadline has passed. It is abandoned by this.
    pub fn expire(&mut self, now: Instant) -> Option<Ticket> {
        if self.earliest.is_none_or(|earliest| now < earliest) {
            return None;
        }
        let awaited = self.slots.iter().flatten().filter(|held| !held.abandoned);
        let first =
            awaited.filter_map(|held| Some((held.deadline?, held))).min_by_key(|(deadline, _)| *deadline);
        self.earliest = first.map(|(deadline, _)| deadline);
        let (_, held) = first.filter(|(deadline, _)| *deadline <= now)?;
        let ticket = Ticket { seq_num: held.seq_num, rpc: held.rpc };
        self.abandon(ticket);
        Some(ticket)
    }

    /// How many bytes have come of a reply that is not complete.
    #[must_use]
    pub const fn partial_bytes(&self) -> usize {
        self.reader.pending_bytes()
    }

    /// How many calls are unanswered whose replies are waited for.
    #[must_use]
    pub const fn awaited(&self) -> usize {
        self.in_flight - self.abandoned
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::rpc::ServiceReady;

    fn session(max_in_flight: usize) -> Session {
        let options = SessionOptions { max_in_flight, buffer_bytes: 64, ..Default::default() };
        Session::new(Dialect::D, &options)
    }

    fn submit(session: &mut Session) -> u32 {
        session.submit(&ServiceReady {}, None).unwrap().seq_num
    }

    /// An answer arrives; what of it reaches those who wait.
    fn answer(session: &mut Session, seq_num: u32) -> Option<u32> {
        let mut reply = Vec::new();
        let ready = Response::ServiceReady(Ok("2.0.0".into()));
        ready.encode(&mut reply, seq_num, Dialect::D, Style::Official).unwrap();
        session.incoming()[..reply.len()].copy_from_slice(&reply);
        session.received(reply.len());
        session.next_reply().unwrap().map(|arrived| arrived.ticket.seq_num)
    }

    #[test]
    fn numbers_go_round_and_avoid_those_in_use() {
        let mut session = session(3);
        session.next_seq_num = u32::MAX - 1;
        assert_eq!([(); 3].map(|()| submit(&mut session)), [u32::MAX - 1, u32::MAX, 0]);
        assert_eq!(session.submit(&ServiceReady {}, None), Err(SubmitError::Full { limit: 3 }));
        assert_eq!(answer(&mut session, u32::MAX), Some(u32::MAX));
        assert_eq!(submit(&mut session), 1);
        assert_eq!(answer(&mut session, 1), Some(1));
        // The slot of 2 is that of the oldest call, which nobody has answered; so is 4's that of 0.
        assert_eq!(submit(&mut session), 3);
        assert_eq!(answer(&mut session, 0), Some(0));
        assert_eq!((session.in_flight(), submit(&mut session)), (2, 4));
    }

    #[test]
    fn deadlines_pass_one_by_one() {
        let mut session = session(8);
        let now = Instant::now();
        let after = |ms| Some(now + Duration::from_millis(ms));
        let late = session.submit(&ServiceReady {}, after(30)).unwrap();
        let early = session.submit(&ServiceReady {}, after(10)).unwrap();
        let never = session.submit(&ServiceReady {}, None).unwrap();
        assert_eq!(session.next_deadline(), after(10));
        assert_eq!(session.expire(now), None);
        assert_eq!(session.expire(now + Duration::from_millis(50)), Some(early));
        assert_eq!(session.expire(now + Duration::from_millis(50)), Some(late));
        assert_eq!(session.expire(now + Duration::from_millis(50)), None);
        assert_eq!((session.in_flight(), session.awaited()), (3, 1));
        assert_eq!(answer(&mut session, early.seq_num), None, "nobody waits for it");
        assert_eq!(answer(&mut session, never.seq_num), Some(never.seq_num));
        assert_eq!((session.in_flight(), session.awaited()), (1, 0));
        assert_eq!(session.next_deadline(), None);
    }

    #[test]
    fn what_was_sent_is_forgotten() {
        let mut session = session(8);
        submit(&mut session);
        submit(&mut session);
        assert_eq!(session.outgoing().len(), 40);
        session.sent(25);
        assert_eq!(session.outgoing().len(), 15);
        session.sent(15);
        assert!(session.outgoing().is_empty());
    }
}
