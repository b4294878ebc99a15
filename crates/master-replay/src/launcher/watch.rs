//! Looking at both processes and at the metrics, at a fixed interval.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use nix::unistd::{SysconfVar, sysconf};
use serde::Serialize;

use super::metrics::{self, Values};

/// What a process, or several of one name together, have used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Usage {
    pub(super) cpu_seconds: f64,
    pub(super) rss_bytes: u64,
    pub(super) threads: u64,
}

impl Usage {
    fn add(&mut self, other: Usage) {
        self.cpu_seconds += other.cpu_seconds;
        self.rss_bytes += other.rss_bytes;
        self.threads += other.threads;
    }
}

/// Both processes at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct ProcessRow {
    pub(super) monotonic_s: f64,
    #[serde(flatten)]
    pub(super) usage: BTreeMap<&'static str, Usage>,
}

/// The metrics at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct MetricsRow {
    pub(super) monotonic_s: f64,
    pub(super) values: Values,
}

#[derive(Serialize)]
struct MetricsLine<'a> {
    monotonic_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    prometheus: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<&'a Values>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Seconds of the clock that replays are timed by.
pub(super) fn monotonic_s() -> f64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
    time.as_secs_f64()
}

/// How the process stands: its state letter and what it used; nothing when it is gone.
pub(super) fn look(pid: u32) -> Option<(char, Usage)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse(&stat)
}

/// Fields are counted after the name, which may hold anything, spaces and parentheses too.
#[expect(clippy::cast_precision_loss, reason = "ticks since the process began")]
fn parse(stat: &str) -> Option<(char, Usage)> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let system = |variable| sysconf(variable).ok().flatten().and_then(|value| u64::try_from(value).ok());
    let ticks_per_second = system(SysconfVar::CLK_TCK).unwrap_or(100);
    let page_bytes = system(SysconfVar::PAGE_SIZE).unwrap_or(4096);
    let usage = Usage {
        cpu_seconds: (number(11)? + number(12)?) as f64 / ticks_per_second as f64,
        rss_bytes: number(21)?.saturating_mul(page_bytes),
        threads: number(17)?,
    };
    Some((fields.first()?.chars().next()?, usage))
}

/// Whether the process still runs: not gone, and not only waiting to be collected.
pub(super) fn is_alive(pid: u32) -> bool {
    look(pid).is_some_and(|(state, _)| state != 'Z' && state != 'X')
}

/// Samples in memory for the result, and in files as they come.
#[derive(Debug)]
pub(super) struct Recorder {
    process_file: BufWriter<File>,
    metrics_file: BufWriter<File>,
    /// What each process had used when it was last seen: its processor time stays used when it has gone.
    last: BTreeMap<u32, f64>,
    pub(super) processes: Vec<ProcessRow>,
    pub(super) metrics: Vec<MetricsRow>,
}

impl Recorder {
    pub(super) fn create(out: &Path) -> io::Result<Self> {
        let open = |name: &str| File::create(out.join(name)).map(BufWriter::new);
        Ok(Recorder {
            process_file: open("process.jsonl")?,
            metrics_file: open("metrics.jsonl")?,
            last: BTreeMap::new(),
            processes: Vec::new(),
            metrics: Vec::new(),
        })
    }

    /// What the processes of each name have used together; nothing of a name of which none is there any more.
    fn usage(&mut self, pids: &[(&'static str, u32)]) -> BTreeMap<&'static str, Usage> {
        let mut usage: BTreeMap<&'static str, Usage> = BTreeMap::new();
        let mut gone = Vec::new();
        for (name, pid) in pids {
            match look(*pid) {
                Some((_, found)) => {
                    self.last.insert(*pid, found.cpu_seconds);
                    usage.entry(name).or_default().add(found);
                }
                None => gone.extend(self.last.get(pid).map(|cpu_seconds| (name, *cpu_seconds))),
            }
        }
        for (name, cpu_seconds) in gone {
            if let Some(usage) = usage.get_mut(name) {
                usage.cpu_seconds += cpu_seconds;
            }
        }
        usage
    }

    /// Takes one sample of everything.
    pub(super) fn sample(
        &mut self,
        pids: &[(&'static str, u32)],
        metrics: Option<SocketAddr>,
        timeout: Duration,
    ) -> io::Result<()> {
        let usage = self.usage(pids);
        let row = ProcessRow { monotonic_s: monotonic_s(), usage };
        write_line(&mut self.process_file, &row)?;
        self.processes.push(row);
        if let Some(address) = metrics {
            self.scrape(address, timeout)?;
        }
        Ok(())
    }

    fn scrape(&mut self, address: SocketAddr, timeout: Duration) -> io::Result<()> {
        let fetched = metrics::fetch(address, timeout);
        let monotonic_s = monotonic_s();
        match fetched {
            Ok(text) => {
                let values = metrics::values(&text);
                let line =
                    MetricsLine { monotonic_s, prometheus: Some(&text), values: Some(&values), error: None };
                write_line(&mut self.metrics_file, &line)?;
                self.metrics.push(MetricsRow { monotonic_s, values });
            }
            Err(error) => {
                let error = Some(error.to_string());
                write_line(
                    &mut self.metrics_file,
                    &MetricsLine { monotonic_s, prometheus: None, values: None, error },
                )?;
            }
        }
        Ok(())
    }

    /// Puts what was taken on the disk.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        for file in [&mut self.process_file, &mut self.metrics_file] {
            file.flush()?;
            file.get_ref().sync_all()?;
        }
        Ok(())
    }
}

fn write_line(file: &mut impl Write, row: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *file, row)?;
    file.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_one_name_are_added_and_what_one_used_stays_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut recorder = Recorder::create(folder.path()).expect("files");
        let own = std::process::id();
        let alone = recorder.usage(&[("replayer", own)])["replayer"];
        let both = recorder.usage(&[("replayer", own), ("replayer", own)])["replayer"];
        assert!(both.threads >= 2 * alone.threads && both.cpu_seconds >= 2.0 * alone.cpu_seconds);
        // One that has gone is remembered; one that was never seen is not.
        let (gone, never) = (u32::MAX - 1, u32::MAX - 2);
        recorder.last.insert(gone, 1_000.0);
        let with_gone =
            recorder.usage(&[("replayer", own), ("replayer", gone), ("replayer", never)])["replayer"];
        assert!(with_gone.cpu_seconds >= 1_000.0 + alone.cpu_seconds);
        assert_eq!(with_gone.threads, alone.threads);
        assert_eq!(recorder.usage(&[("replayer", gone)]), BTreeMap::new());
    }

    #[test]
    fn a_name_may_hold_anything() {
        let mut rest = vec!["S".to_owned()];
        rest.extend((1..40).map(|field| field.to_string()));
        let (state, usage) = parse(&format!("7 (a) b) {}", rest.join(" "))).expect("a stat line");
        assert_eq!((state, usage.threads), ('S', 17));
        assert!(is_alive(std::process::id()));
        assert_eq!(parse("7 (a"), None);
    }
}
