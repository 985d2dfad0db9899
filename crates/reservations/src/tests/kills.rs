//! A coordinator killed at each of its steps: within 20 s no part is left without a record, and none is lost that was
//! answered.

use std::cell::Cell;
use std::rc::Rc;

use base::Nanos;
use policy::share::Second;

use super::allotments::{inside, pool, promised_inside};
use super::world::{EXPORTING, World, of_vm1, records};
use crate::ask::TargetAsk;
use crate::record::{Phase, Reservation};
use crate::service::{Change, Service};
use crate::sweep::abort_own;

/// How long a node's lease lasts after it was killed.
const LEASE: Nanos = Nanos::secs(10);
/// By then all is settled.
const SETTLED: Nanos = Nanos::secs(20);

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
    /// Makes one of an export, at its node.
    CreateOfExport,
}

/// Does the job; is it answered?
async fn carry_out(service: Rc<Service>, job: Job, answered: Rc<Cell<bool>>) {
    let done = match job {
        Job::Create => service.create(of_vm1(&service, "vm", 40)).await.map(drop),
        Job::CreateInside => {
            let ask = inside(of_vm1(&service, "vm", 40));
            service.create(ask).await.map(drop)
        }
        Job::CreateOfExport => {
            let mut ask = of_vm1(&service, "vm", 40);
            ask.target = TargetAsk::Export {
                name: "vol0".to_owned(),
                node: None,
            };
            service.create(ask).await.map(drop)
        }
        Job::ReleaseAllotment => {
            let known = service.find("astro", "pool").await.unwrap();
            service.release(known, "done").await.map(drop)
        }
        Job::Amend | Job::AmendInside => {
            let known = service.find("astro", "vm").await.unwrap();
            let more = Change {
                read: Some(50_000_000),
                write: (job == Job::Amend).then_some(3_000_000),
                ..Change::default()
            };
            service.amend(known, more).await.map(drop)
        }
        Job::Release => {
            let known = service.find("astro", "vm").await.unwrap();
            service.release(known, "done").await.map(drop)
        }
    };
    answered.set(done.is_ok());
}

/// Kills the coordinator after so many steps; was it through before?
async fn killed(job: Job, step: u64) -> Result<bool, String> {
    let world = World::new().await;
    // An export is made at its node: the other one takes over here.
    let (own, others) = match job {
        Job::CreateOfExport => (EXPORTING, "n1"),
        _ => ("n1", "n2"),
    };
    let (other, ..) = world.node(others, u64::MAX);
    let is_inside = [Job::CreateInside, Job::AmendInside, Job::ReleaseAllotment].contains(&job);
    if is_inside {
        other.create(pool(&other, 60)).await.unwrap();
    }
    let first = of_vm1(&other, "vm", 40);
    match job {
        Job::Create | Job::CreateInside | Job::CreateOfExport => {}
        Job::Amend | Job::Release => drop(other.create(first).await.unwrap()),
        Job::AmendInside | Job::ReleaseAllotment => {
            other.create(inside(first)).await.unwrap();
        }
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
    env::sleep(SETTLED.saturating_sub(LEASE)).await;
    let all = records(&other).await;
    world.agree(&all)?;
    let standing: Vec<&Reservation> = all.iter().filter(|it| it.state.stands()).collect();
    if standing.len() != all.len() && all.iter().any(|it| it.state == Phase::Holding) {
        return Err("one is still holding".to_owned());
    }
    let of = |name: &str| standing.iter().find(|it| it.name == name);
    let reads = of("vm").map(|it| it.promise.read / 1_000_000);
    if is_inside && promised_inside(&all, 1) > 60 {
        return Err("more is inside than the allotment has".to_owned());
    }
    if is_inside && of("pool").is_none() && reads.is_some() {
        return Err("it outlives its allotment".to_owned());
    }
    let fits = match (job, answered.get()) {
        (Job::Create | Job::CreateInside | Job::CreateOfExport, true) => reads == Some(40),
        (Job::Create | Job::CreateInside | Job::CreateOfExport, false) => {
            reads.is_none() || reads == Some(40)
        }
        (Job::Amend | Job::AmendInside, true) => reads == Some(50),
        (Job::Amend | Job::AmendInside, false) => reads == Some(40) || reads == Some(50),
        (Job::Release | Job::ReleaseAllotment, true) => reads.is_none(),
        (Job::Release | Job::ReleaseAllotment, false) => reads.is_none() || reads == Some(40),
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
    kill_at_each_step(Job::ReleaseAllotment);
}

#[test]
fn a_coordinator_may_be_killed_at_any_step_of_making_one_of_an_export() {
    kill_at_each_step(Job::CreateOfExport);
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
        abort_own(&again, Second(again.now().0 + 30)).await.unwrap();
        let _tending = world.tend(&again);
        env::sleep(Nanos::secs(5)).await;
        assert_eq!(records(&again).await[0].state, Phase::Aborted);
        assert_eq!(world.parts(), []);
    });
}
