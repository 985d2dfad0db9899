//! A store on its data thread: opened with its keys, served, scrubbed, closed.
//!
//! ```text
//! device, keys, what it is assumed to cost -> Manager (store, queue, calendar) -> Server -> clients
//!                                               ^ scrub: a round now and then, or when asked
//! ```
//!
//! Always true:
//! 1. One scrub of a store runs at a time.
//! 2. A device is formatted only if it is blank and the configuration says `create = true`.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, anyhow};
use base::{Bytes, Nanos};
use config::store::Assumed;
use config::{DeviceConfig, HybridConfig, Kind, StoreConfig};
use device::model::Spec;
use device::{AccountCaps, Device, Meter};
use env::net::{Address, Listener};
use policy::share::{BytesPerSec, Cost, Costs};
use store::net::server::{Limits, Server};
use store::qos::calibrate::Plan;
use store::qos::manager::{Manager, ManagerOptions, ManagerTerms, check_terms, set_terms};
use store::qos::network::Network;
use store::qos::queue::QueueOptions;
use store::{OpenError, Settings};

use super::refused::Refused;
use super::scrub::Scrub;
use super::secured::Secured;
use super::unserved::Unserved;
use crate::api::refusal::Refusal;
use crate::api::store as api;
use crate::daemon::common::address::from_anywhere;
use crate::daemon::common::secrets;

/// Bad blocks reported one by one.
const BAD_MAX: usize = 20;

/// Where clients of a store come, by the addresses of the configuration; and how many at once.
pub type Clients = (Vec<(Address, Listener)>, usize);

/// A store that is open.
pub struct OpenStore {
    /// As at the start; what a reload changes is in `listens` and `terms`.
    pub config: StoreConfig,
    pub node: Rc<Manager>,
    /// Where clients come: as configured, and really, for port 0 asks for any.
    listens: RefCell<Vec<(Address, Address)>>,
    terms: Cell<ManagerTerms>,
    /// Is the node's link booked with it? `None`: it is of no cluster, or reached over Unix sockets alone.
    pub link_booked: Option<bool>,
    /// Does the device have heads to move?
    pub rotating: bool,
    server: Rc<Server>,
    /// The key that signs capabilities.
    signing_key: PathBuf,
    pub scrub: Rc<Scrub>,
    calibrating: RefCell<api::Calibrating>,
}

/// What a store shares with others of its thread.
pub struct Shared<'a> {
    /// What it shows where TLS is spoken.
    pub tls: Option<&'a Rc<Secured>>,
    /// What accounts get at most.
    pub accounts: &'a Rc<AccountCaps>,
    /// The node's link, if its speed is known.
    pub network: Option<&'a Rc<Network>>,
    /// Is it of the node's cluster, behind its link?
    pub is_of_cluster: bool,
}

impl OpenStore {
    /// Opens the store on `device`, or makes one if it is blank and that is wanted, and lets clients in.
    pub async fn open(
        config: StoreConfig,
        (device, costs): (Rc<Meter>, Costs),
        data_dir: &Path,
        (listeners, connections): Clients,
        shared: Shared<'_>,
    ) -> anyhow::Result<Rc<OpenStore>> {
        let what = || format!("store {}", config.name);
        let rotating = device.info().rotational;
        let signing_key = signing_key_of(data_dir, &config.name);
        let options = options_of(&config, costs, &signing_key, &shared)?;
        let node = open_node(&config, device, options)
            .await
            .with_context(what)?;
        if node.store().name() != config.name {
            tracing::info!(
                store = config.name,
                "the store calls itself {} in errors: it was made under that name",
                node.store().name()
            );
        }
        let limits = Limits {
            connections,
            connections_per_host: connections - connections / 4,
            ..Limits::default()
        };
        let tls = shared.tls.map(|secured| Rc::clone(&secured.identity));
        let server = Server::with_tls(Rc::clone(&node), limits, tls);
        let mut listens = Vec::new();
        for (configured, listener) in listeners {
            listens.push((configured, listener.address().clone()));
            if let Err(error) = server.serve(listener) {
                node.close().await?;
                return Err(anyhow::Error::from(error).context(what()));
            }
        }
        let is_linked = |it: &Address| !matches!(it, Address::Unix(_));
        let is_behind_link =
            shared.is_of_cluster && listens.iter().any(|(_, real)| is_linked(real));
        let store = Rc::new(OpenStore {
            terms: Cell::new(terms_of(&config, &node)),
            scrub: Scrub::of(&config.name, &node),
            config,
            node,
            listens: RefCell::new(listens),
            link_booked: is_behind_link.then_some(shared.network.is_some()),
            rotating,
            server,
            signing_key,
            calibrating: RefCell::default(),
        });
        store.scrub.set_rate(store.config.scrub);
        Ok(store)
    }

