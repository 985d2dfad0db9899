//! Devices that are not what the configuration takes them for, and a cache that ends: what is refused, in which
//! words, and that nothing comes back from there.

use std::rc::Rc;

use base::{Bytes, Nanos, PAGE, Sector, Span};
use device::fault::{Book, Done, Injury, Rule};
use device::{Device, Memory, Op};
use hybrid::{Health, Hybrid, OpenError, Ties, WriteMode};

use crate::common::*;

async fn open_or_create(slow: &Rc<dyn Device>, fast: &Rc<dyn Device>) -> Result<Hybrid, OpenError> {
    Hybrid::open_or_create(keep_dirty(), slow.clone(), fast.clone(), Ties::default()).await
}

/// The sentence of a refusal.
fn refused(answer: Result<Hybrid, OpenError>) -> String {
    match answer {
        Ok(_) => panic!("it should have been refused"),
        Err(error) => error.to_string(),
    }
}

/// Another device with the first bytes of `from`.
fn copy_of(from: &Memory, name: &str, size: Bytes) -> Rc<Memory> {
    let copy = Memory::new(name, size);
    let len = size.0.min(from.info().size.0);
    copy.load(Sector(0), &from.contents(Span::bytes(0, len)));
    copy
}

#[test]
fn a_cache_that_was_given_up_in_a_shrink_does_not_count_again() {
    run(1, async {
        let (slow, fast) = devices();
        let book = Book::new(env::rng("faults"));
        let shaky: Rc<dyn Device> = book.wrap(fast.clone());
        let disk = make(writing(WriteMode::Through), slow.clone(), shaky).await;
        get(&disk, pages(0, 400)).await;
        env::sleep(Nanos::secs(1)).await;
        // The map can be written no more; the labels can.
        let behind = Span::bytes(8192, FAST.0 - 8192);
        let rule = Rule::new(Injury::Error(Done::Nothing)).on(&[Op::Write]);
        book.add(rule.device("ssd0").within(behind));
        let answer = disk.resize(Some(Bytes::kib(256))).await;
        assert!(answer.is_err(), "the smaller map was never durable");
        env::sleep(Nanos::secs(1)).await;
        assert_eq!(disk.status().health, Health::PassThrough);
        put(&disk, pages(3, 200), 0x55).await;
        disk.flush().await.unwrap();
        // A crash; the fast device works again.
        book.clear();
        let again = Hybrid::open_or_create(keep_all(), slow, fast, Ties::default()).await;
        let disk = again.unwrap();
        assert!(
            reads_as(&disk, pages(3, 200), 0x55).await,
            "older data came back"
        );
    });
}

#[test]
fn a_slow_disk_changed_beneath_dirty_pages_is_noticed_after_a_clean_close() {
    run(2, async {
        let (slow, fast) = devices();
        let disk = make(keep_dirty(), slow.clone(), fast.clone()).await;
        // A mount writes to the first page, and so does the next mount, of the bare disk.
        put(&disk, pages(0, 1), 9).await;
        disk.close().await.unwrap();
        assert!(disk.status().occupancy.dirty_bytes > 0);
        let before = slow.contents(Span::bytes(0, SLOW.0));
        slow.load(Sector(0), &[1; PAGE]);
        let said = refused(open_or_create(&(slow.clone() as _), &(fast.clone() as _)).await);
        assert!(
            said.contains("1 of ") && said.contains("first at byte 0"),
            "{said}"
        );
        assert!(
            said.contains("give up what only the cache had (4.0 KiB)"),
            "{said}"
        );
        // As it was, it opens: nothing was written.
        slow.load(Sector(0), &before);
        let disk = open_or_create(&(slow as _), &(fast as _)).await.unwrap();
        assert!(reads_as(&disk, pages(0, 1), 9).await);
    });
}

