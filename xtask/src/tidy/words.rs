//! Are names and sentences in the field's words?
//!
//! ```text
//! names that a file gives -> their parts      } -> words that are refused, counted by file
//! comments, Markdown, sentences in strings    }
//! ```
//!
//! A name counts where it is given (a function, type, field, variant, binding, parameter, module, file), not where it
//! is used: who renames it changes one place of the count. Names are taken apart at `_` and at capitals.
//!
//! Prose are comments and Markdown without what stands in backticks, fences and block quotes, and strings with a
//! space in them. Serde's names and strings of formats are strings without a space.
//!
//! `CHANGELOG.md` counts as prose: what it has says what was, and the baseline keeps it; new lines add nothing.

use std::collections::BTreeMap;

use super::facts::Source;
use super::finding::Measure;
use super::source::Sources;
use super::tree::Tree;

/// Parts of a name, with their forms; a name with an underscore is several parts in a row.
const PARTS: [(&str, &[&str]); 27] = [
    ("news", &[]),
    ("doubt", &["doubts"]),
    ("doubtful", &[]),
    ("believe", &["believes", "believed"]),
    ("young", &["younger"]),
    ("owed", &[]),
    ("unsaid", &[]),
    ("told", &[]),
    ("untold", &[]),
    ("mend", &["mends", "mended", "mending"]),
    ("even_out", &[]),
    ("evening", &[]),
    ("rehome", &["rehomes", "rehomed", "rehoming"]),
    ("weakest", &[]),
    ("homes", &[]),
    ("heed", &["heeds", "heeded"]),
    ("rid", &[]),
    ("stray", &["strays"]),
    ("brought", &[]),
    ("doomed", &[]),
    ("bent", &[]),
    ("crowd", &["crowds", "crowded"]),
    ("story", &["stories"]),
    ("put_out", &[]),
    ("come_under", &["comes_under"]),
    ("hand_in", &["hands_in"]),
    ("hand_over", &["hands_over"]),
];

/// More of them: states and spans, and what means something else in one place.
const MORE_PARTS: [(&str, &[&str]); 3] =
    [("is_shut", &[]), ("patience", &[]), ("ghost", &["ghosts"])];

/// Here a `ghost` is what ARC and S3-FIFO call one.
const CACHE_POLICIES: &str = "crates/policy/src/cache";

/// Whole names.
const WHOLE: [&str; 9] = [
    "Twin", "Letter", "Sides", "Seen", "Held", "Kept", "Known", "Figures", "tell",
];

/// Words of prose with their forms; one with an underscore is several words in a row.
const PROSE: [(&str, &[&str]); 9] = [
    ("somebody", &[]),
    ("nobody", &[]),
    ("whoever", &[]),
    ("he", &[]),
    ("his", &[]),
    ("him", &["himself"]),
    ("in_doubt", &[]),
    ("goes_by_itself", &["go_by_itself", "go_by_themselves"]),
    ("home", &["homes"]),
];

/// What the refused words are, for one tree.
#[must_use]
pub fn words(tree: &Tree, sources: &Sources) -> Vec<Measure> {
    let refused = Refused::new();
    let mut measures = Vec::new();
    for source in &sources.files {
        let mut found = refused.in_path(&source.file);
        found.extend(refused.in_names(source));
        for paragraph in comments(source) {
            found.extend(refused.in_prose(&paragraph));
        }
        for string in source.strings.iter().filter(|it| it.text.contains(' ')) {
            let mut paragraph = Paragraph::default();
            paragraph.add(string.line, &string.text);
            found.extend(refused.in_prose(&paragraph));
        }
        measures.extend(count(&source.file, found));
    }
    for file in tree.with_extension("md") {
        // Written from comments, where its words are counted.
        if super::papers::is_page(file) {
            continue;
        }
        let mut found = refused.in_path(file);
        for paragraph in markdown(&tree.text(file).unwrap_or_default()) {
            found.extend(refused.in_prose(&paragraph));
        }
        measures.extend(count(file, found));
    }
    measures
}

/// A refused word at one place.
struct Found {
    word: &'static str,
    line: usize,
    /// The name or the words around it.
    what: String,
}

