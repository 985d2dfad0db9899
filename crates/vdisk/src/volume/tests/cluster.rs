//! Stores on hosts of their own, a meta store, and ways between them that fail on demand.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::rc::Rc;

use base::{Bytes, Nanos};
use device::fault::Book;
use device::{Crash, Device};
use env::net::{Address, Listener, sim};
use env::sync::Event;
use policy::place::{
    Class, ClientId, DomainId, Kind, Options, Origin, Penalties, State, Weights, build,
};
use policy::share::{BytesPerSec, Costs};
use store::Store;
use store::net::client::{ClientOptions, Credentials};
use store::net::server::{Limits, Server as Wire};
use store::ops::{self, ObjectOps, Request, Response};
use store::qos::manager::{Manager, ManagerOptions};

use crate::image::records::Images;
use crate::image::tree::{self as image, Numbers, Versioned};
use crate::meta::{MemoryMetaStore, MetaStore};
use crate::names::{StoreNumber, VolumeId};
use crate::record::{VolumeRecord, volume_key};
use crate::replica::choice::Choice;
use crate::replica::connect::{
    Connection, ConnectionError, Connector, LocalConnector, Pending, RemoteConnector, unsealed,
};
use crate::volume::{Mutation, Settings, StoreInfo, Volume, VolumeError};

pub(super) const VOLUME: VolumeId = VolumeId(7);
/// What the nodes of the cluster know.
const KEY: [u8; 32] = [7; 32];
pub(super) const SIZE: Bytes = Bytes::mib(12);

pub(super) fn host(number: u16) -> IpAddr {
    IpAddr::from([10, 0, (number >> 8) as u8, number as u8])
}

/// A store on a host of its own.
pub(super) struct Server {
    pub number: u16,
    ip: IpAddr,
    pub disk: RefCell<Rc<Crash>>,
    book: Rc<Book>,
    node: RefCell<Option<Rc<Manager>>>,
    /// Restarts so far: what was opened before is gone.
    life: Cell<u64>,
    /// Requests arrive, and are held.
    pub stalled: Cell<bool>,
    moves: Event,
    /// Objects with names that begin so are deleted late.
    pub late_deletes: RefCell<Option<&'static str>>,
    /// The part of answers that vanish.
    pub deaf: Cell<f64>,
    /// Objects that listings answered.
    pub listed: Cell<u64>,
    /// What it thinks a seek of its disk takes, from its next start on.
    pub seek: Cell<Nanos>,
    /// The hosts that cannot reach it.
    pub cut: RefCell<BTreeSet<IpAddr>>,
    rng: RefCell<env::Rng>,
}

impl Server {
    pub async fn new(number: u16, size: Bytes) -> Rc<Server> {
        let name = format!("disk {number}");
        let disk = Crash::new(&name, size, env::rng(&name));
        let settings = store::Settings {
            name: format!("s{number}"),
            ..store::Settings::default()
        };
        let formatted = Store::format(disk.clone(), settings).await;
        formatted.expect("formatted").close().await.expect("closed");
        disk.set_delay(Nanos::micros(20), Nanos::micros(400));
        let server = Rc::new(Server {
            number,
            ip: host(number),
            disk: RefCell::new(disk),
            book: Book::new(env::rng("book")),
            node: RefCell::default(),
            life: Cell::new(0),
            stalled: Cell::new(false),
            moves: Event::default(),
            late_deletes: RefCell::default(),
            deaf: Cell::new(0.0),
            listed: Cell::new(0),
            seek: Cell::default(),
            cut: RefCell::default(),
            rng: RefCell::new(env::rng("way")),
        });
        server.start().await;
        server
    }

