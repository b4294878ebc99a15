//! Files and standard input, one or many.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;

use canonical_json::{Digested, LineDigest, LinesDigest, Rules, Sha256};
use canonical_json::{digest_file, digest_lines, digest_reader};

use crate::failure::Failure;

/// What `-` stands for.
pub(crate) fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let result = match is_stdin(path) {
        true => io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes),
        false => fs::read(path),
    };
    result.map_err(|source| Failure::Open { path: path.to_owned(), source })
}

fn open_lines(path: &Path) -> Result<Box<dyn BufRead>, Failure> {
    if is_stdin(path) {
        return Ok(Box::new(io::stdin().lock()));
    }
    let file = File::open(path).map_err(|source| Failure::Open { path: path.to_owned(), source })?;
    Ok(Box::new(BufReader::with_capacity(1 << 17, file)))
}

/// Lines for as long as somebody wants to know what comes of them: an endless input must not outlive its reader.
pub(crate) struct WhileHeard<'h> {
    lines: Box<dyn BufRead>,
    is_heard: &'h Cell<bool>,
}

impl<'h> WhileHeard<'h> {
    pub(crate) fn open(path: &Path, is_heard: &'h Cell<bool>) -> Result<Self, Failure> {
        Ok(WhileHeard { lines: open_lines(path)?, is_heard })
    }
}

impl Read for WhileHeard<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.is_heard.get() { self.lines.read(buffer) } else { Ok(0) }
    }
}

impl BufRead for WhileHeard<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.is_heard.get() { self.lines.fill_buf() } else { Ok(&[]) }
    }

    fn consume(&mut self, count: usize) {
        self.lines.consume(count);
    }
}

/// The digest of one file, as a document or as records.
#[derive(Debug)]
pub(crate) enum FileDigest {
    Document(Digested),
    Lines(LinesDigest),
}

impl FileDigest {
    pub(crate) fn sha256(&self) -> Sha256 {
        match self {
            FileDigest::Document(digest) => digest.sha256,
            FileDigest::Lines(digest) => digest.sha256,
        }
    }
}

pub(crate) fn digest_document(path: &Path, rules: &Rules) -> Result<FileDigest, Failure> {
    let result = match is_stdin(path) {
        true => digest_reader(io::stdin().lock(), rules),
        false => digest_file(path, rules),
    };
    result.map(FileDigest::Document).map_err(|source| Failure::document(path.to_owned(), source))
}

pub(crate) fn digest_records(
    path: &Path,
    rules: &Rules,
    is_heard: &Cell<bool>,
    each: &mut dyn FnMut(LineDigest),
) -> Result<FileDigest, Failure> {
    let result = digest_lines(WhileHeard::open(path, is_heard)?, rules, each);
    result.map(FileDigest::Lines).map_err(|source| Failure::lines(path.to_owned(), source))
}

/// Calls `work` for every path, several at once, and `each` with every result in the order of the paths.
pub(crate) fn in_parallel<T: Send>(
    paths: &[PathBuf],
    jobs: NonZeroUsize,
    work: impl Fn(&Path) -> T + Sync,
    mut each: impl FnMut(&Path, T),
) {
    let (sender, receiver) = mpsc::channel();
    let next = AtomicUsize::new(0);
    let take_all = |sender: Sender<(usize, T)>| {
        while let Some((place, path)) = nth(paths, next.fetch_add(1, Ordering::Relaxed)) {
            // Nobody listens any more once the printing side has panicked.
            let _ = sender.send((place, work(path)));
        }
    };
    thread::scope(|scope| {
        let started = (0..jobs.get().min(paths.len())).take_while(|_| {
            let (sender, take_all) = (sender.clone(), &take_all);
            thread::Builder::new().spawn_scoped(scope, move || take_all(sender)).is_ok()
        });
        // Fewer threads than asked for do as well, and so does this one if there is none.
        if started.count() == 0 {
            take_all(sender.clone());
        }
        drop(sender);
        let mut results: Vec<Option<T>> = paths.iter().map(|_| None).collect();
        let mut printed = 0;
        for (place, result) in receiver {
            results[place] = Some(result);
            while let Some(result) = results.get_mut(printed).and_then(Option::take) {
                each(&paths[printed], result);
                printed += 1;
            }
        }
    });
}

fn nth(paths: &[PathBuf], place: usize) -> Option<(usize, &Path)> {
    Some((place, paths.get(place)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order() {
        let paths: Vec<PathBuf> = (0..50).map(|i| PathBuf::from(i.to_string())).collect();
        for jobs in [1, 2, 7, 100] {
            let mut seen = Vec::new();
            let jobs = NonZeroUsize::new(jobs).expect("not zero");
            let work = |path: &Path| path.as_os_str().len();
            in_parallel(&paths, jobs, work, |path, length| seen.push((path.to_owned(), length)));
            let expected: Vec<_> = paths.iter().map(|path| (path.clone(), path.as_os_str().len())).collect();
            assert_eq!(seen, expected);
        }
    }
}
