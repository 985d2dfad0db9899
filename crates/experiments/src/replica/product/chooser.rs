//! The policy of a node of the product bed: new copies by chance, so that all methods have one layout; reads by the method.
//!
//! Choice: the bound knows the present state of every store's queue, which no real node does. What is on its way there (a hop)
//! it does not know.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use base::Instant;
use policy::place::{
    Candidate, DiskId, Kind, Op, Options, PlaceError, ReplicaPolicy, Reply, Request, Sent, State,
    Target, Ticket, build,
};
use store::qos::manager::Manager;

/// The stores of a run, by their numbers.
pub(super) type Stores = Rc<RefCell<BTreeMap<DiskId, Rc<Manager>>>>;

/// Reads that went out in a run, and of these the second ones.
pub(super) type Sents = Rc<Cell<(u64, u64)>>;

/// Reads as the method says.
pub(super) struct Chooser {
    reads: Box<dyn ReplicaPolicy>,
    places: Box<dyn ReplicaPolicy>,
    stores: Stores,
    sents: Sents,
}

impl Chooser {
    /// `layout`: the seed of where copies go, the same for all methods.
    pub fn new(
        kind: Kind,
        options: &Options,
        layout: u64,
        (stores, sents): (&Stores, &Sents),
    ) -> Chooser {
        let of_layout = Options {
            seed: layout,
            ..*options
        };
        Chooser {
            reads: build(kind, options),
            places: build(Kind::Random, &of_layout),
            stores: Rc::clone(stores),
            sents: Rc::clone(sents),
        }
    }
}

impl ReplicaPolicy for Chooser {
    fn read(&mut self, now: Instant, request: &Request, copies: &[Candidate]) -> DiskId {
        if self.reads.needs_exact_states() {
            for (disk, store) in &*self.stores.borrow() {
                let state = State {
                    at: now,
                    ..store.state()
                };
                self.reads.heard(now, *disk, &state);
            }
        }
        self.reads.read(now, request, copies)
    }

    fn place(
        &mut self,
        now: Instant,
        request: &Request,
        copies: usize,
        disks: &[Target],
    ) -> Result<Vec<DiskId>, PlaceError> {
        self.places.place(now, request, copies, disks)
    }

    fn sent(&mut self, now: Instant, sent: &Sent) {
        if sent.request.op == Op::Read {
            let (reads, second) = self.sents.get();
            self.sents.set((reads + 1, second + u64::from(sent.hedge)));
        }
        self.reads.sent(now, sent);
    }

    fn answered(&mut self, now: Instant, disk: DiskId, ticket: Ticket, reply: &Reply) {
        self.reads.answered(now, disk, ticket, reply);
    }

    fn failed(&mut self, now: Instant, disk: DiskId, ticket: Ticket, fault: bool) {
        self.reads.failed(now, disk, ticket, fault);
    }

    fn heard(&mut self, now: Instant, disk: DiskId, state: &State) {
        self.reads.heard(now, disk, state);
    }

    fn hedge_at(&self, disk: DiskId, ticket: Ticket) -> Option<Instant> {
        self.reads.hedge_at(disk, ticket)
    }

    fn hedge(
        &mut self,
        now: Instant,
        disk: DiskId,
        ticket: Ticket,
        copies: &[Candidate],
    ) -> Option<DiskId> {
        self.reads.hedge(now, disk, ticket, copies)
    }

    fn ejected(&self, now: Instant) -> Vec<DiskId> {
        self.reads.ejected(now)
    }
}
