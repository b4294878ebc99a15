//! The system calls that have no safe wrapper: what a child does to itself between fork and exec, and the calls
//! by which its parent watches it. This is the only module of the crate that may contain `unsafe`.
//!
//! Everything is behind safe functions that take and return owned values; what makes each block sound is written
//! beside it.

use std::ffi::{c_int, c_long, c_ulong};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What a child does to itself before exec.
#[derive(Debug, Default)]
pub(crate) struct ChildSetup {
    /// Affinity mask, lowest word first; empty leaves the inherited one.
    pub(crate) cpu_words: Vec<u64>,
    /// Node mask for `MPOL_BIND`, lowest word first; empty leaves the inherited policy.
    pub(crate) node_words: Vec<u64>,
    /// Whether a refused memory policy stops the start.
    pub(crate) memory_required: bool,
}

/// The step of [`ChildSetup`] a report speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Dying with the parent.
    ParentDeath,
    /// Setting the affinity.
    Affinity,
    /// Reading the affinity back.
    ReadBack,
    /// Binding the memory.
    Memory,
}

/// What the child said about its own setup, just before exec.
#[derive(Debug, Default)]
pub(crate) struct ChildReport {
    /// The step that failed, if one did.
    pub(crate) failed: Option<(Step, i32)>,
    /// The error number of a memory policy that was refused without stopping the start.
    pub(crate) memory_errno: Option<i32>,
    /// The affinity the kernel gave back.
    pub(crate) cpu_words: Vec<u64>,
}

/// Bytes of the affinity mask read back: 8,192 CPUs, the most Linux can be built for.
const MASK_BYTES: usize = 1024;
const HEADER_BYTES: usize = 16;
const FRAME_BYTES: usize = HEADER_BYTES + MASK_BYTES;
/// `ChildReport`'s frame, all of whose fields are written with one `write` no longer than `PIPE_BUF`.
const STEPS: [Step; 4] = [Step::ParentDeath, Step::Affinity, Step::ReadBack, Step::Memory];

/// The parent's end of the pipe on which the child reports.
#[derive(Debug)]
pub(crate) struct ReportPipe {
    read: OwnedFd,
}

impl ReportPipe {
    /// The child's report; `None` when it never got that far (the fork itself failed).
    pub(crate) fn read(&self) -> io::Result<Option<ChildReport>> {
        let mut frame = [0u8; FRAME_BYTES];
        match nix::unistd::read(&self.read, &mut frame) {
            Ok(FRAME_BYTES) => Ok(Some(decode_frame(&frame))),
            Ok(_) | Err(nix::errno::Errno::EAGAIN) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

fn decode_frame(frame: &[u8; FRAME_BYTES]) -> ChildReport {
    let number = |at: usize| i32::from_ne_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
    let step = usize::try_from(number(0)).ok().and_then(|code| STEPS.get(code.wrapping_sub(1)));
    let mask_len = usize::try_from(number(12)).unwrap_or(0).min(MASK_BYTES);
    let words = frame[HEADER_BYTES..HEADER_BYTES + mask_len]
        .chunks_exact(8)
        .map(|chunk| u64::from_ne_bytes(chunk.try_into().expect("chunks of eight")))
        .collect();
    ChildReport {
        failed: step.map(|step| (*step, number(4))),
        memory_errno: Some(number(8)).filter(|errno| *errno != 0),
        cpu_words: words,
    }
}

/// Makes `command` set itself up in the child as `setup` says. The report is written before exec.
pub(crate) fn prepare(command: &mut Command, setup: ChildSetup) -> io::Result<ReportPipe> {
    let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC | nix::fcntl::OFlag::O_NONBLOCK)?;
    let parent = nix::unistd::getpid().as_raw();
    let mut frame = [0u8; FRAME_BYTES];
    let closure = move || set_up(&setup, parent, &mut frame, write.as_fd());
    // SAFETY: the closure runs in the forked child, where only async-signal-safe calls are allowed. `set_up` makes
    // system calls on memory allocated before the fork, allocates nothing, takes no lock, and cannot panic: it
    // indexes fixed ranges of a fixed array.
    unsafe { command.pre_exec(closure) };
    Ok(ReportPipe { read })
}

/// Runs in the child between fork and exec: system calls only.
fn set_up(
    setup: &ChildSetup,
    parent: i32,
    frame: &mut [u8; FRAME_BYTES],
    out: BorrowedFd<'_>,
) -> io::Result<()> {
    let result = set_up_steps(setup, parent, frame);
    if let Err((code, errno)) = result {
        frame[0..4].copy_from_slice(&code.to_ne_bytes());
        frame[4..8].copy_from_slice(&errno.to_ne_bytes());
    }
    // SAFETY: `frame` is valid for its length and `out` is an open descriptor.
    let written = unsafe { libc::write(out.as_raw_fd(), frame.as_ptr().cast(), FRAME_BYTES) };
    match result {
        Err((_, errno)) => Err(io::Error::from_raw_os_error(errno)),
        Ok(()) if written < 0 => Err(io::Error::last_os_error()),
        Ok(()) => Ok(()),
    }
}

fn set_up_steps(setup: &ChildSetup, parent: i32, frame: &mut [u8; FRAME_BYTES]) -> Result<(), (i32, i32)> {
    die_with_parent(parent).map_err(|errno| (1, errno))?;
    close_on_exec_from(3);
    if !setup.cpu_words.is_empty() {
        set_affinity_words(0, &setup.cpu_words).map_err(|errno| (2, errno))?;
    }
    let mask = &mut frame[HEADER_BYTES..];
    let bytes = get_affinity_bytes(0, mask).map_err(|errno| (3, errno))?;
    frame[12..16].copy_from_slice(&bytes.to_ne_bytes());
    if !setup.node_words.is_empty() {
        match bind_memory_words(&setup.node_words) {
            Err(errno) if setup.memory_required => return Err((4, errno)),
            Err(errno) => frame[8..12].copy_from_slice(&errno.to_ne_bytes()),
            Ok(()) => {}
        }
    }
    Ok(())
}

fn errno() -> i32 {
    nix::errno::Errno::last_raw()
}

/// Asks the kernel to kill this process when the thread that started it ends, and gives up at once when that
/// happened before the request.
fn die_with_parent(parent: i32) -> Result<(), i32> {
    // SAFETY: `PR_SET_PDEATHSIG` takes a signal number and touches no memory.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as c_ulong, 0, 0, 0) } != 0 {
        return Err(errno());
    }
    if nix::unistd::getppid().as_raw() == parent { Ok(()) } else { Err(libc::ESRCH) }
}

/// Descriptors the caller left inheritable would make two runs differ; none above stderr survives exec. A kernel
/// before 5.11 has no such call, and the standard library opens everything close-on-exec anyway.
fn close_on_exec_from(first: u32) {
    const CLOSE_RANGE_CLOEXEC: c_int = 4;
    // SAFETY: marks descriptors of this process only, and closes none.
    unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, CLOSE_RANGE_CLOEXEC) };
}

