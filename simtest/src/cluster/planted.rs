//! Mistakes, put in at the engine's edges: a way to a store, a way to the meta store or a disk that does not do what it says.
//!
//! The engine itself stays as it is: what it relies on is taken from it. If the checks do not notice, they are blind.

use std::rc::Rc;

use base::{Buf, Nanos, View};
use policy::place::State;
use store::{Caller, Change, Damage, Extent, Listing, SpaceFigures, Stat};
use vdisk::image::{IMAGES, NUMBERS_KEY};
use vdisk::link::{Door, Link, Pending};
use vdisk::meta::{
    Compare, Entry, LeaseId, MetaStore, Op, Outcome, Page, Pending as Asked, Revision, TwinClient,
    Watch,
};
use vdisk::record::{VolumeRecord, volume_key};

use super::VOLUME;

/// What the keys of all writers' leases begin with.
const WRITERS: &str = "writer/";

/// A planted mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// A seal fences no writer: each mark has a guard of its own.
    NoSeal,
    /// The record does not hear which store is out of sync before the write is answered, but with its next change.
    AnswerBeforeSwap,
    /// Bitmaps of dirty extents are not written.
    NoDirtyBit,
    /// Copies seem older than they are: resync leaves out what it should copy.
    ResyncMisses,
    /// Disks answer writes and flushes before they are durable.
    DisksLie,
    /// Clocks drift by more than the lease's margin.
    ClocksDrift,
    /// Of a snapshot one extent is as of one moment, and the others as of another.
    TornSnapshot,
    /// A node that opens a volume does not wait for the writer before, though that one may answer still.
    NoWait,
    /// What the map of an older image had on a drained store is freed, though the image never got the map without it.
    UnnamedRehome,
    /// What a head that is gone allocated after its last commit is freed by generation alone.
    FreedByGeneration,
}

impl Bug {
    /// Does it show where snapshots leave drained stores?
    pub fn is_of_drains(self) -> bool {
        matches!(self, Bug::UnnamedRehome | Bug::FreedByGeneration)
    }
}

/// A way to a store, with the mistake in it.
pub fn door(door: Rc<dyn Door>, bug: Option<Bug>) -> Rc<dyn Door> {
    match bug {
        Some(bug @ (Bug::NoSeal | Bug::NoDirtyBit | Bug::ResyncMisses)) => {
            Rc::new(BentDoor { door, bug })
        }
        _ => door,
    }
}

/// A way to the meta store, with the mistake in it.
pub fn meta(client: Rc<TwinClient>, bug: Option<Bug>) -> Rc<dyn MetaStore> {
    match bug {
        Some(bug @ (Bug::AnswerBeforeSwap | Bug::NoWait | Bug::UnnamedRehome)) => {
            Rc::new(BentMeta(client, bug))
        }
        _ => client,
    }
}

struct BentDoor {
    door: Rc<dyn Door>,
    bug: Bug,
}

impl Door for BentDoor {
    fn open_since<'a>(
        &'a self,
        guard: &'a str,
        mark: u64,
        least: u64,
    ) -> Pending<'a, Rc<dyn Link>> {
        Box::pin(async move {
            if self.bug == Bug::NoSeal {
                return self.door.open(&format!("{guard}.{mark}"), mark).await;
            }
            let (link, bug) = (self.door.open_since(guard, mark, least).await?, self.bug);
            Ok(Rc::new(BentLink { link, bug }) as Rc<dyn Link>)
        })
    }
}

struct BentLink {
    link: Rc<dyn Link>,
    bug: Bug,
}

