//! Power cuts: whatever survives of the writes under way, what comes back is the state after some commit, no
//! earlier than the last one answered.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::common::*;
use base::{Bytes, Nanos, Span};
use device::crash::{AfterCut, Crash, PowerSupply};
use device::fault::{Done, Fault, Injury, Rule};
use device::{Device, Op};
use env::{Rng, Runtime};
use ledger::{Ledger, LedgerError, Map};

/// What the oracle knows of one life: the state after each commit, and which were answered.
#[derive(Default)]
struct History {
    states: RefCell<Vec<Model>>,
    answered: Cell<usize>,
    now: RefCell<Model>,
}

impl History {
    fn begin(state: Model) -> Rc<History> {
        let history = History::default();
        history.states.borrow_mut().push(state.clone());
        *history.now.borrow_mut() = state;
        Rc::new(history)
    }

    /// Is `found` the state after a commit that may be the last?
    fn allows(&self, found: &Model) -> bool {
        self.states.borrow()[self.answered.get()..]
            .iter()
            .any(|state| state == found)
    }
}

/// Changes something and commits, noting what the oracle must know.
async fn one_commit(
    map: &Map,
    history: &History,
    rng: &RefCell<Rng>,
    keys: u64,
) -> Result<(), LedgerError> {
    let commit = {
        let mut rng = rng.borrow_mut();
        let mut now = history.now.borrow_mut();
        for _ in 0..rng.below(6) {
            change(&mut rng, keys, 400, map, &mut now);
        }
        history.states.borrow_mut().push(now.clone());
        history.states.borrow().len() - 1
    };
    map.commit().await?;
    history.answered.set(history.answered.get().max(commit));
    Ok(())
}

struct Life {
    log_blocks: u64,
    keys: u64,
    tasks: u64,
    cut: u64,
    end: End,
    seed: u64,
}

/// What ends a life.
#[derive(Clone, Copy, PartialEq)]
enum End {
    PowerCut,
    /// The process dies, and the device keeps what it had in its volatile cache.
    Kill,
}

/// One life on `device`, from open to the cut; returns what the next life finds.
fn live(device: Rc<Crash>, life: &Life, history: &Rc<History>) -> Rc<Crash> {
    let &Life {
        log_blocks,
        keys,
        tasks,
        cut,
        seed,
        ..
    } = life;
    let rng = Rc::new(RefCell::new(Rng::from_seed(seed)));
    let crash = Rc::clone(&device);
    let history = Rc::clone(history);
    Runtime::simulated(seed).block_on(async move {
        let opened = Map::open(crash.clone(), region(log_blocks)).await;
        let (map, _) = match opened {
            Ok(opened) => opened,
            Err(refused) => panic!("seed {seed}: {refused}"),
        };
        let found = contents(&map);
        assert!(
            history.allows(&found),
            "seed {seed}: not the state after any allowed commit"
        );
        *history.states.borrow_mut() = vec![found.clone()];
        history.answered.set(0);
        *history.now.borrow_mut() = found;
        crash.cut_at(crash.steps() + cut);
        let map = Rc::new(map);
        let workers: Vec<_> = (0..tasks)
            .map(|worker| {
                let (map, history, rng) = (Rc::clone(&map), Rc::clone(&history), Rc::clone(&rng));
                let crash = Rc::clone(&crash);
                env::spawn(async move {
                    loop {
                        let pause = Nanos(rng.borrow_mut().below(200_000));
                        env::sleep(pause).await;
                        let outcome = if worker == 0 && rng.borrow_mut().below(16) == 0 {
                            map.ledger().set_payload(&pause.0.to_le_bytes()).await
                        } else {
                            one_commit(&map, &history, &rng, keys).await
                        };
                        if let Err(refused) = outcome {
                            let cut = !crash.supply().is_on();
                            assert!(cut, "seed {seed}: {refused}");
                            return;
                        }
                    }
                })
            })
            .collect();
        crash.supply().wait_for_cut().await;
        for worker in workers {
            worker.cancel();
        }
    });
    let after = Rng::from_seed(seed ^ 0xc4a5);
    match life.end {
        End::PowerCut => device.restart(after),
        End::Kill => device.restart_process_on(&PowerSupply::new(), after),
    }
}

