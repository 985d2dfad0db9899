//! Booking inside an allotment: never above it, however many do so at once and whatever answer is lost.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use base::Nanos;
use policy::share::Second;
use vdisk::StoreNumber;
use vdisk::meta::{Faults, MemoryMetaClient};

use super::world::{World, calendars_agree, of_vm1, records};
use crate::ReservationError;
use crate::ask::{Ask, TargetAsk};
use crate::quota::{Limits, Quotas, Unlimited};
use crate::record::{Phase, Reservation, ReservationId};
use crate::service::{Change, Service};
use crate::stores::Pending;
use vdisk::meta::TxnPart;

/// Reads at all three stores.
fn of_all(service: &Service, name: &str, mb: u64) -> Ask {
    Ask {
        target: TargetAsk::Stores {
            stores: ["s1", "s2", "s3"].map(str::to_owned).into(),
            stripe: false,
            scope: format!("{name}/"),
        },
        ..of_vm1(service, name, mb)
    }
}

pub fn pool(service: &Service, mb: u64) -> Ask {
    let mut ask = of_all(service, "pool", mb);
    ask.terms.allotment = true;
    ask
}

pub fn inside(mut ask: Ask) -> Ask {
    ask.terms.within = Some("pool".to_owned());
    ask
}

/// What is promised inside at one store by the records, now.
pub fn promised_inside(all: &[Reservation], store: u16) -> u64 {
    let inside = all
        .iter()
        .filter(|it| it.terms.within.is_some() && it.state.stands());
    let parts = inside.flat_map(|it| it.parts.clone());
    let there = parts.filter(|it| it.store == StoreNumber(store));
    there.map(|it| it.rate / 1_000_000).sum()
}

#[test]
fn what_is_inside_needs_no_room_at_the_stores_and_ends_with_the_allotment() {
    env::Runtime::simulated(1).block_on(async {
        let world = World::new().await;
        let (service, ..) = world.node("n1", u64::MAX);
        let _tending = world.tend(&service);
        let (allotment, _) = service.create(pool(&service, 60)).await.unwrap();
        assert_eq!(service.capabilities(&allotment).await.unwrap(), []);
        service
            .create(of_all(&service, "filler", 15))
            .await
            .unwrap();
        let full = service.create(of_all(&service, "no", 1)).await;
        assert!(matches!(full, Err(ReservationError::Refused { .. })));
        let (volume, _) = service
            .create(inside(of_vm1(&service, "vm", 40)))
            .await
            .unwrap();
        assert_eq!(volume.record.terms.within, Some(allotment.id));
        let ask = inside(of_all(&service, "job", 30));
        let refused = service.create(ask.clone()).await.unwrap_err();
        assert!(
            refused
                .to_string()
                .contains("20 MB/s of its 60 MB/s are left"),
            "{refused}"
        );
        let offer = service.quote(&ask).await.unwrap();
        assert_eq!((offer.earliest, offer.largest_permille), (None, Some(666)));
        let (job, _) = service
            .create(ask.with(ask.promise.from, 600, 666))
            .await
            .unwrap();
        assert_eq!(service.capabilities(&job).await.unwrap().len(), 3);
        // It grows once there is room inside; the allotment becomes no less than what is inside.
        let reads = |mb: u64| Change {
            read: Some(mb * 1_000_000),
            ..Change::default()
        };
        assert!(service.amend(job.clone(), reads(21)).await.is_err());
        service.amend(volume.clone(), reads(30)).await.unwrap();
        service.amend(job, reads(30)).await.unwrap();
        let less = service
            .amend(allotment.clone(), reads(59))
            .await
            .unwrap_err();
        assert!(less.to_string().contains("is booked inside"), "{less}");
        world.agree(&records(&service).await).unwrap();
        service.release(volume, "done").await.unwrap();
        service
            .create(inside(of_all(&service, "next", 30)))
            .await
            .unwrap();
        service.release(allotment, "done").await.unwrap();
        let all = records(&service).await;
        let standing: Vec<&str> = all
            .iter()
            .filter(|it| it.state.stands())
            .map(|it| &*it.name)
            .collect();
        assert_eq!(standing, ["filler"]);
        let ended = all.iter().find(|it| it.name == "next").unwrap();
        assert_eq!(ended.cause.as_deref(), Some("its allotment pool is over"));
        world.agree(&all).unwrap();
        let late = service
            .create(inside(of_all(&service, "late", 1)))
            .await
            .unwrap_err();
        assert!(matches!(late, ReservationError::Absent(_)), "{late}");
    });
}