fn set_affinity_words(pid: i32, words: &[u64]) -> Result<(), i32> {
    // SAFETY: the kernel reads `size_of_val(words)` bytes from a slice that is at least that long.
    let status = unsafe {
        libc::syscall(libc::SYS_sched_setaffinity, pid, std::mem::size_of_val(words), words.as_ptr())
    };
    if status == 0 { Ok(()) } else { Err(errno()) }
}

/// Fills `mask`, returning how many bytes the kernel wrote.
fn get_affinity_bytes(pid: i32, mask: &mut [u8]) -> Result<i32, i32> {
    // SAFETY: the kernel writes at most `mask.len()` bytes into `mask`, which is exclusively borrowed.
    let written = unsafe { libc::syscall(libc::SYS_sched_getaffinity, pid, mask.len(), mask.as_mut_ptr()) };
    if written < 0 { Err(errno()) } else { Ok(i32::try_from(written).unwrap_or(0)) }
}

fn bind_memory_words(words: &[u64]) -> Result<(), i32> {
    // The kernel reads `maxnode - 1` bits.
    let bits = words.len() * 64 + 1;
    // SAFETY: the kernel reads that many bits from a slice that holds them.
    let status = unsafe { libc::syscall(libc::SYS_set_mempolicy, libc::MPOL_BIND, words.as_ptr(), bits) };
    if status == 0 { Ok(()) } else { Err(errno()) }
}

/// The affinity of a thread, lowest word first (`0` is the calling thread).
pub(crate) fn affinity_words(tid: i32) -> io::Result<Vec<u64>> {
    let mut mask = [0u8; MASK_BYTES];
    let bytes = get_affinity_bytes(tid, &mut mask).map_err(io::Error::from_raw_os_error)?;
    let filled = &mask[..usize::try_from(bytes).unwrap_or(0)];
    Ok(filled
        .chunks_exact(8)
        .map(|chunk| u64::from_ne_bytes(chunk.try_into().expect("chunks of eight")))
        .collect())
}

/// Sets the affinity of a thread (`0` is the calling thread).
pub(crate) fn set_affinity(tid: i32, words: &[u64]) -> io::Result<()> {
    set_affinity_words(tid, words).map_err(io::Error::from_raw_os_error)
}

/// A descriptor that becomes readable when `pid` ends.
pub(crate) fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: takes two integers; the result is checked.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    owned_fd(fd)
}

fn owned_fd(fd: c_long) -> io::Result<OwnedFd> {
    let fd = c_int::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel has just given us this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What `wait4` says of an ended child.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reaped {
    pub(crate) status: c_int,
    pub(crate) usage: libc::rusage,
}

/// Reaps `pid`, waiting for it.
pub(crate) fn wait4(pid: i32) -> io::Result<Reaped> {
    let mut status = 0;
    // SAFETY: `rusage` is a C structure of integers, for which all zeroes is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to locals that live through the call.
        let reaped = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) };
        if reaped == pid {
            return Ok(Reaped { status, usage });
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
