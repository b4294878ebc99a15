//! The published traces themselves, which are too large to keep here: set `KVRP_TRACES` to the folders that hold
//! `conversation_trace.jsonl` and `synthetic_trace.jsonl`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what its tests share")]

use std::fs::File;
use std::io;
use std::path::PathBuf;

use mooncake_trace::{Sha256, SliceManifest, Window, published, slice};

fn find(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("KVRP_TRACES").unwrap_or_default();
    let found = std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file());
    if found.is_none() {
        eprintln!("skipped: no {name} in KVRP_TRACES");
    }
    found
}

/// Cuts a window out of a published file; the totals were computed by another program.
fn check(file: &str, name: &str, window: Window, totals: [u64; 5]) -> Option<SliceManifest> {
    let manifest = slice(File::open(find(file)?).unwrap(), &window, io::sink()).unwrap();
    let known = published().iter().find(|known| known.name == name).unwrap();
    let recognised = manifest.source.known.clone().unwrap();
    assert_eq!((recognised.trace.as_str(), recognised.whole), (name, true));
    assert_eq!((manifest.source.sha256, manifest.source.rows), (known.sha256, known.rows));
    let slice = &manifest.slice;
    let found = [
        slice.first_timestamp_ms,
        slice.last_timestamp_ms,
        slice.input_tokens,
        slice.output_tokens,
        slice.hash_ids,
    ];
    assert_eq!(found, totals);
    Some(manifest)
}

#[test]
fn the_trace_in_this_repository() {
    let trace = include_bytes!("../../../testdata/traces/forty-requests.jsonl");
    let manifest = slice(&trace[..], &Window::new(0, 40).unwrap(), io::sink()).unwrap();
    assert_eq!((manifest.source.rows, manifest.source.known), (40, None));
    assert_eq!(manifest.slice.sha256, Sha256::of(trace));
}

#[test]
fn the_conversation_trace() {
    let all = Window::new(0, 12_031).unwrap();
    let totals = [0, 3_536_999, 144_793_823, 4_122_048, 288_500];
    let Some(manifest) = check("conversation_trace.jsonl", "mooncake-conversation", all, totals) else {
        return;
    };
    assert_eq!(manifest.slice.sha256, manifest.source.sha256);
    assert_eq!(manifest.slice.known, manifest.source.known);
}

#[test]
fn the_first_5000_rows_of_the_conversation_trace() {
    let Some(path) = find("conversation_trace.jsonl") else { return };
    let window = Window::new(0, 5_000).unwrap();
    let manifest = slice(File::open(path).unwrap(), &window, io::sink()).unwrap();
    let expected: Sha256 =
        "c2157405477e02aeaaa01e5fcc9794bd9ac146f64643a03aef067853471356b0".parse().unwrap();
    assert_eq!(manifest.slice.sha256, expected);
    let known = manifest.slice.known.unwrap();
    assert_eq!(
        (known.trace.as_str(), known.offset, known.count, known.whole),
        ("mooncake-conversation", 0, 5_000, false)
    );
}

#[test]
fn the_synthetic_trace() {
    let all = Window::new(0, 3_993).unwrap();
    let totals = [0, 1_022_025, 61_194_628, 595_432, 121_877];
    check("synthetic_trace.jsonl", "mooncake-synthetic", all, totals);
}
