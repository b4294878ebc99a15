//! Whole reports of Dynamo 1.5.1, as its harness wrote them (see `testdata/reports`).

use std::fs;
use std::path::{Path, PathBuf};

use canonical_json::{
    DiffLimits, Event, Exclusion, Reader, Rules, Sha256, Unordered, canonicalize, diff, digest, digest_file,
};

fn reports() -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/reports");
    let paths =
        fs::read_dir(folder).expect("the folder of reports").map(|entry| entry.expect("an entry").path());
    let reports = paths.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    let reports: Vec<_> = reports.map(|path| (path.clone(), fs::read(path).expect("a report"))).collect();
    assert!(!reports.is_empty());
    reports
}

/// The rules of the parity protocol.
fn rules() -> Rules {
    let exclusion =
        |pattern: &str| Exclusion { pattern: pattern.parse().expect("a pattern"), required: false };
    let unordered =
        Unordered { at: "/per_request".parse().expect("a pattern"), by: "/uuid".parse().expect("a pointer") };
    let mut rules = Rules::default();
    rules.exclusions.push(exclusion("/summary/wall_time_ms"));
    rules.exclusions.push(exclusion("/summary/processed_tokens_per_s"));
    rules.exclusions.push(exclusion("/summary/processed_output_tokens_per_s"));
    rules.unordered.push(unordered);
    rules
}

/// The same document with all its keys in reverse order and one token on each line.
fn rewritten(text: &[u8]) -> String {
    let value: serde_json::Value = serde_json::from_slice(text).expect("a report");
    reversed(&value)
}

fn reversed(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Array(values) => {
            format!("[\n{}\n]", values.iter().map(reversed).collect::<Vec<_>>().join("\n,\n"))
        }
        serde_json::Value::Object(members) => {
            let member =
                |(key, value): (&String, &serde_json::Value)| format!("\"{key}\"\n:\n{}", reversed(value));
            format!("{{\n{}\n}}", members.iter().rev().map(member).collect::<Vec<_>>().join("\n,\n"))
        }
        other => other.to_string(),
    }
}

#[test]
fn a_report_is_canonical_under_the_rules() {
    for (path, text) in reports() {
        let expected = Sha256::of(text.trim_ascii_end());
        for rules in [Rules::default(), rules()] {
            let found = digest(&text, &rules).expect("a report");
            assert_eq!((found.sha256, found.excluded_present.len()), (expected, 0), "{}", path.display());
            assert_eq!(digest_file(&path, &rules).expect("a report"), found);
        }
    }
}

#[test]
fn another_order_is_the_same_report() {
    for (path, text) in reports() {
        // serde_json loses digits, so both sides are what it read.
        let text = rewritten(&text);
        let mut once = Vec::new();
        canonicalize(text.as_bytes(), &rules(), &mut once).expect("a report");
        let again = rewritten(&once);
        let digests = [text, again].map(|text| digest(text.as_bytes(), &rules()).expect("a report").sha256);
        assert_eq!(digests[0], digests[1], "{}", path.display());
        assert_eq!(digests[0], Sha256::of(&once), "{}", path.display());
    }
}

#[test]
fn excluded_fields_that_are_there_are_named() {
    let (_, text) = reports().swap_remove(0);
    let text = String::from_utf8(text).expect("a report is text");
    let with = text.replacen("\"summary\":{", "\"summary\":{\"wall_time_ms\":5161.294336,", 1);
    assert_ne!(text, with);
    let found = digest(with.as_bytes(), &rules()).expect("a report");
    assert_eq!(found.sha256, Sha256::of(text.trim_end().as_bytes()));
    let present: Vec<_> = found.excluded_present.iter().map(|pattern| pattern.as_str()).collect();
    assert_eq!(present, ["/summary/wall_time_ms"]);
}

#[test]
fn a_changed_worker_is_found_and_so_is_a_request_that_moved() {
    let (_, text) = reports().swap_remove(0);
    let text = String::from_utf8(text).expect("a report is text");
    let changed = text.replace("\"input_length\":", "\"input_length\":1");
    let found = diff(text.as_bytes(), changed.as_bytes(), &rules(), &DiffLimits::default()).expect("reports");
    assert_eq!(found.groups.len(), 1);
    assert_eq!(found.groups[0].shape, "/per_request/*/input_length");
    assert_eq!(found.total, text.matches("\"input_length\":").count() as u64);
    assert_eq!(found.groups[0].examples[0].key.as_deref(), Some("00000000-0000-0000-0000-000000000001"));
}

#[test]
fn every_number_of_a_report_is_read_as_it_is_written() {
    for (_, text) in reports() {
        let mut reader = Reader::new(&text);
        let mut numbers = 0;
        loop {
            match reader.next_event().expect("a report") {
                Event::End => break,
                Event::Number(number) => {
                    numbers += 1;
                    assert!(number.as_f64().is_some());
                    assert!(
                        text.windows(number.text().len()).any(|window| window == number.text().as_bytes())
                    );
                    if numbers == 50 {
                        break;
                    }
                }
                _ => {}
            }
        }
        assert_eq!(numbers, 50);
    }
}
