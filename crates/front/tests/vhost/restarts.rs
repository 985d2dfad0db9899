//! A virtual machine's disk whose daemon dies again and again, while the guest stays: no answered write may be missing, no
//! request may fail or wait for ever, and none is answered twice.
//!
//! ```text
//! guest, its client: one life     daemon, hybrid: a life each, ended at any operation of a device or write to shared memory
//! ```

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use base::{Bytes, Nanos, Sector};
use device::crash::PowerSupply;
use device::{Crash, Device, DeviceExt, Memory};
use env::Mapping;
use env::net::sim;
use env::shared::{Descriptor, SharedMemory};
use hybrid::{Hybrid, RestartPlace, Settings, Ties};

use crate::client::Client;
use crate::guest::{Ask, Guest};
use crate::spins::spin;
use crate::{Book, SOCKET, Same, Watched, serve, serve_source, simulated, write};

/// The daemon has a host of its own: all of its tasks end together, as those of a process.
const DAEMON: &str = "10.0.0.2:9";
const WRITERS: u64 = 4;
const DEATHS: u64 = 12;
/// Pages that the guest writes.
const PAGES: u64 = 64;

/// What a page may show: the last answered write, or the last one begun.
#[derive(Clone, Copy, Default)]
struct Page {
    answered: u8,
    begun: u8,
}

type Pages = Rc<RefCell<BTreeMap<u64, Page>>>;

/// Writes and reads until told to end; each writer has pages of its own, so that the order of writes is known.
async fn writer(guest: Rc<Guest>, pages: Pages, mine: u64, ends: Rc<Cell<bool>>) {
    let mut rng = env::rng(&format!("writer {mine}"));
    let mut value = 0u8;
    while !ends.get() {
        let page = rng.below(PAGES / WRITERS) * WRITERS + mine;
        if rng.chance(0.6) {
            value = value % 250 + 1;
            pages.borrow_mut().entry(page).or_default().begun = value;
            guest
                .submit(write(page * 4096, value, 4096))
                .await
                .expect("a write is carried out");
            pages.borrow_mut().entry(page).or_default().answered = value;
            if rng.chance(0.02) {
                guest
                    .submit(Ask::Flush)
                    .await
                    .expect("a flush is carried out");
            }
        } else {
            let ask = Ask::Read {
                at: page * 4096,
                len: 4096,
            };
            let data = guest.submit(ask).await.expect("a read is carried out");
            let expected = pages.borrow().get(&page).map_or(0, |page| page.answered);
            assert_eq!(data, vec![expected; 4096], "page {page}");
        }
    }
}

/// What is wrong with a daemon, for the test to notice.
#[derive(Clone, Copy, PartialEq)]
enum Mistake {
    None,
    /// The machine is another one after each death, so that nothing the devices lack is found.
    Forgets,
    /// A request is noted as in flight when it ends.
    NotedLate,
    /// It is noted as ended before its answer is in the used ring.
    ClearedEarly,
    /// A thread that looks at the rings by itself goes to sleep without a last look.
    Blind,
}

/// What happens to one write to the record of what is in flight: false, it is left out.
fn mistaken(
    mistake: Mistake,
    raw: &SharedMemory,
    late: &Cell<Option<usize>>,
    at: usize,
    bytes: &[u8],
) -> bool {
    const LAST_BATCH_HEAD: usize = 12;
    let notes = bytes == [1] && at >= 16 && at.is_multiple_of(16);
    match mistake {
        Mistake::NotedLate if notes => {
            late.set(Some(at));
            return false;
        }
        Mistake::NotedLate if at == LAST_BATCH_HEAD => {
            if let Some(at) = late.take() {
                raw.write(at, &[1]);
            }
        }
        Mistake::ClearedEarly if at == LAST_BATCH_HEAD && bytes.len() == 2 => {
            let head = usize::from(u16::from_le_bytes([bytes[0], bytes[1]]));
            raw.write(16 + 16 * head, &[0]);
        }
        _ => {}
    }
    true
}

