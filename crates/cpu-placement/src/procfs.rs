//! The few files of `/proc` this crate reads, parsed.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::set::CpuSet;

/// One line `Name:\tvalue` of a `status` file.
pub(crate) fn status_field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// The affinity of a thread or process as `/proc` shows it.
pub(crate) fn allowed_cpus(status: &str) -> Option<CpuSet> {
    status_field(status, "Cpus_allowed_list")?.parse().ok()
}

/// A field such as `VmRSS:  1234 kB`, in bytes.
pub(crate) fn status_bytes(status: &str, name: &str) -> Option<u64> {
    let kib: u64 = status_field(status, name)?.strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Reads `/proc/PID/status`.
pub(crate) fn read_status(pid: u32) -> io::Result<String> {
    whole(Path::new(&format!("/proc/{pid}/status")))
}

/// The fields of `/proc/PID/stat` used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) state: char,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) cpu: u32,
}

/// Parses a `stat` line. The command name may hold spaces and parentheses, so fields count from its last one.
pub(crate) fn parse_stat(line: &str) -> Option<Stat> {
    let mut fields = line[line.rfind(')')? + 1..].split_ascii_whitespace();
    Some(Stat {
        state: fields.next()?.chars().next()?,
        parent: fields.next()?.parse().ok()?,
        group: fields.next()?.parse().ok()?,
        cpu: fields.nth(33)?.parse().ok()?,
    })
}

/// Reads `/proc/PID/stat`; nothing when the process is gone.
pub(crate) fn read_stat(pid: u32) -> Option<Stat> {
    stat_file(&format!("/proc/{pid}/stat"))
}

/// Reads `/proc/PID/task/TID/stat`; nothing when the thread is gone.
pub(crate) fn read_thread_stat(pid: u32, tid: u32) -> Option<Stat> {
    stat_file(&format!("/proc/{pid}/task/{tid}/stat"))
}

/// A `stat` line is well under a kilobyte, and one read returns it whole; this is read many times a second.
fn stat_file(path: &str) -> Option<Stat> {
    let mut buffer = [0u8; 1024];
    let length = File::open(path).ok()?.read(&mut buffer).ok()?;
    parse_stat(std::str::from_utf8(&buffer[..length]).ok()?)
}

/// The process ids visible in `/proc`.
pub(crate) fn all_pids() -> io::Result<Vec<u32>> {
    numbers_in(Path::new("/proc"))
}

/// The process id that was given out last.
pub(crate) fn last_pid() -> Option<u32> {
    text("/proc/loadavg")?.rsplit(' ').next()?.parse().ok()
}

/// Whether a number is that of a process, not only of one of its threads.
pub(crate) fn is_process(pid: u32) -> bool {
    read_status(pid)
        .is_ok_and(|status| status_field(&status, "Tgid").and_then(|id| id.parse().ok()) == Some(pid))
}

/// The threads of a process.
pub(crate) fn threads(pid: u32) -> io::Result<Vec<u32>> {
    numbers_in(Path::new(&format!("/proc/{pid}/task")))
}

fn numbers_in(directory: &Path) -> io::Result<Vec<u32>> {
    let names = std::fs::read_dir(directory)?;
    Ok(names.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

/// Time on a CPU and time spent waiting for one, from a `schedstat` file.
pub(crate) fn parse_schedstat(text: &str) -> Option<(u64, u64)> {
    let mut fields = text.split_ascii_whitespace();
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// A counter of `/proc/PID/sched`, such as `se.nr_migrations  :  3`.
pub(crate) fn sched_counter(sched: &str, name: &str) -> Option<u64> {
    let line = sched.lines().find(|line| line.split([' ', ':']).next() == Some(name))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

/// The trimmed text of a small file; nothing when it is absent or unreadable.
pub(crate) fn text(path: impl Into<PathBuf>) -> Option<String> {
    let mut text = whole(&path.into()).ok()?;
    text.truncate(text.trim_end().len());
    let leading = text.len() - text.trim_start().len();
    text.drain(..leading);
    Some(text)
}

/// The whole of a file whose size is not known beforehand, as none of `/proc` is. The standard library starts with
/// reads of 32 bytes, each a system call; these files are read around every start.
pub(crate) fn whole(path: &Path) -> io::Result<String> {
    const STEP: usize = 8192;
    let mut file = File::open(path)?;
    let mut bytes = Vec::new();
    loop {
        let filled = bytes.len();
        bytes.resize(filled + STEP, 0);
        let read = file.read(&mut bytes[filled..])?;
        bytes.truncate(filled + read);
        if read == 0 {
            return String::from_utf8(bytes).map_err(io::Error::other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_lines() {
        let tail = "S 1 42 42 0 -1 4194560 1 0 0 0 5 6 0 0 20 0 3 0 100 200 300 400 1 1 0 0 0 0 0 0 0 0 0 0 17 7 0 0";
        for name in ["plain", "with space", "odd) (name", "7) R 9 9"] {
            let stat = parse_stat(&format!("7 ({name}) {tail}"));
            assert_eq!(stat, Some(Stat { state: 'S', parent: 1, group: 42, cpu: 7 }), "{name}");
        }
        assert_eq!(parse_stat("7 (cut) S 1"), None);
        let own = read_stat(std::process::id()).unwrap();
        assert!(own.group > 0 && "RS".contains(own.state), "{own:?}");
    }

    #[test]
    fn counters() {
        let sched = "cat (1, #threads: 1)\n---\nse.nr_migrations    :   3\nnuma_pages_migrated :  4\n";
        assert_eq!(sched_counter(sched, "se.nr_migrations"), Some(3));
        assert_eq!(sched_counter(sched, "nr_migrations"), None);
        assert_eq!(sched_counter(sched, "numa_pages_migrated"), Some(4));
        assert_eq!(parse_schedstat("12 34 5\n"), Some((12, 34)));
        assert_eq!(status_bytes("VmRSS:\t  12 kB\n", "VmRSS"), Some(12_288));
    }
}
