//! Several devices as one: against a reference model, with injured members, through power cuts, and on models.

mod reference;

use std::rc::Rc;

use base::{Buf, Bytes, Nanos, SECTOR, Sector, Span, View};
use device::crash::{PowerSupply, Survival};
use device::fault::{Book, Done, Injury, Rule};
use device::model::{ModelDisk, Spec, Store};
use device::{
    Class, Crash, Device, DeviceError, DeviceExt, Memory, Op, StripeError, Striped, WriteFlags,
};
use env::{Rng, Runtime};
use proptest::prelude::*;
use reference::{actions, agree, filled};

const KIB: u64 = 1 << 10;

fn memories(sizes: &[u64]) -> Vec<Rc<dyn Device>> {
    let named = sizes.iter().zip('a'..);
    let each = named.map(|(size, name)| -> Rc<dyn Device> {
        Memory::new(name.to_string(), Bytes(*size * KIB))
    });
    each.collect()
}

fn parts<D: Device + 'static>(members: &[Rc<D>]) -> Vec<Rc<dyn Device>> {
    let mut parts: Vec<Rc<dyn Device>> = Vec::new();
    for member in members {
        parts.push(member.clone());
    }
    parts
}

proptest! {
    #![proptest_config(reference::cases(48))]

    #[test]
    fn a_stripe_reads_what_a_vec_reads(
        actions in actions(Bytes::kib(5 * 256), Bytes::kib(5 * 256), 60),
        members in 2..6_usize,
        chunk in 0..5_u32,
        latency in 0..2_u64,
    ) {
        // 2 to 5 members that hold more than the requests reach, none of them in whole chunks.
        let sizes: Vec<u64> = (0..members as u64).map(|n| 700 + 12 * n).collect();
        let chunk = Bytes::kib(4 << chunk);
        let parts: Vec<Rc<Memory>> = sizes
            .iter()
            .map(|size| Memory::new("part", Bytes(*size * KIB)))
            .collect();
        for part in &parts {
            part.set_latency(Nanos::micros(latency));
        }
        let whole = Striped::new("twin", self::parts(&parts), chunk).unwrap();
        Runtime::simulated(1).block_on(async move { agree(&*whole, actions).await });
    }

    #[test]
    fn a_stripe_of_stripes_reads_what_a_vec_reads(
        actions in actions(Bytes::kib(256), Bytes::kib(256), 40),
    ) {
        let inner = |name: &str| -> Rc<dyn Device> {
            Striped::new(name, memories(&[64, 64]), Bytes::kib(8)).unwrap()
        };
        let whole = Striped::new("twin", vec![inner("x"), inner("y")], Bytes::kib(4)).unwrap();
        Runtime::simulated(1).block_on(async move { agree(&*whole, actions).await });
    }
}

#[test]
fn its_size_is_that_of_whole_chunks_of_the_smallest() {
    let whole = Striped::new("raid", memories(&[130, 1000, 199]), Bytes::kib(64)).unwrap();
    let info = whole.info();
    assert_eq!((info.name.as_str(), info.size), ("raid", Bytes::kib(384)));
    assert_eq!(info.max_io, Bytes::mib(32));
    Runtime::simulated(1).block_on(async move {
        let last = Sector(info.size.sectors() - 1);
        assert!(whole.read_at(last, Bytes(SECTOR)).await.is_ok());
        let refused = whole.read_at(last, Bytes(2 * SECTOR)).await.unwrap_err();
        assert!(
            refused.to_string().contains("of raid: it holds 393216"),
            "{refused}"
        );
        let refused = whole.discard(Span::bytes(393_216, SECTOR)).await;
        assert!(matches!(refused, Err(DeviceError::OutOfRange { .. })));
    });
}

#[test]
fn what_cannot_be_striped_is_refused_with_what_would_do() {
    let refusal = |sizes: &[u64], chunk| match Striped::new("raid", memories(sizes), Bytes(chunk)) {
        Err(refusal) => refusal.to_string(),
        Ok(_) => panic!("{sizes:?} with chunks of {chunk} should be refused"),
    };
    assert_eq!(
        refusal(&[64], 65_536),
        "cannot make the stripe raid of 1 device(s): it takes at least 2; use a single device as it is"
    );
    for chunk in [0, 512, 2048, 12_288, 128 << 20] {
        let why = refusal(&[64, 64], chunk);
        assert!(
            why.ends_with("a power of two from 4.0 KiB to 64.0 MiB"),
            "{why}"
        );
    }
    assert_eq!(
        refusal(&[64, 32, 64], 65_536),
        "cannot make the stripe raid: b holds 32.0 KiB, less than one chunk of 64.0 KiB; choose a larger device or a \
         shorter chunk"
    );
    let few = Striped::new("raid", Vec::new(), Bytes::kib(64));
    assert!(matches!(few, Err(StripeError::Few { members: 0, .. })));
}

