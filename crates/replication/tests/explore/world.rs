//! What the meta store, the stores, the writers and the messages between them are.

use std::collections::BTreeSet;

use replication::extent::Copies;
use replication::reconcile::{self, Reconcile};
use replication::record::VolumeRecord;
use replication::spread::{Answer, Spread};
use replication::stamps::{Stamps, UnderWay};
use replication::swap::Revision;
use replication::{Generation, ImageId, Replication, StoreNumber, VolumeId};

pub const STORES: [StoreNumber; 3] = [StoreNumber(0), StoreNumber(1), StoreNumber(2)];
pub const WRITERS: usize = 2;
/// Copies of the one extent there is.
pub const COPIES: u8 = 2;
/// The one extent.
pub const EXTENT: u32 = 0;
/// Ticks that a writer that takes over waits.
pub const LEASE: u64 = 2;
/// Ticks that a lease counts less for its holder, and by which the holder's clock may fall behind within it.
pub const MARGIN: u64 = 1;
/// Messages under way to one store.
pub const UNDER_WAY: usize = 2;

/// A store, with its copy of the extent. What is in it is durable.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Store {
    /// The fence's token.
    pub seal: Generation,
    pub value: u8,
    /// The copy's stamp; 0: there is no whole copy.
    pub stamp: Generation,
    /// The extent's bit in the bitmap.
    pub dirty: bool,
}

/// A write on its way to a store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Message {
    pub from: usize,
    /// The token of the connection it was sent on.
    pub token: Generation,
    /// The stamp the copy gets.
    pub stamp: Generation,
    pub value: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stage {
    /// The record is its; stores are being sealed.
    Sealing,
    /// Everything is known; the lease of the writer before may still run.
    Waiting,
    Open,
}

/// What a writer does with the extent's range; no other change is there meanwhile.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Work {
    Idle,
    Write(Write),
    Reconcile(Equal),
    /// A store may have a copy that no writer counts on.
    Discard(StoreNumber),
}

/// A client's write.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Write {
    pub value: u8,
    pub change: Spread,
    pub at: At,
}

/// Where it stands.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum At {
    /// Sent, with what each store answered.
    Sent {
        under_way: UnderWay,
        to: Vec<(StoreNumber, Option<Answer>)>,
    },
    /// These stores are to leave.
    Shrink {
        under_way: UnderWay,
        stores: Vec<StoreNumber>,
    },
    /// Some copies may have it: it is tried again, or given up.
    Pause,
}

/// Copies are made equal.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Equal {
    pub machine: Reconcile,
    pub step: reconcile::Step,
    pub source: Option<StoreNumber>,
    /// From before its first copy is looked at until it is over.
    pub under_way: Option<UnderWay>,
}

/// A node that has the volume.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Writer {
    /// What it knows. A connection is its token.
    pub volume: Replication<Generation>,
    /// The record before it opened the volume.
    pub before: VolumeRecord,
    pub stage: Stage,
    pub copies: Copies,
    pub work: Work,
    /// Ticks for which it counts on its lease.
    pub lease: u64,
    /// Ticks by which its clock may still fall behind.
    pub behind: u64,
    /// Ticks it still waits for the lease of the writer before.
    pub wait: u64,
}

impl Writer {
    pub fn epoch(&self) -> Generation {
        self.volume.record.get().epoch
    }

    pub fn is_idle(&self) -> bool {
        self.stage == Stage::Open && self.work == Work::Idle
    }

    pub fn is_unreconciled(&self) -> bool {
        self.volume.unreconciled.contains(EXTENT)
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

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct World {
    /// The volume's record in the meta store. Each change has a new generation, which is its revision too.
    pub record: VolumeRecord,
    pub stores: [Store; STORES.len()],
    pub messages: [Vec<Message>; STORES.len()],
    /// By writer: a change of the record that is on its way, with the revision it compares with.
    pub asked: [Option<(Revision, VolumeRecord)>; WRITERS],
    pub writers: [Option<Writer>; WRITERS],
    /// The next value to write; 0 is there from the beginning.
    pub next: u8,
    pub openings: u8,
    pub faults: u8,
    /// The greatest value that was answered or read.
    pub known: u8,
    /// The greatest epoch that answered.
    pub answered: Generation,
    pub broken: Option<Broken>,
}

impl World {
    /// Two stores have the extent, no writer has the volume.
    pub fn new(min_isr: u8, faults: u8) -> World {
        let name = "v".parse().expect("a name");
        let mut record = VolumeRecord::new(VolumeId(1), name, COPIES, min_isr, ImageId(1));
        record.generation = Generation(1);
        record.stores = Some(BTreeSet::from(STORES));
        let copy = Store {
            stamp: Generation(1),
            ..Store::default()
        };
        World {
            record,
            stores: [copy, copy, Store::default()],
            messages: Default::default(),
            asked: Default::default(),
            writers: Default::default(),
            next: 1,
            openings: 0,
            faults,
            known: 0,
            answered: Generation(0),
            broken: None,
        }
    }

    pub fn store(&mut self, store: StoreNumber) -> &mut Store {
        &mut self.stores[usize::from(store.0)]
    }

    pub fn revision(&self) -> Revision {
        Revision(self.record.generation.0)
    }

    /// Stores that the record calls in sync and that have a copy.
    pub fn counted_on(&self) -> impl Iterator<Item = &Store> {
        let all = STORES.iter().zip(&self.stores);
        let in_sync = all.filter(|(number, store)| {
            !self.record.out.contains_key(number) && store.stamp > Generation(0)
        });
        in_sync.map(|(_, store)| store)
    }

    /// States that cannot be distinguished become one.
    pub fn tidy(&mut self) {
        for messages in &mut self.messages {
            messages.sort_unstable();
        }
        let now = self.revision();
        for asked in &mut self.asked {
            // It compares with a revision that is gone.
            if asked.as_ref().is_some_and(|(revision, _)| *revision != now) {
                *asked = None;
            }
        }
        for writer in self.writers.iter_mut().flatten() {
            if writer.lease == 0 {
                writer.behind = 0;
            }
            if writer.volume.stamps.is_empty() {
                // How many changes there were decides nothing here.
                writer.volume.stamps = Stamps::default();
            }
        }
    }
}
