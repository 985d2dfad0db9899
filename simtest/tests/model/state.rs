//! What the meta store, the stores, the writers and the messages between them are, as far as the model goes.
//!
//! Everything is small and plain, so that a state costs little to copy and to compare. Sets of stores are bits.

use std::fmt;

pub const STORES: usize = 3;
pub const WRITERS: usize = 2;
/// Copies of the one extent there is.
pub const COPIES: u32 = 2;
/// Ticks that a writer that takes over waits.
pub const LEASE: u8 = 2;
/// Ticks that a lease counts for its holder.
pub const COUNTED: u8 = 1;
/// Ticks by which the holder's clock may fall behind within a lease: the margin.
pub const BEHIND: u8 = LEASE - COUNTED;
/// Messages under way to one store.
pub const UNDER_WAY: usize = 2;

/// Stores, one bit each.
pub type Set = u8;

pub fn bit(store: usize) -> Set {
    1 << store
}

pub fn has(set: Set, store: usize) -> bool {
    set & bit(store) != 0
}

pub fn first(set: Set, count: u32) -> Set {
    let mut all: Set = 0;
    for store in 0..STORES {
        if has(set, store) && all.count_ones() < count {
            all |= bit(store);
        }
    }
    all
}

/// The volume's record in the meta store. Its generation is its revision too: every change has a new one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Record {
    pub generation: u8,
    pub epoch: u8,
    /// A writer opened it and never closed it.
    pub written: bool,
    /// 0: in sync. Else one more than the generation since which the store is out.
    pub out: [u8; STORES],
    pub redundancy_floor: u8,
}

/// A store, with its copy of the extent. What is in it is durable.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Store {
    /// The fence's token.
    pub seal: u8,
    pub value: u8,
    /// The copy's stamp; 0: there is no whole copy.
    pub stamp: u8,
    /// The extent's bit in the bitmap.
    pub dirty: bool,
}

/// A write on its way to a store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Message {
    pub from: usize,
    /// The token of the connection it was sent on.
    pub connection: u8,
    /// The stamp the copy gets.
    pub stamp: u8,
    pub value: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Phase {
    #[default]
    Down,
    /// The record is its; stores are being sealed.
    Sealing,
    /// Everything is known; the lease of the writer before may still run.
    Waiting,
    Open,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum SyncState {
    InSync,
    Joining,
    #[default]
    Out,
}

/// What a writer does with the extent's range; no other change is there meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Work {
    #[default]
    Idle,
    /// A write was sent.
    Write {
        value: u8,
        stamp: u8,
        targets: Set,
        acked: Set,
        failed: Set,
    },
    /// Some stores took a write and some did not; those are to leave the in-sync set.
    Swap { value: u8, stamp: u8, failed: Set },
    /// A store may have a copy that no writer counts on.
    DiscardCopy(usize),
}

/// A node that may write the volume.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Writer {
    pub phase: Phase,
    pub epoch: u8,
    /// The generation it knows.
    pub generation: u8,
    /// The generation before it opened the volume.
    pub before: u8,
    /// Ticks for which it counts on its lease.
    pub lease: u8,
    /// Ticks by which its clock may still fall behind.
    pub behind: u8,
    /// Ticks it still waits for the lease of the writer before.
    pub wait: u8,
    pub sealed: Set,
    pub sync_state: [SyncState; STORES],
    /// The token of the connection; 0: there is none.
    pub connection: [u8; STORES],
    /// The token of the next connection.
    pub token: [u8; STORES],
    pub tainted: Set,
    pub synced: Set,
    /// Who has the extent.
    pub placed: Set,
    pub bitmap_replicas: Set,
    /// The extent's bit is set.
    pub noted: bool,
    pub unreconciled: bool,
    pub work: Work,
    /// A change of the record was asked for and may yet come about.
    pub record_indeterminate: bool,
}

impl Writer {
    pub fn needed(&self) -> Set {
        self.with_sync_state(|one| one != SyncState::Out)
    }

    pub fn in_sync(&self) -> Set {
        self.with_sync_state(|one| one == SyncState::InSync)
    }

    fn with_sync_state(&self, which: impl Fn(SyncState) -> bool) -> Set {
        let all = (0..STORES).filter(|store| which(self.sync_state[*store]));
        all.fold(0, |set, store| set | bit(store))
    }

    pub fn linked(&self) -> Set {
        let all = (0..STORES).filter(|store| self.connection[*store] != 0);
        all.fold(0, |set, store| set | bit(store))
    }
}

/// A promise that was broken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Broken {
    /// A read gave less than what was answered or read before.
    WentBack,
    /// A writer answered after a later one had.
    BothAnswer,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct State {
    pub record: Record,
    pub stores: [Store; STORES],
    pub messages: [[Option<Message>; UNDER_WAY]; STORES],
    /// By writer: a change of the record that is on its way, with the generation it asks for.
    pub asked: [Option<(u8, Record)>; WRITERS],
    pub writers: [Writer; WRITERS],
    /// The next value to write; 0 is there from the beginning.
    pub next: u8,
    pub openings: u8,
    pub faults: u8,
    /// The greatest value that was answered or read.
    pub known: u8,
    /// The greatest epoch that answered.
    pub answered: u8,
    pub broken: Option<Broken>,
}

impl State {
    /// Two stores have the extent, no writer has the volume.
    pub fn new(faults: u8) -> State {
        let copy = Store {
            stamp: 1,
            ..Store::default()
        };
        State {
            record: Record {
                generation: 1,
                epoch: 0,
                written: false,
                out: [0; STORES],
                redundancy_floor: COPIES as u8,
            },
            stores: [copy, copy, Store::default()],
            messages: Default::default(),
            asked: Default::default(),
            writers: Default::default(),
            next: 1,
            openings: 0,
            faults,
            known: 0,
            answered: 0,
            broken: None,
        }
    }

    /// Stores that the record calls in sync and that have a copy.
    pub fn counted_on(&self) -> impl Iterator<Item = &Store> {
        let all = self.stores.iter().zip(self.record.out);
        all.filter(|(store, out)| *out == 0 && store.stamp > 0)
            .map(|(store, _)| store)
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}", self.record)?;
        for (store, messages) in self.stores.iter().zip(&self.messages) {
            writeln!(f, "  {store:?} {messages:?}")?;
        }
        for (writer, asked) in self.writers.iter().zip(&self.asked) {
            writeln!(f, "  {writer:?} asked {asked:?}")?;
        }
        write!(
            f,
            "  known {} answered {} faults {} {:?}",
            self.known, self.answered, self.faults, self.broken
        )
    }
}
