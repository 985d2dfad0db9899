//! Choices that ask no disk: in turn, or by chance.
//!
//! Source: COST 2.1, 4.2 (round robin and hashing, what other distributed storage does).

use base::Instant;

use super::chance::Chance;
use super::spread::{first_apart, with_room};
use super::{Candidate, DiskId, PlaceError, ReplicaPolicy, Request, Target};

/// Every copy in its turn.
///
/// Choice: one turn per client and not per block, over the copies as they are listed.
#[derive(Debug, Clone, Default)]
pub struct RoundRobin {
    reads: usize,
    places: usize,
}

impl ReplicaPolicy for RoundRobin {
    fn read(&mut self, _now: Instant, _request: &Request, copies: &[Candidate]) -> DiskId {
        assert!(!copies.is_empty(), "a block has at least one copy");
        let turn = self.reads % copies.len();
        self.reads = self.reads.wrapping_add(1);
        copies[turn].disk
    }

    fn place(
        &mut self,
        _now: Instant,
        request: &Request,
        copies: usize,
        disks: &[Target],
    ) -> Result<Vec<DiskId>, PlaceError> {
        let mut room = with_room(disks, request.bytes, copies)?;
        let turn = self.places % room.len();
        self.places = self.places.wrapping_add(1);
        room.rotate_left(turn);
        Ok(first_apart(&room, copies))
    }
}

/// Any copy.
#[derive(Debug, Clone)]
pub struct Random(Chance);

impl Random {
    /// Chance comes from `seed`.
    pub fn new(seed: u64) -> Random {
        Random(Chance::new(seed))
    }
}

impl ReplicaPolicy for Random {
    fn read(&mut self, _now: Instant, _request: &Request, copies: &[Candidate]) -> DiskId {
        copies[self.0.below(copies.len())].disk
    }

    fn place(
        &mut self,
        _now: Instant,
        request: &Request,
        copies: usize,
        disks: &[Target],
    ) -> Result<Vec<DiskId>, PlaceError> {
        let mut room = with_room(disks, request.bytes, copies)?;
        self.0.shuffle(&mut room);
        Ok(first_apart(&room, copies))
    }
}
