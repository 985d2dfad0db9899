//! Exports that virtual machines connect to (vhost-user-blk).
//!
//! ```text
//! a client connects -> the device, or the volume of the cluster, opened for it -> front::vhost
//! ```
//!
//! Always true: a client that comes back after the death of a daemon is served only over a device that shows every write
//! that was answered.

use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;

use device::Device;
use env::net::Listener;
use front::ublk::recover::{Identity, server_number};
use front::vhost::{GuestBook, Opened, Server, Source};
use hybrid::Hybrid;

use super::DataThread;
use super::behind::{found_all, identities_of, missing_cache};
use super::exports::VolumeExport;
use super::open::VhostDisk;
use super::ublk::daemon_of;
use crate::daemon::common::guests::GuestFile;

/// Takes clients from `listener`, which was opened for an export of the daemon with this data directory.
///
/// # Panics
/// If there is no such export or device: the configuration was checked.
pub fn serve(thread: &DataThread, listener: Listener, data_dir: &Path) -> VhostDisk {
    let address = listener.address().clone();
    let exports = thread.entrances.exports();
    let mut exports = exports.iter();
    let export = exports.find(|export| export.vhost_user.as_ref() == Some(&address));
    let export = export.expect("the socket was opened for it");
    let volume = thread.cluster.as_ref().and_then(|open| open.export(export));
    let identity = server_number(Identity {
        daemon: &daemon_of(data_dir),
        export: &export.name,
        device: &identities_of(thread, &export.device).0,
    });
    let lasting = Lasting {
        identity,
        book: Rc::new(GuestFile::in_dir(data_dir, identity)),
    };
    let source: Rc<dyn Source> = match volume {
        Some(volume) => Rc::new(OfVolume(volume, lasting)),
        None => {
            let device = thread.find(&export.device);
            let device = device.expect("the configuration was checked");
            let found_all = found_all(thread, &export.device, &*device);
            let flowed = thread.flowed(export).unwrap_or(device);
            Rc::new(OfDevice {
                found_all,
                waits_for: missing_cache(thread, &export.device),
                lasting,
                read_only: export.read_only || thread.is_read_only(&export.device),
                device: thread.caps.capped(export, flowed),
            })
        }
    };
    let server = Server::new(&export.name, source);
    server.serve(listener);
    VhostDisk { address, server }
}

type Soon<'a> = Pin<Box<dyn Future<Output = Result<Opened, String>> + 'a>>;

/// What outlives a client.
struct Lasting {
    /// The number of its disk.
    identity: u64,
    book: Rc<dyn GuestBook>,
}

struct OfDevice {
    device: Rc<dyn Device>,
    read_only: bool,
    lasting: Lasting,
    /// At the opening.
    found_all: bool,
    /// The hybrid, if its cache was missed at the start.
    waits_for: Option<Hybrid>,
}

impl Source for OfDevice {
    fn open(&self) -> Soon<'_> {
        let opened = Opened {
            device: Rc::clone(&self.device),
            read_only: self.read_only,
            identity: self.lasting.identity,
            book: Rc::clone(&self.lasting.book),
            // A hybrid may have lost its restart log since.
            found_all: self.found_all && self.device.info().crash_keeping,
            hold: Box::new(()),
        };
        let why = self.waits_for.as_ref().and_then(Hybrid::why_withheld);
        Box::pin(async { why.map_or(Ok(opened), Err) })
    }
}

struct OfVolume(Rc<VolumeExport>, Lasting);

impl Source for OfVolume {
    fn open(&self) -> Soon<'_> {
        Box::pin(async {
            let supplied = self.0.open().await?;
            Ok(Opened {
                found_all: supplied.device.info().crash_keeping,
                device: supplied.device,
                identity: self.1.identity,
                book: Rc::clone(&self.1.book),
                read_only: supplied.read_only,
                hold: supplied.hold,
            })
        })
    }
}
