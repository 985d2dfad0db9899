//! The report: the page's figures with charts to look closer.

use report::terminal::table::size;
use report::{Axis, Cell, Chart, Facts, HeatMap, Note, Page, Repeat, Section, Series, Table, Unit};
use trace::stat::{SizeFigures, Summary};

use super::{Looked, page};

/// One page about all traces; `command` is what was asked.
pub fn html(all: &[Looked], command: &str) -> String {
    let title = match all {
        [one] => format!("Trace {}", one.file),
        several => format!("{} traces", several.len()),
    };
    let mut whole = Page::new(title);
    if let [one] = all {
        whole = whole.facts(large(&one.summary));
    } else {
        whole = whole.section(Section::new("Side by side").put(side_by_side(all)));
    }
    for one in all {
        let prefix = match all.len() {
            1 => String::new(),
            _ => format!("{}: ", one.file),
        };
        if !one.notes.is_empty() {
            let notes = Section::new(format!("{prefix}What the reader says"));
            whole = whole.section(
                one.notes
                    .iter()
                    .fold(notes, |section, note| section.put(Note::new(note))),
            );
        }
        for section in sections(one, &prefix) {
            whole = whole.section(section);
        }
    }
    let repeat = Repeat::new(command);
    whole.section(Section::new("Repeat").put(repeat)).html()
}

fn large(summary: &Summary) -> Facts {
    let mut facts = Facts::new()
        .fact(
            "requests",
            Unit::Number.show(summary.totals.requests as f64),
        )
        .fact("span", page::span(summary.totals.span_s))
        .fact("reads", format!("{:.1} %", summary.totals.read_pct))
        .fact(
            "footprint",
            Unit::Bytes.show(summary.extent.footprint.pages_gib * f64::from(1 << 30)),
        );
    if let Some(iops) = summary.rates.iops_mean {
        facts = facts.fact("mean", format!("{iops} IOPS"));
    }
    facts.fact(
        "I/O in the hottest 1 %, per window",
        page::percent(summary.per_window.top.top1pct_share_mean),
    )
}

fn side_by_side(all: &[Looked]) -> Table {
    let mut table = Table::new(
        "The traces",
        [
            "trace",
            "requests",
            "span",
            "reads",
            "mean size",
            "IOPS",
            "footprint",
            "sequential",
            "hottest 1 %",
        ],
    );
    for one in all {
        let summary = &one.summary;
        let share = |share: Option<f64>| match share {
            Some(share) => Cell::of(share, &Unit::Share),
            None => Cell::none(),
        };
        table = table.row([
            Cell::from(one.file.as_str()),
            Cell::from(summary.totals.requests),
            Cell::of(summary.totals.span_s, &Unit::Seconds),
            share(Some(summary.totals.read_pct / 100.0)),
            Cell::of(summary.totals.mean_size as f64, &Unit::Bytes),
            summary
                .rates
                .iops_mean
                .map_or_else(Cell::none, |iops| Cell::of(iops, &Unit::PerSecond)),
            Cell::of(
                summary.extent.footprint.pages_gib * f64::from(1 << 30),
                &Unit::Bytes,
            ),
            share(
                summary
                    .order
                    .sequentiality
                    .as_ref()
                    .map(|order| order.streams_pct / 100.0),
            ),
            share(summary.per_window.top.top1pct_share_mean),
        ]);
    }
    table
}

fn sections(one: &Looked, prefix: &str) -> Vec<Section> {
    let summary = &one.summary;
    let titled = |title: &str| Section::new(format!("{prefix}{title}"));
    let mut overview = Table::new("What is in it", ["figure", "value"]).fixed();
    for (name, text) in page::facts(one) {
        overview = overview.row([Cell::from(name), Cell::from(text)]);
    }
    let mut load = titled("Load over time")
        .put(rates(summary))
        .put(bandwidth(summary));
    if summary.heat.devices_left_out > 0 {
        let note = format!(
            "{} devices are not in the heat maps",
            summary.heat.devices_left_out
        );
        load = load.put(Note::new(note));
    }
    for map in maps(one) {
        load = load.put(map);
    }
    let mut hot = Table::new("The life of hot spots", ["what", "found"]).fixed();
    for (name, text) in page::hot_spots(&summary.per_window) {
        hot = hot.row([Cell::from(name), Cell::from(text)]);
    }
    let mut shares = Table::new(
        "Share of the I/O",
        ["regions", "whole trace", "windows, mean", "windows, median"],
    )
    .fixed();
    for row in page::hottest(summary) {
        shares = shares.row(row);
    }
    let about = format!(
        "Regions of {}, windows of {} s; {} windows have {} or more reads and writes.",
        size(summary.asked.region_bytes),
        summary.asked.window_s,
        summary.per_window.windows_busy,
        summary.asked.min_io
    );
    let mut concentration = titled("Concentration").text(about).put(shares).put(hot);
    if !summary.windows.is_empty() {
        concentration = concentration.put(per_window(summary));
    }
    vec![
        titled("Overview").put(overview),
        load,
        concentration,
        titled("Sizes")
            .put(size_table(summary))
            .put(top_sizes(summary)),
    ]
}

