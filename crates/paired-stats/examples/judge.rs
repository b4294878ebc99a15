//! Judges three simulated campaigns whose truth is known: `cargo run -p paired-stats --example judge`.

use paired_stats::{Gate, Verdict, World};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let gate = Gate::default().prepare()?;
    let world = World::all()[0];
    for true_ratio in [1.00, 1.05, 1.08] {
        let judgement = gate.judge(&world.noise("example", 1, 60, 0.04).at(true_ratio))?;
        let bounds = judgement.deciding();
        let ratio = |bound: Option<paired_stats::Bound>| bound.map_or(f64::NAN, |bound| bound.ratio);
        let (lower, point, upper) = (ratio(bounds.lower), bounds.point_ratio, ratio(bounds.upper));
        let word = match judgement.verdict {
            Verdict::Pass => "pass",
            Verdict::Fail => "fail",
            Verdict::Inconclusive { .. } => "inconclusive",
        };
        println!("true ratio {true_ratio:.2}: median {point:.4} ({lower:.4} to {upper:.4}), {word}");
    }
    Ok(())
}
