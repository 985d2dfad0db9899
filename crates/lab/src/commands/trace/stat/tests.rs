//! Does every view of a trace say what is in it, and fit where it is shown?

use base::Nanos;
use trace::stat::HeatMap;
use trace::{Op, Request};

use super::drawing::{chart, heat};
use super::*;

/// Three hours of a hot spot that wanders over two devices, with a flush now and then.
fn wandering() -> Looked {
    let mut statistics = Statistics::new(Options::default()).expect("sane");
    let requests: Vec<Request> = (0..30_000u64)
        .map(|n| Request {
            at: Nanos::millis(n * 360),
            offset: match n % 10 {
                3 => Bytes((n * 31 % 40) << 30),
                _ => Bytes(((n / 3000) << 30) + n * 7919 % (1 << 28) / 512 * 512),
            },
            size: Bytes(if n % 100 == 0 { 0 } else { 4096 << (n % 3) }),
            device: u32::from(n % 5 == 0),
            op: match n {
                n if n % 100 == 0 => Op::Flush,
                n if n % 3 == 0 => Op::Write,
                _ => Op::Read,
            },
        })
        .collect();
    statistics.add(&requests).expect("small");
    Looked {
        file: "volume.csv".to_owned(),
        format: "csv",
        malformed: 2,
        disordered: 0,
        device_names: vec![(0, "sda".to_owned()), (1, "sdb".to_owned())],
        notes: Vec::new(),
        summary: statistics.finish().expect("requests"),
    }
}

#[test]
fn the_page_fits_a_terminal_of_eighty_columns() {
    let page = page::page(&wandering(), 80);
    for line in page.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    for part in [
        "requests      30000 in 3h on 2 devices",
        "9900 writes, 300\n              flushes",
        "malformed     2 records left out",
        "\nSizes\n",
        "hottest 1 % (1 region)",
        "areas         ",
        "1 sdb",
        "IOPS over time (a bar: the busiest of 3 times 60 s)",
        "Where, when (a column: ",
    ] {
        assert!(page.contains(part), "{part} is not in\n{page}");
    }
}

#[test]
fn the_least_trace_has_a_page_too() {
    let mut statistics = Statistics::new(Options::default()).expect("sane");
    let flush = Request {
        at: Nanos(0),
        offset: Bytes(0),
        size: Bytes(0),
        device: 0,
        op: Op::Flush,
    };
    statistics.add(&[flush]).expect("one");
    let summary = statistics.finish().expect("one request");
    let least = Looked {
        summary,
        ..wandering()
    };
    let page = page::page(&least, 80);
    assert!(
        page.contains("requests      1 in 0 s on 1 device"),
        "{page}"
    );
    assert!(html::html(&[least], "").contains("</html>"));
}

#[test]
fn json_keeps_the_figures_and_says_which_file() {
    let json = serde_json::to_value(wandering()).expect("JSON");
    assert_eq!(json["file"], "volume.csv");
    assert_eq!(json["requests"], 30_000);
    assert_eq!(json["devices"], 2);
    assert!(json["per_window"]["top1pct_share_mean"].is_f64());
    assert_eq!(json["iops_per_minute"].as_array().map(Vec::len), Some(180));
}

#[test]
fn the_report_stands_alone_and_names_every_trace() {
    let (one, mut other) = (wandering(), wandering());
    other.file = "<other>".to_owned();
    let page = html::html(&[one, other], "tanada trace");
    assert!(page.contains("volume.csv: Overview") && page.contains("&lt;other&gt;: Overview"));
    assert!(!page.contains("<other>"));
}

#[test]
fn a_chart_reaches_its_top_and_shows_the_least() {
    let (bars, joined) = chart(&[0.0, 1.0, 1000.0, 500.0], 14);
    assert_eq!(joined, 1);
    assert_eq!(
        bars,
        "     1000   █\n            █\n            █\n            ██\n            ██\n        0  ▁██\n"
    );
    let (_, joined) = chart(&[1.0; 100], 20);
    assert_eq!(joined, 10);
    assert_eq!(chart(&[], 20).0.lines().count(), 6);
}

#[test]
fn the_highest_address_is_on_top_and_more_is_darker() {
    let row = |offset, counts: &[u32]| trace::stat::HeatRow {
        device: 0,
        offset,
        counts: counts.to_vec(),
    };
    let map = HeatMap {
        bar_ms: 1000,
        row_bytes: 1 << 30,
        rows: vec![row(0, &[0, 1000]), row(1 << 30, &[1, 0])],
        devices_left_out: 0,
    };
    let (text, column_ms) = heat(&map, 16, 12);
    assert_eq!(
        (text.as_str(), column_ms),
        ("  1.0 GiB ░\n      0 B  █\n", 1000)
    );
}
