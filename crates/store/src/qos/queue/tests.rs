//! The queue against the device below it: nothing lost, nothing twice, every session served by its terms.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;

use base::{Buf, Bytes, Nanos, Sector, Span, View};
use device::fault::{Book, Done, Injury, Rule};
use device::{Class, Device, DeviceExt, Info, Memory, Op, Pending, WriteFlags};
use env::sync::{Semaphore, join_all};
use policy::share::{BytesPerSec, Cost, Costs, Direction, Kind, Terms};

use super::{Queue, QueueOptions};

impl Queue {
    /// From now on handing a piece out panics: one more is too many to be counted.
    pub(crate) fn plant_panic(&self) {
        self.state.change().at_device = usize::MAX;
    }
}

/// 100 us and 100 MB/s.
fn costs() -> Costs {
    let cost = Cost {
        fixed: Nanos::micros(100),
        jump: Nanos(0),
        rate: BytesPerSec::mb(100),
    };
    Costs {
        read: cost,
        write: cost,
    }
}

fn queue(device: Rc<dyn Device>, kind: Kind) -> Rc<Queue> {
    Queue::new(
        device,
        QueueOptions {
            kind,
            ..QueueOptions::new(costs())
        },
    )
}

fn run(test: impl Future<Output = ()> + 'static) {
    env::Runtime::simulated(7).block_on(test);
}

fn class_of(rng: &mut env::Rng, sessions: &[u64]) -> Class {
    match rng.below(6) {
        0 => Class::Foreground,
        1 => Class::Background,
        2 => Class::Metadata,
        // One of them was never opened.
        _ => Class::Session(sessions[rng.below(sessions.len() as u64) as usize]),
    }
}

#[test]
fn what_goes_through_the_queue_reaches_the_device_under_any_scheduler() {
    for kind in Kind::ALL {
        run(async move {
            let disk = Memory::new("disk", Bytes::mib(64));
            disk.set_latency(Nanos::micros(300));
            let queue = queue(disk.clone(), kind);
            let open = |mb| queue.open(Terms::reserved(Direction::Write, BytesPerSec::mb(mb)));
            let sessions = [open(20).unwrap().0, open(40).unwrap().0, 999];
            let mut rng = env::rng("queue");
            let mut writes = Vec::new();
            for at in 0..60_u64 {
                let len = (rng.below(2048) + 1) * 512;
                let mut bytes = vec![0; len as usize];
                rng.fill(&mut bytes);
                let flags = WriteFlags {
                    fua: at % 9 == 0,
                    class: class_of(&mut rng, &sessions),
                };
                let queue = Rc::clone(&queue);
                writes.push(async move {
                    let at = Sector(at * 2048);
                    let data = View::copy_of(&bytes);
                    queue.write(at, data, flags).await.unwrap();
                    (at, bytes)
                });
            }
            let written = join_all(writes).await;
            for (at, bytes) in &written {
                let class = class_of(&mut rng, &sessions);
                let read = queue.read(*at, Buf::for_read(bytes.len()), class);
                assert!(*read.await.unwrap() == bytes[..], "{kind} at {at}");
                let below = disk.read_at(*at, Bytes(bytes.len() as u64)).await.unwrap();
                assert!(below[..] == bytes[..], "{kind} below at {at}");
            }
            assert_eq!(queue.in_flight(), 0);
        });
    }
}

/// Notes what comes to the device, each request taking its time there.
struct Noted {
    below: Rc<Memory>,
    discards: bool,
    turn: Rc<Semaphore>,
    log: RefCell<Vec<(&'static str, u64)>>,
}

impl Noted {
    async fn spend(&self, what: &'static str, len: u64) {
        let _turn = self.turn.acquire(1).await;
        let time = match len {
            // Giving room up takes longer than the queue reckons with.
            0 => Nanos::millis(2),
            len => costs().of(
                Direction::Write,
                Bytes(len),
                policy::share::Approach::Follows,
            ),
        };
        env::sleep(time).await;
        self.log.borrow_mut().push((what, len));
    }
}

impl Device for Noted {
    fn info(&self) -> Info {
        Info {
            discards: self.discards,
            ..self.below.info()
        }
    }

    fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf> {
        Box::pin(async move {
            self.spend("read", buf.len() as u64).await;
            self.below.read(at, buf, class).await
        })
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        self.below.write(at, data, flags)
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.below.flush()
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        Box::pin(async move {
            self.spend("discard", 0).await;
            self.below.discard(span).await
        })
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        Box::pin(async move {
            let len = if self.discards { 0 } else { span.len.0 };
            self.spend("zeroes", len).await;
            self.below.write_zeroes(span, flags).await
        })
    }
}

/// Windows of a promise of reads that were broken beside clients that make zeroes, and how long the longest thing at the
/// device was.
async fn beside_zeroes(discards: bool, waits: bool) -> (u64, u64) {
    let disk = Rc::new(Noted {
        below: Memory::new("disk", Bytes::mib(256)),
        discards,
        turn: Semaphore::new(1),
        log: RefCell::default(),
    });
    let queue = Queue::new(
        disk.clone(),
        QueueOptions {
            discards: waits,
            ..QueueOptions::new(costs())
        },
    );
    let session = queue.open(Terms::reserved(Direction::Read, BytesPerSec::mb(50)));
    let class = Class::Session(session.unwrap().0);
    for nth in 0..32 {
        let queue = Rc::clone(&queue);
        env::spawn(async move {
            loop {
                let span = Span::bytes(nth * (4 << 20), 4 << 20);
                let flags = WriteFlags::default();
                queue.write_zeroes(span, flags).await.unwrap();
                if nth % 4 == 0 {
                    queue.discard(span).await.unwrap();
                }
            }
        });
    }
    let rate = BytesPerSec::mb(50);
    let begun = env::now();
    let mut broken = 0;
    for second in 0..20 {
        let mut got = 0;
        let end = begun + Nanos::secs(second + 1);
        let reads = (0..4_u64).map(async |lane| {
            let mut bytes = 0;
            while env::now() < end {
                let at = Sector::containing(lane << 20);
                let read = queue.read(at, Buf::for_read(1 << 18), class).await;
                bytes += read.unwrap().len() as u64;
            }
            bytes
        });
        got += join_all(reads.collect::<Vec<_>>())
            .await
            .into_iter()
            .sum::<u64>();
        broken += u64::from(got < rate.0);
    }
    let log = disk.log.borrow();
    let longest = log.iter().map(|(_, len)| *len).max().unwrap();
    let zeroes = log.iter().filter(|(what, _)| *what == "zeroes").count();
    assert!(zeroes > 20, "{zeroes}: they are served, too");
    (broken, longest)
}

#[test]
fn zeroes_and_discards_wait_in_the_queue_where_they_are_to() {
    for discards in [true, false] {
        let run = |waits| env::Runtime::simulated(8).block_on(beside_zeroes(discards, waits));
        let ((kept, piece), (around, whole)) = (run(true), run(false));
        println!("{discards}: {kept} of 20 windows broken in the queue, {around} around it");
        assert_eq!(kept, 0, "device discards: {discards}");
        assert!(around >= 15, "around the queue no promise holds: {around}");
        if !discards {
            assert!(piece <= 1 << 20, "zeroes go in pieces: {piece}");
            assert_eq!(whole, 4 << 20);
        }
    }
}

#[test]
fn zeroes_in_pieces_are_zeroes_and_nothing_beside_them() {
    run(async {
        for discards in [true, false] {
            let disk = Rc::new(Noted {
                below: Memory::new("disk", Bytes::mib(8)),
                discards,
                turn: Semaphore::new(1),
                log: RefCell::default(),
            });
            let queue = Queue::new(
                disk.clone(),
                QueueOptions {
                    discards: true,
                    ..QueueOptions::new(costs())
                },
            );
            let data = View::copy_of(&[7; 6 << 20]);
            queue.write_at(Sector(0), data).await.unwrap();
            let span = Span::bytes(4096, 4 << 20);
            let flags = WriteFlags {
                fua: true,
                class: Class::Foreground,
            };
            queue.write_zeroes(span, flags).await.unwrap();
            queue.discard(Span::bytes(5 << 20, 4096)).await.unwrap();
            let read = disk.below.read_at(Sector(0), Bytes(6 << 20)).await.unwrap();
            for (at, byte) in read.iter().enumerate() {
                let zero = (4096..4096 + (4 << 20)).contains(&at)
                    || ((5 << 20)..(5 << 20) + 4096).contains(&at);
                assert_eq!(*byte, if zero { 0 } else { 7 }, "at {at}");
            }
            assert_eq!(queue.in_flight(), 0);
        }
    });
}

#[test]
fn one_bad_piece_fails_the_request_and_nobody_else() {
    run(async {
        let book = Book::new(env::rng("faults"));
        let disk = book.wrap(Memory::new("disk", Bytes::mib(8)));
        // Of four pieces the third.
        book.add(
            Rule::new(Injury::Error(Done::Nothing))
                .on(&[Op::Read])
                .after(2)
                .once(),
        );
        let queue = queue(disk, Kind::Tags);
        let session = queue
            .open(Terms::reserved(Direction::Read, BytesPerSec::mb(90)))
            .unwrap();
        let class = Class::Session(session.0);
        let failed = queue.read(Sector(0), Buf::for_read(1 << 20), class).await;
        assert!(failed.is_err(), "a piece failed");
        assert_eq!(queue.in_flight(), 0);
        queue
            .read(Sector(0), Buf::for_read(1 << 20), class)
            .await
            .unwrap();
        let delivered = queue.figures(session).unwrap().delivered;
        assert!(
            delivered > Bytes::mib(1) && delivered < Bytes::mib(2),
            "{delivered}"
        );
    });
}

#[test]
fn what_a_closed_session_asked_for_is_done_all_the_same() {
    for kind in Kind::ALL {
        run(async move {
            let disk = Memory::new("disk", Bytes::mib(64));
            disk.set_latency(Nanos::millis(1));
            let queue = queue(disk.clone(), kind);
            let session = queue
                .open(Terms::reserved(Direction::Write, BytesPerSec::mb(50)))
                .unwrap();
            let flags = WriteFlags {
                fua: false,
                class: Class::Session(session.0),
            };
            let data: Vec<u8> = (0..3 << 20).map(|at: u32| (at / 4096) as u8).collect();
            let writes = (0..8).map(|at| {
                let (queue, data) = (Rc::clone(&queue), View::copy_of(&data));
                env::spawn(async move { queue.write(Sector(at * 6144), data, flags).await })
            });
            let writes: Vec<_> = writes.collect();
            env::sleep(Nanos::micros(2500)).await;
            let closed = queue.close(session).expect("it was open");
            assert!(!closed.unserved.is_empty(), "{kind}: closed in the middle");
            for write in writes {
                write.await.unwrap();
            }
            for at in 0..8 {
                let read = disk
                    .read_at(Sector(at * 6144), Bytes(data.len() as u64))
                    .await;
                assert!(read.unwrap()[..] == data[..], "{kind}: write {at}");
            }
            assert!(queue.close(session).is_none());
        });
    }
}

#[test]
fn a_line_that_is_full_makes_its_users_wait_and_loses_nobody() {
    run(async {
        let disk = Memory::new("disk", Bytes::mib(8));
        disk.set_latency(Nanos::micros(50));
        let mut options = QueueOptions::new(costs());
        options.share.limits.requests_max = 2;
        let queue = Queue::new(disk, options);
        let reads = (0..50).map(|at| {
            let queue = Rc::clone(&queue);
            env::spawn(async move {
                queue
                    .read_at(Sector(at), Bytes(512))
                    .await
                    .map(|buf| buf.len())
            })
        });
        let reads: Vec<_> = reads.collect();
        for read in reads {
            assert_eq!(read.await.unwrap(), 512);
        }
    });
}

#[test]
fn promises_are_kept_while_a_greedy_client_asks_for_all() {
    // One piece at a time, each 2.7 ms whatever its length: 97 MB/s in pieces of 256 KiB.
    run(async {
        let disk = Memory::new("disk", Bytes::mib(64));
        disk.set_latency(Nanos::micros(2700));
        let cost = Cost {
            fixed: Nanos::micros(2600),
            jump: Nanos(0),
            rate: BytesPerSec::mb(2621),
        };
        let mut options = QueueOptions::new(Costs {
            read: cost,
            write: cost,
        });
        options.share.tags.depth.max = 1;
        let queue = Queue::new(disk, options);
        let open = |mb| {
            queue
                .open(Terms::reserved(Direction::Read, BytesPerSec::mb(mb)))
                .unwrap()
        };
        let (large, small) = (open(50), open(25));
        for (class, depth) in [
            (Class::Session(large.0), 2),
            (Class::Session(small.0), 2),
            (Class::Foreground, 32),
        ] {
            for _ in 0..depth {
                let queue = Rc::clone(&queue);
                env::spawn(async move {
                    loop {
                        queue
                            .read(Sector(0), Buf::for_read(1 << 20), class)
                            .await
                            .unwrap();
                    }
                });
            }
        }
        env::sleep(Nanos::secs(20)).await;
        for (session, promised) in [(large, 50), (small, 25)] {
            let figures = queue.figures(session).unwrap();
            assert_eq!(
                figures.windows.violated(),
                0,
                "{promised} MB/s: {:?}",
                figures.windows
            );
            assert!(
                figures.delivered.0 >= promised * 20_000_000,
                "{}",
                figures.delivered
            );
        }
        let interval = queue.take_interval();
        assert_eq!(interval.length, Nanos::secs(20));
        assert!(interval.backlogged > Nanos::millis(19_990), "{interval:?}");
        let (work, least) = (interval.read_work, Nanos::secs(19));
        assert!(work > least && work < Nanos::secs(21), "{work}");
        assert_eq!(queue.take_interval().length, Nanos(0));
    });
}

#[test]
fn a_read_nobody_waits_for_any_more_leaves_nothing_behind() {
    run(async {
        let disk = Memory::new("disk", Bytes::mib(8));
        disk.set_latency(Nanos::millis(5));
        let mut options = QueueOptions::new(costs());
        options.share.limits.requests_max = 1;
        let queue = Queue::new(disk, options);
        // One is at the device, one in the queue, and the others wait for room in it.
        for _ in 0..5 {
            let queue = Rc::clone(&queue);
            env::spawn(async move {
                let read = queue.read_at(Sector(0), Bytes::kib(512));
                assert!(env::timeout(Nanos::millis(3), read).await.is_err());
            });
        }
        env::sleep(Nanos::millis(4)).await;
        assert!(
            queue.in_flight() > 0,
            "what is in line is done all the same"
        );
        env::sleep(Nanos::millis(100)).await;
        assert_eq!(queue.in_flight(), 0);
        queue.read_at(Sector(0), Bytes::kib(512)).await.unwrap();
    });
}

#[test]
fn a_client_that_leaves_the_device_room_says_nothing_of_what_it_can_do() {
    run(async {
        let disk = Memory::new("disk", Bytes::mib(8));
        disk.set_latency(Nanos::millis(1));
        let mut options = QueueOptions::new(costs());
        options.share.tags.depth = policy::share::DepthOptions::fixed(4);
        let queue = Queue::new(disk, options);
        let busy = async |clients: u64| {
            queue.take_interval();
            let end = env::now() + Nanos::secs(1);
            let all = (0..clients).map(|_| async {
                while env::now() < end {
                    queue.read_at(Sector(0), Bytes::kib(64)).await.unwrap();
                }
            });
            join_all(all).await;
            queue.take_interval().backlogged
        };
        assert_eq!(busy(3).await, Nanos(0));
        assert!(busy(4).await >= Nanos::secs(1));
    });
}

/// A disk that moves 2 GB/s, one request after the other, and takes 150 us on the way there and back of each.
struct Fast {
    below: Rc<Memory>,
    turn: Rc<Semaphore>,
}

const FAST: BytesPerSec = BytesPerSec::mb(2_000);

impl Fast {
    fn new() -> Rc<Fast> {
        let below = Memory::new("fast", Bytes::mib(64));
        below.set_latency(Nanos::micros(150));
        let turn = Semaphore::new(1);
        Rc::new(Fast { below, turn })
    }

