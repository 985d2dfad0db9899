//! Which part of a Rust line is code, and which is comment?
//!
//! ```text
//! source text -> per line: code (string contents blanked), comment (with its slashes)
//! ```
//!
//! Enough of the language to look for words without being fooled by quotes: strings, raw strings,
//! characters, lifetimes, nested block comments. Not a parser.

/// One line, taken apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Line {
    /// The code, with the contents of strings and characters as spaces.
    pub code: String,
    /// The comment, from its first slash on; empty where there is none.
    pub comment: String,
}

enum State {
    Code,
    LineComment,
    BlockComment { depth: usize },
    Str,
    RawStr { hashes: usize },
}

/// Takes `source` apart, one entry per line.
#[must_use]
pub fn lines(source: &str) -> Vec<Line> {
    let chars: Vec<char> = source.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let mut state = State::Code;
    let mut lines = Vec::new();
    let mut line = Line::default();
    let mut i = 0;
    while i < chars.len() {
        let c = chars[i];
        if c == '\n' {
            lines.push(std::mem::take(&mut line));
            if matches!(state, State::LineComment) {
                state = State::Code;
            }
            i += 1;
            continue;
        }
        match state {
            State::Code => {
                if c == '/' && at(i + 1) == '/' {
                    state = State::LineComment;
                    continue;
                }
                if c == '/' && at(i + 1) == '*' {
                    state = State::BlockComment { depth: 0 };
                    continue;
                }
                if let Some(hashes) = raw_string_opens(&chars, i) {
                    // r, hashes, quote.
                    let opening = if c == 'b' { 3 } else { 2 } + hashes;
                    line.code.extend(&chars[i..i + opening]);
                    i += opening;
                    state = State::RawStr { hashes };
                    continue;
                }
                if c == '"' {
                    state = State::Str;
                } else if c == '\'' {
                    let end = char_literal_end(&chars, i);
                    if end > i {
                        line.code.push('\'');
                        line.code.extend(std::iter::repeat_n(' ', end - i - 1));
                        line.code.push('\'');
                        i = end + 1;
                        continue;
                    }
                }
                line.code.push(c);
            }
            State::LineComment => line.comment.push(c),
            State::BlockComment { depth } => {
                line.comment.push(c);
                if c == '/' && at(i + 1) == '*' {
                    line.comment.push('*');
                    i += 1;
                    state = State::BlockComment { depth: depth + 1 };
                } else if c == '*' && at(i + 1) == '/' {
                    line.comment.push('/');
                    i += 1;
                    state = if depth == 1 {
                        State::Code
                    } else {
                        State::BlockComment { depth: depth - 1 }
                    };
                }
            }
            State::Str => {
                if c == '\\' {
                    line.code.push(' ');
                    // The escaped character is skipped with it, unless it ends the line.
                    if at(i + 1) != '\n' {
                        line.code.push(' ');
                        i += 1;
                    }
                } else if c == '"' {
                    line.code.push(c);
                    state = State::Code;
                } else {
                    line.code.push(' ');
                }
            }
            State::RawStr { hashes } => {
                if c == '"' && (1..=hashes).all(|n| at(i + n) == '#') {
                    line.code.extend(&chars[i..=i + hashes]);
                    i += hashes;
                    state = State::Code;
                } else {
                    line.code.push(' ');
                }
            }
        }
        i += 1;
    }
    if line != Line::default() {
        lines.push(line);
    }
    lines
}

/// The number of hashes if a raw string opens at `i`.
fn raw_string_opens(chars: &[char], i: usize) -> Option<usize> {
    let before = i.checked_sub(1).map(|b| chars[b]);
    if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
        return None;
    }
    let mut j = i;
    if chars[j] == 'b' {
        j += 1;
    }
    if chars.get(j) != Some(&'r') {
        return None;
    }
    j += 1;
    let hashes = chars[j..].iter().take_while(|c| **c == '#').count();
    (chars.get(j + hashes) == Some(&'"')).then_some(hashes)
}

/// Where the character literal that opens at `i` closes; `i` itself for a lifetime.
fn char_literal_end(chars: &[char], i: usize) -> usize {
    if chars.get(i + 1) == Some(&'\\') {
        // '\n', '\'', '\u{1f600}': the first quote behind the escaped character.
        return (i + 3..chars.len())
            .take_while(|j| chars[*j] != '\n')
            .find(|j| chars[*j] == '\'')
            .unwrap_or(i);
    }
    if chars.get(i + 2) == Some(&'\'') {
        i + 2
    } else {
        i
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(source: &str) -> Vec<String> {
        lines(source).into_iter().map(|line| line.code).collect()
    }

    #[test]
    fn strings_and_comments_are_not_code() {
        assert_eq!(code("let a = \"x // y\"; // z"), ["let a = \"      \"; "]);
        assert_eq!(lines("let a = 1; // z")[0].comment, "// z");
        assert_eq!(code("a /* b /* c */ d */ e"), ["a  e"]);
    }

    #[test]
    fn quotes_inside_quotes_do_not_end_them() {
        assert_eq!(
            code(r#"f("a\"b", '"', '\'', c)"#),
            [r#"f("    ", ' ', '  ', c)"#]
        );
        assert_eq!(code("r#\"a\"b\"# + x"), ["r#\"   \"# + x"]);
    }

    #[test]
    fn a_lifetime_is_not_a_character() {
        assert_eq!(code("fn f<'a>(x: &'a str) {}"), ["fn f<'a>(x: &'a str) {}"]);
    }

    #[test]
    fn a_string_may_run_over_lines() {
        assert_eq!(code("a(\"b\nc\"); d"), ["a(\" ", " \"); d"]);
    }

    #[test]
    fn a_name_that_ends_in_r_opens_no_raw_string() {
        assert_eq!(code("bar\"x\" y"), ["bar\" \" y"]);
    }
}
