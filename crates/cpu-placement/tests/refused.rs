//! A sandbox refuses what the kernel would allow, as some container runtimes do: memory policies, looking at pages,
//! counting migrations. It is said, nothing else breaks, and only a run that demanded memory placement is stopped.

use cpu_placement::{
    CancelToken, MemoryBinding, Observed, Outcome, Output, Run, SpawnError, Topology, ViolationKind,
};

/// A filter that answers some system calls with `EPERM`; it holds for this process and its children.
#[allow(unsafe_code, reason = "a system call without a safe wrapper, in a process that only runs this test")]
fn refuse(calls: &[libc::c_long]) {
    let statement = |code: u32, k: u32, jump: (u8, u8)| libc::sock_filter {
        code: u16::try_from(code).expect("codes are small"),
        jt: jump.0,
        jf: jump.1,
        k,
    };
    let number_at = 0;
    let mut filter = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, number_at, (0, 0))];
    for call in calls {
        let number = u32::try_from(*call).expect("numbers are small");
        filter.push(statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number, (0, 1)));
        let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
        filter.push(statement(libc::BPF_RET | libc::BPF_K, refused, (0, 0)));
    }
    filter.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, (0, 0)));
    let program =
        libc::sock_fprog { len: u16::try_from(filter.len()).expect("short"), filter: filter.as_mut_ptr() };
    // SAFETY: the kernel reads `len` instructions from `filter`, which lives through the calls.
    let set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    assert!(set, "{}", std::io::Error::last_os_error());
}

/// Not a test: a process that is refused much, this very binary.
#[test]
#[ignore = "a helper for the other test"]
fn helper_refused() {
    let nodes = Topology::read().expect("Linux").allowed_nodes;
    refuse(&[libc::SYS_set_mempolicy, libc::SYS_move_pages, libc::SYS_perf_event_open]);
    let sleeper = || Run::new("/bin/sleep").arg("0.3");
    let error = sleeper().memory(MemoryBinding::required(nodes.clone())).wait(&CancelToken::new());
    let error = error.expect_err("the run demands it");
    assert!(
        matches!(&error, SpawnError::Memory { requested, source }
        if *requested == nodes && source.raw_os_error() == Some(libc::EPERM)),
        "{error:?}"
    );
    let wanted = sleeper().memory(MemoryBinding::wanted(nodes.clone()));
    let finished = wanted.wait(&CancelToken::new()).expect("the run does not demand it");
    assert_eq!(finished.outcome, Outcome::Exited(0));
    let refused = ViolationKind::MemoryPolicyRefused { requested: nodes, errno: libc::EPERM };
    assert!(finished.violations.iter().any(|violation| violation.kind == refused), "{finished:?}");
    let watched = finished.watched.expect("watched by default");
    assert!(
        matches!(&watched.residency, Observed::Unavailable(why) if why.contains("not permitted")),
        "{watched:?}"
    );
    // Without the counter of all threads there is still the kernel's own of the first one.
    let all_threads = watched.migrations.value().map(|migrations| migrations.all_threads);
    assert_ne!(all_threads, Some(true), "{watched:?}");
}

#[test]
fn what_a_sandbox_refuses_is_said_and_nothing_else_breaks() {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("out");
    let run = Run::new(std::env::current_exe().expect("a test binary"))
        .args(["--exact", "helper_refused", "--ignored", "--nocapture"])
        .stdout(Output::File(out.clone()))
        .stderr(Output::File(out.clone()));
    let finished = run.wait(&CancelToken::new()).expect("it starts");
    let text = std::fs::read_to_string(out).expect("written");
    assert_eq!(finished.outcome, Outcome::Exited(0), "{text}");
}
