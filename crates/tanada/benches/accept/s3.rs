//! A gateway for S3 clients: are windows of an access key kept beside greedy ones, and what is left after kills?
//!
//! ```text
//! clients: signed URL -> GET, PUT over one connection each -> gateway -> store on a modelled disk of 60 MB/s, or a file
//! ```

use std::error::Error;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::daemon::Daemon;
use super::load::{Load, Notes, Span};
use super::report::{Bar, Report};
use super::signed::{Client, host};
use super::windows::Beside;

/// What is promised, in MB/s.
const RATE: u64 = 40;
/// Windows counted, and without a reservation.
const SECONDS: usize = 120;
const FEWER: usize = 20;
/// Keys that nothing is promised to, and connections of each key.
const GREEDY: usize = 16;
const CONNECTIONS: usize = 4;
/// Bytes of an object.
const OBJECT: usize = 8 << 20;
/// Until what was changed is in force, and loads are under way.
const SETTLE: Duration = Duration::from_secs(3);
/// Kills, of a quick run and of a full one, and puts in all.
const KILLS: [u64; 2] = [5, 20];
const PUTS: u64 = 1000;

fn config(device: &str) -> String {
    format!(
        "[[device]]\nname = \"disk\"\n{device}\n[[store]]\nname = \"s1\"\ndevice = \"disk\"\n\
         listen = \"unix:s.sock\"\ncreate = true\nread_speed = \"60MB/s\"\nwrite_speed = \"60MB/s\"\n\
         [[s3]]\nname = \"gw\"\nstore = \"s1\"\nlisten = \"127.0.0.1:0\"\n\
         [cluster]\nnode = \"n1\"\nnbd = \"unix:disks.sock\"\n[admin]\nlisten = \"unix:admin.sock\"\n"
    )
}

impl Client {
    /// Gets one object after the other over one connection, until it is over.
    fn get(self, first: usize, notes: &Notes) -> Result<(), String> {
        let mut stream = self.connect()?;
        let mut nth = first;
        while !notes.stops() {
            let path = format!("/{}/{}", bucket(&self.id), nth % CONNECTIONS);
            let status = self.ask(&mut stream, ("GET", &path), &[], |piece| {
                notes.came(piece.len() as u64);
            })?;
            if status != 200 {
                return Err(format!("GET {path}: status {status}"));
            }
            nth += 1;
        }
        Ok(())
    }
}

/// The bucket of a key.
fn bucket(id: &str) -> String {
    id.to_ascii_lowercase()
}

/// Makes a key with a bucket of its own, and objects in it.
fn filled(daemon: &Daemon, account: &str) -> Result<Client, Box<dyn Error>> {
    let client = Client::of(daemon, account)?;
    let at = format!("/{}", bucket(&client.id));
    client.done(("PUT", &at), &[])?;
    for nth in 0..CONNECTIONS {
        let path = format!("{at}/{nth}");
        client.done(("PUT", &path), &vec![nth as u8 + 1; OBJECT])?;
    }
    Ok(client)
}

/// Each client over some connections.
fn load(clients: &[Client]) -> Result<Load, Box<dyn Error>> {
    let each = clients.iter().flat_map(|client| {
        (0..CONNECTIONS).map(|nth| {
            let client = client.clone();
            move |notes: &Notes| client.get(nth, notes)
        })
    });
    Load::of(each.collect())
}

pub fn booked(report: &mut Report) -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let disk = "model = \"disk.toml\"\nmemory = true";
    let mut daemon = Daemon::new(dir.path(), &config(disk))?;
    daemon.begin()?;
    for account in ["astro", "bio"] {
        daemon.text(&["account", "create", account])?;
    }
    let one = filled(&daemon, "astro")?;
    let greedy: Result<Vec<Client>, _> = (0..GREEDY).map(|_| filled(&daemon, "bio")).collect();
    let greedy = load(&greedy?)?;
    let booked = load(std::slice::from_ref(&one))?;
    let loads = Beside {
        booked: &booked,
        greedy: &greedy,
        rate: RATE as f64,
    };
    sleep(SETTLE);
    loads.without(report, "GETs of 8 MiB", Span::of(FEWER));
    let rate = format!("{RATE}MB/s");
    let what = ["reservation", "create", "gold", "--account", "astro"];
    let terms = [
        "--store", "s1", "--scope", "s3/", "--read", &rate, "--for", "1h",
    ];
    daemon.text(&[&what[..], &terms].concat())?;
    daemon.text(&["s3", "key", "set", &one.id, "reservation=gold"])?;
    sleep(SETTLE);
    loads.with(report, "GETs of 8 MiB", Span::of(SECONDS));
    Ok(())
}

