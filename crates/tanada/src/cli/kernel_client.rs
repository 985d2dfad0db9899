//! `tanada client connect`: an export as a block device of this kernel that outlives restarts of the daemon.
//!
//! ```text
//! address of the export -> connect, agree -> /dev/nbdN -> the connection ends -> connect, agree: clean? -> goes on
//!                                             ^--------------------------------------------------------/   \-> ends
//! ```
//!
//! While there is no connection the kernel's requests wait. Other clients set no such time: then all that waits fails.
//!
//! Always true: after a crash of the daemon the device goes on only if what was answered before is there.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use base::Nanos;
use clap::Args;
use env::net::{Address, watch_peer};
use front::nbd::kernel::greet::{Offered, agree};
use front::nbd::kernel::{KernelDisk, Timeouts};
use report::terminal::Usage;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sd_notify::NotifyState;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::spawn_blocking;

use super::ask::Ask;
use super::client::Client;
use crate::api::cluster::Disk;
use crate::api::status::{Export, Status};
use crate::daemon::common::starts::Described;

/// How long a negotiation may take.
const GREETING: Duration = Duration::from_secs(10);
/// A request that was under way when its connection ended waits for so long, and up to a second more, before it is asked
/// again.
const ASKED_AGAIN: Duration = Duration::from_secs(2);
/// The kernel's own.
const OF_KERNEL: Duration = Duration::from_secs(30);
/// Between two tries to connect, and two looks whether to end.
const EVERY: Nanos = Nanos::millis(200);

#[derive(Debug, Args)]
pub struct Connect {
    /// The export, or a virtual disk.
    name: String,
    /// The device, such as /dev/nbd3 [default: any free one]
    device: Option<PathBuf>,
    /// Where the server is, such as unix:/run/vol0.sock or 10.0.0.1:10809 [default: where the daemon says]
    #[arg(long, value_name = "ADDR")]
    at: Option<Address>,
    /// A request without an answer for so long ends its connection; the server may still carry it out, after what is asked
    /// again, so take much more than the disk ever takes [default: never]
    #[arg(long, value_name = "SPAN", value_parser = config::read_span)]
    request_timeout: Option<Nanos>,
    /// Requests wait for so long for a connection.
    #[arg(long, value_name = "SPAN", default_value = "5m", value_parser = config::read_span)]
    reconnect_timeout: Nanos,
    #[command(flatten)]
    ask: Ask,
}

/// A stream to the server.
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn connect(address: &Address) -> io::Result<Stream> {
        match address {
            Address::Tcp(at) => {
                let stream = TcpStream::connect_timeout(at, GREETING)?;
                stream.set_nodelay(true)?;
                watch_peer(stream.as_fd())?;
                Ok(Stream::Tcp(stream))
            }
            Address::Unix(path) => Ok(Stream::Unix(UnixStream::connect(path)?)),
            Address::Tls(_) => Err(io::Error::other("the kernel speaks no TLS")),
        }
    }

    /// How long a read may take; none: for ever.
    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_read_timeout(timeout),
            Stream::Unix(stream) => stream.set_read_timeout(timeout),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(out),
            Stream::Unix(stream) => stream.read(out),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The server of an export.
struct Server {
    address: Address,
    export: String,
}

impl Server {
    fn meet(&self) -> io::Result<(Stream, Offered)> {
        let mut stream = Stream::connect(&self.address)?;
        stream.set_timeout(Some(GREETING))?;
        let offered = agree(&mut stream, &self.export)?;
        stream.set_timeout(None)?;
        Ok((stream, offered))
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.export, self.address)
    }
}

/// Runs it, until it is ended or the export is gone for too long.
pub fn run(asked: Connect) -> anyhow::Result<()> {
    let index = asked.device.as_deref().map(index_of).transpose()?;
    let (server, may_hurry) = server_of(&asked)?;
    let timeouts = Timeouts {
        request: Duration::from_nanos(asked.request_timeout.map_or(0, |it| it.0)),
        dead_connection: Duration::from_nanos(asked.reconnect_timeout.0),
    };
    let (stream, offered) = server
        .meet()
        .with_context(|| format!("cannot connect to {server}"))?;
    let disk = KernelDisk::connect(index, &stream, &offered, timeouts).map_err(refused)?;
    let path = format!("/dev/nbd{}", disk.index);
    eprintln!("{server} is {path}; end it with Ctrl-C, after unmounting it");
    // The time that is asked for stands before: it ends connections. And at a daemon with gates another one may be asked again
    // while the first is still at it.
    if asked.request_timeout.is_none()
        && may_hurry
        && let Err(error) = disk.ask_again_after(ASKED_AGAIN)
    {
        eprintln!(
            "{path}: what is under way when the daemon restarts waits for 30 s: its io_timeout in /sys cannot be set: {error}"
        );
    }
    // Nothing but a service manager wants to know.
    let _ = sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(&path)]);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let done = runtime.block_on(async {
        let keep = Keep {
            server: &server,
            disk: &disk,
            described: Described::read(&offered.description),
            size: offered.size,
            timeout: asked.reconnect_timeout,
        };
        tokio::select! {
            lost = keep.connected(stream) => lost,
            // Its connection is kept for as long as the kernel writes.
            ended = async {
                let ended = ended(&path).await;
                flush(path.clone()).await.and(ended)
            } => ended,
        }
    });
    // The next user of the device is not to have it.
    let _ = disk.ask_again_after(OF_KERNEL);
    // Before the runtime, which waits for a flush: what it asked fails now.
    disk.disconnect()
        .with_context(|| format!("cannot end {path}"))?;
    done
}

