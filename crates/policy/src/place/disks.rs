//! What is kept per disk, and of requests under way to it: both bounded.
//!
//! Choice: when more disks are spoken of than may be, the one known longest is forgotten (it counts as idle and
//! unknown again); when more requests are under way, the oldest is no longer counted.

use std::collections::VecDeque;

use base::Map;

use super::{DiskId, Ticket};

/// Disks one policy keeps something about.
pub(super) const DISKS_MAX: usize = 4_096;
/// Requests under way to one disk that are counted.
pub(super) const FLIGHTS_MAX: usize = 1_024;

/// A `T` for each disk.
#[derive(Debug, Clone)]
pub(super) struct Disks<T> {
    most: usize,
    by_id: Map<DiskId, T>,
    /// As they came.
    order: VecDeque<DiskId>,
}

impl<T> Default for Disks<T> {
    fn default() -> Self {
        Disks::at_most(DISKS_MAX)
    }
}

impl<T> Disks<T> {
    pub(super) fn at_most(most: usize) -> Disks<T> {
        Disks {
            most,
            by_id: Map::default(),
            order: VecDeque::new(),
        }
    }

    pub(super) fn get(&self, disk: DiskId) -> Option<&T> {
        self.by_id.get(&disk)
    }

    pub(super) fn get_mut(&mut self, disk: DiskId) -> Option<&mut T> {
        self.by_id.get_mut(&disk)
    }

    /// What is kept about `disk`, from now on if not before.
    pub(super) fn entry(&mut self, disk: DiskId, new: impl FnOnce() -> T) -> &mut T {
        if !self.by_id.contains_key(&disk) {
            if self.order.len() >= self.most
                && let Some(oldest) = self.order.pop_front()
            {
                self.by_id.remove(&oldest);
            }
            self.order.push_back(disk);
        }
        self.by_id.entry(disk).or_insert_with(new)
    }

    /// All of them, as they came.
    pub(super) fn iter(&self) -> impl Iterator<Item = (DiskId, &T)> {
        self.order.iter().map(|disk| (*disk, &self.by_id[disk]))
    }
}

/// Requests under way to one disk, oldest first.
#[derive(Debug, Clone)]
pub(super) struct Flights<F>(VecDeque<(Ticket, F)>);

impl<F> Default for Flights<F> {
    fn default() -> Self {
        Flights(VecDeque::new())
    }
}

impl<F> Flights<F> {
    pub(super) fn push(&mut self, ticket: Ticket, flight: F) {
        if self.0.len() >= FLIGHTS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((ticket, flight));
    }

    pub(super) fn take(&mut self, ticket: Ticket) -> Option<F> {
        let index = self.0.iter().position(|(it, _)| *it == ticket)?;
        self.0.remove(index).map(|(_, flight)| flight)
    }

    pub(super) fn get(&self, ticket: Ticket) -> Option<&F> {
        let found = self.0.iter().find(|(it, _)| *it == ticket);
        found.map(|(_, flight)| flight)
    }

    pub(super) fn mark(&mut self, ticket: Ticket, change: impl FnOnce(&mut F)) {
        if let Some((_, flight)) = self.0.iter_mut().find(|(it, _)| *it == ticket) {
            change(flight);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &F> {
        self.0.iter().map(|(_, flight)| flight)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_and_the_oldest_goes() {
        let mut disks = Disks::at_most(2);
        for id in [5, 3, 5, 9] {
            disks.entry(DiskId(id), || id);
        }
        let left: Vec<u32> = disks.iter().map(|(disk, _)| disk.0).collect();
        assert_eq!((left, disks.get(DiskId(5))), (vec![3, 9], None));
        let mut flights = Flights::default();
        for ticket in 0..=FLIGHTS_MAX as u64 {
            flights.push(Ticket(ticket), ());
        }
        assert_eq!(flights.len(), FLIGHTS_MAX);
        assert_eq!(flights.take(Ticket(0)), None);
        assert_eq!(flights.take(Ticket(1)), Some(()));
    }
}
