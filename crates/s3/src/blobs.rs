//! The bytes of objects in the stores, on the data thread: written once, read, deleted.
//!
//! ```text
//! blob -> chunks of 8 MiB -> objects s3/<bucket>/<blob>/<number of the chunk>, in turns over all stores
//! index -> one object of the first store, written in place
//! ```
//!
//! Always true:
//! 1. What `write` has answered is durable after the next `flush`.
//! 2. The bytes of a blob are never changed, so a read needs no lock.

use std::cell::Cell;
use std::rc::Rc;

use base::{Buf, Bytes, View};
use device::Device;
use policy::share::Direction;
use store::Change;
use store::ops::{ObjectCalls, ObjectError};
use store::qos::manager::Manager;
use store::qos::session::SessionError;

use crate::index::Ranges;
use crate::index::record::BlobRef;
use crate::lanes::{Delivered, Lane, Lanes, Objects, Qos};

/// Before the names of all objects of a gateway.
pub const PREFIX: &str = "s3/";
/// Where the index lies. No bucket begins with a dot.
const INDEX: &str = "s3/.index";
/// The bytes of one object of a store.
pub const CHUNK: u64 = 8 << 20;
/// The longest read or write of a store that is asked for.
const PIECE: u64 = 1 << 20;
/// So much of a store stays for the index, without which nothing can be deleted; less of a small one: a twentieth.
const RESERVE: u64 = 1 << 30;
/// How many pieces of the index are written at once.
const AT_ONCE: usize = 16;

/// The stores of a gateway.
pub struct Blobs {
    lanes: Lanes,
    /// What it does for itself: the index, deletions, the sweep.
    own: Rc<Lane>,
    shared: Option<SharedDisk>,
    /// A read or write of the index failed, after which its database takes no more.
    index_failed: Cell<bool>,
}

/// The disk beneath a store, where another node may take it over and others have part of its room.
pub struct SharedDisk {
    /// Its flush fails once another node has it.
    pub disk: Rc<dyn Device>,
    /// How much more can be written to it.
    pub room: Box<dyn Fn() -> Bytes>,
}

/// A piece of a chunk.
struct Place<'a> {
    store: &'a Rc<Objects>,
    object: String,
    offset: u64,
    len: u64,
}

impl Blobs {
    /// Those of `stores`, in the order that they have in every run.
    ///
    /// # Errors
    /// A store opens no session.
    ///
    /// # Panics
    /// If there are none.
    pub fn new(stores: Vec<Rc<Manager>>) -> Result<Blobs, SessionError> {
        assert!(!stores.is_empty(), "a gateway stands on a store");
        let lanes = Lanes::new(stores);
        let own = lanes.of(&Qos::default())?;
        Ok(Blobs {
            lanes,
            own,
            shared: None,
            index_failed: Cell::new(false),
        })
    }

    /// That of a store on a disk that another node may take over.
    ///
    /// # Errors
    /// The store opens no session.
    pub fn on_shared(store: Rc<Manager>, disk: SharedDisk) -> Result<Blobs, SessionError> {
        let blobs = Blobs::new(vec![store])?;
        Ok(Blobs {
            shared: Some(disk),
            ..blobs
        })
    }

    /// Waits until it is known that no other node had taken the disk over when this was asked.
    ///
    /// # Errors
    /// [`ObjectError::Gone`]: one has, or it cannot be known now.
    pub async fn still_ours(&self) -> Result<(), ObjectError> {
        match &self.shared {
            None => Ok(()),
            Some(shared) => {
                let flushed = shared.disk.flush().await;
                flushed.map_err(|error| ObjectError::Gone(error.to_string()))
            }
        }
    }

    // --- objects --------------------------------------------------------------------------------------

