use std::io::{BufReader, Read};

use proptest::prelude::*;

use super::*;
use crate::error::RowErrorKind;

const ROW: &str = r#"{"timestamp": 5, "input_length": 600, "output_length": 3, "hash_ids": [1, 2]}"#;

/// Every row as (index, bytes), then how the trace ended.
fn read_all<R: BufRead>(mut reader: TraceReader<R>) -> (Vec<Vec<u8>>, Option<String>) {
    let mut rows = Vec::new();
    loop {
        match reader.next_row() {
            Ok(Some(row)) => {
                assert_eq!(row.index, rows.len() as u64);
                rows.push(row.bytes.to_vec());
            }
            Ok(None) => return (rows, None),
            Err(error) => {
                assert!(matches!(reader.next_row(), Ok(None)), "after an error there are no more rows");
                return (rows, Some(error.to_string()));
            }
        }
    }
}

fn check(trace: &[u8], rows: &[&str], error: Option<&str>) {
    for capacity in [1, 7, 100, 1 << 16] {
        let (found, end) = read_all(TraceReader::new(BufReader::with_capacity(capacity, trace)));
        let expected: Vec<_> = rows.iter().map(|row| row.as_bytes().to_vec()).collect();
        assert_eq!(found, expected, "capacity {capacity}");
        assert_eq!(end.as_deref(), error, "capacity {capacity}");
    }
}

#[test]
fn an_empty_file_has_no_rows() {
    check(b"", &[], None);
}

#[test]
fn the_last_newline_may_be_missing() {
    check(format!("{ROW}\n{ROW}").as_bytes(), &[&format!("{ROW}\n"), ROW], None);
}

#[test]
fn crlf_lines_keep_their_bytes() {
    check(format!("{ROW}\r\n{ROW}\r\n").as_bytes(), &[&format!("{ROW}\r\n"), &format!("{ROW}\r\n")], None);
}

#[test]
fn empty_lines_are_refused_wherever_they_are() {
    let message = "column 1: expected a JSON object, found an empty line";
    check(format!("\n{ROW}\n").as_bytes(), &[], Some(&format!("line 1, {message}")));
    check(
        format!("{ROW}\n\n{ROW}\n").as_bytes(),
        &[&format!("{ROW}\n")],
        Some(&format!("line 2, {message}")),
    );
    check(format!("{ROW}\n\r\n").as_bytes(), &[&format!("{ROW}\n")], Some(&format!("line 2, {message}")));
}

#[test]
fn timestamps_are_compared_across_rows() {
    let early = ROW.replace(": 5,", ": 4,");
    let error =
        "line 2, column 15: /timestamp: expected at least 5 ms, the timestamp of the row above, found 4 ms";
    check(format!("{ROW}\n{early}\n").as_bytes(), &[&format!("{ROW}\n")], Some(error));
}

#[test]
fn compressed_files_are_named() {
    let error = |format| {
        format!("line 1, column 1: expected JSON lines, found {format} data: decompress the trace first")
    };
    for (start, format) in [
        (&b"\x1f\x8b\x08\x00rest"[..], "gzip"),
        (b"\x28\xb5\x2f\xfdrest\n", "zstd"),
        (b"\xfd7zXZ\x00rest", "xz"),
        (b"BZh91AY", "bzip2"),
        (b"\x04\x22\x4d\x18", "lz4"),
        (b"PK\x03\x04\n", "zip"),
    ] {
        check(start, &[], Some(&error(format)));
    }
    // Compressed data may hold no newline for long.
    let mut long = b"\x1f\x8b".to_vec();
    long.resize(1 << 12, b'x');
    let rules = Rules { max_line_bytes: 100, ..Rules::default() };
    let (_, end) = read_all(TraceReader::with_rules(&long[..], rules));
    assert_eq!(end, Some(error("gzip")));
}

#[test]
fn a_byte_order_mark_is_named() {
    let error = "line 1, column 1: expected a JSON object, found a byte order mark";
    check(format!("\u{feff}{ROW}\n").as_bytes(), &[], Some(error));
}

#[test]
fn lines_up_to_the_limit_are_read() {
    for (limit, end, fits) in [(ROW.len(), "\n", true), (ROW.len(), "", true), (ROW.len() - 1, "\n", false)] {
        for capacity in [1, 7, 100, 1 << 16] {
            let rules = Rules { max_line_bytes: limit, ..Rules::default() };
            let trace = format!("{ROW}{end}");
            let source = BufReader::with_capacity(capacity, trace.as_bytes());
            let (rows, error) = read_all(TraceReader::with_rules(source, rules));
            let expected = format!(
                "line 1, column {}: expected a line of at most {limit} bytes, found a longer one",
                limit + 1
            );
            assert_eq!((rows.len() == 1, error), (fits, (!fits).then_some(expected)));
        }
    }
}

#[test]
fn a_gigabyte_without_a_newline_costs_no_more_than_the_limit() {
    let source = BufReader::new(std::io::repeat(b'1').take(1 << 30));
    let mut reader = TraceReader::with_rules(source, Rules { max_line_bytes: 1 << 16, ..Rules::default() });
    assert!(reader.next_row().unwrap_err().to_string().contains("at most 65536 bytes"));
    assert!(reader.carried.capacity() <= 1 << 17);
    let unread = reader.source.into_inner().limit();
    assert!(unread > (1 << 30) - (1 << 18), "the rest of the line is not read");
}

#[test]
fn errors_name_the_file() {
    let mut reader = TraceReader::new(&b"{}"[..]).named(Path::new("traces/a.jsonl"));
    let error = reader.next_row().unwrap_err();
    assert!(
        error.to_string().starts_with("traces/a.jsonl:1:2: /timestamp: expected a whole number"),
        "{error}"
    );
    let TraceError::Row(row) = error else { panic!("a row error") };
    assert!(matches!(row.kind, RowErrorKind::Missing { .. }));
}

/// Gives some bytes, then is interrupted once, then fails.
struct Failing(Vec<Option<ErrorKind>>);

impl Read for Failing {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self.0.pop() {
            Some(Some(kind)) => Err(kind.into()),
            Some(None) => (&ROW.as_bytes()[..10]).read(out),
            None => Ok(0),
        }
    }
}

#[test]
fn a_failed_read_is_told_with_its_line() {
    let source = Failing(vec![Some(ErrorKind::Other), None, Some(ErrorKind::Interrupted)]);
    let (rows, error) = read_all(TraceReader::new(BufReader::new(source)));
    assert_eq!((rows.len(), error.as_deref()), (0, Some("cannot read the trace after line 0")));
}

proptest! {
    #[test]
    fn no_input_makes_the_parser_panic_and_buffers_do_not_matter(
        trace in proptest::collection::vec(
            prop_oneof![
                3 => Just(format!("{ROW}\n").into_bytes()),
                1 => Just(b"\r\n".to_vec()),
                2 => proptest::collection::vec(any::<u8>(), 0..30),
            ],
            0..6,
        ).prop_map(|parts| parts.concat()),
        capacity in 1..200_usize,
        limit in 0..200_usize,
    ) {
        let rules = Rules { max_line_bytes: limit, ..Rules::default() };
        let whole = read_all(TraceReader::with_rules(&trace[..], rules.clone()));
        let parts = read_all(TraceReader::with_rules(BufReader::with_capacity(capacity, &trace[..]), rules));
        prop_assert_eq!(&whole, &parts);
        let read = whole.0.concat();
        prop_assert!(trace.starts_with(&read));
        prop_assert!(whole.1.is_some() || read.len() == trace.len());
    }
}
