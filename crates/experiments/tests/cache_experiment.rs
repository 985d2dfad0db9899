//! The cache experiment, held to its promises: rows, sums, repetition, and what it claims.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use experiments::cache::{CASES, METRICS, methods, run};
use experiments::{Options, Part};
use report::{Devices, Row, Value, Verdict};

const QUICK: Options = Options {
    quick: true,
    seed: 1,
    msr: None,
    traces: None,
    real: None,
    slower: 1.0,
    stop: None,
    part: Part {
        cases: &[],
        methods: &[],
    },
    resume: None,
};

fn measure() -> Vec<Row> {
    let mut last = 0.0;
    let rows = run(QUICK, &mut |what, share| {
        assert!(
            (last..=1.0).contains(&share),
            "{what}: {share} after {last}"
        );
        last = share;
    })
    .unwrap();
    assert_eq!(last, 1.0);
    rows
}

/// One run for all tests here that only look.
fn rows() -> &'static [Row] {
    static ROWS: OnceLock<Vec<Row>> = OnceLock::new();
    ROWS.get_or_init(measure)
}

fn find(table: &str, case: &str, method: &str, metric: &str) -> &'static Row {
    let key = (table, case, method, metric);
    rows()
        .iter()
        .find(|row| (&*row.table, &*row.case, &*row.method, &*row.metric) == key)
        .unwrap_or_else(|| panic!("no row {key:?}"))
}

fn number(value: &Option<Value>) -> f64 {
    value.as_ref().and_then(Value::number).expect("a number")
}

fn ours(case: &str, method: &str, metric: &str) -> f64 {
    number(&find("measured", case, method, metric).ours)
}

#[test]
fn every_case_of_every_method_has_its_three_figures() {
    assert_eq!(CASES.len() * methods().len() * METRICS.len(), 168);
    let measured = rows().iter().filter(|row| row.table == "measured");
    assert_eq!(measured.count(), 168);
    for case in CASES {
        for method in methods() {
            for (metric, unit) in METRICS {
                let row = find("measured", case, method, metric);
                let (low, ours, high) = (number(&row.low), number(&row.ours), number(&row.high));
                assert!(0.0 < low && low <= ours && ours <= high, "{row:?}");
                assert_eq!((&*row.unit, &*row.experiment), (unit, "cache"));
                assert!(
                    row.devices == Devices::Modelled && !row.note.is_empty(),
                    "{row:?}"
                );
            }
        }
    }
    let keys: BTreeSet<_> = rows()
        .iter()
        .map(|row| (&row.table, &row.case, &row.method, &row.metric))
        .collect();
    assert_eq!(keys.len(), rows().len(), "no two rows share a name");
}

