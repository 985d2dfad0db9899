//! A gateway on a volume of the cluster: objects outlive the node that serves them, and another one serves them then.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use base::Nanos;
use env::net::Address;
use front::nbd::ClientOptions;
use serde_json::Value;

use crate::clients::have;
use crate::cluster::{Etcd, free_port, has_all_stores, node};
use crate::daemon::Daemon;

/// Between two looks.
const LOOK: Nanos = Nanos::millis(250);
/// A node's lease runs out in 10 s, and the next one opens the volume some seconds later.
const TAKEOVER: usize = 160;

fn start(root: &Path, name: &str, etcd: u16) -> Daemon {
    let dir = root.join(name);
    fs::create_dir_all(&dir).expect("the directory is ours");
    let gateway = "[[s3]]\nname = \"gw\"\nvolume = \"photos\"\nlisten = \"127.0.0.1:0\"\n";
    Daemon::start(&dir, &format!("{}{gateway}", node(root, name, etcd)))
}

/// The first gateway, as a node shows it.
fn shown(daemon: &Daemon) -> Value {
    let all: Value = serde_json::from_str(&daemon.command(&["s3", "list", "--json"])).unwrap();
    all[0].clone()
}

/// Where clients connect to the gateway of a node, if it is served there.
fn served_at(daemon: &Daemon) -> Option<String> {
    let listen = shown(daemon)["listen"][0].as_str().map(str::to_owned);
    listen.map(|it| format!("http://{it}"))
}

