//! Recorded from slurmctld 22.05.8 of Debian; the JSON of newer releases follows the OpenAPI data parsers 0.0.40 to 0.0.42,
//! in which `job_state` is a list.

use super::*;

#[test]
fn the_queue_of_22_05() {
    let text = "1|0|kvrp-x|RUNNING|n1|None\n3|2|kvrp-x|PENDING||BeginTime\n4|N/A|can|CANCELLED|n2|None\n\
                6|N/A|tl|TIMEOUT|n2|TimeLimit\n8|11|down|PENDING||ReqNodeNotAvail, UnavailableNodes:n1|n2\n\
                9|N/A|c|COMPLETING|n1|None\n";
    let jobs = queue(text).expect("a queue");
    let shown =
        jobs.iter().map(|job| (job.id.to_string(), &job.state, job.nodes.as_str(), job.reason.as_str()));
    assert_eq!(
        shown.collect::<Vec<_>>(),
        [
            ("1_0".to_owned(), &JobState::Running, "n1", ""),
            ("3_2".to_owned(), &JobState::Waiting, "", "BeginTime"),
            ("4".to_owned(), &JobState::Cancelled, "n2", ""),
            ("6".to_owned(), &JobState::TimeLimit, "n2", "TimeLimit"),
            ("8_11".to_owned(), &JobState::Waiting, "", "ReqNodeNotAvail, UnavailableNodes:n1|n2"),
            ("9".to_owned(), &JobState::Running, "n1", ""),
        ]
    );
    assert_eq!(jobs[0].name, "kvrp-x");
    assert_eq!(queue("\n").expect("an empty queue"), []);
    for line in ["slurm_load_jobs error", "1|0-3|x|PENDING||None", "x|0|x|PENDING||None"] {
        assert!(matches!(queue(line), Err(TextError::Line { .. })), "{line}");
    }
}

/// What 22.05.8 says of jobs that waited for one that failed, with and without `--kill-on-invalid-dep=yes`, and of an array
/// that was cancelled as a whole.
#[test]
fn what_never_runs_is_known() {
    let text = "2|0|rows|CANCELLED||DependencyNeverSatisfied\n3|0|rows|PENDING||DependencyNeverSatisfied\n\
                4|0|rows|PENDING||Dependency\n5|N/A|rows|CANCELLED||None\n";
    let never: Vec<bool> = queue(text).expect("a queue").iter().map(Job::never_runs).collect();
    assert_eq!(never, [true, true, false, false]);
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
    let id = JobId { number: 5, task: None };
    assert_eq!((job.id, &job.state, job.reason.as_str()), (id, &JobState::Waiting, "BeginTime"));
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
    for (array, expected) in [
        (r#""array_job_id":0,"array_task_id":null,"array_task_string":"""#, vec!["5"]),
        (r#""array_job_id":4,"array_task_id":2,"array_task_string":"""#, vec!["4_2"]),
        (
            r#""array_job_id":{"set":true,"number":0},"array_task_id":{"set":false,"number":0},"array_task_string":"""#,
            vec!["5"],
        ),
        (
            r#""array_job_id":{"set":true,"number":4},"array_task_id":{"set":true,"number":0},"array_task_string":"""#,
            vec!["4_0"],
        ),
        (
            r#""array_job_id":{"set":true,"number":5},"array_task_id":{"set":false,"number":0},"array_task_string":"0,2-3%1""#,
            vec!["5_0", "5_2", "5_3"],
        ),
    ] {
        let text = format!(r#"{{"jobs":[{{"job_id":5,"name":"k","job_state":["PENDING"],{array}}}]}}"#);
        let jobs = queue_json(&text).expect("a queue");
        assert_eq!(jobs.iter().map(|job| job.id.to_string()).collect::<Vec<_>>(), expected, "{array}");
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
