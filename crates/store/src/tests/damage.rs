//! What was written is not what is there: bits that rot, superblocks and ledgers that are not whole.

use base::{Bytes, PAGE, Sector, Span};
use device::fault::{Done, Fault, Injury, Rule};
use device::{Class, Crash, DeviceExt, Memory, Op};

use super::{pattern, small, small_size};
use crate::{Change, Finding, OpenError, Settings, Store, StoreError, check};

/// Where on the device the first page of `object` lies.
fn sector_of(store: &Store, object: &str, page: u64) -> Sector {
    let table = store.inner.table.borrow();
    let (_, found) = table.find(object).unwrap();
    store
        .inner
        .disk
        .superblock
        .sector(found.entry(page).unwrap().place)
}

#[test]
fn rotten_bits_are_found_by_reads_and_scrubs_and_gone_when_written_again() {
    env::Runtime::simulated(1).block_on(async {
        let disk = Crash::new("disk", small_size(14), env::rng("disk"));
        let fault = Fault::new(disk, env::rng("faults"));
        let store = Store::format(fault.clone(), small()).await.unwrap();
        let data = pattern(1, 300_000);
        store
            .write("a", 0, data.clone(), Change::FUA.creating())
            .await
            .unwrap();
        store
            .write("b", 0, data.clone(), Change::FUA.creating())
            .await
            .unwrap();
        fault.rot(sector_of(&store, "a", 40), 77);
        fault.rot(sector_of(&store, "b", 3), 4_000);
        let error = store
            .read("a", 160_000, 10_000, Class::Foreground)
            .await
            .unwrap_err();
        let message = error.to_string();
        assert!(
            message.contains("4.0 KiB at byte 163840 of \"a\" in small are damaged"),
            "{message}"
        );
        // The rest of it is as good as before.
        assert!(store.read("a", 0, 163_840, Class::Foreground).await.is_ok());
        // A write that keeps a part of the page cannot; one of the whole page can.
        let refused = store
            .write("a", 163_850, data.slice(0, 9), Change::default())
            .await;
        assert!(
            matches!(
                refused,
                Err(StoreError::Damaged {
                    offset: 163_840,
                    ..
                })
            ),
            "{refused:?}"
        );

        let mut found = Vec::new();
        loop {
            let step = store.scrub_step(Bytes::kib(100)).await.unwrap();
            found.extend(step.bad);
            if step.round_done {
                assert_eq!(step.rounds, 1);
                break;
            }
        }
        assert_eq!(found.len(), 2, "{found:?}");
        let noted = |store: &Store| {
            let noted = store.bad_blocks();
            noted
                .into_iter()
                .map(|bad| (bad.object, bad.offset))
                .collect::<Vec<_>>()
        };
        let both = [("a".to_owned(), 163_840), ("b".to_owned(), 12_288)];
        assert_eq!(noted(&store), both);
        store.close().await.unwrap();
        let report = check(fault.clone(), true).await.unwrap();
        assert_eq!(report.count, 2);
        assert!(matches!(&report.findings[0], Finding::Data(bad) if bad.offset == 163_840));

        let store = Store::open(fault).await.unwrap();
        assert_eq!(noted(&store), both, "what was found is remembered");
        store
            .write("a", 163_840, data.slice(163_840, PAGE), Change::FUA)
            .await
            .unwrap();
        assert_eq!(noted(&store), both[1..]);
        let whole = store
            .read("a", 0, 300_000, Class::Foreground)
            .await
            .unwrap();
        assert!(*whole == *data);
        store.delete("b", Change::FUA).await.unwrap();
        assert!(noted(&store).is_empty());
    });
}

#[test]
fn a_read_that_skips_its_checksums_would_show() {
    env::Runtime::simulated(1).block_on(async {
        let disk = Crash::new("disk", small_size(14), env::rng("disk"));
        let fault = Fault::new(disk, env::rng("faults"));
        let store = Store::format(fault.clone(), small()).await.unwrap();
        let data = pattern(1, 5_000);
        store
            .write("a", 0, data.clone(), Change::FUA.creating())
            .await
            .unwrap();
        fault.rot(sector_of(&store, "a", 0), 77);
        assert!(store.read("a", 0, 5_000, Class::Foreground).await.is_err());
        let read = fault
            .read_at(sector_of(&store, "a", 0), Bytes(4_096))
            .await
            .unwrap();
        assert!(read[..] != data[..4_096], "the device gives it out");
    });
}

