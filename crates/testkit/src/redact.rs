//! Texts without what differs between two runs and two machines.

use std::path::Path;

/// Takes times, paths and host names out of a text. Rules apply in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
enum Rule {
    Literal { text: String, name: String },
    Timestamps,
    NumbersBefore { unit: String },
    Member { key: String },
}

impl Redactor {
    /// No rules yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts `[name]` in place of a text.
    #[must_use]
    pub fn literal(mut self, text: &str, name: &str) -> Self {
        if !text.is_empty() {
            self.rules.push(Rule::Literal { text: text.to_owned(), name: name.to_owned() });
        }
        self
    }

    /// Puts `[name]` in place of a path, and of what it resolves to.
    #[must_use]
    pub fn path(self, path: &Path, name: &str) -> Self {
        let resolved = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let mut texts = [resolved, path.to_owned()].map(|path| path.to_string_lossy().into_owned());
        // The longer one first: it may contain the shorter one.
        texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        texts.iter().fold(self, |redactor, text| redactor.literal(text, name))
    }

    /// Puts `[host]` in place of this machine's name.
    #[must_use]
    pub fn host(self) -> Self {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        self.literal(name.trim(), "host")
    }

    /// Puts `[time]` in place of every `2025-01-31T23:59:59.123Z`.
    #[must_use]
    pub fn timestamps(mut self) -> Self {
        self.rules.push(Rule::Timestamps);
        self
    }

    /// Puts `[n]` in place of every number that stands before one of these units, with or without a space between.
    #[must_use]
    pub fn numbers_before(mut self, units: &[&str]) -> Self {
        self.rules.extend(units.iter().map(|unit| Rule::NumbersBefore { unit: (*unit).to_owned() }));
        self
    }

    /// Puts `"[key]"` in place of the number or string that these members of a JSON text have.
    #[must_use]
    pub fn members(mut self, keys: &[&str]) -> Self {
        self.rules.extend(keys.iter().map(|key| Rule::Member { key: (*key).to_owned() }));
        self
    }

    /// The text by all rules.
    #[must_use]
    pub fn apply(&self, text: &str) -> String {
        self.rules.iter().fold(text.to_owned(), |text, rule| rule.apply(&text))
    }
}

impl Rule {
    fn apply(&self, text: &str) -> String {
        match self {
            Self::Literal { text: found, name } => text.replace(found.as_str(), &format!("[{name}]")),
            Self::Timestamps => replace(text, timestamp, "[time]"),
            Self::NumbersBefore { unit } => replace(text, |rest| number_before(rest, unit), "[n]"),
            Self::Member { key } => member(text, key),
        }
    }
}

/// Replaces every match, where `length` gives the length of a match at the start of a text. A match does not start in the middle of
/// a word or number.
fn replace(text: &str, length: impl Fn(&str) -> Option<usize>, by: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut rest, mut inside_word) = (text, false);
    while let Some(first) = rest.chars().next() {
        match length(rest).filter(|_| !inside_word) {
            Some(length) => {
                out.push_str(by);
                rest = &rest[length..];
                inside_word = true;
            }
            None => {
                out.push(first);
                inside_word = first.is_alphanumeric() || first == '.' || first == '_';
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    out
}

fn timestamp(text: &str) -> Option<usize> {
    const SHAPE: &str = "0000-00-00T00:00:00";
    let fits = |(shape, found): (u8, u8)| if shape == b'0' { found.is_ascii_digit() } else { found == shape };
    let whole = text.len() >= SHAPE.len() && SHAPE.bytes().zip(text.bytes()).all(fits);
    let rest = whole.then(|| &text[SHAPE.len()..])?;
    let fraction = rest.len() - rest.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit()).len();
    rest[fraction..].starts_with('Z').then_some(SHAPE.len() + fraction + 1)
}

fn number_before(text: &str, unit: &str) -> Option<usize> {
    let digits = text.starts_with(|c: char| c.is_ascii_digit());
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.' || c == ',');
    let after = rest.strip_prefix(' ').unwrap_or(rest).strip_prefix(unit)?;
    let ends = !after.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    (digits && ends).then_some(text.len() - rest.len())
}

fn member(text: &str, key: &str) -> String {
    let name = format!("{key:?}:");
    let mut out = String::with_capacity(text.len());
    let mut parts = text.split(name.as_str());
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let value = part.trim_start();
        let space = &part[..part.len() - value.len()];
        out.push_str(&format!("{name}{space}\"[{key}]\"{}", &value[scalar(value)..]));
    }
    out
}

/// The length of the string or word that a text starts with.
fn scalar(text: &str) -> usize {
    match text.strip_prefix('"') {
        Some(rest) => rest.find('"').map_or(text.len(), |end| end + 2),
        None => text.find([',', '}', ']', '\n', ' ']).unwrap_or(text.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules() {
        let check =
            |redactor: Redactor, text: &str, expected: &str| assert_eq!(redactor.apply(text), expected);
        check(Redactor::new().literal("/tmp/x1", "out"), "in /tmp/x1/a", "in [out]/a");
        check(Redactor::new().literal("", "out"), "as it was", "as it was");
        check(Redactor::new().timestamps(), "at 2025-01-31T23:59:59.5Z, 2025-01-31", "at [time], 2025-01-31");
        let units = Redactor::new().numbers_before(&["ms", "s"]);
        check(units, "took 1,012.5 ms, 3s, 4 sets, x5 s, 6.0s.", "took [n] ms, [n]s, 4 sets, x5 s, [n]s.");
        let members = Redactor::new().members(&["wall_ms", "host"]);
        check(
            members,
            r#"{"wall_ms":1.5,"host": "a","n":2,"wall_ms":3}"#,
            r#"{"wall_ms":"[wall_ms]","host": "[host]","n":2,"wall_ms":"[wall_ms]"}"#,
        );
    }

    #[test]
    fn a_path_is_redacted_as_given_and_as_resolved() {
        let folder = tempfile::tempdir().expect("a folder");
        let winding = folder.path().join("..").join(folder.path().file_name().expect("a name"));
        let text =
            format!("{} {}", winding.display(), folder.path().canonicalize().expect("there").display());
        assert_eq!(Redactor::new().path(&winding, "dir").apply(&text), "[dir] [dir]");
    }
}
