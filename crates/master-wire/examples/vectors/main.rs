//! Decodes and re-encodes every message of a vectors file.
//!
//! `cargo run -p master-wire --example vectors -- FILE` prints how many messages agree byte for byte and the first that
//! does not. It exits with 1 if any does not, with 4 if the file cannot be read, with 2 if no file is named.

mod check;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use check::{Agreement, check_line};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(file), None) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: vectors FILE   (one JSON object per line; - is standard input)");
        return ExitCode::from(2);
    };
    match open(Path::new(&file)).and_then(Tally::of) {
        Ok(tally) => {
            let agree = if tally.first.is_none() { ExitCode::SUCCESS } else { ExitCode::from(1) };
            match tally.print(&mut io::stdout().lock()) {
                // Whoever reads on may stop when they have seen enough.
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                    eprintln!("vectors: the result cannot be printed: {error}");
                    ExitCode::from(4)
                }
                _ => agree,
            }
        }
        Err(error) => {
            eprintln!("vectors: {} cannot be read: {error}", Path::new(&file).display());
            ExitCode::from(4)
        }
    }
}

fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin()));
    }
    Ok(Box::new(File::open(path)?))
}

/// How the lines of a file fared.
#[derive(Default)]
struct Tally {
    messages: u64,
    equal: u64,
    foreign: u64,
    refused: u64,
    /// The first that does not agree: its line and what is wrong.
    first: Option<(u64, String)>,
}

impl Tally {
    fn of(file: impl Read) -> io::Result<Tally> {
        let mut tally = Tally::default();
        for (line, number) in BufReader::new(file).split(b'\n').zip(1..) {
            let line = line?;
            if !line.trim_ascii().is_empty() {
                tally.add(number, &line);
            }
        }
        Ok(tally)
    }

    fn add(&mut self, number: u64, line: &[u8]) {
        self.messages += 1;
        let checked = std::str::from_utf8(line).map_err(|error| error.to_string()).and_then(check_line);
        match checked {
            Ok(Agreement::Equal) => self.equal += 1,
            Ok(Agreement::Foreign) => self.foreign += 1,
            Ok(Agreement::Refused) => self.refused += 1,
            Err(what) => {
                self.first.get_or_insert((number, what));
            }
        }
    }

    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let agree = self.equal + self.foreign + self.refused;
        writeln!(out, "{agree} of {} messages agree", self.messages)?;
        writeln!(out, "  {} read as stated and written again byte for byte", self.equal)?;
        writeln!(out, "  {} the same, in another dialect than the master's (probes)", self.foreign)?;
        writeln!(out, "  {} malformed, refused for the stated reason", self.refused)?;
        if let Some((line, what)) = &self.first {
            writeln!(out, "first that does not: line {line}: {what}")?;
        }
        out.flush()
    }
}
