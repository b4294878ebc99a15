//! The same trace faster and faster, until something no longer keeps up.

use std::thread;

use cpu_placement::CancelToken;
use serde::{Deserialize, Serialize};

use super::saturation::{Saturated, Saturation, Waits, is_behind, micros};
use super::{Launch, LaunchError, Launched, create_folder, describe, drive};
use crate::outcome::Distribution;

/// One speed of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SweepPoint {
    /// How much faster than recorded.
    pub speed: f64,
    /// The run's folder, within that of the sweep.
    pub folder: String,
    /// Whether the run succeeded.
    pub success: bool,
    /// Why the run has no result; the fields below say nothing then.
    pub error: Option<String>,
    /// From the first to the last time at which calls were due.
    pub arrival_span_s: Option<f64>,
    /// Calls a second that were due; nothing when all were due at once.
    pub offered_calls_per_second: Option<f64>,
    /// Calls a second that were answered.
    pub completed_calls_per_second: Option<f64>,
    /// From sent to answered, of the operation with the most calls.
    pub client_call_latency_us: Distribution,
    /// From due to answered, of that operation.
    pub scheduled_to_completion_us: Distribution,
    /// The lag that is not the wait for a dependency.
    pub own_lag_us: Distribution,
    /// The median of that lag over the last tenth of the events.
    pub closing_lag_us: Option<u64>,
    /// The whole lag, waits for dependencies included, of the operation in which it is largest.
    #[serde(default)]
    pub dispatch_lag_us: Distribution,
    /// From when the last call was due to when the last one finished.
    #[serde(default)]
    pub finished_after_due_us: Option<u64>,
    /// From sent to answered, of the call that took longest.
    #[serde(default)]
    pub longest_call_us: Option<u64>,
    /// Who was the bottleneck.
    pub saturation: Option<Saturation>,
    /// Whether calls were sent ever later: at the end by more than a twentieth of the time in which they were due, by
    /// themselves or because those they depend on were late. Nothing where that time is too short to tell, or the run has no
    /// result.
    pub behind: Option<bool>,
}

/// Where a trace becomes too fast.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Knee {
    /// The last speed that was kept up with before the first that was not; nothing when there was none.
    pub speed: Option<f64>,
    /// The first speed that was not kept up with.
    pub behind_at: f64,
    /// Who was the bottleneck there.
    pub limited_by: Saturated,
    /// What that is read from.
    pub reason: String,
    /// Higher speeds that were kept up with all the same: the machine was disturbed at the knee, most likely.
    pub kept_up_later: Vec<f64>,
}

/// A sweep: `sweep.json`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SweepReport {
    /// Each speed, in the order tried; the last one has an error if the sweep could not go on.
    pub points: Vec<SweepPoint>,
    /// Where the trace became too fast, if it did.
    pub knee: Option<Knee>,
}

/// Within a shorter time a hiccup of a few ms is as much as falling behind.
const SHORTEST_SPAN_S: f64 = 0.1;

/// Powers of two that a double can hold.
const MOST_DOUBLINGS: u32 = 1_023;

/// A launch at several speeds.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Sweep {
    /// What is launched; its `out` is the folder of the sweep, its speed does not matter.
    pub launch: Launch,
    /// The speeds, ascending.
    pub speeds: Vec<f64>,
    /// How many speeds beyond the knee are still tried.
    pub beyond: usize,
}

impl Sweep {
    /// A sweep that doubles the launch's speed until the knee, at most so often.
    #[must_use]
    pub fn doubling(launch: Launch, times: u32) -> Self {
        let first = launch.options.speed;
        let powers = (0..=times.min(MOST_DOUBLINGS)).filter_map(|power| i32::try_from(power).ok());
        let speeds = powers.map(|power| first * 2_f64.powi(power)).take_while(|speed| speed.is_finite());
        Sweep { speeds: speeds.collect(), launch, beyond: 1 }
    }

    /// Runs one speed after the other and tells each point as it is known, also one without a result. `sweep.json` is written
    /// anew after each, so that what is known survives whatever ends the sweep.
    ///
    /// # Errors
    ///
    /// The speeds do not ascend, or a run has no result; that run is the last point of `sweep.json`.
    pub fn run(
        &self,
        cancel: &CancelToken,
        mut tell: impl FnMut(&SweepPoint),
    ) -> Result<SweepReport, LaunchError> {
        self.check_speeds()?;
        create_folder(&self.launch.out)?;
        let mut report = SweepReport::default();
        for speed in &self.speeds {
            let (point, error) = self.point(*speed, cancel);
            report.points.push(point);
            report.knee = knee(&report.points);
            // Whoever is told may look into the file at once; who cannot have the file is told all the same.
            let written = self.write(&report);
            report.points.last().into_iter().for_each(&mut tell);
            if let Some(error) = error {
                return Err(error);
            }
            written?;
            let behind = report.points.iter().filter(|point| point.behind == Some(true)).count();
            if behind > self.beyond {
                break;
            }
        }
        Ok(report)
    }

