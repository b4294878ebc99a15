//! The worlds: how sixty pairs come about, with a median ratio that is known exactly.

use paired_stats::{Arm, Pair, PairedSample, Schedule};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use sha2::{Digest as _, Sha256};
use statrs::distribution::{ContinuousCDF as _, Normal};

/// The true median ratios.
pub(crate) const RATIOS: [f64; 4] = [1.00, 1.02, 1.05, 1.08];
/// The standard deviation of the log ratio where a world has one.
const SD: f64 = 0.04;
const PAIRS: usize = 60;

/// What disturbs the pairs of a world.
#[derive(Clone, Copy)]
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
#[derive(Clone, Copy, PartialEq)]
enum Where {
    BothArms,
    Ratio,
}

/// A world and whether the targets speak of it.
pub(crate) struct World {
    pub(crate) name: &'static str,
    pub(crate) in_target: bool,
    kind: Kind,
}

const fn world(name: &'static str, kind: Kind) -> World {
    World { name, in_target: true, kind }
}

const fn beyond(name: &'static str, kind: Kind) -> World {
    World { name, in_target: false, kind }
}

/// All worlds. Those beyond the target are harder than it asks for and printed all the same.
pub(crate) const WORLDS: [World; 29] = [
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
    beyond("second slower", Kind::SecondSlower),
    beyond("slow 15 %", Kind::SlowShare(0.15)),
    beyond("slow 30 %", Kind::SlowShare(0.3)),
    beyond("slow 50 %", Kind::SlowShare(0.5)),
    beyond("regimes", Kind::Regimes),
];

/// The disturbance of one campaign: its median log ratio is 0.
pub(crate) struct Noise {
    schedule: Schedule,
    log_ratio: Vec<f64>,
    /// Per run, in time order: both arms alike.
    common: Vec<f64>,
}

impl Noise {
    /// The pairs of this campaign when the true median ratio is `ratio`, in milliseconds around 10,000.
    pub(crate) fn at(&self, ratio: f64) -> PairedSample {
        let pair = |(index, &first): (usize, &Arm)| {
            let place = |arm: Arm| 2 * index + usize::from(arm != first);
            let baseline = 10_000.0 * self.common[place(Arm::Baseline)].exp();
            let candidate =
                10_000.0 * (self.common[place(Arm::Candidate)] + self.log_ratio[index]).exp() * ratio;
            Pair { pair: u32::try_from(index).expect("sixty pairs"), first: Some(first), baseline, candidate }
        };
        let pairs = self.schedule.first.iter().enumerate().map(pair).collect();
        let elapsed = (0..PAIRS).map(|index| index as f64 * 20.0).collect();
        let sample =
            PairedSample::new("simulated_ms", pairs).and_then(|sample| sample.with_elapsed_s(elapsed));
        sample.expect("simulated times are positive")
    }
}

struct Draws(ChaCha20Rng);

impl Draws {
    fn uniform(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        // Box and Muller 1958.
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }

    fn normals(&mut self, sd: f64) -> Vec<f64> {
        (0..PAIRS).map(|_| sd * self.normal()).collect()
    }

    fn autoregression(&mut self, phi: f64) -> Vec<f64> {
        let mut last = self.normal();
        let fresh = (1.0 - phi * phi).sqrt();
        let mut next = || {
            let following = phi * last + fresh * self.normal();
            std::mem::replace(&mut last, following)
        };
        (0..PAIRS).map(|_| next()).collect()
    }
}

impl World {
    pub(crate) fn noise(&self, seeds: &str, campaign: u32) -> Noise {
        let key = Sha256::digest(format!("{seeds}/{}/{campaign}", self.name));
        let mut draws = Draws(ChaCha20Rng::from_seed(key.into()));
        let schedule = Schedule::generate(draws.0.next_u64(), 60, 5);
        // Both members of a pair share most of what disturbs them.
        let shared = draws.normals(0.02);
        let common = (0..2 * PAIRS).map(|run| shared[run / 2]).collect();
        let mut noise = Noise { schedule, log_ratio: Vec::new(), common };
        self.disturb(&mut noise, &mut draws);
        noise
    }

    fn disturb(&self, noise: &mut Noise, draws: &mut Draws) {
        noise.log_ratio = match self.kind {
            Kind::Heavy => (0..PAIRS).map(|_| student_2(draws.uniform()) * 0.7 * SD).collect(),
            Kind::Skewed(sign) => {
                (0..PAIRS).map(|_| sign * SD * (-draws.uniform().ln() - std::f64::consts::LN_2)).collect()
            }
            Kind::Bimodal => {
                let level = |draws: &mut Draws| if draws.uniform() < 0.5 { -SD } else { SD };
                (0..PAIRS).map(|_| level(draws) + 0.01 * draws.normal()).collect()
            }
            Kind::Autoregressive(phi) => draws.autoregression(phi).iter().map(|value| SD * value).collect(),
            Kind::SlowShare(share) => {
                let slow = draws.autoregression(0.9);
                let mix = |slow: &f64| SD * (slow * share.sqrt() + draws.normal() * (1.0 - share).sqrt());
                slow.iter().map(mix).collect()
            }
            Kind::Regimes => {
                let mut level = if draws.uniform() < 0.5 { -0.02 } else { 0.02 };
                let mut next = |draws: &mut Draws| {
                    level = if draws.uniform() < 0.9 { level } else { -level };
                    level + 0.035 * draws.normal()
                };
                (0..PAIRS).map(|_| next(draws)).collect()
            }
            _ => draws.normals(SD),
        };
        match self.kind {
            Kind::Drift(place) => noise.add(place, |share| 0.05 * (share - 0.5)),
            Kind::Step(place) => {
                let at = (draws.uniform() * 0.8 + 0.1) * PAIRS as f64;
                let share_below = at.ceil() / PAIRS as f64;
                let median = if place == Where::Ratio { step_median(share_below) } else { 0.0 };
                noise.add(place, |share| if share * (PAIRS as f64) < at { -0.025 } else { 0.025 } - median);
            }
            Kind::Periodic(place, period) => {
                let phase = draws.uniform() * std::f64::consts::TAU;
                let turns = 2.0 * PAIRS as f64 / period;
                let wave = move |share: f64| 0.025 * (std::f64::consts::TAU * turns * share + phase).sin();
                let median = if place == Where::Ratio { wave_median(&wave) } else { 0.0 };
                noise.add(place, |share| wave(share) - median);
            }
            Kind::SecondSlower => noise.common.iter_mut().skip(1).step_by(2).for_each(|log| *log += 0.02),
            _ => {}
        }
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
fn step_median(share_below: f64) -> f64 {
    median_of(|at| share_below * normal_below(at + 0.025) + (1.0 - share_below) * normal_below(at - 0.025))
}

/// The median over the run of a ratio that moves with a wave.
fn wave_median(wave: &impl Fn(f64) -> f64) -> f64 {
    let share = |index: usize| index as f64 / PAIRS as f64;
    median_of(|at| (0..PAIRS).map(|index| normal_below(at - wave(share(index)))).sum::<f64>() / PAIRS as f64)
}

fn normal_below(deviation: f64) -> f64 {
    Normal::standard().cdf(deviation / SD)
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
