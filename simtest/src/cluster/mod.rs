//! Store nodes, volume hosts and a meta store, with a network between them, in virtual time.
//!
//! ```text
//! clients -> volume host: vdisk::Volume -> RemoteDoor -> simulated network -> store::net::server -> store -> modelled disk
//!                  '-> meta store: in memory, with faults for each host
//! ```
//!
//! Hosts have addresses of their own: 10.0.0.n is store node n, 10.0.1.n is volume host n; the meta store is 127.0.0.1.
//! Everything but the meta store and the disks' contents is the code that runs in earnest.
//!
//! - [`disk`] a store node: its disk's stack, power cuts, restarts.
//! - [`mutations`] planted mistakes, put in at the engine's edges.
//! - [`history`] what clients did and saw. [`clients`] what they do.
//! - [`images`] snapshots, clones and other sizes. [`drains`] stores that are to be empty, and leave.
//! - [`faults`] what goes wrong. [`scenario`] a whole run. [`look`] what is in the stores after it.

pub mod clients;
pub mod disk;
pub mod draining;
pub mod drains;
pub mod faults;
pub mod history;
pub mod images;
pub mod look;
pub mod mutations;
pub mod scenario;
mod split;

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;

use base::{Bytes, Nanos};
use env::net::sim;
use policy::place::{Class, ClientId, DomainId, Kind, Options, Origin, Weights, build};
use store::net::client::{ClientOptions, Credentials};
use vdisk::image::records::Images;
use vdisk::image::tree::{self as image, Numbers, Versioned};
use vdisk::meta::{Faults, MemoryMetaClient, MemoryMetaStore, MetaStore};
use vdisk::replica::choice::Choice;
use vdisk::replica::connect::{Connector, RemoteConnector};
use vdisk::volume::{Settings, StoreInfo, Volume, VolumeError};
use vdisk::{StoreNumber, VolumeId};

use disk::{KEY, StoreNode};
use draining::Draining;
use mutations::Mutation;

/// The volume of every run.
pub const VOLUME: VolumeId = VolumeId(7);
/// Three extents.
pub const SIZE: Bytes = Bytes::mib(12);
/// Volume hosts. The last one is for the end, when all faults are over.
pub const HOSTS: usize = 4;

/// A volume host's address.
pub fn host(number: usize) -> IpAddr {
    IpAddr::from([10, 0, 1, number as u8])
}

/// Everything there is.
pub struct Cluster {
    /// The store nodes.
    pub nodes: Vec<Rc<StoreNode>>,
    /// The meta store.
    pub meta_store: Rc<MemoryMetaStore>,
    /// By volume host: its ways to the meta store, and what goes wrong on them.
    ways: RefCell<Vec<(Vec<Rc<MemoryMetaClient>>, Faults)>>,
    mutation: Option<Mutation>,
    /// Stores that are to be empty.
    pub draining: Rc<Draining>,
}

impl Cluster {
    /// A volume with so many copies, of which a write must reach `min_isr`, on so many store nodes.
    ///
    /// # Panics
    /// If it cannot be made.
    pub async fn new(
        stores: u16,
        copies: u8,
        min_isr: u8,
        mutation: Option<Mutation>,
    ) -> Rc<Cluster> {
        let mut nodes = Vec::new();
        for number in 1..=stores {
            nodes.push(StoreNode::new(number, mutation == Some(Mutation::DisksLie)).await);
        }
        let meta_store = MemoryMetaStore::new("meta");
        let mut numbers = Versioned {
            record: Numbers::first(),
            changed: None,
        };
        numbers.record.volume = VOLUME.0;
        let name = "vm".parse().expect("a name");
        let created = image::create(&numbers, name, SIZE.0, copies, min_isr);
        let (_, change) = created.expect("it can be");
        let meta = meta_store.client();
        let made = Images { meta }.change(change).await;
        made.expect("nothing is wrong yet");
        Rc::new(Cluster {
            nodes,
            meta_store,
            ways: RefCell::new(vec![(Vec::new(), Faults::default()); HOSTS]),
            mutation,
            draining: Rc::default(),
        })
    }

