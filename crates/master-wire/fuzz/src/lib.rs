//! What must hold for any bytes.

use master_wire::{
    Dialect, Frame, FrameError, FrameReader, Header, Request, RequestHeader, Response, ResponseHeader, Rpc,
    RpcFailure, Style, Visitor, WireStr,
};

/// The first byte picks a dialect, the second a call, the third what the rest is.
///
/// # Panics
///
/// When a reader does, or when what was read is not written again byte for byte.
pub fn check_message(data: &[u8]) {
    let [dialect, call, what, body @ ..] = data else { return };
    let dialect = Dialect::ALL[usize::from(*dialect) % Dialect::ALL.len()];
    let rpc = Rpc::ALL[usize::from(*call) % Rpc::ALL.len()];
    // Half of the inputs get the right hash: few would guess it.
    let signature = if what & 1 == 0 { rpc.request(dialect) } else { rpc.response(dialect) };
    let head = signature.hash() | u32::from(what >> 2 & 1);
    let hashed = [&head.to_le_bytes()[..], body].concat();
    let body = if what & 2 == 0 { &hashed[..] } else { body };
    if what & 1 == 0 {
        check_request(rpc, dialect, body);
    } else {
        check_response(rpc, dialect, body);
        let _ = RpcFailure::decode(*what, body);
    }
}

fn check_request(rpc: Rpc, dialect: Dialect, body: &[u8]) {
    let Ok(read) = Request::decode(rpc, dialect, body) else { return };
    read.value.visit(dialect, &mut Count(0));
    let mut frame = Vec::new();
    read.value
        .encode(&mut frame, 1, dialect, Style::Exact(read.envelope))
        .expect("what was read can be written");
    assert_eq!([&frame[RequestHeader::BYTES..], read.surplus].concat(), body);
}

fn check_response(rpc: Rpc, dialect: Dialect, body: &[u8]) {
    let Ok(read) = Response::decode(rpc, dialect, body) else { return };
    read.value.visit(dialect, &mut Count(0));
    let mut frame = Vec::new();
    read.value
        .encode(&mut frame, 1, dialect, Style::Exact(read.envelope))
        .expect("what was read can be written");
    assert_eq!([&frame[ResponseHeader::BYTES..], read.surplus].concat(), body);
}

/// The first byte says how large the pieces are in which the rest arrives.
///
/// # Panics
///
/// When a reader does, or when the frames depend on the pieces.
pub fn check_stream(data: &[u8]) {
    let [piece, stream @ ..] = data else { return };
    let whole = frames::<ResponseHeader>(stream, stream.len().max(1));
    assert_eq!(whole, frames::<ResponseHeader>(stream, usize::from(*piece).max(1)));
    let whole = frames::<RequestHeader>(stream, stream.len().max(1));
    assert_eq!(whole, frames::<RequestHeader>(stream, usize::from(*piece).max(1)));
    let _ = Frame::<RequestHeader>::split(stream, usize::MAX);
}

/// The bodies of all frames, and the error after them.
fn frames<H: Header>(stream: &[u8], piece: usize) -> (Vec<Vec<u8>>, Option<FrameError>) {
    let limit_bytes = 1 << 16;
    let mut reader = FrameReader::<H>::new(32, limit_bytes);
    let mut bodies = Vec::new();
    for mut part in stream.chunks(piece) {
        while !part.is_empty() {
            let space = reader.space();
            let len = space.len().min(part.len());
            space[..len].copy_from_slice(&part[..len]);
            reader.filled(len);
            part = &part[len..];
            loop {
                match reader.next_frame() {
                    Ok(Some(frame)) => bodies.push([frame.body, frame.attachment].concat()),
                    Ok(None) => break,
                    Err(error) => return (bodies, Some(error)),
                }
            }
        }
    }
    assert!(reader.buffer_bytes() <= 4 * (limit_bytes + 32));
    (bodies, None)
}

/// Counts what it is told.
struct Count(usize);

impl Visitor for Count {
    fn unsigned(&mut self, _: u64) {
        self.0 += 1;
    }

    fn signed(&mut self, _: i64) {
        self.0 += 1;
    }

    fn boolean(&mut self, _: bool) {
        self.0 += 1;
    }

    fn text(&mut self, value: WireStr<'_>) {
        self.0 += value.len();
    }

    fn nothing(&mut self) {
        self.0 += 1;
    }

    fn open_list(&mut self, len: usize) {
        self.0 += len;
    }

    fn open_record(&mut self) {}

    fn name(&mut self, _: &'static str) {}

    fn close(&mut self) {}
}