/// How descriptors reach a daemon that lives as long as its `supply` is on.
fn handing(client: &Rc<Client>, supply: &Rc<PowerSupply>, mistake: Mistake) {
    let (of, supply) = (Rc::downgrade(client), Rc::clone(supply));
    let hand = move |descriptor: &Descriptor| {
        let record = of
            .upgrade()
            .and_then(|client| client.record.borrow().clone());
        let record = record
            .filter(|(record, _)| record.identity().unwrap() == descriptor.identity().unwrap());
        let raw = record.map(|(record, area)| record.map(0, area.len as usize).unwrap());
        let (supply, late) = (Rc::clone(&supply), Cell::default());
        descriptor.of_process(move |at, bytes| {
            if !supply.is_on() {
                return false;
            }
            let goes = raw
                .as_ref()
                .is_none_or(|raw| mistaken(mistake, raw, &late, at, bytes));
            supply.operate() && goes
        })
    };
    *client.handing.borrow_mut() = Rc::new(hand);
}

/// Runs one seed; how many pages were written.
fn run(seed: u64, mistake: Mistake) -> u64 {
    env::Runtime::simulated(seed).block_on(async move {
        let mut rng = env::rng("daemon");
        let guest = Guest::new(seed.is_multiple_of(2));
        let client = Rc::new(Client::new(&guest, DAEMON));
        let host = "10.0.0.2".parse().unwrap();
        let pages: Pages = Rc::default();
        let ends: Rc<Cell<bool>> = Rc::default();
        let memory = Mapping::simulated(4096 + 2 * 32 * [16, 400][rng.below(2) as usize]);
        let book: Rc<Book> = Rc::default();
        let mut supply = PowerSupply::new();
        let mut slow = Crash::on(&supply, "slow", Bytes::mib(16), env::rng("slow"));
        let mut fast = Crash::on(&supply, "fast", Bytes::mib(1), env::rng("fast"));
        slow.set_delay(Nanos(20_000), Nanos(900_000));
        fast.set_delay(Nanos(1_000), Nanos(90_000));
        handing(&client, &supply, mistake);
        env::spawn(Rc::clone(&client).stay());
        for mine in 0..WRITERS {
            env::spawn(writer(
                Rc::clone(&guest),
                Rc::clone(&pages),
                mine,
                Rc::clone(&ends),
            ));
        }
        for life in 0..=DEATHS {
            if life < DEATHS {
                supply.cut_at(supply.steps() + 50 + rng.below(2_000));
            }
            let alive = Rc::clone(&supply);
            let ties = Ties {
                restart: Some(RestartPlace {
                    memory: Rc::new(memory.of_process(move || alive.is_on())),
                    boot: if mistake == Mistake::Forgets {
                        life.into()
                    } else {
                        1
                    },
                }),
                ..Ties::default()
            };
            let settings = Settings {
                commit_after: Nanos::millis(50),
                ..Settings::default()
            };
            {
                let (slow, fast) = (Rc::clone(&slow) as Rc<dyn Device>, Rc::clone(&fast) as _);
                let (supply, book) = (Rc::clone(&supply), Rc::clone(&book));
                env::spawn(sim::on_host(host, async move {
                    let opened = Hybrid::open_or_create(settings, slow, fast, ties).await;
                    let disk = match opened {
                        Ok(disk) => disk,
                        Err(error) => {
                            assert!(!supply.is_on(), "{error}");
                            return;
                        }
                    };
                    assert!(disk.info().crash_keeping);
                    let source = Same {
                        device: Rc::new(disk),
                        read_only: false,
                        found_all: true,
                        identity: 1,
                        book,
                    };
                    let server = serve_source(DAEMON, source);
                    spin(server.watched(), mistake == Mistake::Blind).await;
                    std::future::pending::<()>().await;
                }));
            }
            if life == DEATHS {
                ends.set(true);
                env::sleep(Nanos::secs(60)).await;
                assert_eq!(guest.under_way(), 0, "requests wait for ever");
                return pages.borrow().len() as u64;
            }
            let dies = env::timeout(Nanos::secs(60), supply.wait_for_cut()).await;
            assert!(
                dies.is_ok(),
                "requests wait for ever: seed {seed}, life {life}, {} under way, connected {} times",
                guest.under_way(),
                client.connected.get()
            );
            sim::crash_host(host);
            sim::reset_streams(host, sim::host());
            supply = PowerSupply::new();
            slow = slow.restart_process_on(&supply, env::rng("slow restart"));
            fast = fast.restart_process_on(&supply, env::rng("fast restart"));
            handing(&client, &supply, mistake);
        }
        unreachable!("the last life returns")
    })
}

