//! Deleted images are freed, and maps and stores compared, by one node at a time.
//!
//! ```text
//! collector (a key under a lease: who) + collector-epoch (how often) -> seal g/collector with it at every store
//!    -> image::{collect, audit} over connections under that token
//! ```
//!
//! Always true:
//! 1. When a node collects, nothing that an earlier collector asked of a store is under way there, nor will be.
//! 2. A collector that cannot keep the lease stops.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use base::{Nanos, View};
use env::net::message::either;
use env::sync::Semaphore;
use store::Change;

use super::ClusterError;
use super::node::Node;
use crate::image::audit::{Audit, Report};
use crate::image::collect::Collector;
use crate::image::records::ImagesError;
use crate::image::tree::{ImageRecord, ImageState};
use crate::map::cache::Cache;
use crate::map::node::NODE;
use crate::map::objects::Objects;
use crate::map::reader::Reader;
use crate::map::{NewNode, NodeRef, Nodes, Pending, Trouble};
use crate::meta::{Compare, LeaseId, MetaError, Op, Revision};
use crate::names::{ImageId, StoreNumber, Stores};
use crate::record::RecordError;
use crate::replica::connect::{Connection, ConnectionError, Connector};

const WHO: &str = "collector";
const EPOCH: &str = "collector-epoch";
const FENCE: &str = "g/collector";
/// Before a volume's number: its fence at a store.
pub(super) const FENCE_OF: &str = "g/";

/// The stores' objects under one fence.
pub(super) struct Objective {
    connectors: BTreeMap<StoreNumber, Rc<dyn Connector>>,
    labels: BTreeMap<StoreNumber, String>,
    token: u64,
    timeout: Nanos,
    connections: RefCell<BTreeMap<StoreNumber, Rc<dyn Connection>>>,
}

impl Objective {
    async fn within<T>(
        &self,
        asked: impl Future<Output = Result<T, ConnectionError>>,
    ) -> Result<T, ConnectionError> {
        let answer = env::timeout(self.timeout, asked).await;
        answer.unwrap_or_else(|late| {
            Err(ConnectionError::Indeterminate(format!(
                "{late} from a store"
            )))
        })
    }

    /// `None`: the store has left the cluster.
    async fn connection(
        &self,
        store: StoreNumber,
    ) -> Result<Option<Rc<dyn Connection>>, ConnectionError> {
        if let Some(connection) = self.connections.borrow().get(&store) {
            return Ok(Some(Rc::clone(connection)));
        }
        let Some(connector) = self.connectors.get(&store) else {
            return Ok(None);
        };
        let connection = self.within(connector.open(FENCE, self.token)).await?;
        self.connections
            .borrow_mut()
            .insert(store, Rc::clone(&connection));
        Ok(Some(connection))
    }

