use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use canonical_json::Sha256;
use object::{Object, ObjectSection};
use serde::{Deserialize, Serialize};

use crate::host_paths::HostPaths;

/// The executable of one revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Artifact {
    /// The name of its file.
    pub name: String,
    /// Digest of its bytes.
    pub sha256: Sha256,
    /// Its size.
    pub bytes: u64,
    /// Size of its `.text` section, read from the executable itself.
    pub text_bytes: u64,
    /// Host paths that are in it nevertheless, by name, with how often (`{seed}` is where a reused package was compiled): `env!("CARGO_MANIFEST_DIR")` and the like
    /// cannot be mapped. With any, its bytes depend on where it was built.
    pub host_paths: BTreeMap<String, u64>,
}

/// An executable cannot be taken over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArtifactError {
    /// Its file cannot be read or written.
    #[error("{action} the artifact {}", path.display())]
    Io {
        /// What was attempted.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// It is not an executable that can be read.
    #[error("read the sections of {}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What the reader says.
        #[source]
        source: object::Error,
    },
    /// It has no code section.
    #[error("read the sections of {}: there is no `.text`", path.display())]
    NoText {
        /// The file.
        path: PathBuf,
    },
    /// Its bytes are no longer those that were recorded.
    #[error("use the artifact {}: its digest is {found}, recorded as {recorded}", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// The digest recorded.
        recorded: Sha256,
        /// The digest found.
        found: Sha256,
    },
}

impl ArtifactError {
    fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| ArtifactError::Io { action, path, source }
    }
}

impl Artifact {
    /// Refuses a file whose bytes are not the recorded ones. Call it before every use that counts.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or was changed.
    pub fn check(&self, path: &Path) -> Result<(), ArtifactError> {
        let (found, _) = Sha256::of_file(path).map_err(ArtifactError::io("read", path))?;
        match found == self.sha256 {
            true => Ok(()),
            false => Err(ArtifactError::Changed { path: path.to_owned(), recorded: self.sha256, found }),
        }
    }
}

/// Copies an executable to its place, whole or not at all, and describes the copy.
pub(crate) fn take(built: &Path, to: &Path, paths: &HostPaths) -> Result<Artifact, ArtifactError> {
    let bytes = fs::read(built).map_err(ArtifactError::io("read", built))?;
    let artifact = Artifact {
        name: to.file_name().unwrap_or(to.as_os_str()).to_string_lossy().into_owned(),
        sha256: Sha256::of(&bytes),
        bytes: bytes.len() as u64,
        text_bytes: text_bytes(&bytes, built)?,
        host_paths: paths.occurrences(&bytes),
    };
    place(&bytes, to).map_err(ArtifactError::io("write", to))?;
    artifact.check(to)?;
    Ok(artifact)
}

/// Writes an executable, whole or not at all.
pub(crate) fn place(bytes: &[u8], to: &Path) -> io::Result<()> {
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().set_permissions(fs::Permissions::from_mode(0o755))?;
    file.as_file().sync_all()?;
    file.persist(to)?;
    fs::File::open(folder)?.sync_all()
}

fn text_bytes(bytes: &[u8], path: &Path) -> Result<u64, ArtifactError> {
    let format = |source| ArtifactError::Format { path: path.to_owned(), source };
    let file = object::File::parse(bytes).map_err(format)?;
    let section =
        file.section_by_name(".text").ok_or_else(|| ArtifactError::NoText { path: path.to_owned() })?;
    Ok(section.size())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_executable_has_code_and_its_copy_is_checked() {
        let dir = tempfile::tempdir().unwrap();
        let own = std::env::current_exe().unwrap();
        let to = dir.path().join("deep/artifact");
        let paths = HostPaths::new([(own.parent().unwrap().to_owned(), "{target}")]);
        let artifact = take(&own, &to, &paths).unwrap();
        assert!(artifact.text_bytes > 10_000 && artifact.text_bytes < artifact.bytes);
        assert_eq!(artifact.name, "artifact");
        assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o755);
        artifact.check(&to).unwrap();
        fs::write(&to, "changed").unwrap();
        assert!(matches!(artifact.check(&to), Err(ArtifactError::Changed { .. })));
        fs::remove_file(&to).unwrap();
        assert!(matches!(artifact.check(&to), Err(ArtifactError::Io { .. })));
    }

    #[test]
    fn what_is_no_executable_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("script");
        fs::write(&file, "#!/bin/sh\n").unwrap();
        assert!(matches!(
            take(&file, &dir.path().join("to"), &HostPaths::new([])),
            Err(ArtifactError::Format { .. })
        ));
        assert!(!dir.path().join("to").exists());
    }
}
