//! `replay-master sweep`

use std::io::{self, Write};
use std::path::PathBuf;

use command_line::{Exit, Interrupt, MessageFormat, Output};
use cpu_placement::CancelToken;
use master_replay::{Knee, Saturated, Speed, Sweep, SweepPoint, SweepReport};

use crate::failure::Failure;
use crate::run::{How, failure};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The trace
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    #[command(flatten)]
    how: How,
    /// The speeds to try, ascending; without it the speed is doubled from --speed on
    #[arg(long, value_name = "FACTOR,...", value_delimiter = ',')]
    speeds: Vec<Speed>,
    /// How often the speed is doubled at most
    #[arg(long, value_name = "N", default_value_t = 12, conflicts_with = "speeds")]
    doublings: u32,
    /// The folder of the sweep, with one folder for each speed; it must not exist
    #[arg(short, long, value_name = "DIR")]
    out: PathBuf,
    /// How results are printed on stdout; everything else goes to stderr
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    message_format: MessageFormat,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let interrupt = Interrupt::install()?;
    let cancel = CancelToken::from_flag(interrupt.flag());
    let mut sweep = Sweep::doubling(args.how.launch(&args.trace, &args.out)?, args.doublings);
    if !args.speeds.is_empty() {
        sweep.speeds = args.speeds.iter().map(|speed| speed.value()).collect();
    }
    let mut out = Output::stdout();
    let mut printed = Ok(());
    let report = sweep.run(&cancel, |point| {
        if printed.is_ok() {
            printed = print_point(&mut out, args.message_format, point);
        }
    });
    let report = report.map_err(|error| failure(error, &interrupt))?;
    printed?;
    if args.message_format == MessageFormat::Human {
        curve(&mut out, &report)?;
        out.flush()?;
    }
    Ok(if report.points.iter().all(|point| point.success) { Exit::Ok } else { Exit::Differs })
}

fn print_point(out: &mut impl Write, format: MessageFormat, point: &SweepPoint) -> io::Result<()> {
    match format {
        MessageFormat::Json => writeln!(out, "{}", serde_json::to_string(point)?)?,
        MessageFormat::Human if point.error.is_some() => {
            writeln!(out, "speed {:>8}: no result", point.speed)?;
        }
        MessageFormat::Human => writeln!(
            out,
            "speed {:>8}: {:>9} offered, {:>9} completed a second; us from due p50 {} p99 {}; {}",
            point.speed,
            rate(point.offered_calls_per_second),
            rate(point.completed_calls_per_second),
            time(point.scheduled_to_completion_us.p50),
            time(point.scheduled_to_completion_us.p99),
            match point.behind {
                Some(true) => "behind",
                Some(false) => "kept up",
                None => "too short to tell whether it was kept up with",
            },
        )?,
    }
    out.flush()
}

fn rate(rate: Option<f64>) -> String {
    rate.map_or("-".to_owned(), |rate| format!("{rate:.0}"))
}

fn time(time: Option<u64>) -> String {
    time.map_or("-".to_owned(), |time| time.to_string())
}

/// A bar for each speed: what was completed, against the most that was.
fn curve(out: &mut impl Write, report: &SweepReport) -> io::Result<()> {
    const WIDTH: f64 = 60.0;
    let completed = |point: &SweepPoint| point.completed_calls_per_second.unwrap_or(0.0);
    let most = report.points.iter().map(completed).fold(1.0, f64::max);
    for point in &report.points {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and the width"
        )]
        let length = (completed(point) / most * WIDTH).round() as usize;
        writeln!(
            out,
            "{:>8} |{} {}",
            point.speed,
            "#".repeat(length),
            rate(point.completed_calls_per_second)
        )?;
    }
    match &report.knee {
        Some(knee) => tell_knee(out, knee),
        None if report.points.iter().any(|point| point.behind.is_none()) => {
            writeln!(out, "it was kept up with at every speed at which the workload is long enough to tell")
        }
        None => writeln!(out, "it was kept up with at every speed"),
    }
}

fn tell_knee(out: &mut impl Write, knee: &Knee) -> io::Result<()> {
    match knee.speed {
        Some(speed) => write!(out, "kept up until speed {speed}, behind at {}: ", knee.behind_at)?,
        None => write!(out, "behind at {}, and at no speed before it kept up: ", knee.behind_at)?,
    }
    let (who, advice) = match knee.limited_by {
        Saturated::Master => ("the master is what limits", ""),
        Saturated::Generator => {
            ("the replayer is what limits", "; give it a processor of its own, or use more --replayers")
        }
        Saturated::Dependencies => ("the calls' dependencies are what limits", ""),
        Saturated::InFlight => ("the calls in flight are what limits", "; allow more --workers"),
        _ => ("what limits is unclear", ""),
    };
    writeln!(out, "{who} ({}){advice}", knee.reason)?;
    for speed in &knee.kept_up_later {
        writeln!(out, "yet speed {speed} was kept up with: the knee was disturbed, most likely")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn printed(print: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        print(&mut out).expect("memory takes every write");
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn the_knee_says_whose_it_is() {
        for (limited_by, expected) in [
            ("master", "the master is what limits (why)\n"),
            (
                "generator",
                "the replayer is what limits (why); give it a processor of its own, or use more --replayers\n",
            ),
            ("in_flight", "the calls in flight are what limits (why); allow more --workers\n"),
            ("dependencies", "the calls' dependencies are what limits (why)\n"),
            ("unclear", "what limits is unclear (why)\n"),
        ] {
            let knee = json!({ "speed": 1.0, "behind_at": 2.0, "limited_by": limited_by, "reason": "why", "kept_up_later": [] });
            let knee: Knee = serde_json::from_value(knee).expect("a knee");
            let text = printed(|out| tell_knee(out, &knee));
            assert_eq!(text, format!("kept up until speed 1, behind at 2: {expected}"));
        }
    }

    #[test]
    fn a_knee_may_have_nothing_before_it_and_something_after_it() {
        let knee = json!({ "speed": null, "behind_at": 2.0, "limited_by": "unclear", "reason": "why", "kept_up_later": [4.0] });
        let knee: Knee = serde_json::from_value(knee).expect("a knee");
        assert_eq!(
            printed(|out| tell_knee(out, &knee)),
            "behind at 2, and at no speed before it kept up: what limits is unclear (why)\n\
             yet speed 4 was kept up with: the knee was disturbed, most likely\n"
        );
    }

    #[test]
    fn without_a_knee_it_is_said_whether_that_is_known() {
        let mut report = SweepReport::default();
        report.points.push(SweepPoint::default());
        let last = |report: &SweepReport| printed(|out| curve(out, report)).lines().last().map(str::to_owned);
        let (sure, unsure) = (
            "it was kept up with at every speed",
            "it was kept up with at every speed at which the workload is long enough to tell",
        );
        assert_eq!(last(&report).as_deref(), Some(unsure));
        report.points[0].behind = Some(false);
        assert_eq!(last(&report).as_deref(), Some(sure));
    }

    #[test]
    fn a_point_without_a_result_is_one() {
        let mut point = SweepPoint::default();
        (point.speed, point.error) = (2.0, Some("finish the run".to_owned()));
        let print = |format| printed(|out| print_point(out, format, &point));
        assert_eq!(print(MessageFormat::Human), "speed        2: no result\n");
        let line: serde_json::Value = serde_json::from_str(&print(MessageFormat::Json)).expect("JSON");
        assert_eq!((&line["speed"], &line["error"]), (&json!(2.0), &json!("finish the run")));
    }
}
