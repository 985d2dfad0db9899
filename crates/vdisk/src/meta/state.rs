//! What a meta store of one place does, without a clock, a disk or a thread.
//!
//! ```text
//! compares, ops, now -> refused | no lease | done: the events, for who keeps them and who watches
//! ```
//!
//! The memory meta store is this and a delay; the redb store is this and a file.
//!
//! Always true:
//! 1. `history` has every event of each transaction behind `forgotten`, in their order.
//! 2. A key that names a lease is in that lease's list, and in no other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use base::{Instant, Nanos};

use super::{Compare, Entry, Event, LeaseId, Op, Page, Revision};

/// How much is handed out at once, in bytes of values; one entry or transaction is always whole.
const ANSWER_BYTES: usize = 8 * 1024 * 1024;
/// How many events are handed out at once, as long as transactions stay whole.
const ANSWER_EVENTS: usize = 1000;

/// How much of the past is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory {
    pub events: usize,
    pub bytes: usize,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory {
            events: 10_000,
            bytes: 16 * 1024 * 1024,
        }
    }
}

/// A lease and what is under it.
#[derive(Debug, Clone)]
struct Lease {
    ttl: Nanos,
    ends: Instant,
    keys: BTreeSet<String>,
}

/// One transaction's events.
struct Past {
    revision: Revision,
    events: Vec<Event>,
    bytes: usize,
}

/// All that is in a meta store now, and what happened lately.
pub(super) struct State {
    /// Fixed at open.
    memory: Memory,
    /// Changed by transactions.
    revision: Revision,
    entries: BTreeMap<String, Entry>,
    leases: BTreeMap<LeaseId, Lease>,
    next_lease: u64,
    /// Derived from them.
    history: VecDeque<Past>,
    history_events: usize,
    history_bytes: usize,
    /// The last transaction that the history does not have any more.
    forgotten: Revision,
}

/// What becomes of a transaction.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Refused(Vec<Option<Entry>>),
    NoLease(LeaseId),
    /// Its events; none if nothing changed.
    Done(Revision, Vec<Event>),
}

/// Changes found from a revision on.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Changes {
    /// Some, and the revision to go on from (if none, everything before it was looked at).
    Found(Vec<Event>, Revision),
    /// They are forgotten; the oldest that is not.
    Forgotten(Revision),
}

impl State {
    /// An empty one. The revision begins at 1, as etcd's does, so that 0 is before everything.
    pub fn new(memory: Memory) -> State {
        State::restored(
            memory,
            Revision(1),
            1,
            Vec::new(),
            Vec::new(),
            Instant::default(),
        )
    }

    /// What was kept elsewhere: each lease gets its whole time again, and the past is forgotten.
    pub fn restored(
        memory: Memory,
        revision: Revision,
        next_lease: u64,
        entries: Vec<Entry>,
        leases: Vec<(LeaseId, Nanos)>,
        now: Instant,
    ) -> State {
        let mut leases: BTreeMap<LeaseId, Lease> = leases
            .into_iter()
            .map(|(id, ttl)| {
                let keys = BTreeSet::new();
                let ends = now + ttl;
                (id, Lease { ttl, ends, keys })
            })
            .collect();
        for entry in &entries {
            if let Some(lease) = entry.lease.and_then(|id| leases.get_mut(&id)) {
                lease.keys.insert(entry.key.clone());
            }
        }
        State {
            memory,
            revision,
            entries: entries.into_iter().map(|it| (it.key.clone(), it)).collect(),
            leases,
            next_lease,
            history: VecDeque::new(),
            history_events: 0,
            history_bytes: 0,
            forgotten: revision,
        }
    }

    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The number the next lease gets.
    pub fn next_lease(&self) -> u64 {
        self.next_lease
    }

    pub fn get(&self, key: &str) -> Option<Entry> {
        self.entries.get(key).cloned()
    }

    pub fn range(&self, prefix: &str, after: Option<&str>, most: usize) -> Page {
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let mut page = Page {
            revision: self.revision,
            ..Page::default()
        };
        let mut bytes = 0;
        for (key, entry) in self.entries.range::<str, _>((from, Bound::Unbounded)) {
            if !key.starts_with(prefix) {
                break;
            }
            bytes += key.len() + entry.value.len();
            let full = page.entries.len() >= most || bytes > ANSWER_BYTES;
            if full && !page.entries.is_empty() {
                page.more = true;
                break;
            }
            page.entries.push(entry.clone());
        }
        page
    }

    fn holds(&self, compare: &Compare) -> bool {
        let entry = self.entries.get(compare.key());
        match compare {
            Compare::Absent(_) => entry.is_none(),
            Compare::Present(_) => entry.is_some(),
            Compare::Unchanged(_, revision) => {
                entry.map_or(Revision(0), |entry| entry.changed) == *revision
            }
        }
    }

    pub fn txn(&mut self, compares: &[Compare], ops: Vec<Op>) -> Decision {
        if !compares.iter().all(|compare| self.holds(compare)) {
            let held = compares.iter().map(|compare| self.get(compare.key()));
            return Decision::Refused(held.collect());
        }
        for op in &ops {
            if let Op::Put {
                lease: Some(id), ..
            } = op
                && !self.leases.contains_key(id)
            {
                return Decision::NoLease(*id);
            }
        }
        let events = self.carry_out(ops);
        Decision::Done(self.revision, events)
    }

