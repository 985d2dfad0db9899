//! Builds all devices, hybrids, stores and exports of a configuration.
//!
//! ```text
//! configuration -> data threads: what shares a device, hybrid or NBD address lives on one thread
//!
//!   export    front::nbd::Server   one per address, all exports of that address
//!   cluster   vdisk::cluster       virtual disks with copies in stores, here and elsewhere (thread::cluster)
//!   store     store::net::server        objects and reservations (thread::store)
//!                 |
//!   volume    Meter                figures of what clients ask
//!             hybrid::Hybrid       cache of the slow device on the fast one; a queue before that, if configured (thread::queued)
//!                 |
//!   device    Meter                figures of what the engine asks
//!             File | ModelDisk | Memory | Striped, on the meters of its members
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, anyhow};
use base::{Map, Nanos};
use config::{
    Backing, ClusterConfig, Config, DeviceConfig, ExportConfig, HybridConfig, Kind, StoreConfig,
};
use device::model::{ModelDisk, Spec, Store};
use device::{Device, FileOptions, Meter, Striped};
use env::fs::Direct;
use env::net::Listener;
use policy::poll::Setting;
use policy::share::Costs;
use store::qos::network::Network;
use tokio::sync::oneshot;

use super::common::disk_identity;
use super::common::pairs::{Memory, PairFile};
use super::common::polling::runtime;
use super::common::registry::Registry;
use super::common::restart::RestartFile;
use super::common::revocation::Revocation;
use super::common::saved_settings::SavedSettings;
use super::entrances::{Listeners, meter, serve, showing};
use super::thread::DataThread;
use super::thread::cluster::OpenCluster;
use super::thread::command::{Started, ThreadHandle};
use super::thread::hybrid::OpenVolume;
use super::thread::open::OpenDevice;
use super::thread::queued::Queued;
use super::thread::secured::Secured;
use super::thread::store::{OpenStore, Shared, assumed_costs};
use super::thread::vhost::VhostDisk;
use crate::daemon::common::heartbeat::Heartbeat;

/// How long to wait for an address that another process has.
pub(super) const ADDRESS_TIMEOUT: Nanos = Nanos::secs(2);
/// Seed of a modelled device's chance (where its heads stand at the start, and such).
const MODEL_SEED: u64 = 1;

/// The group of this node's part of a cluster; a name has no colon.
const CLUSTER: &str = "cluster:";

/// What one data thread is to build.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    pub data_dir: PathBuf,
    /// Permissions of Unix sockets.
    pub socket_mode: u32,
    /// What the thread does while it has nothing to do.
    pub poll: Setting,
    /// Connections that each server takes.
    pub connections: usize,
    /// Which certificates are revoked, from the other threads and to them.
    pub revocation: Revocation,
    pub devices: Vec<DeviceConfig>,
    pub hybrids: Vec<HybridConfig>,
    /// What was set of hybrids before.
    pub kept: SavedSettings,
    pub stores: Vec<StoreConfig>,
    pub cluster: Option<ClusterConfig>,
    pub exports: Vec<ExportConfig>,
}

impl Plan {
    /// What to call the data thread: what stands at its top.
    pub fn names(&self) -> Vec<String> {
        let exports = self.exports.iter().map(|export| export.device.clone());
        let stores = self.stores.iter().map(|store| store.name.clone());
        let cluster = self.cluster.iter().map(|cluster| cluster.node.clone());
        let tops: Vec<String> = exports.chain(stores).chain(cluster).collect();
        match tops.is_empty() {
            true => self.devices.iter().map(|d| d.name.clone()).collect(),
            false => tops,
        }
    }
}

/// Names that belong together, found by joining two at a time.
#[derive(Default)]
struct Groups {
    number: Map<String, usize>,
    /// Leads from each to an earlier one of its group; the first leads to itself.
    earlier: Vec<usize>,
}

