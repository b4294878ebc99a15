//! The machine as a tree.

use std::fmt::Write;

use cpu_placement::{Core, CpuSet, Plan, Topology};

/// Cores on one line.
const PER_LINE: usize = 8;

/// Draws the machine, with the plan on it.
pub(crate) fn draw(topology: &Topology, plan: Option<&Plan>) -> String {
    let mut text = headline(topology);
    let mut marks = CoreMarks { topology, plan, out: String::new() };
    for package in &topology.packages {
        let _ = writeln!(marks.out, "package {}", package.index);
        for node in nodes_of(topology, package.index) {
            marks.node(package.index, node);
        }
    }
    text.push_str(&marks.out);
    if let Some(plan) = plan {
        text.push_str(&legend(plan));
    }
    text
}

fn headline(topology: &Topology) -> String {
    let mut text = format!(
        "{} packages, {} NUMA nodes, {} cores, {} CPUs online\n",
        topology.packages.len(),
        topology.nodes.len(),
        topology.cores.len(),
        topology.online.len(),
    );
    let sets = [
        ("allowed", &topology.allowed),
        ("offline", &topology.offline),
        ("isolated", &topology.isolated),
        ("without tick", &topology.nohz_full),
    ];
    for (name, set) in sets.into_iter().filter(|(name, set)| *name == "allowed" || !set.is_empty()) {
        let _ = writeln!(text, "{name}: {set}");
    }
    if let Some(quota) = topology.quota_millicpus {
        let _ = writeln!(text, "processor time: {quota} thousandths of a CPU");
    }
    for note in &topology.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

/// The nodes of a package, in order; nothing stands for a machine that does not say.
fn nodes_of(topology: &Topology, package: u32) -> Vec<Option<u32>> {
    let cores = topology.cores.iter().filter(|core| core.package == package);
    let mut nodes: Vec<_> = cores.map(|core| core.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

struct CoreMarks<'a> {
    topology: &'a Topology,
    plan: Option<&'a Plan>,
    out: String,
}

impl CoreMarks<'_> {
    fn node(&mut self, package: u32, node: Option<u32>) {
        let record = self.topology.nodes.iter().find(|each| Some(each.index) == node);
        let memory = record.and_then(|node| node.memory_bytes).map(mebibytes).unwrap_or_default();
        let name = node.map_or_else(|| "no NUMA node known".to_owned(), |node| format!("node {node}"));
        let _ = writeln!(self.out, "  {name}{memory}");
        let here = |core: &&Core| core.package == package && core.node == node;
        let mut caches: Vec<_> =
            self.topology.cores.iter().filter(here).map(|core| core.shared_cache).collect();
        caches.sort_unstable();
        caches.dedup();
        for cache in caches {
            let cores = self.topology.cores.iter().filter(|core| here(core) && core.shared_cache == cache);
            let cores: Vec<_> = cores.collect();
            self.cache(cache, &cores);
        }
    }

    fn cache(&mut self, cache: Option<usize>, cores: &[&Core]) {
        let cache = cache.and_then(|index| self.topology.caches.get(index));
        let _ = match cache {
            Some(cache) => {
                let size = cache.size_bytes.map(kibibytes).unwrap_or_default();
                writeln!(self.out, "    shared L{} cache{size}", cache.level)
            }
            None => writeln!(self.out, "    no shared cache"),
        };
        let drawn: Vec<String> = cores.iter().map(|core| self.core(core)).collect();
        let width = drawn.iter().map(String::len).max().unwrap_or(0);
        for line in drawn.chunks(PER_LINE) {
            let line: Vec<String> = line.iter().map(|core| format!("{core:<width$}")).collect();
            let _ = writeln!(self.out, "      {}", line.join("  ").trim_end());
        }
    }

    /// The CPUs of a core, each with what it is for.
    fn core(&self, core: &Core) -> String {
        let kinds = &self.topology.kinds;
        let kind = kinds.get(core.kind).filter(|_| kinds.len() > 1).and_then(|kind| kind.name.as_deref());
        let cpus: Vec<String> = core.cpus.iter().map(|cpu| format!("{cpu}{}", self.mark(cpu))).collect();
        let kind = kind.map(|kind| format!(":{kind}")).unwrap_or_default();
        format!("[{}]{kind}", cpus.join(" "))
    }

    fn mark(&self, cpu: u32) -> String {
        if !self.topology.allowed.contains(cpu) {
            return "x".to_owned();
        }
        let Some(plan) = self.plan else { return String::new() };
        if plan.housekeeping.contains(cpu) {
            return "h".to_owned();
        }
        let mark = |number: usize, set: &cpu_placement::PlannedSet| {
            if set.cpus.contains(cpu) {
                Some(letters(number))
            } else {
                set.idle.contains(cpu).then(|| "-".to_owned())
            }
        };
        plan.sets.iter().enumerate().find_map(|(number, set)| mark(number, set)).unwrap_or_default()
    }
}

/// `A` to `Z`, then `AA`, `AB` and so on.
fn letters(number: usize) -> String {
    let last = char::from(b'A' + u8::try_from(number % 26).unwrap_or(0));
    if number < 26 { last.to_string() } else { letters(number / 26 - 1) + &last.to_string() }
}

fn legend(plan: &Plan) -> String {
    let mut text = String::new();
    for (number, set) in plan.sets.iter().enumerate() {
        let _ = writeln!(text, "{} {}", letters(number), describe(set));
    }
    if !plan.housekeeping.is_empty() {
        let _ = writeln!(text, "h kept for everything else: {}", plan.housekeeping);
    }
    text.push_str("- must stay idle, x not allowed\n");
    text
}

/// One planned set in words.
pub(crate) fn describe(set: &cpu_placement::PlannedSet) -> String {
    let part =
        |name: &str, set: &CpuSet| if set.is_empty() { String::new() } else { format!(", {name} {set}") };
    let kind = set.kind.as_ref().map(|kind| format!(", {kind}")).unwrap_or_default();
    let nodes = if set.nodes.is_empty() { String::new() } else { format!(", memory of node {}", set.nodes) };
    let notes: String = set.notes.iter().map(|note| format!("; {note}")).collect();
    format!("{}: CPUs {}{}{nodes}{kind}{notes}", set.name, set.cpus, part("idle", &set.idle))
}

fn mebibytes(bytes: u64) -> String {
    format!(", {} MiB", bytes >> 20)
}

fn kibibytes(bytes: u64) -> String {
    format!(", {} KiB", bytes >> 10)
}

#[cfg(test)]
mod tests {
    use super::letters;

    #[test]
    fn sets_beyond_the_alphabet_have_names() {
        let check = |number, expected| assert_eq!(letters(number), expected);
        check(0, "A");
        check(25, "Z");
        check(26, "AA");
        check(701, "ZZ");
        check(702, "AAA");
    }
}