#[test]
fn joules_are_watts_times_seconds() {
    for case in CASES {
        for method in methods() {
            let [seconds, watts, joules] = METRICS.map(|(metric, _)| ours(case, method, metric));
            let product = watts * seconds;
            assert!(
                (product / joules - 1.0).abs() < 1e-9,
                "{case} {method}: {product} and {joules}"
            );
        }
    }
    for method in methods() {
        let seconds = ours("day", method, "seconds");
        assert!(
            (seconds - 86_400.0).abs() < 1.0,
            "{method}: a day of {seconds} s"
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_rows_to_the_last_bit() {
    let again = measure();
    assert_eq!(again.len(), rows().len());
    for (a, b) in again.iter().zip(rows()) {
        assert_eq!(
            serde_json::to_string(a).unwrap(),
            serde_json::to_string(b).unwrap()
        );
    }
}

#[test]
fn every_published_statement_has_its_rows() {
    // Fifteen directions; those on both disks twice; for the published engine and for ours.
    let directions = rows().iter().filter(|row| row.table == "directions");
    assert_eq!(directions.clone().count(), (13 * 2 + 2) * 2);
    for row in directions.filter(|row| row.method.starts_with("dmssd")) {
        assert!(row.verdict.is_some(), "{row:?}");
        assert!(matches!(row.published, Some(Value::Text(_))), "{row:?}");
    }
    let published = rows()
        .iter()
        .filter(|row| row.table == "stated" && row.published.is_some());
    // Eight figures; three of them on both disks.
    assert_eq!(published.count(), 8 + 3);
}

/// Case, method and metric of the directions with a verdict.
fn judged(verdict: Verdict) -> Vec<(&'static str, &'static str, &'static str)> {
    rows()
        .iter()
        .filter(|row| row.table == "directions" && row.verdict == Some(verdict))
        .map(|row| (&*row.case, &*row.method, &*row.metric))
        .collect()
}

#[test]
fn the_models_show_the_published_directions_but_two_and_few_of_their_sizes() {
    assert_eq!(
        judged(Verdict::Differs),
        [
            ("reread", "dmssd-2.5", "watts against hdd-2.5"),
            ("write", "dmssd-3.5", "watts against hdd-3.5"),
        ],
        "docs/experiments/cache.md says which differ, and why"
    );
    assert_eq!(
        judged(Verdict::Agrees),
        [
            ("reread", "dmssd-2.5", "joules against hdd-2.5"),
            ("random", "dmssd-2.5", "seconds against hdd-2.5"),
            ("random-reread", "dmssd-2.5", "joules against hdd-2.5"),
            ("random-reread", "dmssd-3.5", "joules against hdd-3.5"),
        ],
        "docs/experiments/cache.md says which agree"
    );
    assert_eq!(judged(Verdict::DirectionOnly).len(), 22);
}

#[test]
fn ours_spares_the_fetch_on_a_write_miss_and_costs_little_on_a_read_miss() {
    for size in ["2.5", "3.5"] {
        let [hdd, published, tanada] =
            ["hdd", "dmssd", "tanada"].map(|kind| format!("{kind}-{size}"));
        let seconds = |case, method: &str| ours(case, method, "seconds");
        assert!(
            seconds("write", &published) > 1.05 * seconds("write", &hdd),
            "{size}"
        );
        assert!(
            seconds("write", &tanada) < 0.6 * seconds("write", &hdd),
            "{size}"
        );
        assert!(
            seconds("read", &tanada) < 1.02 * seconds("read", &hdd),
            "{size}"
        );
        assert!(
            seconds("random", &tanada) < 1.01 * seconds("random", &hdd),
            "{size}"
        );
        assert!(
            seconds("reread", &tanada) < 1.01 * seconds("reread", "ssd"),
            "{size}"
        );
        assert!(seconds("random-reread", &tanada) < 0.2, "{size}");
    }
}

#[test]
fn a_sleeping_disk_saves_energy_over_a_day_and_its_users_wait_for_it() {
    let day = |method| ours("day", method, "joules");
    assert!(day("tanada-energy") < 0.5 * day("tanada-3.5"));
    assert!(day("tanada-energy") < 0.5 * day("hdd-3.5"));
    let slept = |method, metric| number(&find("spin-down", "day", method, metric).ours);
    assert!(slept("tanada-energy", "spin-ups") >= 1.0);
    assert_eq!(slept("tanada-3.5", "spin-ups"), 0.0);
    assert!(slept("tanada-energy", "spin-ups") < slept("hdd-3.5-timer", "spin-ups"));
    // The loss, said aloud: a request that misses the cache while the disk sleeps waits for its spin-up.
    assert!(slept("tanada-energy", "longest answer") > 5.0);
    assert!(slept("tanada-3.5", "longest answer") < 1.0);
}

#[test]
fn the_report_is_one_file_that_holds_every_row() {
    let page = report::html(rows(), "SSD as a disk cache");
    assert!(page.starts_with("<!doctype html>"));
    assert!(page.matches("<svg").count() >= 6, "charts");
    for outside in ["http://", "https://", "<script", "<link", "@import"] {
        let found = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!found.contains(outside), "needs {outside}");
    }
    let cells = page.matches("<tr data-row").count();
    assert_eq!(cells, rows().len());
}
