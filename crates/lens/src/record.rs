//! Recording what a running device is asked, as a trace in the normal form.
//!
//! ```text
//! Tap -> Recorder: lines in a batch -> (bounded queue) -> writer thread -> FILE, FILE.1, FILE.2 ...
//!                  queue full: the batch is dropped and counted
//! ```
//!
//! FILE is being written; when it is full it becomes FILE.1, what was FILE.1 becomes FILE.2, and the oldest
//! goes. Each is a trace of its own with header; times are microseconds since the recording began, in all of
//! them, so that they can be read as one trace. Where requests are missing a remark says how many.
//!
//! Always true:
//! 1. The data path never waits for the file: it hands batches over or drops them.
//! 2. Files together hold no more than asked for, whatever happens.
//! 3. Requests written, dropped and still under way add up to those seen.
//! 4. Only traces are ever overwritten: a file that is none is refused before anything is touched.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use base::{Bytes, Instant, Nanos, Span};

use crate::tap::Observer;
use crate::trace::write::push_csv;
use crate::trace::{HEADER, Op, Request};

/// How much all files of a recording hold, unless asked otherwise: some 40 million requests.
pub const DEFAULT_MAX: Bytes = Bytes::gib(1);
/// The least that can be asked for.
pub const LEAST_MAX: Bytes = Bytes::mib(1);
/// Files of a recording: the one being written and those before it.
///
/// Choice: eight, so that at least seven eighths of the bound hold the latest past.
pub const FILES: u64 = 8;
/// A batch is handed over when it is so long, or so old.
const BATCH_BYTES: usize = 64 << 10;
const BATCH_AGE: Nanos = Nanos::secs(1);
/// Batches on their way: 16 MiB, half a million requests.
const QUEUE: usize = 256;
/// How often the end of the writer is looked for.
const POLL: Nanos = Nanos::millis(5);

/// Why a recording cannot begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// Too little to hold anything.
    #[error("a recording of at most {asked} is too small; ask for {LEAST_MAX} at least")]
    TooSmall {
        /// What was asked for.
        asked: Bytes,
    },
    /// Something else lies there.
    #[error(
        "{file} is there already and is no trace in the normal form; move it away or name another file"
    )]
    NotATrace {
        /// The file in the way.
        file: String,
    },
    /// Another recording writes there.
    #[error("{file} is being recorded to already; name another file or stop that recording")]
    InUse {
        /// The file.
        file: String,
    },
    /// The system refused.
    #[error("cannot record to {file}")]
    Io {
        /// The file.
        file: String,
        /// What the system said.
        source: io::Error,
    },
}

/// How a recording goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    /// The file being written.
    pub file: PathBuf,
    /// What all files may hold.
    pub max: Bytes,
    /// Requests in the files, those rotated away since included.
    pub written: u64,
    /// Requests that are missing, because the file could not be written fast enough.
    pub dropped: u64,
    /// Bytes written, those rotated away since included.
    pub bytes: Bytes,
    /// Why it ended by itself, if it did.
    pub failed: Option<String>,
}

/// What the writer tells the recorder.
#[derive(Debug, Default)]
struct Shared {
    /// What all files may hold.
    max: AtomicU64,
    written: AtomicU64,
    bytes: AtomicU64,
    failed: OnceLock<String>,
}

/// Lines on their way to the file.
#[derive(Debug, Default)]
struct Batch {
    lines: Vec<u8>,
    requests: u64,
    /// Requests that were dropped before these.
    missing: u64,
}

/// Records what a [`crate::tap::Tap`] shows it.
///
/// # Example
/// ```
/// use base::{Instant, Span};
/// use lens::{record::{DEFAULT_MAX, Recorder}, tap::Observer, trace::Op};
///
/// let dir = tempfile::tempdir()?;
/// let mut recorder = Recorder::start(&dir.path().join("vol0.csv"), DEFAULT_MAX, Instant(0))?;
/// recorder.request(Instant(7000), Op::Read, Span::bytes(4096, 512));
/// let done = recorder.join();
/// assert_eq!((done.written, done.dropped), (1, 0));
/// assert_eq!(std::fs::read_to_string(&done.file)?, "t_us,op,offset,size,dev\n7,R,4096,512,0\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Recorder {
    file: PathBuf,
    began: Instant,
    shared: Arc<Shared>,
    queue: Option<SyncSender<Batch>>,
    writer: Option<JoinHandle<()>>,
    batch: Batch,
    batch_since: Instant,
    dropped: u64,
}

