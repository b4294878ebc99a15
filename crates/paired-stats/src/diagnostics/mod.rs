//! Does the order in which the pairs ran show in their ratios?
//!
//! The bounds hold for exchangeable pairs. Every test here asks for one way of not being that, on ranks or
//! normal scores of the log ratios, with a p-value that is exact or comes from seeded permutations.

mod definition;
mod exact;
mod permutation;
mod scores;

use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

pub use self::definition::{DefinitionError, DiagnosticsDefinition, MAX_PERMUTATIONS, TestWeights};
use self::permutation::Statistic;
pub(crate) use self::scores::{Scores, autocorrelation, centred};
use crate::sample::PairedSample;
use crate::schedule::Arm;

/// The name of one test, written in files as `order_trend` or `telemetry:temperature_c`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
#[non_exhaustive]
pub enum TestName {
    /// Autocorrelation at several lags (weighted portmanteau).
    SerialCorrelation,
    /// Kendall's rank trend against the order of the pairs.
    OrderTrend,
    /// Trend against the time at which each pair began.
    ElapsedTrend,
    /// Baseline-first pairs against candidate-first pairs.
    ArmOrder,
    /// One change of level at an unknown pair.
    ChangePoint,
    /// Trend against the telemetry series of this name.
    Telemetry(String),
}

impl TestName {
    /// The tests that need no telemetry.
    pub(crate) const BUILT_IN: [Self; 5] =
        [Self::SerialCorrelation, Self::OrderTrend, Self::ElapsedTrend, Self::ArmOrder, Self::ChangePoint];

    /// Whether a breach can be answered by a dependence-aware bound: it speaks of time only.
    pub(crate) fn is_about_time(&self) -> bool {
        !matches!(self, Self::ArmOrder | Self::Telemetry(_))
    }
}

impl std::fmt::Display for TestName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::SerialCorrelation => f.write_str("serial_correlation"),
            Self::OrderTrend => f.write_str("order_trend"),
            Self::ElapsedTrend => f.write_str("elapsed_trend"),
            Self::ArmOrder => f.write_str("arm_order"),
            Self::ChangePoint => f.write_str("change_point"),
            Self::Telemetry(series) => write!(f, "telemetry:{series}"),
        }
    }
}

impl From<TestName> for String {
    fn from(test: TestName) -> Self {
        test.to_string()
    }
}

impl TryFrom<String> for TestName {
    type Error = UnknownTest;

    fn try_from(name: String) -> Result<Self, UnknownTest> {
        if let Some(series) = name.strip_prefix("telemetry:") {
            return Ok(Self::Telemetry(series.to_owned()));
        }
        Self::BUILT_IN.into_iter().find(|test| test.to_string() == name).ok_or(UnknownTest { name })
    }
}

/// A name that no test has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("find a test named {name:?}")]
pub struct UnknownTest {
    /// The name.
    pub name: String,
}

/// How a p-value was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Calculation {
    /// By counting every order.
    Exact,
    /// By the given number of seeded random orders.
    Permutations(u32),
}

/// Why a predeclared test has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NotApplied {
    /// The sample does not have what the test looks at.
    NotRecorded,
    /// The ratios, or what they are held against, are all equal.
    Constant,
    /// There are fewer pairs than the test needs.
    TooFewPairs,
}

/// What a test found.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "outcome")]
#[non_exhaustive]
pub enum TestOutcome {
    /// Nothing that chance would not explain.
    Held(TestValue),
    /// More than the threshold allows.
    Breached(TestValue),
    /// Nothing could be said.
    NotApplied {
        /// Why.
        why: NotApplied,
    },
}

/// A statistic and the chance of one as large.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TestValue {
    /// The statistic; what it is depends on the test.
    pub statistic: f64,
    /// The chance of a statistic at least as far out when the pairs are exchangeable.
    pub p_value: f64,
    /// How the p-value was found.
    pub calculation: Calculation,
}

/// One predeclared test, its threshold and what it found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TestResult {
    /// Which test.
    pub test: TestName,
    /// It is breached at a p-value at or below this: its share of the false-alarm rate.
    pub threshold: f64,
    /// What it found.
    #[serde(flatten)]
    pub outcome: TestOutcome,
}

impl TestResult {
    /// Whether the test was breached.
    #[must_use]
    pub fn is_breached(&self) -> bool {
        matches!(self.outcome, TestOutcome::Breached(_))
    }
}

/// The autocorrelation of the log ratios at one lag, for readers; the portmanteau test weighs all of them
/// together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LagAutocorrelation {
    /// How many pairs apart.
    pub lag: u32,
    /// Of the log ratios themselves.
    pub log_ratios: f64,
    /// Of their normal scores, which is what the test looks at.
    pub normal_scores: f64,
}

