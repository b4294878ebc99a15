//! Campaign files written for a user to start from.

use std::path::{Path, PathBuf};

use canonical_json::Sha256;
use paired_run::RunDefinition;
use paired_stats::{Gate, OnBreach};
use thiserror::Error;

use crate::definition::{
    Build, CAMPAIGN_SCHEMA, Canonical, Definition, HostNeeds, Measure, Placement, Replay, Repository,
    Revision, Row, Trace,
};
use crate::definition::{CampaignFile, DefinitionError};
use crate::demo::DemoRepository;

/// What `parity init` is given.
#[derive(Clone, Debug)]
pub struct InitRequest {
    /// The repository that has both revisions.
    pub repository: PathBuf,
    /// Any name that git can resolve.
    pub baseline: String,
    /// Any name that git can resolve.
    pub candidate: String,
    /// The trace.
    pub trace: Option<PathBuf>,
}

/// Why no campaign file could be written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum InitError {
    /// The repository or a revision in it.
    #[error("resolve {name:?} in {}", repository.display())]
    Resolve {
        /// The repository.
        repository: PathBuf,
        /// The name.
        name: String,
        /// Why not.
        source: git2::Error,
    },
    /// The repository's path cannot be made absolute.
    #[error("find {}", path.display())]
    Repository {
        /// The path as given.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The trace cannot be read.
    #[error("read the trace {}", path.display())]
    Trace {
        /// The trace.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The file that was written is not one: a bug of ours.
    #[error("write a campaign file")]
    Write {
        /// Why not.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Resolves both names now and writes a campaign file with the seed configurations of PARITY Q5.
///
/// # Errors
///
/// A name does not resolve to a commit, or the trace cannot be read.
pub fn init(request: &InitRequest) -> Result<String, InitError> {
    let baseline = resolve(&request.repository, &request.baseline)?;
    let candidate = resolve(&request.repository, &request.candidate)?;
    let (trace_sha256, trace_file) = match &request.trace {
        Some(path) => {
            let digest = Sha256::of_file(path);
            let (sha256, _) = digest.map_err(|source| InitError::Trace { path: path.clone(), source })?;
            (sha256, path.file_name().map(PathBuf::from))
        }
        None => seeds_trace(),
    };
    // As given it would start from here; in the file it starts from wherever the file is put.
    let repository = std::path::absolute(&request.repository)
        .map_err(|source| InitError::Repository { path: request.repository.clone(), source })?;
    let rows = crate::seeds::rows();
    let revision = |commit: &str, name: &str| Revision {
        commit: commit.to_owned(),
        label: name.to_owned(),
        features: None,
    };
    let definition = Definition {
        name: "my-campaign".to_owned(),
        analysis: "Say here why this campaign exists and what it is expected to show.".to_owned(),
        repository: Repository { path: repository },
        baseline: revision(&baseline, &request.baseline),
        candidate: revision(&candidate, &request.candidate),
        trace: Trace { file: trace_file, ..trace(trace_sha256, 5_000) },
        ..blank(rows, 60)
    };
    let text =
        toml::to_string_pretty(&definition).map_err(|source| InitError::Write { source: source.into() })?;
    Ok(format!("{HEAD}{text}"))
}

/// The published trace that the seeds were qualified on.
fn seeds_trace() -> (Sha256, Option<PathBuf>) {
    let seeds = mooncake_trace::published().iter().find(|known| known.name == "mooncake-arxiv");
    let known = seeds.expect("the table of published traces has the one of the seeds");
    (known.sha256, Path::new(known.origin).file_name().map(PathBuf::from))
}

const HEAD: &str = "\
# A campaign file: everything that decides a verdict, fixed before anything runs. docs/FORMAT.md explains every key.
# The rows start from the qualified seeds of the protocol; requalify num_gpu_blocks for your trace and revisions.
# `trace.sha256` names the trace; a file of that digest is given with --trace or found below $KVRP_TRACES.

";

fn resolve(repository: &Path, name: &str) -> Result<String, InitError> {
    let wrong =
        |source| InitError::Resolve { repository: repository.to_path_buf(), name: name.to_owned(), source };
    let git = git2::Repository::open(repository).map_err(wrong)?;
    let object = git.revparse_single(name).map_err(wrong)?;
    Ok(object.peel_to_commit().map_err(wrong)?.id().to_string())
}

fn trace(sha256: Sha256, count: u64) -> Trace {
    Trace {
        sha256,
        file: None,
        repository_file: None,
        offset: 0,
        count,
        slice_sha256: None,
        block_size: mooncake_trace::Rules::DEFAULT_BLOCK_SIZE,
    }
}

/// A definition with every default of the protocol and nothing to compare.
fn blank(rows: Vec<Row>, pairs: u32) -> Definition {
    let mut gate = Gate { pairs, ..Gate::default() };
    gate.diagnostics.rows = u32::try_from(rows.len()).unwrap_or(u32::MAX);
    Definition {
        schema: CAMPAIGN_SCHEMA.to_owned(),
        name: String::new(),
        analysis: String::new(),
        preflight: false,
        repository: Repository { path: PathBuf::new() },
        baseline: Revision { commit: String::new(), label: String::new(), features: None },
        candidate: Revision { commit: String::new(), label: String::new(), features: None },
        relationship: None,
        patches: Vec::new(),
        build: Build::default(),
        trace: trace(Sha256::of(b""), 1),
        replay: Replay::default(),
        rows,
        lifecycles: Vec::new(),
        canonical: Canonical::default(),
        reviews: Vec::new(),
        exceptions: Vec::new(),
        placement: Placement::default(),
        measure: Measure {
            metric: crate::definition::AUTHORITATIVE_METRIC.to_owned(),
            measure_differing_rows: false,
            rows: Vec::new(),
            run: RunDefinition { seed: 1, pairs, ..RunDefinition::default() },
            gate,
        },
        slurm: None,
        host: HostNeeds::default(),
    }
}

/// The campaign of the demonstration.
///
/// # Errors
///
/// The definition cannot be written as TOML or does not pass its own checks: a bug of ours.
pub fn demo_campaign(demo: &DemoRepository, folder: &Path) -> Result<CampaignFile, DefinitionError> {
    let revision = |commit: &str, label: &str| Revision {
        commit: commit.to_owned(),
        label: label.to_owned(),
        features: None,
    };
    let mut definition = Definition {
        name: "demo".to_owned(),
        analysis: "A small replay harness in two revisions, to see the whole protocol work.".to_owned(),
        repository: Repository { path: demo.repository.clone() },
        baseline: revision(&demo.baseline, "demo baseline"),
        candidate: revision(&demo.candidate, "demo candidate"),
        build: demo.build.clone(),
        trace: Trace {
            file: demo.trace.file_name().map(PathBuf::from),
            ..trace(demo.trace_sha256, demo.trace_rows)
        },
        replay: Replay { time_limit_s: 60, ..Replay::default() },
        host: HostNeeds { free_disk_bytes: 256 << 20 },
        ..blank(demo.rows.clone(), 60)
    };
    // Predeclared: newcomers run this on whatever machine they have, where dependence between pairs is the rule.
    definition.measure.gate.on_breach = OnBreach::DependenceAware;
    let text = toml::to_string_pretty(&definition)
        .map_err(|error| DefinitionError::Value { key: "demo".to_owned(), message: error.to_string() })?;
    CampaignFile::parse(text.into_bytes(), folder.to_path_buf())
}
