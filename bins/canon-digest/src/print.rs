//! What the command prints: results on stdout, errors on stderr; with `json` both as events on stdout too.

use std::borrow::Cow;
use std::fmt::Arguments;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
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
        path: Cow<'a, str>,
        form: Form,
        sha256: Sha256,
        bytes: u64,
        excluded_present: &'a [Pattern],
        #[serde(skip_serializing_if = "Option::is_none")]
        records: Option<u64>,
    },
    Record {
        path: Cow<'a, str>,
        line: u64,
        sha256: Sha256,
        bytes: u64,
        excluded_present: &'a [Pattern],
    },
    Check {
        path: Cow<'a, str>,
        expected: Sha256,
        found: Sha256,
        is_same: bool,
    },
    Diff {
        left_path: Cow<'a, str>,
        right_path: Cow<'a, str>,
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
        path: Option<Cow<'a, str>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        record: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        record_offset: Option<u64>,
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

    /// Whether nobody reads what is printed any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.out.is_closed()
    }

    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.out.flush().map_err(Failure::Print)
    }

    fn event(&mut self, event: &Event<'_>) -> Result<(), Failure> {
        let line = to_canonical_vec(event).map_err(|error| Failure::Print(io::Error::other(error)))?;
        let written = self.out.write_all(&line).and_then(|()| self.out.write_all(b"\n"));
        written.and_then(|()| self.out.flush()).map_err(Failure::Print)
    }

    fn line(&mut self, line: Arguments<'_>) -> Result<(), Failure> {
        writeln!(self.out, "{}", plain(&line.to_string())).map_err(Failure::Print)
    }

    /// A digest and what it is of, as sha256sum prints them: a name that would not stay on its line is escaped, and a
    /// backslash before the digest says so.
    fn named(&mut self, sha256: Sha256, path: &Path, after: &str) -> Result<(), Failure> {
        let mut name = Vec::new();
        for byte in path.as_os_str().as_bytes() {
            match byte {
                b'\\' => name.extend(b"\\\\"),
                b'\n' => name.extend(b"\\n"),
                b'\r' => name.extend(b"\\r"),
                other => name.push(*other),
            }
        }
        let mark = if name == path.as_os_str().as_bytes() { "" } else { "\\" };
        let mut line = format!("{mark}{sha256}  ").into_bytes();
        line.extend(name);
        line.extend(after.as_bytes());
        line.push(b'\n');
        self.out.write_all(&line).map_err(Failure::Print)
    }

    pub(crate) fn digest(&mut self, path: &Path, digest: &FileDigest) -> Result<(), Failure> {
        let (sha256, bytes, excluded_present, records) = match digest {
            FileDigest::Document(all) => (all.sha256, all.bytes, &all.excluded_present, None),
            FileDigest::Lines(all) => (all.sha256, all.bytes, &all.excluded_present, Some(all.records)),
        };
        if self.is_human() {
            return self.named(sha256, path, "");
        }
        let (form, path) = (self.form, path.to_string_lossy());
        self.event(&Event::Digest { path, form, sha256, bytes, excluded_present, records })
    }

    pub(crate) fn record(&mut self, path: &Path, record: &LineDigest) -> Result<(), Failure> {
        let LineDigest { line, digest, .. } = record;
        if self.is_human() {
            return self.named(digest.sha256, path, &format!(":{line}"));
        }
        let path = path.to_string_lossy();
        let (sha256, bytes, excluded_present) = (digest.sha256, digest.bytes, &digest.excluded_present);
        self.event(&Event::Record { path, line: *line, sha256, bytes, excluded_present })
    }

    pub(crate) fn check(&mut self, path: &Path, expected: Sha256, found: Sha256) -> Result<(), Failure> {
        let is_same = expected == found;
        if !self.is_human() {
            return self.event(&Event::Check { path: path.to_string_lossy(), expected, found, is_same });
        }
        if !is_same {
            complain(format_args!("`{}` has the digest {found}, not {expected}", path.display()));
        }
        Ok(())
    }

    pub(crate) fn diff(&mut self, paths: [&Path; 2], diff: &Diff) -> Result<(), Failure> {
        if self.is_human() {
            return self.human_diff(paths, diff);
        }
        let [left_path, right_path] = paths.map(Path::to_string_lossy);
        let Diff { left, right, total, truncated, .. } = *diff;
        let is_same = diff.is_same();
        self.event(&Event::Diff { left_path, right_path, left, right, is_same, total, truncated })?;
        diff.groups.iter().try_for_each(|group| self.event(&Event::Difference(group)))
    }

    fn human_diff(&mut self, paths: [&Path; 2], diff: &Diff) -> Result<(), Failure> {
        for (sha256, path) in [diff.left, diff.right].iter().zip(paths) {
            self.named(*sha256, path, "")?;
        }
        if diff.is_same() {
            return self.line(format_args!("no differences"));
        }
        let more = if diff.truncated { ", of which the first are" } else { "" };
        let differences = if diff.total == 1 { "difference" } else { "differences" };
        self.line(format_args!("{} {differences}{more}:", diff.total))?;
        diff.groups.iter().try_for_each(|group| self.group(group))
    }

    fn group(&mut self, group: &DiffGroup) -> Result<(), Failure> {
        let DiffGroup { shape, count, examples, .. } = group;
        let shape = if shape.is_empty() { "the whole document" } else { shape };
        self.line(format_args!("{shape}  {count} {}", if *count == 1 { "time" } else { "times" }))?;
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
        complain(format_args!("{message}"));
        if self.is_human() {
            return;
        }
        let place = failure.place();
        let event = Event::Error {
            message: &message,
            exit_code: failure.exit().code(),
            path: failure.path().map(|path| path.to_string_lossy()),
            record: failure.record().map(|(line, _)| line),
            record_offset: failure.record().map(|(_, offset)| offset),
            offset: place.map(|place| place.offset),
            line: place.map(|place| place.line),
            column: place.map(|place| place.column),
            pointer: place.map(|place| place.pointer.as_str()),
        };
        // Where this fails, stderr has said it.
        let _ = self.event(&event);
    }
}

/// Says something on stderr. If nobody listens there, there is nobody to tell.
pub(crate) fn complain(message: Arguments<'_>) {
    let message: Vec<String> = message.to_string().lines().map(plain).collect();
    let _ = writeln!(io::stderr(), "canon-digest: {}", message.join("\n"));
}

/// Text from a document as a terminal may see it: it obeys control characters.
fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            shown.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            shown.push(c);
        }
    }
    shown
}
