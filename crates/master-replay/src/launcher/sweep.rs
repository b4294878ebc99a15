//! The same trace faster and faster, until the master no longer keeps up.

use std::thread;

use cpu_placement::CancelToken;
use serde::{Deserialize, Serialize};

use super::window::Saturation;
use super::{Launch, LaunchError, Launched, create_folder, drive};
use crate::outcome::Distribution;

/// One speed of a sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SweepPoint {
    /// How much faster than recorded.
    pub speed: f64,
    /// The run's folder, within that of the sweep.
    pub folder: String,
    /// Whether the run succeeded.
    pub success: bool,
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
    /// Who was the bottleneck.
    pub saturation: Saturation,
    /// Whether less than the kept part of what was due was answered in time.
    pub behind: bool,
}

/// A sweep: `sweep.json`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SweepReport {
    /// Each speed, in the order tried.
    pub points: Vec<SweepPoint>,
    /// The last speed before the master fell behind, if it did.
    pub knee_speed: Option<f64>,
}

/// The part of the offered calls that must be answered within the time in which they were due.
const KEPT: f64 = 0.95;

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
    /// A sweep that doubles the speed from 1 until the knee, at most so often.
    #[must_use]
    pub fn doubling(launch: Launch, times: u32) -> Self {
        let speeds = (0..=times).map(|power| 2_f64.powi(i32::try_from(power).unwrap_or(i32::MAX)));
        Sweep { launch, speeds: speeds.collect(), beyond: 1 }
    }

    /// Runs one speed after the other and tells each point as it is known.
    ///
    /// # Errors
    ///
    /// A run has no report.
    pub fn run(
        &self,
        cancel: &CancelToken,
        mut tell: impl FnMut(&SweepPoint),
    ) -> Result<SweepReport, LaunchError> {
        create_folder(&self.launch.out)?;
        let mut report = SweepReport { points: Vec::new(), knee_speed: None };
        let mut behind = 0;
        for speed in &self.speeds {
            let point = self.point(*speed, cancel)?;
            tell(&point);
            if point.behind {
                behind += 1;
            } else {
                report.knee_speed = Some(*speed);
            }
            report.points.push(point);
            if behind > self.beyond {
                break;
            }
        }
        if behind == 0 {
            report.knee_speed = None;
        }
        drive::write_file(&self.launch.out.join("sweep.json"), |out| {
            Ok(serde_json::to_writer_pretty(out, &report)?)
        })?;
        Ok(report)
    }

    fn point(&self, speed: f64, cancel: &CancelToken) -> Result<SweepPoint, LaunchError> {
        let folder = format!("speed-{speed}");
        let mut launch = self.launch.clone();
        launch.out = self.launch.out.join(&folder);
        launch.options.speed = speed;
        // A thread of its own for each: it may move into a private network.
        let launched = thread::scope(|scope| {
            let running = scope.spawn(|| launch.run(cancel));
            running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        Ok(point_of(speed, folder, &launched))
    }
}

fn point_of(speed: f64, folder: String, launched: &Launched) -> SweepPoint {
    let report = &launched.report;
    let workload = report.summary.phases.get("workload").and_then(|phase| phase.operations.as_ref());
    let most = workload.into_iter().flatten().map(|(_, found)| found).max_by_key(|found| found.planned_calls);
    let traffic = report.traffic.as_ref();
    let offered = traffic.and_then(|traffic| traffic.offered_calls_per_second);
    let completed = traffic.and_then(|traffic| traffic.mean_per_second).map(|means| means.completed_calls);
    SweepPoint {
        speed,
        folder,
        success: launched.success,
        offered_calls_per_second: offered,
        completed_calls_per_second: completed,
        client_call_latency_us: most.map(|found| found.client_call_latency_us).unwrap_or_default(),
        scheduled_to_completion_us: most.map(|found| found.scheduled_to_completion_us).unwrap_or_default(),
        own_lag_us: report.own_lag_us,
        saturation: launched.saturation.clone(),
        behind: match (offered, completed) {
            (Some(offered), Some(completed)) => completed < offered * KEPT,
            _ => true,
        },
    }
}
