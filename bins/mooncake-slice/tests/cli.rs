//! The command as a script meets it: arguments, files, streams, exit codes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what its tests share")]

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use assert_cmd::cargo::CommandCargoExt;
use mooncake_trace::{Sha256, SliceManifest};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use serde_json::Value;
use tempfile::TempDir;

const ROW: &str = r#"{"timestamp": 5, "input_length": 600, "output_length": 3, "hash_ids": [1, 2]}"#;

/// A folder to work in, and the command started there.
struct Place(TempDir);

impl Place {
    /// With these bytes as `trace.jsonl`.
    fn new(trace: impl AsRef<[u8]>) -> Self {
        let place = Place(tempfile::tempdir().unwrap());
        fs::write(place.path("trace.jsonl"), trace).unwrap();
        place
    }

    fn rows(count: usize) -> Self {
        Place::new(format!("{ROW}\n").repeat(count))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::cargo_bin("mooncake-slice").unwrap();
        command.args(args).current_dir(self.0.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs with the usual arguments and these.
    fn slice(&self, more: &[&str]) -> Output {
        self.run(&[&["trace.jsonl", "-o", "window.jsonl"], more].concat())
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn manifest(&self) -> SliceManifest {
        SliceManifest::from_json(&fs::read(self.path("window.jsonl.manifest.json")).unwrap()).unwrap()
    }
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

#[track_caller]
fn check_exit(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "stdout {}\nstderr {}", stdout(output), stderr(output));
}

/// Fails with this code and message, and leaves nothing but what was there.
#[track_caller]
fn check_failure(place: &Place, output: &Output, code: i32, message: &str) {
    check_exit(output, code);
    assert!(stderr(output).contains(message), "{}", stderr(output));
    assert_eq!(stderr(output).lines().count(), 1, "one clear error: {}", stderr(output));
    assert_eq!(place.files(), ["trace.jsonl"]);
}

#[test]
fn a_window_and_what_it_is() {
    let trace: Vec<_> = (0..9).map(|index| ROW.replace(": 5,", &format!(": {index},"))).collect();
    let place = Place::new(trace.join("\n"));
    let output = place.slice(&["--offset", "2", "--count", "4"]);
    check_exit(&output, 0);
    assert_eq!(stderr(&output), "");
    let window = trace[2..6].join("\n") + "\n";
    assert_eq!(fs::read_to_string(place.path("window.jsonl")).unwrap(), window);
    let (source, slice) = (Sha256::of(trace.join("\n").as_bytes()), Sha256::of(window.as_bytes()));
    let expected = format!(
        "window.jsonl: rows 3 to 6, {} bytes\n\
         slice   {slice}  not a published trace\n\
         source  {source}  not a published trace, 9 rows, {} bytes\n\
         arrivals 2 to 5 ms, 2400 input tokens, 12 output tokens, 8 block ids\n",
        window.len(),
        trace.join("\n").len(),
    );
    assert_eq!(stdout(&output), expected);
    assert_eq!(place.files(), ["trace.jsonl", "window.jsonl", "window.jsonl.manifest.json"]);
    assert_eq!(place.manifest().slice.sha256, slice);
}

#[test]
fn the_result_as_json_is_the_manifest() {
    let place = Place::rows(3);
    let output = place.slice(&["--count", "3", "--message-format", "json"]);
    check_exit(&output, 0);
    let event: Value = serde_json::from_str(stdout(&output)).unwrap();
    assert_eq!((event["event"].as_str(), event["out"].as_str()), (Some("slice"), Some("window.jsonl")));
    assert_eq!(event["manifest_path"], "window.jsonl.manifest.json");
    let manifest: SliceManifest = serde_json::from_value(event["manifest"].clone()).unwrap();
    assert_eq!(manifest, place.manifest());
    assert_eq!(stdout(&output).lines().count(), 1);
}

#[test]
fn the_manifest_tells_nothing_of_this_machine() {
    let place = Place::rows(2);
    check_exit(&place.slice(&["--count", "2"]), 0);
    let first = fs::read_to_string(place.path("window.jsonl.manifest.json")).unwrap();
    assert!(!first.contains("jsonl") && !first.contains(place.0.path().to_str().unwrap()), "{first}");
    let elsewhere = Place::rows(2);
    check_exit(&elsewhere.slice(&["--count", "2"]), 0);
    assert_eq!(fs::read_to_string(elsewhere.path("window.jsonl.manifest.json")).unwrap(), first);
}

#[test]
fn bad_rows_are_refused_with_their_place() {
    let row = |fields: &str| format!("{ROW}\n{{{fields}}}\n{ROW}\n");
    let rest = r#""input_length": 600, "output_length": 3, "hash_ids": [1, 2]"#;
    let time = r#""timestamp": 6"#;
    #[rustfmt::skip]
    let table: &[(&str, String, &str, &str)] = &[
        ("json", row(r#""timestamp": 6, "input_length": 600, "output_length":2748 610, "hash_ids": [1, 2]"#),
            "trace.jsonl:2:60: /output_length: ", "found `6` where `,` or `}` was expected"),
        ("missing-field", row(rest), "trace.jsonl:2:61: /timestamp: ", "found no such field"),
        ("value", row(&format!(r#""timestamp": -6, {rest}"#)), "trace.jsonl:2:15: /timestamp: ", "found -6"),
        ("value", row(&format!(r#""timestamp": 6.5, {rest}"#)), "trace.jsonl:2:15: /timestamp: ", "found 6.5"),
        ("value", row(&format!(r#"{time}, "input_length": 0"#)), "trace.jsonl:2:34: /input_length: ", "from 1 to"),
        ("timestamp-went-back", row(&format!(r#""timestamp": 4, {rest}"#)), "trace.jsonl:2:15: /timestamp: ", "at least 5 ms"),
        ("value", row(&format!(r#"{time}, "hash_ids": [18446744073709551616]"#)), "trace.jsonl:2:31: /hash_ids/0: ", "18446744073709551615"),
        ("hash-count", row(&format!("{time}, {}", rest.replace("[1, 2]", "[1]"))), "trace.jsonl:2:71: /hash_ids: ", "expected 2 block ids for 600 tokens in blocks of 512"),
        ("multi-turn", row(&format!(r#"{time}, "session_id": "a", {rest}"#)), "trace.jsonl:2:18: /session_id: ", "single-turn"),
        ("multi-turn", row(&format!(r#"{time}, "delay": 7, {rest}"#)), "trace.jsonl:2:18: /delay: ", "single-turn"),
        ("alias", row(&format!(r#"{time}, "input_tokens": 7, {rest}"#)), "trace.jsonl:2:18: /input_tokens: ", "`input_length`"),
        ("unknown-field", row(&format!(r#"{time}, "model": 7, {rest}"#)), "trace.jsonl:2:18: /model: ", "found `model`"),
        ("empty-line", format!("{ROW}\n\n{ROW}\n"), "trace.jsonl:2:1: ", "an empty line"),
        ("not-an-object", format!("{ROW}\n[]\n"), "trace.jsonl:2:1: ", "found an array"),
        ("byte-order-mark", format!("\u{feff}{ROW}\n"), "trace.jsonl:1:1: ", "byte order mark"),
    ];
    for (kind, trace, place_of_error, message) in table {
        let place = Place::new(trace);
        let output = place.slice(&["--count", "1", "--message-format", "json"]);
        check_failure(&place, &output, 4, message);
        assert!(stderr(&output).contains(place_of_error), "{kind}: {}", stderr(&output));
        let event: Value = serde_json::from_str(stdout(&output)).unwrap();
        assert_eq!((event["event"].as_str(), event["exit_code"].as_u64()), (Some("error"), Some(4)));
        assert_eq!(event["row"]["kind"], *kind, "{event}");
        assert!(
            place_of_error
                .starts_with(&format!("trace.jsonl:{}:{}:", event["row"]["line"], event["row"]["column"]))
        );
        assert!(place_of_error.contains(event["row"]["pointer"].as_str().unwrap()));
    }
}

#[test]
fn the_line_that_was_once_published_broken() {
    let broken = r#"{"timestamp": 0, "input_length": 17448, "output_length":2748 610, "hash_ids": [0, 200]}"#;
    let row = ROW.replace(": 5,", ": 0,") + "\n";
    let place = Place::new(row.repeat(12) + broken + "\n" + &row);
    let expected = "trace.jsonl:13:62: /output_length: expected one JSON object per line: \
                    found `6` where `,` or `}` was expected";
    for window in [
        ["--offset", "0", "--count", "5"],
        ["--offset", "12", "--count", "1"],
        ["--offset", "13", "--count", "1"],
    ] {
        check_failure(&place, &place.slice(&window), 4, expected);
    }
}

#[test]
fn a_compressed_trace_is_refused_by_name() {
    let place = Place::new(b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03");
    check_failure(
        &place,
        &place.slice(&["--count", "1"]),
        4,
        "trace.jsonl:1:1: expected JSON lines, found gzip data",
    );
}

#[test]
fn rules_can_be_chosen() {
    let place = Place::new(ROW.replace("[1, 2]", "[1, 2, 3], \"model\": 7"));
    check_exit(&place.slice(&["--count", "1"]), 4);
    check_exit(&place.slice(&["--count", "1", "--unknown-fields", "keep"]), 4);
    check_exit(&place.slice(&["--count", "1", "--unknown-fields", "keep", "--hash-count", "cover"]), 0);
    assert_eq!(place.manifest().slice.other_fields["model"], 1);
    let output = place.slice(&["--count", "1", "--unknown-fields", "keep", "--block-size", "200", "--force"]);
    check_exit(&output, 0);
    let output = place.slice(&["--count", "1", "--max-line-bytes", "20", "--force"]);
    check_exit(&output, 4);
    assert!(stderr(&output).contains("trace.jsonl:1:21: expected a line of at most 20 bytes"));
    assert_eq!(place.manifest().rules.block_size.get(), 200, "a failed replacement keeps the old pair");
}

#[test]
fn crlf_and_a_missing_newline_are_kept() {
    let trace = format!("{ROW}\r\n{ROW}");
    let place = Place::new(&trace);
    check_exit(&place.slice(&["--count", "2"]), 0);
    assert_eq!(fs::read_to_string(place.path("window.jsonl")).unwrap(), trace);
    assert_eq!((place.manifest().slice.crlf_rows, place.manifest().slice.ends_with_newline), (1, false));
}

#[test]
fn a_trace_shorter_than_the_window_is_bad_input() {
    let place = Place::rows(10);
    let message = "the trace has 10 rows, and the window ends after row 11";
    check_failure(&place, &place.slice(&["--offset", "6", "--count", "5"]), 4, message);
    check_failure(&place, &place.slice(&[]), 4, "the window ends after row 5000");
    let empty = Place::new("");
    check_failure(&empty, &empty.slice(&["--count", "1"]), 4, "the trace has 0 rows");
}

#[test]
fn another_trace_than_asked_for_is_bad_input() {
    let place = Place::rows(3);
    let zeros = "0".repeat(64);
    for option in ["--source-sha256", "--slice-sha256"] {
        let output = place.slice(&["--count", "1", option, &zeros]);
        check_failure(&place, &output, 4, &format!("and {zeros} was asked for"));
    }
    let source = Sha256::of(&fs::read(place.path("trace.jsonl")).unwrap()).to_string();
    let slice = Sha256::of(format!("{ROW}\n").as_bytes()).to_string();
    check_exit(&place.slice(&["--count", "1", "--source-sha256", &source, "--slice-sha256", &slice]), 0);
}

#[test]
fn mistakes_on_the_command_line_are_usage_errors() {
    let place = Place::rows(3);
    let max = u64::MAX.to_string();
    check_failure(&place, &place.slice(&["--count", "0"]), 2, "a window of 0 rows is empty");
    check_failure(&place, &place.slice(&["--offset", &max]), 2, "end beyond row");
    check_failure(
        &place,
        &place.run(&["trace.jsonl", "--count", "1", "-o", "no/such/out"]),
        4,
        "cannot create no/such/out",
    );
    for args in [
        &["trace.jsonl"][..],
        &["-o", "window.jsonl"],
        &["trace.jsonl", "-o", "window.jsonl", "--count", "-1"],
        &["trace.jsonl", "-o", "window.jsonl", "--block-size", "0"],
        &["trace.jsonl", "-o", "window.jsonl", "--max-line-bytes", "0"],
        &["trace.jsonl", "-o", "window.jsonl", "--source-sha256", "abc"],
        &["trace.jsonl", "-o", "window.jsonl", "--no-such-option"],
    ] {
        check_exit(&place.run(args), 2);
    }
    assert_eq!(place.files(), ["trace.jsonl"]);
}

#[test]
fn a_missing_trace_is_bad_input() {
    let place = Place::rows(1);
    let output = place.run(&["missing.jsonl", "-o", "window.jsonl"]);
    check_failure(&place, &output, 4, "cannot open the trace missing.jsonl: No such file");
    let output = place.run(&[".", "-o", "window.jsonl"]);
    check_failure(&place, &output, 4, "cannot read the trace after line 0: Is a directory");
}

#[test]
fn existing_files_are_replaced_only_by_force() {
    let place = Place::rows(3);
    fs::write(place.path("window.jsonl"), "mine").unwrap();
    let output = place.slice(&["--count", "1"]);
    check_exit(&output, 4);
    assert_eq!(stderr(&output), "mooncake-slice: window.jsonl exists already\n");
    assert_eq!(fs::read_to_string(place.path("window.jsonl")).unwrap(), "mine");
    check_exit(&place.slice(&["--count", "1", "--force"]), 0);
    check_exit(&place.slice(&["--count", "2", "--force"]), 0);
    assert_eq!(place.manifest().slice.rows.get(), 2);
    for (out, message) in [
        ("trace.jsonl", "trace.jsonl is the trace itself and will not be replaced"),
        ("/dev/full", "/dev/full is not a regular file and will not be replaced"),
        (".", "is not a regular file"),
    ] {
        let output = place.run(&["trace.jsonl", "--count", "1", "--force", "-o", out]);
        check_exit(&output, 4);
        assert!(stderr(&output).contains(message), "{}", stderr(&output));
    }
}

#[test]
fn a_trace_can_come_through_a_pipe() {
    let place = Place::rows(1);
    let mut command = place.command(&["/dev/stdin", "-o", "window.jsonl", "--count", "20000"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let trace = format!("{ROW}\n").repeat(30_000);
    child.stdin.take().unwrap().write_all(trace.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(place.manifest().source.sha256, Sha256::of(trace.as_bytes()));
    assert_eq!(place.manifest().source.rows, 30_000);
}

#[test]
fn a_reader_that_went_away_is_no_error() {
    for format in ["human", "json"] {
        let place = Place::rows(3);
        let mut command =
            place.command(&["trace.jsonl", "-o", "window.jsonl", "--count", "1", "--message-format", format]);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command.stdout(writer).output().unwrap();
        check_exit(&output, 0);
        assert_eq!(stderr(&output), "");
        assert_eq!(place.files().len(), 3);
    }
}

#[test]
fn a_result_that_cannot_be_printed_is_an_error_and_the_slice_stays() {
    let place = Place::rows(3);
    let mut command = place.command(&["trace.jsonl", "-o", "window.jsonl", "--count", "1"]);
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = command.stdout(full).output().unwrap();
    check_exit(&output, 5);
    assert!(
        stderr(&output).contains("the slice is complete, but the result cannot be printed"),
        "{}",
        stderr(&output)
    );
    assert_eq!(place.manifest().slice.rows.get(), 1);
}

#[test]
fn a_line_without_end_costs_bounded_memory() {
    let place = Place::rows(1);
    let output = place.run(&["/dev/zero", "-o", "window.jsonl"]);
    check_failure(&place, &output, 4, "/dev/zero:1:8388609: expected a line of at most 8388608 bytes");
    // The largest child of this process so far, in KiB.
    let peak_kib = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap().max_rss();
    assert!(peak_kib < 64 << 10, "{peak_kib} KiB");
}

/// Starts the command on a named pipe and writes some rows, more than its buffers hold, to it.
fn start_on_fifo(place: &Place) -> (std::process::Child, File) {
    mkfifo(&place.path("fifo"), Mode::from_bits_truncate(0o600)).unwrap();
    let mut command = place.command(&["fifo", "-o", "window.jsonl", "--count", "1000000"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut fifo = OpenOptions::new().write(true).open(place.path("fifo")).unwrap();
    fifo.write_all(format!("{ROW}\n").repeat(20_000).as_bytes()).unwrap();
    wait_for(|| place.files().iter().any(|name| name.ends_with(".partial")));
    (child, fifo)
}

fn wait_for(condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "it never came");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn signal(child: &std::process::Child, signal: Signal) {
    kill(Pid::from_raw(child.id().try_into().unwrap()), signal).unwrap();
}

#[test]
fn an_interrupted_command_leaves_nothing() {
    for (number, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let place = Place::rows(1);
        let (mut child, mut fifo) = start_on_fifo(&place);
        signal(&child, number);
        // It looks up every thousand rows; after that nobody reads the pipe.
        let more = format!("{ROW}\n").repeat(20_000);
        while fifo.write_all(more.as_bytes()).is_ok() {}
        assert_eq!(child.wait().unwrap().code(), Some(code));
        let mut message = String::new();
        child.stderr.take().unwrap().read_to_string(&mut message).unwrap();
        assert!(message.starts_with("mooncake-slice: stopped while reading row "), "{message}");
        assert_eq!(place.files(), ["fifo", "trace.jsonl"]);
    }
}

#[test]
fn a_killed_command_leaves_nothing_that_looks_whole() {
    let place = Place::rows(1);
    let (mut child, fifo) = start_on_fifo(&place);
    signal(&child, Signal::SIGKILL);
    child.wait().unwrap();
    drop(fifo);
    let left = place.files();
    assert_eq!(left.len(), 3, "{left:?}");
    assert!(left[0].starts_with(".window.jsonl.") && left[0].ends_with(".partial"), "{left:?}");
}

/// A file system of 256 KiB, or nothing where this test may not mount one.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        use nix::mount::{MsFlags, mount};
        let directory = tempfile::tempdir().unwrap();
        let size = Some("size=256k");
        match mount(Some("tmpfs"), directory.path(), Some("tmpfs"), MsFlags::empty(), size) {
            Ok(()) => Some(SmallDisk(directory)),
            Err(error) => {
                eprintln!("skipped: this user cannot mount a small file system ({error})");
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if let Err(error) = nix::mount::umount(self.0.path()) {
            eprintln!("{} stays mounted: {error}", self.0.path().display());
        }
    }
}

#[test]
fn a_full_disk_leaves_nothing() {
    let Some(disk) = SmallDisk::mount() else { return };
    let place = Place::rows(10_000);
    let out = disk.path().join("window.jsonl");
    // No room for the slice; room for the slice (64 pages) but none for its manifest.
    for count in ["10000", "3360"] {
        let output = place.run(&["trace.jsonl", "--count", count, "-o", out.to_str().unwrap()]);
        check_exit(&output, 5);
        assert!(stderr(&output).contains("No space left on device"), "{}", stderr(&output));
        assert_eq!(fs::read_dir(disk.path()).unwrap().count(), 0);
    }
    check_exit(&place.run(&["trace.jsonl", "--count", "1000", "-o", out.to_str().unwrap()]), 0);
}

#[test]
fn help_lists_the_exit_codes() {
    let output = Place::rows(1).run(&["--help"]);
    check_exit(&output, 0);
    for part in ["--offset", "--count", "--block-size", "[default: 512]", "Exit codes:", "bad input"] {
        assert!(stdout(&output).contains(part), "{part}");
    }
}
