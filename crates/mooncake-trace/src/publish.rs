//! Two files that appear whole or not at all.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

use crate::error::SliceError;
use crate::manifest::SliceManifest;

/// Where the manifest of a slice is: `OUT.manifest.json`.
///
/// ```
/// use std::path::Path;
///
/// let path = mooncake_trace::manifest_path(Path::new("window.jsonl"));
/// assert_eq!(path, Path::new("window.jsonl.manifest.json"));
/// ```
#[must_use]
pub fn manifest_path(out: &Path) -> PathBuf {
    let mut path = OsString::from(out);
    path.push(".manifest.json");
    path.into()
}

/// A slice being written under a temporary name beside its final one. Dropped before [`publish`](Output::publish), it
/// disappears.
#[derive(Debug)]
pub(crate) struct Output {
    slice: NamedTempFile,
    out: PathBuf,
    manifest: PathBuf,
    replace: bool,
}

impl Output {
    /// Looks at what stands in the way before anything is read, and opens the temporary file.
    pub(crate) fn create(out: &Path, trace: &Metadata, replace: bool) -> Result<Self, SliceError> {
        let manifest = manifest_path(out);
        for path in [out, &manifest] {
            check_target(path, trace, replace)?;
        }
        let slice = temporary(out)?;
        Ok(Output { slice, out: out.to_owned(), manifest, replace })
    }

    pub(crate) fn slice_file(&mut self) -> &mut File {
        self.slice.as_file_mut()
    }

    /// Makes both files durable and gives them their names. The manifest comes last, and an old one goes first, so that at
    /// no moment does a manifest stand beside bytes it does not describe.
    pub(crate) fn publish(self, manifest: &SliceManifest) -> Result<(), SliceError> {
        self.slice.as_file().sync_all().map_err(create(&self.out))?;
        let mut text = temporary(&self.manifest)?;
        let written = text.write_all(manifest.to_json().as_bytes()).and_then(|()| text.as_file().sync_all());
        written.map_err(create(&self.manifest))?;
        if self.replace {
            remove_if_there(&self.manifest).map_err(create(&self.manifest))?;
        }
        persist(self.slice, &self.out, self.replace)?;
        if let Err(error) = persist(text, &self.manifest, self.replace) {
            // The first error is the one to report; a slice without a manifest says of itself that it is not finished.
            let _ = fs::remove_file(&self.out);
            return Err(error);
        }
        sync_directory(&self.out)
    }
}

fn create(path: &Path) -> impl FnOnce(io::Error) -> SliceError {
    let path = path.to_owned();
    move |source| SliceError::Create { path, source }
}

fn check_target(path: &Path, trace: &Metadata, replace: bool) -> Result<(), SliceError> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(create(path)(source)),
    };
    let path = path.to_owned();
    if !found.is_file() {
        Err(SliceError::OutputNotRegular { path })
    } else if (found.dev(), found.ino()) == (trace.dev(), trace.ino()) {
        Err(SliceError::OutputIsTrace { path })
    } else if !replace {
        Err(SliceError::OutputExists { path })
    } else {
        Ok(())
    }
}

fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// A file beside `path`, hidden and named `.NAME.…​.partial`, with the permissions an ordinary new file has.
fn temporary(path: &Path) -> Result<NamedTempFile, SliceError> {
    let mut prefix = OsString::from(".");
    prefix.push(path.file_name().unwrap_or_default());
    prefix.push(".");
    Builder::new()
        .prefix(&prefix)
        .suffix(".partial")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(directory(path))
        .map_err(create(path))
}

fn persist(file: NamedTempFile, path: &Path, replace: bool) -> Result<(), SliceError> {
    let persisted = if replace { file.persist(path) } else { file.persist_noclobber(path) };
    match persisted {
        Ok(_) => Ok(()),
        Err(error) if error.error.kind() == ErrorKind::AlreadyExists => {
            Err(SliceError::OutputExists { path: path.to_owned() })
        }
        Err(error) => Err(create(path)(error.error)),
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A name is durable once its directory is.
fn sync_directory(path: &Path) -> Result<(), SliceError> {
    File::open(directory(path)).and_then(|directory| directory.sync_all()).map_err(create(path))
}

#[cfg(test)]
mod tests;
