//! `tanada predict` and `tanada experiment run predict`, from outside.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::common::{json, run, stderr, text, without};

/// A directory with the paper's measurements in `scm.csv`.
fn published() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let said = text(
        dir.path(),
        &["predict", "import", "--published", "--into", "scm.csv"],
    );
    assert_eq!(said, "scm.csv: 188 measurements\n");
    dir
}

/// What is refused, with its exit status.
fn refused(dir: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = run(dir, arguments);
    (output.status.code(), stderr(&output))
}

#[test]
fn the_papers_135_figures_come_out_and_the_exit_status_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let rows = json(
        dir.path(),
        &["experiment", "run", "predict", "--quick", "--json"],
    );
    let printed: Vec<&Value> = rows
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| !row["published"].is_null())
        .collect();
    assert_eq!(printed.len(), 135);
    let row = |table: &str, case: &str, metric: &str| {
        printed
            .iter()
            .find(|row| row["table"] == table && row["case"] == case && row["metric"] == metric)
            .unwrap_or_else(|| panic!("{table} {case} {metric}"))
    };
    let near = |row: &Value, by: f64| {
        (row["published"].as_f64().unwrap() - row["ours"].as_f64().unwrap()).abs() < by
    };
    assert!(near(row("8", "write-only 16GB 64K-latency", "r2"), 2e-5));
    assert!(near(row("13", "scm1 48GB", "predicted_us"), 0.01));
    assert_eq!(
        row("10", "write-only 16GB", "regressor")["ours"],
        "64K-latency"
    );
    assert!(
        !near(row("12", "write-only 64GB", "slope"), 1e-4),
        "the slip"
    );
    let page = text(dir.path(), &["experiment", "run", "predict", "--quick"]);
    assert!(
        page.contains("0.999852"),
        "figures are shown as they are printed"
    );
    assert!(page.contains("the one slip in print"));
}

#[test]
fn a_data_set_is_shown_fitted_judged_and_used() {
    let dir = published();
    let dir = dir.path();
    let shown = text(dir, &["predict", "show", "scm.csv"]);
    assert!(
        shown.contains("write-64K-latency") && shown.contains("55.427"),
        "{shown}"
    );
    let study = json(dir, &["predict", "fit", "scm.csv", "--json"]);
    assert_eq!(study["groups"].as_array().unwrap().len(), 6);
    assert_eq!(study["groups"][0]["fit"]["rank"], 3);
    assert_eq!(study["verdict"]["recommended"], "model");
    let compared = text(
        dir,
        &["predict", "compare", "scm.csv", "--html", "scm.html"],
    );
    assert!(compared.contains("the model is recommended"), "{compared}");
    assert!(compared.contains("nearest"));
    let page = fs::read_to_string(dir.join("scm.html")).unwrap();
    assert!(page.contains("Left-out errors") && page.contains("Residuals"));
    let lines = text(dir, &["predict", "fit", "scm.csv", "--mode", "paper"]);
    assert!(lines.contains("mean best R2 0.99833"), "{lines}");
    assert!(lines.contains("inside noise") && lines.contains("outside noise"));
    let near_device = [
        "--at",
        "read-16K-latency=12us",
        "--at",
        "write-64K-latency=50us",
    ];
    let mut arguments = vec!["predict", "estimate", "scm.csv", "--json"];
    arguments.extend(near_device);
    let estimates = json(dir, &arguments);
    let write_only = &estimates[0];
    assert_eq!(write_only["group"], "write-only write_latency");
    let latency = write_only["latency"].as_f64().unwrap();
    assert!(
        (1500.0..2300.0).contains(&latency),
        "between DRAM and 3D XPoint: {latency}"
    );
    // Many clients: one operation holds the device longest, and its prediction alone stays as it was.
    arguments.retain(|argument| *argument != "--json");
    arguments.extend([
        "--at",
        "read-16K-throughput=900MB/s",
        "--at",
        "write-64K-throughput=1100MB/s",
    ]);
    arguments.extend(["--clients", "32", "--cores", "8"]);
    let queued = text(dir, &arguments);
    assert!(
        queued.contains(", device") && queued.contains(", cpu"),
        "{queued}"
    );
    assert!(queued.contains(&format!("{latency:.1}")), "{queued}");
    // As published: SCM1 from one figure, and sizes that were never run.
    let scm1 = json(
        dir,
        &[
            "predict",
            "estimate",
            "scm.csv",
            "--mode",
            "paper",
            "--device",
            "SCM1",
            "--sizes",
            "48,96,192",
            "--json",
        ],
    );
    let over = scm1["over_sizes"].as_array().unwrap();
    let at_48 = over
        .iter()
        .find(|one| one["group"] == "write-only write_latency" && one["size"] == 48.0)
        .unwrap();
    assert!((at_48["predicted"].as_f64().unwrap() - 2027.159).abs() < 0.01);
}

