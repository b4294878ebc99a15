use std::fmt;
use std::str::FromStr;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A job as the scheduler's commands name it: `4711`, or `4711_2` for a task of an array.
///
/// In files it is that text. A plain number is read too: older evidence has no arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId {
    /// The number of the job, or of the whole array.
    pub number: u64,
    /// Which task of the array.
    pub task: Option<u32>,
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number)?;
        self.task.map_or(Ok(()), |task| write!(f, "_{task}"))
    }
}

/// A text is not the name of a job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not the id of a job")]
pub struct ParseJobIdError {
    text: String,
}

impl FromStr for JobId {
    type Err = ParseJobIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseJobIdError { text: text.to_owned() };
        let (number, task) = match text.split_once('_') {
            Some((number, task)) => (number, Some(task.parse().map_err(|_| wrong())?)),
            None => (text, None),
        };
        Ok(JobId { number: number.parse().map_err(|_| wrong())?, task })
    }
}

impl Serialize for JobId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for JobId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrNumber)
    }
}

struct TextOrNumber;

impl Visitor<'_> for TextOrNumber {
    type Value = JobId;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the id of a job, such as \"4711_2\"")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<JobId, E> {
        Ok(JobId { number, task: None })
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<JobId, E> {
        text.parse().map_err(E::custom)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for JobId {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "JobId".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "A job as the scheduler names it: 4711, or 4711_2 for a task of an array.",
            "type": ["string", "integer"],
            "pattern": "^[0-9]+(_[0-9]+)?$",
            "minimum": 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_a_number_or_a_task_of_an_array() {
        for (json, number, task, written) in [
            ("4711", 4711, None, "\"4711\""),
            ("\"4711\"", 4711, None, "\"4711\""),
            ("\"4711_0\"", 4711, Some(0), "\"4711_0\""),
            ("\"4711_12\"", 4711, Some(12), "\"4711_12\""),
        ] {
            let job: JobId = serde_json::from_str(json).expect(json);
            assert_eq!(job, JobId { number, task });
            assert_eq!(serde_json::to_string(&job).expect("JSON"), written);
        }
        for bad in ["\"\"", "\"_1\"", "\"4711_\"", "\"4711_[0-3]\"", "\"4711_1_2\"", "-1", "1.5"] {
            assert!(serde_json::from_str::<JobId>(bad).is_err(), "{bad}");
        }
    }
}
