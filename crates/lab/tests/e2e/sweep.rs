//! Sweeps from outside: killed and gone on with, in parts and merged, refused where they make no sense.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use crate::common::{json, run, stderr, tanada, text};

const STACK: &str = r#"
[[device]]
name = "hdd0"
model = "hdd-7200-sata"
size = "1GiB"
[[device]]
name = "ssd0"
model = "ssd-sata-mlc"
size = "64MiB"
[[hybrid]]
name = "vol0"
slow = "hdd0"
fast = "ssd0"
"#;

/// Short points, one that fails, and long ones behind it.
const STACKS: &str = r#"
kind = "run"
config = "stack.toml"
[base]
trace = "trace.csv"
[[zip]]
"hybrid.0.policy" = ["lru", "fifo", "none", "clock", "sieve", "s3-fifo", "arc", "lru"]
"replay.limit" = [300, 300, 300, 20000, 20000, 20000, 20000, 20000]
"#;

const POLICIES: &str = r#"
kind = "cache"
[base]
trace = "trace.csv"
[parameters]
policy = ["lru", "s3-fifo", "belady"]
size = { from = "1MiB", to = "64MiB", points = 4, log = true }
"#;

/// A directory with a trace, a stack, and `plan.toml`.
fn directory(plan: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut trace = "t_us,op,offset,size,dev\n".to_owned();
    for n in 0..20_000_u64 {
        let op = if n % 4 == 0 { "W" } else { "R" };
        let page = (n * n * 7919) % 30_011;
        trace.push_str(&format!("{},{op},{},4096,0\n", n * 3000, page * 4096));
    }
    fs::write(dir.path().join("trace.csv"), trace).unwrap();
    fs::write(dir.path().join("stack.toml"), STACK).unwrap();
    fs::write(dir.path().join("plan.toml"), plan).unwrap();
    dir
}

fn results(dir: &Path) -> [Vec<u8>; 2] {
    ["results.csv", "results.parquet"].map(|name| fs::read(dir.join(name)).expect(name))
}

