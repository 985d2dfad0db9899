//! One HTML file that needs nothing else: what was measured, as charts and as tables.

use std::fmt::Write;

use crate::experiment::{Row, Value};

/// `rows` as one self-contained HTML page titled `title`: no scripts, no fonts, no links to anywhere.
pub fn html(title: &str, rows: &[Row]) -> String {
    let mut page = String::new();
    let mut last = "";
    page.push_str("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    let _ = write!(
        page,
        "<title>{0}</title></head><body><h1>{0}</h1>",
        escape(title)
    );
    for row in rows {
        if row.table != last {
            let close = if last.is_empty() { "" } else { "</table>" };
            let _ = write!(page, "{close}<h2>{}</h2><table>", escape(&row.table));
            last = &row.table;
        }
        let cell = |value: &Option<Value>| {
            value
                .as_ref()
                .map(|v| escape(&v.to_string()))
                .unwrap_or_default()
        };
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&row.case),
            escape(&row.method),
            escape(&row.metric),
            cell(&row.published),
            cell(&row.ours),
            escape(&row.note)
        );
    }
    page.push_str("</table></body></html>\n");
    page
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
