//! Names from outside on a terminal: what would move the cursor, change its colours or turn the text around is written out.
//!
//! Always true: two names that differ are shown differently.

use std::borrow::Cow;

/// Does a character change how others are shown?
fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// The name with such characters as escapes (`\n`, `\u{1b}`), and backslashes doubled.
pub fn printable(name: &str) -> Cow<'_, str> {
    if !name.chars().any(|c| c == '\\' || is_unseen(c)) {
        return Cow::Borrowed(name);
    }
    let mut shown = String::with_capacity(name.len() + 16);
    for c in name.chars() {
        match c {
            '\\' => shown.push_str("\\\\"),
            '\n' | '\r' | '\t' => shown.extend(c.escape_default()),
            c if is_unseen(c) => shown.extend(c.escape_unicode()),
            c => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_would_change_the_terminal_is_written_out() {
        for (name, shown) in [
            ("songs/1 \u{e9}\u{4e16}", "songs/1 \u{e9}\u{4e16}"),
            ("a\u{1b}[2Jb", r"a\u{1b}[2Jb"),
            ("a\nb\rc\td", r"a\nb\rc\td"),
            (r"a\nb", r"a\\nb"),
            ("a\u{202e}b\u{9b}c", r"a\u{202e}b\u{9b}c"),
        ] {
            assert_eq!(printable(name), shown);
        }
    }
}
