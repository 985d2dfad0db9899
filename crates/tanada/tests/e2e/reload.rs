//! Exports and addresses of a configuration that is read anew while clients are served.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use base::{Bytes, Nanos, Sector};
use device::{DeviceError, DeviceExt};
use env::{RealConfig, Runtime};
use front::nbd::{Client, ClientOptions, ClientTls};
use serde_json::Value;

use crate::common::{Daemon, SMALL, connect, http, json, run, stderr, text};

/// [`SMALL`] with an address of two gates, and a virtual disk's store beside it.
fn before() -> String {
    let more = "[[export]]\ndevice = \"vol0\"\nname = \"gated\"\nnbd = \"unix:gated.sock\"\ngates = 2\n\
                [[device]]\nname = \"d1\"\nmemory = true\nsize = \"64MiB\"\n\
                [[store]]\nname = \"s1\"\ndevice = \"d1\"\nlisten = \"unix:s1.sock\"\ncreate = true\n\
                [cluster]\nnode = \"n1\"\nnbd = \"unix:disks.sock\"\n[admin]";
    SMALL.replace("[admin]", more)
}

fn configure(dir: &Path, config: &str) {
    fs::write(dir.join("tanada.toml"), config).expect("the folder is ours");
}

/// Reads the file anew, which is refused with these words, and with status 5.
fn refused(dir: &Path, config: &str, words: &str) {
    configure(dir, config);
    let refused = run(dir, &["reload"]);
    assert_eq!(refused.status.code(), Some(5), "{}", stderr(&refused));
    assert!(stderr(&refused).contains(words), "{}", stderr(&refused));
}

fn reload(dir: &Path, config: &str) {
    configure(dir, config);
    let page = text(dir, &["reload"]);
    assert!(page.contains("it is in force"), "{page}");
}

fn export(name: &str, rest: &str) -> String {
    format!("[[export]]\nname = \"{name}\"\n{rest}\n")
}

async fn read(client: &Client) -> Result<(), DeviceError> {
    client.read_at(Sector(0), Bytes(4096)).await.map(drop)
}

/// An export as `status` shows it.
fn shown(dir: &Path, name: &str) -> Value {
    let status = json(dir, &["status", "--json"]);
    let exports = status["exports"].as_array().expect("a list");
    let found = exports.iter().find(|it| it["name"] == name);
    found.cloned().unwrap_or(Value::Null)
}

fn with_runtime(scene: impl AsyncFnOnce(&Path) + 'static) {
    let dir = tempfile::tempdir().expect("a folder");
    let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
    let here = dir.path().to_owned();
    runtime.block_on(async move { scene(&here).await });
}

/// A client that trusts the authority of this folder alone.
async fn trusts(dir: &Path, port: u16, export: &str) -> Result<Client, String> {
    let authority = fs::read(dir.join("node/ca.pem")).expect("handed out");
    let tls = ClientTls::from_pem("127.0.0.1", &authority, None);
    let options = ClientOptions {
        export: export.to_owned(),
        tls: Some(tls.expect("usable")),
        ..ClientOptions::default()
    };
    let address = format!("127.0.0.1:{port}").parse().expect("an address");
    let client = Client::connect(&address, &options).await;
    client.map_err(|error| error.to_string())
}

