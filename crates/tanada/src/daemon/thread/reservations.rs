//! Reservations over the cluster, on the thread of its stores.
//!
//! ```text
//! API -> Service -> calendars: this node's stores directly, others over their protocol
//! each second: parts of this node's stores ask their records; every few: what is due for records
//! ```
//!
//! Always true: a store of this node takes parts only once its number in the cluster is known.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};

use base::Nanos;
use env::net::Address;
use policy::share::cap::{Caps, check_booked};
use reservations::calendar::{Calendar, LocalCalendar, PartError, RemoteCalendar};
use reservations::confirm::{Own, confirm, note_lost};
use reservations::quota::Quotas;
use reservations::record::{Place, Reservation, Target};
use reservations::stores::{ClusterStores, Facts, Pending, StoreFact, VolumeFact};
use reservations::sweep::{EVERY, abort_own, sweep};
use reservations::{ReservationError, Service, largest_of};
use store::net::client::{Client, ClientOptions, Credentials};
use store::qos::manager::Manager;
use vdisk::StoreNumber;
use vdisk::cluster::set::CapChange;
use vdisk::cluster::stores::{StoreRecord, StoreState};
use vdisk::cluster::{Cluster, ClusterError};
use vdisk::meta::{MetaError, MetaStore};
use vdisk::record::Name;

use super::export_calendars::ExportCalendars;
use super::secured::Secured;
use crate::daemon::common::secrets;

/// Parts that are listed and not there are looked for once in so many seconds.
const LOST_EVERY: u64 = 30;
/// A store of another node answers so soon or counts as unreachable.
const OPENING: Nanos = Nanos::secs(4);

/// The stores of this node, by their numbers in the cluster.
type OwnStores = Rc<RefCell<BTreeMap<StoreNumber, Rc<Manager>>>>;
/// The queues of this node's exports.
type OwnExports = Rc<RefCell<ExportCalendars>>;

/// Reservations, as this node makes them and keeps its parts of them.
pub struct ClusterReservations {
    pub service: Rc<Service>,
    own: OwnStores,
    /// Those of them that are behind a link that is not booked.
    unbooked: RefCell<BTreeSet<StoreNumber>>,
    exports: OwnExports,
    node: String,
    /// They end with this.
    tasks: RefCell<Vec<env::CancelOnDrop<()>>>,
}

impl ClusterReservations {
    /// Begins to settle parts and to sweep.
    pub fn begin(
        cluster: &Rc<Cluster>,
        meta: Rc<dyn MetaStore>,
        (key, tls): (secrets::Key, Option<Rc<Secured>>),
        quotas: Rc<dyn Quotas>,
    ) -> ClusterReservations {
        let (own, exports) = (OwnStores::default(), OwnExports::default());
        let reach = Reach {
            cluster: Rc::downgrade(cluster),
            own: Rc::clone(&own),
            exports: Rc::clone(&exports),
            key,
            tls,
            connected: RefCell::default(),
        };
        let node = cluster.node().as_str();
        let service = Service::new(node, meta, Rc::new(reach), quotas);
        let here = (Rc::clone(&own), Rc::clone(&exports));
        let confirming = env::spawn(keep_confirming(Rc::clone(&service), here));
        let sweeping = env::spawn(keep_sweeping(Rc::clone(&service)));
        let [confirming, sweeping] = [confirming, sweeping].map(env::cancel_scope);
        let tasks = [service.follow(), confirming, sweeping];
        ClusterReservations {
            service,
            own,
            unbooked: RefCell::default(),
            exports,
            node: node.to_owned(),
            tasks: RefCell::new(tasks.into()),
        }
    }

