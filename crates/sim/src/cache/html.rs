//! The comparison as one page: the table, the curves, and how to get it again.

use std::path::PathBuf;

use super::{Compact, NamedCurve, Row, Unit};
use report::Unit as Shown;
use report::{Axis, Cell, Chart, Facts, Note, Page, Repeat, Section, Series, Table};

/// The page of `rows` and `curves` over `trace`, which was read from `files`; `command` repeats it.
pub fn page(
    files: &[PathBuf],
    trace: &Compact,
    rows: &[Row],
    curves: &[NamedCurve],
    command: &str,
    seed: u64,
) -> Page {
    let names: Vec<String> = files
        .iter()
        .map(|file| {
            file.file_name()
                .unwrap_or(file.as_os_str())
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    let mut page = Page::new(format!("Cache policies over {}", names.join(", ")));
    if let Some(best) = rows
        .iter()
        .filter(|row| row.policy != "belady")
        .min_by(|a, b| a.miss_ratio.total_cmp(&b.miss_ratio))
    {
        page = page.lead(format!(
            "At {} {} misses least: {} of the objects asked for, {} of the bytes.",
            best.size,
            best.policy,
            Shown::Share.show(best.miss_ratio),
            Shown::Share.show(best.byte_miss_ratio),
        ));
    }
    page = page.facts(facts(trace));
    if !rows.is_empty() {
        page = page.section(
            Section::new("Misses by policy and size")
                .put(misses(rows))
                .put(Note::new(match trace.unit() {
                    Unit::Request => "Each request is one access to the object that its first block address names.",
                    Unit::Block(_) => {
                        "Requests are split into blocks, each of which is one access; a whole request is a hit \
                         only if all its blocks are."
                    }
                })),
        );
        page = page.section(Section::new("All figures").put(figures(rows)));
    }
    if !curves.is_empty() {
        page = page.section(charts(trace, curves));
    }
    let mut repeat = Repeat::new(command).seed(seed);
    for (file, name) in files.iter().zip(&names) {
        let identity = match file.metadata() {
            Ok(about) => format!("{} bytes", about.len()),
            Err(_) => "a file".to_owned(),
        };
        repeat = repeat.input(name, identity);
    }
    page.section(Section::new("Repeat").put(repeat))
}

fn facts(trace: &Compact) -> Facts {
    let number = |number: f64| Shown::Number.show(number);
    let written = trace.written() as f64 / (trace.bytes() as f64).max(1.0);
    Facts::new()
        .fact("requests", number(trace.requests() as f64))
        .fact("objects asked for", number(trace.accesses() as f64))
        .fact("different objects", number(f64::from(trace.footprint())))
        .fact("bytes asked for", Shown::Bytes.show(trace.bytes() as f64))
        .fact("written", Shown::Share.show(written))
        .fact("unit", trace.unit().to_string())
}

/// Objects and bytes missed, and where each curve comes from.
fn charts(trace: &Compact, curves: &[NamedCurve]) -> Section {
    let objects = chart("Misses per object asked for", trace, curves, |point| {
        point.miss_ratio
    });
    let bytes = chart("Missed bytes per byte asked for", trace, curves, |point| {
        point.byte_miss_ratio
    });
    let origins: Vec<String> = curves
        .iter()
        .map(|curve| format!("{}: {}", curve.method, curve.origin()))
        .collect();
    Section::new("Miss-ratio curves")
        .put(objects)
        .put(bytes)
        .put(Note::new(format!("{}.", origins.join("; "))))
}

/// Policies down, sizes across, the least of each size in bold.
fn misses(rows: &[Row]) -> Table {
    let (policies, sizes) = names(rows);
    let mut heads = vec!["policy".to_owned()];
    heads.extend(sizes.iter().map(|size| (*size).to_owned()));
    let mut table = Table::new("Miss ratios", heads);
    for policy in policies {
        let mut cells = vec![Cell::from(policy)];
        for size in &sizes {
            let here = |row: &&Row| row.size == *size;
            let Some(row) = rows.iter().filter(here).find(|row| row.policy == policy) else {
                cells.push(Cell::none());
                continue;
            };
            let cell = Cell::shown(row.miss_ratio, format!("{:.4}", row.miss_ratio));
            let least = rows
                .iter()
                .filter(here)
                .filter(|row| row.policy != "belady");
            let least = least.map(|row| row.misses).min();
            cells.push(match least == Some(row.misses) && policy != "belady" {
                true => cell.best(),
                false => cell,
            });
        }
        table = table.row(cells);
    }
    table
}

/// The different policies and sizes, as they first appear.
fn names(rows: &[Row]) -> (Vec<&str>, Vec<&str>) {
    let (mut policies, mut sizes) = (Vec::new(), Vec::new());
    for row in rows {
        for (name, names) in [(&row.policy, &mut policies), (&row.size, &mut sizes)] {
            if !names.contains(&name.as_str()) {
                names.push(name.as_str());
            }
        }
    }
    (policies, sizes)
}

fn figures(rows: &[Row]) -> Table {
    let heads = [
        "policy",
        "size",
        "objects",
        "misses",
        "miss ratio",
        "byte miss ratio",
        "requests missed",
        "promotions",
        "flash written",
        "slow read",
        "slow written",
    ];
    let mut table = Table::new("Every policy at every size", heads).folded();
    let bytes = |bytes: Option<u64>| match bytes {
        Some(bytes) => Cell::of(bytes as f64, &Shown::Bytes),
        None => Cell::none(),
    };
    for row in rows {
        table = table.row([
            Cell::from(row.policy.as_str()),
            Cell::from(row.size.as_str()),
            Cell::from(row.objects),
            Cell::from(row.misses),
            Cell::of(row.miss_ratio, &Shown::Share),
            Cell::of(row.byte_miss_ratio, &Shown::Share),
            row.trace
                .trace_request_miss_ratio
                .map_or_else(Cell::none, |r| Cell::of(r, &Shown::Share)),
            row.traffic.promotions.map_or_else(Cell::none, Cell::from),
            bytes(row.traffic.flash_bytes_written),
            bytes(row.traffic.slow_bytes_read),
            bytes(row.traffic.slow_bytes_written),
        ]);
    }
    table
}

/// A curve of every method; the size in bytes where objects have one.
pub(in super::super) fn chart(
    title: &str,
    trace: &Compact,
    curves: &[NamedCurve],
    of: fn(&super::Point) -> f64,
) -> Chart {
    let (unit, each) = match trace.unit() {
        Unit::Request => (Shown::Number, 1.0),
        Unit::Block(size) => (Shown::Bytes, size.0 as f64),
    };
    let mut chart = Chart::new(
        title,
        Axis::new("cache size", unit).log(),
        Axis::new("miss ratio", Shown::Share).range(0.0, 1.0),
    )
    .wide();
    for named in curves {
        let points = named
            .curve
            .points()
            .iter()
            .filter(|point| point.objects > 0.0);
        let series = Series::new(
            named.method.to_string(),
            points.map(|point| (point.objects * each, of(point))),
        );
        chart = chart.series(match named.curve.shape() {
            super::Shape::Steps => series.steps(),
            super::Shape::Lines => series,
        });
    }
    chart
}
