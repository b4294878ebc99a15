//! On which NUMA nodes the memory of a process lives.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::bind;
use crate::procfs;
use crate::set::NodeSet;

/// How a [`Residency`] was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ResidencyMethod {
    /// The kernel was asked for the node of some pages, evenly spread. Costs the process next to nothing.
    MovePages,
    /// `/proc/PID/numa_maps`: every page. The kernel walks the whole address space for it, holding up the process.
    NumaMaps,
}

/// The nodes on which the private memory of a process lives: its heap, stacks and anonymous mappings. Pages of
/// files are left out, because the page cache places them for whoever read them first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Residency {
    /// How it was found.
    pub method: ResidencyMethod,
    /// Pages found on each node: of 4 KiB for [`NumaMaps`](ResidencyMethod::NumaMaps), pages of the sample for
    /// [`MovePages`](ResidencyMethod::MovePages).
    pub pages: BTreeMap<u32, u64>,
}

impl Residency {
    /// Pages on nodes other than these.
    pub fn outside(&self, nodes: &NodeSet) -> u64 {
        self.pages.iter().filter(|(node, _)| !nodes.contains(**node)).map(|(_, pages)| pages).sum()
    }

    /// All pages found.
    pub fn total(&self) -> u64 {
        self.pages.values().sum()
    }

    /// Looks at every private page of a process.
    ///
    /// # Errors
    /// The process is gone, or the kernel does not let us look.
    pub fn of_all_pages(pid: u32) -> io::Result<Self> {
        let text = procfs::whole(Path::new(&format!("/proc/{pid}/numa_maps")))?;
        Ok(Self { method: ResidencyMethod::NumaMaps, pages: parse_numa_maps(&text) })
    }

    /// Looks at no more than `at_most` private pages of a process.
    ///
    /// # Errors
    /// The process is gone, or the kernel does not let us look.
    pub fn of_some_pages(pid: u32, at_most: usize) -> io::Result<Self> {
        let maps = procfs::whole(Path::new(&format!("/proc/{pid}/maps")))?;
        let addresses = spread(&private_areas(&maps), at_most);
        let mut pages = BTreeMap::new();
        for node in bind::page_nodes(pid, &addresses)? {
            // A negative number says that the page is not there.
            if let Ok(node) = u32::try_from(node) {
                *pages.entry(node).or_insert(0) += 1;
            }
        }
        Ok(Self { method: ResidencyMethod::MovePages, pages })
    }
}

/// Lines such as `7f00 default anon=3 dirty=3 N0=2 N1=1 kernelpagesize_kB=4`.
fn parse_numa_maps(text: &str) -> BTreeMap<u32, u64> {
    let mut pages = BTreeMap::new();
    let private = |line: &&str| line.split(' ').any(|field| field.starts_with("anon="));
    for line in text.lines().filter(private) {
        let field = |name: &str| line.split(' ').find_map(|field| field.strip_prefix(name));
        let size_kib: u64 = field("kernelpagesize_kB=").and_then(|size| size.parse().ok()).unwrap_or(4);
        for (node, count) in line.split(' ').filter_map(node_count) {
            *pages.entry(node).or_insert(0) += count.saturating_mul(size_kib) / 4;
        }
    }
    pages
}

fn node_count(field: &str) -> Option<(u32, u64)> {
    let (node, count) = field.strip_prefix('N')?.split_once('=')?;
    Some((node.parse().ok()?, count.parse().ok()?))
}

const PAGE_BYTES: u64 = 4096;

/// Start and end of the writable areas that belong to no file.
fn private_areas(maps: &str) -> Vec<(u64, u64)> {
    maps.lines().filter_map(private_area).collect()
}

fn private_area(line: &str) -> Option<(u64, u64)> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let [range, "rw-p", _, _, inode, ..] = fields[..] else { return None };
    let (start, end) = range.split_once('-')?;
    let area = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    (inode == "0").then_some(area)
}

/// Addresses evenly spread over the areas.
fn spread(areas: &[(u64, u64)], at_most: usize) -> Vec<u64> {
    let pages: u64 = areas.iter().map(|(start, end)| (end - start) / PAGE_BYTES).sum();
    let wanted = pages.min(at_most as u64);
    // Multiplying first keeps the spacing even; areas of a 64-bit process times thousands fit into 128 bits.
    let position =
        |k: u64| u64::try_from(u128::from(k) * u128::from(pages) / u128::from(wanted)).unwrap_or(0);
    (0..wanted).filter_map(|k| nth_page(areas, position(k))).collect()
}

fn nth_page(areas: &[(u64, u64)], mut position: u64) -> Option<u64> {
    for (start, end) in areas {
        let pages = (end - start) / PAGE_BYTES;
        if position < pages {
            return Some(start + position * PAGE_BYTES);
        }
        position -= pages;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numa_maps() {
        let text = "5600 default file=/bin/x mapped=2 N0=2 kernelpagesize_kB=4\n\
                    5601 bind:0 heap anon=30 dirty=30 N0=10 N1=20 kernelpagesize_kB=4\n\
                    7f00 default anon=2 dirty=2 N1=2 kernelpagesize_kB=2048\n\
                    7f01 default stack anon=1 dirty=1 N0=1 kernelpagesize_kB=4\n";
        let residency = Residency { method: ResidencyMethod::NumaMaps, pages: parse_numa_maps(text) };
        assert_eq!(residency.pages, BTreeMap::from([(0, 11), (1, 20 + 1024)]));
        assert_eq!(residency.outside(&"0".parse().unwrap()), 1044);
        assert_eq!(residency.outside(&"0-1".parse().unwrap()), 0);
        assert_eq!(residency.total(), 1055);
    }

    #[test]
    fn pages_are_spread_over_private_areas() {
        let maps = "1000-3000 rw-p 00000000 00:00 0    [heap]\n\
                    5000-6000 r-xp 00000000 08:01 77   /bin/x\n\
                    6000-7000 rw-p 00000000 08:01 77   /bin/x\n\
                    9000-b000 rw-p 00000000 00:00 0\n";
        let areas = private_areas(maps);
        assert_eq!(areas, [(0x1000, 0x3000), (0x9000, 0xb000)]);
        assert_eq!(spread(&areas, 2), [0x1000, 0x9000]);
        assert_eq!(spread(&areas, 100), [0x1000, 0x2000, 0x9000, 0xa000]);
        assert_eq!(spread(&[], 10), Vec::<u64>::new());
    }

    #[test]
    fn our_own_memory() {
        let filled = vec![1u8; 1 << 20];
        let some = Residency::of_some_pages(std::process::id(), 64).unwrap();
        assert!(some.total() > 0 && some.total() <= 64, "{some:?}");
        if let Ok(all) = Residency::of_all_pages(std::process::id()) {
            assert!(all.total() >= 256, "{all:?}");
        }
        assert_eq!(filled[1], 1);
    }
}
