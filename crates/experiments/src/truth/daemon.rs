//! The daemon of a real run: `tanada serve` in a folder of its own, asked by its own commands.
//!
//! ```text
//! configuration -> tanada.toml -> tanada serve -> "Stop it with" -> sockets in the folder -> tanada status --json -> bytes
//! ```
//!
//! Always true: a daemon that was dropped has ended, and its folder is gone.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use env::net::Address;
use serde_json::Value;

use super::common::Trouble;
use super::sample::Count;
use crate::app::process::{Process, Stop, await_that, bound, room};

/// The program, as its package builds it.
const NAME: &str = "tanada";
/// How long it may take to be up.
const START: Duration = Duration::from_secs(60);
/// How long it may take to end.
const END: Duration = Duration::from_secs(30);
/// What it prints when clients may come.
const UP: &str = "Stop it with";

/// Where the program is: beside this one.
///
/// # Errors
/// A sentence that says how to build it.
pub(super) fn program() -> Result<PathBuf, String> {
    let own = std::env::current_exe()
        .map_err(|error| format!("cannot find the folder of this program: {error}"))?;
    let program = beside(&own);
    match program.is_file() {
        true => Ok(program),
        false => Err(missing(&program)),
    }
}

/// Tests run one folder below the programs.
fn beside(own: &Path) -> PathBuf {
    let folder = own.parent().unwrap_or(Path::new("."));
    match folder.file_name() {
        Some(name) if name == "deps" => folder.with_file_name(NAME),
        _ => folder.join(NAME),
    }
}

fn missing(program: &Path) -> String {
    let release = match cfg!(debug_assertions) {
        true => "",
        false => "--release ",
    };
    format!(
        "the daemon is measured, and there is no {}; build it with `cargo build {release}-p tanada -p lab`, or install it in the \
         folder of this program",
        program.display()
    )
}

/// A running daemon.
pub(super) struct Daemon {
    program: PathBuf,
    process: Process,
    folder: tempfile::TempDir,
}

impl Daemon {
    /// Starts it and waits until clients may come.
    ///
    /// # Errors
    /// What it said when it ended, or that it was not up in time.
    pub fn start(program: &Path, configuration: &str, stop: &Stop) -> Result<Daemon, Trouble> {
        let folder = room("truth").map_err(|error| format!("cannot make a folder: {error}"))?;
        let made = |name: &str| {
            let file = File::create(folder.path().join(name));
            file.map_err(|error| format!("cannot write {name}: {error}"))
        };
        fs::write(folder.path().join("tanada.toml"), configuration)
            .map_err(|error| format!("cannot write tanada.toml: {error}"))?;
        let mut command = bound(program, None);
        command
            .args(["serve", "tanada.toml"])
            .current_dir(folder.path())
            .env_remove("RUST_LOG")
            .env_remove("TANADA_ADMIN")
            .stdout(made("said")?)
            .stderr(made("log")?);
        let process = Process::start(command, END)
            .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        let mut daemon = Daemon {
            program: program.to_owned(),
            process,
            folder,
        };
        let mut ended = false;
        let is_up = await_that(START, stop, || {
            ended = !matches!(daemon.process.ended(), Ok(None));
            ended || daemon.said("said").contains(UP)
        });
        match (is_up, ended) {
            (true, false) => Ok(daemon),
            _ if stop.is_set() => Err(Trouble::Interrupted),
            (true, true) => Err(format!("the daemon ended: {}", daemon.said("log").trim()).into()),
            (false, _) => Err(format!(
                "the daemon was not up after {} s: {}",
                START.as_secs(),
                daemon.said("log").trim()
            )
            .into()),
        }
    }

    fn said(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }

    /// One of its sockets.
    pub fn socket(&self, name: &str) -> Address {
        Address::Unix(self.folder.path().join(format!("{name}.sock")))
    }