impl Groups {
    /// The number of the group's first member.
    fn of(&mut self, name: &str) -> usize {
        let fresh = self.earlier.len();
        let mut at = *self.number.entry(name.to_owned()).or_insert(fresh);
        if at == fresh {
            self.earlier.push(fresh);
        }
        while self.earlier[at] != at {
            at = self.earlier[at];
        }
        at
    }

    /// What of the configuration shares a device, a hybrid or an address. A name has no colon, so neither a store nor an
    /// address is ever mistaken for a device.
    fn in_use(config: &Config) -> Groups {
        let mut groups = Groups::default();
        for device in &config.devices {
            groups.of(&device.name);
        }
        for device in &config.devices {
            for member in members(device) {
                groups.join(&device.name, member);
            }
        }
        for hybrid in &config.hybrids {
            for part in [&hybrid.slow, &hybrid.fast] {
                groups.join(hybrid.name(), part);
            }
        }
        for store in &config.stores {
            groups.join(&store.device, &format!("store:{}", store.name));
        }
        if let Some(cluster) = &config.cluster {
            // Its stores live where it does: what is here needs no protocol.
            for store in &cluster.stores {
                groups.join(CLUSTER, &format!("store:{store}"));
            }
            for address in &cluster.nbd {
                groups.join(CLUSTER, &format!("nbd:{address}"));
            }
        }
        for export in &config.exports {
            for address in &export.nbd {
                groups.join(group_of(export), &format!("nbd:{address}"));
            }
        }
        groups
    }

    fn join(&mut self, one: &str, other: &str) {
        let (one, other) = (self.of(one), self.of(other));
        self.earlier[one.max(other)] = one.min(other);
    }
}

/// What a stripe is made of; nothing for a device by itself.
fn members(device: &DeviceConfig) -> &[String] {
    match &device.kind {
        Kind::Striped { members, .. } => members,
        _ => &[],
    }
}

/// Where what an export shows is: volumes are where the cluster is.
fn group_of(export: &ExportConfig) -> &str {
    match &export.volume {
        Some(_) => CLUSTER,
        None => &export.device,
    }
}

/// Cuts a configuration into data threads that share nothing. Devices without a user join the first one, where
/// they can be attached to its volumes.
pub fn threads(config: &Config) -> Vec<Plan> {
    let mut groups = Groups::in_use(config);
    let used = used(config);
    let is_used = |device: &&DeviceConfig| used.contains(&&*device.name);
    let (devices, spare): (Vec<_>, Vec<_>) = config.devices.iter().partition(is_used);
    let mut plans: BTreeMap<usize, Plan> = BTreeMap::new();
    for device in devices {
        let plan = plans.entry(groups.of(&device.name)).or_default();
        plan.devices.push(device.clone());
    }
    for hybrid in &config.hybrids {
        let plan = plans.entry(groups.of(hybrid.name())).or_default();
        plan.hybrids.push(hybrid.clone());
    }
    for store in &config.stores {
        let plan = plans.entry(groups.of(&store.device)).or_default();
        plan.stores.push(store.clone());
    }
    if let Some(cluster) = &config.cluster {
        let plan = plans.entry(groups.of(CLUSTER)).or_default();
        plan.cluster = Some(cluster.clone());
    }
    for export in &config.exports {
        let plan = plans.entry(groups.of(group_of(export))).or_default();
        plan.exports.push(export.clone());
    }
    let mut plans: Vec<Plan> = plans.into_values().collect();
    for plan in &mut plans {
        plan.data_dir.clone_from(&config.data_dir);
        plan.socket_mode = config.socket_mode;
        let said = plan.exports.iter().filter_map(|export| export.poll);
        plan.poll = said.max().unwrap_or(config.poll);
    }
    let first = plans
        .iter()
        .position(|plan| !plan.hybrids.is_empty())
        .unwrap_or(0);
    for device in spare {
        match plans.get_mut(first) {
            Some(plan) => plan.devices.push(device.clone()),
            None => plans.push(Plan {
                data_dir: config.data_dir.clone(),
                devices: vec![device.clone()],
                ..Plan::default()
            }),
        }
    }
    plans
}

