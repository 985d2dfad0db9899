//! Room promised to a session: free -> reserved -> used by its writes, or free again.
//!
//! A reservation is durable when it is answered, and so is what it has left with each commit. Pages that a write with
//! it takes are its own from the start: a write that fails gives them back to it. An overwrite takes its new pages from
//! the reservation too; the old ones become free for all.
//!
//! Source: PROBS 3.1 (room is reserved in blocks of one length); overwrites are ours.

use base::Bytes;

use crate::object::error::StoreError;
use crate::object::open::{Inner, Store};
use crate::object::table::{Promise, Table};
use crate::object::types::ReservationId;

/// A reservation from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    /// Its name.
    pub id: ReservationId,
    /// What is not yet written.
    pub left: Bytes,
}

impl Store {
    /// Promises room for `bytes` of data, in whole pages; durable at completion.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] if less is free; [`StoreError::Request`] for nothing; [`StoreError::TableFull`],
    /// [`StoreError::Failed`], [`StoreError::Closed`].
    ///
    /// # Example
    /// ```
    /// # env::Runtime::simulated(1).block_on(async {
    /// # use base::{Bytes, View};
    /// # use store::{Change, Settings, Store};
    /// # let device = device::Memory::new("disk", Bytes::mib(8));
    /// # let store = Store::format(device, Settings::default()).await.unwrap();
    /// let id = store.reserve(Bytes::mib(1)).await.unwrap();
    /// let change = Change { reservation: Some(id), create: true, ..Change::default() };
    /// store.write("a", 0, View::copy_of(&[7; 10_000]), change).await.unwrap();
    /// let space = store.space();
    /// assert_eq!((space.used, space.reserved), (Bytes(12_288), Bytes((1 << 20) - 12_288)));
    /// store.release(id).await.unwrap();
    /// assert_eq!(store.space().reserved, Bytes(0));
    /// # });
    /// ```
    pub async fn reserve(&self, bytes: Bytes) -> Result<ReservationId, StoreError> {
        let inner = &self.inner;
        let pages = bytes.0.div_ceil(inner.page);
        if pages == 0 {
            return Err(StoreError::Request {
                what: format!("reserve room in {}", inner.name),
                why: "nothing was asked for".to_owned(),
            });
        }
        let number = loop {
            inner.stage(20).await?;
            let come = {
                let table = &mut *inner.table.change();
                let space = inner.space.borrow();
                let free =
                    u64::from(space.free_count()).saturating_sub(table.promised + inner.spare);
                if free >= pages {
                    inner.table_has_room(table, 20)?;
                    let number = inner.next_reservation.get() + 1;
                    inner.next_reservation.set(number);
                    let promise = Promise {
                        left: pages,
                        held: 0,
                    };
                    table.set_promise(number, Some(promise));
                    break number;
                }
                if !space.more_to_come() {
                    return Err(StoreError::NoSpace {
                        store: inner.name.clone(),
                        asked: bytes,
                        available: Bytes(free * inner.page),
                        total: Bytes(u64::from(space.total()) * inner.page),
                    });
                }
                if space.needs_commit() {
                    inner.commit.want();
                }
                inner.room.wait()
            };
            come.await;
        };
        inner.commit.note();
        inner.committed().await?;
        Ok(ReservationId(number))
    }

    /// Gives what is left of a reservation back to the free room, once no write with it is under way; durable at
    /// completion.
    ///
    /// # Errors
    /// [`StoreError::NoReservation`], [`StoreError::Failed`], [`StoreError::Closed`].
    pub async fn release(&self, id: ReservationId) -> Result<(), StoreError> {
        let inner = &self.inner;
        loop {
            inner.stage(20).await?;
            {
                let table = &mut *inner.table.change();
                let Some(promise) = table.promises.get(&id.0) else {
                    return Err(inner.no_reservation(id.0));
                };
                if promise.held == 0 {
                    table.set_promise(id.0, None);
                    break;
                }
            }
            inner.room.wait().await;
        }
        inner.commit.note();
        inner.room.notify_all();
        inner.committed().await
    }

    /// All reservations, the oldest first.
    pub fn reservations(&self) -> Vec<Reservation> {
        let table = self.inner.table.borrow();
        let all = table.promises.iter().map(|(number, promise)| Reservation {
            id: ReservationId(*number),
            left: Bytes(promise.left * self.inner.page),
        });
        all.collect()
    }
}

impl Inner {
    fn no_reservation(&self, number: u64) -> StoreError {
        StoreError::NoReservation {
            store: self.name.clone(),
            reservation: ReservationId(number),
        }
    }

    /// Has the reservation `pages` left? Anything but yes is an error.
    pub fn promise_covers(
        &self,
        table: &Table,
        number: u64,
        pages: u64,
    ) -> Result<bool, StoreError> {
        let promise = table.promises.get(&number);
        let promise = promise.ok_or_else(|| self.no_reservation(number))?;
        let left = promise.left - promise.held;
        if left >= pages {
            return Ok(true);
        }
        Err(StoreError::Reservation {
            store: self.name.clone(),
            reservation: ReservationId(number),
            asked: Bytes(pages * self.page),
            left: Bytes(left * self.page),
        })
    }
}
