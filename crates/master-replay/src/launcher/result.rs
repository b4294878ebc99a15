//! What a launch came to: from the replayers' report and the samples to `result.json`.

use std::fs;
use std::io;

use cpu_placement::{CpuSet, Finished, Outcome, SpawnError};
use serde::Deserialize;
use serde_json::{Value, json};

use super::drive::ReplayReport;
use super::saturation::{Evidence, Saturation, Waits, calls_at_once, micros};
use super::watch::Recorder;
use super::window::{self, Window, WorkloadProcess};
use super::{LaunchError, Launched, Ready, Session, describe, last_line, system, write_json};

impl Session<'_> {
    pub(super) fn conclude(
        &self,
        ready: &Ready,
        recorder: &Recorder,
        finished: &[Finished],
        after: Value,
        stopped: Option<&Result<Finished, SpawnError>>,
    ) -> Result<Launched, LaunchError> {
        let report = self.read_report(finished)?;
        let no_report = || LaunchError::NoWorkload;
        let (start_us, finish_us) = report.workload_us().ok_or_else(no_report)?;
        let window = window_of(&report, start_us, finish_us);
        let (evictions, evicted) = window::evictions(&recorder.metrics, window);
        let process = |name| window::process(&recorder.processes, name, window);
        let (master, replayer) = (process("master"), process("replayer"));
        let saturation = self.judge(&report, master, replayer, finish_us - start_us);
        let exit_codes: Vec<Option<i32>> = finished.iter().map(exit_code).collect();
        let met = !self.launch.require_eviction || evicted;
        // One replayer of several does not know what the others found.
        let success = exit_codes.iter().all(|code| *code == Some(0)) && report.is_success() && met;
        let result = json!({
            "success": success,
            "replayer_exit_code": exit_codes.first(),
            "replayer_exit_codes": exit_codes,
            "replayers_ended": finished.iter().map(describe_end).collect::<Vec<_>>(),
            "master_stopped": stopped.map(describe_stop),
            "master_allocator": ready.allocator,
            "store_after_replay": after,
            "store_workload_sampled_peak": window::sampled_peak(&recorder.metrics, window),
            "workload_evictions": evictions,
            "eviction_requirement_met": met,
            "workload_process": { "master": master, "replayer": replayer },
            "workload_monotonic_window_s": [window.start_s, window.finish_s],
            "saturation": saturation,
            "traffic": report.traffic,
            "own_lag_us": report.own_lag_us,
            "replayer": report.replayer,
            "progress_cpu_ns": report.progress_cpu_ns + self.told_cpu_ns.get(),
            "heartbeats": report.heartbeats,
            "errors": report.errors,
            "phases": report.summary.phases,
        });
        write_json(&self.out.join("result.json"), &result)?;
        Ok(Launched { success, result, report: Box::new(report), saturation })
    }

    fn read_report(&self, finished: &[Finished]) -> Result<ReplayReport, LaunchError> {
        let outcomes: Vec<Outcome> = finished.iter().map(|finished| finished.outcome).collect();
        let exit_code = finished.iter().filter_map(exit_code).max();
        let no_report = |last| LaunchError::NoReport { outcome: format!("{outcomes:?}"), exit_code, last };
        match fs::read(self.out.join("replay.json")) {
            Ok(text) => parse_report(&text).map_err(|error| no_report(format!("replay.json: {error}"))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let last = last_line(&self.out.join("replayer.log"));
                // It ends like that with a report, unless it never came to what is reported on.
                match outcomes.contains(&Outcome::Exited(1)) && self.launch.prefill.is_some() {
                    true => Err(LaunchError::Prefill { last }),
                    false => Err(no_report(last)),
                }
            }
            Err(error) => Err(system("read the replayer's report")(error)),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "parts of a duration")]
    fn judge(
        &self,
        report: &ReplayReport,
        master: WorkloadProcess,
        replayer: WorkloadProcess,
        duration_us: u64,
    ) -> Saturation {
        let all = || std::thread::available_parallelism().map_or(usize::MAX, usize::from);
        let cpus = self.launch.master_cpus.as_ref().map_or_else(all, CpuSet::len);
        let threads = cpus.min(self.launch.rpc_threads() as usize);
        let duration_ns = (duration_us as f64 * 1_000.0).max(1.0);
        let engine = &report.replayer.workload;
        Saturation::judge(&Evidence {
            lag_p99_us: report.own_lag_us.p99.unwrap_or(0),
            chained_us: Waits::of(report).beyond_a_call_us(),
            calls_at_once: calls_at_once(report, duration_us),
            span_us: report.traffic.as_ref().map_or(0, |traffic| micros(traffic.arrival_span_s)),
            duration_us,
            saturated_us: engine.saturated_us,
            // Sampled where the workload is long enough, else as the replayer counted it itself.
            replayer_cores: replayer.mean_cpu_cores.or(Some(engine.cpu_ns as f64 / duration_ns)),
            replayers: f64::from(self.launch.replayers.get()),
            spin_cores: engine.spin_ns as f64 / duration_ns,
            waited_cores: engine.processor_wait_ns.unwrap_or(0) as f64 / duration_ns,
            silent_us: engine.silent_us,
            master_cores: master.mean_cpu_cores,
            master_threads: threads as f64,
        })
    }
}

fn describe_stop(stopped: &Result<Finished, SpawnError>) -> Value {
    match stopped {
        Ok(finished) => describe_end(finished),
        Err(error) => json!({ "error": describe(error) }),
    }
}

/// The status of a process that ended by itself.
fn exit_code(finished: &Finished) -> Option<i32> {
    match finished.outcome {
        Outcome::Exited(code) => Some(code),
        _ => None,
    }
}

fn ending(outcome: Outcome) -> String {
    match outcome {
        Outcome::Exited(_) => "exited".to_owned(),
        Outcome::Signalled(signal) => format!("signal {signal}"),
        Outcome::TimedOut => "timed_out".to_owned(),
        // SIGTERM, and SIGKILL if that did not help.
        Outcome::Cancelled => "stopped".to_owned(),
        _ => "unknown".to_owned(),
    }
}

/// How a process ended, what it used in all, and whether it was where it should have been.
fn describe_end(finished: &Finished) -> Value {
    json!({
        "exit_code": exit_code(finished),
        "ended": ending(finished.outcome),
        "killed_after_grace": finished.killed_after_grace,
        "max_rss_bytes": finished.max_rss_bytes,
        "user_ns": finished.user_ns,
        "system_ns": finished.system_ns,
        "placement_violations": finished.violations.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

#[expect(clippy::cast_precision_loss, reason = "seconds of a clock that begins with the machine")]
fn window_of(report: &ReplayReport, start_us: u64, finish_us: u64) -> Window {
    let at = |time_us: u64| (report.replay_origin_monotonic_us + time_us) as f64 / 1e6;
    Window { start_s: at(start_us), finish_s: at(finish_us) }
}

/// Metadata may be nested as deep as a row may be, and the report is a little deeper still.
fn parse_report(text: &[u8]) -> serde_json::Result<ReplayReport> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    deserializer.disable_recursion_limit();
    let report = ReplayReport::deserialize(&mut deserializer)?;
    deserializer.end().map(|()| report)
}
