//! Virtual disks through the whole program: a node by itself with its records in a file, and three nodes with etcd.
//!
//! ```text
//! [cluster] -> volume create -> NBD by name -> kill -9 -> start -> what was written
//! three nodes -> one client writes and remembers -> a node is killed, then the one it writes through -> read at the third
//! ```

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;

use base::{Buf, Nanos, Sector, View};
use device::{Class, Device, WriteFlags};
use env::net::Address;
use env::{RealConfig, Rng, Runtime};
use front::nbd::{Client, ClientOptions};
use serde_json::Value;

use crate::clients::{have, random_image, same, tool};
use crate::daemon::Daemon;

/// Two stores of one node, each by itself what fails.
pub const ONE: &str = r#"
[[device]]
name = "d0"
path = "d0.img"
size = "256MiB"
[[device]]
name = "d1"
path = "d1.img"
size = "256MiB"
[[store]]
name = "s0"
device = "d0"
listen = "unix:s0.sock"
create = true
[[store]]
name = "s1"
device = "d1"
listen = "unix:s1.sock"
create = true
[cluster]
node = "n1"
nbd = "unix:disks.sock"
[admin]
listen = "unix:admin.sock"
"#;

fn uri(dir: &Path, volume: &str) -> String {
    format!(
        "nbd+unix:///{volume}?socket={}",
        dir.join("disks.sock").display()
    )
}

pub fn json(daemon: &Daemon, arguments: &[&str]) -> Value {
    serde_json::from_str(&daemon.command(arguments)).expect("output is JSON")
}

#[test]
fn commands_make_list_grow_and_remove_a_virtual_disk_and_refuse_mistakes() {
    let dir = tempfile::tempdir().expect("a directory");
    let daemon = Daemon::start(dir.path(), ONE);
    let made = json(
        &daemon,
        &[
            "volume",
            "create",
            "vm1",
            "--size",
            "64MiB",
            "--priority",
            "high",
            "--json",
        ],
    );
    assert_eq!(made["copies"], 2);
    assert_eq!(made["priority"], "high");
    let taken = daemon.refused(&["volume", "create", "vm1", "--size", "64MiB"]);
    assert!(
        taken.contains("there is a volume vm1 already; choose another name"),
        "{taken}"
    );
    daemon.command(&["volume", "create", "odd", "--size", "1000"]);
    let odd = json(&daemon, &["volume", "show", "odd", "--json"]);
    assert_eq!(odd["size_bytes"], 4096, "rounded up");
    daemon.command(&["volume", "delete", "odd", "--now", "--yes"]);
    let many = daemon.refused(&["volume", "create", "vm2", "--size", "1MiB", "--copies", "3"]);
    assert!(
        many.contains("2 failure domains; ask for fewer copies"),
        "{many}"
    );
    let none = daemon.refused(&["volume", "set", "vm3", "size=1GiB"]);
    assert!(
        none.contains("there is no volume vm3; there are vm1"),
        "{none}"
    );
    daemon.command(&["volume", "set", "vm1", "size=256MiB"]);
    let smaller = daemon.refused(&["volume", "set", "vm1", "size=128MiB"]);
    assert!(
        smaller.contains("all that lies behind would be gone; say so (--shrink)"),
        "{smaller}"
    );
    daemon.command(&["volume", "set", "vm1", "size=128MiB", "--shrink", "--yes"]);
    daemon.command(&["volume", "set", "vm1", "name=vm2"]);
    let listed = daemon.command(&["volume", "list"]);
    assert!(
        listed.contains("vm2") && listed.contains("128.0 MiB") && listed.contains("healthy"),
        "{listed}"
    );
    let unknown = daemon.refused(&["volume", "show", "vm9"]);
    let expected = "there is no volume vm9; there are vm2";
    assert!(unknown.contains(expected), "{unknown}");
    let shown = daemon.command(&["volume", "show", "vm2"]);
    assert!(shown.contains("a write reaches at least 1"), "{shown}");
    let nodes = daemon.command(&["node", "list"]);
    assert!(
        nodes.contains("n1 (this)") && nodes.contains("s1"),
        "{nodes}"
    );
    let drained = daemon.refused(&["node", "drain", "s1"]);
    assert!(drained.contains("1 failure domains"), "{drained}");
    let busy = daemon.refused(&["node", "delete", "s9"]);
    assert!(
        busy.contains("there is no store s9; there are s0, s1"),
        "{busy}"
    );
    let repaired = json(&daemon, &["volume", "repair", "vm2", "--json"]);
    assert_eq!(repaired["volume"]["health"], "healthy");
    daemon.command(&["volume", "delete", "vm2", "--yes"]);
    assert_eq!(
        json(&daemon, &["volume", "list", "--json"]),
        Value::Array(Vec::new())
    );
    daemon.stop();
}

