//! Files on stores in virtual time: whole, replaced, cut off anywhere.

use std::cell::Cell;
use std::rc::Rc;

use base::{Bytes, View};
use device::{Crash, Device, Memory};
use env::Runtime;
use policy::place::State;
use store::ops::{Limits, ObjectError, ObjectErrors, Pending, Request, Response};
use store::{Change, ObjectCalls, ObjectOps, Settings, Store};

use super::*;

const SMALL: u64 = 4096;

async fn opened(device: Rc<dyn Device>) -> Rc<Store> {
    let store = Store::format(device, Settings::default()).await;
    Rc::new(store.unwrap())
}

fn place(number: usize, store: &Rc<Store>) -> Place {
    Place {
        identity: format!("{number:032x}"),
        objects: Rc::new(ObjectErrors(Rc::clone(store))),
    }
}

/// So many stores in memory, and the ways to them.
async fn stores(count: usize) -> (Vec<Rc<Store>>, Vec<Place>) {
    let (mut stores, mut places) = (Vec::new(), Vec::new());
    for number in 0..count {
        let store = opened(Memory::new(format!("disk{number}"), Bytes::mib(64))).await;
        places.push(place(number, &store));
        stores.push(store);
    }
    (stores, places)
}

fn bytes(len: usize, of: u8) -> Vec<u8> {
    (0..len)
        .map(|at| (at >> 12) as u8 ^ at as u8 ^ of)
        .collect()
}

async fn put(places: &[Place], name: &str, data: &[u8]) -> Result<(), FileError> {
    let mut writer = Writer::begin(places, name, SMALL, Make::Replace).await?;
    for (at, part) in data.chunks(10_000).enumerate() {
        let offset = at as u64 * 10_000;
        if let Err(error) = writer.write(offset, View::copy_of(part)).await {
            writer.abandon().await;
            return Err(error);
        }
    }
    writer.finish().await.map(drop)
}

async fn get(places: &[Place], name: &str) -> Result<Vec<u8>, FileError> {
    let reader = Reader::open(places, name).await?;
    reader.read(0, u64::MAX).await
}

/// All objects of all stores.
fn objects(stores: &[Rc<Store>]) -> Vec<String> {
    let listed = stores
        .iter()
        .flat_map(|it| Store::list(it, "", None, 1000).objects);
    listed.map(|it| it.name).collect()
}

#[test]
fn a_file_lies_over_all_stores_and_reads_back_in_any_piece() {
    Runtime::simulated(1).block_on(async {
        let (stores, places) = stores(3).await;
        let all = bytes(100_001, 0);
        put(&places, "run7/a", &all).await.unwrap();
        let reader = Reader::open(&places, "run7/a").await.unwrap();
        assert_eq!((reader.head().size, reader.head().width), (100_001, 3));
        for (from, len) in [
            (0, 100_001),
            (4_095, 2),
            (99_999, 10),
            (100_001, 5),
            (7, 50_000),
        ] {
            let end = all.len().min(from + len);
            let read = reader.read(from as u64, len as u64).await.unwrap();
            assert_eq!(read, all[from.min(end)..end], "{from} {len}");
        }
        // The head at the first, a third of the data at each.
        let sizes = stores
            .iter()
            .map(|it| Store::list(it, "run7/a.tds-", None, 10).objects[0].size);
        assert_eq!(sizes.collect::<Vec<_>>(), [34_465, 32_768, 32_768]);
        assert_eq!(objects(&stores).len(), 4);
    });
}

#[test]
fn an_empty_file_and_one_with_holes_are_as_long_as_they_were_made() {
    Runtime::simulated(2).block_on(async {
        let (_stores, places) = stores(2).await;
        put(&places, "empty", &[]).await.unwrap();
        assert_eq!(get(&places, "empty").await, Ok(Vec::new()));
        let mut writer = Writer::begin(&places, "holes", SMALL, Make::New)
            .await
            .unwrap();
        writer.write(30_000, View::copy_of(b"end")).await.unwrap();
        writer.write(5, View::copy_of(b"begin")).await.unwrap();
        assert_eq!(writer.size(), 30_003);
        writer.finish().await.unwrap();
        let mut expected = vec![0; 30_003];
        expected[5..10].copy_from_slice(b"begin");
        expected[30_000..].copy_from_slice(b"end");
        assert_eq!(get(&places, "holes").await, Ok(expected));
    });
}

#[test]
fn a_replaced_file_leaves_none_of_its_data_and_its_reader_hears_of_it() {
    Runtime::simulated(3).block_on(async {
        let (stores, places) = stores(2).await;
        put(&places, "a", &bytes(50_000, 1)).await.unwrap();
        let reader = Reader::open(&places, "a").await.unwrap();
        assert_eq!(reader.read(0, 10).await.unwrap(), bytes(10, 1));
        put(&places, "a", &bytes(20_000, 2)).await.unwrap();
        let refused = reader.read(0, 10).await.unwrap_err();
        assert_eq!(
            refused,
            FileError::Replaced {
                name: "a".to_owned()
            }
        );
        assert_eq!(get(&places, "a").await, Ok(bytes(20_000, 2)));
        assert_eq!(objects(&stores).len(), 3, "a head, and data at each store");
    });
}

