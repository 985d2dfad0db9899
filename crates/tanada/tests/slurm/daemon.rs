//! A real daemon whose reservation service jobs are booked at.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use crate::common::{run, stderr, tanada};

/// One node with a store, its records in a file.
const CONFIG: &str = r#"
[[device]]
name = "d0"
path = "d0.img"
size = "256MiB"
[[store]]
name = "s0"
device = "d0"
listen = "unix:s0.sock"
create = true
read_speed = "100MB/s"
write_speed = "100MB/s"
[cluster]
node = "n1"
[admin]
listen = "unix:admin.sock"
"#;

/// A running daemon; killed when dropped.
pub struct Daemon(Child);

impl Daemon {
    /// Starts one in `dir`, at `admin.sock`; `None`, and words, where it has no reservation service.
    pub fn start(dir: &Path) -> Option<Daemon> {
        Daemon::start_with(dir, "unix:s0.sock", "")
    }

    /// The same with its store at this address, and with more configuration.
    pub fn start_with(dir: &Path, store: &str, more: &str) -> Option<Daemon> {
        let config = CONFIG.replace("unix:s0.sock", store) + more;
        fs::write(dir.join("tanada.toml"), config).unwrap();
        let log = fs::File::create(dir.join("daemon.log")).unwrap();
        let mut command = tanada(dir);
        command
            .args(["serve", "tanada.toml"])
            .stdout(Stdio::piped())
            .stderr(log);
        let mut daemon = Daemon(command.spawn().unwrap());
        let mut out = BufReader::new(daemon.0.stdout.take().unwrap());
        let mut welcome = String::new();
        while !welcome.contains("Stop it with") {
            let read = out.read_line(&mut welcome).unwrap();
            let log = || fs::read_to_string(dir.join("daemon.log")).unwrap();
            assert!(read > 0, "the daemon ended:\n{welcome}\n{}", log());
        }
        let listed = run(dir, &["reservation", "list"]);
        if listed.status.success() {
            return Some(daemon);
        }
        let said = stderr(&listed);
        assert!(
            said.contains("there is nothing at /v2/reservations"),
            "{said}"
        );
        println!("skipped: this daemon has no reservation service");
        None
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
