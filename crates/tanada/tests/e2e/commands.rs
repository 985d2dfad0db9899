//! Commands that need no daemon, and what they say when something is wrong.

use std::fs;

use crate::common::{Daemon, SMALL, json, run, stderr, text};

#[test]
fn a_bad_configuration_is_bad_usage_and_every_mistake_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(
        dir.join("bad.toml"),
        "[[device]]\nname = \"a\"\nmemory = true\nsize = \"lots\"\n\n[[export]]\ndevice = \"b\"\nnbd = \"unix:b\"\n",
    )
    .unwrap();
    for arguments in [
        &["serve", "bad.toml"][..],
        &["serve", "--check", "bad.toml"],
    ] {
        let refused = run(dir, arguments);
        assert_eq!(refused.status.code(), Some(2));
        let said = stderr(&refused);
        for expected in [
            "bad.toml has 3 mistakes; nothing was started",
            "line 1: [[device]] \"a\": size is missing",
            "line 4: [[device]] \"a\" size: 'lots' is not a size",
            "line 7: [[export]] \"b\" device: there is no [[device]], [[stripe]] or [[hybrid]] called \"b\"",
        ] {
            assert!(said.contains(expected), "{expected} is not in\n{said}");
        }
    }
    assert!(!dir.join("tanada-data").exists(), "nothing was started");
}

#[test]
fn the_built_in_configuration_is_good_and_can_be_edited() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let printed = text(dir, &["serve", "--print-config", "--data-dir", "here"]);
    assert!(printed.contains("file = \"here/hdd0.img\""), "{printed}");
    fs::write(dir.join("own.toml"), printed).unwrap();
    let said = text(dir, &["serve", "--check", "own.toml"]);
    assert_eq!(said, "own.toml is good: 2 devices, 1 hybrid, 1 export\n");
}

#[test]
fn without_a_daemon_a_question_says_how_to_start_one() {
    let dir = tempfile::tempdir().unwrap();
    for arguments in [
        &["status"][..],
        &["volume", "list"],
        &["device", "list"],
        &["top", "--once"],
    ] {
        let refused = run(dir.path(), arguments);
        assert_eq!(refused.status.code(), Some(1));
        let said = stderr(&refused);
        assert!(
            said.contains("no daemon answers at unix:admin.sock"),
            "{said}"
        );
        assert!(said.contains("tanada serve"), "{said}");
    }
}

#[test]
fn bad_usage_is_exit_status_two() {
    let dir = tempfile::tempdir().unwrap();
    for arguments in [
        &["volume", "set", "vol0", "wirte=back"][..],
        &["volume", "show", "../etc"],
        &["status", "--admin", "nowhere"],
        &["top", "--interval", "1ns"],
        &["frobnicate"],
    ] {
        let refused = run(dir.path(), arguments);
        assert_eq!(
            refused.status.code(),
            Some(2),
            "{arguments:?}: {}",
            stderr(&refused)
        );
    }
}

#[test]
fn a_missing_configuration_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let refused = run(dir.path(), &["serve", "none.toml"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("cannot read the configuration none.toml"));
}

#[test]
fn the_doctor_looks_at_kernel_data_limits_and_tools() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let findings = json(dir, &["doctor", "--json"]);
    let findings = findings.as_array().unwrap();
    for area in ["kernel", "data", "limits", "tools"] {
        assert!(
            findings.iter().any(|finding| finding["area"] == area),
            "{area}"
        );
    }
    for finding in findings {
        let state = finding["state"].as_str().unwrap();
        assert!(["ok", "warn", "absent"].contains(&state), "{finding}");
        let todo = finding["todo"].as_str().unwrap();
        assert_eq!(state == "ok", todo.is_empty(), "{finding}");
    }
    assert!(text(dir, &["doctor"]).starts_with("STATE"));
    assert_eq!(
        fs::read_dir(dir).unwrap().count(),
        0,
        "it leaves nothing behind"
    );
}

/// A cache that was made on `fast.img` for `slow.img`, and the configuration with the two named so.
fn made_pair(dir: &std::path::Path) -> impl Fn(&str, &str) -> String {
    let config = |slow: &str, fast: &str| {
        let device = |name: &str, path: &str, size: &str| {
            format!("[[device]]\nname = \"{name}\"\npath = \"{path}\"\nsize = \"{size}\"\n")
        };
        let listen = "[[hybrid]]\nname = \"vol0\"\nslow = \"slow\"\nfast = \"fast\"\n\
                      [[export]]\ndevice = \"vol0\"\nnbd = \"unix:vol0.sock\"\n\
                      [admin]\nlisten = \"unix:admin.sock\"\n";
        device("slow", slow, "64MiB") + &device("fast", fast, "64MiB") + listen
    };
    let daemon = Daemon::start(dir, &config("slow.img", "fast.img"));
    assert_eq!(daemon.stop().0, Some(0));
    config
}

