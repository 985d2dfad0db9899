//! Timers: which task is woken at which moment?
//!
//! ```text
//! insert(deadline) -> heap by (deadline, order of asking) -> pop_due(now), or cancel(id)
//! ```
//!
//! Pure: generic in what is kept for a timer, so that it can be tested against a plain reference model.
//!
//! Always true:
//! 1. Of two timers due, the earlier deadline comes first, and of two equal ones the one asked for first.
//! 2. A cancelled timer never comes; what it kept is dropped at once.
//! 3. Cancelled timers never make up more than half of a heap of over 64.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use base::Instant;

/// Heaps up to this size are never swept of cancelled timers.
const SWEEP_MIN: usize = 64;

/// Names one timer; stays unique after the timer is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimerId {
    sequence: u64,
    place: u32,
}

/// One timer's place in the order.
struct Entry {
    deadline: Instant,
    sequence: u64,
    place: u32,
}

impl Entry {
    /// One number to compare instead of two: no branch to mispredict.
    fn key(&self) -> u128 {
        (u128::from(self.deadline.0) << 64) | u128::from(self.sequence)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.key() == other.key()
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
    fn le(&self, other: &Entry) -> bool {
        other.key() <= self.key()
    }
}
impl Ord for Entry {
    /// Reversed: the heap's greatest is the earliest deadline, then the first asked for.
    fn cmp(&self, other: &Entry) -> Ordering {
        other.key().cmp(&self.key())
    }
}

struct Place<T> {
    sequence: u64,
    kept: Option<T>,
}

/// See the module's head.
pub(crate) struct Timers<T> {
    heap: BinaryHeap<Entry>,
    places: Vec<Place<T>>,
    free: Vec<u32>,
    sequence: u64,
    cancelled: usize,
}

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Timers {
            heap: BinaryHeap::new(),
            places: Vec::new(),
            free: Vec::new(),
            sequence: 0,
            cancelled: 0,
        }
    }
}

impl<T> Timers<T> {
    /// Keeps `kept` until `deadline`.
    pub(crate) fn insert(&mut self, deadline: Instant, kept: T) -> TimerId {
        self.sequence += 1;
        let sequence = self.sequence;
        let kept = Some(kept);
        let place = match self.free.pop() {
            Some(place) => {
                self.places[place as usize] = Place { sequence, kept };
                place
            }
            None => {
                let place = u32::try_from(self.places.len()).expect("fewer than 2^32 timers");
                self.places.push(Place { sequence, kept });
                place
            }
        };
        self.heap.push(Entry {
            deadline,
            sequence,
            place,
        });
        TimerId { sequence, place }
    }

    /// What timer `id` keeps, while it waits.
    pub(crate) fn get_mut(&mut self, id: TimerId) -> Option<&mut T> {
        let place = self.places.get_mut(id.place as usize)?;
        if place.sequence != id.sequence {
            return None;
        }
        place.kept.as_mut()
    }

    /// Takes timer `id` away; what it kept, if it still waited.
    pub(crate) fn cancel(&mut self, id: TimerId) -> Option<T> {
        let place = self.places.get_mut(id.place as usize)?;
        if place.sequence != id.sequence {
            return None;
        }
        let kept = place.kept.take()?;
        self.cancelled += 1;
        if self.cancelled > SWEEP_MIN / 2 && self.cancelled > self.heap.len() / 2 {
            self.sweep();
        }
        Some(kept)
    }

    /// Surely none waits?
    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// The earliest deadline.
    pub(crate) fn next(&mut self) -> Option<Instant> {
        loop {
            let &Entry {
                deadline, place, ..
            } = self.heap.peek()?;
            if self.places[place as usize].kept.is_some() {
                return Some(deadline);
            }
            self.heap.pop();
            self.free.push(place);
            self.cancelled -= 1;
        }
    }

    /// Takes the first timer due at `now`.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<T> {
        loop {
            let &Entry {
                deadline, place, ..
            } = self.heap.peek()?;
            if deadline > now {
                return None;
            }
            self.heap.pop();
            self.free.push(place);
            match self.places[place as usize].kept.take() {
                Some(kept) => return Some(kept),
                None => self.cancelled -= 1,
            }
        }
    }

    /// Forgets all timers; returns what they kept.
    pub(crate) fn clear(&mut self) -> Vec<T> {
        self.heap.clear();
        self.free.clear();
        self.cancelled = 0;
        self.places
            .drain(..)
            .filter_map(|place| place.kept)
            .collect()
    }

    fn sweep(&mut self) {
        let (places, free) = (&self.places, &mut self.free);
        self.heap.retain(|entry| {
            let waits = places[entry.place as usize].kept.is_some();
            if !waits {
                free.push(entry.place);
            }
            waits
        });
        self.cancelled = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64),
        Cancel(usize),
        Pass(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0..50u64).prop_map(Step::Insert),
            4 => any::<usize>().prop_map(Step::Cancel),
            1 => (0..20u64).prop_map(Step::Pass),
        ];
        proptest::collection::vec(step, 0..600)
    }

    proptest! {
        /// The reference model is a list searched from end to end.
        #[test]
        fn timers_come_like_those_of_a_plain_list(steps in steps()) {
            let mut timers = Timers::default();
            let mut list: Vec<(Instant, u32, TimerId)> = Vec::new();
            let mut ids = Vec::new();
            let mut now = Instant(0);
            for (name, step) in (0u32..).zip(steps) {
                match step {
                    Step::Insert(after) => {
                        let deadline = Instant(now.0 + after);
                        let id = timers.insert(deadline, name);
                        list.push((deadline, name, id));
                        ids.push(id);
                    }
                    Step::Cancel(which) if !ids.is_empty() => {
                        let id = ids[which % ids.len()];
                        let at = list.iter().position(|timer| timer.2 == id);
                        prop_assert_eq!(timers.get_mut(id).copied(), at.map(|at| list[at].1));
                        prop_assert_eq!(timers.cancel(id), at.map(|at| list.remove(at).1));
                    }
                    Step::Cancel(_) => {}
                    Step::Pass(by) => {
                        now = Instant(now.0 + by);
                        loop {
                            // `min_by_key` takes the first of equals: the one asked for first.
                            let due = list.iter().enumerate()
                                .filter(|(_, timer)| timer.0 <= now)
                                .min_by_key(|(_, timer)| timer.0)
                                .map(|(at, _)| at);
                            let expected = due.map(|at| list.remove(at).1);
                            prop_assert_eq!(timers.pop_due(now), expected);
                            if expected.is_none() {
                                break;
                            }
                        }
                    }
                }
                prop_assert_eq!(timers.next(), list.iter().map(|timer| timer.0).min());
                prop_assert!(timers.heap.len() <= SWEEP_MIN.max(2 * list.len()));
            }
        }
    }
}
