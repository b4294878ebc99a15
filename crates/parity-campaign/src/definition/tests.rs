use super::*;
use crate::seeds::{GoldenSeeds, SEEDS_SCHEMA};

const GOOD: &str = r#"
schema = "kvrp.campaign.v1"
name = "example"
[repository]
path = "repo"
[baseline]
commit = "0000000000000000000000000000000000000001"
[candidate]
commit = "0000000000000000000000000000000000000002"
[trace]
sha256 = "c2157405477e02aeaaa01e5fcc9794bd9ac146f64643a03aef067853471356b0"
count = 5000
[[row]]
name = "vllm-aggregated"
engine = "vllm"
topology = "aggregated"
workers = 4
block_size = 64
num_gpu_blocks = 6144
max_num_seqs = 16
max_num_batched_tokens = 8192
pressure = { min = 1, max = 3 }
[measure.run]
seed = 1
[measure.gate.diagnostics]
rows = 1
"#;

/// The definition other modules test with.
pub(crate) fn good() -> Definition {
    parse(GOOD).expect("valid").definition
}

fn parse(text: &str) -> Result<CampaignFile, DefinitionError> {
    CampaignFile::parse(text.as_bytes().to_vec(), PathBuf::new())
}

#[test]
fn defaults_are_the_protocol() {
    let file = parse(GOOD).expect("valid");
    let definition = file.definition;
    assert_eq!(definition.measure.run.pairs, 60);
    assert_eq!(definition.measure.run.warmups_per_arm, 5);
    assert_eq!(definition.measure.metric, "replay_execution_ms");
    assert!(definition.is_authoritative());
    assert_eq!(definition.build.features, ["replay-bench"]);
    assert_eq!(definition.canonical.exclusions.len(), 3);
    assert_eq!(file.sha256, Sha256::of(GOOD.as_bytes()));
}

/// One edit of the good file, and what the error must say.
fn check(from: &str, to: &str, expected: &str) {
    assert!(GOOD.contains(from), "{from}");
    let error = parse(&GOOD.replacen(from, to, 1)).expect_err(to).to_string();
    assert!(error.contains(expected), "{to:?} gave {error:?}, expected {expected:?}");
}

#[test]
fn one_fault_one_message() {
    check("name = \"example\"", "nmae = \"example\"", "did you mean `name`?");
    check("max = 3 }", "max = 21 }", "at most 20");
    check("[trace]", "[build]\nmax_growth = 0.06\n[trace]", "build.max_growth");
    check("[trace]", "[[canonical.unordered]]\nat = \"/x\"\nby = \"/y\"\n[trace]", "canonical.unordered[0]");
    check("num_gpu_blocks", "num_gpu_block", "did you mean `num_gpu_blocks`?");
    check("seed = 1", "seed = 1\npair = 10", "did you mean `pairs`?");
    check("engine = \"vllm\"", "engine = \"vlm\"", "did you mean `vllm`?");
    check("name = \"example\"", "name = \"a b\"", "key name: expected 1 to 64 letters");
    check("kvrp.campaign.v1", "kvrp.campaign.v2", "key schema");
    check("0000000000000000000000000000000000000001", "main", "key baseline.commit");
    check("0000000000000000000000000000000000000002", "00000002", "pin it");
    check("count = 5000", "count = 0", "key trace.count");
    check("seed = 1", "seed = 1\npairs = 7", "key measure.run.pairs");
    let unknown = "seed = 1\ninvalidation.above.competing_load = 0.05";
    check(
        "seed = 1",
        unknown,
        "key measure.run.invalidation.above.competing_load: nothing of that name is watched",
    );
    check("seed = 1", "seed = 1\npairs = 58", "key measure.gate.pairs: must be measure.run.pairs, 58");
    check("rows = 1", "rows = 4", "key measure.gate.diagnostics.rows");
    let asked = |names: &str| format!("[measure]\nrows = [{names}]\n[measure.run]");
    check("[measure.run]", &asked("\"x\""), "key measure.rows[0]: \"x\" is no row of this campaign");
    check(
        "[measure.run]",
        &asked("\"vllm-aggregated\", \"vllm-aggregated\""),
        "measure.rows[1]: \"vllm-aggregated\" is named twice",
    );
    for profile in ["dev", "debug", "test"] {
        let build = format!("[build]\nprofile = {profile:?}\n[measure.run]");
        check("[measure.run]", &build, "is a debug build; an artifact is built with release");
    }
    check(
        "[measure.gate.diagnostics]",
        "[measure.gate]\nconfidence = 1.0\n[measure.gate.diagnostics]",
        "between 0 and 1",
    );
    check(
        "[measure.gate.diagnostics]",
        "[measure.gate]\nlimit_ratio = -1.0\n[measure.gate.diagnostics]",
        "measure.gate",
    );
    check("seed = 1", "seed = -1", "line 24");
    check("min = 1", "min = 0", "row[0].pressure");
    check("workers = 4", "prefill_workers = 4", "row[0].workers");
    check("topology = \"aggregated\"", "topology = \"disaggregated\"", "row[0].prefill_workers");
    check("[measure.run]", "[build]\nfeatures = [\"all\"]\n[measure.run]", "build.features");
    check("[measure.run]", "[build]\nfeatures = [\"kvbm-offload\"]\n[measure.run]", "KVBM");
    check(
        "[measure.run]",
        "[canonical]\nexclusions = [\"/summary/wall_time_ms\"]\n[measure.run]",
        "the list is closed",
    );
    check("count = 5000", "count = 5000\nsha = 1", "did you mean `sha256`?");
}

