//! Clients that lie, stall, flood or never read: each loses its own connection at most, others are
//! served on, and what the server holds stays within its limits.

use std::rc::Rc;

use crate::common::{Raw, address, far_address, memory, serve, serve_all};
use base::{Buf, Bytes, Nanos, Sector, Span, View};
use device::{Device as _, DeviceExt as _};
use env::net::sim::on_host;
use env::{Rng, Runtime};
use front::nbd::proto::{self, Errno, chunk, cmd, flag, opt, rep};
use front::nbd::{Client, ClientOptions, Limits, Server};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

fn virtually<T: 'static>(test: impl Future<Output = T> + 'static) -> T {
    Runtime::simulated(3).block_on(test)
}

fn strict() -> Limits {
    Limits {
        connections: 8,
        requests_per_connection: 32,
        bytes_per_connection: Bytes::mib(8),
        bytes: Bytes::mib(16),
        payload_max: Bytes::mib(4),
        negotiation: Nanos::secs(2),
        stall: Nanos::secs(4),
        ..Limits::default()
    }
}

/// An honest client, used before and after to see that no other client was harmed.
struct Witness(Client);

impl Witness {
    async fn new() -> Witness {
        let client = Client::connect(&address(), &ClientOptions::default()).await;
        Witness(client.expect("connected"))
    }

    async fn is_served(&self) {
        let data = View::copy_of(&[0x5a; 4096]);
        self.0
            .write_at(Sector(0), data.clone())
            .await
            .expect("written");
        self.0.flush().await.expect("flushed");
        let read = self.0.read_at(Sector(0), Bytes(4096)).await.expect("read");
        assert_eq!(read[..], data[..]);
    }
}

fn held(server: &Server) -> u64 {
    server
        .snapshot()
        .connections
        .iter()
        .map(|connection| connection.held_bytes)
        .sum()
}

#[test]
fn refused_requests_leave_the_stream_usable() {
    virtually(async {
        let _server = serve(memory(Bytes::mib(16)), strict());
        let raw = Raw::entered(false).await;
        let invalid = Errno::Invalid.code();
        let end = 16 << 20;
        // (command, flags, offset, length, answer)
        let cases = [
            (cmd::READ, 0, 1, 512, invalid),
            (cmd::READ, 0, 0, 100, invalid),
            (cmd::READ, 0, end, 512, invalid),
            (cmd::READ, 0, u64::MAX - 511, 512, invalid),
            (cmd::READ, 0, 0, 8 << 20, invalid),
            (cmd::READ, flag::DF, 0, 512, invalid),
            (cmd::WRITE, 0, 0, 100, invalid),
            (cmd::WRITE, 0, 0, 8 << 20, invalid),
            (cmd::WRITE, 0, end, 512, Errno::NoSpace.code()),
            (cmd::WRITE, flag::REQ_ONE, 0, 512, invalid),
            (cmd::WRITE_ZEROES, 0, end - 512, 1024, Errno::NoSpace.code()),
            (cmd::TRIM, 0, end, 512, invalid),
            (cmd::BLOCK_STATUS, 0, 0, 512, invalid),
            (cmd::FLUSH, 0, 0, 1, invalid),
            (77, 0, 0, 512, invalid),
        ];
        for (cookie, (command, flags, offset, length, answer)) in (0u64..).zip(cases) {
            raw.request(command, flags, cookie, offset, length).await;
            if command == cmd::WRITE {
                raw.send(&vec![1; length as usize]).await;
            }
            assert_eq!(raw.simple_reply().await, (answer, cookie), "case {cookie}");
        }
        raw.request(cmd::READ, 0, 99, 0, 512).await;
        assert_eq!(raw.simple_reply().await, (0, 99));
        assert_eq!(
            raw.read(512).await,
            [0; 512],
            "no refused write has happened"
        );
    });
}

