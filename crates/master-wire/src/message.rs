//! Whole messages: frames made of requests and replies, and replies taken apart.

use crate::body::{Body, Style, decode_body, encode_body};
use crate::dialect::Dialect;
use crate::error::{DecodeError, EncodeError, ReplyError, RequestError, RpcErrorCode, RpcFailure};
use crate::frame::{Frame, Header, RequestHeader, ResponseHeader};
use crate::rpc::{Call, MESSAGE, Request, Response, Rpc, Signature};
use crate::schema::record;
use crate::wire::WireStr;

/// The `err_code` of a failure that carries a code of its own.
const CARRIES_CODE: u8 = 255;

record! {
    /// The body of a reply whose `err_code` is 255.
    #[expect(unreachable_pub, reason = "the schema's records are public, this one stays within the crate")]
    structure CodedMessage<'a> {
        /// The handler's own code.
        code: u16;
        /// What it said.
        msg: WireStr<'a>;
    }
}

/// Appends the frame of a request; on an error nothing is appended.
///
/// # Errors
///
/// When an argument cannot be said in the dialect, or the body does not fit a frame.
pub fn encode_request<C: Call>(
    out: &mut Vec<u8>,
    seq_num: u32,
    dialect: Dialect,
    call: &C,
    style: Style,
) -> Result<(), EncodeError> {
    request_frame(out, seq_num, C::RPC, |out| encode_body(out, call, C::RPC.request(dialect), dialect, style))
}

impl Request<'_> {
    /// Appends the frame of this request; on an error nothing is appended.
    ///
    /// # Errors
    ///
    /// When an argument cannot be said in the dialect, or the body does not fit a frame.
    pub fn encode(
        &self,
        out: &mut Vec<u8>,
        seq_num: u32,
        dialect: Dialect,
        style: Style,
    ) -> Result<(), EncodeError> {
        request_frame(out, seq_num, self.rpc(), |out| self.encode_body(out, dialect, style))
    }
}

impl Response<'_> {
    /// Appends the frame of this reply; on an error nothing is appended.
    ///
    /// # Errors
    ///
    /// When a part of it cannot be said in the dialect, or the body does not fit a frame.
    pub fn encode(
        &self,
        out: &mut Vec<u8>,
        seq_num: u32,
        dialect: Dialect,
        style: Style,
    ) -> Result<(), EncodeError> {
        response_frame(out, seq_num, RpcErrorCode::OK, |out| self.encode_body(out, dialect, style))
    }
}

impl RpcFailure {
    /// Appends the frame of this failure; on an error nothing is appended.
    ///
    /// # Errors
    ///
    /// When the body does not fit a frame.
    pub fn encode(&self, out: &mut Vec<u8>, seq_num: u32, style: Style) -> Result<(), EncodeError> {
        response_frame(out, seq_num, self.code, |out| self.encode_body(out, style))
    }

    fn encode_body(&self, out: &mut Vec<u8>, style: Style) -> Result<(), EncodeError> {
        let msg = self.message();
        match self.inner_code {
            None => encode_body(out, &msg, &MESSAGE, Dialect::A, style),
            Some(code) => encode_body(out, &CodedMessage { code, msg }, &coded_message(), Dialect::A, style),
        }
    }

    /// Reads the body of a reply whose `err_code` is not 0.
    ///
    /// # Errors
    ///
    /// When the body holds no message.
    pub fn decode(err_code: u8, body: &[u8]) -> Result<Body<'_, RpcFailure>, DecodeError> {
        let failure = |inner_code, message: WireStr<'_>| RpcFailure {
            code: RpcErrorCode(err_code),
            inner_code,
            message: message.as_bytes().into(),
        };
        if err_code == CARRIES_CODE {
            let body = decode_body::<CodedMessage<'_>>(body, &coded_message(), Dialect::A)?;
            return Ok(body.map(|coded| failure(Some(coded.code), coded.msg)));
        }
        let body = decode_body::<WireStr<'_>>(body, &MESSAGE, Dialect::A)?;
        Ok(body.map(|message| failure(None, message)))
    }
}

fn coded_message() -> Signature {
    Signature::of::<CodedMessage<'_>>(Dialect::A)
}

fn request_frame(
    out: &mut Vec<u8>,
    seq_num: u32,
    rpc: Rpc,
    body: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    frame(out, RequestHeader::BYTES, body, |length| {
        RequestHeader::new(seq_num, rpc.function_id(), length).to_bytes()
    })
}

fn response_frame(
    out: &mut Vec<u8>,
    seq_num: u32,
    code: RpcErrorCode,
    body: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    frame(out, ResponseHeader::BYTES, body, |length| ResponseHeader::new(seq_num, code.0, length).to_bytes())
}

/// Leaves room for the header, writes the body, and then the header, which has to know the body's length.
fn frame<const N: usize>(
    out: &mut Vec<u8>,
    header_bytes: usize,
    body: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
    header: impl FnOnce(u32) -> [u8; N],
) -> Result<(), EncodeError> {
    let start = out.len();
    out.extend_from_slice(&[0; N]);
    debug_assert_eq!(header_bytes, N);
    let written = body(out).and_then(|()| {
        let bytes = out.len() - start - N;
        u32::try_from(bytes).map_err(|_| EncodeError::TooLong { bytes })
    });
    match written {
        Ok(length) => out[start..start + N].copy_from_slice(&header(length)),
        Err(_) => out.truncate(start),
    }
    written.map(drop)
}

/// Reads the reply to a call whose type is known.
///
/// # Errors
///
/// When the reply says that the call failed, or cannot be read, or holds more than the result.
#[inline]
pub fn decode_reply<'b, C: Call>(
    frame: &Frame<'b, ResponseHeader>,
    dialect: Dialect,
) -> Result<C::Reply<'b>, ReplyError> {
    check_success(frame)?;
    let body = decode_body::<C::Reply<'b>>(frame.body, C::RPC.response(dialect), dialect)?;
    Ok(body.complete()?)
}

/// Reads the reply to any call.
///
/// # Errors
///
/// As [`decode_reply`].
pub fn decode_response<'b>(
    frame: &Frame<'b, ResponseHeader>,
    rpc: Rpc,
    dialect: Dialect,
) -> Result<Response<'b>, ReplyError> {
    check_success(frame)?;
    Ok(Response::decode(rpc, dialect, frame.body)?.complete()?)
}

fn check_success(frame: &Frame<'_, ResponseHeader>) -> Result<(), ReplyError> {
    match frame.header.err_code {
        0 => Ok(()),
        code => Err(RpcFailure::decode(code, frame.body)?.value.into()),
    }
}

/// Reads any request.
///
/// # Errors
///
/// When the header names no call, or the body is not its arguments.
pub fn decode_request<'b>(
    frame: &Frame<'b, RequestHeader>,
    dialect: Dialect,
) -> Result<Body<'b, Request<'b>>, RequestError> {
    let rpc = Rpc::of_function_id(frame.header.function_id)?;
    Request::decode(rpc, dialect, frame.body).map_err(|source| RequestError::Arguments { rpc, source })
}
