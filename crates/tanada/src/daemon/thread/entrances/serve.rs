//! Where clients of a data thread come: NBD addresses, stores' addresses, and disks of the kernel.
//!
//! Always true: every address is listened at before any disk is touched.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use config::ExportConfig;
use device::remote::Opened;
use device::{Capped, Device, DeviceError, Meter, Op, Throttle, ready};
use env::net::{Address, Listener};
use front::nbd;
use hybrid::Hybrid;

use super::common::starts;
use super::listen::{listen, read_tls};
use super::plan::Plan;
use super::thread::DataThread;
use super::thread::behind::{found_all, identity_of, missing_cache};
use super::thread::cluster;
use super::thread::disks::{Behind, Showing};
use super::thread::exports::{AtAddress, VolumeExport};
use super::thread::gate::ExportView;
use super::thread::gates::{Gates, GatesPlan, Open};
use super::thread::open::{OpenServer, nbd_limits};

/// The device or volume called `name`, which the configuration says is there.
pub(super) fn meter(thread: &DataThread, name: &str) -> Rc<Meter> {
    thread.find(name).expect("the configuration was checked")
}

/// The device behind an export by what is promised to it, without its cap.
fn flowed(thread: &DataThread, export: &ExportConfig) -> Rc<dyn Device> {
    let device = thread.flowed(export);
    device.expect("the configuration was checked")
}

/// The same as its clients have it.
fn exported(thread: &DataThread, export: &ExportConfig) -> Rc<dyn Device> {
    thread.caps.capped(export, flowed(thread, export))
}

/// Where clients of a data thread come. Opened first: a port that is taken is found before any disk is touched.
pub(super) struct Listeners {
    pub exports: Vec<(Address, Listener, Option<nbd::Tls>)>,
    /// Where virtual machines connect.
    pub sockets: Vec<Listener>,
    /// Those of each store.
    pub stores: Vec<Vec<Listener>>,
    pub cluster: (Option<nbd::Tls>, Vec<(Address, Listener)>),
}

impl Listeners {
    pub async fn open(plan: &Plan) -> anyhow::Result<Listeners> {
        let mut exports: Vec<(Address, Listener, Option<nbd::Tls>)> = Vec::new();
        for export in &plan.exports {
            for address in &export.nbd {
                if exports.iter().all(|(known, _, _)| known != address) {
                    let tls = export.tls.as_ref().map(read_tls).transpose()?;
                    let what = ("NBD clients", "[[export]] nbd");
                    let listener = listen(address, plan.socket_mode, what).await?;
                    exports.push((address.clone(), listener, tls));
                }
            }
        }
        let mut sockets = Vec::new();
        for export in &plan.exports {
            if let Some(address) = &export.vhost_user {
                let what = ("virtual machines", "[[export]] vhost-user");
                let listener = listen(address, plan.socket_mode, what).await?;
                sockets.push(listener);
            }
        }
        let mut stores = Vec::new();
        for store in &plan.stores {
            let mut listeners = Vec::new();
            for address in &store.listen {
                let what = ("clients of a store", "[[store]] listen");
                listeners.push(listen(address, plan.socket_mode, what).await?);
            }
            stores.push(listeners);
        }
        let tls = plan.cluster.as_ref().and_then(|it| it.tls.as_ref());
        let tls = tls.map(read_tls).transpose()?;
        let mut entrances = Vec::new();
        for address in plan.cluster.iter().flat_map(|cluster| &cluster.nbd) {
            let what = ("NBD clients", "[cluster] nbd");
            let listener = listen(address, plan.socket_mode, what).await?;
            entrances.push((address.clone(), listener));
        }
        Ok(Listeners {
            exports,
            sockets,
            stores,
            cluster: (tls, entrances),
        })
    }
}

/// What it takes to make an export a disk of the kernel.
pub(super) fn showing(thread: &DataThread, export: &ExportConfig, data_dir: &Path) -> Showing {
    let volume = thread.cluster.as_ref().and_then(|open| open.export(export));
    Showing {
        export: export.clone(),
        data_dir: data_dir.to_owned(),
        identity: identity_of(thread, &export.device),
        read_only: export.read_only || thread.is_read_only(&export.device),
        behind: match volume {
            Some(volume) => Behind::Volume(Rc::clone(volume)),
            None => {
                let device = meter(thread, &export.device);
                let found_all = found_all(thread, &export.device, &*device);
                match missing_cache(thread, &export.device) {
                    Some(hybrid) => Behind::Hybrid(hybrid, exported(thread, export)),
                    None => Behind::Device(exported(thread, export), found_all),
                }
            }
        },
    }
}

