//! Commands that `tanada-lab` carries out: who starts it, with what, and what is said where it is missing.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use testkit::program::install;

use crate::common::{json, run, stderr, text};

/// A copy of the program in `dir`, by itself.
fn copied(dir: &Path) -> Command {
    let program = dir.join("tanada");
    if !program.exists() {
        install(env!("CARGO_BIN_EXE_tanada"), &program);
    }
    let mut command = Command::new(program);
    command.current_dir(dir);
    command
}

#[test]
fn arguments_reach_the_laboratory_as_typed_and_its_status_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let script = dir.join("words.sh");
    fs::write(
        &script,
        "#!/bin/sh\nfor word; do echo \"<$word>\"; done\nexit 7\n",
    )
    .unwrap();
    install(&script, &dir.join("tanada-lab"));
    for command in ["sim", "experiment", "predict", "trace", "bench", "advise"] {
        let words = [
            command,
            "--",
            "a b.csv",
            "--html",
            "it's.html",
            "--help",
            "--",
            "-x",
        ];
        let output = copied(dir).args(words).output().unwrap();
        let expected: String = words.iter().map(|word| format!("<{word}>\n")).collect();
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
        assert_eq!(output.status.code(), Some(7));
    }
}

#[test]
fn without_the_laboratory_the_message_names_the_command_that_builds_it() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let output = copied(dir)
        .args(["sim", "cache", "t.csv"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(
        said.contains("cargo build") && said.contains("-p lab`"),
        "{said}"
    );
    assert!(said.contains("tanada-lab"), "{said}");
}

#[test]
fn the_laboratory_that_was_built_beside_the_program_answers() {
    let dir = tempfile::tempdir().unwrap();
    let list = json(dir.path(), &["experiment", "list", "--json"]);
    assert!(
        list.as_array()
            .unwrap()
            .iter()
            .any(|one| one["name"] == "tiering"),
        "{list}"
    );
}

#[test]
fn help_on_a_command_of_the_laboratory_is_the_laboratorys() {
    let dir = tempfile::tempdir().unwrap();
    let help = text(dir.path(), &["help", "trace", "show"]);
    assert_eq!(help, text(dir.path(), &["trace", "show", "--help"]));
    assert!(help.contains("Usage: tanada trace show"), "{help}");
    assert!(text(dir.path(), &["help", "sim"]).contains("sweep"));
}

#[test]
fn every_option_of_advice_is_known_where_volumes_are_recognized() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let help = text(dir, &["advise", "--help"]);
    let options = help
        .split_whitespace()
        .filter_map(|word| word.strip_prefix("--"));
    let options: BTreeSet<&str> = options
        .map(|word| word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()))
        .filter(|word| !["help", "version", ""].contains(word))
        .collect();
    assert!(options.len() > 15, "{options:?}");
    for option in options {
        let option = format!("--{option}");
        let with_value = run(
            dir,
            &["advise", "vol0", &option, "1", "--admin", "unix:none.sock"],
        );
        let alone = run(
            dir,
            &["advise", "vol0", &option, "--admin", "unix:none.sock"],
        );
        let asked = [with_value, alone].iter().any(|answer| {
            let said = stderr(answer);
            said.contains("none.sock")
                || said.contains("--html is for traces")
                || option == "--admin"
        });
        assert!(asked, "{option} is not in the table of cli/advise.rs");
    }
}

#[test]
fn the_simulator_and_a_daemon_are_asked_the_same_and_both_answer() {
    let dir = tempfile::tempdir().unwrap();
    let short = ["experiment", "run", "truth", "--quick", "--json"];
    let rows = json(dir.path(), &[&short[..], &["--cases", "streams"]].concat());
    let rows = rows.as_array().unwrap();
    let of = |table: &str, metric: &str| {
        let mut here = rows.iter().filter(|row| row["table"] == table);
        let row = here.find(|row| row["metric"] == metric);
        row.unwrap_or_else(|| panic!("no {metric} in {table}"))
    };
    for row in rows {
        let devices = match row["table"].as_str().unwrap() {
            "virtual time" => "modelled",
            _ => "emulated",
        };
        assert_eq!(row["devices"], devices, "{row}");
        assert_eq!(row["evidence"], "measured", "{row}");
        // A part of the experiment is not judged.
        assert!(row["verdict"].is_null(), "{row}");
    }
    let asked = of("virtual time", "requests")["ours"].as_f64().unwrap();
    assert!(asked > 100.0, "{asked}");
    assert_eq!(of("real time", "requests")["ours"], asked);
    for metric in ["mean_ms", "p99_ms", "hdd0_read_mb"] {
        for table in ["virtual time", "real time"] {
            assert!(of(table, metric)["ours"].as_f64().unwrap() > 0.0);
        }
        assert!(of("difference", metric)["ours"].is_number());
    }
    assert!(of("floor", "p50_ms")["ours"].as_f64().unwrap() > 0.0);
}