#[test]
fn what_cannot_be_predicted_is_answered_with_what_to_do() {
    let dir = published();
    let dir = dir.path();
    let (status, said) = refused(dir, &["predict", "estimate", "scm.csv", "--device", "SCM1"]);
    assert_eq!(status, Some(1));
    assert!(
        said.contains(
            "SCM1 has no read-16K-latency; measure it, give it (--at read-16K-latency=20us)"
        ),
        "{said}"
    );
    let (status, said) = refused(
        dir,
        &[
            "predict",
            "estimate",
            "scm.csv",
            "--at",
            "read-16K-latency=1us",
            "--at",
            "write-64K-latency=50us",
        ],
    );
    assert_eq!(status, Some(1));
    assert!(
        said.contains("3.6 times below the smallest measured"),
        "{said}"
    );
    let (status, said) = refused(
        dir,
        &[
            "predict",
            "estimate",
            "scm.csv",
            "--at",
            "write-64K-latency=50MB/s",
        ],
    );
    assert_eq!(status, Some(2));
    assert!(
        said.contains("'write-64K-latency' cannot be in MB/s"),
        "{said}"
    );
    let (status, said) = refused(dir, &["predict", "estimate", "scm.csv", "--device", "SCM3"]);
    assert_eq!(status, Some(2));
    assert!(
        said.contains("no device 'SCM3'; it has NAND Flash, 3D XPoint, DRAM, SCM1, SCM2"),
        "{said}"
    );
    let (status, said) = refused(
        dir,
        &["predict", "fit", "scm.csv", "--terms", "read-2K-latency"],
    );
    assert_eq!(status, Some(2));
    assert!(
        said.contains("no device has a figure 'read-2K-latency'"),
        "{said}"
    );
}

#[test]
fn outputs_of_tools_become_a_data_set() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(
        dir.join("run.txt"),
        "[OVERALL], Throughput(ops/sec), 990.5\n[READ], AverageLatency(us), 812.5\n",
    )
    .unwrap();
    let import = [
        "predict",
        "import",
        "run.txt",
        "--device",
        "nvme0",
        "--workload",
        "a",
        "--param",
        "data_gb=16",
        "--into",
        "d.parquet",
    ];
    assert_eq!(text(dir, &import), "d.parquet: 2 measurements\n");
    assert_eq!(text(dir, &import), "d.parquet: 2 measurements\n", "once");
    let shown = json(dir, &["predict", "show", "d.parquet", "--json"]);
    assert_eq!(shown["results"][1]["cell"], "a data_gb=16 read_latency");
    fs::write(dir.join("other.txt"), "hello\n").unwrap();
    let (status, said) = refused(
        dir,
        &[
            "predict",
            "import",
            "other.txt",
            "--device",
            "x",
            "--into",
            "d.csv",
        ],
    );
    assert_eq!(status, Some(1));
    assert!(
        said.contains("other.txt looks like no output of fio (JSON)"),
        "{said}"
    );
    assert!(!dir.join("d.csv").exists());
}

