//! One store as a volume sees it: here or somewhere else, under the volume's fence.
//!
//! ```text
//! Connector (a store) --open(fence_name, token): seal, then fence--> Connection: read, write, punch ... under that token
//!                                                                      '-- broken: open again, with a greater token if a change is indeterminate
//! ```
//!
//! A broken connection stays broken; the volume opens a new one. With the *same* token a change of the broken connection may still be
//! under way. With a *greater* token the opening has waited for the last of them: that is what a seal is for.
//!
//! Always true:
//! 1. [`ConnectionError::Indeterminate`] is the only answer to a change that may have happened or may yet happen.
//! 2. When [`Connector::open`] answers, nothing under a lesser token is under way at the store, and nothing will be.

use std::rc::Rc;

use base::{Buf, Nanos, View};
use env::net::Address;
use policy::place::State;
use store::net::client::{Client, ClientOptions, Credentials};
use store::ops::{Call, ObjectCalls, ObjectErrors, ObjectOps};
use store::qos::fenced::Fenced;
use store::qos::manager::Manager;
use store::qos::session::Access;
use store::{AllocatedRange, Change, ClientTag, Damage, Listing, SpaceFigures, Stat};

pub use store::ops::{ObjectError as ConnectionError, Pending};

/// A way to a store. Held as `Rc<dyn Connector>`.
pub trait Connector {
    /// Seals the fence `fence_name` with `token` at the store, and answers a connection under it. Nothing is done if the fence there is gone, or older
    /// than generation `least`: then the store's disk was put back to an earlier state. With 0 nothing is expected of it.
    ///
    /// # Errors
    /// [`ConnectionError::PutBack`] if it is older; [`ConnectionError::Fenced`] if the token there is greater; whatever else stands in the
    /// way.
    fn open_since<'a>(
        &'a self,
        fence_name: &'a str,
        token: u64,
        least: u64,
    ) -> Pending<'a, Rc<dyn Connection>>;

    /// As [`Connector::open_since`], of a fence of which nothing is known.
    ///
    /// # Errors
    /// [`ConnectionError::Fenced`] if the token there is greater; whatever else stands in the way.
    fn open<'a>(&'a self, fence_name: &'a str, token: u64) -> Pending<'a, Rc<dyn Connection>> {
        self.open_since(fence_name, token, 0)
    }
}

/// Is what a store says of a fence as new as it was seen?
fn check_age(
    store: &str,
    fence_name: &str,
    found: Result<Stat, ConnectionError>,
    least: u64,
) -> Result<(), ConnectionError> {
    let found = match found {
        Ok(stat) => stat.version,
        Err(ConnectionError::Absent(_)) => store::Version(0),
        Err(other) => return Err(other),
    };
    if found.0 >= least {
        return Ok(());
    }
    let least = store::Version(least);
    Err(ConnectionError::PutBack(format!(
        "store {store} was put back to an earlier state: its fence {fence_name} is at generation {found}, and was seen at {least}; \
         what it has is out of date and is not used. Bring the newer disk back; or, if the volume is open without this store, take it \
         out for good (`tanada node delete {store} --lost`) and add it again with an empty disk"
    )))
}

/// A call of a connection.
pub type Asked<'a, T> = Call<'a, T, ConnectionError>;

