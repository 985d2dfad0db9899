//! Our server and our client on the simulated network: what one sends, the other gets.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::common::{Raw, address, export, memory, serve};
use base::{Buf, Bytes, Nanos, Sector, Span, View};
use device::{Class, Device, DeviceError, DeviceExt, Info, Op, Pending, WriteFlags};
use env::net::Listener;
use env::sync::join_all;
use env::{Rng, Runtime};
use front::nbd::proto::{Errno, can, chunk, cmd, flag, opt, rep, state};
use front::nbd::{Client, ClientError, ClientOptions, Config, Limits, Server};

fn virtually<T: 'static>(test: impl Future<Output = T> + 'static) -> T {
    Runtime::simulated(7).block_on(test)
}

fn plain() -> ClientOptions {
    ClientOptions {
        structured: false,
        ..ClientOptions::default()
    }
}

async fn connect() -> Client {
    Client::connect(&address(), &ClientOptions::default())
        .await
        .expect("connected")
}

/// A device that notes each call and fails where the test says.
struct Noting {
    inner: Rc<device::Memory>,
    info: RefCell<Info>,
    calls: RefCell<Vec<(Op, u64, u64, bool)>>,
    broken: Cell<Option<Op>>,
}

impl Noting {
    fn new(size: Bytes, change: impl FnOnce(&mut Info)) -> Rc<Noting> {
        let inner = memory(size);
        let mut info = inner.info();
        change(&mut info);
        Rc::new(Noting {
            inner,
            info: RefCell::new(info),
            calls: RefCell::default(),
            broken: Cell::default(),
        })
    }

    fn note<'a, T: 'a>(
        &self,
        op: Op,
        span: Span,
        fua: bool,
        go: impl FnOnce() -> Pending<'a, T>,
    ) -> Pending<'a, T> {
        assert!(
            span.len <= self.info.borrow().max_io,
            "{op} of {span} is too long"
        );
        self.calls
            .borrow_mut()
            .push((op, span.start.byte(), span.len.0, fua));
        if self.broken.get() == Some(op) {
            let why = "the head crashed".to_owned();
            return device::ready(Err(DeviceError::Io {
                device: "disk".into(),
                op,
                span,
                why,
            }));
        }
        go()
    }

    fn calls(&self) -> Vec<(Op, u64, u64, bool)> {
        std::mem::take(&mut self.calls.borrow_mut())
    }
}

impl Device for Noting {
    fn info(&self) -> Info {
        self.info.borrow().clone()
    }
    fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf> {
        let span = Span::new(at, Bytes(buf.len() as u64));
        self.note(Op::Read, span, false, || self.inner.read(at, buf, class))
    }
    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        let span = Span::new(at, Bytes(data.len() as u64));
        self.note(Op::Write, span, flags.fua, || {
            self.inner.write(at, data, flags)
        })
    }
    fn flush(&self) -> Pending<'_, ()> {
        self.note(Op::Flush, Span::default(), false, || self.inner.flush())
    }
    fn discard(&self, span: Span) -> Pending<'_, ()> {
        self.note(Op::Discard, span, false, || self.inner.discard(span))
    }
    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        self.note(Op::WriteZeroes, span, flags.fua, || {
            self.inner.write_zeroes(span, flags)
        })
    }
    fn allocation(&self, span: Span) -> Pending<'_, Vec<(u64, bool)>> {
        self.inner.allocation(span)
    }
}

#[test]
fn a_client_learns_what_the_device_is_like() {
    virtually(async {
        let device = Noting::new(Bytes::mib(3), |info| {
            info.physical_block = Bytes::kib(16);
            info.rotational = true;
            info.discards = true;
        });
        let server = serve(device.clone(), Limits::default());
        let client = connect().await;
        let info = client.info();
        assert_eq!((info.name.as_str(), info.size), ("vol0", Bytes::mib(3)));
        assert_eq!(info.physical_block, Bytes::kib(16));
        assert_eq!(info.max_io, Bytes::mib(32));
        assert!(info.rotational && info.discards && !info.read_only);
        assert_eq!(client.description(), "the disk vol0");
        assert!(client.knows_allocation());
        let all = can::HAS_FLAGS
            | can::FLUSH
            | can::FUA
            | can::ROTATIONAL
            | can::TRIM
            | can::WRITE_ZEROES
            | can::DF
            | can::MULTI_CONN
            | can::CACHE
            | can::FAST_ZERO;
        assert_eq!(client.flags(), all);
        let old = Client::connect(&address(), &plain())
            .await
            .expect("connected");
        assert_eq!(old.flags(), all & !can::DF);
        assert!(!old.knows_allocation());
        client.close().await;
        old.close().await;
        env::sleep(Nanos::millis(1)).await;
        assert_eq!(server.snapshot().connections, []);
    });
}

