//! How do figures stand in rows, and which few stand in large type?

use super::markup::{escape, put};
use super::scale::Unit;

/// One cell: what is shown, and the number it stands for.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    shown: String,
    number: Option<f64>,
    best: bool,
}

impl Cell {
    /// A number in its unit.
    pub fn of(value: f64, unit: &Unit) -> Cell {
        Cell::shown(value, unit.show(value))
    }

    /// A number shown as `text`; the column is sorted by the number.
    pub fn shown(value: f64, text: impl Into<String>) -> Cell {
        Cell {
            shown: text.into(),
            number: Some(value),
            best: false,
        }
    }

    /// Nothing known.
    pub fn none() -> Cell {
        Cell::from("-")
    }

    /// In bold: the best of its column, or the row that is in use.
    #[must_use]
    pub fn best(mut self) -> Cell {
        self.best = true;
        self
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::from(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(shown: String) -> Cell {
        Cell {
            shown,
            number: None,
            best: false,
        }
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Cell {
        Cell::of(value, &Unit::Number)
    }
}

impl From<u64> for Cell {
    /// Every digit, thousands apart.
    fn from(value: u64) -> Cell {
        let plain = value.to_string();
        let mut text = String::new();
        for (n, digit) in plain.chars().enumerate() {
            if n > 0 && (plain.len() - n).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        Cell::shown(value as f64, text)
    }
}

/// Rows of figures. The reader sorts them by a click on a heading.
#[derive(Debug, Clone)]
pub struct Table {
    title: String,
    head: Vec<String>,
    rows: Vec<Vec<Cell>>,
    fixed: bool,
    folded: bool,
}

impl Table {
    /// A table called `title` (none if empty) with one column for each of `head`.
    pub fn new<S: Into<String>>(
        title: impl Into<String>,
        head: impl IntoIterator<Item = S>,
    ) -> Table {
        Table {
            title: title.into(),
            head: head.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
            fixed: false,
            folded: false,
        }
    }

    /// One more row; what a short one lacks is left empty.
    #[must_use]
    pub fn row<C: Into<Cell>>(mut self, cells: impl IntoIterator<Item = C>) -> Table {
        self.rows.push(cells.into_iter().map(Into::into).collect());
        self
    }

    /// The order of the rows is part of what they say.
    #[must_use]
    pub fn fixed(mut self) -> Table {
        self.fixed = true;
        self
    }

    /// Behind its title until the reader asks: a long list of all figures.
    #[must_use]
    pub fn folded(mut self) -> Table {
        self.folded = true;
        self
    }

    pub(super) fn is_sortable(&self) -> bool {
        !self.fixed && self.rows.len() > 1
    }

    fn columns(&self) -> usize {
        let longest = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        longest.max(self.head.len())
    }

    /// Numbers alone (and nothing) stand right.
    fn is_numeric(&self, column: usize) -> bool {
        let mut cells = self.rows.iter().filter_map(|row| row.get(column));
        let blank = |cell: &Cell| cell.shown.is_empty() || cell.shown == "-";
        cells.clone().any(|cell| cell.number.is_some())
            && cells.all(|cell| cell.number.is_some() || blank(cell))
    }

    pub(super) fn put_into(&self, page: &mut String) {
        let title = escape(&self.title);
        page.push_str("<div class=\"table wide\">");
        match (self.folded, title.is_empty()) {
            (true, _) => put(page, format_args!("<details><summary>{title}</summary>")),
            (false, false) => put(page, format_args!("<h3>{title}</h3>")),
            (false, true) => {}
        }
        // A reader without a pointer scrolls a wide table with the keys.
        let name = if title.is_empty() { "Table" } else { &title };
        put(
            page,
            format_args!(
                "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{name}\">"
            ),
        );
        let sortable = if self.is_sortable() {
            " class=\"sortable\""
        } else {
            ""
        };
        put(page, format_args!("<table{sortable}><thead><tr>"));
        let columns = self.columns();
        let classes: Vec<&str> = (0..columns)
            .map(|column| {
                if self.is_numeric(column) {
                    " class=\"n\""
                } else {
                    ""
                }
            })
            .collect();
        for (column, class) in classes.iter().enumerate() {
            let name = self.head.get(column).map(|name| escape(name));
            let name = name.unwrap_or_default();
            put(page, format_args!("<th scope=\"col\"{class}>{name}</th>"));
        }
        page.push_str("</tr></thead><tbody>\n");
        for row in &self.rows {
            page.push_str("<tr data-row>");
            for (column, class) in classes.iter().enumerate() {
                put_cell(page, row.get(column), class);
            }
            page.push_str("</tr>\n");
        }
        page.push_str("</tbody></table></div>");
        if self.folded {
            page.push_str("</details>");
        }
        page.push_str("</div>\n");
    }
}

/// The longest text taken for a name, in characters.
const NAME_MAX: usize = 28;

fn put_cell(page: &mut String, cell: Option<&Cell>, class: &str) {
    let Some(cell) = cell else {
        page.push_str("<td></td>");
        return;
    };
    let shown = escape(&cell.shown);
    // A name is not broken in two; a sentence is.
    let name = class.is_empty() && (1..=NAME_MAX).contains(&cell.shown.chars().count());
    let class = if name { " class=\"k\"" } else { class };
    put(page, format_args!("<td{class}"));
    if let Some(number) = cell.number.filter(|number| number.is_finite()) {
        put(page, format_args!(" data-v=\"{number}\""));
    }
    match cell.best {
        true => put(page, format_args!("><b>{shown}</b></td>")),
        false => put(page, format_args!(">{shown}</td>")),
    }
}

/// A few figures, each with its name, in large type.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    facts: Vec<(String, String)>,
}

impl Facts {
    /// None yet.
    pub fn new() -> Facts {
        Facts::default()
    }

    /// One more: what it is called, and its value as it is to be read.
    #[must_use]
    pub fn fact(mut self, name: impl Into<String>, value: impl Into<String>) -> Facts {
        self.facts.push((name.into(), value.into()));
        self
    }

    pub(super) fn put_into(&self, page: &mut String) {
        page.push_str("<dl class=\"facts wide\">");
        for (name, value) in &self.facts {
            put(
                page,
                format_args!(
                    "<div><dt>{}</dt><dd>{}</dd></div>",
                    escape(name),
                    escape(value)
                ),
            );
        }
        page.push_str("</dl>\n");
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Page, Section};
    use super::*;

    #[test]
    fn columns_of_numbers_stand_right_and_sort_by_their_value() {
        let table = Table::new("Policies", ["policy", "miss ratio", "bytes"])
            .row([
                Cell::from("<lru>"),
                Cell::of(0.5, &Unit::Share).best(),
                1_234_567_u64.into(),
            ])
            .row([Cell::from("fifo"), Cell::none(), 2_u64.into()]);
        let page = Page::new("t").section(Section::new("s").put(table)).html();
        assert!(page.contains(
            "<th scope=\"col\">policy</th><th scope=\"col\" class=\"n\">miss ratio</th>"
        ));
        assert!(
            page.contains("<td class=\"n\" data-v=\"0.5\"><b>50 %</b></td>"),
            "{page}"
        );
        assert!(page.contains("data-v=\"1234567\">1,234,567</td>"));
        assert!(page.contains("&lt;lru&gt;") && page.contains("class=\"sortable\""));
    }

    #[test]
    fn a_row_may_be_short_and_a_table_empty() {
        let short = Table::new("", ["a", "b"]).row(["x"]);
        let empty = Table::new("", ["a"]);
        let page = Page::new("t")
            .section(Section::new("s").put(short).put(empty))
            .html();
        assert!(page.contains("<tr data-row><td class=\"k\">x</td><td></td></tr>"));
        assert!(!page.contains("<script"), "nothing to sort: no script");
    }
}
