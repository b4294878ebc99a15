//! An evidence bundle: a directory whose every record can be trusted, checked and read by somebody who was not there.
//!
//! A [`Bundle`] has one writer at a time. [`Bundle::append`] adds a record to the journal, a JSON line that names the
//! digest of the line before it and is on the disk when the call returns; [`Bundle::append_deferred`] leaves the waiting
//! to a later call or to a [`Syncer`]. [`Bundle::write_file`] and its relatives put
//! files beside it, under a temporary name first, so that a file is there whole or not at all, and record their
//! digests in the same journal. [`Bundle::seal`] ends the bundle with a manifest. [`verify`] tells, anywhere and
//! without the program that wrote it, which files were altered, removed or added and which line of the journal broke.
//!
//! A process that dies leaves a bundle that [`read_journal`] can read and [`Bundle::open`] can continue. At worst the
//! last line is torn and one file has no record yet; both are set aside and named in the next record.
//!
//! ```
//! use evidence::{Bundle, read_journal, verify};
//!
//! let parent = tempfile::tempdir()?;
//! let dir = parent.path().join("evidence");
//!
//! let bundle = Bundle::create(&dir)?;
//! bundle.write_file("campaign.toml", b"rows = 4\n")?;
//! bundle.append("stage-finished", &serde_json::json!({ "stage": "pin", "commits": 2 }))?;
//! let manifest = bundle.seal()?;
//!
//! let verification = verify(&dir)?;
//! assert!(verification.is_intact());
//! assert_eq!(verification.manifest, Some(manifest.sha256));
//!
//! let kinds: Vec<String> = read_journal(&dir)?.records.into_iter().map(|record| record.kind).collect();
//! assert_eq!(kinds, ["bundle.created", "bundle.file-written", "stage-finished", "bundle.sealed"]);
//!
//! std::fs::write(dir.join("campaign.toml"), "rows = 3\n")?;
//! assert_eq!(verify(&dir)?.altered[0].path, "campaign.toml");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Layout, version 1
//!
//! | path | what it holds |
//! | --- | --- |
//! | `journal.jsonl` | the journal: one record per line, chained by digest |
//! | `manifest.json` | only in a sealed bundle: every file with digest and size, and the head of the journal |
//! | `campaign.toml`, `report.json`, `report.md`, any other file name | files about the whole bundle |
//! | `inputs/` | what went in and is small: slice manifests, patches, exception records |
//! | `records/` | one JSON document per finished stage, row or attempt |
//! | `samples/` | raw measurements, one file per attempt |
//! | `reports/` | full reports kept because they differ or are under investigation |
//! | `diffs/` | focused differences between two reports |
//! | `logs/` | standard output and standard error of child processes |
//! | `profiles/` | profiler captures |
//! | `recovered/N/` | what a killed writer left, set aside by the opening that journal line N records: the torn end of the journal byte for byte, files that no record names |
//! | `.tmp/` | files being written; emptied when the bundle is opened, gone when it is sealed |
//! | `work/` | scratch of the writer (checkouts, build trees); never part of the evidence and never verified |
//!
//! Names beginning with a dot, other folders, symbolic links, absolute paths and `..` are refused.
//!
//! ## A journal line
//!
//! Compact JSON, these keys in this order, then a line feed:
//!
//! | key | value |
//! | --- | --- |
//! | `schema` | `"evidence-journal"` |
//! | `version` | `1` |
//! | `seq` | number of the line, from 0 |
//! | `previous` | SHA-256 of the line before, without its line feed; `null` in the first line |
//! | `time_unix_ms` | when it was written, milliseconds since 1970 |
//! | `kind` | what the payload is; kinds that begin with `bundle.` are written by this crate |
//! | `payload` | the record itself, its keys sorted at every depth, number text as it was serialised |
//!
//! | kind | payload |
//! | --- | --- |
//! | `bundle.created` | `layout`: version of the directory layout |
//! | `bundle.opened` | what the previous writer left behind: [`Recovery`] |
//! | `bundle.file-written` | `path`, `sha256`, `bytes`, `replaces` (digest of the file it replaced, or `null`) |
//! | `bundle.file-removed` | `path`, `sha256`, `bytes`, `reason` |
//! | `bundle.sealed` | `files`: how many files the manifest lists |
//! | `bundle.reopened` | `manifest`: digest of the manifest that no longer holds |
//!
//! ## The manifest
//!
//! | key | value |
//! | --- | --- |
//! | `schema`, `version` | `"evidence-manifest"`, `1` |
//! | `time_unix_ms` | when the bundle was sealed |
//! | `journal` | `records`, `bytes`, `sha256` of the whole file, `head`: digest of the last line |
//! | `files` | sorted by path: `path`, `sha256`, `bytes` |
//!
//! The digest of the manifest's own bytes ([`Manifest::sha256`]) stands for the whole bundle. Publish it apart from
//! the bundle: a chain shows where something was changed, and only a digest kept elsewhere shows that everything was
//! written anew.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod bundle;
mod file;
mod journal;
mod layout;
mod manifest;
mod recovery;
#[cfg(feature = "schema")]
mod schema;
mod storage;
mod verify;

pub use bundle::{AppendError, Bundle, CreateError, Entry, OpenError, RemoveError, SealError, WriteError};
pub use canonical_json::Sha256;
pub use file::FileWriter;
pub use journal::{
    Journal, JournalError, JournalProblem, JournalProblemKind, PayloadError, Record, Syncer, Torn,
    read_journal,
};
pub use layout::{BundlePath, FOLDERS, PathError, SCRATCH};
pub use manifest::{FileRef, JournalHead, Manifest, ManifestError, ReadError, read_manifest};
pub use recovery::{Recovery, SetAside, TornLine};
#[cfg(feature = "schema")]
pub use schema::{PayloadSchema, journal_schema, manifest_schema};
pub use storage::{StorageError, StorageKind};
pub use verify::{Altered, Verification, VerifyError, verify};
