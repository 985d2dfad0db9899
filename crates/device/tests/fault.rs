//! Injected faults: the right request, the right way, the right number of times.

mod reference;

use std::rc::Rc;

use base::{Bytes, Nanos, Sector, Span};
use device::fault::{Book, Done, Injury, Rule};
use device::{Crash, Device, DeviceError, DeviceExt, Fault, Memory, Op};
use env::{Rng, Runtime};
use proptest::prelude::*;
use reference::{actions, agree, filled};

const SIZE: Bytes = Bytes::mib(1);
const ONE: Bytes = Bytes(512);

fn faulty() -> (Rc<Memory>, Rc<Fault>) {
    let memory = Memory::new("disk", SIZE);
    let below: Rc<dyn Device> = memory.clone();
    (memory, Fault::new(below, Rng::from_seed(5)))
}

fn run(work: impl Future<Output = ()> + 'static) {
    Runtime::simulated(1).block_on(work);
}

proptest! {
    #![proptest_config(reference::cases(64))]

    #[test]
    fn slow_and_healed_it_reads_what_a_vec_reads(
        actions in actions(SIZE, Bytes::kib(64), 60),
        factor in 0.5..4.0_f64,
        late in 0..1000_u64,
    ) {
        let (memory, fault) = faulty();
        memory.set_latency(Nanos::micros(1));
        fault.book().add(Rule::new(Injury::Slow(factor)).chance(0.5));
        fault.book().add(Rule::new(Injury::Delay(Nanos(late))).chance(0.5));
        run(async move { agree(&*fault, actions).await });
    }
}

#[test]
fn the_nth_matching_request_fails_once_with_its_span() {
    let (_, fault) = faulty();
    let rule = Rule::new(Injury::Error(Done::Nothing)).on(&[Op::Read]);
    fault
        .book()
        .add(rule.within(Span::bytes(4096, 4096)).after(2).once());
    run(async move {
        let mut failed = Vec::new();
        for attempt in 0..6 {
            fault.write_at(Sector(9), filled(1, ONE)).await.unwrap();
            fault.read_at(Sector(0), ONE).await.unwrap(); // outside: does not count
            if let Err(error) = fault.read_at(Sector(9), ONE).await {
                assert_eq!(
                    error.to_string(),
                    "cannot read sectors 9..10 of disk: injected fault (EIO)"
                );
                failed.push(attempt);
            }
        }
        assert_eq!(failed, [2]);
        assert_eq!(fault.book().injuries().errors, 1);
        assert_eq!(fault.book().steps(), 18);
    });
}

#[test]
fn a_rule_without_a_number_of_times_holds_until_it_is_removed() {
    let (_, fault) = faulty();
    let rule = fault.book().add(Rule::new(Injury::Gone).after(1));
    run(async move {
        assert!(fault.flush().await.is_ok());
        for _ in 0..3 {
            let gone = fault.read_at(Sector(0), ONE).await;
            assert!(matches!(gone, Err(DeviceError::Gone { .. })));
        }
        fault.book().remove(rule);
        assert!(fault.read_at(Sector(0), ONE).await.is_ok());
    });
}

#[test]
fn chance_fires_about_as_often_as_it_says_and_the_same_in_every_run() {
    let failures = |seed| {
        let fault = Fault::new(Memory::new("disk", SIZE), Rng::from_seed(seed));
        fault
            .book()
            .add(Rule::new(Injury::Error(Done::Nothing)).chance(0.1));
        Runtime::simulated(1).block_on(async move {
            let mut failures = Vec::new();
            for step in 0..2_000 {
                if fault.read_at(Sector(0), ONE).await.is_err() {
                    failures.push(step);
                }
            }
            failures
        })
    };
    let first = failures(1);
    assert!((150..250).contains(&first.len()), "{} of 2000", first.len());
    assert_eq!(first, failures(1));
    assert_ne!(first, failures(2));
}

