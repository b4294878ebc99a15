use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use canonical_json::Rules;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::file::{FileWriter, Pending, Temporary, make_parents, sync_parent};
use crate::journal::{
    JournalError, JournalProblem, JournalWriter, Record, Syncer, Wait, is_absent, read_bytes, scan, unix_ms,
};
use crate::layout::{JOURNAL, LAYOUT_VERSION, MANIFEST, RECOVERED, SCRATCH, TEMPORARY, sync_dir, walk};
use crate::manifest::{self, Manifest};
use crate::storage::{Storage, StorageError};
use crate::{Altered, BundlePath, FileRef, PathError, PayloadError, Recovery, SetAside, Sha256, TornLine};

/// An evidence bundle that this process writes.
///
/// Threads may share it; records keep the order in which the calls were made. A second process is refused.
#[derive(Debug)]
pub struct Bundle {
    dir: PathBuf,
    state: Mutex<State>,
    recovery: Recovery,
}

#[derive(Debug)]
struct State {
    journal: JournalWriter,
    files: BTreeMap<String, FileRef>,
}

/// Where a record stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// Number of the record, from 0.
    pub seq: u64,
    /// Digest of its line.
    pub digest: Sha256,
}

/// A bundle could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The directory is there already; a new bundle never mixes with what exists.
    #[error("create an evidence bundle: the directory exists already")]
    Exists,
    /// The operating system refused.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The first record could not be written.
    #[error(transparent)]
    Append(#[from] AppendError),
}

/// A bundle could not be opened to continue it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The directory has no journal.
    #[error("open the evidence bundle: the directory is not one")]
    NotABundle,
    /// Another process has it open.
    #[error("open the evidence bundle: another process is writing it")]
    Locked,
    /// It was sealed; [`Bundle::reopen`] takes the seal off.
    #[error("open the evidence bundle: it is sealed")]
    Sealed,
    /// It is not sealed, and only a sealed one can be reopened.
    #[error("reopen the evidence bundle: it is not sealed")]
    NotSealed,
    /// The chain of the journal is broken.
    #[error("open the evidence bundle: {0}")]
    Broken(JournalProblem),
    /// A record of this crate's own has a payload it cannot read.
    #[error("open the evidence bundle")]
    Payload(#[from] PayloadError),
    /// The operating system refused.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// What was found could not be recorded.
    #[error(transparent)]
    Append(#[from] AppendError),
}

/// A record could not be appended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// A kind is lower-case letters, digits, `-` and `.`, and does not begin with `bundle.`.
    #[error("append a record of kind `{0}`: the name is not allowed")]
    Kind(String),
    /// The payload cannot be written as JSON.
    #[error("append a record of kind `{kind}`: its payload cannot be written as JSON")]
    Payload {
        /// The kind of the record.
        kind: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// An earlier write failed so that nobody knows what is on the disk; the bundle must be opened again.
    #[error("append a record of kind `{0}`: an earlier write to the journal failed")]
    Failed(String),
    /// The operating system refused.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// A file could not be written into the bundle.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The path cannot be one inside a bundle.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The path is recorded already, or a file is there; evidence is not overwritten.
    #[error("write `{0}`: it is there already")]
    Exists(String),
    /// There is no such file to replace or record.
    #[error("write `{0}`: there is no such file")]
    Missing(String),
    /// It is a link, a folder or a device.
    #[error("write `{0}`: it is not a regular file")]
    NotAFile(String),
    /// The operating system refused.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The file could not be recorded.
    #[error(transparent)]
    Append(#[from] AppendError),
}

/// A file could not be removed from the bundle.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoveError {
    /// The path cannot be one inside a bundle.
    #[error(transparent)]
    Path(#[from] PathError),
    /// No record names it.
    #[error("remove `{0}`: no record names it")]
    Unrecorded(String),
    /// The operating system refused.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The removal could not be recorded.
    #[error(transparent)]
    Append(#[from] AppendError),
}

/// A bundle could not be sealed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// What is on the disk is not what was recorded.
    #[error(
        "seal the evidence bundle: {} altered, {} missing and {} unrecorded files, the first is `{}`",
        altered.len(), missing.len(), added.len(), first(altered, missing, added)
    )]
    Differs {
        /// Files with other bytes than recorded.
        altered: Vec<Altered>,
        /// Recorded files that are not there.
        missing: Vec<FileRef>,
        /// Files that no record names.
        added: Vec<String>,
    },
    /// The operating system refused.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The seal could not be recorded.
    #[error(transparent)]
    Append(#[from] AppendError),
}

fn first<'a>(altered: &'a [Altered], missing: &'a [FileRef], added: &'a [String]) -> &'a str {
    let altered = altered.first().map(|file| file.path.as_str());
    let missing = missing.first().map(|file| file.path.as_str());
    altered.or(missing).or(added.first().map(String::as_str)).unwrap_or_default()
}

