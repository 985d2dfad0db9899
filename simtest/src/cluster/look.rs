//! What the stores have when no client uses the volume, past every link: is each extent where its map says, and all
//! copies equal?

use std::rc::Rc;

use base::{Bytes, View};
use device::Class;
use store::{Change, StoreError};
use vdisk::image::records::Images;
use vdisk::map::cache::Cache;
use vdisk::map::node::NODE;
use vdisk::map::objects::Objects;
use vdisk::map::reader::Reader;
use vdisk::map::{Entry, Map, NewNode, NodeRef, Nodes, Pending};
use vdisk::record::extents;
use vdisk::{EXTENT, Generation, StoreNumber, Stores, VolumeId};

use super::Cluster;

/// The stores, without any way between: to read from, and to free what no image has any more.
pub struct Direct(pub Rc<Cluster>);

impl Nodes for Direct {
    fn read<'a>(&'a self, node: &'a NodeRef) -> Pending<'a, Option<View>> {
        Box::pin(async move {
            let name = node.name().to_string();
            for number in node.stores.iter() {
                let Some(there) = self.0.node(number).map(|it| it.store()) else {
                    continue;
                };
                let read = there.store().read(&name, 0, NODE as u64, Class::Foreground);
                if let Ok(bytes) = read.await
                    && node.is_of(&bytes)
                {
                    return Ok(Some(bytes.freeze()));
                }
            }
            Ok(None)
        })
    }

    fn write(&self, _: Vec<NewNode>) -> Pending<'_, Vec<Stores>> {
        Box::pin(async { Err("no writer is here".into()) })
    }
}

impl Objects for Direct {
    fn stores(&self) -> Vec<StoreNumber> {
        let all = self.0.nodes.iter().filter(|node| !node.is_gone());
        all.map(|node| StoreNumber(node.number)).collect()
    }

    fn delete<'a>(&'a self, store: StoreNumber, name: &'a str) -> Pending<'a, ()> {
        Box::pin(async move {
            // What a store had that left for good is gone with it.
            let Some(there) = self.0.node(store).map(|it| it.store()) else {
                return Ok(());
            };
            match there.store().delete(name, Change::default()).await {
                Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
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
            let there = self.0.node(store).ok_or("there is no such store")?.store();
            let listing = there.store().list(prefix, Some(after), most);
            Ok(listing.objects.into_iter().map(|it| it.name).collect())
        })
    }
}

/// Every extent of every image that a client may read has `copies` copies where its map says, and they are equal. More copies may be there, which no map names.
///
/// # Errors
/// What is not so.
pub async fn alike(cluster: &Rc<Cluster>, copies: u8) -> Result<(), String> {
    alike_on(cluster, |stores| stores == usize::from(copies)).await
}

/// The same, with `copies` of them or more: of what images share no copy too many is taken away.
///
/// # Errors
/// What is not so.
pub async fn alike_at_least(cluster: &Rc<Cluster>, copies: u8) -> Result<(), String> {
    alike_on(cluster, |stores| stores >= usize::from(copies)).await
}

async fn alike_on(cluster: &Rc<Cluster>, are: impl Fn(usize) -> bool) -> Result<(), String> {
    let meta = cluster.meta_store.client();
    let images = Images { meta }.all().await.map_err(|why| why.to_string())?;
    let direct = Rc::new(Direct(Rc::clone(cluster)));
    let reader = Reader::new(direct, Cache::new(Bytes::mib(4)));
    for known in images.values() {
        let image = &known.record;
        if !image.is_live() {
            continue;
        }
        let size = extents(image.size);
        let map = Map::open(reader.clone(), VolumeId(0), image.root, size, Generation(0));
        let mut from = 0;
        while let Some((index, entry)) = map.next(from).await.map_err(|it| it.to_string())? {
            from = index + 1;
            for layer in Entry::layers(&entry) {
                let stores: Vec<StoreNumber> = layer.stores.iter().collect();
                let name = layer.name(index).to_string();
                let whose = |why| format!("image {} ({:?}): {why}", image.id, image.state);
                same(cluster, &name, &stores).await.map_err(whose)?;
                if !are(stores.len()) {
                    return Err(format!("{name} is on {stores:?} alone"));
                }
            }
        }
    }
    Ok(())
}

async fn same(cluster: &Cluster, name: &str, stores: &[StoreNumber]) -> Result<(), String> {
    let mut first: Option<Vec<u8>> = None;
    for number in stores {
        let node = cluster
            .node(*number)
            .ok_or("there is no such store")?
            .store();
        let read = node.store().read(name, 0, EXTENT, Class::Foreground);
        let mut bytes = read.await.map_err(|why| why.to_string())?.to_vec();
        bytes.resize(EXTENT as usize, 0);
        match &first {
            None => first = Some(bytes),
            Some(first) if *first == bytes => {}
            Some(_) => return Err(format!("the copies of {name} differ on {stores:?}")),
        }
    }
    Ok(())
}
