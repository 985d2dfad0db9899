//! Text into markup: what every part of a page writes with.

use std::fmt::{Arguments, Write};

/// Numbers for the figures of one page.
pub(super) struct Ids(pub(super) usize);

impl Ids {
    pub(super) fn next(&mut self) -> usize {
        self.0 += 1;
        self.0
    }
}

/// Text cannot fail to be written to a string.
pub(super) fn put(page: &mut String, text: Arguments<'_>) {
    page.write_fmt(text).expect("a string takes everything");
}

/// Text that is never taken for markup, between tags or in an attribute.
pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // A browser would drop the rest of a page that holds one.
            '\0' => safe.push('\u{fffd}'),
            other => safe.push(other),
        }
    }
    safe
}

/// Data for the script, in an element no text of the data can close.
pub(super) fn data(page: &mut String, value: &serde_json::Value) {
    let text = value.to_string().replace('<', "\\u003c");
    put(
        page,
        format_args!("<script type=\"application/json\">{text}</script>"),
    );
}

/// A page up to its script.
#[cfg(test)]
pub(super) fn drawn(page: &str) -> &str {
    page.split("<script>\n").next().unwrap_or(page)
}
