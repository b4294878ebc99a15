//! A name becomes a commit, an isolated checkout and one recorded release artifact.
//!
//! [`pin`] takes a full commit id and nothing that can move. [`Checkout`] is its working tree in a private clone that
//! only reads from the user's repository. [`Builder`] turns a checkout into one executable after a [`Recipe`], and
//! [`BuildRecord`] says everything that went into it. [`BuildRecord::compare`] states what two builds have in common.
//!
//! ```no_run
//! use std::path::Path;
//! use revision_pin::{Builder, Checkout, CheckoutOptions, PinOptions, Recipe, pin, relationship, remove};
//!
//! let repo = Path::new("dynamo");
//! let baseline = pin(repo, "5ed3c0e6c1f9a2b4d7e8f0a1b2c3d4e5f6a7b8c9", PinOptions::default())?;
//! let candidate = pin(repo, "9ac6d0b1e2f3a4b5c6d7e8f9a0b1c2d3e4f5a6b7", PinOptions::default())?;
//! println!("{}", relationship(repo, baseline.commit, candidate.commit)?);
//!
//! let builder = Builder::new(Recipe::default())?;
//! let (mut seed, mut records) = (None, Vec::new());
//! for (name, pinned) in [("baseline", &baseline), ("candidate", &candidate)] {
//!     let work = Path::new("campaign/scratch").join(name);
//!     let checkout = Checkout::create(repo, pinned, &work.join("checkout"), CheckoutOptions::default())?;
//!     let built = builder.build(&checkout, &work.join("build"), &work.join("artifact"), seed.as_deref())?;
//!     records.push(built.record);
//!     seed = Some(work.join("build"));
//! }
//! let comparison = records[0].compare(&records[1]);
//! assert!(!comparison.is_suspicious(), "different trees, one artifact");
//! remove(Path::new("campaign/scratch/baseline/checkout"))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod artifact;
mod build;
mod checkout;
mod config_files;
mod environment;
mod folder;
mod host_paths;
mod manifest;
mod messages;
mod patch;
mod pin;
mod recipe;
mod record;
mod repository;
mod seed;
mod store;
mod wrapper;

pub use artifact::{Artifact, ArtifactError};
pub use build::{BUILD_LOG, BuildError, Builder, Built};
pub use canonical_json::Sha256;
pub use checkout::{Checkout, CheckoutError, CheckoutOptions, Submodule};
pub use config_files::ConfigFile;
pub use environment::Environment;
pub use folder::{FolderError, remove};
pub use manifest::{Missing, ProtocolNeedsUpdating};
pub use patch::{AppliedPatch, Change, Patch, PatchError, PatchedFile};
pub use pin::{NameKind, PinError, PinOptions, Pinned, Relationship, RelationshipError, pin, relationship};
pub use recipe::{Recipe, RecipeError, Target, TargetKind, is_removed_option};
pub use record::{BUILD_SCHEMA, BUILD_VERSION, BuildRecord, Comparison, Toolchain, UnitCounts, growth_ppm};
pub use repository::{CommitId, ParseIdError, RepositoryError, RepositoryFacts};
pub use seed::Seeded;
pub use wrapper::PathMapping;
