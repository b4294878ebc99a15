//! What every command of kv-replay-parity shares, and nothing else: the one table of [exit codes](Exit), the
//! [message format](MessageFormat) option, [signals](Interrupt) turned into a flag that libraries can poll, and an
//! [output](Output) for which a closed pipe is not an error.
//!
//! A command is then a page: parse, build one library value, call it, print, and map the outcome to an [`Exit`].
//!
//! ```
//! use command_line::{Exit, Output};
//! use std::io::Write;
//!
//! fn command() -> Exit {
//!     let mut out = Output::stdout();
//!     match writeln!(out, "digest 3892ae19") {
//!         Ok(()) => Exit::Ok,
//!         Err(_) => Exit::TargetFailed,
//!     }
//! }
//!
//! assert_eq!(command_line::guard("example", command).code(), 0);
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

/// Says something on stderr, as [`eprintln!`] does, but a reader that has gone away does not stop the command: what it
/// says there is not its result.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => {{
        let _ = ::std::io::Write::write_fmt(
            &mut ::std::io::stderr(),
            ::std::format_args!("{}\n", ::std::format_args!($($text)*)),
        );
    }};
}

/// Shows something on stderr as [`say!`] does, without ending the line.
#[macro_export]
macro_rules! show {
    ($($text:tt)*) => {{
        let _ = ::std::io::Write::write_fmt(&mut ::std::io::stderr(), ::std::format_args!($($text)*));
    }};
}

mod exit;
mod interrupt;
mod message;
mod output;

pub use exit::{Exit, guard};
pub use interrupt::Interrupt;
pub use message::{MessageFormat, describe_error};
pub use output::Output;
