//! The most memory a digest or a comparison takes, as the kernel counts it.
//!
//! What an allocator keeps from earlier work would hide what later work takes. So everything is counted from the start
//! of the process on, this is measured before anything else, inputs are written to files in small parts, and what
//! should take little comes first.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use canonical_json::{DiffLimits, Rules, diff, digest_file};

use crate::Scale;
use crate::inputs::{KINDS, Random, canonical, document, shuffled_pretty};
use crate::report::Report;

const BYTES: usize = 64_000_000;
/// What is repeated until there are so many.
const PART: usize = 100_000;
/// What "constant" may be: buffers, the code itself, and pages the allocator keeps.
const CONSTANT_MIB: f64 = 4.0;
/// How many times its size any other input may take.
const MAX_OF_INPUT: f64 = 1.6;

pub(crate) fn measure(report: &mut Report, scale: &Scale) {
    let Some(start) = status("VmRSS:") else {
        println!("memory: not measured, because this system has no /proc/self/status");
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("document.json");
    let repeats = BYTES / PART / scale.divisor;
    for (name, kind) in KINDS {
        let part = canonical(&document(kind, PART));
        write_repeated(&path, &part, repeats).expect("a file");
        let what = format!("{name}, canonical file: MiB at most");
        report.at_most(&what, CONSTANT_MIB, taken(start, || digest_of(&path)) / 1_048_576.0, "");
    }
    shapes(report, scale, start, &path);
    for (name, kind) in KINDS {
        let part = shuffled_pretty(&document(kind, PART));
        write_repeated(&path, &part, repeats).expect("a file");
        of_input(report, &format!("{name}, shuffled pretty file"), start, &path);
    }
    comparison(report, repeats, start);
}

fn digest_of(path: &Path) {
    digest_file(path, &Rules::default()).map(|_| ()).expect("a document");
}

fn of_input(report: &mut Report, name: &str, start: f64, path: &Path) {
    let bytes = fs::metadata(path).expect("a file").len() as f64;
    let times = taken(start, || digest_of(path)) / bytes;
    report.at_most(
        &format!("{name}: times its size"),
        MAX_OF_INPUT,
        times,
        &format!("{:.0} MB", bytes / 1e6),
    );
}

/// Inputs that are as bad as can be.
fn shapes(report: &mut Report, scale: &Scale, start: f64, path: &Path) {
    let count = 4_000_000 / scale.divisor;
    let write = |open: &str, close: &str, comma: &str, part: &dyn Fn(usize) -> String| -> io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        file.write_all(open.as_bytes())?;
        for i in 0..count {
            file.write_all(if i > 0 { comma } else { "" }.as_bytes())?;
            file.write_all(part(i).as_bytes())?;
        }
        file.write_all(close.as_bytes())?;
        file.flush()
    };
    write("[", "]", ",", &|_| r#"{"b":1,"a":2}"#.to_owned()).expect("a file");
    of_input(report, "objects of two members", start, path);
    write("{", "}", ",", &|i| format!("\"key{:07}\":{i}", count - i)).expect("a file");
    of_input(report, "an object of millions of keys", start, path);
    write("{\"a\":{", "}}", ",", &|i| format!("\"key{:07}\":{i}", count - i)).expect("a file");
    of_input(report, "an object of millions of keys in another", start, path);
    write("[ \"", "\"]", "", &|_| r"\u0041\/\n".to_owned()).expect("a file");
    of_input(report, "one string of escapes", start, path);
    write("[ \"", "\"]", "", &|_| "a few characters".to_owned()).expect("a file");
    of_input(report, "one long string", start, path);
    write("{\"", "\":1}", "", &|_| "a few characters".to_owned()).expect("a file");
    of_input(report, "one long key", start, path);
}

/// Two texts in memory, of which neither is canonical, and which differ in every record.
fn comparison(report: &mut Report, repeats: usize, start: f64) {
    let (_, kind) = KINDS[0];
    let texts = [7, 8].map(|seed| {
        let part = shuffled_pretty(&kind(&mut Random::new(seed), PART));
        let mut text = Vec::with_capacity((part.len() + 1) * repeats + 2);
        repeat(&mut text, &part, repeats).expect("memory can be written");
        text
    });
    let bytes = (texts[0].len() + texts[1].len()) as f64;
    let mut shapes = 0;
    let taken = taken(start, || {
        let found = diff(&texts[0], &texts[1], &Rules::default(), &DiffLimits::default()).expect("documents");
        shapes = found.groups.len();
    });
    let note = format!("{:.0} MB, {shapes} shapes", bytes / 1e6);
    report.at_most(
        "diff of two reports: times their size, besides them",
        MAX_OF_INPUT,
        taken / bytes - 1.0,
        &note,
    );
}

pub(crate) fn write_repeated(path: &Path, part: &[u8], repeats: usize) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    repeat(&mut file, part, repeats)?;
    file.into_inner()?.sync_all()
}

/// Writes an array of this element.
fn repeat(out: &mut impl Write, part: &[u8], repeats: usize) -> io::Result<()> {
    for i in 0..repeats {
        out.write_all(if i == 0 { b"[" } else { b"," })?;
        out.write_all(part)?;
    }
    out.write_all(b"]")
}

/// How many bytes were resident at once while this worked, besides those at the start.
fn taken(start: f64, work: impl FnOnce()) -> f64 {
    // Five resets the peak to what is resident now; see proc_pid_clear_refs(5).
    fs::write("/proc/self/clear_refs", "5").expect("it is there with /proc/self/status");
    work();
    (status("VmHWM:").expect("it was there before") - start) * 1024.0
}

fn status(field: &str) -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}