impl Recorder {
    /// Begins a recording to `file`, of at most `max` in all files, at the moment `now`. Traces that lie
    /// there from earlier are kept like earlier files of this recording, within `max`.
    ///
    /// # Errors
    /// [`RecordError`] if nothing can be written there.
    pub fn start(file: &Path, max: Bytes, now: Instant) -> Result<Recorder, RecordError> {
        let segments = Segments::open(file, max)?;
        let shared = Arc::new(Shared {
            max: AtomicU64::new(max.0),
            bytes: AtomicU64::new(segments.written),
            ..Shared::default()
        });
        let (queue, batches) = sync_channel(QUEUE);
        let writers = Arc::clone(&shared);
        // Files can keep a thread waiting for seconds, and this one decides nothing.
        let writer = std::thread::Builder::new()
            .name("trace".to_owned())
            .spawn(move || write_batches(segments, &batches, &writers))
            .map_err(|source| RecordError::Io {
                file: file.display().to_string(),
                source,
            })?;
        Ok(Recorder {
            file: file.to_owned(),
            began: now,
            shared,
            queue: Some(queue),
            writer: Some(writer),
            batch: Batch::default(),
            batch_since: now,
            dropped: 0,
        })
    }

    /// As [`Recorder::start`], from a data thread: files are looked at by a thread of their own, and nothing
    /// here waits for them. The recording begins when the answer is there.
    ///
    /// # Errors
    /// As [`Recorder::start`].
    pub async fn open(file: &Path, max: Bytes) -> Result<Recorder, RecordError> {
        let path = file.to_owned();
        let failed = |source| RecordError::Io {
            file: file.display().to_string(),
            source,
        };
        let opener = std::thread::Builder::new()
            .name("trace".to_owned())
            .spawn(move || Recorder::start(&path, max, Instant(0)))
            .map_err(failed)?;
        while !opener.is_finished() {
            env::sleep(POLL).await;
        }
        let opened = opener.join();
        let mut recorder =
            opened.map_err(|_| failed(io::Error::other("opening it panicked")))??;
        recorder.began = env::now();
        Ok(recorder)
    }

    /// Bounds all files together by `max` from the next rotation on.
    ///
    /// # Errors
    /// [`RecordError::TooSmall`].
    pub fn set_max(&self, max: Bytes) -> Result<(), RecordError> {
        check_max(max)?;
        self.shared.max.store(max.0, Ordering::Relaxed);
        Ok(())
    }

    /// Hands over what was gathered, if it has waited a second; to be called now and then, so that the file
    /// is up to date when nothing is asked any more.
    pub fn tick(&mut self, now: Instant) {
        if self.batch.requests > 0 && now.since(self.batch_since) >= BATCH_AGE {
            self.hand_over();
        }
    }

    /// How it goes.
    pub fn status(&self) -> Recording {
        Recording {
            file: self.file.clone(),
            max: Bytes(self.shared.max.load(Ordering::Relaxed)),
            written: self.shared.written.load(Ordering::Relaxed),
            dropped: self.dropped,
            bytes: Bytes(self.shared.bytes.load(Ordering::Relaxed)),
            failed: self.shared.failed.get().cloned(),
        }
    }

    fn hand_over(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        let requests = batch.requests;
        let missing = batch.missing;
        let Some(queue) = &self.queue else { return };
        // A writer that failed takes nothing more: those requests are missing too.
        if queue.try_send(batch).is_err() {
            self.dropped += requests;
            self.batch.missing = missing + requests;
        }
    }

    /// Ends the recording, on a data thread: nothing else there waits for the file. Gives the file up after
    /// `patience`; what is not written by then is lost, and the status says so.
    pub async fn finish(mut self, patience: Nanos) -> Recording {
        let deadline = env::now() + patience;
        if let Some(queue) = self.queue.take() {
            let mut last = std::mem::take(&mut self.batch);
            let requests = last.requests;
            loop {
                match queue.try_send(last) {
                    Ok(()) => break,
                    Err(TrySendError::Full(again)) if env::now() < deadline => last = again,
                    Err(_) => {
                        self.dropped += requests;
                        break;
                    }
                }
                env::sleep(POLL).await;
            }
        }
        while self
            .writer
            .as_ref()
            .is_some_and(|writer| !writer.is_finished())
            && env::now() < deadline
        {
            env::sleep(POLL).await;
        }
        self.status()
    }

    /// Ends the recording and waits for the file, which blocks the thread: for tools and tests.
    pub fn join(mut self) -> Recording {
        let last = std::mem::take(&mut self.batch);
        let requests = last.requests;
        if let Some(queue) = self.queue.take()
            && queue.send(last).is_err()
        {
            self.dropped += requests;
        }
        if let Some(writer) = self.writer.take() {
            // A panic of the writer has been printed; the figures tell what it wrote.
            let _ = writer.join();
        }
        self.status()
    }
}

impl Observer for Recorder {
    fn request(&mut self, at: Instant, op: Op, span: Span) {
        if self.shared.failed.get().is_some() {
            self.dropped += 1;
            return;
        }
        if self.batch.requests == 0 {
            self.batch_since = at;
        }
        let request = Request {
            at: at.since(self.began),
            offset: Bytes(span.start.byte()),
            size: span.len,
            device: 0,
            op,
        };
        push_csv(&[request], &mut self.batch.lines);
        self.batch.requests += 1;
        if self.batch.lines.len() >= BATCH_BYTES || at.since(self.batch_since) >= BATCH_AGE {
            self.hand_over();
        }
    }
}