pub(crate) const CREATED: &str = "bundle.created";
pub(crate) const OPENED: &str = "bundle.opened";
pub(crate) const REOPENED: &str = "bundle.reopened";
pub(crate) const WRITTEN: &str = "bundle.file-written";
pub(crate) const REMOVED: &str = "bundle.file-removed";
pub(crate) const SEALED: &str = "bundle.sealed";

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Created {
    layout: u32,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Reopened {
    manifest: Sha256,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Sealed {
    files: usize,
}

#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Written {
    path: String,
    sha256: Sha256,
    bytes: u64,
    replaces: Option<Sha256>,
}

#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Removed {
    path: String,
    sha256: Sha256,
    bytes: u64,
    reason: String,
}

impl Bundle {
    /// Starts a bundle in a directory that does not exist yet; its parents are made.
    ///
    /// # Errors
    ///
    /// The directory exists, or the operating system refused.
    pub fn create(dir: impl AsRef<Path>) -> Result<Bundle, CreateError> {
        let dir = dir.as_ref();
        make_new_dir(dir)?;
        let file = OpenOptions::new().append(true).create_new(true).open(dir.join(JOURNAL));
        let file = file.storage("create", JOURNAL)?;
        file.try_lock().map_err(io::Error::from).storage("lock", JOURNAL)?;
        sync_dir(dir).and_then(|()| sync_parent(dir)).storage("create", ".")?;
        let bundle = Bundle::new(dir, JournalWriter::new(file, 0, 0, None), BTreeMap::new());
        bundle.record(CREATED, &Created { layout: LAYOUT_VERSION })?;
        Ok(bundle)
    }

    /// Continues a bundle that was not sealed, whatever its last writer left behind.
    ///
    /// A torn last line is moved into a file of its own, temporary files are deleted, recorded removals are carried
    /// out, and all of that is the payload of the next record; see [`Bundle::recovery`].
    ///
    /// # Errors
    ///
    /// The directory is not a bundle, is being written, is sealed, has a broken chain, or the operating system refused.
    pub fn open(dir: impl AsRef<Path>) -> Result<Bundle, OpenError> {
        let dir = dir.as_ref();
        let (journal, bytes) = lock_journal(dir)?;
        if dir.join(MANIFEST).try_exists().storage("look for", MANIFEST)? {
            return Err(OpenError::Sealed);
        }
        Opening::new(dir, journal, &bytes)?.finish()
    }

    /// The same, but waits while another process is writing it, at most for `patience`.
    ///
    /// The remains of a writer that was killed hold the bundle for a moment: a program that it was just starting has
    /// copies of its files until it runs, which takes its time on a busy machine.
    ///
    /// # Errors
    ///
    /// As for [`Bundle::open`].
    pub fn open_within(dir: impl AsRef<Path>, patience: Duration) -> Result<Bundle, OpenError> {
        let start = Instant::now();
        loop {
            match Bundle::open(&dir) {
                Err(OpenError::Locked) if start.elapsed() < patience => std::thread::sleep(RETRY),
                opened => return opened,
            }
        }
    }

