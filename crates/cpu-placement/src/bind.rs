//! The system calls that have no safe wrapper: what a child does to itself between fork and exec, and the calls
//! by which its parent watches it. This is the only module of the crate that may contain `unsafe`.
//!
//! Everything is behind safe functions that take and return owned values; what makes each block sound is written
//! beside it.

use std::ffi::{CString, OsStr, c_char, c_int, c_long, c_ulong, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What a child does to itself before exec.
#[derive(Debug, Default)]
pub(crate) struct ChildSetup {
    /// Affinity mask, lowest word first; empty leaves the inherited one. When the kernel then gives another one
    /// back, because a cgroup took CPUs away meanwhile, the start stops.
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

/// What `execve` takes: strings, and the arrays of pointers to them.
///
/// The standard library calls `execvp`, which gives a file that is no program to `/bin/sh`; a damaged artifact would
/// then be run as a script.
#[derive(Debug)]
pub(crate) struct Image {
    path: CString,
    /// Owns what `argv` and `envp` point to.
    _strings: Vec<CString>,
    argv: Vec<*const c_char>,
    envp: Vec<*const c_char>,
}

// SAFETY: the pointers are to the heap memory of `_strings`, which lives as long, moves with nothing and is never
// changed; nobody writes through them.
unsafe impl Send for Image {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for Image {}

impl Image {
    /// The program at `path` with its arguments, the first of which is its name, and its variables `NAME=value`.
    pub(crate) fn new<'a>(
        path: &OsStr,
        arguments: impl Iterator<Item = &'a OsStr>,
        variables: impl Iterator<Item = Vec<u8>>,
    ) -> Result<Self, std::ffi::NulError> {
        let arguments = arguments.map(|text| CString::new(text.as_bytes())).collect::<Result<Vec<_>, _>>()?;
        let variables = variables.map(CString::new).collect::<Result<Vec<_>, _>>()?;
        let pointers = |strings: &[CString]| -> Vec<*const c_char> {
            strings.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
        };
        Ok(Self {
            path: CString::new(path.as_bytes())?,
            argv: pointers(&arguments),
            envp: pointers(&variables),
            _strings: arguments.into_iter().chain(variables).collect(),
        })
    }

    /// Becomes the program; returns only when that fails.
    fn exec(&self) -> io::Error {
        // SAFETY: the path and both arrays are terminated, and what they point to is owned by `self`.
        unsafe { libc::execve(self.path.as_ptr(), self.argv.as_ptr(), self.envp.as_ptr()) };
        io::Error::last_os_error()
    }
}

/// Makes `command` set itself up in the child as `setup` says and become `image`. The report is written before exec.
///
/// The child names its group to the guard, which stands before it: whatever becomes of this process in between, nothing that
/// the child starts outlives it.
pub(crate) fn prepare(
    command: &mut Command,
    setup: ChildSetup,
    image: Image,
    guard: &Guard,
) -> io::Result<ReportPipe> {
    let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC | nix::fcntl::OFlag::O_NONBLOCK)?;
    let parent = nix::unistd::getpid().as_raw();
    let mut frame = [0u8; FRAME_BYTES];
    let guard = guard.pipe.as_ref().map_or(-1, AsRawFd::as_raw_fd);
    let closure = move || {
        set_up(&setup, parent, &mut frame, write.as_fd())?;
        name_group(guard)?;
        Err(image.exec())
    };
    // SAFETY: the closure runs in the forked child, where only async-signal-safe calls are allowed. `set_up` and
    // `exec` make system calls on memory allocated before the fork, allocate nothing, take no lock, and cannot panic:
    // they index fixed ranges of a fixed array.
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

/// Tells the guard the group to kill, which is the one this process leads. Runs in the child: system calls only.
fn name_group(guard: c_int) -> io::Result<()> {
    // SAFETY: `getpid` takes nothing, and the message is valid for its length.
    let written = unsafe {
        let group = libc::getpid().to_ne_bytes();
        libc::write(guard, group.as_ptr().cast(), MESSAGE_BYTES)
    };
    if written < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
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
    if !setup.cpu_words.is_empty() && !same_mask(&setup.cpu_words, &frame[HEADER_BYTES..]) {
        return Err((3, libc::EINVAL));
    }
    if !setup.node_words.is_empty() {
        match bind_memory_words(&setup.node_words) {
            Err(errno) if setup.memory_required => return Err((4, errno)),
            Err(errno) => frame[8..12].copy_from_slice(&errno.to_ne_bytes()),
            Ok(()) => {}
        }
    }
    Ok(())
}

/// Compares without allocating. What either side leaves out is zero.
fn same_mask(words: &[u64], mask: &[u8]) -> bool {
    let chunk = |index: usize| mask.get(index * 8..index * 8 + 8).unwrap_or(&[0; 8]);
    let longest = words.len().max(mask.len() / 8);
    (0..longest).all(|index| chunk(index) == words.get(index).unwrap_or(&0).to_ne_bytes())
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

/// On which node each page lives (`move_pages` without moving): a node number, or a negative error number.
pub(crate) fn page_nodes(pid: u32, pages: &[u64]) -> io::Result<Vec<i32>> {
    let address = |page: &u64| usize::try_from(*page).unwrap_or(usize::MAX) as *mut c_void;
    let pointers: Vec<*mut c_void> = pages.iter().map(address).collect();
    let mut status = vec![0 as c_int; pages.len()];
    // SAFETY: the kernel reads `len` addresses, which it validates against the other process, and writes `len`
    // integers into `status`, which holds as many. The null node list means that nothing is moved.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid,
            pages.len(),
            pointers.as_ptr(),
            std::ptr::null::<c_int>(),
            status.as_mut_ptr(),
            0,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(status) }
}

/// The first published layout of `perf_event_attr`, which every kernel accepts.
#[repr(C)]
struct PerfEventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    bp_addr: u64,
}

/// A counter of the migrations of a process and of the threads and children it will start.
pub(crate) fn count_migrations(pid: i32) -> io::Result<OwnedFd> {
    const PERF_TYPE_SOFTWARE: u32 = 1;
    const PERF_COUNT_SW_CPU_MIGRATIONS: u64 = 4;
    const INHERIT: u64 = 1 << 1;
    const PERF_FLAG_FD_CLOEXEC: c_ulong = 1 << 3;
    let attr = PerfEventAttr {
        kind: PERF_TYPE_SOFTWARE,
        size: 64,
        config: PERF_COUNT_SW_CPU_MIGRATIONS,
        sample_period: 0,
        sample_type: 0,
        read_format: 0,
        flags: INHERIT,
        wakeup_events: 0,
        bp_type: 0,
        bp_addr: 0,
    };
    // SAFETY: the kernel reads `attr.size` bytes from `attr`, which is exactly that long.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, &raw const attr, pid, -1, -1, PERF_FLAG_FD_CLOEXEC)
    };
    owned_fd(fd)
}

