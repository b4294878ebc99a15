//! build: one release artifact per revision, each from its own target directory (P4 to P7).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use canonical_json::Sha256;
use cpu_placement::{CpuSet, SpawnError};
use revision_pin::{
    BUILD_LOG, BuildError, BuildRecord as PinnedBuild, Builder, Checkout, Comparison, Recipe, Target,
    TargetKind as PinnedTargetKind, growth_ppm,
};

use crate::context::{ARTIFACTS, Context};
use crate::definition::{Definition, ReviewKind, Revision, TargetKind};
use crate::error::{At, CampaignError, Cause};
use crate::harness::{missing_flags, needed_flags};
use crate::record::{ArtifactRecord, Both, BuildRecord, Growth, Side};
use crate::stage::Stage;
use crate::stage::pin::Checkouts;
use crate::stage::run::harness_run;

mod alike;

/// Both artifacts, and what a reviewer must decide about them.
pub(crate) struct Built {
    pub(crate) harness: Both<PathBuf>,
    pub(crate) record: BuildRecord,
    pub(crate) stops: Vec<String>,
}

pub(crate) fn build(context: &mut Context<'_>, pinned: &Checkouts) -> Result<Built, CampaignError> {
    match context.recorded::<BuildRecord>(Stage::Build, RECORD)? {
        Some(record) => build_again(context, pinned, record),
        None => build_first(context, pinned),
    }
}

/// Where the record of both artifacts is.
pub(crate) const RECORD: &str = "records/build.json";

/// Artifacts that a job has built.
pub(crate) fn taken_over(definition: &Definition, harness: Both<PathBuf>, record: BuildRecord) -> Built {
    let stops = growth_stops(definition, record.growth);
    Built { harness, record, stops }
}

/// Goes on with the artifacts of an earlier process, or makes them again: they must be the same bytes.
fn build_again(
    context: &mut Context<'_>,
    pinned: &Checkouts,
    record: BuildRecord,
) -> Result<Built, CampaignError> {
    let mut seed = context.options.seed.clone();
    let mut harnesses = Vec::new();
    for side in Side::BOTH {
        let recorded = record.artifacts.get(side).sha256;
        let kept = context.work.join(ARTIFACTS).join(side.letter()).join("harness");
        let is_kept = Sha256::of_file(&kept).is_ok_and(|(found, _)| found == recorded);
        if !is_kept {
            remove_if_there(&kept).at(Stage::Build, Cause::HostUnfit)?;
            let folder = context.work.join("build").join(side.letter());
            let (_, built) = one(context, side, pinned.checkouts.get(side), &folder, seed.as_deref())?;
            if built.artifact.sha256 != recorded {
                let (name, found) = (side.name(), built.artifact.sha256);
                let message =
                    format!("{name}: the artifact has digest {found}, this campaign began with {recorded}");
                return Err(CampaignError::new(Stage::Build, Cause::HostUnfit, message));
            }
            seed = if built.taken_over { seed } else { Some(folder) };
        }
        harnesses.push(kept);
    }
    let harness = Both::try_make(|side| {
        let at = usize::from(side == Side::Candidate);
        harnesses.get(at).cloned().ok_or("a harness is missing").at(Stage::Build, Cause::Bug)
    })?;
    let stops = growth_stops(context.definition(), record.growth);
    Ok(Built { harness, record, stops })
}

fn remove_if_there(file: &Path) -> std::io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn build_first(context: &mut Context<'_>, pinned: &Checkouts) -> Result<Built, CampaignError> {
    // Artifacts of a process that was killed before it recorded them are worth nothing.
    for side in Side::BOTH {
        let left = context.work.join(ARTIFACTS).join(side.letter()).join("harness");
        remove_if_there(&left).at(Stage::Build, Cause::HostUnfit)?;
    }
    let definition = context.definition();
    let differences = alike::check_sources(definition, pinned)?;
    let folder = |side: Side| context.work.join("build").join(side.letter());
    let folders = Both { baseline: folder(Side::Baseline), candidate: folder(Side::Candidate) };
    let seed = context.options.seed.clone();
    let baseline =
        one(context, Side::Baseline, &pinned.checkouts.baseline, &folders.baseline, seed.as_deref())?;
    // An artifact that was taken over has left nothing to start from.
    let seed = if baseline.1.taken_over { seed.as_deref() } else { Some(folders.baseline.as_path()) };
    let candidate = one(context, Side::Candidate, &pinned.checkouts.candidate, &folders.candidate, seed)?;
    let differences = alike::check_builds(definition, differences, [&baseline.1, &candidate.1])?;
    let comparison = baseline.1.compare(&candidate.1);
    refuse_equal(definition, &comparison)?;
    let harness = Both { baseline: baseline.0, candidate: candidate.0 };
    for side in Side::BOTH {
        probe(context, side, harness.get(side))?;
    }
    let record = BuildRecord {
        artifacts: Both { baseline: describe(&baseline.1)?, candidate: describe(&candidate.1)? },
        growth: growth(&comparison),
        equal_artifacts: comparison.same_artifact,
        differences,
    };
    context.record(Stage::Build, RECORD, &record)?;
    let stops = growth_stops(definition, record.growth);
    Ok(Built { harness, record, stops })
}

