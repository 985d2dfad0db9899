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
    for arguments in [&["serve", "bad.toml"][..], &["config", "check", "bad.toml"]] {
        let refused = run(dir, arguments);
        assert_eq!(refused.status.code(), Some(2));
        let said = stderr(&refused);
        for expected in [
            "bad.toml has 3 mistakes\n",
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
    let printed = text(dir, &["config", "example", "--data-dir", "here"]);
    assert!(printed.contains("file = \"here/hdd0.img\""), "{printed}");
    fs::write(dir.join("own.toml"), printed).unwrap();
    let said = text(dir, &["config", "check", "own.toml"]);
    let outlook = "  device ssd0 (here/ssd0.img, not made yet): blank: vol0 begins with an empty cache on it, mode both\n";
    let good = "own.toml is good: 2 devices, 1 hybrid, 1 export\n";
    assert_eq!(said, format!("{outlook}{good}"));
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
        assert_eq!(refused.status.code(), Some(6));
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
    assert_eq!(refused.status.code(), Some(2));
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
        let checked = run(dir, &["config", "check", "t.toml"]);
        let doctor = run(dir, &["doctor", "t.toml"]);
        let said = String::from_utf8(checked.stdout.clone()).unwrap() + &stderr(&checked);
        let diagnosis = String::from_utf8(doctor.stdout.clone()).unwrap();
        (checked.status.code(), said, doctor.status.code(), diagnosis)
    };
    let (checked, said, _, diagnosis) = look("slow.img", "fast.img");
    assert_eq!(checked, Some(0), "{said}");
    assert!(said.contains("the cache of vol0"), "{said}");
    assert!(diagnosis.contains("the cache of vol0"), "{diagnosis}");

    let (checked, said, doctor, diagnosis) = look("fast.img", "slow.img");
    assert_eq!((checked, doctor), (Some(2), Some(4)), "{said}\n{diagnosis}");
    assert!(
        said.contains("slow and fast look swapped; correct the configuration"),
        "{said}"
    );
    assert!(
        diagnosis.contains("begins with the label of a cache of vol0"),
        "{diagnosis}"
    );

    fs::write(dir.join("other.img"), vec![7; 64 << 20]).unwrap();
    let (checked, said, doctor, diagnosis) = look("slow.img", "other.img");
    assert_eq!((checked, doctor), (Some(2), Some(4)), "{said}\n{diagnosis}");
    assert!(
        said.contains("cannot use fast as a cache: it holds data that are not a cache of ours"),
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
        said.contains("fast is the cache of a slow device of 64.0 MiB, but slow has 32.0 MiB"),
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
    let refused = run(dir, &["trace", "show", "none.csv"]);
    let said = stderr(&refused);
    assert_eq!(said.matches("No such file").count(), 1, "{said}");
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
    assert_eq!(answer.status.code(), Some(4), "something is missing");
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
    let models = json(dir.path(), &["model", "list", "--json"]);
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
    let page = text(dir.path(), &["model", "list"]);
    assert!(
        page.contains("hdd-7200-sata (hdd)") && page.contains("[1]"),
        "{page}"
    );
}

#[test]
fn a_model_is_measured_in_virtual_time_and_a_file_in_real_time() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let report = json(dir, &["bench", "model", "scm", "--json"]);
    assert_eq!(report["modelled"], true);
    assert!(report["cases"][0]["iops"].as_f64().unwrap() > 0.0);
    let unknown = run(dir, &["bench", "model", "floppy"]);
    assert_eq!(unknown.status.code(), Some(2));
    fs::write(dir.join("full"), vec![7; 16 << 20]).unwrap();
    let lost = ["bench", "device", "full", "--quick", "--overwrite"];
    let refused = run(dir, &lost);
    assert_eq!(refused.status.code(), Some(5), "{}", stderr(&refused));
    assert_eq!(fs::read(dir.join("full")).unwrap(), vec![7; 16 << 20]);
    assert!(
        stderr(&unknown).contains("no model 'floppy'"),
        "{}",
        stderr(&unknown)
    );
}
