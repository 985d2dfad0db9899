//! Many callers, one commit: who waits, what is flushed before it, and what a failure means.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::{Bytes, Nanos, Sector, View};
use device::fault::{Done, Injury, Rule};
use device::{Crash, Device, Fault, Op, WriteFlags};
use env::Rng;
use ledger::{
    Batch, CommitError, CommitSource, Cut, GroupCommit, Identity, Ledger, Owner, Prepared,
};

use crate::common::{region, run};

const AFTER: Nanos = Nanos::millis(10);

/// Numbers, of which each has a record.
#[derive(Default)]
struct Numbers {
    all: Vec<u64>,
    uncut: Vec<u64>,
}

impl Owner for Numbers {
    fn sweep(&mut self, cursor: u64, max: usize, out: &mut Batch) -> Option<u64> {
        let end = self.all.len().min(cursor as usize + max);
        for number in &self.all[cursor as usize..end] {
            out.put(*number, b"number");
        }
        (end < self.all.len()).then_some(end as u64)
    }
}

struct Site {
    commit: GroupCommit,
    crash: Rc<Crash>,
    fault: Rc<Fault>,
    numbers: RefCell<Numbers>,
    durable: Cell<Cut>,
    /// Writes that the device could still lose when the batch was cut, and when it was durable.
    unflushed: Cell<(usize, usize)>,
}

impl CommitSource for Site {
    fn pending(&self) -> bool {
        !self.numbers.borrow().uncut.is_empty()
    }

    fn cut(&self, ledger: &Ledger) -> Prepared {
        let numbers = &mut *self.numbers.borrow_mut();
        let mut batch = ledger.batch();
        for number in numbers.uncut.drain(..) {
            batch.put(number, b"number");
        }
        self.unflushed.set((self.crash.unflushed(), 0));
        ledger.prepare(batch, numbers)
    }

    fn durable(&self, cut: Cut) {
        assert_eq!(cut, self.durable.get().next(), "no cut is left out");
        self.durable.set(cut);
        self.unflushed
            .set((self.unflushed.get().0, self.crash.unflushed()));
    }
}

impl Site {
    async fn new() -> Rc<Site> {
        let crash = Crash::new("disk", Bytes::mib(4), Rng::from_seed(1));
        crash.set_delay(Nanos::micros(50), Nanos::micros(50));
        let fault = Fault::new(crash.clone(), Rng::from_seed(2));
        let ledger = Ledger::format(fault.clone(), region(64), Identity::default());
        let commit = GroupCommit::new(ledger.await.unwrap(), fault.clone());
        let site = Rc::new(Site {
            commit,
            crash,
            fault,
            numbers: RefCell::default(),
            durable: Cell::default(),
            unflushed: Cell::default(),
        });
        let owner = Rc::clone(&site);
        env::spawn(async move {
            while owner.commit.due(AFTER).await {
                let _ = owner.commit.round(&*owner).await;
                owner.commit.wake();
            }
        });
        site
    }

    fn put(&self, number: u64) {
        let numbers = &mut *self.numbers.borrow_mut();
        numbers.all.push(number);
        numbers.uncut.push(number);
        self.commit.note();
    }

    async fn write(&self) {
        let data = View::copy_of(&[7; 4096]);
        let written = self.fault.write(Sector(0), data, WriteFlags::default());
        written.await.unwrap();
        self.commit.wrote();
    }

    async fn committed(&self) -> Result<(), CommitError> {
        self.commit.committed(self).await
    }
}

#[test]
fn callers_that_come_during_a_commit_share_the_next_one() {
    run(async {
        let site = Site::new().await;
        let mut tasks = Vec::new();
        for number in 0..10 {
            site.put(number);
            let site = Rc::clone(&site);
            tasks.push(env::spawn(async move { site.committed().await }));
            env::sleep(Nanos::micros(7)).await;
        }
        for task in tasks {
            task.await.unwrap();
        }
        let commits = site.commit.counters().commits;
        assert!((2..=4).contains(&commits), "{commits} commits");
        assert!(site.committed().await.is_ok());
        assert_eq!(site.commit.counters().commits, commits, "nothing is left");
    });
}

