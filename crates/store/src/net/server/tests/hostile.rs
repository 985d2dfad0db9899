//! Numbers no honest client sends, panics, capabilities that end while they are used, and peers that stall together.

use super::*;
use policy::share::Probability;

/// Places and lengths at which sums and products overflow, or fall just short of that.
const EXTREMES: [u64; 10] = [
    0,
    1,
    4096,
    100_000,
    u32::MAX as u64,
    1 << 40,
    i64::MAX as u64,
    u64::MAX - 4096,
    u64::MAX - 1,
    u64::MAX,
];

async fn with_an_object(site: &Site) -> (Client, Vec<u8>) {
    let client = client(site).await;
    let data: Vec<u8> = (0..100_000u32).map(|n| (n % 251) as u8 + 1).collect();
    let change = Change::FUA.creating();
    let made = client.write("a", 0, View::copy_of(&data), change).await;
    made.expect("made");
    (client, data)
}

/// What a holder of `wanted` comes in with.
async fn holder(site: &Site, wanted: &ReservationRequest) -> (Client, BookingId) {
    let nodes = client(site).await;
    let (id, token) = reserved(&nodes, wanted).await;
    let credentials = Credentials::Capability(token);
    let come = Client::connect(&site.address, credentials).await;
    (come.expect("let in"), id)
}

fn reading(site: &Site, seconds: u64) -> ReservationRequest {
    let slot = Slot::new(site.server.manager.now(), seconds);
    ReservationRequest::new(Direction::Read, BytesPerSec::mb(20), slot)
}

// --- numbers ----------------------------------------------------------------------------------------------

#[test]
fn a_hole_beyond_the_object_changes_none_of_its_bytes_wherever_it_begins() {
    in_virtual_time(40, async {
        let site = site(Limits::default()).await;
        let (client, data) = with_an_object(&site).await;
        for offset in EXTREMES.into_iter().filter(|at| *at >= 100_000) {
            for len in EXTREMES {
                let punched = client.punch("a", offset, len, Change::default()).await;
                punched.expect("a hole beyond the end");
                let read = client.read("a", 0, 200_000).await.expect("read");
                assert!(read[..] == data[..], "{len} bytes from {offset} on");
            }
        }
        let punched = client.punch("a", 50_000, u64::MAX, Change::default()).await;
        punched.expect("to the end");
        let read = client.read("a", 0, 200_000).await.expect("read");
        assert_eq!(read[..50_000], data[..50_000]);
        assert!(read.len() == 100_000 && read[50_000..].iter().all(|byte| *byte == 0));
    });
}

#[test]
fn extents_beyond_the_object_are_none_and_the_store_goes_on() {
    in_virtual_time(41, async {
        let site = site(Limits::default()).await;
        let (_, data) = with_an_object(&site).await;
        let (reader, _) = holder(&site, &reading(&site, 600)).await;
        for offset in EXTREMES {
            for len in EXTREMES {
                let allocated_ranges = reader
                    .allocated_ranges("a", offset, len)
                    .await
                    .expect("told");
                let covered: u64 = allocated_ranges.iter().map(|it| it.len).sum();
                let there = (data.len() as u64).saturating_sub(offset).min(len);
                assert_eq!(covered, there, "{len} bytes from {offset} on");
            }
        }
    });
}

#[test]
fn whatever_numbers_are_asked_for_each_request_is_answered() {
    in_virtual_time(42, async {
        let site = site(Limits::default()).await;
        let (client, data) = with_an_object(&site).await;
        let change = Change::default();
        for at in EXTREMES {
            if at > data.len() as u64 {
                assert_eq!(client.read("a", at, 4096).await.expect("read").len(), 0);
            }
            for most in EXTREMES {
                let most = usize::try_from(most).expect("64 bits");
                let listed = client.list("", None, most.min(u32::MAX as usize)).await;
                assert!(!listed.expect("listed").objects.is_empty());
            }
            if at > 1 << 40 {
                let one = View::copy_of(b"x");
                let written = client.write("a", at, one, change).await;
                assert!(written.unwrap_err().changed_nothing());
                let cut = client.truncate("a", at, change).await;
                assert!(cut.unwrap_err().changed_nothing());
            }
        }
        let read = client.read("a", 0, 200_000).await.expect("read");
        assert_eq!(read[..], data[..]);
    });
}

