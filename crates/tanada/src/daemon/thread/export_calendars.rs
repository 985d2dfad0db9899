//! The calendars of exports for the cluster: asked on its thread, kept on the threads of the hybrids.
//!
//! ```text
//! cluster's thread -> ExportCalendar -> Command::Queue -> thread of the hybrid -> manager of its queue -> answer
//! ```
//!
//! Always true: an export has one reservation each way at a time, whichever way it was asked for.

use std::collections::BTreeMap;
use std::rc::Rc;

use base::Nanos;
use env::Poster;
use policy::share::calendar::BookingId;
use policy::share::cap::{Caps, check_booked};
use policy::share::{BytesPerSec, Direction, Second};
use reservations::calendar::{
    Calendar, OwnCalendar, PartAnswer, PartError, PartRequest, carry_out, release_alone,
};
use reservations::confirm::Own;
use reservations::record::QUEUE;
use reservations::stores::Pending;
use store::qos::manager::{Manager, PartName, Quote, ReservationRequest, Unconfirmed};
use tokio::sync::oneshot;

use super::command::{Command, Ended, QueueOf, ThreadHandle};
use super::queued::Queued;

/// A thread that does not answer for so long counts as unreachable: others are not kept waiting.
const ANSWER: Nanos = Nanos::secs(8);

/// Has `work` done where the export is, with the queue of its hybrid; `None`: it has none there.
pub async fn at_queue<T: Send + 'static>(
    poster: &Poster<Command>,
    export: &str,
    work: impl AsyncFnOnce(QueueOf) -> T + Send + 'static,
) -> Result<Option<T>, Ended> {
    let (reply, answer) = oneshot::channel();
    let job = move |found: Option<QueueOf>| {
        env::spawn(async move {
            let done = match found {
                Some(behind) => Some(work(behind).await),
                None => None,
            };
            // The asker may be gone; what was asked is done all the same.
            let _ = reply.send(done);
        });
    };
    let command = Command::Queue {
        export: export.to_owned(),
        job: Box::new(job),
    };
    poster.post(command).map_err(|_| Ended)?;
    answer.await.map_err(|_| Ended)
}

/// The calendar of the queue behind an export of this node.
#[derive(Clone)]
pub struct ExportCalendar {
    export: String,
    /// That of the calendar.
    uuid: u128,
    poster: Poster<Command>,
}

impl ExportCalendar {
    async fn at<T: Send + 'static>(
        &self,
        work: impl AsyncFnOnce(QueueOf) -> Result<T, PartError> + Send + 'static,
    ) -> Result<T, PartError> {
        let gone = |why: &str| PartError::Unreachable(format!("export {}: {why}", self.export));
        let done = at_queue(&self.poster, &self.export, work);
        match env::timeout(ANSWER, done).await {
            Ok(Ok(Some(done))) => done,
            Ok(Ok(None)) => Err(gone("its hybrid is detached")),
            Ok(Err(Ended)) => Err(gone("its thread has ended")),
            Err(elapsed) => Err(gone(&elapsed.to_string())),
        }
    }
}

impl Calendar for ExportCalendar {
    fn ask(&self, request: PartRequest) -> Pending<'_, PartAnswer> {
        Box::pin(self.at(async move |behind| asked(&behind, request).await))
    }
}

impl OwnCalendar for ExportCalendar {
    fn unconfirmed(&self, seconds: u64) -> Pending<'_, Vec<Unconfirmed>> {
        Box::pin(
            self.at(async move |behind| Ok(behind.queued.manager().parts().unconfirmed(seconds))),
        )
    }

    fn has(&self, part: PartName) -> Pending<'_, bool> {
        Box::pin(self.at(async move |behind| Ok(behind.queued.manager().parts().has(part))))
    }

    fn release_alone(&self, part: PartName) -> Pending<'_, ()> {
        Box::pin(self.at(async move |behind| release_alone(behind.queued.manager(), part).await))
    }

    fn as_calendar(&self) -> &dyn Calendar {
        self
    }
}

async fn asked(behind: &QueueOf, request: PartRequest) -> Result<PartAnswer, PartError> {
    let manager = behind.queued.manager();
    // What is in the way is looked at and held in one turn.
    let _turn = match request {
        PartRequest::Hold { .. } | PartRequest::Amend { .. } => Some(behind.queued.turn().await),
        _ => None,
    };
    let refusal = |it: &ReservationRequest| {
        Queued::refusal(it.direction, behind.write).or_else(|| above_cap(&behind.caps, it))
    };
    match &request {
        PartRequest::Quote(wanted) => {
            if let Some(refused) = wanted.iter().find_map(refusal) {
                let (earliest, refused) = (None, Some(refused));
                return Ok(PartAnswer::Quote(Quote { earliest, refused }));
            }
            // It is of no group yet: whatever is there is another one.
            let mut others = wanted.iter();
            if let Some(other) = others.find_map(|it| beside(manager, it, Some(0))) {
                return Ok(PartAnswer::Quote(Quote {
                    earliest: Some(other.until),
                    refused: Some(other.to_string()),
                }));
            }
        }
        PartRequest::Hold { wanted, group, .. } | PartRequest::Amend { wanted, group, .. } => {
            let other = || beside(manager, wanted, Some(group.id)).map(|it| it.to_string());
            if let Some(why) = refusal(wanted).or_else(other) {
                return Err(PartError::Refused(why));
            }
        }
        _ => {}
    }
    carry_out(manager, request).await
}