impl Link for BentLink {
    fn read<'a>(&'a self, object: &'a str, offset: u64, len: u64) -> Pending<'a, Buf> {
        self.link.read(object, offset, len)
    }
    fn write<'a>(
        &'a self,
        object: &'a str,
        offset: u64,
        data: View,
        change: Change,
    ) -> Pending<'a, ()> {
        if self.bug == Bug::NoDirtyBit && object.starts_with("d/") {
            return Box::pin(async { Ok(()) });
        }
        self.link.write(object, offset, data, change)
    }
    fn punch<'a>(
        &'a self,
        object: &'a str,
        offset: u64,
        len: u64,
        change: Change,
    ) -> Pending<'a, ()> {
        self.link.punch(object, offset, len, change)
    }
    fn stamp<'a>(&'a self, object: &'a str, change: Change) -> Pending<'a, ()> {
        self.link.stamp(object, change)
    }
    fn create<'a>(&'a self, object: &'a str, change: Change) -> Pending<'a, ()> {
        self.link.create(object, change)
    }
    fn delete<'a>(&'a self, object: &'a str, change: Change) -> Pending<'a, ()> {
        self.link.delete(object, change)
    }
    fn rename<'a>(
        &'a self,
        object: &'a str,
        to: &'a str,
        replace: bool,
        change: Change,
    ) -> Pending<'a, ()> {
        self.link.rename(object, to, replace, change)
    }
    fn stat<'a>(&'a self, object: &'a str) -> Pending<'a, Stat> {
        Box::pin(async move {
            let mut stat = self.link.stat(object).await?;
            if self.bug == Bug::ResyncMisses {
                stat.mark = stat.mark.min(1);
            }
            Ok(stat)
        })
    }
    fn list<'a>(&'a self, prefix: &'a str, after: Option<&'a str>) -> Pending<'a, Listing> {
        self.link.list(prefix, after)
    }
    fn extents<'a>(&'a self, object: &'a str, offset: u64, len: u64) -> Pending<'a, Vec<Extent>> {
        self.link.extents(object, offset, len)
    }
    fn space(&self) -> Pending<'_, SpaceFigures> {
        self.link.space()
    }
    fn flush(&self) -> Pending<'_, ()> {
        self.link.flush()
    }
    fn damage<'a>(&'a self, prefix: &'a str) -> Pending<'a, Vec<Damage>> {
        self.link.damage(prefix)
    }
    fn write_max(&self) -> u64 {
        self.link.write_max()
    }
    fn tell(&self, caller: Caller) -> Pending<'_, ()> {
        self.link.tell(caller)
    }
    fn come_under<'a>(&'a self, holder: Option<&'a str>) -> Pending<'a, ()> {
        self.link.come_under(holder)
    }
    fn state(&self) -> Option<State> {
        self.link.state()
    }
}

/// Says that the record has who is out, or an image another map, and does not do it; or that writers before have no lease.
struct BentMeta(Rc<TwinClient>, Bug);

impl BentMeta {
    /// The revision that what is not done would have changed.
    async fn swallowed(&self, compares: &[Compare], ops: &[Op]) -> Option<Revision> {
        let [Op::Put { key, value, .. }] = ops else {
            return None;
        };
        match self.1 {
            Bug::AnswerBeforeSwap => self.puts_out(key, value).await,
            Bug::UnnamedRehome => self.rehomes(key, compares).await,
            _ => None,
        }
    }

    /// Nothing but who is out would change in the record.
    async fn puts_out(&self, put: &str, value: &[u8]) -> Option<Revision> {
        let key = volume_key(VOLUME);
        let next = VolumeRecord::decode(VOLUME, value)
            .ok()
            .filter(|_| *put == key)?;
        let found = self.0.get(&key).await.ok()??;
        let now = VolumeRecord::decode(VOLUME, &found.value).ok()?;
        let more = next.out.keys().any(|store| !now.out.contains_key(store));
        (more && next.epoch == now.epoch).then_some(found.changed)
    }

    /// An image gets another map beside the record of the numbers: it is no head.
    async fn rehomes(&self, put: &str, compares: &[Compare]) -> Option<Revision> {
        let numbers = |it: &Compare| matches!(it, Compare::Unchanged(key, _) if key == NUMBERS_KEY);
        let is_it = put.starts_with(IMAGES) && compares.iter().any(numbers);
        let found = self.0.get(put).await.ok()?;
        found.filter(|_| is_it).map(|found| found.changed)
    }

    fn hides(&self, key: &str) -> bool {
        self.1 == Bug::NoWait && key.starts_with(WRITERS)
    }
}

impl MetaStore for BentMeta {
    fn get<'a>(&'a self, key: &'a str) -> Asked<'a, Option<Entry>> {
        match self.hides(key) {
            true => Box::pin(async { Ok(None) }),
            false => self.0.get(key),
        }
    }
    fn range<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        most: usize,
    ) -> Asked<'a, Page> {
        self.0.range(prefix, after, most)
    }
    fn txn(&self, compares: Vec<Compare>, ops: Vec<Op>) -> Asked<'_, Outcome> {
        Box::pin(async move {
            if let Some(revision) = self.swallowed(&compares, &ops).await {
                return Ok(Outcome::Done(revision));
            }
            let mut compares = compares;
            compares.retain(|it| !matches!(it, Compare::Absent(key) if self.hides(key)));
            self.0.txn(compares, ops).await
        })
    }
    fn watch<'a>(&'a self, prefix: &'a str, from: Revision) -> Asked<'a, Box<dyn Watch>> {
        self.0.watch(prefix, from)
    }
    fn lease(&self, ttl: Nanos) -> Asked<'_, LeaseId> {
        self.0.lease(ttl)
    }
    fn keep(&self, lease: LeaseId) -> Asked<'_, Nanos> {
        self.0.keep(lease)
    }
    fn revoke(&self, lease: LeaseId) -> Asked<'_, ()> {
        self.0.revoke(lease)
    }
}