#[test]
fn only_its_own_account_books_out_of_an_allotment() {
    env::Runtime::simulated(1).block_on(async {
        let world = World::new().await;
        let (service, ..) = world.node("n1", u64::MAX);
        let (allotment, _) = service.create(pool(&service, 60)).await.unwrap();
        let (plain, _) = service.create(of_all(&service, "plain", 1)).await.unwrap();
        let mut other = inside(of_all(&service, "job", 10));
        other.account = "botany".to_owned();
        for (within, said) in [
            ("pool".to_owned(), "there is no reservation pool"),
            (allotment.id.to_string(), "there is no reservation r-"),
        ] {
            other.terms.within = Some(within);
            let refused = service.create(other.clone()).await.unwrap_err();
            assert!(refused.to_string().contains(said), "{refused}");
        }
        let mut none = inside(of_all(&service, "job", 10));
        none.terms.within = Some(plain.id.to_string());
        let refused = service.create(none).await.unwrap_err();
        assert!(refused.to_string().contains("is no allotment"), "{refused}");
        let mut nested = inside(pool(&service, 10));
        nested.name = "nested".to_owned();
        let refused = service.create(nested).await.unwrap_err();
        assert!(matches!(refused, ReservationError::Request(_)), "{refused}");
    });
}

fn faults(client: &MemoryMetaClient, lost: f64) {
    client.set_faults(Faults {
        delay_most: Nanos::millis(5),
        requests_lost: lost,
        answers_lost: lost,
        timeout: Nanos::millis(500),
        ..Faults::default()
    });
}

/// A hundred book at once at two nodes; how many were made?
async fn many_at_once(seed: u64) -> Result<usize, String> {
    let world = World::new().await;
    let (a, _, to_a) = world.node("n1", u64::MAX);
    let (b, _, to_b) = world.node("n2", u64::MAX);
    // What is booked later ends later.
    let mut longer = pool(&a, 60);
    longer.promise.until += 600;
    a.create(longer).await.unwrap();
    faults(&to_a, 0.03);
    faults(&to_b, 0.03);
    let (keeper, ..) = world.node("n1", u64::MAX);
    let _tending = world.tend(&keeper);
    let open = Rc::new(Cell::new(100_u32));
    for nth in 0..100_u64 {
        let service = Rc::clone(if nth % 2 == 0 { &a } else { &b });
        let open = Rc::clone(&open);
        let asked = env::spawn(async move {
            let name = format!("job{nth}");
            let mut rng = env::rng(&format!("{seed} {nth}"));
            let mb = 1 + rng.below(3);
            for _ in 0..8 {
                let made = service.create(inside(of_all(&service, &name, mb))).await;
                if made.is_ok() {
                    break;
                }
                // What was held and came to nothing is given back within seconds.
                env::sleep(Nanos::millis(1 + rng.below(4000))).await;
            }
            open.set(open.get() - 1);
        });
        drop(asked);
    }
    while open.get() > 0 {
        env::sleep(Nanos::millis(50)).await;
        let all = records(&keeper).await;
        for store in 1..=3 {
            let promised = promised_inside(&all, store);
            if promised > 60 {
                return Err(format!(
                    "{promised} of 60 MB/s are promised at store {store}"
                ));
            }
        }
    }
    env::sleep(Nanos::secs(100)).await;
    let all = records(&keeper).await;
    world.agree(&all)?;
    calendars_agree(&keeper).await?;
    let there = keeper.find("astro", "pool").await.unwrap();
    assert_eq!(there.record.state, Phase::Committed);
    Ok(promised_inside(&all, 1) as usize)
}

