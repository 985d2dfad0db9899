//! Volumes with exports of their own: what clients of each may do, and which errors they get while their volume is not to be had.

use std::path::Path;

use base::{Buf, Nanos, Sector, View};
use device::{Class, Device, WriteFlags};
use env::net::Address;
use env::{RealConfig, Runtime};
use front::nbd::{Client, ClientOptions};
use serde_json::Value;

use crate::clients::have;
use crate::cluster::{Etcd, ONE, free_port, has_all_stores, json, node, start_node};
use crate::daemon::Daemon;

/// Two exports of one volume at one address, where the cluster exports nothing by itself.
const TWO_VIEWS: &str = "[[export]]\ndevice = \"volume:vm1\"\nnbd = \"unix:vms.sock\"\n\
     [[export]]\ndevice = \"volume:vm1\"\nname = \"look\"\nnbd = \"unix:vms.sock\"\nread_only = true\npriority = \"low\"\nfairness = 2.5\n[admin]";

fn with_exports(config: &str, exports: &str) -> String {
    let quiet = config.replace("nbd = \"unix:disks.sock\"\n", "");
    quiet.replace("[admin]", exports)
}

async fn connect(dir: &Path, export: &str) -> Result<Client, String> {
    let options = ClientOptions {
        export: export.to_owned(),
        timeout: Nanos::secs(90),
        ..ClientOptions::default()
    };
    let address = Address::Unix(dir.join("vms.sock"));
    let client = Client::connect(&address, &options).await;
    client.map_err(|error| error.to_string())
}

async fn refused(dir: &Path, export: &str) -> String {
    match connect(dir, export).await {
        Ok(_) => panic!("{export} was let in"),
        Err(why) => why,
    }
}

async fn write(client: &Client, byte: u8) -> bool {
    let data = View::copy_of(&[byte; 4096]);
    let written = client.write(Sector(8), data, WriteFlags::default());
    written.await.is_ok()
}

async fn read(client: &Client) -> u8 {
    let buf = Buf::for_read(4096);
    let read = client.read(Sector(8), buf, Class::Foreground).await;
    read.expect("read")[4095]
}

/// Bytes that sessions of this priority got at all stores.
fn sessions(daemon: &Daemon, priority: &str) -> u64 {
    let status = json(daemon, &["status", "--json"]);
    let stores = status["stores"].as_array().expect("a list").iter();
    let sessions = stores.flat_map(|store| store["sessions"].as_array().expect("a list"));
    let of = sessions.filter(|it| it["priority"] == priority);
    of.filter_map(|it| it["delivered_bytes"].as_u64()).sum()
}

/// An export as `tanada status` has it, once `holds` is true of it: the daemon looks now and then.
async fn seen(daemon: &Daemon, name: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let mut last = Value::Null;
    for _ in 0..100 {
        let status = json(daemon, &["status", "--json"]);
        let all = status["exports"].as_array().expect("a list").clone();
        last = all
            .into_iter()
            .find(|it| it["name"] == name)
            .expect("it is there");
        if holds(&last) {
            return last;
        }
        env::sleep(Nanos::millis(100)).await;
    }
    panic!("not as it should be: {last}");
}

#[test]
fn a_volume_has_its_own_exports_before_it_is_made_each_keeps_its_terms() {
    each_export_keeps_its_terms(TWO_VIEWS);
}

#[test]
fn exports_of_a_volume_behind_gates_keep_their_terms() {
    let behind = "nbd = \"unix:vms.sock\"\ngates = 2";
    each_export_keeps_its_terms(&TWO_VIEWS.replacen("nbd = \"unix:vms.sock\"", behind, 1));
}