/// The devices that something of the configuration uses.
fn used(config: &Config) -> Vec<&str> {
    let mut used: Vec<&str> = Vec::new();
    for hybrid in &config.hybrids {
        used.extend([&*hybrid.slow, &*hybrid.fast]);
    }
    used.extend(config.stores.iter().map(|store| &*store.device));
    used.extend(config.exports.iter().map(|export| &*export.device));
    // A stripe comes after its members, so what it is used for is known before they are looked at.
    for device in config.devices.iter().rev() {
        if used.contains(&&*device.name) {
            used.extend(members(device).iter().map(String::as_str));
        }
    }
    used
}

/// Starts one data thread. `started` hears when it is up, or why not.
pub fn start(
    plan: Plan,
    started: oneshot::Sender<anyhow::Result<Started>>,
) -> anyhow::Result<ThreadHandle> {
    let names = plan.names();
    let volumes: Vec<String> = plan.hybrids.iter().map(|h| h.name().to_owned()).collect();
    let stores: Vec<String> = plan.stores.iter().map(|store| store.name.clone()).collect();
    let cluster = plan.cluster.is_some();
    let (poster, mailbox) = env::mailbox();
    let heartbeat = Heartbeat::new();
    let beating = heartbeat.clone();
    // The kernel shows 15 bytes of a thread's name.
    let name: String = format!("data {}", names.first().map_or("", String::as_str))
        .chars()
        .take(15)
        .collect();
    // A data thread: it runs a runtime of `env`, and is waited for at the end.
    let thread = std::thread::Builder::new()
        .name(name)
        .spawn(move || {
            let runtime = match runtime(plan.poll) {
                Ok(runtime) => runtime,
                Err(error) => {
                    // No receiver is left: then the daemon is ending anyway.
                    let _ = started.send(Err(anyhow!("cannot make a data runtime: {error}")));
                    return;
                }
            };
            let driver = runtime.driver_name();
            runtime.block_on(async move {
                env::spawn(beating.beat());
                match build(plan, driver).await {
                    Ok(thread) => {
                        let _ = started.send(Ok(thread.started()));
                        thread.run(mailbox).await;
                    }
                    Err(error) => {
                        let _ = started.send(Err(error));
                    }
                }
            });
        })
        .context("cannot start a thread")?;
    let posts = (poster, heartbeat);
    Ok(ThreadHandle::new(
        names, volumes, stores, cluster, posts, thread,
    ))
}

/// Builds what one data thread has, bottom to top. What was opened before a failure is closed again.
async fn build(plan: Plan, driver: &'static str) -> anyhow::Result<Rc<DataThread>> {
    let mut thread = DataThread::new(driver);
    thread.names = plan.names();
    thread.poll = plan.poll;
    match build_into(&mut thread, plan).await {
        Ok(()) => Ok(Rc::new(thread)),
        Err(error) => {
            for trouble in thread.close().await {
                tracing::error!("{trouble}");
            }
            Err(error)
        }
    }
}

