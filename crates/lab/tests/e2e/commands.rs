//! Commands of the laboratory: experiments, simulations, traces, advice.

use std::fs;

use crate::common::{json, run, stderr, text};

#[test]
fn an_experiment_keeps_the_figures_of_its_runs_not_their_histograms() {
    let dir = tempfile::tempdir().unwrap();
    // 350 MB of data; the histograms of the quick run alone take 540.
    let limited = "ulimit -d 350000; exec \"$0\" experiment run replica --quick --json";
    let done = std::process::Command::new("bash")
        .args(["-c", limited, env!("CARGO_BIN_EXE_tanada-lab")])
        .current_dir(dir.path())
        .env("RAYON_NUM_THREADS", "2")
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", stderr(&done));
    assert!(done.stdout.starts_with(b"["));
}

#[test]
fn experiments_are_listed_and_an_unknown_one_is_bad_usage() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let list = json(dir, &["experiment", "list", "--json"]);
    assert_eq!(list[0]["name"], "cache");
    let refused = run(dir, &["experiment", "run", "cash"]);
    assert_eq!(refused.status.code(), Some(2));
    let said = stderr(&refused);
    assert!(
        said.contains("there is no experiment 'cash'; choose one of cache"),
        "{said}"
    );
}

/// A shared trace; `None` where traces are absent and not required.
fn shared_trace(name: &str) -> Option<String> {
    let path = testkit::traces::shared(name)?;
    Some(path.to_str().expect("a path of text").to_owned())
}

#[test]
fn simulated_policies_miss_exactly_as_published() {
    let dir = tempfile::tempdir().unwrap();
    let Some(trace) = shared_trace("cloudphysics/cloudPhysicsIO.vscsi.zst") else {
        return;
    };
    let asked = [
        "sim",
        "cache",
        &trace,
        "--policy",
        "lru,fifo,clock,sieve,belady",
    ];
    let how = [
        "--size",
        "500obj,2000obj,4897obj,20000obj",
        "--unit",
        "request",
        "--json",
    ];
    let rows = json(dir.path(), &[&asked[..], &how].concat());
    let misses: Vec<u64> = rows.as_array().unwrap()[..16]
        .iter()
        .map(|row| row["misses"].as_u64().unwrap())
        .collect();
    let published = [
        [95_398, 94_189, 91_657, 72_053],
        [96_483, 94_588, 91_716, 72_229],
        [95_293, 94_081, 91_599, 72_151],
        [94_379, 93_411, 90_040, 64_431],
    ];
    assert_eq!(misses, published.concat());
    let lru = &rows[2];
    assert_eq!(lru["policy"], "lru");
    assert_eq!(lru["size"], "4897obj");
    assert_eq!(lru["unit"], "request");
    assert_eq!(lru["requests"], 113_872);
    assert_eq!(lru["miss_ratio"], 91_657.0 / 113_872.0);
    assert!(lru["byte_miss_ratio"].as_f64().unwrap() > 0.0);
    let bound = &rows[18];
    assert_eq!(
        (bound["policy"].as_str(), bound["objects"].as_u64()),
        (Some("belady"), Some(4897))
    );
    assert!((bound["miss_ratio"].as_f64().unwrap() - 0.6290).abs() < 0.00005);
}

#[test]
fn simulated_pages_hit_as_published() {
    let dir = tempfile::tempdir().unwrap();
    let Some(trace) = shared_trace("arc/OLTP.lis.zst") else {
        return;
    };
    let asked = ["sim", "cache", &trace, "--policy", "lru", "--unit", "512B"];
    let how = [
        "--size",
        "1000obj,2000obj,5000obj,10000obj,15000obj",
        "--json",
    ];
    let rows = json(dir.path(), &[&asked[..], &how].concat());
    let hits: Vec<String> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|row| format!("{:.2}", 100.0 * (1.0 - row["miss_ratio"].as_f64().unwrap())))
        .collect();
    assert_eq!(hits, ["32.83", "42.47", "53.65", "60.70", "64.63"]);
}

