//! Plans one core, runs a program there, and says whether it stayed.
//!
//! `cargo run -p cpu-placement --example pinned_run -- /bin/sleep 1`

use cpu_placement::{CancelToken, Plan, PlanRequest, Run, Topology};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let program = arguments.next().unwrap_or_else(|| "/bin/true".into());

    let topology = Topology::read()?;
    let plan = Plan::new(&topology, &PlanRequest::new().set("example", 1))?;
    let set = &plan.sets[0];
    println!("on CPUs {} of nodes {}, with {} idle", set.cpus, set.nodes, set.idle);
    for hazard in topology.live_hazards(&set.cpus) {
        println!("careful: {hazard}");
    }

    let finished = Run::new(program).args(arguments).place(set, false).wait(&CancelToken::new())?;
    println!("{:?} after {} ms", finished.outcome, finished.wall_ns / 1_000_000);
    match finished.check_placement() {
        Ok(()) => println!("it stayed in its place"),
        Err(misplaced) => println!("failed to {misplaced}"),
    }
    Ok(())
}
