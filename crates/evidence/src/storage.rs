use std::io;

/// What about the storage made an operation fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StorageKind {
    /// The disk, a quota or a size limit is exhausted.
    Full,
    /// The file system is mounted read-only.
    ReadOnly,
    /// The permissions of the file or directory forbid it.
    Denied,
    /// Any other failure; the cause says which.
    Other,
}

impl StorageKind {
    fn of(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                StorageKind::Full
            }
            io::ErrorKind::ReadOnlyFilesystem => StorageKind::ReadOnly,
            io::ErrorKind::PermissionDenied => StorageKind::Denied,
            _ => StorageKind::Other,
        }
    }

    fn hint(self) -> &'static str {
        match self {
            StorageKind::Full => " (no space left)",
            StorageKind::ReadOnly => " (read-only file system)",
            StorageKind::Denied => " (not permitted)",
            StorageKind::Other => "",
        }
    }
}

/// The operating system refused a file operation inside a bundle.
#[derive(Debug, thiserror::Error)]
#[error("{action} `{path}`{}", kind.hint())]
#[non_exhaustive]
pub struct StorageError {
    /// What was attempted, as a verb.
    pub action: &'static str,
    /// The path inside the bundle; `.` is the bundle itself.
    pub path: String,
    /// Why it failed, as far as a caller may want to tell apart.
    pub kind: StorageKind,
    /// The error of the operating system.
    #[source]
    pub source: io::Error,
}

impl StorageError {
    pub(crate) fn new(action: &'static str, path: impl Into<String>, source: io::Error) -> Self {
        StorageError { action, path: path.into(), kind: StorageKind::of(&source), source }
    }
}

/// Adds the action and the path to a failed file operation.
pub(crate) trait Storage<T> {
    fn storage(self, action: &'static str, path: &str) -> Result<T, StorageError>;
}

impl<T> Storage<T> for io::Result<T> {
    fn storage(self, action: &'static str, path: &str) -> Result<T, StorageError> {
        self.map_err(|source| StorageError::new(action, path, source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cause: io::ErrorKind, kind: StorageKind, text: &str) {
        let error = Err::<(), _>(io::Error::from(cause)).storage("write", "logs/a").unwrap_err();
        assert_eq!(error.kind, kind);
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn kinds_tell_full_read_only_and_denied_apart() {
        check(io::ErrorKind::StorageFull, StorageKind::Full, "write `logs/a` (no space left)");
        check(io::ErrorKind::QuotaExceeded, StorageKind::Full, "write `logs/a` (no space left)");
        check(io::ErrorKind::FileTooLarge, StorageKind::Full, "write `logs/a` (no space left)");
        check(
            io::ErrorKind::ReadOnlyFilesystem,
            StorageKind::ReadOnly,
            "write `logs/a` (read-only file system)",
        );
        check(io::ErrorKind::PermissionDenied, StorageKind::Denied, "write `logs/a` (not permitted)");
        check(io::ErrorKind::NotFound, StorageKind::Other, "write `logs/a`");
    }
}