#[test]
fn a_scrub_goes_on_where_it_was_after_a_restart() {
    env::Runtime::simulated(1).block_on(async {
        let disk = Memory::new("disk", small_size(14));
        let store = Store::format(disk.clone(), small()).await.unwrap();
        store
            .write("a", 0, pattern(1, 400_000), Change::FUA.creating())
            .await
            .unwrap();
        let first = store.scrub_step(Bytes::kib(200)).await.unwrap();
        assert_eq!((first.read, first.round_done), (Bytes::kib(256), false));
        store.close().await.unwrap();
        let store = Store::open(disk).await.unwrap();
        let second = store.scrub_step(Bytes::kib(500)).await.unwrap();
        assert_eq!(
            (second.read, second.round_done),
            (Bytes(98 * 4096 - (256 << 10)), true)
        );
    });
}

#[test]
fn one_superblock_is_enough_and_none_is_answered() {
    env::Runtime::simulated(1).block_on(async {
        let disk = Crash::new("disk", small_size(14), env::rng("disk"));
        let missing = Store::open(disk.clone()).await.map(|_| ()).unwrap_err();
        let message = missing.to_string();
        assert!(
            message.contains("superblock A is blank, superblock B is blank"),
            "{message}"
        );
        let store = Store::format(disk.clone(), small()).await.unwrap();
        store
            .write("a", 0, pattern(1, 5_000), Change::FUA.creating())
            .await
            .unwrap();
        let epoch = store.inner.disk.superblock.epoch;
        store.close().await.unwrap();
        let again = Store::format(disk.clone(), small())
            .await
            .map(|_| ())
            .unwrap_err();
        assert!(matches!(again, OpenError::Occupied { .. }), "{again}");
        for copy in [0, 8] {
            let disk = disk.restart(env::rng("restart"));
            disk.load(Sector(copy + 1), &[7; 512]);
            let report = check(disk.clone(), true).await.unwrap();
            assert!(
                matches!(report.findings[..], [Finding::Superblock { .. }]),
                "{report:?}"
            );
            let store = Store::open(disk.clone()).await.unwrap();
            assert!(
                store.inner.disk.superblock.epoch > epoch,
                "no epoch comes twice"
            );
            assert_eq!(store.stat("a").unwrap().size, 5_000);
            store.close().await.unwrap();
            assert!(
                check(disk, true).await.unwrap().is_clean(),
                "opening writes both anew"
            );
        }
        let disk = disk.restart(env::rng("restart"));
        disk.load(Sector(0), &[7; 8192]);
        let none = Store::open(disk.clone()).await.map(|_| ()).unwrap_err();
        assert!(matches!(none, OpenError::NoStore { .. }), "{none}");
        assert!(matches!(
            check(disk, false).await,
            Err(OpenError::NoStore { .. })
        ));
    });
}

#[test]
fn an_unknown_version_is_refused_and_never_overwritten() {
    env::Runtime::simulated(1).block_on(async {
        let disk = Crash::new("disk", small_size(14), env::rng("disk"));
        drop(Store::format(disk.clone(), small()).await.unwrap());
        let disk = disk.restart(env::rng("restart"));
        let mut block = disk.contents(Span::bytes(4096, 4096));
        block[8] = 2;
        block[12..16].fill(0);
        let crc = base::crc::crc32c(&block).to_le_bytes();
        block[12..16].copy_from_slice(&crc);
        disk.load(Sector(8), &block);
        let force = Settings {
            force: true,
            ..small()
        };
        let version = |error: OpenError| {
            matches!(
                error,
                OpenError::Version {
                    found: 2,
                    known: 1,
                    ..
                }
            )
        };
        assert!(version(
            Store::open(disk.clone()).await.map(|_| ()).unwrap_err()
        ));
        assert!(version(check(disk.clone(), false).await.unwrap_err()));
        assert!(version(
            Store::format(disk.clone(), force)
                .await
                .map(|_| ())
                .unwrap_err()
        ));
        assert_eq!(disk.contents(Span::bytes(4096, 4096)), block);
    });
}

