//! Pairs joined by identity, checked once, never extended.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::schedule::{Arm, Schedule};

/// One value of one arm, with the pair that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Measurement {
    /// The identity of the pair: its place in the schedule, counted from 0.
    pub pair: u32,
    /// What was measured, in the unit of the metric.
    pub value: f64,
}

/// Both values of one pair.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Pair {
    /// The identity of the pair: its place in the schedule, counted from 0.
    pub pair: u32,
    /// The arm that ran first, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<Arm>,
    /// The baseline's value, in the unit of the metric.
    pub baseline: f64,
    /// The candidate's value, in the unit of the metric.
    pub candidate: f64,
}

/// One reading per pair of something that may explain a ratio, such as a temperature. The unit is part of the
/// name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// For example `temperature_c` or `steal_difference_ms`.
    pub name: String,
    /// One reading per pair, in pair order.
    pub values: Vec<f64>,
}

/// A sealed set of pairs: every value can be part of a ratio, every identity occurs once, and nothing can be
/// added.
///
/// The pairs are kept in the order of their identities, which is the order in which they ran. A set with more
/// pairs is a different set: it has another [digest](PairedSample::digest), and a gate that declared the
/// smaller count refuses it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "Unchecked", into = "Unchecked")]
#[must_use]
pub struct PairedSample {
    metric: String,
    pairs: Vec<Pair>,
    elapsed_s: Option<Vec<f64>>,
    telemetry: Vec<Series>,
}

/// What a file says, before it is checked.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Unchecked {
    metric: String,
    pairs: Vec<Pair>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    elapsed_s: Option<Vec<f64>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    telemetry: Vec<Series>,
}

impl TryFrom<Unchecked> for PairedSample {
    type Error = SampleError;

    fn try_from(read: Unchecked) -> Result<Self, SampleError> {
        let mut sample = Self::new(read.metric, read.pairs)?;
        if let Some(elapsed_s) = read.elapsed_s {
            sample = sample.with_elapsed_s(elapsed_s)?;
        }
        read.telemetry.into_iter().try_fold(sample, Self::with_telemetry)
    }
}

impl From<PairedSample> for Unchecked {
    fn from(sample: PairedSample) -> Self {
        let PairedSample { metric, pairs, elapsed_s, telemetry } = sample;
        Self { metric, pairs, elapsed_s, telemetry }
    }
}

impl PairedSample {
    /// Checks and sorts the pairs of one metric (its name carries the unit, as in `replay_execution_ms`).
    ///
    /// # Errors
    /// [`SampleError`] names the first pair that occurs twice or whose values cannot be a ratio: not a
    /// number, infinite, zero or negative, or so far apart that the quotient leaves the range of a double.
    pub fn new(metric: impl Into<String>, mut pairs: Vec<Pair>) -> Result<Self, SampleError> {
        pairs.sort_by_key(|pair| pair.pair);
        if let Some(twice) = pairs.windows(2).find(|two| two[0].pair == two[1].pair) {
            return Err(SampleError::Repeated { pair: twice[0].pair });
        }
        pairs.iter().try_for_each(check_ratio)?;
        Ok(Self { metric: metric.into(), pairs, elapsed_s: None, telemetry: Vec::new() })
    }

    /// Joins the values of two arms by the identity of their pair; the order of either list does not matter.
    ///
    /// # Errors
    /// As [`new`](Self::new), and when a pair lacks one of its members or is not in the schedule.
    pub fn join(
        metric: impl Into<String>,
        schedule: &Schedule,
        baseline: &[Measurement],
        candidate: &[Measurement],
    ) -> Result<Self, SampleError> {
        let mut candidates = by_identity(candidate)?;
        let mut pairs = Vec::with_capacity(baseline.len());
        for (pair, value) in by_identity(baseline)? {
            let partner = candidates.remove(&pair);
            let candidate = partner.ok_or(SampleError::Alone { pair, missing: Arm::Candidate })?;
            let first = schedule.first.get(pair as usize).copied();
            let first = Some(first.ok_or(SampleError::NotScheduled { pair, pairs: schedule.pairs })?);
            pairs.push(Pair { pair, first, baseline: value, candidate });
        }
        match candidates.into_keys().next() {
            Some(pair) => Err(SampleError::Alone { pair, missing: Arm::Baseline }),
            None => Self::new(metric, pairs),
        }
    }