/// The bytes that the `nth` put brings: in the index, in one chunk, in several.
fn bytes(nth: u64) -> Vec<u8> {
    let length = [10, 4096, 16_385, 1_500_000, 9_000_000][nth as usize % 5];
    let mut bytes = format!("{nth} ").into_bytes();
    bytes.resize(length, (nth % 251) as u8);
    bytes
}

/// Puts objects until the gateway is gone, or a time is over; the number of the first that was not answered.
fn put(client: &Client, first: u64, until: Instant) -> Result<u64, String> {
    let mut stream = client.connect()?;
    let mut nth = first;
    while Instant::now() < until {
        let path = format!("/{}/{nth}", bucket(&client.id));
        match client.ask(&mut stream, ("PUT", &path), &bytes(nth), |_| {}) {
            Ok(200) => nth += 1,
            Ok(status) => return Err(format!("PUT {path}: status {status}")),
            Err(_) => return Ok(nth),
        }
    }
    Ok(nth)
}

/// Is it there as it was put? `None`: it is not there.
fn is_whole(client: &Client, nth: u64) -> Result<Option<bool>, Box<dyn Error>> {
    let path = format!("/{}/{nth}", bucket(&client.id));
    let mut got = Vec::new();
    let status = client.ask(&mut client.connect()?, ("GET", &path), &[], |piece| {
        got.extend_from_slice(piece);
    })?;
    match status {
        200 => Ok(Some(got == bytes(nth))),
        404 => Ok(None),
        _ => Err(format!("GET {path}: status {status}").into()),
    }
}

pub fn crash(report: &mut Report) -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let disk = "path = \"disk.img\"\nsize = \"8GiB\"";
    let mut daemon = Daemon::new(dir.path(), &config(disk))?;
    daemon.begin()?;
    daemon.text(&["account", "create", "astro"])?;
    let mut client = Client::of(&daemon, "astro")?;
    client.done(("PUT", &format!("/{}", bucket(&client.id))), &[])?;
    let kills = KILLS[usize::from(report.full)];
    let (mut next, mut lost, mut torn) = (0, 0, 0);
    let mut unanswered = Vec::new();
    for kill in 0..kills {
        let putting = client.clone();
        let thread = std::thread::spawn(move || {
            put(&putting, next, Instant::now() + Duration::from_secs(60))
        });
        // Another place in the course of things each time.
        sleep(Duration::from_millis(700 + kill * 37));
        daemon.running = None;
        next = thread.join().map_err(|_| "a client panicked")??;
        unanswered.push(next);
        next += 1;
        daemon.begin()?;
        client.host = host(&daemon)?;
    }
    let whole_until = Instant::now() + Duration::from_secs(600);
    while next < PUTS && Instant::now() < whole_until {
        let path = format!("/{}/{next}", bucket(&client.id));
        client.done(("PUT", &path), &bytes(next))?;
        next += 1;
    }
    for nth in 0..next {
        match is_whole(&client, nth)? {
            Some(true) => {}
            Some(false) => torn += 1,
            None if unanswered.contains(&nth) => {}
            None => lost += 1,
        }
    }
    report.figure("kills", kills as f64, "");
    report.figure("puts answered", (next - kills) as f64, "");
    report.row(
        "answered puts that are lost",
        f64::from(lost),
        "",
        Bar::Exactly(0.0),
    );
    report.row(
        "objects that are torn",
        f64::from(torn),
        "",
        Bar::Exactly(0.0),
    );
    Ok(())
}