/// Two exports of one volume from before it is made until after it is gone.
fn each_export_keeps_its_terms(exports: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path().to_owned();
    let daemon = Daemon::start(&dir, &with_exports(ONE, exports));
    let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
    runtime.block_on(async move {
        // Not yet made.
        let printed = refused(&dir, "look").await;
        let expected = "cannot open export look: there is no volume vm1; there are none; make it (`tanada volume create vm1 \
                        --size ...`), or name another one in the configuration";
        assert!(printed.contains(expected), "{printed}");
        let early = seen(&daemon, "vm1", |it| it["why"].is_string()).await;
        assert_eq!((&early["device"], &early["size_bytes"]), (&"volume:vm1".into(), &0.into()));
        let page = daemon.command(&["status"]);
        assert!(page.contains("look: there is no volume vm1; there are none; make it"), "{page}");
        let unknown = refused(&dir, "vm2").await;
        assert!(unknown.contains("there is no export named 'vm2'"), "{unknown}");

        daemon.command(&["volume", "create", "vm1", "--size", "64MiB", "--priority", "high", "--fairness", "4"]);
        let page = daemon.command(&["volume", "show", "vm1"]);
        assert!(page.contains("fairness           4: so often a seek behind another client of its class counts"), "{page}");
        let (one, look) = (connect(&dir, "vm1").await.unwrap(), connect(&dir, "look").await.unwrap());
        assert!(write(&one, 7).await);
        assert_eq!((read(&one).await, read(&look).await), (7, 7));
        assert!(!write(&look, 8).await, "it is read-only");
        assert!(write(&one, 9).await);
        assert_eq!(read(&look).await, 9);
        // A client that names no export gets the first.
        let first = connect(&dir, "").await.unwrap();
        assert!(write(&first, 10).await);
        first.close().await;

        let now = seen(&daemon, "look", |it| it["why"].is_null() && it["size_bytes"] != 0).await;
        assert_eq!((&now["connections"], &now["read_only"]), (&1.into(), &true.into()));
        assert_eq!((&now["priority"], &now["fairness"]), (&"low".into(), &2.5.into()));
        let other = seen(&daemon, "vm1", |_| true).await;
        assert_eq!((&other["priority"], &other["fairness"]), (&"high".into(), &4.0.into()));
        let page = daemon.command(&["status"]);
        assert!(page.contains("read-only, low priority, fairness 2.5"), "{page}");
        // Its class is known where its requests wait: of the links to a store one is its own.
        let delivered = |class: &str| sessions(&daemon, class);
        let before = (delivered("low"), delivered("high"));
        for _ in 0..200 {
            read(&look).await;
        }
        let after = (delivered("low"), delivered("high"));
        assert!(after.0 - before.0 >= 200 * 4096, "{before:?} {after:?}");
        // The map is the volume's own.
        assert!(after.1 - before.1 < 200 * 4096, "{before:?} {after:?}");
        // Another class while both are connected: of the export only what it does not set.
        let set = ["volume", "set", "vm1", "priority=normal", "fairness=8", "min_copies=2", "holder=ann"];
        let printed = daemon.command(&set);
        let expected = "vm1 has normal priority, fairness 8; a write reaches at least 2 of 2 copies; it is under what ann has reserved\n";
        assert_eq!(printed, expected);
        let before = delivered("normal");
        for _ in 0..100 {
            read(&one).await;
        }
        assert!(delivered("normal") - before >= 100 * 4096);
        let now = seen(&daemon, "vm1", |it| it["priority"] == "normal").await;
        assert_eq!(now["fairness"], 8.0);
        assert_eq!(seen(&daemon, "look", |_| true).await["priority"], "low");
        assert!(write(&one, 10).await, "both copies are there");
        let printed = daemon.command(&["volume", "set", "vm1", "holder=", "min_copies=1"]);
        assert_eq!(printed, "vm1 has normal priority, fairness 8; a write reaches at least 1 of 2 copies\n");
        let wrong = daemon.refused(&["volume", "set", "vm1", "min_copies=3"]);
        assert!(wrong.contains("writes of volume vm1 cannot reach 3 copies: it has 2; ask for 1 to 2"), "{wrong}");
        let wrong = daemon.refused(&["volume", "set", "vm9", "fairness=2"]);
        assert!(wrong.contains("there is no volume vm9; there are vm1"), "{wrong}");
        let shown = json(&daemon, &["volume", "show", "vm1", "--json"]);
        assert_eq!((&shown["holder"], &shown["min_copies"]), (&Value::Null, &1.into()));
        assert_eq!(shown["clients"], 2, "{shown}");
        let uris = shown["nbd"].to_string();
        assert!(uris.contains("nbd+unix:///look?socket="), "{uris}");
        let figures = daemon.page("/metrics");
        assert!(figures.contains("tanada_export_connections{export=\"look\",of=\"volume:vm1\"} 1"), "{figures}");
        let busy = daemon.refused(&["volume", "delete", "vm1", "--yes"]);
        assert!(busy.contains("in use here (2 users); disconnect its clients first"), "{busy}");
        one.close().await;
        look.close().await;

        // Another name, and back.
        seen(&daemon, "vm1", |it| it["connections"] == 0).await;
        daemon.command(&["volume", "set", "vm1", "name=vm7"]);
        let printed = refused(&dir, "vm1").await;
        assert!(printed.contains("there is no volume vm1; there are vm7; make it"), "{printed}");
        seen(&daemon, "vm1", |it| it["why"].as_str().is_some_and(|why| why.contains("vm7"))).await;
        daemon.command(&["volume", "set", "vm7", "name=vm1"]);
        let again = connect(&dir, "look").await.unwrap();
        assert_eq!(read(&again).await, 10);
        again.close().await;
        seen(&daemon, "look", |it| it["connections"] == 0).await;
        daemon.command(&["volume", "delete", "vm1", "--yes"]);
        let gone = refused(&dir, "vm1").await;
        assert!(gone.contains("there is no volume vm1; there are none"), "{gone}");
        daemon.stop();
    });
}

#[test]
fn an_export_of_a_volume_that_another_node_has_open_says_who() {
    if !have("etcd") {
        return;
    }
    let root = tempfile::tempdir().expect("a directory");
    let root = root.path().to_owned();
    let port = free_port();
    let _etcd = Etcd::start(&root, port);
    let n1 = start_node(&root, "n1", port);
    let second = root.join("n2");
    std::fs::create_dir_all(&second).expect("the directory is ours");
    let n2 = Daemon::start(&second, &with_exports(&node(&root, "n2", port), TWO_VIEWS));
    let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
    runtime.block_on(async move {
        has_all_stores(&n1, 2).await;
        n1.command(&["volume", "create", "vm1", "--size", "32MiB"]);
        let options = ClientOptions {
            export: "vm1".to_owned(),
            ..ClientOptions::default()
        };
        let there = Address::Unix(root.join("n1").join("disks.sock"));
        let other = Client::connect(&there, &options).await.expect("let in");
        let printed = refused(&second, "look").await;
        let expected =
            "cannot open export look: cannot open volume vm1: node n1 has it open for 1 client, ";
        assert!(printed.contains(expected), "{printed}");
        other.close().await;
        n1.stop();
        let mine = connect(&second, "vm1").await.expect("it was let go");
        assert!(write(&mine, 3).await);
        mine.close().await;
        n2.stop();
    });
}