#[test]
fn a_one_sided_determinism_patch_is_refused() {
    let patch = "[[patch]]\nkind = \"determinism\"\nrevision = \"candidate\"\nfile = \"p\"\n\
                 sha256 = \"c2157405477e02aeaaa01e5fcc9794bd9ac146f64643a03aef067853471356b0\"\n[measure.run]";
    check("[measure.run]", patch, "patch[0].revision");
}

#[test]
fn a_review_must_be_whole() {
    let review = "[[review]]\nkind = \"exclusion\"\nsubject = \"/a\"\nreason = \" \"\nreviewer = \"x\"\n\
                  date = \"2026-01-01\"\n[measure.run]";
    check("[measure.run]", review, "review[0].reason");
}

/// A lifecycle after the rows; what is wrong with it must be said.
fn check_lifecycle(edits: &[(&str, &str)], expected: &str) {
    let mut text = String::from(
        "[[lifecycle]]\nkind = \"preemption-edge\"\nrequests = 300\n[lifecycle.row]\nname = \"edge\"\n\
         engine = \"vllm\"\ntopology = \"aggregated\"\nworkers = 2\nblock_size = 64\nnum_gpu_blocks = 2600\n\
         max_num_seqs = 16\nmax_num_batched_tokens = 8192\npressure = { min = 1, max = 3 }\n",
    );
    for (from, to) in edits {
        assert!(text.contains(from), "{from}");
        text = text.replacen(from, to, 1);
    }
    let parsed = parse(&GOOD.replacen("[measure.run]", &format!("{text}[measure.run]"), 1));
    let said = parsed.err().map_or("good".to_owned(), |error| error.to_string());
    assert!(said.contains(expected), "{edits:?} gave {said:?}, expected {expected:?}");
}

#[test]
fn a_lifecycle_must_be_able_to_show_its_kind() {
    let pressure = "pressure = { min = 1, max = 3 }";
    let none = "pressure = { min = 0, max = 0 }";
    let edge = "preemption-edge";
    check_lifecycle(&[], "good");
    check_lifecycle(&[("requests = 300", "requests = 5001")], "lifecycle[0].requests: must be 1 to 5000");
    check_lifecycle(&[("requests = 300", "requests = 0")], "lifecycle[0].requests");
    check_lifecycle(&[(pressure, "pressure = { min = 1, max = 4 }")], "within 1 to 3 events");
    check_lifecycle(&[(pressure, none)], "within 1 to 3 events");
    check_lifecycle(&[(edge, "router-queueing"), (pressure, none)], "needs `workers = 1`");
    let one = ("workers = 2", "workers = 1\nrouter_queue_threshold = 1.0");
    check_lifecycle(&[(edge, "router-queueing"), (pressure, none), one], "good");
    check_lifecycle(
        &[(edge, "router-queueing"), (pressure, "pressure = { min = 0, max = 3 }"), one],
        "lifecycle[0].row.pressure",
    );
    check_lifecycle(&[(edge, "scaling")], "only a test can show scaling");
    check_lifecycle(&[(edge, "vllm-handoff"), (pressure, none)], "a disaggregated row of its engine");
    let disaggregated = [
        ("\"aggregated\"", "\"disaggregated\""),
        ("workers = 2", "prefill_workers = 1\ndecode_workers = 1"),
        (pressure, none),
    ];
    check_lifecycle(&[&disaggregated[..], &[(edge, "vllm-handoff")]].concat(), "good");
    check_lifecycle(&[&disaggregated[..], &[(edge, "sglang-handoff")]].concat(), "row of its engine");
    let candidate = "requests = 300\nrevision = \"candidate\"";
    check_lifecycle(&[("requests = 300", candidate)], "lifecycle[0].reason");
    check_lifecycle(&[("requests = 300", &format!("{candidate}\nreason = \"r\""))], "good");
    check_lifecycle(&[("requests = 300", "reason = \"r\"")], "lifecycle[0].reason");
    check_lifecycle(&[("[lifecycle.row]", "[lifecycle.rows]")], "did you mean `row`?");
    let test = "[lifecycle.test]\nname = \"edge\"\nproof = \"p\"\ncommand = [\"true\"]\n[lifecycle.row]";
    check_lifecycle(&[("[lifecycle.row]", test)], "either a `row` or a `test`");
    check_lifecycle(&[("name = \"edge\"", "name = \"a b\"")], "lifecycle[0].name");
    check_lifecycle(&[(pressure, &format!("{pressure}\nexpected = {{ x = 1 }}"))], "row.expected");
}

