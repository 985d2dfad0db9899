//! Gates: threads that serve NBD clients for the data thread that has the devices.

use std::path::Path;

use base::{Buf, Nanos, Sector, View};
use device::{Class, Device, WriteFlags};
use env::net::Address;
use env::{RealConfig, Runtime};
use front::nbd::{Client, ClientOptions};
use serde_json::Value;

use crate::common::{Daemon, SMALL, bearer, http, json, run, stderr, text};

/// [`SMALL`], whose hybrid is served by three gates; a read-only view of the plain device is at its address too.
fn behind_gates() -> String {
    let gated = "nbd = [\"unix:vol0.sock\", \"127.0.0.1:0\"]\ngates = 3";
    let config = SMALL.replace("nbd = [\"unix:vol0.sock\", \"127.0.0.1:0\"]", gated);
    let look = "[[export]]\ndevice = \"plain\"\nname = \"look\"\nnbd = \"unix:vol0.sock\"\nread_only = true\n[admin]";
    config.replace("[admin]", look)
}

/// Runs `what` with a copy of `dir`.
fn in_runtime(dir: &Path, what: impl AsyncFnOnce(&Path) + 'static) {
    let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
    let dir = dir.to_owned();
    runtime.block_on(async move { what(&dir).await });
}

async fn connect(dir: &Path, export: &str) -> Client {
    let options = ClientOptions {
        export: export.to_owned(),
        ..ClientOptions::default()
    };
    let address = Address::Unix(dir.join("vol0.sock"));
    let client = Client::connect(&address, &options).await;
    client.unwrap_or_else(|error| panic!("{export}: {error}"))
}

async fn write(client: &Client, at: u64, byte: u8) -> bool {
    let data = View::copy_of(&[byte; 8192]);
    let written = client.write(Sector(at), data, WriteFlags::default());
    written.await.is_ok()
}

async fn read(client: &Client, at: u64) -> u8 {
    let read = client.read(Sector(at), Buf::for_read(8192), Class::Foreground);
    let read = read.await.expect("read");
    assert!(read.iter().all(|byte| *byte == read[0]));
    read[0]
}

fn export<'a>(status: &'a Value, name: &str) -> &'a Value {
    let exports = status["exports"].as_array().expect("a list");
    exports.iter().find(|it| it["name"] == name).expect(name)
}

/// How many connections each gate of the socket has, from the numbers of its clients.
fn per_gate(status: &Value) -> [usize; 3] {
    let mut counts = [0; 3];
    for at in status["nbd"].as_array().expect("a list") {
        if at["address"].as_str().expect("text").contains("vol0.sock") {
            for client in at["clients"].as_array().expect("a list") {
                let id = client["id"].as_u64().expect("a number");
                counts[(id as usize - 1) % 3] += 1;
            }
        }
    }
    counts
}

#[test]
fn clients_of_gates_are_spread_and_see_one_disk() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, &behind_gates());
    in_runtime(dir, async |dir| {
        let mut clients = Vec::new();
        for _ in 0..6 {
            clients.push(connect(dir, "vol0").await);
        }
        let status = json(dir, &["status", "--json"]);
        assert_eq!(per_gate(&status), [2, 2, 2], "{status}");
        assert_eq!(export(&status, "vol0")["connections"], 6);
        let gates = status["gates"].as_array().expect("a list").iter();
        let gates = gates.filter(|it| it["dead"] == false && it["thread"]["seconds"].is_number());
        // Three at each of the two addresses.
        assert_eq!(gates.count(), 6, "{status}");

        // Each writes what all others read, before and after a flush by one of them.
        for (byte, client) in (1..).zip(&clients) {
            assert!(write(client, u64::from(byte) * 16, byte).await);
        }
        clients[5].flush().await.expect("flushed");
        for client in &clients {
            for byte in 1..=6 {
                assert_eq!(read(client, u64::from(byte) * 16).await, byte);
            }
        }
        let status = json(dir, &["status", "--json"]);
        let volume = &status["volumes"][0];
        assert_eq!(volume["cache"]["dirty_bytes"], 6 * 8192, "{volume}");

        // The second export of the address, and the one for who asks for no name.
        let look = connect(dir, "look").await;
        assert!(!write(&look, 0, 9).await, "it is read-only");
        assert_eq!(read(&connect(dir, "").await, 16).await, 1);
        let status = json(dir, &["status", "--json"]);
        assert_eq!(export(&status, "look")["connections"], 1);
        look.close().await;

        // One goes away: the next one comes to its gate.
        let gone = clients.remove(2);
        gone.close().await;
        while per_gate(&json(dir, &["status", "--json"])) != [2, 2, 1] {
            env::sleep(Nanos::millis(10)).await;
        }
        clients.push(connect(dir, "vol0").await);
        assert_eq!(per_gate(&json(dir, &["status", "--json"])), [2, 2, 2]);
    });
    let (status, log) = daemon.stop();
    assert_eq!(status, Some(0), "{log}");
    // What was answered is there after a stop.
    let again = Daemon::start(dir, &behind_gates());
    in_runtime(dir, async |dir| {
        let client = connect(dir, "vol0").await;
        for byte in 1..=6 {
            assert_eq!(read(&client, u64::from(byte) * 16).await, byte);
        }
    });
    assert_eq!(again.stop().0, Some(0));
}

#[test]
fn one_client_of_gates_is_sent_away_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, &behind_gates());
    in_runtime(dir, async |dir| {
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(connect(dir, "vol0").await);
        }
        // The fourth came to the first gate, as its second client.
        let list = text(dir, &["client", "list"]);
        let mut words = list.split_whitespace();
        let id = words.find(|word| word.contains("vol0.sock#4"));
        let said = text(dir, &["client", "delete", id.expect("it is listed")]);
        assert!(said.contains("vol0.sock#4"), "{said}");
        assert!(
            !write(&clients[3], 0, 1).await,
            "its connection is at an end"
        );
        for client in &clients[..3] {
            assert!(write(client, 0, 2).await);
        }
    });
    // Those that stay are served until the stop, which ends them.
    assert_eq!(daemon.stop().0, Some(0));
}

#[test]
fn gates_where_no_client_comes_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let config = SMALL.replace(
        "nbd = \"unix:plain.sock\"",
        "vhost-user = \"plain.vm\"\ngates = 2",
    );
    std::fs::write(dir.join("tanada.toml"), config).unwrap();
    let refused = run(dir, &["serve", "tanada.toml"]);
    assert_eq!(refused.status.code(), Some(2));
    let said = stderr(&refused);
    assert!(
        said.contains("gates serve NBD clients, and this export has no nbd"),
        "{said}"
    );
}

#[test]
fn the_figures_of_gates_are_those_of_threads() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, &behind_gates());
    let address = daemon.admin_tcp();
    let bearer = bearer(dir);
    let ask = |path: &str| {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{bearer}Connection: close\r\n\r\n");
        http(&address, &request)
    };
    let (code, figures) = ask("/metrics");
    assert_eq!(code, 200);
    let of_gate =
        |line: &&str| line.starts_with("tanada_thread_spun_seconds_total{thread=\"gate 2 of unix:");
    assert_eq!(figures.lines().filter(of_gate).count(), 1, "{figures}");
    assert_eq!(ask("/healthz"), (200, "ok\n".to_owned()));
    assert_eq!(daemon.stop().0, Some(0));
}
