//! Devices of another thread: in virtual time with random delays, and once more between two real threads.

mod reference;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::{Buf, Bytes, Nanos, Sector, Span, View};
use device::fault::{Done, Fault, Injury, Rule};
use device::remote::{Gate, Opened, OwnerEnd, link};
use device::{Class, Device, DeviceError, DeviceExt, Info, Memory, Op, Pending, WriteFlags, ready};
use env::sync::join_all;
use env::{RealConfig, Rng, Runtime, sleep, spawn};
use proptest::prelude::*;
use reference::{actions, agree, filled};

const SIZE: Bytes = Bytes::kib(512);

/// Serves `disk` under the name "disk".
async fn serve(owner: OwnerEnd, disk: Rc<dyn Device>) {
    let supply = move |name: &str| match name {
        "disk" => ready(Ok(Opened::of(Rc::clone(&disk)))),
        name => ready(Err(DeviceError::Gone {
            device: name.to_owned(),
            op: Op::Read,
            why: "there is no such device".to_owned(),
        })),
    };
    owner.serve(supply).await;
}

/// A gate to `disk` within this runtime, and what serves it.
fn joined(depth: usize, disk: Rc<dyn Device>) -> (Rc<Gate>, env::Task<()>) {
    let (gate, owner) = link(depth);
    (gate.join(), spawn(serve(owner, disk)))
}

fn slow_memory(latency: Nanos) -> Rc<Memory> {
    let disk = Memory::new("mem0", SIZE);
    disk.set_latency(latency);
    disk
}

proptest! {
    #![proptest_config(reference::cases(64))]

    #[test]
    fn a_remote_device_reads_what_a_vec_reads(
        actions in actions(SIZE, Bytes::kib(64), 60),
        seed in 0..1_000_u64,
        depth in 1..4_usize,
        latency in 0..2_u64,
    ) {
        Runtime::simulated(seed).block_on(async move {
            let (gate, _) = joined(depth, slow_memory(Nanos::micros(latency)));
            let remote = gate.open("disk").await.unwrap();
            agree(&*remote, actions).await;
        });
    }
}

/// Two gates write the same sector at once: who was last, and the run's hash.
fn race(seed: u64) -> (u8, u64) {
    let runtime = Runtime::simulated(seed);
    let last = runtime.block_on(async {
        let disk = slow_memory(Nanos::micros(5));
        let writes = [1, 2].map(|fill| {
            let (gate, _) = joined(4, disk.clone());
            async move {
                let remote = gate.open("disk").await.unwrap();
                let data = filled(fill, Bytes(512));
                remote.write_at(Sector(0), data).await.unwrap();
            }
        });
        join_all(writes).await;
        disk.contents(Span::bytes(0, 512))[0]
    });
    (last, runtime.trace_hash())
}

#[test]
fn requests_of_two_gates_meet_in_both_orders_and_each_seed_has_one() {
    let mut seen = [0; 3];
    for seed in 0..64 {
        let (last, hash) = race(seed);
        assert_eq!((last, hash), race(seed));
        seen[usize::from(last)] += 1;
    }
    assert!(seen[1] >= 8 && seen[2] >= 8, "{seen:?}");
}

#[test]
fn no_more_than_the_depth_is_under_way_and_the_rest_waits() {
    Runtime::simulated(1).block_on(async {
        let disk = slow_memory(Nanos::millis(1));
        let (gate, _) = joined(4, disk.clone());
        let remote = gate.open("disk").await.unwrap();
        let begun = env::now();
        let reads = (0..32).map(|at| {
            let remote = Rc::clone(&remote);
            spawn(async move {
                let read = remote.read_at(Sector(at), Bytes(512)).await;
                assert_eq!(read.map(|buf| buf.len()), Ok(512));
            })
        });
        let reads: Vec<_> = reads.collect();
        let most = Rc::new(Cell::new(0));
        let watch = Rc::clone(&most);
        let watched = disk.clone();
        let watcher = env::cancel_scope(spawn(async move {
            loop {
                watch.set(watch.get().max(watched.in_flight()));
                sleep(Nanos::micros(50)).await;
            }
        }));
        sleep(Nanos::micros(100)).await;
        assert_eq!(remote.in_flight(), 32);
        join_all(reads).await;
        drop(watcher);
        assert_eq!((most.get(), remote.in_flight()), (4, 0));
        // Eight rounds of a millisecond, and the delays of the rings.
        let took = env::now().since(begun);
        assert!(
            (Nanos::millis(8)..Nanos::millis(9)).contains(&took),
            "{took:?}"
        );
    });
}