#[test]
fn any_bytes_in_the_superblocks_and_the_ledger_cause_no_panic() {
    let (mut refused, mut opened) = (0, 0);
    for seed in 0..400 {
        let answer = env::Runtime::simulated(seed).block_on(async move {
            let disk = Crash::new("disk", small_size(14), env::rng("disk"));
            let store = Store::format(disk.clone(), small()).await.unwrap();
            for number in 0..6 {
                let name = format!("object {number}");
                let data = pattern(number, 40_000);
                store
                    .write(&name, 0, data, Change::FUA.creating())
                    .await
                    .unwrap();
            }
            drop(store);
            let disk = disk.restart(env::rng("restart"));
            let mut rng = env::rng("damage");
            for _ in 0..1 + rng.below(4) {
                // The superblocks, the ledger's and the first blocks of its log.
                let sector = Sector(rng.below(8 * 12));
                let mut bytes = disk.contents(Span::new(sector, Bytes(512)));
                match rng.below(3) {
                    0 => bytes[rng.below(512) as usize] ^= 1 << rng.below(8),
                    1 => bytes.fill(0),
                    _ => rng.fill(&mut bytes),
                }
                disk.load(sector, &bytes);
            }
            let report = check(disk.clone(), true).await;
            let opened = Store::open(disk).await;
            if let (Ok(_), Ok(report)) = (&opened, &report) {
                let worst = report
                    .findings
                    .iter()
                    .find(|one| !matches!(one, Finding::Superblock { .. }));
                assert_eq!(worst, None, "seed {seed}: opened all the same");
            }
            opened.map(|_| ())
        });
        match answer {
            Ok(()) => opened += 1,
            Err(_) => refused += 1,
        }
    }
    assert!(
        refused > 50 && opened > 50,
        "{refused} refused, {opened} opened"
    );
}

