//! What the cgroup of this process allows, in either version of the interface.

use std::path::{Path, PathBuf};

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

/// The CPUs the live process's cgroup allows.
pub(crate) fn cgroup_cpus() -> Option<CpuSet> {
    cpus_under(Path::new("/"))
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
pub(super) fn quota_under(root: &Path) -> Option<u64> {
    directories(root, "cpu").iter().filter_map(|dir| quota_of(dir)).min()
}

fn quota_of(dir: &Path) -> Option<u64> {
    let v2 = procfs::text(dir.join("cpu.max"));
    let (quota, period) = match &v2 {
        Some(text) => text.split_once(' ').map(|(quota, period)| (quota.to_owned(), period.to_owned()))?,
        None => (procfs::text(dir.join("cpu.cfs_quota_us"))?, procfs::text(dir.join("cpu.cfs_period_us"))?),
    };
    // `max` and `-1` mean no limit, and neither is an unsigned number.
    let (quota, period): (u64, u64) = (quota.parse().ok()?, period.parse().ok()?);
    quota.checked_mul(1000)?.checked_div(period)
}
