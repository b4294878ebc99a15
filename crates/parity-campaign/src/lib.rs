//! The stages of a parity campaign, in order.
//!
//! A [`CampaignFile`] names two commits, one workload and the frozen rows. [`run_campaign`] takes it through every
//! [`Stage`] and leaves an evidence bundle; the [`Report`] has one semantic and one performance verdict, and everything
//! they rest on. [`demo`] makes a small repository to try it on.
//!
//! ```no_run
//! use cpu_placement::CancelToken;
//! use parity_campaign::{CampaignFile, Conclusion, Options, Silent, run_campaign};
//!
//! let file = CampaignFile::read("campaign.toml".as_ref())?;
//! let report = run_campaign(&file, &Options::new("evidence"), &CancelToken::new(), &mut Silent)?;
//! if report.conclusion() == Conclusion::Pass {
//!     println!("{}", parity_campaign::markdown(&report));
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod campaign;
pub mod canonical_report;
mod compare;
mod context;
pub mod coverage;
pub mod definition;
pub mod demo;
mod divergence;
mod error;
mod exception;
mod executor;
mod harness;
mod lifecycle;
mod profile;
mod recompute;
mod record;
mod report;
#[cfg(feature = "schema")]
mod schemas;
mod scratch;
mod seeds;
mod stage;
mod template;
pub mod timing_record;

pub use campaign::{qualify_row, resume_campaign, run_campaign, submit_campaign};
pub use compare::{EvidenceComparison, EvidenceDifference, compare_evidence};
pub use context::{Options, Progress, Silent, StageTime};
pub use definition::{CampaignFile, Definition, DefinitionError};
pub use divergence::{Divergence, StayedEqual, first_divergence};
pub use error::{CampaignError, Cause};
pub use exception::{EXCEPTION_SCHEMA, ExceptionError, ExceptionRecord, RegressionTest, TestFile, draft};
pub use executor::Executor;
pub use executor::build::{BuildInputs, run_build};
pub use executor::job_id::{JobId, ParseJobIdError};
pub use executor::row::run_row;
pub use executor::slurm::{BuildWhere, Condition, Detached, Slurm, cancel_campaign};
pub use executor::status::{BuildStatus, CampaignStatus, RowStatus, status};
pub use harness::{missing_flags, needed_flags, row_options};
pub use lifecycle::{
    LifecycleCoverage, LifecycleEvidence, LifecycleOutcome, LifecycleRecord, LifecycleWindow,
};
pub use profile::{FunctionSamples, Profile, ProfileSummary, ProfileWhen};
pub use recompute::{RecomputeError, Recomputed, read_report, recompute};
pub use record::{
    AppliedPatch, ArtifactRecord, Both, BuildDifference, BuildRecord, CanonicalDigest, CanonicalRecord,
    Classification, CleanedUp, CleanupRecord, DifferenceRecord, ExceptionReport, ExceptionUse, FailureRecord,
    Fate, Growth, Measurable, MeasureRecord, PerformanceVerdict, PinRecord, PinnedRevision, PlaceRecord,
    RatioBounds, RepetitionRecord, ReportFile, RowNode, RowOutcome, RowRecord, SemanticVerdict, Side,
    TestEnd, TestRun,
};
pub use report::{
    Conclusion, PULL_REQUEST_COMMENT_CHARS, REPORT_SCHEMA, Report, markdown, performance_verdict,
    semantic_verdict,
};
#[cfg(feature = "schema")]
pub use schemas::schemas;
pub use scratch::{ScratchClaim, remove_leftover_scratch};
pub use seeds::{GoldenSeed, GoldenSeeds, SEEDS_SCHEMA};
pub use stage::Stage;
pub use stage::search::{Neighbourhood, Probe, Qualification};
pub use stage::slice::TRACES_VARIABLE;
pub use template::{InitError, InitRequest, demo_campaign, init};