/// A store under a token. Held as `Rc<dyn Connection>`; its operations are those of [`store::ObjectCalls`].
#[allow(missing_docs)] // They are.
pub trait Connection: ObjectOps<Error = ConnectionError> {
    /// Says whose reads and writes these are, and asks to hear how long the store's queue is. Nothing depends on it.
    fn set_client_tag(&self, _caller: ClientTag) -> Pending<'_, ()> {
        Box::pin(async { Ok(()) })
    }
    /// Attaches the reservations of `holder` at the store to the requests; `None`: none.
    fn attach_reservations<'a>(&'a self, _holder: Option<&'a str>) -> Pending<'a, ()> {
        Box::pin(async { Ok(()) })
    }
    fn read(&self, object: &str, offset: u64, len: u64) -> Asked<'_, Buf> {
        ObjectCalls::read(self, object, offset, len)
    }
    fn write(&self, object: &str, offset: u64, data: View, change: Change) -> Asked<'_, ()> {
        ObjectCalls::write(self, object, offset, data, change).done()
    }
    fn punch(&self, object: &str, offset: u64, len: u64, change: Change) -> Asked<'_, ()> {
        ObjectCalls::punch(self, object, offset, len, change).done()
    }
    /// Changes nothing but the stamp.
    fn stamp(&self, object: &str, change: Change) -> Asked<'_, ()> {
        ObjectCalls::stamp(self, object, change).done()
    }
    fn create(&self, object: &str, change: Change) -> Asked<'_, ()> {
        ObjectCalls::create(self, object, &[], change).done()
    }
    fn delete(&self, object: &str, change: Change) -> Asked<'_, ()> {
        ObjectCalls::delete(self, object, change)
    }
    /// With `replace`, what has the name `to` is deleted in the same step.
    fn rename(&self, object: &str, to: &str, replace: bool, change: Change) -> Asked<'_, ()> {
        ObjectCalls::rename(self, object, to, replace, change).done()
    }
    fn stat(&self, object: &str) -> Asked<'_, Stat> {
        ObjectCalls::stat(self, object)
    }
    fn list(&self, prefix: &str, after: Option<&str>) -> Asked<'_, Listing> {
        ObjectCalls::list(self, prefix, after, LISTED)
    }
    fn extents(&self, object: &str, offset: u64, len: u64) -> Asked<'_, Vec<AllocatedRange>> {
        ObjectCalls::allocated_ranges(self, object, offset, len)
    }
    fn space(&self) -> Asked<'_, SpaceFigures> {
        ObjectCalls::space(self)
    }
    fn flush(&self) -> Asked<'_, ()> {
        ObjectCalls::flush(self)
    }
    /// What scrubs and reads found damaged of objects whose names begin so, and nothing has written since. A store that cannot
    /// say refuses.
    fn damage(&self, prefix: &str) -> Asked<'_, Vec<Damage>> {
        ObjectCalls::damage(self, prefix)
    }
    /// The longest write in bytes.
    fn write_max(&self) -> u64 {
        let limits = self.limits();
        limits.write_max.min(limits.read_max)
    }
    /// How long the store's queue is, as it was last heard.
    fn state(&self) -> Option<State> {
        self.load()
    }
}

/// How often a store sends a load report, at most: some 100 bytes each time.
const LOAD_REPORT_EVERY: Nanos = Nanos::millis(1);
/// Objects asked for at once.
const LISTED: usize = 1000;

// --- here ---------------------------------------------------------------------------------------------

/// A store of this very process.
pub struct LocalConnector(pub Rc<Manager>);

impl Connector for LocalConnector {
    fn open_since<'a>(
        &'a self,
        fence_name: &'a str,
        token: u64,
        least: u64,
    ) -> Pending<'a, Rc<dyn Connection>> {
        Box::pin(async move {
            let session = self.0.open_session(Access::NodeKey);
            let session = session.map_err(|why| ConnectionError::Refused(why.to_string()))?;
            if least > 0 {
                let found = session
                    .stat(fence_name)
                    .await
                    .map_err(ConnectionError::from);
                check_age(self.0.store().name(), fence_name, found, least)?;
            }
            session.seal(fence_name, token).await?;
            Ok(
                Rc::new(ObjectErrors(Fenced::new(&session, fence_name, token)?))
                    as Rc<dyn Connection>,
            )
        })
    }
}

/// A connection without a seal: a mutation.
#[cfg(test)]
pub(crate) fn unsealed(
    node: &Rc<Manager>,
    fence_name: &str,
    token: u64,
) -> Result<Rc<dyn Connection>, ConnectionError> {
    let session = node.open_session(Access::NodeKey);
    let session = session.map_err(|why| ConnectionError::Refused(why.to_string()))?;
    Ok(Rc::new(ObjectErrors(Fenced::new(
        &session, fence_name, token,
    )?)))
}

impl Connection for ObjectErrors<Rc<Fenced>> {
    fn set_client_tag(&self, caller: ClientTag) -> Pending<'_, ()> {
        self.0.set_client_tag(caller);
        Box::pin(async { Ok(()) })
    }
    fn attach_reservations<'a>(&'a self, holder: Option<&'a str>) -> Pending<'a, ()> {
        let under = self.0.session().attach_reservations(holder);
        Box::pin(async move { under.map_err(ConnectionError::Refused) })
    }
}