    /// May the caps of a volume be changed so, beside what is booked of it?
    ///
    /// # Errors
    /// [`ClusterError::CapBelowBooking`] with both; why that cannot be looked up.
    pub async fn check_caps(
        &self,
        cluster: &Cluster,
        name: &Name,
        change: &CapChange,
    ) -> Result<(), ClusterError> {
        if *change == CapChange::default() {
            return Ok(());
        }
        let found = cluster.view.volumes().await?;
        let Some(volume) = found.iter().find(|it| it.name == *name) else {
            return Ok(()); // The change itself says so.
        };
        let all = match self.service.all().await {
            Err(ReservationError::Meta(error)) => return Err(ClusterError::Meta(error)),
            // A record that cannot be read is no reason to refuse a cap.
            other => other.unwrap_or_default(),
        };
        let booked = largest_of(all.iter().map(|it| &it.record), volume.id.0);
        let caps = Caps::from(change.applied(volume.terms.caps));
        check_booked(&caps, booked).map_err(|source| ClusterError::CapBelowBooking {
            volume: name.clone(),
            holder: volume.id.reservation_holder(),
            source,
        })
    }

    /// Nodes of its stores whose link is not booked with it, as far as this node knows: itself. What is reached over Unix
    /// sockets alone crosses no link, and no export's queue is behind one.
    pub fn links_not_booked(&self, record: &Reservation) -> Vec<String> {
        let unbooked = self.unbooked.borrow();
        let is_export = matches!(record.target, Target::Export { .. });
        let mut parts = record.parts.iter();
        match !is_export && parts.any(|part| unbooked.contains(&part.store)) {
            true => vec![self.node.clone()],
            false => Vec::new(),
        }
    }

    /// The stores are about to close: no part is settled any more.
    pub fn stop(&self) {
        self.tasks.borrow_mut().clear();
    }

    /// A store of this node is registered in the cluster: from now on it takes parts. Is the link booked with them, if it is
    /// behind one?
    pub fn take(&self, number: StoreNumber, store: &Rc<Manager>, is_link_booked: bool) {
        store.parts().take_by_record();
        if !is_link_booked {
            self.unbooked.borrow_mut().insert(number);
        }
        self.own.borrow_mut().insert(number, Rc::clone(store));
    }

    /// The queues of this node's exports are found: from now on they take parts.
    pub fn take_exports(&self, exports: ExportCalendars) {
        *self.exports.borrow_mut() = exports;
    }
}

async fn keep_confirming(service: Rc<Service>, (own, exports): (OwnStores, OwnExports)) {
    let mut looked = 1_u64;
    loop {
        let mut here: Vec<Own> = {
            let own = own.borrow();
            let stores = own.iter();
            stores
                .map(|(number, store)| Own::store(*number, store))
                .collect()
        };
        here.extend(exports.borrow().own());
        confirm(&service, &here).await;
        if looked.is_multiple_of(LOST_EVERY)
            && let Err(error) = note_lost(&service, &here).await
        {
            tracing::debug!(%error, "parts are looked for later");
        }
        looked += 1;
        env::sleep(Nanos::secs(1)).await;
    }
}

async fn keep_sweeping(service: Rc<Service>) {
    let mut aborted = false;
    loop {
        aborted = aborted || abort_own(&service).await.is_ok();
        if let Err(error) = sweep(&service).await {
            tracing::debug!(%error, "what is due for reservations waits");
        }
        env::sleep(EVERY).await;
    }
}

/// The cluster as reservations see it.
struct Reach {
    cluster: Weak<Cluster>,
    own: OwnStores,
    exports: OwnExports,
    key: secrets::Key,
    tls: Option<Rc<Secured>>,
    /// Stores of other nodes.
    connected: RefCell<BTreeMap<StoreNumber, Rc<RemoteCalendar>>>,
}

impl Reach {
    fn cluster(&self) -> Result<Rc<Cluster>, MetaError> {
        self.cluster
            .upgrade()
            .ok_or_else(|| MetaError::Unavailable {
                store: "of the cluster".to_owned(),
                asked: "look at the cluster".to_owned(),
                why: "this node is stopping".to_owned(),
            })
    }

