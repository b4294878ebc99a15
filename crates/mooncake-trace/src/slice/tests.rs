use std::cell::Cell;
use std::io::ErrorKind;

use proptest::prelude::*;

use super::*;
use crate::record::UnknownFields;

fn row(timestamp_ms: u64, blocks: u64) -> String {
    let ids: Vec<_> = (0..blocks).map(|block| (block << 33) + timestamp_ms).collect();
    let input = blocks * 512;
    format!(
        "{{\"timestamp\": {timestamp_ms}, \"input_length\": {input}, \"output_length\": 9, \"hash_ids\": {ids:?}}}"
    )
}

fn trace(rows: u64) -> String {
    (0..rows).map(|index| row(index / 2, 1 + index % 5) + "\n").collect()
}

fn window(offset: u64, count: u64) -> Window {
    Window::new(offset, count).unwrap()
}

fn cut(trace: &[u8], window: Window) -> (Vec<u8>, SliceManifest) {
    let mut out = Vec::new();
    let manifest = slice(trace, &window, &mut out).unwrap();
    (out, manifest)
}

fn refusal(trace: &str, window: Window) -> String {
    slice(trace.as_bytes(), &window, io::sink()).unwrap_err().to_string()
}

#[test]
fn the_window_is_the_original_bytes() {
    let trace = trace(10);
    let (bytes, manifest) = cut(trace.as_bytes(), window(3, 4));
    let lines: Vec<_> = trace.split_inclusive('\n').collect();
    assert_eq!(bytes, lines[3..7].concat().as_bytes());
    assert_eq!(manifest.source.sha256, Sha256::of(trace.as_bytes()));
    assert_eq!((manifest.source.bytes, manifest.source.rows), (trace.len() as u64, 10));
    assert_eq!(manifest.slice.sha256, Sha256::of(&bytes));
    assert_eq!((manifest.slice.bytes, manifest.slice.rows.get()), (bytes.len() as u64, 4));
    assert_eq!((manifest.slice.first_timestamp_ms, manifest.slice.last_timestamp_ms), (1, 3));
    // Rows 3 to 6 have 4, 5, 1 and 2 blocks.
    assert_eq!((manifest.slice.hash_ids, manifest.slice.input_tokens), (12, 12 * 512));
    assert_eq!((manifest.slice.output_tokens, manifest.slice.rows_without_output), (36, 0));
    assert!(manifest.slice.ends_with_newline);
    assert_eq!(manifest.window, window(3, 4));
}

#[test]
fn line_endings_are_kept_and_counted() {
    let trace = format!("{}\r\n{}\n{}", row(1, 1), row(2, 1), row(3, 1));
    let (bytes, manifest) = cut(trace.as_bytes(), window(0, 3));
    assert_eq!(bytes, trace.as_bytes());
    assert_eq!((manifest.slice.crlf_rows, manifest.slice.ends_with_newline), (1, false));
}

#[test]
fn rows_without_output_are_counted() {
    let trace = row(1, 1).replace("\"output_length\": 9", "\"output_length\": 0");
    assert_eq!(cut(trace.as_bytes(), window(0, 1)).1.slice.rows_without_output, 1);
}

#[test]
fn a_window_beyond_the_end_is_an_error() {
    assert_eq!(refusal(&trace(10), window(6, 5)), "the trace has 10 rows, and the window ends after row 11");
    assert_eq!(refusal("", window(0, 1)), "the trace has 0 rows, and the window ends after row 1");
    assert_eq!(cut(trace(10).as_bytes(), window(6, 4)).1.slice.rows.get(), 4);
}

#[test]
fn rows_before_and_after_the_window_are_validated() {
    for broken in [0, 9] {
        let lines: Vec<_> =
            (0..10).map(|index| if index == broken { "{}".to_owned() } else { row(index, 1) }).collect();
        let error = refusal(&lines.join("\n"), window(4, 2));
        assert!(error.starts_with(&format!("line {}, column 2: /timestamp", broken + 1)), "{error}");
    }
}

#[test]
fn expectations_are_held() {
    let trace = trace(4);
    let other = Sha256::from_bytes([7; 32]);
    let slicer = Slicer::new(window(1, 2));
    let (bytes, manifest) = cut(trace.as_bytes(), window(1, 2));
    let run = |slicer: Slicer<'_>| slicer.slice(trace.as_bytes(), io::sink());

    let kept = slicer.clone().expect_source(manifest.source.sha256).expect_slice(Sha256::of(&bytes));
    assert_eq!(run(kept).unwrap(), manifest);
    let error = run(slicer.clone().expect_source(other)).unwrap_err();
    assert!(matches!(error, SliceError::UnexpectedSource { expected, .. } if expected == other));
    let error = run(slicer.expect_slice(other)).unwrap_err();
    assert!(matches!(error, SliceError::UnexpectedSlice { expected, .. } if expected == other));
}

