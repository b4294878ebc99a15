//! The timing record of one measured process: `--timings-jsonl` with one JSON object per iteration.

use canonical_json::{Event, Number, ReadError, Reader};
use serde::{Deserialize, Serialize};

/// Why a timing file gives no sample.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TimingError {
    /// The file holds no record.
    #[error("timing file of {bytes} bytes is empty where one record was expected")]
    Empty {
        /// Length of the file, which may be white space.
        bytes: usize,
    },
    /// A record is not JSON.
    #[error("malformed JSON in the timing record at line {line}, column {column}")]
    Malformed {
        /// Line of the file, from 1.
        line: usize,
        /// Character in the line, from 1.
        column: usize,
        /// What is wrong.
        #[source]
        source: ReadError,
    },
    /// The record is JSON of another shape.
    #[error("timing record has {found} at {pointer:?} where {expected} was expected")]
    Unexpected {
        /// Where.
        pointer: String,
        /// What is there, as it is written.
        found: String,
        /// What should be.
        expected: &'static str,
    },
    /// More than one record: the process ran more than one iteration, or appended to an old file.
    #[error("timing file has {records} records where exactly one, of iteration 0, was expected")]
    SeveralRecords {
        /// How many lines are not empty.
        records: usize,
    },
    /// Seeded routing was not compiled in (D3).
    #[error("replay_bench is {found} in the timing record where true was expected")]
    NotReplayBench {
        /// What is there, or `absent`.
        found: String,
    },
    /// The harness does not time this (M1).
    #[error("metric {wanted:?} is absent from the timing record, which has {}", list(emitted))]
    MetricMissing {
        /// The metric asked for.
        wanted: String,
        /// The timing fields that are there.
        emitted: Vec<String>,
    },
    /// The metric is not a duration.
    #[error("metric {metric:?} is {found} where a finite number above 0 was expected")]
    MetricUnusable {
        /// The metric.
        metric: String,
        /// What is there, as it is written.
        found: String,
    },
    /// KV events became visible at another moment than this protocol knows, as in 1.4 releases.
    #[error(
        "protocol needs updating, or the historical protocol must be used: router events are visible at {found:?}, \
         not at \"pass-end\""
    )]
    ProtocolNeedsUpdating {
        /// What `native_router_event_visibility` says.
        found: String,
    },
}

fn list(emitted: &[String]) -> String {
    if emitted.is_empty() { "no timing field".to_owned() } else { emitted.join(", ") }
}

/// A duration as the harness wrote it. Stored by its text; the value is read from it again, exactly.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "StoredField", into = "StoredField")]
#[non_exhaustive]
pub struct TimingField {
    /// The member's name; the unit is its ending.
    pub name: String,
    /// The number exactly as written.
    pub text: String,
    /// Its value.
    pub value: f64,
}

#[derive(Serialize, Deserialize)]
struct StoredField {
    name: String,
    text: String,
}

impl From<TimingField> for StoredField {
    fn from(field: TimingField) -> Self {
        StoredField { name: field.name, text: field.text }
    }
}

impl TryFrom<StoredField> for TimingField {
    type Error = std::num::ParseFloatError;

    fn try_from(stored: StoredField) -> Result<Self, Self::Error> {
        let value = stored.text.parse()?;
        Ok(TimingField { name: stored.name, text: stored.text, value })
    }
}

/// One sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TimingRecord {
    /// The metric asked for.
    pub metric: TimingField,
    /// The other timing fields: diagnostics, never the metric.
    pub others: Vec<TimingField>,
    /// Members that are words, such as `engine_type` and `serving_mode`, by name.
    pub labels: Vec<(String, String)>,
}

impl TimingRecord {
    /// Reads the only record of a timing file.
    ///
    /// # Errors
    ///
    /// [`TimingError`]: not exactly one JSON object, of iteration 0, with `replay_bench` true and the metric as a finite
    /// number above 0.
    pub fn parse(bytes: &[u8], metric: &str) -> Result<Self, TimingError> {
        let lines: Vec<(usize, &[u8])> = bytes
            .split(|&byte| byte == b'\n')
            .enumerate()
            .filter(|(_, line)| !line.iter().all(u8::is_ascii_whitespace))
            .collect();
        match lines[..] {
            [] => Err(TimingError::Empty { bytes: bytes.len() }),
            [(index, line)] => Members::read(line, index)?.into_record(metric),
            _ => Err(TimingError::SeveralRecords { records: lines.len() }),
        }
    }

    /// A word of the record.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }
}

