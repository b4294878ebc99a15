//! cleanup: what was only needed on the way is removed; what was made, what went and what stayed is recorded (C1).

use std::fs;
use std::path::Path;

use crate::context::Context;
use crate::error::{At, CampaignError, Cause};
use crate::record::{CleanedUp, CleanupRecord, Fate};
use crate::stage::Stage;

/// The journal's kind of a [`CleanupRecord`].
pub(crate) const CLEANUP_KIND: &str = "cleanup";

/// Removes the scratch folder and records what became of everything that the campaign made.
pub(crate) fn clean_up(context: &Context<'_>) -> Result<(), CampaignError> {
    let held = contents(&context.work).at(Stage::Cleanup, Cause::HostUnfit)?;
    let keeps = context.options.keep_work;
    if !keeps {
        fs::remove_dir_all(&context.work).at(Stage::Cleanup, Cause::HostUnfit)?;
    }
    let why = "the campaign was asked to keep its scratch";
    let scratch = held.into_iter().map(|name| CleanedUp {
        what: described(&name).to_owned(),
        path: format!("work/{name}"),
        fate: if keeps { Fate::Kept { why: why.to_owned() } } else { Fate::Removed },
    });
    let made = scratch.chain(elsewhere(context)).chain(reports(context)).collect();
    context.append(Stage::Cleanup, CLEANUP_KIND, &CleanupRecord { made })
}

/// What was made outside of the bundle is removed by whoever made it; here it is seen whether that happened.
fn elsewhere(context: &Context<'_>) -> impl Iterator<Item = CleanedUp> {
    context.made_elsewhere.iter().map(|(path, what)| CleanedUp {
        what: (*what).to_owned(),
        path: context.hide_paths(&path.to_string_lossy()),
        fate: match path.exists() {
            true => Fate::Kept { why: "it could not be removed; the next start removes it".to_owned() },
            false => Fate::Removed,
        },
    })
}

/// Full reports that stay, each because something about it is not settled.
fn reports(context: &Context<'_>) -> impl Iterator<Item = CleanedUp> {
    let kept = context.bundle.files().into_iter().filter(|file| file.path.starts_with("reports/"));
    kept.map(|file| {
        let why = match file.path.starts_with("reports/lifecycle-") {
            true => "it does not show its lifecycle",
            false => "it differs from another report of its row",
        };
        CleanedUp {
            path: file.path,
            what: "a full report".to_owned(),
            fate: Fate::Kept { why: why.to_owned() },
        }
    })
}

/// What a folder of the scratch is for.
fn described(name: &str) -> &'static str {
    match name {
        "artifact" => "the artifacts",
        "build" => "target folders of the builds",
        "checkout" => "a checkout of each revision, with its patches",
        "input" => "the window that was cut from the trace",
        "jobs" | "jobs.new" => "what rows on other nodes read and left",
        "lifecycle" => "windows and outputs of forced lifecycles",
        "probe" => "what each harness says of its options",
        "probes" => "outputs of a search",
        "runs" => "outputs of correctness repetitions",
        "tests" => "target folders and outputs of tests",
        _ => "scratch",
    }
}

/// The same for a campaign that could not go on. Failing to remove something must not hide why.
pub(crate) fn after_failure(context: &Context<'_>) {
    if context.jobs_outstanding {
        // Jobs read and write there; whoever resumes the campaign removes it.
        if let Err(error) = context.remove_all_but_artifacts() {
            tracing::warn!(error = &error as &dyn std::error::Error, "scratch could not be removed");
        }
        return;
    }
    if let Err(error) = clean_up(context) {
        tracing::warn!(error = &error as &dyn std::error::Error, "scratch could not be removed");
    }
}

/// The names directly inside a folder, sorted.
fn contents(folder: &Path) -> std::io::Result<Vec<String>> {
    let entries = fs::read_dir(folder)?;
    let mut names = entries
        .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
        .collect::<std::io::Result<Vec<String>>>()?;
    names.sort();
    Ok(names)
}