/// Why it is more than the export's clients may have at most, and what to ask for instead.
pub fn above_cap(caps: &[Caps], wanted: &ReservationRequest) -> Option<String> {
    let mut booked = [BytesPerSec(0); 2];
    booked[wanted.direction as usize] = wanted.rate;
    let checks = caps.iter().map(|caps| check_booked(caps, booked));
    let above = checks.filter_map(Result::err).next()?;
    Some(format!(
        "{above}; ask for at most {}, or raise the cap first",
        above.cap
    ))
}

/// Another reservation of an export in the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the export has reservation number {} of {direction}s until {until} already; end that one, or ask for another time",
    .id.0
)]
pub struct Other {
    id: BookingId,
    direction: Direction,
    /// The first second behind it.
    pub until: Second,
}

/// What is in the way of one of `group`: an export's requests are served by one reservation at a time. What is of no group,
/// as by the older route, gives way to parts of the cluster's reservations alone.
pub fn beside(
    manager: &Manager,
    wanted: &ReservationRequest,
    group: Option<u128>,
) -> Option<Other> {
    let all = manager.reservations();
    let mut others = all.iter().filter(|it| {
        let other = &it.request;
        let of = it.group.as_ref().map(|it| it.id);
        let is_other = match group {
            Some(_) => of != group,
            None => of.is_some(),
        };
        is_other
            && (&other.holder, other.direction) == (&wanted.holder, wanted.direction)
            && other.slot.overlaps(wanted.slot)
    });
    others.next().map(|other| Other {
        id: other.id,
        direction: wanted.direction,
        until: other.request.slot.end,
    })
}

/// The calendars of all exports of this node, by name.
#[derive(Clone, Default)]
pub struct ExportCalendars(BTreeMap<String, ExportCalendar>);

impl ExportCalendars {
    /// Those of the exports of these names that stand on a hybrid with a queue. From now on they take parts.
    pub async fn find(threads: &[ThreadHandle], exports: &[String]) -> ExportCalendars {
        let mut found = BTreeMap::new();
        for export in exports {
            for thread in threads {
                let poster = thread.poster();
                let uuid = at_queue(&poster, export, async |behind: QueueOf| {
                    behind.queued.manager().parts().take_by_record();
                    behind.queued.manager().store().uuid()
                });
                if let Ok(Some(uuid)) = uuid.await {
                    let calendar = ExportCalendar {
                        export: export.clone(),
                        uuid,
                        poster,
                    };
                    found.insert(export.clone(), calendar);
                }
            }
        }
        ExportCalendars(found)
    }

    /// The calendar of this export.
    pub fn get(&self, export: &str) -> Option<ExportCalendar> {
        self.0.get(export).cloned()
    }

    /// Whose calendar is which.
    pub fn identities(&self) -> BTreeMap<String, u128> {
        let all = self.0.iter();
        all.map(|(name, it)| (name.clone(), it.uuid)).collect()
    }

