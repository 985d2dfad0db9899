//! The first k of an order of disks that lie in failure domains of their own and have room.

use base::{Bytes, Set};

use super::{DiskId, DomainId, PlaceError, Target};

/// Whose turn it is among equals: each list begins one further than the one before.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Turn(usize);

impl Turn {
    /// Where a list of so many begins this time; not of none.
    pub fn next(&mut self, length: usize) -> usize {
        let begin = self.0 % length;
        self.0 = self.0.wrapping_add(1);
        begin
    }

    /// All of a list that is not empty, from there on.
    pub fn around<'a, T>(&mut self, list: &'a [T]) -> impl Iterator<Item = &'a T> + use<'a, T> {
        let (before, from) = list.split_at(self.next(list.len()));
        from.iter().chain(before)
    }
}

/// Those with room for `bytes`, or why `copies` cannot be placed.
///
/// # Errors
/// [`PlaceError`] if they lie in fewer than `copies` domains.
pub(super) fn with_room(
    disks: &[Target],
    bytes: Bytes,
    copies: usize,
) -> Result<Vec<Target>, PlaceError> {
    if copies == 0 {
        return Err(PlaceError::NoCopies);
    }
    let room: Vec<Target> = disks
        .iter()
        .filter(|it| it.free >= bytes)
        .copied()
        .collect();
    let domains = |disks: &[Target]| disks.iter().map(|it| it.domain).collect::<Set<_>>().len();
    let with_room = domains(&room);
    if with_room < copies {
        return Err(PlaceError::TooFewDomains {
            copies,
            bytes,
            domains: domains(disks),
            with_room,
        });
    }
    Ok(room)
}

/// The first `copies` of `order` in distinct domains. Of an order by cost these are the cheapest there are.
pub(super) fn first_apart<'a>(
    order: impl IntoIterator<Item = &'a Target>,
    copies: usize,
) -> Vec<DiskId> {
    let mut taken: Vec<DomainId> = Vec::with_capacity(copies);
    let mut disks = Vec::with_capacity(copies);
    for target in order {
        if disks.len() == copies {
            break;
        }
        if !taken.contains(&target.domain) {
            taken.push(target.domain);
            disks.push(target.candidate.disk);
        }
    }
    disks
}

/// The `copies` cheapest in distinct domains with room for `bytes`; equal ones as they are listed.
///
/// Source: COST 3 (a new allocation goes to the cheapest of all storage servers' disks).
///
/// Choice: the paper says neither that copies lie in distinct failure domains nor that a disk needs room.
///
/// # Errors
/// [`PlaceError`] if there are too few domains with room.
pub(super) fn cheapest<K: Ord>(
    disks: &[Target],
    bytes: Bytes,
    copies: usize,
    cost: impl FnMut(&Target) -> K,
) -> Result<Vec<DiskId>, PlaceError> {
    let mut room = with_room(disks, bytes, copies)?;
    room.sort_by_cached_key(cost);
    Ok(first_apart(&room, copies))
}