#[test]
fn one_book_fails_request_number_k_over_all_its_devices() {
    for k in 0..4 {
        let book = Book::new(Rng::from_seed(1));
        let a = book.wrap(Memory::new("a", SIZE));
        let b = book.wrap(Memory::new("b", SIZE));
        book.add(Rule::new(Injury::Error(Done::Nothing)).after(k).once());
        run(async move {
            let answers = [
                a.write_at(Sector(0), filled(1, ONE)).await,
                b.write_at(Sector(0), filled(1, ONE)).await,
                a.flush().await,
                b.flush().await,
            ];
            for (step, answer) in answers.iter().enumerate() {
                assert_eq!(answer.is_err(), step as u64 == k);
            }
        });
    }
}

#[test]
fn a_rule_for_one_device_of_a_book_leaves_the_other_alone() {
    let book = Book::new(Rng::from_seed(1));
    let a = book.wrap(Memory::new("a", SIZE));
    let b = book.wrap(Memory::new("b", SIZE));
    book.add(Rule::new(Injury::Gone).device("b"));
    run(async move {
        assert!(a.flush().await.is_ok());
        assert!(b.flush().await.is_err());
    });
}

#[test]
fn an_error_may_leave_nothing_part_or_all_of_a_write() {
    let outcome = |done| {
        let (memory, fault) = faulty();
        fault.book().add(Rule::new(Injury::Error(done)));
        run(async move {
            let answer = fault.write_at(Sector(0), filled(9, Bytes(16 * 512))).await;
            assert!(matches!(answer, Err(DeviceError::Io { op: Op::Write, .. })));
        });
        let bytes = memory.contents(Span::bytes(0, 16 * 512));
        bytes.iter().take_while(|&&byte| byte == 9).count() / 512
    };
    assert_eq!(outcome(Done::Nothing), 0);
    assert!((1..16).contains(&outcome(Done::Part)), "with this seed");
    assert_eq!(outcome(Done::All), 16);
}

#[test]
fn fail_slow_adds_and_multiplies() {
    let (memory, fault) = faulty();
    memory.set_latency(Nanos::millis(2));
    fault
        .book()
        .add(Rule::new(Injury::Slow(10.0)).on(&[Op::Read]));
    fault.book().add(Rule::new(Injury::Delay(Nanos::millis(5))));
    run(async move {
        let start = env::now();
        fault.read_at(Sector(0), ONE).await.unwrap();
        assert_eq!(env::now().since(start), Nanos::millis(25));
        fault.flush().await.unwrap();
        assert_eq!(env::now().since(start), Nanos::millis(32));
        assert_eq!(fault.book().injuries().slowed, 2);
    });
}

fn flipped(read: &[u8]) -> u32 {
    read.iter().map(|byte| byte.count_ones()).sum()
}

#[test]
fn passing_rot_flips_bits_of_one_read_and_lasting_rot_stays_until_written() {
    let (memory, fault) = faulty();
    let passing = Injury::Rot {
        bits: 1,
        lasting: false,
    };
    let lasting = Injury::Rot {
        bits: 1,
        lasting: true,
    };
    let page = Bytes(4096);
    run(async move {
        fault.book().add(Rule::new(passing).once());
        assert_eq!(flipped(&fault.read_at(Sector(8), page).await.unwrap()), 1);
        assert_eq!(flipped(&fault.read_at(Sector(8), page).await.unwrap()), 0);
        fault.book().add(Rule::new(lasting).once());
        let first = fault.read_at(Sector(8), page).await.unwrap();
        let second = fault.read_at(Sector(8), page).await.unwrap();
        assert_eq!(flipped(&first), 1);
        assert!(first[..] == second[..]);
        // Over another span the same bit is rotten, in its place.
        let wide = fault.read_at(Sector(0), Bytes(8192)).await.unwrap();
        assert!(wide[4096..] == first[..]);
        assert_eq!(flipped(&wide), 1);
        assert_eq!(fault.book().injuries().rotten_reads, 2);
        fault.write_at(Sector(8), filled(0, page)).await.unwrap();
        assert_eq!(flipped(&fault.read_at(Sector(8), page).await.unwrap()), 0);
    });
    assert_eq!(flipped(&memory.contents(Span::bytes(0, 8192))), 0);
}