#[test]
fn with_structured_replies_a_refusal_is_a_chunk_with_a_sentence() {
    virtually(async {
        let _server = serve(memory(Bytes::mib(16)), strict());
        let raw = Raw::entered(true).await;
        raw.request(cmd::READ, 0, 5, 0, 8 << 20).await;
        let (flags, kind, cookie, payload) = raw.chunk().await;
        assert_eq!((flags, kind, cookie), (chunk::DONE, chunk::ERROR, 5));
        assert_eq!(payload[..4], Errno::Invalid.code().to_be_bytes());
        assert_eq!(
            &payload[6..],
            b"cannot read 8388608 bytes at once: at most 4194304"
        );
        raw.request(cmd::READ, flag::DF, 6, 0, 8 << 20).await;
        assert_eq!(
            raw.chunk().await.3[..4],
            Errno::Overflow.code().to_be_bytes()
        );
        raw.request(cmd::READ, 0, 7, 0, 0).await;
        assert_eq!(raw.chunk().await, (chunk::DONE, chunk::NONE, 7, vec![]));
    });
}

#[test]
fn a_wrong_magic_costs_that_client_its_connection_and_no_other() {
    virtually(async {
        let server = serve(memory(Bytes::mib(1)), strict());
        let witness = Witness::new().await;
        let raw = Raw::entered(false).await;
        raw.request(cmd::READ, 0, 1, 0, 512).await;
        raw.send(&[0xee; 28]).await;
        assert_eq!(
            raw.simple_reply().await,
            (0, 1),
            "what came before it is answered"
        );
        raw.read(512).await;
        assert!(raw.is_over().await);
        assert_eq!(server.snapshot().violations, 1);

        let raw = Raw::connect().await;
        raw.read(18).await;
        raw.send(&3u32.to_be_bytes()).await;
        raw.send(&[0xee; 16]).await;
        assert!(raw.is_over().await);
        let raw = Raw::connect().await;
        raw.read(18).await;
        raw.send(&u32::MAX.to_be_bytes()).await;
        assert!(raw.is_over().await);
        assert_eq!(server.snapshot().negotiations_failed, 2);
        witness.is_served().await;
    });
}

#[test]
fn an_oversized_option_is_refused_and_the_next_one_heard() {
    virtually(async {
        let _server = serve(memory(Bytes::mib(1)), strict());
        let raw = Raw::connect().await;
        raw.read(18).await;
        raw.send(&3u32.to_be_bytes()).await;
        raw.option(opt::INFO, &vec![0; 1 << 20]).await;
        assert_eq!(raw.option_reply().await.0, rep::ERR_TOO_BIG);
        raw.option(opt::GO, &[0; 6]).await;
        assert_eq!(raw.option_reply().await.0, rep::INFO);
    });
}

#[test]
fn the_longest_name_is_heard() {
    virtually(async {
        let server = serve(memory(Bytes::mib(1)), strict());
        let name = "é".repeat(2048);
        server
            .add_export(crate::common::export(&name, memory(Bytes::mib(2))))
            .expect("exported");
        let options = ClientOptions {
            export: name.clone(),
            ..ClientOptions::default()
        };
        let client = Client::connect(&address(), &options)
            .await
            .expect("connected");
        assert_eq!(client.info().name, name);
        assert!(
            server
                .add_export(crate::common::export(&"x".repeat(4097), memory(Bytes(512))))
                .is_err()
        );
    });
}

#[test]
fn who_negotiates_for_ever_is_cut() {
    virtually(async {
        let server = serve(memory(Bytes::mib(1)), strict());
        let silent = Raw::connect().await;
        let slow = Raw::connect().await;
        slow.read(18).await;
        silent.read(18).await;
        let start = env::now();
        let dripping = env::spawn(async move {
            let mut sent = 0;
            while slow.try_send(&[0]).await.is_ok() {
                sent += 1;
                env::sleep(Nanos::millis(300)).await;
            }
            sent
        });
        assert!(silent.is_over().await);
        assert!(env::now().since(start) <= Nanos::secs(3));
        assert!(dripping.await < 20);
        assert_eq!(server.snapshot().negotiations_failed, 2);
        assert_eq!(server.snapshot().connections, []);
    });
}

