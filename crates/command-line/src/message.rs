use std::error::Error;
use std::fmt::Write;

/// How a command prints its results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum MessageFormat {
    /// Text for a reader; its wording may change.
    #[default]
    Human,
    /// One JSON object per line, each flushed; stable.
    Json,
}

/// An error with its causes on one line: `what: why: why that`.
#[must_use]
pub fn describe_error(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        // A `String` accepts every write.
        let _ = write!(text, ": {inner}");
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Layer(&'static str, Option<Box<Layer>>);

    impl std::fmt::Display for Layer {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Layer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|inner| inner as &(dyn Error + 'static))
        }
    }

    #[test]
    fn causes_follow_in_order() {
        let error = Layer("cannot read a", Some(Box::new(Layer("b", Some(Box::new(Layer("c", None)))))));
        assert_eq!(describe_error(&error), "cannot read a: b: c");
    }
}