#[test]
fn a_call_whose_caller_went_away_ends_at_the_owner_and_gives_its_place_back() {
    for seed in 0..32 {
        Runtime::simulated(seed).block_on(async {
            let disk = slow_memory(Nanos::millis(1));
            let (gate, _) = joined(1, disk.clone());
            let remote = gate.open("disk").await.unwrap();
            let write = remote.write_at(Sector(0), filled(7, Bytes(512)));
            assert!(env::timeout(Nanos::micros(30), write).await.is_err());
            // Waits for the place of the one before, and is never sent.
            let write = remote.write_at(Sector(1), filled(8, Bytes(512)));
            assert!(env::timeout(Nanos::micros(30), write).await.is_err());
            assert_eq!(remote.in_flight(), 0);
            assert_eq!(remote.flush().await, Ok(()));
            assert_eq!(disk.contents(Span::bytes(0, 512)), [7; 512]);
            assert_eq!(disk.contents(Span::bytes(512, 512)), [0; 512]);
        });
    }
}

#[test]
fn errors_come_back_as_the_device_said_them() {
    Runtime::simulated(1).block_on(async {
        let fault = Fault::new(slow_memory(Nanos(0)), Rng::from_seed(1));
        let book = Rc::clone(fault.book());
        let (gate, _) = joined(4, fault);
        let refused = gate.open("tape").await.err().unwrap();
        let words = "cannot read on tape: it is gone (there is no such device)";
        assert_eq!(refused.to_string(), words);
        let remote = gate.open("disk").await.unwrap();
        let behind = remote.read_at(Sector(SIZE.sectors()), Bytes(512)).await;
        let here = Memory::new("mem0", SIZE);
        let said = here.read_at(Sector(SIZE.sectors()), Bytes(512)).await;
        assert_eq!(behind.err(), said.err());
        for op in [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes] {
            let id = book.add(Rule::new(Injury::Error(Done::Nothing)).on(&[op]));
            let span = Span::bytes(0, 512);
            let answers = [
                remote.read_at(Sector(0), Bytes(512)).await.map(drop),
                remote.write_at(Sector(0), filled(1, Bytes(512))).await,
                remote.flush().await,
                remote.discard(span).await,
                remote.write_zeroes(span, WriteFlags::FUA).await,
            ];
            let ops = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes];
            for (of, answer) in ops.into_iter().zip(answers) {
                match (of == op, answer) {
                    (true, Err(DeviceError::Io { op: said, .. })) => assert_eq!(said, op),
                    (false, Ok(())) => {}
                    (_, answer) => panic!("{of} where {op} fails: {answer:?}"),
                }
            }
            book.remove(id);
        }
    });
}

#[test]
fn pieces_of_a_buffer_are_filled_in_place() {
    Runtime::simulated(1).block_on(async {
        let disk = slow_memory(Nanos(0));
        disk.load(Sector(0), &[[5; 512], [6; 512]].concat());
        let (gate, _) = joined(4, disk);
        let remote = gate.open("disk").await.unwrap();
        let mut buf = Buf::copy_of(&[1; 1536]);
        let mut tail = buf.split_off(512);
        let last = tail.split_off(512);
        let whole = buf.address();
        let read = |at, piece| remote.read(Sector(at), piece, Class::Foreground);
        let (mut buf, mut tail) = (read(0, buf).await.unwrap(), read(1, tail).await.unwrap());
        let last = read(9, last).await.unwrap();
        tail.join(last);
        buf.join(tail);
        assert_eq!(buf.address(), whole);
        assert_eq!(
            [buf[0], buf[511], buf[512], buf[1023], buf[1024]],
            [5, 5, 6, 6, 0]
        );
        // Alone in its memory it travels itself.
        let mut read = read(0, buf).await.unwrap();
        assert_eq!(read.address(), whole);
        // A view that others have is copied, and stays as it is.
        let view = View::copy_of(&[9; 512]);
        remote.write_at(Sector(0), view.clone()).await.unwrap();
        assert_eq!(view[..], [9; 512]);
        let read = remote.read_at(Sector(0), Bytes(512)).await.unwrap();
        assert_eq!(read[..], [9; 512]);
    });
}

