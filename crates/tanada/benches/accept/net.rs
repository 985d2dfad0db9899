//! A booking of a link that is slower than the disk behind it.
//!
//! ```text
//! store of node 1 -> proxy of 100 MB/s -> node 2 <- NBD clients: one that is booked, 16 greedy ones
//! ```
//!
//! The proxy is a link: what comes is sent on in the order it came, as fast as the link is. Who is first is decided
//! before, by the store's node, if it knows how fast its link is.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

use super::load::{Load, Pattern, Span};
use super::nodes::{Disks, Node, Nodes, Setting, free_port};
use super::report::{Bar, Report};
use super::windows::{Beside, reserve, volumes};

/// What is booked, in MB/s.
const RATE: u64 = 60;
/// What the link carries each way, in bytes per second.
const LINK: f64 = 100e6;
/// Windows counted, and without a reservation.
const SECONDS: usize = 40;
const FEWER: usize = 15;
/// What is sent on at once.
const PIECE: usize = 64 << 10;
/// How far the link's clock may be behind or ahead: threads wake up late, and the link is not to be slower for that.
const SLACK: Duration = Duration::from_millis(2);
/// One client alone must get so much of the link, in MB/s, or it is no link of 100 MB/s.
const ALONE: f64 = 90.0;

/// One way of the link: when it is free again.
struct Lane(Mutex<Instant>);

impl Lane {
    /// Waits for the turn of so many bytes.
    fn pass(&self, bytes: usize) {
        let until = {
            let mut free = self.0.lock().expect("no copier panics with it");
            let now = Instant::now();
            let idle = now.checked_sub(SLACK).unwrap_or(now);
            *free = (*free).max(idle) + Duration::from_secs_f64(bytes as f64 / LINK);
            *free
        };
        let ahead = until.saturating_duration_since(Instant::now());
        if ahead > SLACK {
            sleep(ahead);
        }
    }
}

/// Copies what comes until either side ends.
fn copy(mut from: TcpStream, mut to: TcpStream, lane: &Lane) {
    let mut buf = vec![0; PIECE];
    while let Ok(read @ 1..) = from.read(&mut buf) {
        lane.pass(read);
        if to.write_all(&buf[..read]).is_err() {
            break;
        }
    }
    // The other way ends with this one; it may have already.
    let _ = to.shutdown(std::net::Shutdown::Both);
    let _ = from.shutdown(std::net::Shutdown::Both);
}

/// A link to `there`, for as long as the program runs.
fn proxy(there: SocketAddr) -> Result<SocketAddr, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let at = listener.local_addr()?;
    let [there_lane, back] = [(); 2].map(|()| Arc::new(Lane(Mutex::new(Instant::now()))));
    Builder::new().spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            // The store may not be up yet, or no more.
            let Ok(store) = TcpStream::connect(there) else {
                continue;
            };
            let ways = [
                (client.try_clone(), store.try_clone(), &there_lane),
                (Ok(store), Ok(client), &back),
            ];
            for (from, to, lane) in ways {
                if let (Ok(from), Ok(to), lane) = (from, to, Arc::clone(lane)) {
                    // Without a thread the connection ends, and is an error there.
                    let _ = Builder::new().spawn(move || copy(from, to, &lane));
                }
            }
        }
    })?;
    Ok(at)
}

/// A node with a store behind the link, and one without a store.
fn start(network: &str) -> Result<Nodes, Box<dyn Error>> {
    let store = SocketAddr::from(([127, 0, 0, 1], free_port()?));
    let link = proxy(store)?;
    let more = match network {
        "" => String::new(),
        speed => format!("[network]\nspeed = \"{speed}\"\n"),
    };
    let mut setting = Setting::of(Disks::Memory)?;
    setting.nodes = vec![
        Node {
            listen: format!("listen = \"{store}\"\nadvertise = \"{link}\"\n"),
            more,
        },
        Node {
            listen: String::new(),
            more: String::new(),
        },
    ];
    Nodes::with(setting)
}

pub fn net(report: &mut Report) -> Result<(), Box<dyn Error>> {
    for (what, network) in [
        ("speed = 100MB/s", "100MB/s"),
        ("speed = 98MB/s", "98MB/s"),
        ("no speed", ""),
    ] {
        let nodes = start(network)?;
        let (booked, greedy) = volumes(&nodes, 1, &[2])?;
        let alone = Load::start(std::slice::from_ref(&booked), 8, Pattern::RANDOM)?;
        sleep(Duration::from_secs(2));
        let got = alone.seconds(Span::of(5));
        drop(alone);
        let metric = format!("{what}: one client alone");
        report.row(
            &metric,
            got.iter().sum::<f64>() / 5.0,
            "MB/s",
            Bar::Least(ALONE),
        );
        let greedy = Load::start(&greedy, 4, Pattern::RANDOM)?;
        let booked = Load::start(&[booked], 8, Pattern::RANDOM)?;
        let loads = Beside {
            booked: &booked,
            greedy: &greedy,
            rate: RATE as f64,
        };
        sleep(Duration::from_secs(3));
        loads.without(report, what, Span::of(FEWER));
        reserve(&nodes, RATE, &["--tolerate", "0", "--for", "1h"])?;
        sleep(Duration::from_secs(3));
        match network {
            // Nothing is promised of a link that is not known.
            "" => loads.beside(report, what, Span::of(FEWER)),
            _ => loads.with(report, what, Span::of(SECONDS)),
        }
    }
    Ok(())
}
