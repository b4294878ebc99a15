//! The Mooncake Store master protocol, without I/O.
//!
//! Under construction: nothing is here yet.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
