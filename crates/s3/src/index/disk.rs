//! Where the database of an index lies: what it writes waits in memory until it asks that all be durable.
//!
//! ```text
//! redb: write, write, set_len ... sync_data  ->  Waiting (ranges, the later over the earlier)  ->  Disk::write, once
//!       read  <-  Disk::read, and what waits over it
//! ```
//!
//! Always true:
//! 1. Nothing reaches the disk between two calls of `sync_data`, and all that was written before one does in it.
//! 2. After one that failed nothing more is written: what is on the disk is not known.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;

/// Bytes by offset that do not overlap.
pub type Ranges = BTreeMap<u64, Vec<u8>>;

/// What holds the bytes of an index. Its calls wait, so they are made on threads that may.
pub trait Disk: std::fmt::Debug + Send + Sync + 'static {
    /// How long it is, in bytes.
    ///
    /// # Errors
    /// What stands in the way.
    fn length(&self) -> io::Result<u64>;

    /// Fills `out` from byte `offset` on; zeroes where nothing was written.
    ///
    /// # Errors
    /// What stands in the way.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Cuts it to `cut` bytes, makes it `len` bytes long, zeroes behind what was cut, and makes `ranges` and the length
    /// durable. Cut off, any part of them may be there.
    ///
    /// # Errors
    /// What stands in the way; some of it may be done.
    fn write(&self, cut: u64, len: u64, ranges: Ranges) -> io::Result<()>;

    /// Are there bytes of objects beside it?
    ///
    /// # Errors
    /// What stands in the way.
    fn has_blobs(&self) -> io::Result<bool>;
}

/// A [`Disk`] as the database sees it.
#[derive(Debug)]
pub(super) struct Backend<D> {
    disk: D,
    waiting: Mutex<Waiting>,
    failed: AtomicBool,
}

#[derive(Debug)]
struct Waiting {
    len: u64,
    /// The least length since it was durable: behind it lies what was cut.
    least: u64,
    /// The length has changed.
    resized: bool,
    ranges: Ranges,
}