#[test]
fn a_guest_that_stays_misses_no_answered_write() {
    let written: u64 = (0..40).map(|seed| run(seed, Mistake::None)).sum();
    assert!(written > 40 * 20, "{written} pages were written");
}

#[test]
#[should_panic(expected = "page ")]
fn a_restart_log_that_does_not_count_is_noticed() {
    for seed in 0..40 {
        run(seed, Mistake::Forgets);
    }
}

/// What was carried out and not noted is taken for waiting; what waits is then left out.
#[test]
#[should_panic(expected = "requests wait for ever")]
fn a_request_that_is_noted_after_its_start_is_noticed() {
    for seed in 0..40 {
        run(seed, Mistake::NotedLate);
    }
}

#[test]
#[should_panic(expected = "requests wait for ever")]
fn a_request_that_is_noted_as_ended_too_early_is_noticed() {
    for seed in 0..40 {
        run(seed, Mistake::ClearedEarly);
    }
}

#[test]
#[should_panic(expected = "requests wait for ever")]
fn a_spin_that_ends_without_a_last_look_is_noticed() {
    for seed in 0..40 {
        run(seed, Mistake::Blind);
    }
}

/// Writes with the cache off, then loses power: how many pages were answered. `lazy`: the device forgets that writes are
/// to be durable.
fn lose_power(seed: u64, lazy: bool) -> usize {
    env::Runtime::simulated(seed).block_on(async move {
        let supply = PowerSupply::new();
        let disk = Crash::on(&supply, "disk", Bytes::mib(8), env::rng("disk"));
        disk.lie_about_fua(lazy);
        disk.set_delay(Nanos(20_000), Nanos(900_000));
        let guest = Guest::new(true);
        let client = Rc::new(Client::new(&guest, SOCKET));
        client.write_back.set(Some(false));
        handing(&client, &supply, Mistake::None);
        let pages: Pages = Rc::default();
        let ends: Rc<Cell<bool>> = Rc::default();
        let device = Rc::clone(&disk) as Rc<dyn Device>;
        let daemon = env::spawn(async move {
            let _server = serve(device, false, true);
            std::future::pending::<()>().await;
        });
        let daemon = env::cancel_scope(daemon);
        client.connect().await.unwrap();
        supply.cut_at(supply.steps() + 500 + env::rng("cut").below(2_000));
        for mine in 0..WRITERS {
            env::spawn(writer(
                Rc::clone(&guest),
                Rc::clone(&pages),
                mine,
                Rc::clone(&ends),
            ));
        }
        supply.wait_for_cut().await;
        let answered = pages.borrow().clone();
        drop(daemon);
        let disk = disk.restart(env::rng("restart"));
        for (page, shows) in &answered {
            let found = disk.read_at(Sector(page * 8), Bytes(4096)).await.unwrap();
            let good = [shows.answered, shows.begun].contains(&found[0]);
            assert!(good, "page {page}");
        }
        answered.len()
    })
}

#[test]
fn without_write_back_power_takes_no_answered_write() {
    let answered: usize = (0..20).map(|seed| lose_power(seed, false)).sum();
    assert!(answered > 20 * 10, "{answered}");
}

#[test]
#[should_panic(expected = "page ")]
fn a_write_that_was_to_be_durable_and_is_not_is_noticed() {
    for seed in 0..20 {
        lose_power(seed, true);
    }
}

/// A connection that is lost while requests are under way: with a record of the client's, and with one of the server's.
#[test]
fn a_lost_connection_alone_loses_no_request() {
    for found_all in [true, false] {
        simulated(async move |memory| {
            let watched = Watched::new(memory, Nanos::millis(5));
            let _server = serve(watched.clone(), false, found_all);
            let guest = Guest::new(true);
            let client = Rc::new(Client::new(&guest, SOCKET));
            env::spawn(Rc::clone(&client).stay());
            let ends: Rc<Cell<bool>> = Rc::default();
            for mine in 0..WRITERS {
                env::spawn(writer(
                    Rc::clone(&guest),
                    Rc::default(),
                    mine,
                    Rc::clone(&ends),
                ));
            }
            for round in 1..20 {
                env::sleep(Nanos::millis(13 * round)).await;
                client.hang_up();
            }
            ends.set(true);
            env::sleep(Nanos::secs(10)).await;
            assert_eq!(guest.under_way(), 0);
            assert!(client.connected.get() > 10);
        });
    }
}

