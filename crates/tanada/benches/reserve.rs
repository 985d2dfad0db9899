//! Do reserved clients get what they reserved, over TCP, beside greedy ones?
//!
//! ```text
//! tanada serve (a modelled disk of 60 MB/s, in real time) <- object get, 26 MB/s reserved
//!                                                         <- object get, 13 MB/s reserved
//!                                                         <- object get twice, without, as fast as they can
//! ```
//!
//! The real program throughout. What a session got is what the store counted while all of them asked; what is left of the
//! device goes to those who ask, in the ratio of their rates, so a reserved one may get more than it reserved.
//!
//! Modelled: the disk. Real: time, processes, sockets.
//!
//! `cargo bench -p tanada --bench reserve -- [SCHEDULER...] [--json]`.

#[path = "../../../benches/figures.rs"]
mod figures;

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use figures::Results;
use serde_json::Value;

/// What each store is on.
const DISK: &str = include_str!("../../../benches/sixty.toml");

const CONFIG: &str = r#"
[[device]]
name = "disk"
model = "disk.toml"
memory = true
[[store]]
name = "s0"
device = "disk"
listen = "127.0.0.1:0"
create = true
unauthenticated = true
scheduler = "@scheduler@"
[admin]
listen = "unix:admin.sock"
"#;

/// Bytes of each object: what its client can get while all ask.
const OBJECTS: [(&str, usize); 3] = [
    ("two", 440 << 20),
    ("one", 220 << 20),
    ("greedy", 128 << 20),
];
const RATES: [(&str, u64); 2] = [("two", 26), ("one", 13)];
/// How long what they get is counted.
const COUNTED: &str = "7s";

fn main() -> Result<(), Box<dyn Error>> {
    let schedulers: Vec<String> = std::env::args()
        .skip(1)
        .filter(|it| !it.starts_with('-'))
        .collect();
    let schedulers = match schedulers.is_empty() {
        true => vec!["tags".to_owned(), "fifo".to_owned()],
        false => schedulers,
    };
    let mut figures = Results::new("reserve");
    figures.say(&format!(
        "a modelled disk of 60 MB/s, clients over TCP on loopback, {COUNTED} counted"
    ));
    figures.say(
        "scheduler  client  reserved MB/s  got MB/s  got/reserved  windows kept  by device  by others",
    );
    for scheduler in schedulers {
        measure(&mut figures, &scheduler)?;
    }
    figures.finish();
    Ok(())
}

/// Ended with what holds it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn tanada(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tanada"));
    command
        .current_dir(dir)
        .env("TANADA_ADMIN", "unix:admin.sock")
        .env_remove("TANADA_CAPABILITY")
        .args(arguments);
    command
}

fn output(dir: &Path, arguments: &[&str]) -> Result<String, Box<dyn Error>> {
    let done = tanada(dir, arguments).stderr(Stdio::null()).output()?;
    match done.status.success() {
        true => Ok(String::from_utf8(done.stdout)?),
        false => Err(format!("tanada {arguments:?} failed: {}", done.status).into()),
    }
}

fn measure(figures: &mut Results, scheduler: &str) -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let dir = dir.path();
    fs::write(dir.join("disk.toml"), DISK)?;
    fs::write(dir.join("t.toml"), CONFIG.replace("@scheduler@", scheduler))?;
    let mut daemon = tanada(dir, &["serve", "t.toml"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut lines = BufReader::new(daemon.stdout.take().expect("piped")).lines();
    let daemon = Running(daemon);
    while !lines
        .next()
        .ok_or("the daemon ended")??
        .contains("Stop it with")
    {}
    for (name, length) in OBJECTS {
        let file = dir.join(name);
        let mut random = fs::File::open("/dev/urandom")?.take(length as u64);
        std::io::copy(&mut random, &mut fs::File::create(&file)?)?;
        output(dir, &["object", "put", name])?;
        fs::remove_file(file)?;
    }
    let mut clients = Vec::new();
    for (name, rate) in RATES {
        let rate = format!("{rate}MB/s");
        let ask = [
            "reserve", "add", "--store", "s0", "--read", &rate, "--for", "1h", "--holder", name,
            "--scope", name,
        ];
        let token = output(dir, &ask)?;
        clients.push(get(dir, name, Some(token.trim()))?);
    }
    for _ in 0..2 {
        clients.push(get(dir, "greedy", None)?);
    }
    // The first second is that of the beginning.
    output(dir, &["top", "--once", "--json", "--interval", "1s"])?;
    let frame = output(dir, &["top", "--once", "--json", "--interval", COUNTED])?;
    let frame: Value = serde_json::from_str(&frame)?;
    let sessions = frame["sessions"].as_array().ok_or("no sessions")?;
    for (name, rate) in RATES {
        let session = sessions.iter().find(|it| it["holder"] == name);
        let session = session.ok_or("a reserved client was done too early")?;
        let got = session["delivered_bytes_per_second"]
            .as_f64()
            .ok_or("no rate")?
            / 1e6;
        let count = |key: &str| session[key].as_u64().unwrap_or(0);
        let windows = ["kept", "violated_capacity", "violated_scheduler"].map(count);
        let [kept, by_device, by_others] = windows;
        figures.say(&format!(
            "{scheduler:<11}{name:<8}{rate:>13}{got:>10.1}{:>14.3}{kept:>14}{by_device:>11}{by_others:>11}",
            got / rate as f64
        ));
        let case = format!("{rate} MB/s reserved");
        figures.add((&case, scheduler, "got", "MB/s"), &[got], "emulated");
        let violated = (by_device + by_others) as f64;
        let all = kept as f64 + violated;
        let metric = "windows violated";
        figures.add((&case, scheduler, metric, ""), &[violated], "emulated");
        figures.add((&case, scheduler, "windows", ""), &[all], "emulated");
    }
    let others = sessions.iter().filter(|it| it["reservation"].is_null());
    let got: f64 = others
        .filter_map(|it| it["delivered_bytes_per_second"].as_f64())
        .sum();
    let got = got / 1e6;
    figures.say(&format!(
        "{scheduler:<11}{:<8}{:>13}{got:>10.1}",
        "greedy", "-"
    ));
    let case = "two without, together";
    figures.add((case, scheduler, "got", "MB/s"), &[got], "emulated");
    drop(clients);
    drop(daemon);
    Ok(())
}

fn get(dir: &Path, object: &str, token: Option<&str>) -> Result<Running, Box<dyn Error>> {
    let mut arguments = vec!["object", "get", object, "/dev/null"];
    if let Some(token) = token {
        arguments.extend(["--capability", token]);
    }
    let child = tanada(dir, &arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    Ok(Running(child))
}
