//! Turns of long objects: so many at once, and of each account a part of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use s3s::{S3Error, S3Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A quarter of all turns is one account's at most.
const SHARE: usize = 4;

/// The turns of one direction.
pub(super) struct Turns {
    all: Arc<Semaphore>,
    share: usize,
    by_account: Mutex<BTreeMap<String, Arc<Semaphore>>>,
}

/// A turn, until it is dropped.
pub(super) struct Turn {
    _of_all: OwnedSemaphorePermit,
    _of_account: OwnedSemaphorePermit,
}

impl Turns {
    pub fn new(count: usize) -> Turns {
        Turns {
            all: Arc::new(Semaphore::new(count)),
            share: (count / SHARE).max(1),
            by_account: Mutex::default(),
        }
    }

    /// Waits for a turn of this account.
    pub async fn take(&self, account: &str) -> S3Result<Turn> {
        let own = {
            let mut all = self
                .by_account
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let new = || Arc::new(Semaphore::new(self.share));
            Arc::clone(all.entry(account.to_owned()).or_insert_with(new))
        };
        // Its own first: what waits for that takes no turn of others.
        let of_account = own.acquire_owned().await;
        let of_all = Arc::clone(&self.all).acquire_owned().await;
        Ok(Turn {
            _of_all: of_all.map_err(S3Error::internal_error)?,
            _of_account: of_account.map_err(S3Error::internal_error)?,
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
            turns.take("astro").await.unwrap(),
            turns.take("astro").await.unwrap(),
        ];
        let brief = Duration::from_millis(1);
        let third = tokio::time::timeout(brief, turns.take("astro")).await;
        assert!(third.is_err(), "two are its part");
        assert!(turns.take("bio").await.is_ok());
        drop(own);
        assert!(turns.take("astro").await.is_ok());
    }
}