#[test]
fn what_tools_write_to_a_virtual_disk_survives_kill_9_and_is_in_its_export() {
    if !have("nbdcopy") || !have("qemu-img") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    random_image(&dir.join("in.img"), 7);
    let daemon = Daemon::start(dir, ONE);
    daemon.command(&["volume", "create", "vm1", "--size", "64MiB"]);
    tool(dir, "nbdcopy", &["--flush", "in.img", &uri(dir, "vm1")]);
    daemon.kill();
    let daemon = Daemon::start(dir, ONE);
    // The writer before did not close it: its lease is awaited.
    tool(dir, "nbdcopy", &[&uri(dir, "vm1"), "out.img"]);
    same(&dir.join("in.img"), &dir.join("out.img"));

    daemon.command(&["volume", "export", "vm1", "raw.img"]);
    same(&dir.join("in.img"), &dir.join("raw.img"));
    // A file with holes: one extent of data far out.
    let sparse = fs::File::create(dir.join("sparse.img")).expect("the directory is ours");
    sparse.set_len(48 << 20).expect("sparse");
    let mut data = vec![0; 1 << 20];
    Rng::from_seed(3).fill(&mut data);
    std::os::unix::fs::FileExt::write_all_at(&sparse, &data, 40 << 20).expect("written");
    drop(sparse);
    let copied = json(
        &daemon,
        &["volume", "import", "sparse.img", "vm2", "--json"],
    );
    assert_eq!(copied["size_bytes"], 48 << 20);
    assert!(
        copied["data_bytes"]
            .as_u64()
            .is_some_and(|it| it <= 2 << 20),
        "{copied}"
    );
    let copied = json(&daemon, &["volume", "export", "vm2", "back.img", "--json"]);
    assert!(
        copied["data_bytes"]
            .as_u64()
            .is_some_and(|it| it <= 4 << 20),
        "{copied}"
    );
    same(&dir.join("sparse.img"), &dir.join("back.img"));
    let blocks = fs::metadata(dir.join("back.img"))
        .expect("it is there")
        .blocks();
    assert!(blocks * 512 <= 6 << 20, "{blocks} blocks");
    // What a volume has is not written over unless that is said, and no other format is taken for a raw disk.
    let import = ["volume", "import", "sparse.img", "vm1"];
    let refused = daemon.refused(&import);
    assert!(
        refused.contains("64.0 MiB of data") && refused.contains("--replace"),
        "{refused}"
    );
    let refused = daemon.refused(&[&import[..], &["--replace"]].concat());
    assert!(refused.contains("--yes"), "{refused}");
    let said = daemon.command(&[&import[..], &["--replace", "--dry-run"]].concat());
    assert!(said.contains("nothing was changed"), "{said}");
    for format in ["qcow2", "qed", "vdi", "vhdx", "vmdk", "vpc"] {
        tool(
            dir,
            "qemu-img",
            &["create", "-q", "-f", format, "other.img", "8M"],
        );
        let refused =
            daemon.refused(&["volume", "import", "other.img", "vm1", "--replace", "--yes"]);
        assert!(
            refused.contains(&format!("in the format {format}")),
            "{refused}"
        );
    }
    daemon.command(&["volume", "export", "vm1", "still.img"]);
    same(&dir.join("in.img"), &dir.join("still.img"));
    // Over something else: holes of the file are zeroes of the disk.
    daemon.command(&[&import[..], &["--replace", "--yes"]].concat());
    tool(
        dir,
        "qemu-img",
        &[
            "convert",
            "-f",
            "raw",
            "-O",
            "raw",
            &uri(dir, "vm1"),
            "vm1.img",
        ],
    );
    let vm1 = fs::read(dir.join("vm1.img")).expect("it is there");
    let mut expected = fs::read(dir.join("sparse.img")).expect("it is there");
    expected.resize(64 << 20, 0);
    assert!(vm1 == expected);
    // A snapshot stays as it is, its clone begins there.
    daemon.command(&["snapshot", "create", "vm2@monday"]);
    let io = ["-f", "raw", "-c", "write -P 9 0 1M"];
    tool(dir, "qemu-io", &[&io[..], &[&uri(dir, "vm2")]].concat());
    daemon.command(&["snapshot", "clone", "vm2@monday", "vm3"]);
    tool(dir, "nbdcopy", &[&uri(dir, "vm3"), "clone.img"]);
    same(&dir.join("sparse.img"), &dir.join("clone.img"));
    daemon.command(&["volume", "export", "vm2@monday", "monday.img"]);
    same(&dir.join("sparse.img"), &dir.join("monday.img"));
    let io = ["-f", "raw", "-c", "read -P 9 0 1M"];
    tool(dir, "qemu-io", &[&io[..], &[&uri(dir, "vm2")]].concat());
    let piped = daemon.command_bytes(&["volume", "export", "vm2@monday", "-"]);
    assert!(piped == fs::read(dir.join("sparse.img")).expect("it is there"));
    daemon.stop();
}

