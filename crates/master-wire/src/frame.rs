//! Frames: a header, a body and an attachment.

use std::marker::PhantomData;
use std::ops::Range;

use crate::error::FrameError;

const MAGIC: u8 = 21;
const VERSION: u8 = 0;
const SERIALIZE_TYPE: u8 = 0;

/// A header, of a request or of a reply.
pub trait Header: Copy {
    /// Its length.
    const BYTES: usize;

    /// Reads a header, whatever it says. `None` if there are fewer than [`Header::BYTES`] bytes.
    fn read(bytes: &[u8]) -> Option<Self>;

    /// Whether a peer that speaks this protocol can have sent it.
    ///
    /// # Errors
    ///
    /// When magic, version or serialize type are not this protocol's.
    fn check(&self) -> Result<(), FrameError>;

    /// How long body and attachment are.
    fn lengths(&self) -> (u32, u32);
}

/// What a request begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// 21.
    pub magic: u8,
    /// 0.
    pub version: u8,
    /// 0.
    pub serialize_type: u8,
    /// 0; the master ignores it.
    pub msg_type: u8,
    /// Chosen by the client; the reply has the same.
    pub seq_num: u32,
    /// Which call; see [`Rpc::of_function_id`](crate::Rpc::of_function_id).
    pub function_id: u32,
    /// How many bytes of body follow.
    pub length: u32,
    /// How many bytes of attachment follow the body.
    pub attach_length: u32,
}

impl RequestHeader {
    /// The header of a request without attachment.
    #[must_use]
    pub const fn new(seq_num: u32, function_id: u32, length: u32) -> Self {
        RequestHeader {
            magic: MAGIC,
            version: VERSION,
            serialize_type: SERIALIZE_TYPE,
            msg_type: 0,
            seq_num,
            function_id,
            length,
            attach_length: 0,
        }
    }

    /// The bytes on the wire.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[..4].copy_from_slice(&[self.magic, self.version, self.serialize_type, self.msg_type]);
        bytes[4..8].copy_from_slice(&self.seq_num.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.function_id.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.length.to_le_bytes());
        bytes[16..].copy_from_slice(&self.attach_length.to_le_bytes());
        bytes
    }
}

impl Header for RequestHeader {
    const BYTES: usize = 20;

    #[inline]
    fn read(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 20] = bytes.first_chunk()?;
        Some(RequestHeader {
            magic: bytes[0],
            version: bytes[1],
            serialize_type: bytes[2],
            msg_type: bytes[3],
            seq_num: word(bytes, 4),
            function_id: word(bytes, 8),
            length: word(bytes, 12),
            attach_length: word(bytes, 16),
        })
    }

    #[inline]
    fn check(&self) -> Result<(), FrameError> {
        check_start(self.magic, self.version)?;
        match self.serialize_type {
            SERIALIZE_TYPE => Ok(()),
            found => Err(FrameError::SerializeType { found }),
        }
    }

    #[inline]
    fn lengths(&self) -> (u32, u32) {
        (self.length, self.attach_length)
    }
}

/// What a reply begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHeader {
    /// 21.
    pub magic: u8,
    /// 0.
    pub version: u8,
    /// 0 where the body is the call's result; see [`RpcErrorCode`](crate::RpcErrorCode).
    pub err_code: u8,
    /// 0.
    pub msg_type: u8,
    /// The request's.
    pub seq_num: u32,
    /// How many bytes of body follow.
    pub length: u32,
    /// How many bytes of attachment follow the body.
    pub attach_length: u32,
}

impl ResponseHeader {
    /// The header of a reply without attachment.
    #[must_use]
    pub const fn new(seq_num: u32, err_code: u8, length: u32) -> Self {
        ResponseHeader {
            magic: MAGIC,
            version: VERSION,
            err_code,
            msg_type: 0,
            seq_num,
            length,
            attach_length: 0,
        }
    }

    /// The bytes on the wire.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&[self.magic, self.version, self.err_code, self.msg_type]);
        bytes[4..8].copy_from_slice(&self.seq_num.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.length.to_le_bytes());
        bytes[12..].copy_from_slice(&self.attach_length.to_le_bytes());
        bytes
    }
}

impl Header for ResponseHeader {
    const BYTES: usize = 16;

    #[inline]
    fn read(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 16] = bytes.first_chunk()?;
        Some(ResponseHeader {
            magic: bytes[0],
            version: bytes[1],
            err_code: bytes[2],
            msg_type: bytes[3],
            seq_num: word(bytes, 4),
            length: word(bytes, 8),
            attach_length: word(bytes, 12),
        })
    }

    #[inline]
    fn check(&self) -> Result<(), FrameError> {
        check_start(self.magic, self.version)
    }

    #[inline]
    fn lengths(&self) -> (u32, u32) {
        (self.length, self.attach_length)
    }
}

#[inline]
fn word<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline]
fn check_start(magic: u8, version: u8) -> Result<(), FrameError> {
    match (magic, version) {
        (MAGIC, VERSION) => Ok(()),
        (MAGIC, found) => Err(FrameError::Version { found }),
        (found, _) => Err(FrameError::Magic { found }),
    }
}

