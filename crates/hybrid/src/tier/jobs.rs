//! What the direct mover has to do: extents that wait for room, and copies of what is missing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What is to be promoted and copied.
#[derive(Default)]
pub(crate) struct Jobs {
    /// Extents waiting for room, in order.
    pub promotions: VecDeque<u32>,
    pub waiting: BTreeSet<u32>,
    /// Extents whose missing pages are to be copied: which parts were looked at.
    pub copies: BTreeMap<u32, u64>,
    /// The order in which they are: hottest first.
    pub order: VecDeque<u32>,
    /// There is no room, and nothing fast that is colder than what wants to come; until the next interval.
    pub full: bool,
    /// Extents that are fast, those to demote first in front, as of the last look.
    pub cold: VecDeque<u32>,
}

impl Jobs {
    /// Is anything to be promoted or copied?
    #[cfg(test)]
    pub fn any(&self) -> bool {
        !self.promotions.is_empty() || !self.copies.is_empty()
    }

    /// `extent` is to be promoted no more.
    pub fn leave_line(&mut self, extent: u32) {
        if self.waiting.remove(&extent) {
            self.promotions.retain(|other| *other != extent);
        }
    }

    /// `extent` is to be promoted no more, and nothing is to be copied for it.
    pub fn forget(&mut self, extent: u32) {
        self.copies.remove(&extent);
        self.leave_line(extent);
    }

    /// Puts what is to be copied in a new order, the hottest first, where the old one is worked through.
    pub fn put_in_order(&mut self, heat: impl Fn(u32) -> f64) {
        if !self.order.is_empty() {
            return;
        }
        let extents = self.copies.keys().copied();
        let mut order: Vec<(f64, u32)> = extents.map(|extent| (heat(extent), extent)).collect();
        order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        self.order = order.into_iter().map(|(_, extent)| extent).collect();
    }

    /// There may be room again.
    pub fn make_hope(&mut self) {
        self.full = false;
    }

    /// Nothing is to be done any more.
    pub fn clear(&mut self) {
        *self = Jobs::default();
    }
}
