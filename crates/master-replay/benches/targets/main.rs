//! What a replay costs, and whether the replayer or the master is what limits it.
//!
//! `cargo bench -p master-replay --bench targets -- [--check] [loading] [saturated] [paced] [latency]`
//!
//! Prints `what  target  measured  met|missed` per line; with `--check`, a miss exits 1. Master and replayer are two
//! processes on the loopback interface, each bound to a CPU of its own. The bare loop that paced replays are compared with
//! sleeps until a call is due, sends a request made once, and counts the bytes of replies; it takes turns with the
//! replayer, five times each, and the medians are compared. Latencies are held against copies of the packets, with the
//! kernel's times.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures other processes from outside")]
#![expect(clippy::cast_precision_loss, reason = "figures for a reader")]

mod bare;
mod capture;
mod child;
mod material;

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

use child::{Options, Ran, Served};
use material::{Ids, Material};
use testkit::masters::{self, Master};

const VERSION: &str = "0.3.13.post1";
const ROUNDS: usize = 5;

/// A tenth is told from noise: nine medians of 10,000 calls for each count.
const IN_FLIGHT_ROUNDS: usize = 9;

/// Parts beside `loading`: each is given the CPUs of the replayer and of the master.
type Part = fn(&mut Report, &Path, usize, usize);

const PARTS: [(&str, Part); 3] =
    [("saturated", saturated), ("paced", paced), ("latency", whatever_is_allowed_in_flight)];

/// Prints what was aimed at and what was reached.
#[derive(Default)]
struct Report {
    missed: u32,
}

