//! How much room is free, booked and used?
//!
//! ```text
//! free -reserve-> reserved -spend-> used;   reserved -release-> free;   free -take-> used -give_back-> free
//! ```
//!
//! Source: PROBS 3.1 (space in three states: used, reserved, free).
//!
//! Choice: room is booked from the moment of the booking until its end, however far ahead its slot
//! lies. A slot before it may leave its data behind, so room cannot be promised twice in a row the way
//! time can.
//!
//! Always true: free + reserved + used = total.

use std::collections::BTreeMap;

use base::Bytes;

use super::calendar::BookingId;

/// The room of one store.
///
/// # Example
/// ```
/// use base::Bytes;
/// use policy::share::{Space, calendar::BookingId};
/// let mut space = Space::new(Bytes(100), Bytes(10));
/// space.reserve(BookingId(1), Bytes(60))?;
/// space.spend(BookingId(1), Bytes(20))?;
/// assert_eq!((space.free(), space.reserved(), space.used()), (Bytes(30), Bytes(40), Bytes(30)));
/// let refusal = space.take(Bytes(31)).unwrap_err().to_string();
/// assert_eq!(
///     refusal,
///     "cannot take 31 B: 30 B of 100 B is free, 40 B is reserved, 30 B is used; \
///      free some or ask for at most 30 B"
/// );
/// assert_eq!(space.release(BookingId(1)), Bytes(40));
/// # Ok::<(), policy::share::SpaceError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Space {
    total: Bytes,
    used: Bytes,
    reserved: BTreeMap<BookingId, Bytes>,
}

/// Why there was no room.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpaceError {
    /// Not enough is free.
    #[error(
        "cannot take {asked}: {free} of {total} is free, {reserved} is reserved, {used} is used; free \
         some or ask for at most {free}"
    )]
    Full {
        /// What was asked for.
        asked: Bytes,
        /// What is free.
        free: Bytes,
        /// What is booked.
        reserved: Bytes,
        /// What is used.
        used: Bytes,
        /// All there is.
        total: Bytes,
    },
    /// More than the booking has left.
    #[error(
        "cannot write {asked} on reservation {}: {left} of its room is left; write without it or \
         reserve more", .booking.0
    )]
    Spent {
        /// Whose room.
        booking: BookingId,
        /// What was asked for.
        asked: Bytes,
        /// What it has left.
        left: Bytes,
    },
}

impl Space {
    /// `used` of `total` is used, nothing is reserved.
    ///
    /// # Panics
    /// If more is used than there is.
    pub fn new(total: Bytes, used: Bytes) -> Space {
        assert!(used <= total, "{used} of {total} is used");
        Space {
            total,
            used,
            reserved: BTreeMap::new(),
        }
    }

    /// All there is.
    pub fn total(&self) -> Bytes {
        self.total
    }

    /// What holds data.
    pub fn used(&self) -> Bytes {
        self.used
    }

    /// What is booked and not yet used.
    pub fn reserved(&self) -> Bytes {
        self.reserved.values().copied().sum()
    }

    /// What any session may take.
    pub fn free(&self) -> Bytes {
        self.total - self.used - self.reserved()
    }

    /// What a booking has left.
    pub fn left(&self, booking: BookingId) -> Bytes {
        self.reserved.get(&booking).copied().unwrap_or_default()
    }

    /// Books room.
    ///
    /// # Errors
    /// [`SpaceError::Full`] if less is free.
    pub fn reserve(&mut self, booking: BookingId, asked: Bytes) -> Result<(), SpaceError> {
        self.want(asked)?;
        if asked.0 > 0 {
            *self.reserved.entry(booking).or_default() += asked;
        }
        Ok(())
    }

    /// Writes into booked room.
    ///
    /// # Errors
    /// [`SpaceError::Spent`] if the booking has less left.
    pub fn spend(&mut self, booking: BookingId, asked: Bytes) -> Result<(), SpaceError> {
        let left = self.left(booking);
        if asked > left {
            return Err(SpaceError::Spent {
                booking,
                asked,
                left,
            });
        }
        self.reserved.insert(booking, left - asked);
        self.used += asked;
        self.check();
        Ok(())
    }

    /// Writes without a booking.
    ///
    /// # Errors
    /// [`SpaceError::Full`] if less is free.
    pub fn take(&mut self, asked: Bytes) -> Result<(), SpaceError> {
        self.want(asked)?;
        self.used += asked;
        self.check();
        Ok(())
    }

    /// Deletes.
    ///
    /// # Panics
    /// If more is deleted than used.
    pub fn give_back(&mut self, bytes: Bytes) {
        assert!(bytes <= self.used, "{bytes} deleted, {} used", self.used);
        self.used -= bytes;
    }

    /// Ends a booking; what it had left is free.
    pub fn release(&mut self, booking: BookingId) -> Bytes {
        self.reserved.remove(&booking).unwrap_or_default()
    }

    fn want(&self, asked: Bytes) -> Result<(), SpaceError> {
        let free = self.free();
        if asked <= free {
            return Ok(());
        }
        Err(SpaceError::Full {
            asked,
            free,
            reserved: self.reserved(),
            used: self.used,
            total: self.total,
        })
    }

    fn check(&self) {
        assert_eq!(self.free() + self.reserved() + self.used, self.total);
    }
}