    /// Where clients come.
    pub fn addresses(&self) -> Vec<Address> {
        let listens = self.listens.borrow();
        listens.iter().map(|(_, real)| real.clone()).collect()
    }

    /// Is this one of its addresses in the configuration?
    pub fn listens_at(&self, configured: &Address) -> bool {
        let listens = self.listens.borrow();
        listens.iter().any(|(known, _)| known == configured)
    }

    /// Is the port of an address one where it listens?
    fn has_socket_of(&self, address: &Address) -> bool {
        let port = |it: &Address| it.socket().map(|it| it.port()).filter(|port| *port != 0);
        let listens = self.listens.borrow();
        let mut ports = listens.iter().filter_map(|(_, real)| port(real));
        port(address).is_some_and(|wanted| ports.any(|it| it == wanted))
    }

    /// Can it go by what `config` says?
    pub fn check(&self, config: &StoreConfig) -> Result<(), Refused> {
        let mut secured = config.listen.iter().filter(|it| it.is_tls());
        if let Some(address) = secured.find(|_| !self.server.has_certificate()) {
            return Err(Refused::Conflict(Refusal {
                error: format!(
                    "store {} cannot listen at {address}: this node has no certificate",
                    self.config.name
                ),
                what_to_do: "make one (`tanada cluster ca init`, `tanada node create`)".to_owned(),
            }));
        }
        let mut new = config.listen.iter().filter(|it| !self.listens_at(it));
        if let Some(address) = new.find(|it| self.has_socket_of(it)) {
            return Err(Refused::Conflict(Refusal {
                error: format!(
                    "store {} listens at the port of {address} already, in another way",
                    self.config.name
                ),
                what_to_do: "restart the daemon for it, or choose another port".to_owned(),
            }));
        }
        check_terms(&self.node, &terms_of(config, &self.node)).map_err(not_now)
    }

    /// Goes by what `config` says, and listens at what is new, which `ready` has; clients that came where it listens no more
    /// go on. Where it fails, it listens where it did.
    pub fn change(
        self: &Rc<Self>,
        config: &StoreConfig,
        ready: &mut Unserved,
    ) -> Result<(), Refused> {
        self.scrub.set_rate(config.scrub);
        let terms = terms_of(config, &self.node);
        // Before others may come in without credentials, no other machine reaches it any more.
        let opens = terms.unauthenticated && !self.terms.get().unauthenticated;
        if terms != self.terms.get() && !opens {
            self.go_by(terms)?;
        }
        self.listens.borrow_mut().retain(|(configured, real)| {
            let stays = config.listen.contains(configured);
            if !stays {
                self.server.close_at(real);
                env::net::inherited::closed(real);
            }
            stays
        });
        if opens {
            self.go_by(terms)?;
        }
        for configured in &config.listen {
            if !self.listens_at(configured)
                && let Some(listener) = ready.take(configured)
            {
                let real = listener.address().clone();
                if let Err(error) = self.server.serve(listener) {
                    env::net::inherited::closed(&real);
                    return Err(half_done(&self.config.name, &error));
                }
                let here = (configured.clone(), real);
                self.listens.borrow_mut().push(here);
            }
        }
        Ok(())
    }

    fn go_by(&self, terms: ManagerTerms) -> Result<(), Refused> {
        let done = set_terms(&self.node, &terms);
        done.map_err(|error| half_done(&self.config.name, &error))?;
        self.terms.set(terms);
        Ok(())
    }

    /// Signs with another key from now on; what was signed before is void, unless it is to be kept.
    pub async fn rotate_key(&self, keep_old: bool) -> anyhow::Result<()> {
        let key = secrets::fresh()?;
        // First the file: a restart in between finds the new key there, and the node goes over to it then.
        secrets::write(&self.signing_key, &key, true)?;
        match keep_old {
            true => self.node.rotate_key(key).await?,
            false => self.node.replace_key(key).await?,
        }
        Ok(())
    }

