//! A node of the product bed: its store behind a server, its view of the cluster, and the load reports between nodes.
//!
//! ```text
//! disk -> Manager (store, its queue) -> Server on 10.0.0.n -> other nodes' RemoteConnector
//!              '-- LocalConnector --> Cluster of this node, with the method's policy
//! announce, hear: datagrams every T; a policy by reports alone hears its own store as often
//! ```

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use base::{Bytes, Nanos};
use device::Device;
use device::model::{ModelDisk, Spec, Store as Data};
use env::net::{Address, Listener, sim};
use policy::place::{DiskId, Kind, Options, State};
use store::Store;
use store::net::client::{ClientOptions, Credentials};
use store::net::server::{Limits, Server};
use store::net::wire::NodeKey;
use store::qos::manager::{Manager, ManagerOptions};
use vdisk::StoreNumber;
use vdisk::cluster::stores::{NewStore, StoreRecord};
use vdisk::cluster::{Cluster, Settings, Ways};
use vdisk::meta::MetaStore;
use vdisk::replica::broadcast::{self, Route};
use vdisk::replica::connect::{Connector, LocalConnector, RemoteConnector};

use super::chooser::{Chooser, Sents, Stores};
use super::disk::{Stalling, Stalls};
use super::scenes::ProductMethod;
use crate::experiment::hollow::Hollow;

/// What all nodes have.
const KEY: [u8; 32] = [7; 32];
/// Two copies of each image of 128 MiB leave most of a disk untouched: seeks are shorter than in the bed without stores.
const DISK: Bytes = Bytes::gib(16);
/// Where stores and load reports are listened at.
const STORE_PORT: u16 = 7400;
const REPORT_PORT: u16 = 7401;

/// What went wrong in a run, in words.
pub(super) type Broken = String;

pub(super) fn broken(what: &str) -> impl Fn(&dyn std::fmt::Display) -> Broken {
    move |why| format!("{what}: {why}")
}

/// A node, whose cluster is open.
pub(super) struct Node {
    pub ip: IpAddr,
    pub cluster: Rc<Cluster>,
    pub manager: Rc<Manager>,
    pub disk: Rc<Stalling>,
    number: StoreNumber,
}

/// What all nodes of a run are made with.
pub(super) struct Common {
    pub rotating: bool,
    pub stalls: Option<Stalls>,
    pub method: ProductMethod,
    pub clients: u32,
    pub nodes: usize,
    pub seed: u64,
    pub stores: Stores,
    pub sents: Sents,
}

/// The ways from a node: its own store directly, others over their protocol.
struct FromNode {
    uuid: u128,
    own: Rc<Manager>,
}

impl Ways for FromNode {
    fn way(&self, store: &StoreRecord) -> (Rc<dyn Connector>, bool) {
        if u128::from_str_radix(&store.uuid, 16) == Ok(self.uuid) {
            return (Rc::new(LocalConnector(Rc::clone(&self.own))), true);
        }
        let remote = RemoteConnector {
            address: store.address.parse().expect("registered by a node"),
            uuid: None,
            credentials: Credentials::NodeKey(KEY),
            options: ClientOptions::default(),
        };
        (Rc::new(remote), false)
    }
}

pub(super) fn ip_of(index: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, index as u8 + 1])
}

fn socket(index: usize) -> SocketAddr {
    SocketAddr::new(ip_of(index), REPORT_PORT)
}

impl Node {
    /// A node with an empty store, registered; what it does in the background has begun.
    pub async fn open(
        index: usize,
        common: &Common,
        meta: Rc<dyn MetaStore>,
    ) -> Result<Node, Broken> {
        let (disk, spec) = disk(index, common).await?;
        let ip = ip_of(index);
        let device: Rc<dyn Device> = Rc::clone(&disk) as _;
        let manager = sim::on_host(ip, store(index, device, &spec, common)).await?;
        let cluster = cluster(index, common, meta, &manager)?;
        let new = NewStore {
            name: text(&format!("s{index}"))?,
            uuid: manager.store().uuid(),
            node: text(&format!("n{index}"))?,
            address: format!("{ip}:{STORE_PORT}"),
            domain: text(&format!("n{index}"))?,
            rotating: common.rotating,
            leased: true,
            number: None,
        };
        let registered = sim::on_host(ip, cluster.stores.register(&new)).await;
        let number = registered.map_err(|it| broken("registering")(&it))?.number;
        let disk_id = DiskId(u32::from(number.0));
        let own = Rc::clone(&manager);
        common.stores.borrow_mut().insert(disk_id, own);
        sim::on_host(ip, async { cluster.start() }).await;
        Ok(Node {
            ip,
            cluster,
            manager,
            disk,
            number,
        })
    }

