//! The footprint gate: growth of a binary that nobody explained.

use serde::{Deserialize, Serialize};

/// How large an artifact is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Footprint {
    /// The size of the file.
    pub file_bytes: u64,
    /// The size of its `.text` section.
    pub text_bytes: u64,
}

/// The definition of a footprint gate.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct FootprintGate {
    /// Growth up to and including this factor needs no explanation.
    pub limit_ratio: FootprintLimit,
    /// Why growth beyond it is accepted.
    pub explanation: Option<String>,
}

/// The largest growth that needs no explanation; 1.05 unless stated.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct FootprintLimit(pub f64);

impl Default for FootprintLimit {
    fn default() -> Self {
        Self(1.05)
    }
}

/// One size of both artifacts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Growth {
    /// Of the baseline.
    pub baseline_bytes: u64,
    /// Of the candidate.
    pub candidate_bytes: u64,
    /// Candidate divided by baseline; absent when the baseline is empty.
    pub ratio: Option<f64>,
    /// Whether it is above the limit.
    pub above_limit: bool,
}

/// What the footprint gate says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[must_use]
pub enum FootprintVerdict {
    /// Neither size grew beyond the limit.
    Pass,
    /// A size grew beyond the limit, and the definition explains it.
    Explained,
    /// A size grew beyond the limit, and nothing explains it.
    Fail,
}

/// A footprint verdict and what it rests on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
#[must_use]
pub struct FootprintJudgement {
    /// What the gate says.
    pub verdict: FootprintVerdict,
    /// The limit.
    pub limit_ratio: f64,
    /// The size of the files.
    pub file: Growth,
    /// The size of the `.text` sections.
    pub text: Growth,
    /// The explanation of the definition, if growth needed one.
    pub explanation: Option<String>,
}

impl FootprintGate {
    /// Compares two artifacts. An explanation of white space explains nothing.
    pub fn judge(&self, baseline: Footprint, candidate: Footprint) -> FootprintJudgement {
        let file = self.growth(baseline.file_bytes, candidate.file_bytes);
        let text = self.growth(baseline.text_bytes, candidate.text_bytes);
        let explanation = self.explanation.clone().filter(|words| !words.trim().is_empty());
        let verdict = match (file.above_limit || text.above_limit, &explanation) {
            (false, _) => FootprintVerdict::Pass,
            (true, Some(_)) => FootprintVerdict::Explained,
            (true, None) => FootprintVerdict::Fail,
        };
        let explanation = explanation.filter(|_| verdict == FootprintVerdict::Explained);
        FootprintJudgement { verdict, limit_ratio: self.limit_ratio.0, file, text, explanation }
    }

    fn growth(&self, baseline_bytes: u64, candidate_bytes: u64) -> Growth {
        let ratio = (baseline_bytes > 0).then(|| candidate_bytes as f64 / baseline_bytes as f64);
        let grew_from_nothing = baseline_bytes == 0 && candidate_bytes > 0;
        // A limit that is not a number is reached by nothing.
        let within = ratio.is_none_or(|ratio| ratio <= self.limit_ratio.0);
        Growth { baseline_bytes, candidate_bytes, ratio, above_limit: grew_from_nothing || !within }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_above_the_limit_fails_until_explained() {
        let check = |file_bytes, text_bytes, explanation: Option<&str>, expected| {
            let gate = FootprintGate { explanation: explanation.map(str::to_owned), ..Default::default() };
            let baseline = Footprint { file_bytes: 1000, text_bytes: 100 };
            assert_eq!(gate.judge(baseline, Footprint { file_bytes, text_bytes }).verdict, expected);
        };
        check(1050, 105, None, FootprintVerdict::Pass);
        check(900, 90, Some("unused"), FootprintVerdict::Pass);
        check(1051, 100, None, FootprintVerdict::Fail);
        check(1000, 106, None, FootprintVerdict::Fail);
        check(1640, 166, Some("a new backend"), FootprintVerdict::Explained);
        check(1640, 166, Some("  "), FootprintVerdict::Fail);
    }

    #[test]
    fn growth_from_nothing_is_growth() {
        let (empty, full) =
            (Footprint { file_bytes: 9, text_bytes: 0 }, Footprint { file_bytes: 9, text_bytes: 1 });
        assert_eq!(FootprintGate::default().judge(empty, full).verdict, FootprintVerdict::Fail);
        assert_eq!(FootprintGate::default().judge(empty, empty).verdict, FootprintVerdict::Pass);
    }
}
