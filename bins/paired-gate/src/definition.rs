//! The definition file of a run: everything that is decided before the first warm-up.

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context as _, bail};
use command_line::Exit;
use cpu_placement::{CpuSet, LoadLimits};
use paired_run::{Durability, Invalidation, RunDefinition, TELEMETRY};
use paired_stats::Gate;
use serde::{Deserialize, Serialize};

use crate::cli::{Classified, RunArgs};
use crate::{strict, words};

const SCHEMA: &str = "paired-gate-definition";

/// The definition of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Definition {
    /// `paired-gate-definition`.
    schema: String,
    /// 1.
    version: u32,
    /// The run that this one follows, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) follows: Option<String>,
    /// What is compared.
    pub(crate) metric: Metric,
    /// The words of the baseline's command.
    pub(crate) baseline: Vec<String>,
    /// The words of the candidate's command.
    pub(crate) candidate: Vec<String>,
    /// The CPUs that both arms run on; without, wherever the scheduler puts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cpus: Option<CpuSet>,
    /// How long one run may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) time_limit_s: Option<u64>,
    /// The whole environment of both arms.
    #[serde(default)]
    pub(crate) environment: BTreeMap<String, String>,
    /// Above which other load makes a pair invalid.
    #[serde(default)]
    pub(crate) load_limits: LoadLimits,
    /// When the record of an attempt is on the disk.
    #[serde(default)]
    pub(crate) durability: Durability,
    /// Order, warm-ups and invalidation.
    pub(crate) run: RunDefinition,
    /// The gate.
    pub(crate) gate: Gate,
}

impl Definition {
    pub(crate) fn from_args(args: &RunArgs) -> anyhow::Result<Self> {
        let command = |name: &str, text: &Option<String>| {
            let text = text.as_deref().unwrap_or_default();
            words::split(text).map_err(|why| anyhow::anyhow!("read --{name}: {why}"))
        };
        let cpus: Option<CpuSet> = args.cpus.as_deref().map(str::parse).transpose().context("read --cpus")?;
        let mut invalidation = Invalidation {
            reruns_per_pair: args.reruns_per_pair,
            reruns_per_row: args.reruns_per_row,
            ..Invalidation::default()
        };
        if !args.invalidate_on.is_empty() {
            invalidation.conditions = args.invalidate_on.iter().copied().collect();
        }
        let (seed, pairs, warmups_per_arm) = (args.seed, args.gate.pairs, args.warmups);
        let run = RunDefinition { seed, pairs, warmups_per_arm, invalidation, ..RunDefinition::default() };
        let mut load_limits = LoadLimits::default();
        (load_limits.others_ppm, load_limits.steal_ppm) = (args.others_ppm, args.steal_ppm);
        let definition = Self {
            schema: SCHEMA.to_owned(),
            version: 1,
            follows: args.follows.clone(),
            metric: args.metric.clone(),
            baseline: command("baseline", &args.baseline)?,
            candidate: command("candidate", &args.candidate)?,
            cpus,
            time_limit_s: args.time_limit,
            environment: environment(&args.env)?,
            load_limits,
            durability: args.durability,
            run,
            gate: args.gate.gate()?,
        };
        definition.check()?;
        Ok(definition)
    }

    pub(crate) fn from_toml(text: &str) -> anyhow::Result<Self> {
        let definition: Self = toml::from_str(text)?;
        definition.check()?;
        Ok(definition)
    }

    pub(crate) fn to_toml(&self) -> anyhow::Result<String> {
        let body = toml::to_string_pretty(self).context("write the definition as TOML")?;
        Ok(format!("# Fixed before the first warm-up. A changed file is another experiment.\n{body}"))
    }

