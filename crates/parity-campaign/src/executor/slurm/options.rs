//! What sbatch is told.

use std::ffi::OsString;
use std::path::Path;

use super::settings::{Condition, Slurm};
use crate::context::Context;
use crate::error::{At, CampaignError, Cause};
use crate::executor::job_id::JobId;
use crate::stage::Stage;

/// Every row of `tasks` as a task of one array.
pub(super) fn rows(
    settings: &Slurm,
    name: &str,
    tasks: &[u32],
    jobs: &Path,
    after: Option<JobId>,
) -> Vec<String> {
    let tasks: Vec<String> = tasks.iter().map(u32::to_string).collect();
    let mut options = worker(settings, name, jobs, "%A_%a");
    options.push(format!("--array={}", tasks.join(",")));
    if let Some(build) = after {
        options.push(format!("--dependency=afterok:{build}"));
        // A row that waits for a build that failed would wait for ever.
        options.push("--kill-on-invalid-dep=yes".to_owned());
    }
    options.extend(place(settings));
    options.extend(settings.time_limit_min.map(|minutes| format!("--time={minutes}")));
    options.extend(settings.extra.iter().cloned());
    options
}

/// The job that builds both revisions.
pub(super) fn build(settings: &Slurm, name: &str, jobs: &Path) -> Vec<String> {
    let mut options = worker(settings, name, jobs, "%j");
    options.extend(place(settings));
    options.extend(settings.extra.iter().chain(&settings.build_extra).cloned());
    options
}

/// The job that takes the rows over. It removes the folder of the jobs, so what it says is elsewhere.
pub(super) fn merge(settings: &Slurm, name: &str, after: &[JobId], log: &str) -> Vec<String> {
    let after: Vec<String> = after.iter().map(JobId::to_string).collect();
    let mut options = vec![
        "--parsable".to_owned(),
        format!("--job-name={name}"),
        "--nodes=1".to_owned(),
        "--ntasks=1".to_owned(),
        "--export=ALL".to_owned(),
        format!("--dependency=afterany:{}", after.join(":")),
        format!("--output={log}"),
    ];
    options.extend(place(settings));
    options.extend(settings.extra.iter().cloned());
    options
}

/// One node to itself, and whether Slurm may put the job back by itself.
fn worker(settings: &Slurm, name: &str, jobs: &Path, log: &str) -> Vec<String> {
    let log = jobs.join("log").join(format!("{log}.txt"));
    // Slurm itself puts a job back when its node fails or another job takes the node; only if all of that may be.
    let back = [Condition::Requeued, Condition::Preempted, Condition::NodeFail];
    let requeue = back.iter().all(|condition| settings.restart_on.contains(condition));
    vec![
        "--parsable".to_owned(),
        format!("--job-name={name}"),
        "--nodes=1".to_owned(),
        "--ntasks=1".to_owned(),
        "--exclusive".to_owned(),
        if requeue { "--requeue" } else { "--no-requeue" }.to_owned(),
        "--export=ALL".to_owned(),
        "--open-mode=append".to_owned(),
        format!("--output={}", log.display()),
    ]
}

/// Where jobs of a campaign run and on whose account.
fn place(settings: &Slurm) -> Vec<String> {
    let named = [
        ("account", &settings.account),
        ("partition", &settings.partition),
        ("qos", &settings.qos),
        ("constraint", &settings.constraint),
    ];
    named.into_iter().filter_map(|(name, value)| Some(format!("--{name}={}", value.as_ref()?))).collect()
}

/// What a job that compiles may know of whoever submitted it, besides what every job is told: where cargo and its caches are
/// and how to reach a registry, but no folder for temporary files, which may be none of the node's.
pub(super) fn compiler_environment() -> Vec<String> {
    let passed = revision_pin::Environment::PASSED.into_iter().filter(|name| *name != "TMPDIR");
    let families = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).filter(|name| {
        revision_pin::Environment::PASSED_FAMILIES.iter().any(|family| name.starts_with(family))
    });
    passed
        .map(str::to_owned)
        .chain(families)
        .chain([crate::stage::slice::TRACES_VARIABLE.to_owned()])
        .collect()
}

/// What the job that builds is told besides the folder that it shares; it starts in another folder.
pub(super) fn build_arguments(context: &Context<'_>) -> Result<Vec<OsString>, CampaignError> {
    let options = context.options;
    flags(&[
        ("--campaign-folder", Some(&context.file.folder)),
        ("--repo", options.repository.as_deref()),
        ("--seed", options.seed.as_deref()),
        ("--artifacts", options.artifacts.as_deref()),
    ])
}

