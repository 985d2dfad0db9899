//! How do the rows of an experiment become a page?
//!
//! ```text
//! rows -> by table -> bars for each (case, metric) that several methods share
//!                  -> one table with every row
//! ```
//!
//! Always true: every row is in the page, in its order, and the page needs no script.

use super::markup::{escape, put};
use super::page::{Page, Section};
use super::table::{Cell, Table};
use crate::row::{Row, Value};

/// A chart compares at least so many methods.
const METHODS_MIN: usize = 3;

const WIDTH: f64 = 440.0;
const BAR: f64 = 24.0;
/// Room for the names on the left and for the figures on the right.
const LABELS: f64 = 150.0;
const FIGURES: f64 = 64.0;

/// `rows` as one self-contained HTML page titled `title`.
///
/// # Example
/// ```
/// let page = report::html(&[], "Nothing yet");
/// assert!(page.contains("<h1>Nothing yet</h1>"));
/// ```
pub fn html(rows: &[Row], title: &str) -> String {
    html_with(rows, Vec::new(), title)
}

/// As [`html`], with the figures that an experiment drew before the rows.
pub fn html_with(rows: &[Row], figures: Vec<Section>, title: &str) -> String {
    let mut page = Page::new(title).lead(
        "Bars are means over the seeds, the thin lines reach from the least to the most. \
         Lower is better for seconds, watts and joules.",
    );
    page = figures.into_iter().fold(page, Page::section);
    for table in in_order(rows, |row| &row.table) {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.table == table).collect();
        let mut section = Section::new(table);
        for bars in bars(&rows) {
            section = section.put(bars);
        }
        page = page.section(section.put(whole_table(&rows)));
    }
    page.html()
}

/// The different values of a column, as they first appear.
fn in_order<'a>(rows: &'a [Row], column: impl Fn(&'a Row) -> &'a String) -> Vec<&'a str> {
    let mut seen: Vec<&str> = Vec::new();
    for row in rows {
        let value = column(row).as_str();
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

fn bars(rows: &[&Row]) -> Vec<Bars> {
    let mut groups: Vec<((&str, &str), Vec<&Row>)> = Vec::new();
    for row in rows {
        let key = (row.case.as_str(), row.metric.as_str());
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, group)) => group.push(row),
            None => groups.push((key, vec![row])),
        }
    }
    groups.retain(|(_, group)| group.len() >= METHODS_MIN);
    groups
        .into_iter()
        .map(|((case, metric), group)| {
            let unit = group.first().map_or("", |row| row.unit.as_str());
            let mut bars = Bars::new(format!("{case}: {metric} ({unit})"));
            for row in group {
                if let Some(mean) = row.ours.as_ref().and_then(Value::number) {
                    let end = |value: &Option<Value>| value.as_ref().and_then(Value::number);
                    let low = end(&row.low).unwrap_or(mean);
                    let high = end(&row.high).unwrap_or(mean);
                    bars = bars.bar(&row.method, mean, low, high);
                }
            }
            bars
        })
        .collect()
}

fn whole_table(rows: &[&Row]) -> Table {
    let head = [
        "case",
        "method",
        "metric",
        "unit",
        "published",
        "ours",
        "low",
        "high",
        "devices",
        "evidence",
        "bar",
        "verdict",
        "note",
    ];
    rows.iter()
        .fold(Table::new("All figures", head), |table, row| {
            let figure = |value: &Option<Value>| match value {
                Some(Value::Number(number)) => {
                    Cell::shown(*number, Value::Number(*number).to_string())
                }
                Some(Value::Text(text)) => Cell::from(text.as_str()),
                None => Cell::from(""),
            };
            table.row([
                Cell::from(row.case.as_str()),
                Cell::from(row.method.as_str()),
                Cell::from(row.metric.as_str()),
                Cell::from(row.unit.as_str()),
                figure(&row.published),
                figure(&row.ours),
                figure(&row.low),
                figure(&row.high),
                Cell::from(row.devices.to_string()),
                Cell::from(row.evidence.to_string()),
                figure(&row.bar.map(Value::Number)),
                Cell::from(row.verdict.map_or(String::new(), |it| it.to_string())),
                Cell::from(row.note.as_str()),
            ])
        })
        .fixed()
}

/// Bars from the left, one below the other, each with its figure and its spread.
#[derive(Debug, Clone)]
pub struct Bars {
    caption: String,
    bars: Vec<Bar>,
}