#[test]
fn of_two_writers_that_saw_the_same_head_one_succeeds() {
    Runtime::simulated(4).block_on(async {
        let (stores, places) = stores(2).await;
        put(&places, "a", b"old").await.unwrap();
        let mut first = Writer::begin(&places, "a", SMALL, Make::Replace)
            .await
            .unwrap();
        let mut second = Writer::begin(&places, "a", SMALL, Make::Replace)
            .await
            .unwrap();
        first.write(0, View::copy_of(b"first")).await.unwrap();
        second.write(0, View::copy_of(b"second")).await.unwrap();
        second.finish().await.unwrap();
        // One that begins now is none of the second's concern.
        let mut third = Writer::begin(&places, "a", SMALL, Make::Replace)
            .await
            .unwrap();
        third.write(0, View::copy_of(b"third")).await.unwrap();
        let refused = first.finish().await.unwrap_err();
        assert!(
            matches!(
                refused,
                FileError::Changed { .. } | FileError::Store(ObjectError::Absent(_))
            ),
            "{refused}"
        );
        assert_eq!(get(&places, "a").await, Ok(b"second".to_vec()));
        third.finish().await.unwrap();
        assert_eq!(get(&places, "a").await, Ok(b"third".to_vec()));
        assert_eq!(objects(&stores).len(), 3);
    });
}

#[test]
fn what_is_no_file_is_neither_read_nor_replaced() {
    Runtime::simulated(5).block_on(async {
        let (stores, places) = stores(1).await;
        let plain = View::copy_of(&[7; 4096]);
        let written = stores[0].write("plain", 0, plain, Change::FUA.creating());
        written.await.unwrap();
        let written = stores[0].write("short", 0, View::copy_of(b"x"), Change::FUA.creating());
        written.await.unwrap();
        for name in ["plain", "short"] {
            let read = get(&places, name).await.unwrap_err();
            let replaced = put(&places, name, b"new").await.unwrap_err();
            for error in [read, replaced] {
                assert!(matches!(error, FileError::Plain { .. }), "{error}");
            }
        }
        for name in ["", "a.tds-b"] {
            let refused = put(&places, name, b"new").await.unwrap_err();
            assert!(matches!(refused, FileError::Request { .. }), "{refused}");
        }
        let absent = get(&places, "nothing").await.unwrap_err().to_string();
        assert_eq!(
            absent,
            "there is no file \"nothing\" on 1 stores; list shows what is there"
        );
        put(&places, "a", b"1").await.unwrap();
        let made = Writer::begin(&places, "a", SMALL, Make::New).await;
        assert!(matches!(made, Err(FileError::Exists { .. })));
        let odd = Writer::begin(&places, "b", 5000, Make::New).await;
        assert!(matches!(odd, Err(FileError::Request { .. })));
    });
}

#[test]
fn a_file_on_a_store_that_is_not_at_hand_says_which() {
    Runtime::simulated(6).block_on(async {
        let (_stores, places) = stores(2).await;
        put(&places, "a", &bytes(50_000, 1)).await.unwrap();
        let refused = get(&places[..1], "a").await.unwrap_err();
        assert!(matches!(&refused, FileError::Elsewhere { identity, .. } if *identity == places[1].identity));
        // In another order the head is found all the same.
        let turned = [places[1].clone(), places[0].clone()];
        assert_eq!(get(&turned, "a").await, Ok(bytes(50_000, 1)));
        // Written over another set, or in another order, it would be two files that delete each other's data.
        for other in [&turned[..], &places[..1]] {
            assert!(put(other, "a", &bytes(9, 2)).await.is_err());
        }
        put(&places[1..], "b", &bytes(9, 2)).await.unwrap();
        put(&places[..1], "b", &bytes(9, 3)).await.unwrap();
        assert_eq!(get(&places, "a").await, Ok(bytes(50_000, 1)));
        // Nor is what others call alike.
        let objects = &places[0].objects;
        let change = Change::default();
        objects.create("a.tds-notes", &[], change).await.unwrap();
        put(&places, "a", &bytes(50_000, 4)).await.unwrap();
        assert!(objects.stat("a.tds-notes").await.is_ok());
    });
}

/// A way to a store that is cut off after so many requests of all ways.
struct Cut {
    to: Rc<Store>,
    left: Rc<Cell<u64>>,
}

impl ObjectOps for Cut {
    type Error = ObjectError;

    fn call(&self, request: Request) -> Pending<'_, Response> {
        Box::pin(async move {
            let Some(left) = self.left.get().checked_sub(1) else {
                return Err(ObjectError::Gone("the way is cut".to_owned()));
            };
            self.left.set(left);
            self.to.call(request).await.map_err(Into::into)
        })
    }

    fn limits(&self) -> Limits {
        self.to.limits()
    }

    fn load(&self) -> Option<State> {
        None
    }
}

