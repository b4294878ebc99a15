//! A client of the Mooncake Store master: its protocol without I/O, a blocking connection, and one for `tokio`.
//!
//! [`Connection`] is a blocking connection: [`call`](Connection::call) makes one call, [`submit`](Connection::submit) and
//! [`receive`](Connection::receive) have many in flight. [`Pool`] lends a bounded number of them to threads. With the
//! feature `tokio`, `AsyncConnection` is one that many tasks share and `AsyncPool` a bounded number of those. Whoever
//! waits for sockets in another way drives a [`Session`], which is a connection without the socket, or uses the codec
//! alone:
//!
//! The 20 calls a store's client makes are types: fill in [`PutStart`] or [`BatchExistKey`] and give it to
//! [`encode_request`], which appends a whole frame to a buffer. What comes back goes through a [`FrameReader`], which
//! cuts the stream into [`Frame`]s, and [`decode_reply`] reads a frame as the result of that call. Where calls are data,
//! [`Request`] and [`Response`] hold any of them.
//!
//! Nothing is copied on the way in and nothing is allocated in either direction: strings are [`WireStr`], vectors are
//! [`List`], and both borrow. A [`List`] to be sent is made of a slice; a received one is a view of checked bytes. No
//! announced length makes anything allocate, and no byte string makes anything panic.
//!
//! Four releases of the master speak four [`Dialect`]s. A field that a dialect does not have is left out of its frames;
//! if it was set to something, the call is refused with [`EncodeError::NotInDialect`] instead of being sent without it.
//!
//! ```
//! use master_wire::{BatchExistKey, Dialect, FrameReader, Outcome, Response, ResponseHeader, Style};
//! use master_wire::{decode_reply, encode_request};
//!
//! // A request, on its way out.
//! let call = BatchExistKey { keys: (&["a", "b"]).into(), ..Default::default() };
//! let mut out = Vec::new();
//! encode_request(&mut out, 7, Dialect::D, &call, Style::Compact)?;
//! assert_eq!(out.len(), 20 + 4 + 1 + 2 * 2 + "\u{7}default".len());
//!
//! // Its reply, as a master would write it.
//! let results: [Outcome<bool>; 2] = [Ok(true), Ok(false)];
//! let mut arriving = Vec::new();
//! Response::BatchExistKey((&results).into()).encode(&mut arriving, 7, Dialect::D, Style::Official)?;
//!
//! // And on its way in.
//! let mut reader = FrameReader::<ResponseHeader>::new(64 << 10, 1 << 20);
//! reader.space()[..arriving.len()].copy_from_slice(&arriving);
//! reader.filled(arriving.len());
//! let frame = reader.next_frame()?.expect("it is all there");
//! assert_eq!(frame.header.seq_num, 7);
//! let exist = decode_reply::<BatchExistKey>(&frame, Dialect::D)?;
//! assert!(exist.iter().eq([Ok(true), Ok(false)]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The same on a connection, here to the master at its usual port:
//!
//! ```no_run
//! use master_wire::{BatchExistKey, ConnectOptions, Connection};
//!
//! let mut master = Connection::connect("127.0.0.1:50051", &ConnectOptions::default())?;
//! for exists in master.call(&BatchExistKey { keys: (&["a", "b"]).into(), ..Default::default() })? {
//!     println!("{}", exists?);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The arguments of a call are plain structs, to be filled in with `..Default::default()`: a later release of the master may
//! add fields. Where several requests are written together, each is appended to the same buffer. Replies come in any order and are
//! matched by `seq_num`.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

#[cfg(feature = "tokio")]
mod asynchronous;
mod body;
mod codec;
mod connection;
mod detect;
mod dialect;
mod error;
mod fake;
mod frame;
mod list;
mod literal;
mod message;
mod pool;
mod rpc;
mod schema;
mod session;
mod socket;
mod types;
mod visit;
mod wire;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(feature = "tokio")]
pub use asynchronous::{AsyncConnection, AsyncPool};
pub use body::{Body, Envelope, Style};
pub use codec::{Decoder, Encoder, Measure, Width};
pub use connection::{CallError, ConnectError, ConnectOptions, Connection, Reconnect};
pub use detect::{DetectError, Detected, Probe};
pub use dialect::Dialect;
pub use error::{
    DecodeError, EncodeError, ErrorCode, FrameError, ReplyError, RequestError, RpcErrorCode, RpcFailure,
    UnknownFunction,
};
pub use fake::FakeSegment;
pub use frame::{DEFAULT_FRAME_LIMIT_BYTES, Frame, FrameReader, Header, RequestHeader, ResponseHeader};
pub use list::{List, ListIter};
pub use message::{decode_reply, decode_request, decode_response, encode_request};
pub use pool::{Pool, PoolOptions, Pooled};
pub use rpc::{
    BatchExistKey, BatchGetReplicaList, BatchPutEnd, BatchPutRevoke, BatchPutStart, BatchRemove, Call,
    ExistKey, GetFsdir, GetReplicaList, GetStorageConfig, MountSegment, Ping, PutEnd, PutRevoke, PutStart,
    ReMountSegment, Remove, RemoveAll, Request, Response, Rpc, ServiceReady, Signature, UnmountSegment,
};
pub use session::{Arrived, ProtocolError, Session, SessionOptions, SubmitError, Ticket};
pub use socket::Liveness;
pub use types::{
    Buffer, BufferReplica, ClientStatus, DataType, DfsReplica, DiskReplica, LocalDiskReplica, Location,
    ObjectMeta, PingReport, Replica, ReplicaList, ReplicaStatus, ReplicaType, ReplicateConfig, Segment,
    SoftPinAction, StorageConfig,
};
pub use visit::Visitor;
pub use wire::{Decode, Describe, Encode, Outcome, Uuid, WireStr};
