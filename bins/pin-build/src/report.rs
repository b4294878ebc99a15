use std::io::{self, Write};
use std::path::Path;

use command_line::{MessageFormat, Output};
use revision_pin::{AppliedPatch, BuildRecord, Pinned};
use serde::Serialize;

/// Something that has happened; one line of JSON each.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum Event<'a> {
    /// The revision is known.
    Pinned { revision: &'a Pinned },
    /// It is checked out.
    CheckedOut { lfs_pointers: &'a [String] },
    /// A patch was applied.
    Patched { patch: &'a AppliedPatch },
    /// cargo is about to be started.
    Building { command: Vec<String> },
    /// The result is in its place.
    Built { out: &'a Path, artifact: &'a Path, record: &'a BuildRecord },
}

/// Prints events: progress on stderr and the result on stdout for a person, all of them on stdout for a script.
pub(crate) struct Reporter {
    format: MessageFormat,
}

impl Reporter {
    pub(crate) fn new(format: MessageFormat) -> Self {
        Reporter { format }
    }

    pub(crate) fn say(&self, event: &Event<'_>) -> io::Result<()> {
        let mut out = Output::stdout();
        match self.format {
            MessageFormat::Json => {
                serde_json::to_writer(&mut out, event)?;
                out.write_all(b"\n")?;
            }
            MessageFormat::Human => human(event, &mut out)?,
        }
        out.flush()
    }
}

fn human(event: &Event<'_>, out: &mut impl Write) -> io::Result<()> {
    match event {
        Event::Pinned { revision } => {
            command_line::say!("pin-build: pinned {} ({})", revision.commit, revision.subject);
        }
        Event::CheckedOut { lfs_pointers: [] } => command_line::say!("pin-build: checked out"),
        Event::CheckedOut { lfs_pointers } => {
            command_line::say!(
                "pin-build: checked out; {} files are Git LFS pointers, not their content",
                lfs_pointers.len()
            );
        }
        Event::Patched { patch } => {
            let moved =
                patch.files.iter().flat_map(|file| &file.offset_lines).filter(|lines| **lines != 0).count();
            command_line::say!(
                "pin-build: applied {} to {} files ({moved} hunks moved)",
                patch.name,
                patch.files.len()
            );
        }
        Event::Building { command } => command_line::say!("pin-build: {}", command.join(" ")),
        Event::Built { artifact, record, .. } => result(artifact, record, out)?,
    }
    Ok(())
}

fn result(artifact: &Path, record: &BuildRecord, out: &mut impl Write) -> io::Result<()> {
    record.notes.iter().for_each(|note| command_line::say!("pin-build: note: {note}"));
    let line = |out: &mut dyn Write, name: &str, value: &str| writeln!(out, "{name:<9} {value}");
    line(out, "commit", &record.revision.commit.to_string())?;
    line(out, "artifact", &artifact.display().to_string())?;
    line(out, "sha256", &record.artifact.sha256.to_string())?;
    line(
        out,
        "size",
        &format!("{} bytes, .text {} bytes", record.artifact.bytes, record.artifact.text_bytes),
    )?;
    line(out, "features", &record.features.join(", "))?;
    line(out, "rustc", record.toolchain.rustc.first().map_or("", String::as_str))?;
    #[expect(clippy::cast_precision_loss, reason = "a duration for a reader")]
    let seconds = record.wall_ns as f64 / 1e9;
    line(
        out,
        "built in",
        &format!("{seconds:.1} s, {} units, {} reused", record.units.compiled, record.units.reused),
    )
}
