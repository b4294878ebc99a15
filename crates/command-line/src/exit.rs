use std::panic::{UnwindSafe, catch_unwind};
use std::process::{ExitCode, Termination};

/// How a command ended: one table for every command of the workspace.
///
/// A script can tell apart that the gate said no, that the answers differed, that the machine was unfit, that the
/// arguments were wrong, and that we broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "an exit code that is dropped reports success"]
pub enum Exit {
    /// The command did what was asked, and every verdict it gave is a pass.
    Ok,
    /// The things compared differ, or a verdict is fail.
    Differs,
    /// The command line could not be understood.
    Usage,
    /// The measurement cannot tell pass from fail.
    Inconclusive,
    /// A file or folder given to the command is not what it must be: an input that is malformed, an output that exists.
    BadInput,
    /// This machine cannot do what was asked: too few cores, no room, a missing part.
    HostUnfit,
    /// The program under measurement crashed, hung, or wrote something malformed.
    TargetFailed,
    /// One revision does not agree with itself.
    Unstable,
    /// A person must decide before the campaign may go on.
    StopForReview,
    /// A bug of ours.
    Bug,
    /// Ended by the signal with this number; the code is 128 plus it.
    Signal(u8),
}

impl Exit {
    /// Every kind that is not a signal, with the sentence the documentation gives it.
    pub const TABLE: [(Exit, &'static str); 10] = [
        (Exit::Ok, "ok, or every verdict is a pass"),
        (Exit::Differs, "differs, or a verdict is fail"),
        (Exit::Usage, "the command line could not be understood"),
        (Exit::Inconclusive, "inconclusive: the measurement cannot tell pass from fail"),
        (Exit::BadInput, "bad input: what was named, a file or a place for one, is not what it must be"),
        (Exit::HostUnfit, "host unfit: this machine cannot do what was asked"),
        (
            Exit::TargetFailed,
            "target failed: the measured program crashed, hung or wrote something malformed",
        ),
        (Exit::Unstable, "unstable: one revision does not agree with itself"),
        (Exit::StopForReview, "stop for review: a person must decide first"),
        (Exit::Bug, "a bug of ours; please report it"),
    ];

    /// The number given to the operating system.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Exit::Ok => 0,
            Exit::Differs => 1,
            Exit::Usage => 2,
            Exit::Inconclusive => 3,
            Exit::BadInput => 4,
            Exit::HostUnfit => 5,
            Exit::TargetFailed => 6,
            Exit::Unstable => 7,
            Exit::StopForReview => 8,
            Exit::Bug => 70,
            Exit::Signal(number) => 128_u8.wrapping_add(number),
        }
    }

    /// The table as the end of a `--help` text.
    #[must_use]
    pub fn help_table() -> String {
        let rows = Exit::TABLE.iter().map(|(exit, text)| format!("  {:>3}  {text}\n", exit.code()));
        let mut table = String::from("Exit codes:\n");
        table.extend(rows);
        table.push_str("128+n  ended by signal n");
        table
    }
}

impl Termination for Exit {
    fn report(self) -> ExitCode {
        ExitCode::from(self.code())
    }
}

/// Runs a command and turns a panic into [`Exit::Bug`], after the panic message was printed.
pub fn guard(command: &str, body: impl FnOnce() -> Exit + UnwindSafe) -> Exit {
    catch_unwind(body).unwrap_or_else(|_| {
        crate::say!("{command}: this is a bug of ours; the message above says where");
        Exit::Bug
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_decision() {
        let codes: Vec<u8> = Exit::TABLE.iter().map(|(exit, _)| exit.code()).collect();
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 7, 8, 70]);
        assert_eq!(Exit::Signal(2).code(), 130);
        assert_eq!(Exit::Signal(15).code(), 143);
    }

    #[test]
    fn help_names_every_code() {
        let table = Exit::help_table();
        for (exit, text) in Exit::TABLE {
            assert!(table.contains(&format!("{:>3}  {text}", exit.code())), "{table}");
        }
    }

    #[test]
    fn a_panic_is_our_bug() {
        assert_eq!(guard("test", || panic!("expected in this test")), Exit::Bug);
    }
}