/// Everything that the diagnostics of one row found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
#[must_use]
pub struct Diagnostics {
    /// The chance that an undisturbed campaign raises any alarm, as declared.
    pub campaign_false_alarm_rate: f64,
    /// This row's share of it.
    pub row_false_alarm_rate: f64,
    /// Every predeclared test.
    pub tests: Vec<TestResult>,
    /// The autocorrelations that the portmanteau test weighs.
    pub autocorrelations: Vec<LagAutocorrelation>,
    /// The pair at which a new level would begin, were there one (for readers; the test says whether there
    /// is).
    pub likeliest_change_at_pair: Option<u32>,
}

impl Diagnostics {
    /// The tests that were breached.
    pub fn breaches(&self) -> impl Iterator<Item = &TestResult> {
        self.tests.iter().filter(|result| result.is_breached())
    }
}

/// A checked definition with the null distributions that it has needed so far.
pub(crate) struct Examiner {
    definition: DiagnosticsDefinition,
    known: Mutex<Vec<Known>>,
}

/// A null distribution of untied values, which depends on nothing but their count and what is computed.
struct Known {
    count: usize,
    law: Law,
    numbers: Arc<[f64]>,
}

/// What a null distribution is of.
#[derive(Clone, PartialEq)]
enum Law {
    /// Sorted values of a statistic over random orders.
    Permuted(Statistic),
    /// Tail probabilities of Kendall's sum.
    Kendall,
    /// Tail probabilities of the rank sum of so many values.
    RankSum { first: usize },
}

/// Null distributions kept for other samples of the same shape; a campaign has one shape, a calibration a
/// few. The oldest makes room.
const KNOWN_AT_MOST: usize = 16;

impl Examiner {
    pub(crate) fn new(definition: DiagnosticsDefinition) -> Result<Self, DefinitionError> {
        definition.check()?;
        Ok(Self { definition, known: Mutex::new(Vec::new()) })
    }

    /// Applies every predeclared test.
    pub(crate) fn examine(&self, sample: &PairedSample) -> Diagnostics {
        let log_ratios = sample.log_ratios();
        let scores = Scores::of(&log_ratios);
        let result = |(test, threshold): (TestName, f64)| {
            let outcome = match self.apply(&test, sample, &scores) {
                Ok(value) if value.p_value <= threshold => TestOutcome::Breached(value),
                Ok(value) => TestOutcome::Held(value),
                Err(why) => TestOutcome::NotApplied { why },
            };
            TestResult { test, threshold, outcome }
        };
        Diagnostics {
            campaign_false_alarm_rate: self.definition.campaign_false_alarm_rate.get(),
            row_false_alarm_rate: self.definition.row_false_alarm_rate(),
            tests: self.definition.thresholds().into_iter().map(result).collect(),
            autocorrelations: self.autocorrelations(&log_ratios, &scores),
            likeliest_change_at_pair: likeliest_change(sample, &scores),
        }
    }

    fn autocorrelations(&self, log_ratios: &[f64], scores: &Scores) -> Vec<LagAutocorrelation> {
        let log_ratios = centred(log_ratios);
        let lags = (1..=self.definition.lags).take_while(|&lag| (lag as usize) < log_ratios.len());
        lags.map(|lag| LagAutocorrelation {
            lag,
            log_ratios: autocorrelation(&log_ratios, lag as usize),
            normal_scores: autocorrelation(&scores.normal, lag as usize),
        })
        .collect()
    }

    fn apply(
        &self,
        test: &TestName,
        sample: &PairedSample,
        scores: &Scores,
    ) -> Result<TestValue, NotApplied> {
        let lags = self.definition.lags as usize;
        if sample.count() < lags.max(4) + 2 {
            return Err(NotApplied::TooFewPairs);
        }
        if scores.ranks.iter().all(|rank| rank.total_cmp(&scores.ranks[0]).is_eq()) {
            return Err(NotApplied::Constant);
        }
        match test {
            TestName::SerialCorrelation => Ok(self.permuted(&Statistic::Portmanteau { lags }, scores)),
            TestName::OrderTrend => Ok(self.order_trend(scores)),
            TestName::ElapsedTrend => self.trend(sample.elapsed_s(), scores),
            TestName::ArmOrder => self.arm_order(sample, scores),
            TestName::ChangePoint => Ok(self.permuted(&Statistic::ChangePoint, scores)),
            TestName::Telemetry(name) => {
                self.trend(sample.series(name).map(|series| &*series.values), scores)
            }
        }
    }

