//! Replays a timestamped trace of master RPC intents against a Mooncake master.
//!
//! Under construction: nothing is here yet.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
