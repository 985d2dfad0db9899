//! This node of a cluster, on the data thread of its stores: volumes are opened here and exported by their names.
//!
//! ```text
//! meta store (file | etcd) -> Cluster -> volumes -> NBD clients, by name
//!                                \ ways: this thread's stores directly, others over their protocol
//! announce: queues of this node's stores -> datagrams -> other nodes' policies, and theirs -> ours
//! ```
//!
//! Always true:
//! 1. A store of this node is registered before it is used; until the meta store answers that is tried again and again.
//! 2. Closing goes from the top down: NBD clients, volumes, and only then stores.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};

use anyhow::{Context, anyhow};
use base::Nanos;
use config::{ClusterConfig, ExportConfig};
use device::{AccountCaps, Device};
use env::net::{Address, Listener};
use front::nbd::{self, Soon, Supplied, Supply};
use policy::place::State;
use report::terminal::said;
use reservations::accounts::AccountQuotas;
use store::net::client::{Client, ClientOptions, Credentials};
use store::net::wire::NodeKey;
use store::qos::manager::Manager;
use vdisk::StoreNumber;
use vdisk::cluster::stores::NewStore;
use vdisk::cluster::{Cluster, ClusterError, Settings};
use vdisk::meta::MetaStore;
use vdisk::record::Name;
use vdisk::replica::broadcast as announce;

use super::caps::is_but_capped;
use super::chosen::{chosen, hear_own};
use super::cluster_level;
use super::exports::{self, VolumeExport, described};
use super::meta::Meta;
use super::open::{OpenServer, nbd_limits};
use super::reservations::ClusterReservations;
use super::secured::Secured;
use super::store::OpenStore;
use super::ways::Reach;
use crate::daemon::common::address::from_anywhere;
use crate::daemon::common::secrets;

/// Between two tries to register stores.
const REGISTER_AGAIN: Nanos = Nanos::secs(2);
/// Between two tries to announce or to hear, where there is no socket.
const ANNOUNCE_AGAIN: Nanos = Nanos::secs(5);
/// A client waits so long at most until its volume is open: another node's lease may have to run out.
const NEGOTIATION: Nanos = Nanos::secs(90);

/// What servers take on whose exports are opened for who asks.
pub fn limits(connections: usize) -> nbd::Limits {
    nbd::Limits {
        negotiation: NEGOTIATION,
        ..nbd_limits(connections)
    }
}

/// Lets NBD clients in to all volumes of the cluster.
fn serve(
    cluster: &Rc<Cluster>,
    (configured, listener): (Address, Listener),
    tls: Option<nbd::Tls>,
    connections: usize,
) -> OpenServer {
    let limits = limits(connections);
    let server = nbd::Server::new(nbd::Config { limits, tls });
    server.set_supply(Rc::new(Volumes(Rc::clone(cluster))));
    let address = listener.address().clone();
    server.serve(listener);
    OpenServer {
        configured,
        address,
        server,
        volumes: Rc::default(),
    }
}

/// This node, open.
pub struct OpenCluster {
    pub config: ClusterConfig,
    pub cluster: Rc<Cluster>,
    pub servers: Vec<Rc<OpenServer>>,
    /// The volumes that have exports of their own.
    exports: RefCell<Vec<Rc<VolumeExport>>>,
    /// Stores that are not registered yet, and why.
    waiting: RefCell<Vec<(NewStore, String)>>,
    /// Reservations over the cluster.
    pub reservations: ClusterReservations,
    /// This node's own, by their identities.
    own: BTreeMap<u128, Rc<Manager>>,
    /// The numbers of the own stores that send load reports.
    announcing: RefCell<BTreeSet<StoreNumber>>,
    node_key: NodeKey,
    /// What this node shows where TLS is spoken.
    secured: Option<Rc<Secured>>,
    /// Tasks that announce load, and that hear others; they end with this.
    tasks: RefCell<Vec<env::CancelOnDrop<()>>>,
    /// What is wrong with the meta store as a whole.
    warning: RefCell<Option<String>>,
    /// Why no other node is heard.
    deaf: RefCell<Option<String>>,
    /// Closed last.
    meta: Meta,
}

/// What runs each of these stores, by the identity of the store.
fn managers(stores: &[&Rc<OpenStore>]) -> BTreeMap<u128, Rc<Manager>> {
    let managers = stores.iter().map(|it| Rc::clone(&it.node));
    managers.map(|it| (it.store().uuid(), it)).collect()
}