#[test]
fn swapped_foreign_and_blank_devices_are_seen_before_anything_starts() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let config = made_pair(dir);
    let look = |slow: &str, fast: &str| {
        fs::write(dir.join("t.toml"), config(slow, fast)).unwrap();
        let checked = run(dir, &["serve", "--check", "t.toml"]);
        let doctor = run(dir, &["doctor", "t.toml"]);
        let said = String::from_utf8(checked.stdout.clone()).unwrap() + &stderr(&checked);
        let told = String::from_utf8(doctor.stdout.clone()).unwrap();
        (checked.status.code(), said, doctor.status.code(), told)
    };
    let (checked, said, _, told) = look("slow.img", "fast.img");
    assert_eq!(checked, Some(0), "{said}");
    assert!(said.contains("the cache of vol0"), "{said}");
    assert!(told.contains("the cache of vol0"), "{told}");

    let (checked, said, doctor, told) = look("fast.img", "slow.img");
    assert_eq!((checked, doctor), (Some(2), Some(1)), "{said}\n{told}");
    assert!(
        said.contains("begins with the cache of vol0: are slow = "),
        "{said}"
    );
    assert!(told.contains("begins with the cache of vol0"), "{told}");

    fs::write(dir.join("other.img"), vec![7; 64 << 20]).unwrap();
    let (checked, said, doctor, told) = look("slow.img", "other.img");
    assert_eq!((checked, doctor), (Some(2), Some(1)), "{said}\n{told}");
    assert!(
        said.contains("holds data that are no cache: is it the right device"),
        "{said}"
    );

    let file = fs::File::create(dir.join("blank.img")).unwrap();
    file.set_len(64 << 20).unwrap();
    let (checked, said, _, _) = look("slow.img", "blank.img");
    assert_eq!(checked, Some(0), "{said}");
    assert!(
        said.contains("blank: vol0 begins with an empty cache"),
        "{said}"
    );

    let small = fs::File::create(dir.join("small.img")).unwrap();
    small.set_len(32 << 20).unwrap();
    let (checked, said, _, _) = look("small.img", "fast.img");
    assert_eq!(checked, Some(2), "{said}");
    assert!(
        said.contains("the cache of a slow device of 64.0 MiB (vol0), and slow has 32.0 MiB"),
        "{said}"
    );
}

#[test]
fn a_log_says_settings_in_words_and_an_error_each_cause_once() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, SMALL);
    text(
        dir,
        &[
            "volume",
            "set",
            "vol0",
            "write=only-writes",
            "dirty_high=40",
        ],
    );
    let (_, log) = daemon.stop();
    assert!(
        log.contains("dirty_high=40 write=only-writes")
            || log.contains("write=only-writes dirty_high=40"),
        "{log}"
    );
    assert!(!log.contains("Some(") && !log.contains("Change {"), "{log}");
    // The ledger's error names the device's; both are in the chain.
    let refused = run(dir, &["trace", "stat", "none.csv"]);
    let said = stderr(&refused);
    assert_eq!(said.matches("No such file").count(), 1, "{said}");
}

#[test]
fn an_experiment_keeps_the_figures_of_its_runs_not_their_histograms() {
    let dir = tempfile::tempdir().unwrap();
    // 350 MB of data; the histograms of the quick run alone take 540.
    let limited = "ulimit -d 350000; exec \"$0\" experiment run replica --quick --json";
    let done = std::process::Command::new("bash")
        .args(["-c", limited, env!("CARGO_BIN_EXE_tanada")])
        .current_dir(dir.path())
        .env("RAYON_NUM_THREADS", "2")
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", stderr(&done));
    assert!(done.stdout.starts_with(b"["));
}

#[test]
fn the_doctor_looks_at_configured_devices() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(
        dir.join("t.toml"),
        "[[device]]\nname = \"a\"\npath = \"nowhere/a.img\"\n",
    )
    .unwrap();
    let answer = run(dir, &["doctor", "t.toml", "--json"]);
    assert_eq!(answer.status.code(), Some(1), "something is missing");
    assert!(stderr(&answer).contains("missing: a (nowhere/a.img)"));
    let findings: serde_json::Value = serde_json::from_slice(&answer.stdout).unwrap();
    let device = findings
        .as_array()
        .unwrap()
        .iter()
        .find(|finding| finding["area"] == "device")
        .expect("the device is looked at");
    assert_eq!(device["state"], "missing");
    assert!(
        device["todo"]
            .as_str()
            .unwrap()
            .contains("correct its path")
    );
}

#[test]
fn models_are_listed_with_figures_and_sources() {
    let dir = tempfile::tempdir().unwrap();
    let models = json(dir.path(), &["device", "models", "--json"]);
    let models = models.as_array().unwrap();
    for name in [
        "hdd-10k-sas",
        "hdd-7200-sata",
        "hdd-5400-mobile",
        "ssd-sata-mlc",
        "scm",
        "dram",
    ] {
        let model = models
            .iter()
            .find(|model| model["name"] == name)
            .unwrap_or_else(|| panic!("{name}"));
        for figure in model["figures"].as_array().unwrap() {
            assert!(!figure["source"].as_str().unwrap().is_empty(), "{figure}");
        }
    }
    let page = text(dir.path(), &["device", "models"]);
    assert!(
        page.contains("hdd-7200-sata (hdd)") && page.contains("[1]"),
        "{page}"
    );
}

#[test]
fn a_model_is_measured_in_virtual_time_and_a_file_in_real_time() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let report = json(dir, &["device", "bench", "scm", "--json"]);
    assert_eq!(report["modelled"], true);
    assert!(report["cases"][0]["iops"].as_f64().unwrap() > 0.0);
    let unknown = run(dir, &["device", "bench", "floppy"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(
        stderr(&unknown).contains("no model 'floppy'"),
        "{}",
        stderr(&unknown)
    );
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
    let root = std::env::var_os("TANADA_SHARED").map_or_else(
        || concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared").into(),
        std::path::PathBuf::from,
    );
    let path = root.join("traces").join(name);
    if !path.exists() {
        let required = std::env::var_os("TANADA_REQUIRE_SHARED").is_some_and(|v| v == "1");
        assert!(!required, "there is no {}", path.display());
        println!("skipped: no shared traces");
        return None;
    }
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
    let told = run(dir, &[&asked[..], &["--bad", "count"]].concat());
    assert!(stderr(&told).contains("1 malformed records were left out"));
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
        &["trace", "stat", "made.parquet"][..],
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
