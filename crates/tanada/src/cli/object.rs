//! `tanada object ...`: objects of a store put, got, listed and removed, for people and scripts.
//!
//! ```text
//! put: stdin or file -> thread -> pieces, several on their way -> a name of its own -> flush -> rename to NAME
//! get: stat -> pieces, several on their way, in order -> thread -> stdout or a file of its own -> rename to FILE
//! ```
//!
//! A put is seen whole or not at all: until it is durable its data are in an object called `NAME.put-...`, which stays
//! if the program is killed and can be removed like any other.
//!
//! Always true:
//! 1. What `put` answered is durable, under its name.
//! 2. `get` ends well only if it has as many bytes as the object, of one state of it.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use base::{Buf, Bytes, Nanos};
use clap::{Args, Subcommand};
use indicatif::ProgressBar;
use report::terminal::Usage;
use report::terminal::table::{megabytes_per_second, size};
use serde::Serialize;
use store::net::client::Client;
use store::{Change, ObjectCalls, Stat};
use utoipa::ToSchema;

use super::consent::{self, Loss};
use super::object_at::{At, with_client};
use super::object_files::{Destination, Reader, Writer, bar};
use super::object_names::{list, remove, stat};
use super::{old_words, show};
use crate::daemon::common::secrets;

/// Pieces on their way at once.
pub(super) const DEPTH: usize = 8;
/// Objects asked for at once by `list`.
pub(super) const PAGE: usize = 1000;

#[derive(Debug, Subcommand)]
pub enum Object {
    /// Store a file (or standard input) as an object: whole and durable, or not at all.
    Put(Put),
    /// Fetch an object into a file (or to standard output).
    Get(Get),
    /// List objects.
    #[command(visible_alias = "ls")]
    List(List),
    /// Delete objects.
    #[command(visible_alias = "rm")]
    Delete(Delete),
    /// Show what an object is like.
    #[command(visible_alias = "info")]
    Show(One),
    #[command(flatten)]
    Old(old_words::Object),
}

#[derive(Debug, Args)]
pub struct Put {
    /// The file; - is standard input.
    #[arg(value_name = "FILE|-")]
    file: PathBuf,
    /// The object [default: the file's name]
    object: Option<String>,
    /// Refuse if there is such an object already.
    #[arg(long)]
    new: bool,
    /// Data of one request.
    #[arg(long, default_value = "1MiB", value_name = "SIZE", value_parser = piece)]
    piece: Bytes,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Args)]
pub struct Get {
    object: String,
    /// The file; - is standard output [default: the last part of the object's name]
    #[arg(value_name = "FILE|-")]
    file: Option<PathBuf>,
    /// Data of one request.
    #[arg(long, default_value = "1MiB", value_name = "SIZE", value_parser = piece)]
    piece: Bytes,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Args)]
pub struct List {
    /// Only names that begin so.
    #[arg(default_value = "")]
    pub(super) prefix: String,
    /// Sizes and generations, too.
    #[arg(short, long)]
    pub(super) long: bool,
    #[command(flatten)]
    pub(super) at: At,
}

#[derive(Debug, Args)]
pub struct Delete {
    #[arg(required = true)]
    pub(super) objects: Vec<String>,
    /// It is no mistake if an object is not there.
    #[arg(short, long)]
    pub(super) force: bool,
    #[command(flatten)]
    pub(super) loss: Loss,
    #[command(flatten)]
    pub(super) at: At,
}

#[derive(Debug, Args)]
pub struct One {
    pub(super) object: String,
    #[command(flatten)]
    pub(super) at: At,
}

pub(super) fn piece(text: &str) -> Result<Bytes, String> {
    let piece: Bytes = text.parse().map_err(|error| format!("{error}"))?;
    let fits = (4 << 10..=4 << 20).contains(&piece.0) && piece.is_multiple_of(4096);
    match fits {
        true => Ok(piece),
        false => Err(format!(
            "{piece} is not a multiple of 4 KiB from 4 KiB to 4 MiB"
        )),
    }
}

/// Runs one of them.
pub fn run(command: Object) -> anyhow::Result<()> {
    match command {
        Object::Put(put) => self::put(put),
        Object::Get(get) => self::get(get),
        Object::List(wanted) => {
            let at = wanted.at.clone();
            with_client((&at, None), async move |client| {
                list(&client, &wanted).await
            })
        }
        Object::Delete(wanted) => {
            if !is_meant(&wanted)? {
                return Ok(());
            }
            let at = wanted.at.clone();
            with_client((&at, Some("write")), async move |client| {
                remove(&client, &wanted).await
            })
        }
        Object::Show(one) => {
            let at = one.at.clone();
            with_client((&at, None), async move |client| stat(&client, &one).await)
        }
        Object::Old(old) => unreachable!("{old:?} is read as its new spelling"),
    }
}

