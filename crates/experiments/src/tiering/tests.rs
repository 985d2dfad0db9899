//! A very short run, and recorded traces.

use std::io::Write;
use std::path::Path;

use report::{Value, Verdict};

use super::*;
use crate::experiment::Part;

fn short(at_most: Nanos, seeds: u64) -> Plan {
    Plan {
        at_most: Some(at_most),
        seeds,
        placed: 1,
    }
}

fn number(rows: &[Row], case: &str, method: &str, metric: &str) -> f64 {
    let found = rows.iter().find(|row| {
        (&*row.table, &*row.case, &*row.method, &*row.metric) == ("measured", case, method, metric)
    });
    let found = found.unwrap_or_else(|| panic!("no {metric} of {case} {method}"));
    let ours = found.ours.as_ref().and_then(Value::number);
    ours.unwrap_or_else(|| panic!("{metric} of {case} {method} has no value"))
}

#[test]
fn a_short_run_has_every_row_in_order_and_figures_that_can_be() {
    let mut heard = Vec::new();
    let plan = short(Nanos::secs(20), 1);
    let results = run_plan(Options::default(), plan, &mut |what, share| {
        heard.push((what.to_owned(), share));
    });
    let rows = results.expect("it runs").rows;
    assert!(heard.is_sorted_by(|a, b| a.1 <= b.1), "{heard:?}");

    let measured: Vec<&Row> = rows.iter().filter(|row| row.table == "measured").collect();
    let mut expected = Vec::new();
    for case in ["src1-0", "src1-1"] {
        for method in methods() {
            for (metric, _) in METRICS {
                expected.push((case, method, metric));
            }
        }
    }
    let found: Vec<_> = measured
        .iter()
        .map(|row| (&*row.case, &*row.method, &*row.metric))
        .collect();
    assert_eq!(found, expected);
    assert_eq!(
        methods()[..7],
        [
            "hdd-only",
            "static",
            "lru-cache-run1",
            "lru-cache-run2",
            "otf-published",
            "otf-published-first-20min",
            "otf-no-copy-back",
        ]
    );
    assert_eq!(methods().last(), Some(&"tanada"));

    for case in ["src1-0", "src1-1"] {
        for method in methods() {
            let of = |metric| number(&rows, case, method, metric);
            let (fast, buffer) = (of("fast_share_percent"), of("buffer_share_percent"));
            assert!(
                fast >= 0.0 && buffer >= 0.0 && fast + buffer <= 100.0,
                "{case} {method}"
            );
            assert!(of("mean_ms") > 0.0 && of("p50_ms") <= of("p95_ms"));
            assert!(of("p95_ms") <= of("p99_ms") && of("p99_ms") <= of("max_s") * 1000.1);
            assert!(of("joules") > 0.0, "{case} {method}");
            assert!(of("dirty_write_hits_percent") <= fast, "{case} {method}");
        }
        assert_eq!(number(&rows, case, "hdd-only", "fast_share_percent"), 0.0);
        // A minute is too short to move anything.
        assert_eq!(number(&rows, case, "otf-published", "moves_up"), 0.0);
        assert!(number(&rows, case, "static", "regions_up_max") == 1.0);
        let shares = ["lru-cache-run1", "lru-cache-run2"];
        let [cold, warm] = shares.map(|run| number(&rows, case, run, "fast_share_percent"));
        assert!(warm > cold, "{case}: {cold} then {warm}");
    }

    let mut keys: Vec<_> = rows
        .iter()
        .map(|row| (&row.table, &row.case, &row.method, &row.metric))
        .collect();
    keys.sort();
    assert!(
        keys.windows(2).all(|pair| pair[0] != pair[1]),
        "no two rows share a key"
    );
    let of_table = |table: &str| rows.iter().filter(|row| row.table == table).count();
    assert_eq!(
        (of_table("table 4"), of_table("table 5"), of_table("stated")),
        (14, 16, 24)
    );
    let claims = rows.iter().filter(|row| row.table.ends_with("claims"));
    assert!(claims.clone().count() >= 30);
    for row in claims {
        assert_eq!(row.verdict, Some(Verdict::NotJudged), "{row:?}");
    }
}