#[test]
fn a_hundred_at_once_never_book_more_than_the_allotment_has() {
    let mut least = usize::MAX;
    for seed in 0..4 {
        match env::Runtime::simulated(seed).block_on(many_at_once(seed)) {
            Ok(promised) => least = least.min(promised),
            Err(why) => panic!("seed {seed}: {why}"),
        }
    }
    println!("{least} of 60 MB/s were booked at least");
    assert!(least > 50, "{least}");
}

#[test]
fn an_allotment_drops_no_direction_that_is_booked_inside() {
    env::Runtime::simulated(1).block_on(async {
        let world = World::new().await;
        let (service, ..) = world.node("n1", u64::MAX);
        let mut both = pool(&service, 40);
        both.promise.write = 20_000_000;
        let (allotment, _) = service.create(both).await.unwrap();
        let (reads, _) = service
            .create(inside(of_all(&service, "job", 10)))
            .await
            .unwrap();
        let none = Change {
            read: Some(0),
            ..Change::default()
        };
        let refused = service.amend(allotment.clone(), none).await.unwrap_err();
        assert!(
            refused.to_string().contains("is booked inside"),
            "{refused}"
        );
        world.agree(&records(&service).await).unwrap();
        service.release(reads, "done").await.unwrap();
        let less = service.amend(allotment, none).await.unwrap();
        assert_eq!(less.record.promise.read, 0);
        world.agree(&records(&service).await).unwrap();
    });
}

/// What is charged now, by id: the records as they are.
#[derive(Default)]
struct Charged(RefCell<BTreeMap<ReservationId, Reservation>>);

impl Quotas for Charged {
    fn limits<'a>(&'a self, _: &'a str) -> Pending<'a, Box<dyn Limits>, ReservationError> {
        Box::pin(async { Ok(Box::new(Unlimited) as Box<dyn Limits>) })
    }

    fn charge<'a>(
        &'a self,
        id: ReservationId,
        record: &'a Reservation,
        _: Second,
    ) -> Pending<'a, TxnPart, ReservationError> {
        self.0.borrow_mut().insert(id, record.clone());
        Box::pin(async { Ok(TxnPart::default()) })
    }

    fn is_on<'a>(&'a self, _: &'a str) -> Pending<'a, bool, ReservationError> {
        Box::pin(async { Ok(true) })
    }

    fn refund<'a>(
        &'a self,
        id: ReservationId,
        _: &'a Reservation,
        _: Second,
    ) -> Pending<'a, TxnPart, ReservationError> {
        self.0.borrow_mut().remove(&id);
        Box::pin(async { Ok(TxnPart::default()) })
    }
}

#[test]
fn what_is_inside_is_charged_for_its_room_and_refunded() {
    env::Runtime::simulated(1).block_on(async {
        let world = World::new().await;
        let charged = Rc::new(Charged::default());
        let quotas = Rc::clone(&charged) as Rc<dyn Quotas>;
        let (service, ..) = world.node_with("n1", u64::MAX, quotas);
        let mut writes = pool(&service, 40);
        writes.promise.write = 20_000_000;
        let (allotment, _) = service.create(writes).await.unwrap();
        let mut ask = inside(of_all(&service, "job", 10));
        ask.promise.write = 10_000_000;
        ask.promise.space = 65_536;
        let (job, _) = service.create(ask).await.unwrap();
        let space = |id| charged.0.borrow().get(&id).map(|it| it.promise.space);
        assert_eq!(
            (space(allotment.id), space(job.id)),
            (Some(0), Some(65_536))
        );
        service.release(job.clone(), "done").await.unwrap();
        assert_eq!(space(job.id), None);
    });
}
