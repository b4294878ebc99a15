//! One line of a vectors file: is the message read as the file says, and written again byte for byte?

use std::fmt::Write as _;

use master_wire::{
    Body, DecodeError, Dialect, Envelope, Frame, FrameError, Header, Request, RequestError, RequestHeader,
    Response, ResponseHeader, Rpc, RpcFailure, Style, Visitor, WireStr, decode_request,
};
use serde_json::{Map, Value, json};

/// No message is refused for its length.
const NO_LIMIT: usize = usize::MAX;

/// What a line turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Agreement {
    /// Read as stated, written again as it was.
    Equal,
    /// The same, in another dialect than the master's: a client that asks which dialect that is.
    Foreign,
    /// Refused for the stated reason.
    Refused,
}

/// Checks one line.
///
/// # Errors
///
/// Says what is wrong with the line, or what differs.
pub(crate) fn check_line(line: &str) -> Result<Agreement, String> {
    let object: Map<String, Value> = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let text = |key: &str| {
        let value = object.get(key).ok_or_else(|| format!("no member {key:?}"))?;
        value.as_str().ok_or_else(|| format!("member {key:?} is {value}, not a string"))
    };
    let version = text("master_version")?;
    let message = Message {
        dialect: dialect(version)?,
        rpc: text("rpc")?,
        bytes: &from_hex(text("hex")?)?,
        decoded: object.get("decoded").ok_or("no member \"decoded\"")?,
        canonical: object.get("canonical").and_then(Value::as_bool).unwrap_or(false),
    };
    match text("direction")? {
        "request" => message.check::<RequestHeader>(),
        "response" => message.check::<ResponseHeader>(),
        other => Err(format!("direction {other:?} is neither request nor response")),
    }
}

fn dialect(version: &str) -> Result<Dialect, String> {
    Dialect::of_master_version(version).ok_or_else(|| format!("no dialect of master {version:?} is known"))
}

struct Message<'l> {
    dialect: Dialect,
    rpc: &'l str,
    bytes: &'l [u8],
    decoded: &'l Value,
    canonical: bool,
}

impl Message<'_> {
    fn check<H: Direction>(&self) -> Result<Agreement, String> {
        let read = read_frame::<H>(self.bytes);
        match self.decoded.get("malformed") {
            None => self.check_read(&read.map_err(|refusal| refusal.to_string())?),
            Some(why) => {
                let why = why.as_str().ok_or("member \"malformed\" is not a string")?;
                self.check_refused(why, read)
            }
        }
    }

    fn check_read<H: Direction>(&self, frame: &Frame<'_, H>) -> Result<Agreement, String> {
        let own = H::read_message(frame, self.rpc, self.dialect);
        let Some(foreign) = own.err().filter(Refusal::is_other_type).and_then(|_| self.speaks(frame)) else {
            return self
                .compare(frame, self.dialect, self.decoded, self.canonical)
                .map(|()| Agreement::Equal);
        };
        self.compare(frame, foreign, self.decoded, self.canonical).map(|()| Agreement::Foreign)
    }

    /// The dialect in which the message says what the file says.
    fn speaks<H: Direction>(&self, frame: &Frame<'_, H>) -> Option<Dialect> {
        Dialect::ALL.into_iter().find(|dialect| {
            H::read_message(frame, self.rpc, *dialect).is_ok_and(|read| read.value == *self.decoded)
        })
    }

    fn compare<H: Direction>(
        &self,
        frame: &Frame<'_, H>,
        dialect: Dialect,
        decoded: &Value,
        canonical: bool,
    ) -> Result<(), String> {
        let read = H::read_message(frame, self.rpc, dialect).map_err(|refusal| refusal.to_string())?;
        if read.value != *decoded {
            return Err(format!("read as {}, the file says {decoded}", read.value));
        }
        let mut written = read.exact;
        written.extend_from_slice(read.surplus);
        let body_bytes = written.len() - H::BYTES;
        written.extend_from_slice(frame.attachment);
        written[..H::BYTES].copy_from_slice(&frame.header.with_length(body_bytes));
        compare_bytes("written again", &written, self.bytes)?;
        if canonical {
            compare_bytes("written as the official client does", &read.official, self.bytes)
        } else {
            Ok(())
        }
    }

    fn check_refused<H: Direction>(
        &self,
        why: &str,
        read: Result<Frame<'_, H>, Refusal>,
    ) -> Result<Agreement, String> {
        let refusal = match &read {
            Err(refusal) => refusal.clone(),
            Ok(frame) => match H::read_message(frame, self.rpc, self.dialect) {
                Err(refusal) => refusal,
                Ok(read) => {
                    return Err(format!("read as {}, the file says it is malformed: {why}", read.value));
                }
            },
        };
        if !refusal.is_for(why) {
            return Err(format!("refused because of {refusal}, the file says {why:?}"));
        }
        let Some((version, frame)) = why.strip_prefix("dialect ").zip(read.as_ref().ok()) else {
            return Ok(Agreement::Refused);
        };
        let args = self.decoded.get("args").ok_or("a message in another dialect has no member \"args\"")?;
        self.compare(frame, dialect(version)?, args, false)?;
        Ok(Agreement::Refused)
    }
}

