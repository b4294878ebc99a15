//! A command line into words, without a shell: blanks separate, quotes group, a backslash takes the next
//! character as it is. Nothing is expanded.

/// Splits a command into its words.
///
/// # Errors
/// When a quote is not closed, a backslash ends the text, or there is no word.
pub(crate) fn split(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match char {
            blank if blank.is_whitespace() => words.extend(word.take()),
            '\'' => quoted(&mut chars, '\'', word.get_or_insert_default())?,
            '"' => quoted(&mut chars, '"', word.get_or_insert_default())?,
            '\\' => word.get_or_insert_default().push(chars.next().ok_or("a backslash ends the command")?),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    if words.is_empty() { Err("the command has no word".to_owned()) } else { Ok(words) }
}

fn quoted(chars: &mut std::str::Chars<'_>, quote: char, word: &mut String) -> Result<(), String> {
    loop {
        match chars.next() {
            None => return Err(format!("a {quote} is not closed")),
            Some(char) if char == quote => return Ok(()),
            // Within double quotes a backslash is special before a quote and itself only, as in a shell.
            Some('\\') if quote == '"' => match chars.next() {
                Some(char @ ('"' | '\\')) => word.push(char),
                Some(char) => word.extend(['\\', char]),
                None => return Err(format!("a {quote} is not closed")),
            },
            Some(char) => word.push(char),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_a_shell_without_expansion() {
        let check = |text: &str, expected: &[&str]| assert_eq!(split(text).unwrap(), expected, "{text}");
        check("a bc  d", &["a", "bc", "d"]);
        check("a 'b c' \"d e\"", &["a", "b c", "d e"]);
        check(r#"a\ b "c\"d\n" 'e\f'"#, &["a b", "c\"d\\n", "e\\f"]);
        check("a '' b''c", &["a", "", "bc"]);
        check("echo $HOME *.txt ; rm", &["echo", "$HOME", "*.txt", ";", "rm"]);
    }

    #[test]
    fn unfinished_words_are_refused() {
        for text in ["", "  ", "a 'b", "a \"b", "a \"b\\", "a\\"] {
            assert!(split(text).is_err(), "{text:?}");
        }
    }
}