#[test]
fn rot_can_be_put_at_a_known_bit() {
    let (_, fault) = faulty();
    fault.rot(Sector(3), 4095);
    run(async move {
        let read = fault.read_at(Sector(2), Bytes(1024)).await.unwrap();
        assert_eq!(flipped(&read), 1);
        assert_eq!(read[1023], 0x80);
        fault.discard(Span::new(Sector(3), ONE)).await.unwrap();
        assert_eq!(flipped(&fault.read_at(Sector(3), ONE).await.unwrap()), 0);
    });
}

#[test]
fn a_misdirected_write_lands_elsewhere_and_says_it_went_well() {
    let (memory, fault) = faulty();
    fault
        .book()
        .add(Rule::new(Injury::Misdirect(Some(Sector(100)))).once());
    fault
        .book()
        .add(Rule::new(Injury::Misdirect(None)).after(1).once());
    run(async move {
        fault.write_at(Sector(0), filled(1, ONE)).await.unwrap();
        fault.write_at(Sector(0), filled(2, ONE)).await.unwrap();
        assert_eq!(fault.book().injuries().misdirected, 2);
    });
    let all = memory.contents(Span::bytes(0, SIZE.0));
    assert_eq!(all[..512], [0; 512]);
    assert_eq!(all[100 * 512], 1);
    assert_eq!(all.iter().filter(|&&byte| byte == 2).count(), 512);
}

#[test]
fn a_lost_write_says_it_went_well_and_never_happened() {
    let (memory, fault) = faulty();
    fault.book().add(Rule::new(Injury::Lose).once());
    run(async move {
        fault.write_at(Sector(0), filled(1, ONE)).await.unwrap();
        fault.write_at(Sector(1), filled(1, ONE)).await.unwrap();
        assert_eq!(fault.book().injuries().lost, 1);
    });
    assert_eq!(memory.contents(Span::bytes(0, 1024))[511..513], [0, 1]);
}

#[test]
fn a_failed_flush_makes_nothing_durable_and_a_lost_one_lies() {
    let crash = Crash::new("disk", SIZE, Rng::from_seed(1));
    let below: Rc<dyn Device> = crash.clone();
    let fault = Fault::new(below, Rng::from_seed(2));
    fault.book().add(
        Rule::new(Injury::Error(Done::Nothing))
            .on(&[Op::Flush])
            .once(),
    );
    fault
        .book()
        .add(Rule::new(Injury::Lose).on(&[Op::Flush]).after(1).once());
    run(async move {
        fault.write_at(Sector(0), filled(1, ONE)).await.unwrap();
        let refusal = fault.flush().await.unwrap_err();
        assert!(matches!(refusal, DeviceError::Io { op: Op::Flush, .. }));
        assert_eq!(crash.unflushed(), 1);
        fault.flush().await.unwrap();
        assert_eq!(crash.unflushed(), 1);
        fault.flush().await.unwrap();
        assert_eq!(crash.unflushed(), 0);
        let injuries = fault.book().injuries();
        assert_eq!(
            (injuries.failed_flushes, injuries.lost, injuries.errors),
            (1, 1, 0)
        );
    });
}

#[test]
fn a_request_outside_the_device_is_refused_also_when_it_would_be_injured() {
    let (_, fault) = faulty();
    fault.book().add(Rule::new(Injury::Misdirect(None)));
    run(async move {
        let refusal = fault.write_at(Sector(SIZE.sectors()), filled(1, ONE)).await;
        assert!(matches!(refusal, Err(DeviceError::OutOfRange { .. })));
        assert_eq!(fault.book().injuries().misdirected, 0);
    });
}

#[test]
#[should_panic(expected = "cannot happen to a read")]
fn a_rule_that_can_never_fire_is_refused() {
    let _ = Rule::new(Injury::Lose).on(&[Op::Read]);
}
