//! How much memory a digest and a diff take, as the kernel counts it. One test, because a process has one peak.
#![cfg(target_os = "linux")]

use std::fmt::Write;
use std::fs;

use canonical_json::{DiffLimits, Rules, canonicalize_lines, diff, digest_file, digest_lines};

/// By how many bytes the resident set of this process is larger than now, at most, while it works; nothing where the
/// kernel does not say.
fn growth(work: impl FnOnce()) -> Option<usize> {
    // Five resets the peak to what is resident now; see proc_pid_clear_refs(5).
    fs::write("/proc/self/clear_refs", "5").ok()?;
    let before = peak()?;
    work();
    Some(peak()? - before)
}

fn peak() -> Option<usize> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<usize>().ok()? * 1024)
}

/// Records of about two hundred bytes, with the keys in order or not, and with spaces or not.
fn records(count: usize, is_canonical: bool, shift: usize) -> String {
    let mut text = String::from("[");
    for i in 0..count {
        text.push_str(if i > 0 { "," } else { "" });
        let (id, at) = (i + shift, i as f64 * 0.37);
        let tail = "00000000-0000-0000-0000-000000000000 and some more";
        let written = if is_canonical {
            write!(
                text,
                r#"{{"arrival_ms":{at:?},"id":{id},"text":"{tail}","worker":{{"a":[1,2,3],"b":null}}}}"#
            )
        } else {
            write!(
                text,
                "\n  {{ \"worker\": {{\"b\": null, \"a\": [1, 2, 3]}}, \"text\": \"{tail}\", \"id\": {id}, \"arrival_ms\": {at:?} }}"
            )
        };
        written.expect("memory can be written");
    }
    text.push(']');
    text
}

#[test]
fn memory_is_bounded() {
    const COUNT: usize = 10_000;
    const MIB: usize = 1 << 20;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("document.json");
    let rules = Rules::default();
    let file_growth = |text: String| {
        fs::write(&path, &text).expect("a file");
        let length = text.len();
        drop(text);
        (growth(|| drop(digest_file(&path, &rules).expect("a document"))), length)
    };
    let (Some(canonical), _) = file_growth(records(6 * COUNT, true, 0)) else { return };
    assert!(canonical < 4 * MIB, "a canonical file: {canonical}");

    // Keys are kept until they were compared with the next.
    let (keys, length) = file_growth(format!("{{\"{0}\":{{\"{0}\":1}}}}", "k".repeat(8_000_000)));
    let keys = keys.expect("it was there before");
    assert!(keys * 10 < length * 16, "{keys} for {length} bytes of long keys");

    let (shuffled, length) = file_growth(records(COUNT, false, 0));
    let shuffled = shuffled.expect("it was there before");
    assert!(shuffled * 10 < length * 16, "{shuffled} for {length} bytes in another order");

    let (small, length) = file_growth(format!("[{}]", vec![r#"{"b":1,"a":2}"#; 200_000].join(",")));
    let small = small.expect("it was there before");
    assert!(small * 10 < length * 16, "{small} for {length} bytes of small objects");

    // One string, most of it escapes that are not written so.
    let (escapes, length) = file_growth(format!("[\"{}\"]", "\\u0041\\/x".repeat(250_000)));
    let escapes = escapes.expect("it was there before");
    assert!(escapes * 10 < length * 16, "{escapes} for a string of {length} bytes");

    let lines = records(3 * COUNT, true, 0).replace("},{\"arrival", "}\n{\"arrival");
    let lines = &lines[1..lines.len() - 1];
    let records_growth = growth(|| {
        let all = digest_lines(lines.as_bytes(), &rules, |_| {}).expect("records");
        assert_eq!(all.records, 3 * COUNT as u64);
        canonicalize_lines(lines.as_bytes(), &rules, std::io::sink()).expect("records");
    });
    assert!(records_growth < Some(MIB), "records: {records_growth:?}");

    // Everything differs, and both are written anew.
    let texts = [records(COUNT, false, 0), records(COUNT, false, 1)];
    let length = texts[0].len() + texts[1].len();
    let compared = growth(|| {
        let found = diff(texts[0].as_bytes(), texts[1].as_bytes(), &rules, &DiffLimits::default());
        assert_eq!(found.expect("documents").total, COUNT as u64);
    });
    let compared = compared.expect("it was there before");
    assert!(compared * 10 < length * 16, "{compared} to compare {length} bytes");
}