#[test]
fn a_table_that_contradicts_itself_is_refused_with_each_contradiction() {
    env::Runtime::simulated(1).block_on(async {
        let disk = Memory::new("disk", small_size(14));
        let store = Store::format(disk.clone(), small()).await.unwrap();
        for name in ["a", "b"] {
            store
                .write(name, 0, pattern(1, 50_000), Change::FUA.creating())
                .await
                .unwrap();
        }
        // As a bug would: b's pages are a's too, a is shorter than its data, and more is reserved than is free.
        {
            let table = &mut *store.inner.table.change();
            let (a, _) = table.find("a").unwrap();
            let (b, object) = table.find("b").unwrap();
            let (version, entry) = (object.version, object.entry(0).unwrap());
            let put = [(2, entry)];
            let pages = crate::object::table::Pages {
                put: &put,
                unmap: 0..0,
            };
            table.remap(a, version, &pages);
            table.stamp(a, version, None, 20_000);
            table.stamp(b, version, None, 50_000);
            let promise = crate::object::promises::Promise { left: 200, held: 0 };
            table.set_promise(9, Some(promise));
        }
        store.flush().await.unwrap();
        drop(store);
        let report = check(disk.clone(), false).await.unwrap();
        let message: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
        let message = message.join("\n");
        for part in [
            "is at byte 0 of \"b\" and in another place too",
            "\"a\" has 20000 bytes, and data at byte 20480",
            "reserved, of 224",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
        let all = Span::new(Sector(0), small_size(14));
        let before = disk.contents(all);
        let refused = Store::open(disk.clone()).await.map(|_| ()).unwrap_err();
        assert!(
            matches!(refused, OpenError::Inconsistent { .. }),
            "{refused}"
        );
        assert!(disk.contents(all) == before, "nothing was changed");
    });
}

/// The block of the last batch of the object table's log.
fn last_batch(disk: &Memory, store: &Store) -> Span {
    let region = store.inner.disk.superblock.ledger;
    let bytes = disk.contents(region);
    let blocks = (0u64..).zip(bytes.chunks_exact(4096));
    let batches = blocks.filter(|(_, block)| block.starts_with(b"TaLB"));
    let sequence = |block: &[u8]| u64::from_le_bytes(block[16..24].try_into().unwrap());
    let last = batches.max_by_key(|(_, block)| sequence(block));
    let (block, _) = last.expect("a commit");
    Span::new(region.start.after(Bytes(block * 4096)), Bytes(4096))
}

#[test]
fn a_commit_unreadable_once_never_names_pages_that_are_written_since() {
    env::Runtime::simulated(7).block_on(async {
        let disk = Memory::new("disk", small_size(14));
        let fault = Fault::new(disk.clone(), env::rng("faults"));
        let store = Store::format(fault.clone(), small()).await.unwrap();
        for object in ["a", "b"] {
            let change = Change::FUA.creating();
            let data = pattern(1, 100_000);
            store.write(object, 0, data, change).await.unwrap();
        }
        let bad = last_batch(&disk, &store);
        drop(store);
        let rule = Rule::new(Injury::Error(Done::Nothing)).on(&[Op::Read]);
        fault.book().add(rule.within(bad));
        let store = Store::open(fault.clone()).await.unwrap();
        assert!(store.stat("b").is_err() && store.stat("a").is_ok());
        // Over the pages of "b", and never flushed.
        let change = Change::default().creating();
        let written = store.write("c", 0, pattern(2, 100_000), change).await;
        written.unwrap();
        drop(store);
        fault.book().clear();
        let store = Store::open(fault).await.unwrap();
        assert!(
            store.stat("b").is_err(),
            "it would show the data of another"
        );
        let read = store.read("a", 0, 100_000, Class::Foreground).await;
        assert_eq!(read.unwrap()[..], pattern(1, 100_000)[..]);
    });
}

#[test]
fn a_scrub_notes_only_the_page_of_a_row_that_cannot_be_read() {
    env::Runtime::simulated(1).block_on(async {
        let disk = Crash::new("disk", small_size(14), env::rng("disk"));
        let fault = Fault::new(disk, env::rng("faults"));
        let store = Store::format(fault.clone(), small()).await.unwrap();
        let data = pattern(1, 32 * PAGE);
        store
            .write("a", 0, data, Change::FUA.creating())
            .await
            .unwrap();
        let span = Span::new(sector_of(&store, "a", 9), Bytes(512));
        let rule = Rule::new(Injury::Error(Done::Nothing)).on(&[Op::Read]);
        fault.book().add(rule.within(span));
        let mut found = Vec::new();
        loop {
            let step = store.scrub_step(Bytes::mib(1)).await.unwrap();
            found.extend(step.bad);
            if step.round_done {
                break;
            }
        }
        let found: Vec<(String, u64)> =
            found.into_iter().map(|it| (it.object, it.offset)).collect();
        let page = PAGE as u64;
        assert_eq!(found, [("a".to_owned(), 9 * page)]);
        assert_eq!(store.bad_blocks().len(), 1);
        // A row that fails once is read well page by page.
        fault.book().clear();
        let rule = Rule::new(Injury::Error(Done::Nothing)).on(&[Op::Read]);
        fault.book().add(rule.once());
        let step = store.scrub_step(Bytes::mib(1)).await.unwrap();
        assert_eq!(step.bad, []);
    });
}

#[test]
fn the_list_of_damage_follows_renames_and_deletions_in_the_order_of_names() {
    env::Runtime::simulated(1).block_on(async {
        let disk = Crash::new("disk", small_size(14), env::rng("disk"));
        let fault = Fault::new(disk, env::rng("faults"));
        let store = Store::format(fault.clone(), small()).await.unwrap();
        for name in ["d", "b", "c", "a"] {
            let data = pattern(1, 8 * PAGE);
            store
                .write(name, 0, data, Change::FUA.creating())
                .await
                .unwrap();
            for page in [1, 2, 5] {
                fault.rot(sector_of(&store, name, page), 77);
            }
        }
        while !store.scrub_step(Bytes::mib(1)).await.unwrap().round_done {}
        let page = PAGE as u64;
        let listed = |prefix: &str, object: &str, offset: u64, most: usize| {
            let (all, more) = store.damage(prefix, object, offset, most);
            let all: Vec<(String, u64, u64)> = (all.into_iter())
                .map(|it| (it.object, it.offset / page, it.len / page))
                .collect();
            (all, more)
        };
        let of = |name: &str| [(name.to_owned(), 1, 2), (name.to_owned(), 5, 1)];
        let all = [of("a"), of("b"), of("c"), of("d")].concat();
        assert_eq!(listed("", "", 0, 100), (all.clone(), false));
        assert_eq!(listed("", "", 0, 3), (all[..3].to_vec(), true));
        assert_eq!(listed("", "b", 3 * page, 3), (all[3..6].to_vec(), true));
        assert_eq!(listed("c", "", 0, 100), (of("c").to_vec(), false));
        assert_eq!(listed("c", "d", 0, 100), (Vec::new(), false));
        // A name that goes to another object takes no damage with it.
        store.rename("d", "a", true, Change::FUA).await.unwrap();
        store.delete("b", Change::FUA).await.unwrap();
        store
            .write("d", 0, pattern(2, PAGE), Change::FUA.creating())
            .await
            .unwrap();
        let all = [of("a"), of("c")].concat();
        assert_eq!(listed("", "", 0, 100), (all.clone(), false));
        store
            .write("c", 0, pattern(3, 8 * PAGE), Change::FUA)
            .await
            .unwrap();
        assert_eq!(listed("", "", 0, 100), (of("a").to_vec(), false));
        store.close().await.unwrap();
        let store = Store::open(fault).await.unwrap();
        let (left, _) = store.damage("", "", 0, 100);
        assert_eq!(left.len(), 2);
        assert!(left.iter().all(|it| it.object == "a"));
    });
}
