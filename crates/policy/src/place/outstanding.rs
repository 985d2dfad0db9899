//! The disk this client itself waits for least: what SPDK's RAID 1 and others do.
//!
//! Choice: requests are counted, not blocks; of equal ones the next in turn is taken, so that a client with one request
//! at a time uses all copies.

use base::Instant;

use super::disks::{Disks, Flights};
use super::spread::{first_apart, with_room};
use super::{Candidate, DiskId, PlaceError, ReplicaPolicy, Reply, Request, Sent, Target, Ticket};

/// The fewest own requests under way.
#[derive(Debug, Clone, Default)]
pub struct LeastOutstanding {
    under_way: Disks<Flights<()>>,
    turn: usize,
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

    /// Where the turn is in a list of so many.
    fn begin(&mut self, length: usize) -> usize {
        let begin = self.turn % length;
        self.turn = self.turn.wrapping_add(1);
        begin
    }
}

impl ReplicaPolicy for LeastOutstanding {
    fn read(&mut self, _now: Instant, _request: &Request, copies: &[Candidate]) -> DiskId {
        assert!(!copies.is_empty(), "a block has at least one copy");
        let (before, from) = copies.split_at(self.begin(copies.len()));
        let in_turn = from.iter().chain(before);
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
        let turn = self.begin(room.len());
        room.rotate_left(turn);
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
