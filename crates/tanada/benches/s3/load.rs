//! What clients do to a server, and what it took.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use env::net::Address;
use store::net::client::{Client, Credentials};
use store::{Change, ObjectCalls};

use crate::servers::Server;

const MIB: u64 = 1 << 20;
/// Pieces of 1 MiB that the store's client has under way, as `tanada object` has.
const DEPTH: u64 = 8;
/// What the store's client reads.
const OBJECT: &str = "whole";

/// When a load is over.
#[derive(Clone, Copy)]
pub enum End {
    After(Duration),
    Requests(u64),
}

/// What came of it.
#[derive(Clone, Copy)]
pub struct Done {
    pub requests: u64,
    pub seconds: f64,
    /// Of the server, of a processor.
    pub cpu_seconds: f64,
}

impl Done {
    /// Of the work, at a server.
    fn of<T>(
        server: &Server,
        work: impl FnOnce() -> Result<T, String>,
    ) -> Result<(T, Done), String> {
        let (cpu, begun) = (server.cpu_seconds(), Instant::now());
        let done = work()?;
        let done_of = Done {
            requests: 1,
            seconds: begun.elapsed().as_secs_f64(),
            cpu_seconds: server.cpu_seconds() - cpu,
        };
        Ok((done, done_of))
    }

    pub fn per_second(self) -> f64 {
        self.requests as f64 / self.seconds
    }

    /// Microseconds of the server's processor, for each request.
    pub fn cpu_us(self) -> f64 {
        self.cpu_seconds * 1e6 / self.requests as f64
    }
}

/// What is asked again and again: the method, the path of the nth request, the body, and how many bytes come.
pub struct Asked<'a> {
    pub method: &'a str,
    pub path: &'a (dyn Fn(u64) -> String + Sync),
    pub body: &'a [u8],
    pub answer: u64,
}

/// Asks over so many connections at once.
pub fn run(
    server: &Server,
    connections: usize,
    end: End,
    asked: &Asked<'_>,
) -> Result<Done, String> {
    let streams = (0..connections).map(|_| server.client.connect());
    let streams = streams.collect::<Result<Vec<_>, _>>()?;
    let next = AtomicU64::new(0);
    let begun = Instant::now();
    let take = || {
        let over = matches!(end, End::After(time) if begun.elapsed() >= time);
        let nth = (!over).then(|| next.fetch_add(1, Ordering::Relaxed))?;
        match end {
            End::Requests(all) if nth >= all => None,
            _ => Some(nth),
        }
    };
    let one = |mut stream| -> Result<u64, String> {
        let mut count = 0;
        while let Some(nth) = take() {
            let path = (asked.path)(nth);
            let mut came = 0;
            let what = (asked.method, &*path);
            let status = server.client.ask(&mut stream, what, asked.body, |piece| {
                came += piece.len() as u64;
            })?;
            if status != 200 || came != asked.answer {
                let (name, method) = (server.name, asked.method);
                return Err(format!(
                    "{name}: {method} {path}: status {status}, {came} bytes"
                ));
            }
            count += 1;
        }
        Ok(count)
    };
    let (requests, done) = Done::of(server, || {
        std::thread::scope(|scope| {
            let threads = streams
                .into_iter()
                .map(|stream| scope.spawn(|| one(stream)));
            let threads: Vec<_> = threads.collect();
            let counts = threads
                .into_iter()
                .map(|it| it.join().expect("a client ended well"));
            counts.sum::<Result<u64, String>>()
        })
    })?;
    Ok(Done { requests, ..done })
}

/// Lists all keys below a path, by `page` at most; it must be so many.
pub fn list(
    server: &Server,
    (bucket, prefix): (&str, &str),
    page: u64,
    keys: u64,
) -> Result<Done, String> {
    let mut stream = server.client.connect()?;
    let (pages, done) = Done::of(server, || {
        let (mut listed, mut pages, mut token) = (0, 0, String::new());
        loop {
            let path = format!("{bucket}?{token}list-type=2&max-keys={page}&prefix={prefix}%2F");
            let mut text = Vec::new();
            let status = server
                .client
                .ask(&mut stream, ("GET", &path), &[], |piece| {
                    text.extend_from_slice(piece);
                })?;
            let text = String::from_utf8_lossy(&text);
            if status != 200 {
                return Err(format!("{}: GET {path}: {status}: {text}", server.name));
            }
            pages += 1;
            listed += text.matches("<Key>").count() as u64;
            let next = text.split("<NextContinuationToken>").nth(1);
            match next.and_then(|it| it.split('<').next()) {
                Some(next) => token = format!("continuation-token={}&", encoded(next)),
                None => break,
            }
        }
        match listed == keys {
            true => Ok(pages),
            false => Err(format!("{} lists {listed} of {keys} keys", server.name)),
        }
    })?;
    Ok(Done {
        requests: pages,
        ..done
    })
}

/// For a query.
fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// Writes the object that `read_whole` reads.
pub fn write_whole(address: &str, bytes: u64) -> Result<(), String> {
    with_client(address, async move |client| {
        let next = Cell::new(0);
        at_once(async || {
            let (data, change) = (base::View::copy_of(&[7; MIB as usize]), Change::default());
            while let Some(at) = piece(&next, bytes) {
                let written = client.write(OBJECT, at, data.clone(), change.creating());
                written.await.map_err(|error| error.to_string())?;
            }
            Ok(())
        })
        .await?;
        client.flush().await.map_err(|error| error.to_string())
    })
}

/// Reads it with the store's own client, at the server whose store it is.
pub fn read_whole(server: &Server, address: &str, bytes: u64) -> Result<Done, String> {
    let server = server.clone();
    with_client(address, async move |client| {
        let (cpu, begun) = (server.cpu_seconds(), Instant::now());
        let next = Cell::new(0);
        at_once(async || {
            while let Some(at) = piece(&next, bytes) {
                let read = client.read(OBJECT, at, MIB).await;
                let read = read.map_err(|error| error.to_string())?;
                if read.len() as u64 != MIB {
                    return Err(format!("the store has {} bytes at {at}", read.len()));
                }
            }
            Ok(())
        })
        .await?;
        Ok(Done {
            requests: 1,
            seconds: begun.elapsed().as_secs_f64(),
            cpu_seconds: server.cpu_seconds() - cpu,
        })
    })
}

/// The begin of the next piece.
fn piece(next: &Cell<u64>, bytes: u64) -> Option<u64> {
    let at = next.replace(next.get() + MIB);
    (at < bytes).then_some(at)
}

async fn at_once(work: impl AsyncFn() -> Result<(), String>) -> Result<(), String> {
    let all = (0..DEPTH).map(|_| work());
    env::sync::join_all(all).await.into_iter().collect()
}

fn with_client<T: 'static>(
    address: &str,
    work: impl AsyncFnOnce(Client) -> Result<T, String> + 'static,
) -> Result<T, String> {
    let address: Address = address
        .parse()
        .map_err(|_| format!("{address} is no address"))?;
    let runtime = env::Runtime::real(env::RealConfig::default()).map_err(|it| it.to_string())?;
    runtime.block_on(async move {
        let client = Client::connect(&address, Credentials::Open).await;
        let client = client.map_err(|error| error.to_string())?;
        let done = work(client.clone()).await;
        client.close().await;
        done
    })
}