impl OpenCluster {
    /// Opens the meta store, registers the stores and lets clients in.
    pub async fn open(
        config: ClusterConfig,
        exports: &[ExportConfig],
        stores: &[Rc<OpenStore>],
        (tls, listeners, connections): (Option<nbd::Tls>, Vec<(Address, Listener)>, usize),
        (secured, accounts): (Option<&Rc<Secured>>, &Rc<AccountCaps>),
    ) -> anyhow::Result<Rc<OpenCluster>> {
        let meta = Meta::open(&config.meta).context("[cluster] meta")?;
        let named = |it: &&Rc<OpenStore>| config.stores.contains(&it.config.name);
        let own: Vec<&Rc<OpenStore>> = stores.iter().filter(named).collect();
        let mine = managers(&own);
        let key = secrets::read_or_make(&config.key_file)?;
        let ways = Rc::new(Reach {
            local: mine.clone(),
            key,
            tls: secured.cloned(),
            accounts: Rc::clone(accounts),
        });
        let node: Name = config.node.parse().context("[cluster] node")?;
        let waiting = to_register(&config, &node, &own)?;
        let policy = chosen(config.replica_choice);
        let cluster = Cluster::new(Settings::new(node), meta.client(), ways, policy);
        let served = mine.keys().map(|uuid| format!("{uuid:032x}"));
        cluster.serves(served.collect());
        let serve = |at| serve(&cluster, at, tls.clone(), connections);
        let servers = listeners.into_iter().map(serve).map(Rc::new).collect();
        let quotas = Rc::new(AccountQuotas(meta.client()));
        let entry = (key, secured.cloned());
        let reservations = ClusterReservations::begin(&cluster, meta.client(), entry, quotas);
        let exports = exports.iter();
        let exports = exports.filter_map(|export| VolumeExport::of(export, &cluster));
        let open = Rc::new(OpenCluster {
            exports: RefCell::new(exports.collect()),
            config,
            cluster,
            servers,
            reservations,
            waiting: RefCell::new(waiting),
            own: mine,
            announcing: RefCell::default(),
            node_key: NodeKey(key),
            secured: secured.cloned(),
            tasks: RefCell::default(),
            warning: RefCell::default(),
            deaf: RefCell::default(),
            meta,
        });
        open.begin_listening();
        open.begin_following();
        let levels = &open.cluster.levels;
        cluster_level::check(levels).await?;
        let following = cluster_level::follow(levels, &open.config.level_file);
        open.tasks.borrow_mut().push(following);
        open.register_first().await?;
        open.cluster.start();
        env::spawn(keep_registering(Rc::downgrade(&open)));
        Ok(open)
    }

    /// Registers the stores, as far as the meta store is there.
    async fn register_first(&self) -> anyhow::Result<()> {
        match self.register().await {
            Ok(()) => Ok(()),
            // It may come later than this node.
            Err(error @ ClusterError::Meta(_)) => {
                tracing::warn!(%error, "the cluster's meta store does not answer yet");
                Ok(())
            }
            Err(error) => Err(anyhow!("[cluster]: {error}")),
        }
    }

    /// Registers what is not registered yet. A store that was given up as lost is left out, and keeps no other from it.
    async fn register(&self) -> Result<(), ClusterError> {
        let waiting = self.waiting.borrow().clone();
        for (new, before) in waiting {
            let registered = self.cluster.stores.register(&new).await;
            let mut waiting = self.waiting.borrow_mut();
            let at = waiting.iter().position(|(it, _)| it.uuid == new.uuid);
            let Some(at) = at else { continue };
            match registered {
                Ok(record) => {
                    waiting.remove(at);
                    drop(waiting);
                    if let Some(store) = self.own.get(&new.uuid) {
                        let is_linked = !record.address.starts_with("unix:");
                        let is_booked = self.config.network.is_some() || !is_linked;
                        self.reservations.take(record.number, store, is_booked);
                    }
                    self.begin_hearing_own(record.number, new.uuid);
                    self.begin_announcing(record.number, new.uuid);
                }
                Err(error) => {
                    let why = error.to_string();
                    let first = before != why;
                    waiting[at].1 = why;
                    drop(waiting);
                    match error {
                        ClusterError::WasLost(_) if first => tracing::error!(%error),
                        ClusterError::WasLost(_) => {}
                        other => return Err(other),
                    }
                }
            }
        }
        self.look_for_forgotten().await
    }

    /// Warns if the stores have volumes that the meta store does not know of.
    async fn look_for_forgotten(&self) -> Result<(), ClusterError> {
        let found = self.cluster.forgotten_volumes().await?;
        if let Some(warning) = &found {
            tracing::warn!("{warning}");
        }
        *self.warning.borrow_mut() = found;
        Ok(())
    }