#[test]
fn certificates_of_exports_and_of_the_cluster_are_read_anew() {
    with_runtime(async |dir| {
        for folder in ["old", "new"].map(|name| dir.join(name)) {
            fs::create_dir(&folder).unwrap();
            text(&folder, &["cluster", "ca", "init", "ca"]);
            let issue = [
                "cluster",
                "ca",
                "issue",
                "node",
                "--ca",
                "ca",
                "--host",
                "127.0.0.1",
            ];
            text(&folder, &issue);
        }
        let put = |from: &str| {
            for file in ["cert.pem", "key.pem"] {
                let there = dir.join(file);
                fs::copy(dir.join(from).join("node").join(file), &there).unwrap();
                let mode = fs::Permissions::from_mode(0o600);
                fs::set_permissions(there, mode).unwrap();
            }
        };
        put("old");
        let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
        let free = [0; 2].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let [of_export, of_cluster] = [port(&free[0]), port(&free[1])];
        drop(free);
        let tls = "certificate = \"cert.pem\"\nkey = \"key.pem\"\n";
        let config = before().replace(
            "nbd = \"unix:disks.sock\"\n",
            &format!("nbd = \"127.0.0.1:{of_cluster}\"\n[cluster.tls]\n{tls}"),
        ) + &export(
            "safe",
            &format!("device = \"vol0\"\nnbd = \"127.0.0.1:{of_export}\"\n[export.tls]\n{tls}"),
        );
        let daemon = Daemon::start(dir, &config);
        text(
            dir,
            &[
                "volume", "create", "vm1", "--size", "16MiB", "--copies", "1",
            ],
        );
        let both = [(of_export, "safe"), (of_cluster, "vm1")];
        let mut clients = Vec::new();
        for (port, name) in both {
            clients.push(trusts(&dir.join("old"), port, name).await.unwrap());
        }
        put("new");
        text(dir, &["reload"]);
        for (port, name) in both {
            assert!(
                trusts(&dir.join("old"), port, name).await.is_err(),
                "{name}"
            );
            clients.push(trusts(&dir.join("new"), port, name).await.unwrap());
        }
        for client in &clients {
            read(client).await.expect("those of before go on, too");
        }
        // One that cannot be read changes nothing.
        fs::write(dir.join("cert.pem"), "none").unwrap();
        assert_eq!(run(dir, &["reload"]).status.code(), Some(5));
        for (port, name) in both {
            trusts(&dir.join("new"), port, name).await.unwrap();
        }
        for client in clients {
            client.close().await;
        }
        daemon.stop();
    });
}

#[test]
fn exports_come_and_go_and_no_other_client_feels_it() {
    with_runtime(async |dir| {
        let before = before();
        let daemon = Daemon::start(dir, &before);
        let one = connect(dir, "vol0.sock", "vol0").await.unwrap();
        let gated = connect(dir, "gated.sock", "gated").await.unwrap();
        text(
            dir,
            &[
                "volume", "create", "vm1", "--size", "16MiB", "--copies", "1",
            ],
        );

        // At addresses that are there, with gates and without, and at new ones.
        let more = [
            export(
                "view",
                "device = \"vol0\"\nnbd = [\"unix:vol0.sock\", \"unix:gated.sock\"]\nread_only = true",
            ),
            export("vm", "device = \"volume:vm1\"\nnbd = \"unix:disk.sock\""),
            export(
                "gated-vm",
                "device = \"volume:vm1\"\nnbd = \"unix:disks2.sock\"\ngates = 2",
            ),
        ];
        let all = before.replace("[admin]", &format!("{}[admin]", more.concat()));
        reload(dir, &all);
        for (socket, name) in [
            ("vol0.sock", "view"),
            ("gated.sock", "view"),
            ("disk.sock", "vm"),
            ("disks2.sock", "gated-vm"),
        ] {
            let client = connect(dir, socket, name).await.unwrap();
            read(&client).await.unwrap();
            client.close().await;
        }
        assert_eq!(shown(dir, "view")["read_only"], true);

        // One with a client stays, and all that would change with it.
        let user = connect(dir, "disks2.sock", "gated-vm").await.unwrap();
        let without = before.replace("[admin]", &format!("{}[admin]", more[0]));
        refused(dir, &without, "export gated-vm has 1 client");
        read(&user).await.unwrap();
        user.close().await;
        reload(dir, &without);
        assert!(connect(dir, "disks2.sock", "gated-vm").await.is_err());
        assert!(!dir.join("disk.sock").exists(), "its address is given up");
        assert_eq!(shown(dir, "vm"), Value::Null);

        // Other terms: not under a client, and after that at once, at the gates, too.
        let other = without.replace("read_only = true", "read_only = false");
        let viewer = connect(dir, "gated.sock", "view").await.unwrap();
        refused(dir, &other, "export view has 1 client");
        viewer.close().await;
        reload(dir, &other);
        for socket in ["gated.sock", "vol0.sock"] {
            let viewer = connect(dir, socket, "view").await.unwrap();
            read(&viewer).await.unwrap();
            viewer.close().await;
        }
        assert_eq!(shown(dir, "view")["read_only"], false);
        // Who asks for no name goes on with the same disk.
        let first = before.replacen("[[export]]", &format!("{}[[export]]", more[0]), 1);
        refused(dir, &first, "ask for no export by its name");
        reload(dir, &before);

        // All this time.
        read(&one).await.unwrap();
        read(&gated).await.unwrap();
        let (status, log) = daemon.stop();
        assert_eq!(status, Some(0), "{log}");
    });
}

