//! Prints what reports prove about one row of a campaign file, or one row of its lifecycles:
//!
//! ```text
//! cargo run -p parity-campaign --example coverage -- CAMPAIGN ROW WINDOW REPORT...
//! ```
//!
//! `WINDOW` is the slice that was replayed, `REPORT` the harness's `--canonical-reports-jsonl`. With two reports it also
//! says where they part in virtual time.

use std::error::Error;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::ExitCode;

use mooncake_trace::TraceReader;
use parity_campaign::coverage::{Coverage, Expectation, WorkloadTotals};
use parity_campaign::{CampaignFile, first_divergence};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [campaign, row, window, reports @ ..] = &arguments[..] else {
        return Err("expected CAMPAIGN ROW WINDOW REPORT...".into());
    };
    let definition = CampaignFile::read(Path::new(campaign))?.definition;
    let forced = definition.lifecycles.iter().filter_map(|lifecycle| lifecycle.row.as_ref());
    let mut rows = definition.rows.iter().chain(forced);
    let row = rows.find(|other| other.name == *row).ok_or("no such row in the campaign file")?;
    let expectation = Expectation::new(row, totals(Path::new(window))?)
        .with_reviewed_exclusions(definition.reviewed_exclusions())
        .with_replay(definition.replay.arrival_speedup_ratio, u64::from(definition.trace.block_size.get()));
    let lines: Vec<Vec<u8>> = reports.iter().map(std::fs::read).collect::<Result<_, _>>()?;
    let mut all_qualify = true;
    for (name, line) in reports.iter().zip(&lines) {
        let coverage = Coverage::check(line, &expectation)?;
        all_qualify &= coverage.qualifies();
        println!("{name}\n{coverage}");
    }
    if let [left, right] = &lines[..] {
        match first_divergence(left, right)? {
            Some(divergence) => println!("first divergence {divergence}"),
            None => println!("no request and no pressure record differs"),
        }
    }
    Ok(if all_qualify { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn totals(window: &Path) -> Result<WorkloadTotals, Box<dyn Error>> {
    let mut rows = TraceReader::new(BufReader::new(File::open(window)?));
    let (mut input_tokens, mut output_tokens) = (0, 0);
    while let Some(row) = rows.next_row()? {
        input_tokens += row.input_length;
        output_tokens += row.output_length;
    }
    Ok(WorkloadTotals { requests: rows.rows(), input_tokens, output_tokens })
}
