//! Where rows run: in this process, or each in a job of its own on whatever node a scheduler gives (X1).
//!
//! A row is the unit of distribution (N1). What it needs is an [`order`]; [`row`] works it off, and [`build`] makes the
//! artifacts where the campaign file says so, each in a [`job`] with a bundle of its own, in another process and perhaps on
//! another machine; [`attempt`] reads what such processes left; [`merge`] takes a whole, verified one over into the
//! campaign's bundle. [`slurm`] submits the jobs and follows them.

use serde::{Deserialize, Serialize};

pub(crate) mod attempt;
pub(crate) mod build;
pub(crate) mod job;
pub(crate) mod job_id;
pub(crate) mod merge;
pub(crate) mod order;
pub(crate) mod row;
pub(crate) mod slurm;
pub(crate) mod status;

/// What works the rows of a campaign off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Executor {
    /// This process, one row after the other.
    #[default]
    Local,
    /// One exclusive Slurm job per row, all of them tasks of one array.
    Slurm,
}
