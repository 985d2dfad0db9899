//! What operators set on a volume that is there: class, fairness, how many copies a write must reach, whose reservations it is
//! under.
//!
//! ```text
//! closed                                   -> its record, by compare-and-swap
//! open here, or left open by who is gone   -> its record, by its engine -> its connections say anew whose requests come
//! open on another node                     -> that node does it
//! ```
//!
//! Always true:
//! 1. What a writer changes in the record meanwhile stays.
//! 2. What is answered as done is in the record, and in force where the volume is open.

use super::ClusterError;
use crate::record::{Fairness, OnMetaLoss, PriorityClass, VolumeRecord};

/// What is to be set; all else stays.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Setting {
    /// Its clients beside others.
    pub priority: Option<PriorityClass>,
    /// How far they and others of their class are kept apart.
    pub fairness: Option<Fairness>,
    /// How many copies a write must reach at least.
    pub min_isr: Option<u8>,
    /// The holder of the reservations attached to its requests; `Some(None)`: none.
    pub holder: Option<Option<String>>,
    /// What requests do while the meta store is away.
    pub on_meta_loss: Option<OnMetaLoss>,
}

impl Setting {
    /// Nothing at all?
    pub fn is_empty(&self) -> bool {
        *self == Setting::default()
    }

    /// Sets it; is anything different then?
    pub(super) fn apply(&self, record: &mut VolumeRecord) -> bool {
        let before = record.clone();
        let terms = &mut record.terms;
        terms.priority = self.priority.unwrap_or(terms.priority);
        terms.fairness = self.fairness.or(terms.fairness);
        terms.min_isr = self.min_isr.unwrap_or(terms.min_isr);
        terms.on_meta_loss = self.on_meta_loss.unwrap_or(terms.on_meta_loss);
        if let Some(holder) = &self.holder {
            terms.reservation.clone_from(holder);
        }
        *record != before
    }

    pub(super) fn check(&self, record: &VolumeRecord) -> Result<(), ClusterError> {
        match self.min_isr {
            Some(asked) if asked == 0 || asked > record.copies => Err(ClusterError::MinCopies {
                volume: record.name.clone(),
                asked,
                copies: record.copies,
            }),
            _ => Ok(()),
        }
    }
}
