//! A running volume records what it is asked; `tanada trace show` reads the recording.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{Daemon, SMALL, ask, json, run, stderr, text};

fn recording(dir: &Path) -> Value {
    json(dir, &["volume", "show", "vol0", "--json"])["trace"].clone()
}

#[test]
fn a_volume_records_its_requests_until_a_command_stops_it() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, SMALL);
    assert_eq!(recording(dir), Value::Null);
    let said = text(
        dir,
        &["volume", "set", "vol0", "trace=vol0.csv", "trace_max=2MiB"],
    );
    assert!(
        said.contains("vol0.csv") && said.contains("2.0 MiB"),
        "{said}"
    );
    let asked = ask(
        dir,
        &[
            "write -P 1 1M 64k",
            "write -P 2 3M 4k",
            "read -P 1 1M 64k",
            "flush",
        ],
    );
    text(dir, &["volume", "set", "vol0", "trace=off"]);
    assert_eq!(recording(dir), Value::Null);
    // No longer recorded.
    ask(dir, &["write -P 3 5M 4k"]);
    if asked {
        let found = json(
            dir,
            &["trace", "show", "tanada-data/traces/vol0.csv", "--json"],
        );
        assert_eq!(found["format"], "csv");
        assert_eq!(found["ops"]["write"]["bytes"], (64 + 4) << 10);
        assert_eq!(found["ops"]["write"]["requests"], 2);
        // QEMU looks at the first sectors by itself.
        assert!(found["ops"]["read"]["bytes"].as_u64() >= Some(64 << 10));
        assert!(found["ops"]["flush"]["requests"].as_u64() >= Some(1));
    }

    // The same file again, where a new recording cannot begin: the old one goes on.
    text(dir, &["volume", "set", "vol0", "trace=again.csv"]);
    let traces = dir.join("tanada-data/traces");
    fs::write(traces.join("again.csv.3"), "Dear Tanada").unwrap();
    let refused = run(dir, &["volume", "set", "vol0", "trace=again.csv"]);
    assert_eq!(refused.status.code(), Some(5));
    assert!(
        stderr(&refused).contains("nothing was changed"),
        "{}",
        stderr(&refused)
    );
    let going_on = recording(dir);
    assert!(
        going_on["file"]
            .as_str()
            .is_some_and(|file| file.ends_with("again.csv")),
        "{going_on}"
    );

    // A stop of the daemon ends a recording well; the next one keeps it as FILE.1.
    text(dir, &["volume", "set", "vol0", "trace=vol0.csv"]);
    ask(dir, &["write -P 4 7M 8k"]);
    assert_eq!(daemon.stop().0, Some(0));
    if asked {
        assert!(traces.join("vol0.csv.1").exists());
        let found = json(
            dir,
            &["trace", "show", "tanada-data/traces/vol0.csv", "--json"],
        );
        assert_eq!(found["ops"]["write"]["bytes"], 8 << 10);
    }
}

#[test]
fn a_recording_that_cannot_be_is_refused_and_the_volume_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let traces = dir.join("tanada-data/traces");
    fs::create_dir_all(&traces).unwrap();
    fs::write(traces.join("letter.txt"), "Dear Tanada").unwrap();
    let elsewhere = format!("trace={}/elsewhere.csv", dir.display());
    // The configuration asks for a trace where none can be: the volume serves, and says why.
    let config = SMALL.replace(
        "fast = \"fast\"\n",
        "fast = \"fast\"\ntrace = \"no/such/trace.csv\"\n",
    );
    let daemon = Daemon::start(dir, &config);
    let failed = recording(dir)["failed"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(failed.contains("no/such/trace.csv"), "{failed}");
    assert!(text(dir, &["volume", "show", "vol0"]).contains("stopped"));
    for (change, reason) in [
        // A command names a file of the daemon's, not a path of the machine.
        (elsewhere.as_str(), "tanada-data/traces"),
        ("trace=../admin.token", "is not a name"),
        ("trace=..", "is not a name"),
        ("trace=no/such/trace.csv", "is not a name"),
        ("trace=letter.txt", "was not recorded by tanada"),
        ("trace_max=4KiB", "too small"),
    ] {
        let refused = run(dir, &["volume", "set", "vol0", change]);
        assert_eq!(refused.status.code(), Some(5), "{change}");
        assert!(
            stderr(&refused).contains(reason),
            "{change}: {}",
            stderr(&refused)
        );
    }
    assert_eq!(
        fs::read_to_string(traces.join("letter.txt")).unwrap(),
        "Dear Tanada"
    );
    assert!(!dir.join("elsewhere.csv").exists());
    ask(dir, &["write -P 5 1M 4k", "read -P 5 1M 4k"]);
    assert_eq!(daemon.stop().0, Some(0));
}