fn time_axis() -> Axis {
    Axis::new("time", Unit::Seconds)
}

fn rates(summary: &Summary) -> Chart {
    let seconds = summary.series.bar_ms as f64 / 1e3;
    let curve = |name: &str, counts: &[u64]| {
        let points = counts.iter().enumerate();
        let points = points.map(|(bar, &n)| (bar as f64 * seconds, n as f64 / seconds));
        Series::new(name, points).steps()
    };
    let mut chart = Chart::new(
        "Requests",
        time_axis(),
        Axis::new("per second", Unit::PerSecond),
    )
    .series(curve("reads", &summary.series.reads))
    .series(curve("writes", &summary.series.writes))
    .wide();
    if summary.series.others.iter().any(|&n| n > 0) {
        chart = chart.series(curve("discards and flushes", &summary.series.others));
    }
    chart
}

fn bandwidth(summary: &Summary) -> Chart {
    let seconds = summary.series.bar_ms as f64 / 1e3;
    let curve = |name: &str, bytes: &[u64]| {
        let points = bytes.iter().enumerate();
        let points = points.map(|(bar, &n)| (bar as f64 * seconds, n as f64 / seconds));
        Series::new(name, points).steps()
    };
    Chart::new(
        "Bandwidth",
        time_axis(),
        Axis::new("bandwidth", Unit::BytesPerSecond),
    )
    .series(curve("read", &summary.series.read_bytes))
    .series(curve("written", &summary.series.write_bytes))
    .wide()
}

/// Maps of the busiest devices.
fn maps(one: &Looked) -> Vec<HeatMap> {
    const MAPS: usize = 4;
    let summary = &one.summary;
    let busiest = summary.per_device.iter().take(MAPS);
    busiest
        .filter_map(|disk| {
            let rows: Vec<_> = summary
                .heat
                .rows
                .iter()
                .filter(|row| row.device == disk.device)
                .collect();
            let columns = rows.first()?.counts.len();
            let cells = (0..columns)
                .map(|column| {
                    rows.iter()
                        .map(|row| f64::from(row.counts[column]))
                        .collect()
                })
                .collect();
            let title = match summary.totals.devices {
                1 => "Where the I/O begins".to_owned(),
                _ => format!("Where the I/O of device {} begins", disk.device),
            };
            let seconds = summary.heat.bar_ms as f64 / 1e3 * columns as f64;
            let top = summary.heat.row_bytes as f64 * rows.len() as f64;
            Some(HeatMap::new(
                title,
                "reads and writes",
                (time_axis(), 0.0, seconds),
                (Axis::new("address", Unit::Bytes), 0.0, top),
                cells,
            ))
        })
        .collect()
}

fn per_window(summary: &Summary) -> Chart {
    let curve = |name: &str, share: fn(&trace::stat::WindowShare) -> f64| {
        let points = summary.windows.iter();
        let points = points.map(|one| (one.window as f64 * summary.asked.window_s, share(one)));
        Series::new(name, points)
    };
    Chart::new(
        "Share of the I/O in the window's hottest regions",
        time_axis(),
        Axis::new("share", Unit::Share).range(0.0, 1.0),
    )
    .series(curve("hottest 1 %", |one| one.top1))
    .series(curve("hottest 10 %", |one| one.top10))
    .wide()
}

fn size_table(summary: &Summary) -> Table {
    let mut table = Table::new(
        "Sizes of reads and writes",
        [
            "", "requests", "mean", "least", "50 %", "90 %", "99 %", "most",
        ],
    )
    .fixed();
    let rows: [(&str, &Option<SizeFigures>); 3] = [
        ("reads", &summary.sizes.read),
        ("writes", &summary.sizes.write),
        ("both", &summary.sizes.all),
    ];
    for (name, figures) in rows {
        if let Some(of) = figures {
            let sizes = [of.mean, of.min, of.p50, of.p90, of.p99, of.max];
            let sizes = sizes.map(|size| Cell::of(size as f64, &Unit::Bytes));
            table = table.row(
                [Cell::from(name), Cell::from(of.requests)]
                    .into_iter()
                    .chain(sizes),
            );
        }
    }
    table
}

fn top_sizes(summary: &Summary) -> Table {
    let mut table = Table::new("Most frequent sizes", ["size", "requests", "share"]);
    for one in &summary.sizes.top {
        table = table.row([
            Cell::of(one.size as f64, &Unit::Bytes),
            Cell::from(one.requests),
            Cell::of(one.pct / 100.0, &Unit::Share),
        ]);
    }
    table
}
