//! Artifacts of earlier builds, taken over where everything that shapes one is the same.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use canonical_json::Sha256;
use serde::Serialize;

use crate::artifact::place;
use crate::record::{BUILD_VERSION, BuildRecord};

/// Where the artifact of one key is, or would be.
pub(crate) struct Entry {
    folder: PathBuf,
}

const ARTIFACT: &str = "artifact";
const RECORD: &str = "record.json";
const LOG: &str = "build.log";

/// What a stored build was made of and what it said.
pub(crate) struct Stored {
    pub(crate) record: BuildRecord,
    pub(crate) log: Vec<u8>,
}

impl Entry {
    /// The entry of everything that shapes an artifact. What the key is made of is the caller's to state whole.
    pub(crate) fn of(store: &Path, key: &impl Serialize) -> io::Result<Self> {
        let bytes = serde_json::to_vec(&(BUILD_VERSION, key)).map_err(io::Error::from)?;
        Ok(Entry { folder: store.join(Sha256::of(&bytes).to_string()) })
    }

    /// Copies the stored artifact to `artifact`; `None` when there is none. The caller checks the copy against the record.
    pub(crate) fn take(&self, artifact: &Path) -> io::Result<Option<Stored>> {
        let record = match fs::read(self.folder.join(RECORD)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => serde_json::from_slice(&read?).map_err(io::Error::from)?,
        };
        let log = fs::read(self.folder.join(LOG))?;
        place(&fs::read(self.folder.join(ARTIFACT))?, artifact)?;
        Ok(Some(Stored { record, log }))
    }

    /// Keeps an artifact, unless its bytes depend on where it was built or its build changed the sources.
    pub(crate) fn keep(&self, artifact: &Path, log: &Path, record: &BuildRecord) -> io::Result<()> {
        if !record.artifact.host_paths.is_empty() || !record.changed_sources.is_empty() {
            return Ok(());
        }
        let Some(store) = self.folder.parent() else { return Ok(()) };
        fs::create_dir_all(store)?;
        let fresh = tempfile::Builder::new().prefix("new-").tempdir_in(store)?;
        fs::copy(artifact, fresh.path().join(ARTIFACT))?;
        fs::copy(log, fresh.path().join(LOG))?;
        fs::write(fresh.path().join(RECORD), serde_json::to_vec_pretty(record).map_err(io::Error::from)?)?;
        match fs::rename(fresh.path(), &self.folder) {
            Ok(()) => {
                // It has its final name, and nothing is left to remove.
                let _ = fresh.keep();
                Ok(())
            }
            // Somebody else built the same meanwhile.
            Err(_) if self.folder.is_dir() => Ok(()),
            Err(error) => Err(error),
        }
    }
}
