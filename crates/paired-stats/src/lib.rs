//! Exact bounds, honest diagnostics and one verdict for measurements taken in pairs.
//!
//! Two programs are run in adjacent pairs, in a balanced random order. Each pair gives one ratio, candidate
//! divided by baseline. This crate says what the ratios show, and when they show nothing:
//!
//! * [`Schedule`] is the order, made from a seed before anything runs;
//! * [`PairedSample`] is a sealed set of pairs, joined by identity;
//! * [`Gate`] is the definition of a decision, fixed beforehand; [`Gate::judge`] gives a [`Judgement`]: a
//!   [`Verdict`] with its point, bounds, ranks, exact coverage and count, the [`Diagnostics`], and numbers
//!   for readers that never decide;
//! * [`World`] simulates campaigns whose truth is known, to calibrate a gate before it judges real ones.
//!
//! The bounds are order statistics ([`RankBounds`]), exact for any distribution of independent ratios.
//! Diagnostics look for dependence at a false-alarm rate that is stated per campaign. What they cannot see in
//! few pairs is covered by a second, wider bound that has to agree.
//!
//! # Example
//!
//! ```
//! use paired_stats::{Gate, Measurement, PairedSample, Schedule, Verdict};
//!
//! let schedule = Schedule::generate(42, 60, 5);
//! # let mix = |x: u32| (x ^ (x >> 16)).wrapping_mul(0x7feb_352d);
//! # let noise = |i: u32, salt: u32| f64::from(mix(mix(i * 97 + salt + 1) ^ 0x9e37) >> 16) / 65_536.0;
//! # let measure = |pair: u32, salt: u32, mean_ms: f64| Measurement { pair, value: mean_ms * (1.0 + 0.02 * noise(pair, salt)) };
//! let baseline: Vec<Measurement> = (0..60).map(|pair| measure(pair, 1, 200.0)).collect();
//! let candidate: Vec<Measurement> = (0..60).map(|pair| measure(pair, 2, 201.0)).collect();
//! let sample = PairedSample::join("replay_execution_ms", &schedule, &baseline, &candidate)?;
//!
//! let judgement = Gate::default().judge(&sample)?;
//! let bounds = judgement.deciding();
//! assert_eq!((bounds.lower.unwrap().rank, bounds.upper.unwrap().rank), (24, 37));
//! assert_eq!(judgement.verdict, Verdict::Pass);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod dependence;
mod diagnostics;
mod effect;
mod footprint;
mod gate;
mod random;
mod rank;
mod sample;
mod schedule;
mod simulate;

pub use crate::{
    dependence::Dependence,
    diagnostics::{
        Calculation, DefinitionError, Diagnostics, DiagnosticsDefinition, LagAutocorrelation,
        MAX_PERMUTATIONS, NotApplied, TestName, TestOutcome, TestResult, TestValue, TestWeights, UnknownTest,
    },
    effect::{Bootstrap, ForReaders, MAX_RESAMPLES, ReaderDefinition, Resolution},
    footprint::{Footprint, FootprintGate, FootprintJudgement, FootprintLimit, FootprintVerdict, Growth},
    gate::{
        Bound, Estimate, Gate, GateError, Judgement, MAX_PAIRS, Method, OnBreach, PreparedGate, Reason,
        Verdict,
    },
    rank::{Probability, ProbabilityError, RankBound, RankBounds},
    sample::{DigestError, Measurement, Pair, PairedSample, SampleDigest, SampleError, Series},
    schedule::{Arm, SCHEDULE_ALGORITHM, Schedule, ScheduleError},
    simulate::{Noise, World},
};
