//! For whom the stores of a gateway are asked: a lane for each account and reservation, a cap for each key and bucket.
//!
//! ```text
//! request -> Qos { account, reservation, caps } -> waits for the caps -> lane: a session at each store -> its flow there
//! ```
//!
//! What a store promises a reservation its requests get from whichever connection they come, since they share a session.
//! What nothing is promised to is served as its account is, beside those of others, and under the account's cap.
//!
//! Always true:
//! 1. A store has one session for an account and a reservation, however many requests there are.
//! 2. A lane that no request used for [`IDLE`] is closed when one more is opened.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use base::{Bytes, Instant, Nanos};
use device::{AccountCaps, ThrottleUser};
use policy::share::Direction;
use policy::share::cap::Caps;
use store::ops::{ObjectError, ObjectErrors, ObjectOps};
use store::qos::manager::Manager;
use store::qos::session::{Access, Session, SessionError};

/// How long a lane stays open for the next request.
const IDLE: Nanos = Nanos::secs(60);

/// A store as the gateway uses it.
pub type Objects = dyn ObjectOps<Error = ObjectError>;

/// Whose the bytes of a request are at the stores; by default the gateway's own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Qos {
    /// The account, as stores call it; `None`: the daemon's owner.
    pub account: Option<String>,
    /// The reservation that they come under, while it promises something.
    pub reservation: Option<u128>,
    /// What they get at most: of the access key, of the bucket, each by a name of its own.
    pub caps: Vec<(String, Caps)>,
}

/// What came of the promises of all stores of a gateway, of one reservation and direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Delivered {
    /// Bytes.
    pub bytes: u64,
    /// Windows in which as much was delivered as was promised, or as was asked for.
    pub kept: u64,
    /// Windows in which it was not.
    pub missed: u64,
}

/// A session at each store, in their order.
pub(crate) struct Lane {
    pub stores: Vec<Rc<Objects>>,
    sessions: Vec<Rc<Session>>,
    used: Cell<Instant>,
}

/// The account and the reservation of a lane.
type Whose = (Option<String>, Option<u128>);

/// The lanes of a gateway.
pub(crate) struct Lanes {
    managers: Vec<Rc<Manager>>,
    open: RefCell<BTreeMap<Whose, Rc<Lane>>>,
    caps: AccountCaps,
}

impl Lanes {
    pub fn new(managers: Vec<Rc<Manager>>) -> Lanes {
        Lanes {
            managers,
            open: RefCell::default(),
            caps: AccountCaps::default(),
        }
    }

    /// The lane of these requests.
    pub fn of(&self, qos: &Qos) -> Result<Rc<Lane>, SessionError> {
        let whose = (qos.account.clone(), qos.reservation);
        let mut open = self.open.borrow_mut();
        let now = env::now();
        if let Some(lane) = open.get(&whose) {
            lane.used.set(now);
            return Ok(Rc::clone(lane));
        }
        open.retain(|_, lane| Rc::strong_count(lane) > 1 || now.since(lane.used.get()) < IDLE);
        let access = Access::OnBehalf {
            account: qos.account.as_deref(),
            reservation: qos.reservation,
        };
        let opened = self.managers.iter().map(|it| it.open_session(access));
        let sessions = opened.collect::<Result<Vec<_>, _>>()?;
        let stores = sessions.iter().map(|session| {
            let objects: Rc<Objects> = Rc::new(ObjectErrors(Rc::clone(session)));
            objects
        });
        let lane = Rc::new(Lane {
            stores: stores.collect(),
            sessions,
            used: Cell::new(now),
        });
        open.insert(whose, Rc::clone(&lane));
        Ok(lane)
    }

    /// Waits until so many bytes may pass.
    pub async fn pass(
        &self,
        qos: &Qos,
        direction: Direction,
        bytes: u64,
    ) -> Result<(), ObjectError> {
        for (name, caps) in &qos.caps {
            let throttle = self.caps.of(name);
            throttle.set(*caps);
            if !ThrottleUser::new(throttle)
                .pass(direction, Bytes(bytes))
                .await
            {
                return Err(ObjectError::Gone("the daemon ends".to_owned()));
            }
        }
        Ok(())
    }
}

