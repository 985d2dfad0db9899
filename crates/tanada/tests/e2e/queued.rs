//! Rates promised to exports of a hybrid, as operators book them.

use std::path::Path;

use base::{Buf, Nanos, Sector};
use device::{Class, Device};
use env::net::Address;
use env::{RealConfig, Runtime};
use front::nbd::{Client, ClientOptions};
use serde_json::{Value, json};

use crate::common::{Daemon, SMALL, bearer, http, run, stderr, text};

fn with_queue() -> String {
    let queue =
        "name = \"vol0\"\nqueue = true\nread_speed = \"100MB/s\"\nwrite_speed = \"100MB/s\"\nslow";
    let config = SMALL.replace("name = \"vol0\"\nslow", queue);
    assert_ne!(config, SMALL);
    config
}

/// Asks the admin API; the status and the answer.
fn ask(dir: &Path, daemon: &Daemon, what: &str, asked: Option<&Value>) -> (u16, Value) {
    let address = daemon.admin_tcp();
    let asked = asked.map(Value::to_string).unwrap_or_default();
    let request = format!(
        "{what} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{asked}",
        bearer(dir),
        asked.len()
    );
    let (status, answer) = http(&address, &request);
    let body = answer
        .split_once("\r\n\r\n")
        .map_or(&*answer, |(_, body)| body);
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

fn read_all(dir: &Path) {
    let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
    let address = Address::Unix(dir.join("vol0.sock"));
    runtime.block_on(async move {
        let options = ClientOptions {
            export: "vol0".to_owned(),
            ..ClientOptions::default()
        };
        let client = Client::connect(&address, &options)
            .await
            .expect("it is let in");
        for mib in 0..16 {
            let read = client.read(
                Sector(2048 * mib),
                Buf::for_read(1 << 20),
                Class::Foreground,
            );
            read.await.expect("it is read");
        }
    });
}

#[test]
fn a_rate_is_promised_to_an_export_and_stands_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    // What is a hole is never read from the device.
    std::fs::write(dir.join("slow.img"), vec![7; 64 << 20]).unwrap();
    let daemon = Daemon::start(dir, &with_queue());
    let rate = |direction: &str, rate: u64| json!({"direction": direction, "rate_bytes_per_second": rate, "for_seconds": 3600});
    let all = "/v1/exports/vol0/reservations";
    let asking = format!("POST {all}");
    let (status, made) = ask(dir, &daemon, &asking, Some(&rate("read", 20_000_000)));
    assert_eq!(status, 200, "{made}");
    assert_eq!(
        (&made["state"], &made["id"]),
        (&"committed".into(), &"vol0/1".into())
    );
    let (status, refused) = ask(dir, &daemon, &asking, Some(&rate("read", 90_000_000)));
    assert_eq!(status, 409, "{refused}");
    assert!(
        refused["what_to_do"].as_str().unwrap().contains("at most"),
        "{refused}"
    );
    let (status, refused) = ask(dir, &daemon, &asking, Some(&rate("write", 1_000_000)));
    assert_eq!(status, 422, "{refused}");
    assert!(
        refused["what_to_do"]
            .as_str()
            .unwrap()
            .contains("write=through"),
        "{refused}"
    );
    let elsewhere = "POST /v1/exports/plain/reservations";
    let (status, refused) = ask(dir, &daemon, elsewhere, Some(&rate("read", 1_000_000)));
    assert_eq!(status, 404, "{refused}");

    read_all(dir);
    let (_, volumes) = ask(dir, &daemon, "GET /v1/volumes", None);
    let queue = &volumes[0]["queue"];
    assert_eq!(
        (&queue["scheduler"], &queue["device"]),
        (&"tags".into(), &"slow".into())
    );
    assert!(queue["read_bytes"].as_u64().unwrap() >= 16 << 20, "{queue}");
    assert_eq!(queue["calendar"]["committed"], 1);
    let page = text(dir, &["volume", "show", "vol0"]);
    assert!(page.contains("20 MB/s of reads"), "{page}");
    let (status, log) = daemon.stop();
    assert_eq!(status, Some(0), "{log}");

    let daemon = Daemon::start(dir, &with_queue());
    let (_, found) = ask(dir, &daemon, &format!("GET {all}"), None);
    assert_eq!(found.as_array().unwrap().len(), 1, "{found}");
    assert_eq!(found[0]["rate_bytes_per_second"], 20_000_000);
    let (status, ended) = ask(dir, &daemon, &format!("DELETE {all}/1"), None);
    assert_eq!((status, &ended["id"]), (200, &"vol0/1".into()));
    let (status, _) = ask(dir, &daemon, &format!("DELETE {all}/1"), None);
    assert_eq!(status, 404);
    let (_, found) = ask(dir, &daemon, &format!("GET {all}"), None);
    assert_eq!(found, json!([]));
    daemon.stop();
}

/// The same as a node of a cluster, with a store.
fn in_a_cluster() -> String {
    let more = "[[device]]\nname = \"d1\"\npath = \"d1.img\"\nsize = \"64MiB\"\n\
                [[store]]\nname = \"s1\"\ndevice = \"d1\"\nlisten = \"unix:s1.sock\"\ncreate = true\n\
                [cluster]\nnode = \"n1\"\nnbd = \"unix:disks.sock\"\n[admin]";
    with_queue().replace("[admin]", more)
}

