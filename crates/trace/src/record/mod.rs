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
//! ```text
//! t_us,op,offset,size,dev
//! # recorded by tanada: times count from 1792339045.123456789 (seconds since 1970); ...
//! 7,R,4096,512,0
//! ```
//!
//! The remark behind the header says that a file is ours to move and remove, and by its moment which
//! recording it belongs to.
//!
//! Always true:
//! 1. The data path never waits for the file: it hands batches over or drops them.
//! 2. Files together hold no more than asked for; after a lower bound was set, from the next write on.
//! 3. Requests written, dropped and still under way add up to those seen.
//! 4. Only recordings are ever moved or removed: where anything else lies, nothing is touched.

mod segments;

pub use segments::{FILES, LEAST_MAX, RecordError, check_max};

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use base::{Bytes, Instant, Nanos, Span};

use crate::tap::Observer;
use crate::write::push_csv;
use crate::{Op, Request};
use segments::{Batch, Segments, io_error, look};

/// How much all files of a recording hold, unless asked otherwise: some 40 million requests.
pub const DEFAULT_MAX: Bytes = Bytes::gib(1);
/// A batch is sent when it is so long, or so old.
const BATCH_BYTES: usize = 64 << 10;
const BATCH_AGE: Nanos = Nanos::secs(1);
/// Batches on their way: 16 MiB, half a million requests.
const QUEUE: usize = 256;
/// How often the end of the writer is looked for.
const POLL: Nanos = Nanos::millis(5);

/// How a recording goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    /// The file being written.
    pub file: PathBuf,
    /// What all files may hold.
    pub max: Bytes,
    /// Requests in the files, those rotated away since included.
    pub written: u64,
    /// Requests that are missing, because the file could not be written fast enough, or at all.
    pub dropped: u64,
    /// Bytes written, those rotated away since included.
    pub bytes: Bytes,
    /// Why it ended by itself, if it did.
    pub failed: Option<String>,
}

/// What the writer reports to the recorder.
#[derive(Debug, Default)]
struct Shared {
    /// What all files may hold.
    max: AtomicU64,
    written: AtomicU64,
    /// Requests sent that a failed file did not take.
    lost: AtomicU64,
    bytes: AtomicU64,
    failed: OnceLock<String>,
}

/// Records what a [`crate::tap::Tap`] shows it.
///
/// # Example
/// ```
/// use base::{Instant, Nanos, Span};
/// use trace::{record::{DEFAULT_MAX, Recorder}, tap::Observer, Op};
///
/// let dir = tempfile::tempdir()?;
/// let mut recorder = Recorder::start(&dir.path().join("vol0.csv"), DEFAULT_MAX, Instant(0), Nanos::secs(7))?;
/// recorder.request(Instant(7000), Op::Read, Span::bytes(4096, 512));
/// let done = recorder.join();
/// assert_eq!((done.written, done.dropped), (1, 0));
/// let text = std::fs::read_to_string(&done.file)?;
/// let lines: Vec<&str> = text.lines().collect();
/// assert!(lines[1].starts_with("# recorded by tanada: times count from 7.0"));
/// assert_eq!((lines[0], lines[2]), ("t_us,op,offset,size,dev", "7,R,4096,512,0"));
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
    /// Begins a recording to `file`, of at most `max` in all files, at the moment `now`, which is `wall`
    /// since 1970. Recordings that lie there from earlier are kept like earlier files of this one, within
    /// `max`.
    ///
    /// # Errors
    /// [`RecordError`] if nothing can be written there, or something else lies there.
    pub fn start(
        file: &Path,
        max: Bytes,
        now: Instant,
        wall: Nanos,
    ) -> Result<Recorder, RecordError> {
        let segments = Segments::open(file, max, wall)?;
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
        let wall = env::wall_clock();
        let mut recorder =
            aside(file, move || Recorder::start(&path, max, Instant(0), wall)).await?;
        recorder.began = env::now();
        Ok(recorder)
    }

    /// Could a recording begin there, if the file is in no other's use? Touches nothing.
    ///
    /// # Errors
    /// As [`Recorder::start`], but for [`RecordError::InUse`] and what the system refuses when it comes to
    /// writing.
    pub async fn check(file: &Path, max: Bytes) -> Result<(), RecordError> {
        check_max(max)?;
        let path = file.to_owned();
        aside(file, move || look(&path).map(drop)).await
    }

    /// Bounds all files together by `max` from the next write on; if it is lower than before, files that do
    /// not fit any more go then, the oldest first.
    ///
    /// # Errors
    /// [`RecordError::TooSmall`].
    pub fn set_max(&self, max: Bytes) -> Result<(), RecordError> {
        check_max(max)?;
        self.shared.max.store(max.0, Ordering::Relaxed);
        Ok(())
    }

    /// Sends what was gathered, if it has waited a second; to be called now and then, so that the file
    /// is up to date when nothing is asked any more.
    pub fn tick(&mut self, now: Instant) {
        if self.batch.requests > 0 && now.since(self.batch_since) >= BATCH_AGE {
            self.send_batch();
        }
    }

    /// How it goes.
    pub fn status(&self) -> Recording {
        Recording {
            file: self.file.clone(),
            max: Bytes(self.shared.max.load(Ordering::Relaxed)),
            written: self.shared.written.load(Ordering::Relaxed),
            dropped: self.dropped + self.shared.lost.load(Ordering::Relaxed),
            bytes: Bytes(self.shared.bytes.load(Ordering::Relaxed)),
            failed: self.shared.failed.get().cloned(),
        }
    }

    fn send_batch(&mut self) {
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
    /// `timeout`; what is not written by then is lost, and the status says so.
    pub async fn finish(mut self, timeout: Nanos) -> Recording {
        let deadline = env::now() + timeout;
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
            // A panic of the writer has been printed; the figures show what it wrote.
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
            self.send_batch();
        }
    }
}

/// Has a thread of its own do what waits for files, and waits for that without blocking this one.
async fn aside<T: Send + 'static>(
    file: &Path,
    work: impl FnOnce() -> Result<T, RecordError> + Send + 'static,
) -> Result<T, RecordError> {
    let failed = io_error(file);
    let worker = std::thread::Builder::new()
        .name("trace".to_owned())
        .spawn(work)
        .map_err(&failed)?;
    while !worker.is_finished() {
        env::sleep(POLL).await;
    }
    let done = worker.join();
    done.map_err(|_| failed(io::Error::other("opening it panicked")))?
}

/// The writer thread.
fn write_batches(mut segments: Segments, batches: &Receiver<Batch>, shared: &Shared) {
    for batch in batches {
        match segments.write(&batch, shared.max.load(Ordering::Relaxed)) {
            Ok(bytes) => {
                shared.bytes.fetch_add(bytes, Ordering::Relaxed);
                shared.written.fetch_add(batch.requests, Ordering::Relaxed);
            }
            Err(error) => {
                shared.lost.fetch_add(batch.requests, Ordering::Relaxed);
                let why = match error {
                    RecordError::Io { file, source } => format!("cannot write {file}: {source}"),
                    other => other.to_string(),
                };
                // Only this thread sets it, and only once.
                let _ = shared.failed.set(why);
                break;
            }
        }
    }
    // The file is given up; what comes still, after a failure, is only counted.
    drop(segments);
    for batch in batches {
        shared.lost.fetch_add(batch.requests, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