#[test]
fn the_same_options_give_the_same_rows() {
    let some: Vec<String> = ["tanada", "lru-cache-run1", "otf-no-copy-back"]
        .map(str::to_owned)
        .to_vec();
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let run = |cases: &[String], resume| {
        let part = Part {
            cases,
            methods: &some,
        };
        let options = Options {
            part,
            resume,
            ..Options::default()
        };
        let plan = short(Nanos::secs(15), 1);
        run_plan(options, plan, &mut |_, _| {}).unwrap().rows
    };
    let both = cases().map(str::to_owned);
    let rows = run(&both, None);
    assert_eq!(rows.len(), 2 * 3 * METRICS.len());
    assert_eq!(rows, run(&both, None));
    // In one go or in two.
    let one_case = run(&["src1-1".to_owned()], Some(&journal));
    assert_eq!(one_case, rows[rows.len() / 2..]);
    let in_journal = std::fs::read_to_string(&journal).unwrap().lines().count();
    assert_eq!(rows, run(&both, Some(&journal)));
    let lines = std::fs::read_to_string(&journal).unwrap().lines().count();
    assert_eq!((in_journal, lines), (1 + 3, 1 + 6));
}

#[test]
fn a_part_that_is_not_there_is_refused_with_those_that_are() {
    let names = ["src1-2".to_owned()];
    let part = Part {
        cases: &names,
        ..Part::default()
    };
    let options = Options {
        part,
        ..Options::default()
    };
    let refusal = run(options, &mut |_, _| {}).unwrap_err().to_string();
    assert!(
        refusal.contains("no case 'src1-2'") && refusal.contains("src1-0, src1-1"),
        "{refusal}"
    );
}

/// A trace of MSR's form with one request each second of the minutes given, on one region a minute.
fn recorded(folder: &Path, name: &str, minutes: std::ops::Range<u64>) {
    let mut file = std::fs::File::create(folder.join(name)).unwrap();
    for minute in [0].into_iter().chain(minutes) {
        for second in 0..60 {
            let time = 128_166_372_003_061_629 + (minute * 60 + second) * 10_000_000;
            let op = if second % 3 == 0 { "Write" } else { "Read" };
            let region = minute % 7;
            let offset = (region << 30) + second * 8192;
            writeln!(file, "{time},src1,0,{op},{offset},4096,100").unwrap();
        }
    }
}

#[test]
fn recorded_traces_are_cut_to_the_minutes_of_the_paper() {
    let folder = tempfile::tempdir().unwrap();
    recorded(folder.path(), "src1_0.csv", 1900..1925);
    recorded(folder.path(), "src1_1.csv", 470..490);
    let case = CASES[0]
        .load(1, Some(folder.path()), Some(Nanos::secs(120)))
        .unwrap();
    assert_eq!((case.requests.len(), case.length), (120, Nanos::secs(120)));
    assert_eq!(case.requests[0].at, Nanos(0));
    assert_eq!(case.requests[119].at, Nanos::secs(119));
    assert_eq!(case.origin, "recorded: src1_0.csv, minutes 1920 to 1922");
    // Minutes 1900 to 1919: regions 3 to 6 and 0 to 2, round and round; 3 to 1 (of 20) come three times.
    assert_eq!(case.busiest.len(), 7);
    assert_eq!(case.busiest[..6], [0, 1, 3, 4, 5, 6]);
    let options = Options {
        msr: Some(folder.path()),
        ..Options::default()
    };
    let plan = short(Nanos::secs(60), 1);
    let rows = run_plan(options, plan, &mut |_, _| {}).unwrap().rows;
    assert!(
        rows[0].note.contains("recorded: src1_0.csv"),
        "{}",
        rows[0].note
    );
    assert!(number(&rows, "src1-1", "hdd-only", "mean_ms") > 0.0);
}

#[test]
fn what_is_missing_of_recorded_traces_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |case: usize| match CASES[case].load(1, Some(folder.path()), None) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("nothing is there"),
    };
    let why = refused(1);
    assert!(
        why.contains("there is no src1_1.csv") && why.contains("leave --msr out"),
        "{why}"
    );
    recorded(folder.path(), "src1_1.csv", 1..3);
    let why = refused(1);
    assert!(
        why.contains("holds no request in what was asked for"),
        "{why}"
    );
    std::fs::write(
        folder.path().join("src1_0.csv"),
        "128166372003061629,src1,0,Read,x,4096,1\n",
    )
    .unwrap();
    let why = refused(0);
    assert!(why.contains("cannot read the trace of src1-0"), "{why}");
}