#[test]
fn a_simulation_answers_in_a_table_in_json_and_in_one_page() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut trace = "t_us,op,offset,size,dev\n".to_owned();
    for n in 0..2_000u64 {
        let op = if n % 5 == 0 { 'W' } else { 'R' };
        let page = n * n % 211 + n % 3 * 40;
        trace.push_str(&format!("{n},{op},{},8192,0\n", page * 4096));
    }
    fs::write(dir.join("trace.csv"), trace).unwrap();
    let asked = [
        "sim",
        "cache",
        "trace.csv",
        "--size",
        "10%,256KiB",
        "--curve",
        "--html",
        "page.html",
    ];
    let table = text(dir, &asked);
    for expected in [
        "POLICY",
        "10%",
        "256KiB",
        "w-tinylfu",
        "belady",
        "*",
        "lru: exact curve",
        "sizes, lines between",
    ] {
        assert!(table.contains(expected), "{expected} is not in\n{table}");
    }
    let page = fs::read_to_string(dir.join("page.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("w-tinylfu"));
    let one_thread = text(dir, &[&asked[..], &["--json", "--jobs", "1"]].concat());
    let many = text(dir, &[&asked[..], &["--json", "--jobs", "3"]].concat());
    assert_eq!(one_thread, many, "threads change nothing");
    let rows = json(dir, &[&asked[..6], &["--json", "--policy", "lru"]].concat());
    assert_eq!(
        rows[0]["requests"], 4_000,
        "each block of a split request counts"
    );
    assert_eq!(rows[0]["trace_requests"], 2_000);
}

#[test]
fn a_simulation_reads_its_trace_as_every_other_command_does() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let rows = "0,R,0,4096,0\nnonsense\n1000,W,0,4096,0\n2000,R,4096,4096,1\n3000,R,4096,4096,0\n";
    fs::write(
        dir.join("trace.csv"),
        format!("t_us,op,offset,size,dev\n{rows}"),
    )
    .unwrap();
    let asked = ["sim", "cache", "trace.csv", "--size", "1obj", "--json"];
    let refused = run(dir, &asked);
    assert_eq!(refused.status.code(), Some(1));
    let said = stderr(&refused);
    assert!(
        said.contains("trace.csv") && said.contains("--bad count"),
        "{said}"
    );
    let requests = |how: &[&str]| {
        let rows = json(dir, &[&asked[..], &["--bad", "count"], how].concat());
        rows[0]["requests"].as_u64()
    };
    assert_eq!(requests(&[]), Some(4));
    assert_eq!(requests(&["--device", "0"]), Some(3));
    assert_eq!(requests(&["--end", "2ms"]), Some(2));
    let answer = run(dir, &[&asked[..], &["--bad", "count"]].concat());
    assert!(stderr(&answer).contains("1 malformed records were left out"));
}

#[test]
fn objects_with_names_stay_apart_unless_blocks_are_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut trace = "time,obj,size\n".to_owned();
    for n in 0..16 {
        trace.push_str(&format!("{n},{},512\n", n % 8));
    }
    fs::write(dir.join("objects.csv"), trace).unwrap();
    let asked = ["sim", "cache", "objects.csv", "--policy", "lru"];
    let said = text(dir, &[&asked[..], &["--size", "50%"]].concat());
    let expected = "in units of request: 16 accesses to 8 different objects";
    assert!(said.contains(expected), "{expected} is not in\n{said}");
    let merged = run(
        dir,
        &[&asked[..], &["--unit", "4KiB", "--size", "100%"]].concat(),
    );
    assert!(stderr(&merged).contains("up to 8 of them count as one"));
}

