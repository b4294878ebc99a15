use std::error::Error;
use std::io;
use std::path::PathBuf;

use canonical_json::{CanonicalError, LinesError, ReadError};
use command_line::Exit;
use thiserror::Error;

/// Why the command failed.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    #[error("`{}` cannot be read", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("`{}` is not a rules file", path.display())]
    Rules { path: PathBuf, source: Box<toml::de::Error> },
    #[error("`{}` has no canonical form", path.display())]
    Document { path: PathBuf, source: CanonicalError },
    #[error("`{}` has no canonical form", path.display())]
    Lines { path: PathBuf, source: LinesError },
    #[error("the result cannot be written")]
    Print(#[source] io::Error),
}

impl Failure {
    pub(crate) fn document(path: PathBuf, source: CanonicalError) -> Self {
        match source {
            CanonicalError::Output(source) => Failure::Print(source),
            CanonicalError::Input { source, .. } => Failure::Open { path, source },
            source => Failure::Document { path, source },
        }
    }

    pub(crate) fn lines(path: PathBuf, source: LinesError) -> Self {
        match source {
            LinesError { source: CanonicalError::Output(source), .. } => Failure::Print(source),
            LinesError { source: CanonicalError::Input { source, .. }, .. } => Failure::Open { path, source },
            source => Failure::Lines { path, source },
        }
    }

    pub(crate) fn exit(&self) -> Exit {
        match self {
            Failure::Open { .. } | Failure::Rules { .. } => Exit::BadInput,
            Failure::Document { .. } | Failure::Lines { .. } => Exit::BadInput,
            // No room on the device, for one.
            Failure::Print(_) => Exit::HostUnfit,
        }
    }

    /// The file that is to blame.
    pub(crate) fn path(&self) -> Option<&PathBuf> {
        match self {
            Failure::Open { path, .. } | Failure::Rules { path, .. } => Some(path),
            Failure::Document { path, .. } | Failure::Lines { path, .. } => Some(path),
            Failure::Print(_) => None,
        }
    }

    /// The record that is to blame, if the file is one of records: its line, and how many bytes come before it.
    pub(crate) fn record(&self) -> Option<(u64, u64)> {
        match self {
            Failure::Lines { source, .. } => Some((source.line, source.offset)),
            _ => None,
        }
    }

    /// Where in the document, or in the record, the error is.
    pub(crate) fn place(&self) -> Option<&ReadError> {
        let mut cause = self.source();
        while let Some(error) = cause {
            if let Some(error) = error.downcast_ref() {
                return Some(error);
            }
            cause = error.source();
        }
        None
    }
}