#[test]
fn what_this_machines_fio_prints_is_read() {
    if Command::new("fio").arg("--version").output().is_err() {
        without("fio");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let done = Command::new("fio")
        .current_dir(dir)
        .args([
            "--name=r",
            "--filename=f",
            "--size=1m",
            "--rw=randread",
            "--bs=16k",
        ])
        .args([
            "--ioengine=psync",
            "--output-format=json",
            "--output=fio.json",
        ])
        .status()
        .unwrap();
    assert!(done.success());
    text(
        dir,
        &[
            "predict", "import", "fio.json", "--device", "file", "--into", "d.csv",
        ],
    );
    let shown = json(dir, &["predict", "show", "d.csv", "--json"]);
    let figures = shown["figures"].as_object().unwrap();
    let names: Vec<&String> = figures.keys().collect();
    assert_eq!(
        names,
        ["read-16K-iops", "read-16K-latency", "read-16K-throughput"]
    );
}

#[test]
fn a_device_is_measured_with_fio_once_and_what_holds_data_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let quick = |target: &str, more: &[&str]| -> Vec<String> {
        let words = ["bench", "device", target, "--sizes", "4KiB", "--runs", "2"];
        let times = ["--seconds", "1", "--ramp", "0"];
        let all = words.iter().chain(&times).chain(more);
        all.map(|word| (*word).to_owned()).collect()
    };
    let quick = |target: &str, more: &[&str]| {
        let words = quick(target, more);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        run(dir, &words)
    };
    let made = ["--name", "d0", "--size", "16MiB", "--json"];
    let measured = quick(".", &made);
    assert!(measured.status.success(), "{}", stderr(&measured));
    let figures: serde_json::Value = serde_json::from_slice(&measured.stdout).unwrap();
    let names = figures.as_array().unwrap().iter();
    let names: Vec<&str> = names.map(|it| it["regressor"].as_str().unwrap()).collect();
    assert!(names.contains(&"read-4K-latency") && names.contains(&"write-4K-throughput"));
    assert!(figures.as_array().unwrap().iter().all(|it| it["runs"] == 2));
    let mut left: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["d0.raw", "data.csv"], "its own file is gone");

    // What is there is not measured again, and changes nothing.
    let raw = dir.join("d0.raw/write-4K-qd1-1s-run2.json");
    let before = std::fs::metadata(&raw).unwrap().modified().unwrap();
    let again = quick(".", &made);
    assert_eq!(again.stdout, measured.stdout);
    assert_eq!(std::fs::metadata(&raw).unwrap().modified().unwrap(), before);

    let precious = vec![7; 2 << 20];
    std::fs::write(dir.join("precious"), &precious).unwrap();
    let refused = quick("precious", &[]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        stderr(&refused).contains("holds data"),
        "{}",
        stderr(&refused)
    );
    let reads = quick("precious", &["--read-only"]);
    assert!(reads.status.success(), "{}", stderr(&reads));
    assert_eq!(std::fs::read(dir.join("precious")).unwrap(), precious);
    let file = std::fs::File::create(dir.join("blank")).unwrap();
    file.set_len(2 << 20).unwrap();
    let blank = quick("blank", &["--read-only"]);
    assert!(stderr(&blank).contains("is blank"), "{}", stderr(&blank));
}

/// Is the database here? If not: skip, or fail where tools are required.
fn has_database() -> bool {
    let places = ["mariadbd", "/usr/sbin/mariadbd", "/usr/libexec/mariadbd"];
    let answers = |place: &str| Command::new(place).arg("--version").output().is_ok();
    // Its installer calls the second.
    let here = places.iter().any(|place| answers(place)) && answers("my_print_defaults");
    if !here {
        without("MariaDB with my_print_defaults");
    }
    here
}

/// A folder that the database's user can get to.
fn open_folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).unwrap();
    std::fs::create_dir(dir.path().join("disk")).unwrap();
    dir
}

