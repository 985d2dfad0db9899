//! Three nodes with a store each on a modelled disk, and etcd.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use env::net::Address;
use serde_json::Value;
use tempfile::TempDir;

use super::daemon::{Daemon, Running};

/// Ends etcd when its input ends, however this program does.
const KEEPER: &str =
    "etcd \"$@\" >etcd.log 2>&1 & pid=$!; echo $pid; read -r last; kill -9 $pid; wait $pid";

/// The cluster.
pub struct Nodes {
    // Daemons end before what they ask.
    daemons: Vec<Daemon>,
    _etcd: Running,
    root: TempDir,
    port: u16,
}

/// On what the stores are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Disks {
    /// The model, in memory: gone with its process.
    Modelled,
    /// Files that outlive it.
    Files,
    /// Memory that takes no time.
    Memory,
}

/// What a node is to be.
pub struct Node {
    /// Lines that say where its store listens; empty: it has no store.
    pub listen: String,
    /// More sections of its configuration.
    pub more: String,
}

/// What a cluster is to be.
pub struct Setting {
    pub disks: Disks,
    pub nodes: Vec<Node>,
    /// Where the folders of the nodes are: `n1`, `n2` and so on.
    pub root: TempDir,
}

impl Setting {
    /// Three nodes with a store each, at Unix sockets.
    pub fn of(disks: Disks) -> Result<Setting, Box<dyn Error>> {
        let node = |_| Node {
            listen: "listen = \"unix:s.sock\"\n".to_owned(),
            more: String::new(),
        };
        Ok(Setting {
            disks,
            nodes: (1..=3).map(node).collect(),
            root: tempfile::tempdir()?,
        })
    }

    fn config(&self, nth: usize, port: u16) -> String {
        let node = &self.nodes[nth - 1];
        let (disk, speed) = match self.disks {
            Disks::Files => ("path = \"d.img\"\nsize = \"256MiB\"", "60MB/s"),
            Disks::Modelled => ("model = \"disk.toml\"\nmemory = true", "60MB/s"),
            Disks::Memory => ("memory = true\nsize = \"1GiB\"", "1GB/s"),
        };
        let store = match &*node.listen {
            "" => String::new(),
            listen => format!(
                "[[device]]\nname = \"disk\"\n{disk}\n[[store]]\nname = \"s{nth}\"\ndevice = \"disk\"\n\
                 {listen}create = true\nread_speed = \"{speed}\"\nwrite_speed = \"{speed}\"\n"
            ),
        };
        format!(
            "{store}[cluster]\nnode = \"n{nth}\"\nmeta = {{ etcd = [\"http://127.0.0.1:{port}\"] }}\n\
             key_file = \"{}/cluster.node\"\nnbd = \"unix:disks.sock\"\n[admin]\nlisten = \"unix:admin.sock\"\n{}",
            self.root.path().display(),
            node.more
        )
    }
}

/// A port of loopback that nothing listens at.
pub fn free_port() -> Result<u16, Box<dyn Error>> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn start_etcd(root: &Path, port: u16) -> Result<Running, Box<dyn Error>> {
    let (url, peer) = (
        format!("http://127.0.0.1:{port}"),
        format!("http://127.0.0.1:{}", free_port()?),
    );
    let mut etcd = Command::new("sh");
    etcd.args(["-c", KEEPER, "keeper", "--data-dir", "etcd"])
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
        .args(["--initial-cluster", &format!("default={peer}")]);
    let mut etcd = etcd
        .current_dir(root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(etcd.stdout.take().expect("piped")).read_line(&mut line)?;
    Ok(Running(etcd))
}

impl Nodes {
    /// Three nodes with a store each.
    pub fn start(disks: Disks) -> Result<Nodes, Box<dyn Error>> {
        Nodes::with(Setting::of(disks)?)
    }

    /// Starts all of it, and waits until all stores are registered.
    pub fn with(setting: Setting) -> Result<Nodes, Box<dyn Error>> {
        let port = free_port()?;
        let etcd = start_etcd(setting.root.path(), port)?;
        let count = setting.nodes.len();
        let configs = (1..=count).map(|nth| setting.config(nth, port));
        let configs: Vec<String> = configs.collect();
        let stores = setting.nodes.iter().filter(|it| !it.listen.is_empty());
        let stores = stores.count();
        let mut nodes = Nodes {
            daemons: Vec::new(),
            _etcd: etcd,
            root: setting.root,
            port,
        };
        for (nth, config) in (1..).zip(&configs) {
            let daemon = Daemon::new(&nodes.dir(nth), config)?;
            nodes.daemons.push(daemon);
            nodes.begin(nth)?;
        }
        for _ in 0..100 {
            let known = nodes.json(1, &["node", "list", "--json"])?;
            if known["stores"]
                .as_array()
                .is_some_and(|all| all.len() == stores)
            {
                return Ok(nodes);
            }
            sleep(Duration::from_millis(200));
        }
        Err("the stores are not registered".into())
    }

    /// Where the folders of the nodes are.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// Where etcd answers.
    pub fn etcd(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// The key by which nodes come in at stores.
    pub fn key(&self) -> Result<[u8; 32], Box<dyn Error>> {
        let text = std::fs::read_to_string(self.root.path().join("cluster.node"))?;
        let mut key = [0; 32];
        for (byte, digits) in key.iter_mut().zip(text.trim().as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits)?, 16)?;
        }
        Ok(key)
    }

    /// Where store `s<nth>` listens at a Unix socket.
    pub fn store(&self, nth: usize) -> Address {
        Address::Unix(self.dir(nth).join("s.sock"))
    }

    /// Starts node `nth`.
    pub fn begin(&mut self, nth: usize) -> Result<(), Box<dyn Error>> {
        self.daemons[nth - 1].begin()
    }

    /// Kills node `nth`.
    pub fn kill(&mut self, nth: usize) {
        self.daemons[nth - 1].running = None;
    }

    pub fn dir(&self, nth: usize) -> PathBuf {
        self.root.path().join(format!("n{nth}"))
    }

    pub fn node(&self, nth: usize) -> &Daemon {
        &self.daemons[nth - 1]
    }

    pub fn text(&self, nth: usize, arguments: &[&str]) -> Result<String, Box<dyn Error>> {
        self.node(nth).text(arguments)
    }

    pub fn json(&self, nth: usize, arguments: &[&str]) -> Result<Value, Box<dyn Error>> {
        self.node(nth).json(arguments)
    }
}