fn recipe(definition: &Definition, revision: &Revision) -> Recipe {
    let build = &definition.build;
    let kind = match build.target_kind {
        TargetKind::Bench => PinnedTargetKind::Bench,
        TargetKind::Bin => PinnedTargetKind::Bin,
    };
    Recipe {
        features: definition.features(revision).to_vec(),
        no_default_features: build.no_default_features,
        profile: build.profile.clone(),
        offline: build.offline,
        ..Recipe::new(&build.package, Target { kind, name: build.target.clone() })
    }
}

fn one(
    context: &mut Context<'_>,
    side: Side,
    checkout: &Checkout,
    folder: &Path,
    seed: Option<&Path>,
) -> Result<(PathBuf, PinnedBuild), CampaignError> {
    context.progress.note(&format!("build {}", side.name()));
    let definition = context.definition();
    let revision = match side {
        Side::Baseline => &definition.baseline,
        Side::Candidate => &definition.candidate,
    };
    let builder = Builder::new(recipe(definition, revision))
        .at(Stage::Build, Cause::BadInput)?
        .time_limit(Duration::from_secs(definition.build.time_limit_s))
        .free_bytes(definition.host.free_disk_bytes)
        .node_lock(Some(context.options.node_lock.clone()))
        .store(context.options.artifacts.clone())
        .cancel(context.cancel.clone());
    let artifact = context.work.join(ARTIFACTS).join(side.letter());
    fs::create_dir_all(&artifact).at(Stage::Build, Cause::HostUnfit)?;
    let built = builder.build(checkout, folder, &artifact.join("harness"), seed);
    keep_log(context, side, folder)?;
    let built = built.map_err(|error| refused(side, error))?;
    Ok((built.artifact, built.record))
}

/// cargo's own words, whether the build went well or not.
fn keep_log(context: &Context<'_>, side: Side, folder: &Path) -> Result<(), CampaignError> {
    let log = folder.join(BUILD_LOG);
    if !log.is_file() {
        return Ok(());
    }
    let text = fs::read_to_string(&log).at(Stage::Build, Cause::HostUnfit)?;
    let hidden = context.hide_paths(&text);
    let path = format!("logs/build-{}.txt", side.name());
    context.write_file(Stage::Build, &path, hidden.as_bytes())
}

fn refused(side: Side, error: BuildError) -> CampaignError {
    let cause = match &error {
        BuildError::Cancelled { .. } => return CampaignError::cancelled(Stage::Build),
        BuildError::NodeLock { .. } => return CampaignError::new(Stage::Build, Cause::HostUnfit, error),
        BuildError::ProtocolNeedsUpdating(_) => Cause::StopForReview,
        BuildError::Failed { .. } | BuildError::TimedOut { .. } | BuildError::Executables { .. } => {
            Cause::TargetFailed
        }
        BuildError::NoLockfile { .. } => Cause::BadInput,
        _ => Cause::HostUnfit,
    };
    let wrapped = SideError { side, source: error };
    CampaignError::new(Stage::Build, cause, wrapped)
}

/// Says which revision could not be built.
#[derive(Debug, thiserror::Error)]
#[error("{}", side.name())]
struct SideError {
    side: Side,
    source: BuildError,
}

/// Comparing an artifact with itself passes whatever changed (P4).
fn refuse_equal(definition: &Definition, comparison: &Comparison) -> Result<(), CampaignError> {
    if !comparison.is_suspicious() || definition.build.allow_equal_artifacts {
        return Ok(());
    }
    let message = "two different trees gave the same artifact, so comparing them would prove nothing; if the change \
                   cannot reach the harness, say build.allow_equal_artifacts = true";
    Err(CampaignError::new(Stage::Build, Cause::StopForReview, message))
}

