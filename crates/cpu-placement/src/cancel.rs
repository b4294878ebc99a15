//! The one way to ask a waiting call to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that asks a waiting call to stop. Clones share the flag.
///
/// Libraries take a token and never own signals; a command makes one from the flag its signal handler sets.
///
/// ```
/// use cpu_placement::CancelToken;
/// let token = CancelToken::new();
/// let seen_elsewhere = token.clone();
/// token.cancel();
/// assert!(seen_elsewhere.is_cancelled());
/// ```
#[derive(Debug, Clone, Default)]
pub struct CancelToken {
    flag: Arc<AtomicBool>,
}

impl CancelToken {
    /// A token nobody has cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// A token that reads `flag`, for example one that a signal handler sets.
    pub fn from_flag(flag: Arc<AtomicBool>) -> Self {
        Self { flag }
    }

    /// Asks every holder of a clone to stop. There is no way back.
    pub fn cancel(&self) {
        self.flag.store(true, Ordering::SeqCst);
    }

    /// Whether somebody asked to stop.
    pub fn is_cancelled(&self) -> bool {
        self.flag.load(Ordering::SeqCst)
    }
}
