//! One HTML file that needs nothing else: what was measured, as charts and as tables.
//!
//! ```text
//! rows -> by table -> one bar chart for each (case, metric) that several methods share (SVG, inline)
//!                  -> one table with every row
//! ```
//!
//! Always true:
//! 1. The page loads nothing: no scripts, no fonts, no pictures from elsewhere.
//! 2. Every row is in it, and no text of a row is taken for markup.

use std::fmt::Write;

use plotters::prelude::*;

use crate::experiment::{Row, Value};

const WIDTH: u32 = 420;
const BAR: u32 = 24;
const LABELS: u32 = 150;
const RIM: u32 = 34;
/// A chart compares at least so many methods.
const METHODS_MIN: usize = 3;

const STYLE: &str = "\
body{font:15px/1.5 system-ui,sans-serif;max-width:1320px;margin:2em auto;padding:0 1em;color:#222}\
h1{font-size:1.6em}h2{margin-top:2em;border-bottom:2px solid #3b7a57}\
table{border-collapse:collapse;width:100%;font-size:13px}\
th,td{text-align:left;padding:3px 8px;border-bottom:1px solid #ddd;vertical-align:top}\
td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}\
.charts{display:flex;flex-wrap:wrap;gap:12px}figure{margin:0}\
@media print{details{display:block}}";

/// `rows` as one self-contained HTML page titled `title`.
///
/// # Example
/// ```
/// let page = lens::report::html(&[], "Nothing yet");
/// assert!(page.contains("<h1>Nothing yet</h1>"));
/// ```
pub fn html(rows: &[Row], title: &str) -> String {
    let mut page =
        String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    page.push_str("<meta name=\"viewport\" content=\"width=device-width\">");
    let title = escape(title);
    put(
        &mut page,
        format_args!("<title>{title}</title><style>{STYLE}</style></head>\n"),
    );
    put(&mut page, format_args!("<body><h1>{title}</h1>\n"));
    page.push_str(
        "<p>Bars are means over the seeds, the thin lines reach from the least to the most. \
         Lower is better for seconds, watts and joules.</p>\n",
    );
    for table in in_order(rows, |row| &row.table) {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.table == table).collect();
        put(&mut page, format_args!("<h2>{}</h2>\n", escape(table)));
        charts(&mut page, &rows);
        whole_table(&mut page, &rows);
    }
    page.push_str("</body></html>\n");
    page
}

/// Text cannot fail to be written to a string.
fn put(page: &mut String, text: std::fmt::Arguments<'_>) {
    page.write_fmt(text).expect("a string takes everything");
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

fn charts(page: &mut String, rows: &[&Row]) {
    let mut groups: Vec<((&str, &str), Vec<&Row>)> = Vec::new();
    for row in rows {
        let key = (row.case.as_str(), row.metric.as_str());
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, group)) => group.push(row),
            None => groups.push((key, vec![row])),
        }
    }
    groups.retain(|(_, group)| group.len() >= METHODS_MIN);
    if groups.is_empty() {
        return;
    }
    page.push_str("<div class=\"charts\">\n");
    for ((case, metric), group) in groups {
        let bars: Vec<Bar> = group.iter().filter_map(|row| Bar::of(row)).collect();
        let unit = group.first().map_or("", |row| row.unit.as_str());
        let caption = format!("{case}: {metric} ({unit})");
        put(
            page,
            format_args!("<figure>{}</figure>\n", chart(&caption, &bars)),
        );
    }
    page.push_str("</div>\n");
}

/// One bar of a chart.
struct Bar {
    name: String,
    mean: f64,
    low: f64,
    high: f64,
}

impl Bar {
    /// None where the figure is a word.
    fn of(row: &Row) -> Option<Bar> {
        let mean = row.ours.as_ref()?.number()?;
        let end = |value: &Option<Value>| value.as_ref().and_then(Value::number).unwrap_or(mean);
        Some(Bar {
            name: row.method.clone(),
            mean,
            low: end(&row.low),
            high: end(&row.high),
        })
    }

    fn colour(&self) -> RGBColor {
        match self.name.split('-').next() {
            Some("tanada") => RGBColor(59, 122, 87),
            Some("dmssd") => RGBColor(201, 138, 43),
            _ => RGBColor(120, 130, 145),
        }
    }
}

/// Bars from the left, one below the other, each with its figure, as an SVG.
fn chart(caption: &str, bars: &[Bar]) -> String {
    let mut svg = String::new();
    let height = RIM + BAR * bars.len() as u32 + 6;
    // From zero, whichever way the bars point.
    let (least, most) = bars.iter().fold((0.0_f64, 0.0_f64), |(least, most), bar| {
        (least.min(bar.low), most.max(bar.high))
    });
    let span = if most > least { most - least } else { 1.0 };
    let room = f64::from(WIDTH - LABELS - 70);
    let x = |value: f64| (f64::from(LABELS) + (value - least) / span * room).round() as i32;
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        let small = ("sans-serif", 15).into_font().color(&BLACK);
        let draw = || -> Result<(), DrawingAreaErrorKind<_>> {
            let heading = ("sans-serif", 18).into_font().color(&BLACK);
            area.draw(&Text::new(caption.to_owned(), (4, 6), heading))?;
            for (n, bar) in bars.iter().enumerate() {
                let top = (RIM + BAR * n as u32) as i32;
                let (from, to) = (x(0.0_f64.min(bar.mean)), x(0.0_f64.max(bar.mean)));
                let shape = [(from, top + 3), (to.max(from + 1), top + BAR as i32 - 5)];
                area.draw(&Rectangle::new(shape, bar.colour().filled()))?;
                let middle = top + BAR as i32 / 2 - 1;
                let whisker = vec![(x(bar.low), middle), (x(bar.high), middle)];
                area.draw(&PathElement::new(whisker, BLACK))?;
                area.draw(&Text::new(bar.name.clone(), (4, top + 5), small.clone()))?;
                let figure = Value::Number(bar.mean).to_string();
                let at = (x(bar.high.max(0.0)) + 5, top + 5);
                area.draw(&Text::new(figure, at, small.clone()))?;
            }
            area.present()
        };
        draw().expect("a string takes everything");
    }
    svg
}

fn whole_table(page: &mut String, rows: &[&Row]) {
    page.push_str("<details open><summary>All figures</summary><table><thead><tr>");
    for head in [
        "case",
        "method",
        "metric",
        "unit",
        "published",
        "ours",
        "low",
        "high",
        "note",
    ] {
        put(page, format_args!("<th>{head}</th>"));
    }
    page.push_str("</tr></thead><tbody>\n");
    for row in rows {
        page.push_str("<tr data-row>");
        for text in [&row.case, &row.method, &row.metric, &row.unit] {
            put(page, format_args!("<td>{}</td>", escape(text)));
        }
        for value in [&row.published, &row.ours, &row.low, &row.high] {
            let shown = value.as_ref().map(Value::to_string).unwrap_or_default();
            put(
                page,
                format_args!("<td class=\"n\">{}</td>", escape(&shown)),
            );
        }
        let devices = if row.modelled { "" } else { "real devices; " };
        put(
            page,
            format_args!("<td>{devices}{}</td></tr>\n", escape(&row.note)),
        );
    }
    page.push_str("</tbody></table></details>\n");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

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
            modelled: true,
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