    /// The stamp of an object; `None`: it is not there.
    pub(super) async fn mark_of(
        &self,
        store: StoreNumber,
        object: &str,
    ) -> Result<Option<u64>, ConnectionError> {
        let Some(connection) = self.connection(store).await? else {
            return Ok(None);
        };
        let stat = self.within(connection.stat(object)).await;
        match self.judged(store, stat) {
            Ok(stat) => Ok(Some(stat.stamp)),
            Err(ConnectionError::Absent(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deletes an object for good, if it is there.
    pub(super) async fn remove(
        &self,
        store: StoreNumber,
        object: &str,
    ) -> Result<(), ConnectionError> {
        let Some(connection) = self.connection(store).await? else {
            return Ok(());
        };
        let deleted = self.within(connection.delete(object, Change::FUA)).await;
        match self.judged(store, deleted) {
            Err(ConnectionError::Absent(_)) => Ok(()),
            other => other,
        }
    }

    /// A connection that broke is opened anew the next time.
    fn judged<T>(
        &self,
        store: StoreNumber,
        answer: Result<T, ConnectionError>,
    ) -> Result<T, ConnectionError> {
        if answer.as_ref().is_err_and(ConnectionError::ends_connection) {
            self.connections.borrow_mut().remove(&store);
        }
        answer
    }

    async fn list_page(
        &self,
        store: StoreNumber,
        prefix: &str,
        after: &str,
        most: usize,
    ) -> Result<Vec<String>, ConnectionError> {
        let Some(connection) = self.connection(store).await? else {
            return Ok(Vec::new());
        };
        let after = Some(after).filter(|after| !after.is_empty());
        let page = self.within(connection.list(prefix, after)).await;
        let page = self.judged(store, page)?;
        let names = page.objects.into_iter().take(most);
        Ok(names.map(|stat| stat.name).collect())
    }
}

impl Objects for Objective {
    fn stores(&self) -> Vec<StoreNumber> {
        self.connectors.keys().copied().collect()
    }

    fn label(&self, store: StoreNumber) -> String {
        let label = self.labels.get(&store).cloned();
        label.unwrap_or_else(|| format!("number {store} (not in the cluster any more)"))
    }

    fn delete<'a>(&'a self, store: StoreNumber, name: &'a str) -> Pending<'a, ()> {
        Box::pin(async move {
            let Some(connection) = self.connection(store).await? else {
                return Ok(());
            };
            let deleted = self
                .within(connection.delete(name, Change::default()))
                .await;
            match self.judged(store, deleted) {
                Err(ConnectionError::Absent(_)) => Ok(()),
                other => Ok(other?),
            }
        })
    }

    fn list<'a>(
        &'a self,
        store: StoreNumber,
        prefix: &'a str,
        after: &'a str,
        most: usize,
    ) -> Pending<'a, Vec<String>> {
        Box::pin(async move { Ok(self.list_page(store, prefix, after, most).await?) })
    }
}

impl Nodes for Objective {
    fn read<'a>(&'a self, node: &'a NodeRef) -> Pending<'a, Option<View>> {
        Box::pin(async move {
            let name = node.name().to_string();
            let mut trouble: Option<Trouble> = None;
            for store in node.stores.iter() {
                let read = async {
                    let Some(connection) = self.connection(store).await? else {
                        return Err(ConnectionError::Absent(format!(
                            "store {} has left",
                            self.label(store)
                        )));
                    };
                    let read = self.within(connection.read(&name, 0, NODE as u64)).await;
                    self.judged(store, read)
                };
                match read.await {
                    Ok(bytes) if node.is_of(&bytes) => return Ok(Some(bytes.freeze())),
                    Ok(_) => trouble = Some("no copy of it is whole".into()),
                    Err(ConnectionError::Absent(_)) => {}
                    Err(error) => trouble = Some(error.into()),
                }
            }
            trouble.map_or(Ok(None), Err)
        })
    }

    fn write(&self, _nodes: Vec<NewNode>) -> Pending<'_, Vec<Stores>> {
        Box::pin(async { Err("the collector and audits write no maps".into()) })
    }
}

/// May the collector do something for it?
fn is_deleted(image: &ImageRecord) -> bool {
    match image.state {
        ImageState::DeferredDelete { swept } => !swept,
        ImageState::Deleting => true,
        _ => false,
    }
}

/// The collector, when it is this node's turn.
pub struct Collecting {
    node: Rc<Node>,
    /// Nodes of maps that are being freed or audited.
    cache: Rc<Cache>,
    one: Rc<Semaphore>,
}

impl Collecting {
    pub(super) fn new(node: &Rc<Node>) -> Rc<Collecting> {
        Rc::new(Collecting {
            node: Rc::clone(node),
            cache: Cache::new(node.settings.cache),
            one: Semaphore::new(1),
        })
    }

    /// Frees what deleted images alone had. What stores that do not answer have waits for the next call.
    ///
    /// # Errors
    /// [`ClusterError::Collecting`] if another node does; [`ClusterError`] if something could not be freed yet.
    pub async fn collect(&self) -> Result<(), ClusterError> {
        self.as_collector(async |collector| collector.run().await)
            .await
    }

    /// Compares all maps with all stores; with `free`, what no map needs is deleted.
    ///
    /// # Errors
    /// [`ClusterError::Collecting`] if another node looks through the stores; [`ClusterError`] if records or maps cannot be
    /// read now.
    pub async fn audit(&self, free: bool) -> Result<Report, ClusterError> {
        self.as_collector(async |collector| Audit(collector).run(free).await)
            .await
    }

    pub(super) async fn collect_now_and_then(&self) {
        let images = match self.node.meta.images.all().await {
            Ok(images) => images,
            Err(error) => return tracing::debug!(%error, "the images were not read"),
        };
        let mut children: BTreeMap<ImageId, usize> = BTreeMap::new();
        for parent in images.values().filter_map(|known| known.record.parent) {
            *children.entry(parent).or_default() += 1;
        }
        let children = |id| children.get(&id).copied().unwrap_or(0);
        let is_lonely = |image: &ImageRecord| {
            matches!(image.state, ImageState::DeferredDelete { .. }) && children(image.id) < 2
        };
        let mut all = images.values().map(|known| &known.record);
        if !all.any(|image| is_deleted(image) || is_lonely(image)) {
            return;
        }
        match self.collect().await {
            Ok(()) => {}
            Err(ClusterError::Collecting { .. }) => {}
            Err(error) => tracing::warn!(%error, "deleted images are not all freed yet"),
        }
    }

