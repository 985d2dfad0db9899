//! Deletes the bytes that no object has.
//!
//! ```text
//! each second:  blobs that the index has in `dead` -> deleted from the stores -> forgotten
//! each hour:    blobs in the stores that the index does not know, older than a day -> dead
//! ```
//!
//! The second are left by a crash between their bytes and the change of the index.
//!
//! Always true: a blob is forgotten only once its bytes are deleted, and one that is being written is none of these.

use std::sync::Arc;
use std::time::Duration;

use crate::data::Data;
use crate::index::record::BlobRef;
use crate::index::{Index, IndexError, Transaction};

/// Between two looks at what is dead.
const EVERY: Duration = Duration::from_secs(1);
/// Between two looks for what is unknown, in those looks.
const UNKNOWN_EVERY: u64 = 3600;
/// How many blobs are deleted at once.
const BATCH: usize = 256;
/// What is unknown for so long was not committed, in seconds.
const AGE: u64 = 24 * 3600;

/// Sweeps until it is given up.
pub async fn sweep(index: Arc<Index>, data: Data, clock: fn() -> u64) {
    let mut looks = 0_u64;
    loop {
        if looks.is_multiple_of(UNKNOWN_EVERY)
            && let Err(why) = find_unknown(&index, &data, clock() / 1000).await
        {
            tracing::warn!("bytes without an object are looked for later: {why}");
        }
        match delete_dead(&index, &data).await {
            // There may be more.
            Ok(BATCH) => continue,
            Ok(_) => {}
            Err(why) => tracing::warn!("bytes without an object are deleted later: {why}"),
        }
        looks += 1;
        tokio::time::sleep(EVERY).await;
    }
}

/// Why a sweep did not go on.
#[derive(Debug, thiserror::Error)]
enum SweepError {
    #[error(transparent)]
    Index(#[from] IndexError),
    #[error(transparent)]
    Data(#[from] crate::data::DataError),
}

/// Deletes what is dead; how many.
async fn delete_dead(index: &Index, data: &Data) -> Result<usize, SweepError> {
    let dead = index.dead(BATCH)?;
    for blob in &dead {
        data.delete(blob).await?;
    }
    let count = dead.len();
    if count > 0 {
        // That they are deleted comes before that they are forgotten.
        data.flush().await?;
        let forget = move |t: &mut Transaction<'_>| t.forget_dead(&dead);
        index.change(forget).await?;
    }
    Ok(count)
}

/// Finds bytes that were written a day before `now` and that the index does not know.
async fn find_unknown(index: &Index, data: &Data, now: u64) -> Result<(), SweepError> {
    for store in 0..data.width().await? {
        let mut after = None;
        loop {
            let (found, next) = data.blobs_after(store, after).await?;
            let old = found.into_iter().filter(|it| is_old(it, now));
            for blob in old {
                if !index.has_blob(&blob.id)? {
                    let give_up = move |t: &mut Transaction<'_>| t.give_up(&blob);
                    index.change(give_up).await?;
                }
            }
            let Some(next) = next else { break };
            after = Some(next);
        }
    }
    Ok(())
}

/// Blobs are named by the second of their making.
fn is_old(blob: &BlobRef, now: u64) -> bool {
    let second = blob
        .id
        .get(..10)
        .and_then(|it| u64::from_str_radix(it, 16).ok());
    second.is_some_and(|made| made + AGE < now)
}
