//! What TOML types cannot say: ranges, uniqueness and agreement between keys.

use std::collections::BTreeSet;

use paired_run::TELEMETRY;

use crate::error::with_causes;

use super::{
    CAMPAIGN_SCHEMA, CLOSED_EXCLUSIONS, Canonical, Definition, DefinitionError, Engine, Patch, PatchKind,
    PatchTarget, PressureBand, ReviewKind, Revision, Row, Topology,
};

pub(super) type Checked = Result<(), DefinitionError>;

/// Growth that needs no explanation (P5).
const MAX_GROWTH: f64 = 0.05;

/// The upper end of the band of throttle-oriented disaggregated rows (Q3); beyond it nothing tells an edge from a flood.
const WIDEST_BAND: u64 = 20;

fn wrong(key: impl Into<String>, message: impl Into<String>) -> Checked {
    Err(DefinitionError::Value { key: key.into(), message: message.into() })
}

pub(super) fn require(holds: bool, key: impl Into<String>, message: impl Into<String>) -> Checked {
    if holds { Ok(()) } else { wrong(key, message) }
}

impl Definition {
    pub(super) fn check(&self) -> Checked {
        require(
            self.schema == CAMPAIGN_SCHEMA,
            "schema",
            format!("expected {CAMPAIGN_SCHEMA:?}, found {:?}", self.schema),
        )?;
        check_name("name", &self.name)?;
        check_revision("baseline", &self.baseline)?;
        check_revision("candidate", &self.candidate)?;
        require(!self.build.features.is_empty(), "build.features", "name at least one feature")?;
        check_features("build.features", &self.build.features)?;
        require(
            (0.0..=MAX_GROWTH).contains(&self.build.max_growth),
            "build.max_growth",
            format!("must be 0 to {MAX_GROWTH}; growth beyond that needs a review of kind \"growth\""),
        )?;
        self.check_profile()?;
        self.check_patches()?;
        self.check_one_sided_patches()?;
        self.check_trace()?;
        self.check_rows()?;
        self.check_lifecycles()?;
        self.check_canonical()?;
        self.check_reviews()?;
        self.check_exceptions()?;
        self.check_slurm()?;
        self.check_measure()
    }

    fn check_slurm(&self) -> Checked {
        match self.slurm.as_ref().and_then(|slurm| slurm.fault()) {
            Some((key, message)) => wrong(format!("slurm.{key}"), message),
            None => Ok(()),
        }
    }

    fn check_patches(&self) -> Checked {
        self.patches.iter().enumerate().try_for_each(|(index, patch)| check_patch(index, patch))
    }

    fn check_trace(&self) -> Checked {
        require(self.trace.count > 0, "trace.count", "must be at least 1")?;
        let speedup = self.replay.arrival_speedup_ratio;
        require(
            speedup.is_finite() && speedup > 0.0,
            "replay.arrival_speedup_ratio",
            format!("must be finite and above 0, found {speedup}"),
        )
    }

    fn check_rows(&self) -> Checked {
        require(!self.rows.is_empty(), "row", "at least one row is needed")?;
        let mut names = BTreeSet::new();
        for (index, row) in self.rows.iter().enumerate() {
            check_row(&format!("row[{index}]"), row)?;
            require(
                names.insert(&row.name),
                format!("row[{index}].name"),
                format!("{:?} is used twice", row.name),
            )?;
        }
        Ok(())
    }

    fn check_canonical(&self) -> Checked {
        let stated: BTreeSet<&str> = self.canonical.exclusions.iter().map(String::as_str).collect();
        require(
            stated == BTreeSet::from(CLOSED_EXCLUSIONS),
            "canonical.exclusions",
            format!("the list is closed: exactly {}", CLOSED_EXCLUSIONS.join(", ")),
        )?;
        let known = Canonical::default().unordered;
        for (index, collection) in self.canonical.unordered.iter().enumerate() {
            require(
                known.contains(collection),
                format!("canonical.unordered[{index}]"),
                format!("only per-request records have no order: {:?} by {:?}", known[0].at, known[0].by),
            )?;
        }
        Ok(())
    }

