//! What became of damage that stores know of: named one by one up to a limit, and counted beyond.

use std::cell::RefCell;
use std::rc::Rc;

use base::Bytes;
use env::sync::Semaphore;
use store::Damage;

use crate::names::StoreNumber;

/// Damage that could not be repaired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unrepaired {
    /// Which bytes of which object.
    pub damage: Damage,
    /// Where.
    pub store: StoreNumber,
    /// What stood in the way.
    pub why: String,
    /// Does no in-sync copy have these bytes?
    pub lost: bool,
}

/// As many stretches as this are told one by one: of those that are lost, and of those that are not; what lies beyond is counted.
pub const LEFT_MAX: u64 = 1000;

/// What became of the damage that stores know of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Repairs {
    /// Written anew.
    pub repaired: Bytes,
    /// Damaged still, [`LEFT_MAX`] of a kind at most.
    pub left: Vec<Unrepaired>,
    /// Stretches damaged still, in `left` or not.
    pub count: u64,
    /// Those of them that are lost.
    pub lost: u64,
    /// In-sync stores that did not say what is damaged there, and why.
    pub silent: Vec<(StoreNumber, String)>,
}

impl Repairs {
    /// Stretches that are not in `left`.
    pub fn beyond(&self) -> u64 {
        self.count - self.left.len() as u64
    }

    pub(super) fn leave(&mut self, one: Unrepaired) {
        let before = match one.lost {
            true => self.lost,
            false => self.count - self.lost,
        };
        self.count += 1;
        self.lost += u64::from(one.lost);
        if before < LEFT_MAX {
            self.left.push(one);
        }
    }

    pub(super) fn lost_in_words(&self) -> Option<String> {
        let first = &self.left.iter().find(|it| it.lost)?.damage;
        let more = match self.lost - 1 {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        Some(format!(
            "no in-sync copy has {} at byte {} of {}{more}: restore it from a backup, or write over it",
            Bytes(first.len),
            first.offset,
            first.object
        ))
    }
}

/// What is remembered between two looks.
pub(super) struct Repairing {
    pub one: Rc<Semaphore>,
    pub last: RefCell<Repairs>,
}

impl Default for Repairing {
    fn default() -> Repairing {
        Repairing {
            one: Semaphore::new(1),
            last: RefCell::default(),
        }
    }
}

impl Repairing {
    /// What no in-sync copy had when it was last looked for.
    pub fn lost_pages(&self) -> Vec<Unrepaired> {
        let last = self.last.borrow();
        last.left.iter().filter(|it| it.lost).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_beyond_the_limit_is_counted_and_what_is_lost_is_named() {
        let mut repairs = Repairs::default();
        let unrepaired = |at: u64, lost| Unrepaired {
            damage: Damage {
                object: "v/1".to_owned(),
                offset: at * 2 * 4096,
                len: 4096,
            },
            store: StoreNumber(1),
            why: "it is damaged".to_owned(),
            lost,
        };
        for at in 0..LEFT_MAX + 500 {
            repairs.leave(unrepaired(at, false));
        }
        assert_eq!(repairs.lost_in_words(), None);
        for at in 0..LEFT_MAX + 7 {
            repairs.leave(unrepaired(LEFT_MAX + 500 + at, true));
        }
        assert_eq!(repairs.left.len() as u64, 2 * LEFT_MAX);
        assert_eq!((repairs.beyond(), repairs.lost), (507, LEFT_MAX + 7));
        let said = repairs.lost_in_words().unwrap();
        assert!(said.contains(", and 1006 more"), "{said}");
    }
}