#[test]
fn several_exports_are_listed_chosen_by_name_and_the_first_is_the_default() {
    virtually(async {
        let server = serve(memory(Bytes::mib(1)), Limits::default());
        let mut second = export("vol1", memory(Bytes::mib(2)));
        second.read_only = true;
        server.add_export(second).expect("exported");
        let taken = server
            .add_export(export("vol1", memory(Bytes::mib(2))))
            .unwrap_err();
        assert_eq!(
            taken.to_string(),
            "cannot export 'vol1' twice: remove the first one or choose another name"
        );
        assert!(
            server
                .add_export(export("", memory(Bytes::mib(2))))
                .is_err()
        );

        let listed = Client::list(&address(), None).await.expect("listed");
        let names: Vec<&str> = listed.iter().map(|export| export.name.as_str()).collect();
        assert_eq!(names, ["vol0", "vol1"]);
        assert_eq!(listed[1].description, "the disk vol1");

        let size = async |name: &str| {
            let options = ClientOptions {
                export: name.into(),
                ..ClientOptions::default()
            };
            Client::connect(&address(), &options)
                .await
                .map(|client| client.info())
        };
        assert_eq!(size("").await.expect("the default").size, Bytes::mib(1));
        let info = size("vol1").await.expect("vol1");
        assert!(info.size == Bytes::mib(2) && info.read_only && !info.discards);
        server.set_default("vol1").expect("it exists");
        assert_eq!(size("").await.expect("the default").size, Bytes::mib(2));
        let refused = size("vol2").await.unwrap_err();
        assert!(
            matches!(&refused, ClientError::Refused { kind, .. } if *kind == rep::ERR_UNKNOWN),
            "{refused}"
        );
    });
}

#[test]
fn every_command_does_what_it_says_with_structured_replies_and_without() {
    for structured in [true, false] {
        virtually(async move {
            let device = Noting::new(Bytes::mib(8), |info| {
                info.max_io = Bytes::mib(1);
                info.discards = true;
            });
            let _server = serve(device.clone(), Limits::default());
            let options = ClientOptions {
                structured,
                ..ClientOptions::default()
            };
            let client = Client::connect(&address(), &options)
                .await
                .expect("connected");

            let mut data = Buf::zeroed(12_288);
            Rng::from_seed(1).fill(&mut data);
            let data = data.freeze();
            client
                .write(Sector(8), data.clone(), WriteFlags::FUA)
                .await
                .expect("written");
            client.flush().await.expect("flushed");
            let read = client
                .read_at(Sector(8), Bytes(12_288))
                .await
                .expect("read");
            assert_eq!(read[..], data[..]);
            assert_eq!(
                device.calls(),
                [
                    (Op::Write, 4096, 12_288, true),
                    (Op::Flush, 0, 0, false),
                    (Op::Read, 4096, 12_288, false),
                ]
            );

            client
                .write_zeroes(Span::bytes(4096, 4096), WriteFlags::FUA)
                .await
                .expect("zeroed");
            client
                .discard(Span::bytes(8192, 4096))
                .await
                .expect("trimmed");
            client.cache(Span::bytes(0, 4096)).await.expect("cached");
            assert_eq!(
                device.calls(),
                [
                    (Op::WriteZeroes, 4096, 4096, true),
                    (Op::Discard, 8192, 4096, false),
                    (Op::Read, 0, 4096, false),
                ]
            );
            let read = client.read_at(Sector(8), Bytes(4096)).await.expect("read");
            assert!(read.iter().all(|&byte| byte == 0));

            let odd = client.read_at(Sector((8 << 20) / 512), Bytes(512)).await;
            assert!(matches!(odd, Err(DeviceError::OutOfRange { .. })));
        });
    }
}

