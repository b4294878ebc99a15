//! What can go wrong between bytes and values, and what the master itself answers.

use std::fmt;

use thiserror::Error;

use crate::dialect::{Dialect, DialectRange};
use crate::rpc::Rpc;
use crate::schema::open_enum;
use crate::wire::WireStr;

/// A value could not be written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// A field holds something and the dialect has no such field, or an alternative does not exist in it.
    #[error("dialect {dialect} has no {part}")]
    NotInDialect {
        /// The field or alternative, by its name in the specification.
        part: &'static str,
        /// The dialect asked for.
        dialect: Dialect,
    },
    /// The width asked for cannot hold a length within the value.
    #[error("a length within the value needs size prefixes of {needed_bytes} bytes, asked for {asked_bytes}")]
    Width {
        /// The narrowest that would do.
        needed_bytes: usize,
        /// The one asked for.
        asked_bytes: usize,
    },
    /// The body does not fit a frame.
    #[error("body of {bytes} bytes is longer than a frame can say")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
}

/// Bytes are no value of the expected type.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// There is no body where a value was expected.
    #[error("empty body where a value was expected")]
    EmptyBody,
    /// Bytes are missing.
    #[error("{needed} bytes needed at offset {offset}, {available} left")]
    Truncated {
        /// How many were to be read.
        needed: u64,
        /// Where.
        offset: usize,
        /// How many there are.
        available: usize,
    },
    /// A count that the bytes left cannot hold.
    #[error("count of {count} at offset {offset} is more than the {available} bytes left can hold")]
    Count {
        /// The count.
        count: u64,
        /// Where it stands.
        offset: usize,
        /// How many bytes follow it.
        available: usize,
    },
    /// A boolean, or the mark of an optional or an outcome, that is neither 0 nor 1.
    #[error("flag {value} at offset {offset} is neither 0 nor 1")]
    Flag {
        /// The byte.
        value: u8,
        /// Where it stands.
        offset: usize,
    },
    /// An alternative that the variant does not have in this dialect.
    #[error("alternative {index} at offset {offset} of a variant that has {known} in dialect {dialect}")]
    Alternative {
        /// The index.
        index: u8,
        /// Where it stands.
        offset: usize,
        /// How many alternatives there are.
        known: u8,
        /// In this dialect.
        dialect: Dialect,
    },
    /// The body holds another type.
    #[error("type hash {found:#010x}, expected {expected:#010x}")]
    TypeHash {
        /// The hash in the body, its lowest bit cleared.
        found: u32,
        /// The hash of the expected type.
        expected: u32,
    },
    /// The hash is right and the embedded literal is not.
    #[error("embedded type literal differs from the expected one at its byte {at}")]
    Literal {
        /// Where in the literal.
        at: usize,
    },
    /// Bytes are left over behind the value.
    #[error("{bytes} surplus bytes behind the value")]
    Surplus {
        /// How many.
        bytes: usize,
    },
}

/// Bytes are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The first byte of the header.
    #[error("magic {found}, expected 21")]
    Magic {
        /// The byte found.
        found: u8,
    },
    /// The second byte of the header.
    #[error("protocol version {found}, expected 0")]
    Version {
        /// The byte found.
        found: u8,
    },
    /// The third byte of a request's header.
    #[error("serialize type {found}, expected 0")]
    SerializeType {
        /// The byte found.
        found: u8,
    },
    /// A frame longer than the reader was told to accept.
    #[error("frame of {bytes} bytes is longer than the limit of {limit_bytes}")]
    TooLong {
        /// Header, body and attachment.
        bytes: u64,
        /// The limit.
        limit_bytes: usize,
    },
}

/// The master refused the call before or after its handler: the reply's `err_code` is not 0.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("master answered {code} with the message {:?}", self.message())]
pub struct RpcFailure {
    /// The reply's `err_code`.
    pub code: RpcErrorCode,
    /// The handler's own code; only a reply with `err_code` 255 carries one.
    pub inner_code: Option<u16>,
    /// The message.
    pub message: Box<[u8]>,
}

impl RpcFailure {
    /// The message.
    #[must_use]
    pub fn message(&self) -> WireStr<'_> {
        WireStr::new(&self.message)
    }
}

