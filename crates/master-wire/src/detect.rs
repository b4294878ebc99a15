//! Which dialect a master speaks, asked of the master.

use thiserror::Error;

use crate::body::Style;
use crate::dialect::Dialect;
use crate::error::{DecodeError, EncodeError, ReplyError, RpcErrorCode};
use crate::frame::{Frame, ResponseHeader};
use crate::message::{decode_response, encode_request};
use crate::rpc::{BatchGetReplicaList, Call, Rpc};

/// The two questions that tell the dialects apart, in the order in which they are asked.
///
/// Each is a `BatchGetReplicaList` of no keys: first as later dialects write it, then as earlier ones do. The form that
/// is accepted and the type hash of the reply decide. What remains on the master is one more such request, counted as
/// failed because an empty batch has no success, in its metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Probe {
    /// With a tenant.
    #[default]
    First,
    /// Without.
    Second,
}

/// What the answer to a [`Probe`] means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detected {
    /// The master speaks this dialect.
    Dialect(Dialect),
    /// This is to be asked next.
    Ask(Probe),
}

/// The master speaks no known dialect.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DetectError {
    /// It answered in a type no known dialect has.
    #[error("master answers {rpc} in a type no known dialect has: hash {hash:#010x}, literal {literal}", rpc = Rpc::BatchGetReplicaList)]
    Unsupported {
        /// The hash of the reply's type.
        hash: u32,
        /// Its literal in hexadecimal digits, or why there is none.
        literal: String,
    },
    /// It refused both forms, or failed in another way.
    #[error("master does not answer the question for its dialect")]
    Refused(#[source] ReplyError),
}

impl Probe {
    /// The dialect whose form this is.
    const fn dialect(self) -> Dialect {
        match self {
            Probe::First => Dialect::NEWEST,
            Probe::Second => Dialect::OLDEST,
        }
    }

    /// Which call is made.
    #[must_use]
    pub const fn rpc(self) -> Rpc {
        BatchGetReplicaList::RPC
    }

    /// Appends the question's frame.
    ///
    /// # Errors
    ///
    /// Never in practice: a frame without keys is short.
    pub fn encode(self, out: &mut Vec<u8>, seq_num: u32) -> Result<(), EncodeError> {
        encode_request(out, seq_num, self.dialect(), &BatchGetReplicaList::default(), Style::Compact)
    }

    /// What an answer means.
    ///
    /// # Errors
    ///
    /// When no known dialect answers so.
    pub fn judge(self, frame: &Frame<'_, ResponseHeader>) -> Result<Detected, DetectError> {
        let form = self.rpc().request(self.dialect());
        let candidates = Dialect::ALL.into_iter().filter(|dialect| self.rpc().request(*dialect) == form);
        let mut refused = None;
        for dialect in candidates {
            match decode_response(frame, self.rpc(), dialect) {
                Ok(_) => return Ok(Detected::Dialect(dialect)),
                Err(error) => refused = Some(error),
            }
        }
        Err(match refused {
            Some(ReplyError::Failed(failure))
                if self == Probe::First && failure.code == RpcErrorCode::INVALID_RPC_ARGUMENTS =>
            {
                return Ok(Detected::Ask(Probe::Second));
            }
            Some(ReplyError::Decode(DecodeError::TypeHash { found, .. })) => {
                DetectError::Unsupported { hash: found, literal: embedded_literal(frame.body) }
            }
            Some(error) => DetectError::Refused(error),
            None => unreachable!("the dialect whose form the question has is a candidate"),
        })
    }
}

/// The literal a body carries, which says what the master would have answered.
fn embedded_literal(body: &[u8]) -> String {
    let Some((_, [meta, rest @ ..])) = body.split_first_chunk::<4>() else {
        return "missing".to_owned();
    };
    if body[0] & 1 == 0 || meta & 4 == 0 || meta & 3 != 0 {
        return "not embedded".to_owned();
    }
    rest.iter().take_while(|byte| **byte != 0).take(1024).map(|byte| format!("{byte:02x}")).collect()
}