    /// Load reports go out and come in every `every`, until the run ends.
    pub async fn report(&self, index: usize, common: &Common, every: Nanos) {
        let peers = (0..common.nodes).filter(|it| *it != index).map(socket);
        let route = Route::Unicast {
            own: socket(index),
            peers: peers.collect(),
        };
        let key = NodeKey(KEY);
        let (number, manager) = (self.number, Rc::clone(&self.manager));
        let own = vec![(number, Rc::clone(&manager))];
        let cluster = Rc::clone(&self.cluster);
        let hears_own = common.method.kind.needs_reports();
        sim::on_host(self.ip, async move {
            drop(env::spawn(broadcast::announce(
                route.clone(),
                key.clone(),
                own,
                every,
            )));
            let of_others = Rc::clone(&cluster);
            let receive = move |store, state: &State| of_others.reports.heard(store, state);
            drop(env::spawn(broadcast::hear(route, key, receive)));
            if hears_own {
                drop(env::spawn(async move {
                    loop {
                        cluster.reports.heard(number, &manager.state());
                        env::sleep(every).await;
                    }
                }));
            }
        })
        .await;
    }
}

fn text<T: std::str::FromStr>(name: &str) -> Result<T, Broken> {
    let parsed = name.parse();
    parsed.map_err(|_| format!("'{name}' is no name"))
}

/// A formatted disk.
async fn disk(index: usize, common: &Common) -> Result<(Rc<Stalling>, Spec), Broken> {
    let model = match common.rotating {
        true => "hdd-7200-sata",
        false => "ssd-sata-mlc",
    };
    let spec = Spec::find(model).map_err(|it| broken(model)(&it))?;
    let name = format!("disk{index}");
    let data = Hollow::of_size(&name, DISK);
    let settings = store::Settings {
        name: format!("s{index}"),
        ..store::Settings::default()
    };
    let made = Store::format(Rc::clone(&data), settings).await;
    let made = made.map_err(|it| broken("formatting")(&it))?;
    made.close().await.map_err(|it| broken("formatting")(&it))?;
    let seed = common.seed.wrapping_mul(1_000).wrapping_add(index as u64);
    let model = ModelDisk::new(&name, &spec, Some(DISK), Data::Device(data), seed);
    let model = model.map_err(|it| broken(&name)(&it))?;
    let chance = env::Rng::from_seed(seed ^ 0x005e_ed0f_57a1);
    Ok((Stalling::new(model, common.stalls, chance), spec))
}

/// The store on it, behind a server; it goes on until the run ends.
async fn store(
    index: usize,
    device: Rc<dyn Device>,
    spec: &Spec,
    common: &Common,
) -> Result<Rc<Manager>, Broken> {
    let costs = store::qos::costs::of_model(spec);
    let mut options = ManagerOptions {
        node_key: Some(KEY),
        scrub: None,
        ..ManagerOptions::new(costs, [9; 32])
    };
    options.queue.kind = common.method.scheduler;
    let manager = Manager::open(device, options).await;
    let manager = manager.map_err(|it| broken("opening a store")(&it))?;
    let server = Server::new(Rc::clone(&manager), Limits::default());
    let address: Address = text(&format!("{}:{STORE_PORT}", ip_of(index)))?;
    let listener = Listener::bind(&address).map_err(|it| broken("listening")(&it))?;
    server
        .serve(listener)
        .map_err(|it| broken("serving")(&it))?;
    drop(env::spawn(async move {
        let _server = server;
        std::future::pending::<()>().await;
    }));
    Ok(manager)
}

/// The cluster as this node has it.
fn cluster(
    index: usize,
    common: &Common,
    meta: Rc<dyn MetaStore>,
    manager: &Rc<Manager>,
) -> Result<Rc<Cluster>, Broken> {
    let options = Options {
        seed: common.seed.wrapping_mul(100).wrapping_add(index as u64),
        clients: common.clients,
        tanada: common.method.tanada,
        ..Options::default()
    };
    let layout = common.seed.wrapping_mul(77).wrapping_add(index as u64);
    let policy = Chooser::new(
        common.method.kind,
        &options,
        layout,
        (&common.stores, &common.sents),
    );
    let uuid = manager.store().uuid();
    let ways = FromNode {
        uuid,
        own: Rc::clone(manager),
    };
    let settings = Settings::new(text(&format!("n{index}"))?);
    let cluster = Cluster::new(settings, meta, Rc::new(ways), Box::new(policy));
    cluster.serves(BTreeSet::from([format!("{uuid:032x}")]));
    Ok(cluster)
}

/// Does it hear reports, so that it depends on T?
pub(super) fn hears(kind: Kind) -> bool {
    kind.needs_reports() || kind == Kind::Tanada
}