/// What the export of a device or hybrid says of itself: whether a client of before may go on.
fn described(thread: &DataThread, export: &ExportConfig) -> String {
    let device = meter(thread, &export.device);
    // One whose cache is missed has another source from now on: others go on.
    let misses = missing_cache(thread, &export.device).is_some();
    if !misses && !found_all(thread, &export.device, &*device) {
        starts::note_loss();
    }
    let source = identity_of(thread, &export.device);
    let source = starts::since_missed_caches(source, &export.device);
    starts::describe(&source, device.info().crash_keeping)
}

/// Lets NBD clients in at an address, to all exports of it.
pub(super) async fn serve(
    thread: &mut DataThread,
    (configured, listener, tls): (Address, Listener, Option<nbd::Tls>),
    connections: usize,
) -> anyhow::Result<()> {
    let here = |export: &ExportConfig| export.nbd.contains(&configured);
    let exports = thread.exports.iter().filter(|export| here(export));
    let gates = exports.map(|export| export.gates).max().unwrap_or(0);
    let volumes = thread.cluster.iter().flat_map(|open| &open.exports);
    let volumes: Vec<_> = volumes.filter(|it| here(&it.config)).cloned().collect();
    let limits = match volumes.is_empty() {
        true => nbd_limits(connections),
        false => cluster::limits(connections),
    };
    if gates > 0 {
        volumes
            .iter()
            .for_each(|it| it.found_at(listener.address()));
        let (exports, open) = through_gates(thread, &configured, volumes);
        let plan = GatesPlan {
            configured,
            count: gates as usize,
            limits,
            tls,
            poll: thread.poll,
            exports,
            open,
        };
        thread.gates.push(Gates::open(listener, plan).await?);
        return Ok(());
    }
    let server = nbd::Server::new(nbd::Config { limits, tls });
    for export in &thread.exports {
        if export.volume.is_none() && here(export) {
            let device = exported(thread, export);
            server.add_export(nbd::Export {
                name: export.name.clone(),
                description: described(thread, export),
                device,
                read_only: export.read_only || thread.is_read_only(&export.device),
            })?;
            if let Some(hybrid) = missing_cache(thread, &export.device) {
                server.close_while(&export.name, Rc::new(move || hybrid.why_withheld()))?;
            }
        }
    }
    let address = listener.address().clone();
    if !volumes.is_empty() {
        volumes.iter().for_each(|it| it.found_at(&address));
        server.set_supply(Rc::new(AtAddress(volumes)));
    }
    server.serve(listener);
    thread.servers.push(OpenServer {
        configured,
        address,
        server,
    });
    Ok(())
}

/// A device, what holds its clients back, and the hybrid that it is, if its cache is missed.
type CappedDevice = (Rc<dyn Device>, Option<Rc<Throttle>>, Option<Hybrid>);

/// What clients of gates at an address see, and how it is opened for them: devices first, as a server without gates has them.
fn through_gates(
    thread: &DataThread,
    address: &Address,
    volumes: Vec<Rc<VolumeExport>>,
) -> (Vec<ExportView>, Open) {
    let mut views = Vec::new();
    let mut devices: BTreeMap<String, CappedDevice> = BTreeMap::new();
    for export in &thread.exports {
        if export.volume.is_none() && export.nbd.contains(address) {
            views.push(ExportView {
                name: export.name.clone(),
                description: described(thread, export),
                read_only: export.read_only || thread.is_read_only(&export.device),
            });
            let device = flowed(thread, export);
            let throttle = thread.caps.of(export).cloned();
            let hybrid = missing_cache(thread, &export.device);
            devices.insert(export.name.clone(), (device, throttle, hybrid));
        }
    }
    views.extend(volumes.iter().map(|volume| ExportView {
        name: volume.config.name.clone(),
        description: String::new(),
        read_only: volume.config.read_only,
    }));
    let open: Open = Rc::new(move |name| {
        let refused = |device: &str, why| DeviceError::Gone {
            device: device.to_owned(),
            op: Op::Read,
            why,
        };
        if let Some((device, throttle, hybrid)) = devices.get(name) {
            if let Some(why) = hybrid.as_ref().and_then(Hybrid::why_withheld) {
                return ready(Err(refused(name, why)));
            }
            let device = Rc::clone(device);
            return ready(Ok(Opened::of(match throttle {
                // A client of its own.
                Some(throttle) => Capped::new(device, throttle),
                None => device,
            })));
        }
        let volume = volumes.iter().find(|it| it.config.name == name).cloned();
        let Some(volume) = volume else {
            return ready(Err(refused(name, format!("there is no export {name}"))));
        };
        let device = name.to_owned();
        Box::pin(async move {
            let supplied = volume.open_for_client().await;
            let supplied = supplied.map_err(|why| refused(&device, why))?;
            Ok(Opened::holding(supplied.device, supplied.hold))
        })
    });
    (views, open)
}
