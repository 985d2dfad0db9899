//! Devices and NBD servers that are open on a data thread.

use std::rc::Rc;

use config::DeviceConfig;
use device::Meter;
use env::net::Address;
use front::nbd;

use super::exports::{AtAddress, VolumeExport};
use crate::api;

/// A device that is open.
pub struct OpenDevice {
    pub config: DeviceConfig,
    pub meter: Rc<Meter>,
}

/// An address that NBD clients connect to.
pub struct OpenServer {
    pub configured: Address,
    /// The real one: port 0 asks for any.
    pub address: Address,
    pub server: Rc<nbd::Server>,
    /// Beside exports of its own.
    pub volumes: Rc<AtAddress>,
}

impl OpenServer {
    /// These volumes are found here from now on, and no others.
    pub fn show(&self, volumes: Vec<Rc<VolumeExport>>) {
        volumes.iter().for_each(|it| it.found_at(&self.address));
        self.volumes.set(volumes);
    }
}

/// An export that is served to virtual machines.
pub struct VhostDisk {
    /// Of its socket.
    pub address: Address,
    pub server: Rc<front::vhost::Server>,
}

/// What a server takes on that may have so many connections.
pub fn nbd_limits(connections: usize) -> nbd::Limits {
    nbd::Limits {
        connections,
        connections_per_host: connections - connections / 4,
        ..nbd::Limits::default()
    }
}

/// A client of NBD, for people.
pub fn report_client(of: nbd::ConnectionSnapshot) -> api::clients::NbdClient {
    api::clients::NbdClient {
        id: of.id,
        peer: of.peer,
        export: of.export,
        tls: of.tls,
        connected_seconds: of.age.secs_f64(),
        in_flight: of.counts.in_flight,
    }
}

/// An address of NBD, for people.
pub fn report_server(
    address: &Address,
    snapshot: nbd::ServerSnapshot,
) -> api::clients::NbdListener {
    let clients = snapshot.connections.into_iter().map(report_client);
    api::clients::NbdListener {
        address: address.to_string(),
        clients: clients.collect(),
        accepted: snapshot.accepted,
        turned_away: snapshot.turned_away,
        negotiations_failed: snapshot.negotiations_failed,
        stalled: snapshot.stalled,
        violations: snapshot.violations,
    }
}