async fn build_into(thread: &mut DataThread, plan: Plan) -> anyhow::Result<()> {
    let listeners = Listeners::open(&plan).await?;
    let (devices, hybrids) = (plan.devices.clone(), plan.hybrids.clone());
    for config in plan.devices {
        let meter = Meter::new(open(&config, thread).await?);
        thread.devices.push(OpenDevice { config, meter });
    }
    for config in plan.hybrids {
        let (slow, fast) = (meter(thread, &config.slow), meter(thread, &config.fast));
        let kept = !ends_with_us(&config.slow, &devices, &hybrids);
        let restart = RestartFile::of_volume(&plan.data_dir, config.name(), [&slow, &fast]).await;
        let memory = Memory {
            registry: Registry::in_dir(&plan.data_dir),
            pair: kept.then(|| PairFile::in_dir(&plan.data_dir, config.name())),
            verify: config.verify,
            mode: None,
            restart,
        };
        let set = plan.kept.of(config.name());
        let queued = queued_of(&config, &slow, (&devices, &hybrids), &plan.data_dir).await?;
        let volume = OpenVolume::open((config, set), (slow, queued), fast, memory).await?;
        thread.volumes.push(volume);
    }
    let node = plan.cluster.as_ref().map(|cluster| cluster.node.as_str());
    thread.secured = Secured::open(&plan.data_dir, node, &plan.revocation)?;
    let link = plan.cluster.as_ref().map(|cluster| {
        let speed = cluster.network;
        let network = speed.map(|speed| Network::new(&cluster.node, speed));
        (network, cluster.stores.clone())
    });
    for (config, listeners) in plan.stores.into_iter().zip(listeners.stores) {
        let below = (&*config.device, config.assumed);
        let rotating = meter(thread, &config.device).info().rotational;
        let costs = assumed_costs(below, &devices, &hybrids, rotating);
        let clients = (listeners, plan.connections);
        open_store(thread, config, costs, (&plan.data_dir, clients), &link).await?;
    }
    if let Some(config) = plan.cluster {
        let (stores, exports) = (&thread.stores, &plan.exports);
        let (tls, entrances) = listeners.cluster;
        let clients = (tls, entrances, plan.connections);
        let shared = (thread.secured.as_ref(), thread.caps.of_accounts());
        let open = OpenCluster::open(config, exports, stores, clients, shared).await?;
        thread.cluster = Some(open);
    }
    thread.caps.set_exports(&plan.exports);
    thread.exports = plan.exports;
    for at in listeners.exports {
        serve(thread, at, plan.connections).await?;
    }
    for listener in listeners.sockets {
        let disk = VhostDisk::serve(thread, listener, &plan.data_dir);
        thread.sockets.push(disk);
    }
    for export in thread.exports.clone().iter().filter(|export| export.ublk) {
        let showing = showing(thread, export, &plan.data_dir);
        thread.disks.show(showing).await?;
    }
    Ok(())
}

/// A store on a device of `thread`; what it sends and takes crosses `link`, if that is its node's.
async fn open_store(
    thread: &mut DataThread,
    config: StoreConfig,
    costs: Costs,
    (data_dir, clients): (&Path, (Vec<Listener>, usize)),
    link: &Option<(Option<Rc<Network>>, Vec<String>)>,
) -> anyhow::Result<()> {
    let of_node = |(_, stores): &&(Option<Rc<Network>>, Vec<String>)| stores.contains(&config.name);
    let link = link.as_ref().filter(of_node);
    let shared = Shared {
        tls: thread.secured.as_ref(),
        accounts: thread.caps.of_accounts(),
        network: link.and_then(|(network, _)| network.as_ref()),
        is_of_cluster: link.is_some(),
    };
    let device = meter(thread, &config.device);
    let store = OpenStore::open(config, (device, costs), data_dir, clients, shared).await?;
    thread.caps.add_store(&store.node);
    thread.stores.push(store);
    Ok(())
}

/// The queue before the slow device of a hybrid, if it has one.
async fn queued_of(
    config: &HybridConfig,
    slow: &Rc<Meter>,
    (devices, hybrids): (&[DeviceConfig], &[HybridConfig]),
    data_dir: &Path,
) -> anyhow::Result<Option<Queued>> {
    let Some(queue) = config.queue else {
        return Ok(None);
    };
    let below = (&*config.slow, queue.assumed);
    let costs = assumed_costs(below, devices, hybrids, slow.info().rotational);
    let slow: Rc<dyn Device> = Rc::clone(slow) as _;
    let slow = (slow, disk_identity::of_device(&config.slow, devices));
    let opened = Queued::open(config.name(), queue, slow, costs, data_dir).await;
    opened.map(Some)
}