    /// A timing patch that only one revision gets could change what that revision does: a person vouches for it (P3).
    fn check_one_sided_patches(&self) -> Checked {
        for (index, patch) in self.patches.iter().enumerate() {
            let name = patch.file.file_name().unwrap_or_default().to_string_lossy();
            let is_reviewed = self.reviews_of(ReviewKind::Patch).any(|review| review.subject == name);
            require(
                patch.revision == PatchTarget::Both || is_reviewed,
                format!("patch[{index}].revision"),
                format!(
                    "a patch of one revision needs a review of kind \"patch\" and subject {name:?} that it changes no report"
                ),
            )?;
        }
        Ok(())
    }

    fn check_reviews(&self) -> Checked {
        for (index, review) in self.reviews.iter().enumerate() {
            let fields =
                [("subject", &review.subject), ("reason", &review.reason), ("reviewer", &review.reviewer)];
            for (name, value) in fields {
                require(!value.trim().is_empty(), format!("review[{index}].{name}"), "must not be empty")?;
            }
            require(is_date(&review.date), format!("review[{index}].date"), "expected YYYY-MM-DD")?;
        }
        Ok(())
    }

    fn check_exceptions(&self) -> Checked {
        let mut files = BTreeSet::new();
        for (index, exception) in self.exceptions.iter().enumerate() {
            let key = format!("exception[{index}].file");
            require(!exception.file.as_os_str().is_empty(), key.clone(), "must not be empty")?;
            require(files.insert(&exception.file), key, "is named twice")?;
        }
        Ok(())
    }

    fn check_measure(&self) -> Checked {
        let measure = &self.measure;
        require(!measure.metric.is_empty(), "measure.metric", "must name a timing field")?;
        let pairs = measure.run.pairs;
        require(
            pairs > 0 && pairs.is_multiple_of(2),
            "measure.run.pairs",
            format!("must be even and above 0 so that both orders are equally many, found {pairs}"),
        )?;
        require(
            measure.gate.pairs == pairs,
            "measure.gate.pairs",
            format!("must be measure.run.pairs, {pairs}, found {}", measure.gate.pairs),
        )?;
        self.check_measured_rows()?;
        for name in measure.run.invalidation.above.keys() {
            let known = TELEMETRY.join(", ");
            require(
                TELEMETRY.contains(&name.as_str()),
                format!("measure.run.invalidation.above.{name}"),
                format!("nothing of that name is watched, only {known}"),
            )?;
        }
        let rows = measure.gate.diagnostics.rows;
        let measured = self.rows.iter().filter(|row| self.is_asked_for(&row.name)).count();
        require(
            usize::try_from(rows).is_ok_and(|rows| rows == measured),
            "measure.gate.diagnostics.rows",
            format!("must be the number of rows, {measured}, found {rows}: they share the false-alarm rate"),
        )?;
        match measure.gate.prepare() {
            Ok(_) => Ok(()),
            Err(error) => wrong("measure.gate", with_causes(&error)),
        }
    }
}

impl Definition {
    fn check_measured_rows(&self) -> Checked {
        let mut names = BTreeSet::new();
        for (index, name) in self.measure.rows.iter().enumerate() {
            let key = format!("measure.rows[{index}]");
            let is_row = self.rows.iter().any(|row| row.name == *name);
            require(is_row, key.clone(), format!("{name:?} is no row of this campaign"))?;
            require(names.insert(name), key, format!("{name:?} is named twice"))?;
        }
        Ok(())
    }

    /// Debug assertions and missing optimisation change what is measured beyond anything a gate could judge (P4).
    fn check_profile(&self) -> Checked {
        let profile = self.build.profile.as_str();
        require(
            !matches!(profile, "dev" | "debug" | "test"),
            "build.profile",
            format!("{profile:?} is a debug build; an artifact is built with release or a profile like it"),
        )
    }
}