    /// Takes the seal off a sealed bundle, for example to add a report made later. The record names the manifest that
    /// no longer holds.
    ///
    /// # Errors
    ///
    /// As for [`Bundle::open`]; and the bundle is not sealed.
    pub fn reopen(dir: impl AsRef<Path>) -> Result<Bundle, OpenError> {
        let dir = dir.as_ref();
        let (journal, bytes) = lock_journal(dir)?;
        let manifest = match fs::read(dir.join(MANIFEST)) {
            Ok(manifest) => Sha256::of(&manifest),
            Err(error) if is_absent(&error) => return Err(OpenError::NotSealed),
            Err(error) => return Err(StorageError::new("read", MANIFEST, error).into()),
        };
        let bundle = Opening::new(dir, journal, &bytes)?.finish()?;
        bundle.record(REOPENED, &Reopened { manifest })?;
        fs::remove_file(dir.join(MANIFEST)).and_then(|()| sync_dir(dir)).storage("remove", MANIFEST)?;
        Ok(bundle)
    }

    fn new(dir: &Path, journal: JournalWriter, files: BTreeMap<String, FileRef>) -> Bundle {
        let state = Mutex::new(State { journal, files });
        Bundle { dir: dir.to_owned(), state, recovery: Recovery::default() }
    }

    /// The directory of the bundle.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The folder for checkouts, build trees and the like, made when first asked for. It is not evidence: nothing in
    /// it is recorded, sealed or verified, and removing it is the caller's business.
    ///
    /// # Errors
    ///
    /// The operating system refused to make it.
    pub fn scratch(&self) -> Result<PathBuf, StorageError> {
        let scratch = self.dir.join(SCRATCH);
        fs::create_dir_all(&scratch).storage("make", SCRATCH)?;
        Ok(scratch)
    }

    /// What the previous writer had not finished; clean for a bundle that was just created.
    #[must_use]
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Every recorded file, sorted by path.
    #[must_use]
    pub fn files(&self) -> Vec<FileRef> {
        self.state().files.values().cloned().collect()
    }