    /// Writes `data` at byte `offset` of a blob; other bytes of it may be written at the same time.
    ///
    /// # Errors
    /// What the store says.
    pub async fn write(
        &self,
        qos: &Qos,
        (blob, offset): (&BlobRef, u64),
        data: View,
    ) -> Result<(), ObjectError> {
        let len = data.len() as u64;
        let lane = self.lane(qos)?;
        let mut from = 0;
        for place in places(&lane.stores, blob, offset, len) {
            let piece = data.slice(from, place.len as usize);
            from += piece.len();
            let change = Change::default().creating();
            place
                .store
                .write(&place.object, place.offset, piece, change)
                .done()
                .await?;
        }
        Ok(())
    }

    /// Makes what was written durable.
    ///
    /// # Errors
    /// What a store says.
    pub async fn flush(&self) -> Result<(), ObjectError> {
        let flushed = self.own.stores.iter().map(|store| store.flush());
        env::sync::join_all(flushed).await.into_iter().collect()
    }

    /// Reads `len` bytes of a blob from byte `offset` on.
    ///
    /// # Errors
    /// What the store says; [`ObjectError::Damaged`] if there are fewer.
    pub async fn read(
        &self,
        qos: &Qos,
        (blob, offset): (&BlobRef, u64),
        len: u64,
    ) -> Result<Buf, ObjectError> {
        let lane = self.lane(qos)?;
        let mut whole: Option<Buf> = None;
        for place in places(&lane.stores, blob, offset, len) {
            let piece = place
                .store
                .read(&place.object, place.offset, place.len)
                .await?;
            if piece.len() as u64 != place.len {
                let (object, found) = (&place.object, piece.len());
                return Err(ObjectError::Damaged(format!(
                    "{object} ends before byte {}: {found} of {} bytes are there",
                    place.offset + place.len,
                    place.len
                )));
            }
            match &mut whole {
                Some(whole) => whole.join(piece),
                None => whole = Some(piece),
            }
        }
        Ok(whole.unwrap_or_else(|| Buf::for_read(0)))
    }

