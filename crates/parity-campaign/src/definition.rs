//! The campaign file: everything that decides a verdict, fixed before anything runs.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use canonical_json::Sha256;
use paired_run::RunDefinition;
use paired_stats::Gate;
use serde::{Deserialize, Serialize};

use crate::executor::slurm::Slurm;

mod check;
mod error;
mod lifecycle;

pub(crate) use check::is_date;
pub use error::DefinitionError;
pub use lifecycle::{Lifecycle, LifecycleKind, LifecycleTest};

/// The schema name a campaign file must carry in its `schema` key.
pub const CAMPAIGN_SCHEMA: &str = "kvrp.campaign.v1";

/// A whole campaign file. Unknown keys are errors.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// Always [`CAMPAIGN_SCHEMA`].
    #[cfg_attr(feature = "schema", schemars(extend("const" = CAMPAIGN_SCHEMA)))]
    pub schema: String,
    /// Short name of the campaign; letters, digits, `.`, `-` and `_`.
    pub name: String,
    /// Prose: why this campaign exists and what it is expected to show.
    #[serde(default)]
    pub analysis: String,
    /// A preflight checks the machinery on a small workload; it says so everywhere and decides nothing.
    #[serde(default)]
    pub preflight: bool,
    /// Where the two commits live.
    pub repository: Repository,
    /// The revision compared against.
    pub baseline: Revision,
    /// The revision that must prove itself.
    pub candidate: Revision,
    /// How the two relate, needed when the baseline is not an ancestor of the candidate (P1).
    #[serde(default)]
    pub relationship: Option<Relationship>,
    /// Temporary patches, kept out of the semantic delta (P3).
    #[serde(default, rename = "patch")]
    pub patches: Vec<Patch>,
    /// How each revision becomes one artifact (P4).
    #[serde(default)]
    pub build: Build,
    /// The recorded requests.
    pub trace: Trace,
    /// Replay settings shared by every row.
    #[serde(default)]
    pub replay: Replay,
    /// The frozen rows.
    #[serde(rename = "row")]
    pub rows: Vec<Row>,
    /// Rare paths that are forced apart from the rows (F1).
    #[serde(default, rename = "lifecycle")]
    pub lifecycles: Vec<Lifecycle>,
    /// What is left out of the canonical form, and what has no order (D1, D2).
    #[serde(default)]
    pub canonical: Canonical,
    /// Recorded decisions of a reviewer; each lifts exactly what it names.
    #[serde(default, rename = "review")]
    pub reviews: Vec<Review>,
    /// Records of differences that a reviewer accepts (E1).
    #[serde(default, rename = "exception")]
    pub exceptions: Vec<ExceptionFile>,
    /// Which CPUs and memory the processes get.
    #[serde(default)]
    pub placement: Placement,
    /// How time is measured and judged.
    pub measure: Measure,
    /// How rows are submitted to Slurm, for `--executor slurm`.
    #[serde(default)]
    pub slurm: Option<Slurm>,
    /// What the host must offer before anything starts.
    #[serde(default)]
    pub host: HostNeeds,
}

/// Where the two commits live.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Repository {
    /// A git repository, relative to the campaign file; `--repo` overrides it.
    pub path: PathBuf,
}

/// One of the two revisions.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Revision {
    /// The full 40-hex commit id (I1).
    pub commit: String,
    /// A human name, shown beside the id; it decides nothing.
    #[serde(default)]
    pub label: String,
    /// Features of this revision when they differ from `build.features` (I3).
    #[serde(default)]
    pub features: Option<Vec<String>>,
}

/// A stated relationship between revisions that ancestry does not give.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Relationship {
    /// One sentence, copied into the report.
    pub stated: String,
}

/// What a patch is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PatchKind {
    /// Takes an entropy leak out of both revisions; one file, applied to both.
    Determinism,
    /// Makes the harness emit the timing boundary; may be one file per revision.
    TimingBoundary,
}

/// Which revision a patch is applied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PatchTarget {
    /// Baseline and candidate.
    Both,
    /// The baseline only.
    Baseline,
    /// The candidate only.
    Candidate,
}

