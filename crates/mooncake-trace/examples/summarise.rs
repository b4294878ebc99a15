//! Reads a trace and prints what is in it: `cargo run -p mooncake-trace --example summarise -- TRACE`.

use std::collections::HashSet;
use std::error::Error;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use mooncake_trace::TraceReader;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: summarise TRACE")?;
    let path = Path::new(&path);
    let mut reader = TraceReader::new(BufReader::new(File::open(path)?)).named(path);
    let (mut blocks, mut longest) = (0, 0);
    let mut different = HashSet::new();
    while let Some(row) = reader.next_row()? {
        blocks += row.hash_ids.len();
        different.extend(row.hash_ids.iter().copied());
        longest = longest.max(row.input_length);
    }
    println!("{} rows, longest prompt {longest} tokens", reader.rows());
    println!("{blocks} blocks, {} different ones", different.len());
    Ok(())
}
