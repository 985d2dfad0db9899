//! As Linux's RAID 1 reads: a request that follows on stays, an idle disk is used, then the nearest head or the shortest line.
//!
//! ```text
//! follows on where this disk was sent last, or its head is -> that disk
//! some disk idle                                           -> the first such
//! all disks rotating -> the nearest head      else -> the fewest under way
//! ```
//!
//! Source: Linux `drivers/md/raid1.c`, `choose_best_rdev` and `is_sequential`.
//!
//! Choice: what is under way is this client's own, since other nodes' is not known; the move to another disk after an
//! optimal length on flash is left out. A place that is not known is far from everything.

use base::Instant;

use super::disks::{Disks, Flights};
use super::queue_cost::least;
use super::spread::cheapest;
use super::{
    At, Candidate, DiskId, PlaceError, ReplicaPolicy, Reply, Request, Sent, Target, Ticket,
};

#[derive(Debug, Clone, Default)]
struct View {
    /// Where each will end.
    under_way: Flights<Option<At>>,
    /// Where the last one sent ends.
    next: Option<At>,
    /// Where the last one answered ended.
    head: Option<At>,
}

/// In the manner of Linux's md RAID 1.
#[derive(Debug, Clone, Default)]
pub struct MdRaid1 {
    disks: Disks<View>,
}

impl MdRaid1 {
    fn pending(&self, disk: DiskId) -> usize {
        self.disks.get(disk).map_or(0, |view| view.under_way.len())
    }

    fn follows_on(&self, copy: &Candidate) -> bool {
        let view = self.disks.get(copy.disk);
        view.is_some_and(|view| copy.at.is_some() && (copy.at == view.next || copy.at == view.head))
    }

    fn distance(&self, copy: &Candidate) -> u64 {
        let head = self.disks.get(copy.disk).and_then(|view| view.head);
        match (copy.at, head) {
            (Some(at), Some(head)) => at.distance(head),
            _ => u64::MAX,
        }
    }
}

impl ReplicaPolicy for MdRaid1 {
    fn read(&mut self, _now: Instant, _request: &Request, copies: &[Candidate]) -> DiskId {
        if let Some(copy) = copies.iter().find(|copy| self.follows_on(copy)) {
            return copy.disk;
        }
        let idle = copies.iter().any(|copy| self.pending(copy.disk) == 0);
        if idle || copies.iter().any(|copy| !copy.rotating) {
            return least(copies, |copy| self.pending(copy.disk));
        }
        least(copies, |copy| self.distance(copy))
    }

    /// The fewest under way: md places nothing.
    fn place(
        &mut self,
        _now: Instant,
        request: &Request,
        copies: usize,
        disks: &[Target],
    ) -> Result<Vec<DiskId>, PlaceError> {
        cheapest(disks, request.bytes, copies, |disk| {
            self.pending(disk.candidate.disk)
        })
    }

    fn sent(&mut self, _now: Instant, sent: &Sent) {
        let view = self.disks.entry(sent.candidate.disk, View::default);
        let end = sent.candidate.at.map(|at| at.after(sent.request.bytes));
        view.under_way.push(sent.ticket, end);
        if sent.request.op == super::Op::Read {
            view.next = end;
        }
    }

    fn answered(&mut self, _now: Instant, disk: DiskId, ticket: Ticket, _reply: &Reply) {
        let Some(view) = self.disks.get_mut(disk) else {
            return;
        };
        if let Some(Some(end)) = view.under_way.take(ticket) {
            view.head = Some(end);
        }
    }

    fn failed(&mut self, _now: Instant, disk: DiskId, ticket: Ticket, _fault: bool) {
        if let Some(view) = self.disks.get_mut(disk) {
            view.under_way.take(ticket);
        }
    }
}