#[test]
fn caps_of_an_export_are_raised_under_its_clients() {
    with_runtime(async |dir| {
        let capped = SMALL.replace(
            "nbd = \"unix:plain.sock\"",
            "nbd = \"unix:plain.sock\"\nmax_read = \"1MB/s\"",
        );
        let _daemon = Daemon::start(dir, &capped);
        let client = connect(dir, "plain.sock", "plain").await.unwrap();
        reload(dir, &capped.replace("1MB/s", "900MB/s"));
        assert_eq!(shown(dir, "plain")["caps"]["max_read"], 900_000_000);
        let begun = env::now();
        client.read_at(Sector(0), Bytes::mib(8)).await.unwrap();
        assert!(
            env::now().since(begun) < Nanos::secs(5),
            "8 s at its old cap"
        );
    });
}

#[test]
fn a_device_that_became_a_cache_is_not_exported() {
    with_runtime(async |dir| {
        let spare = "[[device]]\nname = \"spare\"\npath = \"spare.img\"\nsize = \"16MiB\"\n[admin]";
        let before = SMALL.replace("[admin]", spare);
        let _daemon = Daemon::start(dir, &before);
        let shows = export("spare", "device = \"spare\"\nnbd = \"unix:spare.sock\"");
        let after = before.replace("[admin]", &format!("{shows}[admin]"));
        text(dir, &["volume", "detach", "vol0"]);
        text(dir, &["volume", "attach", "vol0", "--fast", "spare"]);
        refused(dir, &after, "spare, which is part of vol0");
        text(dir, &["volume", "detach", "vol0"]);
        reload(dir, &after);
        let taken = run(dir, &["volume", "attach", "vol0", "--fast", "spare"]);
        assert_eq!(taken.status.code(), Some(5), "{}", stderr(&taken));
    });
}

#[test]
fn what_cannot_be_put_in_force_leaves_all_as_it_was() {
    with_runtime(async |dir| {
        let before = before();
        let _daemon = Daemon::start(dir, &before);
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = taken.local_addr().unwrap();
        let with = |export: &str| before.replace("[admin]", &format!("{export}[admin]"));
        let good = export("new", "device = \"plain\"\nnbd = \"unix:new.sock\"");
        let bad = export("taken", &format!("device = \"vol0\"\nnbd = \"{taken}\""));
        refused(dir, &with(&(good + &bad)), "another program has it");
        assert!(!dir.join("new.sock").exists(), "nothing is listened at");
        let gates = before.replace("gates = 2", "gates = 3");
        refused(dir, &gates, "another number of gates");
        let shared = export("shared", "device = \"plain\"\nnbd = \"unix:vol0.sock\"");
        refused(dir, &with(&shared), "share a thread after a restart alone");
        configure(dir, &before);
        assert!(text(dir, &["reload"]).contains("nothing is different"));
        assert!(connect(dir, "new.sock", "new").await.is_err());
    });
}

#[test]
fn a_store_is_scrubbed_at_another_rate() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let before = before();
    let _daemon = Daemon::start(dir, &before);
    let rate =
        || json(dir, &["store", "show", "s1", "--json"])["scrub"]["bytes_per_second"].clone();
    let usual = rate();
    reload(
        dir,
        &before.replace("create = true", "create = true\nscrub = \"3MB/s\""),
    );
    assert_eq!(rate(), 3_000_000);
    reload(dir, &before);
    assert_eq!(rate(), usual);
}

