//! Why a file is not a trace.

use std::io;

use serde::Serialize;
use thiserror::Error;

use super::row::Bad;
use super::rule::Rule;
use super::trace::Dialect;

/// The first rule a trace breaks, and where.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize)]
#[error("trace {}{rule}: {message}", place(*line, *column))]
#[non_exhaustive]
pub struct Fault {
    /// The rule.
    pub rule: Rule,
    /// The dialect of the file; what it seems to be when its header cannot be read.
    pub dialect: Dialect,
    /// The line, counted from one; nothing for a fault of the whole file.
    pub line: Option<u64>,
    /// The place in the line, in characters counted from one.
    pub column: Option<u64>,
    /// What is wrong.
    pub message: String,
}

impl Fault {
    pub(crate) fn at_line(bad: Bad, dialect: Dialect, line: u64, text: &[u8]) -> Self {
        let bad = bad.into_inner();
        let before = &text[..bad.at.min(text.len())];
        let column = before.iter().filter(|byte| **byte & 0xC0 != 0x80).count() as u64 + 1;
        let whole_file = bad.rule == Rule::TTooLarge;
        Fault {
            rule: bad.rule,
            dialect,
            line: Some(line),
            column: (!whole_file).then_some(column),
            message: bad.message,
        }
    }

    pub(crate) fn whole_file(rule: Rule, dialect: Dialect, line: Option<u64>, message: &str) -> Self {
        Fault { rule, dialect, line, column: line.map(|_| 1), message: message.to_owned() }
    }
}

fn place(line: Option<u64>, column: Option<u64>) -> String {
    match (line, column) {
        (Some(line), Some(column)) => format!("line {line}, column {column}: "),
        (Some(line), None) => format!("line {line}: "),
        (None, _) => String::new(),
    }
}

/// Why a trace could not be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file could not be opened.
    #[error("open the trace {}", path.display())]
    Open {
        /// The file.
        path: std::path::PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The file could not be read to its end.
    #[error("read the trace")]
    Read(#[source] io::Error),
    /// A line is longer than any trace needs, or there is no memory for it.
    #[error("line {line}: read a line of more than {limit} bytes")]
    LineTooLong {
        /// Which line.
        line: u64,
        /// How long it may be.
        limit: usize,
    },
    /// The file breaks a rule.
    #[error(transparent)]
    Invalid(#[from] Fault),
}