#[test]
fn a_request_longer_than_the_device_takes_arrives_whole() {
    virtually(async {
        let device = Noting::new(Bytes::mib(16), |info| {
            info.max_io = Bytes(192 << 10);
            info.discards = true;
        });
        let _server = serve(device.clone(), Limits::default());
        let client = connect().await;
        let mut data = Buf::zeroed(5 << 20);
        Rng::from_seed(2).fill(&mut data);
        let data = data.freeze();
        // `Noting` checks that no piece is longer than it takes.
        client
            .write_at(Sector(3), data.clone())
            .await
            .expect("written");
        let read = client
            .read_at(Sector(3), Bytes::mib(5))
            .await
            .expect("read");
        assert!(read[..] == data[..]);
        client
            .cache(Span::bytes(0, 16 << 20))
            .await
            .expect("cached");
        client
            .discard(Span::bytes(512, 10 << 20))
            .await
            .expect("trimmed");
        client
            .write_zeroes(Span::bytes(0, 16 << 20), WriteFlags::default())
            .await
            .expect("zeroed");
        assert_eq!(
            device.inner.contents(Span::bytes(0, 16 << 20)),
            vec![0; 16 << 20]
        );
    });
}

#[test]
fn holes_are_reported_and_travel_as_holes() {
    virtually(async {
        let device = memory(Bytes::mib(16));
        device.load(Sector::containing(4 << 20), &vec![5; 1 << 20]);
        let server = serve(device, Limits::default());
        let client = connect().await;
        let extents = client
            .allocation(Span::bytes(0, 16 << 20))
            .await
            .expect("told");
        assert_eq!(
            extents,
            [(4 << 20, false), (1 << 20, true), (11 << 20, false)]
        );
        let read = client
            .read_at(Sector(0), Bytes::mib(16))
            .await
            .expect("read");
        assert!(read[4 << 20..5 << 20].iter().all(|&byte| byte == 5));
        assert!(
            read[..4 << 20]
                .iter()
                .chain(&read[5 << 20..])
                .all(|&byte| byte == 0)
        );
        drop(client);
        drop(server);

        let raw = Raw::entered(true).await;
        raw.request(cmd::READ, 0, 1, 3 << 20, 3 << 20).await;
        let kinds = [raw.chunk().await, raw.chunk().await, raw.chunk().await];
        let kinds = kinds.map(|(flags, kind, cookie, data)| (flags, kind, cookie, data.len()));
        assert_eq!(
            kinds,
            [
                (0, chunk::OFFSET_HOLE, 1, 12),
                (0, chunk::OFFSET_DATA, 1, (1 << 20) + 8),
                (chunk::DONE, chunk::OFFSET_HOLE, 1, 12),
            ]
        );
        raw.request(cmd::READ, flag::DF, 2, 3 << 20, 3 << 20).await;
        let (flags, kind, _, data) = raw.chunk().await;
        assert_eq!(
            (flags, kind, data.len()),
            (chunk::DONE, chunk::OFFSET_DATA, (3 << 20) + 8)
        );
    });
}

#[test]
fn status_can_stop_at_the_first_extent() {
    virtually(async {
        let device = memory(Bytes::mib(4));
        device.load(Sector::containing(1 << 20), &[1; 4096]);
        let _server = serve(device, Limits::default());
        let raw = Raw::connect().await;
        raw.read(18).await;
        raw.send(&3u32.to_be_bytes()).await;
        raw.option(opt::STRUCTURED_REPLY, &[]).await;
        raw.option_reply().await;
        raw.option(
            opt::SET_META_CONTEXT,
            b"\0\0\0\0\0\0\0\x01\0\0\0\x0fbase:allocation",
        )
        .await;
        assert_eq!(raw.option_reply().await.0, rep::META_CONTEXT);
        raw.option_reply().await;
        raw.option(opt::GO, &[0; 6]).await;
        while raw.option_reply().await.0 != rep::ACK {}
        raw.request(cmd::BLOCK_STATUS, flag::REQ_ONE, 9, 0, 4 << 20)
            .await;
        let (flags, kind, cookie, data) = raw.chunk().await;
        assert_eq!((flags, kind, cookie), (chunk::DONE, chunk::BLOCK_STATUS, 9));
        let hole = (state::HOLE | state::ZERO).to_be_bytes();
        assert_eq!(
            data,
            [&[0, 0, 0, 1], &(1u32 << 20).to_be_bytes()[..], &hole].concat()
        );
    });
}