#[test]
fn a_disk_that_was_drained_is_taken_out_and_what_was_on_it_is_there() {
    if !have("nbdcopy") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    random_image(&dir.join("in.img"), 9);
    let third = "[[device]]\nname = \"d2\"\npath = \"d2.img\"\nsize = \"256MiB\"\n[[store]]\nname = \"s2\"\ndevice = \"d2\"\n\
                 listen = \"unix:s2.sock\"\ncreate = true\n[cluster]";
    let config = ONE.replace("[cluster]", third);
    let daemon = Daemon::start(dir, &config);
    daemon.command(&["volume", "create", "vm1", "--size", "64MiB"]);
    tool(dir, "nbdcopy", &["--flush", "in.img", &uri(dir, "vm1")]);
    daemon.command(&["snapshot", "create", "vm1@monday"]);
    random_image(&dir.join("later.img"), 10);
    tool(dir, "nbdcopy", &["--flush", "later.img", &uri(dir, "vm1")]);
    let early = daemon.refused(&["node", "delete", "s0"]);
    assert!(early.contains("drain it first"), "{early}");
    // What it began goes on after this.
    daemon.command(&["node", "drain", "s0"]);
    daemon.kill();
    let daemon = Daemon::start(dir, &config);
    let empty = daemon.command(&["node", "drain", "s0", "--wait"]);
    assert!(empty.contains("nothing is left on s0"), "{empty}");
    let listed = daemon.command(&["node", "list"]);
    assert!(listed.contains("drained"), "{listed}");
    daemon.command(&["node", "delete", "s0"]);
    daemon.stop();
    // Its disk is gone.
    fs::remove_file(dir.join("d0.img")).expect("it was there");
    let without = config.replace("[cluster]\n", "[cluster]\nstores = [\"s1\", \"s2\"]\n");
    let daemon = Daemon::start(dir, &without);
    tool(dir, "nbdcopy", &[&uri(dir, "vm1"), "out.img"]);
    same(&dir.join("later.img"), &dir.join("out.img"));
    let kept = daemon.command_bytes(&["volume", "export", "vm1@monday", "-"]);
    assert!(kept == fs::read(dir.join("in.img")).expect("it is there"));
    let trash = json(&daemon, &["trash", "list", "--json"]);
    assert_eq!(trash, Value::Array(Vec::new()), "an export leaves nothing");
    let repaired = json(&daemon, &["volume", "repair", "vm1", "--json"]);
    assert_eq!(repaired["volume"]["health"], "healthy", "{repaired}");
    assert_eq!(repaired["losses"], Value::Array(Vec::new()), "{repaired}");
    daemon.stop();
}

// --- three nodes --------------------------------------------------------------------------------------

/// Kills etcd when its input ends, however the test does.
const KEEPER: &str = "etcd \"$@\" >\"$DIR/etcd.log\" 2>&1 & pid=$!; echo $pid; read -r last; kill -9 $pid; wait $pid";

/// One member of etcd by itself.
pub struct Etcd(Child);