/// A way to a store that refuses one write, and no other request.
struct Refusing {
    to: Rc<Store>,
    left: Cell<u64>,
}

impl ObjectOps for Refusing {
    type Error = ObjectError;

    fn call(&self, request: Request) -> Pending<'_, Response> {
        Box::pin(async move {
            if matches!(request, Request::Write { .. }) {
                let left = self.left.get();
                self.left.set(left.wrapping_sub(1));
                if left == 0 {
                    return Err(ObjectError::Full("no room just now".to_owned()));
                }
            }
            self.to.call(request).await.map_err(Into::into)
        })
    }

    fn limits(&self) -> Limits {
        self.to.limits()
    }

    fn load(&self) -> Option<State> {
        None
    }
}

#[test]
fn a_piece_that_was_not_written_leaves_no_hole_whatever_its_writer_goes_on_with() {
    Runtime::simulated(8).block_on(async {
        for refused in 0..5 {
            let (stores, places) = stores(1).await;
            let old = bytes(30_000, 1);
            put(&places, "a", &old).await.unwrap();
            let mut way = place(0, &stores[0]);
            way.objects = Rc::new(Refusing {
                to: Rc::clone(&stores[0]),
                left: Cell::new(refused),
            });
            let mut writer = Writer::begin(&[way], "a", SMALL, Make::Replace)
                .await
                .unwrap();
            for at in 0..20 {
                // An error is caught, and the piece written once more.
                let data = View::copy_of(&bytes(SMALL as usize, 2));
                if writer.write(at * SMALL, data.clone()).await.is_err() {
                    let _ = writer.write(at * SMALL, data).await;
                }
            }
            let end = writer.finish().await;
            assert!(matches!(end, Err(FileError::Store(ObjectError::Full(_)))));
            assert_eq!(get(&places, "a").await, Ok(old));
            assert_eq!(objects(&stores).len(), 2, "a head and one blob");
        }
    });
}

#[test]
fn a_place_beyond_the_longest_file_is_refused_before_anything_is_written() {
    Runtime::simulated(9).block_on(async {
        let (_stores, places) = stores(2).await;
        let mut writer = Writer::begin(&places, "a", SMALL, Make::Replace)
            .await
            .unwrap();
        for offset in [u64::MAX, 1 << 50] {
            let refused = writer.write(offset, View::copy_of(b"x")).await;
            assert!(
                matches!(refused, Err(FileError::Request { .. })),
                "{offset}"
            );
        }
        writer.abandon().await;
    });
}

#[test]
fn a_writer_that_dies_anywhere_leaves_the_old_file_or_the_new_one_whole() {
    Runtime::simulated(7).block_on(async {
        let (old, new) = (bytes(30_000, 1), bytes(50_000, 2));
        let mut seen = [0, 0];
        for requests in 0.. {
            let (stores, places) = stores(2).await;
            put(&places, "a", &old).await.unwrap();
            let left = Rc::new(Cell::new(requests));
            let cut: Vec<Place> = stores
                .iter()
                .enumerate()
                .map(|(number, to)| Place {
                    objects: Rc::new(Cut {
                        to: Rc::clone(to),
                        left: Rc::clone(&left),
                    }),
                    ..place(number, to)
                })
                .collect();
            let done = put(&cut, "a", &new).await;
            let is_new = get(&places, "a").await.unwrap() == new;
            seen[usize::from(is_new)] += 1;
            assert!(
                is_new || get(&places, "a").await.unwrap() == old,
                "{requests}"
            );
            assert!(
                done.is_err() || is_new,
                "{requests}: what was answered is there"
            );
            // The next writer clears away what the dead one left.
            put(&places, "a", &old).await.unwrap();
            assert_eq!(objects(&stores).len(), 3, "{requests}");
            if left.get() > 0 {
                break;
            }
        }
        assert!(seen[0] > 20 && seen[1] > 1, "{seen:?}");
    });
}

#[test]
fn a_file_that_was_answered_is_whole_after_its_stores_lost_power() {
    for seed in 0..20 {
        Runtime::simulated(seed).block_on(async move {
            let disks: Vec<Rc<Crash>> = (0..3)
                .map(|n| Crash::new(format!("disk{n}"), Bytes::mib(32), env::rng("disk")))
                .collect();
            let mut places = Vec::new();
            for (number, disk) in disks.iter().enumerate() {
                places.push(place(number, &opened(disk.clone()).await));
            }
            let data = bytes(60_000, seed as u8);
            put(&places, "a", &data).await.unwrap();
            for disk in &disks {
                disk.cut_now();
            }
            drop(places);
            let mut places = Vec::new();
            for (number, disk) in disks.iter().enumerate() {
                let store = Store::open(disk.restart(env::rng("again"))).await.unwrap();
                places.push(place(number, &Rc::new(store)));
            }
            assert_eq!(get(&places, "a").await, Ok(data));
        });
    }
}
