//! The meta store of one node: a redb file in the data directory.
//!
//! ```text
//! data threads: get, txn, ... -> commands -> the file's thread: all that wait -> one commit -> answers
//! ```
//!
//! redb's calls wait for the disk, so the file has a thread of its own. That thread keeps all entries in memory too:
//! they are few and small, and reads wait for no disk. Commands that wait are carried out together and made durable by
//! one commit; nothing is answered before. Changes of the past are kept in memory alone: no watch outlives the process.
//!
//! Always true:
//! 1. What was answered is in the file, durable.
//! 2. After a commit that failed nothing more is answered from memory: it may have more than the file.
//! 3. A lease that was there when the process ended is over when the file is opened again. One that was there when the file was closed in good
//!    order has its whole time again.
//!
//! Which clients could still count on a lease that was there? Only the one that took it: a client of this file, and all of
//! them were in the one process that had the file locked. That lock ends with the process, or when the file is closed. So
//! where the file was not closed, the process is gone, and with it every client that would answer a request by a lease; what
//! it sent to stores before is refused by their seals, as anything a lease does not hold back. Where it was closed, its
//! clients may live on in the process and count on the answers they had.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;

use ::redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, TableHandle};
use base::Nanos;
use env::{Mailbox, Poster, RealConfig, Runtime};
use tokio::sync::{oneshot, watch};

use super::checked::{Asked, Checked};
use super::state::{Changes, Decision, Memory, State};
use super::{
    Compare, Entry, Event, LeaseId, MetaError, MetaStore, Op, Outcome, Page, Pending, Revision,
    Watch,
};

/// The version of the format; see docs/formats/meta-store.md.
const VERSION: u64 = 1;
/// How many commands one commit may carry.
const BATCH: usize = 256;

const COUNTERS: TableDefinition<&str, u64> = TableDefinition::new("tanada-meta");
const ENTRIES: TableDefinition<&str, &[u8]> = TableDefinition::new("entries");
const LEASES: TableDefinition<u64, u64> = TableDefinition::new("leases");

/// Why a file cannot be opened as a meta store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedbError {
    /// Another process, or this one, has it open.
    #[error("the meta store {path} is in use; stop the program that has it open")]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// It is a redb file of something else.
    #[error("{path} is a redb file but no meta store of Tanada's; name another file")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// It is of a version this program does not know.
    #[error(
        "the meta store {path} has format version {version}, this program knows {VERSION}; use a newer program"
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// What it says.
        version: u64,
    },
    /// What it holds is not what was written.
    #[error("the meta store {path} is damaged: {what}; restore it from a backup")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        what: String,
    },
    /// redb cannot read or write it.
    #[error("cannot open the meta store {path}")]
    Database {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<::redb::Error>,
    },
    /// No thread, or no runtime for it.
    #[error("cannot start the thread of the meta store {path}")]
    Thread {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// What the file held when it was opened.
struct Found {
    revision: Revision,
    next_lease: u64,
    entries: Vec<Entry>,
    leases: Vec<(LeaseId, Nanos)>,
    /// It was closed in good order by its last process, or before that one with leases that may last.
    closed: bool,
}

/// Asked of the file's thread; `State` does it, the answer goes out once it is durable.
type Job = Box<dyn FnOnce(&mut Work) + Send>;
/// Sends an answer; its argument is why the commit failed, if it did.
type Answer = Box<dyn FnOnce(Option<&str>)>;

enum Command {
    Job(Job),
    Close,
}

/// A meta store in a file. Closed when dropped: later calls fail as closed.
///
/// # Example
/// ```
/// use vdisk::meta::{Op, Redb};
/// let dir = tempfile::tempdir()?;
/// let redb = Redb::open(&dir.path().join("meta.redb"))?;
/// let handle = redb.handle(); // goes to any thread
/// env::Runtime::real(env::RealConfig::default())?.block_on(async move {
///     let meta = handle.client();
///     let put = Op::Put { key: "store/1".into(), value: b"here".to_vec(), lease: None };
///     meta.txn(vec![], vec![put]).await?;
///     assert_eq!(meta.get("store/1").await?.unwrap().value, b"here");
///     Ok::<(), vdisk::meta::MetaError>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Redb {
    handle: RedbHandle,
    thread: Option<JoinHandle<()>>,
}

