//! Simulated campaigns whose truth is known: for calibrating a gate before it judges real ones.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use sha2::{Digest as _, Sha256};
use statrs::distribution::{ContinuousCDF as _, Normal};

use crate::sample::{Pair, PairedSample};
use crate::schedule::{Arm, Schedule};

/// What disturbs the pairs of a world.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Independent,
    /// Student's t with 2 degrees of freedom: no variance.
    Heavy,
    /// Exponential less its median, towards slow or fast candidates.
    Skewed(f64),
    /// Two equally likely levels.
    Bimodal,
    /// First-order autoregression of the log ratio.
    Autoregressive(f64),
    /// A slow autoregression (0.9) with this share of the variance, the rest independent.
    SlowShare(f64),
    /// Two levels that are kept with probability 0.9 from pair to pair.
    Regimes,
    /// 5 % over the run.
    Drift(Where),
    /// 5 % at a pair between a tenth and nine tenths of the run.
    Step(Where),
    /// A sine of 5 % with this period in runs.
    Periodic(Where, f64),
    /// The member that runs second takes 2 % longer.
    SecondSlower,
}

/// Whether a disturbance meets both arms alike or the ratio itself.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Where {
    BothArms,
    Ratio,
}

/// A way in which pairs come about.
#[derive(Debug, Clone, Copy)]
pub struct World {
    name: &'static str,
    usual: bool,
    kind: Kind,
}

const fn world(name: &'static str, kind: Kind) -> World {
    World { name, usual: true, kind }
}

const fn harder(name: &'static str, kind: Kind) -> World {
    World { name, usual: false, kind }
}

const ALL: [World; 29] = [
    world("independent", Kind::Independent),
    world("heavy-tailed", Kind::Heavy),
    world("skewed, slow tail", Kind::Skewed(1.0)),
    world("skewed, fast tail", Kind::Skewed(-1.0)),
    world("bimodal", Kind::Bimodal),
    world("AR 0.1", Kind::Autoregressive(0.1)),
    world("AR 0.2", Kind::Autoregressive(0.2)),
    world("AR 0.3", Kind::Autoregressive(0.3)),
    world("AR 0.4", Kind::Autoregressive(0.4)),
    world("AR 0.5", Kind::Autoregressive(0.5)),
    world("AR 0.6", Kind::Autoregressive(0.6)),
    world("AR 0.7", Kind::Autoregressive(0.7)),
    world("AR 0.8", Kind::Autoregressive(0.8)),
    world("AR 0.9", Kind::Autoregressive(0.9)),
    world("AR -0.4", Kind::Autoregressive(-0.4)),
    world("drift, both arms", Kind::Drift(Where::BothArms)),
    world("drift, ratio", Kind::Drift(Where::Ratio)),
    world("step, both arms", Kind::Step(Where::BothArms)),
    world("step, ratio", Kind::Step(Where::Ratio)),
    world("period 2, arms", Kind::Periodic(Where::BothArms, 2.0)),
    world("period 7, arms", Kind::Periodic(Where::BothArms, 7.0)),
    world("period 41, arms", Kind::Periodic(Where::BothArms, 41.0)),
    world("period 7, ratio", Kind::Periodic(Where::Ratio, 7.0)),
    world("period 41, ratio", Kind::Periodic(Where::Ratio, 41.0)),
    harder("second slower", Kind::SecondSlower),
    harder("slow 15 %", Kind::SlowShare(0.15)),
    harder("slow 30 %", Kind::SlowShare(0.3)),
    harder("slow 50 %", Kind::SlowShare(0.5)),
    harder("regimes", Kind::Regimes),
];

/// The disturbance of one campaign: its median log ratio is 0.
#[derive(Debug, Clone)]
pub struct Noise {
    schedule: Schedule,
    log_ratio: Vec<f64>,
    /// Per run, in time order: both arms alike.
    common: Vec<f64>,
}