#[test]
fn dirty_pages_on_their_way_at_a_crash_are_not_taken_for_another_disk() {
    run(3, async {
        let (slow, fast) = devices();
        let disk = make(keep_dirty(), slow.clone(), fast.clone()).await;
        put(&disk, pages(0, 8), 9).await;
        disk.close().await.unwrap();
        let disk = open_or_create(&(slow.clone() as _), &(fast.clone() as _))
            .await
            .unwrap();
        disk.flush().await.unwrap();
        // The cleaner wrote one of them, and the machine died before the map said so.
        slow.load(Sector(0), &[9; PAGE]);
        let disk = open_or_create(&(slow as _), &(fast as _)).await.unwrap();
        assert!(reads_as(&disk, pages(0, 8), 9).await);
    });
}

#[test]
fn slow_and_fast_swapped_are_refused_and_nothing_is_written() {
    run(4, async {
        let slow = Memory::new("hdd0", Bytes::mib(14));
        let fast = Memory::new("ssd0", FAST);
        let disk = make(keep_dirty(), slow.clone(), fast.clone()).await;
        put(&disk, pages(600, 4), 9).await;
        disk.close().await.unwrap();
        let before = slow.contents(Span::bytes(0, slow.info().size.0));
        let said = refused(open_or_create(&(fast.clone() as _), &(slow.clone() as _)).await);
        assert_eq!(
            said,
            "ssd0 is to be the slow device of vol0, but it begins with the label of a cache (of 'vol0'), and hdd0 \
             has none: slow and fast look swapped; correct the configuration"
        );
        assert!(slow.contents(Span::bytes(0, slow.info().size.0)) == before);
        let disk = open_or_create(&(slow as _), &(fast as _)).await.unwrap();
        assert!(reads_as(&disk, pages(600, 4), 9).await);
    });
}

#[test]
fn a_volume_may_hold_the_cache_of_another_machine_in_its_data() {
    run(5, async {
        // A guest makes its whole disk the fast device of a volume of its own.
        let slow = Memory::new("hdd0", Bytes::mib(14));
        let fast = Memory::new("ssd0", FAST);
        let disk = make(writing(WriteMode::Through), slow.clone(), fast.clone()).await;
        let inner = Memory::new("guest-hdd", Bytes::mib(32));
        let guest = make(keep_dirty(), inner, Rc::new(disk.clone())).await;
        guest.close().await.unwrap();
        disk.close().await.unwrap();
        open_or_create(&(slow as _), &(fast as _)).await.unwrap();
    });
}

#[test]
fn a_truncated_fast_device_is_to_be_grown_back_and_then_opens() {
    run(6, async {
        let (slow, fast) = devices();
        let disk = make(keep_dirty(), slow.clone(), fast.clone()).await;
        put(&disk, pages(100, 4), 9).await;
        disk.close().await.unwrap();
        let short = copy_of(&fast, "ssd0", Bytes::mib(1));
        let said = refused(open_or_create(&(slow.clone() as _), &(short as _)).await);
        assert!(
            said.starts_with("ssd0 has 1048576 bytes, but its cache reaches to byte 20")
                && said.contains("`truncate -s 20")
                && !said.contains("force"),
            "{said}"
        );
        let disk = open_or_create(&(slow as _), &(fast as _)).await.unwrap();
        assert!(reads_as(&disk, pages(100, 4), 9).await);
    });
}

#[test]
fn a_slow_disk_that_grew_is_refused_with_the_way_back() {
    run(7, async {
        let slow = Memory::new("hdd0", Bytes::gib(1));
        let fast = Memory::new("ssd0", FAST);
        let disk = make(keep_dirty(), slow, fast.clone()).await;
        disk.close().await.unwrap();
        let grown: Rc<dyn Device> = Memory::new("hdd0", Bytes((1 << 30) + 4096));
        let said = refused(open_or_create(&grown, &(fast as _)).await);
        assert_eq!(
            said,
            "ssd0 is the cache of a slow device of 1.0 GiB (1073741824 bytes), but hdd0 has 1.0 GiB (1073745920 \
             bytes): if it has grown, give it its 1073741824 bytes back, start, detach the cache, and let it grow then"
        );
    });
}