#[derive(Debug, Clone)]
struct Bar {
    name: String,
    mean: f64,
    low: f64,
    high: f64,
}

impl Bar {
    /// Ours, the published one, any other.
    fn class(&self) -> &'static str {
        match self.name.split('-').next() {
            Some("tanada") => "ours",
            Some("dmssd") => "published",
            _ => "other",
        }
    }
}

impl Bars {
    /// No bars yet, under `caption`, which names the unit.
    pub fn new(caption: impl Into<String>) -> Bars {
        Bars {
            caption: caption.into(),
            bars: Vec::new(),
        }
    }

    /// One more, from zero to `mean`, with a thin line from `low` to `high`.
    #[must_use]
    pub fn bar(mut self, name: impl Into<String>, mean: f64, low: f64, high: f64) -> Bars {
        self.bars.push(Bar {
            name: name.into(),
            mean,
            low,
            high,
        });
        self
    }

    pub(super) fn put_into(&self, page: &mut String) {
        let height = BAR * self.bars.len() as f64 + 4.0;
        // From zero, whichever way the bars point.
        let (least, most) = self
            .bars
            .iter()
            .fold((0.0_f64, 0.0_f64), |(least, most), bar| {
                (least.min(bar.low), most.max(bar.high))
            });
        let span = if most > least { most - least } else { 1.0 };
        let x = |value: f64| {
            let at = LABELS + (value - least) / span * (WIDTH - LABELS - FIGURES);
            (at * 10.0).round() / 10.0
        };
        let caption = escape(&self.caption);
        put(
            page,
            format_args!(
                "<figure class=\"bars\"><figcaption><h3>{caption}</h3></figcaption>\
                 <svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{caption}\">"
            ),
        );
        for (n, bar) in self.bars.iter().enumerate() {
            let top = BAR * n as f64;
            let (from, to) = (x(0.0_f64.min(bar.mean)), x(0.0_f64.max(bar.mean)));
            let (middle, line) = (top + BAR / 2.0, top + BAR / 2.0 + 4.5);
            put(
                page,
                format_args!(
                    "<text x=\"0\" y=\"{line}\">{}</text><rect class=\"{}\" x=\"{from}\" y=\"{}\" \
                     width=\"{}\" height=\"{}\"/>",
                    escape(&bar.name),
                    bar.class(),
                    top + 3.0,
                    ((to - from).max(1.0) * 10.0).round() / 10.0,
                    BAR - 6.0,
                ),
            );
            if bar.low < bar.high {
                put(
                    page,
                    format_args!(
                        "<path class=\"whisker\" d=\"M{} {middle}H{}\"/>",
                        x(bar.low),
                        x(bar.high)
                    ),
                );
            }
            put(
                page,
                format_args!(
                    "<text class=\"figure\" x=\"{}\" y=\"{line}\">{}</text>",
                    x(bar.high.max(bar.mean).max(0.0)) + 6.0,
                    escape(&Value::Number(bar.mean).to_string())
                ),
            );
        }
        page.push_str("</svg></figure>\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{Devices, Evidence};

    fn row(method: &str, ours: f64) -> Row {
        Row {
            experiment: "test".to_owned(),
            table: "speed & <size>".to_owned(),
            case: "read".to_owned(),
            method: method.to_owned(),
            metric: "seconds".to_owned(),
            unit: "s".to_owned(),
            published: Some(Value::Text("\"higher\"".to_owned())),
            ours: Some(Value::Number(ours)),
            low: None,
            high: None,
            devices: Devices::Modelled,
            evidence: Evidence::Measured,
            bar: None,
            verdict: None,
            note: "<script>alert(1)</script>".to_owned(),
        }
    }

    #[test]
    fn text_of_rows_is_never_markup() {
        let rows = [row("<b>", 1.0), row("a", 2.0), row("c&d", -3.0)];
        let page = html(&rows, "<i>");
        assert!(!page.contains("<script") && !page.contains("<b>") && !page.contains("<i>"));
        assert!(page.contains("&lt;script&gt;") && page.contains("&quot;higher&quot;"));
        assert!(page.contains("speed &amp; &lt;size&gt;"));
        assert_eq!(page.matches("<svg").count(), 1);
    }

    #[test]
    fn two_methods_make_a_table_but_no_chart() {
        let page = html(&[row("a", 1.0), row("b", 2.0)], "two");
        assert_eq!(
            (
                page.matches("<svg").count(),
                page.matches("<tr data-row").count()
            ),
            (0, 2)
        );
    }
}