    pub async fn start(&self) {
        let disk: Rc<dyn Device> = self.book.wrap(self.disk.borrow().clone());
        let mut costs = Costs::flat(BytesPerSec::mb(1000));
        costs.read.jump = self.seek.get();
        let options = ManagerOptions {
            node_key: Some(KEY),
            scrub: None,
            ..ManagerOptions::new(costs, [9; 32])
        };
        let node = sim::on_host(self.ip, Manager::open(disk, options)).await;
        *self.node.borrow_mut() = Some(node.expect("opened"));
    }

    pub fn address(&self) -> Address {
        let address = format!("{}:7400", self.ip);
        address.parse().expect("an address")
    }

    /// Takes clients from other hosts.
    pub async fn listen(&self) {
        let wire = Wire::new(self.node(), Limits::default());
        let address = self.address();
        sim::on_host(self.ip, async move {
            let listener = Listener::bind(&address).expect("a free port");
            wire.serve(listener).expect("it takes those with the key");
        })
        .await;
    }

    /// Its disk takes so long for each request from here on.
    pub fn slow(&self, each: Nanos) {
        self.disk.borrow().set_delay(each, each);
    }

    /// Breaks all connections with node `node`.
    pub fn reset(&self, node: u16) {
        sim::reset_streams(self.ip, host(1000 + node));
    }

    pub fn is_up(&self) -> bool {
        self.node.borrow().is_some()
    }

    /// What goes wrong with its disk.
    pub fn book(&self) -> &Rc<Book> {
        &self.book
    }

    /// Power off; what was not flushed may be lost.
    pub fn crash(&self) {
        sim::crash_host(self.ip);
        self.node.borrow_mut().take();
        self.life.set(self.life.get() + 1);
        let rng = env::rng("crash");
        let disk = self.disk.borrow().restart(rng);
        *self.disk.borrow_mut() = disk;
    }

    pub async fn heal(&self) {
        self.stalled.set(false);
        self.late_deletes.borrow_mut().take();
        self.moves.notify_all();
        self.deaf.set(0.0);
        self.cut.borrow_mut().clear();
        self.book.clear();
        if !self.is_up() {
            self.start().await;
        }
    }

    pub fn node(&self) -> Rc<Manager> {
        self.node.borrow().clone().expect("it is up")
    }

    /// One way, there or back; an answer may get lost.
    async fn way(&self, back: bool) {
        let (wait, lost) = {
            let mut rng = self.rng.borrow_mut();
            let lost = back && rng.chance(self.deaf.get());
            (Nanos::micros(10 + rng.below(300)), lost)
        };
        env::sleep(wait).await;
        if lost {
            std::future::pending::<()>().await;
        }
        while self.stalled.get() {
            self.moves.wait().await;
        }
    }

    /// Waits while an object is to be deleted late.
    async fn until_due(&self, object: &str) {
        let late = || {
            self.late_deletes
                .borrow()
                .is_some_and(|it| object.starts_with(it))
        };
        while late() {
            self.moves.wait().await;
        }
    }

    /// Carries one request out at the store, whatever becomes of its client.
    async fn far<T: 'static>(
        self: &Rc<Self>,
        life: Option<u64>,
        op: impl AsyncFnOnce(Rc<Server>) -> Result<T, ConnectionError> + 'static,
    ) -> Result<T, ConnectionError> {
        let gone = |life: Option<u64>| life.is_some_and(|life| life != self.life.get());
        if self.cut.borrow().contains(&sim::host()) || !self.is_up() || gone(life) {
            return Err(ConnectionError::Gone(format!(
                "no way to store {}",
                self.number
            )));
        }
        let server = Rc::clone(self);
        // The task is what is wanted: it lives on at the store.
        #[allow(clippy::async_yields_async)]
        let task = sim::on_host(self.ip, async move {
            env::spawn(async move {
                server.way(false).await;
                let answer = op(Rc::clone(&server)).await;
                server.way(true).await;
                answer
            })
        });
        let life = Some(self.life.get());
        let answer = task.await.await;
        match gone(life) {
            true => Err(ConnectionError::Indeterminate(
                "it crashed meanwhile".to_owned(),
            )),
            false => answer,
        }
    }
}