#[test]
fn a_reservation_of_any_numbers_is_answered() {
    in_virtual_time(43, async {
        let site = site(Limits::default()).await;
        let nodes = client(&site).await;
        let now = site.server.manager.now().0;
        let numbers = [0, 1, 1 << 20, u64::MAX - 4095, u64::MAX];
        for (at, number) in numbers.into_iter().cycle().take(25).enumerate() {
            let other = numbers[at / 5];
            for direction in Direction::ALL {
                let wanted = ReservationRequest {
                    direction,
                    rate: BytesPerSec(number),
                    window: Nanos(other.max(1)),
                    probability: Probability(u32::try_from(other).unwrap_or(1_000_000)),
                    slot: Slot {
                        start: Second(now.saturating_add(other)),
                        end: Second(number),
                    },
                    space: Bytes(number),
                    scope: "s/".to_owned(),
                    holder: String::new(),
                };
                let requests = [
                    wanted.clone(),
                    ReservationRequest {
                        slot: Slot::new(Second(now), number),
                        rate: BytesPerSec::mb(1),
                        ..wanted.clone()
                    },
                    ReservationRequest {
                        slot: Slot::new(Second(now), 60),
                        rate: BytesPerSec::mb(1),
                        space: Bytes(0),
                        ..wanted
                    },
                ];
                for wanted in requests {
                    let _ = nodes.offer(&wanted).await;
                    if let Ok(id) = nodes.hold(&wanted, None, Second(u64::MAX)).await {
                        nodes.release(id).await.expect("released");
                    }
                }
            }
        }
        env::sleep(Nanos::secs(3)).await;
        nodes.ping().await.expect("it still serves");
    });
}

// --- panics -----------------------------------------------------------------------------------------------

/// Puts `bytes` in the place of the first segment of object "a", as no store does: looking at it panics. Returns what was there.
fn spoil(store: &crate::Store, bytes: Box<[u8]>) -> Box<[u8]> {
    let mut table = store.inner.table.change();
    let (id, _) = table.find("a").expect("it was written");
    let object = table.objects[id as usize].as_mut().expect("just found");
    object.segments.insert(0, bytes).expect("it has data")
}

#[test]
fn a_request_that_panics_ends_its_connection_and_no_other() {
    in_virtual_time(44, async {
        env::catch_panics();
        let site = site(Limits::default()).await;
        let (honest, data) = with_an_object(&site).await;
        let other = client(&site).await;
        let store = site.server.manager.store().clone();
        let whole = spoil(&store, Box::default());
        let lost = other.allocated_ranges("a", 0, 10).await.unwrap_err();
        assert!(!matches!(lost, ClientError::Store(_)), "{lost}");
        spoil(&store, whole);
        let read = honest.read("a", 0, 200_000).await.expect("read");
        assert_eq!(read[..], data[..]);
        env::sleep(Nanos::secs(2)).await;
        let figures = site.server.figures();
        assert_eq!(
            (figures.connections.len(), figures.held_bytes),
            (1, Bytes(0))
        );
        let again = client(&site).await;
        again.ping().await.expect("let in again");
    });
}

#[test]
fn a_read_that_panics_in_the_queue_ends_the_thread_and_no_other_is_served() {
    let ended = std::panic::catch_unwind(|| {
        in_virtual_time(51, async {
            env::catch_panics();
            let site = site(Limits::default()).await;
            let (honest, _) = with_an_object(&site).await;
            let other = client(&site).await;
            site.server.manager.queue().plant_panic();
            let lost = other.read("a", 0, 4096).await;
            unreachable!("{lost:?}, and the next one: {:?}", honest.ping().await);
        });
    });
    let said = env::Panicked::of(&*ended.unwrap_err());
    assert_eq!(
        said.0,
        "attempt to add with overflow (that left shared state half changed: nothing more is served from it)"
    );
}

