//! The whole experiment, small; and that a disk leaves nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};

use device::model::Spec;
use report::Value;

use super::disk::Disk;
use super::*;
use crate::experiment::Part;

/// One at a time: what one leaves for a moment, another would find. `None`: disks cannot be made here.
fn possible() -> Option<MutexGuard<'static, ()>> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(why) = hindrance() else {
        return Some(alone);
    };
    // A machine without root, FUSE or loop devices cannot; one without the programs could.
    let required = std::env::var_os("TANADA_REQUIRE_TOOLS").is_some_and(|value| value == "1");
    let cannot = why.starts_with("mounting needs root") || why.starts_with("there is no /dev");
    assert!(cannot || !required, "{why}");
    println!("skipped: {why}");
    None
}

fn loops() -> Vec<String> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let ours = |line: &&str| line.contains(&format!("tanada-loop-{}", std::process::id()));
    mounts.lines().filter(ours).map(str::to_owned).collect()
}

#[test]
fn a_disk_is_mounted_and_leaves_nothing() {
    let Some(_alone) = possible() else { return };
    let spec = Spec::find("dram").unwrap();
    let stop = Stop::default();
    let mut disk = Disk::attach(&spec, Bytes::mib(64), 1, &stop).unwrap();
    let device = disk.device().to_owned();
    let mounted = disk.mount().unwrap();
    std::fs::write(mounted.join("file"), vec![7; 1 << 20]).unwrap();
    disk.served().set_timed(true);
    let before = disk.served().took();
    std::fs::File::open(mounted.join("file"))
        .unwrap()
        .sync_all()
        .unwrap();
    assert!(
        disk.served().took() != before,
        "what is synced reaches the device"
    );
    let folder = mounted.parent().unwrap().to_owned();
    disk.close().unwrap();
    assert!(!folder.exists());
    let name = device.file_name().unwrap().to_str().unwrap();
    let backing = format!("/sys/block/{name}/loop/backing_file");
    let backing = std::fs::read_to_string(backing).unwrap_or_default();
    assert!(!backing.contains(folder.to_str().unwrap()), "{backing}");
    assert_eq!(loops(), Vec::<String>::new());
}

#[test]
fn what_a_dead_run_left_is_named_with_the_command_that_clears_it_away() {
    let Some(_alone) = possible() else { return };
    let folder = tempfile::Builder::new()
        .prefix("tanada-loop-")
        .tempdir()
        .unwrap();
    // No process has this number: the largest there can be is 2^22.
    std::fs::write(folder.path().join("owner"), "4194305").unwrap();
    let point = folder.path().join("mnt");
    std::fs::create_dir(&point).unwrap();
    let call = |words: &[&str]| {
        let done = std::process::Command::new(words[0])
            .args(&words[1..])
            .status();
        assert!(done.unwrap().success(), "{words:?}");
    };
    let shown = point.to_str().unwrap();
    call(&["mount", "-t", "tmpfs", "none", shown]);
    let (named, refused) = (disk::leftovers(), hindrance());
    call(&["umount", shown]);
    assert_eq!(named, [format!("umount {shown}")]);
    assert_eq!(
        refused.unwrap(),
        format!("a run that did not end left disks behind; clear them away first: umount {shown}")
    );
    assert_eq!(disk::leftovers(), Vec::<String>::new());
}

#[test]
fn an_interruption_takes_the_disk_away() {
    let Some(_alone) = possible() else { return };
    let stop = Stop::default();
    stop.set();
    let options = Options {
        quick: true,
        stop: Some(&stop),
        ..Options::default()
    };
    let error = run(options, &mut |_, _| {}).unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("interrupted"), "{error}: {cause}");
    assert_eq!(disk::leftovers(), Vec::<String>::new());
}

/// What the model says, where it says one thing.
fn of_model(rows: &[Row], case: Case, way: &str) -> Option<f64> {
    let name = format!("{} {way} 64K", case.name);
    let of = |row: &&Row| row.table == "served" && row.case == name && row.method == "model";
    rows.iter().find(of)?.ours.as_ref()?.number()
}

