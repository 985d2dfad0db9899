//! Volumes of the cluster that `[[export]]`s name: looked up when a client asks, on the export's own terms.
//!
//! ```text
//! a client names an export -> its volume, opened or joined -> read-only, priority, fairness, cap: the export's -> served
//! every few seconds: is the volume there, and how large is it? -> the report
//! ```
//!
//! Always true:
//! 1. An export whose volume is not there says so, to who asks for it and in the report, and nothing else suffers.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use base::Nanos;
use config::export::priority_name;
use config::{ExportConfig, VolumeConfig};
use device::{Capped, Device, Throttle};
use env::net::Address;
use front::nbd::{Account, Server, Soon, Supplied, Supply};
use policy::share::cap::Caps;
use vdisk::cluster::opened::Terms;
use vdisk::cluster::slots::InUse;
use vdisk::cluster::{Cluster, ClusterError};
use vdisk::record::Fairness;

use super::caps;
use crate::api;
use crate::daemon::common::address::nbd_uri;
use crate::daemon::common::starts;

/// Between two looks at the volumes.
const LOOK_EVERY: Nanos = Nanos::secs(2);

/// An export of a volume.
pub struct VolumeExport {
    // Fixed.
    pub config: ExportConfig,
    pub volume: VolumeConfig,
    cluster: Rc<Cluster>,
    // Once.
    addresses: RefCell<Vec<Address>>,
    // As it goes.
    account: Account,
    clients: Rc<Cell<u64>>,
    state: RefCell<VolumeState>,
    /// What its clients together get at most, under what the volume's get.
    throttle: Rc<Throttle>,
}

/// What is known of its volume.
#[derive(Default)]
struct VolumeState {
    size: u64,
    terms: Terms,
    /// Why no client gets it now.
    why: Option<String>,
}

/// What a volume says of itself to clients.
pub(super) fn described(in_use: &InUse) -> String {
    let (first, last) = in_use.openings();
    let number = in_use.volume().record().id.0;
    starts::describe_virtual(number, (first.0, last.0))
}

/// A client of an export; gone when dropped.
struct Served {
    clients: Rc<Cell<u64>>,
    _in_use: InUse,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.clients.set(self.clients.get() - 1);
    }
}

impl VolumeExport {
    /// Of an export that names a volume; else nothing.
    pub fn of(config: &ExportConfig, cluster: &Rc<Cluster>) -> Option<Rc<VolumeExport>> {
        let export = Rc::new(VolumeExport {
            volume: config.volume.clone()?,
            config: config.clone(),
            cluster: Rc::clone(cluster),
            addresses: RefCell::default(),
            account: Account::default(),
            clients: Rc::default(),
            state: RefCell::default(),
            throttle: Throttle::new(config.caps),
        });
        env::spawn(keep_looking(Rc::downgrade(&export)));
        Some(export)
    }

    /// Clients of it now.
    pub fn clients(&self) -> u64 {
        self.clients.get()
    }

    /// Clients are let in there.
    pub fn found_at(&self, address: &Address) {
        let mut addresses = self.addresses.borrow_mut();
        if !addresses.contains(address) {
            addresses.push(address.clone());
        }
    }

    /// What its clients get at most from now on.
    pub fn set_caps(&self, caps: Caps) {
        self.throttle.set(caps);
    }

    /// Where clients find it.
    pub fn uris(&self) -> Vec<String> {
        let addresses = self.addresses.borrow();
        let (name, tls) = (&self.config.name, self.config.tls.is_some());
        let uri = |address| nbd_uri(address, name, tls);
        addresses.iter().map(uri).collect()
    }

    async fn look(&self) {
        let looked = self.cluster.view.look(&self.volume.name).await;
        let mut state = self.state.borrow_mut();
        match looked {
            Ok((record, size)) => {
                *state = VolumeState {
                    size,
                    terms: Terms {
                        priority: Some(record.terms.priority),
                        fairness: record.terms.fairness,
                    },
                    why: None,
                };
            }
            Err(error) => state.why = Some(sentence(&error)),
        }
    }

    /// [`VolumeExport::open`] for a client that asked; the log has why it gets none.
    ///
    /// # Errors
    /// In words.
    pub async fn open_for_client(&self) -> Result<Supplied, String> {
        let opened = self.open().await;
        if let Err(why) = &opened {
            let name = &self.config.name;
            tracing::warn!(export = name, why, "a client was turned away");
        }
        opened
    }