/// The writer thread.
fn write_batches(mut segments: Segments, batches: &Receiver<Batch>, shared: &Shared) {
    for batch in batches {
        let segment = shared.max.load(Ordering::Relaxed) / FILES;
        match segments.write(&batch, segment) {
            Ok(bytes) => {
                shared.bytes.fetch_add(bytes, Ordering::Relaxed);
                shared.written.fetch_add(batch.requests, Ordering::Relaxed);
            }
            Err(error) => {
                let why = format!("cannot write {}: {error}", segments.file.display());
                // Only this thread sets it, and only once.
                let _ = shared.failed.set(why);
                return;
            }
        }
    }
}

/// FILE, FILE.1, ...
#[derive(Debug)]
struct Segments {
    file: PathBuf,
    open: File,
    written: u64,
}

impl Segments {
    /// Makes an empty FILE, after what lies there was moved on.
    fn open(file: &Path, max: Bytes) -> Result<Segments, RecordError> {
        check_max(max)?;
        let shown = file.display().to_string();
        let io = |source| RecordError::Io {
            file: shown.clone(),
            source,
        };
        for n in 0..FILES {
            let one = numbered(file, n);
            if !is_trace_or_absent(&one).map_err(io)? {
                let file = one.display().to_string();
                return Err(RecordError::NotATrace { file });
            }
        }
        match File::open(file).map(|old| old.try_lock()) {
            Ok(Err(fs::TryLockError::WouldBlock)) => {
                return Err(RecordError::InUse { file: shown });
            }
            // A file system without locks, or no file yet.
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io(error)),
        }
        let (open, written) = rotate(file, max.0 / FILES).map_err(io)?;
        Ok(Segments {
            file: file.to_owned(),
            open,
            written,
        })
    }

    /// Writes a batch, into a new file if this one would grow longer than `segment`; says how many bytes
    /// that took.
    fn write(&mut self, batch: &Batch, segment: u64) -> io::Result<u64> {
        let mut bytes = 0;
        if self.written + batch.lines.len() as u64 + REMARK_MAX > segment {
            (self.open, self.written) = rotate(&self.file, segment)?;
            bytes += self.written;
        }
        if batch.missing > 0 {
            let remark = format!(
                "# {} requests before this line are missing: the file could not be written fast enough\n",
                batch.missing
            );
            self.open.write_all(remark.as_bytes())?;
            self.written += remark.len() as u64;
            bytes += remark.len() as u64;
        }
        self.open.write_all(&batch.lines)?;
        self.written += batch.lines.len() as u64;
        Ok(bytes + batch.lines.len() as u64)
    }
}

/// Refuses a bound that holds next to nothing.
///
/// # Errors
/// [`RecordError::TooSmall`].
pub fn check_max(max: Bytes) -> Result<(), RecordError> {
    match max < LEAST_MAX {
        true => Err(RecordError::TooSmall { asked: max }),
        false => Ok(()),
    }
}

/// A remark is shorter.
const REMARK_MAX: u64 = 128;

/// Moves every file one on, drops those that are too old or too long for the bound, and begins FILE anew;
/// says how long it is.
fn rotate(file: &Path, segment: u64) -> io::Result<(File, u64)> {
    let gone = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    };
    gone(fs::remove_file(numbered(file, FILES - 1)))?;
    for n in (0..FILES - 1).rev() {
        let one = numbered(file, n);
        let length = fs::metadata(&one).map_or(0, |meta| meta.len());
        match n == 0 && length <= HEADER.len() as u64 + 1 || length > segment {
            // Nothing in it, or left by a recording with a higher bound.
            true => gone(fs::remove_file(&one))?,
            false => gone(fs::rename(&one, numbered(file, n + 1)))?,
        }
    }
    let mut open = OpenOptions::new().write(true).create_new(true).open(file)?;
    // So that no second recording takes the same file; a file system without locks has to do without.
    let _ = open.try_lock();
    open.write_all(HEADER.as_bytes())?;
    open.write_all(b"\n")?;
    Ok((open, HEADER.len() as u64 + 1))
}

/// FILE for 0, else FILE.n.
fn numbered(file: &Path, n: u64) -> PathBuf {
    match n {
        0 => file.to_owned(),
        n => {
            let mut name = file.as_os_str().to_owned();
            name.push(format!(".{n}"));
            name.into()
        }
    }
}

/// Is there nothing, an empty file, or a trace in the normal form?
fn is_trace_or_absent(file: &Path) -> io::Result<bool> {
    let meta = match fs::metadata(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        meta => meta?,
    };
    if !meta.is_file() {
        return Ok(false);
    }
    let mut start = Vec::new();
    File::open(file)?
        .take(HEADER.len() as u64)
        .read_to_end(&mut start)?;
    Ok(start.is_empty() || start == HEADER.as_bytes())
}

#[cfg(test)]
mod tests;