    /// Deletes the bytes of a blob, written or not.
    ///
    /// # Errors
    /// What a store says.
    pub async fn delete(&self, blob: &BlobRef) -> Result<(), ObjectError> {
        for chunk in 0..blob.size.div_ceil(CHUNK).max(1) {
            let store = store_of(&self.own.stores, blob, chunk);
            let done = store.delete(&name_of(blob, chunk), Change::default()).await;
            match done {
                Ok(()) | Err(ObjectError::Absent(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The blobs that have bytes in the stores, from the one behind `after` on: bucket and blob; the last one says where
    /// to go on.
    ///
    /// # Errors
    /// What a store says.
    pub async fn blobs_after(
        &self,
        store: usize,
        after: Option<String>,
    ) -> Result<(Vec<BlobRef>, Option<String>), ObjectError> {
        let Some(from) = self.own.stores.get(store) else {
            return Ok((Vec::new(), None));
        };
        let listing = from.list(PREFIX, after.as_deref(), 1000).await?;
        let found = listing.objects.iter().filter_map(|it| parse(&it.name));
        Ok((found.collect(), listing.next))
    }

    /// Has a store too little room left for more than the index and what is deleted?
    ///
    /// # Errors
    /// What a store says.
    pub async fn is_full(&self) -> Result<bool, ObjectError> {
        for store in &self.own.stores {
            let space = store.space().await?;
            let room = self.shared.as_ref().map_or(space.free, |it| (it.room)());
            if room.min(space.free).0 < (space.total.0 / 20).min(RESERVE) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// How many stores there are.
    pub fn width(&self) -> usize {
        self.own.stores.len()
    }

    // --- for whom -------------------------------------------------------------------------------------

    /// Waits until these requests may have `bytes` more by their caps. It may be given up.
    ///
    /// # Errors
    /// [`ObjectError::Gone`]: the daemon ends.
    pub async fn pass(
        &self,
        qos: &Qos,
        direction: Direction,
        bytes: u64,
    ) -> Result<(), ObjectError> {
        self.lanes.pass(qos, direction, bytes).await
    }

    /// What came of what is promised to these requests.
    ///
    /// # Errors
    /// A store opens no session.
    pub fn delivered(&self, qos: &Qos, direction: Direction) -> Result<Delivered, ObjectError> {
        Ok(self.lane(qos)?.delivered(direction))
    }

    fn lane(&self, qos: &Qos) -> Result<Rc<Lane>, ObjectError> {
        let lane = self.lanes.of(qos);
        lane.map_err(|error| ObjectError::Refused(error.to_string()))
    }

    // --- the index ------------------------------------------------------------------------------------

    /// Did a read or a write of the index fail? Its database takes no more then, whatever the store does later.
    pub fn index_failed(&self) -> bool {
        self.index_failed.get()
    }

    fn noted<T>(&self, done: Result<T, ObjectError>) -> Result<T, ObjectError> {
        self.index_failed
            .set(self.index_failed.get() || done.is_err());
        done
    }

    /// How long the index is.
    ///
    /// # Errors
    /// What the store says.
    pub async fn index_len(&self) -> Result<u64, ObjectError> {
        self.noted(self.len_of_index().await)
    }

    async fn len_of_index(&self) -> Result<u64, ObjectError> {
        match self.own.stores[0].stat(INDEX).await {
            Ok(stat) => Ok(stat.size),
            Err(ObjectError::Absent(_)) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Reads `len` bytes of the index; zeroes where it has none.
    ///
    /// # Errors
    /// What the store says.
    pub async fn read_index(&self, offset: u64, len: u64) -> Result<Vec<u8>, ObjectError> {
        self.noted(self.bytes_of_index(offset, len).await)
    }

    async fn bytes_of_index(&self, offset: u64, len: u64) -> Result<Vec<u8>, ObjectError> {
        let store = &self.own.stores[0];
        let mut bytes = Vec::with_capacity(len as usize);
        let most = PIECE.min(store.limits().read_max);
        while (bytes.len() as u64) < len {
            let at = bytes.len() as u64;
            let piece = store.read(INDEX, offset + at, (len - at).min(most)).await?;
            if piece.is_empty() {
                break;
            }
            bytes.extend_from_slice(&piece);
        }
        bytes.resize(len as usize, 0);
        Ok(bytes)
    }

    /// Cuts the index to `cut` bytes, makes it `len` bytes long and `ranges` of it durable.
    ///
    /// # Errors
    /// What the store says; some of it may be done.
    pub async fn write_index(&self, cut: u64, len: u64, ranges: Ranges) -> Result<(), ObjectError> {
        self.noted(self.change_index(cut, len, ranges).await)
    }

    async fn change_index(&self, cut: u64, len: u64, ranges: Ranges) -> Result<(), ObjectError> {
        let store = &self.own.stores[0];
        if cut < self.index_len().await? {
            store.truncate(INDEX, cut, Change::default()).done().await?;
        }
        let most = PIECE.min(store.limits().write_max) as usize;
        let mut pieces = Vec::new();
        for (offset, data) in joined(ranges) {
            let cut = data.chunks(most).enumerate();
            pieces.extend(cut.map(|(n, it)| (offset + (n * most) as u64, View::copy_of(it))));
        }
        let mut pieces = pieces.into_iter();
        loop {
            let some: Vec<(u64, View)> = pieces.by_ref().take(AT_ONCE).collect();
            if some.is_empty() {
                break;
            }
            let written = some.into_iter().map(|(offset, data)| {
                let change = Change::default().creating();
                store.write(INDEX, offset, data, change).done()
            });
            let done: Result<(), ObjectError> =
                env::sync::join_all(written).await.into_iter().collect();
            done?;
        }
        if self.index_len().await? != len {
            store.truncate(INDEX, len, Change::default()).done().await?;
        }
        store.flush().await
    }
}

/// The pieces of `len` bytes from `offset` on, at `stores`.
fn places<'a>(stores: &'a [Rc<Objects>], blob: &BlobRef, offset: u64, len: u64) -> Vec<Place<'a>> {
    let (mut at, end) = (offset, offset + len);
    let mut places = Vec::new();
    while at < end {
        let (chunk, within) = (at / CHUNK, at % CHUNK);
        let store = store_of(stores, blob, chunk);
        let limits = store.limits();
        let most = PIECE.min(limits.write_max).min(limits.read_max);
        let len = (CHUNK - within).min(end - at).min(most);
        places.push(Place {
            store,
            object: name_of(blob, chunk),
            offset: within,
            len,
        });
        at += len;
    }
    places
}

fn store_of<'a>(stores: &'a [Rc<Objects>], blob: &BlobRef, chunk: u64) -> &'a Rc<Objects> {
    // Chance decides where a blob begins.
    let first = blob
        .id
        .bytes()
        .fold(0_u64, |sum, byte| sum + u64::from(byte));
    let place = (first + chunk) % stores.len() as u64;
    &stores[place as usize]
}

/// Ranges that touch, as one.
fn joined(ranges: Ranges) -> Vec<(u64, Vec<u8>)> {
    let mut all: Vec<(u64, Vec<u8>)> = Vec::new();
    for (offset, data) in ranges {
        match all.last_mut() {
            Some((start, before)) if *start + before.len() as u64 == offset => {
                before.extend_from_slice(&data);
            }
            _ => all.push((offset, data)),
        }
    }
    all
}

fn name_of(blob: &BlobRef, chunk: u64) -> String {
    format!("{PREFIX}{}/{}/{chunk}", blob.folder, blob.id)
}

/// The blob that an object of a store is a chunk of; of an unknown length.
fn parse(name: &str) -> Option<BlobRef> {
    let mut parts = name.strip_prefix(PREFIX)?.split('/');
    let (folder, id, chunk) = (parts.next()?, parts.next()?, parts.next()?);
    let chunk: u64 = chunk.parse().ok()?;
    parts.next().is_none().then(|| BlobRef {
        folder: folder.to_owned(),
        id: id.to_owned(),
        size: (chunk + 1) * CHUNK,
    })
}

#[cfg(test)]
mod tests {
    use device::fault::{Injury, Rule};
    use device::{Fault, Memory};

    use super::*;
    use crate::lanes::tests::manager;

    async fn store(name: &str) -> Rc<Manager> {
        let device = Memory::new(name, Bytes::mib(64));
        manager(device).await
    }

    fn blob(size: u64) -> BlobRef {
        BlobRef {
            folder: "photos".into(),
            id: "00674869c10123456789abcdef".into(),
            size,
        }
    }

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at >> 12) as u8 ^ at as u8).collect()
    }

    #[test]
    fn a_blob_lies_in_chunks_over_all_stores_and_reads_back_in_any_piece() {
        env::Runtime::simulated(1).block_on(async {
            let stores = [store("a").await, store("b").await];
            let blobs = Blobs::new(stores.to_vec()).unwrap();
            let own = Qos::default();
            let all = bytes((2 * CHUNK + 12_345) as usize);
            let blob = blob(all.len() as u64);
            // As several pieces that are under way at once, and over the end of a chunk.
            let pieces = all.chunks(3 << 20).enumerate().map(|(n, piece)| {
                let at = (&blob, (n * (3 << 20)) as u64);
                blobs.write(&own, at, View::copy_of(piece))
            });
            for done in env::sync::join_all(pieces).await {
                done.unwrap();
            }
            blobs.flush().await.unwrap();
            let counts = stores
                .clone()
                .map(|it| it.store().list(PREFIX, None, 10).objects.len());
            assert_eq!(counts.iter().sum::<usize>(), 3);
            assert!(counts.iter().all(|it| *it > 0), "{counts:?}");
            for (from, len) in [
                (0, 10),
                (CHUNK - 7, 14),
                (CHUNK, 2 << 20),
                (2 * CHUNK + 12_340, 5),
            ] {
                let read = blobs.read(&own, (&blob, from), len).await.unwrap();
                assert!(
                    read[..] == all[from as usize..(from + len) as usize],
                    "{from} {len}"
                );
            }
            let past = blobs.read(&own, (&blob, 2 * CHUNK + 12_340), 6).await;
            let error = past.unwrap_err();
            assert!(matches!(error, ObjectError::Damaged(_)), "{error}");
            // A sweep finds what lies in each store.
            let mut found = Vec::new();
            for store in 0..=blobs.width() {
                found.extend(blobs.blobs_after(store, None).await.unwrap().0);
            }
            assert!(
                found.len() == 3 && found.iter().all(|it| it.id == blob.id),
                "{found:?}"
            );
            blobs.delete(&blob).await.unwrap();
            // Once more, as after a crash before it was forgotten.
            blobs.delete(&blob).await.unwrap();
            assert!(
                stores
                    .iter()
                    .all(|it| it.store().list(PREFIX, None, 10).objects.is_empty())
            );
        });
    }

    #[test]
    fn a_disk_without_room_below_is_full_and_one_that_is_gone_answers_nothing() {
        env::Runtime::simulated(1).block_on(async {
            let device = Memory::new("a", Bytes::mib(64));
            let room = Rc::new(std::cell::Cell::new(Bytes::gib(2)));
            let below = Rc::clone(&room);
            let faulty = Fault::new(device.clone(), env::rng("fault"));
            let shared = SharedDisk {
                disk: Rc::clone(&faulty) as _,
                room: Box::new(move || below.get()),
            };
            let blobs = Blobs::on_shared(manager(device).await, shared).unwrap();
            assert_eq!(blobs.is_full().await, Ok(false));
            blobs.still_ours().await.unwrap();
            room.set(Bytes::mib(3));
            assert_eq!(blobs.is_full().await, Ok(true));
            faulty.book().add(Rule::new(Injury::Gone));
            let error = blobs.still_ours().await.unwrap_err();
            assert!(matches!(error, ObjectError::Gone(_)), "{error}");
            // A failure of the index stays: its database needs to be opened anew.
            let some = Ranges::from([(0, vec![1; 8])]);
            blobs.write_index(0, 4096, some).await.unwrap();
            assert!(blobs.read_index(0, 10).await.is_ok() && !blobs.index_failed());
            let long = "x".repeat(3000);
            assert!(blobs.noted::<()>(Err(ObjectError::Gone(long))).is_err());
            assert!(blobs.read_index(0, 10).await.is_ok() && blobs.index_failed());
        });
    }

    #[test]
    fn the_index_is_as_long_as_it_was_made_and_zero_where_nothing_was_written() {
        env::Runtime::simulated(1).block_on(async {
            let store = store("a").await;
            let blobs = Blobs::new(vec![Rc::clone(&store)]).unwrap();
            assert_eq!(blobs.index_len().await, Ok(0));
            let long = bytes((3 << 20) + 5);
            let ranges =
                Ranges::from([(4096, long.clone()), (4096 + long.len() as u64, vec![7; 3])]);
            blobs.write_index(0, 8 << 20, ranges).await.unwrap();
            assert_eq!(blobs.index_len().await, Ok(8 << 20));
            let read = blobs
                .read_index(4000, long.len() as u64 + 200)
                .await
                .unwrap();
            assert!(read[..96].iter().all(|it| *it == 0) && read[96..96 + long.len()] == long);
            assert_eq!(read[96 + long.len()..][..4], [7, 7, 7, 0]);
            blobs.write_index(4096, 4096, Ranges::new()).await.unwrap();
            assert_eq!(blobs.index_len().await, Ok(4096));
            assert_eq!(blobs.read_index(4000, 200).await.unwrap(), [0; 200]);
            // What was cut is zero where it grows again.
            blobs
                .write_index(4096, 8192, Ranges::from([(0, vec![1; 8])]))
                .await
                .unwrap();
            assert_eq!(blobs.read_index(4096, 4096).await.unwrap(), [0; 4096]);
            // It is none of the blobs that a sweep looks at.
            assert_eq!(blobs.blobs_after(0, None).await.unwrap().0, []);
            assert_eq!(store.store().list(INDEX, None, 10).objects.len(), 1);
        });
    }
}