/// The way to a [`Redb`] from any thread.
#[derive(Clone)]
pub struct RedbHandle {
    name: Arc<str>,
    poster: Poster<Command>,
    /// The revision that is durable; for watches that wait.
    durable: watch::Receiver<u64>,
}

impl Redb {
    /// Opens the file, or makes one where there is none. Waits for the disk.
    ///
    /// # Errors
    /// [`RedbError`] says why.
    pub fn open(path: &Path) -> Result<Redb, RedbError> {
        let (database, found) = open(path)?;
        Redb::serve(database, found, path)
    }

    fn serve(database: Database, found: Found, path: &Path) -> Result<Redb, RedbError> {
        let (poster, mailbox) = env::mailbox();
        let (durable_sender, durable) = watch::channel(found.revision.0);
        let (ready, started) = std::sync::mpsc::channel();
        let thread_failed = |source| RedbError::Thread {
            path: path.to_owned(),
            source,
        };
        let thread = std::thread::Builder::new()
            .name("meta".to_owned())
            .spawn(move || {
                // A runtime for its clock and its mailbox; the commits hold up no other task on it.
                let runtime = match Runtime::real(RealConfig::default()) {
                    Ok(runtime) => runtime,
                    Err(error) => {
                        let _ = ready.send(Err(error));
                        return;
                    }
                };
                let _ = ready.send(Ok(()));
                runtime.block_on(serve(database, found, mailbox, durable_sender));
            })
            .map_err(thread_failed)?;
        let gone = || std::io::Error::other("the thread ended before it began");
        started
            .recv()
            .unwrap_or_else(|_| Err(gone()))
            .map_err(thread_failed)?;
        Ok(Redb {
            handle: RedbHandle {
                name: path.display().to_string().into(),
                poster,
                durable,
            },
            thread: Some(thread),
        })
    }

    /// A way to it for other threads.
    pub fn handle(&self) -> RedbHandle {
        self.handle.clone()
    }
}

impl Drop for Redb {
    fn drop(&mut self) {
        let _ = self.handle.poster.post(Command::Close);
        if let Some(thread) = self.thread.take() {
            // What it panicked with was printed where it did.
            let _ = thread.join();
        }
    }
}

// --- the file -----------------------------------------------------------------------------------------

fn open(path: &Path) -> Result<(Database, Found), RedbError> {
    let failed = |source: ::redb::Error| match source {
        ::redb::Error::DatabaseAlreadyOpen => RedbError::InUse {
            path: path.to_owned(),
        },
        source => RedbError::Database {
            path: path.to_owned(),
            source: Box::new(source),
        },
    };
    let database = Database::create(path).map_err(|error| failed(error.into()))?;
    let found = find(&database, path, &failed)?;
    Ok((database, found))
}

fn find(
    database: &Database,
    path: &Path,
    failed: &impl Fn(::redb::Error) -> RedbError,
) -> Result<Found, RedbError> {
    if is_new(database).map_err(failed)? {
        format(database).map_err(failed)?;
    }
    read(database, path, failed)
}

fn is_new(database: &Database) -> Result<bool, ::redb::Error> {
    Ok(database.begin_read()?.list_tables()?.next().is_none())
}

fn format(database: &Database) -> Result<(), ::redb::Error> {
    let txn = database.begin_write()?;
    {
        let mut counters = txn.open_table(COUNTERS)?;
        counters.insert("version", VERSION)?;
        counters.insert("revision", 1)?;
        counters.insert("next_lease", 1)?;
        txn.open_table(ENTRIES)?;
        txn.open_table(LEASES)?;
    }
    txn.commit()?;
    Ok(())
}