#[test]
fn zeroing_is_fast_only_where_it_is_done_already_and_no_hole_means_no_hole() {
    virtually(async {
        let device = memory(Bytes::mib(4));
        device.load(Sector(0), &[1; 4096]);
        let _server = serve(device.clone(), Limits::default());
        let client = connect().await;
        let data = client
            .zero_fast(Span::bytes(0, 4096))
            .await
            .expect("answered");
        assert_eq!(data, None);
        let hole = client
            .zero_fast(Span::bytes(2 << 20, 1 << 20))
            .await
            .expect("answered");
        assert_eq!(hole, Some(()));
        let held = device.held();
        let raw = Raw::entered(false).await;
        raw.request(cmd::WRITE_ZEROES, flag::NO_HOLE, 1, 2 << 20, 2 << 20)
            .await;
        assert_eq!(raw.simple_reply().await, (0, 1));
        assert_eq!(device.held(), held + Bytes::mib(2), "the zeroes are stored");
    });
}

#[test]
fn a_devices_failure_is_the_requests_alone_and_says_why() {
    virtually(async {
        let device = Noting::new(Bytes::mib(1), |_| {});
        let server = serve(device.clone(), Limits::default());
        let client = connect().await;
        device.broken.set(Some(Op::Read));
        let why = client
            .read_at(Sector(0), Bytes(512))
            .await
            .unwrap_err()
            .to_string();
        assert!(why.contains("the head crashed"), "{why}");
        device.broken.set(Some(Op::Flush));
        assert!(client.flush().await.is_err());
        client
            .write_at(Sector(0), View::copy_of(&[1; 512]))
            .await
            .expect("still served");
        let old = Client::connect(&address(), &plain())
            .await
            .expect("connected");
        device.broken.set(Some(Op::Write));
        let write = old.write_at(Sector(0), View::copy_of(&[1; 512])).await;
        assert!(matches!(write, Err(DeviceError::Io { .. })), "{write:?}");
        assert_eq!(server.snapshot().exports[0].counts.errors, 3);
    });
}

#[test]
fn a_read_only_export_refuses_writes_and_serves_reads() {
    virtually(async {
        let server = Server::new(Config::default());
        let mut only = export("vol0", memory(Bytes::mib(1)));
        only.read_only = true;
        server.add_export(only).expect("exported");
        server.serve(Listener::bind(&address()).expect("a free port"));
        let raw = Raw::entered(false).await;
        for command in [cmd::WRITE_ZEROES, cmd::TRIM] {
            raw.request(command, 0, 3, 0, 512).await;
            assert_eq!(raw.simple_reply().await, (Errno::Perm.code(), 3));
        }
        raw.request(cmd::WRITE, 0, 4, 0, 512).await;
        raw.send(&[7; 512]).await;
        assert_eq!(raw.simple_reply().await, (Errno::Perm.code(), 4));
        raw.request(cmd::READ, 0, 5, 0, 512).await;
        assert_eq!(raw.simple_reply().await, (0, 5));
        assert_eq!(raw.read(512).await, [0; 512]);
    });
}

#[test]
fn overlapping_writers_never_mix_within_a_sector_and_flush_covers_all() {
    virtually(async {
        let device = memory(Bytes::mib(1));
        device.set_latency(Nanos::micros(80));
        let _server = serve(device.clone(), Limits::default());
        let mut tasks = Vec::new();
        for writer in 1..=8u8 {
            tasks.push(env::spawn(async move {
                let client = connect().await;
                let mut rng = Rng::from_seed(writer.into());
                for _ in 0..200 {
                    let at = rng.below(2048 - 64);
                    let len = 512 * (1 + rng.below(64)) as usize;
                    let data = View::copy_of(&vec![writer; len]);
                    client.write_at(Sector(at), data).await.expect("written");
                    let back = client.read_at(Sector(at), Bytes(512)).await.expect("read");
                    assert!(back.iter().all(|&byte| byte == back[0]), "a torn sector");
                }
                client.flush().await.expect("flushed");
            }));
        }
        join_all(tasks).await;
        for sector in device.contents(Span::bytes(0, 1 << 20)).chunks_exact(512) {
            assert!(
                sector.iter().all(|&byte| byte == sector[0]),
                "a torn sector"
            );
        }
    });
}