/// `bench app` in the folder's `disk`, small.
fn bench_app(more: &[&'static str]) -> Vec<&'static str> {
    let mut words = vec!["bench", "app", "disk", "--records", "2000", "--runs", "2"];
    words.extend(["--ramp", "0", "--clients", "2", "--log", "8MiB"]);
    words.extend(more);
    words
}

#[test]
fn a_database_is_measured_once_and_leaves_nothing_on_the_device() {
    if !has_database() {
        return;
    }
    let dir = open_folder();
    let dir = dir.path();
    let quick = ["--workloads", "a,c", "--seconds", "1", "--json"];
    let measured = run(dir, &bench_app(&quick));
    assert!(measured.status.success(), "{}", stderr(&measured));
    let figures: serde_json::Value = serde_json::from_slice(&measured.stdout).unwrap();
    let find = |workload: &str, metric: &str| {
        let all = figures.as_array().unwrap().iter();
        let mut found = all.filter(|it| it["workload"] == workload && it["metric"] == metric);
        found.next().cloned()
    };
    let latency = find("workload-a", "write_latency").unwrap();
    assert!(latency["median"].as_f64().unwrap() > 0.0 && latency["runs"] == 2);
    assert!(find("workload-c", "read_latency").is_some());
    assert!(
        find("workload-c", "write_latency").is_none(),
        "it only reads"
    );
    let left = std::fs::read_dir(dir.join("disk")).unwrap().count();
    assert_eq!(left, 0);
    let shown = text(dir, &["predict", "show", "data.csv"]);
    assert!(shown.contains("workload-a"), "{shown}");

    // What is there is not measured again: no database is started, the folder is not even looked at.
    std::fs::remove_dir(dir.join("disk")).unwrap();
    let again = run(dir, &bench_app(&quick));
    assert_eq!(again.stdout, measured.stdout, "{}", stderr(&again));
    assert_eq!(
        stderr(&again).lines().count(),
        1,
        "a warning of the buffer pool alone"
    );
}

#[test]
fn a_folder_with_data_is_refused_unless_forced() {
    let dir = open_folder();
    let dir = dir.path();
    std::fs::write(dir.join("disk/mine"), "dear").unwrap();
    let (status, said) = refused(dir, &bench_app(&["--seconds", "1"]));
    assert_eq!(status, Some(1));
    assert!(
        said.contains("disk holds data, such as mine") || said.contains("cannot find mariadbd"),
        "{said}"
    );
    let (status, said) = refused(dir, &bench_app(&["--rate", "0"]));
    assert_eq!(status, Some(2));
    assert!(
        said.contains("--rate: a number of operations a second, above zero"),
        "{said}"
    );
    assert_eq!(
        std::fs::read_to_string(dir.join("disk/mine")).unwrap(),
        "dear"
    );
}

#[test]
fn an_interrupted_measurement_clears_up_a_killed_one_is_cleared_by_the_next() {
    if !has_database() {
        return;
    }
    let dir = open_folder();
    let dir = dir.path();
    let long = bench_app(&["--workloads", "a", "--seconds", "600"]);
    let folder = dir.join("disk/tanada-bench-app");
    for (signal, status) in [("INT", Some(1)), ("KILL", None)] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_tanada-lab"))
            .current_dir(dir)
            .args(&long)
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let mut tries = 1_500;
        while !folder.join("data/tanada_bench/usertable.ibd").exists() {
            tries -= 1;
            assert!(tries > 0, "it loads nothing");
            std::thread::park_timeout(std::time::Duration::from_millis(20));
        }
        let id = program.id().to_string();
        let sent = Command::new("kill")
            .args(["-s", signal, &id])
            .status()
            .unwrap();
        assert!(sent.success());
        assert_eq!(program.wait().unwrap().code(), status);
        assert_eq!(folder.exists(), signal == "KILL", "{signal}");
    }
    let measured = run(dir, &bench_app(&["--workloads", "a", "--seconds", "1"]));
    let said = stderr(&measured);
    assert!(measured.status.success(), "{said}");
    assert!(
        said.contains("what a run that did not end left there was cleared away"),
        "{said}"
    );
    assert!(!folder.exists());
}

/// Three devices behind a path of 100 us, and an application that waits for two reads: `data.csv`; the path: `path.csv`.
fn behind_a_path() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut data = "device,regressor,workload,metric,value,unit\n".to_owned();
    let mut path = "device,regressor,value,unit\n".to_owned();
    for (device, read) in [("a", 110), ("b", 130), ("c", 200)] {
        data += &format!("{device},read-16K-latency,,,{read},us\n");
        data += &format!("{device},,w,read_latency,{},us\n", 50 + 2 * read);
        path += &format!("{device},read-16K-latency,100,us\n{device},read-16K-iops,9000,iops\n");
    }
    fs::write(dir.path().join("data.csv"), data).unwrap();
    fs::write(dir.path().join("path.csv"), path).unwrap();
    dir
}