impl Report {
    fn line(&mut self, what: &str, target: &str, measured: &str, met: bool) {
        self.missed += u32::from(!met);
        println!("{what:<62} {target:<22} {measured:<22} {}", if met { "met" } else { "missed" });
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(exit) = child::play(&arguments) {
        return exit;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut report = Report::default();
    let wanted = |part: &str| {
        let mut named = arguments.iter().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
        named.peek().is_none() || named.any(|argument| argument == part)
    };
    if wanted("loading") {
        loading(&mut report, folder.path());
    }
    let [replayer, .., master] = child::cpus()[..] else {
        report.line("calls", "two CPUs", "not measured: one", false);
        return ExitCode::FAILURE;
    };
    for (name, part) in PARTS {
        if wanted(name) {
            part(&mut report, folder.path(), replayer, master);
        }
    }
    let check = arguments.iter().any(|argument| argument == "--check");
    if check && report.missed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Reading and checking: speed, memory, and that both grow with the trace and no faster.
fn loading(report: &mut Report, folder: &Path) {
    let mut before = None;
    for (events, rounds) in [(100_000, ROUNDS), (1_000_000, ROUNDS), (10_000_000, 3)] {
        let trace = material::one_key_events(folder, events, 0, Ids::Counted);
        let seconds = load(report, &trace, &format!("load and check {events} events"), rounds);
        let each = seconds / events as f64;
        if let Some((fewer, before)) = before.replace((events, each)) {
            let growth = each / before;
            report.line(
                &format!("time per event, {events} against {fewer}"),
                "<= 1.5 x",
                &format!("{growth:.2} x"),
                growth <= 1.5,
            );
        }
        remove(&trace);
    }
    let trace = material::one_key_events(folder, 1_000_000, 0, Ids::Scattered);
    load(report, &trace, "load and check 1000000 events, ids in no order", ROUNDS);
    remove(&trace);
}

/// Gives the median of the seconds.
fn load(report: &mut Report, trace: &Material, what: &str, rounds: usize) -> f64 {
    let loads: Vec<child::Loaded> = (0..rounds).map(|_| child::load(&trace.path)).collect();
    let seconds = median(loads.iter().map(|load| load.seconds).collect());
    let rate = trace.bytes as f64 / 1e6 / seconds;
    report.line(what, ">= 250 MB/s", &format!("{rate:.0} MB/s"), rate >= 250.0);
    let peak = loads.iter().map(|load| load.peak_bytes).max().unwrap_or(0);
    let held = peak.saturating_sub(trace.string_bytes) as f64 / trace.events as f64;
    let each = seconds * 1e9 / trace.events as f64;
    println!("  {each:.0} ns per event; peak {held:.0} bytes per event beyond keys and ids");
    seconds
}

fn remove(trace: &Material) {
    std::fs::remove_file(&trace.path).expect("a file of our own");
}

fn saturated(report: &mut Report, folder: &Path, replayer: usize, master: usize) {
    let trace = material::one_key_events(folder, 200_000, 0, Ids::Counted);
    let real = masters::start(VERSION, &["--rpc_thread_num=4"]);
    child::bind_all(real.pid(), master);
    let options = Options { cpu: replayer, in_flight: 64, spin_us: 0 };
    let before = child::cpu_of(real.pid());
    let ran = child::replay(&trace.path, real.address(), options);
    let busy = (child::cpu_of(real.pid()) - before) / ran.seconds;
    let part = ran.cpu_seconds / ran.seconds * 100.0;
    let each = ran.cpu_seconds * 1e6 / 200_000.0;
    println!(
        "  all due at 0, real master: {:.0} calls/s; read delay: {} times, {} us at most, {} us together",
        200_000.0 / ran.seconds,
        ran.engine("read_delays"),
        ran.engine("read_delay_max_us"),
        ran.engine("read_delay_total_us")
    );
    report.line("  processor of the real master", ">= 90 %", &format!("{:.0} %", busy * 100.0), busy >= 0.9);
    report.line("  processor of the replayer", "< 25 %", &format!("{part:.1} %"), part < 25.0);
    report.line("  processor of the replayer per call", "<= 4 us", &format!("{each:.2} us"), each <= 4.0);

    let served = Served::start(master);
    let options = Options { cpu: replayer, in_flight: 256, spin_us: 0 };
    let ran = child::replay(&trace.path, served.address, options);
    let rate = 200_000.0 / ran.seconds;
    report.line(
        "all due at 0, stand-in",
        ">= 300,000 calls/s",
        &format!("{rate:.0} calls/s"),
        rate >= 300_000.0,
    );

    let mut before: Option<Whole> = None;
    for events in [100_000, 1_000_000, 10_000_000] {
        let whole = whole_replay(report, folder, events, served.address, options);
        if let Some(before) = before {
            whole.is_linear_after(report, &before);
        }
        before = Some(whole);
    }
}

/// What a whole replay took, from reading the trace to the last output.
struct Whole {
    events: u64,
    seconds: f64,
    cpu_seconds: f64,
    output_seconds: f64,
}

fn whole_replay(
    report: &mut Report,
    folder: &Path,
    events: u64,
    address: SocketAddr,
    options: Options,
) -> Whole {
    let trace = material::one_key_events(folder, events, 0, Ids::Counted);
    let ran = child::replay(&trace.path, address, options);
    remove(&trace);
    let held = ran.peak_bytes.saturating_sub(trace.string_bytes) as f64 / events as f64;
    println!("  replay of {events} events: {:.2} s, outputs {:.2} s", ran.whole_seconds, ran.output_seconds);
    if events >= 1_000_000 {
        report.line(
            &format!("replay of {events} events: peak memory beyond keys and ids"),
            "<= 160 bytes an event",
            &format!("{held:.0} bytes"),
            held <= 160.0,
        );
    }
    if events == 1_000_000 {
        let seconds = ran.output_seconds;
        report.line("  its outputs", "<= 1.4 s", &format!("{seconds:.2} s"), seconds <= 1.4);
    }
    if events == 10_000_000 {
        let gib = ran.peak_bytes as f64 / f64::from(1 << 30);
        report.line("  its peak memory as a whole", "<= 3 GiB", &format!("{gib:.2} GiB"), gib <= 3.0);
    }
    Whole {
        events,
        seconds: ran.whole_seconds,
        cpu_seconds: ran.cpu_seconds,
        output_seconds: ran.output_seconds,
    }
}

impl Whole {
    fn is_linear_after(&self, report: &mut Report, before: &Whole) {
        let growth =
            |of: fn(&Whole) -> f64| of(self) / of(before) * before.events as f64 / self.events as f64;
        for (what, growth) in [
            ("whole", growth(|whole| whole.seconds)),
            ("processor while replaying", growth(|whole| whole.cpu_seconds)),
            ("outputs", growth(|whole| whole.output_seconds)),
        ] {
            report.line(
                &format!("  per event, against {} events: {what}", before.events),
                "<= 1.5 x",
                &format!("{growth:.2} x"),
                growth <= 1.5,
            );
        }
    }
}

fn paced(report: &mut Report, folder: &Path, replayer: usize, master: usize) {
    let sleeps = (0..ROUNDS).map(|_| child::sleep_us(replayer)).collect();
    println!("  a sleep of 200 us by itself: {:.1} us of processor", median(sleeps));
    for rate in [5_000_u64, 10_000, 20_000] {
        let trace = material::one_key_events(folder, 2 * rate, rate, Ids::Counted);
        let real = masters::start(VERSION, &["--rpc_thread_num=4"]);
        child::bind_all(real.pid(), master);
        // The bare loop waits for no reply before it sends; this many calls are 51 ms of the highest rate.
        let spinning = Options { cpu: replayer, in_flight: 1_024, spin_us: 100 };
        let (mut lags, mut ours, mut bare) = (Vec::new(), Vec::new(), Vec::new());
        // In turns, so that a machine that stands still for a while does it to all three.
        for _ in 0..ROUNDS {
            lags.push(child::replay(&trace.path, real.address(), spinning).lag_p99_us());
            bare.push(child::bare(real.address(), replayer, rate, 2 * rate));
            ours.push(child::replay(&trace.path, real.address(), Options { spin_us: 0, ..spinning }));
        }
        let lag = median(lags);
        report.line(
            &format!("{rate} calls/s, spinning: lag p99"),
            "<= 100 us",
            &format!("{lag:.0} us"),
            lag <= 100.0,
        );
        let lag = median(ours.iter().map(Ran::lag_p99_us).collect());
        let bare_lag = median(bare.iter().map(|bare| bare.lag_p99_us).collect());
        let cost = |ran: &Ran| ran.cpu_seconds * 1e6 / (2 * rate) as f64;
        let cpu = median(ours.iter().map(cost).collect());
        let bare_cpu = median(bare.iter().map(|bare| bare.cpu_us).collect());
        let write = median(ours.iter().map(|ran| ran.own_p50_us()[0]).collect());
        println!("  {rate} calls/s, sleeping: a write by itself takes {write:.0} us");
        let delayed: u64 = ours.iter().map(|ran| ran.engine("read_delays")).sum();
        report.line(
            &format!("{rate} calls/s, sleeping: lag p99 against a bare loop"),
            &format!("<= 1.5 x {bare_lag:.0} us"),
            &format!("{lag:.0} us"),
            lag <= 1.5 * bare_lag,
        );
        report.line(
            &format!("{rate} calls/s, sleeping: processor per call against a bare loop"),
            &format!("<= 1.5 x {bare_cpu:.1} us"),
            &format!("{cpu:.1} us"),
            cpu <= 1.5 * bare_cpu,
        );
        // Upstream's replayer has its core full at 5,000 calls/s already.
        let third = 1e6 / rate as f64 / 3.0;
        report.line(
            &format!("{rate} calls/s, sleeping: processor per call against upstream"),
            &format!("<= {third:.1} us"),
            &format!("{cpu:.1} us"),
            cpu <= third,
        );
        report.line(&format!("{rate} calls/s: read delays"), "0", &delayed.to_string(), delayed == 0);
    }
}

fn whatever_is_allowed_in_flight(report: &mut Report, folder: &Path, replayer: usize, master: usize) {
    let trace = material::one_key_events(folder, 10_000, 5_000, Ids::Counted);
    let real = masters::start(VERSION, &["--rpc_thread_num=4"]);
    child::bind_all(real.pid(), master);
    // In turns, so that a machine that changes changes under all three.
    let mut runs =
        [4, 16, 64].map(|in_flight| (Options { cpu: replayer, in_flight, spin_us: 100 }, Vec::new()));
    for _ in 0..IN_FLIGHT_ROUNDS {
        for (options, p50_us) in &mut runs {
            p50_us.push(child::replay(&trace.path, real.address(), *options).latency_p50_us());
        }
    }
    let found = runs.map(|(_, p50_us)| median(p50_us));
    let (least, most) =
        (found.iter().copied().fold(f64::MAX, f64::min), found.iter().copied().fold(0.0, f64::max));
    report.line(
        "5,000 calls/s: latency p50 for 4, 16 and 64 in flight",
        "within 10 %",
        &format!("{found:.0?} us"),
        most <= 1.1 * least,
    );
    for spin_us in [100, 0] {
        agrees_with_packets(report, &trace, &real, Options { cpu: replayer, in_flight: 16, spin_us });
    }
}

/// The latencies reported are those on the wire, plus what the replayer states of itself: at most the time of the write, within
/// which the packet left, and the time for which replies had been there when they were read.
fn agrees_with_packets(report: &mut Report, trace: &Material, real: &Master, options: Options) {
    let what = format!("5,000 calls/s, spin {} us: latency p50 against the packets", options.spin_us);
    let mut found = Vec::new();
    for _ in 0..ROUNDS {
        let capture = match capture::Capture::start() {
            Ok(capture) => capture,
            Err(errno) => return report.line(&what, "agree", &format!("not measured: {errno}"), false),
        };
        let ran = child::replay(&trace.path, real.address(), options);
        let captured = median(capture.latencies_us(real.address().port()));
        found.push((ran.latency_p50_us() - captured, ran.latency_p50_us(), captured, ran.own_p50_us()));
    }
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (apart, reported, captured, [write, unread]) = found[ROUNDS / 2];
    report.line(
        &what,
        &format!("apart <= {write:.0} + {unread:.0} us"),
        &format!("{reported:.0} us, {captured:.0} us captured"),
        (0.0..=write + unread).contains(&apart),
    );
}