/// Starts the sweep into `killed`, kills it (SIGKILL) as soon as it says that a point failed. Was it in time?
fn kill_in_the_middle(dir: &Path) -> bool {
    let mut child = tanada(dir)
        .args([
            "sim",
            "sweep",
            "plan.toml",
            "--jobs",
            "1",
            "--restart",
            "--out",
            "killed",
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut said = String::new();
    let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
    stderr.read_line(&mut said).expect("its output is text");
    assert!(said.starts_with("point 2 failed"), "{said}");
    child
        .kill()
        .expect("it may have ended already, and is ours");
    child.wait().expect("it was started").code().is_none()
}

#[test]
fn a_sweep_killed_in_the_middle_goes_on_and_ends_with_the_same_bytes() {
    let dir = directory(STACKS);
    let dir = dir.path();
    let whole = run(dir, &["sim", "sweep", "plan.toml", "--out", "whole"]);
    assert_eq!(
        whole.status.code(),
        Some(1),
        "one point fails: {}",
        stderr(&whole)
    );
    assert!(stderr(&whole).contains("1 points failed, the first of them point 2: "));

    // On a busy machine it may be done before the kill arrives.
    assert!(
        (0..5).any(|_| kill_in_the_middle(dir)),
        "it was never killed in time"
    );
    let journal = fs::read_to_string(dir.join("killed/journal.jsonl")).unwrap();
    let done = journal.lines().count() - 1;
    assert!((3..8).contains(&done), "{done} of 8 points were done");
    assert!(!dir.join("killed/results.csv").exists());

    let again = run(dir, &["sim", "sweep", "plan.toml", "--out", "killed"]);
    assert_eq!(again.status.code(), Some(1));
    // The one that failed is tried again.
    let resumed = format!("{} points were done already", done - 1);
    assert!(stderr(&again).contains(&resumed), "{}", stderr(&again));
    assert_eq!(results(&dir.join("killed")), results(&dir.join("whole")));
}

#[test]
fn parts_merge_into_the_bytes_of_the_whole() {
    let dir = directory(POLICIES);
    let dir = dir.path();
    let shown = text(dir, &["sim", "sweep", "plan.toml", "--html", "whole.html"]);
    assert!(
        shown.contains("MISS_RATIO") && shown.contains("s3-fifo"),
        "{shown}"
    );
    let page = fs::read_to_string(dir.join("whole.html")).unwrap();
    assert!(page.contains("miss_ratio by size") && page.contains("tanada sim sweep plan.toml"));

    for part in ["2/3", "1/3"] {
        text(
            dir,
            &[
                "sim",
                "sweep",
                "plan.toml",
                "--shard",
                part,
                "--out",
                "parts",
            ],
        );
    }
    let early = run(dir, &["sim", "merge", "parts", "-o", "merged"]);
    assert_eq!(early.status.code(), Some(1));
    assert!(
        stderr(&early).contains("4 of 12 points are missing (2 of part 3/3"),
        "{}",
        stderr(&early)
    );
    text(
        dir,
        &[
            "sim",
            "sweep",
            "plan.toml",
            "--shard",
            "3/3",
            "--out",
            "parts",
        ],
    );
    let rows = json(dir, &["sim", "merge", "parts", "-o", "merged", "--json"]);
    assert_eq!(
        results(&dir.join("merged")),
        results(&dir.join("plan.sweep"))
    );

    // The bound is the bound, and more room misses no more.
    let rows = rows.as_array().expect("rows");
    assert_eq!(rows.len(), 12);
    let of = |policy: &str| -> Vec<u64> {
        let mine = rows.iter().filter(|row| row["policy"] == policy);
        mine.map(|row| row["misses"].as_u64().expect("a count"))
            .collect()
    };
    assert!(
        of("belady")
            .iter()
            .zip(of("lru"))
            .all(|(least, lru)| *least <= lru)
    );
    assert!(of("lru").is_sorted_by(|small, large| small >= large));
}

#[test]
fn a_plan_that_changed_or_makes_no_sense_is_bad_usage() {
    let dir = directory(POLICIES);
    let dir = dir.path();
    text(dir, &["sim", "sweep", "plan.toml"]);
    let refused = |arguments: &[&str], expected: &str| {
        let output = run(dir, arguments);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    };
    fs::write(dir.join("plan.toml"), POLICIES.replace("64MiB", "32MiB")).unwrap();
    let sweep = ["sim", "sweep", "plan.toml"];
    refused(&sweep, "give --restart to throw its 12 points away");
    text(dir, &["sim", "sweep", "plan.toml", "--restart"]);
    refused(
        &["sim", "sweep", "plan.toml", "--shard", "4/3"],
        "'4/3' is not a part",
    );
    refused(
        &["sim", "sweep", "plan.toml", "--y", "speed"],
        "'speed' was not measured; there are miss_ratio",
    );
    let anew = ["sim", "sweep", "plan.toml", "--out", "anew", "--jobs", "1"];
    let with = |more: &[&'static str]| [&anew[..], more].concat();
    refused(&with(&["--x", "policy"]), "'policy' is no parameter with");
    assert!(!dir.join("anew").exists(), "nothing was run");
    let nowhere = run(dir, &with(&["--html", "no/such/page.html"]));
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(stderr(&nowhere).contains("there is no directory no/such"));
    assert!(!dir.join("anew").exists(), "nothing was run");
    refused(
        &with(&["--y", "speed"]),
        "'speed' was not measured at point 0; there are miss_ratio",
    );
    let journal = fs::read_to_string(dir.join("anew/journal.jsonl")).unwrap();
    assert_eq!(journal.lines().count(), 2, "the first line and one point");
    refused(
        &["sim", "merge", ".", "-o", "merged"],
        "there is no journal of a sweep in .",
    );
    fs::write(dir.join("plan.toml"), "kind = \"walk\"").unwrap();
    refused(
        &sweep,
        "there is no kind 'walk' of points; there are run, cache",
    );
    fs::write(dir.join("plan.toml"), "kind = \"run\"\nsped = 2").unwrap();
    refused(&sweep, "unknown field `sped`");
}

#[test]
fn a_sweep_says_that_its_trace_was_generated_and_notes_on_a_file_once() {
    let generated = r#"
kind = "cache"
[base]
generate = { profile = "zipf", requests = 2000 }
size = "10%"
[parameters]
policy = ["lru", "fifo"]
"#;
    let dir = directory(generated);
    let dir = dir.path();
    let shown = text(dir, &["sim", "sweep", "plan.toml", "--html", "page.html"]);
    let origin = "generated: zipf, seed 1";
    assert!(shown.contains(origin), "{shown}");
    let page = fs::read_to_string(dir.join("page.html")).unwrap();
    assert!(page.contains(origin));
    let table = fs::read_to_string(dir.join("plan.sweep/results.csv")).unwrap();
    assert_eq!(table.matches(origin).count(), 2, "{table}");

    // No unit of time is said in this format: it is assumed.
    fs::write(dir.join("trace.lis"), "1 8 0 0\n20 8 0 1\n1 8 0 2\n").unwrap();
    let file = generated.replace(
        "generate = { profile = \"zipf\", requests = 2000 }",
        "trace = \"trace.lis\"\nformat = \"lis\"",
    );
    fs::write(dir.join("plan.toml"), file).unwrap();
    let output = run(dir, &["sim", "sweep", "plan.toml", "--restart"]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(said.matches("neither time nor writes").count(), 1, "{said}");
}
