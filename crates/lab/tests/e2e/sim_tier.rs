//! `tanada sim tier` from the outside: the paper's worked example by hand, and what is refused.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::common::{run, stderr, text};

/// Minutes of 4,000 requests on each hot region and one on region 200, all 1 GiB.
fn write(dir: &Path, name: &str, minutes: &[&[u64]]) {
    let mut trace = "t_us,op,offset,size,dev\n".to_owned();
    for (minute, hot) in minutes.iter().enumerate() {
        let begin = minute as u64 * 60_000_000;
        for n in 0..4_000 {
            for region in *hot {
                let offset = ((region - 1) << 30) + n * 4096;
                let op = if n % 3 == 0 { 'R' } else { 'W' };
                trace.push_str(&format!("{},{op},{offset},4096,0\n", begin + n * 10_000));
            }
        }
        trace.push_str(&format!(
            "{},R,{},4096,0\n",
            begin + 50_000_000,
            199u64 << 30
        ));
    }
    fs::write(dir.join(name), trace).unwrap();
}

fn lines(dir: &Path, arguments: &[&str]) -> Vec<Value> {
    let output = text(dir, arguments);
    output
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

const PAPER: [&str; 19] = [
    "sim",
    "tier",
    "trace.csv",
    "--policy",
    "on-the-fly",
    "--period",
    "60s",
    "--iops-min",
    "50",
    "--sub-luns-max",
    "20",
    "--share-min",
    "60",
    "--streak-min",
    "3",
    "--region",
    "1GiB",
    "--fast-regions",
    "24",
];

#[test]
fn the_worked_example_of_the_tiering_paper_is_decided_line_by_line() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    write(
        dir,
        "trace.csv",
        &[
            &[65, 66],
            &[65, 66, 67],
            &[65, 66, 67, 68],
            &[65, 66, 67, 68, 69],
        ],
    );
    let asked = [&PAPER[..], &["--timeout", "10", "--json"]].concat();
    let rows = lines(dir, &asked);
    let expected = [
        json!({"interval": 0, "ios": 8_001, "candidates": [65, 66], "up": [], "down": [], "resident": []}),
        json!({"interval": 1, "ios": 12_001, "candidates": [65, 66, 67], "up": [], "down": [], "resident": []}),
        json!({"interval": 2, "ios": 16_001, "candidates": [65, 66, 67, 68], "up": [65, 66, 67, 68], "down": [],
               "resident": [65, 66, 67, 68]}),
        json!({"interval": 3, "ios": 20_001, "candidates": [65, 66, 67, 68, 69], "up": [69], "down": [],
               "resident": [65, 66, 67, 68, 69]}),
    ];
    assert_eq!(rows, expected);
    let output = text(dir, &asked);
    let first = r#"{"interval":0,"ios":8001,"candidates":[65,66],"up":[],"down":[],"resident":[]}"#;
    assert_eq!(output.lines().next(), Some(first));
    // The same are the defaults.
    assert_eq!(output, text(dir, &["sim", "tier", "trace.csv", "--json"]));
}

#[test]
fn for_people_there_is_a_table_and_what_it_came_to() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    write(
        dir,
        "trace.csv",
        &[&[65, 66], &[65, 66], &[65, 66, 70], &[65, 66]],
    );
    let said = text(
        dir,
        &[
            "sim",
            "tier",
            "trace.csv",
            "--timeout",
            "1",
            "--streak-min",
            "1",
        ],
    );
    let expected = [
        "INTERVAL  REQUESTS  CANDIDATES     UP  DOWN  RESIDENT",
        "       0      8001       65-66  65-66  -            2",
        "       2     12001       65-66      -  -            2",
        "on-the-fly over 24 regions of 1.0 GiB: 66.7 % of 36.0k requests in 4 intervals went to regions that were up",
        "2 moves up, 0 down; 2 regions up at most",
    ];
    for line in expected {
        assert!(
            said.lines().any(|one| one == line),
            "{line} is not in\n{said}"
        );
    }
}