impl Etcd {
    pub fn start(dir: &Path, port: u16) -> Etcd {
        let peer = format!("http://127.0.0.1:{}", free_port());
        let url = format!("http://127.0.0.1:{port}");
        let data = dir.join("etcd");
        let mut child = Command::new("sh")
            .args(["-c", KEEPER, "keeper", "--data-dir"])
            .arg(data)
            .args([
                "--listen-client-urls",
                &url,
                "--advertise-client-urls",
                &url,
            ])
            .args([
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
            ])
            .args(["--initial-cluster", &format!("default={peer}")])
            .env("DIR", dir)
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut line = String::new();
        let said = child.stdout.take().expect("piped");
        BufReader::new(said)
            .read_line(&mut line)
            .expect("its number");
        Etcd(child)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        if let Some(mut input) = self.0.stdin.take() {
            let _ = input.write_all(b"\n");
        }
        let _ = self.0.wait();
    }
}

pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

pub fn node(root: &Path, name: &str, etcd: u16) -> String {
    format!(
        r#"
[[device]]
name = "d"
path = "d.img"
size = "256MiB"
[[store]]
name = "s-{name}"
device = "d"
listen = "unix:s.sock"
create = true
[cluster]
node = "{name}"
meta = {{ etcd = ["http://127.0.0.1:{etcd}"] }}
key_file = "{}/cluster.node"
nbd = "unix:disks.sock"
[admin]
listen = "unix:admin.sock"
"#,
        root.display()
    )
}

/// A node in a directory of its own.
pub fn start_node(root: &Path, name: &str, etcd: u16) -> Daemon {
    let dir = root.join(name);
    fs::create_dir_all(&dir).expect("the directory is ours");
    Daemon::start(&dir, &node(root, name, etcd))
}

/// Waits until so many stores are registered: etcd may come up later than the nodes.
pub async fn has_all_stores(daemon: &Daemon, count: usize) {
    for _ in 0..100 {
        let here: Value = json(daemon, &["node", "list", "--json"]);
        if here["stores"]
            .as_array()
            .is_some_and(|all| all.len() == count)
        {
            return;
        }
        env::sleep(Nanos::millis(200)).await;
    }
    panic!("there are no {count} stores");
}

async fn connect(dir: &Path) -> Rc<Client> {
    let options = ClientOptions {
        export: "vm1".to_owned(),
        timeout: Nanos::secs(90),
        ..ClientOptions::default()
    };
    let address = Address::Unix(dir.join("disks.sock"));
    let mut last = String::new();
    for _ in 0..60 {
        match Client::connect(&address, &options).await {
            Ok(client) => return Rc::new(client),
            // Another node's lease has to run out.
            Err(error) => last = error.to_string(),
        }
        env::sleep(Nanos::millis(500)).await;
    }
    panic!("no way to the volume: {last}");
}

/// Writes numbers into blocks, one after the other; answers what is known to be in each.
async fn write_some(
    client: &Client,
    blocks: &mut [u64],
    next: &mut u64,
    count: u64,
    rng: &mut Rng,
) {
    for _ in 0..count {
        let block = rng.below(blocks.len() as u64);
        *next += 1;
        let data = View::copy_of(&next.to_le_bytes().repeat(512));
        let written = client
            .write(Sector(block * 8), data, WriteFlags::default())
            .await;
        written.expect("a write through a node that is up is done");
        blocks[block as usize] = *next;
    }
    client.flush().await.expect("flushed");
}

async fn check(client: &Client, blocks: &[u64]) {
    for (block, number) in blocks.iter().enumerate() {
        let place = Sector(block as u64 * 8);
        let read = client
            .read(place, Buf::for_read(4096), Class::Foreground)
            .await;
        let read = read.expect("read");
        assert!(
            read[..] == number.to_le_bytes().repeat(512),
            "block {block} is not write {number}"
        );
    }
}