pub(super) fn check_name(key: &str, name: &str) -> Checked {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let holds = !name.is_empty() && name.len() <= 64 && name.chars().all(plain) && !name.starts_with('.');
    require(holds, key, format!("expected 1 to 64 letters, digits, `.`, `-` or `_`, found {name:?}"))
}

fn check_revision(key: &str, revision: &Revision) -> Checked {
    let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let full = revision.commit.len() == 40 && revision.commit.bytes().all(hex);
    require(
        full,
        format!("{key}.commit"),
        format!("expected a full commit id of 40 lower-case hex digits, found {:?}: pin it", revision.commit),
    )?;
    check_features(&format!("{key}.features"), revision.features.as_deref().unwrap_or_default())
}

fn check_features(key: &str, features: &[String]) -> Checked {
    for feature in features {
        let wildcard = matches!(feature.as_str(), "" | "*" | "all" | "all-features" | "--all-features");
        require(!wildcard, key, format!("{feature:?} is no feature name; list features one by one"))?;
        require(
            !feature.to_ascii_lowercase().contains("kvbm"),
            key,
            format!(
                "{feature:?}: KVBM replay was removed from the harness; pin a historical protocol instead"
            ),
        )?;
    }
    Ok(())
}

fn check_patch(index: usize, patch: &Patch) -> Checked {
    let one_sided = patch.revision != PatchTarget::Both;
    require(
        !(patch.kind == PatchKind::Determinism && one_sided),
        format!("patch[{index}].revision"),
        "a determinism correction is applied to both revisions or to none",
    )
}

fn check_row(key: &str, row: &Row) -> Checked {
    check_shape(key, row)?;
    require(
        row.pressure.min >= 1 && row.pressure.min <= row.pressure.max,
        format!("{key}.pressure"),
        "expected 1 <= min <= max: zero events would not exercise the edge",
    )?;
    require(
        is_band(row.pressure),
        format!("{key}.pressure"),
        format!("max must be at most {WIDEST_BAND}, the upper end of the widest band of the protocol"),
    )
}

/// Whether a band has an edge in it and no flood.
pub(super) fn is_band(band: PressureBand) -> bool {
    band.min >= 1 && band.min <= band.max && band.max <= WIDEST_BAND
}

/// What every row must declare, whatever it is for.
pub(super) fn check_shape(key: &str, row: &Row) -> Checked {
    check_name(&format!("{key}.name"), &row.name)?;
    check_workers(key, row)?;
    let counts = [
        ("block_size", row.block_size),
        ("num_gpu_blocks", row.num_gpu_blocks),
        ("max_num_seqs", row.max_num_seqs),
        ("max_num_batched_tokens", row.max_num_batched_tokens),
    ];
    for (name, value) in counts {
        require(value > 0, format!("{key}.{name}"), "must be at least 1")?;
    }
    require(
        row.engine != Engine::Trtllm || row.name.contains("smoke"),
        format!("{key}.name"),
        "a TensorRT-LLM row is smoke coverage; its name must say so",
    )
}

fn check_workers(key: &str, row: &Row) -> Checked {
    let present =
        [row.workers, row.prefill_workers, row.decode_workers].map(|count| count.is_some_and(|n| n > 0));
    match row.topology {
        Topology::Aggregated => require(
            present == [true, false, false],
            format!("{key}.workers"),
            "an aggregated row names `workers` (at least 1) and neither `prefill_workers` nor `decode_workers`",
        ),
        Topology::Disaggregated => require(
            present == [false, true, true],
            format!("{key}.prefill_workers"),
            "a disaggregated row names `prefill_workers` and `decode_workers` (at least 1 each) and not `workers`",
        ),
    }
}

pub(crate) fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let digits = |part: &str, length: usize| part.len() == length && part.bytes().all(|b| b.is_ascii_digit());
    matches!(parts[..], [year, month, day] if digits(year, 4) && digits(month, 2) && digits(day, 2))
}