fn compare_bytes(how: &str, written: &[u8], expected: &[u8]) -> Result<(), String> {
    if written == expected {
        return Ok(());
    }
    let at = written.iter().zip(expected).take_while(|(left, right)| left == right).count();
    Err(format!("{how} it differs from byte {at} on: {} in place of {}", to_hex(written), to_hex(expected)))
}

/// Why a message is not read.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    Frame(FrameError),
    Incomplete,
    Trailing(usize),
    Request(RequestError),
    Body(DecodeError),
    Name { header: String, file: String },
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refusal::Frame(error) => error.fmt(f),
            Refusal::Incomplete => f.write_str("the frame is longer than the bytes there are"),
            Refusal::Trailing(bytes) => write!(f, "{bytes} bytes behind the frame"),
            Refusal::Request(RequestError::Arguments { source, .. }) => source.fmt(f),
            Refusal::Request(error) => error.fmt(f),
            Refusal::Body(error) => error.fmt(f),
            Refusal::Name { header, file } => write!(f, "the header names {header}, the file says {file:?}"),
        }
    }
}

impl Refusal {
    fn decode_error(&self) -> Option<&DecodeError> {
        match self {
            Refusal::Request(RequestError::Arguments { source, .. }) | Refusal::Body(source) => Some(source),
            _ => None,
        }
    }

    fn is_other_type(&self) -> bool {
        matches!(self.decode_error(), Some(DecodeError::TypeHash { .. }))
    }

    /// Whether this is the reason the file gives. A reason in words unknown here is met by any refusal.
    fn is_for(&self, why: &str) -> bool {
        let decode = self.decode_error();
        let (word, number) = why.split_once(' ').unwrap_or((why, ""));
        let number: Option<u8> = number.parse().ok();
        match (word, number) {
            ("magic", Some(found)) => {
                matches!(self, Refusal::Frame(error) if *error == FrameError::Magic { found })
            }
            ("version", Some(found)) => {
                matches!(self, Refusal::Frame(error) if *error == FrameError::Version { found })
            }
            ("serialize_type", Some(found)) => {
                matches!(self, Refusal::Frame(error) if *error == FrameError::SerializeType { found })
            }
            ("dialect", _) => matches!(decode, Some(DecodeError::TypeHash { .. } | DecodeError::EmptyBody)),
            _ => match why {
                "no such function" => matches!(self, Refusal::Request(RequestError::Unknown(_))),
                "empty body" => matches!(decode, Some(DecodeError::EmptyBody)),
                "type hash differs" => matches!(decode, Some(DecodeError::TypeHash { .. })),
                "literal differs" => matches!(decode, Some(DecodeError::Literal { .. })),
                "truncated value" => {
                    matches!(decode, Some(DecodeError::Truncated { .. } | DecodeError::Count { .. }))
                }
                _ => true,
            },
        }
    }
}

fn read_frame<H: Direction>(bytes: &[u8]) -> Result<Frame<'_, H>, Refusal> {
    match Frame::split(bytes, NO_LIMIT).map_err(Refusal::Frame)? {
        None => Err(Refusal::Incomplete),
        Some((frame, len)) if len == bytes.len() => Ok(frame),
        Some((_, len)) => Err(Refusal::Trailing(bytes.len() - len)),
    }
}

/// A message that was read: what it says, and two ways to write it.
pub(crate) struct Read<'b> {
    value: Value,
    /// In the envelope it came in, with a header whose length is not that of the message yet.
    exact: Vec<u8>,
    official: Vec<u8>,
    surplus: &'b [u8],
}

/// What differs between requests and replies.
pub(crate) trait Direction: Header {
    fn with_length(self, body_bytes: usize) -> Vec<u8>;
    fn read_message<'b>(frame: &Frame<'b, Self>, rpc: &str, dialect: Dialect) -> Result<Read<'b>, Refusal>;
}

impl Direction for RequestHeader {
    fn with_length(self, body_bytes: usize) -> Vec<u8> {
        let length = u32::try_from(body_bytes).expect("it came in a frame");
        RequestHeader { length, ..self }.to_bytes().into()
    }

    fn read_message<'b>(frame: &Frame<'b, Self>, rpc: &str, dialect: Dialect) -> Result<Read<'b>, Refusal> {
        let body = decode_request(frame, dialect).map_err(Refusal::Request)?;
        check_name(body.value.rpc(), rpc)?;
        let seq_num = frame.header.seq_num;
        Ok(read(body, arguments(&body.value, dialect), |request: &Request<'_>, style, out| {
            request.encode(out, seq_num, dialect, style)
        }))
    }
}

impl Direction for ResponseHeader {
    fn with_length(self, body_bytes: usize) -> Vec<u8> {
        let length = u32::try_from(body_bytes).expect("it came in a frame");
        ResponseHeader { length, ..self }.to_bytes().into()
    }