    async fn spend(&self, len: usize) {
        let _turn = self.turn.acquire(1).await;
        env::sleep(FAST.time_for(Bytes(len as u64))).await;
    }
}

impl Device for Fast {
    fn info(&self) -> Info {
        self.below.info()
    }

    fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf> {
        Box::pin(async move {
            self.spend(buf.len()).await;
            self.below.read(at, buf, class).await
        })
    }

    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        Box::pin(async move {
            self.spend(data.len()).await;
            self.below.write(at, data, flags).await
        })
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.below.flush()
    }

    fn discard(&self, span: Span) -> Pending<'_, ()> {
        self.below.discard(span)
    }

    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        self.below.write_zeroes(span, flags)
    }
}

/// How long four users take over 512 reads or writes of 1 MiB.
async fn four_users(device: Rc<dyn Device>, direction: Direction) -> Nanos {
    const MIB: u64 = 1 << 20;
    let data = View::copy_of(&vec![7; MIB as usize]);
    let begun = env::now();
    let user = |first: u64| {
        let (device, data) = (Rc::clone(&device), data.clone());
        async move {
            for at in (first..512).step_by(4) {
                let at = Sector(at % 64 * MIB / 512);
                match direction {
                    Direction::Read => drop(device.read_at(at, Bytes(MIB)).await.unwrap()),
                    Direction::Write => device.write_at(at, data.clone()).await.unwrap(),
                }
            }
        }
    };
    join_all((0..4).map(user)).await;
    env::now().since(begun)
}

