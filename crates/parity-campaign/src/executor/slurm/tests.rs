use super::*;

/// What is no predeclared condition never starts a row again, whatever Slurm calls it.
#[test]
fn a_product_failure_is_no_condition() {
    for (state, interrupted, expected) in [
        (Some(JobState::Preempted), false, Some(Condition::Preempted)),
        (Some(JobState::TimeLimit), true, Some(Condition::TimeLimit)),
        (Some(JobState::Cancelled), false, Some(Condition::Cancelled)),
        (Some(JobState::NodeFail), false, Some(Condition::NodeFail)),
        (Some(JobState::Failed), true, Some(Condition::Cancelled)),
        (None, true, Some(Condition::Cancelled)),
        (None, false, Some(Condition::Lost)),
        (Some(JobState::Failed), false, None),
        (Some(JobState::Ended), false, None),
        (Some(JobState::OutOfMemory), false, None),
        (Some(JobState::OutOfMemory), true, None),
        (Some(JobState::Other("NEW".into())), false, None),
    ] {
        assert_eq!(condition_of(state.as_ref(), interrupted), expected, "{state:?} {interrupted}");
    }
}

#[test]
fn a_job_has_one_node_to_itself_and_what_the_campaign_file_says() {
    let settings = Slurm {
        account: Some("a".into()),
        partition: Some("p".into()),
        qos: Some("q".into()),
        constraint: Some("c&d".into()),
        time_limit_min: Some(90),
        extra: vec!["--reservation=night".into()],
        ..Slurm::default()
    };
    let found =
        options(&settings, "kvrp-0123456789ab-vllm-aggregated", "vllm-aggregated", Path::new("/shared/jobs"))
            .join(" ");
    assert_eq!(
        found,
        "--parsable --job-name=kvrp-0123456789ab-vllm-aggregated --nodes=1 --ntasks=1 --exclusive --requeue \
         --export=ALL --open-mode=append --output=/shared/jobs/log/vllm-aggregated-%j.txt --account=a \
         --partition=p --qos=q --constraint=c&d --time=90 --reservation=night"
    );
    let once = Slurm { restart_on: vec![Condition::TimeLimit], ..Slurm::default() };
    assert!(options(&once, "j", "r", Path::new("/j")).contains(&"--no-requeue".to_owned()));
}
