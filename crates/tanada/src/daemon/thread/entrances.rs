//! Where clients of a data thread come: NBD addresses, sockets of virtual machines, and disks of the kernel.
//!
//! What stands there, and how it ends; `daemon::entrances` puts it there.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;

use config::ExportConfig;
use env::net::Address;
use env::sync::Event;
use front::nbd::{Soon, Tls};

use super::disks::Disks;
use super::exports_wanted::Difference;
use super::gates::Gates;
use super::open::{OpenServer, VhostDisk};
use super::unserved::Unserved;

/// What holds for all clients of a data thread.
#[derive(Debug, Clone, Default)]
pub struct Terms {
    pub data_dir: PathBuf,
    /// Permissions of Unix sockets.
    pub socket_mode: u32,
    /// Connections that each server takes.
    pub connections: usize,
}

/// What the check of a change has opened.
pub struct Prepared {
    pub difference: Difference,
    /// Of new addresses, and new sockets of virtual machines.
    pub listeners: Unserved,
    /// Of each address.
    pub tls: Vec<(Address, Option<Tls>)>,
    /// Of those of the cluster's volumes.
    pub cluster_tls: Option<Tls>,
}

/// Exports are being changed, until this is dropped.
pub struct Changing(Rc<Turn>);

/// Whose turn it is: a change, or the end.
#[derive(Default)]
struct Turn {
    changes: Cell<bool>,
    closes: Cell<bool>,
    changed: Event,
}

impl Drop for Changing {
    fn drop(&mut self) {
        self.0.changes.set(false);
        self.0.changed.notify_all();
    }
}

/// See the module's head.
#[derive(Default)]
pub struct Entrances {
    pub terms: Terms,
    pub exports: RefCell<Rc<[ExportConfig]>>,
    pub servers: RefCell<Vec<Rc<OpenServer>>>,
    /// Addresses whose clients are served by threads of their own.
    pub gates: RefCell<Vec<Rc<Gates>>>,
    /// Those for virtual machines.
    pub sockets: RefCell<Vec<Rc<VhostDisk>>>,
    /// Exports that the kernel shows.
    pub disks: Rc<Disks>,
    /// A change that was checked, and is not made yet.
    pub prepared: RefCell<Option<Prepared>>,
    turn: Rc<Turn>,
}

impl Entrances {
    /// Of these exports, none of which is served yet.
    pub fn new(terms: Terms, exports: Vec<ExportConfig>) -> Entrances {
        Entrances {
            terms,
            exports: RefCell::new(exports.into()),
            ..Entrances::default()
        }
    }

    /// What is exported.
    pub fn exports(&self) -> Rc<[ExportConfig]> {
        Rc::clone(&self.exports.borrow())
    }

    /// What is exported, and what is to be if a change that was checked is made.
    pub fn wanted(&self) -> Vec<ExportConfig> {
        let prepared = self.prepared.borrow();
        let new = prepared.iter().flat_map(|it| &it.difference.new);
        self.exports().iter().chain(new).cloned().collect()
    }

    pub fn servers(&self) -> Vec<Rc<OpenServer>> {
        self.servers.borrow().clone()
    }

    pub fn gates(&self) -> Vec<Rc<Gates>> {
        self.gates.borrow().clone()
    }

    /// Where virtual machines find an export.
    pub fn socket(&self, export: &ExportConfig) -> Option<Rc<VhostDisk>> {
        let sockets = self.sockets.borrow();
        let is_it = |disk: &&Rc<VhostDisk>| Some(&disk.address) == export.vhost_user.as_ref();
        sockets.iter().find(is_it).cloned()
    }

    /// The addresses at which NBD clients really find an export: port 0 asks for any.
    pub fn addresses(&self, export: &ExportConfig) -> Vec<Address> {
        let (servers, gates) = (self.servers.borrow(), self.gates.borrow());
        let find = |configured: &Address| {
            let servers = servers.iter().map(|it| (&it.configured, &it.address));
            let gates = gates.iter().map(|it| (&it.configured, &it.address));
            let mut all = servers.chain(gates);
            let (_, address) = all.find(|(known, _)| *known == configured)?;
            Some(address.clone())
        };
        export.nbd.iter().filter_map(find).collect()
    }

    /// Exports change from now on, unless another change is under way or the thread closes.
    pub fn begin_change(&self) -> Option<Changing> {
        let turn = &self.turn;
        if turn.closes.get() || turn.changes.replace(true) {
            return None;
        }
        Some(Changing(Rc::clone(turn)))
    }

    /// No change begins any more; waits for the end of the one under way.
    pub async fn begin_closing(&self) {
        self.turn.closes.set(true);
        self.prepared.take();
        while self.turn.changes.get() {
            self.turn.changed.wait().await;
        }
    }

    /// Gates take no further client.
    pub fn close_gates(&self) {
        self.gates.borrow().iter().for_each(|gates| gates.close());
    }

    /// Lets clients finish, and ends the kernel's disks; what went wrong.
    pub async fn drain(&self) -> Vec<String> {
        let (servers, gates) = (self.servers(), self.gates());
        // Together: each may wait for its slowest client.
        let servers = servers
            .iter()
            .map(|it| Box::pin(it.server.drain()) as Soon<'_, ()>);
        let gates = gates.iter().map(|it| Box::pin(it.drain()) as Soon<'_, ()>);
        env::sync::join_all(servers.chain(gates)).await;
        let sockets = self.sockets.borrow().clone();
        env::sync::join_all(sockets.iter().map(|socket| socket.server.drain())).await;
        self.disks.close().await
    }
}