    fn check(&self) -> anyhow::Result<()> {
        if self.schema != SCHEMA || self.version != 1 {
            bail!("use a definition of schema {:?}, version {}", self.schema, self.version);
        }
        if self.run.pairs != self.gate.pairs {
            bail!("measure {} pairs for a gate that declares {}", self.run.pairs, self.gate.pairs);
        }
        if let Some(name) =
            self.run.invalidation.above.keys().find(|name| !TELEMETRY.contains(&name.as_str()))
        {
            bail!("invalidate above a limit of {name:?}: only {} are watched", TELEMETRY.join(", "));
        }
        if self.run.warmups_per_arm > MAX_WARMUPS {
            bail!("take {} warm-ups of each arm, more than {MAX_WARMUPS}", self.run.warmups_per_arm);
        }
        if self.cpus.as_ref().is_some_and(CpuSet::is_empty) {
            bail!("run on a set of no CPU");
        }
        if let Some(name) = self.environment.keys().find(|name| name.is_empty() || name.contains(['=', '\0']))
        {
            bail!("set a variable named {name:?}");
        }
        let values = self.environment.values().chain(&self.baseline).chain(&self.candidate);
        if let Some(text) = values.into_iter().find(|text| text.contains('\0')) {
            bail!("pass {text:?} to a program, which cannot be given a zero byte");
        }
        for (arm, words) in [("baseline", &self.baseline), ("candidate", &self.candidate)] {
            if words.is_empty() {
                bail!("run the {arm}, whose command has no word");
            }
            let writes = words.iter().any(|word| word.contains(OUT));
            if matches!(self.metric, Metric::Json(_)) && !writes {
                bail!("read the metric of the {arm}, whose command does not name {OUT}");
            }
        }
        self.gate.prepare()?;
        Ok(())
    }
}

/// The most warm-ups of each arm.
pub(crate) const MAX_WARMUPS: u32 = 1_000;

/// What a command names its fresh file.
pub(crate) const OUT: &str = "{out}";

/// The variables that both arms get: PATH and HOME where they are set, and those that were asked for.
fn environment(asked: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    let mut map = BTreeMap::new();
    for name in ["PATH", "HOME"] {
        if let Ok(value) = std::env::var(name) {
            map.insert(name.to_owned(), value);
        }
    }
    for name in asked {
        let value = std::env::var(name).with_context(|| format!("copy the variable {name}"))?;
        map.insert(name.clone(), value);
    }
    Ok(map)
}

/// What is compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub(crate) enum Metric {
    /// Wall time.
    Wall,
    /// Processor time.
    Cpu,
    /// A number in the file that the command writes, at this RFC 6901 pointer.
    Json(String),
}

impl Metric {
    /// Its name, with the unit where we know it.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Wall => "wall_ms",
            Self::Cpu => "cpu_ms",
            Self::Json(pointer) => pointer.rsplit('/').next().unwrap_or(pointer),
        }
    }
}

impl FromStr for Metric {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "wall" => Ok(Self::Wall),
            "cpu" => Ok(Self::Cpu),
            _ => match text.strip_prefix("json:") {
                Some(pointer) if pointer.starts_with('/') => Ok(Self::Json(pointer.to_owned())),
                _ => Err(format!("the metric {text:?} is none of wall, cpu and json:/pointer")),
            },
        }
    }
}

impl TryFrom<String> for Metric {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Metric> for String {
    fn from(metric: Metric) -> Self {
        match metric {
            Metric::Wall => "wall".to_owned(),
            Metric::Cpu => "cpu".to_owned(),
            Metric::Json(pointer) => format!("json:{pointer}"),
        }
    }
}

/// A gate as the text of a file.
pub(crate) fn gate_to_toml(gate: &Gate) -> anyhow::Result<String> {
    let body = toml::to_string_pretty(gate).context("write the definition as TOML")?;
    Ok(format!("# A gate for `paired-gate decide --definition`. Fix it before anything is measured.\n{body}"))
}

/// The gate in a file: the file is one (as `define` prints it) or the definition of a run.
pub(crate) fn read_gate(path: &Path) -> anyhow::Result<Gate> {
    let read = || -> anyhow::Result<Gate> {
        let text = strict::text(path)?;
        let of_run = text.parse::<toml::Table>()?.contains_key("schema");
        let gate = if of_run { Definition::from_toml(&text)?.gate } else { toml::from_str(&text)? };
        gate.prepare()?;
        Ok(gate)
    };
    let result = read().with_context(|| format!("use the definition {}", path.display()));
    result.map_err(|error| Classified::error(Exit::BadInput, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_survives_its_file() {
        let gate = Gate { pairs: 40, limit_ratio: 1.1, ..Gate::default() };
        assert_eq!(toml::from_str::<Gate>(&gate_to_toml(&gate).unwrap()).unwrap(), gate);
    }

    #[test]
    fn metrics_are_named() {
        let check = |text: &str, name: &str| assert_eq!(text.parse::<Metric>().unwrap().name(), name);
        check("wall", "wall_ms");
        check("cpu", "cpu_ms");
        check("json:/timing/replay_execution_ms", "replay_execution_ms");
        for text in ["", "walls", "json:", "json:a"] {
            assert!(text.parse::<Metric>().is_err(), "{text}");
        }
    }
}
