//! How much may one part of a whole still write, where the whole's flash budget is dealt out?
//!
//! ```text
//! divider --grant: bytes more or fewer-->  Allowance  --admit--> yes, and charged | no
//!         <--report: left, charged, asked for--
//! ```
//!
//! It never grows by itself: what a day brings belongs to the whole, whose
//! [`FlashBudget`](super::admission::FlashBudget) is charged with what the parts report.
//!
//! Pure.
//!
//! Always true: what is charged between two grants is at most what was left after the first.

use base::Bytes;

/// See the file's head.
///
/// # Example
/// ```
/// use base::Bytes;
/// use policy::cache::allowance::Allowance;
/// let mut allowance = Allowance::default();
/// allowance.grant(8192);
/// assert!(allowance.admit(Bytes(8192)));
/// assert!(!allowance.admit(Bytes(4096)));
/// let report = allowance.report();
/// assert_eq!((report.left, report.charged, report.asked), (0, Bytes(8192), Bytes(12288)));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Allowance {
    /// In bytes. Less than nothing where more was charged than a later grant left.
    left: i64,
    charged: Bytes,
    asked: Bytes,
}

/// What a part did since its last report, and where it stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// Bytes it may still write; less than nothing: it owes them.
    pub left: i64,
    /// What was charged.
    pub charged: Bytes,
    /// What was asked for, admitted or not.
    pub asked: Bytes,
}

impl Allowance {
    /// May `len` bytes that need not be written now be written? If so they are charged.
    pub fn admit(&mut self, len: Bytes) -> bool {
        self.asked += len;
        let cost = i64::try_from(len.0).unwrap_or(i64::MAX);
        let enough = cost <= self.left;
        if enough {
            self.left -= cost;
            self.charged += len;
        }
        enough
    }

    /// What happened since the last report.
    pub fn report(&mut self) -> Spent {
        Spent {
            left: self.left,
            charged: std::mem::take(&mut self.charged),
            asked: std::mem::take(&mut self.asked),
        }
    }

    /// So many bytes more from now on, or fewer.
    pub fn grant(&mut self, change: i64) {
        self.left = self.left.saturating_add(change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_charged_meanwhile_is_a_debt() {
        let mut allowance = Allowance::default();
        allowance.grant(100);
        let left = allowance.report().left;
        assert!(allowance.admit(Bytes(80)));
        // The divider saw 100 and leaves 10.
        allowance.grant(10 - left);
        assert!(!allowance.admit(Bytes(1)));
        let spent = allowance.report();
        assert_eq!((spent.left, spent.charged), (-70, Bytes(80)));
        assert_eq!(allowance.report().charged, Bytes(0));
        allowance.grant(71);
        assert!(allowance.admit(Bytes(1)));
    }
}
