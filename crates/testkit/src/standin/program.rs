//! A stand-in for a replay harness: takes its command line and does what its script says.

use std::fs;
use std::io::{Write, stderr, stdout};
use std::path::Path;
use std::process::{Command, exit};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const SCRIPT: &str = include_str!("script.txt");
const REPORTS: [(&str, &str); 4] = [
    ("vllm-aggregated", include_str!("vllm-aggregated.json")),
    ("vllm-disagg", include_str!("vllm-disaggregated.json")),
    ("sglang-aggregated", include_str!("sglang-aggregated.json")),
    ("sglang-disagg", include_str!("sglang-disaggregated.json")),
];
const FLAGS: [&str; 20] = [
    "--num-workers",
    "--serving-mode",
    "--num-prefill-workers",
    "--num-decode-workers",
    "--engine-type",
    "--router-mode",
    "--arrival-speedup-ratio",
    "--trace-block-size",
    "--block-size",
    "--num-gpu-blocks",
    "--max-num-seqs",
    "--max-num-batched-tokens",
    "--kv-bytes-per-token",
    "--kv-transfer-bandwidth",
    "--kv-transfer-timing-mode",
    "--router-queue-threshold",
    "--report-json",
    "--iterations",
    "--timings-jsonl",
    "--canonical-reports-jsonl",
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let hidden: Vec<&str> = lines().filter_map(|(_, action)| action.strip_prefix("hide-flag ")).collect();
    let offered = || FLAGS.iter().filter(|flag| !hidden.contains(*flag));
    if arguments.iter().any(|argument| argument == "--help") {
        println!("Usage: offline_replay_bench [OPTIONS] <TRACE_FILE>\n\nOptions:");
        offered().for_each(|flag| println!("      {flag} <VALUE>"));
        return;
    }
    for argument in arguments.iter().filter(|argument| argument.starts_with("--") && *argument != "--bench") {
        let flag = argument.split('=').next().unwrap_or(argument);
        if !offered().any(|offered| *offered == flag) {
            eprintln!("error: unexpected argument '{flag}' found");
            exit(2);
        }
    }
    replay(&arguments);
}

/// Conditions and actions of the script.
fn lines() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = SCRIPT.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(' ')).map(|(condition, action)| match condition {
        "nth" => {
            let split = action.find(' ').unwrap_or(action.len());
            (&action[..split], action[split..].trim())
        }
        _ => (condition, action.trim()),
    })
}

fn value<'a>(arguments: &'a [String], flag: &str) -> Option<&'a str> {
    let place = arguments.iter().position(|argument| argument == flag)?;
    arguments.get(place + 1).map(String::as_str)
}

/// The number of this process among those that were asked to replay.
fn count() -> Option<String> {
    let (_, path) = lines().find(|(condition, _)| *condition == "counter")?;
    let mut file = fs::OpenOptions::new().create(true).append(true).open(path).expect("the counter opens");
    file.write_all(b".").expect("the counter counts");
    Some(fs::metadata(path).expect("the counter is there").len().to_string())
}

fn replay(arguments: &[String]) {
    let report_path = value(arguments, "--canonical-reports-jsonl");
    let count = count();
    let kind = if report_path.is_some() { "on-report" } else { "on-timing" };
    let mut output = Output::new(arguments);
    for (condition, action) in lines() {
        if condition == "always" || condition == kind || Some(condition) == count.as_deref() {
            act(action, &mut output);
        }
    }
    output.write(value(arguments, "--timings-jsonl"), report_path);
}

fn act(action: &str, output: &mut Output) {
    let mut words = action.split(' ');
    let name = words.next().unwrap_or_default();
    let mut word = || words.next().unwrap_or_else(|| panic!("{action}: a word is missing"));
    match name {
        "exit" => {
            eprintln!("the stand-in was told to exit");
            exit(word().parse().expect("an exit code"));
        }
        "signal" => kill(word()),
        "hang" => loop {
            sleep(Duration::from_secs(3_600));
        },
        "sleep" => sleep(Duration::from_millis(word().parse().expect("milliseconds"))),
        "stderr" => flood(&mut stderr(), word().parse().expect("bytes")),
        "stdout" => flood(&mut stdout(), word().parse().expect("bytes")),
        "burn" => hot_function(word().parse().expect("milliseconds")),
        "fill" => fill(),
        "grandchild" => grandchild(word(), Path::new(word())),
        "metric" => output.metric = Some(word().to_owned()),
        "no-metric" => output.metric = None,
        "unstable" => output.unstable = Some(word().to_owned()),
        "hide-flag" => {}
        "not-replay-bench" => output.replay_bench = false,
        "malformed-report" => output.report = Shape::Half,
        "malformed-timing" => output.timing = Shape::Half,
        "two-reports" => output.report = Shape::Twice,
        "two-timings" => output.timing = Shape::Twice,
        "no-report" => output.report = Shape::Empty,
        "no-timing" => output.timing = Shape::Empty,
        "missing-report" => output.report = Shape::Missing,
        "missing-timing" => output.timing = Shape::Missing,
        other => panic!("the script has an unknown action {other:?}"),
    }
}

