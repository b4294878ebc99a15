//! A small deterministic replay of KV-aware serving.
//!
//! A recorded trace is replayed against simulated workers on a virtual clock. Requests are routed by prefix overlap and
//! load, share cached blocks, grow block by block while they decode, and lose their blocks to older requests when a worker
//! runs out. Nothing here depends on wall time, addresses or hash seeds, so the same trace and options give the same report,
//! byte for byte.
//!
//! The command line and the report follow Dynamo's offline replay benchmark, so that whatever judges one can judge the other.
//!
//! Where to start: [`command`] is the program, `replay` the event loop, `worker` the two schedulers, `router` the choice
//! of a worker, `blocks` the memory of a worker.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod blake3;
mod blocks;
mod command;
mod evidence;
mod hash;
mod json;
mod options;
mod random;
mod replay;
mod report;
mod request;
mod router;
mod summary;
mod trace;
mod worker;

pub use command::{Failure, command};