    fn read_message<'b>(frame: &Frame<'b, Self>, rpc: &str, dialect: Dialect) -> Result<Read<'b>, Refusal> {
        let seq_num = frame.header.seq_num;
        if frame.header.err_code != 0 {
            let body = RpcFailure::decode(frame.header.err_code, frame.body).map_err(Refusal::Body)?;
            let value = json!({ "rpc_error": failure(&body.value) });
            return Ok(read(body, value, |failure: &RpcFailure, style, out| {
                failure.encode(out, seq_num, style)
            }));
        }
        let name = Rpc::of_name(rpc)
            .ok_or_else(|| Refusal::Name { header: "a result".to_owned(), file: rpc.to_owned() })?;
        let body = Response::decode(name, dialect, frame.body).map_err(Refusal::Body)?;
        let value = json!({ "result": to_json(|visitor| body.value.visit(dialect, visitor)) });
        Ok(read(body, value, |response: &Response<'_>, style, out| {
            response.encode(out, seq_num, dialect, style)
        }))
    }
}

fn check_name(header: Rpc, file: &str) -> Result<(), Refusal> {
    if header.name() == file {
        return Ok(());
    }
    Err(Refusal::Name { header: header.to_string(), file: file.to_owned() })
}

fn read<'b, T>(
    body: Body<'b, T>,
    value: Value,
    encode: impl Fn(&T, Style, &mut Vec<u8>) -> Result<(), master_wire::EncodeError>,
) -> Read<'b> {
    let write = |style| {
        let mut out = Vec::new();
        encode(&body.value, style, &mut out).expect("what was read in a dialect can be written in it");
        out
    };
    let envelope: Envelope = body.envelope;
    Read {
        value,
        exact: write(Style::Exact(envelope)),
        official: write(Style::Official),
        surplus: body.surplus,
    }
}

/// The arguments by name. Before dialect D the files know no object's meta data, only its key.
fn arguments(request: &Request<'_>, dialect: Dialect) -> Value {
    let mut value = to_json(|visitor| request.visit(dialect, visitor));
    if dialect < Dialect::D
        && let Some(arguments) = value.as_object_mut()
    {
        for (ours, theirs) in [("object_meta", "key"), ("object_metas", "keys")] {
            if let Some(argument) = arguments.remove(ours) {
                arguments.insert(theirs.to_owned(), argument);
            }
        }
    }
    value
}

fn failure(failure: &RpcFailure) -> Value {
    let msg = text(failure.message());
    match failure.inner_code {
        Some(code) => json!({ "code": code, "msg": msg }),
        None => json!({ "code": failure.code.0, "name": failure.code.name(), "msg": msg }),
    }
}

fn text(value: WireStr<'_>) -> Value {
    value.to_str().map_or_else(|| json!({ "hex": to_hex(value.as_bytes()) }), Value::from)
}

/// Builds the value a visitor is told of.
pub(crate) fn to_json(visit: impl FnOnce(&mut dyn Visitor)) -> Value {
    let mut builder = JsonBuilder::default();
    visit(&mut builder);
    builder.done.expect("a value was visited")
}

#[derive(Default)]
struct JsonBuilder {
    open: Vec<Open>,
    done: Option<Value>,
}

enum Open {
    List(Vec<Value>),
    Record(Map<String, Value>, Option<&'static str>),
}

impl JsonBuilder {
    fn put(&mut self, value: Value) {
        match self.open.last_mut() {
            None => self.done = Some(value),
            Some(Open::List(items)) => items.push(value),
            Some(Open::Record(members, name)) => {
                let name = name.take().expect("a member has a name");
                members.insert(name.to_owned(), value);
            }
        }
    }
}

impl Visitor for JsonBuilder {
    fn unsigned(&mut self, value: u64) {
        self.put(value.into());
    }

    fn signed(&mut self, value: i64) {
        self.put(value.into());
    }

    fn boolean(&mut self, value: bool) {
        self.put(value.into());
    }

    fn text(&mut self, value: WireStr<'_>) {
        self.put(text(value));
    }

    fn nothing(&mut self) {
        self.put(Value::Null);
    }

    fn open_list(&mut self, len: usize) {
        self.open.push(Open::List(Vec::with_capacity(len)));
    }

    fn open_record(&mut self) {
        self.open.push(Open::Record(Map::new(), None));
    }

    fn name(&mut self, name: &'static str) {
        if let Some(Open::Record(_, next)) = self.open.last_mut() {
            *next = Some(name);
        }
    }

    fn close(&mut self) {
        match self.open.pop().expect("what is closed was opened") {
            Open::List(items) => self.put(items.into()),
            Open::Record(members, _) => self.put(members.into()),
        }
    }
}

fn from_hex(text: &str) -> Result<Vec<u8>, String> {
    let digits = text.as_bytes();
    if digits.len() % 2 == 1 {
        return Err(format!("member \"hex\" has {} digits, an odd number", digits.len()));
    }
    let digit = |at: usize| {
        let value = char::from(digits[at]).to_digit(16);
        value
            .and_then(|value| u8::try_from(value).ok())
            .ok_or_else(|| format!("member \"hex\" has no digit at {at}"))
    };
    (0..digits.len() / 2).map(|byte| Ok(digit(2 * byte)? << 4 | digit(2 * byte + 1)?)).collect()
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("a string takes any text");
        hex
    })
}
