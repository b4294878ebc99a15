//! How slicing a trace compares with hashing it, and whether its memory depends on the size of the trace.
//!
//! `cargo bench -p mooncake-trace --bench targets -- [--check] [--megabytes N]`
//!
//! Prints `what  target  measured  met|missed` per line; with `--check`, a miss exits 1.
//!
//! Hashing and slicing take turns on the same file, which was read once before, and the shortest wall times of both are
//! compared: what else the machine does only ever adds time.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use mooncake_trace::{Sha256, Window, slice};

const ROUNDS: usize = 7;
const MIN_RATIO: f64 = 0.5;
const MAX_GROWTH_KIB: u64 = 2 << 10;
const SMALL_MEGABYTES: u64 = 10;
const LARGE_MEGABYTES: u64 = 300;

fn main() -> ExitCode {
    let options = Options::from_args();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut report = Report::default();
    memory(&mut report, directory.path(), &options);
    for (name, ids) in [("published ids (6 digits)", Ids::Published), ("64-bit ids (20 digits)", Ids::Wide)] {
        let path = directory.path().join("trace.jsonl");
        let rows = generate(&path, options.megabytes, ids);
        throughput(&mut report, name, &path, rows);
    }
    if options.check && report.missed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

struct Options {
    check: bool,
    megabytes: u64,
}

impl Options {
    fn from_args() -> Self {
        let mut options = Options { check: false, megabytes: LARGE_MEGABYTES };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--check" => options.check = true,
                "--megabytes" => {
                    let value = args.next().and_then(|value| value.parse().ok());
                    options.megabytes = value.expect("--megabytes takes a whole number");
                }
                // Cargo says so to every bench target.
                "--bench" => {}
                other => panic!("unknown argument {other}"),
            }
        }
        options
    }
}

#[derive(Default)]
struct Report {
    missed: u32,
}

impl Report {
    fn line(&mut self, what: &str, target: &str, measured: &str, met: bool) {
        self.missed += u32::from(!met);
        println!("{what:<58} target {target:<12} measured {measured} {}", if met { "met" } else { "missed" });
    }
}

#[derive(Clone, Copy)]
enum Ids {
    Published,
    Wide,
}

/// Writes a trace with the shape of the published conversation trace: 24 blocks a row on average, most of them new.
fn generate(path: &Path, megabytes: u64, ids: Ids) -> u64 {
    let mut out = BufWriter::new(File::create(path).expect("a file in a temporary directory"));
    let (mut written, mut rows, mut next) = (0, 0_u64, 100_000_u64);
    while written < megabytes * 1_000_000 {
        let blocks = 4 + rows % 41;
        let mut line = format!(
            "{{\"timestamp\": {}, \"input_length\": {}, \"output_length\": {}, \"hash_ids\": [0",
            rows * 294,
            blocks * 512 - rows % 512,
            1 + rows % 900
        );
        for _ in 1..blocks {
            next = if next < 999_999 { next + 1 } else { 100_000 };
            let id = match ids {
                Ids::Published => next,
                Ids::Wide => next.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 << 63,
            };
            line.push_str(&format!(", {id}"));
        }
        line.push_str("]}\n");
        out.write_all(line.as_bytes()).expect("room in the temporary directory");
        written += line.len() as u64;
        rows += 1;
    }
    out.flush().expect("room in the temporary directory");
    rows
}

fn memory(report: &mut Report, directory: &Path, options: &Options) {
    let path = directory.join("memory.jsonl");
    let peak = |megabytes| {
        let rows = generate(&path, megabytes, Ids::Published);
        cut(&path, window(0, rows));
        peak_kib()
    };
    let (small, large) = (peak(SMALL_MEGABYTES), peak(options.megabytes));
    report.line(
        &format!("peak memory, {} MB after {SMALL_MEGABYTES} MB", options.megabytes),
        "< 2048 KiB",
        &format!("+{} KiB (peak {large} KiB)", large - small),
        large - small < MAX_GROWTH_KIB,
    );
    std::fs::remove_file(&path).expect("the file is there");
}

/// The most memory this process has ever had resident.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches(" kB").parse().expect("a number of KiB")
}

fn throughput(report: &mut Report, name: &str, path: &Path, rows: u64) {
    let hash = || {
        Sha256::of_file(path).expect("the trace can be read");
    };
    hash();
    // A window as large as the trace has a digest as expensive as the trace's own: two passes of hashing.
    for (part, window, passes) in [
        ("first 5,000 rows", window(0, 5_000), 1),
        ("last 5,000 rows", window(rows - 5_000, 5_000), 1),
        ("all rows, both digests", window(0, rows), 2),
    ] {
        let (mut hashing, mut slicing) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            hashing.push(time(|| (0..passes).for_each(|_| hash())));
            slicing.push(time(|| cut(path, window)));
        }
        let (hashing, slicing) = (shortest(hashing), shortest(slicing));
        let bytes = std::fs::metadata(path).expect("the trace is there").len();
        let rate = |time: Duration| bytes as f64 / 1e9 / time.as_secs_f64();
        let ratio = rate(slicing) / rate(hashing);
        report.line(
            &format!("slice / SHA-256, {name}, {part}"),
            ">= 0.50",
            &format!("{ratio:.2} ({:.2} / {:.2} GB/s)", rate(slicing), rate(hashing)),
            ratio >= MIN_RATIO,
        );
    }
}

fn window(offset: u64, count: u64) -> Window {
    Window::new(offset, count).expect("a window of a generated trace")
}

fn cut(path: &Path, window: Window) {
    let file = File::open(path).expect("the trace is there");
    let manifest = slice(file, &window, io::sink()).expect("a generated trace is valid");
    assert_eq!(manifest.slice.rows.get(), window.count());
}

fn time(run: impl FnOnce()) -> Duration {
    let start = Instant::now();
    run();
    start.elapsed()
}

fn shortest(times: Vec<Duration>) -> Duration {
    times.into_iter().min().expect("at least one round")
}