fn read(
    database: &Database,
    path: &Path,
    failed: &impl Fn(::redb::Error) -> RedbError,
) -> Result<Found, RedbError> {
    let damaged = |what: &str| RedbError::Damaged {
        path: path.to_owned(),
        what: what.to_owned(),
    };
    let inner = || -> Result<Result<Found, RedbError>, ::redb::Error> {
        let txn = database.begin_read()?;
        let ours = |table: ::redb::UntypedTableHandle| table.name() == COUNTERS.name();
        if !txn.list_tables()?.any(ours) {
            let path = path.to_owned();
            return Ok(Err(RedbError::Foreign { path }));
        }
        let counters = txn.open_table(COUNTERS)?;
        let counter = |name: &str| Ok::<_, ::redb::Error>(counters.get(name)?.map(|it| it.value()));
        match counter("version")? {
            Some(VERSION) => {}
            version => {
                let version = version.unwrap_or_default();
                let path = path.to_owned();
                return Ok(Err(RedbError::Version { path, version }));
            }
        }
        let (Some(revision), Some(next_lease)) = (counter("revision")?, counter("next_lease")?)
        else {
            return Ok(Err(damaged("its counters are missing")));
        };
        let closed = counter("closed")? == Some(1);
        let mut leases = Vec::new();
        for row in txn.open_table(LEASES)?.iter()? {
            let (id, ttl) = row?;
            leases.push((LeaseId(id.value()), Nanos(ttl.value())));
        }
        let mut entries = Vec::new();
        for row in txn.open_table(ENTRIES)?.iter()? {
            let (key, record) = row?;
            let entry = decode(key.value(), record.value());
            let sound = entry.filter(|entry| {
                let lease_is_there =
                    |id: LeaseId| leases.binary_search_by_key(&id, |it| it.0).is_ok();
                entry.changed.0 <= revision && entry.lease.is_none_or(lease_is_there)
            });
            match sound {
                Some(entry) => entries.push(entry),
                None => {
                    let what = format!("the entry of key '{}'", key.value().escape_debug());
                    return Ok(Err(damaged(&what)));
                }
            }
        }
        Ok(Ok(Found {
            revision: Revision(revision),
            next_lease,
            entries,
            leases,
            closed,
        }))
    };
    inner().map_err(failed)?
}

/// The bytes before the value: created, changed, lease.
const RECORD_HEAD: usize = 24;

fn encode(entry: &Entry) -> Vec<u8> {
    let mut record = Vec::with_capacity(RECORD_HEAD + entry.value.len());
    let lease = entry.lease.map_or(0, |lease| lease.0);
    for number in [entry.created.0, entry.changed.0, lease] {
        record.extend_from_slice(&number.to_le_bytes());
    }
    record.extend_from_slice(&entry.value);
    record
}

fn decode(key: &str, record: &[u8]) -> Option<Entry> {
    let (head, value) = record.split_at_checked(RECORD_HEAD)?;
    let number = |at: usize| {
        let bytes = head[8 * at..8 * (at + 1)].try_into();
        u64::from_le_bytes(bytes.expect("eight bytes"))
    };
    let (created, changed, lease) = (number(0), number(1), number(2));
    Some(Entry {
        key: key.to_owned(),
        value: value.to_vec(),
        created: Revision(created),
        changed: Revision(changed),
        lease: (lease != 0).then_some(LeaseId(lease)),
    })
}

// --- its thread ---------------------------------------------------------------------------------------

/// What has been done in memory and is to become durable with the next commit.
struct Work {
    state: State,
    now: base::Instant,
    /// The last event of each key.
    changed: BTreeMap<String, Event>,
    /// Leases that began (with their time) and ended.
    leases: BTreeMap<LeaseId, Option<Nanos>>,
    answers: Vec<Answer>,
}

impl Work {
    fn note(&mut self, events: Vec<Event>) {
        for event in events {
            self.changed.insert(event.key().to_owned(), event);
        }
    }

    fn end_lease(&mut self, lease: LeaseId) -> bool {
        let Some(events) = self.state.revoke(lease) else {
            return false;
        };
        self.note(events);
        self.leases.insert(lease, None);
        true
    }

    /// Ends leases whose holders are gone, for good.
    fn end_all(&mut self, leases: &[LeaseId], database: &Database) -> Result<(), ::redb::Error> {
        for lease in leases {
            self.end_lease(*lease);
        }
        match self.is_dirty() {
            true => self.commit(database),
            false => Ok(()),
        }
    }

    fn is_dirty(&self) -> bool {
        !self.changed.is_empty() || !self.leases.is_empty()
    }

    fn commit(&mut self, database: &Database) -> Result<(), ::redb::Error> {
        let txn = database.begin_write()?;
        {
            let mut counters = txn.open_table(COUNTERS)?;
            counters.insert("revision", self.state.revision().0)?;
            counters.insert("next_lease", self.state.next_lease())?;
            let mut entries = txn.open_table(ENTRIES)?;
            for (key, event) in std::mem::take(&mut self.changed) {
                match event {
                    Event::Put(entry) => entries.insert(&*key, &*encode(&entry))?,
                    Event::Deleted { .. } => entries.remove(&*key)?,
                };
            }
            let mut leases = txn.open_table(LEASES)?;
            for (lease, ttl) in std::mem::take(&mut self.leases) {
                match ttl {
                    Some(ttl) => leases.insert(lease.0, ttl.0)?,
                    None => leases.remove(lease.0)?,
                };
            }
        }
        txn.commit()?;
        Ok(())
    }
}

