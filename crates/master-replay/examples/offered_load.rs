//! What a trace offers and, with a master's address, what becomes of it:
//! `cargo run -p master-replay --example offered_load -- TRACE [HOST:PORT]`

use std::env;
use std::error::Error;

use cpu_placement::CancelToken;
use master_replay::{Alone, Progress, ReplayOptions, Summary, Trace, TraceStats, replay};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let file = arguments.next().ok_or("a trace is needed")?;
    let trace = Trace::open(&file)?;
    println!("{}", serde_json::to_string_pretty(&TraceStats::of(&trace))?);
    let Some(address) = arguments.next() else { return Ok(()) };
    let options = ReplayOptions::default();
    let replayed =
        replay(&trace, address.parse()?, &options, &mut Alone, &Progress::default(), &CancelToken::new())?;
    println!("{}", serde_json::to_string_pretty(&Summary::of(&trace, &replayed.outcomes))?);
    Ok(())
}