// --- somewhere else -----------------------------------------------------------------------------------

/// A store behind a server.
pub struct RemoteConnector {
    /// Where it listens.
    pub address: Address,
    /// Its identity; one that has another is not let in to. `None`: whichever listens there.
    pub uuid: Option<u128>,
    /// How it is entered.
    pub credentials: Credentials,
    /// How long is waited for it.
    pub options: ClientOptions,
}

impl Connector for RemoteConnector {
    fn open_since<'a>(
        &'a self,
        fence_name: &'a str,
        token: u64,
        least: u64,
    ) -> Pending<'a, Rc<dyn Connection>> {
        Box::pin(async move {
            let credentials = self.credentials.clone();
            let client = Client::connect_with(&self.address, credentials, &self.options).await?;
            if let Some(uuid) = self.uuid.filter(|uuid| *uuid != client.store_uuid()) {
                return Err(ConnectionError::Gone(format!(
                    "at {} is store {:032x}, and {uuid:032x} was looked for",
                    self.address,
                    client.store_uuid()
                )));
            }
            if least > 0 {
                let found = client.stat(fence_name).await.map_err(ConnectionError::from);
                check_age(client.store_name(), fence_name, found, least)?;
            }
            client.seal(fence_name, token).await?;
            client.fence(fence_name, token).await?;
            Ok(Rc::new(ObjectErrors(client)) as Rc<dyn Connection>)
        })
    }
}