async fn serve(
    database: Database,
    found: Found,
    mut mailbox: Mailbox<Command>,
    durable: watch::Sender<u64>,
) {
    let Found {
        revision,
        next_lease,
        entries,
        leases,
        closed,
    } = found;
    let before: Vec<LeaseId> = leases.iter().map(|it| it.0).collect();
    let now = env::now();
    let memory = Memory::default();
    let mut work = Work {
        state: State::restored(memory, revision, next_lease, entries, leases, now),
        now,
        changed: BTreeMap::new(),
        leases: BTreeMap::new(),
        answers: Vec::new(),
    };
    let mut broken: Option<String> = None;
    let begun = match closed {
        // They may last: if this process crashes, they are to be waited for.
        true if !before.is_empty() => Ok(()),
        true => note_closed(&database, false),
        false => work.end_all(&before, &database),
    };
    match begun {
        Ok(()) => durable.send_modify(|now| *now = work.state.revision().0),
        Err(error) => broken = Some(unwritten(&error)),
    }
    loop {
        let end = work.state.next_end().filter(|_| broken.is_none());
        let first = match end {
            None => Some(mailbox.receive().await),
            Some(end) => env::timeout(end.since(env::now()), mailbox.receive())
                .await
                .ok(),
        };
        let mut command = match first {
            Some(Err(_)) => return,
            Some(Ok(command)) => Some(command),
            None => None,
        };
        work.now = env::now();
        if broken.is_none() {
            for lease in work.state.run_out(work.now) {
                work.end_lease(lease);
            }
        }
        let mut taken = 0;
        let mut close = false;
        while let Some(this) = command {
            match this {
                Command::Job(job) => job(&mut work),
                Command::Close => close = true,
            }
            taken += 1;
            let go_on = taken < BATCH && !close;
            command = go_on.then(|| mailbox.try_receive()).flatten();
        }
        if broken.is_none() && work.is_dirty() {
            match work.commit(&database) {
                Ok(()) => durable.send_modify(|now| *now = work.state.revision().0),
                Err(error) => broken = Some(unwritten(&error)),
            }
        }
        for answer in work.answers.drain(..) {
            answer(broken.as_deref());
        }
        if close {
            if let Err(error) = note_closed(&database, true) {
                tracing::warn!("leases of the meta store end when it is opened again: {error}");
            }
            return;
        }
    }
}

/// Says in the file whether it is closed in good order.
fn note_closed(database: &Database, closed: bool) -> Result<(), ::redb::Error> {
    let txn = database.begin_write()?;
    txn.open_table(COUNTERS)?
        .insert("closed", u64::from(closed))?;
    txn.commit()?;
    Ok(())
}

fn unwritten(error: &::redb::Error) -> String {
    tracing::error!("the meta store cannot be written: {error}");
    format!("the file cannot be written: {error}")
}

// --- clients ------------------------------------------------------------------------------------------

/// One thread's way to a [`Redb`].
struct Client {
    handle: RedbHandle,
}

impl RedbHandle {
    /// The store, for the thread that calls.
    pub fn client(&self) -> Rc<dyn MetaStore> {
        Rc::new(Client {
            handle: self.clone(),
        })
    }

    /// One command and its answer. `changes`: is it unknown what happened if the commit fails?
    async fn ask<T: Send + 'static>(
        &self,
        asked: Asked<'_>,
        changes: bool,
        run: impl FnOnce(&mut Work) -> T + Send + 'static,
    ) -> Result<T, MetaError> {
        let (reply, answer) = oneshot::channel::<Result<T, String>>();
        let job: Job = Box::new(move |work| {
            let result = run(work);
            work.answers.push(Box::new(move |failed| {
                // The client that asked may be gone.
                let _ = reply.send(match failed {
                    None => Ok(result),
                    Some(why) => Err(why.to_owned()),
                });
            }));
        });
        let closed = || "it is closed".to_owned();
        let (why, unknown) = match self.poster.post(Command::Job(job)) {
            Err(_) => (closed(), false),
            Ok(()) => match answer.await {
                Ok(Ok(result)) => return Ok(result),
                Ok(Err(why)) => (why, changes),
                Err(_) => (closed(), false),
            },
        };
        let (store, asked) = (self.name.to_string(), asked.to_string());
        Err(if unknown {
            MetaError::Unknown { store, asked, why }
        } else {
            MetaError::Unavailable { store, asked, why }
        })
    }

    fn checked<'a>(&'a self, asked: Asked<'a>) -> Checked<'a> {
        Checked {
            store: &self.name,
            asked,
        }
    }

    fn no_lease(&self, lease: LeaseId) -> MetaError {
        MetaError::NoLease {
            store: self.name.to_string(),
            lease,
        }
    }
}

