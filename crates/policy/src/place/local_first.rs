//! The copy in the same node if there is one, else any: what Sheepdog and others do.

use base::Instant;

use super::chance::Chance;
use super::spread::{first_apart, with_room};
use super::{Candidate, DiskId, PlaceError, ReplicaPolicy, Request, Target};

/// Local, else random.
#[derive(Debug, Clone)]
pub struct LocalFirst(Chance);

impl LocalFirst {
    /// Chance comes from `seed`.
    pub fn new(seed: u64) -> LocalFirst {
        LocalFirst(Chance::new(seed))
    }
}

impl ReplicaPolicy for LocalFirst {
    fn read(&mut self, _now: Instant, _request: &Request, copies: &[Candidate]) -> DiskId {
        let local = copies.iter().find(|copy| copy.local);
        let any = || &copies[self.0.below(copies.len())];
        local.unwrap_or_else(any).disk
    }

    /// The first copy in the same node if there is room, the others anywhere.
    fn place(
        &mut self,
        _now: Instant,
        request: &Request,
        copies: usize,
        disks: &[Target],
    ) -> Result<Vec<DiskId>, PlaceError> {
        let mut room = with_room(disks, request.bytes, copies)?;
        self.0.shuffle(&mut room);
        room.sort_by_key(|disk| !disk.candidate.local);
        Ok(first_apart(&room, copies))
    }
}
