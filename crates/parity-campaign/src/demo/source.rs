//! The embedded source of the demonstration harness, and the edits that make a candidate of it.

use super::{DemoError, Fault};

/// Files of one revision: path in the repository and text.
pub(super) type Sources = Vec<(&'static str, String)>;

/// Cargo leaves folders with a manifest out of a published crate, so the manifest has another name in this one.
const FILES: [(&str, &str); 21] = [
    (".gitignore", "/target\n"),
    ("Cargo.lock", include_str!("../../demo-harness/lock.toml")),
    ("Cargo.toml", include_str!("../../demo-harness/manifest.toml")),
    ("README.md", include_str!("../../demo-harness/README.md")),
    ("benches/offline_replay_bench.rs", include_str!("../../demo-harness/benches/offline_replay_bench.rs")),
    ("src/blake3.rs", include_str!("../../demo-harness/src/blake3.rs")),
    ("src/blocks.rs", include_str!("../../demo-harness/src/blocks.rs")),
    ("src/command.rs", include_str!("../../demo-harness/src/command.rs")),
    ("src/evidence.rs", include_str!("../../demo-harness/src/evidence.rs")),
    ("src/hash.rs", include_str!("../../demo-harness/src/hash.rs")),
    ("src/json.rs", include_str!("../../demo-harness/src/json.rs")),
    ("src/lib.rs", include_str!("../../demo-harness/src/lib.rs")),
    ("src/options.rs", include_str!("../../demo-harness/src/options.rs")),
    ("src/random.rs", include_str!("../../demo-harness/src/random.rs")),
    ("src/replay.rs", include_str!("../../demo-harness/src/replay.rs")),
    ("src/report.rs", include_str!("../../demo-harness/src/report.rs")),
    ("src/request.rs", include_str!("../../demo-harness/src/request.rs")),
    ("src/router.rs", include_str!("../../demo-harness/src/router.rs")),
    ("src/summary.rs", include_str!("../../demo-harness/src/summary.rs")),
    ("src/trace.rs", include_str!("../../demo-harness/src/trace.rs")),
    ("src/worker.rs", include_str!("../../demo-harness/src/worker.rs")),
];

/// One replacement of text that occurs exactly once.
struct Edit {
    name: &'static str,
    file: &'static str,
    find: &'static str,
    replace: &'static str,
}

/// The honest change: no list of all candidates and no sorting; the same worker for the same draw.
const ONE_PASS: Edit = Edit {
    name: "choose a worker in one pass",
    file: "src/router.rs",
    find: "        let mut candidates: Vec<Candidate> =
            (0..self.load_blocks.len()).map(|worker| self.rate(worker)).collect();
        candidates.sort_by_key(|candidate| (std::cmp::Reverse(candidate.score), candidate.worker));
        let best = candidates[0].score;
        let ties = candidates.iter().take_while(|candidate| candidate.score == best).count();
        candidates[self.random.below(ties)].worker
",
    replace: "        let mut ties: Vec<Candidate> = Vec::with_capacity(self.load_blocks.len());
        for worker in 0..self.load_blocks.len() {
            let candidate = self.rate(worker);
            if ties.first().is_some_and(|best| candidate.score > best.score) {
                ties.clear();
            }
            if ties.first().is_none_or(|best| candidate.score == best.score) {
                ties.push(candidate);
            }
        }
        let drawn = self.random.below(ties.len());
        ties[drawn].worker
",
};

fn planted(fault: Fault) -> Edit {
    match fault {
        Fault::Slower => Edit {
            name: "do a quarter of the replay twice",
            file: "src/replay.rs",
            find: "        while self.step() {}
        self.check_finished()
",
            replace: "        let mut rehearsal = self.clone();
        let last = self.world.requests.len() * 26 / 100;
        rehearsal.queue.retain(|due| matches!(due.0.2, Event::Arrival { request } if request < last));
        while rehearsal.step() {}
        while self.step() {}
        self.steps += rehearsal.steps;
        self.check_finished()
",
        },
        Fault::Different => Edit {
            name: "break ties the other way round",
            file: "src/router.rs",
            find: "        ties[drawn].worker
",
            replace: "        ties[ties.len() - 1 - drawn].worker
",
        },
        Fault::Unstable => Edit {
            name: "clear up in the order of a map",
            file: "src/replay.rs",
            find: "        for &id in finished {
            let request",
            replace:
                "        let finished: std::collections::HashSet<usize> = finished.iter().copied().collect();
        for &id in &finished {
            let request",
        },
        Fault::Flood => Edit {
            name: "take blocks away long before they run out",
            file: "src/worker.rs",
            find: "    fn wanted_for(&self, blocks: usize) -> usize {
        blocks
",
            replace: "    fn wanted_for(&self, blocks: usize) -> usize {
        let crowded = blocks == 1 && self.running.len() > 1;
        blocks + if crowded { 6_144 / self.limits.block_tokens as usize } else { 0 }
",
        },
        Fault::NoPressure => Edit {
            name: "have far more blocks than configured",
            file: "src/worker.rs",
            find: "            blocks: BlockPool::new(num_gpu_blocks),
",
            replace: "            blocks: BlockPool::new(num_gpu_blocks * 8),
",
        },
        Fault::MissingMetric => Edit {
            name: "rename the metric",
            file: "src/command.rs",
            find: "        (\"replay_execution_ms\", replay_ms.into()),
",
            replace: "        (\"replay_call_ms\", replay_ms.into()),
",
        },
    }
}

/// The files of the first commit.
pub(super) fn baseline() -> Sources {
    FILES.iter().map(|(path, text)| (*path, (*text).to_owned())).collect()
}

/// The files of the second commit.
pub(super) fn candidate(fault: Option<Fault>) -> Result<Sources, DemoError> {
    let mut sources = baseline();
    apply(&mut sources, &ONE_PASS)?;
    if let Some(fault) = fault {
        apply(&mut sources, &planted(fault))?;
    }
    Ok(sources)
}

fn apply(sources: &mut Sources, edit: &Edit) -> Result<(), DemoError> {
    let text = sources.iter_mut().find(|(path, _)| *path == edit.file).map(|(_, text)| text);
    let found = text.as_ref().map_or(0, |text| text.matches(edit.find).count());
    match text {
        Some(text) if found == 1 => {
            *text = text.replacen(edit.find, edit.replace, 1);
            Ok(())
        }
        _ => Err(DemoError::Edit { edit: edit.name, file: edit.file, found }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every file of the folder is embedded: one that was forgotten would be missing from the commits.
    #[test]
    fn the_whole_folder_is_embedded() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("demo-harness");
        let in_folder = |folder: &str| {
            let entries = std::fs::read_dir(root.join(folder)).expect("folder");
            entries.filter(|entry| entry.as_ref().expect("entry").path().is_file()).count()
        };
        let (top, benches, sources) = (in_folder("."), in_folder("benches"), in_folder("src"));
        // The ignore file is not in the folder.
        assert_eq!(FILES.len(), 1 + top + benches + sources);
    }

    #[test]
    fn an_edit_needs_exactly_one_place() {
        let check = |find: &'static str, expected: usize| {
            let edit = Edit { name: "test", file: "src/lib.rs", find, replace: "" };
            match apply(&mut baseline(), &edit) {
                Err(DemoError::Edit { found, .. }) => assert_eq!(found, expected, "{find:?}"),
                other => panic!("{find:?} gave {other:?}"),
            }
        };
        check("no such text", 0);
        let modules = baseline()
            .iter()
            .find(|(path, _)| *path == "src/lib.rs")
            .map_or(0, |(_, text)| text.matches("mod ").count());
        assert!(modules > 1, "the next check needs a text that occurs more than once");
        check("mod ", modules);
        let elsewhere = Edit { name: "test", file: "src/no.rs", find: "", replace: "" };
        assert!(matches!(apply(&mut baseline(), &elsewhere), Err(DemoError::Edit { found: 0, .. })));
    }

    #[test]
    fn the_honest_candidate_differs_in_one_file() {
        let (before, after) = (baseline(), candidate(None).expect("edits fit"));
        let changed: Vec<_> =
            before.iter().zip(&after).filter(|(l, r)| l != r).map(|(left, _)| left.0).collect();
        assert_eq!(changed, ["src/router.rs"]);
    }

    #[test]
    fn every_fault_has_its_place() {
        let honest = candidate(None).expect("edits fit");
        for fault in Fault::ALL {
            let planted = candidate(Some(fault)).unwrap_or_else(|error| panic!("{fault}: {error}"));
            let changed = honest.iter().zip(&planted).filter(|(left, right)| left != right).count();
            assert_eq!(changed, 1, "{fault}");
        }
    }
}
