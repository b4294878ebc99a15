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
