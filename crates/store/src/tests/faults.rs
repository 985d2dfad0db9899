//! Each operation again and again with its step 0, 1, 2, ... failing, until it gets through.
//!
//! Whatever became of the operation, what the store then shows, and what it shows after a restart, is the state after
//! some change not before the last answered flush.

use std::cell::Cell;
use std::rc::Rc;

use base::{Bytes, View};
use device::crash::PowerSupply;
use device::fault::{Book, Done, Injury, Rule};
use device::{Crash, Device};

use super::crash_run::{PLAIN, World, request, until_cut};
use super::{pattern, small, small_size};
use crate::{Change, Store, StoreError, check};

/// How the step fails.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Failure {
    PowerCut,
    IoError,
}

type Operation = fn(Store) -> device::Pending<'static, ()>;

fn plainly(error: impl std::fmt::Display) -> device::DeviceError {
    device::DeviceError::Gone {
        device: "disk".to_owned(),
        op: device::Op::Flush,
        why: error.to_string(),
    }
}

fn fail_each_step(name: &str, failure: Failure, operation: Operation) {
    let mut step = 0;
    loop {
        let through = Rc::new(Cell::new(false));
        let done = Rc::clone(&through);
        let verdict: Result<(), String> = env::Runtime::simulated(step).block_on(async move {
            let supply = PowerSupply::new();
            let disk = Crash::on(&supply, "disk", small_size(14), env::rng("disk"));
            let book = Book::new(env::rng("faults"));
            let faulty: Rc<dyn Device> = book.wrap(disk.clone());
            let store = Store::format(faulty, small())
                .await
                .map_err(|e| e.to_string())?;
            let world: Rc<World> = Rc::default();
            let mut rng = env::Rng::from_seed(1);
            store
                .write("big", 0, pattern(1, 200_000), Change::default().creating())
                .await
                .unwrap();
            for _ in 0..40 {
                request(&store, &world, PLAIN, &mut rng).await;
            }
            world.flush(&store).await.map_err(|e| e.to_string())?;
            match failure {
                Failure::PowerCut => supply.cut_at(supply.steps() + step),
                Failure::IoError => {
                    book.add(Rule::new(Injury::Error(Done::Part)).after(step).once());
                }
            }
            let running = env::spawn(operation(store.clone()));
            let answer = until_cut(&supply, running).await;
            let injuries = book.injuries();
            let quiet = injuries.errors + injuries.failed_flushes == 0;
            done.set(answer == Some(Ok(())) && supply.is_on() && quiet);
            book.clear();
            if failure == Failure::IoError {
                // The store may have stopped. What it still takes and flushes counts all the same.
                for _ in 0..20 {
                    request(&store, &world, PLAIN, &mut rng).await;
                }
                let _ = world.flush(&store).await;
            }
            if let Some(why) = world.broken.borrow().clone() {
                return Err(why);
            }
            store.inner.stop();
            let journal = store.inner.journal.borrow().clone();
            let disk = disk.restart(env::rng("restart"));
            let report = check(disk.clone(), true).await.map_err(|e| e.to_string())?;
            if !report.is_clean() {
                return Err(format!("a check found {:?}", report.findings));
            }
            let store = Store::open(disk)
                .await
                .map_err(|e| format!("reopening: {e}"))?;
            world.recovered(&journal, &store).await?;
            store.close().await.map_err(|e| e.to_string())
        });
        if let Err(why) = verdict {
            panic!("{name}, {failure:?} at step {step}: {why}");
        }
        if through.get() {
            println!("{name}: {step} steps failed one by one ({failure:?})");
            return;
        }
        step += 1;
        assert!(step < 500, "{name} does not come to an end");
    }
}

fn each_failure(name: &str, operation: Operation) {
    fail_each_step(name, Failure::PowerCut, operation);
    fail_each_step(name, Failure::IoError, operation);
}

#[test]
fn an_unaligned_durable_write_may_fail_at_any_step() {
    each_failure("write", |store| {
        Box::pin(async move {
            let data = pattern(2, 20_000);
            store
                .write("big", 7_001, data, Change::FUA)
                .await
                .map_err(plainly)?;
            Ok(())
        })
    });
}

#[test]
fn truncating_may_fail_at_any_step() {
    each_failure("truncate", |store| {
        Box::pin(async move {
            store
                .truncate("big", 50_001, Change::FUA)
                .await
                .map_err(plainly)?;
            Ok(())
        })
    });
}

#[test]
fn punching_may_fail_at_any_step() {
    each_failure("punch", |store| {
        Box::pin(async move {
            store
                .punch("big", 10_001, 90_000, Change::FUA)
                .await
                .map_err(plainly)?;
            Ok(())
        })
    });
}

