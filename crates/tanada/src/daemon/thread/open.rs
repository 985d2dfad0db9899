//! Devices and NBD servers that are open on a data thread.

use std::rc::Rc;

use config::DeviceConfig;
use device::Meter;
use env::net::Address;
use front::nbd;

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
}

/// What a server takes on that may have so many connections.
pub fn nbd_limits(connections: usize) -> nbd::Limits {
    nbd::Limits {
        connections,
        connections_per_host: connections - connections / 4,
        ..nbd::Limits::default()
    }
}