/// Owners of `disk`, when the owner has had time to give it up.
async fn owners(disk: &Rc<Memory>) -> usize {
    sleep(Nanos::millis(10)).await;
    Rc::strong_count(disk)
}

/// A supplier that takes its time, and keeps a count of the device itself.
async fn serve_slowly(owner: OwnerEnd, disk: Rc<Memory>, latency: Nanos) {
    let supply = move |_: &str| -> Pending<'static, Opened> {
        let disk = Rc::clone(&disk);
        Box::pin(async move {
            sleep(latency).await;
            Ok(Opened::of(disk))
        })
    };
    owner.serve(supply).await;
}

#[test]
fn a_device_is_given_up_when_the_gate_has_it_no_more() {
    for seed in 0..32 {
        Runtime::simulated(seed).block_on(async {
            let disk = slow_memory(Nanos::millis(1));
            let (gate, owner) = link(2);
            let gate = gate.join();
            spawn(serve_slowly(owner, disk.clone(), Nanos::millis(1)));
            sleep(Nanos::millis(1)).await;
            let idle = Rc::strong_count(&disk);
            let one = gate.open("disk").await.unwrap();
            let two = gate.open("disk").await.unwrap();
            assert_eq!(owners(&disk).await, idle + 2);
            // Its close waits for the places that two calls of the other one have.
            let reads = [0, 1].map(|at| {
                let two = Rc::clone(&two);
                spawn(async move { two.read_at(Sector(at), Bytes(512)).await.map(drop) })
            });
            sleep(Nanos::micros(100)).await;
            drop(one);
            assert_eq!(owners(&disk).await, idle + 1);
            for read in reads {
                assert_eq!(read.await, Ok(()));
            }
            // A caller that goes away while the owner opens leaves nothing open.
            let opening = gate.open("disk");
            assert!(env::timeout(Nanos::micros(200), opening).await.is_err());
            assert_eq!(owners(&disk).await, idle + 1);
            // The gate goes, and with it all it has open.
            drop((two, gate));
            assert_eq!(owners(&disk).await, 1);
        });
    }
}

#[test]
fn a_device_is_given_up_although_callers_never_cease() {
    Runtime::simulated(1).block_on(async {
        let disk = slow_memory(Nanos::micros(10));
        let (gate, _) = joined(1, disk.clone());
        let other = gate.open("disk").await.unwrap();
        let remote = gate.open("disk").await.unwrap();
        for _ in 0..3 {
            let remote = Rc::clone(&remote);
            drop(spawn(async move {
                while remote.read_at(Sector(0), Bytes(512)).await.is_ok() {}
            }));
        }
        // A call under way has the device too, for a while.
        let fewest = async || {
            let mut fewest = usize::MAX;
            for _ in 0..100 {
                sleep(Nanos::micros(3)).await;
                fewest = fewest.min(Rc::strong_count(&disk));
            }
            fewest
        };
        let before = fewest().await;
        drop(other);
        sleep(Nanos::millis(1)).await;
        assert_eq!(fewest().await, before - 1);
    });
}

#[test]
fn after_the_gate_went_calls_under_way_end_and_the_owner_stops_serving() {
    for seed in 0..32 {
        Runtime::simulated(seed).block_on(async {
            let disk = slow_memory(Nanos::millis(1));
            let (gate, serving) = joined(4, disk.clone());
            let write = spawn(async move {
                let remote = gate.open("disk").await.unwrap();
                let _ = remote.write_at(Sector(3), filled(7, Bytes(512))).await;
                unreachable!("its task ends before");
            });
            sleep(Nanos::micros(200)).await;
            assert_eq!(disk.in_flight(), 1);
            write.cancel();
            serving.await;
            sleep(Nanos::millis(2)).await;
            assert_eq!(disk.in_flight(), 0);
            assert_eq!(disk.contents(Span::bytes(3 * 512, 512)), [7; 512]);
        });
    }
}

