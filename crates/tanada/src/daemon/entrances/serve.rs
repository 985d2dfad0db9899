//! Lets clients in: at NBD addresses, as disks of the kernel.
//!
//! ```text
//! exports of an address -> nbd::Server | Gates -> device behind its flow and its cap
//! ```

use std::collections::BTreeMap;
use std::rc::Rc;

use config::ExportConfig;
use device::remote::Opened;
use device::{Capped, Device, DeviceError, Meter, Op, Throttle, ready};
use env::net::{Address, Listener};
use front::nbd;
use hybrid::Hybrid;

use crate::daemon::common::starts;
use crate::daemon::thread::DataThread;
use crate::daemon::thread::behind::{found_all, identities_of, missing_cache};
use crate::daemon::thread::cluster;
use crate::daemon::thread::disks::{Behind, Showing};
use crate::daemon::thread::exports::{AtAddress, VolumeExport};
use crate::daemon::thread::exports_wanted::{at, gates_at};
use crate::daemon::thread::gate::ExportView;
use crate::daemon::thread::gates::{Gates, GatesPlan, Open, Shown};
use crate::daemon::thread::open::{OpenServer, nbd_limits};

/// The device or volume called `name`, which the configuration says is there.
pub fn meter(thread: &DataThread, name: &str) -> Rc<Meter> {
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

/// What it takes to make an export a disk of the kernel.
pub fn showing(thread: &DataThread, export: &ExportConfig) -> Showing {
    let data_dir = &thread.entrances.terms.data_dir;
    let volume = thread.cluster.as_ref().and_then(|open| open.export(export));
    let (identity, former) = identities_of(thread, &export.device);
    Showing {
        export: export.clone(),
        data_dir: data_dir.clone(),
        identity,
        former,
        read_only: export.read_only || thread.is_read_only(&export.device),
        behind: match volume {
            Some(volume) => Behind::Volume(volume),
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
        starts::note_loss(&export.device);
    }
    let (source, _) = identities_of(thread, &export.device);
    starts::describe(&source, device.info().crash_keeping)
}

/// The volumes of the cluster that NBD clients find at an address.
pub(super) fn volumes_at(thread: &DataThread, address: &Address) -> Vec<Rc<VolumeExport>> {
    let volumes = thread.cluster.iter().flat_map(|open| open.exports());
    let here = |it: &Rc<VolumeExport>| it.config.nbd.contains(address);
    volumes.filter(here).collect()
}

/// Lets NBD clients in at an address, to all exports of it.
pub async fn serve(
    thread: &DataThread,
    (configured, listener, tls): (Address, Listener, Option<nbd::Tls>),
) -> anyhow::Result<()> {
    let exports = thread.entrances.exports();
    let connections = thread.entrances.terms.connections;
    let gates = gates_at(&exports, &configured);
    let volumes = volumes_at(thread, &configured);
    let limits = match volumes.is_empty() {
        true => nbd_limits(connections),
        false => cluster::limits(connections),
    };
    if gates > 0 {
        volumes
            .iter()
            .for_each(|it| it.found_at(listener.address()));
        let plan = GatesPlan {
            shown: through_gates(thread, &configured, volumes),
            configured,
            count: gates as usize,
            limits,
            tls,
            poll: thread.poll,
        };
        let gates = Gates::open(listener, plan).await?;
        thread.entrances.gates.borrow_mut().push(Rc::new(gates));
        return Ok(());
    }
    let server = nbd::Server::new(nbd::Config { limits, tls });
    for export in at(&exports, &configured) {
        add_to(&server, thread, export)?;
    }
    let address = listener.address().clone();
    let open = OpenServer {
        configured,
        address,
        volumes: AtAddress::begin(&server),
        server,
    };
    open.show(volumes);
    open.server.serve(listener);
    thread.entrances.servers.borrow_mut().push(Rc::new(open));
    Ok(())
}

/// Has a server show a device or hybrid; a volume comes in another way.
pub(super) fn add_to(
    server: &nbd::Server,
    thread: &DataThread,
    export: &ExportConfig,
) -> anyhow::Result<()> {
    if export.volume.is_some() {
        return Ok(());
    }
    server.add_export(nbd::Export {
        name: export.name.clone(),
        description: described(thread, export),
        device: exported(thread, export),
        read_only: export.read_only || thread.is_read_only(&export.device),
    })?;
    if let Some(hybrid) = missing_cache(thread, &export.device) {
        server.close_while(&export.name, Rc::new(move || hybrid.why_withheld()))?;
    }
    Ok(())
}

/// A device, what holds its clients back, and the hybrid that it is, if its cache is missed.
type CappedDevice = (Rc<dyn Device>, Option<Rc<Throttle>>, Option<Hybrid>);

/// What clients of gates at an address see, and how it is opened for them: devices first, as a server without gates has them.
pub(super) fn through_gates(
    thread: &DataThread,
    address: &Address,
    volumes: Vec<Rc<VolumeExport>>,
) -> Shown {
    let mut views = Vec::new();
    let mut devices: BTreeMap<String, CappedDevice> = BTreeMap::new();
    for export in at(&thread.entrances.exports(), address) {
        if export.volume.is_none() {
            views.push(ExportView {
                name: export.name.clone(),
                description: described(thread, export),
                read_only: export.read_only || thread.is_read_only(&export.device),
                leaving: nbd::Leaving::default(),
            });
            let device = flowed(thread, export);
            let throttle = thread.caps.of(export);
            let hybrid = missing_cache(thread, &export.device);
            devices.insert(export.name.clone(), (device, throttle, hybrid));
        }
    }
    views.extend(volumes.iter().map(|volume| ExportView {
        name: volume.config.name.clone(),
        description: String::new(),
        read_only: volume.config.read_only,
        leaving: nbd::Leaving::default(),
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
    Shown {
        exports: views,
        open,
    }
}
