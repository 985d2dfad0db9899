//! Capabilities end while their clients read: when does the last byte come?
//!
//! ```text
//! object get at store s1 of node 1 -> when bytes came
//! the end: a cancel at node 2, or the slot is over
//! ```
//!
//! Always true: a client counts only if bytes came until the end, and if it says why they came no more.

use std::error::Error;
use std::io::Read;
use std::process::Stdio;
use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::nodes::{Disks, Nodes};
use super::report::{Bar, Report};

/// Cancels, and as many ends.
const CUTS: usize = 100;
/// Clients that read at a time.
const AT_ONCE: usize = 5;
/// What each of them must have had before the end, and how late before it.
const BYTES: usize = 1 << 20;
const FLOWING: Duration = Duration::from_millis(500);

/// A client that reads until it is cut.
struct Reading {
    client: JoinHandle<Result<Had, String>>,
    name: String,
    /// When its slot is over.
    until: u64,
}

/// What a client had.
struct Had {
    /// When, and how many bytes until then.
    came: Vec<(Instant, usize)>,
    /// What it said when no more came.
    said: String,
}

/// What was seen of all cuts of one way.
#[derive(Default)]
struct Tally {
    /// Seconds from the end to the last byte.
    last: Vec<f64>,
    /// Clients that were not reading at the end.
    idle: usize,
    /// Clients that did not say that their rights are over.
    silent: Vec<String>,
}

impl Tally {
    fn note(&mut self, read: &Had, end: Instant) {
        let before = read.came.iter().rev().find(|(at, _)| *at <= end);
        let flowing =
            before.is_some_and(|(at, bytes)| *bytes >= BYTES && end.duration_since(*at) <= FLOWING);
        self.idle += usize::from(!flowing);
        if let Some((last, _)) = read.came.last() {
            self.last
                .push(last.saturating_duration_since(end).as_secs_f64());
        }
        if !read.said.contains("is over, and") {
            self.silent.push(read.said.clone());
        }
    }

    fn rows(&self, report: &mut Report, what: &str) {
        let most = self.last.iter().copied().fold(0.0, f64::max);
        report.row(
            &format!("latest last byte after {CUTS} {what}"),
            most,
            "s",
            Bar::Most(1.0),
        );
        report.row(
            &format!("{what}: clients that bytes came to until the end"),
            (self.last.len() - self.idle) as f64,
            "",
            Bar::Exactly(CUTS as f64),
        );
        report.row(
            &format!("{what}: clients that were not told why"),
            self.silent.len() as f64,
            "",
            Bar::Exactly(0.0),
        );
        if let Some(said) = self.silent.first() {
            report.note(said.trim());
        }
    }
}

/// Reserves reads at s1 of the objects in `cut/` for so long, and reads with the capability.
fn reading(nodes: &Nodes, name: String, span: &str) -> Result<Reading, Box<dyn Error>> {
    let asked = json!({
        "name": name,
        "target": { "stores": ["s1"], "scope": "cut/" },
        "read": "5MB/s",
        "for": span,
    });
    let made = nodes.node(1).connect()?.made("/v2/reservations", &asked)?;
    let until = made["until_unix_seconds"].as_u64().ok_or("an end")?;
    let set = made["capability"].as_str().ok_or("a capability")?;
    let get = [
        "object",
        "get",
        "cut/big",
        "-",
        "--store",
        "unix:s.sock",
        "--capability",
        set,
    ];
    let mut client = nodes.node(1).tanada(&get);
    let client = client
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let client = Builder::new().spawn(move || read(client).map_err(|error| error.to_string()))?;
    Ok(Reading {
        client,
        name,
        until,
    })
}

fn read(mut client: std::process::Child) -> Result<Had, Box<dyn Error>> {
    let mut output = client.stdout.take().ok_or("piped")?;
    let (mut came, mut bytes) = (Vec::new(), 0);
    let mut buf = vec![0; 64 << 10];
    while let Ok(more @ 1..) = output.read(&mut buf) {
        bytes += more;
        came.push((Instant::now(), bytes));
    }
    let mut said = String::new();
    client
        .stderr
        .take()
        .ok_or("piped")?
        .read_to_string(&mut said)?;
    match client.wait()?.success() {
        true => Err("it was read to its end before it was cut".into()),
        false => Ok(Had { came, said }),
    }
}

impl Reading {
    /// Cancels it at node 2; when that was asked.
    fn cancel(&self, nodes: &Nodes) -> Result<Instant, Box<dyn Error>> {
        let mut http = nodes.node(2).connect()?;
        let asked = Instant::now();
        let path = format!("/v2/reservations/{}", self.name);
        let (status, answer) = http.ask("DELETE", &path, &Value::Null)?;
        match status {
            200..300 => Ok(asked),
            _ => Err(format!("{path}: status {status}: {answer}").into()),
        }
    }

    /// When its slot is over.
    fn end(&self) -> Result<Instant, Box<dyn Error>> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        Ok(Instant::now() + Duration::from_secs(self.until).saturating_sub(now))
    }

    fn joined(self) -> Result<Had, Box<dyn Error>> {
        Ok(self.client.join().map_err(|_| "the reader panicked")??)
    }
}

pub fn cut(report: &mut Report) -> Result<(), Box<dyn Error>> {
    let nodes = Nodes::start(Disks::Modelled)?;
    let key = nodes.dir(1).join("../cluster.node");
    let key = key.to_str().ok_or("a path")?;
    let put = [
        "object",
        "put",
        "-",
        "cut/big",
        "--store",
        "unix:s.sock",
        "--node-key",
        key,
    ];
    nodes.node(1).feed(&put, &vec![7; 400 << 20])?;
    for (what, span) in [("cancels", "1h"), ("ends", "3s")] {
        let mut tally = Tally::default();
        for batch in 0..CUTS / AT_ONCE {
            let named = |nth| format!("{what}{batch}-{nth}");
            let all = (0..AT_ONCE).map(|nth| reading(&nodes, named(nth), span));
            let all: Vec<Reading> = all.collect::<Result<_, _>>()?;
            // Until bytes have come to all of them.
            sleep(Duration::from_secs(1));
            let ends = all.iter().map(|it| match what {
                "cancels" => it.cancel(&nodes),
                _ => it.end(),
            });
            let ends: Vec<Instant> = ends.collect::<Result<_, _>>()?;
            for (reading, end) in all.into_iter().zip(ends) {
                tally.note(&reading.joined()?, end);
            }
        }
        tally.rows(report, what);
    }
    Ok(())
}