#[test]
fn after_the_owner_went_each_call_is_answered() {
    let mut seen = [0, 0];
    for seed in 0..64 {
        let (done, gone) = Runtime::simulated(seed).block_on(async move {
            let disk = slow_memory(Nanos::micros(50));
            let (gate, serving) = joined(4, disk);
            let remote = gate.open("disk").await.unwrap();
            let answers = Rc::new(RefCell::new((0, 0)));
            let writers: Vec<_> = (0..16)
                .map(|at| {
                    let (remote, answers) = (Rc::clone(&remote), Rc::clone(&answers));
                    spawn(async move {
                        loop {
                            let data = filled(1, Bytes(512));
                            match remote.write_at(Sector(at), data).await {
                                Ok(()) => answers.borrow_mut().0 += 1,
                                Err(error) => {
                                    let words = "cannot write on mem0: it is gone (the thread that has it has ended)";
                                    assert_eq!(error.to_string(), words);
                                    answers.borrow_mut().1 += 1;
                                    return;
                                }
                            }
                        }
                    })
                })
                .collect();
            sleep(Nanos(env::rng("test").below(1_000_000))).await;
            serving.cancel();
            join_all(writers).await;
            assert_eq!(remote.in_flight(), 0);
            let late = remote.flush().await.unwrap_err();
            assert!(matches!(late, DeviceError::Gone { op: Op::Flush, .. }));
            assert!(gate.open("disk").await.is_err());
            answers.take()
        });
        assert_eq!(gone, 16);
        seen[usize::from(done > 0)] += 1;
    }
    assert!(seen[1] > 32, "{seen:?}");
}

/// Memory that grew since it was opened.
struct Grown(Rc<Memory>, Rc<Cell<bool>>);

impl Device for Grown {
    fn info(&self) -> Info {
        let mut info = self.0.info();
        if self.1.get() {
            info.size += Bytes::mib(1);
        }
        info
    }
    fn read(&self, at: Sector, buf: Buf, class: Class) -> Pending<'_, Buf> {
        self.0.read(at, buf, class)
    }
    fn write(&self, at: Sector, data: View, flags: WriteFlags) -> Pending<'_, ()> {
        self.0.write(at, data, flags)
    }
    fn flush(&self) -> Pending<'_, ()> {
        self.0.flush()
    }
    fn discard(&self, span: Span) -> Pending<'_, ()> {
        self.0.discard(span)
    }
    fn write_zeroes(&self, span: Span, flags: WriteFlags) -> Pending<'_, ()> {
        self.0.write_zeroes(span, flags)
    }
}

#[test]
fn a_look_shows_what_the_device_is_like_by_now() {
    Runtime::simulated(1).block_on(async {
        let grown = Rc::new(Cell::new(false));
        let disk = Grown(slow_memory(Nanos(0)), Rc::clone(&grown));
        let (gate, _) = joined(4, Rc::new(disk));
        let remote = gate.open("disk").await.unwrap();
        grown.set(true);
        assert_eq!(remote.info().size, SIZE);
        let larger = SIZE + Bytes::mib(1);
        assert_eq!(remote.look().await.unwrap().size, larger);
        assert_eq!(remote.info().size, larger);
    });
}

// --- two real threads -----------------------------------------------------------------------------

fn real() -> Runtime {
    let config = RealConfig {
        seed: Some(1),
        ..RealConfig::default()
    };
    Runtime::real(config).unwrap()
}

#[test]
fn two_threads_share_a_device_as_one_thread_has_it() {
    const WRITERS: u64 = 16;
    const ROUNDS: u64 = 400;
    let (gate, owner) = link(8);
    let thread = std::thread::Builder::new()
        .spawn(move || {
            real().block_on(async move {
                let disk = Memory::new("mem0", Bytes::mib(1));
                serve(owner, disk).await;
            });
        })
        .unwrap();
    real().block_on(async move {
        let gate = gate.join();
        let remote = gate.open("disk").await.unwrap();
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let remote = Rc::clone(&remote);
                spawn(async move {
                    // Each has 64 KiB of its own, and reads back what it wrote last.
                    let first = Sector(writer * 128);
                    let mut rng = env::rng("writer");
                    let mut last = [0; 16];
                    for _ in 0..ROUNDS {
                        let page = rng.below(16);
                        let at = Sector(first.0 + page * 8);
                        if rng.chance(0.5) {
                            let fill = rng.below(255) as u8;
                            last[page as usize] = fill;
                            remote
                                .write_at(at, filled(fill, Bytes(4096)))
                                .await
                                .unwrap();
                        } else {
                            let read = remote.read_at(at, Bytes(4096)).await.unwrap();
                            assert!(read.iter().all(|byte| *byte == last[page as usize]));
                        }
                        if rng.chance(0.05) {
                            remote.flush().await.unwrap();
                            sleep(Nanos::micros(rng.below(100))).await;
                        }
                    }
                })
            })
            .collect();
        join_all(writers).await;
    });
    thread.join().unwrap();
}