    async fn look(&self) -> Result<Facts, ClusterError> {
        let cluster = self.cluster()?;
        let up = cluster.stores.up().await?;
        let stores = cluster.stores.all().await?;
        let fact = |record: &StoreRecord| StoreFact {
            name: record.name.to_string(),
            uuid: u128::from_str_radix(&record.uuid, 16).unwrap_or(0),
            address: record.address.clone(),
            is_up: up.serves(record).unwrap_or(true),
            is_active: record.state == StoreState::Active,
        };
        let numbered = stores.iter();
        let numbered = numbered.map(|(number, (record, _))| (*number, fact(record)));
        let volumes = cluster.view.volumes().await?;
        let volume = |record: &vdisk::record::VolumeRecord| VolumeFact {
            name: record.name.to_string(),
            copies: record.copies,
            // A record that does not say may have something anywhere.
            stores: match &record.stores {
                Some(stores) => stores.clone(),
                None => stores.keys().copied().collect(),
            },
            holder: record.terms.reservation.clone(),
            caps: record.terms.caps.into(),
        };
        Ok(Facts {
            stores: numbered.collect(),
            volumes: volumes.iter().map(|it| (it.id.0, volume(it))).collect(),
            nodes: up.nodes(),
            node: cluster.node().as_str().to_owned(),
            exports: self.exports.borrow().identities(),
        })
    }

    /// The calendar of an export, if it is this node's.
    fn export(&self, node: &str, name: &str) -> Result<Rc<dyn Calendar>, PartError> {
        let gone = PartError::Unreachable;
        let cluster = self.cluster().map_err(|error| gone(error.to_string()))?;
        if cluster.node().as_str() != node {
            return Err(gone(format!(
                "the calendar of export {name} is node {node}'s alone; ask at that node"
            )));
        }
        match self.exports.borrow().get(name) {
            Some(calendar) => Ok(Rc::new(calendar)),
            None => Err(gone(format!(
                "node {node} has no export {name} of a hybrid with a queue now; write queue = true in its [[hybrid]]"
            ))),
        }
    }

    async fn connect(&self, number: StoreNumber) -> Result<Rc<RemoteCalendar>, PartError> {
        if let Some(known) = self.connected.borrow().get(&number)
            && known.0.ended().is_none()
        {
            return Ok(Rc::clone(known));
        }
        let gone = |why: String| PartError::Unreachable(why);
        let cluster = self.cluster().map_err(|error| gone(error.to_string()))?;
        let known = cluster.stores.known_stores().into_iter();
        let mut known = known.filter(|it| it.number == number);
        let record = known.next().ok_or_else(|| {
            gone(format!(
                "store number {} is not in the cluster any more",
                number.0
            ))
        })?;
        let address: Address = record
            .address
            .parse()
            .map_err(|error| gone(format!("{error}")))?;
        if !address.is_tls() && !config::is_local(&address) {
            return Err(gone(format!(
                "at {address} nothing is encrypted: write listen = \"tls:...\" there"
            )));
        }
        let options = ClientOptions {
            opening: OPENING,
            tls: self
                .tls
                .as_ref()
                .map(|tls| tls.to_node(record.node.as_str())),
            ..ClientOptions::default()
        };
        let credentials = Credentials::NodeKey(self.key);
        let client = Client::connect_with(&address, credentials, &options).await;
        let client = client.map_err(|error| gone(error.to_string()))?;
        if format!("{:032x}", client.store_uuid()) != record.uuid {
            return Err(gone(format!(
                "at {address} is another store than {}",
                record.name
            )));
        }
        let calendar = Rc::new(RemoteCalendar(client));
        self.connected
            .borrow_mut()
            .insert(number, Rc::clone(&calendar));
        Ok(calendar)
    }
}

impl ClusterStores for Reach {
    fn facts(&self) -> Pending<'_, Facts, MetaError> {
        Box::pin(async {
            self.look().await.map_err(|error| match error {
                ClusterError::Meta(error) => error,
                other => MetaError::Bad {
                    store: "of the cluster".to_owned(),
                    asked: "look at the cluster".to_owned(),
                    why: other.to_string(),
                },
            })
        })
    }

    fn calendar<'a>(&'a self, place: Place<'a>) -> Pending<'a, Rc<dyn Calendar>> {
        Box::pin(async move {
            let store = match place {
                Place::Store(store) => store,
                Place::Export { node, name } => return self.export(node, name),
            };
            if let Some(manager) = self.own.borrow().get(&store) {
                return Ok(Rc::new(LocalCalendar(Rc::clone(manager))) as Rc<dyn Calendar>);
            }
            Ok(self.connect(store).await? as Rc<dyn Calendar>)
        })
    }
}