#[test]
fn when_any_one_of_three_nodes_is_killed_no_answered_write_is_lost() {
    if !have("etcd") {
        return;
    }
    let root = tempfile::tempdir().expect("a directory");
    let root = root.path();
    let port = free_port();
    let _etcd = Etcd::start(root, port);
    let [n1, n2, n3] = ["n1", "n2", "n3"].map(|name| start_node(root, name, port));
    let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
    let dirs = (root.join("n1"), root.join("n3"));
    let (first, third) = dirs;
    runtime.block_on(async move {
        has_all_stores(&n1, 3).await;
        n1.command(&[
            "volume",
            "create",
            "vm1",
            "--size",
            "32MiB",
            "--copies",
            "3",
            "--min-copies",
            "2",
        ]);
        let mut rng = Rng::from_seed(11);
        let (mut blocks, mut next) = (vec![0; 2048], 0);
        let client = connect(&first).await;
        write_some(&client, &mut blocks, &mut next, 300, &mut rng).await;
        // A node with copies, and no client.
        n2.kill();
        write_some(&client, &mut blocks, &mut next, 300, &mut rng).await;
        let health = json(&n1, &["volume", "show", "vm1", "--json"]);
        assert_eq!(health["health"], "degraded", "{health}");
        let n2 = start_again(&first, "n2");
        for _ in 0..120 {
            let health = json(&n1, &["volume", "show", "vm1", "--json"]);
            if health["health"] == "healthy" {
                break;
            }
            env::sleep(Nanos::millis(500)).await;
        }
        let health = json(&n1, &["volume", "show", "vm1", "--json"]);
        assert_eq!(health["health"], "healthy", "{health}");
        // The one that the client writes through.
        n1.kill();
        drop(client);
        let client = connect(&third).await;
        check(&client, &blocks).await;
        write_some(&client, &mut blocks, &mut next, 100, &mut rng).await;
        check(&client, &blocks).await;
        Rc::try_unwrap(client)
            .ok()
            .expect("ours alone")
            .close()
            .await;
        n2.stop();
        n3.stop();
    });
}

#[test]
fn nodes_send_each_other_load_reports_by_datagram_until_they_stop() {
    if !have("etcd") {
        return;
    }
    let root = tempfile::tempdir().expect("a directory");
    let root = root.path();
    let port = free_port();
    let _etcd = Etcd::start(root, port);
    let (one, two) = (free_udp_port(), free_udp_port());
    let peers = format!("peers = [\"127.0.0.1:{one}\", \"127.0.0.1:{two}\"]");
    let start = |name: &str, own: u16| {
        let dir = root.join(name);
        fs::create_dir_all(&dir).expect("the directory is ours");
        let announce = format!("announce = {{ listen = \"127.0.0.1:{own}\", {peers} }}\n[admin]");
        Daemon::start(&dir, &node(root, name, port).replace("[admin]", &announce))
    };
    let (n1, n2) = (start("n1", one), start("n2", two));
    let runtime = Runtime::real(RealConfig::default()).expect("a runtime");
    runtime.block_on(async move {
        for _ in 0..300 {
            if heard(&n1, "n2") >= 3 {
                break;
            }
            env::sleep(Nanos::millis(100)).await;
        }
        // An idle store says once in a second that it is idle.
        assert!(heard(&n1, "n2") >= 3 && heard(&n2, "n1") > 0);
        assert_eq!(
            heard(&n1, "n1"),
            0,
            "of its own stores it needs no datagrams"
        );
        let listed = n1.command(&["node", "list"]);
        assert!(listed.contains("ms ago"), "{listed}");
        let figures = n1.page("/metrics");
        let counts = "tanada_store_states_heard_total{store=\"s-n2\"}";
        assert!(figures.contains(counts), "{figures}");
        // Who has stopped says nothing more.
        n2.stop();
        let last = heard(&n1, "n2");
        env::sleep(Nanos::millis(2500)).await;
        assert_eq!(heard(&n1, "n2"), last);
        n1.stop();
    });
}

/// How often `daemon` heard of the stores of a node.
fn heard(daemon: &Daemon, of: &str) -> u64 {
    let here = json(daemon, &["node", "list", "--json"]);
    let stores = here["stores"].as_array().expect("a list").iter();
    let of = stores.filter(|it| it["node"] == of);
    of.filter_map(|it| it["states_heard"].as_u64()).sum()
}

fn free_udp_port() -> u16 {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.local_addr().expect("an address").port()
}

/// With the configuration that is there.
pub fn start_again(beside: &Path, name: &str) -> Daemon {
    let dir = beside.parent().expect("it has one").join(name);
    let config = fs::read_to_string(dir.join("tanada.toml")).expect("it is there");
    Daemon::start(&dir, &config)
}
