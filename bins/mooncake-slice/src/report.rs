//! What the command prints: the result on stdout, errors on stderr, with `json` both as events on stdout too.

use std::error::Error;
use std::io::{self, Write};

use command_line::{Exit, MessageFormat, Output, describe_error};
use mooncake_trace::{Recognised, RowError, SliceError, SliceManifest, TraceError, manifest_path};
use serde_json::{Value, json};

use crate::cli::{Cli, Failure};

/// Prints what was cut.
pub(crate) fn success(cli: &Cli, manifest: &SliceManifest) -> io::Result<()> {
    let mut out = Output::stdout();
    match cli.message_format {
        MessageFormat::Human => human(&mut out, cli, manifest)?,
        MessageFormat::Json => writeln!(
            out,
            "{}",
            json!({
                "event": "slice",
                "out": cli.out.to_string_lossy(),
                "manifest_path": manifest_path(&cli.out).to_string_lossy(),
                "manifest": manifest,
            })
        )?,
    }
    out.flush()
}

fn human(out: &mut impl Write, cli: &Cli, manifest: &SliceManifest) -> io::Result<()> {
    let SliceManifest { source, slice, window, .. } = manifest;
    let (first, last) = (window.offset() + 1, window.end());
    writeln!(out, "{}: rows {first} to {last}, {} bytes", cli.out.display(), slice.bytes)?;
    writeln!(out, "slice   {}  {}", slice.sha256, name(slice.known.as_ref()))?;
    writeln!(
        out,
        "source  {}  {}, {} rows, {} bytes",
        source.sha256,
        name(source.known.as_ref()),
        source.rows,
        source.bytes
    )?;
    writeln!(
        out,
        "arrivals {} to {} ms, {} input tokens, {} output tokens, {} block ids",
        slice.first_timestamp_ms,
        slice.last_timestamp_ms,
        slice.input_tokens,
        slice.output_tokens,
        slice.hash_ids
    )
}

fn name(known: Option<&Recognised>) -> String {
    match known {
        None => "not a published trace".to_owned(),
        Some(known) if known.whole => known.trace.clone(),
        Some(known) => {
            format!("rows {} to {} of {}", known.offset + 1, known.offset + known.count, known.trace)
        }
    }
}

/// Prints why there is nothing, and passes the exit code on.
pub(crate) fn failure(cli: &Cli, failure: &Failure, exit: Exit) -> Exit {
    let message = message(failure);
    command_line::say!("mooncake-slice: {message}");
    if cli.message_format == MessageFormat::Json {
        let mut out = Output::stdout();
        let event = error_event(failure, &message, exit);
        // The failure is on stderr already and has an exit code; that stdout is broken too changes neither.
        let _ = writeln!(out, "{event}").and_then(|()| out.flush());
    }
    exit
}

fn message(failure: &Failure) -> String {
    let (context, error): (_, &dyn Error) = match failure {
        Failure::Window(error) => ("", error),
        Failure::Slice(error) => ("", error),
        Failure::Signals(error) => ("cannot handle signals: ", error),
        Failure::Print(error) => ("the slice is complete, but the result cannot be printed: ", error),
    };
    format!("{context}{}", describe_error(error))
}

fn error_event(failure: &Failure, message: &str, exit: Exit) -> Value {
    let mut event = json!({"event": "error", "exit_code": exit.code(), "message": message});
    if let Failure::Slice(SliceError::Trace(TraceError::Row(error))) = failure {
        event["row"] = row(error);
    }
    event
}

fn row(error: &RowError) -> Value {
    json!({
        "file": error.file.as_ref().map(|file| file.to_string_lossy()),
        "line": error.line,
        "column": error.column,
        "pointer": error.pointer,
        "kind": error.kind.name(),
    })
}