    /// The record of one file.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<FileRef> {
        self.state().files.get(path).cloned()
    }

    /// Adds a record to the journal. When the call returns, the record is on the disk.
    ///
    /// # Errors
    ///
    /// The kind is not allowed, the payload cannot be written as JSON, or the storage failed. After a failed write
    /// the journal ends with the last whole record, or the bundle refuses every further record.
    pub fn append(&self, kind: &str, payload: &impl Serialize) -> Result<Entry, AppendError> {
        check_kind(kind)?;
        self.record(kind, payload)
    }

    /// Adds a record to the journal without waiting for the disk. When the call returns, the record survives the end
    /// of this process however it comes; a power cut may still take it and what was appended after it, never anything
    /// before it that was waited for.
    ///
    /// It is waited for by the next [`Bundle::append`], by every call that records a file, by [`Bundle::seal`], and by
    /// a [`Syncer`], which may do so on another thread. It is for a writer whose next step must not wait and that says
    /// what it may lose.
    ///
    /// # Errors
    ///
    /// As for [`Bundle::append`].
    pub fn append_deferred(&self, kind: &str, payload: &impl Serialize) -> Result<Entry, AppendError> {
        check_kind(kind)?;
        append_to(&mut self.state(), kind, payload, Wait::ForNothing)
    }

    /// What waits for the disk while records are appended.
    ///
    /// # Errors
    ///
    /// The operating system gave no descriptor.
    pub fn syncer(&self) -> Result<Syncer, StorageError> {
        self.state().journal.syncer().storage("open", JOURNAL)
    }

    /// Writes a file and records it.
    ///
    /// # Errors
    ///
    /// The path is not allowed or recorded already, or the storage failed.
    pub fn write_file(&self, path: &str, bytes: &[u8]) -> Result<FileRef, WriteError> {
        self.write_whole(path, bytes, false)
    }

    /// Replaces a recorded file; the record names the digest of the file that is gone.
    ///
    /// # Errors
    ///
    /// The path is not allowed or not recorded, or the storage failed.
    pub fn replace_file(&self, path: &str, bytes: &[u8]) -> Result<FileRef, WriteError> {
        if self.file(path).is_none() {
            return Err(WriteError::Missing(path.to_owned()));
        }
        self.write_whole(path, bytes, true)
    }

    fn write_whole(&self, path: &str, bytes: &[u8], replace: bool) -> Result<FileRef, WriteError> {
        let mut writer = self.writer(path, replace)?;
        writer.write_all(bytes).storage("write", path)?;
        writer.finish()
    }

    /// Starts a file that is written piece by piece.
    ///
    /// # Errors
    ///
    /// The path is not allowed or recorded already, or the storage failed.
    pub fn stream(&self, path: &str) -> Result<FileWriter<'_>, WriteError> {
        self.writer(path, false)
    }

    fn writer(&self, path: &str, replace: bool) -> Result<FileWriter<'_>, WriteError> {
        let path: BundlePath = path.parse()?;
        self.refuse_recorded(&path, replace)?;
        Ok(FileWriter::new(self, path, replace)?)
    }

    fn refuse_recorded(&self, path: &BundlePath, replace: bool) -> Result<(), WriteError> {
        match self.file(path.as_str()) {
            Some(_) if !replace => Err(WriteError::Exists(path.to_string())),
            _ => Ok(()),
        }
    }

    /// Moves a finished file from elsewhere into the bundle and records it.
    ///
    /// # Errors
    ///
    /// The path is not allowed or recorded already, the source is not a regular file, or the storage failed.
    pub fn adopt_file(&self, path: &str, source: &Path) -> Result<FileRef, WriteError> {
        let path: BundlePath = path.parse()?;
        self.refuse_recorded(&path, false)?;
        require_regular(source, path.as_str())?;
        let mut pending = FileWriter::new(self, path.clone(), false)?;
        let mut from = File::open(source).storage("read the source of", path.as_str())?;
        io::copy(&mut from, &mut pending).storage("copy", path.as_str())?;
        let file = pending.finish()?;
        fs::remove_file(source).storage("remove the source of", path.as_str())?;
        Ok(file)
    }

    /// Records a file that is in its place already, for example a log that a child process wrote there.
    ///
    /// # Errors
    ///
    /// The path is not allowed or recorded already, is not a regular file, or the storage failed.
    pub fn record_file(&self, path: &str) -> Result<FileRef, WriteError> {
        let path: BundlePath = path.parse()?;
        self.refuse_recorded(&path, false)?;
        let full = path.below(&self.dir);
        require_regular(&full, path.as_str())?;
        let file = File::open(&full).storage("read", path.as_str())?;
        let (sha256, bytes) = Sha256::of_reader(&file).storage("read", path.as_str())?;
        file.sync_all().and_then(|()| sync_parent(&full)).storage("write", path.as_str())?;
        let file = FileRef { path: path.to_string(), sha256, bytes };
        self.record_written(&mut self.state(), file, false)
    }

    pub(crate) fn place(
        &self,
        path: &BundlePath,
        file: FileRef,
        temporary: Temporary,
        replace: bool,
    ) -> Result<FileRef, WriteError> {
        let mut state = self.state();
        // Not recorded is not enough: a child process may have put a file there that nobody recorded yet.
        let taken = state.files.contains_key(path.as_str())
            || path.below(&self.dir).try_exists().storage("look for", path.as_str())?;
        if taken && !replace {
            return Err(WriteError::Exists(path.to_string()));
        }
        temporary.rename(&self.dir, path.as_str())?;
        self.record_written(&mut state, file, replace)
    }

    fn record_written(&self, state: &mut State, file: FileRef, replace: bool) -> Result<FileRef, WriteError> {
        let before = state.files.get(&file.path).map(|before| before.sha256);
        if before.is_some() && !replace {
            return Err(WriteError::Exists(file.path));
        }
        let FileRef { path, sha256, bytes } = file.clone();
        append_to(state, WRITTEN, &Written { path, sha256, bytes, replaces: before }, Wait::ForTheDisk)?;
        state.files.insert(file.path.clone(), file.clone());
        Ok(file)
    }

    /// Removes a recorded file. The record comes first: a writer killed in between leaves a file that the next
    /// [`Bundle::open`] removes, never a file that is gone without a word.
    ///
    /// # Errors
    ///
    /// No record names the file, or the storage failed.
    pub fn remove_file(&self, path: &str, reason: &str) -> Result<FileRef, RemoveError> {
        let path: BundlePath = path.parse()?;
        let mut state = self.state();
        let file = state.files.get(path.as_str()).cloned();
        let file = file.ok_or_else(|| RemoveError::Unrecorded(path.to_string()))?;
        let FileRef { path: name, sha256, bytes } = file.clone();
        let removed = Removed { path: name, sha256, bytes, reason: reason.to_owned() };
        append_to(&mut state, REMOVED, &removed, Wait::ForTheDisk)?;
        state.files.remove(path.as_str());
        remove_durably(&path.below(&self.dir)).storage("remove", path.as_str())?;
        Ok(file)
    }

    /// Ends the bundle: every file is read again and compared with its record, and the manifest is written.
    ///
    /// # Errors
    ///
    /// A file was altered, removed or added since it was recorded, or the storage failed. The bundle stays unsealed.
    pub fn seal(self) -> Result<Manifest, SealError> {
        let files = self.files();
        refuse_differences(&self.dir, &files)?;
        self.record(SEALED, &Sealed { files: files.len() })?;
        let journal = fs::read(self.dir.join(JOURNAL)).storage("read", JOURNAL)?;
        let head = self.state().journal.head(&journal);
        // `record` above has just written a line, so there is a last one.
        let head =
            head.ok_or_else(|| StorageError::new("read", JOURNAL, io::ErrorKind::UnexpectedEof.into()))?;
        let (bytes, manifest) =
            manifest::render(unix_ms(), head, files).map_err(io::Error::from).storage("write", MANIFEST)?;
        self.write_manifest(&bytes)?;
        Ok(manifest)
    }

    fn write_manifest(&self, bytes: &[u8]) -> Result<(), StorageError> {
        let temporary = self.dir.join(TEMPORARY);
        let pending = temporary.join(MANIFEST);
        fs::create_dir_all(&temporary).storage("make a place for", MANIFEST)?;
        write_synced(&pending, bytes).storage("write", MANIFEST)?;
        fs::rename(&pending, self.dir.join(MANIFEST)).storage("put in place", MANIFEST)?;
        fs::remove_dir_all(&temporary).storage("remove", TEMPORARY)?;
        sync_dir(&self.dir).storage("put in place", MANIFEST)
    }

    fn record(&self, kind: &str, payload: &impl Serialize) -> Result<Entry, AppendError> {
        append_to(&mut self.state(), kind, payload, Wait::ForTheDisk)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A thread that panicked while it held the lock left the state either before or after a record; the journal
        // writer itself knows when it is neither.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn append_to(
    state: &mut State,
    kind: &str,
    payload: &impl Serialize,
    wait: Wait,
) -> Result<Entry, AppendError> {
    let payload =
        canonical(payload).map_err(|source| AppendError::Payload { kind: kind.to_owned(), source })?;
    if state.journal.has_failed() {
        return Err(AppendError::Failed(kind.to_owned()));
    }
    Ok(state.journal.append(kind, &payload, wait).storage("append to", JOURNAL)?)
}

