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

use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, anyhow};
use config::{Backing, Config, DeviceConfig, HybridConfig, Kind, StoreConfig};
use device::model::{ModelDisk, Spec, Store};
use device::{Device, FileOptions, Meter, Striped};
use env::fs::Direct;
use policy::share::Costs;
use store::qos::network::Network;
use tokio::sync::oneshot;

use super::common::disk_identity;
use super::common::pairs::{Memory, PairFile};
use super::common::polling::runtime;
use super::common::registry::Registry;
use super::common::restart::RestartFile;
use super::common::saved_settings::Keys;
use super::entrances::change::{self, begin_elsewhere};
use super::entrances::serve::{meter, serve};
use super::listeners::Listeners;
use super::plan::{Plan, members};
use super::thread::DataThread;
use super::thread::cluster::OpenCluster;
use super::thread::command::{Started, Things, ThreadHandle};
use super::thread::entrances::{Entrances, Terms};
use super::thread::hybrid::OpenVolume;
use super::thread::open::OpenDevice;
use super::thread::queued::Queued;
use super::thread::secured::Secured;
use super::thread::store::{Clients, OpenStore, Shared, assumed_costs};
use crate::daemon::common::heartbeat::Heartbeat;

/// Seed of a modelled device's chance (where its heads stand at the start, and such).
const MODEL_SEED: u64 = 1;

/// Starts one data thread. `started` hears when it is up, or why not.
pub fn start(
    plan: Plan,
    started: oneshot::Sender<anyhow::Result<Started>>,
) -> anyhow::Result<ThreadHandle> {
    let names = plan.names();
    let has = Things {
        devices: plan.devices.iter().map(|it| it.name.clone()).collect(),
        volumes: (plan.hybrids.iter().map(|it| it.name().to_owned())).collect(),
        stores: plan.stores.iter().map(|it| it.name.clone()).collect(),
        cluster: plan.cluster.is_some(),
    };
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
    Ok(ThreadHandle::new(names, has, posts, thread))
}

/// Builds what one data thread has, bottom to top. What was opened before a failure is closed again.
async fn build(plan: Plan, driver: &'static str) -> anyhow::Result<Rc<DataThread>> {
    let mut thread = DataThread::new(driver);
    thread.names = plan.names();
    thread.poll = plan.poll;
    thread.change_entrances = change::begin;
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

/// A hybrid on devices of `thread`. `missable`: it may be there without its cache, and answer nothing.
async fn open_hybrid(
    thread: &DataThread,
    (config, set): (HybridConfig, Keys),
    all: (&[DeviceConfig], &[HybridConfig]),
    data_dir: &Path,
    missable: bool,
) -> anyhow::Result<OpenVolume> {
    let (slow, fast) = (meter(thread, &config.slow), meter(thread, &config.fast));
    let is_kept = !ends_with_us(&config.slow, all.0, all.1);
    let memory = Memory {
        registry: Registry::in_dir(data_dir),
        pair: is_kept.then(|| PairFile::in_dir(data_dir, config.name())),
        verify: config.verify,
        mode: None,
        restart: RestartFile::of_volume(data_dir, config.name(), [&slow, &fast]).await,
        missable,
    };
    let queued = queued_of(&config, &slow, all, data_dir).await?;
    OpenVolume::open((config, set), (slow, queued), fast, memory).await
}

/// Does a hybrid or a store stand on the hybrid `name`?
fn is_beneath(name: &str, hybrids: &[HybridConfig], stores: &[StoreConfig]) -> bool {
    let hybrids = hybrids.iter().flat_map(|it| [&it.slow, &it.fast]);
    let stores = stores.iter().map(|store| &store.device);
    hybrids.chain(stores).any(|device| device == name)
}

async fn build_into(thread: &mut DataThread, plan: Plan) -> anyhow::Result<()> {
    let listeners = Listeners::open(&plan).await?;
    let (devices, hybrids) = (plan.devices.clone(), plan.hybrids.clone());
    for config in plan.devices {
        let meter = Meter::new(open(&config, thread).await?);
        thread.devices.push(OpenDevice { config, meter });
    }
    for config in plan.hybrids {
        let set = plan.kept.of(config.name());
        let missable = !is_beneath(config.name(), &hybrids, &plan.stores);
        let volume = open_hybrid(
            thread,
            (config, set),
            (&devices, &hybrids),
            &plan.data_dir,
            missable,
        );
        let volume = volume.await?;
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
    let terms = Terms {
        data_dir: plan.data_dir,
        socket_mode: plan.socket_mode,
        connections: plan.connections,
    };
    thread.entrances = Entrances::new(terms, plan.exports);
    for at in listeners.exports {
        serve(thread, at).await?;
    }
    let mut sockets = listeners.sockets;
    for export in thread.entrances.exports().iter() {
        begin_elsewhere(thread, export, &mut sockets).await?;
    }
    Ok(())
}

/// A store on a device of `thread`; what it sends and takes crosses `link`, if that is its node's.
async fn open_store(
    thread: &mut DataThread,
    config: StoreConfig,
    costs: Costs,
    (data_dir, clients): (&Path, Clients),
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
