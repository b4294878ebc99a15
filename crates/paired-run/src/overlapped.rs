//! A journal that waits for the disk while the next attempt runs.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use cpu_placement::CpuSet;
use evidence::{StorageError, Syncer};
use serde::{Deserialize, Serialize};

use crate::event::{BoxError, Event, Recorder};

/// When the events of a run are on the disk. Whatever is chosen, an event that was recorded survives the end of the
/// process, SIGKILL included; this is about power cuts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Durability {
    /// The end of an attempt is waited for while the next attempt runs, and before the one after it starts. A power
    /// cut takes at most the attempt in flight and the one before it.
    #[default]
    Overlapped,
    /// Every event is waited for before anything follows from it. A power cut takes at most the attempt in flight.
    Strict,
}

/// Why events cannot be kept as [`Durability::Overlapped`] says.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OverlapError {
    /// The kernel gave no thread.
    #[error("start a thread for the journal")]
    Thread(#[source] std::io::Error),
    /// The storage failed, now or while it was last waited for.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The thread ended before it was told to: a bug of this crate.
    #[error("ask the thread of the journal, which is gone")]
    Gone,
}

/// Keeps events in the journal of an evidence bundle as [`Durability::Overlapped`] says: the wait for the disk is on
/// a thread of its own, away from the CPUs of the measurement.
///
/// An attempt's start is recorded and the disk asked to settle, and the attempt runs meanwhile; before the start after
/// that is recorded, the answer must be there. So at most two attempts are unsettled, one of them in flight, and a disk
/// slower than the attempts holds them up rather than falling behind. Events that are not starts and ends of attempts
/// are waited for at once. [`finish`](Self::finish) is the barrier before a verdict.
#[derive(Debug)]
pub struct OverlappedRecorder<'bundle> {
    bundle: &'bundle evidence::Bundle,
    kind: &'bundle str,
    disk: Disk,
}

impl<'bundle> OverlappedRecorder<'bundle> {
    /// A recorder that appends records of this `kind`, with its thread off `measured`; nothing if that leaves the
    /// thread no CPU, where a [`JournalRecorder`](crate::JournalRecorder) disturbs less.
    ///
    /// # Errors
    /// The kernel gave no descriptor or no thread.
    pub fn new(
        bundle: &'bundle evidence::Bundle,
        kind: &'bundle str,
        measured: &CpuSet,
    ) -> Result<Option<Self>, OverlapError> {
        let disk = Disk::start(bundle.syncer()?, measured.clone()).map_err(OverlapError::Thread)?;
        Ok(disk.map(|disk| Self { bundle, kind, disk }))
    }

    /// Waits until everything that was recorded is on the disk.
    ///
    /// # Errors
    /// The storage failed, now or while it was last waited for.
    pub fn finish(mut self) -> Result<(), OverlapError> {
        self.disk.ask()?;
        self.disk.settle()
    }
}

impl Recorder for OverlappedRecorder<'_> {
    fn record(&mut self, event: &Event) -> Result<(), BoxError> {
        match event {
            Event::AttemptStarted { .. } => {
                self.bundle.append_deferred(self.kind, event)?;
                self.disk.settle()?;
                self.disk.ask()?;
            }
            Event::AttemptEnded { .. } => {
                self.bundle.append_deferred(self.kind, event)?;
            }
            _ => {
                self.disk.settle()?;
                self.bundle.append(self.kind, event)?;
            }
        }
        Ok(())
    }
}

/// The thread that waits for the disk. It sleeps unless it was asked.
#[derive(Debug)]
struct Disk {
    ask: Option<SyncSender<()>>,
    answers: Receiver<Result<(), StorageError>>,
    asked: bool,
    thread: Option<JoinHandle<()>>,
}