/// A process that kills a group when its own parent is gone, however that happened.
///
/// `PR_SET_PDEATHSIG` reaches only the child itself; its own children would outlive a killed parent. The guard
/// waits on a pipe whose other end the parent holds: a zero means that all is over, another number is the group to
/// kill, and an end without a zero means that the parent is gone. It stands before the child is started, and the
/// child itself names its group, so that there is no moment without a guard.
#[derive(Debug)]
pub(crate) struct Guard {
    pid: i32,
    pipe: Option<OwnedFd>,
}

impl Guard {
    /// Starts a guard that knows no group yet.
    pub(crate) fn stand() -> io::Result<Self> {
        let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        let all = nix::sys::signal::SigSet::all();
        let before = all.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_SETMASK)?;
        // SAFETY: this process may have other threads, so the child makes nothing but system calls until it exits:
        // `stand_guard` allocates nothing, takes no lock and never returns.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            stand_guard(read.as_raw_fd(), write.as_raw_fd());
        }
        let forked = if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(pid) };
        before.thread_set_mask()?;
        Ok(Self { pid: forked?, pipe: Some(write) })
    }

    /// Says that all is over, and reaps the guard.
    pub(crate) fn dismiss(&mut self) {
        let Some(pipe) = self.pipe.take() else { return };
        // If the guard is gone already there is nobody to tell, and nothing left for it to do.
        let _ = nix::unistd::write(&pipe, &[0; MESSAGE_BYTES]);
        drop(pipe);
        let _ = wait4(self.pid);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.dismiss();
    }
}

/// A message to the guard is an `i32`. The kernel never splits so short a write to a pipe.
const MESSAGE_BYTES: usize = 4;

/// Runs in the guard, with all signals blocked: system calls only.
fn stand_guard(read: c_int, write: c_int) -> ! {
    let mut message = [0u8; MESSAGE_BYTES];
    let mut group = 0;
    // SAFETY: each call takes integers, or a pointer to `message` with its length; the descriptors closed are copies
    // that belong to this process alone. Holding the parent's lock files or pipes open would keep them alive.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"kvrp-guard".as_ptr());
        libc::close(write);
        libc::dup2(read, 0);
        libc::syscall(libc::SYS_close_range, 1, u32::MAX, 0);
        loop {
            match libc::read(0, message.as_mut_ptr().cast(), MESSAGE_BYTES) {
                4 if message == [0; MESSAGE_BYTES] => libc::_exit(0),
                4 => group = i32::from_ne_bytes(message),
                0 => break,
                _ if errno() == libc::EINTR => {}
                _ => libc::_exit(1),
            }
        }
        if group > 0 {
            libc::kill(-group, libc::SIGKILL);
        }
        libc::_exit(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_of_any_length_are_compared() {
        let mut mask = [0u8; 32];
        mask[0] = 0b1010;
        assert!(same_mask(&[0b1010], &mask));
        assert!(same_mask(&[0b1010, 0], &mask));
        assert!(!same_mask(&[0b1110], &mask), "the kernel took a CPU away");
        assert!(!same_mask(&[0b1010, 1], &mask));
        assert!(!same_mask(&[0b1010, 0, 0, 0, 1], &mask), "longer than the kernel's mask");
        for byte in [8, 31] {
            let mut wider = mask;
            wider[byte] = 1;
            assert!(!same_mask(&[0b1010], &wider), "the kernel added a CPU");
        }
    }

    #[test]
    fn frames_are_decoded() {
        let mut frame = [0u8; FRAME_BYTES];
        frame[0..4].copy_from_slice(&4i32.to_ne_bytes());
        frame[4..8].copy_from_slice(&22i32.to_ne_bytes());
        frame[8..12].copy_from_slice(&1i32.to_ne_bytes());
        frame[12..16].copy_from_slice(&8i32.to_ne_bytes());
        frame[16] = 5;
        let report = decode_frame(&frame);
        assert_eq!((report.failed, report.memory_errno), (Some((Step::Memory, 22)), Some(1)));
        assert_eq!(report.cpu_words, [5]);
        let nothing = decode_frame(&[0; FRAME_BYTES]);
        assert_eq!((nothing.failed, nothing.memory_errno, nothing.cpu_words.len()), (None, None, 0));
    }
}