impl Lane {
    /// What came of what is promised to its requests of a direction.
    pub fn delivered(&self, direction: Direction) -> Delivered {
        let reports = self.sessions.iter();
        let reports = reports.filter_map(|it| it.attached_delivery(direction));
        reports.fold(Delivered::default(), |all, it| Delivered {
            bytes: all.bytes + it.delivered_bytes,
            kept: all.kept + it.windows.kept + it.windows.no_demand,
            missed: all.missed + it.windows.capacity + it.windows.scheduler,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use base::View;
    use device::model::{ModelDisk, Spec, Store as Backing};
    use device::{Device, Memory};
    use policy::share::{BytesPerSec, Costs, Second, Slot};
    use store::qos::costs;
    use store::qos::manager::{Group, ManagerOptions, PartName, ReservationRequest};
    use store::{Settings, Store};

    use super::*;
    use crate::blobs::{Blobs, PREFIX};
    use crate::index::record::BlobRef;

    const WHOLE: u128 = 0x7f3a;

    /// A manager of a store made on a device, without a thought of what it can do.
    pub async fn manager(device: Rc<dyn Device>) -> Rc<Manager> {
        let made = Store::format(Rc::clone(&device), Settings::default()).await;
        made.unwrap().close().await.unwrap();
        let options = ManagerOptions::new(Costs::flat(BytesPerSec::mb(100)), [7; 32]);
        Manager::open(device, options).await.unwrap()
    }

    /// Over a modelled disk, by what it costs.
    async fn modelled(options: impl FnOnce(&mut ManagerOptions)) -> Rc<Manager> {
        let spec = Spec::find("ssd-sata-mlc").unwrap();
        let disk = ModelDisk::new("ssd", &spec, Some(Bytes::gib(4)), Backing::Memory, 1).unwrap();
        let disk: Rc<dyn Device> = disk;
        let store = Store::format(Rc::clone(&disk), Settings::default()).await;
        store.unwrap().close().await.unwrap();
        let mut wanted = ManagerOptions {
            scrub: None,
            ..ManagerOptions::new(costs::of_model(&spec), [7; 32])
        };
        options(&mut wanted);
        Manager::open(disk, wanted).await.unwrap()
    }

    fn blob(id: u8) -> BlobRef {
        BlobRef {
            folder: "photos".into(),
            id: format!("{:010x}{id:016x}", 1000),
            size: 4 << 20,
        }
    }

    async fn write(blobs: &Blobs, id: u8) {
        for at in 0..4 {
            let data = View::copy_of(&vec![id; 1 << 20]);
            let at = (&blob(id), at << 20);
            blobs.write(&Qos::default(), at, data).await.unwrap();
        }
        blobs.flush().await.unwrap();
    }

    /// Reads a blob over and over, four pieces at a time, until `end`.
    async fn read(blobs: &Blobs, qos: &Qos, id: u8, end: base::Instant, got: &Cell<u64>) {
        let pieces = (0..4).map(async |at| {
            while env::now() < end {
                let at = (&blob(id), at << 20);
                blobs.pass(qos, Direction::Read, 1 << 20).await.unwrap();
                blobs.read(qos, at, 1 << 20).await.unwrap();
                got.set(got.get() + (1 << 20));
            }
        });
        env::sync::join_all(pieces.collect::<Vec<_>>()).await;
    }

    #[test]
    fn a_reserved_key_gets_its_rate_beside_16_greedy_keys_and_all_of_an_account_weigh_as_one() {
        env::Runtime::simulated(7).block_on(async {
            let manager = modelled(|_| {}).await;
            let blobs = Blobs::new(vec![Rc::clone(&manager)]).unwrap();
            for id in 0..18 {
                write(&blobs, id).await;
            }
            let slot = Slot::new(manager.now(), 600);
            let request = ReservationRequest::new(Direction::Read, BytesPerSec::mb(100), slot);
            let group = Group {
                id: WHOLE,
                stores: vec![manager.store().uuid()],
            };
            let until = Second(manager.now().0 + 10);
            let request = request.scope(PREFIX).holder("astro");
            let held = manager.hold(&request, Some(group), until).await.unwrap();
            manager.commit(PartName::of(held, WHOLE)).await.unwrap();
            let of = |account: &str, reservation| Qos {
                account: Some(account.to_owned()),
                reservation,
                ..Qos::default()
            };
            let end = env::now() + Nanos::secs(60);
            let [reserved, alone, greedy] = [(); 3].map(|()| Cell::new(0));
            let (bio, geo, astro) = (of("bio", None), of("geo", None), of("astro", Some(WHOLE)));
            let mut all: Vec<futures::future::LocalBoxFuture<'_, ()>> = Vec::new();
            all.push(Box::pin(read(&blobs, &astro, 0, end, &reserved)));
            all.push(Box::pin(read(&blobs, &geo, 1, end, &alone)));
            for id in 2..18 {
                all.push(Box::pin(read(&blobs, &bio, id, end, &greedy)));
            }
            env::sync::join_all(all).await;
            let delivered = blobs.delivered(&astro, Direction::Read).unwrap();
            assert!(
                delivered.kept >= 59 && delivered.missed == 0,
                "{delivered:?}"
            );
            assert!(reserved.get() >= 59 * 100_000_000, "{reserved:?}");
            // Sixteen keys of one account take no more than one of another.
            let share = alone.get() as f64 / (alone.get() + greedy.get()) as f64;
            assert!((0.45..0.55).contains(&share), "{share}");
            let none = blobs.delivered(&bio, Direction::Read).unwrap();
            assert_eq!(none, Delivered::default());
        });
    }

    #[test]
    fn a_key_has_no_more_than_its_cap_its_bucket_s_and_its_account_s() {
        let limit = |mb| {
            let mut caps = Caps::default();
            caps.read.bytes = Some(BytesPerSec::mb(mb));
            caps
        };
        for (key, bucket, account, expected) in
            [(20, 50, 100, 20), (50, 20, 100, 20), (50, 100, 20, 20)]
        {
            env::Runtime::simulated(8).block_on(async move {
                let caps = Rc::new(AccountCaps::default());
                caps.set_all([("bio".to_owned(), limit(account))].into());
                let manager = modelled(|it| it.account_caps = Some(caps)).await;
                let blobs = Blobs::new(vec![manager]).unwrap();
                write(&blobs, 0).await;
                let qos = Qos {
                    account: Some("bio".to_owned()),
                    reservation: None,
                    caps: vec![
                        ("key TA1".to_owned(), limit(key)),
                        ("bucket 1".to_owned(), limit(bucket)),
                    ],
                };
                let got = Cell::new(0);
                read(&blobs, &qos, 0, env::now() + Nanos::secs(20), &got).await;
                // A second's worth passes at once, and what was begun by then ends.
                let most = 21 * expected * 1_000_000 + (8 << 20);
                let least = 19 * expected * 1_000_000;
                assert!((least..=most).contains(&got.get()), "{got:?}");
            });
        }
    }

    #[test]
    fn a_lane_that_nothing_used_for_a_minute_is_closed_when_another_opens() {
        env::Runtime::simulated(9).block_on(async {
            let device = Memory::new("a", Bytes::mib(64));
            let manager = manager(device).await;
            let blobs = Blobs::new(vec![Rc::clone(&manager)]).unwrap();
            write(&blobs, 0).await;
            let read = async |n: u32| {
                let qos = Qos {
                    account: Some(format!("account-{n}")),
                    ..Qos::default()
                };
                blobs.read(&qos, (&blob(0), 0), 4096).await.unwrap();
                let open = manager.sessions();
                open.iter().filter(|it| it.closed.is_none()).count()
            };
            for n in 0..100 {
                assert_eq!(read(n).await, 2 + n as usize);
            }
            env::sleep(IDLE).await;
            assert_eq!(read(7).await, 101, "it is open still");
            assert_eq!(
                read(100).await,
                3,
                "its own, the one of now, and the last one"
            );
        });
    }
}