#[test]
fn random_traffic_on_two_connections_agrees_with_a_plain_twin() {
    for seed in 0..20 {
        virtually(async move {
            const SIZE: usize = 4 << 20;
            let device = memory(Bytes(SIZE as u64));
            device.set_latency(Nanos::micros(50));
            let _server = serve(device, Limits::default());
            let clients = [
                connect().await,
                Client::connect(&address(), &plain()).await.unwrap(),
            ];
            let mut reference = vec![0u8; SIZE];
            let mut rng = Rng::from_seed(seed);
            for step in 0..150 {
                let client = &clients[rng.below(2) as usize];
                let at = 512 * rng.below(SIZE as u64 / 512) as usize;
                let most = (SIZE - at) / 512;
                let most = if rng.chance(0.1) { most } else { most.min(32) };
                let len = 512 * (1 + rng.below(most as u64)) as usize;
                let span = Span::bytes(at as u64, len as u64);
                match rng.below(4) {
                    0 => {
                        let mut data = Buf::for_read(len);
                        rng.fill(&mut data);
                        reference[at..at + len].copy_from_slice(&data);
                        client
                            .write_at(span.start, data.freeze())
                            .await
                            .expect("written");
                    }
                    1 => {
                        reference[at..at + len].fill(0);
                        client
                            .write_zeroes(span, WriteFlags::default())
                            .await
                            .expect("zeroed");
                    }
                    _ => {
                        let read = client.read_at(span.start, span.len).await.expect("read");
                        assert!(
                            read[..] == reference[at..at + len],
                            "seed {seed} step {step}: {span}"
                        );
                    }
                }
            }
        });
    }
}

#[test]
fn many_requests_at_once_are_all_answered_within_the_limits() {
    virtually(async {
        let device = memory(Bytes::mib(64));
        device.set_latency(Nanos::millis(1));
        let limits = Limits {
            requests_per_connection: 16,
            bytes_per_connection: Bytes::mib(32),
            ..Limits::default()
        };
        let server = serve(device, limits);
        let client = Rc::new(connect().await);
        let seen = {
            let server = Rc::clone(&server);
            env::spawn(async move {
                let mut most = (0, 0);
                for _ in 0..200 {
                    env::sleep(Nanos::micros(50)).await;
                    for connection in server.snapshot().connections {
                        most.0 = most.0.max(connection.counts.in_flight);
                        most.1 = most.1.max(connection.held_bytes);
                    }
                }
                most
            })
        };
        let reads = (0..500u64).map(|n| client.read_at(Sector(n * 128), Bytes::kib(64)));
        for read in join_all(reads).await {
            read.expect("read");
        }
        let (requests, bytes) = seen.await;
        assert_eq!(requests, 16);
        assert_eq!(bytes, 16 * (64 << 10));
    });
}

#[test]
fn drain_lets_writes_finish_answers_them_and_closes() {
    virtually(async {
        let device = memory(Bytes::mib(1));
        device.set_latency(Nanos::millis(20));
        let server = serve(device.clone(), Limits::default());
        let client = Rc::new(connect().await);
        let writing = {
            let client = Rc::clone(&client);
            env::spawn(async move { client.write_at(Sector(0), View::copy_of(&[9; 4096])).await })
        };
        env::sleep(Nanos::millis(5)).await;
        let idle = connect().await;
        let negotiating = Raw::connect().await;
        negotiating.read(18).await;
        let draining = {
            let server = Rc::clone(&server);
            env::spawn(async move { server.drain().await })
        };
        env::sleep(Nanos::millis(5)).await;
        let late = client.read_at(Sector(0), Bytes(512)).await;
        // The one that was being waited for is answered; none is refused.
        assert!(
            matches!(late, Ok(_) | Err(DeviceError::Gone { .. })),
            "{late:?}"
        );
        draining.await;
        writing.await.expect("the write in flight was answered");
        assert_eq!(device.contents(Span::bytes(0, 4096)), [9; 4096]);
        assert!(idle.flush().await.is_err());
        assert!(negotiating.is_over().await);
        assert_eq!(server.snapshot().connections, []);
        let again = Client::connect(&address(), &ClientOptions::default()).await;
        assert!(matches!(again, Err(ClientError::Stream(_))));
    });
}