/// The first of these nodes that serves the gateway, and where clients connect.
async fn served(nodes: &[(&'static str, Daemon)]) -> (&'static str, String) {
    for _ in 0..TAKEOVER {
        let mut all = nodes.iter();
        if let Some(found) = all.find_map(|(name, it)| Some((*name, served_at(it)?))) {
            return found;
        }
        env::sleep(LOOK).await;
    }
    let why: Vec<Value> = nodes.iter().map(|(_, it)| shown(it)).collect();
    panic!("the gateway is not served: {why:?}");
}

struct Client {
    user: String,
}

impl Client {
    /// The status of a request, and the bytes of its answer.
    fn ask(&self, arguments: &[&str], url: &str) -> (String, Vec<u8>) {
        let dir = tempfile::tempdir().expect("a directory");
        let output = Command::new("curl")
            .current_dir(dir.path())
            .args([
                "-s",
                "--max-time",
                "60",
                "-o",
                "answer",
                "-w",
                "%{http_code}",
            ])
            .args(["--aws-sigv4", "aws:amz:us-east-1:s3", "-u", &self.user])
            .args(["-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD"])
            .args(arguments)
            .arg(url)
            .output();
        let said = String::from_utf8_lossy(&output.expect("curl starts").stdout).into_owned();
        let answer = fs::read(dir.path().join("answer")).unwrap_or_default();
        (said, answer)
    }

    fn put(&self, file: &Path, url: &str) {
        let file = file.display().to_string();
        let (status, said) = self.ask(&["-T", &file], url);
        assert_eq!(status, "200", "{}", String::from_utf8_lossy(&said));
    }
}

/// An object that lies in the index, and one that lies in chunks.
fn files(root: &Path) -> [(String, Vec<u8>); 2] {
    let long = (0..9_u32 << 18).flat_map(u32::to_le_bytes).collect();
    [("short", b"a few bytes".to_vec()), ("long", long)].map(|(name, bytes)| {
        let path = root.join(name);
        fs::write(&path, &bytes).expect("the directory is ours");
        (path.display().to_string(), bytes)
    })
}

/// All nodes have the key that access keys are sealed with.
fn copy_seal(from: &Path, to: &Path) {
    let seal = find(from, "s3.seal").expect("it is made at the start");
    let copied = to.join(seal.strip_prefix(from).expect("it was found there"));
    fs::create_dir_all(copied.parent().expect("a directory")).expect("it is ours");
    fs::copy(&seal, &copied).expect("the seal is copied");
}

fn find(dir: &Path, name: &str) -> Option<PathBuf> {
    fs::read_dir(dir).ok()?.flatten().find_map(|entry| {
        let path = entry.path();
        match entry.file_name() == name {
            true => Some(path),
            false if path.is_dir() => find(&path, name),
            false => None,
        }
    })
}

fn client_of(daemon: &Daemon) -> Client {
    let made = daemon.command(&["s3", "key", "create", "--json"]);
    let made: Value = serde_json::from_str(&made).expect("JSON");
    let user = [&made["about"]["id"], &made["secret"]].map(|it| it.as_str().expect("a text"));
    Client {
        user: user.join(":"),
    }
}

#[test]
fn a_gateway_on_a_volume_goes_to_another_node_with_all_that_was_answered() {
    if !have("etcd") || !have("curl") {
        return;
    }
    let runtime = env::Runtime::real(env::RealConfig::default()).expect("a runtime");
    runtime.block_on(async {
        let root = tempfile::tempdir().expect("a directory");
        let port = free_port();
        let etcd = Etcd::start(root.path(), port);
        scene(root.path(), port).await;
        drop(etcd);
    });
}

async fn scene(root: &Path, port: u16) {
    let n1 = start(root, "n1", port);
    let why = shown(&n1)["failed"].as_str().map(str::to_owned);
    assert!(why.is_some_and(|it| it.contains("photos")), "there is none");
    let mut nodes = vec![("n1", n1)];
    for name in ["n2", "n3"] {
        copy_seal(&root.join("n1"), &root.join(name));
        nodes.push((name, start(root, name, port)));
    }
    has_all_stores(&nodes[0].1, 3).await;
    let words = [
        "volume", "create", "photos", "--size", "128MiB", "--copies", "3",
    ];
    nodes[0].1.command(&words);
    let (first, url) = served(&nodes).await;
    let place = nodes
        .iter()
        .position(|it| it.0 == first)
        .expect("one of them");
    let (_, serving) = nodes.remove(place);
    let client = client_of(&serving);
    assert_eq!(
        client.ask(&["-X", "PUT"], &format!("{url}/photos")).0,
        "200"
    );
    let files = files(root);
    for (nth, (path, _)) in files.iter().enumerate() {
        client.put(Path::new(path), &format!("{url}/photos/{nth}"));
    }
    let refused = serving.refused(&["volume", "delete", "photos", "--yes"]);
    assert!(refused.contains("in use"), "{refused}");
    let nbd = nbd_client(&root.join(first)).await;
    assert!(
        nbd.is_err_and(|why| why.contains("S3 gateway")),
        "no client writes over it"
    );
    waits_for(&nodes[0].1, first).await;

    serving.kill();
    let (second, url) = served(&nodes).await;
    same(&client, &url, &[&files[0].1, &files[1].1]);
    client.put(Path::new(&files[1].0), &format!("{url}/photos/2"));
    // Once more, by a clean stop.
    nodes.push((first, start(root, first, port)));
    let place = nodes
        .iter()
        .position(|it| it.0 == second)
        .expect("one of them");
    nodes.remove(place).1.stop();
    let (_, url) = served(&nodes).await;
    same(&client, &url, &[&files[0].1, &files[1].1, &files[1].1]);
    nodes.into_iter().for_each(|(_, node)| node.stop());
}

fn same(client: &Client, url: &str, expected: &[&Vec<u8>]) {
    for (nth, bytes) in expected.iter().enumerate() {
        let (status, got) = client.ask(&[], &format!("{url}/photos/{nth}"));
        assert_eq!((&*status, got == **bytes), ("200", true), "object {nth}");
    }
}

/// Waits until a node says that another one serves.
async fn waits_for(daemon: &Daemon, node: &str) {
    let mut last = Value::Null;
    for _ in 0..TAKEOVER {
        last = shown(daemon);
        if last["failed"].as_str().is_some_and(|it| it.contains(node)) {
            return;
        }
        env::sleep(LOOK).await;
    }
    panic!("it does not say that {node} serves: {last}");
}

async fn nbd_client(dir: &Path) -> Result<(), String> {
    let options = ClientOptions {
        export: "photos".to_owned(),
        ..ClientOptions::default()
    };
    let address = Address::Unix(dir.join("disks.sock"));
    let client = front::nbd::Client::connect(&address, &options).await;
    client.map(drop).map_err(|error| error.to_string())
}
