//! How much memory a digest and a diff take, as the kernel counts it. One test, because a process has one peak.
#![cfg(target_os = "linux")]

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write};
use std::path::Path;

use canonical_json::{DiffLimits, Rules, canonicalize_lines, diff, digest_file, digest_lines};

const MIB: usize = 1 << 20;

fn status(field: &str) -> Option<usize> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    Some(line.trim().trim_end_matches(" kB").parse::<usize>().ok()? * 1024)
}

/// How many bytes were resident at once while this worked, besides those at the start of the test: what an allocator
/// keeps from earlier work would hide what later work takes. So what should take little comes first.
fn taken(start: usize, work: impl FnOnce()) -> usize {
    // Five resets the peak to what is resident now; see proc_pid_clear_refs(5).
    fs::write("/proc/self/clear_refs", "5").expect("it is there with /proc/self/status");
    work();
    status("VmHWM:").expect("it was there before") - start
}

/// A record of about two hundred bytes, with the keys in order or not, and with spaces or not.
fn record(id: usize, is_canonical: bool) -> String {
    let at = id as f64 * 0.37;
    let text = "00000000-0000-0000-0000-000000000000 and some more";
    if is_canonical {
        format!(r#"{{"arrival_ms":{at:?},"id":{id},"text":"{text}","worker":{{"a":[1,2,3],"b":null}}}}"#)
    } else {
        format!(
            "\n  {{ \"worker\": {{\"b\": null, \"a\": [1, 2, 3]}}, \"text\": \"{text}\", \"id\": {id}, \"arrival_ms\": {at:?} }}"
        )
    }
}

/// Writes many parts, so that the text never is in memory, and says how long it is.
fn write(path: &Path, around: [&str; 2], comma: &str, count: usize, part: impl Fn(usize) -> String) -> usize {
    let write = || -> io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        file.write_all(around[0].as_bytes())?;
        for i in 0..count {
            file.write_all(if i > 0 { comma } else { "" }.as_bytes())?;
            file.write_all(part(i).as_bytes())?;
        }
        file.write_all(around[1].as_bytes())?;
        file.flush()
    };
    write().expect("a file");
    usize::try_from(fs::metadata(path).expect("a file").len()).expect("it is short")
}

#[test]
fn memory_is_bounded() {
    const COUNT: usize = 15_000;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("document.json");
    let rules = Rules::default();
    let digest = || drop(digest_file(&path, &rules).expect("a document"));
    let Some(start) = status("VmRSS:") else { return };

    write(&path, ["[", "]"], ",", 4 * COUNT, |i| record(i, true));
    let canonical = taken(start, digest);
    assert!(canonical < 5 * MIB, "a canonical file: {canonical}");

    write(&path, ["", ""], "\n", 4 * COUNT, |i| record(i, true));
    let lines = || BufReader::new(File::open(&path).expect("a file"));
    let records = taken(start, || {
        let all = digest_lines(lines(), &rules, |_| {}).expect("records");
        assert_eq!(all.records, 4 * COUNT as u64);
        canonicalize_lines(lines(), &rules, io::sink()).expect("records");
    });
    assert!(records < 5 * MIB, "records: {records}");

    let of_input = |name: &str, length: usize| {
        let taken = taken(start, digest);
        // Buffers and code besides.
        assert!(taken < length / 10 * 16 + 3 * MIB, "{name}: {taken} for {length} bytes");
    };
    let around = ["[", "]"];
    of_input("another order", write(&path, around, ",", 2 * COUNT, |i| record(i, false)));
    of_input("two members", write(&path, around, ",", 20 * COUNT, |_| r#"{"b":1,"a":2}"#.to_owned()));
    let around = ["[ \"", "\"]"];
    of_input("one string of escapes", write(&path, around, "", 30 * COUNT, |_| r"\u0041\/x".to_owned()));
    of_input("a long key", write(&path, ["{\"", "\":1}"], "", 60 * COUNT, |_| "characters".to_owned()));

    // Everything differs, and both are written anew.
    let texts = [0, 1].map(|shift| {
        write(&path, ["[", "]"], ",", 2 * COUNT, |i| record(i + shift, false));
        fs::read(&path).expect("a file")
    });
    let length = texts[0].len() + texts[1].len();
    let compared = taken(start, || {
        let found = diff(&texts[0], &texts[1], &rules, &DiffLimits::default());
        assert_eq!(found.expect("documents").total, 4 * COUNT as u64);
    });
    assert!(compared < length / 10 * 26 + 3 * MIB, "{compared} to compare {length} bytes");
}