/// `resume` with everything that this process was given; the job starts in another folder.
pub(super) fn resume_arguments(
    context: &Context<'_>,
    campaign: &Path,
) -> Result<Vec<OsString>, CampaignError> {
    let options = context.options;
    let mut arguments: Vec<OsString> = vec!["resume".into()];
    arguments.extend(flags(&[
        ("--campaign", Some(campaign)),
        ("--repo", options.repository.as_deref()),
        ("--trace", options.trace.as_deref()),
        ("--staging", Some(options.staging.as_path())),
        ("--node-lock", Some(options.node_lock.as_path())),
        ("--seed", options.seed.as_deref()),
        ("--artifacts", options.artifacts.as_deref()),
    ])?);
    arguments.push(absolute(&options.out)?.into());
    Ok(arguments)
}

fn flags(given: &[(&str, Option<&Path>)]) -> Result<Vec<OsString>, CampaignError> {
    let mut arguments = Vec::new();
    for (flag, path) in given {
        if let Some(path) = path {
            arguments.extend([flag.into(), absolute(path)?.into()]);
        }
    }
    Ok(arguments)
}

/// An empty path is the working folder: that of a file that was named without one.
fn absolute(path: &Path) -> Result<std::path::PathBuf, CampaignError> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    std::path::absolute(path).at(Stage::Run, Cause::HostUnfit)
}

/// Beside the bundle: the job removes the folder that it shares with the others.
pub(super) fn merge_log(context: &Context<'_>) -> Result<String, CampaignError> {
    Ok(format!("{}.merge-%j.txt", absolute(&context.options.out)?.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Slurm {
        Slurm {
            account: Some("a".into()),
            partition: Some("p".into()),
            qos: Some("q".into()),
            constraint: Some("c&d".into()),
            time_limit_min: Some(90),
            extra: vec!["--reservation=night".into()],
            build_extra: vec!["--partition=build".into(), "--time=60".into()],
            ..Slurm::default()
        }
    }

    const JOBS: &str = "/shared/jobs";

    #[test]
    fn a_row_has_one_node_to_itself_and_what_the_campaign_file_says() {
        let found = rows(&settings(), "kvrp-0123456789ab", &[0, 2], Path::new(JOBS), None).join(" ");
        let place = "--account=a --partition=p --qos=q --constraint=c&d --time=90 --reservation=night";
        let worker = "--nodes=1 --ntasks=1 --exclusive --requeue --export=ALL --open-mode=append";
        let log = "--output=/shared/jobs/log/%A_%a.txt --array=0,2";
        assert_eq!(found, format!("--parsable --job-name=kvrp-0123456789ab {worker} {log} {place}"));
        let build = JobId { number: 7, task: None };
        let found = rows(&settings(), "kvrp-0123456789ab", &[0, 2], Path::new(JOBS), Some(build)).join(" ");
        let waits = "--dependency=afterok:7 --kill-on-invalid-dep=yes";
        assert_eq!(found, format!("--parsable --job-name=kvrp-0123456789ab {worker} {log} {waits} {place}"));
        let once = Slurm { restart_on: vec![Condition::TimeLimit], ..Slurm::default() };
        assert!(rows(&once, "j", &[0], Path::new(JOBS), None).contains(&"--no-requeue".to_owned()));
    }

    /// sbatch takes the last of two, and the time limit of rows is none of a build.
    #[test]
    fn a_build_may_be_placed_elsewhere() {
        let found = build(&settings(), "kvrpbuild-0123456789ab", Path::new(JOBS));
        let partitions: Vec<&String> =
            found.iter().filter(|option| option.starts_with("--partition=")).collect();
        assert_eq!(partitions, ["--partition=p", "--partition=build"]);
        assert!(found.contains(&"--time=60".to_owned()) && !found.contains(&"--time=90".to_owned()));
    }

    #[test]
    fn a_merge_waits_for_everything() {
        let after = [JobId { number: 7, task: None }, JobId { number: 8, task: None }];
        let found = merge(&settings(), "kvrpmerge-0123456789ab", &after, "/out.merge-%j.txt");
        assert!(found.contains(&"--dependency=afterany:7:8".to_owned()), "{found:?}");
        assert!(!found.contains(&"--exclusive".to_owned()), "{found:?}");
    }
}
