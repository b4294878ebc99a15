//! Takes four pairs of two shell commands and prints their ratios: `cargo run -p paired-run --example
//! two_commands`.

use std::collections::BTreeMap;

use cpu_placement::{CancelToken, Finished, Run};
use paired_run::{
    Attempt, BoxError, Event, PairedRun, Processes, Reading, RunDefinition, RunOutcome, Subject,
};

struct Shell(&'static str);

impl Subject for Shell {
    fn prepare(&mut self, _attempt: &Attempt) -> Result<Run, BoxError> {
        Ok(Run::new("/bin/sh").args(["-c", self.0]).env("PATH", "/usr/bin:/bin"))
    }

    fn read(&mut self, _attempt: &Attempt, finished: &Finished) -> Result<Reading, BoxError> {
        Ok(Reading::Value { value: finished.wall_ns as f64 / 1e6, also: BTreeMap::new() })
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let definition = RunDefinition { pairs: 4, warmups_per_arm: 1, ..RunDefinition::default() };
    let mut run = PairedRun::new(definition);
    let mut events: Vec<Event> = Vec::new();
    let mut commands = Processes::new(Shell("sleep 0.02"), Shell("sleep 0.03"));
    match run.run(&mut commands, &mut events, &CancelToken::new())? {
        RunOutcome::Complete => {
            for (pair, ratio) in run.sample("wall_ms")?.ratios().iter().enumerate() {
                println!("pair {pair}: candidate / baseline = {ratio:.3}");
            }
        }
        other => println!("no pairs to compare: {other:?}"),
    }
    println!("{} events were recorded", events.len());
    Ok(())
}