/// Is what a device or hybrid holds gone when the daemon ends?
pub fn ends_with_us(name: &str, devices: &[DeviceConfig], hybrids: &[HybridConfig]) -> bool {
    if let Some(hybrid) = hybrids.iter().find(|it| it.name() == name) {
        return ends_with_us(&hybrid.slow, devices, hybrids);
    }
    let device = devices.iter().find(|device| device.name == name);
    match device.map(|device| &device.kind) {
        Some(Kind::Memory { .. }) => true,
        Some(Kind::Model { backing, .. }) => *backing == Backing::Memory,
        Some(Kind::Striped { members, .. }) => members
            .iter()
            .any(|member| ends_with_us(member, devices, hybrids)),
        Some(Kind::Path { .. }) | None => false,
    }
}

/// Opens one device of the configuration; the members of a stripe are open in `thread` already.
async fn open(config: &DeviceConfig, thread: &DataThread) -> anyhow::Result<Rc<dyn Device>> {
    let name = config.name.as_str();
    let file = |path, direct, create| {
        device::File::open(
            name,
            path,
            FileOptions {
                read_only: config.read_only,
                direct,
                force: config.force,
                create,
                block_min: None,
            },
        )
        .with_context(|| format!("device {name}"))
    };
    Ok(match &config.kind {
        Kind::Path {
            path,
            direct,
            create,
        } => file(path, *direct, *create)?,
        Kind::Memory { size } => device::Memory::new(name, *size),
        Kind::Striped { members, chunk } => {
            let mut parts: Vec<Rc<dyn Device>> = Vec::new();
            for member in members {
                parts.push(meter(thread, member));
            }
            Striped::new(name, parts, *chunk)?
        }
        Kind::Model {
            model,
            size,
            backing,
        } => {
            let store = match backing {
                Backing::Memory => Store::Memory,
                Backing::File(path) => Store::Device(file(path, Direct::Auto, Some(*size))?),
            };
            let spec = Spec::find(model).with_context(|| format!("device {name}"))?;
            ModelDisk::new(name, &spec, Some(*size), store, MODEL_SEED)
                .with_context(|| format!("device {name}"))?
        }
    })
}