impl MetaStore for Client {
    fn get<'a>(&'a self, key: &'a str) -> Pending<'a, Option<Entry>> {
        Box::pin(async move {
            let asked = Asked::Get(key);
            self.handle.checked(asked).key(key)?;
            let key = key.to_owned();
            let read = move |work: &mut Work| work.state.get(&key);
            self.handle.ask(asked, false, read).await
        })
    }

    fn range<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        most: usize,
    ) -> Pending<'a, Page> {
        Box::pin(async move {
            let asked = Asked::Range(prefix);
            let most = self.handle.checked(asked).page(prefix, most)?;
            let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
            let read = move |work: &mut Work| work.state.range(&prefix, after.as_deref(), most);
            self.handle.ask(asked, false, read).await
        })
    }

    fn txn(&self, compares: Vec<Compare>, ops: Vec<Op>) -> Pending<'_, Outcome> {
        Box::pin(async move {
            let asked = Asked::Txn(&compares, &ops);
            self.handle.checked(asked).txn(&compares, &ops)?;
            let (compares_there, ops_there) = (compares.clone(), ops.clone());
            let decide = move |work: &mut Work| match work.state.txn(&compares_there, ops_there) {
                Decision::Refused(held) => Ok(Outcome::Refused(held)),
                Decision::NoLease(lease) => Err(lease),
                Decision::Done(revision, events) => {
                    work.note(events);
                    Ok(Outcome::Done(revision))
                }
            };
            let decided = self.handle.ask(asked, true, decide).await?;
            decided.map_err(|lease| self.handle.no_lease(lease))
        })
    }

    fn watch<'a>(&'a self, prefix: &'a str, from: Revision) -> Pending<'a, Box<dyn Watch>> {
        Box::pin(async move {
            let asked = Asked::Watch(prefix);
            self.handle.checked(asked).prefix(prefix)?;
            self.handle.ask(asked, false, |_| ()).await?;
            let watch: Box<dyn Watch> = Box::new(FileWatch {
                handle: self.handle.clone(),
                prefix: prefix.to_owned(),
                from,
                over: None,
            });
            Ok(watch)
        })
    }

    fn lease(&self, ttl: Nanos) -> Pending<'_, LeaseId> {
        Box::pin(async move {
            self.handle.checked(Asked::Lease).ttl(ttl)?;
            let take = move |work: &mut Work| {
                let id = work.state.lease(ttl, work.now);
                work.leases.insert(id, Some(ttl));
                id
            };
            self.handle.ask(Asked::Lease, false, take).await
        })
    }

    fn keep(&self, lease: LeaseId) -> Pending<'_, Nanos> {
        Box::pin(async move {
            let keep = move |work: &mut Work| work.state.keep(lease, work.now);
            let kept = self.handle.ask(Asked::Keep, false, keep).await?;
            kept.ok_or_else(|| self.handle.no_lease(lease))
        })
    }

    fn revoke(&self, lease: LeaseId) -> Pending<'_, ()> {
        Box::pin(async move {
            let end = move |work: &mut Work| work.end_lease(lease);
            let ended = self.handle.ask(Asked::Revoke, true, end).await?;
            ended
                .then_some(())
                .ok_or_else(|| self.handle.no_lease(lease))
        })
    }
}

struct FileWatch {
    handle: RedbHandle,
    prefix: String,
    /// Everything before was handed out.
    from: Revision,
    /// The oldest revision there was when ours was forgotten.
    over: Option<Revision>,
}