#[test]
fn a_generated_trace_says_so_wherever_it_goes() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let made = [
        "trace",
        "generate",
        "zipf",
        "--requests",
        "500",
        "--size",
        "16MiB",
    ];
    text(
        dir,
        &[&made[..], &["--seed", "7", "-o", "made.csv"]].concat(),
    );
    let remark = "generated: tanada trace generate zipf --requests 500 --size 16777216 --seed 7";
    let first = fs::read_to_string(dir.join("made.csv")).unwrap();
    assert_eq!(first.lines().nth(1), Some(format!("# {remark}").as_str()));
    text(dir, &["trace", "convert", "made.csv", "made.parquet"]);
    for asked in [
        &["trace", "show", "made.parquet"][..],
        &["sim", "cache", "made.parquet", "--policy", "lru"],
        &["sim", "run", "made.parquet"],
    ] {
        let ran = run(dir, &[asked, &["--html", "page.html"]].concat());
        let said = stderr(&ran);
        assert!(ran.status.success(), "{asked:?}: {said}");
        assert!(said.contains(remark), "{asked:?}: {said}");
        let page = fs::read_to_string(dir.join("page.html")).unwrap();
        assert!(page.contains(remark), "{asked:?}");
    }
    let outcomes = json(dir, &["sim", "run", "made.csv", "--json"]);
    assert_eq!(outcomes[0]["generated"], remark);
}

#[test]
fn a_simulation_that_makes_no_sense_is_refused_with_advice() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(
        dir.join("trace.csv"),
        "t_us,op,offset,size,dev\n0,R,0,4096,0\n",
    )
    .unwrap();
    fs::write(dir.join("empty.csv"), "").unwrap();
    fs::write(
        dir.join("flush.csv"),
        "t_us,op,offset,size,dev\n0,F,0,0,0\n",
    )
    .unwrap();
    let refusals: [(&[&str], i32, &str); 6] = [
        (
            &["trace.csv", "--unit", "request", "--size", "24GiB"],
            2,
            "whose objects have no size in bytes",
        ),
        (
            &["trace.csv", "--size", "1000"],
            2,
            "'1000' is no cache size",
        ),
        (&["trace.csv", "--unit", "3KiB"], 2, "'3KiB' is no unit"),
        (
            &["trace.csv", "--policy", "mru"],
            2,
            "'mru' is no replacement policy",
        ),
        (&["flush.csv"], 1, "no reads or writes to simulate"),
        (&["empty.csv"], 1, "holds no request"),
    ];
    for (arguments, status, expected) in refusals {
        let refused = run(dir, &[&["sim", "cache"], arguments].concat());
        let said = stderr(&refused);
        assert_eq!(refused.status.code(), Some(status), "{arguments:?}: {said}");
        assert!(said.contains(expected), "{expected} is not in\n{said}");
    }
}

#[test]
fn advice_names_a_cache_and_its_price() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut trace = "t_us,op,offset,size,dev\n".to_owned();
    for n in 0..4_000u64 {
        let op = if n % 4 == 0 { 'W' } else { 'R' };
        let page = n * n % 1_009;
        trace.push_str(&format!(
            "{},{op},{},4096,0\n",
            n * 20_000,
            page * 4096 * 64
        ));
    }
    fs::write(dir.join("trace.csv"), trace).unwrap();
    let asked = [
        "advise",
        "trace.csv",
        "--policy",
        "lru,s3-fifo",
        "--html",
        "page.html",
    ];
    let said = text(dir, &asked);
    for expected in [
        "of ssd-sata-mlc with",
        "The knee is at",
        "READ HITS",
        "a day to the fast device",
    ] {
        assert!(said.contains(expected), "{expected} is not in\n{said}");
    }
    let page = fs::read_to_string(dir.join("page.html")).unwrap();
    assert!(page.contains("Caches looked at"));
    let advice = json(dir, &[&asked[..], &["--json"]].concat());
    let chosen = advice["chosen"].as_u64().unwrap() as usize;
    let mean = |row: &serde_json::Value| row["response_us_mean"].as_f64().unwrap();
    assert!(mean(&advice["candidates"][chosen]) < mean(&advice["alone"]));
    let refused = run(dir, &["advise", "trace.csv", "--fast", "floppy"]);
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
}