fn kill(signal: &str) {
    let line = format!("kill -s {signal} {}", std::process::id());
    Command::new("/bin/sh").args(["-c", &line]).status().expect("a shell");
    // The signal may take a moment to arrive.
    sleep(Duration::from_secs(60));
}

fn flood(to: &mut dyn Write, bytes: usize) {
    let line = [b"the stand-in has much to say ".repeat(2), b"\n".to_vec()].concat();
    let whole = bytes / line.len();
    (0..whole).for_each(|_| to.write_all(&line).expect("somebody listens"));
    to.write_all(&vec![b'.'; bytes - whole * line.len()]).expect("somebody listens");
}

/// What a profile must name.
#[inline(never)]
fn hot_function(milliseconds: u64) {
    let start = Instant::now();
    let mut number = 1_u64;
    while start.elapsed() < Duration::from_millis(milliseconds) {
        for _ in 0..10_000 {
            // Knuth's multiplier; the box keeps the compiler from folding the loop.
            number = std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
}

/// Leaves no byte free on the disk of the working directory.
fn fill() {
    let mut file = fs::File::create("filler").expect("a file");
    let mut step = 1 << 20;
    while step > 0 {
        if file.write_all(&vec![0; step]).is_err() {
            step /= 2;
        }
    }
}

/// Starts a process that nobody waits for.
fn grandchild(seconds: &str, pid_file: &Path) {
    let child = Command::new("/bin/sleep").arg(seconds).spawn().expect("a grandchild");
    fs::write(pid_file, child.id().to_string()).expect("its id");
}

/// What becomes of a record.
#[derive(Clone, Copy)]
enum Shape {
    Whole,
    Half,
    Twice,
    Empty,
    Missing,
}

struct Output {
    engine: String,
    serving_mode: String,
    metric: Option<String>,
    replay_bench: bool,
    unstable: Option<String>,
    report: Shape,
    timing: Shape,
}

impl Output {
    fn new(arguments: &[String]) -> Self {
        let wobble = std::process::id() % 64;
        Self {
            engine: value(arguments, "--engine-type").unwrap_or("vllm").to_owned(),
            serving_mode: value(arguments, "--serving-mode").unwrap_or("aggregated").to_owned(),
            metric: Some(format!("10.0{wobble:02}")),
            replay_bench: cfg!(feature = "replay-bench"),
            unstable: None,
            report: Shape::Whole,
            timing: Shape::Whole,
        }
    }

    fn write(&self, timing_path: Option<&str>, report_path: Option<&str>) {
        if let Some(path) = timing_path {
            save(path, &self.timing_record(), self.timing);
        }
        if let Some(path) = report_path {
            save(path, &self.report_record(), self.report);
        }
    }

    fn timing_record(&self) -> String {
        let Self { engine, serving_mode, replay_bench, .. } = self;
        let metric = self.metric.as_ref().map(|text| format!("\"replay_execution_ms\":{text},"));
        format!(
            "{{\"engine_type\":\"{engine}\",\"iteration\":0,\"native_router_event_visibility\":\"pass-end\",\
             \"replay_bench\":{replay_bench},{}\"router_mode\":\"kv-router\",\"serving_mode\":\"{serving_mode}\",\
             \"wall_time_ms\":12.5}}\n",
            metric.unwrap_or_default()
        )
    }

    fn report_record(&self) -> String {
        let row = format!("{}-{}", self.engine, self.serving_mode);
        let found = REPORTS.iter().find(|(name, _)| *name == row);
        let mut text = found.unwrap_or_else(|| panic!("no report for {row}")).1.trim_end().to_owned() + "\n";
        if !self.replay_bench {
            text = text.replace("\"replay_bench\":true", "\"replay_bench\":false");
        }
        if let Some(key) = &self.unstable {
            text = shake(&text, key);
        }
        text
    }
}

/// Puts a number that no other process has after the first `"key":`.
fn shake(text: &str, key: &str) -> String {
    let name = format!("\"{key}\":");
    let start = text.find(&name).unwrap_or_else(|| panic!("no {name} in the report")) + name.len();
    let end = start + text[start..].find([',', '}']).expect("a member ends");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let number = now.as_nanos() % 1_000_000_000 * 100_000 + u128::from(std::process::id() % 100_000);
    format!("{}{number}{}", &text[..start], &text[end..])
}

fn save(path: &str, record: &str, shape: Shape) {
    let text = match shape {
        Shape::Missing => return,
        Shape::Whole => record.to_owned(),
        Shape::Half => record[..record.len() / 2].to_owned(),
        Shape::Twice => record.repeat(2),
        Shape::Empty => String::new(),
    };
    fs::write(path, text).expect("the record is written");
}