/// One patch file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Patch {
    /// What it is for.
    pub kind: PatchKind,
    /// Which revision gets it.
    pub revision: PatchTarget,
    /// The patch, relative to the campaign file.
    pub file: PathBuf,
    /// Its digest.
    pub sha256: Sha256,
}

/// What kind of target cargo builds the harness from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum TargetKind {
    /// `--bench NAME`
    Bench,
    /// `--bin NAME`
    Bin,
}

/// How each revision becomes one artifact. The default is Dynamo's replay harness.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Build {
    /// The package that holds the harness.
    pub package: String,
    /// Bench or bin.
    pub target_kind: TargetKind,
    /// The target's name.
    pub target: String,
    /// Explicit feature names; "all features" does not exist.
    pub features: Vec<String>,
    /// `--no-default-features`
    pub no_default_features: bool,
    /// The cargo profile.
    pub profile: String,
    /// Whether cargo may use the network to fetch what the lock names.
    pub offline: bool,
    /// Longest time one build may take, in seconds.
    pub time_limit_s: u64,
    /// Two trees that give the same bytes stop the campaign unless this is true (P4).
    pub allow_equal_artifacts: bool,
    /// Largest growth of the artifact or its `.text`, as a ratio, that needs no explanation (P5).
    pub max_growth: f64,
}

impl Default for Build {
    fn default() -> Self {
        Build {
            package: "dynamo-bench".into(),
            target_kind: TargetKind::Bench,
            target: "offline_replay_bench".into(),
            features: vec!["replay-bench".into()],
            no_default_features: true,
            profile: "release".into(),
            offline: true,
            time_limit_s: 7200,
            allow_equal_artifacts: false,
            max_growth: 0.05,
        }
    }
}

/// The recorded requests and the window cut from them (Q1).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// Digest of the whole trace file; the file is found by it.
    pub sha256: Sha256,
    /// File name, relative to the campaign file or below `$KVRP_TRACES`; `--trace` overrides it.
    #[serde(default)]
    pub file: Option<PathBuf>,
    /// Path of the trace inside the baseline's checkout, for a fixture that the repository carries.
    #[serde(default)]
    pub repository_file: Option<PathBuf>,
    /// First row of the window, from 0.
    #[serde(default)]
    pub offset: u64,
    /// Rows in the window.
    pub count: u64,
    /// Digest of the window's bytes, checked when given.
    #[serde(default)]
    pub slice_sha256: Option<Sha256>,
    /// Tokens per hash id.
    #[serde(default = "default_trace_block_size")]
    pub block_size: NonZeroU32,
}

fn default_trace_block_size() -> NonZeroU32 {
    mooncake_trace::Rules::DEFAULT_BLOCK_SIZE
}

/// Replay settings shared by every row.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Replay {
    /// How much faster than recorded the requests arrive.
    pub arrival_speedup_ratio: f64,
    /// Longest time one replay may take, in seconds.
    pub time_limit_s: u64,
}

impl Default for Replay {
    fn default() -> Self {
        Replay { arrival_speedup_ratio: 4.0, time_limit_s: 600 }
    }
}

/// Which serving engine's scheduling a row simulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// vLLM: preemption.
    Vllm,
    /// SGLang: retraction.
    Sglang,
    /// TensorRT-LLM: smoke coverage only, never a substitute (B1).
    Trtllm,
}

impl Engine {
    /// The name in a campaign file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Engine::Vllm => "vllm",
            Engine::Sglang => "sglang",
            Engine::Trtllm => "trtllm",
        }
    }
}

impl Topology {
    /// The name in a campaign file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Topology::Aggregated => "aggregated",
            Topology::Disaggregated => "disaggregated",
        }
    }
}

/// Whether prefill and decode share workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Topology {
    /// Every worker does both.
    Aggregated,
    /// Separate prefill and decode pools with a handoff between them.
    Disaggregated,
}

/// How a disaggregated transfer is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum TransferTiming {
    /// The whole prompt moves.
    FullPrompt,
    /// Only what the destination lacks moves.
    DestinationMissing,
}

/// How many preemptions or retractions a row must show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PressureBand {
    /// Fewest events.
    pub min: u64,
    /// Most events.
    pub max: u64,
}

