use std::cell::Cell;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::thread;

use canonical_json::{DiffLimits, Rules, Sha256, canonicalize, canonicalize_lines, diff};
use clap::{ArgAction, Parser};
use command_line::{Exit, MessageFormat, Output};

use crate::failure::Failure;
use crate::inputs::{self, FileDigest};
use crate::print::{self, Printer};
use crate::rules::RuleOptions;

/// Print the SHA-256 of the canonical form of JSON files.
///
/// In the canonical form keys are sorted, there is no whitespace, strings are escaped in one way, and numbers stay as
/// they are written. The digest of a file that already is canonical is that of its bytes, as sha256sum prints it.
#[derive(Debug, Parser)]
#[command(name = "canon-digest", version, after_help = Exit::help_table())]
pub(crate) struct Cli {
    /// JSON files; `-`, or none at all, is standard input
    files: Vec<PathBuf>,
    #[command(flatten)]
    rules: RuleOptions,
    /// Write the canonical form instead of its digest
    #[arg(long, conflicts_with_all = ["check", "diff", "message_format"])]
    emit: bool,
    /// Exit with 1 unless this is the digest
    #[arg(long, value_name = "DIGEST", conflicts_with = "diff")]
    check: Option<Sha256>,
    /// Say where two documents differ, and exit with 1 if they do; files of records are not compared
    #[arg(long, num_args = 2, action = ArgAction::Set, value_names = ["A", "B"], conflicts_with_all = ["files", "jsonl"])]
    diff: Option<Vec<PathBuf>>,
    #[arg(long, value_name = "N", help = of_diff("shapes of difference are told apart", DiffLimits::default().max_groups))]
    max_groups: Option<usize>,
    #[arg(long, value_name = "N", help = of_diff("differences of each shape are shown", DiffLimits::default().max_examples))]
    max_examples: Option<usize>,
    /// Each line is a document; the canonical form has each followed by one line feed
    #[arg(long)]
    jsonl: bool,
    /// With --jsonl: print the digest of every record too
    #[arg(long, requires = "jsonl", conflicts_with = "emit")]
    records: bool,
    /// How many files are read at once [default: one for each processor]
    #[arg(short, long, value_name = "N", conflicts_with_all = ["check", "diff", "emit", "records"])]
    jobs: Option<NonZeroUsize>,
    /// How results are printed on stdout; everything else goes to stderr
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    message_format: MessageFormat,
}

fn of_diff(what: &str, default: usize) -> String {
    format!("With --diff: how many {what} [default: {default}]")
}

pub(crate) fn run() -> Exit {
    let mut cli = Cli::parse();
    if cli.files.is_empty() {
        cli.files.push(PathBuf::from("-"));
    }
    if let Some(fault) = cli.fault() {
        print::complain(format_args!("{fault}"));
        return Exit::Usage;
    }
    let rules = cli.rules.rules();
    let form = rules.as_ref().map(|rules| rules.form).unwrap_or_default();
    let mut printer = Printer::new(cli.message_format, form);
    let exit = rules.and_then(|rules| cli.perform(&rules, &mut printer));
    let exit = exit.and_then(|exit| printer.flush().map(|()| exit));
    exit.unwrap_or_else(|failure| {
        printer.failure(&failure);
        failure.exit()
    })
}

impl Cli {
    /// What is wrong with the arguments together.
    fn fault(&self) -> Option<String> {
        let files = self.files.len();
        if files > 1 && (self.emit || self.check.is_some()) {
            return Some(format!("--emit and --check take one file, not {files}"));
        }
        // Said here, since clap requires nothing that what is there conflicts with.
        if self.diff.is_none() && (self.max_groups.is_some() || self.max_examples.is_some()) {
            return Some("--max-groups and --max-examples are of --diff".to_owned());
        }
        let read = self.diff.as_deref().unwrap_or(&self.files);
        let from_stdin = read.iter().filter(|path| inputs::is_stdin(path)).count();
        (from_stdin > 1).then(|| format!("standard input can be read once, not {from_stdin} times"))
    }

    fn perform(&self, rules: &Rules, printer: &mut Printer) -> Result<Exit, Failure> {
        match (&self.diff, self.emit) {
            (Some(pair), _) => self.differ(&pair[0], &pair[1], rules, printer),
            (None, true) => self.emit(&self.files[0], rules),
            (None, false) => self.digest(rules, printer),
        }
    }