impl Disk {
    fn start(syncer: Syncer, measured: CpuSet) -> std::io::Result<Option<Self>> {
        let (ask, asked) = sync_channel::<()>(1);
        let (answer, answers) = sync_channel(1);
        let (place, placed) = sync_channel(1);
        let work = move || {
            let free = measured.is_empty() || cpu_placement::keep_off(&measured);
            // Whoever no longer listens has nothing more to ask.
            let _ = place.send(free);
            for () in asked {
                if answer.send(syncer.sync()).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("journal".to_owned()).spawn(work)?;
        let disk = Self { ask: Some(ask), answers, asked: false, thread: Some(thread) };
        Ok(placed.recv().unwrap_or(false).then_some(disk))
    }

    fn ask(&mut self) -> Result<(), OverlapError> {
        self.settle()?;
        let sent = self.ask.as_ref().map(|ask| ask.send(()));
        sent.and_then(Result::ok).ok_or(OverlapError::Gone)?;
        self.asked = true;
        Ok(())
    }

    /// Waits for what was asked last.
    fn settle(&mut self) -> Result<(), OverlapError> {
        if std::mem::take(&mut self.asked) {
            self.answers.recv().map_err(|_| OverlapError::Gone)??;
        }
        Ok(())
    }
}

/// The thread holds a descriptor of the journal, and with it the lock of the bundle, so it is waited for. What it was
/// last asked and could not do makes the bundle refuse every further record.
impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.ask.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use cpu_placement::CancelToken;
    use evidence::{Bundle, read_journal, verify};

    use super::*;
    use crate::{Fault, PairedRun, RunDefinition, RunOutcome, Scripted, events_of};

    fn definition() -> RunDefinition {
        RunDefinition { pairs: 6, warmups_per_arm: 1, ..RunDefinition::default() }
    }

    fn recorder<'a>(bundle: &'a Bundle) -> OverlappedRecorder<'a> {
        OverlappedRecorder::new(bundle, "run", &CpuSet::new()).unwrap().expect("there is a CPU")
    }

    #[test]
    fn the_journal_holds_what_memory_would() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let bundle = Bundle::create(&path).unwrap();
        let times = || Scripted::new(|attempt| 100.0 + f64::from(attempt.number));
        let interrupted = || times().fault(5, Fault::Error("no space".to_owned()));
        let (mut recorder, mut memory) = (recorder(&bundle), Vec::new());
        for faulty in [true, false] {
            let script = || if faulty { interrupted() } else { times() };
            let events = events_of(&read_journal(&path).unwrap().records, "run").unwrap();
            let mut run = PairedRun::resume(definition(), &events).unwrap();
            let outcome = run.run(&mut script(), &mut recorder, &CancelToken::new());
            let mut twin = PairedRun::resume(definition(), &memory).unwrap();
            let expected = twin.run(&mut script(), &mut memory, &CancelToken::new());
            assert_eq!(outcome.ok(), expected.ok());
        }
        recorder.finish().unwrap();
        assert_eq!(events_of(&read_journal(&path).unwrap().records, "run").unwrap(), memory);
        assert!(bundle.seal().is_ok());
        assert!(verify(&path).unwrap().is_intact());
    }

    #[test]
    fn a_bundle_can_be_opened_once_its_recorder_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let bundle = Bundle::create(&path).unwrap();
        let mut recorder = recorder(&bundle);
        let mut run = PairedRun::new(definition());
        let cancel = CancelToken::new();
        let stopped = run.run(&mut Scripted::new(|_| 1.0).fault(3, Fault::Cancel), &mut recorder, &cancel);
        assert_eq!(stopped.unwrap(), RunOutcome::Cancelled);
        drop(recorder);
        drop(bundle);
        assert!(Bundle::open(&path).is_ok());
    }

    #[test]
    fn without_a_cpu_to_spare_there_is_no_such_recorder() {
        let dir = tempfile::tempdir().unwrap();
        let bundle = Bundle::create(dir.path().join("run")).unwrap();
        let all = cpu_placement::Topology::read().unwrap().online;
        assert!(OverlappedRecorder::new(&bundle, "run", &all).unwrap().is_none());
    }
}
