//! A real daemon in a directory of its own, on Unix sockets and free ports.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};

use base::Nanos;
use env::net::Address;
use front::nbd::{Client, ClientOptions};
use serde_json::Value;
use testkit::program;

pub use testkit::program::{stderr, without};

/// Two small devices in memory, one hybrid of them, and a plain device beside it.
pub const SMALL: &str = r#"
[[device]]
name = "slow"
path = "slow.img"
size = "64MiB"
[[device]]
name = "fast"
path = "fast.img"
size = "16MiB"
[[device]]
name = "plain"
memory = true
size = "8MiB"
[[hybrid]]
name = "vol0"
slow = "slow"
fast = "fast"
[[export]]
device = "vol0"
nbd = ["unix:vol0.sock", "127.0.0.1:0"]
[[export]]
device = "plain"
nbd = "unix:plain.sock"
[admin]
listen = ["unix:admin.sock", "127.0.0.1:0"]
"#;

/// Two stores, the first with a rate that can be promised, of a cluster that exports its volumes.
pub const TWO_STORES: &str = r#"
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
read_speed = "100MB/s"
write_speed = "100MB/s"
[[store]]
name = "s1"
device = "d1"
listen = "unix:s1.sock"
create = true
[cluster]
node = "n1"
nbd = "unix:disks.sock"
"#;

/// The program under test.
pub fn tanada(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tanada"));
    command
        .current_dir(dir)
        .env_remove("RUST_LOG")
        .env("TANADA_ADMIN", "unix:admin.sock");
    command
}

/// Runs the program to its end.
pub fn run(dir: &Path, arguments: &[&str]) -> Output {
    program::run(tanada(dir), arguments)
}

/// Runs the program, which must succeed; its output.
pub fn text(dir: &Path, arguments: &[&str]) -> String {
    program::text(tanada(dir), arguments)
}

/// As [`text`], read as JSON.
pub fn json(dir: &Path, arguments: &[&str]) -> Value {
    program::json(tanada(dir), arguments)
}

/// The header by which the owner of the daemon in `dir` commands it over TCP.
pub fn bearer(dir: &Path) -> String {
    let token = fs::read_to_string(dir.join("tanada-data/admin.token")).expect("made at the start");
    format!("Authorization: Bearer {}\r\n", token.trim_end())
}

/// Sends a process a signal, such as `TERM`.
pub fn signal(child: &Child, name: &str) {
    let done = Command::new("kill")
        .args([&format!("-{name}"), &child.id().to_string()])
        .status();
    assert!(done.expect("kill is there").success());
}

/// An NBD client of an export at a socket in `dir`; else why it is not let in.
pub async fn connect(dir: &Path, socket: &str, export: &str) -> Result<Client, String> {
    let options = ClientOptions {
        export: export.to_owned(),
        timeout: Nanos::secs(90),
        ..ClientOptions::default()
    };
    let address = Address::Unix(dir.join(socket));
    let client = Client::connect(&address, &options).await;
    client.map_err(|error| format!("{export}: {error}"))
}

/// One HTTP request over TCP: status code and body.
pub fn http(address: &str, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("the daemon listens");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("an HTTP answer");
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    (code, body.to_owned())
}

/// Asks `vol0` something with QEMU's client; `false` without QEMU's tools.
pub fn ask(dir: &Path, commands: &[&str]) -> bool {
    let mut command = Command::new("qemu-io");
    command.current_dir(dir).args(["-f", "raw"]);
    for line in commands {
        command.args(["-c", line]);
    }
    let Ok(output) = command.arg("nbd+unix:///vol0?socket=vol0.sock").output() else {
        without("qemu-io");
        return false;
    };
    assert!(output.status.success(), "{}", stderr(&output));
    true
}

/// A running daemon; killed when dropped.
pub struct Daemon {
    child: Child,
    /// What it printed when it was up.
    pub welcome: String,
    _stdout: BufReader<ChildStdout>,
    stderr: Option<ChildStderr>,
}

impl Daemon {
    /// Starts a daemon with `config` in `dir` and waits until it says it is up.
    pub fn start(dir: &Path, config: &str) -> Daemon {
        Daemon::start_by(tanada(dir), dir, config)
    }

    /// The same of another program, or in another environment.
    pub fn start_by(mut program: Command, dir: &Path, config: &str) -> Daemon {
        fs::write(dir.join("tanada.toml"), config).expect("the directory is ours");
        let mut child = program
            .current_dir(dir)
            .args(["serve", "tanada.toml"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut welcome = String::new();
        while !welcome.contains("Stop it with") {
            let read = stdout.read_line(&mut welcome).expect("its output is text");
            if read == 0 {
                let mut said = String::new();
                let mut stderr = child.stderr.take().expect("piped");
                stderr.read_to_string(&mut said).expect("its log is text");
                panic!("the daemon ended before it was up:\n{welcome}\n{said}");
            }
        }
        let stderr = child.stderr.take();
        Daemon {
            child,
            welcome,
            _stdout: stdout,
            stderr,
        }
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    /// Ends it with SIGTERM; its exit status and log.
    pub fn stop(mut self) -> (Option<i32>, String) {
        self.signal("TERM");
        self.ended()
    }

    /// Waits for its end.
    pub fn ended(&mut self) -> (Option<i32>, String) {
        let mut log = String::new();
        if let Some(mut stderr) = self.stderr.take() {
            stderr.read_to_string(&mut log).expect("its log is text");
        }
        let status = self.child.wait().expect("it is our child");
        (status.code(), log)
    }

    /// The TCP address of its admin API, from its welcome.
    pub fn admin_tcp(&self) -> String {
        let (_, rest) = self
            .welcome
            .split_once("curl http://")
            .expect("it listens on TCP");
        let (address, _) = rest.split_once('/').expect("an address and a path");
        address.to_owned()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
