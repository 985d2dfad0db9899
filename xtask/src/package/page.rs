//! A page of man from a page of `docs/`.
//!
//! ```text
//! headings -> sections     a row of a table -> a tagged paragraph: the first cell, then the others
//! code -> an example       a list -> marked paragraphs                  links -> their words
//! ```
//!
//! It knows the Markdown that `docs/` is written in, not all there is.

use std::fmt::Write as _;

/// The page `name(section)`, about something, of a day.
#[must_use]
pub fn of_markdown(text: &str, (name, section): (&str, u8), about: &str, day: &str) -> String {
    let mut page = Page::default();
    let version = env!("CARGO_PKG_VERSION");
    let title = plain(&name.to_uppercase());
    let _ = writeln!(
        page.text,
        ".TH \"{title}\" \"{section}\" \"{day}\" \"Tanada {version}\" \"Tanada\""
    );
    let (name, about) = (plain(name), plain(about));
    let _ = writeln!(page.text, ".SH NAME\n{name} \\- {about}\n.SH DESCRIPTION");
    for line in text.lines() {
        page.line(line);
    }
    page.text
}

/// As long as a line of text may be, in bytes.
const LINE_MAX: usize = 78;

/// The day of the newest entry of a Debian changelog, as `2026-11-26`.
#[must_use]
pub fn day(changelog: &str) -> Option<String> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let signed = changelog.lines().find(|line| line.starts_with(" -- "))?;
    let (_, date) = signed.rsplit_once(", ")?;
    let mut words = date.split_whitespace();
    let (day, month, year) = (words.next()?, words.next()?, words.next()?);
    let month = MONTHS.iter().position(|it| *it == month)? + 1;
    Some(format!("{year}-{month:02}-{day:0>2}"))
}

/// A page so far, and what the next line goes on with.
#[derive(Debug, Default)]
struct Page {
    text: String,
    in_code: bool,
    /// The heads of the table that the line is in.
    heads: Vec<String>,
    /// A paragraph is to begin with the next text.
    at_gap: bool,
}

impl Page {
    fn line(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix("```") {
            self.in_code = !self.in_code && !rest.contains("```");
            self.begin();
            self.text
                .push_str(if self.in_code { ".EX\n" } else { ".EE\n" });
            self.at_gap = !self.in_code;
        } else if self.in_code {
            self.put(&plain(line));
        } else if line.starts_with('|') {
            self.row(line);
        } else if line.trim().is_empty() {
            self.heads.clear();
            self.at_gap = true;
        } else {
            self.prose(line);
        }
    }

    fn prose(&mut self, line: &str) {
        if let Some(title) = line.strip_prefix("## ") {
            self.heading("SH", title);
        } else if let Some(title) = line.strip_prefix("### ") {
            self.heading("SS", title);
        } else if line.starts_with("# ") {
            // The page's name stands for it.
        } else if let Some(item) = line.strip_prefix("- ") {
            self.at_gap = false;
            self.text.push_str(".IP \\(bu 2\n");
            self.fill(&inline(item));
        } else {
            self.begin();
            self.fill(&inline(line.trim_start()));
        }
    }

    fn heading(&mut self, what: &str, title: &str) {
        let title = inline(title).replace('"', "\\(dq");
        let _ = writeln!(self.text, ".{what} \"{title}\"");
        self.at_gap = false;
    }

    /// A new paragraph, if one is due: none is just behind a heading.
    fn begin(&mut self) {
        let last = self.text.lines().last().unwrap_or_default();
        let is_first = last.starts_with(".SH") || last.starts_with(".SS");
        if self.at_gap && !is_first {
            self.text.push_str(".PP\n");
        }
        self.at_gap = false;
    }

    fn row(&mut self, line: &str) {
        let cells = cells(line);
        let is_rule = cells
            .iter()
            .all(|it| it.chars().all(|sign| "-: ".contains(sign)));
        if self.heads.is_empty() {
            self.heads = cells;
        } else if !is_rule {
            let Some((tag, rest)) = cells.split_first() else {
                return;
            };
            self.text.push_str(".TP\n");
            self.fill(&inline(tag));
            let last = rest.len().saturating_sub(1);
            for (number, cell) in rest.iter().enumerate().filter(|(_, cell)| !cell.is_empty()) {
                match self.heads.get(number + 1) {
                    Some(head) if number < last => {
                        self.fill(&format!("{}: {}.", inline(head), inline(cell)))
                    }
                    _ => self.fill(&inline(cell)),
                }
            }
            self.at_gap = true;
        }
    }

