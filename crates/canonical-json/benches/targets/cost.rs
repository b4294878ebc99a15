//! Whether twice as much input costs twice as much, also where the input is as bad as can be.

use std::fmt::Write;
use std::time::Duration;

use canonical_json::{DiffLimits, Rules, diff, digest, digest_file};

use crate::Scale;
use crate::clock::shorten;
use crate::inputs::{KINDS, Random, canonical, document, shuffled_pretty};
use crate::memory::write_repeated;
use crate::report::Report;

/// How much more a byte of a large input may cost than a byte of a small one.
const MAX_GROWTH: f64 = 2.0;
/// The same for inputs that must be sorted: sorting is not linear, and a large object is not in the cache.
const MAX_SORTING_GROWTH: f64 = 5.0;

pub(crate) fn measure(report: &mut Report, scale: &Scale) {
    sizes(report, scale);
    shapes(report, scale);
    comparisons(report, scale);
}

/// 1, 10, 100 and 1,000 MB of records, in files.
fn sizes(report: &mut Report, scale: &Scale) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("records.json");
    let (_, kind) = KINDS[0];
    let value = document(kind, 1_000_000);
    for (name, part) in [("canonical", canonical(&value)), ("shuffled pretty", shuffled_pretty(&value))] {
        let mut first = None;
        for megabytes in [1, 10, 100, 1_000] {
            let repeats = megabytes / scale.divisor;
            if repeats == 0 {
                continue;
            }
            write_repeated(&path, &part, repeats).expect("a file");
            let cost = shortest(if megabytes > 100 { 1 } else { 5 }, || {
                digest_file(&path, &Rules::default()).map(|_| ()).expect("a document");
            });
            let cost = cost / (part.len() * repeats) as f64;
            let small = *first.get_or_insert(cost);
            let what = format!("{name}, {megabytes} MB: cost of a byte, times that at 1 MB");
            report.at_most(&what, MAX_GROWTH, cost / small, &format!("{:.0} MB/s", 1e3 / cost));
        }
    }
}

type Shape = (&'static str, f64, fn(usize) -> String);

/// Each shape at a hundredth of its size and whole.
const SHAPES: [Shape; 7] = [
    ("an object of a million keys", MAX_SORTING_GROWTH, |count| keys(count, "")),
    ("a million keys with a long common prefix", MAX_SORTING_GROWTH, |count| {
        keys(count, &"common/".repeat(20))
    }),
    ("a million keys with escapes", MAX_SORTING_GROWTH, |count| keys(count, "\\n")),
    ("long keys that differ in an escape at their end", MAX_SORTING_GROWTH, |count| {
        let escape = |digit: u8| format!("\\u{digit:04x}");
        let digits = |key: usize| key.to_string().bytes().map(escape).collect::<String>();
        listed(count.div_ceil(100), |key| format!("{}{}", "common/".repeat(1400), digits(key)))
    }),
    ("depth at the limit, a hundred times", MAX_GROWTH, |count| {
        let chain = format!("{}0{}", "[{\"b\":0,\"a\":".repeat(500), "}]".repeat(500));
        format!("[{}]", vec![chain; count.div_ceil(10_000)].join(","))
    }),
    ("one string of 100 MB", MAX_GROWTH, |count| format!("[\"{}\"]", "characters".repeat(count * 10))),
    ("one string of escapes", MAX_GROWTH, |count| format!("[ \"{}\"]", "\\u0041\\/\\n".repeat(count))),
];

/// An object of so many keys, in no order.
fn keys(count: usize, prefix: &str) -> String {
    listed(count, |key| format!("{prefix}key{key:07}"))
}

fn listed(count: usize, name: impl Fn(usize) -> String) -> String {
    let mut random = Random::new(3);
    let mut order: Vec<usize> = (0..count).collect();
    for i in (1..count).rev() {
        order.swap(i, random.below(i + 1));
    }
    let mut text = String::from("{");
    for (i, key) in order.iter().enumerate() {
        let comma = if i > 0 { "," } else { "" };
        write!(text, "{comma}\"{}\":{i}", name(*key)).expect("memory can be written");
    }
    text.push('}');
    text
}

fn shapes(report: &mut Report, scale: &Scale) {
    let count = 1_000_000 / scale.divisor;
    for (name, limit, shape) in SHAPES {
        let costs = [count / 100, count].map(|count| {
            let text = shape(count);
            let repeats = if text.len() < 1_000_000 { 50 } else { 2 };
            shortest(repeats, || {
                digest(text.as_bytes(), &Rules::default()).map(|_| ()).expect("a document");
            }) / text.len() as f64
        });
        let what = format!("{name}: cost of a byte, times that at a hundredth");
        report.at_most(&what, limit, costs[1] / costs[0], &format!("{:.0} MB/s", 1e3 / costs[1]));
    }
}

type Pair = (&'static str, f64, fn(usize) -> [String; 2]);

/// Two documents that differ in many places, each at a hundredth of its size and whole.
const PAIRS: [Pair; 4] = [
    ("records that all differ", MAX_GROWTH, |count| {
        let record = |i: usize, at: usize| format!("{{\"at\":{at},\"id\":{i},\"text\":\"as before\"}}");
        [0, 1].map(|add| array(count / 2, |i| record(i, i + add)))
    }),
    ("a long key before many differences", MAX_GROWTH, |count| {
        let numbers = |add: usize| array(count, |i| (i + add).to_string());
        [0, 1].map(|add| format!("{{\"{}\":{}}}", "k".repeat(count * 10), numbers(add)))
    }),
    ("members of one side before a long key of the other", MAX_GROWTH, |count| {
        [format!("{{\"z{}\":1}}", "k".repeat(count * 10)), members(count, 0)]
    }),
    ("every difference has a shape of its own", MAX_GROWTH, |count| [0, 1].map(|add| members(count, add))),
];

fn array(count: usize, element: impl Fn(usize) -> String) -> String {
    format!("[{}]", (0..count).map(element).collect::<Vec<_>>().join(","))
}

fn members(count: usize, add: usize) -> String {
    let members: Vec<String> = (0..count).map(|i| format!("\"k{i:07}\":{}", i + add)).collect();
    format!("{{{}}}", members.join(","))
}

fn comparisons(report: &mut Report, scale: &Scale) {
    let count = 1_000_000 / scale.divisor;
    for (name, limit, pair) in PAIRS {
        let costs = [count / 100, count].map(|count| {
            let [left, right] = pair(count);
            let bytes = left.len() + right.len();
            let repeats = if bytes < 1_000_000 { 50 } else { 2 };
            shortest(repeats, || {
                let found =
                    diff(left.as_bytes(), right.as_bytes(), &Rules::default(), &DiffLimits::default());
                assert!(found.expect("documents").total > 0);
            }) / bytes as f64
        });
        let what = format!("diff, {name}: cost of a byte, times that at a hundredth");
        report.at_most(&what, limit, costs[1] / costs[0], &format!("{:.0} MB/s", 1e3 / costs[1]));
    }
}

/// The shortest of several times, in nanoseconds.
fn shortest(repeats: usize, mut work: impl FnMut()) -> f64 {
    let mut time = Duration::MAX;
    for _ in 0..repeats {
        shorten(&mut time, &mut work);
    }
    time.as_secs_f64() * 1e9
}