#[test]
fn a_thread_that_ends_with_calls_under_way_leaves_no_caller_waiting() {
    let (gate, owner) = link(4);
    let thread = std::thread::Builder::new()
        .spawn(move || {
            real().block_on(async move {
                let disk = slow_memory(Nanos::secs(3600));
                spawn(serve(owner, disk.clone()));
                // Ends, runtime and all, as soon as the ring is full of calls that will not be answered.
                while disk.in_flight() < 4 {
                    sleep(Nanos::micros(100)).await;
                }
            });
        })
        .unwrap();
    real().block_on(async move {
        let remote = gate.join().open("disk").await.unwrap();
        let reads = (0..12).map(|at| remote.read_at(Sector(at), Bytes(512)));
        for read in join_all(reads).await {
            assert!(matches!(read, Err(DeviceError::Gone { .. })));
        }
    });
    thread.join().unwrap();
}

#[test]
fn the_owner_has_ended_when_the_last_call_of_a_dead_gate_has() {
    Runtime::simulated(3).block_on(async {
        let late = Nanos::millis(50);
        let disk = slow_memory(late);
        let (gate, owner) = link(4);
        let serving = spawn(serve(owner, disk.clone()));
        let remote = gate.join().open("disk").await.unwrap();
        let began = env::now();
        let writing = spawn({
            let remote = Rc::clone(&remote);
            async move { remote.write_at(Sector(0), filled(7, Bytes(512))).await }
        });
        sleep(Nanos::millis(1)).await;
        // The gate's thread dies: what it held is dropped, with its caller.
        writing.cancel();
        drop(remote);
        serving.await;
        assert!(
            env::now().since(began) >= late,
            "the write was still under way"
        );
        assert_eq!(
            disk.read_at(Sector(0), Bytes(512)).await.unwrap()[..],
            [7; 512]
        );
    });
}

#[test]
fn a_silent_gate_leaves_calls_open_when_its_owner_is_gone() {
    Runtime::simulated(4).block_on(async {
        for is_silent in [false, true] {
            let (end, owner) = link(4);
            let gate = end.join();
            let serving = spawn(serve(owner, Memory::new("disk", SIZE)));
            let remote = gate.open("disk").await.unwrap();
            if is_silent {
                gate.fall_silent();
            }
            serving.cancel();
            sleep(Nanos::millis(1)).await;
            let read = env::timeout(Nanos::secs(5), remote.read_at(Sector(0), Bytes(512))).await;
            assert_eq!(read.is_err(), is_silent, "{read:?}");
            let opened = env::timeout(Nanos::secs(5), gate.open("disk")).await;
            assert_eq!(opened.is_err(), is_silent);
        }
    });
}

#[test]
fn zeroes_are_written_without_travelling() {
    Runtime::simulated(5).block_on(async {
        let disk = Memory::new("disk", SIZE);
        let (gate, _serving) = joined(4, disk.clone());
        let remote = gate.open("disk").await.unwrap();
        disk.write_at(Sector(0), filled(9, Bytes(8192)))
            .await
            .unwrap();
        // Several views of one buffer, as a long zeroing sends: none of them is copied.
        let zeroes = Buf::zeroed(4096).freeze();
        let flags = WriteFlags::default();
        let places = [Sector(0), Sector(1), Sector(4)];
        let written = places.map(|at| remote.write(at, zeroes.slice(0, 512), flags));
        assert!(join_all(written).await.iter().all(Result::is_ok));
        let read = disk.read_at(Sector(0), Bytes(8192)).await.unwrap();
        for sector in 0..16 {
            let byte = if places.contains(&Sector(sector)) {
                0
            } else {
                9
            };
            let at = sector as usize * 512;
            assert!(
                read[at..at + 512].iter().all(|it| *it == byte),
                "sector {sector}"
            );
        }
    });
}