/// The payload with its keys sorted, so that equal payloads are equal bytes.
fn canonical(payload: &impl Serialize) -> Result<Box<RawValue>, Box<dyn std::error::Error + Send + Sync>> {
    let bytes = serde_json::to_vec(payload)?;
    let mut sorted = Vec::with_capacity(bytes.len());
    canonical_json::canonicalize(&bytes, &Rules::default(), &mut sorted)?;
    Ok(RawValue::from_string(String::from_utf8(sorted)?)?)
}

fn check_kind(kind: &str) -> Result<(), AppendError> {
    if is_kind(kind) { Ok(()) } else { Err(AppendError::Kind(kind.to_owned())) }
}

fn is_kind(kind: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    !kind.is_empty() && kind.chars().all(allowed) && !kind.starts_with("bundle.")
}

fn make_new_dir(dir: &Path) -> Result<(), CreateError> {
    if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent).storage("make the parents of", ".")?;
    }
    match fs::create_dir(dir) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(CreateError::Exists),
        Err(error) => Err(StorageError::new("create", ".", error).into()),
    }
}

fn require_regular(full: &Path, path: &str) -> Result<(), WriteError> {
    match fs::symlink_metadata(full) {
        Ok(metadata) if metadata.is_file() => Ok(()),
        Ok(_) => Err(WriteError::NotAFile(path.to_owned())),
        Err(error) if is_absent(&error) => Err(WriteError::Missing(path.to_owned())),
        Err(error) => Err(StorageError::new("look at", path, error).into()),
    }
}