#[test]
fn a_fast_device_is_as_fast_behind_its_queue() {
    for direction in Direction::ALL {
        run(async move {
            let bare = four_users(Fast::new(), direction).await;
            let queue = Queue::new(Fast::new(), QueueOptions::new(Costs::flat(FAST)));
            let queued = four_users(queue.clone(), direction).await;
            let ratio = bare.0 as f64 / queued.0 as f64;
            // As it was with pieces of a quantum, the first one alone.
            let mut options = QueueOptions::new(Costs::flat(FAST));
            options.share.tags.piece_time = Nanos(0);
            let short = four_users(Queue::new(Fast::new(), options), direction).await;
            let short = bare.0 as f64 / short.0 as f64;
            println!("{direction}s in short pieces: {short:.3}");
            assert!(short < 0.98, "{direction}s: {short}");
            println!("{direction}s: {ratio:.3} at depth {}", queue.depth());
            assert!(
                ratio >= 0.98,
                "{direction}s: {ratio}, depth {}",
                queue.depth()
            );
        });
    }
}

#[test]
fn a_newcomer_waits_a_few_ms_behind_a_greedy_client_of_a_fast_device() {
    run(async {
        let queue = Queue::new(Fast::new(), QueueOptions::new(Costs::flat(FAST)));
        let greedy = {
            let queue = queue.clone();
            env::spawn(async move { four_users(queue, Direction::Write).await })
        };
        // Early, at the depth it begins with, and later.
        for _ in 0..20 {
            env::sleep(Nanos::micros(7300)).await;
            let session = queue.open(Terms::reserved(Direction::Read, BytesPerSec::mb(100)));
            let session = session.unwrap();
            let begun = env::now();
            let buf = Buf::for_read(256 << 10);
            queue
                .read(Sector(0), buf, Class::Session(session.0))
                .await
                .unwrap();
            let waited = env::now().since(begun);
            // Four pieces of a millisecond at most, its own, and the way.
            assert!(
                waited <= Nanos::micros(4 * 1000 + 131 + 150),
                "{waited} at depth {}",
                queue.depth()
            );
            queue.close(session).unwrap();
        }
        greedy.await;
    });
}

