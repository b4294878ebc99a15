//! Why the command failed, and with which exit code.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use command_line::{Exit, describe_error};
use master_replay::TraceError;

/// An error, what it is about, and how the command ends because of it.
#[derive(Debug)]
pub(crate) struct Failure {
    about: Option<PathBuf>,
    error: Box<dyn Error>,
    exit: Exit,
}

impl Failure {
    pub(crate) fn new(error: impl Error + 'static, exit: Exit) -> Self {
        Failure { about: None, error: Box::new(error), exit }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Failure { about: None, error: message.into().into(), exit: Exit::Usage }
    }

    pub(crate) fn bad_input(message: impl Into<String>) -> Self {
        Failure { exit: Exit::BadInput, ..Failure::usage(message) }
    }

    pub(crate) fn about(mut self, path: impl Into<PathBuf>) -> Self {
        self.about = Some(path.into());
        self
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::new(error, Exit::HostUnfit)
    }
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Self {
        Failure::new(error, Exit::BadInput)
    }
}

/// Prints the failure and gives its exit code.
pub(crate) fn report(failure: &Failure) -> Exit {
    let about = failure.about.as_ref().map(|path| format!("{}: ", path.display())).unwrap_or_default();
    command_line::say!("replay-master: {about}{}", describe_error(failure.error.as_ref()));
    failure.exit
}
