use std::path::PathBuf;

use thiserror::Error;

/// Why a campaign file was not accepted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DefinitionError {
    /// The file could not be read.
    #[error("read campaign file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The file is not text.
    #[error("campaign file is not UTF-8")]
    NotUtf8 {
        /// Where it is not.
        source: std::str::Utf8Error,
    },
    /// The text is not TOML, or not of the schema.
    #[error("campaign file line {line}, column {column}: {message}{}", suggestion(nearest.as_deref()))]
    Toml {
        /// 1-based.
        line: usize,
        /// 1-based, in bytes.
        column: usize,
        /// What is wrong.
        message: String,
        /// The known key nearest to an unknown one.
        nearest: Option<String>,
    },
    /// A key holds a value that is out of range or contradicts another.
    #[error("campaign file key {key}: {message}")]
    Value {
        /// The key, dotted.
        key: String,
        /// What is wrong and what was expected.
        message: String,
    },
}

fn suggestion(nearest: Option<&str>) -> String {
    nearest.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}

/// Adds the place and the nearest known key to what the TOML reader says.
pub(super) fn from_toml(text: &str, error: &toml::de::Error) -> DefinitionError {
    let offset = error.span().map_or(0, |span| span.start.min(text.len()));
    let before = &text.as_bytes()[..offset];
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let column = offset - before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1) + 1;
    let message = error.message().trim().replace('\n', " ");
    let nearest = nearest_key(&message);
    DefinitionError::Toml { line, column, message, nearest }
}

/// serde words it "unknown field `a`, expected one of `b`, `c`" (or "expected `b`"); the first quoted word is the
/// unknown one, the others are the candidates.
fn nearest_key(message: &str) -> Option<String> {
    let rest = message.strip_prefix("unknown field ").or_else(|| message.strip_prefix("unknown variant "))?;
    let mut quoted = rest.split('`').skip(1).step_by(2);
    let unknown = quoted.next()?;
    quoted
        .map(|known| (strsim::damerau_levenshtein(unknown, known), known))
        .min()
        .map(|(_, known)| known.to_owned())
}
