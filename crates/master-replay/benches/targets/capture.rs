//! The same calls, seen from outside: a copy of every packet on the loopback interface, with the kernel's time.
//!
//! Nothing is read while calls are made: the packets wait in the socket, whose buffer is large enough, so that capturing
//! costs the two processes no more than the copies. Needs CAP_NET_RAW and CAP_NET_ADMIN.

use std::collections::HashMap;
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use master_wire::{DEFAULT_FRAME_LIMIT_BYTES, FrameReader, Header, RequestHeader, ResponseHeader};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType, recvmsg, setsockopt,
    socket, sockopt,
};
use nix::sys::time::TimeSpec;

const BUFFER_BYTES: usize = 768 << 20;
const PACKET_BYTES: usize = 128 << 10;

pub(crate) struct Capture {
    socket: OwnedFd,
}

impl Capture {
    /// Begins.
    pub(crate) fn start() -> Result<Self, Errno> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Packet, SockType::Datagram, flags, SockProtocol::EthAll)?;
        setsockopt(&socket, sockopt::RcvBufForce, &BUFFER_BYTES)?;
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        Ok(Capture { socket })
    }

    /// Ends, and gives for each call to this port the time from its request to its reply, in us.
    pub(crate) fn latencies_us(self, port: u16) -> Vec<f64> {
        let mut calls = Calls { port, ..Calls::default() };
        let mut packet = vec![0; PACKET_BYTES];
        let mut control = nix::cmsg_space!(TimeSpec);
        loop {
            let mut parts = [IoSliceMut::new(&mut packet)];
            match recvmsg::<()>(self.socket.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::empty()) {
                Ok(received) => {
                    let mut messages = received.cmsgs().expect("room for a time");
                    let seen = messages.find_map(|message| match message {
                        ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
                        _ => None,
                    });
                    let length = received.bytes;
                    calls.packet(&packet[..length], seen.expect("every packet has a time"));
                }
                Err(Errno::EAGAIN) => return calls.latencies_us,
                Err(errno) => panic!("the packets cannot be read: {errno}"),
            }
        }
    }
}

#[derive(Default)]
struct Calls {
    port: u16,
    requests: HashMap<u16, Stream<RequestHeader>>,
    replies: HashMap<u16, Stream<ResponseHeader>>,
    /// When each request was seen, by its connection and number.
    sent: HashMap<(u16, u32), Duration>,
    latencies_us: Vec<f64>,
}

impl Calls {
    /// Takes an IPv4 packet. Each is seen when it leaves and when it arrives; the second time, it is no news.
    fn packet(&mut self, packet: &[u8], seen: Duration) {
        let Some(segment) = Segment::of(packet) else { return };
        if segment.to == self.port {
            let client = segment.from;
            for header in self.requests.entry(client).or_default().take(&segment) {
                self.sent.insert((client, header.seq_num), seen);
            }
        } else if segment.from == self.port {
            let client = segment.to;
            for header in self.replies.entry(client).or_default().take(&segment) {
                if let Some(sent) = self.sent.remove(&(client, header.seq_num)) {
                    self.latencies_us.push((seen.saturating_sub(sent)).as_secs_f64() * 1e6);
                }
            }
        }
    }
}

/// A piece of a TCP stream.
struct Segment<'p> {
    from: u16,
    to: u16,
    number: u32,
    bytes: &'p [u8],
}

impl<'p> Segment<'p> {
    fn of(packet: &'p [u8]) -> Option<Self> {
        let word = |at: usize| packet.get(at..at + 2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
        let header_bytes = usize::from(packet.first()? & 0xF) * 4;
        let is_tcp = packet[0] >> 4 == 4 && *packet.get(9)? == 6;
        if !is_tcp {
            return None;
        }
        let begin = header_bytes + usize::from(packet.get(header_bytes + 12)? >> 4) * 4;
        let bytes = packet.get(begin..usize::from(word(2)?))?;
        let number = u32::from(word(header_bytes + 4)?) << 16 | u32::from(word(header_bytes + 6)?);
        (!bytes.is_empty()).then_some(Segment {
            from: word(header_bytes)?,
            to: word(header_bytes + 2)?,
            number,
            bytes,
        })
    }
}

/// One direction of a connection.
struct Stream<H> {
    next: Option<u32>,
    reader: FrameReader<H>,
}

impl<H: Header> Default for Stream<H> {
    fn default() -> Self {
        Stream { next: None, reader: FrameReader::new(64 << 10, DEFAULT_FRAME_LIMIT_BYTES) }
    }
}

impl<H: Header> Stream<H> {
    /// Takes the bytes that come next; gives the headers of the frames that they complete.
    fn take(&mut self, segment: &Segment<'_>) -> Vec<H> {
        if self.next.is_some_and(|next| next != segment.number) {
            return Vec::new();
        }
        let length = u32::try_from(segment.bytes.len()).expect("a packet is short");
        self.next = Some(segment.number.wrapping_add(length));
        let mut rest = segment.bytes;
        let mut headers = Vec::new();
        while !rest.is_empty() {
            let space = self.reader.space();
            let fits = rest.len().min(space.len());
            space[..fits].copy_from_slice(&rest[..fits]);
            self.reader.filled(fits);
            rest = &rest[fits..];
            while let Some(frame) = self.reader.next_frame().expect("a frame of the protocol") {
                headers.push(frame.header);
            }
        }
        headers
    }
}
