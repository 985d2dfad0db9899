//! A virtual disk of three copies in virtual time: one node, three stores on models, as `setup::of_volume` has them.
//!
//! ```text
//! requests -> volume (vdisk) -> each store's queue -> Meter -> ModelDisk
//! ```
//!
//! Choice: the meta store is in memory, where the daemon's is a file. What is written there is no part of a request.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::str::FromStr;

use device::model::{ModelDisk, Spec, Store as Data};
use device::{Device, Meter, Op};
use policy::place::{Kind, Options, build};
use store::Store;
use store::qos::manager::{Manager, ManagerOptions};
use trace::Request;
use vdisk::cluster::stores::{NewStore, StoreRecord};
use vdisk::cluster::volumes::NewVolume;
use vdisk::cluster::{Cluster, Settings, Ways};
use vdisk::meta::MemoryMetaStore;
use vdisk::record::{OnMetaLoss, PriorityClass};
use vdisk::replica::connect::{Connector, LocalConnector};

use super::cases::Extent;
use super::client::{Disk, fill, send};
use super::common::Trouble;
use super::sample::{Count, Sample, since, with_all_reads};
use super::setup::{COPIES, DISK, SLOW, VOLUME, disk};
use crate::app::process::Stop;

/// A disk below a store, and what is read off it.
pub(super) struct Below {
    name: String,
    meter: Rc<Meter>,
}

impl Below {
    /// The slow model, in virtual time.
    ///
    /// # Errors
    /// The model's, in words.
    pub fn new(nth: usize, seed: u64) -> Result<Below, String> {
        let name = disk(nth);
        let spec = Spec::find(SLOW).map_err(|error| error.to_string())?;
        // As in a daemon, the platters of all disks stand alike.
        let model = ModelDisk::new(&name, &spec, Some(DISK), Data::Memory, seed);
        let model = model.map_err(|error| error.to_string())?;
        let meter = Meter::new(model);
        Ok(Below { name, meter })
    }

    /// A store of this name on it, empty.
    ///
    /// # Errors
    /// The store's, in words.
    pub async fn store(&self, name: &str) -> Result<Rc<Manager>, String> {
        let device: Rc<dyn Device> = Rc::clone(&self.meter) as _;
        let settings = store::Settings {
            name: name.to_owned(),
            ..store::Settings::default()
        };
        let made = Store::format(Rc::clone(&device), settings).await;
        let made = made.map_err(|error| error.to_string())?;
        made.close().await.map_err(|error| error.to_string())?;
        let spec = Spec::find(SLOW).map_err(|error| error.to_string())?;
        let options = ManagerOptions {
            node_key: Some([7; 32]),
            unauthenticated: true,
            scrub: None,
            ..ManagerOptions::new(store::qos::costs::of_model(&spec), [9; 32])
        };
        let manager = Manager::open(device, options).await;
        manager.map_err(|error| error.to_string())
    }

    fn counts(&self) -> [Count; 2] {
        let counters = self.meter.counters();
        let of = |op, what: &str| {
            let name = format!("{}_{what}", self.name);
            Count::new(&name, counters.all(op).bytes)
        };
        [of(Op::Read, "read"), of(Op::Write, "written")]
    }
}

/// What all disks have read and written.
pub(super) fn counts(disks: &[Below]) -> Vec<Count> {
    disks.iter().flat_map(Below::counts).collect()
}

/// All stores are here.
struct Here(BTreeMap<u128, Rc<Manager>>);

impl Ways for Here {
    fn way(&self, store: &StoreRecord) -> (Rc<dyn Connector>, bool) {
        let uuid = u128::from_str_radix(&store.uuid, 16).unwrap_or_default();
        let own = self.0.get(&uuid).expect("no other store was registered");
        (Rc::new(LocalConnector(Rc::clone(own))), true)
    }
}

/// Runs it.
///
/// # Errors
/// What a store, the volume or a request said.
pub(super) fn run(requests: &[Request], extent: &Extent, seed: u64) -> Result<Sample, Trouble> {
    let (requests, extent) = (requests.to_vec(), *extent);
    env::Runtime::simulated(seed).block_on(async move {
        let disks: Vec<Below> = (0..COPIES)
            .map(|nth| Below::new(nth, seed))
            .collect::<Result<_, String>>()?;
        let mut stores = Vec::new();
        for (nth, disk) in disks.iter().enumerate() {
            stores.push(disk.store(&format!("s{nth}")).await?);
        }
        let cluster = cluster(&stores, seed).await?;
        let volume = volume(&cluster, &extent).await?;
        fill(&**volume.volume(), extent.image).await?;
        env::sleep(extent.settle).await;
        let before = counts(&disks);
        let target = Rc::new(Disk::new(Rc::clone(volume.volume()) as _));
        let took = send(target, &requests, &Stop::default()).await?;
        let grown = with_all_reads(since(&before, &counts(&disks)));
        let sample = Sample::new(&took, grown);
        drop(volume);
        // What does not close well was measured before.
        let _ = cluster.stop().await;
        for store in stores {
            let _ = store.close().await;
        }
        Ok(sample)
    })
}

fn text<T: FromStr>(name: &str) -> Result<T, String> {
    name.parse().map_err(|_| format!("'{name}' is no name"))
}

/// The node, with its stores registered.
async fn cluster(stores: &[Rc<Manager>], seed: u64) -> Result<Rc<Cluster>, String> {
    let own: BTreeMap<u128, Rc<Manager>> = stores
        .iter()
        .map(|it| (it.store().uuid(), Rc::clone(it)))
        .collect();
    let served: BTreeSet<String> = own.keys().map(|uuid| format!("{uuid:032x}")).collect();
    let options = Options {
        seed,
        ..Options::default()
    };
    let cluster = Cluster::new(
        Settings::new(text("n0")?),
        MemoryMetaStore::new("meta").client(),
        Rc::new(Here(own)),
        build(Kind::Tanada, &options),
    );
    cluster.serves(served);
    for (nth, store) in stores.iter().enumerate() {
        let new = NewStore {
            name: text(&format!("s{nth}"))?,
            uuid: store.store().uuid(),
            node: text("n0")?,
            address: format!("unix:s{nth}.sock"),
            domain: text(&format!("s{nth}"))?,
            rotating: true,
            leased: true,
            number: None,
        };
        let registered = cluster.stores.register(&new).await;
        registered.map_err(|error| error.to_string())?;
    }
    cluster.start();
    Ok(cluster)
}

async fn volume(
    cluster: &Rc<Cluster>,
    extent: &Extent,
) -> Result<vdisk::cluster::slots::InUse, String> {
    let new = NewVolume {
        name: text(VOLUME)?,
        size: extent.image.0,
        copies: Some(COPIES as u8),
        min_isr: None,
        priority: PriorityClass::Normal,
        fairness: None,
        holder: None,
        on_meta_loss: OnMetaLoss::Wait,
    };
    let made = cluster.volumes.create(&new).await;
    made.map_err(|error| error.to_string())?;
    let opened = cluster.openings.open(&new.name).await;
    opened.map_err(|error| error.to_string())
}