    /// Its volume, for one more client or disk.
    ///
    /// # Errors
    /// In words.
    pub async fn open(&self) -> Result<Supplied, String> {
        let (cluster, volume) = (&self.cluster, &self.volume.name);
        let terms = &self.volume.terms;
        let opened = match terms.are_the_volumes() {
            false => {
                let opened = cluster
                    .openings
                    .open_as(volume, &self.config.name, terms)
                    .await;
                opened.map(|(in_use, state)| (in_use, state as Rc<dyn Device>))
            }
            true => cluster.openings.open(volume).await.map(|in_use| {
                let device = Rc::clone(in_use.volume()) as _;
                (in_use, device)
            }),
        };
        let (in_use, device) = opened.map_err(|error| {
            let (name, why) = (&self.config.name, sentence(&error));
            format!("cannot open export {name}: {why}")
        })?;
        self.clients.set(self.clients.get() + 1);
        let device = Capped::new(in_use.capped(device), &self.throttle);
        Ok(Supplied {
            description: described(&in_use),
            device,
            read_only: self.config.read_only,
            account: self.account.clone(),
            hold: Box::new(Served {
                clients: Rc::clone(&self.clients),
                _in_use: in_use,
            }),
        })
    }

    /// Why no client gets it now, as it was seen last.
    pub fn away(&self) -> Option<String> {
        self.state.borrow().why.clone()
    }

    /// For people.
    pub fn report(&self) -> api::status::Export {
        let state = self.state.borrow();
        let own = &self.volume.terms;
        let priority = own.priority.or(state.terms.priority);
        let fairness = own.fairness.or(state.terms.fairness);
        api::status::Export {
            name: self.config.name.clone(),
            device: self.config.device.clone(),
            size_bytes: state.size,
            nbd: (self.addresses.borrow().iter())
                .map(Address::to_string)
                .collect(),
            ublk: None,
            ublk_requests: None,
            nbd_requests: Some(self.account.counts().into()),
            vhost_user: None,
            vhost_user_requests: None,
            read_only: self.config.read_only,
            tls: self.config.tls.is_some(),
            terms: api::status::ExportTerms {
                priority: priority.map(|class| priority_name(class).to_owned()),
                fairness: fairness.map(Fairness::as_f64),
                caps: caps::shown(&self.throttle),
            },
            connections: self.clients.get(),
            errors: self.account.counts().errors,
            why: state.why.clone(),
        }
    }
}

/// Why no client gets the volume, and what to do.
fn sentence(error: &ClusterError) -> String {
    match error {
        ClusterError::NoVolume { name, .. } => format!(
            "{error}; make it (`tanada volume create {name} --size ...`), or name another one in the configuration"
        ),
        _ => error.to_string(),
    }
}

async fn keep_looking(export: Weak<VolumeExport>) {
    loop {
        let Some(export) = export.upgrade() else {
            return;
        };
        export.look().await;
        drop(export);
        env::sleep(LOOK_EVERY).await;
    }
}

/// The exports of volumes that are configured now: those that were there and differ in nothing but their caps stay.
pub fn renewed(
    before: &[Rc<VolumeExport>],
    configured: &[ExportConfig],
    cluster: &Rc<Cluster>,
) -> Vec<Rc<VolumeExport>> {
    let of = |config: &ExportConfig| {
        let mut before = before.iter();
        match before.find(|known| caps::is_but_capped(&known.config, config)) {
            Some(known) => {
                known.set_caps(config.caps);
                Some(Rc::clone(known))
            }
            None => VolumeExport::of(config, cluster),
        }
    };
    configured.iter().filter_map(of).collect()
}

/// The exports of volumes at one address.
#[derive(Default)]
pub struct AtAddress(RefCell<Vec<Rc<VolumeExport>>>);

impl AtAddress {
    /// None yet; what `server` supplies from now on.
    pub fn begin(server: &Server) -> Rc<AtAddress> {
        let volumes = Rc::new(AtAddress::default());
        server.set_supply(Rc::clone(&volumes) as _);
        volumes
    }

    /// These, and no others.
    pub fn set(&self, volumes: Vec<Rc<VolumeExport>>) {
        *self.0.borrow_mut() = volumes;
    }

    fn find(&self, name: &str) -> Option<Rc<VolumeExport>> {
        let volumes = self.0.borrow();
        volumes.iter().find(|it| it.config.name == name).cloned()
    }
}

impl Supply for AtAddress {
    fn open<'a>(&'a self, name: &'a str) -> Soon<'a, Result<Option<Supplied>, String>> {
        Box::pin(async move {
            let Some(export) = self.find(name) else {
                return Ok(None);
            };
            let opened = export.open_for_client().await?;
            // It may have been taken away meanwhile.
            let is_it = |found: Rc<VolumeExport>| Rc::ptr_eq(&found, &export);
            Ok(self.find(name).is_some_and(is_it).then_some(opened))
        })
    }

    fn list(&self) -> Soon<'_, Vec<(String, String)>> {
        let volumes = self.0.borrow();
        let names = volumes.iter().map(|export| export.config.name.clone());
        let all = names.map(|name| (name, String::new())).collect();
        Box::pin(async { all })
    }

    fn default_export(&self) -> Option<String> {
        let volumes = self.0.borrow();
        volumes.first().map(|export| export.config.name.clone())
    }
}