/// The server that is asked for; and may a request be asked again soon? Whether a server elsewhere has gates is not known.
fn server_of(asked: &Connect) -> anyhow::Result<(Server, bool)> {
    let (address, may_hurry) = match &asked.at {
        Some(address) => (address.clone(), false),
        None => {
            let client = Client::new(asked.ask.admin.clone())?;
            let status: Status = client.get("/v1/status")?;
            (find(&client, &asked.name)?, status.gates.is_empty())
        }
    };
    let export = asked.name.clone();
    Ok((Server { address, export }, may_hurry))
}

/// Has the kernel write what it has not written yet.
async fn flush(path: String) -> anyhow::Result<()> {
    let disk = path.clone();
    let flushed = spawn_blocking(move || File::open(disk)?.sync_all()).await?;
    flushed.with_context(|| format!("cannot flush {path}: what was written last may be lost"))
}

/// Waits until it is to end: not while it is mounted, unless that is asked for twice.
async fn ended(path: &str) -> anyhow::Result<()> {
    let (mut term, mut int) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    let mut asked = 0;
    loop {
        tokio::select! {
            _ = term.recv() => asked += 1,
            _ = int.recv() => asked += 1,
        }
        // A mount point may have any bytes.
        let mounts = fs::read("/proc/self/mounts")?;
        if asked > 1 || !is_mounted(path, &String::from_utf8_lossy(&mounts)) {
            return Ok(());
        }
        eprintln!("{path} is mounted: unmount it first; once more to end it all the same");
    }
}

/// Is a device, or a part of it, among these mounts?
fn is_mounted(path: &str, mounts: &str) -> bool {
    let devices = mounts.lines().filter_map(|line| line.split(' ').next());
    let mut rests = devices.filter_map(|device| device.strip_prefix(path));
    rests.any(|rest| rest.is_empty() || rest.starts_with('p'))
}

/// A device that is kept connected.
struct Keep<'a> {
    server: &'a Server,
    disk: &'a KernelDisk,
    /// What the export said of crashes.
    described: Option<Described>,
    size: u64,
    timeout: Nanos,
}

impl Keep<'_> {
    /// Connects it anew whenever its connection ends.
    async fn connected(mut self, mut stream: Stream) -> anyhow::Result<()> {
        loop {
            while !has_ended(&stream)? {
                tokio::time::sleep(Duration::from_nanos(EVERY.0)).await;
            }
            eprintln!("{}: the connection ended; connecting anew", self.server);
            stream = self.again().await?;
            eprintln!("{}: connected anew", self.server);
        }
    }

    async fn again(&mut self) -> anyhow::Result<Stream> {
        let begun = tokio::time::Instant::now();
        let timeout = Duration::from_nanos(self.timeout.0);
        loop {
            let why = match self.server.meet() {
                Ok((stream, offered)) => {
                    self.judge(&offered)?;
                    match self.disk.reconnect(&stream) {
                        Ok(()) => return Ok(stream),
                        Err(error) => {
                            format!("the kernel does not take the new connection: {error}")
                        }
                    }
                }
                Err(error) => error.to_string(),
            };
            if begun.elapsed() > timeout {
                bail!(
                    "{} could not be connected anew within {}: {why}",
                    self.server,
                    self.timeout
                );
            }
            tokio::time::sleep(Duration::from_nanos(EVERY.0)).await;
        }
    }

    /// Is it the same export, with all that it answered before?
    fn judge(&mut self, offered: &Offered) -> anyhow::Result<()> {
        if offered.size != self.size {
            bail!(
                "{} had {} bytes and has {}: connect it anew, so that its users see that",
                self.server,
                self.size,
                offered.size
            );
        }
        let now = Described::read(&offered.description);
        match (&self.described, now) {
            (Some(before), Some(now)) if before.goes_on_as(&now) => {
                self.described = Some(now);
                Ok(())
            }
            (Some(before), Some(now)) if before.was_elsewhere(&now) => Err(anyhow!(
                "{} was opened by another node meanwhile, or rolled back, and may have other data than were read here: requests fail \
                 from now on; unmount it and connect it again",
                self.server
            )),
            (Some(_), Some(_)) => Err(anyhow!(
                "the daemon of {} crashed or is another one, and what it answered and had not flushed is lost: requests fail from now on; \
                 unmount it, connect it again, and check the file system",
                self.server
            )),
            _ => Err(anyhow!(
                "the server of {} does not say whether it crashed: requests fail from now on",
                self.server
            )),
        }
    }
}