#[test]
fn static_tiering_and_hystor_decide_at_the_end_of_their_windows() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    write(dir, "trace.csv", &[&[5], &[5], &[9], &[9]]);
    write(dir, "before.csv", &[&[7, 9]]);
    let ups = |more: &[&str]| {
        let asked = [
            &["sim", "tier", "trace.csv", "--fast-regions", "1", "--json"],
            more,
        ]
        .concat();
        lines(dir, &asked)
            .iter()
            .map(|row| row["up"].clone())
            .collect::<Vec<Value>>()
    };
    let fixed = ups(&["--policy", "static", "--window", "2m"]);
    assert_eq!(fixed, [json!([]), json!([5]), json!([]), json!([9])]);
    // Region 5 is down to 3,000 when region 9 has 4,000.
    let aging = ups(&["--policy", "hystor", "--window", "1m"]);
    assert_eq!(aging, [json!([5]), json!([]), json!([9]), json!([])]);
    let asked = [
        "sim",
        "tier",
        "trace.csv",
        "--policy",
        "static",
        "--before",
        "before.csv",
        "--json",
    ];
    let placed = lines(dir, &asked);
    assert_eq!(placed[0]["resident"], json!([7, 9, 200]));
}

#[test]
fn a_trace_is_read_as_every_other_command_does() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let rows = "0,R,0,4096,0\nnonsense\n1000,W,0,4096,0\n2000,R,4096,4096,1\n3000,R,4096,4096,0\n";
    fs::write(
        dir.join("trace.csv"),
        format!("t_us,op,offset,size,dev\n{rows}"),
    )
    .unwrap();
    let asked = ["sim", "tier", "trace.csv", "--json", "--iops-min", "0"];
    let refused = run(dir, &asked);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        stderr(&refused).contains("--bad count"),
        "{}",
        stderr(&refused)
    );
    let two = run(dir, &[&asked[..], &["--bad", "count"]].concat());
    assert_eq!(two.status.code(), Some(1));
    assert!(
        stderr(&two).contains("choose one with --device 0"),
        "{}",
        stderr(&two)
    );
    let ios = |how: &[&str]| {
        let asked = [&asked[..], &["--bad", "count", "--device", "0"], how].concat();
        lines(dir, &asked)[0]["ios"].as_u64()
    };
    assert_eq!(ios(&[]), Some(3));
    assert_eq!(ios(&["--end", "2ms"]), Some(2));
}

#[test]
fn what_makes_no_sense_is_bad_usage() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    write(dir, "trace.csv", &[&[1]]);
    for (asked, why) in [
        (&["--period", "0s"][..], "period is 0"),
        (&["--period", "never"], "never"),
        (&["--iops-min=-1"], "iops_min is -1"),
        (&["--sub-luns-max", "0"], "sub_luns_max is 0"),
        (&["--share-min", "101"], "share_min is 101"),
        (&["--share-min", "nan"], "share_min is NaN"),
        (&["--streak-min", "0"], "streak_min is 0"),
        (&["--timeout", "0"], "timeout is 0"),
        (&["--region", "3MiB"], "region is 3145728 bytes"),
        (&["--region", "512KiB"], "region is 524288 bytes"),
        (&["--region", "big"], "'big' is not a size"),
        (&["--fast-regions", "0"], "fast_regions is 0"),
        (
            &["--policy", "lru"],
            "'lru' is no tiering rule; choose one of on-the-fly, static, hystor",
        ),
        (
            &["--policy", "static", "--window", "1s"],
            "window is 1.00 s, shorter",
        ),
        (&["--before", "trace.csv"], "say --policy static with it"),
    ] {
        let refused = run(dir, &[&["sim", "tier", "trace.csv"], asked].concat());
        assert_eq!(
            refused.status.code(),
            Some(2),
            "{asked:?}: {}",
            stderr(&refused)
        );
        assert!(
            stderr(&refused).contains(why),
            "{asked:?}: {}",
            stderr(&refused)
        );
    }
    let missing = run(dir, &["sim", "tier", "none.csv"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(stderr(&missing).contains("none.csv"));
}
