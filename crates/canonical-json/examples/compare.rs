//! Compares two JSON files: `cargo run -p canonical-json --example compare -- LEFT RIGHT [UNORDERED BY]`
//!
//! For example `compare a.json b.json /per_request /uuid`, where the requests may come in any order.

use std::error::Error;
use std::process::ExitCode;

use canonical_json::{DiffLimits, Rules, Unordered, diff};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [left, right, unordered @ ..] = arguments.as_slice() else {
        return Err("expected LEFT RIGHT [UNORDERED BY]".into());
    };
    let mut rules = Rules::default();
    if let [at, by] = unordered {
        rules.unordered.push(Unordered { at: at.parse()?, by: by.parse()? });
    }
    let texts = [std::fs::read(left)?, std::fs::read(right)?];
    let found = diff(&texts[0], &texts[1], &rules, &DiffLimits::default())?;
    println!("{}  {left}\n{}  {right}", found.left, found.right);
    for group in &found.groups {
        println!("{} times {}", group.count, group.shape);
        for example in &group.examples {
            let [left, right] =
                [&example.left, &example.right].map(|side| side.as_deref().unwrap_or("nothing"));
            println!("    {}: {left} and {right}", example.pointer);
        }
    }
    Ok(if found.is_same() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