/// Did the server close the connection? What comes over it is the kernel's to read.
fn has_ended(stream: &Stream) -> io::Result<bool> {
    let mut polled = [PollFd::new(stream, PollFlags::RDHUP)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut polled, Some(&now))?;
    let ends = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    Ok(polled[0].revents().intersects(ends))
}

/// The N of `/dev/nbdN`.
fn index_of(device: &Path) -> Result<u32, Usage> {
    let name = device.to_str().unwrap_or_default();
    let number = name
        .strip_prefix("/dev/nbd")
        .and_then(|number| number.parse().ok());
    number.ok_or_else(|| {
        Usage(format!(
            "'{}' is no NBD device; write such as /dev/nbd3",
            device.display()
        ))
    })
}

/// Where an export is served so that the kernel can speak with it: at a Unix socket, or else at a port in the clear.
fn find(client: &Client, name: &str) -> anyhow::Result<Address> {
    let exports: Vec<Export> = client.get("/v1/exports")?;
    let mut places: Vec<String> = Vec::new();
    for export in exports.iter().filter(|it| it.name == name && !it.tls) {
        places.extend(export.nbd.clone());
    }
    if places.is_empty() {
        let disks: Vec<Disk> = client.get("/v1/cluster/volumes").unwrap_or_default();
        let disk = disks.into_iter().find(|disk| disk.terms.name == name);
        places.extend(
            disk.into_iter()
                .flat_map(|disk| disk.nbd)
                .filter_map(|uri| place_of(&uri)),
        );
    }
    let mut addresses: Vec<Address> = places.iter().filter_map(|it| it.parse().ok()).collect();
    addresses.retain(|address| !address.is_tls());
    addresses.sort_by_key(|address| address.socket().is_some());
    addresses.into_iter().next().ok_or_else(|| {
        let names: Vec<&str> = exports.iter().map(|it| it.name.as_str()).collect();
        anyhow!(
            "the daemon serves no '{name}' that the kernel can reach in the clear; it has {}; or say where it is with --at",
            names.join(", ")
        )
    })
}

/// The address of `nbd://HOST:PORT/NAME` and `nbd+unix:///NAME?socket=PATH`.
fn place_of(uri: &str) -> Option<String> {
    if let Some(rest) = uri.strip_prefix("nbd://") {
        return rest.split_once('/').map(|(place, _)| place.to_owned());
    }
    let (_, path) = uri.strip_prefix("nbd+unix://")?.split_once("socket=")?;
    Some(format!("unix:{path}"))
}

fn refused(error: io::Error) -> anyhow::Error {
    let todo = match error.kind() {
        io::ErrorKind::NotFound => "this kernel has no NBD client: load it with `modprobe nbd`",
        io::ErrorKind::PermissionDenied => "run this as root",
        io::ErrorKind::ResourceBusy => "that device is in use: name another one, or none",
        _ => "the kernel's log may say more (`dmesg`)",
    };
    anyhow!("the kernel does not connect it: {error}; {todo}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_out_of_uris_and_devices_are_numbers() {
        let place = |uri: &str| place_of(uri);
        assert_eq!(
            place("nbd://127.0.0.1:10809/v0"),
            Some("127.0.0.1:10809".to_owned())
        );
        assert_eq!(
            place("nbd+unix:///v0?socket=/run/a.sock"),
            Some("unix:/run/a.sock".to_owned())
        );
        assert_eq!(place("nbds://127.0.0.1:10809/v0"), None);
        assert!(is_mounted(
            "/dev/nbd1",
            "a / ext4\n/dev/nbd1 /mnt ext4 rw\n"
        ));
        assert!(is_mounted("/dev/nbd1", "/dev/nbd1p2 /mnt ext4 rw\n"));
        assert!(!is_mounted("/dev/nbd1", "/dev/nbd12 /mnt ext4 rw\n"));
        assert_eq!(index_of(Path::new("/dev/nbd12")).ok(), Some(12));
        for wrong in ["/dev/sda", "nbd1", "/dev/nbd", "/dev/nbdx"] {
            assert!(index_of(Path::new(wrong)).is_err(), "{wrong}");
        }
    }
}