impl Noise {
    /// The pairs of this campaign when the true median ratio is `ratio`, in milliseconds around 10,000.
    ///
    /// # Panics
    /// When `ratio` is not a positive finite number.
    pub fn at(&self, ratio: f64) -> PairedSample {
        let pair = |(index, &first): (usize, &Arm)| {
            let place = |arm: Arm| 2 * index + usize::from(arm != first);
            let baseline = 10_000.0 * self.common[place(Arm::Baseline)].exp();
            let candidate =
                10_000.0 * (self.common[place(Arm::Candidate)] + self.log_ratio[index]).exp() * ratio;
            let pair = u32::try_from(index).expect("a schedule has fewer than 2^32 pairs");
            Pair { pair, first: Some(first), baseline, candidate }
        };
        let pairs: Vec<Pair> = self.schedule.first.iter().enumerate().map(pair).collect();
        let elapsed = (0..pairs.len()).map(|index| index as f64 * 20.0).collect();
        let sample =
            PairedSample::new("simulated_ms", pairs).and_then(|sample| sample.with_elapsed_s(elapsed));
        sample.expect("simulated times are positive")
    }
}

struct Draws {
    random: ChaCha20Rng,
    pairs: usize,
    sd: f64,
}

impl Draws {
    fn uniform(&mut self) -> f64 {
        ((self.random.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        // Box and Muller 1958.
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }

    fn normals(&mut self, sd: f64) -> Vec<f64> {
        (0..self.pairs).map(|_| sd * self.normal()).collect()
    }

    fn autoregression(&mut self, phi: f64) -> Vec<f64> {
        let pairs = self.pairs;
        let mut last = self.normal();
        let fresh = (1.0 - phi * phi).sqrt();
        let mut next = || {
            let following = phi * last + fresh * self.normal();
            std::mem::replace(&mut last, following)
        };
        (0..pairs).map(|_| next()).collect()
    }
}

impl World {
    /// Every world.
    #[must_use]
    pub fn all() -> &'static [Self] {
        &ALL
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether a gate is expected to keep its error rates here. The others are harder and there to show what
    /// happens.
    #[must_use]
    pub fn is_usual(&self) -> bool {
        self.usual
    }

    /// The disturbance of one campaign of `pairs` pairs, whose log ratios have a standard deviation of about
    /// `sd` where the world has one. The same seeds and number give the same campaign.
    pub fn noise(&self, seeds: &str, campaign: u32, pairs: u32, sd: f64) -> Noise {
        let key = Sha256::digest(format!("{seeds}/{}/{campaign}", self.name));
        let mut draws = Draws { random: ChaCha20Rng::from_seed(key.into()), pairs: pairs as usize, sd };
        let schedule = Schedule::generate(draws.random.next_u64(), pairs, 5);
        // Both members of a pair share most of what disturbs them.
        let shared = draws.normals(0.02);
        let common = (0..2 * draws.pairs).map(|run| shared[run / 2]).collect();
        let mut noise = Noise { schedule, log_ratio: Vec::new(), common };
        self.disturb(&mut noise, &mut draws);
        noise
    }

    fn disturb(&self, noise: &mut Noise, draws: &mut Draws) {
        noise.log_ratio = draws.log_ratios(self.kind);
        match self.kind {
            Kind::Drift(place) => noise.add(place, |share| 0.05 * (share - 0.5)),
            Kind::Step(place) => draws.step(noise, place),
            Kind::Periodic(place, period) => draws.wave(noise, place, period),
            Kind::SecondSlower => noise.common.iter_mut().skip(1).step_by(2).for_each(|log| *log += 0.02),
            _ => {}
        }
    }
}

impl Draws {
    fn log_ratios(&mut self, kind: Kind) -> Vec<f64> {
        let (pairs, sd) = (self.pairs, self.sd);
        match kind {
            Kind::Heavy => (0..pairs).map(|_| student_2(self.uniform()) * 0.7 * sd).collect(),
            Kind::Skewed(sign) => {
                (0..pairs).map(|_| sign * sd * (-self.uniform().ln() - std::f64::consts::LN_2)).collect()
            }
            Kind::Bimodal => (0..pairs).map(|_| self.sign() * sd + sd / 4.0 * self.normal()).collect(),
            Kind::Autoregressive(phi) => self.autoregression(phi).iter().map(|value| sd * value).collect(),
            Kind::SlowShare(share) => {
                let slow = self.autoregression(0.9);
                let mix = |slow: &f64| sd * (slow * share.sqrt() + self.normal() * (1.0 - share).sqrt());
                slow.iter().map(mix).collect()
            }
            Kind::Regimes => {
                let mut level = self.sign() * sd / 2.0;
                let mut next = |_| {
                    level = if self.uniform() < 0.9 { level } else { -level };
                    level + 0.875 * sd * self.normal()
                };
                (0..pairs).map(&mut next).collect()
            }
            _ => self.normals(sd),
        }
    }

    fn sign(&mut self) -> f64 {
        if self.uniform() < 0.5 { -1.0 } else { 1.0 }
    }

    fn step(&mut self, noise: &mut Noise, place: Where) {
        let pairs = self.pairs as f64;
        let at = (self.uniform() * 0.8 + 0.1) * pairs;
        let share_below = at.ceil() / pairs;
        let median = if place == Where::Ratio { step_median(share_below, self.sd) } else { 0.0 };
        noise.add(place, |share| if share * pairs < at { -0.025 } else { 0.025 } - median);
    }

    fn wave(&mut self, noise: &mut Noise, place: Where, period: f64) {
        let phase = self.uniform() * std::f64::consts::TAU;
        let turns = 2.0 * self.pairs as f64 / period;
        let wave = move |share: f64| 0.025 * (std::f64::consts::TAU * turns * share + phase).sin();
        let median = if place == Where::Ratio { wave_median(&wave, self.pairs, self.sd) } else { 0.0 };
        noise.add(place, |share| wave(share) - median);
    }
}

impl Noise {
    /// Adds `at(share of the run)` to the log times of both arms, or to the log ratios.
    fn add(&mut self, place: Where, at: impl Fn(f64) -> f64) {
        let logs = if place == Where::Ratio { &mut self.log_ratio } else { &mut self.common };
        let count = logs.len() as f64;
        logs.iter_mut().enumerate().for_each(|(index, log)| *log += at(index as f64 / count));
    }
}

/// The quantile function of Student's t with 2 degrees of freedom.
fn student_2(p: f64) -> f64 {
    (2.0 * p - 1.0) / (2.0 * p * (1.0 - p)).sqrt()
}

/// The median of all pairs when this share of them has the lower level: the truth of a stepping ratio.
fn step_median(share_below: f64, sd: f64) -> f64 {
    let below = |at: f64| normal_below(at / sd);
    median_of(|at| share_below * below(at + 0.025) + (1.0 - share_below) * below(at - 0.025))
}

/// The median over the run of a ratio that moves with a wave.
fn wave_median(wave: &impl Fn(f64) -> f64, pairs: usize, sd: f64) -> f64 {
    let share = |index: usize| index as f64 / pairs as f64;
    let below = |at: f64, index: usize| normal_below((at - wave(share(index))) / sd);
    median_of(|at| (0..pairs).map(|index| below(at, index)).sum::<f64>() / pairs as f64)
}

fn normal_below(deviations: f64) -> f64 {
    Normal::standard().cdf(deviations)
}

/// Where an increasing distribution function reaches one half.
fn median_of(distribution: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (-0.1, 0.1);
    for _ in 0..40 {
        let middle = f64::midpoint(low, high);
        if distribution(middle) < 0.5 { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of pairs below the true median, over many campaigns, is one half in every world.
    #[test]
    fn the_true_median_is_the_true_median() {
        for world in World::all() {
            let below = |campaign| {
                let ratios = world.noise("test", campaign, 60, 0.04).at(1.05).ratios();
                ratios.iter().filter(|&&ratio| ratio < 1.05).count()
            };
            let share = (0..400).map(below).sum::<usize>() as f64 / (400.0 * 60.0);
            // Strong dependence leaves few independent values in 24,000.
            assert!((share - 0.5).abs() < 0.05, "{}: {share}", world.name());
        }
    }

    #[test]
    fn the_same_seeds_give_the_same_campaign() {
        let draw = |seeds: &str| World::all()[0].noise(seeds, 3, 10, 0.04).at(1.0).ratios();
        assert_eq!(draw("a"), draw("a"));
        assert_ne!(draw("a"), draw("b"));
    }
}
