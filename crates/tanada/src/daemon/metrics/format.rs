//! In which of the two formats of Prometheus is the page written?
//!
//! ```text
//! Accept names OpenMetrics, and nothing it likes better -> OpenMetrics 1.0.0
//!                                                  else -> Prometheus text 0.0.4
//! ```
//!
//! The library writes OpenMetrics alone. The older text has the same series in the same order: counters carry `_total` in
//! their family's name as well, there is no type `info`, and no end mark.
//!
//! Source: prometheus.io/docs/instrumenting/exposition_formats, OpenMetrics 1.0.0.
//!
//! Always true: both formats have the same series with the same values.

use std::fmt::Write as _;

/// A format of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text 0.0.4.
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Format {
    /// Which one is asked for by what stands behind `Accept`; nothing: the text.
    #[must_use]
    pub fn asked(accept: Option<&str>) -> Format {
        let ranges = || accept.unwrap_or_default().split(',').map(range);
        let liking = |wanted: &str| {
            let named = ranges().filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
            named.map(|(_, liking)| liking).fold(0.0, f64::max)
        };
        let open = liking("application/openmetrics-text");
        match open > 0.0 && open >= liking("text/plain") {
            true => Format::OpenMetrics,
            false => Format::Text,
        }
    }

    /// What stands behind `Content-Type`.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// A media range, and how much it is liked: 0 to 1, where nothing is said 1.
fn range(text: &str) -> (&str, f64) {
    let mut parts = text.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default();
    let mut liking = parts.filter_map(|it| it.strip_prefix("q=").or(it.strip_prefix("Q=")));
    let liking = liking.next().and_then(|it| it.trim().parse().ok());
    (name, liking.unwrap_or(1.0))
}

/// A page in OpenMetrics as Prometheus text 0.0.4.
#[must_use]
pub fn text_of(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len() + open_metrics.len() / 64);
    let mut help = "";
    for line in open_metrics.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            text.push_str(line);
            text.push('\n');
            continue;
        };
        let (what, rest) = comment.split_once(' ').unwrap_or((comment, ""));
        let (name, said) = rest.split_once(' ').unwrap_or((rest, ""));
        match what {
            // Its type stands behind it, and changes the name.
            "HELP" => help = said,
            "TYPE" => {
                let (suffix, kind) = match said {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    other => ("", other),
                };
                // A `String` takes whatever is written.
                let _ = writeln!(text, "# HELP {name}{suffix} {help}");
                let _ = writeln!(text, "# TYPE {name}{suffix} {kind}");
            }
            // Units stand in the names; an end mark is no part of this format.
            _ => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_metrics_are_sent_to_those_who_name_them_first() {
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                          application/openmetrics-text;version=0.0.1;q=0.4,\
                          text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        for (accept, format) in [
            (None, Format::Text),
            (Some(""), Format::Text),
            (Some("*/*"), Format::Text),
            (Some("text/html, */*;q=0.8"), Format::Text),
            (Some("text/plain;version=0.0.4"), Format::Text),
            (Some("application/openmetrics-text"), Format::OpenMetrics),
            (Some("application/openmetrics-text;q=0"), Format::Text),
            (
                Some("text/plain, application/openmetrics-text; q=0.9"),
                Format::Text,
            ),
            (Some(prometheus), Format::OpenMetrics),
        ] {
            assert_eq!(Format::asked(accept), format, "{accept:?}");
        }
    }

    #[test]
    fn the_text_has_each_series_under_the_names_that_it_takes() {
        let open = "# HELP a_requests Requests\n# TYPE a_requests counter\na_requests_total{op=\"read\"} 3\n\
                    # HELP a_build The program\n# TYPE a_build info\na_build_info{version=\"1\"} 1\n\
                    # HELP a_size_bytes Room\n# TYPE a_size_bytes gauge\n# UNIT a_size_bytes bytes\na_size_bytes 5\n# EOF\n";
        let text = "# HELP a_requests_total Requests\n# TYPE a_requests_total counter\na_requests_total{op=\"read\"} 3\n\
                    # HELP a_build_info The program\n# TYPE a_build_info gauge\na_build_info{version=\"1\"} 1\n\
                    # HELP a_size_bytes Room\n# TYPE a_size_bytes gauge\na_size_bytes 5\n";
        assert_eq!(text_of(open), text);
    }
}