#[test]
fn creating_renaming_and_deleting_may_fail_at_any_step() {
    each_failure("names", |store| {
        Box::pin(async move {
            let attributes = [("kind", &b"test"[..])];
            store
                .create("new", &attributes, Change::FUA)
                .await
                .map_err(plainly)?;
            store
                .rename("big", "new", true, Change::FUA)
                .await
                .map_err(plainly)?;
            store.delete("new", Change::FUA).await.map_err(plainly)
        })
    });
}

#[test]
fn reserving_and_releasing_may_fail_at_any_step() {
    each_failure("reserve", |store| {
        Box::pin(async move {
            let id = store.reserve(Bytes::kib(64)).await.map_err(plainly)?;
            let change = Change {
                reservation: Some(id),
                ..Change::FUA
            };
            store
                .write("new", 0, pattern(3, 9_000), change.creating())
                .await
                .map_err(plainly)?;
            store.release(id).await.map_err(plainly)
        })
    });
}

#[test]
fn scrubbing_and_closing_may_fail_at_any_step() {
    each_failure("scrub and close", |store| {
        Box::pin(async move {
            while !store
                .scrub_step(Bytes::kib(256))
                .await
                .map_err(plainly)?
                .round_done
            {}
            store.close().await.map_err(plainly)
        })
    });
}

#[test]
fn formatting_and_opening_may_fail_at_any_step() {
    for step in 0.. {
        let got_through = env::Runtime::simulated(step).block_on(async move {
            let disk = Crash::new("disk", small_size(14), env::rng("disk"));
            disk.cut_at(step);
            let supply = Rc::clone(disk.supply());
            let formatting = env::spawn(Store::format(disk.clone(), small()));
            let answer = until_cut(&supply, formatting).await;
            let through = matches!(answer, Some(Ok(_))) && supply.is_on();
            let disk = disk.restart(env::rng("restart"));
            // Cut off, it is not there, and can be made without force; or it is there.
            let store = match Store::open(disk.clone()).await {
                Ok(store) => store,
                Err(_) => Store::format(disk, small())
                    .await
                    .unwrap_or_else(|error| panic!("step {step}: {error}")),
            };
            assert!(store.list("", None, 9).objects.is_empty());
            store
                .write("a", 0, View::copy_of(b"x"), Change::FUA.creating())
                .await
                .unwrap();
            through
        });
        if got_through {
            println!("format: {step} steps cut off one by one");
            assert!(step > 8, "formatting takes a number of steps");
            return;
        }
    }
}

#[test]
fn opening_may_fail_at_any_step_and_changes_nothing() {
    for step in 0.. {
        let got_through = env::Runtime::simulated(step).block_on(async move {
            let disk = Crash::new("disk", small_size(14), env::rng("disk"));
            let store = Store::format(disk.clone(), small()).await.unwrap();
            store
                .write("a", 0, pattern(1, 9_000), Change::FUA.creating())
                .await
                .unwrap();
            drop(store);
            let disk = disk.restart(env::rng("restart"));
            disk.cut_at(step);
            let supply = Rc::clone(disk.supply());
            let answer = until_cut(&supply, env::spawn(Store::open(disk.clone()))).await;
            let through = matches!(answer, Some(Ok(_))) && supply.is_on();
            let store = Store::open(disk.restart(env::rng("restart")))
                .await
                .unwrap();
            let read = store
                .read("a", 0, 9_000, device::Class::Foreground)
                .await
                .unwrap();
            assert!(*read == *pattern(1, 9_000));
            through
        });
        if got_through {
            return;
        }
    }
}

#[test]
fn after_a_failed_flush_changes_are_refused_and_reads_go_on() {
    env::Runtime::simulated(1).block_on(async {
        let disk = Crash::new("disk", small_size(14), env::rng("disk"));
        let book = Book::new(env::rng("faults"));
        let store = Store::format(book.wrap(disk), small()).await.unwrap();
        let data = pattern(1, 5_000);
        store
            .write("a", 0, data.clone(), Change::default().creating())
            .await
            .unwrap();
        book.add(
            Rule::new(Injury::Error(Done::Nothing))
                .on(&[device::Op::Flush])
                .once(),
        );
        for _ in 0..2 {
            let refused = store.flush().await;
            assert!(
                matches!(refused, Err(StoreError::Failed { .. })),
                "{refused:?}"
            );
        }
        let refused = store.write("a", 0, data.clone(), Change::default()).await;
        assert!(
            matches!(refused, Err(StoreError::Failed { .. })),
            "{refused:?}"
        );
        let read = store
            .read("a", 0, 5_000, device::Class::Foreground)
            .await
            .unwrap();
        assert!(*read == *data);
    });
}