    /// The meta store that all nodes agree by.
    pub fn meta(&self) -> Rc<dyn MetaStore> {
        self.meta.client()
    }

    /// What is wrong with the meta store as a whole.
    pub fn warning(&self) -> Option<String> {
        self.warning.borrow().clone()
    }

    /// A policy that goes by reports alone hears this node's own store as others do, without a network between.
    fn begin_hearing_own(&self, number: StoreNumber, uuid: u128) {
        let store = self.own.get(&uuid).map(Rc::clone);
        let hearing = store.and_then(|it| hear_own(&self.config, &self.cluster, (number, it)));
        self.tasks.borrow_mut().extend(hearing);
    }

    /// From here on the others hear how long this store's queue is, if that is wanted.
    fn begin_announcing(&self, number: StoreNumber, uuid: u128) {
        let (Some(config), Some(node)) = (&self.config.announce, self.own.get(&uuid)) else {
            return;
        };
        let (route, every, node) = (config.route.clone(), config.every, Rc::clone(node));
        let key = self.node_key.clone();
        self.announcing.borrow_mut().insert(number);
        let task = env::spawn(async move {
            loop {
                let stores = vec![(number, Rc::clone(&node))];
                let Err(error) =
                    announce::announce(route.clone(), key.clone(), stores, every).await;
                tracing::warn!(%error, "the other nodes are not told how long the queues are");
                env::sleep(ANNOUNCE_AGAIN).await;
            }
        });
        self.tasks.borrow_mut().push(env::cancel_scope(task));
    }

    /// From here on certificates that are revoked in the cluster open nothing here.
    fn begin_following(&self) {
        if let Some(secured) = &self.secured {
            let following = secured.follow(self.cluster.revocations.clone());
            self.tasks.borrow_mut().push(following);
        }
    }

    /// From here on what the others' stores say reaches the policy, if that is wanted.
    fn begin_listening(self: &Rc<Self>) {
        let Some(config) = &self.config.announce else {
            return;
        };
        let (route, key) = (config.route.clone(), self.node_key.clone());
        let open = Rc::downgrade(self);
        let hearing = env::spawn(async move {
            loop {
                let cluster = open.clone();
                let receive = move |store, state: &State| {
                    if let Some(open) = cluster.upgrade() {
                        open.deaf.take();
                        open.heard(store, state);
                    }
                };
                let Err(error) = announce::hear(route.clone(), key.clone(), receive).await;
                tracing::warn!(%error, "other nodes' queues are not heard of");
                let Some(open) = open.upgrade() else { return };
                *open.deaf.borrow_mut() = Some(error.to_string());
                drop(open);
                env::sleep(ANNOUNCE_AGAIN).await;
            }
        });
        self.tasks.borrow_mut().push(env::cancel_scope(hearing));
    }

    /// What comes back of this node's own says nothing: what it says comes with answers, or is heard directly.
    fn heard(&self, store: StoreNumber, state: &State) {
        if !self.announcing.borrow().contains(&store) {
            self.cluster.reports.heard(store, state);
        }
    }

    /// Why no other node is heard, though it is wanted.
    pub fn deaf(&self) -> Option<String> {
        self.deaf.borrow().clone()
    }

    /// The identity of the store at `address`.
    pub async fn identity(&self, address: &Address, node: &Name) -> Result<u128, String> {
        let key = secrets::read(&self.config.key_file).map_err(|error| said::words(&error))?;
        let credentials = Credentials::NodeKey(key);
        let options = ClientOptions {
            tls: self.secured.as_ref().map(|tls| tls.to_node(node.as_str())),
            ..ClientOptions::default()
        };
        let asked = Client::connect_with(address, credentials, &options).await;
        let client = asked.map_err(|error| error.to_string())?;
        let uuid = client.store_uuid();
        client.close().await;
        Ok(uuid)
    }

    /// Stores of this node that are not registered yet, and why.
    pub fn unregistered(&self) -> Vec<(String, String)> {
        let waiting = self.waiting.borrow();
        let pair = |(new, why): &(NewStore, String)| (new.name.to_string(), why.clone());
        waiting.iter().map(pair).collect()
    }

    /// Where clients connect.
    pub fn addresses(&self) -> Vec<Address> {
        self.servers.iter().map(|it| it.address.clone()).collect()
    }

    /// The export of a volume that is configured so.
    pub fn export(&self, config: &ExportConfig) -> Option<Rc<VolumeExport>> {
        let exports = self.exports.borrow();
        let is_it = |export: &&Rc<VolumeExport>| is_but_capped(&export.config, config);
        exports.iter().find(is_it).cloned()
    }