    /// Each calendar once, with its exports.
    pub fn own(&self) -> Vec<Own> {
        let mut all: BTreeMap<u128, Own> = BTreeMap::new();
        for (name, calendar) in &self.0 {
            let own = all.entry(calendar.uuid).or_insert_with(|| Own {
                store: QUEUE,
                exports: Vec::new(),
                calendar: Rc::new(calendar.clone()),
            });
            own.exports.push(name.clone());
        }
        all.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use base::Bytes;
    use config::scheduling::HybridQueue;
    use device::Memory;
    use hybrid::WriteMode;
    use policy::share::{Costs, Direction, Second, Slot};
    use store::qos::manager::{Group, ManagerOptions};

    use super::*;

    async fn queued() -> Rc<Queued> {
        let book = Memory::new("book", Bytes::mib(64));
        let slow = Memory::new("slow", Bytes::mib(16));
        let costs = Costs::flat(BytesPerSec::mb(100));
        let queued = Queued::on(
            store::qos::manager::BookDevice::New(book),
            HybridQueue::default(),
            slow,
            ManagerOptions::new(costs, [7; 32]),
        )
        .await;
        let queued = Rc::new(queued.unwrap());
        queued.manager().parts().take_by_record();
        queued
    }

    /// The calendar of `vol0`, on a thread that has it.
    fn calendar(queued: &Rc<Queued>, write: WriteMode) -> ExportCalendar {
        let (poster, mut mailbox) = env::mailbox();
        let of = Rc::clone(queued);
        env::spawn(async move {
            while let Ok(command) = mailbox.receive().await {
                if let Command::Queue { export, job } = command {
                    let behind = || QueueOf {
                        queued: Rc::clone(&of),
                        write,
                        caps: [Caps::default(); 2],
                    };
                    job((export == "vol0").then(behind));
                }
            }
        });
        ExportCalendar {
            export: "vol0".to_owned(),
            uuid: queued.manager().store().uuid(),
            poster,
        }
    }

    fn wanted(direction: Direction, from: u64) -> ReservationRequest {
        let slot = Slot::new(Second(env::wall_clock().0 / 1_000_000_000 + from), 100);
        let request = ReservationRequest::new(direction, BytesPerSec::mb(10), slot);
        Queued::request("vol0", request)
    }

    fn hold(queued: &Queued, wanted: ReservationRequest) -> PartRequest {
        let stores = vec![queued.manager().store().uuid(), Group::BY_RECORD];
        let until = Second(wanted.slot.start.0 + 30);
        PartRequest::Hold {
            wanted,
            group: Group { id: 9, stores },
            until,
        }
    }

    #[test]
    fn an_export_has_one_reservation_each_way_at_a_time() {
        env::Runtime::simulated(1).block_on(async {
            let queued = queued().await;
            let calendar = calendar(&queued, WriteMode::Through);
            let manager = queued.manager();
            let (alone, until) = (wanted(Direction::Read, 0), Second(manager.now().0 + 30));
            let id = manager.hold(&alone, None, until).await.unwrap();
            manager.commit(id).await.unwrap();
            let beside = calendar
                .ask(hold(&queued, wanted(Direction::Read, 50)))
                .await;
            let Err(PartError::Refused(why)) = beside else {
                panic!("{beside:?}");
            };
            assert!(why.contains(&format!("number {} of reads", id.0)), "{why}");
            for fits in [wanted(Direction::Read, 100), wanted(Direction::Write, 0)] {
                let held = calendar.ask(hold(&queued, fits)).await;
                let Ok(PartAnswer::Number(id)) = held else {
                    panic!("{held:?}");
                };
                let seen = calendar.ask(PartRequest::Look(PartName::of(id, 9))).await;
                assert!(matches!(seen, Ok(PartAnswer::State(_))), "{seen:?}");
            }
            assert_eq!(calendar.unconfirmed(60).await.unwrap().len(), 2);
        });
    }

    #[test]
    fn amending_one_of_an_export_takes_no_time_that_another_has() {
        env::Runtime::simulated(1).block_on(async {
            let queued = queued().await;
            let calendar = calendar(&queued, WriteMode::Through);
            let manager = queued.manager();
            let first = hold(&queued, wanted(Direction::Read, 0));
            let Ok(PartAnswer::Number(first)) = calendar.ask(first).await else {
                panic!("it is held");
            };
            let name = PartName::of(first, 9);
            calendar.ask(PartRequest::Commit(name)).await.unwrap();
            // By the older route, behind it.
            let (alone, until) = (wanted(Direction::Read, 100), Second(manager.now().0 + 30));
            let id = manager.hold(&alone, None, until).await.unwrap();
            manager.commit(id).await.unwrap();
            let amend = |seconds| {
                let wanted = wanted(Direction::Read, 0);
                let end = Second(wanted.slot.start.0 + seconds);
                let slot = Slot { end, ..wanted.slot };
                PartRequest::Amend {
                    replaced: first,
                    wanted: ReservationRequest { slot, ..wanted },
                    group: Group {
                        id: 9,
                        stores: vec![manager.store().uuid(), Group::BY_RECORD],
                    },
                    until,
                }
            };
            let longer = calendar.ask(amend(150)).await;
            assert!(matches!(longer, Err(PartError::Refused(_))), "{longer:?}");
            let shorter = calendar.ask(amend(50)).await;
            assert!(matches!(shorter, Ok(PartAnswer::Number(_))), "{shorter:?}");
        });
    }

    #[test]
    fn what_the_cleaner_destages_later_is_not_promised() {
        env::Runtime::simulated(1).block_on(async {
            let queued = queued().await;
            let calendar = calendar(&queued, WriteMode::Back);
            let writes = wanted(Direction::Write, 0);
            let refused = calendar.ask(hold(&queued, writes.clone())).await;
            assert!(matches!(refused, Err(PartError::Refused(_))), "{refused:?}");
            let quoted = calendar.ask(PartRequest::Quote(vec![writes])).await;
            let Ok(PartAnswer::Quote(quote)) = quoted else {
                panic!("{quoted:?}");
            };
            assert!(quote.refused.is_some() && quote.earliest.is_none());
            let reads = calendar
                .ask(hold(&queued, wanted(Direction::Read, 0)))
                .await;
            assert!(matches!(reads, Ok(PartAnswer::Number(_))), "{reads:?}");
        });
    }

    #[test]
    fn a_thread_that_is_gone_is_unreachable() {
        env::Runtime::simulated(1).block_on(async {
            let queued = queued().await;
            let (poster, mailbox) = env::mailbox();
            drop(mailbox);
            let calendar = ExportCalendar {
                export: "vol0".to_owned(),
                uuid: 0,
                poster,
            };
            let gone = calendar
                .ask(hold(&queued, wanted(Direction::Read, 0)))
                .await;
            assert!(matches!(gone, Err(PartError::Unreachable(_))), "{gone:?}");
        });
    }
}