fn lives(count: u64, log_blocks: u64, keys: u64, cold: u64, seed: u64) {
    lives_with(Faults::default(), count, log_blocks, keys, cold, seed);
}

/// What may happen beside power cuts.
#[derive(Clone, Copy, Default)]
struct Faults {
    /// Every other life ends with the process alone.
    kills: bool,
    /// How likely an operation under way leaves unreadable sectors.
    unreadable: f64,
}

fn lives_with(faults: Faults, count: u64, log_blocks: u64, keys: u64, cold: u64, seed: u64) {
    let size = Bytes((1 << 20) + (2 + log_blocks) * BLOCK);
    let mut rng = Rng::from_seed(seed);
    let mut device = Crash::new("crash", size, Rng::from_seed(seed));
    device.set_delay(Nanos::micros(1), Nanos::micros(100));
    device.set_unreadable(faults.unreadable);
    let first = device.clone();
    let model = Runtime::simulated(seed)
        .block_on(async move { with_cold(first, region(log_blocks), cold).await.1 });
    let history = History::begin(model);
    for life in 0..count {
        let silent = rng.below(2) == 0;
        device.set_after_cut(if silent {
            AfterCut::Silence
        } else {
            AfterCut::Gone
        });
        let longest = 1 << (1 + rng.below(7));
        let life = Life {
            log_blocks,
            keys,
            tasks: 1 + rng.below(6),
            cut: 1 + rng.below(longest),
            end: match faults.kills && rng.below(2) == 0 {
                true => End::Kill,
                false => End::PowerCut,
            },
            seed: seed.wrapping_mul(1_000_003) + life,
        };
        device = live(device, &life, &history);
    }
}

#[test]
fn two_thousand_power_cuts_in_a_tight_log_lose_nothing_answered() {
    for seed in 0..20 {
        lives(100, 34, 60, 0, seed);
    }
}

#[test]
fn two_thousand_power_cuts_in_a_roomy_log_lose_nothing_answered() {
    for seed in 100..120 {
        lives(100, 130, 80, 0, seed);
    }
}

#[test]
fn five_hundred_power_cuts_amid_sweeps_in_shares_lose_no_cold_record() {
    // 800 cold records take 41 blocks: a sweep goes over some ten batches, and a life over many sweeps.
    for seed in 200..205 {
        lives(100, 190, 80, 800, seed);
    }
}

#[test]
fn two_thousand_process_deaths_and_power_cuts_lose_nothing_shown() {
    let kills = Faults {
        kills: true,
        unreadable: 0.0,
    };
    for seed in 300..320 {
        lives_with(kills, 100, 34, 60, 0, seed);
    }
}

#[test]
fn two_thousand_cuts_that_leave_unreadable_sectors_lose_nothing_answered() {
    let all = Faults {
        kills: true,
        unreadable: 0.5,
    };
    for seed in 400..420 {
        lives_with(all, 100, if seed % 2 == 0 { 34 } else { 130 }, 80, 0, seed);
    }
}

#[test]
fn a_device_that_lies_about_fua_is_caught_by_the_oracle() {
    // A planted bug below: the checker must see that answered commits are gone.
    let caught = (0..20).any(|seed| {
        std::panic::catch_unwind(|| {
            let size = Bytes((1 << 20) + 66 * BLOCK);
            let mut device = Crash::new("liar", size, Rng::from_seed(seed));
            device.set_delay(Nanos::micros(1), Nanos::micros(100));
            let first = device.clone();
            Runtime::simulated(seed).block_on(async move {
                Ledger::format(first, region(64), identity()).await.unwrap();
            });
            device.lie_about_fua(true);
            let history = History::begin(Model::new());
            for life in 0..10 {
                let life = Life {
                    log_blocks: 64,
                    keys: 60,
                    tasks: 2,
                    cut: 20,
                    end: End::PowerCut,
                    seed: seed * 100 + life,
                };
                device = live(device, &life, &history);
            }
        })
        .is_err()
    });
    assert!(caught);
}

