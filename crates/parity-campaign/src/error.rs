use std::error::Error;
use std::fmt;

use crate::stage::Stage;

/// Whose fault it is that a campaign could not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// A file or a value given to the campaign.
    BadInput,
    /// The machine: too few cores, no room, a missing part, an input or output error.
    HostUnfit,
    /// The program under comparison, or its build.
    TargetFailed,
    /// A person must decide: the protocol no longer fits, or a limit was passed.
    StopForReview,
    /// Somebody asked the campaign to stop.
    Cancelled,
    /// We broke an invariant of our own.
    Bug,
}

/// Why a campaign ended without a report: the stage, the row where there is one, and what went wrong.
///
/// What was recorded up to then stays readable in the bundle.
#[derive(Debug)]
pub struct CampaignError {
    /// Where the campaign was.
    pub stage: Stage,
    /// The row at work, if the stage works by rows.
    pub row: Option<String>,
    /// Whose fault it is.
    pub cause: Cause,
    source: Box<dyn Error + Send + Sync>,
}

impl CampaignError {
    pub(crate) fn new(stage: Stage, cause: Cause, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        CampaignError { stage, row: None, cause, source: source.into() }
    }

    pub(crate) fn in_row(mut self, row: &str) -> Self {
        self.row = Some(row.to_owned());
        self
    }

    pub(crate) fn cancelled(stage: Stage) -> Self {
        CampaignError::new(stage, Cause::Cancelled, "interrupted; what was recorded so far is kept")
    }
}

impl fmt::Display for CampaignError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stage {}", self.stage)?;
        if let Some(row) = &self.row {
            write!(f, ", row {row}")?;
        }
        Ok(())
    }
}

impl Error for CampaignError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self.source.as_ref())
    }
}

/// Attaches stage and cause to an error of a library.
pub(crate) trait At<T> {
    fn at(self, stage: Stage, cause: Cause) -> Result<T, CampaignError>;
}

impl<T, E: Into<Box<dyn Error + Send + Sync>>> At<T> for Result<T, E> {
    fn at(self, stage: Stage, cause: Cause) -> Result<T, CampaignError> {
        self.map_err(|error| CampaignError::new(stage, cause, error))
    }
}

/// An error with its causes on one line.
pub(crate) fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
