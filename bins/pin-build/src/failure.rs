use std::error::Error;

use command_line::{Exit, describe_error};
use revision_pin::{BuildError, CheckoutError, FolderError, PatchError, PinError, RecipeError};

/// Why the command could not do what was asked, and its exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
    log: Option<String>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Failure { exit, message: message.into(), log: None }
    }

    fn of(exit: Exit, error: &dyn Error) -> Self {
        Failure::new(exit, describe_error(error))
    }

    /// Adds what a program said, to be printed before the error.
    pub(crate) fn with_log(mut self, log: Option<String>) -> Self {
        self.log = log;
        self
    }

    /// The same failure, ended by a signal if there was one.
    pub(crate) fn signalled(mut self, signal: Option<Exit>) -> Self {
        self.exit = signal.unwrap_or(self.exit);
        self
    }

    /// Prints the log and the one clear error.
    pub(crate) fn report(&self) -> Exit {
        if let Some(log) = &self.log {
            command_line::show!("{log}");
        }
        command_line::say!("pin-build: {}", self.message);
        self.exit
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Failure::of(Exit::HostUnfit, error.as_ref())
    }
}

impl From<RecipeError> for Failure {
    fn from(error: RecipeError) -> Self {
        Failure::of(Exit::BadInput, &error)
    }
}

impl From<PinError> for Failure {
    fn from(error: PinError) -> Self {
        Failure::of(Exit::BadInput, &error)
    }
}

impl From<PatchError> for Failure {
    fn from(error: PatchError) -> Self {
        let exit = match &error {
            PatchError::Git { .. } | PatchError::Io { .. } => Exit::HostUnfit,
            _ => Exit::BadInput,
        };
        Failure::of(exit, &error)
    }
}

impl From<CheckoutError> for Failure {
    fn from(error: CheckoutError) -> Self {
        let exit = match &error {
            CheckoutError::Folder(FolderError::Exists { .. }) => Exit::BadInput,
            CheckoutError::Folder(_) | CheckoutError::Git { .. } => Exit::HostUnfit,
            _ => Exit::BadInput,
        };
        Failure::of(exit, &error)
    }
}

impl From<BuildError> for Failure {
    fn from(error: BuildError) -> Self {
        let exit = match &error {
            BuildError::ProtocolNeedsUpdating(_) => Exit::StopForReview,
            BuildError::NoLockfile { .. } | BuildError::Folder(FolderError::Exists { .. }) => Exit::BadInput,
            BuildError::Failed { .. }
            | BuildError::TimedOut { .. }
            | BuildError::Executables { .. }
            | BuildError::Reused { .. } => Exit::TargetFailed,
            // Without a signal the token is never cancelled; see `Failure::signalled`.
            BuildError::Cancelled { .. } => Exit::Signal(2),
            _ => Exit::HostUnfit,
        };
        Failure::of(exit, &error)
    }
}
