//! What clients see of an object, and how they ask for a change.

use std::fmt;

use base::Bytes;
use device::Class;

/// The longest name in bytes.
pub const NAME_MAX: usize = 1024;
/// All attributes of one object, names and values with three bytes beside each pair, take at most so many bytes.
pub const ATTRIBUTES_MAX: usize = 4096;

/// Counts the changes of a store: each change has a greater one than all before it, also across crashes and
/// restarts, and no version is ever given twice. Zero comes before all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Version(pub u64);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Epoch and count: the second part is what operators compare.
        write!(f, "{}.{}", self.0 >> 40, self.0 & ((1 << 40) - 1))
    }
}

/// On what a change is to be done; compared and changed in one step, so that of two who compare with the same
/// version only one changes anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Condition {
    /// On whatever is there.
    #[default]
    Any,
    /// Only on an object that nothing changed since this version.
    Version(Version),
    /// Only on an object with this stamp or a lesser one: an owner that was replaced by one with a greater stamp
    /// changes nothing any more.
    StampAtMost(u64),
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Condition::Any => f.write_str("it is there"),
            Condition::Version(version) => write!(f, "it is at generation {version}"),
            Condition::StampAtMost(stamp) => write!(f, "its mark is at most {stamp}"),
        }
    }
}

/// How a change is to be done.
///
/// # Example
/// ```
/// use store::{Condition, Change};
/// let fenced = Change { condition: Condition::StampAtMost(7), stamp: Some(7), create: true, ..Change::default() };
/// assert!(!fenced.fua);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Change {
    /// Who it is for; goes on to the device.
    pub class: Class,
    /// Complete only when it is durable.
    pub fua: bool,
    /// On what it is to be done.
    pub condition: Condition,
    /// A number of the caller's own (an epoch, a generation that it counts), kept with the object from this
    /// change on, in the same atomic step.
    pub stamp: Option<u64>,
    /// Takes its room from this reservation.
    pub reservation: Option<ReservationId>,
    /// Writes: make the object if it is not there. A condition holds for what is not there with stamp 0 and
    /// version 0.
    pub create: bool,
}

impl Change {
    /// Durable at completion.
    pub const FUA: Change = Change {
        class: Class::Foreground,
        fua: true,
        condition: Condition::Any,
        stamp: None,
        reservation: None,
        create: false,
    };

    /// This change, on an object that may not be there yet.
    #[must_use]
    pub fn creating(self) -> Change {
        Change {
            create: true,
            ..self
        }
    }

    /// This change, only on `condition`.
    #[must_use]
    pub fn only_if(self, condition: Condition) -> Change {
        Change { condition, ..self }
    }

    /// This change, in `class`.
    #[must_use]
    pub fn class(self, class: Class) -> Change {
        Change { class, ..self }
    }
}

/// An object from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Its name.
    pub name: String,
    /// Its length in bytes; what was never written reads as zeroes.
    pub size: u64,
    /// Of its last change.
    pub version: Version,
    /// Of its making.
    pub born: Version,
    /// The caller's number of the last change that gave one; 0 if none did.
    pub stamp: u64,
}

/// A part of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing {
    /// In the order of their names' bytes.
    pub objects: Vec<Stat>,
    /// Where the next part begins: give it as `after`. `None`: that was all.
    pub next: Option<String>,
}

/// A stretch of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocatedRange {
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// Does it hold data? A hole reads as zeroes.
    pub data: bool,
    /// No change here is later than this one.
    pub version: Version,
}

/// How a store's room is divided. `free + reserved + used = total`, in bytes of whole pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpaceFigures {
    /// All units.
    pub total: Bytes,
    /// Data, pages being written, and what was deleted and waits for its commit.
    pub used: Bytes,
    /// Promised to reservations and not yet written.
    pub reserved: Bytes,
    /// The rest.
    pub free: Bytes,
    /// Of the free room, held back for overwrites, which go out of place.
    pub spare: Bytes,
    /// Of the used room, what the next commits reclaim.
    pub waiting: Bytes,
    /// Units with nothing in them.
    pub units_free: u64,
    /// Units with room and data.
    pub units_begun: u64,
    /// All units.
    pub units: u64,
    /// The allocation unit.
    pub unit: Bytes,
    /// The page.
    pub page: Bytes,
    /// Objects that can be named.
    pub objects: u64,
    /// Bytes of live records in the ledger.
    pub table: Bytes,
    /// The most there may be.
    pub table_max: Bytes,
}

/// What a store has done since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Bytes of objects read.
    pub bytes_read: u64,
    /// Bytes of objects written.
    pub bytes_written: u64,
    /// Bytes of data written to the device: whole pages.
    pub device_bytes_written: u64,
    /// Data writes sent to the device.
    pub device_writes: u64,
    /// Commits of the ledger.
    pub commits: u64,
    /// Flushes of the device before them.
    pub flushes: u64,
    /// Pages whose checksum was wrong.
    pub bad_checksums: u64,
    /// Pages scrubbed.
    pub pages_scrubbed: u64,
    /// Waits of a change for the commit of others' changes.
    pub waits: u64,
    /// Freed bytes that went back to the device.
    pub bytes_discarded: u64,
}

/// Names a reservation of room in a store, for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReservationId(pub u64);

impl fmt::Display for ReservationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}