#[test]
fn who_stalls_in_the_middle_of_a_request_is_cut_and_who_is_idle_is_not() {
    virtually(async {
        let server = serve(memory(Bytes::mib(8)), strict());
        let witness = Witness::new().await;
        let in_head = Raw::entered(false).await;
        in_head.send(&[0x25, 0x60]).await;
        let in_payload = Raw::entered(false).await;
        in_payload.request(cmd::WRITE, 0, 1, 0, 4 << 20).await;
        in_payload.send(&[1; 1000]).await;
        let dripping = Raw::entered(false).await;
        dripping.request(cmd::WRITE, 0, 1, 0, 1 << 20).await;
        // 512 bytes a second against the 64 KiB asked for: 1 MiB may take 4 s and 16 s more.
        let dripping = env::spawn(async move {
            let start = env::now();
            while dripping.try_send(&[1; 512]).await.is_ok() {
                env::sleep(Nanos::secs(1)).await;
            }
            env::now().since(start)
        });
        env::sleep(Nanos::millis(10)).await;
        assert_eq!(server.snapshot().connections.len(), 4);
        assert!(in_head.is_over().await);
        assert!(in_payload.is_over().await);
        let dripped = dripping.await;
        assert!(
            dripped > Nanos::secs(18) && dripped < Nanos::secs(24),
            "{dripped}"
        );
        env::sleep(Nanos::secs(3600)).await;
        witness.is_served().await;
        let snapshot = server.snapshot();
        assert_eq!((snapshot.stalled, snapshot.connections.len()), (3, 1));
        assert_eq!(held(&server), 0);
        assert_eq!(snapshot.exports[0].counts.in_flight, 0);
    });
}

#[test]
fn who_never_reads_holds_a_bounded_part_and_is_cut() {
    virtually(async {
        let limits = strict();
        let server = serve(memory(Bytes::mib(16)), limits);
        let witness = Witness::new().await;
        let mut floods = Vec::new();
        for _ in 0..4 {
            let raw = Raw::entered(false).await;
            floods.push(env::spawn(async move {
                let mut cookie = 0;
                // As many reads as the server takes, and no look at the answers.
                loop {
                    cookie += 1;
                    let request = proto::Request {
                        flags: 0,
                        command: cmd::READ,
                        cookie,
                        offset: 0,
                        length: 1 << 20,
                    };
                    if raw.try_send(&request.encode().repeat(100)).await.is_err() {
                        return cookie;
                    }
                }
            }));
        }
        for _ in 0..30 {
            env::sleep(Nanos::millis(50)).await;
            // The pool, and what each connection may hold beside it.
            let most = limits.bytes.0 + 5 * limits.allowance.0;
            // A request that waits for the pool counts as held, but has no buffer yet.
            let waiting = 4 << 20;
            assert!(held(&server) <= most + waiting, "{} held", held(&server));
            for connection in server.snapshot().connections {
                assert!(connection.held_bytes <= limits.bytes_per_connection.0);
                assert!(connection.counts.in_flight <= limits.requests_per_connection as u64);
            }
            witness.is_served().await;
        }
        for flood in floods {
            flood.await;
        }
        env::sleep(Nanos::secs(1)).await;
        assert_eq!(server.snapshot().stalled, 4);
        assert_eq!(held(&server), 0);
        witness.is_served().await;
        // The whole pool is free again: a long request passes.
        witness
            .0
            .read_at(Sector(0), Bytes::mib(4))
            .await
            .expect("read");
    });
}

