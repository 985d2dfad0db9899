//! Mistakes, put in at the engine's edges: a way to a store, a way to the meta store or a disk that does not do what it says.
//!
//! The engine itself stays as it is: what it relies on is taken from it. If the checks do not notice, they are blind.

use std::rc::Rc;

use base::Nanos;
use policy::place::State;
use store::ops::{Limits, ObjectOps, Request, Response};
use store::{ClientTag, Version};
use vdisk::image::tree::{IMAGES, NUMBERS_KEY};
use vdisk::meta::{
    Compare, Entry, LeaseId, MemoryMetaClient, MetaStore, Op, Outcome, Page, Pending as Asked,
    Revision, Watch,
};
use vdisk::record::{VolumeRecord, volume_key};
use vdisk::replica::connect::{Connection, ConnectionError, Connector, Pending};

use super::VOLUME;

/// What the keys of all writers' leases begin with.
const WRITERS: &str = "writer/";

/// A mutation: a planted mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// A seal fences no writer: each token has a fence of its own.
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
    UnnamedRelocation,
    /// What a head that is gone allocated after its last commit is freed by generation alone.
    FreedByGeneration,
}

impl Mutation {
    /// Does it show where snapshots leave drained stores?
    pub fn is_of_drains(self) -> bool {
        matches!(
            self,
            Mutation::UnnamedRelocation | Mutation::FreedByGeneration
        )
    }
}

/// A way to a store, with the mistake in it.
pub fn connector(connector: Rc<dyn Connector>, mutation: Option<Mutation>) -> Rc<dyn Connector> {
    match mutation {
        Some(mutation @ (Mutation::NoSeal | Mutation::NoDirtyBit | Mutation::ResyncMisses)) => {
            Rc::new(MutatedConnector {
                connector,
                mutation,
            })
        }
        _ => connector,
    }
}

/// A way to the meta store, with the mistake in it.
pub fn meta(client: Rc<MemoryMetaClient>, mutation: Option<Mutation>) -> Rc<dyn MetaStore> {
    match mutation {
        Some(
            mutation
            @ (Mutation::AnswerBeforeSwap | Mutation::NoWait | Mutation::UnnamedRelocation),
        ) => Rc::new(MutatedMeta(client, mutation)),
        _ => client,
    }
}

struct MutatedConnector {
    connector: Rc<dyn Connector>,
    mutation: Mutation,
}

impl Connector for MutatedConnector {
    fn open_since<'a>(
        &'a self,
        fence_name: &'a str,
        token: u64,
        least: u64,
    ) -> Pending<'a, Rc<dyn Connection>> {
        Box::pin(async move {
            if self.mutation == Mutation::NoSeal {
                return self
                    .connector
                    .open(&format!("{fence_name}.{token}"), token)
                    .await;
            }
            let (connection, mutation) = (
                self.connector.open_since(fence_name, token, least).await?,
                self.mutation,
            );
            Ok(Rc::new(MutatedConnection {
                connection,
                mutation,
            }) as Rc<dyn Connection>)
        })
    }
}

struct MutatedConnection {
    connection: Rc<dyn Connection>,
    mutation: Mutation,
}

impl ObjectOps for MutatedConnection {
    type Error = ConnectionError;

    fn call(&self, request: Request) -> Pending<'_, Response> {
        match (&request, self.mutation) {
            (Request::Write { object, .. }, Mutation::NoDirtyBit) if object.starts_with("d/") => {
                Box::pin(async { Ok(Response::Version(Version(0))) })
            }
            (_, Mutation::ResyncMisses) => Box::pin(async move {
                let mut answer = self.connection.call(request).await;
                if let Ok(Response::Stat(stat)) = &mut answer {
                    stat.stamp = stat.stamp.min(1);
                }
                answer
            }),
            _ => self.connection.call(request),
        }
    }
    fn limits(&self) -> Limits {
        self.connection.limits()
    }
    fn load(&self) -> Option<State> {
        self.connection.load()
    }
}

impl Connection for MutatedConnection {
    fn set_client_tag(&self, caller: ClientTag) -> Pending<'_, ()> {
        self.connection.set_client_tag(caller)
    }
    fn attach_reservations<'a>(&'a self, holder: Option<&'a str>) -> Pending<'a, ()> {
        self.connection.attach_reservations(holder)
    }
}

/// Says that the record has who is out, or an image another map, and does not do it; or that writers before have no lease.
struct MutatedMeta(Rc<MemoryMetaClient>, Mutation);

impl MutatedMeta {
    /// The revision that what is not done would have changed.
    async fn swallowed(&self, compares: &[Compare], ops: &[Op]) -> Option<Revision> {
        let [Op::Put { key, value, .. }] = ops else {
            return None;
        };
        match self.1 {
            Mutation::AnswerBeforeSwap => self.shrinks_set(key, value).await,
            Mutation::UnnamedRelocation => self.relocates(key, compares).await,
            _ => None,
        }
    }

    /// Nothing but who is out would change in the record.
    async fn shrinks_set(&self, put: &str, value: &[u8]) -> Option<Revision> {
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
    async fn relocates(&self, put: &str, compares: &[Compare]) -> Option<Revision> {
        let numbers = |it: &Compare| matches!(it, Compare::Unchanged(key, _) if key == NUMBERS_KEY);
        let is_it = put.starts_with(IMAGES) && compares.iter().any(numbers);
        let found = self.0.get(put).await.ok()?;
        found.filter(|_| is_it).map(|found| found.changed)
    }

    fn hides(&self, key: &str) -> bool {
        self.1 == Mutation::NoWait && key.starts_with(WRITERS)
    }
}

impl MetaStore for MutatedMeta {
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
