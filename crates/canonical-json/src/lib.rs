//! One JSON value, one byte string.
//!
//! [`canonicalize`] writes the canonical form of a document, [`digest`] gives its SHA-256, [`diff`] says how two
//! documents differ, and [`Rules`] say which of the two [forms](Form) is meant, what is left out and which arrays have
//! no order. [`Reader`] is the strict event reader underneath, for anyone who must not lose a digit.
//!
//! ```
//! use canonical_json::{Exclusion, Rules, Sha256, digest};
//!
//! let rules = Rules {
//!     exclusions: vec![Exclusion { pattern: "/wall_time_ms".parse()?, required: false }],
//!     ..Rules::default()
//! };
//! let report = br#"{ "wall_time_ms": 5161.294336, "completed": 5000 }"#;
//! let digested = digest(report, &rules)?;
//! assert_eq!(digested.sha256, Sha256::of(br#"{"completed":5000}"#));
//! assert_eq!(digested.excluded_present.len(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(missing_docs, unsafe_code)]

mod canonical;
mod cursor;
mod diff;
mod emit;
mod error;
mod fault;
mod lines;
mod members;
mod number;
mod outermost;
mod place;
mod pointer;
mod read;
mod rules;
#[cfg(feature = "serde")]
mod serialize;
mod sha256;
#[expect(unsafe_code, reason = "intrinsics; each block says why it is sound")]
mod simd;
mod squeeze;
mod stream;
mod structure;
#[cfg(test)]
mod testing;
mod text;
mod tidy;
mod tree;
mod watch;
mod write;

pub use canonical::{Applied, Digested, canonicalize, digest, digest_file, digest_reader};
pub use diff::{Diff, DiffGroup, DiffLimits, Difference, diff};
pub use error::CanonicalError;
pub use lines::{LineDigest, LinesDigest, LinesError, canonicalize_lines, digest_lines};
pub use pointer::{ParsePointerError, Pattern, Pointer, escape_token};
pub use read::{Event, Limits, ReadError, ReadErrorKind, Reader};
pub use rules::{Exclusion, Form, Rules, Unordered};
#[cfg(feature = "serde")]
pub use serialize::{SerializeError, to_canonical_vec, to_canonical_vec_with};
pub use sha256::{ParseSha256Error, Sha256};
pub use text::{Number, Text};

/// The examples of the README are tested too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