/// Are the objects to go for good? Several are named by their number.
fn is_meant(wanted: &Delete) -> anyhow::Result<bool> {
    let (name, lost) = match &wanted.objects[..] {
        [object] => (
            object.clone(),
            format!("{object} would be deleted for good"),
        ),
        objects => (
            objects.len().to_string(),
            format!("{} objects would be deleted for good", objects.len()),
        ),
    };
    consent::is_given(&name, &lost, &wanted.loss, wanted.at.json)
}

// --- put --------------------------------------------------------------------------------------------

/// What was moved, for programs.
#[derive(Serialize, ToSchema)]
pub struct Moved {
    object: String,
    bytes: u64,
    seconds: f64,
    mb_per_second: f64,
    generation: String,
}

impl Moved {
    fn new(object: &str, bytes: u64, took: Nanos, generation: store::Version) -> Moved {
        let seconds = took.secs_f64().max(1e-9);
        Moved {
            object: object.to_owned(),
            bytes,
            seconds,
            mb_per_second: bytes as f64 / seconds / 1e6,
            generation: generation.to_string(),
        }
    }

    /// To standard error; stdout may be the data.
    fn print(&self, json: bool, verb: &str) -> anyhow::Result<()> {
        if json {
            return show::json(self);
        }
        if io::stderr().is_terminal() {
            eprintln!(
                "{verb} {}: {} in {:.2} s, {} MB/s",
                self.object,
                size(self.bytes),
                self.seconds,
                megabytes_per_second(self.mb_per_second * 1e6)
            );
        }
        Ok(())
    }
}

fn put(put: Put) -> anyhow::Result<()> {
    let is_stdin = put.file == Path::new("-");
    let object = match (&put.object, put.file.file_name()) {
        (Some(object), _) => object.clone(),
        (None, Some(name)) if !is_stdin => name.to_string_lossy().into_owned(),
        _ => return Err(Usage("name the object: tanada object put - NAME".to_owned()).into()),
    };
    let (source, length): (Box<dyn Read + Send>, Option<u64>) = match is_stdin {
        true => (Box::new(io::stdin()), None),
        false => {
            let said = || format!("cannot read {}", put.file.display());
            let file = fs::File::open(&put.file).with_context(said)?;
            let meta = file.metadata().with_context(said)?;
            if meta.is_dir() {
                return Err(anyhow!(
                    "{} is a directory; put one file at a time",
                    put.file.display()
                ));
            }
            let length = meta.is_file().then_some(meta.len());
            (Box::new(file), length)
        }
    };
    let json = put.at.json;
    let moved = with_client((&put.at.clone(), Some("write")), async move |client| {
        let bar = bar(&object, length);
        let begun = env::now();
        // Another client that puts the same object at the same time has another one.
        let part = format!("{object}.put-{}", suffix()?);
        let done = send(&client, &part, source, put.piece, &bar).await;
        let done = match done {
            Ok(bytes) => match client.rename(&part, &object, !put.new, Change::FUA).await {
                Ok(generation) => Ok((bytes, generation)),
                Err(error) => Err(anyhow::Error::from(error)),
            },
            Err(error) => Err(error),
        };
        bar.finish_and_clear();
        match done {
            Ok((bytes, generation)) => {
                let took = env::now().since(begun);
                Ok(Moved::new(&object, bytes, took, generation))
            }
            Err(error) => {
                // What cannot be removed either is named, so that the user can.
                if let Err(left) = client.delete(&part, Change::default()).await
                    && !is_not_there(&left)
                {
                    eprintln!("tanada: {part} may be left behind: {left}");
                }
                Err(error)
            }
        }
    })?;
    moved.print(json, "put")
}

fn suffix() -> anyhow::Result<String> {
    let key = secrets::fresh()?;
    Ok(key[..6].iter().map(|byte| format!("{byte:02x}")).collect())
}

pub(super) fn is_not_there(error: &store::net::client::ClientError) -> bool {
    let store::net::client::ClientError::Store(error) = error else {
        return false;
    };
    matches!(error, store::StoreError::NotFound { .. })
}