#[test]
fn a_format_cut_off_anywhere_leaves_the_old_ledger_or_the_new_one() {
    for cut in 0..12 {
        for draw in 0..40 {
            let crash = Crash::new("crash", Bytes::mib(2), Rng::from_seed(draw));
            let device = crash.clone();
            Runtime::simulated(draw).block_on(async move {
                let old = Map::format(device.clone(), region(64), identity())
                    .await
                    .unwrap();
                old.put(1, b"old");
                old.commit().await.unwrap();
                device.cut_at(device.steps() + cut);
                let again = Map::format(device.clone(), region(64), identity()).await;
                let map = match again {
                    Ok(new) => {
                        new.put(2, b"new");
                        new.commit().await.map(|()| new)
                    }
                    Err(refused) => Err(refused),
                };
                let device = device.restart(Rng::from_seed(draw + 1000));
                let (found, _) = Map::open(device, region(64)).await.unwrap();
                let keys: Vec<u64> = contents(&found).into_keys().collect();
                match map {
                    Ok(_) => assert_eq!(keys, [2]),
                    Err(_) => assert!(keys != [1, 2], "cut {cut}, draw {draw}: {keys:?}"),
                }
            });
        }
    }
}

/// Format, commits over more than a lap, a payload, close: every management operation.
async fn everything(
    device: Rc<dyn Device>,
    history: Rc<History>,
    payloads: Rc<RefCell<Vec<Vec<u8>>>>,
) -> Result<(), LedgerError> {
    let map = Map::format(Rc::clone(&device), region(34), identity()).await?;
    payloads.borrow_mut().push(identity().payload);
    let rng = RefCell::new(Rng::from_seed(3));
    for _ in 0..40 {
        one_commit(&map, &history, &rng, 40).await?;
    }
    payloads.borrow_mut().push(b"second".to_vec());
    map.ledger().set_payload(b"second").await?;
    map.ledger().close().await?;
    let (map, _) = Map::open(device, region(34)).await?;
    one_commit(&map, &history, &rng, 40).await?;
    map.ledger().close().await
}

#[test]
fn every_operation_may_fail_at_every_step_and_nothing_answered_is_lost() {
    for done in [Done::Nothing, Done::Part, Done::All] {
        for step in 0.. {
            let fault = Fault::new(memory(34), Rng::from_seed(step));
            let ops = [Op::Read, Op::Write, Op::Flush];
            fault
                .book()
                .add(Rule::new(Injury::Error(done)).on(&ops).after(step).once());
            let injured = run(async move {
                let history = History::begin(Model::new());
                let payloads = Rc::default();
                let device: Rc<dyn Device> = fault.clone();
                let outcome = everything(
                    Rc::clone(&device),
                    Rc::clone(&history),
                    Rc::clone(&payloads),
                )
                .await;
                let injuries = fault.book().injuries();
                let injured = injuries.errors + injuries.failed_flushes > 0;
                // One copy of a superblock that cannot be read is what the other is for.
                assert!(injured || outcome.is_ok(), "{outcome:?}");
                fault.book().clear();
                let opened = Map::open(device, region(34)).await;
                match opened {
                    Ok((map, _)) => {
                        assert!(
                            history.allows(&contents(&map)),
                            "{done:?} at {step}: {outcome:?}"
                        );
                        let payload = map.ledger().payload();
                        let known = payloads.borrow().clone();
                        let allowed = known.is_empty() || known.contains(&payload);
                        assert!(allowed, "{done:?} at {step}: payload {payload:?}");
                        map.put(1, b"and it goes on");
                        map.commit().await.unwrap();
                    }
                    // Only a format that failed leaves no ledger.
                    Err(refused) => {
                        assert!(
                            payloads.borrow().is_empty(),
                            "{done:?} at {step}: {refused}"
                        );
                    }
                }
                injured
            });
            if !injured {
                assert!(step > 50, "only {step} steps");
                break;
            }
        }
    }
}

#[test]
fn a_span_of_the_region_is_all_a_ledger_touches() {
    run(async {
        let device = memory(34);
        let before = Span::bytes(0, 1 << 20);
        let behind = Span::new(region(34).end(), Bytes(3 * BLOCK));
        device.load(before.start, &vec![0xaa; before.len.usize()]);
        device.load(behind.start, &vec![0xbb; behind.len.usize()]);
        let history = History::begin(Model::new());
        everything(device.clone(), history, Rc::default())
            .await
            .unwrap();
        assert!(device.contents(before).iter().all(|&byte| byte == 0xaa));
        assert!(device.contents(behind).iter().all(|&byte| byte == 0xbb));
    });
}