impl FileWatch {
    async fn wait(&mut self) -> Result<Vec<Event>, MetaError> {
        loop {
            if let Some(oldest) = self.over {
                return Err(MetaError::Compacted {
                    store: self.handle.name.to_string(),
                    oldest,
                });
            }
            let (prefix, from) = (self.prefix.clone(), self.from);
            let look = move |work: &mut Work| work.state.changes(&prefix, from);
            let asked = Asked::Watch(&self.prefix);
            match self.handle.ask(asked, false, look).await? {
                Changes::Forgotten(oldest) => self.over = Some(oldest),
                Changes::Found(events, next) => {
                    self.from = next;
                    if !events.is_empty() {
                        return Ok(events);
                    }
                    // An error says that the thread is gone; the next call says so.
                    let _ = self.handle.durable.wait_for(|now| *now >= next.0).await;
                }
            }
        }
    }
}

impl Watch for FileWatch {
    fn next(&mut self) -> Pending<'_, Vec<Event>> {
        Box::pin(self.wait())
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    use ::redb::StorageBackend;

    use super::*;

    /// A file in memory, on a disk that can be full.
    #[derive(Debug, Clone, Default)]
    struct File {
        bytes: Arc<Mutex<Vec<u8>>>,
        full: Arc<AtomicBool>,
    }

    impl File {
        fn room(&self) -> io::Result<()> {
            match self.full.load(Ordering::SeqCst) {
                true => Err(io::Error::from(io::ErrorKind::StorageFull)),
                false => Ok(()),
            }
        }

        fn open(&self) -> Redb {
            let path = Path::new("meta.redb");
            let failed = |source: ::redb::Error| RedbError::Database {
                path: path.to_owned(),
                source: Box::new(source),
            };
            let mut builder = Database::builder();
            // What is written goes to the file at once.
            let builder = builder.set_cache_size(0);
            let database = builder.create_with_backend(self.clone()).unwrap();
            let found = find(&database, path, &failed).unwrap();
            Redb::serve(database, found, path).unwrap()
        }
    }

    impl StorageBackend for File {
        fn len(&self) -> io::Result<u64> {
            Ok(self.bytes.lock().unwrap().len() as u64)
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            let bytes = self.bytes.lock().unwrap();
            let from = offset as usize;
            let found = bytes.get(from..from + out.len());
            out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.room()?;
            self.bytes.lock().unwrap().resize(len as usize, 0);
            Ok(())
        }

        fn sync_data(&self) -> io::Result<()> {
            self.room()
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.room()?;
            let from = offset as usize;
            self.bytes.lock().unwrap()[from..from + data.len()].copy_from_slice(data);
            Ok(())
        }
    }

    fn put(key: &str) -> Vec<Op> {
        vec![Op::Put {
            key: key.to_owned(),
            value: b"1".to_vec(),
            lease: None,
        }]
    }

    #[test]
    fn a_file_on_a_full_disk_says_so_and_nothing_is_answered_that_is_not_in_it() {
        let file = File::default();
        let redb = file.open();
        let (handle, disk) = (redb.handle(), file.clone());
        let runtime = Runtime::real(RealConfig::default()).unwrap();
        runtime.block_on(async move {
            let meta = handle.client();
            meta.txn(Vec::new(), put("a")).await.unwrap();
            disk.full.store(true, Ordering::SeqCst);
            let error = meta.txn(Vec::new(), put("b")).await.unwrap_err();
            assert!(matches!(error, MetaError::Unknown { .. }), "{error:?}");
            let said = error.to_string();
            assert!(said.contains("the file cannot be written"), "{said}");
            // What is in memory may be more than is in the file.
            for key in ["a", "b"] {
                let error = meta.get(key).await.unwrap_err();
                assert!(matches!(error, MetaError::Unavailable { .. }), "{error:?}");
            }
            let error = meta.lease(Nanos::secs(5)).await.unwrap_err();
            assert!(error.to_string().contains("cannot be written"), "{error}");
        });
        drop(redb);
        // Room was made, and it was started again.
        file.full.store(false, Ordering::SeqCst);
        let redb = file.open();
        let handle = redb.handle();
        let runtime = Runtime::real(RealConfig::default()).unwrap();
        runtime.block_on(async move {
            let meta = handle.client();
            assert_eq!(meta.get("a").await.unwrap().unwrap().value, b"1");
            assert_eq!(meta.get("b").await.unwrap(), None);
            meta.txn(Vec::new(), put("b")).await.unwrap();
        });
    }
}
