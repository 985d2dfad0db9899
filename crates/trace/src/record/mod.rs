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

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use base::{Bytes, Instant, Nanos, Span};

use crate::tap::Observer;
use crate::write::push_csv;
use crate::{HEADER, Op, Request};

/// How much all files of a recording hold, unless asked otherwise: some 40 million requests.
pub const DEFAULT_MAX: Bytes = Bytes::gib(1);
/// The least that can be asked for.
pub const LEAST_MAX: Bytes = Bytes::mib(1);
/// Files of a recording: the one being written and those before it.
///
/// Choice: eight, so that at least seven eighths of the bound hold the latest past.
pub const FILES: u64 = 8;
/// A batch is sent when it is so long, or so old.
const BATCH_BYTES: usize = 64 << 10;
const BATCH_AGE: Nanos = Nanos::secs(1);
/// Batches on their way: 16 MiB, half a million requests.
const QUEUE: usize = 256;
/// Begins the second line of every file: the mark of a recording.
const MARK: &str = "# recorded by tanada";
/// The two first lines are shorter.
const HEAD_MAX: u64 = 256;
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
        "{file} is there already and was not recorded by tanada; move it away or name another file"
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

fn io_error(file: &Path) -> impl Fn(io::Error) -> RecordError {
    let file = file.display().to_string();
    move |source| RecordError::Io {
        file: file.clone(),
        source,
    }
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

/// FILE, FILE.1, ...
#[derive(Debug)]
struct Segments {
    file: PathBuf,
    open: File,
    written: u64,
    /// What all files may hold.
    max: u64,
    /// The first lines of every file.
    head: String,
}

impl Segments {
    /// Makes an empty FILE, after what lies there was moved on. The recording begins at `wall`.
    fn open(file: &Path, max: Bytes, wall: Nanos) -> Result<Segments, RecordError> {
        check_max(max)?;
        // First of all: only a file that is one can be opened without waiting.
        look(file)?;
        match File::open(file).map(|old| old.try_lock()) {
            Ok(Err(fs::TryLockError::WouldBlock)) => {
                let file = file.display().to_string();
                return Err(RecordError::InUse { file });
            }
            // A file system without locks, or no file yet.
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io_error(file)(error)),
        }
        const SECOND: u64 = Nanos::secs(1).0;
        let head = format!(
            "{HEADER}\n{MARK}: times count from {}.{:09} (seconds since 1970); a file with another start is another trace\n",
            wall.0 / SECOND,
            wall.0 % SECOND,
        );
        let open = rotate(file, max.0, &head)?;
        Ok(Segments {
            file: file.to_owned(),
            open,
            written: head.len() as u64,
            max: max.0,
            head,
        })
    }

    /// Writes a batch, into a new file if this one would grow too long for files of together `max`; says
    /// how many bytes that took.
    fn write(&mut self, batch: &Batch, max: u64) -> Result<u64, RecordError> {
        let mut bytes = 0;
        let full = self.written + batch.lines.len() as u64 + REMARK_MAX > max / FILES;
        if full || max < self.max {
            self.open = rotate(&self.file, max, &self.head)?;
            self.written = self.head.len() as u64;
            bytes += self.written;
        }
        self.max = max;
        let remark = match batch.missing {
            0 => String::new(),
            missing => format!(
                "# {missing} requests before this line are missing: the file could not be written fast enough\n"
            ),
        };
        let mut write = || {
            self.open.write_all(remark.as_bytes())?;
            self.open.write_all(&batch.lines)
        };
        if let Err(error) = write() {
            // Nothing of the batch counts as written. Where it cannot be taken back, the file ends in half a line.
            let _ = self.open.set_len(self.written);
            return Err(io_error(&self.file)(error));
        }
        let added = (remark.len() + batch.lines.len()) as u64;
        self.written += added;
        Ok(bytes + added)
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

/// Moves files one on, up to the first gap, removes the oldest that do not fit beside a new one, and begins
/// FILE anew with `head`.
fn rotate(file: &Path, max: u64, head: &str) -> Result<File, RecordError> {
    let mut lengths = look(file)?;
    let io = io_error(file);
    let gone = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.map_err(&io),
    };
    if lengths[0] == Some(0) {
        gone(fs::remove_file(file))?;
        lengths[0] = None;
    }
    let mut room = Some(max - max / FILES);
    let gap = lengths.iter().position(Option::is_none);
    let mut kept = Vec::new();
    for (n, length) in (0..FILES).zip(lengths) {
        let Some(length) = length else { continue };
        // What is older than one without room goes too: no holes.
        room = room.and_then(|room| room.checked_sub(length));
        match room.is_some() && (n + 1 < FILES || gap.is_some()) {
            true => kept.push(n),
            false => gone(fs::remove_file(numbered(file, n)))?,
        }
    }
    for n in kept.into_iter().rev() {
        if gap.is_none_or(|gap| n < gap as u64) {
            gone(fs::rename(numbered(file, n), numbered(file, n + 1)))?;
        }
    }
    let begin = OpenOptions::new().write(true).create_new(true).open(file);
    let mut open = begin.map_err(&io)?;
    // So that no second recording takes the same file; a file system without locks has to do without.
    let _ = open.try_lock();
    if let Err(error) = open.write_all(head.as_bytes()) {
        // Half a head would be a file of no recording.
        let _ = fs::remove_file(file);
        return Err(io(error));
    }
    Ok(open)
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

/// How long FILE, FILE.1 and so on are, those without requests 0; none where nothing lies.
///
/// # Errors
/// [`RecordError::NotATrace`] where something lies that no recorder wrote.
fn look(file: &Path) -> Result<Vec<Option<u64>>, RecordError> {
    let one = |n| {
        let one = numbered(file, n);
        match length(&one) {
            Ok(Some(length)) => Ok(Some(length)),
            Ok(None) => Err(RecordError::NotATrace {
                file: one.display().to_string(),
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io_error(&one)(error)),
        }
    };
    (0..FILES).map(one).collect()
}

/// How long the recorded file is, 0 if it has no requests; none if it was not recorded. An empty file is
/// taken for a recorded one: a loss of power leaves such.
fn length(file: &Path) -> io::Result<Option<u64>> {
    let meta = fs::metadata(file)?;
    if !meta.is_file() {
        return Ok(None);
    }
    let mut start = Vec::new();
    File::open(file)?.take(HEAD_MAX).read_to_end(&mut start)?;
    if start.is_empty() {
        return Ok(Some(0));
    }
    let behind_header = start.strip_prefix(HEADER.as_bytes());
    let behind_break = behind_header.and_then(|rest| rest.strip_prefix(b"\n"));
    let Some(rest) = behind_break.and_then(|rest| rest.strip_prefix(MARK.as_bytes())) else {
        return Ok(None);
    };
    let only_head = rest.iter().position(|&byte| byte == b'\n') == Some(rest.len() - 1)
        && meta.len() == start.len() as u64;
    Ok(Some(if only_head { 0 } else { meta.len() }))
}

#[cfg(test)]
mod tests;