    /// All volumes that have exports of their own.
    pub fn exports(&self) -> Vec<Rc<VolumeExport>> {
        self.exports.borrow().clone()
    }

    /// The configuration has these exports now: those that were there and differ in nothing but their caps stay.
    pub fn set_exports(&self, exports: &[ExportConfig]) {
        let all = exports::renewed(&self.exports(), exports, &self.cluster);
        *self.exports.borrow_mut() = all;
    }

    /// The exports of a volume, its name at the cluster's own addresses left out.
    pub fn exports_of(&self, volume: &Name) -> impl Iterator<Item = Rc<VolumeExport>> {
        let exports = self.exports().into_iter();
        exports.filter(move |export| export.volume.name == *volume)
    }

    /// Clients of a volume here now.
    pub fn clients(&self, volume: &Name) -> u64 {
        let exported: u64 = self.exports_of(volume).map(|export| export.clients()).sum();
        exported + self.clients_by_name(volume.as_str())
    }

    fn clients_by_name(&self, volume: &str) -> u64 {
        let servers = self.servers.iter();
        servers.map(|it| it.server.clients_of(volume)).sum()
    }

    /// What waits behind a volume's cap goes on at once.
    pub fn lift_caps(&self) {
        self.cluster.openings.lift_caps();
    }

    /// Lets clients finish, and closes volumes; says what went wrong.
    pub async fn close(&self) -> Vec<String> {
        self.tasks.borrow_mut().clear();
        self.reservations.stop();
        env::sync::join_all(self.servers.iter().map(|it| it.server.drain())).await;
        self.cluster.stop().await
    }
}

/// The stores that are to be registered, and why they are not yet.
fn to_register(
    config: &ClusterConfig,
    node: &Name,
    own: &[&Rc<OpenStore>],
) -> anyhow::Result<Vec<(NewStore, String)>> {
    let why = || "the meta store was not asked yet".to_owned();
    let each = own
        .iter()
        .map(|store| Ok((registration(config, node, store)?, why())));
    each.collect()
}

fn registration(
    config: &ClusterConfig,
    node: &Name,
    store: &Rc<OpenStore>,
) -> anyhow::Result<NewStore> {
    let name = &store.config.name;
    let addresses = store.addresses();
    let advertised = store
        .config
        .place
        .advertise
        .as_ref()
        .or(config::advertised(&addresses));
    let address = advertised.with_context(|| format!("store {name} listens nowhere"))?;
    Ok(NewStore {
        name: name.parse()?,
        uuid: store.node.store().uuid(),
        node: node.clone(),
        // A path is looked up from wherever the other one was started.
        address: from_anywhere(address),
        domain: config.domains[name].parse()?,
        rotating: store.rotating,
        leased: true,
        number: None,
    })
}

async fn keep_registering(open: Weak<OpenCluster>) {
    loop {
        {
            let Some(open) = open.upgrade() else { return };
            if open.waiting.borrow().is_empty() {
                return;
            }
            if let Err(error) = open.register().await {
                tracing::debug!(%error, "a store is not registered yet");
            }
        }
        env::sleep(REGISTER_AGAIN).await;
    }
}

/// Every volume, opened for the client that asks for it.
struct Volumes(Rc<Cluster>);

impl Supply for Volumes {
    fn open<'a>(&'a self, name: &'a str) -> Soon<'a, Result<Option<Supplied>, String>> {
        Box::pin(async move {
            let Ok(name) = name.parse::<Name>() else {
                return Ok(None);
            };
            match self.0.openings.open(&name).await {
                Ok(in_use) => {
                    let device: Rc<dyn Device> = in_use.volume().clone();
                    let device = in_use.capped(device);
                    Ok(Some(Supplied {
                        description: described(&in_use),
                        device,
                        read_only: false,
                        account: nbd::Account::default(),
                        hold: Box::new(in_use),
                    }))
                }
                Err(ClusterError::NoVolume { .. }) => Ok(None),
                Err(error) => {
                    tracing::warn!(volume = %name, %error, "a client asked for a volume that cannot be opened");
                    Err(error.to_string())
                }
            }
        })
    }

    fn list(&self) -> Soon<'_, Vec<(String, String)>> {
        Box::pin(async {
            match self.0.view.seen().await {
                Ok(all) => {
                    let names = all.into_iter().map(|it| it.record.name.to_string());
                    names.map(|name| (name, String::new())).collect()
                }
                Err(error) => {
                    tracing::warn!(%error, "a client asked for the volumes");
                    Vec::new()
                }
            }
        })
    }
}