async fn pause() {
    env::sleep(Nanos::millis(250)).await;
}

/// Asks until the answer is as wanted: a node that has just started finds its stores and exports within seconds.
pub fn soon(
    dir: &Path,
    daemon: &Daemon,
    what: &str,
    asked: Option<&Value>,
    wanted: impl Fn(u16, &Value) -> bool,
) -> Value {
    let mut last = Value::Null;
    for _ in 0..120 {
        let (status, answer) = ask(dir, daemon, what, asked);
        if wanted(status, &answer) {
            return answer;
        }
        last = answer;
        let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
        runtime.block_on(pause());
    }
    panic!("{what}: {last}");
}

#[test]
fn an_export_is_reserved_for_under_a_record_of_the_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, &in_a_cluster());
    let asked = json!({"name": "cold", "target": {"export": "vol0"}, "read": "20MB/s", "for": "1h", "idle": "30m"});
    let post = "POST /v2/reservations";
    let made = soon(dir, &daemon, post, Some(&asked), |status, _| status == 201);
    assert_eq!(
        made["target"],
        json!({"export": "vol0", "node": "n1"}),
        "{made}"
    );
    assert_eq!(
        (&made["state"], &made["idle_seconds"]),
        (&"committed".into(), &1800.into())
    );
    let (status, again) = ask(dir, &daemon, post, Some(&asked));
    assert_eq!((status, &again["id"]), (200, &made["id"]), "{again}");
    for (target, status) in [("nothing", 422), ("vol0", 409)] {
        let other =
            json!({"name": "other", "target": {"export": target}, "read": "1MB/s", "for": "1h"});
        let (found, refused) = ask(dir, &daemon, post, Some(&other));
        assert_eq!(found, status, "{refused}");
    }
    // By the older route it is seen, and neither ended nor doubled.
    let all = "/v1/exports/vol0/reservations";
    let (_, found) = ask(dir, &daemon, &format!("GET {all}"), None);
    let part = found[0]["id"]
        .as_str()
        .unwrap()
        .rsplit('/')
        .next()
        .unwrap()
        .to_owned();
    let (status, refused) = ask(dir, &daemon, &format!("DELETE {all}/{part}"), None);
    assert_eq!(status, 409, "{refused}");
    let alone = json!({"direction": "read", "rate_bytes_per_second": 1_000_000, "for_seconds": 60});
    let (status, refused) = ask(dir, &daemon, &format!("POST {all}"), Some(&alone));
    assert_eq!(status, 409, "{refused}");
    let (status, log) = daemon.stop();
    assert_eq!(status, Some(0), "{log}");

    let daemon = Daemon::start(dir, &in_a_cluster());
    let one = "/v2/reservations/cold";
    soon(dir, &daemon, &format!("GET {one}"), None, |_, it| {
        it["state"] == "committed"
    });
    let more = json!({"read": "30MB/s"});
    let patch = format!("PATCH {one}");
    let changed = soon(dir, &daemon, &patch, Some(&more), |status, _| status == 200);
    assert_eq!(
        changed["parts"][0]["rate_bytes_per_second"], 30_000_000,
        "{changed}"
    );
    let (status, ended) = ask(dir, &daemon, &format!("DELETE {one}"), None);
    assert_eq!((status, &ended["state"]), (200, &"ended".into()), "{ended}");
    let (_, found) = ask(dir, &daemon, &format!("GET {all}"), None);
    assert_eq!(found, json!([]));
    daemon.stop();
}

#[test]
fn an_account_books_out_of_an_allotment() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, &in_a_cluster());
    let pool = json!({"name": "pool", "target": {"stores": ["s1"]}, "read": "40MB/s", "for": "1h", "allotment": true});
    let post = "POST /v2/reservations";
    let made = soon(dir, &daemon, post, Some(&pool), |status, _| status == 201);
    assert_eq!(
        (&made["allotment"], &made["capability"]),
        (&true.into(), &Value::Null)
    );
    let create = |name: &str, rate: &str| {
        let arguments = [
            "reservation",
            "create",
            name,
            "--store",
            "s1",
            "--scope",
            "job/",
            "--read",
            rate,
            "--for",
            "10m",
            "--from-allotment",
            "pool",
        ];
        run(dir, &arguments)
    };
    let first = create("job1", "30MB/s");
    assert!(first.status.success(), "{first:?}");
    let capability = String::from_utf8_lossy(&first.stdout).into_owned();
    assert!(capability.starts_with("tanadaset1."), "{capability}");
    let second = create("job2", "20MB/s");
    assert!(!second.status.success());
    let said = stderr(&second);
    assert!(said.contains("10 MB/s of its 40 MB/s are left"), "{said}");
    assert!(create("job2", "10MB/s").status.success());
    let page = text(dir, &["reservation", "show", "job2"]);
    let id = made["id"].as_str().unwrap();
    assert!(
        page.contains(&format!("inside the allotment {id}")),
        "{page}"
    );
    let page = text(dir, &["reservation", "show", "pool"]);
    assert!(page.contains("an allotment"), "{page}");
    text(dir, &["reservation", "delete", "pool"]);
    for job in ["job1", "job2"] {
        let found = text(dir, &["reservation", "list"]);
        assert!(!found.contains("committed"), "{job}: {found}");
    }
    daemon.stop();
}