/// A reply that is no result.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// The reply says that the call failed.
    #[error(transparent)]
    Failed(#[from] RpcFailure),
    /// The reply cannot be read.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

open_enum! {
    /// The `err_code` of a reply: what the RPC framework, not the master's handler, has to say.
    ///
    /// Most codes are local to the framework's own client and never cross the wire.
    RpcErrorCode(u8) {
        OK = 0, "ok";
        IO_ERROR = 1, "io_error";
        NOT_CONNECTED = 2, "not_connected";
        TIMED_OUT = 3, "timed_out";
        /// Wrong type hash, wrong literal, or a value that could not be read: nearly always a mismatch of dialects.
        INVALID_RPC_ARGUMENTS = 4, "invalid_rpc_arguments";
        ADDRESS_IN_USED = 5, "address_in_used";
        BAD_ADDRESS = 6, "bad_address";
        OPEN_ERROR = 7, "open_error";
        LISTEN_ERROR = 8, "listen_error";
        OPERATION_CANCELED = 9, "operation_canceled";
        RPC_THROW_EXCEPTION = 10, "rpc_throw_exception";
        FUNCTION_NOT_REGISTERED = 11, "function_not_registered";
        PROTOCOL_ERROR = 12, "protocol_error";
        UNKNOWN_PROTOCOL_VERSION = 13, "unknown_protocol_version";
        MESSAGE_TOO_LARGE = 14, "message_too_large";
        SERVER_HAS_RAN = 15, "server_has_ran";
        INVALID_RPC_RESULT = 16, "invalid_rpc_result";
        SERIAL_NUMBER_CONFLICT = 17, "serial_number_conflict";
    }
}

open_enum! {
    /// Why a handler of the master did not do what it was asked.
    ErrorCode(i32) {
        OK = 0, "OK";
        INTERNAL_ERROR = -1, "INTERNAL_ERROR";
        BUFFER_OVERFLOW = -10, "BUFFER_OVERFLOW";
        SHARD_INDEX_OUT_OF_RANGE = -100, "SHARD_INDEX_OUT_OF_RANGE";
        SEGMENT_NOT_FOUND = -101, "SEGMENT_NOT_FOUND";
        SEGMENT_ALREADY_EXISTS = -102, "SEGMENT_ALREADY_EXISTS";
        CLIENT_NOT_FOUND = -103, "CLIENT_NOT_FOUND";
        /// No room, no segment, or larger than a segment.
        NO_AVAILABLE_HANDLE = -200, "NO_AVAILABLE_HANDLE";
        INVALID_VERSION = -300, "INVALID_VERSION";
        INVALID_KEY = -400, "INVALID_KEY";
        WRITE_FAIL = -500, "WRITE_FAIL";
        INVALID_PARAMS = -600, "INVALID_PARAMS";
        /// Another client started this put.
        ILLEGAL_CLIENT = -601, "ILLEGAL_CLIENT";
        INVALID_WRITE = -700, "INVALID_WRITE";
        INVALID_READ = -701, "INVALID_READ";
        INVALID_REPLICA = -702, "INVALID_REPLICA";
        /// The put is not finished.
        REPLICA_IS_NOT_READY = -703, "REPLICA_IS_NOT_READY";
        OBJECT_NOT_FOUND = -704, "OBJECT_NOT_FOUND";
        OBJECT_ALREADY_EXISTS = -705, "OBJECT_ALREADY_EXISTS";
        OBJECT_HAS_LEASE = -706, "OBJECT_HAS_LEASE";
        LEASE_EXPIRED = -707, "LEASE_EXPIRED";
        OBJECT_HAS_REPLICATION_TASK = -708, "OBJECT_HAS_REPLICATION_TASK";
        OBJECT_NO_REPLICATION_TASK = -709, "OBJECT_NO_REPLICATION_TASK";
        REPLICA_NOT_FOUND = -710, "REPLICA_NOT_FOUND";
        REPLICA_ALREADY_EXISTS = -711, "REPLICA_ALREADY_EXISTS";
        REPLICA_IS_GONE = -712, "REPLICA_IS_GONE";
        REPLICA_NOT_IN_LOCAL_MEMORY = -713, "REPLICA_NOT_IN_LOCAL_MEMORY";
        OBJECT_REPLICA_BUSY = -714, "OBJECT_REPLICA_BUSY";
        TRANSFER_FAIL = -800, "TRANSFER_FAIL";
        CHECKSUM_MISMATCH = -801, "CHECKSUM_MISMATCH" [D..];
        RPC_FAIL = -900, "RPC_FAIL";
        RPC_TIMEOUT = -901, "RPC_TIMEOUT" [C..];
        ETCD_OPERATION_ERROR = -1000, "ETCD_OPERATION_ERROR";
        ETCD_KEY_NOT_EXIST = -1001, "ETCD_KEY_NOT_EXIST";
        ETCD_TRANSACTION_FAIL = -1002, "ETCD_TRANSACTION_FAIL";
        ETCD_CTX_CANCELLED = -1003, "ETCD_CTX_CANCELLED";
        OPLOG_ENTRY_NOT_FOUND = -1004, "OPLOG_ENTRY_NOT_FOUND";
        K8S_LEASE_OPERATION_ERROR = -1005, "K8S_LEASE_OPERATION_ERROR" [B..];
        K8S_LEASE_NOT_FOUND = -1006, "K8S_LEASE_NOT_FOUND" [B..];
        INCOMPLETE_OPLOG_CATCH_UP = -1007, "INCOMPLETE_OPLOG_CATCH_UP" [D..];
        UNAVAILABLE_IN_CURRENT_STATUS = -1010, "UNAVAILABLE_IN_CURRENT_STATUS";
        UNAVAILABLE_IN_CURRENT_MODE = -1011, "UNAVAILABLE_IN_CURRENT_MODE";
        NOT_SUPPORTED = -1012, "NOT_SUPPORTED" [D..];
        FILE_NOT_FOUND = -1100, "FILE_NOT_FOUND";
        FILE_OPEN_FAIL = -1101, "FILE_OPEN_FAIL";
        FILE_READ_FAIL = -1102, "FILE_READ_FAIL";
        FILE_WRITE_FAIL = -1103, "FILE_WRITE_FAIL";
        FILE_INVALID_BUFFER = -1104, "FILE_INVALID_BUFFER";
        FILE_LOCK_FAIL = -1105, "FILE_LOCK_FAIL";
        FILE_INVALID_HANDLE = -1106, "FILE_INVALID_HANDLE";
        BUCKET_NOT_FOUND = -1200, "BUCKET_NOT_FOUND";
        BUCKET_ALREADY_EXISTS = -1201, "BUCKET_ALREADY_EXISTS";
        KEYS_EXCEED_BUCKET_LIMIT = -1202, "KEYS_EXCEED_BUCKET_LIMIT";
        KEYS_ULTRA_LIMIT = -1203, "KEYS_ULTRA_LIMIT";
        UNABLE_OFFLOAD = -1300, "UNABLE_OFFLOAD";
        UNABLE_OFFLOADING = -1301, "UNABLE_OFFLOADING";
        TASK_NOT_FOUND = -1400, "TASK_NOT_FOUND";
        TASK_PENDING_LIMIT_EXCEEDED = -1401, "TASK_PENDING_LIMIT_EXCEEDED";
        JOB_NOT_FOUND = -1402, "JOB_NOT_FOUND";
        SERIALIZE_UNSUPPORTED = -1500, "SERIALIZE_UNSUPPORTED";
        SERIALIZE_FAIL = -1501, "SERIALIZE_FAIL";
        DESERIALIZE_FAIL = -1502, "DESERIALIZE_FAIL";
        PERSISTENT_FAIL = -1503, "PERSISTENT_FAIL";
        DFS_NETWORK_TIMEOUT = -1600, "DFS_NETWORK_TIMEOUT" [C..];
        DFS_SERVICE_UNAVAILABLE = -1601, "DFS_SERVICE_UNAVAILABLE" [C..];
        DFS_QUOTA_EXCEEDED = -1602, "DFS_QUOTA_EXCEEDED" [C..];
        DFS_PERMISSION_DENIED = -1603, "DFS_PERMISSION_DENIED" [C..];
        DFS_STALE_HANDLE = -1604, "DFS_STALE_HANDLE" [C..];
        DFS_PARTIAL_WRITE = -1605, "DFS_PARTIAL_WRITE" [C..];
        TENANT_QUOTA_EXCEEDED = -1700, "TENANT_QUOTA_EXCEEDED" [C..];
        TENANT_NOT_REGISTERED = -1701, "TENANT_NOT_REGISTERED" [C..];
        TENANT_NOT_EMPTY = -1702, "TENANT_NOT_EMPTY" [C..];
    }
}

impl std::error::Error for ErrorCode {}

/// A number that is no call of the master.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no call has the function id {function_id:#010x}")]
pub struct UnknownFunction {
    /// The id.
    pub function_id: u32,
}

/// A request that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The header names no call.
    #[error(transparent)]
    Unknown(#[from] UnknownFunction),
    /// The body is not the call's arguments.
    #[error("arguments of {rpc} cannot be read")]
    Arguments {
        /// The call.
        rpc: Rpc,
        /// Why.
        source: DecodeError,
    },
}

/// Writes the name of an open enumeration's value, or its number where it has none.
pub(crate) fn write_code(
    f: &mut fmt::Formatter<'_>,
    name: Option<&'static str>,
    number: impl fmt::Display,
) -> fmt::Result {
    match name {
        Some(name) => write!(f, "{name} ({number})"),
        None => write!(f, "{number}"),
    }
}

/// Looks a value up in the table of an open enumeration.
pub(crate) fn entry<T: Copy + PartialEq>(
    table: &'static [(T, &'static str, DialectRange)],
    value: T,
) -> Option<&'static (T, &'static str, DialectRange)> {
    table.iter().find(|entry| entry.0 == value)
}
