//! What is never exceeded: an account's quota, a cap, the scope of a capability; and what is offered is granted.

use std::error::Error;
use std::thread::sleep;
use std::time::Duration;

use env::Rng;
use serde_json::{Value, json};

use super::Report;
use super::daemon::{Daemon, post};
use super::load::{Load, Pattern, Target, fill};
use super::nodes::{Disks, Nodes};
use super::windows::{seconds, volumes};

/// Requests at once.
const CLIENTS: usize = 64;
/// Of which so many fit the account's quota.
const FIT: usize = 10;
/// Drawn calendars.
const CALENDARS: u64 = 40;

pub fn quota(report: &mut Report) -> Result<(), Box<dyn Error>> {
    let nodes = Nodes::start(Disks::Modelled)?;
    nodes.text(
        1,
        &[
            "account", "create", "astro", "--role", "booker", "--rate", "100MB/s",
        ],
    )?;
    let mut asking = Vec::new();
    for nth in 0..CLIENTS {
        let mut socket = nodes.node(1 + nth % 3).connect()?;
        let asked = json!({
            "name": format!("job{nth}"),
            "account": "astro",
            "target": { "stores": [format!("s{}", 1 + nth / 3 % 3)], "scope": "a/" },
            "read": "10MB/s",
            "for": "1h",
        });
        let thread = std::thread::Builder::new().spawn(move || {
            let answer = post(&mut socket, "/v2/reservations", &asked);
            answer.map(|(status, _)| status).unwrap_or(0)
        })?;
        asking.push(thread);
    }
    let mut granted = 0;
    for thread in asking {
        let status = thread.join().map_err(|_| "a client panicked")?;
        granted += usize::from(status == 201);
    }
    let all = nodes.json(1, &["reservation", "list", "--json"])?;
    let all = all.as_array().ok_or("a list")?.iter();
    let standing = all.filter(|it| it["state"] == "committed");
    let rate: u64 = standing
        .filter_map(|it| it["read_bytes_per_second"].as_u64())
        .sum();
    let rate = rate as f64 / 1e6;
    report.row(
        (
            "quota",
            "booked of 100 MB/s by 64 clients at three nodes",
            "MB/s",
        ),
        &[rate],
        "<= 100",
        rate <= 100.0,
    );
    report.row(
        ("quota", "answered as made, of 10 that fit", ""),
        &[granted as f64],
        "1 to 10",
        (1..=FIT).contains(&granted) && granted as f64 * 10.0 <= rate,
    );
    Ok(())
}

const CAPPED: &str = r#"
[[device]]
name = "disk"
memory = true
size = "256MiB"
[[export]]
device = "disk"
name = "rate"
nbd = "unix:disks.sock"
max_read = "20MB/s"
[[export]]
device = "disk"
name = "filling"
nbd = "unix:disks.sock"
[[export]]
device = "disk"
name = "count"
nbd = "unix:disks.sock"
max_read_iops = 500
[admin]
listen = "unix:admin.sock"
"#;

pub fn caps(report: &mut Report) -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let mut daemon = Daemon::new(dir.path(), CAPPED)?;
    daemon.begin()?;
    for (export, cap, depth) in [("rate", 20.0, 8), ("count", 500.0 * 0.262_144, 8)] {
        let target = Target {
            socket: daemon.dir.join("disks.sock"),
            export: export.to_owned(),
            from: 0,
            size: 256 << 20,
        };
        // Holes are answered without data.
        if export == "rate" {
            fill(&Target {
                export: "filling".to_owned(),
                ..target.clone()
            });
        }
        let load = Load::start(&[target.clone(), target], depth, Pattern::Random);
        sleep(Duration::from_secs(3));
        let got = seconds(&load, 60);
        let tens = got.windows(10).map(|ten| ten.iter().sum::<f64>() / 10.0);
        let most = tens.clone().fold(0.0, f64::max);
        let least = tens.fold(f64::MAX, f64::min);
        // The burst is a second's worth.
        let bar = cap * 1.02 + cap / 10.0;
        report.row(
            (
                "caps",
                &format!("most in 10 s of export {export}, two clients"),
                "MB/s",
            ),
            &[most],
            &format!("<= {bar:.1}"),
            most <= bar,
        );
        report.row(
            ("caps", "least in 10 s", "MB/s"),
            &[least],
            &format!(">= {:.1}", cap * 0.95),
            least >= cap * 0.95,
        );
    }
    Ok(())
}