fn remove_durably(full: &Path) -> io::Result<()> {
    match fs::remove_file(full) {
        Err(error) if !is_absent(&error) => Err(error),
        _ => sync_parent(full),
    }
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// How often a waiting [`Bundle::open_within`] tries again.
const RETRY: Duration = Duration::from_millis(20);

fn lock_journal(dir: &Path) -> Result<(File, Vec<u8>), OpenError> {
    let file = match OpenOptions::new().append(true).open(dir.join(JOURNAL)) {
        Ok(file) => file,
        Err(error) if is_absent(&error) => return Err(OpenError::NotABundle),
        Err(error) => return Err(StorageError::new("open", JOURNAL, error).into()),
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(OpenError::Locked),
        Err(TryLockError::Error(error)) => return Err(StorageError::new("lock", JOURNAL, error).into()),
    }
    let bytes = read_bytes(dir).map_err(|error| match error {
        JournalError::Storage(error) => OpenError::Storage(error),
        _ => OpenError::NotABundle,
    })?;
    Ok((file, bytes))
}

fn refuse_differences(dir: &Path, files: &[FileRef]) -> Result<(), SealError> {
    let walk = walk(dir)?;
    let compared = crate::verify::compare(dir, files, walk)?;
    if compared.altered.is_empty() && compared.missing.is_empty() && compared.added.is_empty() {
        return Ok(());
    }
    Err(SealError::Differs { altered: compared.altered, missing: compared.missing, added: compared.added })
}

/// The files that the records say are there, and those they say are not.
#[derive(Default)]
pub(crate) struct Recorded {
    pub(crate) files: BTreeMap<String, FileRef>,
    pub(crate) removed: BTreeMap<String, FileRef>,
}

/// Plays the records of files from the first to the last.
pub(crate) fn recorded_files(records: &[Record]) -> Result<Recorded, PayloadError> {
    let mut recorded = Recorded::default();
    for record in records {
        match record.kind.as_str() {
            WRITTEN => {
                let Written { path, sha256, bytes, .. } = record.payload()?;
                recorded.removed.remove(&path);
                recorded.files.insert(path.clone(), FileRef { path, sha256, bytes });
            }
            REMOVED => {
                let Removed { path, sha256, bytes, .. } = record.payload()?;
                recorded.files.remove(&path);
                recorded.removed.insert(path.clone(), FileRef { path, sha256, bytes });
            }
            _ => {}
        }
    }
    Ok(recorded)
}

/// The steps from a journal that somebody left to one that can be continued.
struct Opening<'a> {
    dir: &'a Path,
    journal: JournalWriter,
    recorded: Recorded,
    recovery: Recovery,
}

impl<'a> Opening<'a> {
    fn new(dir: &'a Path, file: File, bytes: &[u8]) -> Result<Self, OpenError> {
        let mut scan = scan(bytes, None);
        if !scan.problems.is_empty() {
            return Err(OpenError::Broken(scan.problems.swap_remove(0)));
        }
        let recorded = recorded_files(&scan.records)?;
        let head = scan.records.last().map(|record| record.digest);
        let journal = JournalWriter::new(file, bytes.len() as u64, scan.records.len() as u64, head);
        let mut opening = Opening { dir, journal, recorded, recovery: Recovery::default() };
        if let Some(torn) = scan.torn {
            let at = usize::try_from(torn.offset_bytes).unwrap_or(bytes.len());
            opening.set_aside(torn.offset_bytes, &bytes[at..])?;
        }
        Ok(opening)
    }

