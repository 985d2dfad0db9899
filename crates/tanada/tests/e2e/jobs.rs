//! Long work: followed, left by Ctrl-C, listed, joined or refused, cancelled.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::common::{Daemon, SMALL, TWO_STORES, json, run, signal, stderr, tanada, text};

/// One store whose scrub takes some ten seconds for 32 MiB.
const SLOW: &str = r#"
[[device]]
name = "d0"
path = "d0.img"
size = "128MiB"
[[store]]
name = "s0"
device = "d0"
listen = "unix:s0.sock"
create = true
ceiling = "3MB/s"
floor = "1MB/s"
unauthenticated = true
[admin]
listen = "unix:admin.sock"
"#;

fn jobs(dir: &Path) -> Vec<Value> {
    let all = json(dir, &["job", "list", "--json"]);
    all.as_array().expect("a list").clone()
}

/// What `found` finds of the jobs, within some seconds.
fn wait_for(dir: &Path, found: impl Fn(&Value) -> bool) -> Value {
    // Each look takes some milliseconds.
    for _ in 0..3000 {
        if let Some(job) = jobs(dir).iter().find(|job| found(job)) {
            return job.clone();
        }
    }
    panic!("{:#?}", jobs(dir));
}

#[test]
fn a_scrub_is_left_by_ctrl_c_goes_on_as_a_job_and_is_cancelled() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, SLOW);
    fs::write(dir.join("f"), vec![7; 32 << 20]).unwrap();
    text(dir, &["object", "put", "f", "a", "--store", "unix:s0.sock"]);

    let mut followed = tanada(dir);
    followed.args(["store", "scrub", "s0"]);
    let followed = followed.stdout(Stdio::piped()).stderr(Stdio::piped());
    let followed = followed.spawn().expect("the program starts");
    let begun = wait_for(dir, |job| job["done"].as_u64() > Some(0));
    assert_eq!(
        (&begun["kind"], &begun["name"]),
        (&"scrub".into(), &"s0".into())
    );
    assert_eq!(
        (&begun["state"], &begun["unit"]),
        (&"running".into(), &"bytes".into())
    );
    assert!(
        begun["by"]
            .as_str()
            .is_some_and(|by| by.starts_with("user ")),
        "{begun}"
    );
    signal(&followed, "INT");
    let left = followed.wait_with_output().expect("it is our child");
    assert_eq!(left.status.code(), Some(130), "{}", stderr(&left));
    let id = begun["id"].to_string();
    assert!(stderr(&left).contains(&format!("it goes on: tanada job show {id}")));

    let later = wait_for(dir, |job| job["done"].as_u64() > begun["done"].as_u64());
    assert_eq!(later["id"], begun["id"], "the same one goes on");
    let page = text(dir, &["job", "show", &id]);
    assert!(page.starts_with("what     scrub of store s0\n"), "{page}");
    let again = run(dir, &["store", "scrub", "s0"]);
    assert_eq!(again.status.code(), Some(5));
    assert!(
        stderr(&again).contains(&format!("tanada job show {id}")),
        "{}",
        stderr(&again)
    );

    let cancelled = text(dir, &["job", "cancel", &id]);
    assert_eq!(cancelled, format!("job {id} is cancelled\n"));
    let store = json(dir, &["store", "show", "s0", "--json"]);
    assert_eq!(store["scrub"]["running"], false, "{store}");
    let twice = run(dir, &["job", "cancel", &id]);
    assert_eq!(twice.status.code(), Some(5), "{}", stderr(&twice));
    let nothing = run(dir, &["job", "show", "99"]);
    assert_eq!(nothing.status.code(), Some(5), "{}", stderr(&nothing));

    // The next round goes on where that one was cut off; who follows it sees it cancelled.
    text(dir, &["store", "scrub", "s0", "--no-wait"]);
    let next = wait_for(dir, |job| job["state"] == "running")["id"].to_string();
    assert_ne!(next, id);
    let mut follower = tanada(dir);
    follower.args(["job", "show", &next, "--wait"]);
    let follower = follower.stdout(Stdio::piped()).stderr(Stdio::piped());
    let follower = follower.spawn().expect("the program starts");
    // It follows by then.
    for _ in 0..50 {
        jobs(dir);
    }
    text(dir, &["job", "cancel", &next]);
    let ended_follower = follower.wait_with_output().expect("it is our child");
    assert_eq!(ended_follower.status.code(), Some(1));
    assert!(
        stderr(&ended_follower).contains("the scrub of s0 was cancelled"),
        "{}",
        stderr(&ended_follower)
    );
    daemon.stop();
}

#[test]
fn a_detach_is_a_job_with_the_volume_as_its_result_and_what_is_refused_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, SMALL);
    let unknown = run(dir, &["volume", "detach", "nothing", "--no-wait"]);
    assert_eq!(unknown.status.code(), Some(5), "{}", stderr(&unknown));
    assert_eq!(jobs(dir), [] as [Value; 0]);
    let begun = json(dir, &["volume", "detach", "vol0", "--no-wait", "--json"]);
    let id = begun["id"].to_string();
    let done = json(dir, &["job", "show", &id, "--wait", "--json"]);
    assert_eq!(
        (&done["kind"], &done["state"]),
        (&"detach".into(), &"done".into())
    );
    assert_eq!(done["result"]["name"], "vol0");
    assert!(done["result"]["fast"].is_null(), "{done}");
    let again = run(dir, &["volume", "detach", "vol0"]);
    assert_eq!(again.status.code(), Some(5));
    assert!(
        stderr(&again).contains("detached already"),
        "{}",
        stderr(&again)
    );
    assert_eq!(jobs(dir).len(), 1, "what was refused was no job");
    text(dir, &["volume", "attach", "vol0"]);
    let said = text(dir, &["volume", "detach", "vol0"]);
    assert!(said.contains("vol0 stands on slow alone"), "{said}");
    let ended = run(dir, &["job", "cancel", &id]);
    assert!(
        stderr(&ended).contains(&format!("job {id} has ended")),
        "{}",
        stderr(&ended)
    );
    daemon.stop();
}

#[test]
fn a_repair_and_a_drain_of_the_cluster_are_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(
        dir,
        &format!("{TWO_STORES}\n[admin]\nlisten = \"unix:admin.sock\"\n"),
    );
    text(
        dir,
        &[
            "volume", "create", "vm1", "--size", "32MiB", "--copies", "1",
        ],
    );
    let repaired = json(dir, &["volume", "repair", "vm1", "--json"]);
    assert_eq!(repaired["volume"]["health"], "healthy", "{repaired}");
    let absent = run(dir, &["volume", "repair", "nothing"]);
    assert_eq!(absent.status.code(), Some(5), "{}", stderr(&absent));
    let drained = text(dir, &["node", "drain", "s1", "--wait"]);
    assert!(drained.contains("nothing is left on s1"), "{drained}");
    let all = jobs(dir);
    // What began by itself has no such name.
    let asked = all.iter().filter(|job| job["by"].is_string());
    let kinds = asked.map(|job| (job["kind"].as_str(), job["state"].as_str()));
    let done = Some("done");
    assert_eq!(
        kinds.collect::<Vec<_>>(),
        [(Some("drain"), done), (Some("repair"), done)]
    );
    daemon.stop();
}
