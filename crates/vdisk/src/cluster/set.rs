//! What operators set on a volume that is there: class, fairness, how many copies a write must reach, whose reservations it is
//! under, what its clients get at most.
//!
//! ```text
//! closed                                   -> its record, by compare-and-swap
//! open here, or left open by who is gone   -> its record, by its engine -> its connections say anew whose requests come, its cap lets
//!                                             pass what it says now
//! open on another node                     -> that node does it
//! ```
//!
//! Always true:
//! 1. What a writer changes in the record meanwhile stays.
//! 2. What is answered as done is in the record, and in force where the volume is open.

use policy::share::BytesPerSec;
use policy::share::cap::{Caps, check_booked};
use serde::{Deserialize, Serialize};

use super::ClusterError;
use crate::record::{CapRecord, Fairness, OnMetaLoss, PriorityClass, VolumeRecord};

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
    /// What its clients get at most.
    pub caps: CapChange,
}

/// Another cap of each kind; `None`: it stays. 0: no cap any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CapChange {
    /// Bytes per second of reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<u64>,
    /// And of writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<u64>,
    /// Reads per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_iops: Option<u64>,
    /// And writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_iops: Option<u64>,
}

impl CapChange {
    /// Does everything stay?
    pub fn is_empty(&self) -> bool {
        *self == CapChange::default()
    }

    /// The caps after the change of `caps`.
    pub fn applied(&self, caps: CapRecord) -> CapRecord {
        let set = |new: Option<u64>, old| match new {
            None => old,
            Some(0) => None,
            Some(new) => Some(new),
        };
        CapRecord {
            read: set(self.read, caps.read),
            write: set(self.write, caps.write),
            read_iops: set(self.read_iops, caps.read_iops),
            write_iops: set(self.write_iops, caps.write_iops),
        }
    }
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
        terms.caps = self.caps.applied(terms.caps);
        if let Some(holder) = &self.holder {
            terms.reservation.clone_from(holder);
        }
        *record != before
    }

    /// Can it be set, where `booked` tells the largest bookings of a holder: of reads, and of writes?
    pub(super) fn check(
        &self,
        record: &VolumeRecord,
        booked: impl Fn(&str) -> [BytesPerSec; 2],
    ) -> Result<(), ClusterError> {
        match self.min_isr {
            Some(asked) if asked == 0 || asked > record.copies => Err(ClusterError::MinCopies {
                volume: record.name.clone(),
                asked,
                copies: record.copies,
            }),
            _ => self.check_caps(record, booked),
        }
    }

    fn check_caps(
        &self,
        record: &VolumeRecord,
        booked: impl Fn(&str) -> [BytesPerSec; 2],
    ) -> Result<(), ClusterError> {
        let caps = Caps::from(self.caps.applied(record.terms.caps));
        let volume = || record.name.clone();
        caps.check().map_err(|source| ClusterError::Cap {
            volume: volume(),
            source,
        })?;
        let holder = self.holder.as_ref().unwrap_or(&record.terms.reservation);
        let Some(holder) = holder
            .as_ref()
            .filter(|_| self.caps != CapChange::default() || self.holder.is_some())
        else {
            return Ok(());
        };
        check_booked(&caps, booked(holder)).map_err(|source| ClusterError::CapBelowBooking {
            volume: volume(),
            holder: holder.clone(),
            source,
        })
    }
}
