//! Cut a Mooncake request trace into an exact window, and keep its meaning.
//!
//! A Mooncake trace is a file of JSON lines, one request per line: when it arrived, how many tokens it brought, how many
//! it asked for, and the ids of the blocks its prompt is made of. A parity campaign replays a *window* of such a
//! trace. What it then claims holds for exactly those bytes, so this crate never rewrites, pads, samples or repairs:
//! it checks every row of the source, copies the original bytes of the window, and describes both by digest.
//!
//! - [`TraceReader`] streams a trace as validated [`Row`]s in memory that does not depend on the size of the file. What
//!   it accepts is a page of decisions (see the README) steered by [`Rules`]; a refusal is a [`RowError`] with
//!   line, column, JSON pointer and what was expected.
//! - [`slice_file`] cuts a [`Window`] and publishes the slice and its [`SliceManifest`] atomically; [`Slicer`] is the
//!   same with options, and [`slice()`] works on any reader and writer.
//! - [`recognise`] names a published trace by its SHA-256.
//!
//! ```
//! use mooncake_trace::{Window, slice};
//!
//! let trace = br#"{"timestamp": 0, "input_length": 600, "output_length": 52, "hash_ids": [46, 47]}
//! {"timestamp": 27482, "input_length": 513, "output_length": 26, "hash_ids": [46, 9007199254740993]}
//! {"timestamp": 30535, "input_length": 512, "output_length": 9, "hash_ids": [46]}
//! "#;
//! let mut window_bytes = Vec::new();
//! let manifest = slice(&trace[..], &Window::new(1, 2)?, &mut window_bytes)?;
//!
//! assert!(trace.ends_with(&window_bytes));
//! assert_eq!(manifest.source.rows, 3);
//! assert_eq!(manifest.slice.input_tokens, 1_025);
//! assert_eq!((manifest.slice.first_timestamp_ms, manifest.slice.last_timestamp_ms), (27_482, 30_535));
//!
//! // One row more than there is: an error, never a shorter window.
//! let error = slice(&trace[..], &Window::new(1, 3)?, std::io::sink()).unwrap_err();
//! assert_eq!(error.to_string(), "the trace has 3 rows, and the window ends after row 4");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod error;
mod hashed;
mod known;
mod manifest;
mod publish;
mod reader;
mod record;
mod slice;
mod window;

pub use canonical_json::Sha256;
pub use error::{Compression, Expected, RowError, RowErrorKind, SliceError, TraceError};
pub use known::{KnownTrace, KnownWindow, Recognised, published, recognise};
pub use manifest::{
    ManifestError, SLICE_MANIFEST_SCHEMA, SLICE_MANIFEST_VERSION, SliceManifest, SliceRecord, SourceRecord,
};
pub use publish::manifest_path;
pub use reader::TraceReader;
pub use record::{HashCount, Row, Rules, UnknownFields};
pub use slice::{Slicer, slice, slice_file};
pub use window::{Window, WindowError};
