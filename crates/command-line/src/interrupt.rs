use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::Exit;

/// SIGINT, SIGTERM and SIGHUP, as a flag that a library can poll.
///
/// The first signal asks: libraries see the flag, stop their children, write what they have and return. A second
/// signal ends the process at once; children started with placement die with it.
#[derive(Debug)]
pub struct Interrupt {
    asked: Arc<AtomicBool>,
    number: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Takes over the three signals for the rest of the process.
    ///
    /// # Errors
    ///
    /// The kernel refused to install a handler.
    pub fn install() -> io::Result<Self> {
        let interrupt = Interrupt { asked: Arc::default(), number: Arc::default() };
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            interrupt.register(signal)?;
        }
        Ok(interrupt)
    }

    fn register(&self, signal: i32) -> io::Result<()> {
        // The order matters: the shutdown looks at the flag before this same signal sets it.
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&self.asked))?;
        let number = usize::try_from(signal).map_err(io::Error::other)?;
        flag::register_usize(signal, Arc::clone(&self.number), number)?;
        flag::register(signal, Arc::clone(&self.asked))?;
        Ok(())
    }

    /// The flag that becomes true with the first signal; hand it to a library's cancellation token.
    #[must_use]
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.asked)
    }

    /// The exit code of an interrupted command, once a signal has come.
    #[must_use]
    pub fn exit(&self) -> Option<Exit> {
        match self.number.load(Ordering::SeqCst) {
            0 => None,
            number => Some(Exit::Signal(u8::try_from(number).unwrap_or(u8::MAX - 128))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_signal_sets_the_flag_and_names_itself() {
        let interrupt = Interrupt::install().expect("handlers can be installed");
        assert_eq!(interrupt.exit(), None);
        signal_hook::low_level::raise(SIGTERM).expect("raise");
        assert!(interrupt.flag().load(Ordering::SeqCst));
        assert_eq!(interrupt.exit(), Some(Exit::Signal(15)));
    }
}
