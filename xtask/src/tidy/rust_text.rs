//! Which part of a Rust line is code, and which is comment?
//!
//! ```text
//! source text -> tokens -> per line: code (string contents blanked), comment (with its slashes)
//! ```
//!
//! The tokens are proc-macro2's. What stands between two tokens is space or comment; a doc comment is a
//! token whose text begins with a slash. A text that has no tokens (an unclosed string) is all code.

use std::ops::Range;
use std::str::FromStr;

use proc_macro2::{Span, TokenStream, TokenTree};

/// One line, taken apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Line {
    /// The code, with the contents of strings and characters as spaces.
    pub code: String,
    /// The comment, from its first slash on; empty where there is none.
    pub comment: String,
}

/// A string in the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// The line it begins on, from 1.
    pub line: usize,
    /// Its contents as they are written, escapes and all.
    pub text: String,
}

/// Takes `source` apart, one entry per line.
#[must_use]
pub fn lines(source: &str) -> Vec<Line> {
    match TokenStream::from_str(source) {
        Ok(tokens) => {
            let (lines, _) = take_apart(source, &tokens);
            proc_macro2::extra::invalidate_current_thread_spans();
            lines
        }
        Err(_) => source
            .lines()
            .map(|line| Line {
                code: line.to_owned(),
                comment: String::new(),
            })
            .collect(),
    }
}

/// Takes `source` apart by its `tokens`: one entry per line, and the strings that are no doc comments.
#[must_use]
pub fn take_apart(source: &str, tokens: &TokenStream) -> (Vec<Line>, Vec<Text>) {
    let source = unmarked(source);
    let mut split = Split::default();
    let mut strings = Vec::new();
    let mut at = 0;
    walk(source, tokens.clone(), &mut |piece| {
        let text = &source[piece.range.clone()];
        split.between(&source[at..piece.range.start]);
        split.code(text, piece.literal);
        at = piece.range.end;
        let inner = text.trim_start_matches(['b', 'c', 'r', '#']);
        if let Some(inner) = inner.strip_prefix('"').filter(|_| piece.literal) {
            strings.push(Text {
                line: piece.line,
                text: inner.trim_end_matches('#').trim_end_matches('"').to_owned(),
            });
        }
    });
    split.between(&source[at..]);
    (split.end(), strings)
}

/// A text without its byte order mark, which spans do not count.
fn unmarked(source: &str) -> &str {
    source.strip_prefix('\u{feff}').unwrap_or(source)
}

/// A token in the text, or one brace of a group.
struct Piece {
    range: Range<usize>,
    line: usize,
    /// Is it a string, a character or a number?
    literal: bool,
}

/// Gives every token that is not a doc comment to `see`, in order.
fn walk(source: &str, tokens: TokenStream, see: &mut impl FnMut(Piece)) {
    let piece = |span: Span, literal| Piece {
        range: span.byte_range(),
        line: span.start().line,
        literal,
    };
    // A doc comment became `#[doc = ".."]`, each part of which has the comment as its text.
    let is_comment = |span: Span| source[span.byte_range()].starts_with('/');
    let mut in_comment = false;
    for token in tokens {
        match token {
            TokenTree::Punct(punct) => {
                in_comment = match punct.as_char() {
                    '#' => is_comment(punct.span()),
                    '!' => in_comment,
                    _ => false,
                };
                if !in_comment {
                    see(piece(punct.span(), false));
                }
            }
            TokenTree::Group(_) if in_comment => in_comment = false,
            TokenTree::Group(group) => {
                see(piece(group.span_open(), false));
                walk(source, group.stream(), see);
                see(piece(group.span_close(), false));
            }
            TokenTree::Literal(literal) => see(piece(literal.span(), true)),
            TokenTree::Ident(ident) => see(piece(ident.span(), false)),
        }
    }
}

/// Lines as they come about.
#[derive(Default)]
struct Split {
    lines: Vec<Line>,
    line: Line,
}

impl Split {
    fn newline(&mut self) {
        self.lines.push(std::mem::take(&mut self.line));
    }

    /// A token; of a literal only the quotes and what stands before them stay.
    fn code(&mut self, text: &str, literal: bool) {
        let open = text.find(['"', '\'']).filter(|_| literal);
        let close = text.rfind(['"', '\'']).filter(|_| literal);
        for (i, c) in text.char_indices() {
            if c == '\n' {
                self.newline();
            } else if open.is_some_and(|open| i > open) && close.is_some_and(|close| i < close) {
                self.line.code.push(' ');
            } else {
                self.line.code.push(c);
            }
        }
    }

    /// Space and comments.
    fn between(&mut self, text: &str) {
        let mut in_comment = false;
        let mut in_block = false;
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            if c == '\n' {
                in_comment = in_block;
                self.newline();
                continue;
            }
            if c == '/' && !in_comment {
                in_comment = true;
                // What follows a block up to the next token is no code either.
                in_block = rest.peek() == Some(&'*');
            }
            if in_comment {
                self.line.comment.push(c);
            } else {
                self.line.code.push(c);
            }
        }
    }

    fn end(mut self) -> Vec<Line> {
        if self.line != Line::default() {
            self.newline();
        }
        self.lines
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
        assert_eq!(code("a /* b /* c */ d */ e"), ["a e"]);
        assert_eq!(code("a / b"), ["a / b"]);
    }

    #[test]
    fn a_doc_comment_is_a_comment() {
        let lines = lines("//! Head.\n\n/// Of `f`.\nfn f() {\n    /* a\n       b */ g();\n}\n");
        let comments: Vec<&str> = lines.iter().map(|line| line.comment.trim()).collect();
        assert_eq!(
            comments,
            ["//! Head.", "", "/// Of `f`.", "", "/* a", "b */", ""]
        );
        assert_eq!(lines[2].code, "");
        assert_eq!(lines[5].code, "g();");
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
    fn strings_are_found_with_their_lines() {
        let source = "/// Doc.\nfn f() {\n    g(\"a b\", r#\"c\"#, 'd', b\"e\");\n}\n";
        let tokens = TokenStream::from_str(source).expect("it has tokens");
        let found: Vec<(usize, String)> = take_apart(source, &tokens)
            .1
            .into_iter()
            .map(|text| (text.line, text.text))
            .collect();
        assert_eq!(
            found,
            [
                (3, "a b".to_owned()),
                (3, "c".to_owned()),
                (3, "e".to_owned())
            ]
        );
    }
}
