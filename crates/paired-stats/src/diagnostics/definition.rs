//! What is looked for, how hard, and how often it may cry wolf: fixed before anything is measured.

use serde::{Deserialize, Serialize};

use super::TestName;
use crate::rank::Probability;

/// The dependence diagnostics of a campaign, predeclared.
///
/// The false-alarm rate is that of the whole campaign: the chance that a campaign whose pairs are
/// exchangeable has any row in which any test is breached. It is split evenly over the rows and by weight
/// over the tests of a row (Bonferroni: the sum of the shares bounds the whole, however the tests depend on
/// each other).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct DiagnosticsDefinition {
    /// The chance that an undisturbed campaign raises any alarm.
    pub campaign_false_alarm_rate: Probability,
    /// How many rows the campaign measures.
    pub rows: u32,
    /// How many lags the portmanteau test looks at.
    pub lags: u32,
    /// How many permutations stand for all of them where an exact distribution is not used.
    pub permutations: u32,
    /// The seed of the permutations.
    pub seed: u64,
    /// How a row's share of the false-alarm rate is split over its tests.
    pub weights: TestWeights,
    /// The telemetry series that are tested, by name. One that a host does not expose is reported as not
    /// applied; its share is not given to others.
    pub telemetry: Vec<String>,
    /// Whether pairs without a known order of their arms leave the row inconclusive. Without it neither
    /// balance nor the effect of order can be shown.
    pub require_arm_order: bool,
}

impl Default for DiagnosticsDefinition {
    fn default() -> Self {
        Self {
            campaign_false_alarm_rate: Probability::new(0.05).expect("0.05 is a probability"),
            rows: 4,
            lags: 8,
            permutations: 19_999,
            seed: 1,
            weights: TestWeights::default(),
            telemetry: Vec::new(),
            require_arm_order: true,
        }
    }
}

/// The most permutations: beyond them a judgement takes minutes and a p-value gains nothing.
pub const MAX_PERMUTATIONS: u32 = 1_000_000;

/// The share of each test relative to the others; 0 leaves a test out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct TestWeights {
    /// Autocorrelation at several lags (weighted portmanteau).
    pub serial_correlation: u32,
    /// Kendall's rank trend against the order of the pairs.
    pub order_trend: u32,
    /// Trend against the time at which each pair began.
    pub elapsed_trend: u32,
    /// Baseline-first pairs against candidate-first pairs (rank sum).
    pub arm_order: u32,
    /// One change of level at an unknown pair.
    pub change_point: u32,
    /// Trend against telemetry, for each series.
    pub telemetry: u32,
}

impl Default for TestWeights {
    fn default() -> Self {
        Self {
            serial_correlation: 4,
            order_trend: 1,
            elapsed_trend: 1,
            arm_order: 1,
            change_point: 1,
            telemetry: 1,
        }
    }
}

impl TestWeights {
    fn of(&self, test: &TestName) -> u32 {
        match test {
            TestName::SerialCorrelation => self.serial_correlation,
            TestName::OrderTrend => self.order_trend,
            TestName::ElapsedTrend => self.elapsed_trend,
            TestName::ArmOrder => self.arm_order,
            TestName::ChangePoint => self.change_point,
            TestName::Telemetry(_) => self.telemetry,
        }
    }
}

impl DiagnosticsDefinition {
    /// The chance that an undisturbed row raises any alarm.
    #[must_use]
    pub fn row_false_alarm_rate(&self) -> f64 {
        self.campaign_false_alarm_rate.get() / f64::from(self.rows)
    }

    /// Every test that has a share, with the p-value at or below which it is breached.
    #[must_use]
    pub fn thresholds(&self) -> Vec<(TestName, f64)> {
        let telemetry = self.telemetry.iter().cloned().map(TestName::Telemetry);
        let weighted: Vec<(TestName, u32)> = TestName::BUILT_IN
            .into_iter()
            .chain(telemetry)
            .map(|test| (test.clone(), self.weights.of(&test)))
            .filter(|&(_, weight)| weight > 0)
            .collect();
        let total: f64 = weighted.iter().map(|&(_, weight)| f64::from(weight)).sum();
        let share = |weight: u32| self.row_false_alarm_rate() * f64::from(weight) / total;
        weighted.into_iter().map(|(test, weight)| (test, share(weight))).collect()
    }

    /// Checks that every test can be breached at all.
    ///
    /// # Errors
    /// [`DefinitionError`] when there is no row, no lag, a series twice, or too few permutations for the smallest
    /// threshold or too many for anybody's patience.
    pub fn check(&self) -> Result<(), DefinitionError> {
        if self.rows == 0 {
            return Err(DefinitionError::NoRow);
        }
        if self.lags == 0 {
            return Err(DefinitionError::NoLag);
        }
        if self.permutations > MAX_PERMUTATIONS {
            return Err(DefinitionError::TooManyPermutations { permutations: self.permutations });
        }
        let mut names: Vec<&String> = self.telemetry.iter().collect();
        names.sort();
        if let Some(twice) = names.windows(2).find(|two| two[0] == two[1]) {
            return Err(DefinitionError::SeriesRepeated { name: twice[0].clone() });
        }
        let smallest = 1.0 / (f64::from(self.permutations) + 1.0);
        match self.thresholds().into_iter().find(|&(_, threshold)| threshold < 2.0 * smallest) {
            Some((test, threshold)) => {
                Err(DefinitionError::TooFewPermutations { test, threshold, permutations: self.permutations })
            }
            None => Ok(()),
        }
    }
}

/// Why a definition of diagnostics cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DefinitionError {
    /// The false-alarm rate cannot be split over no rows.
    #[error("split a false-alarm rate over 0 rows")]
    NoRow,
    /// A portmanteau test needs at least one lag.
    #[error("test autocorrelation at 0 lags")]
    NoLag,
    /// More than [`MAX_PERMUTATIONS`].
    #[error("use {permutations} permutations, more than {MAX_PERMUTATIONS}")]
    TooManyPermutations {
        /// The number that was given.
        permutations: u32,
    },
    /// A series of telemetry is declared twice, and would be tested twice.
    #[error("test the telemetry {name:?} twice")]
    SeriesRepeated {
        /// Its name.
        name: String,
    },
    /// The smallest p-value that this many permutations can give is not clearly below a threshold.
    #[error("reach the threshold {threshold} of the test {test} with {permutations} permutations")]
    TooFewPermutations {
        /// The test.
        test: TestName,
        /// Its threshold.
        threshold: f64,
        /// The number that was given.
        permutations: u32,
    },
}