#[test]
fn one_host_never_holds_the_memory_of_all() {
    virtually(async {
        let limits = Limits {
            connections: 64,
            bytes_per_host: Bytes::mib(8),
            ..strict()
        };
        let _server = serve_all(memory(Bytes::mib(16)), limits).await;
        // Many connections, each in the middle of a long write that goes on as slowly as it may.
        let greedy = "10.0.0.66".parse().expect("an address");
        let flooding = env::spawn(on_host(greedy, async {
            let mut stuck = Vec::new();
            for _ in 0..16 {
                let raw = Raw::entered_at(&far_address(), false).await;
                raw.request(cmd::WRITE, 0, 1, 0, 4 << 20).await;
                stuck.push(raw);
            }
            for _ in 0..20 {
                for raw in &stuck {
                    // Those that are cut by now are no matter.
                    let _ = raw.try_send(&[7; 70_000]).await;
                }
                env::sleep(Nanos::secs(1)).await;
            }
        }));
        env::sleep(Nanos::secs(2)).await;
        let honest = "10.0.0.7".parse().expect("an address");
        on_host(honest, async {
            let client = Client::connect(&far_address(), &ClientOptions::default()).await;
            let client = client.expect("connected");
            for _ in 0..10 {
                // Longer than its allowance: it takes from the pool that the others wait for.
                let start = env::now();
                let read = client.read_at(Sector(0), Bytes::mib(4)).await;
                assert_eq!(read.expect("read").len(), 4 << 20);
                let took = env::now().since(start);
                assert!(took < Nanos::secs(1), "{took}");
                env::sleep(Nanos::secs(1)).await;
            }
        })
        .await;
        flooding.await;
    });
}

#[test]
fn a_long_request_that_does_not_go_on_is_cut_as_soon_as_a_short_one() {
    virtually(async {
        let limits = Limits {
            payload_max: Bytes::mib(32),
            bytes_per_connection: Bytes::mib(64),
            bytes: Bytes::mib(64),
            ..Limits::default()
        };
        let server = serve(memory(Bytes::mib(64)), limits);
        let writer = Raw::entered(false).await;
        writer.request(cmd::WRITE, 0, 1, 0, 32 << 20).await;
        writer.send(&[1; 5 << 20]).await;
        let start = env::now();
        assert!(writer.is_over().await);
        // 30 s of timeout, the time of 6 MiB at 64 KiB/s, and the watch's interval: not the 512 s of all 32 MiB.
        let took = env::now().since(start);
        assert!(took < Nanos::secs(30 + 96 + 9), "{took}");
        let reader = Raw::entered(false).await;
        reader.request(cmd::READ, 0, 1, 0, 32 << 20).await;
        let start = env::now();
        while server.snapshot().stalled < 2 {
            env::sleep(Nanos::secs(1)).await;
        }
        let took = env::now().since(start);
        assert!(took < Nanos::secs(30 + 48 + 9), "{took}");
    });
}

#[test]
fn one_host_never_takes_every_connection() {
    virtually(async {
        let limits = Limits {
            connections_per_host: 3,
            ..strict()
        };
        let server = serve_all(memory(Bytes::mib(1)), limits).await;
        let come = async |from: &str| {
            on_host(from.parse().expect("an address"), async {
                Client::connect(&far_address(), &ClientOptions::default()).await
            })
            .await
        };
        let mut near = Vec::new();
        for _ in 0..3 {
            near.push(come("10.0.0.7").await.expect("connected"));
        }
        let refused = come("10.0.0.7").await;
        assert!(refused.is_err(), "three of this host are in");
        let other = come("10.0.0.8").await.expect("another host has room");
        for client in near.iter().chain([&other]) {
            client.flush().await.expect("served");
        }
        assert_eq!(server.snapshot().turned_away, 1);
        drop(near.pop());
        env::sleep(Nanos::secs(5)).await;
        assert!(come("10.0.0.7").await.is_ok(), "what has left makes room");
    });
}

