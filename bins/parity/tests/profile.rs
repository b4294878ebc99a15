//! A profile names the function that makes one arm slower, on machines that permit one.

use std::fs;
use std::path::Path;

use parity_campaign::Profile;
use testkit::StandIn;

mod scene;

use scene::Scene;

#[test]
fn the_function_that_is_new_is_named_first() {
    let scene = Scene::new(&StandIn::new("on-timing burn 50"), "");
    let mut command = scene.command();
    command.args(["--profile", "always"]);
    let text = scene.check(command, &[0, 3], &["profile of both arms"]);
    let report = parity_campaign::read_report(&scene.out()).expect("a report");
    assert_eq!(report.measurements.len(), 4, "{text}");
    let permitted = perf_is_permitted(scene.folder.path());
    for row in &report.measurements {
        match row.profile.as_ref().expect("one was asked for") {
            Profile::Taken(found) => {
                let first = &found.functions[0];
                assert!(first.function.contains("hot_function"), "{found:#?}");
                assert!(first.samples.candidate > first.samples.baseline && found.equal_work, "{found:#?}");
                assert!(text.contains(&format!("Profile of {}, equal work", row.row)), "{text}");
            }
            Profile::Unavailable { reason } => {
                assert!(!permitted, "perf works here, and the command says {reason}\n{text}");
                assert!(text.contains("profile unavailable: ") && !reason.is_empty(), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }
    let listing = "logs/profile-vllm-aggregated-candidate.txt";
    if scene.out().join(listing).exists() {
        scene.check_edit(listing, "hot_function", "another_function", "profile");
    }
}

/// Whether this machine lets perf take a profile, asked without the command under test.
fn perf_is_permitted(folder: &Path) -> bool {
    let mut perf = assert_cmd::Command::new("perf");
    perf.args(["record", "--quiet", "--event", "cpu-clock", "--output"]).arg(folder.join("probe.data"));
    perf.args(["--", "true"]).output().expect("perf is installed by the set-up of the tests").status.success()
}

/// A machine without a profiler, or one that refuses, is said and ends nothing.
#[test]
fn a_profile_that_cannot_be_taken_is_said() {
    let scene = Scene::new(&StandIn::new(scene::HARMLESS), "");
    let tools = scene.folder.path().join("tools");
    fs::create_dir(&tools).expect("a folder");
    let perf = tools.join("perf");
    fs::write(&perf, "#!/bin/sh\necho no permission to profile >&2\nexit 255\n").expect("a script");
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&perf, permissions).expect("a program");
    let path = std::env::var("PATH").expect("a search path");
    let path = format!("{}:{path}", tools.display());
    let mut command = scene.command();
    command.env("PATH", path).args(["--profile", "always"]);
    let says = "profile unavailable: perf ended with Exited(255): no permission to profile";
    let text = scene.check(command, &[0, 3], &[says]);
    let report = parity_campaign::read_report(&scene.out()).expect("a report");
    let all = report.measurements.iter().all(|row| matches!(row.profile, Some(Profile::Unavailable { .. })));
    assert!(all, "{text}");
}
