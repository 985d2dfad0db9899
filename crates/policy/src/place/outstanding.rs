//! The disk this client itself waits for least: what SPDK's RAID 1 and others do.
//!
//! Choice: requests are counted, not blocks; of equal ones the next in turn is taken, so that a client with one request
//! at a time uses all copies.

use base::Instant;

use super::disks::{Disks, Flights};
use super::spread::{Turn, first_apart, with_room};
use super::{Candidate, DiskId, PlaceError, ReplicaPolicy, Reply, Request, Sent, Target, Ticket};

/// The fewest own requests under way.
#[derive(Debug, Clone, Default)]
pub struct LeastOutstanding {
    under_way: Disks<Flights<()>>,
    turn: Turn,
}

impl LeastOutstanding {
    fn count(&self, disk: DiskId) -> usize {
        self.under_way.get(disk).map_or(0, Flights::len)
    }

    fn ended(&mut self, disk: DiskId, ticket: Ticket) {
        if let Some(flights) = self.under_way.get_mut(disk) {
            flights.take(ticket);
        }
    }
}

impl ReplicaPolicy for LeastOutstanding {
    fn read(&mut self, _now: Instant, _request: &Request, copies: &[Candidate]) -> DiskId {
        assert!(!copies.is_empty(), "a block has at least one copy");
        let in_turn = self.turn.around(copies);
        let least = in_turn.min_by_key(|copy| self.count(copy.disk));
        least.expect("not empty").disk
    }

    fn place(
        &mut self,
        _now: Instant,
        request: &Request,
        copies: usize,
        disks: &[Target],
    ) -> Result<Vec<DiskId>, PlaceError> {
        let mut room = with_room(disks, request.bytes, copies)?;
        let begin = self.turn.next(room.len());
        room.rotate_left(begin);
        room.sort_by_key(|disk| self.count(disk.candidate.disk));
        Ok(first_apart(&room, copies))
    }

    fn sent(&mut self, _now: Instant, sent: &Sent) {
        let flights = self.under_way.entry(sent.candidate.disk, Flights::default);
        flights.push(sent.ticket, ());
    }

    fn answered(&mut self, _now: Instant, disk: DiskId, ticket: Ticket, _reply: &Reply) {
        self.ended(disk, ticket);
    }

    fn failed(&mut self, _now: Instant, disk: DiskId, ticket: Ticket, _fault: bool) {
        self.ended(disk, ticket);
    }
}