impl<D: Disk> Backend<D> {
    pub fn new(disk: D) -> io::Result<Backend<D>> {
        let len = disk.length()?;
        let waiting = Waiting {
            len,
            least: len,
            resized: false,
            ranges: Ranges::new(),
        };
        Ok(Backend {
            disk,
            waiting: Mutex::new(waiting),
            failed: AtomicBool::new(false),
        })
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // It is whole between any two of its operations.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Disk> StorageBackend for Backend<D> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.waiting().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let end = offset + out.len() as u64;
        {
            let waiting = self.waiting();
            if end > waiting.len {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if covers(&waiting.ranges, offset, out.len()) {
                overlay(&waiting.ranges, offset, out);
                return Ok(());
            }
            if offset >= waiting.least {
                out.fill(0);
                overlay(&waiting.ranges, offset, out);
                return Ok(());
            }
        }
        // The lock is not held meanwhile: what waits is written by the thread that commits, and no page of a transaction
        // that can be read is among it.
        self.disk.read(offset, out)?;
        let waiting = self.waiting();
        let cut = waiting.least.clamp(offset, end) - offset;
        out[cut as usize..].fill(0);
        overlay(&waiting.ranges, offset, out);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut waiting = self.waiting();
        let before = waiting.len;
        if len < before {
            cut(&mut waiting.ranges, len, before);
        }
        waiting.len = len;
        waiting.least = waiting.least.min(len);
        waiting.resized = true;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.failed.load(Ordering::SeqCst) {
            return Err(io::Error::other("an earlier write of the index failed"));
        }
        // They stay to be read until they are on the disk.
        let (cut, len, ranges) = {
            let mut waiting = self.waiting();
            let resized = std::mem::take(&mut waiting.resized);
            if !resized && waiting.ranges.is_empty() {
                return Ok(());
            }
            (waiting.least, waiting.len, waiting.ranges.clone())
        };
        if let Err(error) = self.disk.write(cut, len, ranges) {
            self.failed.store(true, Ordering::SeqCst);
            return Err(error);
        }
        let mut waiting = self.waiting();
        waiting.ranges.clear();
        waiting.least = len;
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut waiting = self.waiting();
        cut(&mut waiting.ranges, offset, offset + data.len() as u64);
        waiting.ranges.insert(offset, data.to_vec());
        Ok(())
    }
}

/// Takes `from..to` out of `ranges`.
fn cut(ranges: &mut Ranges, from: u64, to: u64) {
    let before = ranges.range(..from).next_back().map(|it| *it.0);
    if let Some(start) = before {
        let data = ranges.get_mut(&start).expect("it was found");
        let end = start + data.len() as u64;
        if end > to {
            let tail = data[(to - start) as usize..].to_vec();
            data.truncate((from - start) as usize);
            ranges.insert(to, tail);
            return;
        }
        data.truncate((from.min(end) - start) as usize);
    }
    let within: Vec<u64> = ranges.range(from..to).map(|it| *it.0).collect();
    for start in within {
        let data = ranges.remove(&start).expect("it was found");
        let end = start + data.len() as u64;
        if end > to {
            ranges.insert(to, data[(to - start) as usize..].to_vec());
        }
    }
}

/// The ranges that touch `offset..offset + len`, in order.
fn touching(ranges: &Ranges, offset: u64, len: usize) -> impl Iterator<Item = (u64, &[u8])> {
    let end = offset + len as u64;
    let first = ranges
        .range(..=offset)
        .next_back()
        .map_or(offset, |it| *it.0);
    let all = ranges
        .range(first..end)
        .map(|(start, data)| (*start, &**data));
    all.filter(move |(start, data)| start + data.len() as u64 > offset)
}

fn covers(ranges: &Ranges, offset: u64, len: usize) -> bool {
    let mut reached = offset;
    for (start, data) in touching(ranges, offset, len) {
        if start > reached {
            return false;
        }
        reached = start + data.len() as u64;
    }
    reached >= offset + len as u64
}

/// Writes what `ranges` have of the bytes at `offset` over `out`.
fn overlay(ranges: &Ranges, offset: u64, out: &mut [u8]) {
    for (start, data) in touching(ranges, offset, out.len()) {
        let from = start.max(offset);
        let to = (start + data.len() as u64).min(offset + out.len() as u64);
        let here = (from - offset) as usize..(to - offset) as usize;
        out[here].copy_from_slice(&data[(from - start) as usize..(to - start) as usize]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A disk that is what was written to it.
    #[derive(Debug, Default)]
    struct Plain(Mutex<Vec<u8>>);

    impl Disk for Plain {
        fn length(&self) -> io::Result<u64> {
            Ok(self.0.lock().unwrap().len() as u64)
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            let bytes = self.0.lock().unwrap();
            for (at, byte) in out.iter_mut().enumerate() {
                *byte = bytes.get(offset as usize + at).copied().unwrap_or(0);
            }
            Ok(())
        }

        fn write(&self, cut: u64, len: u64, ranges: Ranges) -> io::Result<()> {
            let mut bytes = self.0.lock().unwrap();
            bytes.truncate(cut as usize);
            bytes.resize(len as usize, 0);
            for (offset, data) in ranges {
                bytes[offset as usize..][..data.len()].copy_from_slice(&data);
            }
            Ok(())
        }

        fn has_blobs(&self) -> io::Result<bool> {
            Ok(false)
        }
    }

    #[test]
    fn what_is_cut_off_and_grows_again_is_zero_before_and_after_it_is_durable() {
        let backend = Backend::new(Plain::default()).unwrap();
        backend.set_len(8).unwrap();
        backend.write(0, &[1; 8]).unwrap();
        backend.sync_data().unwrap();
        backend.set_len(4).unwrap();
        backend.set_len(8).unwrap();
        let read = || {
            let mut out = [9; 8];
            backend.read(0, &mut out).unwrap();
            out
        };
        assert_eq!(read(), [1, 1, 1, 1, 0, 0, 0, 0]);
        backend.sync_data().unwrap();
        assert_eq!(read(), [1, 1, 1, 1, 0, 0, 0, 0]);
    }

    proptest! {
        #[test]
        fn what_waits_is_what_a_plain_vector_would_have(
            writes in proptest::collection::vec((0_u64..60, 1_usize..20, any::<bool>()), 1..40),
            (at, len) in (0_u64..60, 1_usize..30),
        ) {
            let (mut ranges, mut plain) = (Ranges::new(), vec![None; 100]);
            for (n, (offset, len, take_out)) in writes.iter().enumerate() {
                let end = offset + *len as u64;
                cut(&mut ranges, *offset, end);
                let value = (!take_out).then_some(n as u8 + 1);
                plain[*offset as usize..end as usize].fill(value);
                if let Some(value) = value {
                    ranges.insert(*offset, vec![value; *len]);
                }
            }
            let mut out = vec![0; len];
            overlay(&ranges, at, &mut out);
            let expected = &plain[at as usize..at as usize + len];
            let shown: Vec<u8> = expected.iter().map(|it| it.unwrap_or(0)).collect();
            prop_assert_eq!(out, shown);
            prop_assert_eq!(covers(&ranges, at, len), expected.iter().all(Option::is_some));
        }
    }
}
