//! Lifecycles that a campaign forces apart from its rows (F1, F2).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::check::{Checked, check_name, check_shape, is_band, require};
use super::{Definition, Engine, PatchTarget, PressureBand, Row, Topology};

/// A rare path that must be shown to work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum LifecycleKind {
    /// One worker behind a KV router that holds requests back above an explicit threshold.
    RouterQueueing,
    /// One to three preemptions or retractions; every request is admitted again and completes.
    PreemptionEdge,
    /// Workers down to none and up again, and what was waiting is released.
    Scaling,
    /// The source-first handoff of vLLM.
    VllmHandoff,
    /// The destination-first handoff of SGLang.
    SglangHandoff,
}

impl LifecycleKind {
    /// Every kind.
    pub const ALL: [LifecycleKind; 5] = [
        LifecycleKind::RouterQueueing,
        LifecycleKind::PreemptionEdge,
        LifecycleKind::Scaling,
        LifecycleKind::VllmHandoff,
        LifecycleKind::SglangHandoff,
    ];

    /// The name in a campaign file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            LifecycleKind::RouterQueueing => "router-queueing",
            LifecycleKind::PreemptionEdge => "preemption-edge",
            LifecycleKind::Scaling => "scaling",
            LifecycleKind::VllmHandoff => "vllm-handoff",
            LifecycleKind::SglangHandoff => "sglang-handoff",
        }
    }

    /// What is missing from a campaign that does not force it.
    #[must_use]
    pub fn described(self) -> &'static str {
        match self {
            LifecycleKind::RouterQueueing => "router queueing with an explicit threshold",
            LifecycleKind::PreemptionEdge => "a forced preemption edge apart from the rows",
            LifecycleKind::Scaling => "scale to zero, scale up and release of pending work",
            LifecycleKind::VllmHandoff => "the handoff order of vLLM",
            LifecycleKind::SglangHandoff => "the handoff order of SGLang",
        }
    }

    /// The engine whose disaggregated rows show the same.
    fn handoff_of(self) -> Option<Engine> {
        match self {
            LifecycleKind::VllmHandoff => Some(Engine::Vllm),
            LifecycleKind::SglangHandoff => Some(Engine::Sglang),
            LifecycleKind::RouterQueueing | LifecycleKind::PreemptionEdge | LifecycleKind::Scaling => None,
        }
    }
}

/// One lifecycle, forced by a small row or shown by a test of the revisions' own.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Lifecycle {
    /// What it forces.
    pub kind: LifecycleKind,
    /// Which revisions it is forced on; what one revision cannot do is not covered there.
    #[serde(default = "both")]
    pub revision: PatchTarget,
    /// Why only one revision; needed then, and only then.
    #[serde(default)]
    pub reason: Option<String>,
    /// How many requests from the start of the window a row replays; all of them when absent.
    #[serde(default)]
    pub requests: Option<u64>,
    /// The row that forces it.
    #[serde(default)]
    pub row: Option<Row>,
    /// The test that shows it.
    #[serde(default)]
    pub test: Option<LifecycleTest>,
}

fn both() -> PatchTarget {
    PatchTarget::Both
}

/// A command that must pass in the checkout of each revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LifecycleTest {
    /// Name of the lifecycle; unique; letters, digits, `.`, `-` and `_`.
    pub name: String,
    /// Must succeed first, such as building the tests.
    #[serde(default)]
    pub prepare: Vec<String>,
    /// Text that the output must contain, to show that the test ran.
    pub proof: String,
    /// The test: program and arguments, no shell. Status 0 is a pass.
    pub command: Vec<String>,
    /// How long each of the two may take.
    #[serde(default = "default_time_limit_s")]
    pub time_limit_s: u64,
}

fn default_time_limit_s() -> u64 {
    1_800
}

impl Lifecycle {
    /// The name of its row or test.
    #[must_use]
    pub fn name(&self) -> &str {
        let of_test = self.test.as_ref().map(|test| test.name.as_str());
        self.row.as_ref().map(|row| row.name.as_str()).or(of_test).unwrap_or_default()
    }

    fn check(&self, key: &str, window: u64) -> Checked {
        check_name(&format!("{key}.name"), self.name())?;
        self.check_revision(key)?;
        match (&self.row, &self.test) {
            (Some(row), None) => self.check_row(key, row, window),
            (None, Some(test)) => self.check_test(key, test),
            _ => require(false, key, "has either a `row` or a `test`"),
        }
    }

