//! One policy for all volumes of a node: what one volume learned of a disk, the others know.
//!
//! Always true:
//! 1. Tickets of different volumes differ.
//! 2. Nothing new is placed on a disk that is being drained.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use base::Instant;
use policy::place::{
    Candidate, DiskId, PlaceError, ReplicaPolicy, Reply, Request, Sent, State, Target, Ticket,
};

/// Counted below this within one volume's opening: 2^40 requests.
const TICKETS: u64 = 1 << 40;

/// What all volumes of a node share.
#[derive(Clone)]
pub(super) struct Shared {
    policy: Rc<RefCell<Box<dyn ReplicaPolicy>>>,
    pub draining: Rc<RefCell<BTreeSet<DiskId>>>,
    given: Rc<std::cell::Cell<u64>>,
}

/// One volume's part of it.
struct Part {
    shared: Shared,
    /// Added to its tickets.
    first: u64,
}

impl Shared {
    pub fn new(policy: Box<dyn ReplicaPolicy>) -> Shared {
        Shared {
            policy: Rc::new(RefCell::new(policy)),
            draining: Rc::default(),
            given: Rc::default(),
        }
    }

    /// A disk reported its queue unasked.
    pub fn heard(&self, disk: DiskId, state: &State) {
        self.policy.borrow_mut().heard(env::now(), disk, state);
    }

    /// For one more volume.
    pub fn part(&self) -> Box<dyn ReplicaPolicy> {
        let nth = self.given.get();
        self.given.set(nth + 1);
        Box::new(Part {
            shared: self.clone(),
            first: nth.wrapping_mul(TICKETS),
        })
    }
}

impl Part {
    fn ticket(&self, own: Ticket) -> Ticket {
        Ticket(self.first.wrapping_add(own.0))
    }
}

impl ReplicaPolicy for Part {
    fn read(&mut self, now: Instant, request: &Request, copies: &[Candidate]) -> DiskId {
        self.shared.policy.borrow_mut().read(now, request, copies)
    }

    fn place(
        &mut self,
        now: Instant,
        request: &Request,
        copies: usize,
        disks: &[Target],
    ) -> Result<Vec<DiskId>, PlaceError> {
        let draining = self.shared.draining.borrow();
        let fit = |disk: &&Target| !draining.contains(&disk.candidate.disk);
        let disks: Vec<Target> = disks.iter().filter(fit).copied().collect();
        let mut policy = self.shared.policy.borrow_mut();
        policy.place(now, request, copies, &disks)
    }

    fn sent(&mut self, now: Instant, sent: &Sent) {
        let ticket = self.ticket(sent.ticket);
        let sent = Sent { ticket, ..*sent };
        self.shared.policy.borrow_mut().sent(now, &sent);
    }

    fn answered(&mut self, now: Instant, disk: DiskId, ticket: Ticket, reply: &Reply) {
        let ticket = self.ticket(ticket);
        let mut policy = self.shared.policy.borrow_mut();
        policy.answered(now, disk, ticket, reply);
    }

    fn failed(&mut self, now: Instant, disk: DiskId, ticket: Ticket, fault: bool) {
        let ticket = self.ticket(ticket);
        let mut policy = self.shared.policy.borrow_mut();
        policy.failed(now, disk, ticket, fault);
    }

    fn heard(&mut self, now: Instant, disk: DiskId, state: &State) {
        self.shared.policy.borrow_mut().heard(now, disk, state);
    }

    fn hedge_at(&self, disk: DiskId, ticket: Ticket) -> Option<Instant> {
        let ticket = self.ticket(ticket);
        self.shared.policy.borrow().hedge_at(disk, ticket)
    }

    fn hedge(
        &mut self,
        now: Instant,
        disk: DiskId,
        ticket: Ticket,
        copies: &[Candidate],
    ) -> Option<DiskId> {
        let ticket = self.ticket(ticket);
        let mut policy = self.shared.policy.borrow_mut();
        policy.hedge(now, disk, ticket, copies)
    }

    fn ejected(&self, now: Instant) -> Vec<DiskId> {
        self.shared.policy.borrow().ejected(now)
    }

    fn needs_exact_states(&self) -> bool {
        self.shared.policy.borrow().needs_exact_states()
    }
}
