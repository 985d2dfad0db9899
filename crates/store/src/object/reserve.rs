//! Room promised to a session: free -> reserved -> used by its writes, or free again.
//!
//! A reservation is durable when it is answered, and so is what it has left with each commit. Pages that a write with
//! it takes are its own from the start: a write that fails gives them back to it. An overwrite takes its new pages from
//! the reservation too; the old ones become free for all.
//!
//! Source: PROBS 3.1 (room is reserved in blocks of one length); overwrites are ours.

use base::Bytes;

use crate::object::error::StoreError;
use crate::object::parts::Parts;
use crate::object::promises::Promise;
use crate::object::table::Table;
use crate::object::types::ReservationId;

/// Bytes a reservation's record takes in a commit, at most.
const CHARGE: u64 = 20;

/// A reservation from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    /// Its name.
    pub id: ReservationId,
    /// What is not yet written.
    pub left: Bytes,
}

/// Keeps reservations; see [`crate::Store::reserve`].
pub(crate) struct Reserver<'a>(pub &'a Parts);

impl Reserver<'_> {
    pub async fn reserve(&self, bytes: Bytes) -> Result<ReservationId, StoreError> {
        let parts = self.0;
        let pages = bytes.0.div_ceil(parts.disk.page);
        if pages == 0 {
            return Err(StoreError::Request {
                what: format!("reserve room in {}", parts.disk.name),
                why: "nothing was asked for".to_owned(),
            });
        }
        let number = loop {
            parts.stage(CHARGE).await?;
            let come = match self.reserve_now(bytes, pages)? {
                Some(number) => break number,
                None => parts.room.wait(),
            };
            come.await;
        };
        parts.commit.note();
        parts.committed().await?;
        Ok(ReservationId(number))
    }

    /// Promises free pages; `None` if that many come back with commits and readers under way.
    fn reserve_now(&self, bytes: Bytes, pages: u64) -> Result<Option<u64>, StoreError> {
        let parts = self.0;
        let table = &mut *parts.table.change();
        let space = parts.space.borrow();
        let taken = table.promised() + parts.disk.spare;
        let free = u64::from(space.free_count()).saturating_sub(taken);
        if free >= pages {
            parts.table_has_room(table, CHARGE)?;
            let number = parts.next_reservation();
            let promise = Promise {
                left: pages,
                held: 0,
            };
            table.set_promise(number, Some(promise));
            return Ok(Some(number));
        }
        if !space.more_to_come() {
            return Err(parts.disk.no_space(bytes, free));
        }
        if space.needs_commit() {
            parts.commit.want();
        }
        Ok(None)
    }

    pub async fn release(&self, id: ReservationId) -> Result<(), StoreError> {
        let parts = self.0;
        loop {
            parts.stage(CHARGE).await?;
            {
                let table = &mut *parts.table.change();
                let promise = table.promises.get(id.0);
                let promise = promise.ok_or_else(|| self.unknown(id.0))?;
                if promise.held == 0 {
                    table.set_promise(id.0, None);
                    break;
                }
            }
            parts.room.wait().await;
        }
        parts.commit.note();
        parts.room.notify_all();
        parts.committed().await
    }

    /// All, the oldest first.
    pub fn all(&self) -> Vec<Reservation> {
        let table = self.0.table.borrow();
        let all = table.promises.iter().map(|(number, promise)| Reservation {
            id: ReservationId(number),
            left: Bytes(promise.left * self.0.disk.page),
        });
        all.collect()
    }

    /// Has the reservation `pages` left? Anything but yes is an error.
    pub fn covers(&self, table: &Table, number: u64, pages: u64) -> Result<bool, StoreError> {
        let promise = table.promises.get(number);
        let promise = promise.ok_or_else(|| self.unknown(number))?;
        let left = promise.left - promise.held;
        if left >= pages {
            return Ok(true);
        }
        Err(StoreError::Reservation {
            store: self.0.disk.name.clone(),
            reservation: ReservationId(number),
            asked: Bytes(pages * self.0.disk.page),
            left: Bytes(left * self.0.disk.page),
        })
    }

    fn unknown(&self, number: u64) -> StoreError {
        StoreError::NoReservation {
            store: self.0.disk.name.clone(),
            reservation: ReservationId(number),
        }
    }
}
