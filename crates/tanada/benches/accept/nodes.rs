//! Three nodes with a store each on a modelled disk, and etcd.

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use base::Nanos;
use env::{RealConfig, Runtime};
use serde_json::Value;
use tempfile::TempDir;

/// One request at a time, so that it is as fast as it says, whichever client asks.
const DISK: &str = r#"
name = "sixty"
about = "one request at a time, 60 MB/s either way"
size = { value = "1GiB", source = "choice" }
physical_block = { value = 4096, source = "choice" }
max_io = { value = "1MiB", source = "choice" }
[sources]
choice = "made for this measurement"
[constant]
read_us = { value = [[4096, 50], [1048576, 60]], source = "choice" }
write_us = { value = [[4096, 50], [1048576, 60]], source = "choice" }
parallel = { value = 1, source = "choice" }
read_mb_s = { value = 60, source = "choice" }
write_mb_s = { value = 60, source = "choice" }
[power]
idle_watts = { value = 1, source = "choice" }
read_watts = { value = 1, source = "choice" }
write_watts = { value = 1, source = "choice" }
"#;

/// Ends etcd when its input ends, however this program does.
const KEEPER: &str =
    "etcd \"$@\" >etcd.log 2>&1 & pid=$!; echo $pid; read -r last; kill -9 $pid; wait $pid";

/// Killed with what holds it.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The cluster.
pub struct Nodes {
    pub root: TempDir,
    nodes: Vec<Option<Running>>,
    _etcd: Running,
    runtime: Runtime,
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
            root,
            nodes: Vec::new(),
            runtime: Runtime::real(RealConfig::default())?,
            port,
            disks,
        };
        for nth in 1..=3 {
            nodes.nodes.push(None);
            nodes.begin(nth)?;
        }
        for _ in 0..100 {
            let known = nodes.json(1, &["node", "list", "--json"])?;
            if known["stores"].as_array().is_some_and(|all| all.len() == 3) {
                return Ok(nodes);
            }
            nodes.sleep(Nanos::millis(200));
        }
        Err("the three stores are not registered".into())
    }

    /// Starts node `nth`.
    pub fn begin(&mut self, nth: usize) -> Result<(), Box<dyn Error>> {
        let dir = self.dir(nth);
        fs::create_dir_all(&dir)?;
        fs::write(dir.join("disk.toml"), DISK)?;
        let disk = match self.disks {
            Disks::Files => "path = \"d.img\"\nsize = \"256MiB\"",
            Disks::Modelled => "model = \"disk.toml\"\nmemory = true",
        };
        let config = format!(
            "[[device]]\nname = \"disk\"\n{disk}\n[[store]]\nname = \"s{nth}\"\ndevice = \"disk\"\n\
             listen = \"unix:s.sock\"\ncreate = true\nread_speed = \"60MB/s\"\nwrite_speed = \"60MB/s\"\n\
             [cluster]\nnode = \"n{nth}\"\nmeta = {{ etcd = [\"http://127.0.0.1:{}\"] }}\n\
             key_file = \"{}/cluster.node\"\nnbd = \"unix:disks.sock\"\n[admin]\nlisten = \"unix:admin.sock\"\n",
            self.port,
            self.root.path().display()
        );
        fs::write(dir.join("t.toml"), config)?;
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(dir.join("log"))?;
        let mut daemon = self
            .tanada(nth, &["serve", "t.toml"])
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()?;
        let mut lines = BufReader::new(daemon.stdout.take().expect("piped")).lines();
        self.nodes[nth - 1] = Some(Running(daemon));
        while !lines
            .next()
            .ok_or("the daemon ended")??
            .contains("Stop it with")
        {}
        Ok(())
    }

    /// Kills node `nth`.
    pub fn kill(&mut self, nth: usize) {
        self.nodes[nth - 1] = None;
    }

    pub fn dir(&self, nth: usize) -> PathBuf {
        self.root.path().join(format!("n{nth}"))
    }

    pub fn sleep(&self, span: Nanos) {
        self.runtime.block_on(async move { env::sleep(span).await });
    }

    pub fn tanada(&self, nth: usize, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tanada"));
        command
            .current_dir(self.dir(nth))
            .env("TANADA_ADMIN", "unix:admin.sock")
            .env_remove("TANADA_CAPABILITY")
            .stdin(Stdio::null())
            .args(arguments);
        command
    }

    pub fn run(&self, nth: usize, arguments: &[&str]) -> Result<Output, Box<dyn Error>> {
        Ok(self.tanada(nth, arguments).output()?)
    }

    /// What a command prints; it must succeed.
    pub fn text(&self, nth: usize, arguments: &[&str]) -> Result<String, Box<dyn Error>> {
        let done = self.run(nth, arguments)?;
        match done.status.success() {
            true => Ok(String::from_utf8(done.stdout)?),
            false => {
                let why = String::from_utf8_lossy(&done.stderr).into_owned();
                Err(format!("tanada {arguments:?}: {why}").into())
            }
        }
    }

    pub fn json(&self, nth: usize, arguments: &[&str]) -> Result<Value, Box<dyn Error>> {
        Ok(serde_json::from_str(&self.text(nth, arguments)?)?)
    }

    /// Tells what a thread feeds to the standard input of a command.
    pub fn feed(&self, nth: usize, arguments: &[&str], bytes: &[u8]) -> Result<(), Box<dyn Error>> {
        let mut command = self.tanada(nth, arguments);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        child.stdin.take().expect("piped").write_all(bytes)?;
        match child.wait()?.success() {
            true => Ok(()),
            false => Err(format!("tanada {arguments:?} failed").into()),
        }
    }
}
