//! The rules, from a file and from options.

use std::fs;
use std::path::PathBuf;
use std::str::FromStr;

use canonical_json::{Exclusion, Form, ParsePointerError, Pattern, Pointer, Rules, Unordered};
use clap::{Args, ValueEnum};

use crate::failure::Failure;

#[derive(Debug, Args)]
#[command(next_help_heading = "Rules")]
pub(crate) struct RuleOptions {
    /// Which canonical form [default: lexical, or what the rules file says]
    #[arg(long, value_enum, value_name = "FORM")]
    form: Option<FormOption>,
    /// Leave out what this pattern matches: a JSON pointer in which `*` is any one key or index, and `~2` is
    /// a real asterisk
    #[arg(long, value_name = "PATTERN", value_parser = part)]
    exclude: Vec<Pattern>,
    /// As --exclude, and fail if nothing matches
    #[arg(long, value_name = "PATTERN", value_parser = part)]
    exclude_required: Vec<Pattern>,
    /// Sort the elements of the arrays at AT by the key at BY in each, as in /per_request=/uuid
    #[arg(long, value_name = "AT=BY")]
    unordered: Vec<UnorderedOption>,
    /// Read rules from this TOML file (form, exclusions, unordered); the options above add to them
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
}

/// A pattern of parts of a document.
fn part(text: &str) -> Result<Pattern, String> {
    match text {
        "" => Err("expected a pattern that does not match the whole document".to_owned()),
        _ => text.parse().map_err(|error: ParsePointerError| error.to_string()),
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FormOption {
    /// Keys by code point, numbers exactly as written
    Lexical,
    /// RFC 8785
    Jcs,
}

#[derive(Clone, Debug)]
struct UnorderedOption(Unordered);

impl FromStr for UnorderedOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A pointer may have an equals sign in it; the last one before a slash, or at the end, divides.
        let divider = text.rfind("=/").or_else(|| text.ends_with('=').then(|| text.len() - 1));
        let divider = divider.ok_or("expected a pattern, `=`, and a pointer, as in /per_request=/uuid")?;
        let refused = |error: ParsePointerError| error.to_string();
        let at: Pattern = text[..divider].parse().map_err(refused)?;
        let by: Pointer = text[divider + 1..].parse().map_err(refused)?;
        Ok(UnorderedOption(Unordered { at, by }))
    }
}

impl RuleOptions {
    pub(crate) fn rules(&self) -> Result<Rules, Failure> {
        let mut rules = self.file_rules()?;
        match self.form {
            Some(FormOption::Lexical) => rules.form = Form::Lexical,
            Some(FormOption::Jcs) => rules.form = Form::Jcs,
            None => {}
        }
        let exclusion = |required| move |pattern: &Pattern| Exclusion { pattern: pattern.clone(), required };
        rules.exclusions.extend(self.exclude.iter().map(exclusion(false)));
        rules.exclusions.extend(self.exclude_required.iter().map(exclusion(true)));
        rules.unordered.extend(self.unordered.iter().map(|option| option.0.clone()));
        Ok(rules)
    }

    fn file_rules(&self) -> Result<Rules, Failure> {
        let Some(path) = &self.rules else { return Ok(Rules::default()) };
        let text = fs::read_to_string(path).map_err(|source| Failure::Open { path: path.clone(), source })?;
        toml::from_str(&text)
            .map_err(|source| Failure::Rules { path: path.clone(), source: Box::new(source) })
    }
}