/// Writes all of `source` to a new object; how many bytes that was.
async fn send(
    client: &Client,
    object: &str,
    source: Box<dyn Read + Send>,
    piece: Bytes,
    bar: &ProgressBar,
) -> anyhow::Result<u64> {
    let piece = piece.0.min(client.write_max()) as usize;
    let mut reader = Reader::start(source, piece)?;
    client.create(object, &[], Change::default()).await?;
    let mut offset = 0;
    let mut under_way = VecDeque::new();
    while let Some(data) = reader.next().await? {
        if under_way.len() >= DEPTH {
            let first: env::Task<_> = under_way.pop_front().expect("just counted");
            first.await?;
        }
        let length = data.len() as u64;
        let (client, object) = (client.clone(), object.to_owned());
        let data = Buf::copy_of(&data).freeze();
        under_way.push_back(env::spawn(async move {
            client.write(&object, offset, data, Change::default()).await
        }));
        offset += length;
        bar.inc(length);
    }
    for task in under_way {
        task.await?;
    }
    client.flush().await?;
    Ok(offset)
}

// --- get --------------------------------------------------------------------------------------------

fn get(get: Get) -> anyhow::Result<()> {
    let file = match &get.file {
        Some(file) => file.clone(),
        None => {
            let last = get.object.rsplit('/').find(|part| !part.is_empty());
            match last {
                Some(last) if last != "." && last != ".." => PathBuf::from(last),
                _ => {
                    return Err(
                        Usage("name the file: tanada object get NAME FILE".to_owned()).into(),
                    );
                }
            }
        }
    };
    let to_stdout = file == Path::new("-");
    if to_stdout && get.at.json {
        let said = "--json and the data both go to standard output; name a file";
        return Err(Usage(said.to_owned()).into());
    }
    let json = get.at.json;
    let moved = with_client((&get.at.clone(), Some("read")), async move |client| {
        let begun = env::now();
        let stat = client.stat(&get.object).await?;
        let mut target = Destination::open(&file)?;
        let bar = bar(&get.object, Some(stat.size));
        let sink = target.sink()?;
        let received = receive(&client, &stat, sink, get.piece, &bar).await;
        bar.finish_and_clear();
        received?;
        let now = client.stat(&get.object).await?;
        if now.version != stat.version {
            return Err(anyhow!(
                "{} changed while it was read (from generation {} to {}); get it again",
                get.object,
                stat.version,
                now.version
            ));
        }
        target.keep()?;
        let took = env::now().since(begun);
        Ok(Moved::new(&get.object, stat.size, took, stat.version))
    })?;
    moved.print(json, "got")
}

/// Reads the whole object into `sink`, in order.
async fn receive(
    client: &Client,
    stat: &Stat,
    sink: Box<dyn Write + Send>,
    piece: Bytes,
    bar: &ProgressBar,
) -> anyhow::Result<()> {
    let piece = piece.0.min(client.read_max());
    let mut writer = Writer::start(sink)?;
    let mut asked = 0;
    let mut received = 0;
    let mut under_way = VecDeque::new();
    while received < stat.size {
        while asked < stat.size && under_way.len() < DEPTH {
            let (client, object, offset) = (client.clone(), stat.name.clone(), asked);
            let length = piece.min(stat.size - asked);
            under_way.push_back(env::spawn(async move {
                client.read(&object, offset, length).await
            }));
            asked += length;
        }
        let first: env::Task<_> = under_way.pop_front().expect("more is to come");
        let data = first.await?;
        let expected = piece.min(stat.size - received);
        if data.len() as u64 != expected {
            return Err(anyhow!(
                "{} became shorter while it was read: {} of {expected} bytes at {received}; get it again",
                stat.name,
                data.len()
            ));
        }
        writer.write(&data).await?;
        received += data.len() as u64;
        bar.inc(data.len() as u64);
    }
    writer.finish().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_whole_pages_that_one_request_takes() {
        assert_eq!(piece("1MiB"), Ok(Bytes::mib(1)));
        for odd in ["0", "1000", "8MiB", "much"] {
            assert!(piece(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn what_a_thread_reads_arrives_whole_and_in_order() {
        let data: Vec<u8> = (0..100_000u32).map(|n| n as u8).collect();
        let (source, sent) = (data.clone(), data);
        let runtime = env::Runtime::real(env::RealConfig::default()).unwrap();
        let got = runtime.block_on(async move {
            let mut reader = Reader::start(Box::new(io::Cursor::new(source)), 4096).unwrap();
            let mut got = Vec::new();
            while let Some(piece) = reader.next().await.unwrap() {
                got.extend(piece);
            }
            got
        });
        assert_eq!(got, sent);
    }

    #[test]
    fn a_file_has_its_name_only_when_it_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("got");
        {
            let target = Destination::open(&file).unwrap();
            target.sink().unwrap().write_all(b"half").unwrap();
        }
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            0,
            "nothing stays"
        );
        let mut target = Destination::open(&file).unwrap();
        target.sink().unwrap().write_all(b"whole").unwrap();
        target.keep().unwrap();
        drop(target);
        assert_eq!(fs::read(&file).unwrap(), b"whole");
    }
}
