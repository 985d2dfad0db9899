//! Two nodes with etcd: what the verdict says of their faults, and how soon a volume goes from one to the other.

use std::path::Path;

use base::{Nanos, Sector, View};
use device::{Device, WriteFlags};
use env::net::Address;
use env::{RealConfig, Runtime};
use front::nbd::{Client, ClientOptions};

use crate::clients::have;
use crate::cluster::{Etcd, free_port, has_all_stores, start_node};
use crate::daemon::Daemon;

/// Between two looks.
const LOOK: Nanos = Nanos::millis(200);
/// A lease goes on for so many looks after its node's death: 10 s.
const LEASE: usize = 50;
/// And a code is named so many looks later: 10 s.
const NAMED: usize = 50;

async fn connect(root: &Path, node: &str, volume: &str) -> Result<Client, String> {
    let options = ClientOptions {
        export: volume.to_owned(),
        timeout: Nanos::secs(2),
        ..ClientOptions::default()
    };
    let address = Address::Unix(root.join(node).join("disks.sock"));
    let client = Client::connect(&address, &options).await;
    client.map_err(|error| error.to_string())
}

/// Connects within so many looks.
async fn soon(root: &Path, node: &str, volume: &str, looks: usize) -> Client {
    let mut last = String::new();
    for _ in 0..looks {
        match connect(root, node, volume).await {
            Ok(client) => return client,
            Err(error) => last = error,
        }
        env::sleep(LOOK).await;
    }
    panic!("no way to {volume} at {node}: {last}");
}

async fn write(client: &Client, fill: u8) -> bool {
    let data = View::copy_of(&[fill; 4096]);
    let written = client.write(Sector(0), data, WriteFlags::default());
    written.await.is_ok() && client.flush().await.is_ok()
}

/// Waits until the verdict names all of these; its exit status.
async fn named(daemon: &Daemon, codes: &[&str], looks: usize) -> Option<i32> {
    let mut page = String::new();
    for _ in 0..looks {
        let (status, said) = daemon.answer(&["status"]);
        page = said;
        if codes.iter().all(|code| page.contains(code)) {
            return status;
        }
        env::sleep(LOOK).await;
    }
    panic!("not all of {codes:?} are named: {page}");
}

/// Waits until this node can be stopped.
async fn may_stop(daemon: &Daemon, node: &str) {
    let mut page = String::new();
    for _ in 0..NAMED {
        let (status, said) = daemon.answer(&["node", "check-stop", node]);
        if status == Some(0) {
            return;
        }
        page = said;
        env::sleep(LOOK).await;
    }
    panic!("{page}");
}

fn create(daemon: &Daemon, name: &str, copies: [&str; 2]) {
    let [copies, least] = copies;
    let words = [
        "volume", "create", name, "--size", "32MiB", "--copies", copies,
    ];
    daemon.command(&[&words[..], &["--min-copies", least]].concat());
}

/// Two nodes with a store each, their etcd and its port; nothing without etcd.
fn with_two(scene: impl AsyncFnOnce(&Path, (Etcd, u16), [Daemon; 2]) + 'static) {
    if !have("etcd") {
        return;
    }
    let root = tempfile::tempdir().expect("a directory");
    let port = free_port();
    let etcd = Etcd::start(root.path(), port);
    let nodes = ["n1", "n2"].map(|name| start_node(root.path(), name, port));
    let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
    runtime.block_on(async move {
        has_all_stores(&nodes[0], 2).await;
        scene(root.path(), (etcd, port), nodes).await;
    });
}

#[test]
fn the_death_of_a_node_and_of_the_meta_store_are_named_with_what_comes_of_them() {
    with_two(async |root, (etcd, port), [n1, n2]| {
        create(&n1, "least1", ["2", "1"]);
        create(&n1, "least2", ["2", "2"]);
        let (status, page) = n1.answer(&["node", "check-stop", "n2"]);
        assert_eq!(status, Some(5), "{page}");
        assert!(
            page.contains("least2") && !page.contains("least1"),
            "{page}"
        );
        let [one, two] = ["least1", "least2"];
        let (one, two) = (
            soon(root, "n1", one, 5).await,
            soon(root, "n1", two, 5).await,
        );
        assert!(write(&one, 1).await && write(&two, 1).await);
        n2.kill();
        assert!(write(&one, 2).await, "one copy is enough");
        let codes = [
            "NODE_DOWN  n2",
            "VOLUME_DEGRADED  least1",
            "VOLUME_READ_ONLY  least2",
        ];
        assert_eq!(named(&n1, &codes, LEASE + NAMED).await, Some(4));
        let n2 = start_node(root, "n2", port);
        for _ in 0..LEASE + NAMED {
            if n1.answer(&["status"]).0 == Some(0) {
                break;
            }
            env::sleep(LOOK).await;
        }
        let (status, page) = n1.answer(&["status"]);
        assert_eq!(status, Some(0), "{page}");
        assert!(write(&two, 3).await);
        n1.command(&["volume", "set", "least2", "min_copies=1"]);
        // What the record says of copies comes a little later.
        may_stop(&n1, "n2").await;
        drop(etcd);
        assert_eq!(named(&n1, &["META_SILENT"], LEASE + NAMED).await, Some(4));
        drop((one, two, n2));
    });
}

#[test]
fn a_volume_goes_to_another_node_at_a_clean_stop_and_when_its_client_dies() {
    with_two(async |root, (_etcd, _), [n1, n2]| {
        create(&n1, "vm1", ["2", "1"]);
        let client = soon(root, "n1", "vm1", 5).await;
        assert!(write(&client, 1).await);
        // It goes without a farewell.
        drop(client);
        let client = soon(root, "n2", "vm1", 25).await;
        assert!(write(&client, 2).await);
        // The other way, by a clean stop: no lease is awaited.
        n2.stop();
        drop(client);
        let client = soon(root, "n1", "vm1", 10).await;
        assert!(write(&client, 3).await);
        client.close().await;
        n1.stop();
    });
}
