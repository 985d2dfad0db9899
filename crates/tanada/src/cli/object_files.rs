//! Files on threads of their own, so that a store never waits for a disk.

use super::object::DEPTH;
use anyhow::{Context, anyhow};
use env::{Mailbox, Poster};
use indicatif::{ProgressBar, ProgressStyle};
use std::fs;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc;

/// Where data go: standard output, or a file that has its name only when it is whole.
pub(super) enum Destination {
    Stdout,
    Direct(PathBuf),
    Part {
        part: PathBuf,
        file: PathBuf,
        kept: bool,
    },
}

impl Destination {
    pub(super) fn open(file: &Path) -> anyhow::Result<Destination> {
        if file == Path::new("-") {
            return Ok(Destination::Stdout);
        }
        // A device, a pipe and such cannot be replaced.
        match fs::metadata(file) {
            Ok(meta) if meta.is_dir() => Err(anyhow!(
                "{} is a directory; name a file in it",
                file.display()
            )),
            Ok(meta) if !meta.is_file() => Ok(Destination::Direct(file.to_owned())),
            _ => {
                let mut part = file.as_os_str().to_owned();
                part.push(format!(".part-{}", std::process::id()));
                Ok(Destination::Part {
                    part: part.into(),
                    file: file.to_owned(),
                    kept: false,
                })
            }
        }
    }

    pub(super) fn sink(&self) -> anyhow::Result<Box<dyn Write + Send>> {
        let create = |path: &Path| {
            fs::File::create(path).with_context(|| format!("cannot write {}", path.display()))
        };
        Ok(match self {
            Destination::Stdout => Box::new(io::stdout()),
            Destination::Direct(path) => Box::new(create(path)?),
            Destination::Part { part, .. } => Box::new(create(part)?),
        })
    }

    pub(super) fn keep(&mut self) -> anyhow::Result<()> {
        if let Destination::Part { part, file, kept } = self {
            fs::rename(&*part, &*file)
                .with_context(|| format!("cannot write {}", file.display()))?;
            *kept = true;
        }
        Ok(())
    }
}

impl Drop for Destination {
    fn drop(&mut self) {
        if let Destination::Part {
            part, kept: false, ..
        } = self
        {
            // It may never have been made.
            let _ = fs::remove_file(part);
        }
    }
}

/// A thread that reads, so that a slow pipe does not hold the connection up. It reads ahead by as many pieces as are on
/// their way.
pub(super) struct Reader {
    pub(super) wanted: mpsc::Sender<()>,
    pub(super) pieces: Mailbox<io::Result<Vec<u8>>>,
}

impl Reader {
    pub(super) fn start(mut source: Box<dyn Read + Send>, piece: usize) -> anyhow::Result<Reader> {
        let (wanted, asked) = mpsc::channel::<()>();
        let (poster, pieces): (Poster<io::Result<Vec<u8>>>, _) = env::mailbox();
        let reading = move || {
            for () in asked {
                let mut data = Vec::with_capacity(piece);
                let limit = piece as u64;
                let read = source.by_ref().take(limit).read_to_end(&mut data);
                let ended = !matches!(read, Ok(n) if n > 0);
                if poster.post(read.map(|_| data)).is_err() || ended {
                    return;
                }
            }
        };
        std::thread::Builder::new()
            .name("read".to_owned())
            .spawn(reading)
            .context("cannot start a thread")?;
        for _ in 0..DEPTH {
            // A thread that has ended has posted why.
            let _ = wanted.send(());
        }
        Ok(Reader { wanted, pieces })
    }

    /// The next piece; `None` at the end.
    pub(super) async fn next(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        let piece = self.pieces.receive().await;
        let data = piece
            .map_err(|_| anyhow!("the reading thread ended"))?
            .context("cannot read what is to be put")?;
        let _ = self.wanted.send(());
        Ok((!data.is_empty()).then_some(data))
    }
}

/// A thread that writes.
pub(super) struct Writer {
    pub(super) pieces: Option<mpsc::SyncSender<Vec<u8>>>,
    pub(super) done: Mailbox<io::Result<()>>,
    pub(super) ahead: usize,
}

impl Writer {
    pub(super) fn start(mut sink: Box<dyn Write + Send>) -> anyhow::Result<Writer> {
        let (pieces, given) = mpsc::sync_channel::<Vec<u8>>(DEPTH);
        let (poster, done): (Poster<io::Result<()>>, _) = env::mailbox();
        let writing = move || {
            for piece in given {
                let written = sink.write_all(&piece);
                let failed = written.is_err();
                if poster.post(written).is_err() || failed {
                    return;
                }
            }
            let _ = poster.post(sink.flush());
        };
        std::thread::Builder::new()
            .name("write".to_owned())
            .spawn(writing)
            .context("cannot start a thread")?;
        Ok(Writer {
            pieces: Some(pieces),
            done,
            ahead: 0,
        })
    }

    pub(super) async fn write(&mut self, data: &[u8]) -> anyhow::Result<()> {
        if self.ahead == DEPTH {
            self.one_done().await?;
        }
        let pieces = self.pieces.as_ref().expect("not finished");
        // With fewer ahead than it holds the channel never blocks; a thread that ended has posted why.
        let sent = pieces.try_send(data.to_vec()).is_ok();
        self.ahead += 1;
        if !sent {
            self.one_done().await?;
        }
        Ok(())
    }

    pub(super) async fn one_done(&mut self) -> anyhow::Result<()> {
        let done = self.done.receive().await;
        self.ahead = self.ahead.saturating_sub(1);
        // With its source, so that a closed pipe is known as one.
        Ok(done.map_err(|_| anyhow!("the writing thread ended"))??)
    }

    pub(super) async fn finish(mut self) -> anyhow::Result<()> {
        self.pieces = None;
        for _ in 0..=self.ahead {
            self.one_done().await?;
        }
        Ok(())
    }
}

pub(super) fn bar(object: &str, length: Option<u64>) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match length {
        Some(length) => (
            ProgressBar::new(length),
            "{msg} {wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}, {eta}",
        ),
        None => (
            ProgressBar::new_spinner(),
            "{msg} {spinner} {bytes}, {bytes_per_sec}",
        ),
    };
    let style = ProgressStyle::with_template(template).expect("a constant template");
    bar.with_style(style).with_message(object.to_owned())
}