    /// How it is now.
    pub fn report(&self) -> api::Store {
        let store = self.node.store();
        let space = store.space();
        let figures = self.server.figures();
        let bad = store.bad_blocks();
        api::Store {
            basics: api::StoreBasics {
                name: self.config.name.clone(),
                device: self.config.device.clone(),
                listen: self.addresses().iter().map(from_anywhere).collect(),
                unauthenticated: self.node.unauthenticated(),
                unit_bytes: space.unit.0,
                page_bytes: space.page.0,
                table_bytes: space.table.0,
                table_max_bytes: space.table_max.0,
                memory_bytes: store.memory().0,
            },
            node: self.node.report(),
            sessions: self.node.sessions(),
            figures: self.node.requests().into(),
            job: None,
            scrub: self.scrub.report(),
            calibrating: self.calibrating.borrow().clone(),
            bad_blocks: bad.len() as u64,
            first_bad: bad
                .iter()
                .take(BAD_MAX)
                .map(|bad| format!("{} at byte {} of {:?}", bad.len, bad.offset, bad.object))
                .collect(),
            server: api::Server {
                connections: figures.connections.len() as u64,
                accepted: figures.accepted,
                turned_away: figures.turned_away,
                not_let_in: figures.not_let_in,
                stalled: figures.stalled,
                violations: figures.violations,
                answered: figures.answered,
                failed: figures.failed,
                bytes_in: figures.bytes_in,
                bytes_out: figures.bytes_out,
                held_bytes: figures.held_bytes.0,
            },
        }
    }

    /// Begins to measure the device below, with objects of its own, where nothing is reserved for so long; from its end on
    /// the store goes by what was found.
    pub async fn begin_calibration(self: &Rc<Self>, full: bool) -> Result<(), Refused> {
        let mut plan = match full {
            true => Plan::full(),
            false => Plan::quick(),
        };
        // What is there may be small: half of the room that is left will do.
        let free = self.node.store().space().free;
        plan.room = plan.room.min(Bytes(free.0 / 2));
        let taken = self.node.begin_calibration(plan).await.map_err(not_now)?;
        *self.calibrating.borrow_mut() = api::Calibrating {
            running: true,
            ..api::Calibrating::default()
        };
        let store = Rc::clone(self);
        env::spawn(async move {
            let mut progress = |what: &str, done: f64| {
                let mut calibrating = store.calibrating.borrow_mut();
                what.clone_into(&mut calibrating.what);
                calibrating.done_percent = 100.0 * done;
            };
            let failed = taken.measure(&mut progress).await.err();
            let mut calibrating = store.calibrating.borrow_mut();
            calibrating.running = false;
            calibrating.failed = failed.map(|error| error.to_string());
        });
        Ok(())
    }

    /// What was measured, as it was measured.
    pub fn surface(&self) -> Option<serde_json::Value> {
        Some(self.node.calibration()?.surface.clone())
    }

    /// Lets clients finish, then closes; says what went wrong.
    pub async fn close(&self) -> Option<String> {
        self.scrub.end();
        self.server.drain().await;
        let closed = self.node.close().await;
        let error = closed.err()?;
        Some(format!("store {}: {error}", self.config.name))
    }
}

/// A change that was good when it was checked, and could not be made.
fn half_done(store: &str, error: &dyn std::error::Error) -> Refused {
    Refused::Failed(Refusal {
        error: format!(
            "store {store} is not as configured: {error}; what else is different is in force"
        ),
        what_to_do: "see to it, and ask for the reload once more".to_owned(),
    })
}

/// What the store cannot do now: the error says what is in the way, and behind a semicolon what to do.
fn not_now(error: impl std::error::Error) -> Refused {
    let said = error.to_string();
    let (error, what_to_do) = said.rsplit_once("; ").unwrap_or((&said, "try again later"));
    Refused::Conflict(Refusal {
        error: error.to_owned(),
        what_to_do: what_to_do.to_owned(),
    })
}

/// Where a store's signing key is.
pub fn signing_key_of(data_dir: &Path, store: &str) -> PathBuf {
    data_dir.join("keys").join(format!("{store}.signing"))
}

/// How its manager is run.
fn options_of(
    config: &StoreConfig,
    costs: Costs,
    signing_key: &Path,
    shared: &Shared<'_>,
) -> anyhow::Result<ManagerOptions> {
    let mut options = ManagerOptions::new(costs, secrets::read_or_make(signing_key)?);
    options.node_key = Some(secrets::read_or_make(&config.access.node_key_file)?);
    options.unauthenticated = config.access.unauthenticated;
    options.memory = config.memory;
    options.account_caps = Some(Rc::clone(shared.accounts));
    options.network = shared.network.cloned();
    options.skew = skew_of(config);
    // One scrub at a time: this module's.
    options.scrub = None;
    config.scheduling.put_into(config.unit, &mut options.queue);
    config.background.put_into(&mut options.queue);
    Ok(options)
}

