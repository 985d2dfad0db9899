//! All stores of a cluster at once, past the volume: what is there is looked at, and what a deletion left is freed.

use std::collections::BTreeMap;
use std::rc::Rc;

use base::{Bytes, View};
use device::Class;
use store::Change;

use super::cluster::{Cluster, Server};
use crate::image::audit::Audit;
use crate::image::collect::Collector;
use crate::image::records::Images;
use crate::map::cache::Cache;
use crate::map::node::NODE;
use crate::map::objects::Objects;
use crate::map::reader::Reader;
use crate::map::{Entry, Map, NewNode, NodeRef, Nodes, Pending, Trouble};
use crate::names::{EXTENT, Generation, StoreNumber, Stores, VolumeId};
use crate::record::extents;

/// The stores of a cluster, without any link between.
pub(super) struct Direct(Rc<Cluster>);

impl Direct {
    fn server(&self, store: StoreNumber) -> Result<&Rc<Server>, Trouble> {
        let server = self.0.servers.iter().find(|it| it.number == store.0);
        let server = server.filter(|it| it.is_up());
        server.ok_or_else(|| "it is down".into())
    }
}

impl Nodes for Direct {
    fn read<'a>(&'a self, node: &'a NodeRef) -> Pending<'a, Option<View>> {
        Box::pin(async move {
            let name = node.name().to_string();
            let mut down = None;
            for store in node.stores.iter() {
                let there = match self.server(store) {
                    Ok(server) => server.node(),
                    Err(why) => {
                        down = Some(why);
                        continue;
                    }
                };
                let read = there.store().read(&name, 0, NODE as u64, Class::Foreground);
                if let Ok(bytes) = read.await
                    && node.is_of(&bytes)
                {
                    return Ok(Some(bytes.freeze()));
                }
            }
            down.map_or(Ok(None), Err)
        })
    }

    fn write(&self, nodes: Vec<NewNode>) -> Pending<'_, Vec<Stores>> {
        Box::pin(async move {
            for node in &nodes {
                for server in &self.0.servers {
                    let there = server.node();
                    let name = node.name.to_string();
                    let change = Change::FUA.creating();
                    let written = there.store().write(&name, 0, node.bytes.clone(), change);
                    written.await?;
                }
            }
            let all: Vec<StoreNumber> = Objects::stores(self);
            let stores = Stores::new(&all).ok_or("one to three stores")?;
            Ok(vec![stores; nodes.len()])
        })
    }
}

impl Objects for Direct {
    fn stores(&self) -> Vec<StoreNumber> {
        (self.0.servers.iter())
            .map(|it| StoreNumber(it.number))
            .collect()
    }

    fn delete<'a>(&'a self, store: StoreNumber, name: &'a str) -> Pending<'a, ()> {
        Box::pin(async move {
            let node = self.server(store)?.node();
            match node.store().delete(name, Change::default()).await {
                Ok(()) | Err(store::StoreError::NotFound { .. }) => Ok(()),
                Err(error) => Err(error.into()),
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
        Box::pin(async move {
            let node = self.server(store)?.node();
            let listing = node.store().list(prefix, Some(after), most);
            Ok(listing.objects.into_iter().map(|it| it.name).collect())
        })
    }
}

/// What frees deleted images, and audits.
pub(super) fn collector(cluster: &Rc<Cluster>) -> Collector {
    let direct = Rc::new(Direct(Rc::clone(cluster)));
    Collector {
        images: Images {
            meta: cluster.meta_store.client(),
        },
        reader: Reader::new(direct.clone(), Cache::new(Bytes::mib(4))),
        objects: direct,
    }
}

/// Every extent of every readable image has its copies where its map says, and they are equal; nothing is lost. `copies`: as
/// many as there should be.
pub(super) async fn alike(cluster: &Rc<Cluster>, copies: u8) -> Result<(), String> {
    let collector = collector(cluster);
    let said = |why: crate::image::records::ImagesError| why.to_string();
    collector.run().await.map_err(said)?;
    let mut seen = BTreeMap::new();
    for known in collector.images.all().await.map_err(said)?.values() {
        let image = &known.record;
        if !image.is_live() {
            continue;
        }
        let size = extents(image.size);
        let map = Map::open(
            collector.reader.clone(),
            VolumeId(0),
            image.root,
            size,
            Generation(0),
        );
        let mut from = 0;
        while let Some((index, entry)) = map.next(from).await.map_err(|it| it.to_string())? {
            from = index + 1;
            for layer in Entry::layers(&entry) {
                let stores: Vec<StoreNumber> = layer.stores.iter().collect();
                seen.insert((layer.name(index), stores), image.id);
            }
        }
    }
    for ((name, stores), image) in seen {
        if stores.len() != usize::from(copies) {
            return Err(format!("{name} of image {image} is on {stores:?} alone"));
        }
        let object = name.to_string();
        let mut first: Option<Vec<u8>> = None;
        for store in &stores {
            let server = cluster.servers.iter().find(|it| it.number == store.0);
            let node = server.expect("there is such a store").node();
            let read = node.store().read(&object, 0, EXTENT, Class::Foreground);
            let mut bytes = read.await.map_err(|why| why.to_string())?.to_vec();
            bytes.resize(EXTENT as usize, 0);
            match &first {
                None => first = Some(bytes),
                Some(first) if *first == bytes => {}
                Some(_) => return Err(format!("the copies of {name} differ on {stores:?}")),
            }
        }
    }
    let report = Audit(&collector).run(true).await.map_err(said)?;
    match report.losses.is_empty() && report.gone.is_empty() && report.unknown.is_empty() {
        true => Ok(()),
        false => Err(format!("{:?}", report)),
    }
}
