//! A coordinator killed at each of its steps: within 20 s no part is left without a record, and none is lost that was
//! answered.

use std::cell::Cell;
use std::rc::Rc;

use base::Nanos;

use super::allotments::{inside, pool, promised_inside};
use super::world::{EXPORTING, World, calendars_agree, of_vm1, records};
use crate::ask::{Ask, TargetAsk};
use crate::record::{Phase, Reservation};
use crate::service::{Change, Service};
use crate::sweep::abort_own;

/// How long a node's lease lasts after it was killed.
const LEASE: Nanos = Nanos::secs(10);
/// By then all is settled.
const SETTLED: Nanos = Nanos::secs(20);
/// By then also what was committed has asked its record.
const ASKED: Nanos = Nanos::secs(80);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Job {
    Create,
    Amend,
    Release,
    /// Makes one inside an allotment.
    CreateInside,
    /// Changes one inside an allotment.
    AmendInside,
    /// Releases the allotment that one is inside.
    ReleaseAllotment,
    /// Changes the allotment that one is inside.
    AmendAllotment,
    /// Releases one inside an allotment.
    ReleaseInside,
    /// Makes one of an export, at its node.
    CreateOfExport,
    /// Changes one of an export.
    AmendOfExport,
    /// Releases one of an export.
    ReleaseOfExport,
}

impl Job {
    fn is_inside(self) -> bool {
        matches!(
            self,
            Job::CreateInside
                | Job::AmendInside
                | Job::ReleaseInside
                | Job::AmendAllotment
                | Job::ReleaseAllotment
        )
    }

    fn is_of_export(self) -> bool {
        matches!(
            self,
            Job::CreateOfExport | Job::AmendOfExport | Job::ReleaseOfExport
        )
    }

    fn makes(self) -> bool {
        matches!(self, Job::Create | Job::CreateInside | Job::CreateOfExport)
    }
}

/// What is made, or there before the job.
fn first(service: &Service, job: Job) -> Ask {
    let ask = of_vm1(service, "vm", 40);
    if job.is_inside() {
        return inside(ask);
    }
    match job.is_of_export() {
        true => Ask {
            target: TargetAsk::Export {
                name: "vol0".to_owned(),
                node: None,
            },
            ..ask
        },
        false => ask,
    }
}

/// Does the job; is it answered?
async fn carry_out(service: Rc<Service>, job: Job, answered: Rc<Cell<bool>>) {
    let done = match job {
        Job::Create | Job::CreateInside | Job::CreateOfExport => {
            service.create(first(&service, job)).await.map(drop)
        }
        Job::ReleaseAllotment => {
            let known = service.find("astro", "pool").await.unwrap();
            service.release(known, "done").await.map(drop)
        }
        Job::AmendAllotment => {
            let known = service.find("astro", "pool").await.unwrap();
            let more = Change {
                read: Some(70_000_000),
                ..Change::default()
            };
            service.amend(known, more).await.map(drop)
        }
        Job::Amend | Job::AmendInside | Job::AmendOfExport => {
            let known = service.find("astro", "vm").await.unwrap();
            let more = Change {
                read: Some(50_000_000),
                write: (job == Job::Amend).then_some(3_000_000),
                ..Change::default()
            };
            service.amend(known, more).await.map(drop)
        }
        Job::Release | Job::ReleaseInside | Job::ReleaseOfExport => {
            let known = service.find("astro", "vm").await.unwrap();
            service.release(known, "done").await.map(drop)
        }
    };
    answered.set(done.is_ok());
}

/// Kills the coordinator after so many steps; was it through before?
async fn killed(job: Job, step: u64) -> Result<bool, String> {
    let world = World::new().await;
    // An export is reserved for at its node, as it is again when that has begun anew: the other one takes over here.
    let (own, others) = match job.is_of_export() {
        true => (EXPORTING, "n1"),
        false => ("n1", "n2"),
    };
    let (other, ..) = world.node(others, u64::MAX);
    if job.is_inside() {
        other.create(pool(&other, 60)).await.unwrap();
    }
    if !job.makes() {
        let (before, ..) = world.node(own, u64::MAX);
        before.create(first(&before, job)).await.unwrap();
    }
    let (service, steps, _) = world.node(own, step);
    let _tending = world.tend(&other);
    let answered = Rc::new(Cell::new(false));
    let _task = env::cancel_scope(env::spawn(carry_out(service, job, Rc::clone(&answered))));
    env::sleep(Nanos::millis(1)).await;
    let through = steps.get() > 0;
    // It is killed now, if it was not before.
    steps.set(0);
    env::sleep(LEASE).await;
    world.facts.borrow_mut().nodes.remove(own);
    // What an export's node alone could release asks its record within a minute.
    let settled = match job {
        Job::ReleaseOfExport => ASKED,
        _ => SETTLED,
    };
    env::sleep(settled.saturating_sub(LEASE)).await;
    let all = records(&other).await;
    world.agree(&all)?;
    calendars_agree(&other).await?;
    let standing: Vec<&Reservation> = all.iter().filter(|it| it.state.stands()).collect();
    if standing.len() != all.len() && all.iter().any(|it| it.state == Phase::Holding) {
        return Err("one is still holding".to_owned());
    }
    let of = |name: &str| standing.iter().find(|it| it.name == name);
    let reads = of("vm").map(|it| it.promise.read / 1_000_000);
    if job.is_inside() && promised_inside(&all, 1) > 60 {
        return Err("more is inside than the allotment has".to_owned());
    }
    if job.is_inside() && of("pool").is_none() && reads.is_some() {
        return Err("it outlives its allotment".to_owned());
    }
    let pool = of("pool").map(|it| it.promise.read / 1_000_000);
    let is_through = answered.get();
    let fits = match job {
        Job::Create | Job::CreateInside | Job::CreateOfExport => {
            reads == Some(40) || !is_through && reads.is_none()
        }
        Job::Amend | Job::AmendInside | Job::AmendOfExport => {
            reads == Some(50) || !is_through && reads == Some(40)
        }
        Job::AmendAllotment => {
            let is_changed = pool == Some(70) || !is_through && pool == Some(60);
            is_changed && reads == Some(40)
        }
        Job::Release | Job::ReleaseInside | Job::ReleaseOfExport | Job::ReleaseAllotment => {
            reads.is_none() || !is_through && reads == Some(40)
        }
    };
    match fits {
        true => Ok(through),
        false => Err(format!("answered: {}, {standing:?}", answered.get())),
    }
}