    fn order_trend(&self, scores: &Scores) -> TestValue {
        let count = scores.ranks.len();
        if scores.tied {
            let order: Vec<f64> = (0..count).map(|index| index as f64).collect();
            return self
                .permuted(&Statistic::trend(&order).expect("an order of several pairs varies"), scores);
        }
        let s = kendall_s(&scores.ranks);
        let tails = self.known(count, &Law::Kendall, || exact::kendall_tails(count));
        let distance =
            usize::try_from(s.unsigned_abs()).expect("there are fewer pairs than a usize can count");
        TestValue { statistic: s as f64, p_value: tails[distance].min(1.0), calculation: Calculation::Exact }
    }

    fn trend(&self, covariate: Option<&[f64]>, scores: &Scores) -> Result<TestValue, NotApplied> {
        let covariate = covariate.ok_or(NotApplied::NotRecorded)?;
        let statistic = Statistic::trend(covariate).ok_or(NotApplied::Constant)?;
        Ok(self.permuted(&statistic, scores))
    }

    fn arm_order(&self, sample: &PairedSample, scores: &Scores) -> Result<TestValue, NotApplied> {
        let first: Option<Vec<Arm>> = sample.pairs().iter().map(|pair| pair.first).collect();
        let first = first.ok_or(NotApplied::NotRecorded)?;
        let marks: Vec<bool> = first.iter().map(|&arm| arm == Arm::Baseline).collect();
        let marked = marks.iter().filter(|&&mark| mark).count();
        if marked == 0 || marked == marks.len() {
            return Err(NotApplied::Constant);
        }
        let (first, second) = (marked, marks.len() - marked);
        let Some(tails) = self.rank_sum_tails(first, second, scores) else {
            return Ok(self.permuted(&Statistic::Marked { marks }, scores));
        };
        let sum: f64 = scores.ranks.iter().zip(&marks).filter(|&(_, &mark)| mark).map(|(rank, _)| rank).sum();
        let from_mean = sum - first as f64 * (marks.len() + 1) as f64 / 2.0;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "untied ranks have whole sums"
        )]
        let distance = (2.0 * from_mean.abs()).round() as usize;
        Ok(TestValue {
            statistic: from_mean,
            p_value: tails[distance].min(1.0),
            calculation: Calculation::Exact,
        })
    }

    fn rank_sum_tails(&self, first: usize, second: usize, scores: &Scores) -> Option<Arc<[f64]>> {
        if scores.tied {
            return None;
        }
        let law = Law::RankSum { first };
        // An empty table says that there is no exact one.
        let tails =
            self.known(first + second, &law, || exact::rank_sum_tails(first, second).unwrap_or_default());
        (!tails.is_empty()).then_some(tails)
    }

    fn permuted(&self, statistic: &Statistic, scores: &Scores) -> TestValue {
        let value = statistic.value(&scores.normal);
        let null = self.null(statistic, scores);
        let calculation = Calculation::Permutations(self.definition.permutations);
        TestValue { statistic: value, p_value: permutation::p_value(&null, value), calculation }
    }

    fn null(&self, statistic: &Statistic, scores: &Scores) -> Arc<[f64]> {
        let compute = || statistic.null(&scores.normal, self.definition.permutations, self.definition.seed);
        if scores.tied {
            return compute().into();
        }
        self.known(scores.normal.len(), &Law::Permuted(statistic.clone()), compute)
    }

    fn known(&self, count: usize, law: &Law, compute: impl FnOnce() -> Vec<f64>) -> Arc<[f64]> {
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().iter().find(|known| known.count == count && known.law == *law) {
            return known.numbers.clone();
        }
        let numbers: Arc<[f64]> = compute().into();
        let mut known = lock();
        if known.len() == KNOWN_AT_MOST {
            known.remove(0);
        }
        known.push(Known { count, law: law.clone(), numbers: numbers.clone() });
        numbers
    }
}

/// Concordant less discordant pairs of values in their order.
fn kendall_s(ranks: &[f64]) -> i64 {
    let sign = |before: f64, after: f64| if after > before { 1 } else { -i64::from(after < before) };
    let later = |at: usize| ranks[at + 1..].iter().map(move |&after| sign(ranks[at], after));
    (0..ranks.len()).flat_map(later).sum()
}

fn likeliest_change(sample: &PairedSample, scores: &Scores) -> Option<u32> {
    let (after, distance) = permutation::change_point(&scores.normal);
    if distance > 0.0 { sample.pairs().get(after).map(|pair| pair.pair) } else { None }
}

#[cfg(test)]
mod tests;