    fn differ(
        &self,
        left: &Path,
        right: &Path,
        rules: &Rules,
        printer: &mut Printer,
    ) -> Result<Exit, Failure> {
        let mut limits = DiffLimits::default();
        limits.max_groups = self.max_groups.unwrap_or(limits.max_groups);
        limits.max_examples = self.max_examples.unwrap_or(limits.max_examples);
        let texts = [inputs::read(left)?, inputs::read(right)?];
        let found = diff(&texts[0], &texts[1], rules, &limits).map_err(|source| {
            // Say which of the two it was.
            let is_left = canonicalize(&texts[0], rules, std::io::sink()).is_err();
            Failure::document(if is_left { left } else { right }.to_owned(), source)
        })?;
        printer.diff([left, right], &found)?;
        Ok(if found.is_same() { Exit::Ok } else { Exit::Differs })
    }

    fn emit(&self, path: &Path, rules: &Rules) -> Result<Exit, Failure> {
        let mut out = Output::stdout();
        if self.jsonl {
            let is_heard = Cell::new(true);
            let lines = inputs::WhileHeard::open(path, &is_heard)?;
            let lines = canonicalize_lines(lines, rules, Heard { out: &mut out, is_heard: &is_heard });
            lines.map_err(|source| Failure::lines(path.to_owned(), source))?;
        } else {
            let applied = canonicalize(&inputs::read(path)?, rules, &mut out);
            applied.map_err(|source| Failure::document(path.to_owned(), source))?;
        }
        out.flush().map_err(Failure::Print)?;
        Ok(Exit::Ok)
    }

    fn digest(&self, rules: &Rules, printer: &mut Printer) -> Result<Exit, Failure> {
        if self.records {
            return self.digest_with_records(rules, printer);
        }
        let work = |path: &Path| match self.jsonl {
            true => inputs::digest_records(path, rules, &Cell::new(true), &mut |_| {}),
            false => inputs::digest_document(path, rules),
        };
        let mut exit = Ok(Exit::Ok);
        inputs::in_parallel(&self.files, self.jobs(), work, |path, result| {
            if let Ok(before) = exit {
                exit = self.print(path, result, before, printer);
            }
        });
        exit
    }

    /// Records are printed as they come, so files are read one after the other.
    fn digest_with_records(&self, rules: &Rules, printer: &mut Printer) -> Result<Exit, Failure> {
        let mut exit = Exit::Ok;
        for path in &self.files {
            let (mut printed, is_heard) = (Ok(()), Cell::new(true));
            let result = inputs::digest_records(path, rules, &is_heard, &mut |record| {
                if printed.is_ok() {
                    printed = printer.record(path, &record);
                }
                // What is compared is wanted to its end, whoever reads the records.
                let is_wanted = self.check.is_some() || !printer.is_closed();
                is_heard.set(printed.is_ok() && is_wanted);
            });
            printed?;
            if !is_heard.get() {
                return Ok(exit);
            }
            exit = self.print(path, result, exit, printer)?;
        }
        Ok(exit)
    }

    /// Prints what came of one file; `exit` if that was well.
    fn print(
        &self,
        path: &Path,
        result: Result<FileDigest, Failure>,
        exit: Exit,
        printer: &mut Printer,
    ) -> Result<Exit, Failure> {
        let digest = match result {
            Ok(digest) => digest,
            Err(failure @ Failure::Print(_)) => return Err(failure),
            Err(failure) => {
                printer.failure(&failure);
                return Ok(failure.exit());
            }
        };
        printer.digest(path, &digest)?;
        let (Some(expected), found) = (self.check, digest.sha256()) else { return Ok(exit) };
        printer.check(path, expected, found)?;
        Ok(if expected == found { exit } else { Exit::Differs })
    }

    fn jobs(&self) -> NonZeroUsize {
        self.jobs.or_else(|| thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN)
    }
}

/// An output that says when nobody reads it any more.
struct Heard<'o> {
    out: &'o mut Output,
    is_heard: &'o Cell<bool>,
}

impl Write for Heard<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes);
        self.is_heard.set(!self.out.is_closed());
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