impl Connection for ObjectErrors<Client> {
    fn set_client_tag(&self, caller: ClientTag) -> Pending<'_, ()> {
        Box::pin(async move {
            let will_come = self.0.set_client_tag(caller, LOAD_REPORT_EVERY).await;
            Ok(will_come.map(drop)?)
        })
    }
    fn attach_reservations<'a>(&'a self, holder: Option<&'a str>) -> Pending<'a, ()> {
        Box::pin(async move { Ok(self.0.attach_reservations(holder).await?) })
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use base::Bytes;
    use device::Memory;
    use env::net::{Listener, sim};
    use policy::place::{Class, ClientId, Origin, Penalties};
    use policy::share::{BytesPerSec, Costs, Direction, Second, Slot};
    use store::net::server::{Limits, Server};
    use store::qos::manager::{ManagerOptions, ReservationRequest};
    use store::{Settings, Store};

    use super::*;

    const KEY: [u8; 32] = [7; 32];

    /// A store whose device takes 2 ms for each request, served at port 7400 of a host of its own.
    async fn site() -> Rc<Manager> {
        let device = Memory::new("disk", Bytes::mib(16));
        let formatted = Store::format(Rc::clone(&device) as _, Settings::default()).await;
        formatted.unwrap().close().await.unwrap();
        let options = ManagerOptions {
            node_key: Some(KEY),
            scrub: None,
            ..ManagerOptions::new(Costs::flat(BytesPerSec::mb(100)), [9; 32])
        };
        sim::on_host(IpAddr::from([10, 0, 0, 1]), async move {
            let node = Manager::open(Rc::clone(&device) as _, options)
                .await
                .unwrap();
            let server = Server::new(Rc::clone(&node), Limits::default());
            let listener = Listener::bind(&"0.0.0.0:7400".parse().unwrap()).unwrap();
            server.serve(listener).unwrap();
            env::spawn(async move {
                let _server = server;
                std::future::pending::<()>().await;
            });
            device.set_latency(Nanos::millis(2));
            node
        })
        .await
    }

    async fn connection(
        connector: &dyn Connector,
        fence_name: &str,
        client: u64,
    ) -> Rc<dyn Connection> {
        let connection = connector.open(fence_name, 1).await.unwrap();
        let caller = ClientTag {
            origin: Origin {
                client: ClientId(client),
                class: Class::Normal,
            },
            penalties: Penalties::default(),
        };
        connection.set_client_tag(caller).await.unwrap();
        connection
    }

    #[test]
    fn one_clients_queue_at_a_store_is_reported_to_others_near_and_far() {
        env::Runtime::simulated(1).block_on(async {
            let here = LocalConnector(site().await);
            let there = RemoteConnector {
                address: "10.0.0.1:7400".parse().unwrap(),
                uuid: None,
                credentials: Credentials::NodeKey(KEY),
                options: ClientOptions::default(),
            };
            let busy = connection(&there, "g/1", 1).await;
            let (near, far) = (
                connection(&here, "g/2", 2).await,
                connection(&there, "g/3", 3).await,
            );
            let change = Change::FUA.creating();
            let data = View::copy_of(&[1; 65_536]);
            busy.write("v/1", 0, data, change).await.unwrap();
            for nth in 0..20 {
                let busy = Rc::clone(&busy);
                env::spawn(async move { busy.read("v/1", nth % 16 * 4096, 4096).await.map(drop) });
            }
            env::sleep(Nanos::millis(3)).await;
            far.stat("v/1").await.unwrap();
            for heard in [near.state().unwrap(), far.state().unwrap()] {
                assert!((1..=20).contains(&heard.requests), "{heard:?}");
                assert_eq!(heard.tail.last.unwrap().client, ClientId(1), "{heard:?}");
            }
            env::sleep(Nanos::secs(1)).await;
            far.stat("v/1").await.unwrap();
            for heard in [near.state().unwrap(), far.state().unwrap()] {
                assert_eq!(heard.requests, 0, "{heard:?}");
            }
        });
    }

    #[test]
    fn a_connections_requests_use_its_holders_reservation_near_and_far() {
        env::Runtime::simulated(2).block_on(async {
            let node = site().await;
            let slot = Slot::new(node.now(), 60);
            for direction in [Direction::Read, Direction::Write] {
                let wanted =
                    ReservationRequest::new(direction, BytesPerSec::mb(10), slot).holder("vm-1");
                let soon = Second(node.now().0 + 10);
                let held = node.hold(&wanted, None, soon).await.unwrap();
                node.commit(held).await.unwrap();
            }
            let there = RemoteConnector {
                address: "10.0.0.1:7400".parse().unwrap(),
                uuid: None,
                credentials: Credentials::NodeKey(KEY),
                options: ClientOptions::default(),
            };
            let far = connection(&there, "g/1", 1).await;
            let near = connection(&LocalConnector(Rc::clone(&node)), "g/2", 2).await;
            let data = View::copy_of(&[1; 65_536]);
            for (nth, connection) in [far, near].iter().enumerate() {
                let object = format!("v/{nth}");
                let change = Change::FUA.creating();
                connection.attach_reservations(Some("vm-1")).await.unwrap();
                connection
                    .write(&object, 0, data.clone(), change)
                    .await
                    .unwrap();
                connection.read(&object, 0, 65_536).await.unwrap();
                // Of a session that was given back and one that took its place.
                let promised = |direction| {
                    let sessions = node.sessions().into_iter();
                    let of = sessions.filter(|it| {
                        it.reservation.is_some() && it.direction.as_deref() == Some(direction)
                    });
                    of.map(|it| it.delivery.delivered_bytes).sum::<u64>()
                };
                let delivered = || ["read", "write"].map(promised);
                let before = delivered();
                let each = 65_536 * (nth as u64 + 1);
                assert!(before.iter().all(|got| *got >= each), "{before:?}");
                // And no more.
                connection.attach_reservations(None).await.unwrap();
                connection.read(&object, 0, 65_536).await.unwrap();
                assert_eq!(delivered(), before);
            }
        });
    }

    #[test]
    fn a_store_that_took_the_address_of_another_one_is_not_taken_for_it() {
        env::Runtime::simulated(3).block_on(async {
            let node = site().await;
            let connector = |uuid| RemoteConnector {
                address: "10.0.0.1:7400".parse().unwrap(),
                uuid: Some(uuid),
                credentials: Credentials::NodeKey(KEY),
                options: ClientOptions::default(),
            };
            assert!(connector(node.store().uuid()).open("g/1", 1).await.is_ok());
            let other = connector(node.store().uuid() ^ 1).open("g/1", 2).await;
            let Err(ConnectionError::Gone(why)) = other else {
                panic!("it was taken for another one");
            };
            assert!(why.contains("was looked for"), "{why}");
            // Nor was anything sealed there.
            assert!(connector(node.store().uuid()).open("g/1", 1).await.is_ok());
        });
    }
}
