//! Files that may come from anywhere, read so that they can neither hold us up nor say two things at once.

use std::fmt;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The largest file that is read: no table of times and no metric is near it.
pub(crate) const MAX_FILE_BYTES: u64 = 64 << 20;

/// The bytes of a file; `/dev/stdin` may be one.
pub(crate) fn bytes(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path)?;
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let why = format!("it is larger than {MAX_FILE_BYTES} bytes");
        return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// The text of a file, without the mark that some editors put before it.
pub(crate) fn text(path: &Path) -> anyhow::Result<String> {
    let read = || -> anyhow::Result<String> {
        let text = String::from_utf8(bytes(path)?)?;
        Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
    };
    read().with_context(|| format!("read {}", path.display()))
}

/// One JSON document in which no object names a key twice. With two values for one key, which of them counts would
/// depend on the reader.
pub(crate) fn json(bytes: &[u8]) -> anyhow::Result<Value> {
    match serde_json::from_slice::<Strict>(bytes) {
        Ok(Strict(value)) => Ok(value),
        Err(error) => bail!(error),
    }
}

struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Values).map(Self)
    }
}

struct Values;

impl<'de> Visitor<'de> for Values {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number that is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(Strict(element)) = elements.next_element()? {
            all.push(element);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some((name, Strict(value))) = members.next_entry::<String, _>()? {
            if all.contains_key(&name) {
                return Err(A::Error::custom(format_args!("the key {name:?} occurs twice")));
            }
            all.insert(name, value);
        }
        Ok(Value::Object(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_say_one_thing() {
        let check = |text: &str, expected: &str| {
            let read =
                json(text.as_bytes()).map_or_else(|error| error.to_string(), |value| value.to_string());
            assert_eq!(read, expected, "{text}");
        };
        check(r#"{"b":[1,-2,0.1,"x",null,true],"a":{}}"#, r#"{"a":{},"b":[1,-2,0.1,"x",null,true]}"#);
        check(r#"{"a":1,"a":2}"#, "the key \"a\" occurs twice at line 1 column 13");
        check(r#"[{"x":{"a":1,"\u0061":2}}]"#, "the key \"a\" occurs twice at line 1 column 24");
        check("1e400", "number out of range at line 1 column 5");
        check("{} {}", "trailing characters at line 1 column 4");
        let deep = "[".repeat(100_000);
        assert!(json(deep.as_bytes()).unwrap_err().to_string().contains("recursion limit"));
    }

    #[test]
    fn files_without_an_end_are_refused() {
        let error = bytes(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(error.to_string(), "it is larger than 67108864 bytes");
    }
}
