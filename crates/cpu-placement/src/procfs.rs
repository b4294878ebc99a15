//! The few files of `/proc` this crate reads, parsed.

use std::io;
use std::path::PathBuf;

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
    std::fs::read_to_string(format!("/proc/{pid}/status"))
}

/// The fields of `/proc/PID/stat` used here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) state: char,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) cpu: u32,
}

/// Parses a `stat` line. The command name may hold spaces and parentheses, so fields count from its last one.
pub(crate) fn parse_stat(line: &str) -> Option<Stat> {
    let after_name = &line[line.rfind(')')? + 1..];
    let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        cpu: fields.get(36)?.parse().ok()?,
    })
}

/// Reads `/proc/PID/stat`; nothing when the process is gone.
pub(crate) fn read_stat(pid: u32) -> Option<Stat> {
    parse_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The process ids visible in `/proc`.
pub(crate) fn all_pids() -> io::Result<Vec<u32>> {
    let names = std::fs::read_dir("/proc")?;
    Ok(names.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

/// The trimmed text of a small file; nothing when it is absent or unreadable.
pub(crate) fn text(path: impl Into<PathBuf>) -> Option<String> {
    Some(std::fs::read_to_string(path.into()).ok()?.trim().to_owned())
}