    /// First the torn bytes are safe under another name, then the journal is cut; a kill in between repeats the step.
    fn set_aside(&mut self, offset_bytes: u64, torn: &[u8]) -> Result<(), StorageError> {
        let line = TornLine::new(self.journal.records(), offset_bytes, torn);
        // The name was made by this crate out of a folder of the layout and a number.
        let path: BundlePath =
            line.kept_as.parse().map_err(io::Error::other).storage("set aside", JOURNAL)?;
        let mut pending = Pending::create(self.dir, &path)?;
        pending.write_all(torn).storage("write", path.as_str())?;
        pending.complete(&path)?.1.rename(self.dir, path.as_str())?;
        self.journal.truncate(offset_bytes)?;
        self.recovery.torn = Some(line);
        Ok(())
    }

    fn finish(mut self) -> Result<Bundle, OpenError> {
        let first = self.journal.records() == 0;
        self.discard_temporaries()?;
        let recovered = self.compare_files()?;
        let Opening { dir, journal, recorded, recovery } = self;
        let mut bundle = Bundle::new(dir, journal, recorded.files);
        if first {
            bundle.record(CREATED, &Created { layout: LAYOUT_VERSION })?;
        }
        bundle.record(OPENED, &recovery)?;
        for path in &recovered {
            record_recovered(&bundle, path)?;
        }
        bundle.recovery = recovery;
        Ok(bundle)
    }

    fn discard_temporaries(&mut self) -> Result<(), StorageError> {
        let temporary = self.dir.join(TEMPORARY);
        let entries = match fs::read_dir(&temporary) {
            Ok(entries) => entries,
            Err(error) if is_absent(&error) => return Ok(()),
            Err(error) => return Err(StorageError::new("list", TEMPORARY, error)),
        };
        for entry in entries {
            let entry = entry.storage("list", TEMPORARY)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            fs::remove_file(entry.path()).storage("remove", &name)?;
            self.recovery.discarded_temporaries.push(name);
        }
        self.recovery.discarded_temporaries.sort();
        Ok(())
    }

    /// Carries out removals, sets aside what no record names, and returns what is under `recovered/` without a record:
    /// the files of this opening, and those of one that was killed before it could record them.
    fn compare_files(&mut self) -> Result<Vec<String>, StorageError> {
        let walk = walk(self.dir)?;
        let mut recovered = Vec::new();
        for path in walk.files {
            if self.recorded.removed.contains_key(&path) {
                remove_durably(&self.dir.join(&path)).storage("remove", &path)?;
                self.recovery.finished_removals.push(path);
            } else if path.starts_with(&format!("{RECOVERED}/")) && !self.recorded.files.contains_key(&path) {
                recovered.push(path);
            } else if !self.recorded.files.contains_key(&path) {
                recovered.push(self.move_aside(path)?);
            }
        }
        self.recovery.foreign = walk.foreign;
        for path in self.recorded.files.keys() {
            if !self.dir.join(path).try_exists().storage("look for", path)? {
                self.recovery.missing.push(path.clone());
            }
        }
        Ok(recovered)
    }

    fn move_aside(&mut self, path: String) -> Result<String, StorageError> {
        let aside = SetAside::new(self.journal.records(), path);
        let (from, to) = (self.dir.join(&aside.path), self.dir.join(&aside.kept_as));
        make_parents(self.dir, &aside.kept_as)?;
        let moved = fs::rename(&from, &to).and_then(|()| sync_parent(&to)).and_then(|()| sync_parent(&from));
        moved.storage("set aside", &aside.path)?;
        let kept_as = aside.kept_as.clone();
        self.recovery.set_aside.push(aside);
        Ok(kept_as)
    }
}

fn record_recovered(bundle: &Bundle, path: &str) -> Result<(), OpenError> {
    match bundle.record_file(path) {
        Ok(_) => Ok(()),
        Err(WriteError::Storage(error)) => Err(error.into()),
        Err(WriteError::Append(error)) => Err(error.into()),
        Err(other) => Err(StorageError::new("record", path, io::Error::other(other)).into()),
    }
}

#[cfg(test)]
#[path = "bundle/tests.rs"]
mod tests;
