//! Deletes the bytes that no object has.
//!
//! ```text
//! each second:  blobs that the index has in `dead`, for the second time -> deleted from the stores -> forgotten
//! each hour:    blobs in the stores that the index does not know, older than a day -> dead
//! ```
//!
//! The second are left by a crash between their bytes and the change of the index.
//!
//! Always true:
//! 1. A blob is forgotten only once its bytes are deleted.
//! 2. What is being written or read is left alone ([`InUse`](crate::index::InUse)). Between the look that finds a blob dead and
//!    the one that deletes it a reader that found its version before has said so.
//! 3. One blob that cannot be deleted keeps no other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::data::Data;
use crate::index::record::BlobRef;
use crate::index::{Index, IndexError, Transaction};

/// Between two looks at what is dead.
const EVERY: Duration = Duration::from_secs(1);
/// Between two looks for what is unknown, in those looks.
const UNKNOWN_EVERY: u64 = 3600;
/// How many blobs are looked at together.
const BATCH: usize = 256;
/// What is unknown for so long was not committed, in seconds.
const AGE: u64 = 24 * 3600;

/// Sweeps until it is given up.
pub async fn sweep(index: Arc<Index>, data: Data, clock: fn() -> u64) {
    let mut sweeper = Sweeper {
        index,
        data,
        seen: BTreeSet::new(),
    };
    let mut looks = 0_u64;
    loop {
        let unknown = match looks.is_multiple_of(UNKNOWN_EVERY) {
            true => sweeper.find_unknown(clock() / 1000).await,
            false => Ok(()),
        };
        let done = match unknown {
            Ok(()) => sweeper.look().await,
            failed => failed,
        };
        if let Err(why) = done {
            tracing::warn!("bytes without an object are deleted later: {why}");
        }
        looks += 1;
        tokio::time::sleep(EVERY).await;
    }
}