pub fn scope(report: &mut Report) -> Result<(), Box<dyn Error>> {
    let nodes = Nodes::start(Disks::Modelled)?;
    volumes(&nodes)?;
    let (mut asked, mut opened) = (0, 0);
    for prefix in [
        "", "v", "v/", "m/", "d/", "g/", "s3/", ".tanada/", ".", "a/",
    ] {
        let of = [
            "--store", "s1", "--read", "1MB/s", "--scope", prefix, "--for", "1h",
        ];
        let made = nodes
            .node(1)
            .tanada(&[&["reservation", "create"], &of[..]].concat())
            .output()?;
        // Without a capability the objects are asked for all the same.
        let set = String::from_utf8(made.stdout)?;
        for (of, list) in [
            ("v/", true),
            ("m/", true),
            ("d/", true),
            ("g/", true),
            ("", false),
        ] {
            let command = match list {
                true => vec!["object", "ls", of],
                false => vec!["object", "get", "v/1/0", "-"],
            };
            let mut command = nodes.node(1).tanada(&command);
            command.args(["--store", "unix:s.sock"]);
            if !set.trim().is_empty() {
                command.args(["--capability", set.trim()]);
            }
            asked += 1;
            opened += usize::from(!command.output()?.stdout.is_empty());
        }
    }
    report.row(
        (
            "scope",
            "names or bytes of virtual disks shown to a capability",
            "",
        ),
        &[opened as f64],
        "0",
        opened == 0,
    );
    report.say(&format!("         {asked} requests"));
    Ok(())
}

/// Asks, and takes up at once what is offered instead: how many offers there were, and how many were refused then.
fn taken_up(nodes: &Nodes, name: &str, asked: &Value) -> Result<(usize, usize), Box<dyn Error>> {
    let mut socket = nodes.node(1).connect()?;
    let (status, answer) = post(&mut socket, "/v2/reservations", asked)?;
    let answer: Value = serde_json::from_str(&answer)?;
    if status == 201 {
        nodes.text(1, &["reservation", "delete", name])?;
        return Ok((0, 0));
    }
    let offer = &answer["offer"];
    let mut offers = Vec::new();
    if let Some(from) = offer["earliest_unix_seconds"].as_u64() {
        let from = jiff::Timestamp::from_second(i64::try_from(from)?)?.to_string();
        offers.push(("from", Value::from(from)));
    }
    if let Some(rate) = offer["largest"].as_str() {
        offers.push(("read", Value::from(rate)));
    }
    if let Some(seconds) = offer["longest_seconds"].as_u64() {
        offers.push(("for", Value::from(format!("{seconds}s"))));
    }
    let mut refused = 0;
    let count = offers.len();
    for (key, value) in offers {
        let mut instead = asked.clone();
        instead[key] = value;
        let (status, answer) = post(&mut socket, "/v2/reservations", &instead)?;
        match status {
            201 => drop(nodes.text(1, &["reservation", "delete", name])?),
            _ => {
                eprintln!("accept: {instead} was refused: {answer}");
                refused += 1;
            }
        }
    }
    Ok((count, refused))
}

pub fn offer(report: &mut Report) -> Result<(), Box<dyn Error>> {
    let nodes = Nodes::start(Disks::Modelled)?;
    let mut rng = Rng::from_seed(7);
    let mut socket = nodes.node(2).connect()?;
    let (mut offers, mut refused) = (0, 0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    // Fixed begins: what is asked twice is to be the same both times.
    let at = |hour: u64, minutes: u64| -> Result<String, Box<dyn Error>> {
        let second = now.as_secs() + hour * 3600 + minutes * 60;
        Ok(jiff::Timestamp::from_second(i64::try_from(second)?)?.to_string())
    };
    for nth in 0..CALENDARS {
        for part in 0..6 {
            let asked = json!({
                "name": format!("taken{nth}-{part}"),
                "target": { "stores": [format!("s{}", 1 + rng.below(3))], "scope": "a/" },
                "read": format!("{}MB/s", 5 + rng.below(30)),
                "from": at(1 + nth * 4, rng.below(120))?,
                "for": format!("{}m", 5 + rng.below(60)),
            });
            // Some do not fit, and that is well.
            post(&mut socket, "/v2/reservations", &asked)?;
        }
        let name = format!("asked{nth}");
        let asked = json!({
            "name": name,
            "target": { "stores": ["s1", "s2", "s3"], "scope": "a/" },
            "read": format!("{}MB/s", 20 + rng.below(30)),
            "from": at(1 + nth * 4, rng.below(60))?,
            "for": "1h",
        });
        let (more, less) = taken_up(&nodes, &name, &asked)?;
        offers += more;
        refused += less;
    }
    report.row(
        ("offer", "offers refused when taken up at once", ""),
        &[refused as f64],
        "0",
        refused == 0 && offers > 0,
    );
    report.say(&format!(
        "         {offers} offers in {CALENDARS} calendars"
    ));
    Ok(())
}