#[test]
fn drain_waits_for_the_device_even_if_the_client_has_gone() {
    virtually(async {
        let device = memory(Bytes::mib(1));
        device.set_latency(Nanos::secs(3));
        let server = serve(device, Limits::default());
        let raw = Raw::entered(false).await;
        raw.request(cmd::READ, 0, 1, 0, 512).await;
        env::sleep(Nanos::millis(5)).await;
        raw.stream.abort();
        drop(raw);
        env::sleep(Nanos::millis(5)).await;
        assert_eq!(server.snapshot().exports[0].counts.in_flight, 1);
        let start = env::now();
        server.drain().await;
        assert!(env::now().since(start) > Nanos::secs(2));
        assert_eq!(server.snapshot().exports[0].counts.in_flight, 0);
    });
}

#[test]
fn a_removed_export_lets_go_of_its_device_and_others_stay() {
    virtually(async {
        let device = memory(Bytes::mib(1));
        let server = serve(device.clone(), Limits::default());
        server
            .add_export(export("vol1", memory(Bytes::mib(2))))
            .expect("exported");
        let client = connect().await;
        let options = ClientOptions {
            export: "vol1".into(),
            ..ClientOptions::default()
        };
        let other = Client::connect(&address(), &options)
            .await
            .expect("connected");
        server.remove_export("vol0").await.expect("it was there");
        assert!(client.flush().await.is_err());
        drop(client);
        assert_eq!(Rc::strong_count(&device), 1, "the server has let go");
        other.flush().await.expect("still served");
        assert_eq!(
            connect().await.info().size,
            Bytes::mib(2),
            "the next one is the default"
        );
        let missing = server.remove_export("vol0").await.unwrap_err();
        assert_eq!(missing.to_string(), "there is no export named 'vol0'");
    });
}

#[test]
fn figures_count_what_was_done() {
    virtually(async {
        let server = serve(memory(Bytes::mib(1)), Limits::default());
        let client = connect().await;
        client
            .write_at(Sector(0), View::copy_of(&[1; 8192]))
            .await
            .expect("written");
        client.read_at(Sector(0), Bytes(4096)).await.expect("read");
        client.read_at(Sector(0), Bytes(4096)).await.expect("read");
        client.flush().await.expect("flushed");
        client.allocation(Span::bytes(0, 512)).await.expect("told");
        let snapshot = server.snapshot();
        let counts = snapshot.exports[0].counts;
        assert_eq!((counts.reads, counts.read_bytes), (2, 8192));
        assert_eq!((counts.writes, counts.written_bytes), (1, 8192));
        assert_eq!((counts.flushes, counts.statuses, counts.errors), (1, 1, 0));
        assert_eq!(counts.in_flight, 0);
        assert_eq!(snapshot.exports[0].connections, 1);
        assert_eq!(snapshot.connections[0].counts, counts);
        assert_eq!(snapshot.connections[0].export.as_deref(), Some("vol0"));
        assert_eq!(
            (snapshot.accepted, snapshot.violations, snapshot.stalled),
            (1, 0, 0)
        );
    });
}

#[test]
fn one_seed_gives_one_trace_hash() {
    let run = || {
        let runtime = Runtime::simulated(11);
        runtime.block_on(async {
            let device = memory(Bytes::mib(4));
            device.set_latency(Nanos::micros(30));
            let server = serve(device, Limits::default());
            let client = connect().await;
            let reads = (0..100u64).map(|n| client.read_at(Sector(n * 8), Bytes(4096)));
            join_all(reads).await;
            client.close().await;
            server.drain().await;
        });
        runtime.trace_hash()
    };
    assert_eq!(run(), run());
}