/// Opens one device of a configuration by itself. A file that is not there is not made.
pub async fn open_alone(config: &Config, name: &str) -> anyhow::Result<Rc<dyn Device>> {
    let find = |name: &str| {
        let found = config.devices.iter().find(|device| device.name == name);
        let mut found = found.cloned().expect("the configuration was checked");
        if let Kind::Path { create, .. } = &mut found.kind {
            *create = None;
        }
        found
    };
    let device = find(name);
    let mut thread = DataThread::new("");
    for member in members(&device) {
        let config = find(member);
        let meter = Meter::new(open(&config, &thread).await?);
        thread.devices.push(OpenDevice { config, meter });
    }
    open(&device, &thread).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole_plans(rest: &str) -> Vec<Plan> {
        let mut text = String::new();
        for name in ["a", "b", "c", "d", "e"] {
            text.push_str(&format!(
                "[[device]]\nname = \"{name}\"\nmemory = true\nsize = \"8MiB\"\n"
            ));
        }
        let config = config::read(&(text + rest), "test", None).unwrap();
        threads(&config)
    }

    fn plans(rest: &str) -> Vec<Vec<String>> {
        whole_plans(rest)
            .iter()
            .map(|plan| plan.devices.iter().map(|d| d.name.clone()).collect())
            .collect()
    }

    #[test]
    fn the_busiest_setting_of_a_threads_exports_counts_for_it() {
        let exports = |settings: [&str; 3]| {
            let places = ["unix:x", "unix:x", "unix:c"];
            let exports = ["a", "b", "c"].iter().zip(places).zip(settings);
            let export = exports.map(|((device, nbd), poll)| {
                format!("[[export]]\ndevice = \"{device}\"\nnbd = \"{nbd}\"\n{poll}\n")
            });
            let plans = whole_plans(&export.collect::<String>());
            plans.iter().map(|plan| plan.poll).collect::<Vec<_>>()
        };
        let (off, always) = ("poll = \"off\"", "poll = \"always\"");
        let usual = Setting::Adaptive;
        assert_eq!(exports(["", "", ""]), [usual, usual]);
        assert_eq!(exports([off, "", ""]), [Setting::Off, usual]);
        assert_eq!(exports([off, always, off]), [Setting::Always, Setting::Off]);
    }

    #[test]
    fn what_shares_nothing_has_a_thread_of_its_own() {
        let threads = plans(
            "[[hybrid]]\nname = \"v\"\nslow = \"b\"\nfast = \"c\"\n\
             [[export]]\ndevice = \"a\"\nnbd = \"unix:a\"\n\
             [[export]]\ndevice = \"v\"\nnbd = \"unix:v\"\n",
        );
        // d and e are spare: they wait where they can be attached.
        assert_eq!(threads, [vec!["a"], vec!["b", "c", "d", "e"]]);
    }

    #[test]
    fn exports_at_one_address_share_a_thread() {
        let threads = plans(
            "[[export]]\ndevice = \"a\"\nnbd = \"unix:x\"\n\
             [[export]]\ndevice = \"b\"\nnbd = \"unix:b\"\n\
             [[export]]\ndevice = \"c\"\nnbd = [\"unix:c\", \"unix:x\"]\n",
        );
        assert_eq!(threads, [vec!["a", "c", "d", "e"], vec!["b"]]);
    }

    #[test]
    fn a_stripe_lives_where_its_members_do() {
        let stripe = "[[stripe]]\nname = \"s\"\ndevices = [\"b\", \"d\"]\n\
                      [[export]]\ndevice = \"a\"\nnbd = \"unix:a\"\n";
        let hybrid = "[[hybrid]]\nname = \"v\"\nslow = \"s\"\nfast = \"c\"\n\
                      [[export]]\ndevice = \"v\"\nnbd = \"unix:v\"\n";
        let used = plans(&format!("{stripe}{hybrid}"));
        assert_eq!(used, [vec!["a"], vec!["b", "c", "d", "s", "e"]]);
        assert_eq!(plans(stripe), [["a", "b", "c", "d", "e", "s"]]);
    }

    #[test]
    fn a_store_lives_where_its_device_does() {
        let threads = plans(
            "[[stripe]]\nname = \"s\"\ndevices = [\"b\", \"d\"]\n\
             [[store]]\nname = \"o\"\ndevice = \"s\"\nlisten = \"unix:o\"\n\
             [[export]]\ndevice = \"a\"\nnbd = \"unix:a\"\n",
        );
        assert_eq!(threads, [vec!["a", "c", "e"], vec!["b", "d", "s"]]);
    }

    #[test]
    fn an_export_of_a_volume_is_on_the_clusters_thread_with_all_at_its_address() {
        let threads = plans(
            "[[store]]\nname = \"o\"\ndevice = \"b\"\nlisten = \"unix:o\"\n[cluster]\nnode = \"n1\"\n\
             [[export]]\ndevice = \"volume:vm1\"\nnbd = \"unix:x\"\n\
             [[export]]\ndevice = \"a\"\nnbd = \"unix:a\"\n\
             [[export]]\ndevice = \"c\"\nnbd = \"unix:x\"\n",
        );
        assert_eq!(threads, [vec!["a", "d", "e"], vec!["b", "c"]]);
    }

    #[test]
    fn devices_without_an_export_still_have_a_thread() {
        assert_eq!(plans(""), [["a", "b", "c", "d", "e"]]);
    }
}