    /// What a command of the program prints.
    ///
    /// # Errors
    /// What it said, where it printed nothing.
    pub fn command(&self, words: &[&str]) -> Result<String, Trouble> {
        let done = Command::new(&self.program)
            .args(words)
            .current_dir(self.folder.path())
            .env("TANADA_ADMIN", "unix:admin.sock")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("cannot start {}: {error}", self.program.display()))?;
        if done.stdout.is_empty() {
            let (said, words) = (String::from_utf8_lossy(&done.stderr), words.join(" "));
            return Err(format!("`tanada {words}` said: {}", said.trim()).into());
        }
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    }

    /// Everything it has counted. A daemon that complains of something says the same.
    ///
    /// # Errors
    /// As of a command.
    pub fn counts(&self, devices: &[String], hybrid: bool) -> Result<Vec<Count>, Trouble> {
        let text = self.command(&["status", "--json"])?;
        let status: Value = serde_json::from_str(&text)
            .map_err(|error| format!("the daemon's status is no JSON: {error}"))?;
        Ok(counted(&status, devices, hybrid)?)
    }
}

/// Bytes of each device, and those that the fast one of the hybrid served.
fn counted(status: &Value, devices: &[String], hybrid: bool) -> Result<Vec<Count>, String> {
    let of = |list: &Value, name: &str| {
        let all = list.as_array().map_or(&[][..], Vec::as_slice);
        let found = all.iter().find(|it| it["name"] == name).cloned();
        found.ok_or_else(|| format!("the daemon's status has no {name}"))
    };
    let mut counts = Vec::new();
    for name in devices {
        let device = of(&status["devices"], name)?;
        let operations = device["figures"]["operations"].as_array();
        let operations = operations.map_or(&[][..], Vec::as_slice);
        for (op, what) in [("read", "read"), ("write", "written")] {
            let ours = operations.iter().filter(|it| it["op"] == op);
            let bytes = ours.filter_map(|it| it["bytes"].as_u64()).sum();
            counts.push(Count::new(&format!("{name}_{what}"), bytes));
        }
    }
    if hybrid {
        let cache = &of(&status["volumes"], super::setup::VOLUME)?["cache"];
        let reads = ["random_reads", "sequential_reads"];
        let bytes = reads.map(|reads| cache[reads]["bytes_fast"].as_u64());
        let [Some(random), Some(sequential)] = bytes else {
            return Err("the daemon's status has no hits".to_owned());
        };
        counts.push(Count::new("hit", random + sequential));
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_daemon_is_looked_for_beside_the_program() {
        let own = Path::new("/opt/tanada/bin/tanada-lab");
        assert_eq!(beside(own), Path::new("/opt/tanada/bin/tanada"));
        let test = Path::new("/build/debug/deps/experiments-1234");
        assert_eq!(beside(test), Path::new("/build/debug/tanada"));
        let said = missing(Path::new("/opt/tanada/bin/tanada"));
        assert!(said.contains("there is no /opt/tanada/bin/tanada; build it with `cargo build"));
    }

    #[test]
    fn bytes_of_all_classes_count_and_hits_are_reads_from_the_fast_device() {
        let operation = |op, bytes| json!({"op": op, "bytes": bytes});
        let status = json!({
            "devices": [{"name": "hdd0", "figures": {"operations": [
                operation("read", 5), operation("read", 7), operation("write", 11), operation("flush", 0),
            ]}}],
            "volumes": [{"name": "vol0", "cache": {
                "random_reads": {"bytes_fast": 2, "bytes_slow": 9},
                "sequential_reads": {"bytes_fast": 3, "bytes_slow": 9},
            }}],
        });
        let counts = counted(&status, &["hdd0".to_owned()], true).unwrap();
        let expected = [("hdd0_read", 12), ("hdd0_written", 11), ("hit", 5)];
        assert_eq!(
            counts,
            expected.map(|(name, bytes)| Count::new(name, bytes))
        );
        let why = counted(&status, &["ssd0".to_owned()], false).unwrap_err();
        assert_eq!(why, "the daemon's status has no ssd0");
    }
}
