//! The ways from this node to the stores of its cluster: directly to its own, over their protocol to others.

use std::collections::BTreeMap;
use std::rc::Rc;

use base::Nanos;
use device::{AccountCaps, Throttle};
use env::net::Address;
use policy::share::BytesPerSec;
use store::net::client::{ClientOptions, Credentials};
use store::qos::manager::Manager;
use vdisk::cluster::Ways;
use vdisk::cluster::stores::StoreRecord;
use vdisk::replica::connect::{
    Connection, ConnectionError, Connector, LocalConnector, Pending, RemoteConnector,
};

use super::secured::Secured;
use crate::daemon::common::secrets;

/// A store at an address that is none.
struct NoConnector(String);

impl Connector for NoConnector {
    fn open_since<'a>(
        &'a self,
        _guard: &'a str,
        _mark: u64,
        _least: u64,
    ) -> Pending<'a, Rc<dyn Connection>> {
        Box::pin(async { Err(ConnectionError::Gone(self.0.clone())) })
    }
}

/// The ways to stores: here, or by their addresses.
pub(super) struct Reach {
    /// By identity.
    pub local: BTreeMap<u128, Rc<Manager>>,
    pub key: secrets::Key,
    pub tls: Option<Rc<Secured>>,
    /// What accounts get at most on this thread.
    pub accounts: Rc<AccountCaps>,
}

impl Ways for Reach {
    fn way(&self, store: &StoreRecord) -> (Rc<dyn Connector>, bool) {
        let uuid = u128::from_str_radix(&store.uuid, 16).ok();
        if let Some(node) = uuid.and_then(|uuid| self.local.get(&uuid)) {
            return (Rc::new(LocalConnector(Rc::clone(node))), true);
        }
        let connector: Rc<dyn Connector> = match store.address.parse::<Address>() {
            Ok(address) if address.is_tls() && self.tls.is_none() => Rc::new(NoConnector(format!(
                "store {} is at {address}, and this node has no certificate to come in with; make one with `tanada node \
                     create` and start again",
                store.name
            ))),
            Ok(address) if !address.is_tls() && !config::is_local(&address) => {
                Rc::new(NoConnector(format!(
                    "store {} is at {address}, where nothing is encrypted, and other machines can be asked in TLS alone; write \
                     listen = \"tls:...\" on its node",
                    store.name
                )))
            }
            Ok(address) => Rc::new(RemoteConnector {
                address,
                uuid,
                credentials: Credentials::NodeKey(self.key),
                options: ClientOptions {
                    opening: Nanos::secs(4),
                    tls: self
                        .tls
                        .as_ref()
                        .map(|tls| tls.to_node(store.node.as_str())),
                    ..ClientOptions::default()
                },
            }),
            Err(error) => Rc::new(NoConnector(format!("store {}: {error}", store.name))),
        };
        (connector, false)
    }

    fn account_cap(&self, account: &str) -> Option<Rc<Throttle>> {
        Some(self.accounts.of(account))
    }

    fn booked(&self, holder: &str) -> [BytesPerSec; 2] {
        let mut most = [BytesPerSec(0); 2];
        for manager in self.local.values() {
            for reserved in manager.reservations() {
                let request = &reserved.request;
                if request.holder == holder && manager.now() < request.slot.end {
                    let most = &mut most[request.direction as usize];
                    *most = request.rate.max(*most);
                }
            }
        }
        most
    }
}
