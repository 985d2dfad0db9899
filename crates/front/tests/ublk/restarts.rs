//! A hybrid behind a ublk disk whose daemon dies again and again, while the client stays: no answered write may be
//! missing, nothing may fail, and nothing is mounted anew.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use base::{Bytes, Nanos};
use device::crash::PowerSupply;
use device::{Crash, Device};
use env::Mapping;
use front::ublk::Server;
use hybrid::{Hybrid, RestartPlace, Settings, Ties};

use crate::driver::{Ask, Driver};

const DEPTH: u16 = 8;
const CLIENTS: u64 = 4;
const DEATHS: u64 = 12;
/// Pages that clients write.
const PAGES: u64 = 64;

/// What a page may show: the last answered write, or one that is under way.
#[derive(Default)]
struct Page {
    answered: u8,
    under_way: Option<u8>,
}

async fn client(driver: Rc<Driver>, pages: Rc<RefCell<BTreeMap<u64, Page>>>, mine: u64) {
    let mut rng = env::rng(&format!("client {mine}"));
    let mut value = 0u8;
    loop {
        // Each client has pages of its own, so that the order of writes is known.
        let page = rng.below(PAGES / CLIENTS) * CLIENTS + mine;
        if rng.chance(0.6) {
            value = value % 250 + 1;
            pages.borrow_mut().entry(page).or_default().under_way = Some(value);
            let ask = Ask::Write {
                at: page * 4096,
                data: vec![value; 4096],
                fua: rng.chance(0.02),
            };
            driver.submit(ask).await.expect("a write is carried out");
            let answered = Page {
                answered: value,
                under_way: None,
            };
            pages.borrow_mut().insert(page, answered);
        } else {
            let ask = Ask::Read {
                at: page * 4096,
                len: 4096,
            };
            let data = driver.submit(ask).await.expect("a read is carried out");
            let expected = pages.borrow().get(&page).map_or(0, |page| page.answered);
            assert_eq!(data, vec![expected; 4096], "page {page}");
        }
    }
}

/// Runs one seed; how many pages were written. `forgets`: the machine is another one after each death, so that nothing the
/// devices lack is found.
fn run(seed: u64, forgets: bool) -> u64 {
    env::Runtime::simulated(seed).block_on(async move {
        let mut rng = env::rng("daemon");
        let driver = Driver::new(DEPTH);
        let pages: Rc<RefCell<BTreeMap<u64, Page>>> = Rc::default();
        let memory = Mapping::simulated(4096 + 2 * 32 * [16, 400][rng.below(2) as usize]);
        let mut supply = PowerSupply::new();
        let mut slow = Crash::on(&supply, "slow", Bytes::mib(16), env::rng("slow"));
        let mut fast = Crash::on(&supply, "fast", Bytes::mib(1), env::rng("fast"));
        slow.set_delay(Nanos(20_000), Nanos(900_000));
        fast.set_delay(Nanos(1_000), Nanos(90_000));
        for mine in 0..CLIENTS {
            env::spawn(client(Rc::clone(&driver), Rc::clone(&pages), mine));
        }
        let answered = Rc::new(Cell::new(0));
        for life in 0..DEATHS {
            supply.cut_at(supply.steps() + 20 + rng.below(600));
            let alive = Rc::clone(&supply);
            let ties = Ties {
                restart: Some(RestartPlace {
                    memory: Rc::new(memory.of_process(move || alive.is_on())),
                    boot: if forgets { life.into() } else { 1 },
                }),
                ..Ties::default()
            };
            let settings = Settings {
                commit_after: Nanos::millis(50),
                ..Settings::default()
            };
            let life = {
                let (slow, fast) = (Rc::clone(&slow) as Rc<dyn Device>, Rc::clone(&fast) as _);
                let (driver, answered) = (Rc::clone(&driver), Rc::clone(&answered));
                let supply = Rc::clone(&supply);
                env::spawn(async move {
                    let opened = Hybrid::open_or_create(settings, slow, fast, ties).await;
                    let disk = match opened {
                        Ok(disk) => disk,
                        Err(error) => {
                            assert!(!supply.is_on(), "{error}");
                            return;
                        }
                    };
                    assert!(disk.info().crash_keeping);
                    let port = driver.port_of(move || supply.is_on());
                    let server = Server::new(port, Rc::new(disk), false);
                    Rc::clone(&server).serve(DEPTH).await;
                    answered.set(answered.get() + server.counters().answered);
                })
            };
            let life = env::cancel_scope(life);
            supply.wait_for_cut().await;
            // The driver hears of the death before any answer that comes after it.
            driver.server_died();
            drop(life);
            supply = PowerSupply::new();
            slow = slow.restart_process_on(&supply, env::rng("slow restart"));
            fast = fast.restart_process_on(&supply, env::rng("fast restart"));
        }
        let written = pages
            .borrow()
            .values()
            .filter(|page| page.answered > 0)
            .count();
        written as u64
    })
}

#[test]
fn a_client_that_stays_misses_no_answered_write() {
    let written: u64 = (0..40).map(|seed| run(seed, false)).sum();
    assert!(written > 40 * 20, "{written} pages were written");
}

#[test]
#[should_panic(expected = "page ")]
fn a_restart_log_that_does_not_count_is_noticed() {
    for seed in 0..40 {
        run(seed, true);
    }
}