/// The way to a [`Server`].
pub(super) struct Far {
    server: Rc<Server>,
    seals: bool,
}

struct FarConnection {
    server: Rc<Server>,
    life: u64,
    connection: Rc<dyn Connection>,
}

impl Connector for Far {
    fn open_since<'a>(
        &'a self,
        fence_name: &'a str,
        token: u64,
        least: u64,
    ) -> Pending<'a, Rc<dyn Connection>> {
        Box::pin(async move {
            let fence_name = fence_name.to_owned();
            let seals = self.seals;
            let opened = self.server.far(None, async move |server: Rc<Server>| {
                let node = server.node.borrow().clone();
                let node = node.ok_or(ConnectionError::Gone("it is down".to_owned()))?;
                if !seals {
                    return unsealed(&node, &fence_name, token);
                }
                LocalConnector(node)
                    .open_since(&fence_name, token, least)
                    .await
            });
            let connection = opened.await?;
            Ok(Rc::new(FarConnection {
                server: Rc::clone(&self.server),
                life: self.server.life.get(),
                connection,
            }) as Rc<dyn Connection>)
        })
    }
}

impl ObjectOps for FarConnection {
    type Error = ConnectionError;

    fn call(&self, request: Request) -> Pending<'_, Response> {
        let connection = Rc::clone(&self.connection);
        Box::pin(async move {
            let ask = async move |server: Rc<Server>| {
                if let Request::Delete { object, .. } = &request {
                    server.until_due(object).await;
                }
                connection.call(request).await
            };
            let answer = self.server.far(Some(self.life), ask).await?;
            if let Response::Listing(listing) = &answer {
                let listed = &self.server.listed;
                listed.set(listed.get() + listing.objects.len() as u64);
            }
            Ok(answer)
        })
    }

    fn limits(&self) -> ops::Limits {
        self.connection.limits()
    }

    fn load(&self) -> Option<State> {
        None
    }
}

impl Connection for FarConnection {}

/// Stores, and a meta store with a volume's record.
pub(super) struct Cluster {
    pub servers: Vec<Rc<Server>>,
    pub meta_store: Rc<MemoryMetaStore>,
}

impl Cluster {
    pub async fn new(stores: u16, copies: u8, min_isr: u8, size: Bytes) -> Rc<Cluster> {
        let mut servers = Vec::new();
        for number in 1..=stores {
            servers.push(Server::new(number, size).await);
        }
        let meta_store = MemoryMetaStore::new("twin");
        let name = "vm".parse().expect("a name");
        let mut numbers = Versioned {
            record: Numbers::first(),
            changed: None,
        };
        numbers.record.volume = VOLUME.0;
        let (_, change) =
            image::create(&numbers, name, SIZE.0, copies, min_isr).expect("it can be");
        let images = Images {
            meta: meta_store.client(),
        };
        images.change(change).await.expect("made");
        Rc::new(Cluster {
            servers,
            meta_store,
        })
    }

    pub async fn record(&self) -> VolumeRecord {
        let found = self.meta_store.client().get(&volume_key(VOLUME)).await;
        let found = found.expect("it answers").expect("it is there");
        VolumeRecord::decode(VOLUME, &found.value).expect("it is whole")
    }

    /// Opens the first volume on host `node`.
    pub async fn open(
        &self,
        node: u16,
        meta: Rc<dyn MetaStore>,
        mutation: Option<Mutation>,
    ) -> Result<Rc<Volume>, VolumeError> {
        self.open_one(VOLUME, node, meta, mutation).await
    }

    /// Opens a volume on host `node`.
    pub async fn open_one(
        &self,
        id: VolumeId,
        node: u16,
        meta: Rc<dyn MetaStore>,
        mutation: Option<Mutation>,
    ) -> Result<Rc<Volume>, VolumeError> {
        let servers = self.servers.clone();
        self.open_by(id, node, meta, mutation, servers).await
    }