/// Ends a server as a death of its process does: the next one knows nothing of it.
async fn next_process(client: &Client, server: Rc<front::vhost::Server>) {
    client.hang_up();
    server.drain().await;
    drop(server);
    env::sleep(Nanos::millis(1)).await;
}

#[test]
fn a_guest_that_may_miss_writes_is_refused_until_it_begins_anew() {
    simulated(async |memory| {
        let server = serve(memory.clone(), false, false);
        let guest = Guest::new(true);
        let client = Client::new(&guest, SOCKET);
        client.connect().await.unwrap();
        guest.submit(write(0, 1, 512)).await.unwrap();
        next_process(&client, server).await;
        let server = serve(memory, false, false);
        for _ in 0..3 {
            assert!(client.connect().await.is_err());
        }
        assert_eq!(server.snapshot().turned_away, 3);
        let guest = Guest::new(true);
        let client = Client::new(&guest, SOCKET);
        client.connect().await.unwrap();
        guest.submit(write(0, 1, 512)).await.unwrap();
    });
}

/// A guest goes on with its own disk only, which may have grown.
#[test]
fn a_guest_of_another_disk_is_refused() {
    for (identity, from, to, served) in [
        (1, 8, 8, true),
        (1, 4, 8, true),
        (1, 8, 4, false),
        (2, 8, 8, false),
    ] {
        simulated(async move |memory| {
            let watched = Watched::new(memory, Nanos(0));
            watched.size.set(Bytes::mib(from));
            let server = serve(watched.clone(), false, true);
            let guest = Guest::new(true);
            let client = Client::new(&guest, SOCKET);
            client.connect().await.unwrap();
            guest.submit(write(0, 1, 512)).await.unwrap();
            next_process(&client, server).await;
            watched.size.set(Bytes::mib(to));
            let source = Same {
                device: watched,
                read_only: false,
                found_all: true,
                identity,
                book: Rc::default(),
            };
            let _server = serve_source(SOCKET, source);
            for _ in 0..2 {
                let connected = client.connect().await.is_ok();
                assert_eq!(connected, served, "{identity} {from} {to}");
                client.hang_up();
                env::sleep(Nanos::millis(1)).await;
            }
        });
    }
}

/// While it was away another guest had the disk.
#[test]
fn a_guest_after_another_one_is_refused_until_it_begins_anew() {
    simulated(async |memory| {
        let _server = serve(memory, false, true);
        let guests = [Guest::new(true), Guest::new(true)];
        let clients = guests.each_ref().map(|guest| Client::new(guest, SOCKET));
        for (guest, client) in guests.iter().zip(&clients) {
            client.connect().await.unwrap();
            guest.submit(write(0, 1, 512)).await.unwrap();
            client.hang_up();
            env::sleep(Nanos::millis(1)).await;
        }
        for _ in 0..2 {
            assert!(clients[0].connect().await.is_err());
            env::sleep(Nanos::millis(1)).await;
        }
        clients[1].connect().await.unwrap();
        clients[1].hang_up();
        env::sleep(Nanos::millis(1)).await;
        let client = Client::new(&Guest::new(true), SOCKET);
        client.connect().await.unwrap();
    });
}

/// A server of a process that finds this book.
fn serve_by_book(memory: &Rc<Memory>, book: &Rc<Book>) -> Rc<front::vhost::Server> {
    let source = Same {
        device: Rc::clone(memory) as _,
        read_only: false,
        found_all: true,
        identity: 1,
        book: Rc::clone(book),
    };
    serve_source(SOCKET, source)
}

