use std::io::{self, ErrorKind};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use command_line::{Exit, Interrupt, MessageFormat};
use mooncake_trace::{
    HashCount, Rules, Sha256, SliceError, SliceManifest, Slicer, UnknownFields, Window, WindowError,
};

use crate::report;

/// Cut a window out of a Mooncake trace: its original bytes go to OUT, what they are to OUT.manifest.json.
///
/// Every row of the trace is checked, also those outside the window. Both files appear whole or not at all.
#[derive(Debug, Parser)]
#[command(name = "mooncake-slice", version, after_help = Exit::help_table())]
pub(crate) struct Cli {
    /// The trace: JSON lines, one request each
    pub(crate) trace: PathBuf,
    /// Rows before the window
    #[arg(long, value_name = "N", default_value_t = 0)]
    offset: u64,
    /// Rows in the window
    #[arg(long, value_name = "N", default_value_t = 5_000)]
    count: u64,
    /// Where the window goes
    #[arg(short, long, value_name = "OUT")]
    pub(crate) out: PathBuf,
    /// Replace OUT and OUT.manifest.json if they are there
    #[arg(long)]
    force: bool,
    /// Tokens per block of the trace
    #[arg(long, value_name = "TOKENS", default_value_t = Rules::DEFAULT_BLOCK_SIZE)]
    block_size: NonZeroU32,
    /// How many block ids a row must have
    #[arg(long, value_enum, value_name = "RULE", default_value_t)]
    hash_count: HashCountRule,
    /// What happens to fields that are not part of a Mooncake row
    #[arg(long, value_enum, value_name = "RULE", default_value_t)]
    unknown_fields: UnknownFieldsRule,
    /// The longest line that is read, which bounds memory
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT_MAX_LINE_BYTES)]
    max_line_bytes: NonZeroUsize,
    /// Refuse any trace but the one with this digest
    #[arg(long, value_name = "SHA256")]
    source_sha256: Option<Sha256>,
    /// Refuse any window but the one with this digest
    #[arg(long, value_name = "SHA256")]
    slice_sha256: Option<Sha256>,
    /// How the result is printed on stdout; everything else goes to stderr
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    pub(crate) message_format: MessageFormat,
}

const DEFAULT_MAX_LINE_BYTES: NonZeroUsize =
    NonZeroUsize::new(Rules::DEFAULT_MAX_LINE_BYTES).expect("the default is not zero");

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum HashCountRule {
    /// One for every block that the prompt begins
    #[default]
    Exact,
    /// At least that many, as Dynamo's loader has it
    Cover,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum UnknownFieldsRule {
    /// The trace is refused
    #[default]
    Reject,
    /// They stay, and the manifest counts them; multi-turn fields and aliases are refused all the same
    Keep,
}

/// Why the command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    Window(WindowError),
    Slice(SliceError),
    Signals(io::Error),
    Print(io::Error),
}

pub(crate) fn run() -> Exit {
    let cli = Cli::parse();
    let interrupt = match Interrupt::install() {
        Ok(interrupt) => interrupt,
        Err(error) => return report::failure(&cli, &Failure::Signals(error), Exit::HostUnfit),
    };
    let result = cli.slice(&interrupt).and_then(|manifest| {
        report::success(&cli, &manifest).map_err(Failure::Print)?;
        Ok(Exit::Ok)
    });
    result.unwrap_or_else(|failure| report::failure(&cli, &failure, exit_of(&failure, &interrupt)))
}

impl Cli {
    fn slice(&self, interrupt: &Interrupt) -> Result<SliceManifest, Failure> {
        let window = Window::new(self.offset, self.count).map_err(Failure::Window)?;
        let stop = || interrupt.exit().is_some();
        let mut slicer = Slicer::new(window).rules(self.rules()).replace(self.force).stop_when(&stop);
        if let Some(sha256) = self.source_sha256 {
            slicer = slicer.expect_source(sha256);
        }
        if let Some(sha256) = self.slice_sha256 {
            slicer = slicer.expect_slice(sha256);
        }
        slicer.slice_file(&self.trace, &self.out).map_err(Failure::Slice)
    }

    fn rules(&self) -> Rules {
        let mut rules = Rules::default();
        rules.block_size = self.block_size;
        rules.max_line_bytes = self.max_line_bytes.get();
        rules.hash_count = match self.hash_count {
            HashCountRule::Exact => HashCount::Exact,
            HashCountRule::Cover => HashCount::Cover,
        };
        rules.unknown_fields = match self.unknown_fields {
            UnknownFieldsRule::Reject => UnknownFields::Reject,
            UnknownFieldsRule::Keep => UnknownFields::Keep,
        };
        rules
    }
}

fn exit_of(failure: &Failure, interrupt: &Interrupt) -> Exit {
    match failure {
        Failure::Window(_) => Exit::Usage,
        Failure::Slice(error) => exit_of_slice(error, interrupt),
        Failure::Signals(_) | Failure::Print(_) => Exit::HostUnfit,
    }
}

fn exit_of_slice(error: &SliceError, interrupt: &Interrupt) -> Exit {
    match error {
        SliceError::Open { .. }
        | SliceError::Trace(_)
        | SliceError::TraceTooShort { .. }
        | SliceError::UnexpectedSource { .. }
        | SliceError::UnexpectedSlice { .. }
        | SliceError::SourceChanged { .. }
        | SliceError::OutputExists { .. }
        | SliceError::OutputNotRegular { .. }
        | SliceError::OutputIsTrace { .. } => Exit::BadInput,
        // A folder that is not there was named by mistake; no room in one that is, is the machine's.
        SliceError::Create { source, .. } if is_no_place(source) => Exit::BadInput,
        SliceError::Write { .. } | SliceError::Create { .. } => Exit::HostUnfit,
        SliceError::Cancelled { .. } => interrupt.exit().unwrap_or(Exit::Bug),
        _ => Exit::Bug,
    }
}

fn is_no_place(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidFilename)
}
