//! Keeping the waiting thread off the CPUs of the program it waits for.

use std::sync::{Mutex, PoisonError};

use crate::bind;
use crate::procfs;
use crate::set::CpuSet;

/// The affinity of the main thread before it went elsewhere, while it is elsewhere.
static MAIN_THREAD: Mutex<Option<CpuSet>> = Mutex::new(None);

/// The affinity this process was given: its main thread's, unless that thread is elsewhere for a moment.
pub(crate) fn affinity_of_this_process() -> Option<CpuSet> {
    let aside = MAIN_THREAD.lock().unwrap_or_else(PoisonError::into_inner).clone();
    aside.or_else(|| procfs::allowed_cpus(&procfs::text("/proc/self/status")?))
}

fn put_aside(affinity: Option<CpuSet>) {
    if nix::unistd::gettid() == nix::unistd::getpid() {
        *MAIN_THREAD.lock().unwrap_or_else(PoisonError::into_inner) = affinity;
    }
}

/// Keeps the calling thread off a set of CPUs while it lives, where the thread has others to go to.
#[derive(Debug)]
pub(crate) struct Elsewhere {
    original: Option<Vec<u64>>,
    on_set: bool,
}

impl Elsewhere {
    pub(crate) fn than(cpus: Option<&CpuSet>) -> Self {
        let original = cpus.and_then(Self::leave);
        Self { on_set: cpus.is_some() && original.is_none(), original }
    }

    /// Whether the thread had to stay on the set.
    pub(crate) fn is_on_set(&self) -> bool {
        self.on_set
    }

    fn leave(cpus: &CpuSet) -> Option<Vec<u64>> {
        let original = bind::affinity_words(0).ok()?;
        let others = CpuSet::from_words(&original).difference(cpus);
        if others.is_empty() {
            return None;
        }
        put_aside(Some(CpuSet::from_words(&original)));
        if bind::set_affinity(0, others.words()).is_err() {
            put_aside(None);
            return None;
        }
        Some(original)
    }
}

/// Keeps the calling thread off a set of CPUs for good; says whether it had others to go to. For helper threads that
/// must not disturb what runs on the set.
pub fn keep_off(cpus: &CpuSet) -> bool {
    let others = bind::affinity_words(0).map(|words| CpuSet::from_words(&words).difference(cpus));
    others.is_ok_and(|others| !others.is_empty() && bind::set_affinity(0, others.words()).is_ok())
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        if let Some(original) = &self.original {
            // The mask was this thread's own a moment ago; if a cgroup shrank meanwhile, the narrower one stays.
            let _ = bind::set_affinity(0, original);
            put_aside(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_helper_stays_off_the_set_unless_that_leaves_nothing() {
        let allowed = CpuSet::from_words(&bind::affinity_words(0).unwrap());
        let check = |cpus: CpuSet| {
            let off = cpus.clone();
            let helper = std::thread::spawn(move || (keep_off(&off), bind::affinity_words(0).unwrap()));
            let (went, words) = helper.join().unwrap();
            let left = allowed.difference(&cpus);
            assert_eq!(went, !left.is_empty());
            assert_eq!(CpuSet::from_words(&words), if went { left } else { allowed.clone() });
        };
        check(allowed.first().into_iter().collect());
        check(allowed.clone());
        check(CpuSet::new());
    }
}
