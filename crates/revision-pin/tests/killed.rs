//! A process killed while it checks out, patches or builds has not touched the user's repository, and what it leaves
//! can be removed.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod fixture;

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use fixture::{Fixture, builder, package, recipe, snapshot};
use revision_pin::{Checkout, CheckoutOptions, Patch, PinOptions, pin, remove};

const TOP: &str = "REVISION_PIN_KILLED_TOP";
const COMMIT: &str = "REVISION_PIN_KILLED_COMMIT";

const PATCH: &str = "diff --git a/dep/src/lib.rs b/dep/src/lib.rs\n--- a/dep/src/lib.rs\n+++ b/dep/src/lib.rs\n@@ -2 +2 @@\n\
                     -    n.checked_mul(3).unwrap()\n+    n.checked_mul(5).unwrap()\n";

/// The process that gets killed: this same test binary, asked for this one test.
#[test]
#[ignore = "started by the test below, which kills it"]
fn worker() {
    let (Some(top), Ok(commit)) = (std::env::var_os(TOP).map(PathBuf::from), std::env::var(COMMIT)) else {
        return;
    };
    let (user, work) = (top.join("user"), top.join("work"));
    let locks = top.join("locks");
    std::fs::create_dir_all(&locks).unwrap();
    loop {
        remove(&work.join("checkout")).unwrap();
        remove(&work.join("build")).unwrap();
        let pinned = pin(&user, &commit, PinOptions::default()).unwrap();
        let mut checkout =
            Checkout::create(&user, &pinned, &work.join("checkout"), CheckoutOptions::default()).unwrap();
        checkout.apply(&Patch::new("five.patch", PATCH.into())).unwrap();
        let builder =
            revision_pin::Builder::new(recipe()).unwrap().free_bytes(1 << 20).node_lock(Some(locks.clone()));
        let built = builder.build(&checkout, &work.join("build"), &work.join("artifact"), None).unwrap();
        assert!(built.record.changed_sources.is_empty());
    }
}

#[expect(clippy::disallowed_methods, reason = "a bare child that this test kills itself")]
fn start_worker(fixture: &Fixture, commit: &str) -> std::process::Child {
    std::process::Command::new(std::env::current_exe().unwrap())
        .args(["worker", "--exact", "--ignored", "--nocapture"])
        .env(TOP, fixture.top.path())
        .env(COMMIT, commit)
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(fixture.top.path().join("stderr")).unwrap())
        .spawn()
        .unwrap()
}

#[test]
fn a_kill_at_any_moment_leaves_the_users_repository_alone() {
    let fixture = Fixture::new();
    let commit = fixture.commit_package(&package("3"));
    // The result of the patch is in the repository already.
    fixture.commit(&[("dep/src/lib.rs", &package("5").pop().unwrap().1)]);
    std::fs::write(fixture.user().join("dirty"), "untracked\n").unwrap();
    let before = snapshot(&fixture.user());
    let mut seed: u64 = std::process::id().into();
    for round in 0..12_u64 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Half of them die early, where the checkout and the patch are.
        let longest_ms = if round % 2 == 0 { 150 } else { 4_000 };
        let mut child = start_worker(&fixture, &commit.to_string());
        std::thread::sleep(Duration::from_millis((seed >> 33) % longest_ms));
        if child.try_wait().unwrap().is_some() {
            panic!(
                "the worker failed: {}",
                std::fs::read_to_string(fixture.top.path().join("stderr")).unwrap()
            );
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(snapshot(&fixture.user()), before);
    }
    remove(&fixture.work("checkout")).unwrap();
    remove(&fixture.work("build")).unwrap();
    let checkout = fixture.checkout(commit, "checkout");
    let built =
        builder(recipe(), &fixture).build(&checkout, &fixture.work("build"), &fixture.work("artifact"), None);
    assert!(built.is_ok());
}