/// Asks the harness for its options and stops when one that a row needs is gone (P6).
fn probe(context: &Context<'_>, side: Side, harness: &Path) -> Result<(), CampaignError> {
    let folder = context.work.join("probe").join(side.letter());
    fs::create_dir_all(&folder).at(Stage::Build, Cause::HostUnfit)?;
    let anywhere = cpu_placement::Topology::read().at(Stage::Build, Cause::HostUnfit)?.allowed;
    let finished = help(context, harness, &folder, &anywhere)?;
    let text = fs::read_to_string(folder.join("stdout")).at(Stage::Build, Cause::TargetFailed)?;
    if !finished {
        let message = format!("{}: the harness does not answer --help", side.name());
        return Err(CampaignError::new(Stage::Build, Cause::TargetFailed, message));
    }
    let missing = missing_flags(&text, &needed_flags(context.definition(), side));
    if missing.is_empty() {
        return Ok(());
    }
    let message =
        format!("{}: the protocol needs updating: the harness has no {}", side.name(), missing.join(", "));
    Err(CampaignError::new(Stage::Build, Cause::StopForReview, message))
}

fn help(context: &Context<'_>, harness: &Path, folder: &Path, cpus: &CpuSet) -> Result<bool, CampaignError> {
    let run = harness_run(harness, folder, cpus, context.definition()).arg("--help");
    match run.wait(context.cancel) {
        Ok(finished) => Ok(finished.outcome.is_success()),
        Err(SpawnError::Cancelled { .. }) => Err(CampaignError::cancelled(Stage::Build)),
        Err(error) => Err(CampaignError::new(Stage::Build, Cause::HostUnfit, error)),
    }
}

fn describe(build: &PinnedBuild) -> Result<ArtifactRecord, CampaignError> {
    Ok(ArtifactRecord {
        sha256: build.artifact.sha256,
        bytes: build.artifact.bytes,
        text_bytes: build.artifact.text_bytes,
        features: build.features.clone(),
        wall_ms: build.wall_ns / 1_000_000,
        details: serde_json::to_value(build).at(Stage::Build, Cause::Bug)?,
    })
}

fn growth(comparison: &Comparison) -> Growth {
    #[expect(clippy::cast_precision_loss, reason = "a growth in parts per million is far below 2^53")]
    let ratio = |ppm: i64| ppm as f64 / 1e6;
    Growth { size_ratio: ratio(comparison.size_growth_ppm), text_ratio: ratio(comparison.text_growth_ppm) }
}

/// The same from what is recorded of two artifacts.
pub(crate) fn growth_of(artifacts: &Both<ArtifactRecord>) -> Growth {
    let ratio = |of: fn(&ArtifactRecord) -> u64| {
        let ppm = growth_ppm(of(&artifacts.baseline), of(&artifacts.candidate));
        #[expect(clippy::cast_precision_loss, reason = "a growth in parts per million is far below 2^53")]
        let ratio = ppm as f64 / 1e6;
        ratio
    };
    Growth { size_ratio: ratio(|artifact| artifact.bytes), text_ratio: ratio(|artifact| artifact.text_bytes) }
}

/// Growth beyond the limit needs a review record that names it (P5).
pub(crate) fn growth_stops(definition: &Definition, growth: Growth) -> Vec<String> {
    let reviewed =
        |subject: &str| definition.reviews_of(ReviewKind::Growth).any(|review| review.subject == subject);
    let limit = definition.build.max_growth;
    [("size", growth.size_ratio), ("text", growth.text_ratio)]
        .into_iter()
        .filter(|(subject, ratio)| *ratio > limit && !reviewed(subject))
        .map(|(subject, ratio)| {
            let (grown, allowed) = (ratio * 100.0, limit * 100.0);
            format!("the artifact's {subject} grew by {grown:.2} %, more than {allowed} %: explain it in a review of kind growth")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Review;
    use crate::definition::tests::good;

    #[test]
    fn growth_needs_a_review_of_exactly_that() {
        let review = |subject: &str| Review {
            kind: ReviewKind::Growth,
            subject: subject.into(),
            reason: "x".into(),
            reviewer: "x".into(),
            date: "2026-01-01".into(),
        };
        let grew = Growth { size_ratio: 0.06, text_ratio: 0.07 };
        for (growth, reviews, stops) in [
            (Growth { size_ratio: 0.05, text_ratio: -0.5 }, vec![], vec![]),
            (grew, vec![], vec!["size grew by 6.00 %", "text grew by 7.00 %"]),
            (grew, vec![review("size")], vec!["text grew by 7.00 %"]),
            (grew, vec![review("size"), review("text")], vec![]),
        ] {
            let mut definition = good();
            definition.reviews = reviews;
            let found = growth_stops(&definition, growth);
            assert_eq!(found.len(), stops.len(), "{found:?}");
            assert!(found.iter().zip(&stops).all(|(found, says)| found.contains(says)), "{found:?}");
        }
    }
}
