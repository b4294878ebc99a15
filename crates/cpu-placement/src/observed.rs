//! A value the machine may not expose.

use serde::{Deserialize, Serialize};

/// A value, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Observed<T> {
    /// The value.
    Value(T),
    /// Why there is none, for a reader.
    Unavailable(String),
}

impl<T> Observed<T> {
    /// The value, if there is one.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Unavailable(_) => None,
        }
    }

    pub(crate) fn from_option(value: Option<T>, otherwise: &str) -> Self {
        value.map_or_else(|| Self::Unavailable(otherwise.to_owned()), Self::Value)
    }
}

impl<T> Default for Observed<T> {
    fn default() -> Self {
        Self::Unavailable("not looked at".to_owned())
    }
}