fn kill_at_each_step(job: Job) {
    for step in 0.. {
        match env::Runtime::simulated(step).block_on(killed(job, step)) {
            Ok(false) => {}
            Ok(true) => {
                println!("{job:?}: killed at each of {step} steps");
                assert!(step > 10, "it has steps");
                return;
            }
            Err(why) => panic!("{job:?}, killed at step {step}: {why}"),
        }
        assert!(step < 500, "it does not come to an end");
    }
}

#[test]
fn a_coordinator_may_be_killed_at_any_step_of_making_one() {
    kill_at_each_step(Job::Create);
}

#[test]
fn a_coordinator_may_be_killed_at_any_step_of_changing_one() {
    kill_at_each_step(Job::Amend);
}

#[test]
fn a_coordinator_may_be_killed_at_any_step_of_releasing_one() {
    kill_at_each_step(Job::Release);
}

#[test]
fn a_coordinator_may_be_killed_at_any_step_inside_an_allotment() {
    kill_at_each_step(Job::CreateInside);
    kill_at_each_step(Job::AmendInside);
    kill_at_each_step(Job::ReleaseInside);
    kill_at_each_step(Job::AmendAllotment);
    kill_at_each_step(Job::ReleaseAllotment);
}

#[test]
fn a_coordinator_may_be_killed_at_any_step_with_one_of_an_export() {
    kill_at_each_step(Job::CreateOfExport);
    kill_at_each_step(Job::AmendOfExport);
    kill_at_each_step(Job::ReleaseOfExport);
}

#[test]
fn a_node_that_begins_anew_aborts_what_it_was_making() {
    env::Runtime::simulated(1).block_on(async {
        let world = World::new().await;
        // Far enough to hold at stores, not to commit.
        let (killed, ..) = world.node("n1", 13);
        let task = env::spawn(async move {
            let ask = of_vm1(&killed, "vm", 40);
            let _ = killed.create(ask).await;
        });
        env::sleep(Nanos::millis(5)).await;
        task.cancel();
        assert_ne!(world.parts().len(), 0);
        let (again, ..) = world.node("n1", u64::MAX);
        abort_own(&again).await.unwrap();
        let _tending = world.tend(&again);
        env::sleep(Nanos::secs(5)).await;
        assert_eq!(records(&again).await[0].state, Phase::Aborted);
        assert_eq!(world.parts(), []);
    });
}

#[test]
fn a_node_that_begins_anew_leaves_what_it_was_changing_as_it_was() {
    let mut changing = 0;
    for step in 4..40 {
        changing += env::Runtime::simulated(step).block_on(async move {
            let world = World::new().await;
            let (before, ..) = world.node("n1", u64::MAX);
            before.create(of_vm1(&before, "vm", 40)).await.unwrap();
            let (killed, ..) = world.node("n1", step);
            let task = env::spawn(carry_out(killed, Job::Amend, Rc::default()));
            env::sleep(Nanos::millis(5)).await;
            task.cancel();
            let was_changing = records(&before).await[0].changing.is_some();
            let (again, ..) = world.node("n1", u64::MAX);
            abort_own(&again).await.unwrap();
            let record = records(&again).await.remove(0);
            assert_eq!(record.changing, None, "step {step}");
            if was_changing {
                assert_eq!(record.promise.read, 40_000_000, "step {step}");
            }
            let _tending = world.tend(&again);
            env::sleep(Nanos::secs(5)).await;
            world.agree(&records(&again).await).unwrap();
            u32::from(was_changing)
        });
    }
    assert!(changing > 5, "killed {changing} times while it changed");
}