/// A stripe of three with chunks of 8 KiB whose members misbehave as the book says.
fn injured() -> (Rc<Striped>, Rc<Book>) {
    let book = Book::new(Rng::from_seed(5));
    let members = memories(&[64, 64, 64]).into_iter();
    let members = members.map(|member| -> Rc<dyn Device> { book.wrap(member) });
    let whole = Striped::new("raid", members.collect(), Bytes::kib(8)).unwrap();
    (whole, book)
}

#[test]
fn an_error_names_the_whole_the_place_and_the_member() {
    let (whole, book) = injured();
    Runtime::simulated(1).block_on(async move {
        book.add(Rule::new(Injury::Error(Done::Nothing)).device("b"));
        let span = Span::bytes(0, 24 * KIB);
        let data = filled(7, span.len);
        let answers = [
            whole.read_at(span.start, span.len).await.map(drop),
            whole.write_at(span.start, data).await,
            whole.discard(span).await,
            whole.write_zeroes(span, WriteFlags::default()).await,
        ];
        for (answer, op) in
            answers
                .into_iter()
                .zip([Op::Read, Op::Write, Op::Discard, Op::WriteZeroes])
        {
            let error = answer.unwrap_err().to_string();
            let start =
                format!("cannot {op} sectors 0..48 of raid: cannot {op} sectors 0..16 of b");
            assert!(error.starts_with(&start), "{error}");
        }
        // Beside it all goes well.
        assert!(whole.read_at(Sector(0), Bytes::kib(8)).await.is_ok());
        book.clear();
        book.add(Rule::new(Injury::Gone).device("c"));
        let gone = whole.read_at(Sector(32), Bytes(512)).await.unwrap_err();
        assert!(matches!(gone, DeviceError::Gone { .. }), "{gone}");
        assert_eq!(whole.in_flight(), 0);
    });
}

#[test]
fn a_failed_flush_of_one_member_fails_the_following_ones() {
    let (whole, book) = injured();
    Runtime::simulated(1).block_on(async move {
        assert_eq!(whole.flush().await, Ok(()));
        book.add(
            Rule::new(Injury::Error(Done::Nothing))
                .on(&[Op::Flush])
                .device("c")
                .once(),
        );
        let first = whole.flush().await.unwrap_err().to_string();
        assert!(
            first.starts_with("cannot flush raid: cannot flush c"),
            "{first}"
        );
        let second = whole.flush().await.unwrap_err();
        assert!(matches!(&second, DeviceError::FlushFailed { device, .. } if device == "raid"));
        assert!(
            whole
                .write_at(Sector(0), filled(1, Bytes(512)))
                .await
                .is_ok()
        );
    });
}

#[test]
fn members_work_side_by_side_and_a_long_request_is_one_to_each() {
    let members: Vec<Rc<Memory>> = (0..4).map(|_| Memory::new("part", Bytes::mib(1))).collect();
    for member in &members {
        member.set_latency(Nanos::millis(5));
    }
    let watched = members.clone();
    Runtime::simulated(1).block_on(async move {
        let whole = Striped::new("raid", parts(&watched), Bytes::kib(4)).unwrap();
        let begun = env::now();
        let pending = whole.read_at(Sector(3), Bytes::mib(1));
        let busy: Vec<usize> = watched.iter().map(|part| part.in_flight()).collect();
        assert_eq!(busy, [1; 4]);
        assert_eq!(whole.in_flight(), 1);
        pending.await.unwrap();
        assert_eq!(env::now().since(begun), Nanos::millis(5));
        // Within one chunk it concerns one member.
        let pending = whole.read(Sector(9), Buf::for_read(2048), Class::Background);
        let busy: Vec<usize> = watched.iter().map(|part| part.in_flight()).collect();
        assert_eq!(busy, [0, 1, 0, 0]);
        drop(pending);
        assert_eq!(whole.in_flight(), 0);
    });
}

