//! Three nodes with a store each on a modelled disk, and etcd.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

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
    pub root: TempDir,
    port: u16,
    disks: Disks,
}

/// On what the stores are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Disks {
    /// The model, in memory: gone with its process.
    Modelled,
    /// Files that outlive it.
    Files,
}

fn free_port() -> Result<u16, Box<dyn Error>> {
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
    /// Starts all of it, and waits until the three stores are registered.
    pub fn start(disks: Disks) -> Result<Nodes, Box<dyn Error>> {
        let root = tempfile::tempdir()?;
        let port = free_port()?;
        let mut nodes = Nodes {
            _etcd: start_etcd(root.path(), port)?,
            daemons: Vec::new(),
            root,
            port,
            disks,
        };
        for nth in 1..=3 {
            let daemon = Daemon::new(&nodes.dir(nth), &nodes.config(nth))?;
            nodes.daemons.push(daemon);
            nodes.begin(nth)?;
        }
        for _ in 0..100 {
            let known = nodes.json(1, &["node", "list", "--json"])?;
            if known["stores"].as_array().is_some_and(|all| all.len() == 3) {
                return Ok(nodes);
            }
            sleep(Duration::from_millis(200));
        }
        Err("the three stores are not registered".into())
    }

    fn config(&self, nth: usize) -> String {
        let disk = match self.disks {
            Disks::Files => "path = \"d.img\"\nsize = \"256MiB\"",
            Disks::Modelled => "model = \"disk.toml\"\nmemory = true",
        };
        format!(
            "[[device]]\nname = \"disk\"\n{disk}\n[[store]]\nname = \"s{nth}\"\ndevice = \"disk\"\n\
             listen = \"unix:s.sock\"\ncreate = true\nread_speed = \"60MB/s\"\nwrite_speed = \"60MB/s\"\n\
             [cluster]\nnode = \"n{nth}\"\nmeta = {{ etcd = [\"http://127.0.0.1:{}\"] }}\n\
             key_file = \"{}/cluster.node\"\nnbd = \"unix:disks.sock\"\n[admin]\nlisten = \"unix:admin.sock\"\n",
            self.port,
            self.root.path().display()
        )
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