#[test]
fn a_device_that_is_not_there_is_refused_with_those_that_are() {
    let cases = ["tape".to_owned()];
    let options = Options {
        part: Part {
            cases: &cases,
            methods: &[],
        },
        ..Options::default()
    };
    let refusal = run(options, &mut |_, _| {}).unwrap_err().to_string();
    assert_eq!(
        refusal,
        "there is no case 'tape' in this experiment; choose of NAND, 3D XPoint, DRAM, SCM1, SCM2, write cache, read cache, depth, \
         large writes"
    );
}

#[test]
fn three_devices_are_measured_and_six_predicted() {
    let Some(_alone) = possible() else { return };
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let cases = |names: &[&str]| -> Vec<String> { names.iter().map(|&it| it.to_owned()).collect() };
    let options = |cases| Options {
        quick: true,
        // So slow that they differ clearly on a busy machine.
        slower: 8.0,
        part: Part {
            cases,
            methods: &[],
        },
        resume: Some(&journal),
        ..Options::default()
    };
    // First a part of it: no prediction without the devices that are fitted.
    let part = cases(&["SCM1", "depth"]);
    let first = run(options(&part), &mut |_, _| {}).unwrap();
    assert!(
        first
            .iter()
            .all(|row| matches!(&*row.table, "served" | "results"))
    );
    // Then all of it: what was measured is not measured again.
    let mut done = Vec::new();
    let rows = run(options(&[]), &mut |what, _| done.push(what.to_owned())).unwrap();
    assert!(done.iter().any(|what| what.starts_with("NAND: ")));
    assert!(!done.iter().any(|what| what.starts_with("SCM1: ")));
    for row in &first {
        assert!(rows.contains(row), "{row:?}");
    }
    let find = |table: &str, case: &str, method: &str, metric: &str| {
        let mut found = rows.iter().filter(|row| {
            (&*row.table, &*row.case, &*row.method, &*row.metric) == (table, case, method, metric)
        });
        let row = found
            .next()
            .unwrap_or_else(|| panic!("no row {table}, {case}, {method}, {metric}"));
        assert!(
            found.next().is_none(),
            "{table}, {case}, {method}, {metric} twice"
        );
        row.ours.as_ref().and_then(Value::number).unwrap()
    };
    // What is served takes no less than the model says, and fio sees no less than what it takes.
    for case in CASES {
        for way in ["read", "write"] {
            let of = |method| {
                find(
                    "served",
                    &format!("{} {way} 64K", case.name),
                    method,
                    "latency",
                )
            };
            let (server, fio) = (of("server"), of("fio"));
            let Some(model) = of_model(&rows, case, way) else {
                assert!(case.name.ends_with("cache"), "{case:?}");
                continue;
            };
            assert!(
                server >= model && fio > server,
                "{case:?} {way}: {model}, {server}, {fio}"
            );
        }
    }
    assert_eq!(find("served", "SCM1 write 64K", "model", "latency"), 400.0);
    assert_eq!(find("served", "SCM2 write 64K", "model", "latency"), 200.0);
    for device in [
        "SCM1",
        "SCM2",
        "write cache",
        "read cache",
        "depth",
        "large writes",
    ] {
        for (workload, metric) in [
            ("workload-a", "read_latency"),
            ("workload-a", "write_latency"),
            ("workload-b", "read_latency"),
            ("workload-c", "read_latency"),
            ("write-only", "write_latency"),
            ("rocksdb-readrandom", "read_latency"),
            ("rocksdb-overwrite", "write_latency"),
            ("rocksdb-readwhilewriting", "read_latency"),
        ] {
            let case = format!("{device} {workload}");
            let measured = find("predictions", &case, "measured", metric);
            let reported = find("results", workload, device, metric);
            assert_eq!(measured, reported, "the same figure in both tables");
            for method in predicted::METHODS {
                let said = find("predictions", &case, method, metric);
                let error = find("predictions", &case, method, &format!("{metric}_error"));
                assert!((error - 100.0 * (said / measured - 1.0)).abs() < 1e-6);
            }
        }
    }
    for method in predicted::METHODS {
        for case in ["on the line", "held out", "held out, RocksDB", "depth"] {
            let mean = find("errors", case, method, "mean_error");
            let worst = find("errors", case, method, "worst_error");
            assert!(mean.is_finite() && mean <= worst);
        }
    }
    assert_eq!(disk::leftovers(), Vec::<String>::new());
}