#[test]
fn row_names_are_unique() {
    let start = GOOD.find("[[row]]").expect("row");
    let end = GOOD.find("[measure.run]").expect("measure");
    let twice = format!("{}{}{}", &GOOD[..end], &GOOD[start..end], &GOOD[end..]);
    let error = parse(&twice).expect_err("twice").to_string();
    assert!(error.contains("row[1].name") && error.contains("used twice"), "{error}");
}

/// The golden seeds are what the campaign they come from expects.
#[test]
fn golden_seeds_agree_with_the_campaign_they_come_from() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("a file");
    let seeds = GoldenSeeds::parse(&read("seeds/conversation-dynamo-1.5.toml")).expect("seeds");
    assert_eq!(seeds.schema, SEEDS_SCHEMA);
    let campaign = CampaignFile::read(&folder.join("campaigns/dynamo-1.5.0-1.5.1.toml")).expect("a campaign");
    let definition = campaign.definition;
    assert_eq!(seeds.trace_sha256, definition.trace.sha256);
    assert_eq!(Some(seeds.slice_sha256), definition.trace.slice_sha256);
    assert_eq!(seeds.rows.len(), definition.rows.len());
    for (seed, row) in seeds.rows.iter().zip(&definition.rows) {
        assert_eq!((&seed.name, seed.num_gpu_blocks), (&row.name, row.num_gpu_blocks));
        assert!(!row.expected.is_empty(), "{}", row.name);
        for (name, expected) in &row.expected {
            assert_eq!(seed.expected.get(name), Some(expected), "{} {name}", row.name);
        }
    }
}

/// The demonstrations name patches and records by digest, and have the rows that were qualified on their version.
#[test]
fn campaign_files_of_the_demonstrations_parse() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/campaigns/plants");
    let entries = std::fs::read_dir(&folder).expect("campaigns").map(|entry| entry.expect("an entry").path());
    let files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|kind| kind == "toml")).collect();
    assert!(files.len() >= 10, "{files:?}");
    for path in files {
        let file = CampaignFile::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let definition = file.definition;
        assert_eq!(path.file_stem(), Some(definition.name.as_ref()));
        let blocks: Vec<u64> = definition.rows.iter().map(|row| row.num_gpu_blocks).collect();
        assert_eq!(blocks, [5_700, 12_288, 6_656, 3_072], "{}", path.display());
        for (name, sha256) in definition
            .patches
            .iter()
            .map(|patch| (&patch.file, patch.sha256))
            .chain(definition.exceptions.iter().map(|exception| (&exception.file, exception.sha256)))
        {
            let (found, _) = Sha256::of_file(&folder.join(name)).expect("a file");
            assert_eq!(found, sha256, "{} in {}", name.display(), path.display());
        }
        for exception in &definition.exceptions {
            crate::exception::Exception::read(&folder.join(&exception.file), exception.sha256)
                .expect("a record");
        }
    }
}

#[test]
fn campaign_files_in_the_tree_parse() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/campaigns");
    let entries = std::fs::read_dir(&folder).expect("campaigns").map(|entry| entry.expect("an entry").path());
    let files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|kind| kind == "toml")).collect();
    assert!(files.len() >= 4, "{files:?}");
    for path in files {
        let file = CampaignFile::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let definition = file.definition;
        let matrix: BTreeSet<String> =
            definition.rows.iter().map(|row| format!("{:?} {:?}", row.engine, row.topology)).collect();
        assert_eq!(matrix.len(), 4, "the authoritative matrix (B1) in {}", path.display());
        assert_eq!(path.file_stem(), Some(definition.name.as_ref()));
        assert_eq!(definition.preflight, definition.name.ends_with("-preflight"));
        for patch in &definition.patches {
            let (sha256, _) = Sha256::of_file(&folder.join(&patch.file)).expect("a patch");
            assert_eq!(sha256, patch.sha256, "{} in {}", patch.file.display(), path.display());
        }
    }
}