#[test]
fn a_client_that_is_sent_away_is_gone_and_others_stay() {
    virtually(async {
        let server = serve(memory(Bytes::mib(1)), strict());
        let witness = Witness::new().await;
        let raw = Raw::entered(false).await;
        env::sleep(Nanos::millis(10)).await;
        let ended = server.disconnect(|client| client.id == 2);
        assert_eq!((ended.len(), ended[0].id), (1, 2));
        assert!(raw.is_over().await);
        assert_eq!(server.disconnect(|client| client.id == 2), []);
        witness.is_served().await;
        assert_eq!(server.snapshot().connections.len(), 1);
    });
}

#[test]
fn errors_flooded_and_not_read_are_bounded_too() {
    virtually(async {
        let server = serve(memory(Bytes::mib(1)), strict());
        let raw = Raw::entered(true).await;
        let bad = proto::Request {
            flags: 0,
            command: 50,
            cookie: 0,
            offset: 0,
            length: 0,
        };
        let mut sent = 0u64;
        while raw.try_send(&bad.encode().repeat(1000)).await.is_ok() {
            sent += 1000;
        }
        assert!(sent > 0);
        assert_eq!(server.snapshot().stalled, 1);
        assert!(server.snapshot().exports[0].counts.errors <= sent);
        Witness::new().await.is_served().await;
    });
}

#[test]
fn too_many_connections_push_out_those_that_only_talk() {
    virtually(async {
        let server = serve(memory(Bytes::mib(1)), strict());
        let witness = Witness::new().await;
        let mut idle = Vec::new();
        for _ in 0..7 {
            let raw = Raw::connect().await;
            raw.read(18).await;
            idle.push(raw);
        }
        let another = Witness::new().await;
        another.is_served().await;
        assert!(idle[0].is_over().await, "the oldest talker made room");
        let mut full = vec![another];
        for _ in 0..6 {
            full.push(Witness::new().await);
        }
        let refused = Client::connect(&address(), &ClientOptions::default()).await;
        assert!(refused.is_err(), "eight in transmission: no room");
        witness.is_served().await;
        assert_eq!(server.snapshot().turned_away, 8);
    });
}

#[test]
fn a_client_cut_off_in_mid_write_writes_nothing() {
    virtually(async {
        let device = memory(Bytes::mib(1));
        let server = serve(device.clone(), strict());
        let raw = Raw::entered(false).await;
        raw.request(cmd::WRITE, 0, 1, 0, 4096).await;
        raw.send(&[1; 4000]).await;
        env::sleep(Nanos::millis(5)).await;
        drop(raw);
        env::sleep(Nanos::secs(1)).await;
        assert_eq!(device.contents(Span::bytes(0, 4096)), [0; 4096]);
        let snapshot = server.snapshot();
        assert_eq!(
            (
                snapshot.connections.len(),
                snapshot.exports[0].counts.in_flight
            ),
            (0, 0)
        );
    });
}

/// Feeds `bytes` to a server in pieces cut by `seed`, from the start or in transmission; then looks
/// whether an honest client is served.
fn survives(bytes: Vec<u8>, seed: u64, entered: bool, structured: bool) {
    virtually(async move {
        let server = serve(memory(Bytes::mib(1)), strict());
        let raw = if entered {
            Raw::entered(structured).await
        } else {
            Raw::connect().await
        };
        let raw = Rc::new(raw);
        let reading = {
            let raw = Rc::clone(&raw);
            env::spawn(async move {
                let mut buf = Buf::for_read(65_536);
                while let Ok((len, back)) = raw.stream.read(buf).await {
                    if len == 0 {
                        break;
                    }
                    buf = back;
                }
            })
        };
        let mut rng = Rng::from_seed(seed);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (piece, left) = rest.split_at(1 + rng.below(rest.len() as u64) as usize);
            if raw.try_send(piece).await.is_err() {
                break;
            }
            rest = left;
        }
        raw.stream.shutdown_write();
        reading.await;
        env::sleep(Nanos::secs(10)).await;
        assert_eq!(held(&server), 0);
        assert_eq!(server.snapshot().connections, []);
        assert_eq!(server.snapshot().exports[0].counts.in_flight, 0);
        Witness::new().await.is_served().await;
    });
}