    /// Text, in lines that are short enough for mandoc.
    fn fill(&mut self, text: &str) {
        let mut line = String::new();
        for word in text.split_whitespace() {
            if !line.is_empty() && line.len() + 1 + word.len() > LINE_MAX {
                self.put(&line);
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        self.put(&line);
    }

    /// A line of text, which no sign at its start makes a request of.
    fn put(&mut self, line: &str) {
        let guard = if line.starts_with(['.', '\'']) {
            "\\&"
        } else {
            ""
        };
        let _ = writeln!(self.text, "{guard}{line}");
    }
}

/// The cells of a row; in code a bar may stand as `\|`.
fn cells(line: &str) -> Vec<String> {
    let inner = line.trim().trim_start_matches('|');
    let inner = inner
        .strip_suffix('|')
        .unwrap_or(inner)
        .replace("\\|", "\u{1}");
    let each = inner
        .split('|')
        .map(|cell| cell.trim().replace('\u{1}', "|"));
    each.collect()
}

/// Text as it is, for man.
fn plain(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

/// Code in bold, emphasis in italics, links by their words.
fn inline(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['`', '[', '*']) {
        let (before, from) = rest.split_at(at);
        out.push_str(&plain(before));
        let (piece, after) = marked(from);
        out.push_str(&piece);
        rest = after;
    }
    out.push_str(&plain(rest));
    out
}

/// What begins `text` with a mark, for man, and what follows it.
fn marked(text: &str) -> (String, &str) {
    if let Some((code, after)) = text.strip_prefix('`').and_then(|it| it.split_once('`')) {
        return (format!("\\fB{}\\fR", plain(code)), after);
    }
    if let Some((words, after)) = text.strip_prefix('[').and_then(|it| it.split_once("]("))
        && let Some((_, after)) = after.split_once(')').filter(|_| !words.contains('['))
    {
        return (inline(words), after);
    }
    if let Some((strong, after)) = text.strip_prefix("**").and_then(|it| it.split_once("**")) {
        return (format!("\\fB{}\\fR", plain(strong)), after);
    }
    if let Some((word, after)) = text.strip_prefix('*').and_then(|it| it.split_once('*')) {
        return (format!("\\fI{}\\fR", plain(word)), after);
    }
    let mut rest = text.chars();
    let sign = rest.next().map(String::from).unwrap_or_default();
    (sign, rest.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_of_the_day_of_the_changelog() {
        let text = "tanada (1.2.3-1) unstable; urgency=medium\n\n  * One, two.\n\n -- A, B <a@b>  Thu, 6 Nov 2026 20:00:00 +0000\n";
        assert_eq!(day(text).as_deref(), Some("2026-11-06"));
        assert_eq!(day("tanada"), None);
    }

    #[test]
    fn a_page_has_sections_tagged_paragraphs_examples_and_lists() {
        let text = "# Configuration\n\nOne *file*, see [the page](daemon.md#x) of `[[device]]`.\n\n## Keys\n\n\
                    | key | default | meaning |\n|---|---|---|\n| `a-b` | `1` | A **size**. |\n| `c` | | Or `x\\|y`. |\n\n\
                    Below.\n\n```text\n.dot \\n\n```\n\n- one\n  goes on\n- two\n";
        let page = of_markdown(text, ("tanada.toml", 5), "configuration", "2026-11-26");
        let lines: Vec<&str> = page.lines().skip(3).collect();
        assert_eq!(
            lines,
            [
                ".SH DESCRIPTION",
                "One \\fIfile\\fR, see the page of \\fB[[device]]\\fR.",
                ".SH \"Keys\"",
                ".TP",
                "\\fBa\\-b\\fR",
                "default: \\fB1\\fR.",
                "A \\fBsize\\fR.",
                ".TP",
                "\\fBc\\fR",
                "Or \\fBx|y\\fR.",
                ".PP",
                "Below.",
                ".PP",
                ".EX",
                "\\&.dot \\en",
                ".EE",
                ".IP \\(bu 2",
                "one",
                "goes on",
                ".IP \\(bu 2",
                "two",
            ]
        );
    }
}
