//! The file's thread: commands that wait are carried out together, made durable by one commit, and answered.

use std::collections::BTreeMap;

use ::redb::Database;
use base::Nanos;
use env::Mailbox;
use tokio::sync::watch;

use super::file::{COUNTERS, ENTRIES, Found, LEASES, encode, note_closed};
use crate::meta::state::{Memory, State};
use crate::meta::{Event, LeaseId};

/// How many commands one commit may carry.
const BATCH: usize = 256;

/// Asked of the file's thread; `State` does it, the answer goes out once it is durable.
pub(super) type Job = Box<dyn FnOnce(&mut Work) + Send>;
/// Sends an answer; its argument is why the commit failed, if it did.
pub(super) type Answer = Box<dyn FnOnce(Option<&str>)>;

pub(super) enum Command {
    Job(Job),
    Close,
}

/// What has been done in memory and is to become durable with the next commit.
pub(super) struct Work {
    pub state: State,
    pub now: base::Instant,
    /// The last event of each key.
    changed: BTreeMap<String, Event>,
    /// Leases that began (with their time) and ended.
    pub leases: BTreeMap<LeaseId, Option<Nanos>>,
    pub answers: Vec<Answer>,
}

impl Work {
    pub fn note(&mut self, events: Vec<Event>) {
        for event in events {
            self.changed.insert(event.key().to_owned(), event);
        }
    }

    pub fn end_lease(&mut self, lease: LeaseId) -> bool {
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

/// The thread: it takes commands, makes what they changed durable, and answers.
struct Serving {
    database: Database,
    work: Work,
    durable: watch::Sender<u64>,
    /// Why nothing is answered any more.
    broken: Option<String>,
}

impl Serving {
    fn begin(database: Database, found: Found, durable: watch::Sender<u64>) -> Serving {
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
        let begun = match closed {
            // They may last: if this process crashes, they are to be waited for.
            true if !before.is_empty() => Ok(()),
            true => note_closed(&database, false),
            false => work.end_all(&before, &database),
        };
        let mut serving = Serving {
            database,
            work,
            durable,
            broken: None,
        };
        serving.committed(begun);
        serving
    }

    fn committed(&mut self, done: Result<(), ::redb::Error>) {
        match done {
            Ok(()) => {
                let revision = self.work.state.revision().0;
                self.durable.send_modify(|now| *now = revision);
            }
            Err(error) => self.broken = Some(unwritten(&error)),
        }
    }

    /// Leases whose time is over end.
    fn look_at_time(&mut self) {
        self.work.now = env::now();
        if self.broken.is_none() {
            for lease in self.work.state.run_out(self.work.now) {
                self.work.end_lease(lease);
            }
        }
    }

    /// Does what waits, as much as one commit may carry. Is the file to be closed?
    fn take(&mut self, first: Option<Command>, mailbox: &mut Mailbox<Command>) -> bool {
        let (mut taken, mut close, mut command) = (0, false, first);
        while let Some(this) = command {
            match this {
                Command::Job(job) => job(&mut self.work),
                Command::Close => close = true,
            }
            taken += 1;
            let go_on = taken < BATCH && !close;
            command = go_on.then(|| mailbox.try_receive()).flatten();
        }
        close
    }

    /// Makes durable what was done, then answers.
    fn answer(&mut self) {
        if self.broken.is_none() && self.work.is_dirty() {
            let done = self.work.commit(&self.database);
            self.committed(done);
        }
        for answer in self.work.answers.drain(..) {
            answer(self.broken.as_deref());
        }
    }
}

/// Serves a file until it is closed, or nothing can ask it any more.
pub(super) async fn serve(
    database: Database,
    found: Found,
    mut mailbox: Mailbox<Command>,
    durable: watch::Sender<u64>,
) {
    let mut serving = Serving::begin(database, found, durable);
    loop {
        let end = serving.work.state.next_end();
        let first = match end.filter(|_| serving.broken.is_none()) {
            None => Some(mailbox.receive().await),
            Some(end) => env::timeout(end.since(env::now()), mailbox.receive())
                .await
                .ok(),
        };
        let command = match first {
            Some(Err(_)) => return,
            Some(Ok(command)) => Some(command),
            None => None,
        };
        serving.look_at_time();
        let close = serving.take(command, &mut mailbox);
        serving.answer();
        if close {
            if let Err(error) = note_closed(&serving.database, true) {
                tracing::warn!("leases of the meta store end when it is opened again: {error}");
            }
            return;
        }
    }
}

fn unwritten(error: &::redb::Error) -> String {
    tracing::error!("the meta store cannot be written: {error}");
    format!("the file cannot be written: {error}")
}
