//! CLBS: the disk with the least queued, by what it multicast last.
//!
//! Source: COST 2.1, 4.2, 5 (Xu, Zhu, Min and Hu, "Achieving better load balance in distributed storage system", PDPTA
//! 2002, as the paper describes it: the amount of requests waiting is multicast periodically).
//!
//! Choice: the amount is counted in bytes; requests break ties, then the order of the list.

use base::{Bytes, Instant};

use super::disks::Disks;
use super::queue_cost::least;
use super::spread::cheapest;
use super::{Candidate, DiskId, PlaceError, ReplicaPolicy, Request, State, Target};

/// The least queued amount.
#[derive(Debug, Clone, Default)]
pub struct QueuedAmount {
    /// Bytes and requests.
    queued: Disks<(Bytes, u32)>,
}

impl QueuedAmount {
    fn amount(&self, disk: DiskId) -> (Bytes, u32) {
        self.queued.get(disk).copied().unwrap_or_default()
    }
}

impl ReplicaPolicy for QueuedAmount {
    fn read(&mut self, _now: Instant, _request: &Request, copies: &[Candidate]) -> DiskId {
        least(copies, |copy| self.amount(copy.disk))
    }

    fn place(
        &mut self,
        _now: Instant,
        request: &Request,
        copies: usize,
        disks: &[Target],
    ) -> Result<Vec<DiskId>, PlaceError> {
        cheapest(disks, request.bytes, copies, |disk| {
            self.amount(disk.candidate.disk)
        })
    }

    fn heard(&mut self, _now: Instant, disk: DiskId, state: &State) {
        *self.queued.entry(disk, Default::default) = (state.queued, state.requests);
    }
}