#[test]
fn a_fresh_file_of_one_page_is_too_small_and_not_something_else() {
    run(8, async {
        let (slow, _) = devices();
        let tiny: Rc<dyn Device> = Memory::new("ssd0", Bytes::kib(4));
        let said = refused(open_or_create(&(slow as _), &tiny).await);
        assert!(
            said.starts_with("cannot use ssd0 (4.0 KiB) as a cache for hdd0 (14.0 MiB): at least "),
            "{said}"
        );
    });
}

/// Opens the pair, every clean page compared.
async fn verified(slow: &Rc<Memory>, fast: &Rc<Memory>) -> Result<Hybrid, OpenError> {
    let ties = Ties {
        verify: true,
        ..Ties::default()
    };
    Hybrid::open_or_create(keep_all(), slow.clone(), fast.clone(), ties).await
}

#[test]
fn a_slow_disk_changed_where_it_was_read_is_noticed_after_a_clean_close() {
    run(9, async {
        // Pages 701 to 704 are cached; page 900 was only read.
        for changed in [703, 900] {
            let (slow, fast) = devices();
            let disk = make(keep_all(), slow.clone(), fast.clone()).await;
            get(&disk, pages(701, 4)).await;
            env::sleep(Nanos::secs(1)).await;
            disk.set_write_mode(WriteMode::OnlyWrites).await.unwrap();
            get(&disk, pages(900, 1)).await;
            disk.close().await.unwrap();
            let before = slow.contents(pages(changed, 1));
            slow.load(pages(changed, 1).start, &[1; PAGE]);
            let said = refused(open_or_create(&(slow.clone() as _), &(fast.clone() as _)).await);
            let place = format!("first at byte {}", changed * 4096);
            assert!(said.contains(&place), "{said}");
            slow.load(pages(changed, 1).start, &before);
            open_or_create(&(slow as _), &(fast as _)).await.unwrap();
        }
    });
}

#[test]
fn a_mount_of_a_partition_of_the_bare_disk_is_noticed() {
    run(10, async {
        let (slow, fast) = devices();
        // One partition from sector 3000 on; its file system's header was never read.
        let mut table = vec![0; 512];
        table[450] = 0x83;
        table[454..458].copy_from_slice(&3000u32.to_le_bytes());
        table[510..].copy_from_slice(&[0x55, 0xaa]);
        slow.load(Sector(0), &table);
        let disk = make(keep_all(), slow.clone(), fast.clone()).await;
        put(&disk, pages(100, 3), 9).await;
        disk.close().await.unwrap();
        // The time of the last mount, in an ext superblock.
        slow.load(Sector(3002), &[7; 512]);
        let said = refused(open_or_create(&(slow as _), &(fast as _)).await);
        assert!(
            said.contains(&format!("first at byte {}", 375 * 4096)),
            "{said}"
        );
    });
}

#[test]
fn verifying_compares_every_clean_page_also_after_a_crash() {
    run(11, async {
        let (slow, fast) = devices();
        let disk = make(keep_all(), slow.clone(), fast.clone()).await;
        get(&disk, pages(500, 300)).await;
        put(&disk, pages(3000, 2), 9).await;
        disk.flush().await.unwrap();
        env::sleep(Nanos::secs(3)).await;
        drop(disk);
        let disk = verified(&slow, &fast).await.unwrap();
        assert!(reads_as(&disk, pages(3000, 2), 9).await);
        drop(disk);
        slow.load(pages(611, 1).start, &[1; PAGE]);
        let said = refused(verified(&slow, &fast).await);
        assert!(
            said.contains(&format!("first at byte {}", 611 * 4096)),
            "{said}"
        );
        // After a crash no more than the samples is compared unasked.
        open_or_create(&(slow as _), &(fast as _)).await.unwrap();
    });
}
