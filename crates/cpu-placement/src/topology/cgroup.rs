//! What the cgroup of this process allows, in either version of the interface.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::procfs;
use crate::set::{CpuSet, NodeSet};

/// Directories of this process's cgroup for one controller, its own first, then its ancestors.
fn directories(root: &Path, controller: &str) -> Vec<PathBuf> {
    let membership = procfs::text(root.join("proc/self/cgroup")).unwrap_or_default();
    let mounts = procfs::text(root.join("proc/self/mountinfo")).unwrap_or_default();
    let mut found = Vec::new();
    for line in membership.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let v2 = controllers.is_empty();
        if !v2 && !controllers.split(',').any(|name| name == controller) {
            continue;
        }
        let Some((mount_root, mount_point)) = mount_of(&mounts, v2, controller) else { continue };
        let inside = Path::new(path).strip_prefix(&mount_root).unwrap_or(Path::new(""));
        let top = root.join(mount_point.trim_start_matches('/'));
        found.extend(inside.ancestors().map(|part| top.join(part)));
    }
    found
}

/// The root within the hierarchy and the mount point of a controller, from `mountinfo`.
fn mount_of(mounts: &str, v2: bool, controller: &str) -> Option<(String, String)> {
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let (root, point) = (left.next()?, left.next()?);
        let mut right = right.split(' ');
        let kind = right.next()?;
        let options = right.nth(1)?;
        let matches = match v2 {
            true => kind == "cgroup2",
            false => kind == "cgroup" && options.split(',').any(|option| option == controller),
        };
        matches.then(|| (root.to_owned(), point.to_owned()))
    })
}

/// The first file of these names that exists and is not empty, from the process's own cgroup upwards.
fn first_text(root: &Path, controller: &str, names: &[&str]) -> Option<String> {
    directories(root, controller)
        .into_iter()
        .flat_map(|dir| names.iter().map(move |name| dir.join(name)).collect::<Vec<_>>())
        .filter_map(procfs::text)
        .find(|text| !text.is_empty())
}

pub(super) fn cpus_under(root: &Path) -> Option<CpuSet> {
    first_text(root, "cpuset", &["cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"])?
        .parse()
        .ok()
}

pub(super) fn nodes_under(root: &Path) -> Option<NodeSet> {
    first_text(root, "cpuset", &["cpuset.mems.effective", "cpuset.effective_mems", "cpuset.mems"])?
        .parse()
        .ok()
}

/// The tightest limit on processor time of the process's cgroup and its ancestors, in thousandths of a CPU.
pub(crate) fn quota_under(root: &Path) -> Option<u64> {
    directories(root, "cpu").iter().filter_map(|dir| quota_of(dir)).min()
}

/// The tightest limit on memory of the process's cgroup and its ancestors.
pub(crate) fn memory_limit_under(root: &Path) -> Option<u64> {
    // Version 1 writes a huge number for no limit.
    const NO_LIMIT: u64 = 1 << 62;
    let names = ["memory.max", "memory.limit_in_bytes"];
    let files = directories(root, "memory").into_iter().flat_map(|dir| names.map(|name| dir.join(name)));
    files.filter_map(|path| procfs::text(path)?.parse().ok()).filter(|limit| *limit < NO_LIMIT).min()
}

fn quota_of(dir: &Path) -> Option<u64> {
    if let Some(text) = procfs::text(dir.join("cpu.max")) {
        return parse_cpu_max(&text);
    }
    let (quota, period) = ("cpu.cfs_quota_us", "cpu.cfs_period_us");
    millicpus(&procfs::text(dir.join(quota))?, &procfs::text(dir.join(period))?)
}

/// Parses `150000 100000`; `max 100000` is no limit.
pub(super) fn parse_cpu_max(text: &str) -> Option<u64> {
    let (quota, period) = text.split_once(' ')?;
    millicpus(quota, period)
}

/// `max` and `-1` mean no limit, and neither is an unsigned number.
fn millicpus(quota: &str, period: &str) -> Option<u64> {
    let (quota, period): (u64, u64) = (quota.parse().ok()?, period.parse().ok()?);
    quota.checked_mul(1000)?.checked_div(period)
}

/// How often this process's cgroup or an ancestor ran out of its processor time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Throttling {
    /// Periods in which the time ran out.
    pub periods: u64,
    /// For how long processes were held back.
    pub held_back_ns: u64,
}

impl Throttling {
    /// What was added since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            periods: self.periods.saturating_sub(earlier.periods),
            held_back_ns: self.held_back_ns.saturating_sub(earlier.held_back_ns),
        }
    }
}

/// The throttling counters of the process's cgroup and its ancestors, added up; nothing when none has any.
pub(crate) fn throttling(root: &Path) -> Option<Throttling> {
    let counters = directories(root, "cpu").into_iter().filter_map(|dir| procfs::text(dir.join("cpu.stat")));
    counters.filter_map(|text| parse_throttling(&text)).reduce(|a, b| Throttling {
        periods: a.periods + b.periods,
        held_back_ns: a.held_back_ns + b.held_back_ns,
    })
}

/// Version 2 counts microseconds, version 1 nanoseconds.
fn parse_throttling(text: &str) -> Option<Throttling> {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.trim().parse::<u64>().ok())
    };
    let held_back_ns =
        field("throttled_usec").map(|us| us.saturating_mul(1000)).or_else(|| field("throttled_time"));
    Some(Throttling { periods: field("nr_throttled")?, held_back_ns: held_back_ns? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas() {
        let cases = [("150000 100000", Some(1500)), ("max 100000", None), ("", None), ("100000 0", None)];
        for (text, expected) in cases {
            assert_eq!(parse_cpu_max(text), expected, "{text}");
        }
        assert_eq!(millicpus("-1", "100000"), None);
    }

    #[test]
    fn throttling_of_both_versions() {
        let two = "usage_usec 5\nnr_periods 10\nnr_throttled 2\nthrottled_usec 30\n";
        let one = "nr_periods 10\nnr_throttled 3\nthrottled_time 40\n";
        assert_eq!(parse_throttling(two), Some(Throttling { periods: 2, held_back_ns: 30_000 }));
        assert_eq!(parse_throttling(one), Some(Throttling { periods: 3, held_back_ns: 40 }));
        assert_eq!(parse_throttling("usage_usec 5\n"), None);
    }

    #[test]
    fn mounts_of_both_versions() {
        let mounts = "30 23 0:26 / /sys/fs/cgroup/cpuset rw,nosuid shared:9 - cgroup cgroup rw,cpuset\n\
                      31 23 0:27 /outer /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let some = |root: &str, point: &str| Some((root.to_owned(), point.to_owned()));
        assert_eq!(mount_of(mounts, false, "cpuset"), some("/", "/sys/fs/cgroup/cpuset"));
        assert_eq!(mount_of(mounts, true, "cpuset"), some("/outer", "/sys/fs/cgroup"));
        assert_eq!(mount_of(mounts, false, "cpu"), None);
    }
}