/// A member's value as it is written.
#[derive(Clone, Debug, PartialEq)]
enum Value<'a> {
    Number(Number<'a>),
    Word(String),
    Other(String),
}

struct Members<'a>(Vec<(String, Value<'a>)>);

impl<'a> Members<'a> {
    fn read(line: &'a [u8], index: usize) -> Result<Self, TimingError> {
        let malformed = |source: ReadError| TimingError::Malformed {
            line: index + source.line,
            column: source.column,
            source,
        };
        let mut reader = Reader::new(line);
        match reader.next_event().map_err(malformed)? {
            Event::ObjectStart => {}
            _ => return Err(unexpected("", String::from_utf8_lossy(line).trim().to_owned(), "an object")),
        }
        let mut members = Vec::new();
        while let Event::Key(key) = reader.next_event().map_err(malformed)? {
            let raw = reader.skip_value().map_err(malformed)?.unwrap_or_default();
            members.push((key.decode().into_owned(), value_of(raw)));
        }
        match reader.next_event().map_err(malformed)? {
            Event::End => Ok(Members(members)),
            other => Err(unexpected("", format!("{other:?}"), "the end of the line")),
        }
    }

    fn get(&self, name: &str) -> Option<&Value<'a>> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, value)| value)
    }

    fn text(&self, name: &str) -> String {
        self.get(name).map_or("absent".to_owned(), Value::text)
    }

    fn into_record(self, metric: &str) -> Result<TimingRecord, TimingError> {
        self.check_identity()?;
        let Some(value) = self.get(metric) else {
            let emitted =
                self.0.iter().filter(|(name, value)| is_timing(name, value)).map(|(name, _)| name.clone());
            return Err(TimingError::MetricMissing { wanted: metric.to_owned(), emitted: emitted.collect() });
        };
        let metric_field = field(metric, value)
            .filter(|field| field.value > 0.0)
            .ok_or_else(|| TimingError::MetricUnusable { metric: metric.to_owned(), found: value.text() })?;
        let others = self.0.iter().filter(|(name, value)| name != metric && is_timing(name, value));
        let labels = self.0.iter().filter_map(|(name, value)| match value {
            Value::Word(word) => Some((name.clone(), word.clone())),
            _ => None,
        });
        Ok(TimingRecord {
            metric: metric_field,
            others: others.filter_map(|(name, value)| field(name, value)).collect(),
            labels: labels.collect(),
        })
    }

    fn check_identity(&self) -> Result<(), TimingError> {
        if self.text("replay_bench") != "true" {
            return Err(TimingError::NotReplayBench { found: self.text("replay_bench") });
        }
        match self.get("iteration") {
            Some(Value::Number(number)) if number.as_u64() == Some(0) => {}
            _ => return Err(unexpected("/iteration", self.text("iteration"), "0")),
        }
        match self.get("native_router_event_visibility") {
            Some(Value::Word(word)) if word != "pass-end" => {
                Err(TimingError::ProtocolNeedsUpdating { found: word.clone() })
            }
            _ => Ok(()),
        }
    }
}

impl Value<'_> {
    fn text(&self) -> String {
        match self {
            Value::Number(number) => number.text().to_owned(),
            Value::Word(word) => format!("{word:?}"),
            Value::Other(raw) => raw.clone(),
        }
    }
}

fn value_of(raw: &[u8]) -> Value<'_> {
    match Reader::new(raw).next_event() {
        Ok(Event::Number(number)) => Value::Number(number),
        Ok(Event::String(text)) => Value::Word(text.decode().into_owned()),
        _ => Value::Other(String::from_utf8_lossy(raw).into_owned()),
    }
}

fn unexpected(pointer: &str, found: String, expected: &'static str) -> TimingError {
    TimingError::Unexpected { pointer: pointer.to_owned(), found, expected }
}

fn field(name: &str, value: &Value<'_>) -> Option<TimingField> {
    let Value::Number(number) = value else { return None };
    let value = number.as_f64()?;
    Some(TimingField { name: name.to_owned(), text: number.text().to_owned(), value })
}

