//! Virtual disks to raw files and back, over NBD: what is not there stays not there.
//!
//! ```text
//! export   block status -> data in pieces, several under way -> written at their places; the rest are holes
//! import   SEEK_DATA, SEEK_HOLE -> pieces with anything in them -> written; the rest zeroed unless the disk is new
//! ```
//!
//! Always true:
//! 1. The copy is whole and durable when it is answered: files are synced, disks flushed.
//! 2. A raw file is what qemu-img calls one: byte for byte the disk.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use base::{Buf, Instant, Nanos, Sector, Span, View};
use device::{Class, Device, WriteFlags};
use env::net::Address;
use env::sync::join_all;
use front::nbd::{Client, ClientOptions};
use report::terminal::progress::Shown;
use report::terminal::table::size as size_text;
use rustix::fs::SeekFrom;
use serde::Serialize;
use utoipa::ToSchema;

use super::disk_image::{self, Format};
use super::follow;

/// Read or written at once.
const PIECE: u64 = 1 << 20;
/// Pieces under way.
const AT_ONCE: usize = 8;
/// Block status is asked for so much at once.
const REACH: u64 = 1 << 30;
/// Zeroes shorter than this are written like other data.
const ZERO: u64 = 64 << 10;

/// What was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct Copied {
    pub size_bytes: u64,
    pub data_bytes: u64,
}

/// The length of a file or block device.
pub fn size_of(path: &Path) -> anyhow::Result<u64> {
    let said = || format!("cannot read {}", path.display());
    let file = File::open(path).with_context(said)?;
    rustix::fs::seek(&file, SeekFrom::End(0)).with_context(said)
}

/// What a file is, if no raw disk.
pub fn format_of(path: &Path) -> anyhow::Result<Option<Format>> {
    let said = || format!("cannot read {}", path.display());
    let file = File::open(path).with_context(said)?;
    disk_image::format_of(&file, size_of(path)?).with_context(said)
}

/// Bytes of data that a volume has.
pub fn data_of(address: &Address, name: &str) -> anyhow::Result<u64> {
    with_volume(address, name, async move |client| {
        let size = client.info().size.0;
        let (mut at, mut data) = (0, 0);
        while at < size {
            let span = Span::bytes(at, REACH.min(size - at));
            for (len, is_data) in client.allocation(span).await? {
                at += len;
                data += if is_data { len } else { 0 };
            }
        }
        Ok(data)
    })
}

/// Connects, and does `work` with the volume.
fn with_volume<T: 'static>(
    address: &Address,
    name: &str,
    work: impl AsyncFnOnce(Rc<Client>) -> anyhow::Result<T> + 'static,
) -> anyhow::Result<T> {
    let runtime =
        env::Runtime::real(env::RealConfig::default()).context("cannot make a data runtime")?;
    let (address, name) = (address.clone(), name.to_owned());
    runtime.block_on(async move {
        let options = ClientOptions {
            export: name.clone(),
            // Another node's lease may have to run out first.
            timeout: Nanos::secs(90),
            ..ClientOptions::default()
        };
        let client = Client::connect(&address, &options).await;
        let client = client.with_context(|| format!("cannot open {name} at {address}"))?;
        let client = Rc::new(client);
        let done = work(Rc::clone(&client)).await;
        if let Ok(client) = Rc::try_unwrap(client) {
            client.close().await;
        }
        done
    })
}

/// How far a copy is.
struct Far {
    shown: Shown,
    begun: Instant,
    total: u64,
}

impl Far {
    fn of(total: u64) -> Far {
        Far {
            shown: Shown::new(),
            begun: env::now(),
            total,
        }
    }

    /// It is at byte `at`.
    fn at(&mut self, at: u64) {
        let spent = Duration::from_nanos(env::now().since(self.begun).0);
        let left = self.total.saturating_sub(at) as f64;
        let left = follow::span(spent.as_secs_f64() * left / at.max(1) as f64);
        let line = format!(
            "{} of {}, {left} left",
            size_text(at),
            size_text(self.total)
        );
        self.shown.at((at, self.total), spent, &line);
    }
}

/// Writes a volume to a file; `-` is the standard output.
pub fn export(address: &Address, name: &str, path: &Path) -> anyhow::Result<Copied> {
    let path = path.to_owned();
    with_volume(address, name, async move |client| {
        let size = client.info().size.0;
        let mut bar = Far::of(size);
        let mut sink = Sink::new(&path, size)?;
        let mut data_bytes = 0;
        let mut at = 0;
        while at < size {
            let span = Span::bytes(at, REACH.min(size - at));
            for (len, is_data) in client.allocation(span).await? {
                match is_data {
                    true => {
                        read_run(&client, at, len, &mut sink).await?;
                        data_bytes += len;
                    }
                    false => sink.hole(len)?,
                }
                at += len;
                bar.at(at);
            }
        }
        sink.finish()?;
        bar.shown.end();
        Ok(Copied {
            size_bytes: size,
            data_bytes,
        })
    })
}

async fn read_run(client: &Client, from: u64, len: u64, sink: &mut Sink) -> anyhow::Result<()> {
    let end = from + len;
    let mut at = from;
    while at < end {
        let starts = (0..AT_ONCE as u64).map(|nth| at + nth * PIECE);
        let pieces = starts.take_while(|start| *start < end).map(|start| {
            let buf = Buf::for_read(PIECE.min(end - start) as usize);
            client.read(Sector(start / 512), buf, Class::Foreground)
        });
        for piece in join_all(pieces.collect::<Vec<_>>()).await {
            let piece = piece?;
            at += piece.len() as u64;
            sink.data(&piece)?;
        }
    }
    Ok(())
}

