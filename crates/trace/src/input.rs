//! The bytes of a trace: plain, gzip or zstd, recognized by how they begin, never by the name.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::read::MultiGzDecoder;

use super::TraceError;

/// How many bytes are decoded at a time: what they become, some ten thousand requests, stays in the
/// second-level cache.
pub const BLOCK: usize = 256 << 10;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// How much of a file has been read, as it lies on disk.
#[derive(Debug, Default)]
pub(super) struct Progress {
    read: AtomicU64,
    whole: u64,
}

impl Progress {
    /// Bytes read and bytes in all; 0 in all where that is unknown (a pipe).
    pub(super) fn get(&self) -> (u64, u64) {
        (self.read.load(Ordering::Relaxed), self.whole)
    }

    /// The file has been read up to byte `at`, by whatever reads it from any place.
    pub(super) fn reach(&self, at: u64) {
        self.read.store(at, Ordering::Relaxed);
    }
}

struct Counted<R> {
    reader: R,
    progress: Arc<Progress>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.reader.read(buffer)?;
        self.progress.read.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// A trace file being read: its bytes unpacked, and the first block of them already there.
pub(super) struct Input {
    pub(super) name: String,
    reader: Box<dyn Read + Send>,
    packing: Option<&'static str>,
    /// The file itself, if it can be read from any place.
    file: Option<File>,
    pub(super) progress: Arc<Progress>,
    buffer: Vec<u8>,
    /// The part of `buffer` that is not decoded yet.
    start: usize,
    end: usize,
    /// Where in the file, unpacked, `start` is.
    position: u64,
    ended: bool,
}

impl Input {
    /// Opens `path`; `-` is standard input.
    pub(super) fn open(path: &Path) -> Result<Input, TraceError> {
        if path == Path::new("-") {
            return Input::new("standard input".to_owned(), Box::new(io::stdin()), 0);
        }
        let name = path.display().to_string();
        let failed = |source| TraceError::Io {
            file: name.clone(),
            source,
        };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let again = if metadata.is_file() {
            Some(file.try_clone().map_err(failed)?)
        } else {
            None
        };
        let mut input = Input::new(name, Box::new(file), metadata.len())?;
        input.file = again.filter(|_| input.packing.is_none());
        Ok(input)
    }

    /// The file, for a format that is not read from start to end; none if it is packed, a pipe or the like.
    pub(super) fn plain_file(&mut self) -> Option<File> {
        self.file.take()
    }

    /// Begins to read `reader`, which holds `whole` bytes (0: unknown).
    pub(super) fn new(
        name: String,
        reader: Box<dyn Read + Send>,
        whole: u64,
    ) -> Result<Input, TraceError> {
        let progress = Arc::new(Progress {
            read: AtomicU64::new(0),
            whole,
        });
        let mut counted = Counted {
            reader,
            progress: progress.clone(),
        };
        let failed = |source| TraceError::Io {
            file: name.clone(),
            source,
        };
        let mut head = Vec::with_capacity(ZSTD.len());
        (&mut counted)
            .take(ZSTD.len() as u64)
            .read_to_end(&mut head)
            .map_err(failed)?;
        let packing = match head.as_slice() {
            [first, second, ..] if [*first, *second] == GZIP => Some("gzip"),
            head if head == ZSTD => Some("zstd"),
            _ => None,
        };
        let raw = Cursor::new(head).chain(counted);
        let reader: Box<dyn Read + Send> = match packing {
            Some("gzip") => Box::new(MultiGzDecoder::new(io::BufReader::with_capacity(
                64 << 10,
                raw,
            ))),
            Some(_) => Box::new(zstd::stream::read::Decoder::new(raw).map_err(failed)?),
            None => Box::new(raw),
        };
        let mut input = Input {
            name,
            reader,
            packing,
            file: None,
            progress,
            buffer: vec![0; BLOCK],
            start: 0,
            end: 0,
            position: 0,
            ended: false,
        };
        input.fill()?;
        Ok(input)
    }

    /// The bytes that are there and not decoded yet.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Does the file end with them?
    pub(super) fn is_last(&self) -> bool {
        self.ended
    }

    /// Is there no room for more of the file?
    pub(super) fn is_full(&self) -> bool {
        self.end - self.start == self.buffer.len()
    }

    /// Where in the file, unpacked, they begin.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// The first `n` of them are decoded.
    pub(super) fn consume(&mut self, n: usize) {
        assert!(n <= self.end - self.start, "more decoded than was there");
        self.start += n;
        self.position += n as u64;
    }

    /// Fills the buffer up with what comes next.
    pub(super) fn fill(&mut self) -> Result<(), TraceError> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while !self.ended && self.end < self.buffer.len() {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.ended = true,
                Ok(n) => self.end += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
        Ok(())
    }

    fn failed(&self, source: io::Error) -> TraceError {
        let file = self.name.clone();
        match self.packing {
            // What the system refuses has a number; what does not unpack has none.
            Some(packing) if source.raw_os_error().is_none() => TraceError::Packing {
                file,
                packing,
                unpacked: self.position + self.end as u64,
                source,
            },
            _ => TraceError::Io { file, source },
        }
    }
}
