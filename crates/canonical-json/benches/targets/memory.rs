//! The most memory a digest takes, as the kernel counts it.

use std::fs;
use std::path::Path;

use canonical_json::{Rules, digest_file};

use crate::Scale;
use crate::inputs::{KINDS, canonical, document, shuffled_pretty};
use crate::report::Report;

const BYTES: usize = 64_000_000;
/// What "constant" may be: buffers, and pages the allocator keeps.
const CONSTANT_MIB: f64 = 4.0;

pub(crate) fn measure(report: &mut Report, scale: &Scale) {
    if growth(|| ()).is_none() {
        println!("memory: not measured, because this system has no /proc/self/clear_refs");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("document.json");
    for (name, kind) in KINDS {
        let value = document(kind, BYTES / scale.divisor);
        let what = format!("{name}, canonical file: MiB at most");
        report.at_most(&what, CONSTANT_MIB, file_growth(&path, canonical(&value)).0 / 1024.0, "");
        let (growth, bytes) = file_growth(&path, shuffled_pretty(&value));
        let what = format!("{name}, shuffled pretty file: times its size");
        report.at_most(&what, 1.6, growth * 1024.0 / bytes, "");
    }
}

/// How many KiB the process grew while it digested a file with this text, and the length of the text.
fn file_growth(path: &Path, text: Vec<u8>) -> (f64, f64) {
    fs::write(path, &text).expect("a file");
    let bytes = text.len() as f64;
    drop(text);
    let work = || digest_file(path, &Rules::default()).map(|_| ()).expect("a document");
    (growth(work).expect("it was there before"), bytes)
}

/// By how many KiB the resident set of this process is larger than now, at most, while it works.
pub(crate) fn growth(work: impl FnOnce()) -> Option<f64> {
    // Five resets the peak to what is resident now; see proc_pid_clear_refs(5).
    fs::write("/proc/self/clear_refs", "5").ok()?;
    let before = status("VmHWM:")?;
    work();
    Some(status("VmHWM:")? - before)
}

fn status(field: &str) -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}
