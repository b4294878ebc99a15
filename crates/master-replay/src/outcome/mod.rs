//! What became of every call, and what that amounts to.

mod distribution;
mod files;
mod histogram;
mod record;
mod summary;
#[cfg(test)]
mod tests;
mod traffic;

pub use distribution::Distribution;
pub use files::{OutputError, write_samples};
pub use histogram::write_histograms;
pub use record::{KeyStatus, KeyStatusCounts, Outcomes, Sample};
pub use summary::{OperationSummary, PhaseSummary, Summary};
pub use traffic::{Traffic, TrafficBucket, TrafficCounts, TrafficRates};