#[test]
fn unknown_fields_are_counted_when_kept() {
    let with = |index: u64, extra: &str| row(index, 1).replace('}', &format!(", {extra}}}"));
    let trace =
        [with(0, r#""a": 1"#), with(1, r#""a": 1, "priority": [2]"#), row(2, 1), with(3, r#""c": 0"#)]
            .join("\n");
    let rules = Rules { unknown_fields: UnknownFields::Keep, ..Rules::default() };
    let slicer = Slicer::new(window(0, 3)).rules(rules.clone());
    let manifest = slicer.slice(trace.as_bytes(), io::sink()).unwrap();
    let counted: Vec<_> = manifest.slice.other_fields.into_iter().collect();
    assert_eq!(counted, [("a".to_owned(), 2), ("priority".to_owned(), 1)]);

    let many: Vec<_> =
        (0..=MAX_FIELD_NAMES).map(|index| with(index as u64, &format!("\"f{index}\": 1"))).collect();
    let slicer = Slicer::new(window(0, MAX_FIELD_NAMES as u64 + 1)).rules(rules);
    let error = slicer.slice(many.join("\n").as_bytes(), io::sink()).unwrap_err().to_string();
    assert_eq!(
        error,
        "line 65, column 1: expected at most 64 different unknown field names in a window, found one more"
    );
}

#[test]
fn a_caller_can_stop_it() {
    let asked = Cell::new(0);
    let stop = || {
        asked.set(asked.get() + 1);
        asked.get() == 3
    };
    let error =
        Slicer::new(window(0, 1)).stop_when(&stop).slice(trace(5_000).as_bytes(), io::sink()).unwrap_err();
    assert!(matches!(error, SliceError::Cancelled { row: 2_048 }), "{error}");
}

/// Accepts a number of bytes, then has no room.
struct Small(usize);

impl Write for Small {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_an_error() {
    for rows in [10, 10_000] {
        let error = slice(trace(rows).as_bytes(), &window(0, rows), Small(100)).unwrap_err();
        assert!(
            matches!(&error, SliceError::Write { source } if source.kind() == ErrorKind::StorageFull),
            "{error}"
        );
    }
}

#[test]
fn sums_that_do_not_fit_are_errors() {
    let mut sum = u64::MAX - 1;
    assert!(add(&mut sum, 1).is_ok());
    assert!(matches!(add(&mut sum, 1), Err(Problem::Row(RowErrorKind::TotalOverflow))));
}

#[test]
fn a_long_window_is_hashed_like_a_short_one() {
    let trace = trace(20_000);
    let (bytes, manifest) = cut(trace.as_bytes(), window(1, 19_998));
    assert_eq!(manifest.slice.sha256, Sha256::of(&bytes));
    assert_eq!(manifest.source.sha256, Sha256::of(trace.as_bytes()));
}

proptest! {
    #[test]
    fn a_slice_of_a_slice_is_a_slice(rows in 1..60_u64, cuts in any::<[proptest::sample::Index; 4]>()) {
        let trace = trace(rows);
        let index = |at: usize, below: u64| cuts[at].index(usize::try_from(below).unwrap()) as u64;
        let outer_offset = index(0, rows);
        let outer_count = 1 + index(1, rows - outer_offset);
        let inner_offset = index(2, outer_count);
        let inner_count = 1 + index(3, outer_count - inner_offset);

        let (outer, _) = cut(trace.as_bytes(), window(outer_offset, outer_count));
        let (inner, from_slice) = cut(&outer, window(inner_offset, inner_count));
        let (direct, from_trace) = cut(trace.as_bytes(), window(outer_offset + inner_offset, inner_count));
        prop_assert_eq!(inner, direct);
        prop_assert_eq!(from_slice.slice, from_trace.slice);
    }

    #[test]
    fn windows_side_by_side_are_the_trace(
        sizes in proptest::collection::vec(1..20_u64, 1..8), crlf: bool, newline: bool,
    ) {
        let mut trace = trace(sizes.iter().sum());
        if crlf {
            trace = trace.replace('\n', "\r\n");
        }
        if !newline {
            trace.truncate(trace.trim_end().len());
        }
        let mut offset = 0;
        let mut joined = Vec::new();
        let (mut input_tokens, mut hash_ids) = (0, 0);
        for count in &sizes {
            let (bytes, manifest) = cut(trace.as_bytes(), window(offset, *count));
            joined.extend(bytes);
            input_tokens += manifest.slice.input_tokens;
            hash_ids += manifest.slice.hash_ids;
            offset += count;
        }
        prop_assert_eq!(&joined, trace.as_bytes());
        let (_, whole) = cut(trace.as_bytes(), window(0, offset));
        prop_assert_eq!(whole.slice.sha256, whole.source.sha256);
        prop_assert_eq!((whole.slice.input_tokens, whole.slice.hash_ids), (input_tokens, hash_ids));
    }
}
