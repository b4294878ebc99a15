use std::collections::BTreeMap;
use std::path::PathBuf;

use memchr::memmem;

/// The paths of this host that a build uses, and the names that stand for them in records.
#[derive(Clone, Debug)]
pub(crate) struct HostPaths(Vec<(String, &'static str)>);

impl HostPaths {
    pub(crate) fn new(paths: impl IntoIterator<Item = (PathBuf, &'static str)>) -> Self {
        let text = |(path, name): (PathBuf, _)| (path.to_string_lossy().into_owned(), name);
        let mut paths: Vec<_> = paths.into_iter().map(text).filter(|(path, _)| path.len() > 1).collect();
        // The longest first: a checkout below the home folder is the checkout.
        paths.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        HostPaths(paths)
    }

    /// These paths and some more.
    pub(crate) fn with(&self, more: impl IntoIterator<Item = (PathBuf, &'static str)>) -> Self {
        let own = self.0.iter().map(|(path, name)| (PathBuf::from(path), *name));
        HostPaths::new(own.chain(more).collect::<Vec<_>>())
    }

    /// The text with every path replaced by its name.
    pub(crate) fn hide(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (path, name)| replace(&text, path, name))
    }

    /// How often each path occurs in some bytes.
    pub(crate) fn occurrences(&self, bytes: &[u8]) -> BTreeMap<String, u64> {
        let is_whole =
            |at: &usize, path: &str| bytes.get(at + path.len()).is_none_or(|&byte| ends_path(byte));
        let count = |path: &str| {
            memmem::find_iter(bytes, path.as_bytes()).filter(|at| is_whole(at, path)).count() as u64
        };
        let mut counted = BTreeMap::new();
        for (path, name) in &self.0 {
            *counted.entry((*name).to_owned()).or_default() += count(path);
        }
        counted.retain(|_, count| *count > 0);
        counted
    }
}

/// Whether a byte after a path shows that it is the path, and not the beginning of a longer name.
fn ends_path(next: u8) -> bool {
    !(next.is_ascii_alphanumeric() || matches!(next, b'.' | b'_' | b'-') || next >= 0x80)
}

fn replace(text: &str, path: &str, name: &str) -> String {
    let mut replaced = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(path) {
        let (before, after) = (&rest[..at], &rest[at + path.len()..]);
        replaced.push_str(before);
        replaced.push_str(if after.bytes().next().is_none_or(ends_path) { name } else { path });
        rest = after;
    }
    replaced + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_path_wins_and_the_root_is_no_path() {
        let paths = HostPaths::new([
            (PathBuf::from("/home/a"), "{home}"),
            (PathBuf::from("/"), "{root}"),
            (PathBuf::from("/home/a/tree"), "{checkout}"),
        ]);
        assert_eq!(paths.hide("--x=/home/a/tree/src:/home/a/b"), "--x={checkout}/src:{home}/b");
        assert_eq!(paths.hide("/home/another /home/a.b /home/a"), "/home/another /home/a.b {home}");
        let counted = paths.occurrences(b"\0/home/a/tree/src\0/home/a/b\0");
        assert_eq!(counted, BTreeMap::from([("{checkout}".to_owned(), 1), ("{home}".to_owned(), 2)]));
    }
}