/// One frozen configuration.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Name of the row; unique; letters, digits, `.`, `-` and `_`.
    pub name: String,
    /// Engine semantics.
    pub engine: Engine,
    /// Topology.
    pub topology: Topology,
    /// Aggregated workers.
    #[serde(default)]
    pub workers: Option<u64>,
    /// Prefill workers of a disaggregated row.
    #[serde(default)]
    pub prefill_workers: Option<u64>,
    /// Decode workers of a disaggregated row.
    #[serde(default)]
    pub decode_workers: Option<u64>,
    /// Engine block size in tokens.
    pub block_size: u64,
    /// KV blocks per worker: the capacity edge.
    pub num_gpu_blocks: u64,
    /// Running requests per worker.
    pub max_num_seqs: u64,
    /// Token budget of one pass.
    pub max_num_batched_tokens: u64,
    /// KV bytes per token, for transfer timing.
    #[serde(default)]
    pub kv_bytes_per_token: Option<u64>,
    /// Transfer bandwidth in GB/s.
    #[serde(default)]
    pub kv_transfer_bandwidth_gb_per_s: Option<f64>,
    /// Transfer timing model.
    #[serde(default)]
    pub kv_transfer_timing: Option<TransferTiming>,
    /// The router's queue threshold; unset means every placement is immediate.
    #[serde(default)]
    pub router_queue_threshold: Option<f64>,
    /// The pressure band (Q3).
    pub pressure: PressureBand,
    /// Counters of the baseline's report as a golden seed recorded them (Q5); what differs is named as drift and decides
    /// nothing.
    #[serde(default)]
    pub expected: BTreeMap<String, u64>,
}

/// The canonical form of a report.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Canonical {
    /// Pointers left out; exactly the closed list (D2).
    pub exclusions: Vec<String>,
    /// Collections without an order and the member that identifies an element.
    pub unordered: Vec<UnorderedCollection>,
}

impl Default for Canonical {
    fn default() -> Self {
        Canonical {
            exclusions: CLOSED_EXCLUSIONS.map(String::from).to_vec(),
            unordered: vec![UnorderedCollection { at: "/per_request".into(), by: "/uuid".into() }],
        }
    }
}

/// The closed list of D2: wall-clock values, and nothing else.
pub const CLOSED_EXCLUSIONS: [&str; 3] =
    ["/summary/wall_time_ms", "/summary/processed_tokens_per_s", "/summary/processed_output_tokens_per_s"];

/// A collection without an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct UnorderedCollection {
    /// Pointer to the array.
    pub at: String,
    /// Pointer inside an element to its key.
    pub by: String,
}

/// What a review record lifts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ReviewKind {
    /// One exclusion that a report states beyond the closed list; `subject` is its pointer.
    Exclusion,
    /// Growth of the artifact; `subject` is `size` or `text`.
    Growth,
    /// The two revisions are not built in one way; `subject` is `profile`, `features` or `toolchain`.
    Build,
    /// A patch that only one revision gets, shown to change no report; `subject` is the base name of its file.
    Patch,
}

impl ReviewKind {
    /// The name in a campaign file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ReviewKind::Exclusion => "exclusion",
            ReviewKind::Growth => "growth",
            ReviewKind::Build => "build",
            ReviewKind::Patch => "patch",
        }
    }
}

/// One decision of a reviewer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Review {
    /// What kind of stop it lifts.
    pub kind: ReviewKind,
    /// Exactly what it lifts.
    pub subject: String,
    /// Why that is right.
    pub reason: String,
    /// Who decided.
    pub reviewer: String,
    /// When, as `YYYY-MM-DD`.
    pub date: String,
}

/// An exception record, frozen by its digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ExceptionFile {
    /// The record.
    pub file: PathBuf,
    /// Digest of the file.
    pub sha256: Sha256,
}

/// Placement of the processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Placement {
    /// Physical cores per process (N3).
    pub cores_per_process: usize,
    /// Pin the measured process to this CPU list instead of the planned one.
    pub measured_cpus: Option<String>,
    /// Whether one core is left to the kernel and everything else. A node that gives a job a single core has none to leave.
    pub housekeeping: Housekeeping,
}

/// What becomes of the first core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Housekeeping {
    /// It is left to everything else.
    #[default]
    Kept,
    /// Measured processes may get it.
    Given,
}