    fn check_revision(&self, key: &str) -> Checked {
        let is_given = self.reason.as_ref().is_some_and(|reason| !reason.trim().is_empty());
        require(
            is_given == (self.revision != PatchTarget::Both),
            format!("{key}.reason"),
            "says why a lifecycle is forced on one revision only, and nothing else",
        )
    }

    fn check_test(&self, key: &str, test: &LifecycleTest) -> Checked {
        require(self.requests.is_none(), format!("{key}.requests"), "belongs to a row")?;
        require(!test.command.is_empty(), format!("{key}.test.command"), "must name a program")?;
        require(!test.proof.trim().is_empty(), format!("{key}.test.proof"), "must not be empty")?;
        require(test.time_limit_s > 0, format!("{key}.test.time_limit_s"), "must be above 0")
    }

    fn check_row(&self, key: &str, row: &Row, window: u64) -> Checked {
        check_shape(&format!("{key}.row"), row)?;
        require(
            self.requests.is_none_or(|requests| (1..=window).contains(&requests)),
            format!("{key}.requests"),
            format!("must be 1 to {window}, the rows of the window"),
        )?;
        require(row.expected.is_empty(), format!("{key}.row.expected"), "belongs to the rows of the matrix")?;
        self.check_kind(&format!("{key}.row"), row)
    }

    /// What a row must declare to force its lifecycle at all.
    fn check_kind(&self, key: &str, row: &Row) -> Checked {
        let none = PressureBand { min: 0, max: 0 };
        require(
            self.kind == LifecycleKind::PreemptionEdge || row.pressure == none || is_band(row.pressure),
            format!("{key}.pressure"),
            "expected a band of at least 1 event, or { min = 0, max = 0 } where none may happen",
        )?;
        let is_queueing = row.workers == Some(1) && row.router_queue_threshold.is_some_and(f64::is_finite);
        let (holds, message) = match self.kind {
            LifecycleKind::RouterQueueing => {
                (is_queueing, "queueing needs `workers = 1` and a `router_queue_threshold`")
            }
            LifecycleKind::PreemptionEdge => {
                (is_band(row.pressure) && row.pressure.max <= 3, "the edge is a band within 1 to 3 events")
            }
            LifecycleKind::Scaling => (false, "a row has fixed workers; only a test can show scaling"),
            LifecycleKind::VllmHandoff | LifecycleKind::SglangHandoff => (
                row.topology == Topology::Disaggregated && Some(row.engine) == self.kind.handoff_of(),
                "a handoff needs a disaggregated row of its engine",
            ),
        };
        require(holds, key, message)
    }
}

impl Definition {
    pub(super) fn check_lifecycles(&self) -> Checked {
        let mut names = BTreeSet::new();
        for (index, lifecycle) in self.lifecycles.iter().enumerate() {
            let key = format!("lifecycle[{index}]");
            lifecycle.check(&key, self.trace.count)?;
            let twice = format!("{:?} is used twice", lifecycle.name());
            require(names.insert(lifecycle.name()), format!("{key}.name"), twice)?;
        }
        Ok(())
    }

    /// Every kind of lifecycle that this campaign does not show, or shows on one revision only.
    #[must_use]
    pub fn lifecycles_not_covered(&self) -> Vec<String> {
        LifecycleKind::ALL.into_iter().filter_map(|kind| self.not_covered(kind)).collect()
    }

    fn not_covered(&self, kind: LifecycleKind) -> Option<String> {
        let of_kind = || self.lifecycles.iter().filter(|lifecycle| lifecycle.kind == kind);
        let shows =
            |row: &Row| row.topology == Topology::Disaggregated && Some(row.engine) == kind.handoff_of();
        let on = |side| of_kind().any(|one| one.revision == PatchTarget::Both || one.revision == side);
        let is_covered = self.rows.iter().any(shows);
        match (on(PatchTarget::Baseline), on(PatchTarget::Candidate)) {
            _ if is_covered => None,
            (true, true) => None,
            (false, false) => Some(kind.described().to_owned()),
            (on_baseline, _) => {
                let missing = if on_baseline { "candidate" } else { "baseline" };
                let reasons: Vec<&str> = of_kind().filter_map(|one| one.reason.as_deref()).collect();
                Some(format!("{} on the {missing}: {}", kind.described(), reasons.join("; ")))
            }
        }
    }
}
