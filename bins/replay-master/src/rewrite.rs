//! `replay-master slice` and `replay-master convert`

use std::fs;
use std::io::{BufWriter, Write};
use std::num::NonZeroU64;
use std::ops::Range;
use std::path::{Path, PathBuf};

use command_line::Exit;
use master_replay::{ConvertError, Trace, Window, WriteTraceError, convert_to_v2, slice_trace};
use tempfile::NamedTempFile;

use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct SliceArgs {
    /// The trace
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    window: WindowArgs,
    /// Where the slice goes; it appears whole or not at all
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
}

/// One of them.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct WindowArgs {
    /// Key operations by their place among all key operations, from 0, without the last: `100..200`
    #[arg(long, value_name = "FROM..TO", value_parser = range)]
    events: Option<Range<u64>>,
    /// Key operations by their timestamp in us: `0..1000000`
    #[arg(long, value_name = "FROM..TO", value_parser = range)]
    time_us: Option<Range<u64>>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ConvertArgs {
    /// The trace
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The size of the segment that each client of a version 1 trace mounts
    #[arg(long, value_name = "BYTES", default_value = "67108864")]
    segment_size: NonZeroU64,
    /// Where the version 2 trace goes; it appears whole or not at all
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let parse = |text: &str| text.parse::<u64>().map_err(|error| error.to_string());
    let (from, to) = text.split_once("..").ok_or("a range is written FROM..TO")?;
    let range = parse(from)?..parse(to)?;
    if range.is_empty() { Err("the range is empty".to_owned()) } else { Ok(range) }
}

pub(crate) fn slice(args: &SliceArgs) -> Result<Exit, Failure> {
    let trace = open(&args.file)?;
    let window = match (&args.window.events, &args.window.time_us) {
        (Some(events), _) => Window::Events(events.clone()),
        (None, Some(times)) => Window::TimeUs(times.clone()),
        (None, None) => return Err(Failure::usage("slice a trace without --events or --time-us")),
    };
    let (out, sliced) = slice_trace(&trace, &window, output(&args.out)?).map_err(|error| match error {
        WriteTraceError::Invalid(fault) => Failure::new(fault, Exit::BadInput).about(&args.file),
        WriteTraceError::NothingLeft => Failure::new(error, Exit::BadInput).about(&args.file),
        other => Failure::new(other, Exit::HostUnfit).about(&args.out),
    })?;
    keep(out, &args.out)?;
    command_line::say!(
        "{} events; {} finalisers after the window kept, {} of earlier writes left out, {} dependencies left out",
        sliced.events,
        sliced.finalisers_added,
        sliced.finalisers_dropped,
        sliced.dependencies_dropped
    );
    Ok(Exit::Ok)
}

pub(crate) fn convert(args: &ConvertArgs) -> Result<Exit, Failure> {
    let trace = open(&args.file)?;
    let out = convert_to_v2(&trace, args.segment_size, output(&args.out)?).map_err(|error| match error {
        ConvertError::Write(WriteTraceError::Write(error)) => Failure::from(error).about(&args.out),
        other => Failure::new(other, Exit::BadInput).about(&args.file),
    })?;
    keep(out, &args.out)?;
    Ok(Exit::Ok)
}

fn open(file: &Path) -> Result<Trace, Failure> {
    Trace::open(file).map_err(|error| Failure::from(error).about(file))
}

/// A file beside the target, which it replaces once it is whole.
fn output(target: &Path) -> Result<BufWriter<NamedTempFile>, Failure> {
    if target.exists() {
        return Err(Failure::bad_input("refuse to replace a file that is there").about(target));
    }
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file =
        NamedTempFile::new_in(folder).map_err(|error| Failure::new(error, Exit::BadInput).about(target))?;
    Ok(BufWriter::with_capacity(1 << 20, file))
}

fn keep(mut out: BufWriter<NamedTempFile>, target: &Path) -> Result<(), Failure> {
    out.flush()?;
    let file = out.into_inner().map_err(|error| Failure::from(error.into_error()))?;
    file.as_file().sync_all()?;
    let kept = file.persist_noclobber(target).map_err(|error| Failure::from(error.error).about(target))?;
    // A temporary file is readable by its owner only; what was asked for is an ordinary file.
    use std::os::unix::fs::PermissionsExt;
    fs::File::set_permissions(&kept, fs::Permissions::from_mode(0o644))?;
    Ok(())
}
