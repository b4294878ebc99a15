//! A disk that fills up and a file system that turns read-only, for real: one test, because it changes the process.
//!
//! Where the kernel lets an unprivileged process have a mount namespace (or the test runs as root), the bundle lives on
//! a small tmpfs. Elsewhere the size limit of the process takes the place of the disk; the error is the same.

use std::path::{Path, PathBuf};

use evidence::{AppendError, Bundle, CreateError, StorageKind, WriteError, read_journal, verify};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigHandler, Signal, signal};

fn main() {
    // No harness: it would start a thread, and a process with threads cannot have a namespace of its own. A test
    // runner asks for the list first; nothing here is ignored.
    let args: Vec<String> = std::env::args().collect();
    if args.iter().any(|arg| arg == "--list") {
        if !args.iter().any(|arg| arg == "--ignored") {
            println!("full_and_read_only: test");
        }
        return;
    }
    let parent = tempfile::tempdir().expect("a temporary directory");
    let mounted = mount_small_disk(parent.path());
    if !mounted {
        limit_file_size();
    }
    let dir = parent.path().join("bundle");
    fill(&dir);
    if mounted {
        turn_read_only(parent.path(), &dir);
    }
    println!("test full_and_read_only ({}) ... ok", if mounted { "tmpfs" } else { "size limit only" });
}

fn mount_small_disk(at: &Path) -> bool {
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    let namespaces = [CloneFlags::CLONE_NEWNS, CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS];
    namespaces.into_iter().any(|flags| {
        unshare(flags).is_ok()
            && mount(None::<&Path>, "/", None::<&Path>, private, None::<&Path>).is_ok()
            && mount(Some("tmpfs"), at, Some("tmpfs"), MsFlags::empty(), Some("size=256k")).is_ok()
    })
}

#[expect(unsafe_code, reason = "ignoring SIGXFSZ, so that the limit is an error and not the end")]
fn limit_file_size() {
    // SAFETY: ignoring a signal installs no handler, so nothing can run in a signal context.
    unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) }.expect("SIGXFSZ can be ignored");
    setrlimit(Resource::RLIMIT_FSIZE, 128 << 10, 128 << 10).expect("the limit can be lowered");
}

fn fill(dir: &Path) {
    let bundle = Bundle::create(dir).expect("room for a small bundle");
    let large = vec![b'x'; 512 << 10];
    match bundle.write_file("samples/large", &large) {
        Err(WriteError::Storage(error)) => assert_eq!(error.kind, StorageKind::Full, "{error:?}"),
        other => panic!("a file larger than the disk was written: {other:?}"),
    }
    assert!(!dir.join("samples/large").exists());

    let text = "y".repeat(10_000);
    let mut written = 0;
    let error = loop {
        match bundle.append("line", &text) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 100, "the disk never filled");
    };
    assert!(matches!(&error, AppendError::Storage(error) if error.kind == StorageKind::Full), "{error:?}");
    // The half line was taken back: what was recorded is whole, and there is room for something smaller.
    let journal = read_journal(dir).expect("a journal that can be read");
    assert_eq!(journal.torn, None);
    assert_eq!(journal.records.len(), written + 1);
    bundle.append("small", &"fits").expect("a small record still fits");
    drop(bundle);

    let bundle = Bundle::open(dir).expect("a full bundle can be opened");
    assert!(bundle.recovery().is_clean(), "{:?}", bundle.recovery());
    assert!(verify(dir).expect("it can be verified").is_consistent());
}

fn turn_read_only(disk: &Path, dir: &Path) {
    let bundle = Bundle::open(dir).expect("still writable");
    drop(bundle);
    mount(None::<&Path>, disk, None::<&Path>, MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY, None::<&Path>)
        .expect("a tmpfs without open files can be remounted");
    let other: PathBuf = disk.join("other");
    match Bundle::create(&other) {
        Err(CreateError::Storage(error)) => assert_eq!(error.kind, StorageKind::ReadOnly, "{error:?}"),
        created => panic!("created on a read-only disk: {created:?}"),
    }
    match Bundle::open(dir) {
        Err(evidence::OpenError::Storage(error)) => {
            assert_eq!(error.kind, StorageKind::ReadOnly, "{error:?}")
        }
        opened => panic!("opened for writing on a read-only disk: {opened:?}"),
    }
    assert!(verify(dir).expect("reading needs no permission to write").is_consistent());
}
