//! Rates promised to exports of a hybrid, as operators book them.

use std::path::Path;

use base::{Buf, Sector};
use device::{Class, Device};
use env::net::Address;
use env::{RealConfig, Runtime};
use front::nbd::{Client, ClientOptions};
use serde_json::{Value, json};

use crate::common::{Daemon, SMALL, bearer, http, text};

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
