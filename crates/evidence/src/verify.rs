use std::fs::File;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::bundle::recorded_files;
use crate::journal::{JournalError, is_absent, read_bytes, scan};
use crate::layout::{Walk, walk};
use crate::storage::{Storage, StorageError};
use crate::{FileRef, JournalProblem, Manifest, ManifestError, PayloadError, Sha256, Torn, read_manifest};

/// A file with other bytes than recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Altered {
    /// The path inside the bundle.
    pub path: String,
    /// The digest recorded.
    pub recorded_sha256: Sha256,
    /// The size recorded.
    pub recorded_bytes: u64,
    /// The digest found.
    pub found_sha256: Sha256,
    /// The size found.
    pub found_bytes: u64,
}

/// What is left of a bundle.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[must_use = "a verification says whether the evidence can be trusted"]
#[non_exhaustive]
pub struct Verification {
    /// Digest of the manifest, if the bundle is sealed. Compare it with the one that was published.
    pub manifest: Option<Sha256>,
    /// Digest of the last record.
    pub head: Option<Sha256>,
    /// How many records.
    pub records: u64,
    /// How many files were compared.
    pub files: u64,
    /// Size of the files found.
    pub bytes: u64,
    /// Files with other bytes than recorded.
    pub altered: Vec<Altered>,
    /// Recorded files that are not there.
    pub missing: Vec<FileRef>,
    /// Paths that no record names: files, links, folders outside the layout.
    pub added: Vec<String>,
    /// Lines of the journal that broke.
    pub journal: Vec<JournalProblem>,
    /// Paths on which the manifest and the journal disagree.
    pub manifest_against_journal: Vec<String>,
    /// An unfinished line at the end of the journal.
    pub torn: Option<Torn>,
    /// Whether the scratch folder is still there; nothing in it is evidence.
    pub scratch: bool,
}

impl Verification {
    /// Whether the bundle is sealed and everything in it is as it was sealed.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.manifest.is_some() && self.torn.is_none() && self.is_consistent()
    }

    /// Whether everything that was recorded is as it was recorded, sealed or not. A campaign that was killed is
    /// consistent: it may have a torn line, and at most the file being recorded at that moment as an added one.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        self.altered.is_empty()
            && self.missing.is_empty()
            && self.added.is_empty()
            && self.journal.is_empty()
            && self.manifest_against_journal.is_empty()
    }
}

/// A bundle could not be verified at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The directory has no journal.
    #[error("verify the evidence bundle: the directory is not one")]
    NotABundle,
    /// The manifest is there and cannot be read.
    #[error(transparent)]
    Manifest(ManifestError),
    /// A record of a file has a payload that cannot be read.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// The operating system refused.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Compares a bundle with its manifest and its journal, byte for byte.
///
/// An unsealed bundle is compared with its journal alone. Nothing is written, and no lock is taken: it works on a
/// read-only copy.
///
/// # Errors
///
/// The directory is not a bundle, its manifest is not one, or a file cannot be read.
pub fn verify(dir: impl AsRef<Path>) -> Result<Verification, VerifyError> {
    let dir = dir.as_ref();
    let journal = read_bytes(dir).map_err(|error| match error {
        JournalError::Storage(error) => VerifyError::Storage(error),
        _ => VerifyError::NotABundle,
    })?;
    let manifest = match read_manifest(dir) {
        Ok(manifest) => Some(manifest),
        Err(ManifestError::NotSealed) => None,
        Err(error) => return Err(VerifyError::Manifest(error)),
    };
    let scan = scan(&journal, manifest.as_ref().map(|manifest| &manifest.journal));
    let recorded: Vec<FileRef> = recorded_files(&scan.records)?.files.into_values().collect();
    let expected = manifest.as_ref().map_or(&recorded, |manifest| &manifest.files);
    let mut verification = compare(dir, expected, walk(dir)?)?;
    verification.records = scan.records.len() as u64;
    verification.head = scan.records.last().map(|record| record.digest);
    verification.journal = scan.problems;
    verification.torn = scan.torn;
    if let Some(manifest) = manifest {
        verification.manifest_against_journal =
            disagreements(&manifest, &recorded, verification.journal.is_empty());
        verification.manifest = Some(manifest.sha256);
    }
    Ok(verification)
}

/// The paths that only one of the two lists, or that they list differently. A broken journal cannot contradict.
fn disagreements(manifest: &Manifest, recorded: &[FileRef], whole: bool) -> Vec<String> {
    if !whole {
        return Vec::new();
    }
    let one_sided = |left: &[FileRef], right: &[FileRef]| -> Vec<String> {
        left.iter().filter(|file| !right.contains(file)).map(|file| file.path.clone()).collect()
    };
    let mut paths = one_sided(&manifest.files, recorded);
    paths.extend(one_sided(recorded, &manifest.files));
    paths.sort();
    paths.dedup();
    paths
}

/// Compares what should be there, sorted by path, with what is there.
pub(crate) fn compare(dir: &Path, expected: &[FileRef], walk: Walk) -> Result<Verification, StorageError> {
    let mut verification =
        Verification { scratch: walk.scratch, added: walk.foreign, ..Verification::default() };
    let is_expected = |path: &String| expected.binary_search_by(|file| file.path.cmp(path)).is_ok();
    verification.added.extend(walk.files.iter().filter(|path| !is_expected(path)).cloned());
    verification.added.sort();
    for file in expected {
        let found = walk.files.binary_search(&file.path).is_ok();
        match found.then(|| digest(dir, file)).transpose()?.flatten() {
            Some((sha256, bytes)) => verification.count(file, sha256, bytes),
            None => verification.missing.push(file.clone()),
        }
    }
    Ok(verification)
}

fn digest(dir: &Path, file: &FileRef) -> Result<Option<(Sha256, u64)>, StorageError> {
    match File::open(dir.join(&file.path)) {
        Ok(opened) => Sha256::of_reader(opened).storage("read", &file.path).map(Some),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(StorageError::new("read", &file.path, error)),
    }
}

impl Verification {
    fn count(&mut self, recorded: &FileRef, sha256: Sha256, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
        if (recorded.sha256, recorded.bytes) != (sha256, bytes) {
            self.altered.push(Altered {
                path: recorded.path.clone(),
                recorded_sha256: recorded.sha256,
                recorded_bytes: recorded.bytes,
                found_sha256: sha256,
                found_bytes: bytes,
            });
        }
    }
}
