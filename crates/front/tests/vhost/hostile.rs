//! Guests and clients that lie: an error for them, and the next client is served.

use std::rc::Rc;

use base::{Buf, Nanos, View};
use device::Memory;
use env::Rng;
use env::net::Stream;
use env::shared::Descriptor;
use front::vhost::encode;
use front::vhost::message::{Addresses, InflightArea, Message, Notifies, Region};

use crate::client::Client;
use crate::guest::{Ask, Guest, REGION, SIZE as RING};
use crate::{SIZE, SOCKET, serve, simulated};

/// What a guest writes into its memory at `at` before its next request.
type Lie = (&'static str, u64, Vec<u8>);

const DESCRIPTORS: u64 = 0x1000;
const AVAILABLE: u64 = 0x2000;

fn descriptor(at: u64, len: u32, flags: u16, next: u16) -> Vec<u8> {
    let mut bytes = at.to_le_bytes().to_vec();
    bytes.extend(len.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    bytes.extend(next.to_le_bytes());
    bytes
}

fn lies() -> Vec<Lie> {
    let in_ring = |name, bytes: Vec<u8>| (name, DESCRIPTORS + 28 * 16, bytes);
    let (next, write, table) = (1, 2, 4);
    let circle = [descriptor(0, 16, next, 29), descriptor(0, 16, next, 28)];
    vec![
        in_ring("beyond the table", descriptor(0, 16, next, RING)),
        in_ring("a circle", circle.concat()),
        in_ring("itself", descriptor(0, 0, next, 28)),
        in_ring("outside memory", descriptor(2 * REGION - 8, 16, 0, 0)),
        in_ring("no such address", descriptor(u64::MAX - 3, 16, 0, 0)),
        in_ring("longer than memory", descriptor(0, u32::MAX, write, 0)),
        in_ring("a table of 17 bytes", descriptor(0, 17, table, 0)),
        in_ring("an empty table", descriptor(0, 0, table, 0)),
        in_ring("a huge table", descriptor(0, 16 * 2048, table, 0)),
        in_ring(
            "something after a table",
            descriptor(0, 16, table | next, 29),
        ),
        in_ring(
            "a table across regions",
            descriptor(REGION - 8, 16, table, 0),
        ),
        in_ring("no room for a status", descriptor(0, 16, 0, 0)),
        in_ring("no header", descriptor(0x8000, 16, write, 0)),
        in_ring(
            "reads after writes",
            [descriptor(0, 16, write | next, 29), descriptor(0, 16, 0, 0)].concat(),
        ),
        ("a table in a table", 0x8000, {
            let mut bytes = descriptor(0x8000, 16, table, 0);
            bytes.resize(16, 0);
            bytes
        }),
    ]
}

#[test]
fn a_guest_that_lies_harms_itself_only() {
    for (name, at, bytes) in lies() {
        simulated(async move |memory: Rc<Memory>| {
            let server = serve(memory, false, false);
            let guest = Guest::new(true);
            let client = Client::new(&guest, SOCKET);
            client.connect().await.unwrap();
            guest.submit(Ask::Flush).await.unwrap();
            guest.raw().write(at as usize, &bytes);
            if at != DESCRIPTORS + 28 * 16 {
                let place = DESCRIPTORS + 28 * 16;
                guest.put_descriptor(place, at, 16, 4, 0);
            }
            guest.lie(28);
            env::sleep(Nanos::millis(10)).await;
            let snapshot = server.snapshot();
            assert_eq!(
                (snapshot.requests.failed, snapshot.requests.under_way),
                (1, 0),
                "{name}"
            );
            // The next request is served all the same.
            guest.submit(Ask::Flush).await.unwrap();
        });
    }
}

/// What breaks the ring itself ends the service of the queue, and nothing else.
#[test]
fn a_broken_ring_is_left_alone() {
    for (name, index, head) in [
        ("no such head", 1, RING),
        ("more than fit", RING + 2, 0),
        ("backwards", u16::MAX, 0),
    ] {
        simulated(async move |memory: Rc<Memory>| {
            let server = serve(memory, false, false);
            let guest = Guest::new(true);
            let client = Client::new(&guest, SOCKET);
            client.connect().await.unwrap();
            guest.raw().store_u16(AVAILABLE as usize + 4, head);
            guest.raw().store_u16(AVAILABLE as usize + 2, index);
            guest.kick.notifier().unwrap().notify().unwrap();
            env::sleep(Nanos::millis(10)).await;
            assert_eq!(server.snapshot().requests.answered, 0, "{name}");
            assert_eq!(client.stop_queue(0).await.unwrap(), 0);
            client.look().await.unwrap();
        });
    }
}

#[test]
fn a_request_that_comes_twice_breaks_the_ring() {
    simulated(async |memory: Rc<Memory>| {
        let watched = crate::Watched::new(memory, Nanos::millis(5));
        let server = serve(watched, false, false);
        let guest = Guest::new(true);
        let client = Client::new(&guest, SOCKET);
        client.connect().await.unwrap();
        let writing = env::spawn({
            let guest = Rc::clone(&guest);
            async move { guest.submit(crate::write(0, 1, 512)).await }
        });
        env::sleep(Nanos::millis(1)).await;
        guest.lie(0);
        writing.await.unwrap();
        env::sleep(Nanos::millis(50)).await;
        assert_eq!(server.snapshot().requests.answered, 1);
    });
}

/// Messages that cannot be carried out, and descriptors that are not what they should be.
fn bad_messages(guest: &Guest) -> Vec<(Message, Vec<Descriptor>)> {
    let memory = || guest.memory.clone();
    let event = || guest.kick.clone();
    let regions = Guest::regions();
    let long = Region {
        len: 4 * REGION,
        ..regions[0]
    };
    let kick = |queue| Message::SetVringNotifier {
        queue,
        what: Notifies::Kick,
        given: true,
    };
    let area = InflightArea {
        len: 1 << 40,
        offset: 0,
        queues: 1,
        size: RING,
    };
    let short = InflightArea { len: 64, ..area };
    let far = InflightArea {
        len: 4096,
        offset: u64::MAX,
        ..area
    };
    let at = Addresses {
        descriptors: 0,
        used: 0,
        available: 0,
    };
    vec![
        (Message::SetFeatures(u64::MAX), vec![]),
        (Message::SetProtocolFeatures(1 << 20), vec![]),
        (Message::SetMemTable(vec![long]), vec![memory()]),
        (Message::SetMemTable(vec![regions[0]; 2]), vec![memory(); 2]),
        (Message::SetMemTable(vec![regions[0]]), vec![event()]),
        (Message::SetMemTable(regions.clone()), vec![memory()]),
        // Queues that are served would lose their rings.
        (Message::SetMemTable(vec![regions[1]]), vec![memory()]),
        (Message::SetVringNum { queue: 0, size: 8 }, vec![]),
        (Message::SetVringAddr { queue: 0, at }, vec![]),
        (Message::SetVringNum { queue: 64, size: 8 }, vec![]),
        (
            Message::SetVringEnable {
                queue: 99,
                on: true,
            },
            vec![],
        ),
        (kick(0), vec![event()]),
        (kick(1), vec![event()]),
        (kick(1), vec![memory()]),
        (Message::SetInflight(area), vec![memory()]),
        (Message::SetInflight(short), vec![memory()]),
        (Message::SetInflight(far), vec![memory()]),
        (Message::SetInflight(short), vec![event()]),
        (Message::SetBackendReq, vec![event()]),
    ]
}

#[test]
fn a_message_that_cannot_be_carried_out_ends_the_connection() {
    let count = simulated(async |_| bad_messages(&Guest::new(true)).len());
    for number in 0..count {
        simulated(async move |memory: Rc<Memory>| {
            let server = serve(memory, false, true);
            let guest = Guest::new(true);
            let client = Client::new(&guest, SOCKET);
            client.connect().await.unwrap();
            guest.submit(Ask::Flush).await.unwrap();
            let (message, with) = bad_messages(&guest).swap_remove(number);
            let with: Vec<&Descriptor> = with.iter().collect();
            let answer = client.ask(&message, &with).await.unwrap();
            assert_eq!(answer, 1u64.to_le_bytes(), "{message:?}");
            env::sleep(Nanos::millis(1)).await;
            assert_eq!(server.snapshot().client, None, "{message:?}");
            // The same guest goes on.
            client.connect().await.unwrap();
            guest.submit(Ask::Flush).await.unwrap();
        });
    }
}

#[test]
fn a_ring_of_a_size_that_cannot_be_is_refused() {
    for size in [0, 3, 2048, u32::MAX] {
        simulated(async move |memory: Rc<Memory>| {
            let _server = serve(memory, false, false);
            let guest = Guest::new(true);
            let client = Client::new(&guest, SOCKET);
            client.connect().await.unwrap();
            client.stop_queue(0).await.unwrap();
            let num = Message::SetVringNum { queue: 0, size };
            client.ask(&num, &[]).await.unwrap();
            let kick = Message::SetVringNotifier {
                queue: 0,
                what: Notifies::Kick,
                given: true,
            };
            let answer = client.ask(&kick, &[&guest.kick]).await.unwrap();
            assert_eq!(answer, 1u64.to_le_bytes(), "{size}");
        });
    }
}

/// Bytes of any kind from a client: none of them ends the server.
#[test]
fn whatever_a_client_sends_the_next_one_is_served() {
    for seed in 0..200 {
        simulated(async move |memory: Rc<Memory>| {
            let _server = serve(memory, false, true);
            let mut rng = Rng::from_seed(seed);
            let stream = Stream::connect(&SOCKET.parse().unwrap()).await.unwrap();
            let guest = Guest::new(true);
            let messages = bad_messages(&guest);
            for _ in 0..10 {
                let (message, with) = &messages[rng.below(messages.len() as u64) as usize];
                let mut bytes = encode(message, rng.chance(0.5));
                for _ in 0..rng.below(3) {
                    let at = rng.below(bytes.len() as u64) as usize;
                    bytes[at] = rng.bits() as u8;
                }
                let sent = stream
                    .write_all_with(View::copy_of(&bytes), with.clone())
                    .await;
                if sent.is_err() {
                    break;
                }
            }
            stream.shutdown_write();
            let mut buf = Buf::for_read(4096);
            while let Ok((1.., back)) = stream.read(buf).await {
                buf = back;
            }
            drop(stream);
            let client = Client::new(&guest, SOCKET);
            client.connect().await.unwrap();
            assert_eq!(client.capacity.get(), SIZE.0 / 512);
            guest.submit(Ask::Flush).await.unwrap();
        });
    }
}

/// A guest that writes anything at all into its rings and descriptors while it is served.
#[test]
fn whatever_a_guest_writes_the_server_goes_on() {
    for seed in 0..200 {
        simulated(async move |memory: Rc<Memory>| {
            let server = serve(memory, false, true);
            let guest = Guest::new(seed % 2 == 0);
            let client = Client::new(&guest, SOCKET);
            client.connect().await.unwrap();
            let mut rng = Rng::from_seed(seed);
            for _ in 0..300 {
                let at = 0x1000 + rng.below(0x3000) as usize;
                match rng.below(4) {
                    // A descriptor that leads somewhere.
                    0 => {
                        let place = DESCRIPTORS + rng.below(RING.into()) * 16;
                        let to = [0, 0x1000, 0x8000, REGION - 8, rng.bits()];
                        let to = to[rng.below(5) as usize];
                        let len = [1, 16, 512, 4096][rng.below(4) as usize];
                        let next = rng.below(40) as u16;
                        guest.put_descriptor(place, to, len, rng.below(8) as u16, next);
                    }
                    1 => guest.raw().write(at, &[rng.bits() as u8]),
                    _ => guest.lie(rng.below(u64::from(RING) + 1) as u16),
                }
                guest.kick.notifier().unwrap().notify().unwrap();
                env::yield_now().await;
            }
            env::sleep(Nanos::millis(100)).await;
            assert_eq!(server.snapshot().requests.under_way, 0);
            client.look().await.unwrap();
        });
    }
}

/// A guest may have nothing to say for days; a message that is begun ends soon, or its client is gone.
#[test]
fn a_message_that_is_begun_has_to_end_soon() {
    let queue = Message::SetVringNum { queue: 7, size: 8 };
    for (message, pause, ends) in [
        (Message::GetFeatures, Nanos::millis(500), true),
        (Message::GetFeatures, Nanos::secs(2), false),
        (queue, Nanos::secs(2), false),
    ] {
        simulated(async move |memory: Rc<Memory>| {
            let server = serve(memory, false, false);
            let guest = Guest::new(true);
            let client = Client::new(&guest, SOCKET);
            let stream = client.connect().await.unwrap();
            env::sleep(Nanos::secs(100_000)).await;
            guest.submit(Ask::Flush).await.unwrap();
            let began = env::now();
            for byte in encode(&message, false) {
                // The last ones may find no reader.
                let _ = stream.write_all(vec![View::copy_of(&[byte])]).await;
                env::sleep(pause).await;
                let took = env::now().since(began);
                let is_there = server.snapshot().client.is_some();
                assert_eq!(is_there, ends || took <= Nanos::secs(10), "after {took}");
            }
            if !ends {
                client.connect().await.unwrap();
            }
            guest.submit(Ask::Flush).await.unwrap();
        });
    }
}

/// All queues of a client on one ring, which is announced full: 2,048 requests.
#[test]
fn requests_of_all_queues_together_are_bounded() {
    simulated(async |memory: Rc<Memory>| {
        let watched = crate::Watched::new(memory, Nanos::secs(1));
        let server = serve(watched, false, false);
        let guest = Guest::new(true);
        let client = Client::new(&guest, SOCKET);
        client.connect().await.unwrap();
        let (table, header, data, status) = (0x8000, 0x9000, 0xa000, 0xb000);
        guest.raw().write(header as usize, &[1]);
        guest.put_descriptor(table, header, 16, 1, 1);
        guest.put_descriptor(table + 16, data, 512, 1, 2);
        guest.put_descriptor(table + 32, status, 1, 2, 0);
        for head in 0..RING {
            guest.put_descriptor(DESCRIPTORS + u64::from(head) * 16, table, 48, 4, 0);
            guest.lie(head);
        }
        for queue in 1..64 {
            client.begin_queue(queue).await.unwrap();
        }
        env::sleep(Nanos::millis(10)).await;
        assert_eq!(server.snapshot().requests.under_way, 1024);
        env::sleep(Nanos::secs(3)).await;
        let requests = server.snapshot().requests;
        let all = 64 * u64::from(RING);
        assert_eq!((requests.under_way, requests.writes), (0, all));
    });
}

/// A client that begins its queue again and again, and whose guest always has something to write.
#[test]
fn a_client_cannot_keep_a_drain_from_ending() {
    simulated(async |memory: Rc<Memory>| {
        let watched = crate::Watched::new(memory, Nanos::secs(5));
        let server = serve(watched.clone(), false, false);
        let guest = Guest::new(true);
        let client = Client::new(&guest, SOCKET);
        client.connect().await.unwrap();
        let writes = |guest: &Rc<Guest>| {
            let guest = Rc::clone(guest);
            env::spawn(async move { guest.submit(crate::write(0, 1, 512)).await })
        };
        drop(writes(&guest));
        env::sleep(Nanos::millis(1)).await;
        let began = env::now();
        let draining = env::spawn(async move { server.drain().await });
        for on in [false, true].into_iter().cycle() {
            drop(writes(&guest));
            let enable = Message::SetVringEnable { queue: 0, on };
            if client.ask(&enable, &[]).await.is_err() {
                break;
            }
            env::sleep(Nanos::secs(1)).await;
        }
        draining.await;
        assert!(env::now().since(began) < Nanos::secs(7));
        assert_eq!(watched.fua.borrow().len(), 1, "nothing more is taken");
    });
}