    fn store_infos(&self) -> Vec<StoreInfo> {
        let info = |node: &Rc<StoreNode>| {
            let way: Rc<dyn Connector> = Rc::new(RemoteConnector {
                address: node.address(),
                uuid: None,
                credentials: Credentials::NodeKey(KEY),
                options: ClientOptions {
                    opening: Nanos::millis(500),
                    timeout: Nanos::secs(1),
                    ..ClientOptions::default()
                },
            });
            StoreInfo {
                number: StoreNumber(node.number),
                name: format!("s{}", node.number),
                domain: DomainId(u32::from(node.number)),
                local: false,
                rotating: false,
                connector: mutations::connector(way, self.mutation),
            }
        };
        let nodes = self.nodes.iter().filter(|node| !node.is_gone());
        nodes.map(info).collect()
    }

    /// Opens the volume on a host, whichever node has it.
    ///
    /// # Errors
    /// [`VolumeError`], such as faults cause.
    pub async fn open(&self, number: usize) -> Result<Rc<Volume>, VolumeError> {
        self.open_one(VOLUME, number).await
    }

    /// Opens a volume on a host, whichever node has it.
    ///
    /// # Errors
    /// [`VolumeError`], such as faults cause.
    pub async fn open_one(&self, id: VolumeId, number: usize) -> Result<Rc<Volume>, VolumeError> {
        let client = self.meta_store.client();
        {
            let (clients, faults) = &mut self.ways.borrow_mut()[number];
            client.set_faults(*faults);
            clients.push(Rc::clone(&client));
        }
        let meta: Rc<dyn MetaStore> = mutations::meta(client, self.mutation);
        let origin = Origin {
            client: ClientId(1 + number as u64),
            class: Class::Normal,
        };
        let settings = Settings {
            lease: Nanos::secs(2),
            margin: Nanos::millis(400),
            timeout: Nanos::millis(300),
            deadline: Nanos::secs(3),
            clean_after: Nanos::millis(50),
            commit_after: Nanos::millis(60),
            tick: Nanos::millis(20),
            drained: self.draining.stores(),
            ..Settings::new(&format!("host-{number}"), origin)
        };
        let options = Options {
            weights: Weights::default(),
            seed: env::rng("choice").bits(),
            ..Options::default()
        };
        // Any copy at any time, so that copies that differ show.
        let choice = Choice::new(build(Kind::Random, &options));
        let opening = Volume::open(id, meta, choice, self.store_infos(), settings);
        // The volume's background work lives on its host.
        let volume = sim::on_host(host(number), opening).await?;
        self.draining.note_open(&volume);
        Ok(volume)
    }

    /// Stores that are there.
    pub fn present(&self) -> Vec<StoreNumber> {
        let nodes = self.nodes.iter().filter(|node| !node.is_gone());
        nodes.map(|node| StoreNumber(node.number)).collect()
    }

    /// A store node that is there.
    pub fn node(&self, number: StoreNumber) -> Option<&Rc<StoreNode>> {
        let mut there = self.nodes.iter().filter(|it| !it.is_gone());
        there.find(|it| it.number == number.0)
    }

    /// What goes wrong between a volume host and the meta store from now on.
    pub fn meta_faults(&self, number: usize, faults: Faults) {
        let (clients, present) = &mut self.ways.borrow_mut()[number];
        *present = faults;
        for client in clients {
            client.set_faults(faults);
        }
    }

    /// A volume host loses power.
    pub fn crash_host(&self, number: usize) {
        sim::crash_host(host(number));
        self.ways.borrow_mut()[number].0.clear();
    }

    /// Is every store there?
    ///
    /// # Errors
    /// Why one did not open: what it had to keep is gone.
    pub fn are_up(&self) -> Result<(), String> {
        match self.nodes.iter().find_map(|node| node.lost()) {
            Some(why) => Err(why),
            None => Ok(()),
        }
    }

    /// Everything goes right from now on.
    pub async fn heal(&self) {
        sim::heal();
        for number in 0..HOSTS {
            self.meta_faults(number, Faults::default());
            for node in &self.nodes {
                sim::set_link(host(number), node.ip, sim::Link::LAN);
                sim::set_link(node.ip, host(number), sim::Link::LAN);
            }
        }
        for node in &self.nodes {
            node.heal().await;
        }
    }
}
