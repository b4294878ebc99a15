//! What the command prints: results on stdout, errors on stderr; with `json` both as events on stdout too.

use std::io::{self, Write};
use std::path::Path;

use canonical_json::{Diff, DiffGroup, Difference, Form, LineDigest, Pattern, Sha256, to_canonical_vec};
use command_line::{MessageFormat, Output, describe_error};
use serde::Serialize;

use crate::failure::Failure;
use crate::inputs::FileDigest;

/// One line of `--message-format json`.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    Digest {
        path: &'a Path,
        form: Form,
        sha256: Sha256,
        bytes: u64,
        excluded_present: &'a [Pattern],
        #[serde(skip_serializing_if = "Option::is_none")]
        records: Option<u64>,
    },
    Record {
        path: &'a Path,
        line: u64,
        sha256: Sha256,
        bytes: u64,
        excluded_present: &'a [Pattern],
    },
    Check {
        path: &'a Path,
        expected: Sha256,
        found: Sha256,
        is_same: bool,
    },
    Diff {
        left_path: &'a Path,
        right_path: &'a Path,
        left: Sha256,
        right: Sha256,
        is_same: bool,
        total: u64,
        truncated: bool,
    },
    Difference(&'a DiffGroup),
    Error {
        message: &'a str,
        exit_code: u8,
        #[serde(skip_serializing_if = "Option::is_none")]
        path: Option<&'a Path>,
        #[serde(skip_serializing_if = "Option::is_none")]
        record: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        offset: Option<usize>,
        #[serde(skip_serializing_if = "Option::is_none")]
        line: Option<usize>,
        #[serde(skip_serializing_if = "Option::is_none")]
        column: Option<usize>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pointer: Option<&'a str>,
    },
}

pub(crate) struct Printer {
    format: MessageFormat,
    form: Form,
    out: Output,
}

impl Printer {
    pub(crate) fn new(format: MessageFormat, form: Form) -> Self {
        Printer { format, form, out: Output::stdout() }
    }

    pub(crate) fn is_human(&self) -> bool {
        self.format == MessageFormat::Human
    }

    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.out.flush().map_err(Failure::Print)
    }

    fn event(&mut self, event: &Event<'_>) -> Result<(), Failure> {
        let line = to_canonical_vec(event).map_err(|error| Failure::Print(io::Error::other(error)))?;
        let written = self.out.write_all(&line).and_then(|()| self.out.write_all(b"\n"));
        written.and_then(|()| self.out.flush()).map_err(Failure::Print)
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) -> Result<(), Failure> {
        writeln!(self.out, "{line}").map_err(Failure::Print)
    }

    pub(crate) fn digest(&mut self, path: &Path, digest: &FileDigest) -> Result<(), Failure> {
        let (sha256, bytes, excluded_present, records) = match digest {
            FileDigest::Document(all) => (all.sha256, all.bytes, &all.excluded_present, None),
            FileDigest::Lines(all) => (all.sha256, all.bytes, &all.excluded_present, Some(all.records)),
        };
        if self.is_human() {
            return self.line(format_args!("{sha256}  {}", path.display()));
        }
        let form = self.form;
        self.event(&Event::Digest { path, form, sha256, bytes, excluded_present, records })
    }

    pub(crate) fn record(&mut self, path: &Path, record: &LineDigest) -> Result<(), Failure> {
        let LineDigest { line, digest, .. } = record;
        if self.is_human() {
            return self.line(format_args!("{}  {}:{line}", digest.sha256, path.display()));
        }
        let (sha256, bytes, excluded_present) = (digest.sha256, digest.bytes, &digest.excluded_present);
        self.event(&Event::Record { path, line: *line, sha256, bytes, excluded_present })
    }

    pub(crate) fn check(&mut self, path: &Path, expected: Sha256, found: Sha256) -> Result<(), Failure> {
        let is_same = expected == found;
        if !self.is_human() {
            return self.event(&Event::Check { path, expected, found, is_same });
        }
        if !is_same {
            eprintln!("canon-digest: `{}` has the digest {found}, not {expected}", path.display());
        }
        Ok(())
    }

    pub(crate) fn diff(&mut self, paths: [&Path; 2], diff: &Diff) -> Result<(), Failure> {
        if self.is_human() {
            return self.human_diff(paths, diff);
        }
        let [left_path, right_path] = paths;
        let Diff { left, right, total, truncated, .. } = *diff;
        let is_same = diff.is_same();
        self.event(&Event::Diff { left_path, right_path, left, right, is_same, total, truncated })?;
        diff.groups.iter().try_for_each(|group| self.event(&Event::Difference(group)))
    }

    fn human_diff(&mut self, paths: [&Path; 2], diff: &Diff) -> Result<(), Failure> {
        for (sha256, path) in [diff.left, diff.right].iter().zip(paths) {
            self.line(format_args!("{sha256}  {}", path.display()))?;
        }
        if diff.is_same() {
            return self.line(format_args!("no differences"));
        }
        let more = if diff.truncated { ", of which the first are" } else { "" };
        self.line(format_args!("{} differences{more}:", diff.total))?;
        diff.groups.iter().try_for_each(|group| self.group(group))
    }

    fn group(&mut self, group: &DiffGroup) -> Result<(), Failure> {
        let DiffGroup { shape, count, examples, .. } = group;
        let shape = if shape.is_empty() { "the whole document" } else { shape };
        self.line(format_args!("{shape}  {count} times"))?;
        examples.iter().try_for_each(|example| self.example(example))
    }

    fn example(&mut self, example: &Difference) -> Result<(), Failure> {
        let Difference { pointer, key, left, right, ulps, .. } = example;
        let side = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".to_owned());
        let key = key.as_ref().map(|key| format!(" ({key})")).unwrap_or_default();
        let apart = ulps.map(|ulps| format!(", {ulps} doubles apart")).unwrap_or_default();
        self.line(format_args!("    {pointer}{key}: {} and {}{apart}", side(left), side(right)))
    }

    /// Says on stderr, and with `json` on stdout too, why something failed.
    pub(crate) fn failure(&mut self, failure: &Failure) {
        let message = describe_error(failure);
        eprintln!("canon-digest: {message}");
        if self.is_human() {
            return;
        }
        let place = failure.place();
        let event = Event::Error {
            message: &message,
            exit_code: failure.exit().code(),
            path: failure.path().map(AsRef::as_ref),
            record: failure.record(),
            offset: place.map(|place| place.offset),
            line: place.map(|place| place.line),
            column: place.map(|place| place.column),
            pointer: place.map(|place| place.pointer.as_str()),
        };
        // Where this fails, stderr has said it.
        let _ = self.event(&event);
    }
}