#[test]
fn a_change_that_no_caller_waits_for_is_committed_after_a_while() {
    run(async {
        let site = Site::new().await;
        let cut = site.commit.next();
        site.put(1);
        env::sleep(AFTER / 2).await;
        site.put(2);
        assert_eq!(site.commit.counters().commits, 0);
        env::sleep(AFTER).await;
        assert_eq!(site.commit.counters().commits, 1);
        site.commit.reached(cut).await.unwrap();
        assert_eq!(site.durable.get(), cut);
    });
}

#[test]
fn what_a_batch_names_is_flushed_before_it() {
    run(async {
        let site = Site::new().await;
        site.write().await;
        site.put(1);
        site.committed().await.unwrap();
        assert_eq!(site.unflushed.get(), (1, 0));
        site.put(2);
        site.committed().await.unwrap();
        assert_eq!(
            site.commit.counters().flushes,
            1,
            "nothing was written since"
        );
    });
}

#[test]
fn a_failed_flush_fails_all_later_commits_and_leaves_the_batch_unwritten() {
    run(async {
        let site = Site::new().await;
        site.put(1);
        site.committed().await.unwrap();
        let batches = site.commit.ledger().figures().batches;
        let rule = Rule::new(Injury::Error(Done::Nothing));
        site.fault.book().add(rule.on(&[Op::Flush]).once());
        site.write().await;
        site.put(2);
        let cut = site.commit.next();
        let failed = site.committed().await.unwrap_err();
        assert!(matches!(failed, CommitError::Flush(_)), "{failed}");
        site.put(3);
        assert_eq!(site.committed().await, Err(failed.clone()));
        assert_eq!(site.commit.reached(cut).await, Err(failed.clone()));
        assert_eq!(site.commit.usable(), Err(failed.clone()));
        assert_eq!(site.commit.ledger().figures().batches, batches);
        site.commit.close();
        assert_eq!(site.commit.last(&*site).await, Err(failed));
    });
}

#[test]
fn the_last_commit_waits_for_the_one_under_way_and_carries_the_rest() {
    run(async {
        let site = Site::new().await;
        site.put(1);
        site.commit.want();
        env::sleep(Nanos::micros(10)).await;
        site.put(2);
        let late = env::spawn({
            let site = Rc::clone(&site);
            async move { site.committed().await }
        });
        env::yield_now().await;
        site.commit.close();
        site.commit.last(&*site).await.unwrap();
        assert_eq!(site.commit.counters().commits, 2);
        assert!(!site.pending());
        assert_eq!(late.await, Err(CommitError::Closed));
        site.put(3);
        assert_eq!(site.committed().await, Err(CommitError::Closed));
        site.commit.stop();
        site.commit.ledger().close().await.unwrap();
    });
}

#[test]
fn two_callers_of_the_last_commit_both_learn_that_it_is_durable() {
    run(async {
        let site = Site::new().await;
        site.put(1);
        site.commit.close();
        let both = [(); 2].map(|()| {
            let site = Rc::clone(&site);
            env::spawn(async move { site.commit.last(&*site).await })
        });
        for last in both {
            let answer = env::timeout(Nanos::secs(1), last).await;
            assert_eq!(
                answer.expect("it waits no longer than the commit takes"),
                Ok(())
            );
        }
        assert_eq!(site.commit.counters().commits, 1);
    });
}

#[test]
fn a_second_caller_of_a_last_commit_that_failed_learns_of_it() {
    run(async {
        let site = Site::new().await;
        site.write().await;
        site.put(1);
        site.commit.close();
        for injury in [
            Injury::Delay(Nanos::millis(1)),
            Injury::Error(Done::Nothing),
        ] {
            site.fault
                .book()
                .add(Rule::new(injury).on(&[Op::Flush]).once());
        }
        let both = [(); 2].map(|()| {
            let site = Rc::clone(&site);
            env::spawn(async move { site.commit.last(&*site).await })
        });
        for last in both {
            let answer = env::timeout(Nanos::secs(1), last).await;
            let answer = answer.expect("it waits no longer than the commit takes");
            assert!(matches!(answer, Err(CommitError::Flush(_))), "{answer:?}");
        }
    });
}