    /// Adds when each pair began, in seconds from any fixed moment, in pair order.
    ///
    /// # Errors
    /// [`SampleError`] when there is not exactly one finite time per pair.
    pub fn with_elapsed_s(mut self, elapsed_s: Vec<f64>) -> Result<Self, SampleError> {
        self.check_series("elapsed_s", &elapsed_s)?;
        self.elapsed_s = Some(elapsed_s);
        Ok(self)
    }

    /// Adds one series of telemetry.
    ///
    /// # Errors
    /// [`SampleError`] when there is not exactly one finite reading per pair, or the name is taken.
    pub fn with_telemetry(mut self, series: Series) -> Result<Self, SampleError> {
        self.check_series(&series.name, &series.values)?;
        if self.telemetry.iter().any(|other| other.name == series.name) {
            return Err(SampleError::SeriesRepeated { name: series.name });
        }
        self.telemetry.push(series);
        Ok(self)
    }

    fn check_series(&self, name: &str, values: &[f64]) -> Result<(), SampleError> {
        let name = || name.to_owned();
        if values.len() != self.pairs.len() {
            let (found, pairs) = (values.len(), self.pairs.len());
            return Err(SampleError::SeriesLength { name: name(), found, pairs });
        }
        match self.pairs.iter().zip(values).find(|(_, value)| !value.is_finite()) {
            Some((pair, &value)) => Err(SampleError::SeriesValue { name: name(), pair: pair.pair, value }),
            None => Ok(()),
        }
    }

    /// The name of the metric, with its unit.
    #[must_use]
    pub fn metric(&self) -> &str {
        &self.metric
    }

    /// The pairs, in the order in which they ran.
    #[must_use]
    pub fn pairs(&self) -> &[Pair] {
        &self.pairs
    }

    /// How many pairs there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.pairs.len()
    }

    /// When each pair began, where that is known.
    #[must_use]
    pub fn elapsed_s(&self) -> Option<&[f64]> {
        self.elapsed_s.as_deref()
    }

    /// The telemetry that came with the pairs.
    #[must_use]
    pub fn telemetry(&self) -> &[Series] {
        &self.telemetry
    }

    /// The series of this name.
    #[must_use]
    pub fn series(&self, name: &str) -> Option<&Series> {
        self.telemetry.iter().find(|series| series.name == name)
    }

    /// Candidate divided by baseline, whichever ran first, in pair order.
    #[must_use]
    pub fn ratios(&self) -> Vec<f64> {
        self.pairs.iter().map(|pair| pair.candidate / pair.baseline).collect()
    }

    /// The natural logarithms of the ratios, in pair order.
    #[must_use]
    pub fn log_ratios(&self) -> Vec<f64> {
        self.pairs.iter().map(|pair| (pair.candidate / pair.baseline).ln()).collect()
    }

    /// The same pairs with the arms exchanged, for asking the mirrored question.
    pub fn swapped(&self) -> Self {
        let swap = |pair: &Pair| Pair {
            pair: pair.pair,
            first: pair.first.map(Arm::other),
            baseline: pair.candidate,
            candidate: pair.baseline,
        };
        Self { pairs: self.pairs.iter().map(swap).collect(), ..self.clone() }
    }

    /// The SHA-256 of everything above as text: the line `paired-sample 1`, the metric, then one line per
    /// pair (`pair`, `first` or `-`, `baseline`, `candidate`, then elapsed time and telemetry where present,
    /// separated by tabs, numbers in their shortest exact form) after a line that names the columns.
    pub fn digest(&self) -> SampleDigest {
        let mut text = format!("paired-sample 1\n{:?}\npair\tfirst\tbaseline\tcandidate", self.metric);
        let columns: Vec<(&str, &[f64])> = self.columns();
        for (name, _) in &columns {
            let _infallible = write!(text, "\t{name:?}");
        }
        for (row, pair) in self.pairs.iter().enumerate() {
            let first = pair.first.map_or("-", Arm::name);
            let _infallible =
                write!(text, "\n{}\t{first}\t{:?}\t{:?}", pair.pair, pair.baseline, pair.candidate);
            for (_, values) in &columns {
                let _infallible = write!(text, "\t{:?}", values[row]);
            }
        }
        text.push('\n');
        SampleDigest(Sha256::digest(text).into())
    }

    fn columns(&self) -> Vec<(&str, &[f64])> {
        let elapsed = self.elapsed_s.as_deref().map(|values| ("elapsed_s", values));
        let telemetry = self.telemetry.iter().map(|series| (series.name.as_str(), series.values.as_slice()));
        elapsed.into_iter().chain(telemetry).collect()
    }
}