#[test]
fn what_was_flushed_survives_a_power_cut_of_all_members() {
    const SECTORS: u64 = 256;
    for seed in 0..60 {
        let mut rng = Rng::from_seed(seed);
        let supply = PowerSupply::new();
        let members: Vec<Rc<Crash>> = (0..3)
            .map(|n| {
                let rng = Rng::from_seed(seed * 10 + n);
                Crash::on(&supply, format!("m{n}"), Bytes::kib(48), rng)
            })
            .collect();
        for member in &members {
            member.set_survival(Survival::Any);
            member.set_delay(Nanos(0), Nanos::micros(50));
        }
        let cut_at = 20 + rng.below(200);
        supply.cut_at(cut_at);
        let whole = Striped::new("raid", parts(&members), Bytes::kib(4)).unwrap();
        // Each sector holds the number of its last write. What may be there: from the last flushed one on.
        let (written, flushed) = Runtime::simulated(seed).block_on(async move {
            let mut written = vec![0_u64; SECTORS as usize];
            let mut flushed = written.clone();
            for tag in 1.. {
                if rng.below(8) == 0 {
                    if whole.flush().await.is_err() {
                        break;
                    }
                    flushed.clone_from(&written);
                    continue;
                }
                let start = rng.below(SECTORS);
                let len = (1 + rng.below(40)).min(SECTORS - start);
                let fua = rng.below(6) == 0;
                let flags = WriteFlags {
                    fua,
                    ..WriteFlags::default()
                };
                for sector in start..start + len {
                    written[sector as usize] = tag;
                }
                let answer = whole.write(Sector(start), tagged(tag, len), flags).await;
                if answer.is_err() {
                    break;
                }
                if fua {
                    let range = start as usize..(start + len) as usize;
                    flushed[range].fill(tag);
                }
            }
            (written, flushed)
        });
        let supply = PowerSupply::new();
        let restarted: Vec<Rc<Crash>> = (0..)
            .zip(&members)
            .map(|(n, member)| member.restart_on(&supply, Rng::from_seed(n)))
            .collect();
        let whole = Striped::new("raid", parts(&restarted), Bytes::kib(4)).unwrap();
        let read = Runtime::simulated(seed)
            .block_on(async move { whole.read_at(Sector(0), Bytes(SECTORS * SECTOR)).await });
        let read = read.unwrap();
        for sector in 0..SECTORS as usize {
            let place = &read[sector * 512..sector * 512 + 8];
            let tag = u64::from_le_bytes(place.try_into().unwrap());
            assert!(
                (flushed[sector]..=written[sector]).contains(&tag),
                "seed {seed}, sector {sector}: {tag}, but {} was flushed and {} written last",
                flushed[sector],
                written[sector]
            );
        }
    }
}

/// Whole sectors that begin with `tag`.
fn tagged(tag: u64, sectors: u64) -> View {
    let mut data = Buf::zeroed((sectors * SECTOR) as usize);
    for sector in data.chunks_mut(512) {
        sector[..8].copy_from_slice(&tag.to_le_bytes());
    }
    data.freeze()
}

#[test]
fn four_modelled_disks_read_four_times_as_fast_and_draw_the_sum() {
    Runtime::simulated(1).block_on(async {
        let spec = Spec::find("hdd-10k-sas").unwrap();
        let disk = |n: u64| {
            let name = format!("hdd{n}");
            ModelDisk::new(&name, &spec, Some(Bytes::gib(80)), Store::None, n).unwrap()
        };
        let alone = disk(9);
        let disks: Vec<Rc<ModelDisk>> = (0..4).map(disk).collect();
        let whole = Striped::new("raid", parts(&disks), Bytes::kib(64)).unwrap();
        assert!(whole.info().rotational);
        let mut took = Vec::new();
        for device in [&*whole as &dyn Device, &*alone] {
            let begun = env::now();
            for mib in 0..64 {
                let at = Sector::containing(mib << 20);
                device.read_at(at, Bytes::mib(1)).await.unwrap();
            }
            took.push(env::now().since(begun).secs_f64());
        }
        let faster = took[1] / took[0];
        assert!((3.0..4.2).contains(&faster), "{faster} times as fast");
        let sum: f64 = disks.iter().map(|disk| disk.power().unwrap().joules).sum();
        let power = whole.power().unwrap();
        assert_eq!(power.joules, sum);
        assert!(!power.standby);
        assert!(whole.standby());
        env::sleep(Nanos::secs(60)).await;
        assert!(whole.power().unwrap().standby);
        whole.read_at(Sector(0), Bytes::kib(64)).await.unwrap();
        let power = whole.power().unwrap();
        assert_eq!((power.spin_ups, power.standby), (1, false));
        let mixed = memories(&[64])
            .into_iter()
            .chain([disks[0].clone() as Rc<dyn Device>]);
        let mixed = Striped::new("mixed", mixed.collect(), Bytes::kib(64)).unwrap();
        assert_eq!(mixed.power(), None);
    });
}