    /// As [`Cluster::open`], of these stores alone.
    pub async fn open_with(
        &self,
        node: u16,
        meta: Rc<dyn MetaStore>,
        servers: Vec<Rc<Server>>,
    ) -> Result<Rc<Volume>, VolumeError> {
        self.open_by(VOLUME, node, meta, None, servers).await
    }

    async fn open_by(
        &self,
        id: VolumeId,
        node: u16,
        meta: Rc<dyn MetaStore>,
        mutation: Option<Mutation>,
        servers: Vec<Rc<Server>>,
    ) -> Result<Rc<Volume>, VolumeError> {
        let store_infos = servers.into_iter().map(|server| StoreInfo {
            number: StoreNumber(server.number),
            name: format!("s{}", server.number),
            domain: DomainId(u32::from(server.number)),
            local: false,
            rotating: false,
            connector: Rc::new(Far {
                server,
                seals: mutation != Some(Mutation::NoSeal),
            }),
        });
        self.open_at(id, node, meta, mutation, store_infos.collect())
            .await
    }

    /// The ways to all stores by the protocol between nodes.
    pub fn connectors(&self) -> Vec<Rc<dyn Connector>> {
        let connector = |server: &Rc<Server>| -> Rc<dyn Connector> {
            Rc::new(RemoteConnector {
                address: server.address(),
                uuid: Some(server.node().store().uuid()),
                credentials: Credentials::NodeKey(KEY),
                options: ClientOptions::default(),
            })
        };
        self.servers.iter().map(connector).collect()
    }

    /// As [`Cluster::open`], of stores in the same process.
    pub async fn open_here(
        &self,
        node: u16,
        meta: Rc<dyn MetaStore>,
    ) -> Result<Rc<Volume>, VolumeError> {
        let store_infos = self.servers.iter().map(|server| StoreInfo {
            number: StoreNumber(server.number),
            name: format!("s{}", server.number),
            domain: DomainId(u32::from(server.number)),
            local: true,
            rotating: false,
            connector: Rc::new(LocalConnector(server.node())),
        });
        self.open_at(VOLUME, node, meta, None, store_infos.collect())
            .await
    }

    /// As [`Cluster::open`], by the protocol between nodes.
    pub async fn open_over_the_wire(
        &self,
        node: u16,
        meta: Rc<dyn MetaStore>,
    ) -> Result<Rc<Volume>, VolumeError> {
        let all = self.servers.iter().zip(self.connectors());
        let store_infos = all.map(|(server, connector)| StoreInfo {
            number: StoreNumber(server.number),
            name: format!("s{}", server.number),
            domain: DomainId(u32::from(server.number)),
            local: false,
            rotating: false,
            connector,
        });
        self.open_at(VOLUME, node, meta, None, store_infos.collect())
            .await
    }

    async fn open_at(
        &self,
        id: VolumeId,
        node: u16,
        meta: Rc<dyn MetaStore>,
        mutation: Option<Mutation>,
        store_infos: Vec<StoreInfo>,
    ) -> Result<Rc<Volume>, VolumeError> {
        let origin = Origin {
            client: ClientId(1),
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
            penalties: Penalties::default(),
            ..Settings::new(&format!("n{node}"), origin)
        };
        let options = Options {
            weights: Weights::default(),
            seed: env::rng("choice").bits(),
            ..Options::default()
        };
        // Any copy at any time, so that copies that differ show.
        let choice = Choice::new(build(Kind::Random, &options));
        let opening = async move {
            let volume = Volume::open(id, meta, choice, store_infos, settings).await?;
            volume.core.life.mutated.set(mutation);
            Ok(volume)
        };
        // The volume's tasks, and the one that opens it, live on its node.
        sim::on_host(host(1000 + node), opening).await
    }

    pub async fn heal(&self) {
        for server in &self.servers {
            server.heal().await;
        }
    }
}