/// Where an export goes.
enum Sink {
    File { file: File, at: u64, path: String },
    Out(std::io::StdoutLock<'static>),
}

impl Sink {
    fn new(path: &Path, size: u64) -> anyhow::Result<Sink> {
        if path.as_os_str() == "-" {
            return Ok(Sink::Out(std::io::stdout().lock()));
        }
        let said = || format!("cannot write {}", path.display());
        let mut options = OpenOptions::new();
        let file = options.create(true).write(true).truncate(true).open(path);
        let file = file.with_context(said)?;
        file.set_len(size).with_context(said)?;
        let path = path.display().to_string();
        Ok(Sink::File { file, at: 0, path })
    }

    fn data(&mut self, data: &[u8]) -> anyhow::Result<()> {
        match self {
            Sink::Out(out) => Ok(out.write_all(data)?),
            Sink::File { file, at, path } => {
                let written = file.write_all_at(data, *at);
                written.with_context(|| format!("cannot write {path}"))?;
                *at += data.len() as u64;
                Ok(())
            }
        }
    }

    fn hole(&mut self, len: u64) -> anyhow::Result<()> {
        match self {
            Sink::File { at, .. } => *at += len,
            Sink::Out(out) => {
                let zeroes = vec![0; PIECE as usize];
                let mut left = len;
                while left > 0 {
                    let now = left.min(PIECE);
                    out.write_all(&zeroes[..now as usize])?;
                    left -= now;
                }
            }
        }
        Ok(())
    }

    fn finish(self) -> anyhow::Result<()> {
        match self {
            Sink::Out(mut out) => Ok(out.flush()?),
            Sink::File { file, path, .. } => file
                .sync_all()
                .with_context(|| format!("cannot write {path}")),
        }
    }
}

/// Fills a volume from a file. `fresh`: nothing was ever written to it.
pub fn import(path: &Path, address: &Address, name: &str, fresh: bool) -> anyhow::Result<Copied> {
    let path = path.to_owned();
    with_volume(address, name, async move |client| {
        let said = || format!("cannot read {}", path.display());
        let size = size_of(&path)?;
        let file = File::open(&path).with_context(said)?;
        let mut bar = Far::of(size);
        let room = client.info().size.0;
        if room < size {
            return Err(anyhow!("the volume has {room} bytes, and the file {size}"));
        }
        let mut data_bytes = 0;
        let mut at = 0;
        while at < size {
            let data = next_data(&file, at, size).with_context(said)?;
            clear(&client, at, data.0 - at, fresh).await?;
            write_run(&client, &file, data, fresh, size)
                .await
                .with_context(|| format!("cannot copy {}", path.display()))?;
            data_bytes += data.1 - data.0;
            at = data.1;
            bar.at(at);
        }
        // What lies behind the file's end belongs to no file.
        let end = size.next_multiple_of(512);
        clear(&client, end, room - end.min(room), fresh).await?;
        client.flush().await?;
        bar.shown.end();
        Ok(Copied {
            size_bytes: size,
            data_bytes,
        })
    })
}

/// Makes a stretch zeroes, unless it is so already.
async fn clear(client: &Client, at: u64, len: u64, fresh: bool) -> anyhow::Result<()> {
    let mut at = at;
    let end = at + len;
    while !fresh && at < end {
        let now = REACH.min(end - at);
        let span = Span::bytes(at, now);
        client.write_zeroes(span, WriteFlags::default()).await?;
        at += now;
    }
    Ok(())
}

/// The next stretch of data from `at` on, in whole sectors; empty at the end.
fn next_data(file: &File, at: u64, size: u64) -> std::io::Result<(u64, u64)> {
    let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(rustix::io::Errno::NXIO) => return Ok((size, size)),
        // A file system that knows no holes.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => return Ok((at, size)),
        Err(error) => return Err(error.into()),
    };
    let end = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(size);
    let start = start / 4096 * 4096;
    Ok((start.max(at), end.next_multiple_of(4096).min(size)))
}

async fn write_run(
    client: &Client,
    file: &File,
    (from, end): (u64, u64),
    fresh: bool,
    size: u64,
) -> anyhow::Result<()> {
    let mut at = from;
    while at < end {
        let mut pieces = Vec::new();
        while at < end && pieces.len() < AT_ONCE {
            let len = PIECE.min(end - at);
            // The last sector of an odd file ends in zeroes.
            let whole = len.next_multiple_of(512);
            let mut buf = Buf::zeroed(whole as usize);
            file.read_exact_at(&mut buf[..len as usize], at)?;
            debug_assert!(at + len <= size);
            pieces.push(write_piece(client, at, buf.freeze(), fresh));
            at += len;
        }
        for piece in join_all(pieces).await {
            piece?;
        }
    }
    Ok(())
}

/// Writes what is not zero of a piece.
async fn write_piece(client: &Client, at: u64, data: View, fresh: bool) -> anyhow::Result<()> {
    let mut from = 0;
    let len = data.len() as u64;
    let is_zero = |start: u64| {
        let end = (start + ZERO).min(len) as usize;
        data[start as usize..end].iter().all(|byte| *byte == 0)
    };
    while from < len {
        let zero = is_zero(from);
        let mut to = (from + ZERO).min(len);
        while to < len && is_zero(to) == zero {
            to = (to + ZERO).min(len);
        }
        match zero {
            true => clear(client, at + from, to - from, fresh).await?,
            false => {
                let part = data.slice(from as usize, (to - from) as usize);
                let place = Sector((at + from) / 512);
                client.write(place, part, WriteFlags::default()).await?;
            }
        }
        from = to;
    }
    Ok(())
}