const OF_READS: [&str; 5] = [
    "predict",
    "estimate",
    "data.csv",
    "--terms",
    "read-16K-latency",
];

#[test]
fn a_floor_is_measured_or_given_and_the_estimate_uses_it() {
    let dir = behind_a_path();
    let dir = dir.path();
    let estimate = |more: &[&str]| json(dir, &[&OF_READS[..], &["--json"], more].concat());
    let of = |answer: Value| {
        let one = &answer[0];
        let latency = one["latency"].as_f64().unwrap();
        (
            latency.round(),
            one["nearest"][0].as_str().unwrap().to_owned(),
        )
    };
    // Measured over the path, a device of 119 us lies nearer to a.
    let whole = of(estimate(&["--at", "read-16K-latency=119us"]));
    assert_eq!(whole, (288.0, "a".to_owned()));
    // By its sheet it takes 19 us, which is nearer to 30 than to 10; the path's 100 us come on top.
    let sheet = ["--at", "read-16K-latency=19us", "--floor"];
    let given = estimate(&[&sheet[..], &["read-16K-latency=100us"]].concat());
    assert_eq!(of(given), (288.0, "b".to_owned()));

    let (status, said) = refused(dir, &[&OF_READS[..], &sheet, &["measured"]].concat());
    assert_eq!(status, Some(1));
    assert!(
        said.contains("the data set has no floor; measure the path"),
        "{said}"
    );
    text(
        dir,
        &[
            "predict", "import", "path.csv", "--floor", "--into", "data.csv",
        ],
    );
    let shown = text(dir, &["predict", "show", "data.csv"]);
    assert!(
        shown.contains("floor-read-16K-latency") && !shown.contains("iops"),
        "{shown}"
    );
    assert_eq!(
        of(estimate(&[&sheet[..], &["measured"]].concat())),
        (288.0, "b".to_owned())
    );
    let page = text(dir, &[&OF_READS[..], &sheet, &["measured"]].concat());
    assert!(
        page.contains("of these the path has the same on all devices: read-16K-latency 100.0 us"),
        "{page}"
    );
    // Fits say it, too; without the option the floor changes nothing.
    let fit = ["predict", "fit", "data.csv", "--terms", "read-16K-latency"];
    let fitted = json(
        dir,
        &[&fit[..], &["--floor", "measured", "--json"]].concat(),
    );
    assert_eq!(fitted["path"]["read-16K-latency"], 100.0);
    assert_eq!(
        json(dir, &[&fit[..], &["--json"]].concat())["path"],
        serde_json::json!({})
    );
    assert_eq!(of(estimate(&["--at", "read-16K-latency=119us"])), whole);
}

#[test]
fn a_floor_that_is_none_is_refused_with_what_to_write() {
    let dir = behind_a_path();
    let dir = dir.path();
    for (floor, status, why) in [
        (
            "read-16K-latency",
            2,
            "write REGRESSOR=VALUE, such as read-16K-latency=70us, or measured",
        ),
        (
            "read-16K-latency=7MB/s",
            2,
            "a floor is a time, such as 70us",
        ),
        (
            "read-4K-latency=7us",
            1,
            "the data set has no such figure; it has read-16K-latency",
        ),
    ] {
        let asked = ["--at", "read-16K-latency=19us", "--floor", floor];
        let (code, said) = refused(dir, &[&OF_READS[..], &asked].concat());
        assert_eq!(code, Some(status), "{said}");
        assert!(said.contains(why), "{said}");
    }
    let asked = [
        "predict", "fit", "data.csv", "--mode", "paper", "--floor", "measured",
    ];
    let (code, said) = refused(dir, &asked);
    assert_eq!(code, Some(2));
    assert!(
        said.contains("the published method knows no floor"),
        "{said}"
    );
    let asked = [
        "predict",
        "import",
        "data.csv",
        "--floor",
        "--into",
        "other.csv",
    ];
    let (code, said) = refused(dir, &asked);
    assert_eq!(code, Some(1));
    assert!(said.contains("results of an application"), "{said}");
}
