use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Writes one key as a reference token of a JSON pointer (RFC 6901): `~` becomes `~0` and `/` becomes `~1`.
#[must_use]
pub fn escape_token(key: &str) -> Cow<'_, str> {
    if key.contains(['~', '/']) {
        Cow::Owned(key.replace('~', "~0").replace('/', "~1"))
    } else {
        Cow::Borrowed(key)
    }
}

/// The place of one value in a document, as an RFC 6901 JSON pointer.
///
/// ```
/// use canonical_json::Pointer;
///
/// let mut place = Pointer::root();
/// place.push_key("per/request");
/// place.push_index(41);
/// assert_eq!(place.to_string(), "/per~1request/41");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "String", into = "String"))]
pub struct Pointer(String);

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Pointer {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Pointer".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "The place of one value in a document, as an RFC 6901 JSON pointer.",
            "type": "string",
            "pattern": "^(/([^~/]|~[01])*)*$"
        })
    }
}

impl Pointer {
    /// The whole document.
    #[must_use]
    pub const fn root() -> Self {
        Pointer(String::new())
    }

    /// Goes one step down, to the member with this key.
    pub fn push_key(&mut self, key: &str) {
        self.0.push('/');
        self.0.push_str(&escape_token(key));
    }

    /// Goes one step down, to the element with this index.
    pub fn push_index(&mut self, index: usize) {
        self.0.push('/');
        self.0.push_str(&index.to_string());
    }

    /// Goes back up to where the pointer was this long.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.0.truncate(length);
    }

    /// The pointer as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The unescaped reference tokens, from the root down.
    pub fn tokens(&self) -> impl Iterator<Item = Cow<'_, str>> {
        self.0.split('/').skip(1).map(unescape_token)
    }

    /// Whether this is the whole document.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }
}

fn unescape_token(token: &str) -> Cow<'_, str> {
    if token.contains('~') {
        Cow::Owned(token.replace("~1", "/").replace("~0", "~"))
    } else {
        Cow::Borrowed(token)
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl AsRef<str> for Pointer {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl FromStr for Pointer {
    type Err = ParsePointerError;

    fn from_str(text: &str) -> Result<Self, ParsePointerError> {
        check_pointer(text, "01")?;
        Ok(Pointer(text.to_owned()))
    }
}

impl TryFrom<String> for Pointer {
    type Error = ParsePointerError;

    fn try_from(text: String) -> Result<Self, ParsePointerError> {
        text.parse()
    }
}

impl From<Pointer> for String {
    fn from(pointer: Pointer) -> String {
        pointer.0
    }
}

fn check_pointer(text: &str, escapes: &str) -> Result<(), ParsePointerError> {
    if !text.is_empty() && !text.starts_with('/') {
        return Err(ParsePointerError::NoSlash { text: text.to_owned() });
    }
    let mut after_tildes = text.split('~').skip(1);
    if after_tildes.all(|rest| rest.starts_with(|code| escapes.contains(code))) {
        Ok(())
    } else {
        Err(ParsePointerError::Escape { text: text.to_owned() })
    }
}

/// A set of places: a JSON pointer in which a token that is exactly `*` stands for any one key or index.
///
/// A key that really is an asterisk is written `~2`.
///
/// ```
/// use canonical_json::{Pattern, Pointer};
///
/// let pattern: Pattern = "/per_request/*/uuid".parse()?;
/// assert!(pattern.matches(&"/per_request/12/uuid".parse::<Pointer>()?));
/// assert!(!pattern.matches(&"/per_request/12".parse::<Pointer>()?));
/// # Ok::<(), canonical_json::ParsePointerError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "String", into = "String"))]
pub struct Pattern {
    text: String,
    steps: Vec<Step>,
}

/// One step of a pattern.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Step {
    /// Any key or index.
    Any,
    /// This key, or the index written like this.
    Token(Box<str>),
}

impl Step {
    pub(crate) fn matches(&self, token: &str) -> bool {
        match self {
            Step::Any => true,
            Step::Token(own) => **own == *token,
        }
    }

    fn parse(token: &str) -> Self {
        if token == "*" {
            return Step::Any;
        }
        Step::Token(token.replace("~2", "*").replace("~1", "/").replace("~0", "~").into())
    }
}

impl Pattern {
    /// The pattern as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether this place is one of the set.
    #[must_use]
    pub fn matches(&self, pointer: &Pointer) -> bool {
        let mut tokens = pointer.tokens();
        self.steps.iter().all(|step| tokens.next().is_some_and(|token| step.matches(&token)))
            && tokens.next().is_none()
    }

    pub(crate) fn steps(&self) -> &[Step] {
        &self.steps
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl FromStr for Pattern {
    type Err = ParsePointerError;

    fn from_str(text: &str) -> Result<Self, ParsePointerError> {
        check_pointer(text, "012")?;
        let steps = text.split('/').skip(1).map(Step::parse).collect();
        Ok(Pattern { text: text.to_owned(), steps })
    }
}

impl TryFrom<String> for Pattern {
    type Error = ParsePointerError;

    fn try_from(text: String) -> Result<Self, ParsePointerError> {
        text.parse()
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> String {
        pattern.text
    }
}

/// Why a text is not a JSON pointer or a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParsePointerError {
    /// A pointer is empty or begins with a slash.
    #[error("the pointer `{text}` does not begin with `/`")]
    NoSlash {
        /// The text.
        text: String,
    },
    /// A tilde is only used to escape.
    #[error("the pointer `{text}` has a `~` that is not an escape")]
    Escape {
        /// The text.
        text: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, pointer: &str, expected: bool) {
        let parsed: Pattern = pattern.parse().expect("a pattern");
        assert_eq!(parsed.matches(&pointer.parse().expect("a pointer")), expected, "{pattern} on {pointer}");
    }

    #[test]
    fn a_star_is_one_step() {
        check("", "", true);
        check("", "/a", false);
        check("/*", "/a", true);
        check("/*", "/a/b", false);
        check("/*", "", false);
        check("/a/*/c", "/a/0/c", true);
        check("/a/*/c", "/a/0/d", false);
        check("/*x", "/ax", false);
        check("/~2", "/*", true);
        check("/~2", "/a", false);
        check("/a~1b/~0", "/a~1b/~0", true);
        check("/", "/", true);
        check("/~01", "/~01", true);
    }

    #[test]
    fn what_is_not_a_pointer_is_refused() {
        for text in ["a", "/~", "/~3", "/a~"] {
            assert!(text.parse::<Pointer>().is_err(), "{text}");
            assert!(text.parse::<Pattern>().is_err(), "{text}");
        }
        assert!("/~2".parse::<Pointer>().is_err());
    }

    #[test]
    fn tokens_are_unescaped() {
        let pointer: Pointer = "/a~1b/~01/".parse().expect("a pointer");
        assert_eq!(pointer.tokens().collect::<Vec<_>>(), ["a/b", "~1", ""]);
    }
}