/// A MiB in a second, and ten milliseconds for a jump.
fn jumping() -> Costs {
    let cost = Cost {
        fixed: Nanos(0),
        jump: Nanos::millis(10),
        rate: BytesPerSec(1 << 20),
    };
    Costs {
        read: cost,
        write: cost,
    }
}

#[test]
fn what_a_stream_passes_over_costs_what_it_takes_and_a_jump_at_most() {
    run(async {
        let disk = Memory::new("disk", Bytes::mib(64));
        let queue = Queue::new(disk, QueueOptions::new(jumping()));
        let terms = Terms::reserved(Direction::Read, BytesPerSec(1 << 20));
        let session = Class::Session(queue.open(terms).unwrap().0);
        let mut before = Nanos(0);
        // A second for each MiB, and so many nanoseconds until it begins.
        for (at, until) in [
            (0, 10_000_000),
            (2048, 0),
            // Over 4 KiB and back over them.
            (4104, 3_906_250),
            (4096, 10_000_000),
            // Far away, on either side.
            (100_000, 10_000_000),
            (0, 10_000_000),
        ] {
            queue.take_interval();
            let buf = Buf::for_read(1 << 20);
            queue.read(Sector(at), buf, session).await.unwrap();
            let whole = Nanos(1_000_000_000 + until);
            let work = queue.totals().work;
            assert_eq!(work - before, whole, "sector {at}");
            before = work;
            // No one else moved the heads.
            assert_eq!(queue.take_interval().read_work, whole, "sector {at}");
        }
    });
}

#[test]
fn streams_that_take_turns_over_one_stretch_are_the_work_of_one() {
    run(async {
        let queue = Queue::new(
            Memory::new("disk", Bytes::mib(64)),
            QueueOptions::new(jumping()),
        );
        let terms = Terms::reserved(Direction::Read, BytesPerSec(1 << 19));
        let streams = [(); 2].map(|()| Class::Session(queue.open(terms).unwrap().0));
        let read = async |at: u64, stream| {
            let (before, buf) = (queue.totals().work, Buf::for_read(1 << 20));
            queue.take_interval();
            queue.read(Sector(at), buf, stream).await.unwrap();
            (
                queue.totals().work - before,
                queue.take_interval().read_work,
            )
        };
        let begun = Nanos::millis(1010);
        assert_eq!(read(0, streams[0]).await, (begun, begun));
        for nth in 1..6 {
            // Each stream passes over what the other one reads, and the device over nothing.
            let (charged, work) = read(nth * 2048, streams[nth as usize % 2]).await;
            assert_eq!((charged, work), (begun, Nanos::secs(1)), "MiB {nth}");
        }
        // Elsewhere and back: the stream goes on, the device jumps.
        assert_eq!(read(100_000, streams[0]).await.1, begun);
        assert_eq!(read(6 * 2048, streams[1]).await, (Nanos::secs(1), begun));
    });
}