/// A number whose name ends in a unit of time.
fn is_timing(name: &str, value: &Value<'_>) -> bool {
    let units = ["_ms", "_us", "_ns", "_s"];
    matches!(value, Value::Number(_)) && units.iter().any(|unit| name.ends_with(unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    const V151: &str = r#"{"engine_type":"vllm","iteration":0,"native_router_event_visibility":"pass-end","replay_bench":true,"router_mode":"kv-router","serving_mode":"aggregated","wall_time_ms":5161.294336}"#;
    const V161: &str = r#"{"iteration":0,"peak_rss_kib":96120,"replay_bench":true,"replay_call_ms":2826.9386870000003,"replay_cpu_ms":null,"trace_load_ms":54.769617,"wall_time_ms":2811.173356}"#;

    fn error(bytes: &str, metric: &str) -> String {
        TimingRecord::parse(bytes.as_bytes(), metric).expect_err("no sample").to_string()
    }

    #[test]
    fn the_number_is_kept_as_written() {
        let record = TimingRecord::parse(format!("{V161}\n").as_bytes(), "replay_call_ms").expect("a sample");
        assert_eq!(record.metric.text, "2826.9386870000003");
        assert!((record.metric.value - 2_826.938_687).abs() < 1e-9);
        let others: Vec<&str> = record.others.iter().map(|field| field.name.as_str()).collect();
        assert_eq!(others, ["trace_load_ms", "wall_time_ms"]);
    }

    #[test]
    fn a_stored_sample_keeps_every_bit() {
        let line = V151.replace("5161.294336", "108919.39951607985");
        let record = TimingRecord::parse(line.as_bytes(), "wall_time_ms").expect("a sample");
        let text = serde_json::to_string(&record).expect("serializable");
        let back: TimingRecord = serde_json::from_str(&text).expect("readable");
        assert_eq!(back.metric.value.to_bits(), 108_919.399_516_079_85_f64.to_bits());
        assert_eq!(back, record);
    }

    #[test]
    fn words_are_labels() {
        let record = TimingRecord::parse(V151.as_bytes(), "wall_time_ms").expect("a sample");
        assert_eq!(record.label("engine_type"), Some("vllm"));
        assert_eq!(record.label("wall_time_ms"), None);
    }

    #[test]
    fn a_missing_metric_lists_what_is_emitted() {
        let text = error(V151, "replay_execution_ms");
        assert_eq!(
            text,
            "metric \"replay_execution_ms\" is absent from the timing record, which has wall_time_ms"
        );
        let text = error(r#"{"iteration":0,"replay_bench":true}"#, "replay_execution_ms");
        assert!(text.ends_with("which has no timing field"), "{text}");
        let found = TimingRecord::parse(V161.as_bytes(), "replay_execution_ms");
        let Err(TimingError::MetricMissing { emitted, .. }) = found else { panic!("{found:?}") };
        assert_eq!(emitted, ["replay_call_ms", "trace_load_ms", "wall_time_ms"]);
    }

    #[test]
    fn what_is_not_one_good_record_is_refused() {
        let cases = [
            ("", "timing file of 0 bytes is empty where one record was expected"),
            (" \n\n", "timing file of 3 bytes is empty where one record was expected"),
            ("{\"iteration\":0,", "malformed JSON in the timing record at line 1, column 16"),
            ("\n{\"iteration\" 0}", "malformed JSON in the timing record at line 2, column 14"),
            ("[1]", "timing record has [1] at \"\" where an object was expected"),
            ("{}{}", "malformed JSON in the timing record at line 1, column 3"),
            ("{}\n{}", "timing file has 2 records where exactly one, of iteration 0, was expected"),
            ("{\"iteration\":0}", "replay_bench is absent in the timing record where true was expected"),
            (
                "{\"iteration\":0,\"replay_bench\":false}",
                "replay_bench is false in the timing record where true was expected",
            ),
            (
                "{\"iteration\":1,\"replay_bench\":true}",
                "timing record has 1 at \"/iteration\" where 0 was expected",
            ),
            (
                "{\"replay_bench\":true,\"t_ms\":1}",
                "timing record has absent at \"/iteration\" where 0 was expected",
            ),
        ];
        for (bytes, expected) in cases {
            assert_eq!(error(bytes, "t_ms"), expected, "{bytes}");
        }
    }

    #[test]
    fn a_metric_must_be_a_duration() {
        for value in ["0", "-1.5", "0.0", "null", "\"5\"", "1e999", "[1]"] {
            let record = format!("{{\"iteration\":0,\"replay_bench\":true,\"t_ms\":{value}}}");
            let expected = format!("metric \"t_ms\" is {value} where a finite number above 0 was expected");
            assert_eq!(error(&record, "t_ms"), expected);
        }
    }

    #[test]
    fn the_historical_visibility_stops() {
        let old = V151.replace("pass-end", "pass-start");
        let text = error(&old, "wall_time_ms");
        assert!(text.starts_with("protocol needs updating") && text.contains("\"pass-start\""), "{text}");
    }
}