/// How that of a gateway on a volume is run: it has no other clients, so what it signs with is forgotten with it.
///
/// # Errors
/// There is no chance to be had.
pub fn options_on_volume(accounts: &Rc<AccountCaps>) -> anyhow::Result<ManagerOptions> {
    let mut options = ManagerOptions::new(guess(false), secrets::fresh()?);
    options.account_caps = Some(Rc::clone(accounts));
    // The stores below read over what they have, and repair it from each other.
    options.scrub = None;
    options.best_effort_only = Some("it stands on a virtual disk: reserve for that".to_owned());
    Ok(options)
}

/// Seconds by which clocks may differ.
fn skew_of(config: &StoreConfig) -> u64 {
    config.access.clock_skew.0.div_ceil(Nanos::secs(1).0)
}

/// What of its terms may change while it is open.
fn terms_of(config: &StoreConfig, node: &Manager) -> ManagerTerms {
    let mut queue = QueueOptions::new(node.queue().options().share.costs);
    config.background.put_into(&mut queue);
    ManagerTerms {
        unauthenticated: config.access.unauthenticated,
        skew: skew_of(config),
        floor: queue.floor,
        ceiling: queue.ceiling,
    }
}

async fn open_node(
    config: &StoreConfig,
    device: Rc<Meter>,
    options: ManagerOptions,
) -> anyhow::Result<Rc<Manager>> {
    let below: Rc<dyn Device> = match config.discard {
        true => device,
        false => Rc::new(store::KeepsBlocks(device)),
    };
    match Manager::open(Rc::clone(&below), options.clone()).await {
        Err(OpenError::NoStore { .. }) if config.create => {
            let settings = Settings {
                name: config.name.clone(),
                unit: config.unit,
                ..Settings::default()
            };
            let made = store::Store::format(Rc::clone(&below), settings).await?;
            made.close().await?;
            tracing::info!(
                store = config.name,
                device = config.device,
                "made the store"
            );
            Ok(Manager::open(below, options).await?)
        }
        Err(error @ OpenError::NoStore { .. }) => Err(anyhow!(
            "{error}: `tanada store create`, or create = true in its [[store]]"
        )),
        done => Ok(done?),
    }
}

/// What a device is assumed to do until it is calibrated: as configured, as its model says, or a careful guess.
pub fn assumed_costs(
    (device, assumed): (&str, Assumed),
    devices: &[DeviceConfig],
    hybrids: &[HybridConfig],
    rotational: bool,
) -> Costs {
    let mut costs = of_device(device, devices, hybrids).unwrap_or(guess(rotational));
    costs.read.rate = assumed.read_speed.unwrap_or(costs.read.rate);
    costs.write.rate = assumed.write_speed.unwrap_or(costs.write.rate);
    costs
}

/// A disk of ten years ago: for a better one, configure its speed or calibrate.
fn guess(rotational: bool) -> Costs {
    let cost = |mb| Cost {
        fixed: Nanos::micros(100),
        jump: Nanos::micros(if rotational { 10_000 } else { 0 }),
        rate: BytesPerSec::mb(mb),
    };
    match rotational {
        true => Costs {
            read: cost(100),
            write: cost(100),
        },
        false => Costs {
            read: cost(200),
            write: cost(150),
        },
    }
}

fn of_device(name: &str, devices: &[DeviceConfig], hybrids: &[HybridConfig]) -> Option<Costs> {
    if let Some(hybrid) = hybrids.iter().find(|hybrid| hybrid.name() == name) {
        return of_device(&hybrid.slow, devices, hybrids);
    }
    match &devices.iter().find(|device| device.name == name)?.kind {
        Kind::Model { model, .. } => Spec::find(model)
            .ok()
            .map(|spec| store::qos::costs::of_model(&spec)),
        Kind::Memory { .. } => Some(Costs::flat(BytesPerSec::mb(2_000))),
        Kind::Striped { members, .. } => {
            let mut costs = of_device(members.first()?, devices, hybrids)?;
            let count = members.len() as u64;
            costs.read.rate.0 *= count;
            costs.write.rate.0 *= count;
            Some(costs)
        }
        Kind::Path { .. } => None,
    }
}
