//! What a person or a script sees while a campaign runs, and how it ends.

use std::io::{self, Write};
use std::time::Instant;

use command_line::{Exit, MessageFormat, Output, describe_error};
use parity_campaign::{CampaignError, Cause, Conclusion, Progress, Report, Stage, markdown};
use serde_json::{Value, json};

/// A command that could not do what was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Failure { exit, message: message.into() }
    }

    /// Prints the one clear error.
    pub(crate) fn report(&self) -> Exit {
        command_line::say!("parity: {}", self.message);
        self.exit
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Failure::new(Exit::Bug, describe_error(error.as_ref()))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::new(Exit::HostUnfit, format!("write the result: {}", describe_error(&error)))
    }
}

impl From<CampaignError> for Failure {
    fn from(error: CampaignError) -> Self {
        Failure::new(exit_of_cause(error.cause), describe_error(&error))
    }
}

fn exit_of_cause(cause: Cause) -> Exit {
    match cause {
        Cause::BadInput => Exit::BadInput,
        Cause::HostUnfit => Exit::HostUnfit,
        Cause::TargetFailed => Exit::TargetFailed,
        Cause::StopForReview => Exit::StopForReview,
        // The signal itself is known to whoever installed the handlers; see `run`.
        Cause::Cancelled => Exit::Signal(2),
        _ => Exit::Bug,
    }
}

/// The exit code of a report.
pub(crate) fn exit_of(report: &Report) -> Exit {
    match report.conclusion() {
        Conclusion::Pass => Exit::Ok,
        Conclusion::Fail => Exit::Differs,
        Conclusion::Inconclusive => Exit::Inconclusive,
        Conclusion::Unstable => Exit::Unstable,
        Conclusion::TargetFailed => Exit::TargetFailed,
        Conclusion::StopForReview => Exit::StopForReview,
        _ => Exit::Bug,
    }
}

/// Progress on stderr for a person, one event per line on stdout for a script.
pub(crate) struct Console {
    format: MessageFormat,
    start: Instant,
    last: Option<Stage>,
}

impl Console {
    pub(crate) fn new(format: MessageFormat) -> Self {
        Console { format, start: Instant::now(), last: None }
    }

    fn event(&self, event: &Value) {
        if self.format == MessageFormat::Json {
            let mut out = Output::stdout();
            if let Err(error) = writeln!(out, "{event}").and_then(|()| out.flush()) {
                command_line::say!("parity: write an event: {error}");
            }
        }
    }

    fn line(&self, text: &str) {
        if self.format == MessageFormat::Human {
            command_line::say!("parity: {:>7.1} s  {text}", self.start.elapsed().as_secs_f64());
        }
    }

    /// Prints the report.
    pub(crate) fn finish(&self, report: &Report) -> Result<(), Failure> {
        if self.format == MessageFormat::Json {
            self.event(&json!({ "event": "report", "report": report }));
            return Ok(());
        }
        let mut out = Output::stdout();
        out.write_all(markdown(report).as_bytes())?;
        Ok(out.flush()?)
    }
}

impl Progress for Console {
    fn stage(&mut self, stage: Stage) {
        self.event(&json!({ "event": "stage", "stage": stage }));
        if self.last != Some(stage) {
            self.line(&format!("stage {stage}"));
        }
        self.last = Some(stage);
    }

    fn note(&mut self, text: &str) {
        self.event(&json!({ "event": "note", "text": text }));
        self.line(text);
    }
}