/// One whole frame, still in the reader's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'b, H> {
    /// What it begins with.
    pub header: H,
    /// Its body.
    pub body: &'b [u8],
    /// What follows the body; nothing in every frame seen.
    pub attachment: &'b [u8],
}

impl<'b, H: Header> Frame<'b, H> {
    /// Splits a frame off the front of `bytes`, and says how long it is; `None` while some of it is missing.
    ///
    /// # Errors
    ///
    /// When the header is not this protocol's, or says a length above `limit_bytes`.
    #[inline]
    pub fn split(bytes: &'b [u8], limit_bytes: usize) -> Result<Option<(Frame<'b, H>, usize)>, FrameError> {
        let Some(header) = H::read(bytes) else {
            return Ok(None);
        };
        let len = frame_len(&header, limit_bytes)?;
        let Some(frame) = bytes.get(H::BYTES..len) else {
            return Ok(None);
        };
        let (body, attachment) = frame.split_at(header.lengths().0 as usize);
        Ok(Some((Frame { header, body, attachment }, len)))
    }
}

#[inline]
fn frame_len<H: Header>(header: &H, limit_bytes: usize) -> Result<usize, FrameError> {
    header.check()?;
    let (body, attachment) = header.lengths();
    let bytes = H::BYTES as u64 + u64::from(body) + u64::from(attachment);
    match usize::try_from(bytes) {
        Ok(len) if len <= limit_bytes => Ok(len),
        _ => Err(FrameError::TooLong { bytes, limit_bytes }),
    }
}

/// Where one whole frame is in the reader's buffer.
#[derive(Debug)]
pub(crate) struct FrameRange<H> {
    pub(crate) header: H,
    pub(crate) body: Range<usize>,
    pub(crate) attachment: Range<usize>,
}

/// Cuts a stream of bytes into frames.
///
/// Bytes go in at [`space`](FrameReader::space) and [`filled`](FrameReader::filled); frames come out of
/// [`next_frame`](FrameReader::next_frame) without being copied. The buffer has the size it was made with until a longer
/// frame arrives; then it grows as that frame's bytes do, never because of a length that was merely announced.
#[derive(Debug)]
pub struct FrameReader<H> {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    limit_bytes: usize,
    header: PhantomData<H>,
}

/// The longest frame accepted where nothing else is asked for: 64 MiB.
pub const DEFAULT_FRAME_LIMIT_BYTES: usize = 64 << 20;

impl<H: Header> FrameReader<H> {
    /// A reader with a buffer of `buffer_bytes` that accepts frames of at most `limit_bytes`.
    #[must_use]
    pub fn new(buffer_bytes: usize, limit_bytes: usize) -> Self {
        let buffer = vec![0; buffer_bytes.max(H::BYTES)];
        FrameReader { buffer, start: 0, end: 0, limit_bytes, header: PhantomData }
    }

    /// Where the next bytes go; never empty.
    pub fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        } else if self.end == self.buffer.len() {
            self.make_room();
        }
        &mut self.buffer[self.end..]
    }

    #[cold]
    fn make_room(&mut self) {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end > self.buffer.len() / 2 {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
    }

    /// Says that `len` bytes were put at the beginning of [`space`](FrameReader::space).
    ///
    /// # Panics
    ///
    /// When there was no space for so many.
    pub fn filled(&mut self, len: usize) {
        assert!(
            len <= self.buffer.len() - self.end,
            "{len} bytes were put where there was no space for them"
        );
        self.end += len;
    }

    /// The next whole frame.
    ///
    /// # Errors
    ///
    /// When what comes next is no frame. The stream cannot be read on after that.
    #[inline]
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_, H>>, FrameError> {
        let bytes = &self.buffer[self.start..self.end];
        let Some((frame, len)) = Frame::split(bytes, self.limit_bytes)? else {
            return Ok(None);
        };
        self.start += len;
        Ok(Some(frame))
    }

    /// As [`next_frame`](FrameReader::next_frame), but says where body and attachment are instead of borrowing them.
    #[inline]
    pub(crate) fn next_range(&mut self) -> Result<Option<FrameRange<H>>, FrameError> {
        let start = self.start;
        let Some(frame) = self.next_frame()? else {
            return Ok(None);
        };
        let body_end = start + H::BYTES + frame.body.len();
        let attachment = body_end..body_end + frame.attachment.len();
        Ok(Some(FrameRange { header: frame.header, body: start + H::BYTES..body_end, attachment }))
    }

    /// What [`next_range`](FrameReader::next_range) located, until more bytes are read.
    #[inline]
    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// How many bytes wait for the rest of their frame.
    #[must_use]
    pub const fn pending_bytes(&self) -> usize {
        self.end - self.start
    }

    /// How long the buffer is.
    #[must_use]
    pub const fn buffer_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Forgets what has not been taken.
    pub fn clear(&mut self) {
        self.start = 0;
        self.end = 0;
    }
}
