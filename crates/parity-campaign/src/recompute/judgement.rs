//! Two judgements of one sample, computed by two machines.

use paired_stats::Judgement;
use serde_json::Value;

use super::json;

/// How far apart two numbers of equal judgements may be, relative to the larger of them and to one.
///
/// Logarithms, exponentials and cosines come from the C library, or from Rust where a build asks for it, and are not
/// rounded correctly: they differ in the last of 53 bits, and sums of thousands of them in a few more.
const ROUNDING: f64 = 1e-9;

/// Fractions that no such function goes into: what was measured and divided, and what the definition declares. With whole
/// numbers and words, such as ranks and verdicts, they are what decides, and are equal or not.
const EXACT: [&str; 11] = [
    "bound_ratio",
    "campaign_false_alarm_rate",
    "confidence",
    "largest_ratio",
    "limit_ratio",
    "point_ratio",
    "quantile",
    "ratio",
    "row_false_alarm_rate",
    "smallest_ratio",
    "threshold",
];

/// The place and the two values of the first difference that is more than rounding.
pub(super) fn difference(stated: Option<&Judgement>, found: Option<&Judgement>) -> Option<String> {
    first(&json(&stated), &json(&found), "")
}

fn first(stated: &Value, found: &Value, at: &str) -> Option<String> {
    match (stated, found) {
        (Value::Object(a), Value::Object(b)) if a.keys().eq(b.keys()) => {
            a.iter().zip(b).find_map(|((key, a), (_, b))| first(a, b, &format!("{at}/{key}")))
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let mut pairs = a.iter().zip(b).enumerate();
            pairs.find_map(|(index, (a, b))| first(a, b, &format!("{at}/{index}")))
        }
        _ if stated == found || !is_exact(at) && almost_equal(stated, found) => None,
        _ => Some(format!("{at} is {} and by the attempts {}", brief(stated), brief(found))),
    }
}

/// Its beginning, if it is long: of two that have not the same members all would be said twice.
fn brief(value: &Value) -> String {
    const LONGEST: usize = 80;
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

fn is_exact(at: &str) -> bool {
    at.rsplit('/').next().is_some_and(|key| EXACT.contains(&key))
}

/// Whether both are fractions and as good as equal. Whole numbers, such as ranks and counts, are equal or not.
fn almost_equal(stated: &Value, found: &Value) -> bool {
    let (Some(a), Some(b)) = (fraction(stated), fraction(found)) else { return false };
    (a - b).abs() <= ROUNDING * a.abs().max(b.abs()).max(1.0)
}

fn fraction(value: &Value) -> Option<f64> {
    value.as_number().filter(|number| number.is_f64()).and_then(serde_json::Number::as_f64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(stated: &Value, found: &Value) -> Option<String> {
        first(stated, found, "")
    }

    #[test]
    fn last_bits_are_nobodys_fault() {
        let base = json!({ "p": 0.25, "tests": [{ "value": 130.5 }, { "value": 0.0 }] });
        let other = json!({ "p": 0.25_f64.next_up(), "tests": [{ "value": 130.5_f64.next_down() }, { "value": 1e-17 }] });
        assert_eq!(said(&base, &other), None);
    }

    #[test]
    fn whatever_is_more_is_named() {
        let base = json!({ "p": 0.25, "rank": 24, "verdict": "pass", "bounds": [1.0, null] });
        for key in EXACT {
            let said = said(&json!({ key: 1.05 }), &json!({ key: 1.05_f64.next_up() }));
            assert_eq!(said, Some(format!("/{key} is 1.05 and by the attempts {}", 1.05_f64.next_up())));
        }
        for (other, place) in [
            (json!({ "p": 0.250_001, "rank": 24, "verdict": "pass", "bounds": [1.0, null] }), "/p "),
            (json!({ "p": 0.25, "rank": 25, "verdict": "pass", "bounds": [1.0, null] }), "/rank "),
            (json!({ "p": 0.25, "rank": 24, "verdict": "fail", "bounds": [1.0, null] }), "/verdict "),
            (json!({ "p": 0.25, "rank": 24, "verdict": "pass", "bounds": [1.0, 2.0] }), "/bounds/1 "),
            (json!({ "p": 0.25, "rank": 24, "verdict": "pass", "bounds": [1.0] }), "/bounds "),
            (json!({ "p": 0.25, "rank": 24, "verdict": "pass" }), " is "),
            (json!(null), " is "),
            (json!({ "p": "é".repeat(1_000) }), " is "),
        ] {
            let said = said(&base, &other).unwrap_or_else(|| panic!("{other} passes for {base}"));
            assert!(said.starts_with(place) && said.chars().count() < 200, "{said}");
        }
    }
}