/// The same where the daemon died in between: with a record of the client's, and without one where nothing was in flight.
#[test]
fn a_guest_after_another_one_is_refused_by_the_next_process_too() {
    for keeps_record in [true, false] {
        simulated(async move |memory| {
            let book: Rc<Book> = Rc::default();
            let serve = || serve_by_book(&memory, &book);
            let mut server = serve();
            let guests = [Guest::new(true), Guest::new(true)];
            let clients = guests.each_ref().map(|guest| {
                let mut client = Client::new(guest, SOCKET);
                client.keeps_record = keeps_record;
                client
            });
            for (guest, client) in guests.iter().zip(&clients) {
                // A death alone is none of its business.
                for _ in 0..2 {
                    client.connect().await.unwrap();
                    guest.submit(write(0, 1, 512)).await.unwrap();
                    next_process(client, server).await;
                    server = serve();
                }
            }
            for _ in 0..2 {
                assert!(clients[0].connect().await.is_err(), "{keeps_record}");
                env::sleep(Nanos::millis(1)).await;
            }
            clients[1].connect().await.unwrap();
            guests[1].submit(write(0, 1, 512)).await.unwrap();
            next_process(&clients[1], server).await;
            let _server = serve();
            // The machine of the first one is reset.
            let guest = Guest::new(true);
            let client = Client::new(&guest, SOCKET);
            client.connect().await.unwrap();
            guest.submit(write(0, 1, 512)).await.unwrap();
            client.hang_up();
            env::sleep(Nanos::millis(1)).await;
            assert!(clients[1].connect().await.is_err());
        });
    }
}

/// A queue that was never used says nothing of the guest: what is known of it holds for its other queues.
#[test]
fn an_unused_queue_does_not_hide_that_another_guest_came() {
    simulated(async move |memory| {
        let book: Rc<Book> = Rc::default();
        let serve = || serve_by_book(&memory, &book);
        let mut server = serve();
        let guests = [Guest::new(true), Guest::new(true)];
        let clients = guests.each_ref().map(|guest| {
            let mut client = Client::new(guest, SOCKET);
            (client.keeps_record, client.idle_first) = (false, true);
            client
        });
        for (guest, client) in guests.iter().zip(&clients) {
            client.connect().await.unwrap();
            guest.submit(write(0, 1, 512)).await.unwrap();
            next_process(client, server).await;
            server = serve();
        }
        assert!(clients[0].connect().await.is_err());
    });
}

#[test]
fn a_guest_is_not_served_before_the_next_process_can_know_of_it() {
    simulated(async |memory| {
        let book: Rc<Book> = Rc::default();
        book.full.set(true);
        let server = serve_by_book(&memory, &book);
        let guest = Guest::new(true);
        let client = Client::new(&guest, SOCKET);
        assert!(client.connect().await.is_err());
        env::sleep(Nanos::millis(1)).await;
        assert_eq!(server.snapshot().turned_away, 1);
        book.full.set(false);
        client.connect().await.unwrap();
        guest.submit(write(0, 1, 512)).await.unwrap();
        // Nothing has to be written for a guest that is known.
        book.full.set(true);
        client.hang_up();
        env::sleep(Nanos::millis(1)).await;
        client.connect().await.unwrap();
        guest.submit(write(0, 1, 512)).await.unwrap();
    });
}

#[test]
fn a_client_without_a_record_goes_on_only_where_nothing_was_in_flight() {
    for in_flight in [false, true] {
        simulated(async move |memory| {
            let server = serve(memory.clone(), false, true);
            let guest = Guest::new(true);
            let mut client = Client::new(&guest, SOCKET);
            client.keeps_record = false;
            client.connect().await.unwrap();
            guest.submit(write(0, 1, 512)).await.unwrap();
            next_process(&client, server).await;
            if in_flight {
                guest.lie(0);
            }
            let _server = serve(memory, false, true);
            let connected = client.connect().await.is_ok();
            assert_eq!(connected, !in_flight);
        });
    }
}

#[test]
fn what_the_guest_chose_outlives_the_process() {
    simulated(async |memory| {
        let watched = Watched::new(memory, Nanos(0));
        let server = serve(watched.clone(), false, true);
        let guest = Guest::new(true);
        let client = Client::new(&guest, SOCKET);
        client.connect().await.unwrap();
        client.set_write_back(false).await.unwrap();
        next_process(&client, server).await;
        let _server = serve(watched.clone(), false, true);
        client.connect().await.unwrap();
        guest.submit(write(0, 1, 512)).await.unwrap();
        assert_eq!(*watched.fua.borrow(), [true]);
    });
}

