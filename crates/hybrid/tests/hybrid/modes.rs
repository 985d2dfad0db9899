//! The mode that a fast device's label keeps, for configurations that name none.

use std::rc::Rc;

use base::crc::crc32c;
use base::{Bytes, Nanos, Sector, Span};
use device::fault::{Book, Done, Injury, Rule};
use device::{Device, Memory, Op};
use hybrid::{Hybrid, MadeIn, Mode, OpenError, Settings, Ties, kept_mode};

use crate::common::*;

fn in_mode(mode: Mode) -> Settings {
    Settings { mode, ..keep_all() }
}

async fn start(mode: Mode, ties: Ties, slow: &Rc<Memory>, fast: &Rc<Memory>) -> Hybrid {
    let made = Hybrid::open_or_create(in_mode(mode), slow.clone(), fast.clone(), ties).await;
    made.unwrap_or_else(|error| panic!("{mode}: {error}"))
}

async fn kept(fast: &Rc<Memory>) -> MadeIn {
    let fast: Rc<dyn Device> = fast.clone();
    kept_mode(&fast, "vol0", None, &[])
        .await
        .expect("it can be read")
}

fn keeping(mode: Mode) -> Ties {
    Ties {
        mode: Some(mode),
        ..Ties::default()
    }
}

#[test]
fn a_label_keeps_the_mode_of_the_last_opening_unless_another_is_given() {
    run(1, async {
        let (slow, fast) = devices();
        assert_eq!(kept(&fast).await, MadeIn::Nothing);
        for mode in [Mode::Both, Mode::Cache, Mode::Tier, Mode::Both] {
            let disk = start(mode, Ties::default(), &slow, &fast).await;
            assert_eq!(kept(&fast).await, MadeIn::Mode(mode));
            // What is set at run time is not kept.
            disk.set(in_mode(Mode::Cache)).await.unwrap();
            disk.close().await.unwrap();
            assert_eq!(kept(&fast).await, MadeIn::Mode(mode));
        }
        let disk = start(Mode::Cache, keeping(Mode::Both), &slow, &fast).await;
        assert_eq!(disk.settings().mode, Mode::Cache);
        assert_eq!(kept(&fast).await, MadeIn::Mode(Mode::Both));
        // Nor is it by a cache that is made at run time.
        disk.detach().await.unwrap();
        assert_eq!(kept(&fast).await, MadeIn::Mode(Mode::Both));
        let ties = keeping(Mode::Both);
        disk.attach(fast.clone(), ties).await.unwrap();
        assert_eq!(kept(&fast).await, MadeIn::Mode(Mode::Both));
    });
}

#[test]
fn a_detached_cache_of_another_volume_tells_nothing() {
    run(2, async {
        let (slow, fast) = devices();
        let other = Settings {
            name: "other".to_owned(),
            ..in_mode(Mode::Both)
        };
        let disk = make(other, slow, fast.clone()).await;
        // One whose contents count is opened under its new name.
        assert_eq!(kept(&fast).await, MadeIn::Mode(Mode::Both));
        disk.detach().await.unwrap();
        assert_eq!(kept(&fast).await, MadeIn::Nothing);
    });
}

#[test]
fn a_label_without_a_mode_is_of_an_earlier_version() {
    run(3, async {
        let (slow, fast) = devices();
        let disk = start(Mode::Both, Ties::default(), &slow, &fast).await;
        disk.close().await.unwrap();
        for copy in [0, 4096] {
            let mut label = fast.contents(Span::bytes(copy, 4096));
            label[164..168].fill(0);
            label[12..16].fill(0);
            let crc = crc32c(&label).to_le_bytes();
            label[12..16].copy_from_slice(&crc);
            fast.load(Sector::containing(copy), &label);
        }
        assert_eq!(kept(&fast).await, MadeIn::Earlier);
        let disk = start(Mode::Cache, Ties::default(), &slow, &fast).await;
        disk.close().await.unwrap();
        assert_eq!(kept(&fast).await, MadeIn::Mode(Mode::Cache));
    });
}

#[test]
fn a_making_that_was_cut_off_keeps_the_mode_it_was_to_have() {
    run(4, async {
        let mut half = 0;
        for write in 0..40 {
            let (slow, memory) = devices();
            let book = Book::new(env::rng("faults"));
            let fast: Rc<dyn Device> = book.wrap(memory.clone());
            let rule = Rule::new(Injury::Error(Done::Nothing)).on(&[Op::Write]);
            book.add(rule.after(write));
            let made = Hybrid::create(in_mode(Mode::Both), slow, fast, Ties::default()).await;
            match (made, kept(&memory).await) {
                // Not one label was written.
                (Err(_), MadeIn::Nothing) => assert_eq!(write, 0),
                (Err(_), MadeIn::Mode(Mode::Both)) => half += 1,
                (Ok(_), MadeIn::Mode(Mode::Both)) => break,
                (made, kept) => panic!("write {write}: made {}, {kept:?}", made.is_ok()),
            }
        }
        assert!(half > 0);
    });
}

#[test]
fn the_smallest_fast_device_there_can_be_works_with_a_tier_beside_the_cache() {
    run(5, async {
        let (slow, _) = devices();
        let tiny = Memory::new("ssd0", Bytes::kib(64));
        let both = || in_mode(Mode::Both);
        let refused = Hybrid::create(both(), slow.clone(), tiny, Ties::default()).await;
        let Err(OpenError::TooSmall { least, .. }) = refused else {
            panic!("it is too small for any cache");
        };
        let fast = Memory::new("ssd0", least);
        let disk = make(both(), slow.clone(), fast.clone()).await;
        for round in 1..=20 {
            for page in 0..200 {
                put(&disk, pages(page * 7 % 300, 1), round).await;
                get(&disk, pages(page % 40, 4)).await;
            }
            env::sleep(Nanos::secs(11)).await;
        }
        let seen = everything(&disk).await;
        disk.close().await.unwrap();
        let disk = start(Mode::Both, Ties::default(), &slow, &fast).await;
        assert!(everything(&disk).await == seen);
        disk.detach().await.unwrap();
        assert!(everything(&*slow).await == seen);
    });
}