    /// Does all of `ops` as one transaction; the events, none if nothing changed.
    fn carry_out(&mut self, ops: Vec<Op>) -> Vec<Event> {
        let revision = Revision(self.revision.0 + 1);
        let mut events = Vec::with_capacity(ops.len());
        for op in ops {
            let key = op.key().to_owned();
            let before = self.entries.remove(&key);
            let lease_before = before.as_ref().and_then(|entry| entry.lease);
            if let Some(lease) = lease_before.and_then(|id| self.leases.get_mut(&id)) {
                lease.keys.remove(&key);
            }
            match op {
                Op::Put { value, lease, .. } => {
                    if let Some(lease) = lease.and_then(|id| self.leases.get_mut(&id)) {
                        lease.keys.insert(key.clone());
                    }
                    let entry = Entry {
                        key: key.clone(),
                        value,
                        created: before.map_or(revision, |entry| entry.created),
                        changed: revision,
                        lease,
                    };
                    events.push(Event::Put(entry.clone()));
                    self.entries.insert(key, entry);
                }
                Op::Delete { .. } if before.is_some() => {
                    events.push(Event::Deleted { key, revision });
                }
                Op::Delete { .. } => {}
            }
        }
        if !events.is_empty() {
            self.revision = revision;
            self.remember(revision, events.clone());
        }
        events
    }

    fn remember(&mut self, revision: Revision, events: Vec<Event>) {
        let bytes = events.iter().map(size).sum();
        self.history_events += events.len();
        self.history_bytes += bytes;
        self.history.push_back(Past {
            revision,
            events,
            bytes,
        });
        // The last one stays, however big: a watch must be able to see it.
        while self.history.len() > 1
            && (self.history_events > self.memory.events || self.history_bytes > self.memory.bytes)
        {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(past) = self.history.pop_front() {
            self.history_events -= past.events.len();
            self.history_bytes -= past.bytes;
            self.forgotten = past.revision;
        }
    }

    /// Forgets all changes before this revision (at most those there were).
    pub fn compact(&mut self, before: Revision) {
        while (self.history.front()).is_some_and(|past| past.revision < before) {
            self.forget_oldest();
        }
    }

    /// Changes of keys under `prefix`, of the transaction `from` and later ones.
    pub fn changes(&self, prefix: &str, from: Revision) -> Changes {
        if from <= self.forgotten && self.forgotten > Revision(1) {
            return Changes::Forgotten(Revision(self.forgotten.0 + 1));
        }
        let start = self.history.partition_point(|past| past.revision < from);
        let (mut found, mut bytes) = (Vec::new(), 0);
        for past in self.history.range(start..) {
            let here = past.events.iter().filter(|it| it.key().starts_with(prefix));
            let here_bytes: usize = here.clone().map(size).sum();
            let full = bytes + here_bytes > ANSWER_BYTES || found.len() >= ANSWER_EVENTS;
            if full && !found.is_empty() {
                return Changes::Found(found, past.revision);
            }
            bytes += here_bytes;
            found.extend(here.cloned());
        }
        Changes::Found(found, from.max(Revision(self.revision.0 + 1)))
    }

    // --- leases ---------------------------------------------------------------------------------------

    pub fn lease(&mut self, ttl: Nanos, now: Instant) -> LeaseId {
        let id = LeaseId(self.next_lease);
        self.next_lease += 1;
        let lease = Lease {
            ttl,
            ends: now + ttl,
            keys: BTreeSet::new(),
        };
        self.leases.insert(id, lease);
        id
    }

    /// Its time, which begins again; none if it is not there.
    pub fn keep(&mut self, id: LeaseId, now: Instant) -> Option<Nanos> {
        let lease = self.leases.get_mut(&id)?;
        lease.ends = now + lease.ttl;
        Some(lease.ttl)
    }

    /// The events of its end; none if it is not there.
    pub fn revoke(&mut self, id: LeaseId) -> Option<Vec<Event>> {
        let lease = self.leases.remove(&id)?;
        let deletes = lease.keys.into_iter().map(|key| Op::Delete { key });
        Some(self.carry_out(deletes.collect()))
    }

    /// When the next lease runs out.
    pub fn next_end(&self) -> Option<Instant> {
        self.leases.values().map(|lease| lease.ends).min()
    }

    /// Leases that have run out, the one that ended first first.
    pub fn run_out(&self, now: Instant) -> Vec<LeaseId> {
        let mut ended: Vec<(Instant, LeaseId)> = self
            .leases
            .iter()
            .filter(|(_, lease)| lease.ends <= now)
            .map(|(id, lease)| (lease.ends, *id))
            .collect();
        ended.sort_unstable();
        ended.into_iter().map(|(_, id)| id).collect()
    }

    /// As after a restart: each lease has its whole time again, and the past is forgotten.
    pub fn restart(&mut self, now: Instant) {
        for lease in self.leases.values_mut() {
            lease.ends = now + lease.ttl;
        }
        while !self.history.is_empty() {
            self.forget_oldest();
        }
        self.forgotten = self.revision;
    }
}

fn size(event: &Event) -> usize {
    match event {
        Event::Put(entry) => entry.key.len() + entry.value.len(),
        Event::Deleted { key, .. } => key.len(),
    }
}