/// A record that was not used before is no evidence of how the guest keeps its cache, nor is a client that does not ask.
#[test]
fn a_guest_of_which_nothing_is_known_is_served_without_a_cache() {
    simulated(async |memory| {
        let watched = Watched::new(memory, Nanos(0));
        let server = serve(watched.clone(), false, true);
        let guest = Guest::new(true);
        let mut client = Client::new(&guest, SOCKET);
        client.connect().await.unwrap();
        client.set_write_back(false).await.unwrap();
        // To the same process, with a new record: it knows the guest.
        client.hang_up();
        client.record.take();
        env::sleep(Nanos::millis(1)).await;
        client.connect().await.unwrap();
        guest.submit(write(0, 1, 512)).await.unwrap();
        assert_eq!(*watched.fua.borrow(), [true]);
        // To the next process, which knows nothing.
        next_process(&client, server).await;
        client.record.take();
        client.looks = false;
        let server = serve(watched.clone(), false, true);
        client.connect().await.unwrap();
        guest.submit(write(0, 1, 512)).await.unwrap();
        assert_eq!(watched.fua.borrow()[1..], [true]);
        // The guest chooses, and the record keeps it.
        client.set_write_back(true).await.unwrap();
        next_process(&client, server).await;
        let _server = serve(watched.clone(), false, true);
        client.connect().await.unwrap();
        guest.submit(write(0, 1, 512)).await.unwrap();
        assert_eq!(watched.fua.borrow()[2..], [false]);
    });
}

/// An answer whose end the dead process did not note: the guest has it, and the request is not repeated.
#[test]
fn an_answer_that_is_half_noted_is_not_given_again() {
    simulated(async |memory| {
        let server = serve(memory.clone(), false, true);
        let guest = Guest::new(true);
        let client = Client::new(&guest, SOCKET);
        client.connect().await.unwrap();
        guest.submit(write(0, 1, 512)).await.unwrap();
        next_process(&client, server).await;
        let (record, area) = client.record.borrow().clone().unwrap();
        let record = record.map(0, area.len as usize).unwrap();
        let mut last = [0; 2];
        record.read(12, &mut last);
        let head = usize::from(u16::from_le_bytes(last));
        record.write(16 + 16 * head, &[1]);
        record.write(14, &[0, 0]);
        let server = serve(memory, false, true);
        client.connect().await.unwrap();
        guest.submit(Ask::Flush).await.unwrap();
        assert_eq!(server.snapshot().requests.answered, 1);
    });
}

/// A record that is far behind the ring is another ring's: what it has in flight is not taken for answered.
#[test]
fn a_record_of_another_ring_is_refused() {
    simulated(async |memory| {
        let server = serve(memory.clone(), false, true);
        let guest = Guest::new(true);
        let client = Client::new(&guest, SOCKET);
        client.connect().await.unwrap();
        guest.submit(write(0, 1, 512)).await.unwrap();
        next_process(&client, server).await;
        let (record, area) = client.record.borrow().clone().unwrap();
        let record = record.map(0, area.len as usize).unwrap();
        let mut last = [0; 2];
        record.read(12, &mut last);
        let head = usize::from(u16::from_le_bytes(last));
        record.write(16 + 16 * head, &[1]);
        record.write(14, &1000u16.to_le_bytes());
        let _server = serve(memory, false, true);
        assert!(client.connect().await.is_err());
    });
}

/// A client whose requests take too long is cut off, without answers.
#[test]
fn a_drain_ends_though_requests_do_not() {
    simulated(async |memory| {
        let watched = Watched::new(memory, Nanos::secs(50));
        let server = serve(watched, false, true);
        let guest = Guest::new(true);
        let client = Client::new(&guest, SOCKET);
        client.connect().await.unwrap();
        env::spawn({
            let guest = Rc::clone(&guest);
            async move { guest.submit(write(0, 1, 512)).await }
        });
        env::sleep(Nanos::millis(1)).await;
        let before = env::now();
        server.drain().await;
        assert!(env::now().since(before) < Nanos::secs(51));
        assert_eq!(guest.used_index(), 0, "the record keeps it");
    });
}
