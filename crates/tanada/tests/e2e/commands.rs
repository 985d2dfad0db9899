//! Commands that need no daemon, and what they say when something is wrong.

use std::fs;

use crate::common::{json, run, stderr, text};

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
            "line 7: [[export]] \"b\" device: there is no [[device]] or [[hybrid]] called \"b\"",
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
        assert!(["ok", "warn", "missing"].contains(&state), "{finding}");
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

#[test]
fn the_doctor_looks_at_configured_devices() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(
        dir.join("t.toml"),
        "[[device]]\nname = \"a\"\npath = \"nowhere/a.img\"\n",
    )
    .unwrap();
    let findings = json(dir, &["doctor", "t.toml", "--json"]);
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
