//! Digests against SHA-256 alone and against the other implementations in Rust.

use std::time::Duration;

use canonical_json::{Rules, Sha256, digest};

use crate::Scale;
use crate::clock::shorten;
use crate::inputs::{KINDS, canonical, document, shuffled_pretty};
use crate::report::Report;

/// Small enough for many rounds, of which some are undisturbed, and far larger than the nearest caches.
const BYTES: usize = 2_000_000;
const ROUNDS: usize = 40;

/// What else makes canonical JSON of a text, and hashes it.
type Peer = (&'static str, fn(&[u8]) -> Sha256);

const PEERS: [Peer; 3] = [
    ("serde_jcs", |text| Sha256::of(&serde_jcs::to_vec(&parse(text)).expect("a value"))),
    ("json-canon", |text| Sha256::of(&json_canon::to_vec(&parse(text)).expect("a value"))),
    ("serde_json_canonicalizer", |text| {
        Sha256::of(&serde_json_canonicalizer::to_vec(&parse(text)).expect("a value"))
    }),
];

fn parse(text: &[u8]) -> serde_json::Value {
    serde_json::from_slice(text).expect("a document")
}

fn ours(text: &[u8]) -> Sha256 {
    digest(text, &Rules::default()).expect("a document").sha256
}

pub(crate) fn measure(report: &mut Report, scale: &Scale) {
    for (name, kind) in KINDS {
        let value = document(kind, BYTES / scale.divisor);
        let (canonical, pretty) = (canonical(&value), shuffled_pretty(&value));
        assert_eq!(ours(&canonical), Sha256::of(&canonical), "{name} is canonical");
        assert_eq!(ours(&pretty), Sha256::of(&canonical), "{name} is the same when shuffled");
        one_kind(report, scale, name, &canonical, &pretty);
    }
}

fn one_kind(report: &mut Report, scale: &Scale, name: &str, canonical: &[u8], pretty: &[u8]) {
    let times = Times::take(canonical, canonical, ROUNDS / scale.divisor + 1);
    compare(report, &format!("{name}, canonical"), canonical, &times, (" (aim 25)", 15.0));
    let alone = times.sha.as_secs_f64() / times.ours.as_secs_f64();
    report.at_least(&format!("{name}, canonical: of SHA-256 alone (aim 0.5)"), 0.33, alone, "");
    let times = Times::take(pretty, canonical, ROUNDS / scale.divisor + 1);
    compare(report, &format!("{name}, shuffled pretty"), pretty, &times, ("", 8.0));
}

/// Beside what was reached stands what nothing can exceed, as the digest has to be taken.
fn compare(report: &mut Report, name: &str, text: &[u8], times: &Times, (aim, target): (&str, f64)) {
    let (peer, best) = times.best_peer();
    report.note(name, &format!("{:.0} MB/s", rate(text, times.ours)));
    report.note(&format!("{name}: {peer}"), &format!("{:.0} MB/s", rate(text, best)));
    let limit = best.as_secs_f64() / times.sha.as_secs_f64();
    let limit = format!("limit {limit:.1}: SHA-256 alone");
    let what = format!("{name}: times the best peer{aim}");
    report.at_least(&what, target, best.as_secs_f64() / times.ours.as_secs_f64(), &limit);
}

fn rate(text: &[u8], time: Duration) -> f64 {
    text.len() as f64 / time.as_secs_f64() / 1e6
}

/// The shortest times on one text.
struct Times {
    ours: Duration,
    sha: Duration,
    peers: [Duration; PEERS.len()],
}

impl Times {
    /// Of digests of `text`, and of SHA-256 alone of its canonical form.
    fn take(text: &[u8], canonical: &[u8], rounds: usize) -> Self {
        let mut times =
            Times { ours: Duration::MAX, sha: Duration::MAX, peers: [Duration::MAX; PEERS.len()] };
        for round in 0..rounds {
            // Ours are short, so that more of them fit between two interruptions.
            for _ in 0..3 {
                shorten(&mut times.sha, || Sha256::of(canonical));
                shorten(&mut times.ours, || ours(text));
            }
            if round % 4 == 0 {
                for ((_, peer), time) in PEERS.iter().zip(&mut times.peers) {
                    shorten(time, || peer(text));
                }
            }
        }
        times
    }

    fn best_peer(&self) -> (&'static str, Duration) {
        let best = PEERS.iter().zip(self.peers).min_by_key(|(_, time)| *time);
        best.map(|((name, _), time)| (*name, time)).expect("there are peers")
    }
}
