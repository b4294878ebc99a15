use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::layout::MANIFEST;
use crate::storage::{Storage, StorageError};
use crate::{BundlePath, Sha256};

pub(crate) const SCHEMA: &str = "evidence-manifest";
pub(crate) const VERSION: u32 = 1;

/// A file of a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct FileRef {
    /// The path inside the bundle.
    pub path: String,
    /// Digest of the bytes.
    pub sha256: Sha256,
    /// How many bytes.
    pub bytes: u64,
}

impl FileRef {
    /// Reads the file of a bundle, and refuses it if its bytes are not the recorded ones.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or was altered.
    pub fn read(&self, dir: &Path) -> Result<Vec<u8>, ReadError> {
        let bytes = fs::read(dir.join(&self.path)).storage("read", &self.path)?;
        let found = Sha256::of(&bytes);
        match found == self.sha256 {
            true => Ok(bytes),
            false => Err(ReadError::Altered { path: self.path.clone(), recorded: self.sha256, found }),
        }
    }
}

/// A file of a bundle cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Its bytes are not the recorded ones.
    #[error("read `{path}`: its digest is {found}, recorded as {recorded}")]
    Altered {
        /// The path inside the bundle.
        path: String,
        /// The digest recorded.
        recorded: Sha256,
        /// The digest found.
        found: Sha256,
    },
    /// The operating system refused.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// The state of the journal when the bundle was sealed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct JournalHead {
    /// How many lines.
    pub records: u64,
    /// How many bytes.
    pub bytes: u64,
    /// Digest of the whole file.
    pub sha256: Sha256,
    /// Digest of the last line, without its line feed.
    pub head: Sha256,
}

/// The list of everything in a sealed bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the manifest's digest stands for the whole bundle; publish it"]
#[non_exhaustive]
pub struct Manifest {
    /// When the bundle was sealed, milliseconds since 1970.
    pub time_unix_ms: u64,
    /// The journal.
    pub journal: JournalHead,
    /// Every other file, sorted by path.
    pub files: Vec<FileRef>,
    /// Digest of the manifest file itself; it stands for the whole bundle.
    pub sha256: Sha256,
}

/// The manifest as it is stored.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Stored {
    #[cfg_attr(feature = "schema", schemars(extend("const" = SCHEMA)))]
    schema: String,
    #[cfg_attr(feature = "schema", schemars(extend("const" = VERSION)))]
    version: u32,
    time_unix_ms: u64,
    journal: JournalHead,
    files: Vec<FileRef>,
}

/// Only what tells whether the rest can be read.
#[derive(Deserialize)]
struct Header {
    schema: String,
    version: u32,
}

/// The manifest of a bundle could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// There is none: the bundle was never sealed.
    #[error("read `manifest.json`: the bundle is not sealed")]
    NotSealed,
    /// It is not a manifest, or a damaged one.
    #[error("read `manifest.json`: it is not a manifest")]
    Malformed(#[source] serde_json::Error),
    /// It was written by another version.
    #[error(
        "read `manifest.json`: it is {schema} version {version}, and this program reads {SCHEMA} version {VERSION}"
    )]
    Unreadable {
        /// The schema it names.
        schema: String,
        /// The version it names.
        version: u32,
    },
    /// It lists a path that cannot be in a bundle, or its list is not sorted.
    #[error("read `manifest.json`: entry {index}, `{path}`, is out of place")]
    Entry {
        /// Place in the list, from 0.
        index: usize,
        /// The path listed.
        path: String,
    },
    /// The operating system refused.
    #[error(transparent)]
    Storage(StorageError),
}

/// Reads the manifest of a sealed bundle, without comparing it with the files; [`verify`](crate::verify) does that.
///
/// # Errors
///
/// There is none, it cannot be read, or it is not a manifest of a version this crate knows.
pub fn read_manifest(dir: &Path) -> Result<Manifest, ManifestError> {
    match fs::read(dir.join(MANIFEST)) {
        Ok(bytes) => parse(&bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(ManifestError::NotSealed),
        Err(error) => Err(ManifestError::Storage(StorageError::new("read", MANIFEST, error))),
    }
}

fn parse(bytes: &[u8]) -> Result<Manifest, ManifestError> {
    let header: Header = serde_json::from_slice(bytes).map_err(ManifestError::Malformed)?;
    if header.schema != SCHEMA || header.version != VERSION {
        return Err(ManifestError::Unreadable { schema: header.schema, version: header.version });
    }
    let stored: Stored = serde_json::from_slice(bytes).map_err(ManifestError::Malformed)?;
    let mut before: Option<&str> = None;
    for (index, file) in stored.files.iter().enumerate() {
        let sorted = before.is_none_or(|before| before < file.path.as_str());
        if !sorted || file.path.parse::<BundlePath>().is_err() {
            return Err(ManifestError::Entry { index, path: file.path.clone() });
        }
        before = Some(&file.path);
    }
    Ok(Manifest {
        time_unix_ms: stored.time_unix_ms,
        journal: stored.journal,
        files: stored.files,
        sha256: Sha256::of(bytes),
    })
}

/// The bytes of a manifest file, and the manifest they are.
pub(crate) fn render(
    time_unix_ms: u64,
    journal: JournalHead,
    files: Vec<FileRef>,
) -> serde_json::Result<(Vec<u8>, Manifest)> {
    let stored = Stored { schema: SCHEMA.to_owned(), version: VERSION, time_unix_ms, journal, files };
    let mut bytes = serde_json::to_vec_pretty(&stored)?;
    bytes.push(b'\n');
    let sha256 = Sha256::of(&bytes);
    Ok((bytes, Manifest { time_unix_ms, journal: stored.journal, files: stored.files, sha256 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> FileRef {
        FileRef { path: path.to_owned(), sha256: Sha256::of(path.as_bytes()), bytes: 3 }
    }

    fn head() -> JournalHead {
        JournalHead { records: 1, bytes: 2, sha256: Sha256::of(b"a"), head: Sha256::of(b"b") }
    }

    #[test]
    fn what_is_rendered_is_read_back() {
        let (bytes, manifest) = render(7, head(), vec![file("a"), file("logs/b")]).unwrap();
        assert_eq!(parse(&bytes).unwrap(), manifest);
        assert!(bytes.starts_with(b"{\n  \"schema\": \"evidence-manifest\",\n  \"version\": 1,"));
    }

    #[test]
    fn a_manifest_of_another_version_or_out_of_order_is_refused() {
        let (bytes, _) = render(7, head(), vec![file("b"), file("a")]).unwrap();
        assert!(matches!(parse(&bytes), Err(ManifestError::Entry { index: 1, .. })));
        let (bytes, _) = render(7, head(), vec![file("../a")]).unwrap();
        assert!(matches!(parse(&bytes), Err(ManifestError::Entry { index: 0, .. })));
        let (bytes, _) = render(7, head(), vec![]).unwrap();
        let newer = String::from_utf8(bytes).unwrap().replace("\"version\": 1", "\"version\": 2");
        assert!(matches!(parse(newer.as_bytes()), Err(ManifestError::Unreadable { version: 2, .. })));
        assert!(matches!(parse(b"{"), Err(ManifestError::Malformed(_))));
    }
}