#[test]
fn a_store_goes_by_other_terms_under_its_clients() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let before = "[[device]]\nname = \"d1\"\nmemory = true\nsize = \"64MiB\"\n\
                  [[store]]\nname = \"s1\"\ndevice = \"d1\"\nlisten = \"unix:s1.sock\"\ncreate = true\n\
                  [log]\nlevel = \"warn\"\n[admin]\nlisten = \"unix:admin.sock\"\n";
    let daemon = Daemon::start(dir, before);
    let shown = || json(dir, &["store", "show", "s1", "--json"]);
    let listed = |at: &str| {
        let address = format!("unix:{}", dir.join(at).display());
        run(dir, &["object", "list", "--store", &address])
    };
    // Nothing to show: the store takes only who has credentials.
    assert!(!listed("s1.sock").status.success());
    let open = before
        .replace(
            "create = true",
            "create = true\nunauthenticated = true\nclock_skew = \"1m\"",
        )
        .replace("\"unix:s1.sock\"", "[\"unix:s1.sock\", \"unix:s2.sock\"]")
        .replace("\"warn\"", "\"info\"");
    reload(dir, &open);
    assert_eq!(shown()["unauthenticated"], true);
    assert_eq!(shown()["listen"].as_array().map(Vec::len), Some(2));
    for at in ["s1.sock", "s2.sock"] {
        let listed = listed(at);
        assert!(listed.status.success(), "{}", stderr(&listed));
    }
    let more = open.replace(
        "create = true",
        "create = true\nfloor = \"1TB/s\"\nceiling = \"1TB/s\"",
    );
    let reserve = ["reservation", "create", "--store", "s1", "--read", "20MB/s"];
    text(
        dir,
        &[
            &reserve[..],
            &["--for", "2h", "--scope", "a/", "--holder", "ann"],
        ]
        .concat(),
    );
    refused(dir, &more, "background work of s1");
    assert_eq!(shown()["unauthenticated"], true, "nothing was changed");
    let moved = before.replace("s1.sock", "s2.sock");
    reload(dir, &moved);
    assert_eq!(shown()["unauthenticated"], false);
    assert!(!dir.join("s1.sock").exists(), "it is given up");
    let refused = listed("s2.sock");
    assert!(!refused.status.success(), "it asks for credentials again");
    let (status, log) = daemon.stop();
    assert_eq!(status, Some(0));
    let is_said = |words: &str| log.contains(words);
    assert!(
        is_said("client connected") && !is_said("closed cleanly"),
        "{log}"
    );
}

#[test]
fn the_dashboard_moves_to_another_address() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let port = || {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().to_string()
    };
    let (one, other) = (port(), port());
    let at = |address: &str| format!("{SMALL}[web]\nlisten = \"{address}\"\n");
    let daemon = Daemon::start(dir, &at(&one));
    let healthy = |address: &str| {
        let request =
            format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        http(address, &request).0
    };
    assert_eq!(healthy(&one), 200);
    reload(dir, &at(&other));
    assert_eq!(healthy(&other), 200);
    assert!(
        std::net::TcpStream::connect(&one).is_err(),
        "it is given up"
    );
    reload(dir, SMALL);
    assert!(
        std::net::TcpStream::connect(&other).is_err(),
        "it is given up"
    );
    let (status, _) = daemon.stop();
    assert_eq!(status, Some(0));
}

#[test]
fn copies_are_chosen_by_the_configured_policy_after_a_restart_alone() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    // What a restart finds again.
    let stored = before().replace("\"d1\"\nmemory = true", "\"d1\"\npath = \"d1.img\"");
    let with = |policy: &str| {
        let own = format!("node = \"n1\"\nreplica_choice = \"{policy}\"");
        stored.replace("node = \"n1\"", &own)
    };
    let shown = |policy: &str| {
        let page = text(dir, &["status"]);
        assert!(
            page.contains(&format!("copies are chosen by {policy}\n")),
            "{page}"
        );
        let status = json(dir, &["status", "--json"]);
        assert_eq!(status["replica_choice"], policy);
        let here = json(dir, &["node", "list", "--json"]);
        assert_eq!(here["replica_choice"], policy);
    };
    let daemon = Daemon::start(dir, &stored);
    shown("tanada");
    refused(
        dir,
        &with("nearest"),
        "'nearest' is no policy for replicas; choose one of round-robin",
    );
    refused(dir, &with("queue-cost"), "cluster.replica_choice");
    shown("tanada");
    daemon.stop();
    let content: Vec<u8> = (0..1u32 << 18).flat_map(u32::to_le_bytes).collect();
    fs::write(dir.join("vm1.img"), &content).expect("the folder is ours");
    for policy in ["queue-cost", "round-robin"] {
        let daemon = Daemon::start(dir, &with(policy));
        shown(policy);
        if policy == "queue-cost" {
            text(dir, &["volume", "import", "vm1.img", "vm1"]);
        }
        let read = format!("{policy}.img");
        text(dir, &["volume", "export", "vm1", &read]);
        let same = fs::read(dir.join(read)).expect("written") == content;
        assert!(same, "{policy}");
        daemon.stop();
    }
}
