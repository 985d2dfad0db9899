//! Turns of long objects: so many at once, and of each account a part of them.
//!
//! Requests under reservations have turns of their own, as many again: they wait for no others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use s3s::{S3Error, S3Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A quarter of all turns is one account's at most.
const SHARE: usize = 4;
/// So many lanes are noted, and more only while they are all in use.
const LANES_MAX: usize = 1024;

/// The turns of one direction.
pub(super) struct Turns {
    all: Arc<Semaphore>,
    /// Of requests under reservations, as many.
    reserved: Arc<Semaphore>,
    share: usize,
    /// Of an account, or of a reservation that promises something.
    by_lane: Mutex<BTreeMap<String, Arc<Semaphore>>>,
}

/// A turn, until it is dropped.
pub(super) struct Turn {
    _of_all: OwnedSemaphorePermit,
    _of_lane: OwnedSemaphorePermit,
}

impl Turns {
    pub fn new(count: usize) -> Turns {
        Turns {
            all: Arc::new(Semaphore::new(count)),
            reserved: Arc::new(Semaphore::new(count)),
            share: (count / SHARE).max(1),
            by_lane: Mutex::default(),
        }
    }

    /// Waits for a turn of this lane, among those under reservations or the others.
    pub async fn take(&self, lane: &str, reserved: bool) -> S3Result<Turn> {
        let own = {
            let mut all = self.by_lane.lock().unwrap_or_else(PoisonError::into_inner);
            if all.len() > LANES_MAX {
                all.retain(|_, it| Arc::strong_count(it) > 1);
            }
            let new = || Arc::new(Semaphore::new(self.share));
            Arc::clone(all.entry(lane.to_owned()).or_insert_with(new))
        };
        // Its own first: what waits for that takes no turn of others.
        let of_lane = own.acquire_owned().await;
        let all = match reserved {
            true => &self.reserved,
            false => &self.all,
        };
        let of_all = Arc::clone(all).acquire_owned().await;
        Ok(Turn {
            _of_all: of_all.map_err(S3Error::internal_error)?,
            _of_lane: of_lane.map_err(S3Error::internal_error)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn one_account_leaves_turns_for_others() {
        let turns = Turns::new(8);
        let own = [
            turns.take("astro", false).await.unwrap(),
            turns.take("astro", false).await.unwrap(),
        ];
        let brief = Duration::from_millis(1);
        let third = tokio::time::timeout(brief, turns.take("astro", false)).await;
        assert!(third.is_err(), "two are its part");
        assert!(turns.take("bio", false).await.is_ok());
        drop(own);
        assert!(turns.take("astro", false).await.is_ok());
    }

    #[tokio::test]
    async fn a_reservation_waits_for_no_account() {
        let turns = Turns::new(4);
        let mut all = Vec::new();
        for account in ["a", "b", "c", "d"] {
            all.push(turns.take(account, false).await.unwrap());
        }
        let brief = Duration::from_millis(1);
        assert!(
            tokio::time::timeout(brief, turns.take("e", false))
                .await
                .is_err()
        );
        let own = turns.take("r-1", true).await.unwrap();
        let second = tokio::time::timeout(brief, turns.take("r-1", true)).await;
        assert!(second.is_err(), "of its own it has so many as an account");
        drop(own);
        assert!(turns.take("r-1", true).await.is_ok());
    }
}
