//! Both artifacts in a job, for a place to submit from that must not compile (P4, M2, X1).

use std::fs;
use std::path::{Path, PathBuf};

use cpu_placement::CancelToken;

use super::attempt::Attempt;
use super::job::{Allocation, Job};
use super::order::{self, Order, Work};
use crate::context::{Context, Progress};
use crate::definition::CampaignFile;
use crate::error::{At, CampaignError, Cause};
use crate::record::Side;
use crate::stage::{Stage, build, pin};

/// What a job that builds must know besides the folder that the campaign shares with its jobs.
#[derive(Clone, Debug, Default)]
pub struct BuildInputs {
    /// The folder that relative paths of the campaign file start from.
    pub campaign_folder: PathBuf,
    /// Overrides the repository of the campaign file.
    pub repository: Option<PathBuf>,
    /// Folder of an earlier build whose compiled registry packages may be taken over.
    pub seed: Option<PathBuf>,
    /// Folder in which artifacts are kept, and from which one is taken over that was built of exactly the same.
    pub artifacts: Option<PathBuf>,
}

/// Pins and builds both revisions inside a job, on the storage of its node; `jobs` is the folder that the campaign shares with
/// its jobs, where the artifacts go, and the bundle with the record of what they are.
///
/// # Errors
///
/// The revisions could not be pinned or built; the exit record says the same.
pub fn run_build(
    jobs: &Path,
    inputs: &BuildInputs,
    cancel: &CancelToken,
    progress: &mut dyn Progress,
) -> Result<(), CampaignError> {
    let allocation = Allocation::of_environment()?;
    let order = Order::read(jobs)?;
    let bytes = fs::read(order::campaign(jobs)).at(Stage::Build, Cause::BadInput)?;
    let file =
        CampaignFile::parse(bytes, inputs.campaign_folder.clone()).at(Stage::Build, Cause::BadInput)?;
    if file.sha256 != order.campaign_sha256 {
        return Err(Work::Build.error(Cause::BadInput, "the order is not of this campaign file"));
    }
    let earlier = Attempt::list(jobs, Work::Build)?;
    let work = Work::Build;
    let job = Job { jobs, order: &order, file: &file, work, earlier: &earlier, allocation: &allocation };
    if job.is_idle() {
        progress.note("there is nothing to do");
        return Ok(());
    }
    let mut options = job.options();
    options.repository.clone_from(&inputs.repository);
    options.seed.clone_from(&inputs.seed);
    options.artifacts.clone_from(&inputs.artifacts);
    job.run(&options, cancel, progress, |context| stages(context, jobs))
}

fn stages(context: &mut Context<'_>, jobs: &Path) -> Result<(), CampaignError> {
    let pinned = context.timed(Stage::Pin, |context| pin::pin(context))?;
    let built = context.timed(Stage::Build, |context| build::build(context, &pinned))?;
    for side in Side::BOTH {
        publish(built.harness.get(side), &order::harness(jobs, side)).at(Stage::Build, Cause::HostUnfit)?;
    }
    Ok(())
}

/// Nobody sees a part of a file under its name.
fn publish(from: &Path, to: &Path) -> std::io::Result<()> {
    let new = to.with_extension("new");
    fs::copy(from, &new)?;
    fs::File::open(&new)?.sync_all()?;
    fs::rename(new, to)
}