#[test]
fn a_read_that_panics_as_it_leaves_the_space_ends_the_thread() {
    let ended = std::panic::catch_unwind(|| {
        in_virtual_time(52, async {
            env::catch_panics();
            let site = site(Limits::default()).await;
            let (honest, _) = with_an_object(&site).await;
            let other = client(&site).await;
            site.device.set_latency(Nanos::millis(50));
            let reading = env::spawn(async move { other.read("a", 0, 4096).await.map(drop) });
            env::sleep(Nanos::millis(20)).await;
            // The read that is under way is taken out of the count.
            let mut space = site.server.manager.store().inner.space.change();
            let epoch = space.enter();
            space.leave(epoch);
            space.leave(epoch);
            drop(space);
            let lost = reading.await;
            unreachable!("{lost:?}, and the next one: {:?}", honest.ping().await);
        });
    });
    let said = env::Panicked::of(&*ended.unwrap_err());
    let words = "every reader that leaves has entered (that left shared state half changed";
    assert!(said.0.starts_with(words), "{said}");
}

// --- capabilities that end --------------------------------------------------------------------------------

/// Reads until nothing is served any more; for how long after `since` it was.
async fn served_after(client: &Client, since: base::Instant) -> Nanos {
    while env::now().since(since) < Nanos::secs(5) && client.read("a", 0, 4096).await.is_ok() {
        env::sleep(Nanos::millis(20)).await;
    }
    env::now().since(since)
}

#[test]
fn a_capability_that_expires_is_not_served_on_an_open_connection() {
    in_virtual_time(45, async {
        let site = site(Limits::default()).await;
        with_an_object(&site).await;
        let (reader, _) = holder(&site, &reading(&site, 10)).await;
        reader.read("a", 0, 4096).await.expect("read");
        let end = env::now() + Nanos::secs(10);
        env::sleep(Nanos::secs(9)).await;
        reader.read("a", 0, 4096).await.expect("read to the end");
        env::sleep_until(end + Nanos::secs(1)).await;
        let refused = reader.read("a", 0, 4096).await.unwrap_err();
        assert!(!matches!(refused, ClientError::Store(_)), "{refused}");
        env::sleep(Nanos::secs(2)).await;
        let figures = site.server.figures();
        let left = figures.connections.iter();
        assert!(
            left.clone().all(|it| it.access != Some("capability")),
            "{figures:?}"
        );
    });
}

#[test]
fn a_cancelled_reservation_is_not_served_on_an_open_connection() {
    in_virtual_time(46, async {
        let site = site(Limits::default()).await;
        let (nodes, _) = with_an_object(&site).await;
        let (reader, id) = holder(&site, &reading(&site, 600)).await;
        reader.read("a", 0, 4096).await.expect("read");
        nodes.release(id).await.expect("released");
        let took = served_after(&reader, env::now()).await;
        assert!(took < Nanos::secs(1), "{took}");
    });
}

#[test]
fn a_capability_of_a_key_that_is_void_is_not_served_on_an_open_connection() {
    in_virtual_time(47, async {
        let site = site(Limits::default()).await;
        let (nodes, _) = with_an_object(&site).await;
        let (reader, id) = holder(&site, &reading(&site, 600)).await;
        reader.read("a", 0, 4096).await.expect("read");
        let manager = &site.server.manager;
        manager.replace_key([8; 32]).await.expect("replaced");
        let took = served_after(&reader, env::now()).await;
        assert!(took < Nanos::secs(1), "{took}");
        let token = nodes
            .capability(id)
            .await
            .expect("told")
            .expect("committed");
        let again = Client::connect(&site.address, Credentials::Capability(token)).await;
        again
            .expect("let in")
            .read("a", 0, 4096)
            .await
            .expect("read");
    });
}

#[test]
fn a_read_under_way_when_its_reservation_is_cancelled_gets_no_data() {
    in_virtual_time(48, async {
        let site = site(Limits::default()).await;
        let (nodes, _) = with_an_object(&site).await;
        let (reader, id) = holder(&site, &reading(&site, 600)).await;
        site.device.set_latency(Nanos::secs(5));
        let slow = {
            let reader = reader.clone();
            env::spawn(async move { reader.read("a", 0, 4096).await.map(drop) })
        };
        env::sleep(Nanos::millis(100)).await;
        site.device.set_latency(Nanos::micros(10));
        nodes.release(id).await.expect("released");
        slow.await.expect_err("nothing is served after it");
    });
}

