use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::storage::{Storage, StorageError};

/// The folders a bundle may have; see the [layout](crate#layout-version-1).
pub const FOLDERS: [&str; 8] =
    ["inputs", "records", "samples", "reports", "diffs", "logs", "profiles", RECOVERED];

/// The folder for what the writer needs on the way; it is not evidence and is never verified.
pub const SCRATCH: &str = "work";

pub(crate) const LAYOUT_VERSION: u32 = 1;
pub(crate) const JOURNAL: &str = "journal.jsonl";
pub(crate) const MANIFEST: &str = "manifest.json";
pub(crate) const RECOVERED: &str = "recovered";
pub(crate) const TEMPORARY: &str = ".tmp";

/// A path inside a bundle: relative, `/`-separated, without `..`, in one of the known folders or a plain file name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BundlePath(String);

impl BundlePath {
    /// The path as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path below a bundle's directory.
    #[must_use]
    pub fn below(&self, dir: &Path) -> PathBuf {
        dir.join(&self.0)
    }
}

impl fmt::Display for BundlePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A path cannot be one inside a bundle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// Absolute, empty, with `.`, `..`, an empty component, a backslash, a control character or a hidden name.
    #[error("use `{path}` inside a bundle: {reason}")]
    Form {
        /// The path given.
        path: String,
        /// What about it is wrong.
        reason: &'static str,
    },
    /// The journal, the manifest and the scratch folder belong to the bundle itself.
    #[error("use `{path}` inside a bundle: the name is reserved")]
    Reserved {
        /// The path given.
        path: String,
    },
    /// The folder is not one of the layout.
    #[error("use `{path}` inside a bundle: `{folder}` is not a folder of the layout, which has {}", FOLDERS.join(", "))]
    UnknownFolder {
        /// The path given.
        path: String,
        /// Its first component.
        folder: String,
    },
}

impl FromStr for BundlePath {
    type Err = PathError;

    fn from_str(path: &str) -> Result<Self, PathError> {
        if let Some(reason) = malformed(path) {
            return Err(PathError::Form { path: path.to_owned(), reason });
        }
        if [JOURNAL, MANIFEST].contains(&path) || path == SCRATCH {
            return Err(PathError::Reserved { path: path.to_owned() });
        }
        match path.split_once('/') {
            Some((folder, _)) if folder == SCRATCH => Err(PathError::Reserved { path: path.to_owned() }),
            Some((folder, _)) if !FOLDERS.contains(&folder) => {
                Err(PathError::UnknownFolder { path: path.to_owned(), folder: folder.to_owned() })
            }
            None if FOLDERS.contains(&path) => {
                Err(PathError::Form { path: path.to_owned(), reason: "it is a folder" })
            }
            _ => Ok(BundlePath(path.to_owned())),
        }
    }
}

/// The longest file name that common file systems take.
const NAME_BYTES: usize = 255;

fn malformed(path: &str) -> Option<&'static str> {
    if path.is_empty() {
        return Some("it is empty");
    }
    if path.starts_with('/') {
        return Some("it is absolute");
    }
    if path.chars().any(|c| c.is_control() || c == '\\') {
        return Some("it has a backslash or a control character");
    }
    path.split('/').find_map(malformed_component)
}

fn malformed_component(name: &str) -> Option<&'static str> {
    match name {
        "" => Some("it has an empty component"),
        "." | ".." => Some("`.` and `..` are not allowed"),
        name if name.starts_with('.') => Some("it has a hidden component"),
        name if name.len() > NAME_BYTES => Some("it has a component of more than 255 bytes"),
        _ => None,
    }
}

/// What a walk over a bundle found.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// Regular files that may be evidence, sorted.
    pub(crate) files: Vec<String>,
    /// Everything else: links, sockets, folders outside the layout, names that are not UTF-8.
    pub(crate) foreign: Vec<String>,
    /// Whether the scratch folder is there.
    pub(crate) scratch: bool,
}

/// Lists a bundle without its journal, manifest, temporary files and scratch.
pub(crate) fn walk(dir: &Path) -> Result<Walk, StorageError> {
    let mut found = Walk::default();
    visit(dir, "", &mut found)?;
    found.files.sort();
    found.foreign.sort();
    Ok(found)
}

fn visit(dir: &Path, prefix: &str, found: &mut Walk) -> Result<(), StorageError> {
    let shown = if prefix.is_empty() { "." } else { prefix };
    for entry in fs::read_dir(dir).storage("list", shown)? {
        let entry = entry.storage("list", shown)?;
        let name = entry.file_name();
        let path = format!("{prefix}{}", name.to_string_lossy());
        let kind = entry.file_type().storage("look at", &path)?;
        if prefix.is_empty() && is_own(&path, found) {
            continue;
        }
        if name.to_str().is_none() {
            found.foreign.push(path);
        } else if kind.is_dir() && (!prefix.is_empty() || FOLDERS.contains(&path.as_str())) {
            visit(&entry.path(), &format!("{path}/"), found)?;
        } else if kind.is_file() && path.parse::<BundlePath>().is_ok() {
            found.files.push(path);
        } else {
            found.foreign.push(path);
        }
    }
    Ok(())
}

fn is_own(name: &str, found: &mut Walk) -> bool {
    found.scratch |= name == SCRATCH;
    [JOURNAL, MANIFEST, TEMPORARY, SCRATCH].contains(&name)
}

/// Makes the names in a directory durable.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    fs::File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(path: &str, accepted: bool) {
        assert_eq!(path.parse::<BundlePath>().is_ok(), accepted, "{path:?}");
    }

    #[test]
    fn only_relative_paths_of_the_layout() {
        for path in ["campaign.toml", "report.md", "records/pin.json", "logs/build/a.err", "inputs/a b"] {
            check(path, true);
        }
        for path in [
            "",
            "/",
            "/etc/passwd",
            "..",
            "../a",
            "records/../../a",
            "./a",
            "records/./a",
            "records//a",
            "records/",
            ".hidden",
            "records/.hidden",
            ".tmp/a",
            "journal.jsonl",
            "manifest.json",
            "work",
            "work/a",
            "elsewhere/a",
            "records",
            "a\\b",
            "a\nb",
            "a\0b",
            "C:\\a",
        ] {
            check(path, false);
        }
        check(&"a".repeat(255), true);
        check(&"a".repeat(256), false);
    }

    proptest! {
        /// Whatever is accepted stays below the bundle, component by component.
        #[test]
        fn nothing_accepted_escapes(path in "[a-z./\\\\ \u{0}-\u{20}]{0,20}|(records|logs)/[a-z./]{0,20}") {
            if let Ok(accepted) = path.parse::<BundlePath>() {
                let full = accepted.below(Path::new("/bundle"));
                prop_assert!(full.starts_with("/bundle"));
                prop_assert!(full.components().all(|part| part.as_os_str() != ".."));
                prop_assert_eq!(full, Path::new("/bundle").join(&path));
            }
        }
    }
}