    fn check_speeds(&self) -> Result<(), LaunchError> {
        let error = |why| Err(LaunchError::Option { name: "speeds", why });
        if let Some(pair) = self.speeds.windows(2).find(|pair| pair[0] >= pair[1]) {
            return error(format!("{} is not above {}, which comes before it", pair[1], pair[0]));
        }
        if self.speeds.is_empty() { error("there is none".to_owned()) } else { Ok(()) }
    }

    fn write(&self, report: &SweepReport) -> Result<(), LaunchError> {
        Ok(drive::write_file(&self.launch.out.join("sweep.json"), |out| {
            Ok(serde_json::to_writer_pretty(out, report)?)
        })?)
    }

    fn point(&self, speed: f64, cancel: &CancelToken) -> (SweepPoint, Option<LaunchError>) {
        let folder = folder_of(speed);
        let mut launch = self.launch.clone();
        launch.out = self.launch.out.join(&folder);
        launch.options.speed = speed;
        // A thread of its own for each: it may move into a private network.
        let launched = thread::scope(|scope| {
            let running = scope.spawn(|| launch.run(cancel));
            running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        match launched {
            Ok(launched) => (point_of(speed, folder, &launched), None),
            Err(error) => {
                let why = Some(describe(&error));
                (SweepPoint { speed, folder, error: why, ..SweepPoint::default() }, Some(error))
            }
        }
    }
}

/// In plain digits where these are few enough for the name of a file.
fn folder_of(speed: f64) -> String {
    let plain = format!("speed-{speed}");
    if plain.len() <= 64 { plain } else { format!("speed-{speed:e}") }
}

fn point_of(speed: f64, folder: String, launched: &Launched) -> SweepPoint {
    let report = &launched.report;
    let workload = report.summary.phases.get("workload").and_then(|phase| phase.operations.as_ref());
    let most = workload.into_iter().flatten().map(|(_, found)| found).max_by_key(|found| found.planned_calls);
    let waits = Waits::of(report);
    let traffic = report.traffic.as_ref();
    let completed = traffic.and_then(|traffic| traffic.mean_per_second).map(|means| means.completed_calls);
    let mut point = SweepPoint {
        speed,
        folder,
        success: launched.success,
        error: None,
        arrival_span_s: traffic.map(|traffic| traffic.arrival_span_s),
        offered_calls_per_second: traffic.and_then(|traffic| traffic.offered_calls_per_second),
        completed_calls_per_second: completed,
        client_call_latency_us: most.map(|found| found.client_call_latency_us).unwrap_or_default(),
        scheduled_to_completion_us: most.map(|found| found.scheduled_to_completion_us).unwrap_or_default(),
        own_lag_us: report.own_lag_us,
        closing_lag_us: report.closing_lag_us,
        dispatch_lag_us: waits.dispatch_lag_us,
        finished_after_due_us: waits.finished_after_due_us,
        longest_call_us: waits.longest_call_us,
        saturation: Some(launched.saturation.clone()),
        behind: None,
    };
    point.behind = has_fallen_behind(&point);
    point
}

/// By what is in the point, so that a reader of `sweep.json` can judge again.
fn has_fallen_behind(point: &SweepPoint) -> Option<bool> {
    let span_us = micros(point.arrival_span_s.filter(|span_s| *span_s >= SHORTEST_SPAN_S)?);
    let waits = Waits {
        dispatch_lag_us: point.dispatch_lag_us,
        finished_after_due_us: point.finished_after_due_us,
        longest_call_us: point.longest_call_us,
    };
    Some(is_behind(point.closing_lag_us?, span_us) || is_behind(waits.beyond_a_call_us(), span_us))
}

fn knee(points: &[SweepPoint]) -> Option<Knee> {
    let first = points.iter().position(|point| point.behind == Some(true))?;
    let kept_up = |point: &&SweepPoint| point.behind == Some(false);
    let behind = &points[first];
    let unclear = || (Saturated::Unclear, String::new());
    let (limited_by, reason) =
        behind.saturation.as_ref().map_or_else(unclear, |found| (found.verdict, found.reason.clone()));
    Some(Knee {
        speed: points[..first].iter().rev().find(kept_up).map(|point| point.speed),
        behind_at: behind.speed,
        limited_by,
        reason,
        kept_up_later: points[first..].iter().filter(kept_up).map(|point| point.speed).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::MasterSource;
    use super::*;

    fn point(speed: f64, behind: Option<bool>, verdict: Saturated) -> SweepPoint {
        let saturation = Some(Saturation { verdict, reason: format!("at {speed}") });
        SweepPoint { speed, behind, saturation, ..SweepPoint::default() }
    }

    #[test]
    fn behind_is_what_is_sent_ever_later() {
        for (span_s, closing_lag_us, expected) in [
            (Some(1.0), Some(49_000), Some(false)),
            (Some(1.0), Some(51_000), Some(true)),
            (Some(0.1), Some(0), Some(false)),
            // Too short to tell, all due at once, no workload.
            (Some(0.09), Some(80_000), None),
            (Some(0.0), Some(80_000), None),
            (None, None, None),
        ] {
            let point = SweepPoint { arrival_span_s: span_s, closing_lag_us, ..SweepPoint::default() };
            assert_eq!(has_fallen_behind(&point), expected, "{span_s:?} {closing_lag_us:?}");
        }
    }

    #[test]
    fn calls_that_wait_for_each_other_are_behind_together() {
        let check = |lag_p95_us, finished_after_due_us, longest_call_us, expected| {
            let point = SweepPoint {
                arrival_span_s: Some(1.0),
                closing_lag_us: Some(30),
                dispatch_lag_us: Distribution { p95: Some(lag_p95_us), ..Distribution::default() },
                finished_after_due_us: Some(finished_after_due_us),
                longest_call_us: Some(longest_call_us),
                ..SweepPoint::default()
            };
            assert_eq!(has_fallen_behind(&point), Some(expected), "{point:?}");
        };
        check(900_000, 950_000, 2_000, true);
        check(52_001, 60_000, 2_000, true);
        check(52_000, 60_000, 2_000, false);
        // One last answer that took long, or never came.
        check(200, 700_000, 700_000, false);
        check(200, 700_000, 2_000, false);
        // What was late has been caught up with.
        check(300_000, 1_000, 2_000, false);
        // A stall: what was due then waited for as long as the call that waited longest.
        check(300_000, 300_000, 290_000, false);
    }

    #[test]
    fn the_knee_is_before_the_first_speed_that_was_too_high() {
        use Saturated::{Generator, InFlight, Master, Neither};
        let check = |points: &[SweepPoint],
                     speed: Option<f64>,
                     behind_at: f64,
                     limited_by: Saturated,
                     later: &[f64]| {
            let found = knee(points).expect("a knee");
            assert_eq!((found.speed, found.behind_at, found.limited_by), (speed, behind_at, limited_by));
            assert_eq!(found.reason, format!("at {behind_at}"));
            assert_eq!(found.kept_up_later, later);
        };
        let (kept, behind, unknown) = (Some(false), Some(true), None);
        assert_eq!(knee(&[]), None);
        assert_eq!(knee(&[point(1.0, kept, Neither), point(2.0, unknown, Neither)]), None);
        check(&[point(1.0, kept, Neither), point(2.0, behind, Master)], Some(1.0), 2.0, Master, &[]);
        check(&[point(1.0, behind, Generator), point(2.0, behind, Master)], None, 1.0, Generator, &[]);
        check(
            &[
                point(1.0, kept, Neither),
                point(2.0, behind, InFlight),
                point(4.0, kept, Neither),
                point(8.0, behind, Master),
            ],
            Some(1.0),
            2.0,
            InFlight,
            &[4.0],
        );
    }

    fn launch(speed: f64) -> Launch {
        let mut launch = Launch::new("trace", MasterSource::Elf("master".into()), "out", "replayer");
        launch.options.speed = speed;
        launch
    }

    #[test]
    fn speeds_ascend_and_are_as_many_as_there_are() {
        let sweep = Sweep::doubling(launch(3.0), 2);
        assert_eq!(sweep.speeds, [3.0, 6.0, 12.0]);
        assert!(sweep.check_speeds().is_ok());
        let all = Sweep::doubling(launch(1e308), u32::MAX);
        assert_eq!(all.speeds, [1e308]);
        for (speeds, why) in [
            (vec![1.0, 1.0], "1 is not above 1, which comes before it"),
            (vec![1.0, 4.0, 2.0], "2 is not above 4, which comes before it"),
            (vec![], "there is none"),
        ] {
            let sweep = Sweep { speeds, ..Sweep::doubling(launch(1.0), 0) };
            let error = sweep.run(&CancelToken::new(), |_| {}).expect_err("refused").to_string();
            assert_eq!(error, format!("use the option speeds: {why}"));
        }
        assert!(!std::path::Path::new("out").exists());
    }

    #[test]
    fn names_of_folders_are_short_enough() {
        assert_eq!(folder_of(0.25), "speed-0.25");
        assert_eq!(folder_of(1e300), "speed-1e300");
        assert_eq!(folder_of(5e-324), "speed-5e-324");
    }
}