#[test]
fn what_virtual_disks_consist_of_is_for_the_node_key_alone() {
    in_virtual_time(49, async {
        let site = site(Limits::default()).await;
        let nodes = client(&site).await;
        let data = View::copy_of(b"x");
        for name in ["v/1/0", "m/1", "d/1", "g/1"] {
            let made = nodes.write(name, 0, data.clone(), Change::FUA.creating());
            made.await.expect("made by a node");
        }
        let slot = Slot::new(site.server.manager.now(), 600);
        let wanted = ReservationRequest::new(Direction::Write, BytesPerSec::mb(20), slot);
        let (writer, _) = holder(&site, &wanted).await;
        for name in ["v/1/0", "m/1", "d/1", "g/1", "g/2"] {
            let change = Change::default().creating();
            let answers = [
                writer.write(name, 0, data.clone(), change).await.map(drop),
                writer.delete(name, Change::default()).await,
                writer.seal(name, 1 << 20).await,
                writer.punch(name, 0, 1, Change::default()).await.map(drop),
                writer.stat(name).await.map(drop),
                writer
                    .rename(name, "mine", false, Change::default())
                    .await
                    .map(drop),
            ];
            for answer in answers {
                let refused = answer.unwrap_err().to_string();
                assert!(refused.contains("for the node key alone"), "{refused}");
            }
        }
        let own = writer.write("notes", 0, data.clone(), Change::default().creating());
        own.await.expect("its own");
        let one = writer
            .list("", None, 1)
            .await
            .expect("listed past hidden names");
        assert_eq!(one.objects[0].name, "notes");
        writer
            .delete("notes", Change::default())
            .await
            .expect("its own");
        assert!(
            writer
                .list("", None, 100)
                .await
                .expect("listed")
                .objects
                .is_empty()
        );
        assert_eq!(
            nodes
                .list("", None, 100)
                .await
                .expect("listed")
                .objects
                .len(),
            4
        );
    });
}

#[test]
fn a_seal_beyond_reason_is_refused_and_one_that_is_there_can_be_put_right() {
    in_virtual_time(50, async {
        let site = site(Limits::default()).await;
        let nodes = client(&site).await;
        let refused = nodes.seal("g/1", 1 << 40).await.unwrap_err().to_string();
        assert!(refused.contains("at most"), "{refused}");
        nodes.seal("g/1", 7).await.expect("sealed");
        let beyond = Change {
            stamp: Some(1 << 40),
            ..Change::default()
        };
        nodes
            .set_attributes("g/1", &[], beyond)
            .await
            .expect("as it was done before");
        nodes.seal("g/1", 8).await.expect_err("fenced");
        let back = Change {
            stamp: Some(7),
            ..Change::FUA
        };
        nodes
            .set_attributes("g/1", &[], back)
            .await
            .expect("put right");
        nodes.seal("g/1", 8).await.expect("sealed again");
    });
}

// --- peers that stall together ----------------------------------------------------------------------------

#[test]
fn sixty_four_stalled_nodes_delay_the_writes_of_others_by_seconds_at_most() {
    in_virtual_time(51, async {
        let limits = Limits {
            bytes: Bytes::mib(64),
            ..Limits::default()
        };
        let site = site(limits).await;
        let honest = client(&site).await;
        let mut streams = Vec::new();
        for _ in 0..64 {
            let stream = Stream::connect(&site.address).await.unwrap();
            let next = opened_by_hand(&stream, |challenge| {
                Proof::NodeKey(NodeKey(KEY).client_proof(challenge))
            })
            .await;
            let request = Request::Object(ops::Request::Write {
                data: View::empty(),
                object: "stalled".into(),
                offset: 0,
                change: Change::default().creating(),
            });
            let meta = request.encode();
            let data = vec![0; 1 << 20];
            let head = Header::of(Op::Write as u16, 0, next, &meta, &data).encode(Kind::Request);
            // A header for a megabyte, and then nothing.
            let said = vec![View::copy_of(&head), View::copy_of(&meta)];
            stream.write_all(said).await.unwrap();
            streams.push(stream);
        }
        env::sleep(Nanos::millis(100)).await;
        let begun = env::now();
        let data = View::copy_of(&vec![7; 1 << 20]);
        let written = honest.write("mine", 0, data, Change::default().creating());
        written.await.expect("written");
        let took = env::now().since(begun);
        assert!(took < Nanos::secs(5), "{took}");
        assert!(site.server.figures().stalled > 0);
    });
}
