//! The recorded requests: one JSON object a line.

use crate::json::{Json, parse};

/// One recorded request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) timestamp_ms: u64,
    pub(crate) input_tokens: u32,
    pub(crate) output_tokens: u32,
    /// One for each started block of the prompt.
    pub(crate) hash_ids: Vec<u64>,
}

/// Reads every row of a trace; the error names the line.
pub(crate) fn read(text: &str, block_tokens: u32) -> Result<Vec<Row>, String> {
    let mut rows: Vec<Row> = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let row = row(line, block_tokens).map_err(|error| format!("trace line {}: {error}", i + 1))?;
        if rows.last().is_some_and(|before| before.timestamp_ms > row.timestamp_ms) {
            return Err(format!("trace line {}: the timestamp {} goes back", i + 1, row.timestamp_ms));
        }
        rows.push(row);
    }
    if rows.is_empty() { Err("the trace has no rows".to_owned()) } else { Ok(rows) }
}

fn row(line: &str, block_tokens: u32) -> Result<Row, String> {
    let value = parse(line)?;
    let row = Row {
        timestamp_ms: whole(&value, "timestamp")?,
        input_tokens: tokens(&value, "input_length")?,
        output_tokens: tokens(&value, "output_length")?,
        hash_ids: hash_ids(&value)?,
    };
    let expected = row.input_tokens.div_ceil(block_tokens) as usize;
    if row.hash_ids.len() != expected {
        let (found, input) = (row.hash_ids.len(), row.input_tokens);
        return Err(format!(
            "{found} hash_ids for {input} tokens in blocks of {block_tokens}, expected {expected}"
        ));
    }
    Ok(row)
}

fn whole(value: &Json, key: &str) -> Result<u64, String> {
    value.get(key).and_then(Json::as_u64).ok_or_else(|| format!("{key} is not a whole number"))
}

/// A number of tokens: at least one, and few enough to add up without care.
fn tokens(value: &Json, key: &str) -> Result<u32, String> {
    match whole(value, key)? {
        0 => Err(format!("{key} is zero")),
        number if number > 1 << 24 => Err(format!("{key} {number} is above {}", 1 << 24)),
        number => Ok(number as u32),
    }
}

fn hash_ids(value: &Json) -> Result<Vec<u64>, String> {
    let Some(Json::List(items)) = value.get("hash_ids") else {
        return Err("hash_ids is not a list".to_owned());
    };
    items
        .iter()
        .map(|item| item.as_u64().ok_or_else(|| "a hash id is not a whole number".to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Result<u32, &str>) {
        let outcome = read(line, 512).map(|rows| rows[0].input_tokens);
        assert_eq!(
            outcome.as_ref().map_err(String::as_str),
            expected.as_ref().map_err(|text| *text),
            "{line}"
        );
    }

    #[test]
    fn rows_are_checked() {
        check(r#"{"timestamp":0,"input_length":513,"output_length":1,"hash_ids":[1,2]}"#, Ok(513));
        check(
            r#"{"timestamp":0,"input_length":513,"output_length":1,"hash_ids":[1]}"#,
            Err("trace line 1: 1 hash_ids for 513 tokens in blocks of 512, expected 2"),
        );
        check(
            r#"{"timestamp":0,"input_length":5,"output_length":0,"hash_ids":[1]}"#,
            Err("trace line 1: output_length is zero"),
        );
        check(
            r#"{"timestamp":0.5,"input_length":5,"output_length":1,"hash_ids":[1]}"#,
            Err("trace line 1: timestamp is not a whole number"),
        );
        check("", Err("the trace has no rows"));
    }
}