fn by_identity(values: &[Measurement]) -> Result<BTreeMap<u32, f64>, SampleError> {
    let mut map = BTreeMap::new();
    for &Measurement { pair, value } in values {
        if map.insert(pair, value).is_some() {
            return Err(SampleError::Repeated { pair });
        }
    }
    Ok(map)
}

fn check_ratio(pair: &Pair) -> Result<(), SampleError> {
    for (arm, value) in [(Arm::Baseline, pair.baseline), (Arm::Candidate, pair.candidate)] {
        if !(value.is_finite() && value > 0.0) {
            return Err(SampleError::NoRatio { pair: pair.pair, arm, value });
        }
    }
    let ratio = pair.candidate / pair.baseline;
    if ratio.is_finite() && ratio > 0.0 {
        Ok(())
    } else {
        Err(SampleError::RatioOutOfRange { pair: pair.pair, ratio })
    }
}

/// The SHA-256 that names a sealed set of pairs, written as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
#[must_use]
pub struct SampleDigest([u8; 32]);

impl SampleDigest {
    /// The bytes of the digest.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl std::fmt::Display for SampleDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for SampleDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SampleDigest({self})")
    }
}

impl From<SampleDigest> for String {
    fn from(digest: SampleDigest) -> Self {
        digest.to_string()
    }
}

impl TryFrom<String> for SampleDigest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Self, DigestError> {
        text.parse()
    }
}

impl FromStr for SampleDigest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let fail = || DigestError { text: text.to_owned() };
        let lower_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 64 || !text.bytes().all(lower_hex) {
            return Err(fail());
        }
        let mut bytes = [0; 32];
        for (byte, at) in bytes.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| fail())?;
        }
        Ok(Self(bytes))
    }
}

/// A text that is not a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("read {text:?} as 64 lower-case hexadecimal digits")]
pub struct DigestError {
    /// The text.
    pub text: String,
}

/// Why values cannot be a set of pairs.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SampleError {
    /// A pair occurs twice.
    #[error("join pair {pair}, which occurs more than once")]
    Repeated {
        /// Its identity.
        pair: u32,
    },
    /// A pair has one member only.
    #[error("join pair {pair}, whose {missing} is missing")]
    Alone {
        /// Its identity.
        pair: u32,
        /// The arm without a value.
        missing: Arm,
    },
    /// A pair lies beyond the end of the schedule.
    #[error("join pair {pair}, which a schedule of {pairs} pairs does not contain")]
    NotScheduled {
        /// Its identity.
        pair: u32,
        /// How many pairs the schedule has.
        pairs: u32,
    },
    /// A value is not a number, infinite, zero or negative.
    #[error("divide in pair {pair}: the {arm} is {value}, not a positive finite number")]
    NoRatio {
        /// The identity of the pair.
        pair: u32,
        /// The arm with the value.
        arm: Arm,
        /// The value.
        value: f64,
    },
    /// Both values are usable but their quotient is not.
    #[error("divide in pair {pair}: the ratio {ratio} is outside the range of a double")]
    RatioOutOfRange {
        /// The identity of the pair.
        pair: u32,
        /// Zero or infinity.
        ratio: f64,
    },
    /// A series does not have one reading per pair.
    #[error("attach the series {name:?}: it has {found} readings for {pairs} pairs")]
    SeriesLength {
        /// The name of the series.
        name: String,
        /// How many readings it has.
        found: usize,
        /// How many pairs there are.
        pairs: usize,
    },
    /// A reading is not a finite number.
    #[error("attach the series {name:?}: its reading for pair {pair} is {value}")]
    SeriesValue {
        /// The name of the series.
        name: String,
        /// The identity of the pair.
        pair: u32,
        /// The reading.
        value: f64,
    },
    /// A series of this name is already attached.
    #[error("attach the series {name:?} a second time")]
    SeriesRepeated {
        /// The name of the series.
        name: String,
    },
}

#[cfg(test)]
mod tests;
