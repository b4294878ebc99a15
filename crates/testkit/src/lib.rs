//! Stand-ins and fixtures for the tests of this workspace.
//!
//! Everything here serves tests, so a surprise is a panic that says what was surprising.
//!
//! * [`reports`] and [`traces`]: small real reports and the trace they come from.
//! * [`edit_pointer`] and its siblings change one place of a JSON text and leave every other byte alone.
//! * [`StandIn`]: a program with the command line of a replay harness that crashes, hangs or writes nonsense on request.
//! * [`TempRepository`]: a git repository that is gone when it goes out of scope.
//! * [`cargo_build`] builds a package and says where the artifact is; [`run`] runs it.
//! * [`masters`]: real Mooncake masters of four versions; [`master`]: a stand-in for one, for what those cannot be made to do.
//! * [`slurm`]: a real Slurm cluster on this machine.
//! * [`CountingAllocator`] and [`allocations`]: whether something allocates.
//! * [`Redactor`]: takes times, paths and host names out of a text before it is compared.
//!
//! ```
//! use testkit::{edit_pointer, reports, value_at};
//!
//! let edited = edit_pointer(reports::VLLM_AGGREGATED, "/summary/completed_requests", "39");
//! assert_eq!(value_at(&edited, "/summary/completed_requests"), Some("39"));
//! assert_eq!(edited.len(), reports::VLLM_AGGREGATED.len());
//! ```
#![deny(missing_docs)]
#![expect(clippy::missing_panics_doc, reason = "a helper of tests panics at every surprise")]
#![expect(clippy::disallowed_methods, reason = "this crate is one of those that may start processes")]

mod cargo;
mod counting;
mod edit;
mod fixture;
pub mod master;
pub mod masters;
mod redact;
mod repository;
pub mod slurm;
mod standin;

pub use cargo::{cargo, cargo_build, run};
pub use counting::{CountingAllocator, allocations};
pub use edit::{edit_pointer, insert_member, remove_pointer, value_at};
pub use fixture::{reports, traces};
pub use redact::Redactor;
pub use repository::TempRepository;
pub use standin::{EXCEPTION_TOML, ROWS_TOML, StandIn, campaign_toml};
