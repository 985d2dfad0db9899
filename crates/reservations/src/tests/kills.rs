//! A coordinator killed at each of its steps: within 20 s no part is left without a record, and none is lost that was
//! answered.

use std::cell::Cell;
use std::rc::Rc;

use base::Nanos;
use policy::share::Second;

use super::world::{World, of_vm1, records};
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
}

/// Does the job; is it answered?
async fn carry_out(service: Rc<Service>, job: Job, answered: Rc<Cell<bool>>) {
    let done = match job {
        Job::Create => service.create(of_vm1(&service, "vm", 40)).await.map(drop),
        Job::Amend => {
            let known = service.find("astro", "vm").await.unwrap();
            let more = Change {
                read: Some(50_000_000),
                write: Some(3_000_000),
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
    let (other, ..) = world.node("n2", u64::MAX);
    if job != Job::Create {
        other.create(of_vm1(&other, "vm", 40)).await.unwrap();
    }
    let (service, steps, _) = world.node("n1", step);
    let _tending = world.tend(&other);
    let answered = Rc::new(Cell::new(false));
    let _task = env::cancel_scope(env::spawn(carry_out(service, job, Rc::clone(&answered))));
    env::sleep(Nanos::millis(1)).await;
    let through = steps.get() > 0;
    // It is killed now, if it was not before.
    steps.set(0);
    env::sleep(LEASE).await;
    world.facts.borrow_mut().nodes.remove("n1");
    env::sleep(SETTLED.saturating_sub(LEASE)).await;
    let all = records(&other).await;
    world.agree(&all)?;
    let standing: Vec<&Reservation> = all.iter().filter(|it| it.state.stands()).collect();
    if standing.len() != all.len() && all.iter().any(|it| it.state == Phase::Holding) {
        return Err("one is still holding".to_owned());
    }
    let reads = standing.first().map(|it| it.promise.read / 1_000_000);
    let fits = match (job, answered.get()) {
        (Job::Create, true) => reads == Some(40),
        (Job::Create, false) => reads.is_none() || reads == Some(40),
        (Job::Amend, true) => reads == Some(50),
        (Job::Amend, false) => reads == Some(40) || reads == Some(50),
        (Job::Release, true) => reads.is_none(),
        (Job::Release, false) => reads.is_none() || reads == Some(40),
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