/// Bytes that are nearly NBD: random ones, and well-formed pieces with random fields.
fn nearly_options() -> impl Strategy<Value = Vec<u8>> {
    let option = (0u32..13, proptest::collection::vec(any::<u8>(), 0..64)).prop_map(|(o, data)| {
        let mut out = Vec::new();
        proto::put_option(&mut out, o, &data);
        out
    });
    let piece = prop_oneof![4 => option, 1 => proptest::collection::vec(any::<u8>(), 0..40)];
    proptest::collection::vec(piece, 0..12)
        .prop_map(|pieces| [&[0, 0, 0, 3][..], &pieces.concat()].concat())
}

fn nearly_requests() -> impl Strategy<Value = Vec<u8>> {
    let request = (
        0u16..10,
        0u16..64,
        any::<u64>(),
        0u64..1 << 21,
        0u32..1 << 16,
    )
        .prop_map(|(command, flags, cookie, offset, length)| {
            let (offset, length) = match cookie % 4 {
                0 => (offset, length),
                _ => (offset & !511, length & !511),
            };
            let request = proto::Request {
                flags,
                command,
                cookie,
                offset,
                length,
            };
            let mut out = request.encode().to_vec();
            if cookie % 16 != 1 {
                out.resize(out.len() + request.payload() as usize, 7);
            }
            out
        });
    let piece = prop_oneof![9 => request, 1 => proptest::collection::vec(any::<u8>(), 0..40)];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
#![proptest_config(ProptestConfig {
        cases: 128,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(20_261_120),
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_bytes_at_all_harm_no_other_client(
        bytes in proptest::collection::vec(any::<u8>(), 0..4096),
        seed in any::<u64>(),
        entered in any::<bool>(),
        structured in any::<bool>(),
    ) {
        survives(bytes, seed, entered, structured);
    }

    #[test]
    fn nearly_right_options_harm_no_other_client(bytes in nearly_options(), seed in any::<u64>()) {
        survives(bytes, seed, false, false);
    }

    #[test]
    fn nearly_right_requests_harm_no_other_client(
        bytes in nearly_requests(),
        seed in any::<u64>(),
        structured in any::<bool>(),
    ) {
        survives(bytes, seed, true, structured);
    }

    #[test]
    fn a_server_that_sends_nonsense_costs_a_client_only_its_connection(
        bytes in proptest::collection::vec(any::<u8>(), 0..2048),
        nearly in any::<bool>(),
        cookie in 0u64..3,
    ) {
        virtually(async move {
            let listener = env::net::Listener::bind(&address()).expect("a free port");
            env::spawn(async move {
                let stream = listener.accept().await.expect("a client");
                let mut out = proto::greeting().to_vec();
                for option in [opt::STRUCTURED_REPLY, opt::SET_META_CONTEXT] {
                    proto::put_option_reply(&mut out, option, rep::ACK, &[]);
                }
                let fact = [&[0, 0][..], &(1u64 << 20).to_be_bytes(), &[0xff, 0xff]].concat();
                proto::put_option_reply(&mut out, opt::GO, rep::INFO, &fact);
                proto::put_option_reply(&mut out, opt::GO, rep::ACK, &[]);
                if nearly {
                    let kind = u16::from(bytes.first().copied().unwrap_or(0) % 7);
                    let len = bytes.len() as u32;
                    out.extend(proto::chunk_head(1, kind, cookie, len));
                }
                out.extend(&bytes);
                let _ = stream.write_all(vec![View::copy_of(&out)]).await;
                env::sleep(Nanos::secs(1)).await;
            });
            let client = Client::connect(&address(), &ClientOptions::default()).await;
            if let Ok(client) = client {
                let reads = (0..3).map(|_| client.read_at(Sector(0), Bytes(4096)));
                for read in env::sync::join_all(reads).await {
                    let answer = read.map(|buf| buf.len());
                    assert!(answer.is_err() || answer == Ok(4096));
                }
            }
        });
    }
}