/// Why a sweep did not go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SweepError {
    #[error(transparent)]
    Index(#[from] IndexError),
    #[error(transparent)]
    Data(#[from] crate::data::DataError),
}

/// What a sweep goes by.
pub(crate) struct Sweeper {
    pub index: Arc<Index>,
    pub data: Data,
    /// Dead blobs that an earlier look found.
    pub seen: BTreeSet<String>,
}

impl Sweeper {
    /// Deletes what is dead since the look before, and says whether there is room.
    pub async fn look(&mut self) -> Result<(), SweepError> {
        self.index.set_full(self.data.is_full().await?);
        let (mut after, mut seen) = (None, BTreeSet::new());
        loop {
            let dead = self.index.dead(after.as_deref(), BATCH)?;
            let Some(last) = dead.last() else { break };
            after = Some(last.id.clone());
            let (due, new): (Vec<BlobRef>, Vec<BlobRef>) = dead
                .into_iter()
                .partition(|it| self.seen.contains(&it.id) && !self.index.in_use().has(&it.id));
            seen.extend(new.into_iter().map(|it| it.id));
            self.delete(due, &mut seen).await?;
        }
        self.seen = seen;
        Ok(())
    }

    /// Deletes these; what cannot be deleted is `left` for the next look.
    async fn delete(
        &self,
        due: Vec<BlobRef>,
        left: &mut BTreeSet<String>,
    ) -> Result<(), SweepError> {
        let mut gone = Vec::new();
        for blob in due {
            match self.data.delete(&blob).await {
                Ok(()) => gone.push(blob),
                Err(error) => {
                    tracing::warn!(blob = blob.id, "its bytes are deleted later: {error}");
                    left.insert(blob.id);
                }
            }
        }
        if gone.is_empty() {
            return Ok(());
        }
        // That they are deleted comes before that they are forgotten.
        self.data.flush().await?;
        let forget = move |t: &mut Transaction<'_>| t.forget_dead(&gone);
        Ok(self.index.change(forget).await?)
    }

    /// Finds bytes that were written a day before `now` and that the index does not know.
    pub async fn find_unknown(&mut self, now: u64) -> Result<(), SweepError> {
        let mut unknown: BTreeMap<String, BlobRef> = BTreeMap::new();
        for store in 0..self.data.width().await? {
            let mut after = None;
            loop {
                let (found, next) = self.data.blobs_after(store, after).await?;
                for blob in found {
                    let is_one = is_old(&blob, now)
                        && !self.index.in_use().has(&blob.id)
                        && !self.index.has_blob(&blob.id)?;
                    // Each chunk says how long the blob is at least.
                    if is_one {
                        let longest = unknown.entry(blob.id.clone()).or_insert(blob.clone());
                        longest.size = longest.size.max(blob.size);
                    }
                }
                let Some(next) = next else { break };
                after = Some(next);
            }
        }
        for blob in unknown.into_values() {
            let give_up = move |t: &mut Transaction<'_>| t.give_up(&blob);
            self.index.change(give_up).await?;
        }
        Ok(())
    }
}

/// Blobs are named by the second of their making.
fn is_old(blob: &BlobRef, now: u64) -> bool {
    let second = blob
        .id
        .get(..10)
        .and_then(|it| u64::from_str_radix(it, 16).ok());
    second.is_some_and(|made| made + AGE < now)
}

#[cfg(test)]
mod tests {
    use base::Bytes as Size;
    use bytes::Bytes;
    use device::Memory;

    use super::*;
    use crate::blobs::{Blobs, CHUNK};
    use crate::data::data;
    use crate::lanes::Qos;
    use crate::lanes::tests::manager;

    /// A store on a data thread of its own, an index in it, and a sweeper over both.
    fn with_bed(scene: impl AsyncFnOnce(&mut Sweeper)) {
        let (data, jobs) = data(false);
        let thread = std::thread::Builder::new().spawn(move || {
            let runtime = env::Runtime::real(env::RealConfig::default()).unwrap();
            runtime.block_on(async {
                let device = Memory::new("a", Size::mib(128));
                let blobs = Blobs::new(vec![manager(device).await]).unwrap();
                jobs.serve(std::rc::Rc::new(blobs)).await;
            });
        });
        let index = Index::open(data.clone(), 1 << 20, "a").unwrap();
        let mut sweeper = Sweeper {
            index: Arc::new(index),
            data,
            seen: BTreeSet::new(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(scene(&mut sweeper));
        drop(sweeper);
        thread.unwrap().join().unwrap();
    }

    /// Made at second 1000.
    fn blob(id: u8, size: u64) -> BlobRef {
        BlobRef {
            folder: "photos".into(),
            id: format!("{:010x}{id:016x}", 1000),
            size,
        }
    }

    async fn write(data: &Data, blob: &BlobRef) {
        let mut at = 0;
        while at < blob.size {
            let len = (blob.size - at).min(1 << 20);
            let piece = Bytes::from(vec![7; len as usize]);
            data.write(&Qos::default(), (blob, at), piece)
                .await
                .unwrap();
            at += len;
        }
    }

    async fn read(data: &Data, blob: &BlobRef) -> Result<Bytes, crate::DataError> {
        data.read(&Qos::default(), (blob, 0), blob.size).await
    }

    /// The chunks that there are.
    async fn chunks(data: &Data) -> usize {
        data.blobs_after(0, None).await.unwrap().0.len()
    }

    #[test]
    fn what_a_crash_left_goes_whole_after_a_day_and_what_is_being_written_stays() {
        with_bed(async |sweeper| {
            let (left, written) = (blob(1, 2 * CHUNK + 5), blob(2, CHUNK + 5));
            write(&sweeper.data, &left).await;
            write(&sweeper.data, &written).await;
            let using = sweeper.index.in_use().begin([&written]);
            for (now, chunks_left) in [(1000 + AGE, 5), (1001 + AGE, 2)] {
                sweeper.find_unknown(now).await.unwrap();
                sweeper.look().await.unwrap();
                sweeper.look().await.unwrap();
                assert_eq!(chunks(&sweeper.data).await, chunks_left, "{now}");
            }
            assert!(sweeper.index.dead(None, 10).unwrap().is_empty());
            drop(using);
            sweeper.find_unknown(1001 + AGE).await.unwrap();
            sweeper.look().await.unwrap();
            sweeper.look().await.unwrap();
            assert_eq!(chunks(&sweeper.data).await, 0);
        });
    }

    #[test]
    fn what_is_being_read_is_deleted_once_it_is_read() {
        with_bed(async |sweeper| {
            let old = blob(1, 100);
            write(&sweeper.data, &old).await;
            let dead = old.clone();
            let give_up = move |t: &mut Transaction<'_>| t.give_up(&dead);
            sweeper.index.change(give_up).await.unwrap();
            // The first look leaves a reader the time to say so.
            sweeper.look().await.unwrap();
            let using = sweeper.index.in_use().begin([&old]);
            for _ in 0..3 {
                sweeper.look().await.unwrap();
                assert!(read(&sweeper.data, &old).await.is_ok());
            }
            drop(using);
            sweeper.look().await.unwrap();
            assert!(read(&sweeper.data, &old).await.is_err());
            assert!(sweeper.index.dead(None, 10).unwrap().is_empty());
        });
    }

    #[test]
    fn a_store_that_is_nearly_full_takes_no_more_and_deletes() {
        with_bed(async |sweeper| {
            let big = blob(1, 121 << 20);
            write(&sweeper.data, &big).await;
            sweeper.look().await.unwrap();
            assert!(sweeper.index.is_full());
            let give_up = move |t: &mut Transaction<'_>| t.give_up(&big);
            sweeper.index.change(give_up).await.unwrap();
            for _ in 0..3 {
                sweeper.look().await.unwrap();
            }
            assert!(!sweeper.index.is_full());
        });
    }
}
