use serde::{Deserialize, Serialize};

/// A contiguous run of rows: `count` of them after the first `offset`.
///
/// A window is never empty and its end always exists as a number, so nothing that holds one has to check again.
///
/// ```
/// use mooncake_trace::Window;
///
/// let window = Window::new(100, 50)?;
/// assert!(window.contains(100) && window.contains(149) && !window.contains(150));
/// # Ok::<(), mooncake_trace::WindowError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "Bounds", into = "Bounds")]
pub struct Window {
    offset: u64,
    count: u64,
}

/// Why two numbers are no window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WindowError {
    /// A window of no rows proves nothing.
    #[error("a window of 0 rows is empty")]
    Empty,
    /// The window would end beyond the largest row number.
    #[error("{count} rows after row {offset} end beyond row {}", u64::MAX)]
    Overflow {
        /// Rows before the window.
        offset: u64,
        /// Rows in the window.
        count: u64,
    },
}

impl Window {
    /// The window of `count` rows that follow the first `offset` rows.
    ///
    /// # Errors
    ///
    /// `count` is zero, or `offset + count` is beyond `u64::MAX`.
    pub const fn new(offset: u64, count: u64) -> Result<Self, WindowError> {
        if count == 0 {
            return Err(WindowError::Empty);
        }
        match offset.checked_add(count) {
            Some(_) => Ok(Window { offset, count }),
            None => Err(WindowError::Overflow { offset, count }),
        }
    }

    /// Rows before the window; also the zero-based index of its first row.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Rows in the window, at least one.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Rows up to and including the window.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.offset + self.count
    }

    /// Whether the row with this zero-based index is inside.
    #[must_use]
    pub const fn contains(&self, index: u64) -> bool {
        self.offset <= index && index < self.end()
    }
}

/// The window as it is written.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Bounds {
    offset: u64,
    count: u64,
}

impl TryFrom<Bounds> for Window {
    type Error = WindowError;

    fn try_from(bounds: Bounds) -> Result<Self, WindowError> {
        Window::new(bounds.offset, bounds.count)
    }
}

impl From<Window> for Bounds {
    fn from(window: Window) -> Self {
        Bounds { offset: window.offset, count: window.count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(offset: u64, count: u64, expected: Result<u64, &str>) {
        let end = Window::new(offset, count).map(|window| window.end());
        assert_eq!(end.map_err(|error| error.to_string()), expected.map_err(str::to_owned));
    }

    #[test]
    fn a_window_is_never_empty_and_always_ends() {
        check(0, 1, Ok(1));
        check(7_000, 5_000, Ok(12_000));
        check(u64::MAX - 1, 1, Ok(u64::MAX));
        check(3, 0, Err("a window of 0 rows is empty"));
        check(u64::MAX, 1, Err("1 rows after row 18446744073709551615 end beyond row 18446744073709551615"));
    }

    #[test]
    fn a_written_window_is_checked_when_read() {
        let read = |text: &str| serde_json::from_str::<Window>(text).map_err(|error| error.to_string());
        assert_eq!(read(r#"{"offset":2,"count":3}"#), Ok(Window { offset: 2, count: 3 }));
        assert!(read(r#"{"offset":2,"count":0}"#).unwrap_err().contains("empty"));
        assert!(read(r#"{"offset":2,"count":3,"step":2}"#).unwrap_err().contains("step"));
    }
}