fn count(file: &str, found: Vec<Found>) -> Vec<Measure> {
    let mut by_word: BTreeMap<&str, Vec<Found>> = BTreeMap::new();
    for it in found {
        by_word.entry(it.word).or_default().push(it);
    }
    let measure = |(word, found): (&str, Vec<Found>)| {
        let lines: Vec<String> = found
            .iter()
            .map(|it| format!("{} ({})", it.what, it.line))
            .collect();
        Measure {
            rule: "words",
            key: format!("{file}: {word}"),
            now: found.len(),
            limit: 0,
            file: file.to_owned(),
            line: found.last().map_or(0, |it| it.line),
            what: format!(
                "`{word}` stands in {}; the glossary has the field's word",
                lines.join(", ")
            ),
        }
    };
    by_word.into_iter().map(measure).collect()
}

/// What is looked for.
struct Refused {
    /// A row of parts, and the word it is a form of.
    parts: Vec<Row>,
    prose: Vec<Row>,
}

/// Words that follow each other, and what their entry is called.
type Row = (Vec<&'static str>, &'static str);

impl Refused {
    fn new() -> Refused {
        let rows = |(word, forms): &(&'static str, &'static [&'static str])| {
            let forms = forms.iter().chain(std::iter::once(word));
            forms
                .map(|form| (form.split('_').collect(), *word))
                .collect::<Vec<Row>>()
        };
        Refused {
            parts: PARTS.iter().chain(&MORE_PARTS).flat_map(rows).collect(),
            prose: PROSE.iter().flat_map(rows).collect(),
        }
    }

    /// In the names of the file and its folders.
    fn in_path(&self, file: &str) -> Vec<Found> {
        // A folder's name counts once, at the file that is the module.
        let own = file.strip_suffix("/mod.rs").unwrap_or(file);
        let name = own.rsplit_once('/').map_or(own, |(_, name)| name);
        let name = name.split('.').next().unwrap_or_default().replace('-', "_");
        self.in_name(file, &name, 0).collect()
    }

    fn in_names(&self, source: &Source) -> Vec<Found> {
        let names = source.names.iter();
        names
            .flat_map(|(name, line)| self.in_name(&source.file, name, *line))
            .collect()
    }

    fn in_name(&self, file: &str, name: &str, line: usize) -> impl Iterator<Item = Found> {
        let parts = parts_of(name);
        let mut words: Vec<&'static str> = Vec::new();
        for (row, word) in &self.parts {
            let excepted = *word == "ghost" && file.starts_with(CACHE_POLICIES);
            if !excepted && parts.windows(row.len()).any(|window| window == &row[..]) {
                words.push(word);
            }
        }
        words.extend(WHOLE.iter().filter(|whole| **whole == name));
        let what = format!("`{name}`");
        words.into_iter().map(move |word| Found {
            word,
            line,
            what: what.clone(),
        })
    }

    fn in_prose(&self, paragraph: &Paragraph) -> Vec<Found> {
        let text = &paragraph.text;
        let words = words_of(text);
        let mut found = Vec::new();
        for i in 0..words.len() {
            for (row, word) in &self.prose {
                let here = words.get(i..i + row.len()).unwrap_or_default();
                let same = here
                    .iter()
                    .zip(row)
                    .all(|(at, part)| text[at.clone()].eq_ignore_ascii_case(part));
                let Some(last) = here.last().filter(|_| same) else {
                    continue;
                };
                let at = here[0].start..last.end;
                if *word == "home" && is_no_device(&text[..at.start], &text[at.end..]) {
                    continue;
                }
                let before = i.checked_sub(1).map_or("", |i| &text[words[i].clone()]);
                let behind = words.get(i + row.len()).map_or("", |at| &text[at.clone()]);
                found.push(Found {
                    word,
                    line: paragraph.line_at(at.start),
                    what: format!("\"{}\"", format!("{before} {} {behind}", &text[at]).trim()),
                });
            }
        }
        found
    }
}

/// Where the words of a text are.
fn words_of(text: &str) -> Vec<std::ops::Range<usize>> {
    let mut words: Vec<std::ops::Range<usize>> = Vec::new();
    for (i, c) in text.char_indices() {
        if !(c.is_alphanumeric() || c == '_') {
            continue;
        }
        let end = i + c.len_utf8();
        match words.last_mut().filter(|word| word.end == i) {
            Some(word) => word.end = end,
            None => words.push(i..end),
        }
    }
    words
}

/// Is this `home` a directory of a user, or a place on the web?
fn is_no_device(before: &str, behind: &str) -> bool {
    let behind = behind.trim_start();
    behind.starts_with("director")
        || behind.starts_with("page")
        || behind.starts_with('/')
        || before.ends_with(['$', '~', '/'])
}

/// The parts of a name in lower case: `put_out`, `PutOut`, `PUT_OUT` have the same.
fn parts_of(name: &str) -> Vec<String> {
    let chars: Vec<char> = name.chars().collect();
    let mut parts = vec![String::new()];
    for (i, c) in chars.iter().enumerate() {
        let before = i.checked_sub(1).map(|i| chars[i]);
        let behind = chars.get(i + 1);
        let begins = c.is_uppercase()
            && before.is_some_and(|b| {
                !b.is_uppercase() || behind.is_some_and(|behind| behind.is_lowercase())
            });
        if *c == '_' || begins {
            parts.push(String::new());
        }
        if *c != '_' {
            let last = parts.last_mut().expect("there is one from the start");
            last.extend(c.to_lowercase());
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Prose that belongs together, with the lines it came from.
#[derive(Debug, Default)]
struct Paragraph {
    text: String,
    /// Where in `text` each line begins.
    starts: Vec<(usize, usize)>,
}

impl Paragraph {
    fn add(&mut self, line: usize, text: &str) {
        self.starts.push((self.text.len(), line));
        let mut in_code = false;
        for c in text.chars() {
            if c == '`' {
                in_code = !in_code;
            }
            self.text.push(if in_code { '`' } else { c });
        }
        self.text.push(' ');
    }

    fn line_at(&self, at: usize) -> usize {
        let before = self.starts.iter().take_while(|(start, _)| *start <= at);
        before.last().map_or(0, |(_, line)| *line)
    }
}

/// Gathers lines to paragraphs and leaves fences and block quotes out.
#[derive(Default)]
struct Gather {
    done: Vec<Paragraph>,
    paragraph: Paragraph,
    fenced: bool,
}

impl Gather {
    fn line(&mut self, line: usize, text: &str) {
        let text = text.trim();
        if text.starts_with("```") {
            self.fenced = !self.fenced;
        } else if text.is_empty() {
            self.done.push(std::mem::take(&mut self.paragraph));
        } else if !self.fenced && !text.starts_with('>') {
            self.paragraph.add(line, text);
        }
    }

    /// The end of a comment ends its fence too.
    fn end(&mut self) {
        self.fenced = false;
        self.done.push(std::mem::take(&mut self.paragraph));
    }
}

fn comments(source: &Source) -> Vec<Paragraph> {
    let mut gather = Gather::default();
    for (i, line) in source.lines.iter().enumerate() {
        if line.comment.is_empty() {
            gather.end();
        } else {
            let text = line.comment.trim().trim_start_matches(['/', '!', '*']);
            gather.line(i + 1, text);
        }
    }
    gather.end();
    gather.done
}

fn markdown(text: &str) -> Vec<Paragraph> {
    let mut gather = Gather::default();
    for (i, line) in text.lines().enumerate() {
        gather.line(i + 1, line);
    }
    gather.end();
    gather.done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_taken_apart_at_underscores_and_capitals() {
        assert_eq!(parts_of("put_out"), ["put", "out"]);
        assert_eq!(parts_of("PutOut"), ["put", "out"]);
        assert_eq!(parts_of("PUT_OUT"), ["put", "out"]);
        assert_eq!(parts_of("readNBDBlock2"), ["read", "nbd", "block2"]);
    }

    #[test]
    fn code_in_prose_is_left_out_and_lines_are_kept() {
        let paragraphs = markdown("one\n`two` three\n\n```text\nfour\n```\n> five\nsix\n");
        let texts: Vec<&str> = paragraphs
            .iter()
            .map(|it| it.text.trim())
            .filter(|text| !text.is_empty())
            .collect();
        assert_eq!(texts, ["one ````` three", "six"]);
        assert_eq!(paragraphs[0].line_at(5), 2);
    }
}
