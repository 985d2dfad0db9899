//! Plain tables and human figures for terminals and scripts.

use base::Bytes;

/// Rows in columns as wide as their widest cell; a column is set flush right if every cell below the
/// head is a figure.
///
/// # Example
/// `table(&["NAME", "SIZE"], &[vec!["a".into(), "1 GiB".into()]])` is two lines.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let columns = head.len();
    let width = |text: &str| text.chars().count();
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            rows.iter()
                .map(|row| width(&row[column]))
                .chain([width(head[column])])
                .max()
                .unwrap_or(0)
        })
        .collect();
    // A number with its unit behind it, not an address.
    let is_figure = |text: &str| {
        text == "-" || (text.starts_with(|c: char| c.is_ascii_digit()) && !text.contains(':'))
    };
    let right: Vec<bool> = (0..columns)
        .map(|column| {
            rows.iter().all(|row| is_figure(&row[column]))
                && rows.iter().any(|row| row[column] != "-")
        })
        .collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut line = String::new();
        for (column, cell) in cells.enumerate() {
            if column > 0 {
                line.push_str("  ");
            }
            let pad = " ".repeat(widths[column] - width(cell));
            match right[column] {
                true => line.extend([pad.as_str(), cell]),
                false => line.extend([cell, pad.as_str()]),
            }
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
        line
    };
    let mut text = line(&mut head.iter().copied());
    for row in rows {
        text.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    text
}

/// `31.9 GiB`.
pub fn size(bytes: u64) -> String {
    Bytes(bytes).to_string()
}

/// A rate in MB/s (millions of bytes), as disks are sold.
pub fn megabytes_per_second(bytes_per_second: f64) -> String {
    format!("{:.1}", bytes_per_second / 1e6)
}

/// A count: `1234`, `56.7k`, `8.90M`.
pub fn count(n: f64) -> String {
    match n {
        n if n < 10.0 && n.fract() != 0.0 => format!("{n:.1}"),
        n if n < 10_000.0 => format!("{n:.0}"),
        n if n < 1e6 => format!("{:.1}k", n / 1e3),
        n => format!("{:.2}M", n / 1e6),
    }
}

/// A share of something: `97.3 %`, or `-` of nothing.
pub fn share(part: f64, whole: f64) -> String {
    match whole > 0.0 {
        true => format!("{:.1} %", 100.0 * part / whole),
        false => "-".to_owned(),
    }
}

/// A span in three figures: `85 us`, `4.2 ms`.
pub fn span(ns: u64) -> String {
    let figures = |value: f64| match value {
        v if v < 9.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    };
    match ns {
        n if n < 1_000 => format!("{n} ns"),
        n if n < 1_000_000 => format!("{} us", figures(n as f64 / 1e3)),
        n if n < 1_000_000_000 => format!("{} ms", figures(n as f64 / 1e6)),
        n => format!("{} s", figures(n as f64 / 1e9)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stand_flush_right_and_names_flush_left() {
        let rows = [
            vec!["hdd0".to_owned(), "32.0 GiB".to_owned()],
            vec!["a".to_owned(), "4.0 KiB".to_owned()],
        ];
        assert_eq!(
            table(&["NAME", "SIZE"], &rows),
            "NAME      SIZE\nhdd0  32.0 GiB\na      4.0 KiB\n"
        );
    }

    #[test]
    fn figures_are_short() {
        assert_eq!(count(1234.0), "1234");
        assert_eq!(count(56_700.0), "56.7k");
        assert_eq!(share(1.0, 4.0), "25.0 %");
        assert_eq!(share(1.0, 0.0), "-");
        assert_eq!(span(84_600), "85 us");
        assert_eq!(span(4_200_000), "4.2 ms");
        assert_eq!(megabytes_per_second(123_450_000.0), "123.5");
    }
}
