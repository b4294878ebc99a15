//! Recorded from slurmctld 22.05.8 of Debian; the JSON of newer releases follows the OpenAPI data parsers 0.0.40 to 0.0.42,
//! in which `job_state` is a list.

use super::*;

#[test]
fn the_queue_of_22_05() {
    let text = "1|kvrp-x-row1|RUNNING|n1|None\n3|kvrp-x-row3|PENDING||BeginTime\n4|can|CANCELLED|n2|None\n\
                6|tl|TIMEOUT|n2|TimeLimit\n8|down|PENDING||ReqNodeNotAvail, UnavailableNodes:n1|n2\n9|c|COMPLETING|n1|None\n";
    let jobs = queue(text).expect("a queue");
    let shown: Vec<_> =
        jobs.iter().map(|job| (job.id, &job.state, job.nodes.as_str(), job.reason.as_str())).collect();
    assert_eq!(
        shown,
        [
            (1, &JobState::Running, "n1", ""),
            (3, &JobState::Waiting, "", "BeginTime"),
            (4, &JobState::Cancelled, "n2", ""),
            (6, &JobState::TimeLimit, "n2", "TimeLimit"),
            (8, &JobState::Waiting, "", "ReqNodeNotAvail, UnavailableNodes:n1|n2"),
            (9, &JobState::Running, "n1", ""),
        ]
    );
    assert_eq!(jobs[0].name, "kvrp-x-row1");
    assert_eq!(queue("\n").expect("an empty queue"), []);
    assert!(matches!(queue("slurm_load_jobs error"), Err(TextError::Line { .. })));
}

/// Recorded from 22.05.8, where the state is a word and jobs of everybody are in the document.
#[test]
fn the_json_of_22_05() {
    let text = r#"{"meta": {"plugin": {"type": "openapi\/v0.0.38", "name": "Slurm OpenAPI v0.0.38"},
        "Slurm": {"version": {"major": 22, "micro": 8, "minor": 5}, "release": "22.05.8"}}, "errors": [],
        "jobs": [{"array_task_id": null, "batch_host": "", "comment": "", "exit_code": 0, "job_id": 5,
        "job_state": "PENDING", "name": "nodefail", "nodes": "", "requeue": true, "restart_cnt": 1,
        "state_reason": "BeginTime", "time_limit": 1}]}"#;
    let [job] = &queue_json(text).expect("a queue")[..] else { panic!("not one job") };
    assert_eq!((job.id, &job.state, job.reason.as_str()), (5, &JobState::Waiting, "BeginTime"));
}

#[test]
fn the_json_of_several_releases() {
    let of = |state: &str, nodes: &str| {
        let text = format!(
            r#"{{"meta":{{}},"jobs":[{{"job_id":5,"name":"kvrp-a-b","job_state":{state},"nodes":"{nodes}","state_reason":"None","restart_cnt":1}}]}}"#
        );
        queue_json(&text).expect("a queue").remove(0)
    };
    for (state, expected) in [
        (r#""NODE_FAIL""#, JobState::NodeFail),
        (r#"["RUNNING"]"#, JobState::Running),
        (r#"["CANCELLED","COMPLETING"]"#, JobState::Running),
        (r#"["CANCELLED"]"#, JobState::Cancelled),
        (r#"["PENDING","REQUEUED"]"#, JobState::Waiting),
        (r#"["PREEMPTED"]"#, JobState::Preempted),
        (r#"["OUT_OF_MEMORY"]"#, JobState::OutOfMemory),
        (r#"["FAILED"]"#, JobState::Failed),
        (r#"["COMPLETED"]"#, JobState::Ended),
        (r#"["NEW_STATE"]"#, JobState::Other("NEW_STATE".into())),
    ] {
        let job = of(state, "n2");
        assert_eq!((job.state, job.nodes.as_str(), job.reason.as_str()), (expected, "n2", ""), "{state}");
    }
    assert!(matches!(queue_json("{}"), Err(TextError::Shape { .. })));
    assert!(matches!(queue_json("slurm"), Err(TextError::Json(_))));
}

#[test]
fn what_else_is_printed() {
    assert_eq!(submitted("17\n").expect("an id"), 17);
    assert_eq!(submitted("sbatch: a greeting of the site\n17;cluster\n").expect("an id"), 17);
    assert!(submitted("\n").is_err() && submitted("Submitted batch job 17").is_err());
    for (text, expected) in
        [("slurm-wlm 22.05.8\n", (22, 5)), ("slurm 24.05.0-rc1", (24, 5)), ("slurm 23.11.4", (23, 11))]
    {
        assert_eq!(version(text).expect("a version"), expected);
    }
    assert!(version("slurm").is_err());
    let scontrol =
        "JobId=4 JobName=can UserId=root(0) JobState=CANCELLED Reason=None Dependency=(null) Requeue=1";
    assert_eq!(state_in_scontrol(scontrol), Some(JobState::Cancelled));
    assert_eq!(state_in_accounting("CANCELLED by 0\nNODE_FAIL\n"), Some(JobState::NodeFail));
    assert_eq!(state_in_accounting("\n"), None);
}
