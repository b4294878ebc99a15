//! cleanup: what was only needed on the way is removed, and what was removed is recorded (C1).

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::context::Context;
use crate::error::{At, CampaignError, Cause};
use crate::stage::Stage;

/// Removes the scratch folder and records what it held.
pub(crate) fn clean_up(context: &Context<'_>) -> Result<(), CampaignError> {
    let held = contents(&context.work).at(Stage::Cleanup, Cause::HostUnfit)?;
    if context.options.keep_work {
        return context.append(Stage::Cleanup, "cleanup", &json!({ "kept": held, "why": "asked for" }));
    }
    fs::remove_dir_all(&context.work).at(Stage::Cleanup, Cause::HostUnfit)?;
    context.append(Stage::Cleanup, "cleanup", &json!({ "removed": held }))
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