impl Default for Placement {
    fn default() -> Self {
        Placement { cores_per_process: 1, measured_cpus: None, housekeeping: Housekeeping::Kept }
    }
}

/// How time is measured and judged.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// The timing field (M1). Any other than `replay_execution_ms` makes the result non-authoritative.
    #[serde(default = "default_metric")]
    pub metric: String,
    /// Measure rows whose digests differ; the result is not a parity verdict (M12).
    #[serde(default)]
    pub measure_differing_rows: bool,
    /// Rows to measure, by name; empty for all of them. What is left out is reported as not asked for, and every
    /// performance verdict of the campaign says that it is one of a part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<String>,
    /// How the pairs are taken: seed, pairs, warm-ups, invalidation (M4, M8).
    pub run: RunDefinition,
    /// How they are judged: limit, confidence, diagnostics (M5 to M7, M14).
    #[serde(default)]
    pub gate: Gate,
}

/// The metric at the exact boundary (M1).
pub const AUTHORITATIVE_METRIC: &str = "replay_execution_ms";

fn default_metric() -> String {
    AUTHORITATIVE_METRIC.into()
}
/// What the host must offer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct HostNeeds {
    /// Free bytes needed where the campaign works.
    pub free_disk_bytes: u64,
}

impl Default for HostNeeds {
    fn default() -> Self {
        HostNeeds { free_disk_bytes: 6 << 30 }
    }
}

/// A campaign file with the bytes it was read from; the digest of those bytes names the campaign (I2).
#[derive(Clone, Debug)]
pub struct CampaignFile {
    /// What the file says.
    pub definition: Definition,
    /// The file as read.
    pub bytes: Vec<u8>,
    /// Digest of the bytes.
    pub sha256: Sha256,
    /// The folder that relative paths start from.
    pub folder: PathBuf,
}

impl CampaignFile {
    /// Reads and checks a campaign file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is not TOML, has an unknown key or a value out of range.
    pub fn read(path: &Path) -> Result<Self, DefinitionError> {
        let bytes = std::fs::read(path)
            .map_err(|source| DefinitionError::Read { path: path.to_path_buf(), source })?;
        let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
        Self::parse(bytes, folder)
    }

    /// Checks campaign text; relative paths start from `folder`.
    ///
    /// # Errors
    ///
    /// The text is not TOML, has an unknown key or a value out of range.
    pub fn parse(bytes: Vec<u8>, folder: PathBuf) -> Result<Self, DefinitionError> {
        let text = std::str::from_utf8(&bytes).map_err(|source| DefinitionError::NotUtf8 { source })?;
        let definition: Definition = from_toml(text)?;
        definition.check()?;
        let sha256 = Sha256::of(&bytes);
        Ok(CampaignFile { definition, bytes, sha256, folder })
    }
}

/// Reads TOML; an error says where it is and names the nearest known key.
pub(crate) fn from_toml<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, DefinitionError> {
    toml::from_str(text).map_err(|error| error::from_toml(text, &error))
}

impl Definition {
    /// The features of one revision.
    #[must_use]
    pub fn features<'a>(&'a self, revision: &'a Revision) -> &'a [String] {
        revision.features.as_deref().unwrap_or(&self.build.features)
    }

    /// Whether the metric is the one of the exact boundary.
    #[must_use]
    pub fn is_authoritative(&self) -> bool {
        self.measure.metric == AUTHORITATIVE_METRIC
    }

    /// Whether a row is among those to measure.
    #[must_use]
    pub fn is_asked_for(&self, row: &str) -> bool {
        self.measure.rows.is_empty() || self.measure.rows.iter().any(|name| name == row)
    }

    /// Pointers whose addition to a report's own exclusion list a reviewer has accepted.
    #[must_use]
    pub fn reviewed_exclusions(&self) -> BTreeSet<&str> {
        self.reviews_of(ReviewKind::Exclusion).map(|review| review.subject.as_str()).collect()
    }

    /// The reviews of one kind.
    pub fn reviews_of(&self, kind: ReviewKind) -> impl Iterator<Item = &Review> {
        self.reviews.iter().filter(move |review| review.kind == kind)
    }
}

#[cfg(test)]
pub(crate) mod tests;
