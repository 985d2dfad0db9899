//! The S3 clients that people use, a day's work each, through a running daemon with a gateway over two stores on files:
//! what goes in comes out.
//!
//! A client that is not installed is skipped and says so; with `TANADA_REQUIRE_TOOLS=1` that is a failure. None reads
//! a configuration of the machine's: each has its `HOME`, its keys and its endpoint from the test.

mod aws;
mod boto;
mod rclone;
mod restic;
mod s3cmd;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ring::digest::{SHA256, digest};
use tempfile::TempDir;

use crate::common::{Daemon, stderr, without};
use crate::s3::{GATEWAY, key, url};

/// More than one part of any client: s3cmd's are of 15 MiB, awscli's of 8, rclone's here of 5.
const BIG: usize = (17 << 20) + 5;

/// What `cargo xtask setup` makes for tests in Python.
const PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/python/bin");

/// Where programs are looked for: of those in Python, the distribution's first.
fn path() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("/usr/bin:{path}:{PYTHON}")
}

/// Is the client there? If not, the test ends here.
fn has(program: &str) -> bool {
    let mut command = Command::new(program);
    let has = command.env("PATH", path()).arg("--version").output();
    if has.is_err() {
        without(program);
    }
    has.is_ok()
}

/// A daemon with a gateway, and a folder of its clients.
struct Served {
    dir: TempDir,
    daemon: Daemon,
    /// `http://127.0.0.1:PORT`
    url: String,
    id: String,
    secret: String,
}

impl Served {
    fn start() -> Served {
        let dir = tempfile::tempdir().unwrap();
        let daemon = Daemon::start(dir.path(), GATEWAY);
        let key = key(dir.path(), &[]);
        let (id, secret) = key.split_once(':').unwrap();
        fs::create_dir(dir.path().join("work")).unwrap();
        Served {
            daemon,
            url: url(dir.path()),
            id: id.to_owned(),
            secret: secret.to_owned(),
            dir,
        }
    }

    /// The folder that clients work in, and where they look for what is theirs.
    fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    /// Where the gateway listens, without `http://`.
    fn host(&self) -> &str {
        self.url.strip_prefix("http://").unwrap()
    }

    /// A client that knows the key, and nothing else of this machine.
    fn client(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.work()).env_clear();
        command.envs([
            ("PATH", path().as_str()),
            ("HOME", self.work().to_str().unwrap()),
            ("TMPDIR", self.dir.path().to_str().unwrap()),
            ("LANG", "C.UTF-8"),
            ("AWS_ACCESS_KEY_ID", &self.id),
            ("AWS_SECRET_ACCESS_KEY", &self.secret),
            ("AWS_DEFAULT_REGION", "us-east-1"),
            ("AWS_EC2_METADATA_DISABLED", "true"),
        ]);
        command
    }

    /// The daemon ends well, and found nothing wrong.
    fn stop(self) {
        let (code, log) = self.daemon.stop();
        assert_eq!(code, Some(0), "{log}");
        assert!(!log.contains("ERROR"), "{log}");
    }
}

/// Runs a client, which must succeed; what it printed.
fn said(command: &mut Command) -> String {
    let output = command.output().expect("the client starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let status = output.status;
    assert!(
        status.success(),
        "{command:?}: {status}\n{said}\n{}",
        stderr(&output)
    );
    said
}

/// Bytes that no two seeds have in common, and no compression makes fewer.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    env::Rng::from_seed(seed).fill(&mut bytes);
    bytes
}

fn write(folder: &Path, name: &str, bytes: &[u8]) {
    let file = folder.join(name);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, bytes).unwrap();
}

/// A folder of files with names that want escapes, small and large.
fn fill(folder: &Path) {
    for (seed, (name, len)) in [
        ("empty", 0),
        ("small", 10 << 10),
        ("with spaces/a b  c.txt", 100),
        ("Grüße/Käse und Öl.txt", 20_000),
        ("signs/a+b&c=d%20e#f;g'h,(i)@j~k.txt", 300),
        ("日本/棚田.bin", 100_000),
        ("deep/er/and/deeper/x", 1),
        ("big", BIG),
    ]
    .into_iter()
    .enumerate()
    {
        write(folder, name, &bytes(seed as u64, len));
    }
}

/// The SHA-256 of each file in a folder, and in those within.
fn sums(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut sums = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_owned();
                sums.insert(name, sum(&path));
            }
        }
    }
    sums
}

/// The SHA-256 of a file.
fn sum(file: &Path) -> Vec<u8> {
    let bytes = fs::read(file).unwrap();
    digest(&SHA256, &bytes).as_ref().to_vec()
}