    /// Does `work` as the only collector of the cluster.
    async fn as_collector<T>(
        &self,
        work: impl AsyncFnOnce(&Collector) -> Result<T, ImagesError>,
    ) -> Result<T, ClusterError> {
        self.as_collector_with(async |collector, _| work(collector).await)
            .await
    }

    /// The same for what is about stores' objects alone.
    pub(super) async fn as_collector_of<T>(
        &self,
        work: impl AsyncFnOnce(&Objective) -> Result<T, ImagesError>,
    ) -> Result<T, ClusterError> {
        self.as_collector_with(async |_, objects| work(objects).await)
            .await
    }

    async fn as_collector_with<T>(
        &self,
        work: impl AsyncFnOnce(&Collector, &Objective) -> Result<T, ImagesError>,
    ) -> Result<T, ClusterError> {
        let _one = self.one.acquire(1).await;
        let (lease, token) = self.become_collector().await?;
        let stores = self.node.stores.all().await?;
        let connectors = stores.values().map(|(record, _)| {
            let (connector, _) = self.node.stores.way(record);
            (record.number, connector)
        });
        let labels = stores.values();
        let labels = labels.map(|(record, _)| (record.number, record.name.to_string()));
        let objects = Rc::new(Objective {
            connectors: connectors.collect(),
            labels: labels.collect(),
            token,
            timeout: self.node.settings.timeout,
            connections: RefCell::default(),
        });
        let collector = Collector {
            images: self.node.meta.images.clone(),
            reader: Reader::new(objects.clone(), Rc::clone(&self.cache)),
            objects: Rc::clone(&objects) as Rc<dyn Objects>,
        };
        let working = async { Ok(work(&collector, &objects).await?) };
        let done = either(working, self.keep_collecting(lease)).await;
        // The lease expires.
        let _ = self.node.meta.images.meta.revoke(lease).await;
        done
    }

    /// Keeps the lease; ends if that cannot be done.
    async fn keep_collecting<T>(&self, lease: LeaseId) -> Result<T, ClusterError> {
        let mut kept = env::now();
        loop {
            env::sleep(Nanos(self.node.settings.lease.0 / 4)).await;
            let asked = env::now();
            match self.node.meta.images.meta.keep(lease).await {
                Ok(_) => kept = asked,
                Err(error @ MetaError::NoLease { .. }) => return Err(error.into()),
                Err(error) if env::now().since(kept) >= self.node.settings.lease => {
                    return Err(error.into());
                }
                Err(_) => {}
            }
        }
    }

    async fn become_collector(&self) -> Result<(LeaseId, u64), ClusterError> {
        let meta = &self.node.meta.images.meta;
        if let Some(who) = meta.get(WHO).await? {
            let node = String::from_utf8_lossy(&who.value).into_owned();
            return Err(ClusterError::Collecting { node });
        }
        let found = meta.get(EPOCH).await?;
        let epoch = match &found {
            None => 0,
            Some(entry) => std::str::from_utf8(&entry.value)
                .ok()
                .and_then(|text| text.parse::<u64>().ok())
                .ok_or_else(|| RecordError::malformed(EPOCH, "it is no number"))?,
        };
        let next = epoch + 1;
        let lease = meta.lease(self.node.settings.lease).await?;
        let node = self.node.name().as_str().as_bytes().to_vec();
        let compares = vec![
            Compare::Absent(WHO.to_owned()),
            Compare::Unchanged(EPOCH.to_owned(), found.map_or(Revision(0), |it| it.changed)),
        ];
        let ops = vec![
            Op::Put {
                key: WHO.to_owned(),
                value: node,
                lease: Some(lease),
            },
            Op::Put {
                key: EPOCH.to_owned(),
                value: next.to_string().into_bytes(),
                lease: None,
            },
        ];
        match self.node.meta.txn(compares, ops).await {
            Ok(()) => Ok((lease, next)),
            Err(error) => {
                let _ = meta.revoke(lease).await;
                match error.is_conflict() {
                    true => Err(ClusterError::Collecting {
                        node: "another".to_owned(),
                    }),
                    false => Err(error),
                }
            }
        }
    }
}
