//! The index on disks that lose and tear what was not made durable, and beside plain twins.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::lock::{Change, Lock, LockMode, LockRule, Retention};
use super::record::{About, Content, Pairs, Version, Versioning};
use super::*;

/// A disk in memory whose power can be cut within a write.
#[derive(Debug, Clone, Default)]
struct TestDisk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    bytes: Vec<u8>,
    writes: usize,
    /// The stores have bytes of objects.
    blobs: bool,
    /// At this write the power is cut: which blocks are written, by the bits of the number.
    cut: Option<(usize, u64)>,
}

impl Disk for TestDisk {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.0.lock().unwrap();
        for (at, byte) in out.iter_mut().enumerate() {
            *byte = state.bytes.get(offset as usize + at).copied().unwrap_or(0);
        }
        Ok(())
    }

    fn write(&self, cut: u64, len: u64, ranges: Ranges) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        let is_cut = state.cut.filter(|it| it.0 == state.writes);
        state.writes += 1;
        let mut bits = is_cut.map_or(u64::MAX, |it| it.1);
        let mut next = || {
            let bit = bits & 1 == 1;
            bits = bits.rotate_right(1);
            bit
        };
        if next() {
            state.bytes.truncate(cut as usize);
        }
        if next() {
            state.bytes.resize(len as usize, 0);
        }
        for (offset, data) in ranges {
            for (n, block) in data.chunks(4096).enumerate() {
                let from = offset as usize + n * 4096;
                if next() && from + block.len() <= state.bytes.len() {
                    state.bytes[from..from + block.len()].copy_from_slice(block);
                }
            }
        }
        match is_cut {
            None => Ok(()),
            Some(_) => Err(io::Error::other("the power is cut")),
        }
    }

    fn has_blobs(&self) -> io::Result<bool> {
        Ok(self.0.lock().unwrap().blobs)
    }
}

/// When what is there is deleted.
const SECOND: Change = Change {
    now: 2,
    bypass: false,
};

fn run<T>(scene: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(scene)
}

fn open(disk: &TestDisk) -> Index {
    Index::open(disk.clone(), 1 << 20, "s0").unwrap()
}

fn object(text: &str) -> Version {
    Version {
        modified: 1,
        owner: "astro".into(),
        content: Some(Content {
            size: text.len() as u64,
            etag: text.to_owned(),
            ..Content::default()
        }),
        ..Version::default()
    }
}

fn with_blob(text: &str, id: &str) -> Version {
    let mut version = object(text);
    let blob = blob(id);
    version.content.as_mut().unwrap().blobs = vec![blob];
    version
}

fn blob(id: &str) -> BlobRef {
    BlobRef {
        folder: "photos".into(),
        id: id.to_owned(),
        size: 10,
    }
}

async fn put(index: &Index, key: &str, version: Version) -> Option<VersionId> {
    put_on(index, key, version, Condition::Any).await.unwrap()
}

async fn put_on(
    index: &Index,
    key: &str,
    version: Version,
    condition: Condition,
) -> Result<Option<VersionId>, IndexError> {
    let key = key.to_owned();
    let put = move |t: &mut Transaction<'_>| t.put(("photos", &key), version, b"", &condition);
    index.change(put).await
}

async fn delete(index: &Index, key: &str, version: Option<VersionId>) -> Deleted {
    let key = key.to_owned();
    let delete = move |t: &mut Transaction<'_>| {
        t.delete(
            ("photos", &key),
            version,
            &DeleteIf::default(),
            ("astro", SECOND),
        )
    };
    index.change(delete).await.unwrap()
}

async fn bucket(index: &Index) -> Bucket {
    let make = |t: &mut Transaction<'_>| t.create_bucket("photos", "astro", 1);
    index.change(make).await.unwrap()
}

async fn version_all(index: &Index, versioning: Versioning) {
    let change = move |t: &mut Transaction<'_>| {
        let id = t.bucket("photos")?.id;
        t.change_bucket(("photos", id), |bucket| bucket.versioning = versioning)
    };
    index.change(change).await.unwrap();
}

fn etag(found: Option<Found>) -> Option<String> {
    found.and_then(|it| it.version.content).map(|it| it.etag)
}

fn dead(index: &Index) -> Vec<String> {
    let all = index.dead(None, 100).unwrap();
    all.into_iter().map(|it| it.id).collect()
}

#[test]
fn a_bucket_is_made_once_and_deleted_empty() {
    let disk = TestDisk::default();
    let index = open(&disk);
    run(async {
        let made = bucket(&index).await;
        let again = |owner: &'static str| {
            index.change(move |t: &mut Transaction<'_>| t.create_bucket("photos", owner, 2))
        };
        for (owner, own) in [("astro", true), ("bio", false)] {
            let error = again(owner).await.unwrap_err();
            let expected = Refused::BucketExists {
                name: "photos".into(),
                own,
            };
            assert!(matches!(error, IndexError::Refused(it) if it == expected));
        }
        put(&index, "a", object("1")).await;
        let delete_bucket = || index.change(|t: &mut Transaction<'_>| t.delete_bucket("photos"));
        let error = delete_bucket().await.unwrap_err();
        assert!(
            error.to_string().contains("with all their versions"),
            "{error}"
        );
        delete(&index, "a", None).await;
        delete_bucket().await.unwrap();
        assert_eq!(index.bucket("photos").unwrap(), None);
        assert!(
            bucket(&index).await.id > made.id,
            "what it had is not found in the next one"
        );
    });
}

#[test]
fn without_versions_a_put_replaces_and_the_bytes_before_are_dead() {
    let index = open(&TestDisk::default());
    run(async {
        let id = bucket(&index).await.id;
        assert_eq!(put(&index, "a", with_blob("1", "b1")).await, None);
        assert_eq!(put(&index, "a", with_blob("2", "b2")).await, None);
        assert_eq!(
            etag(index.version(id, "a", None).unwrap()),
            Some("2".into())
        );
        assert_eq!(dead(&index), ["b1"]);
        assert!(index.has_blob("b1").unwrap() && !index.has_blob("b3").unwrap());
        // A copy has the same bytes: they are dead with the last of both.
        put(&index, "b", with_blob("2", "b2")).await;
        assert_eq!(delete(&index, "a", None).await, Deleted::default());
        assert_eq!(dead(&index), ["b1"]);
        delete(&index, "b", None).await;
        assert_eq!(dead(&index), ["b1", "b2"]);
        let gone = [blob("b1")];
        let forget = move |t: &mut Transaction<'_>| t.forget_dead(&gone);
        index.change(forget).await.unwrap();
        assert_eq!(dead(&index), ["b2"]);
    });
}

#[test]
fn a_bucket_with_versions_has_all_of_them_until_each_is_deleted() {
    let index = open(&TestDisk::default());
    run(async {
        let id = bucket(&index).await.id;
        put(&index, "a", object("before")).await;
        version_all(&index, Versioning::Enabled).await;
        let first = put(&index, "a", object("1")).await.unwrap();
        let second = put(&index, "a", object("2")).await.unwrap();
        let at = |version| etag(index.version(id, "a", version).unwrap());
        assert_eq!(at(None), Some("2".into()));
        assert_eq!(at(Some(first)), Some("1".into()));
        assert_eq!(at(Some(VersionId::Null)), Some("before".into()));
        // A marker hides them; its end shows them.
        let marked = delete(&index, "a", None).await;
        assert!(marked.marker && at(None).is_none() && at(Some(second)).is_some());
        let shown = delete(&index, "a", marked.version).await;
        assert_eq!(shown, marked);
        assert_eq!(at(None), Some("2".into()));
        // Without more versions the one called null is replaced.
        version_all(&index, Versioning::Suspended).await;
        assert_eq!(put(&index, "a", object("3")).await, None);
        assert_eq!(at(Some(VersionId::Null)), Some("3".into()));
        let marked = delete(&index, "a", None).await;
        assert_eq!(marked.version, Some(VersionId::Null));
        let all = Wanted {
            versions: true,
            most: 10,
            ..Wanted::default()
        };
        let listed = index.list(id, &all).unwrap();
        let shown: Vec<(VersionId, bool)> =
            listed.entries.iter().map(|it| (it.1.id(), it.2)).collect();
        assert_eq!(
            shown,
            [(VersionId::Null, true), (second, false), (first, false)]
        );
    });
}

#[test]
fn what_a_put_expects_is_compared_in_its_own_step() {
    let index = open(&TestDisk::default());
    run(async {
        bucket(&index).await;
        let on = |condition, text| put_on(&index, "a", object(text), condition);
        let refusal = |done: Result<_, IndexError>| match done {
            Err(IndexError::Refused(refused)) => refused,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            refusal(on(Condition::Present, "1").await),
            Refused::NoKey("a".into())
        );
        on(Condition::Absent, "1").await.unwrap();
        let failed = Refused::Precondition("a".into());
        assert_eq!(refusal(on(Condition::Absent, "2").await), failed);
        assert_eq!(refusal(on(Condition::Etag("0".into()), "2").await), failed);
        assert_eq!(
            refusal(on(Condition::OtherEtag("1".into()), "2").await),
            failed
        );
        on(Condition::Etag("1".into()), "2").await.unwrap();
    });
}

#[test]
fn a_deletion_goes_by_what_is_there_and_of_nothing_expects_nothing() {
    let index = open(&TestDisk::default());
    run(async {
        bucket(&index).await;
        let delete = |etag: &str, modified, size| {
            let expected = DeleteIf {
                etag: Condition::Etag(etag.to_owned()),
                modified,
                size,
            };
            index.change(move |t: &mut Transaction<'_>| {
                t.delete(("photos", "a"), None, &expected, ("astro", SECOND))
            })
        };
        assert!(delete("0", None, None).await.is_ok(), "there is none");
        put(&index, "a", object("11")).await;
        for (etag, modified, size) in [
            ("0", None, None),
            ("11", Some(7), None),
            ("11", None, Some(7)),
        ] {
            let refused = delete(etag, modified, size).await;
            assert!(refused.is_err(), "{etag} {modified:?} {size:?}");
        }
        // A whole second, as clients see it: it was put in the first millisecond.
        assert!(delete("11", Some(0), Some(2)).await.is_ok());
        assert_eq!(contents(&index), Plain::new());
    });
}

fn part(size: u64, etag: &str, id: &str) -> Part {
    Part {
        modified: 1,
        size,
        etag: etag.to_owned(),
        checksum: None,
        blobs: vec![blob(id)],
    }
}

/// An upload to be begun, and which.
fn upload() -> (UploadRef, Upload) {
    let at = UploadRef {
        bucket: "photos".into(),
        key: "big".into(),
        id: "u1".into(),
    };
    let upload = Upload {
        begun: 1,
        owner: "astro".into(),
        about: About::default(),
        grants: None,
        lock: Lock::default(),
        algorithm: None,
        full_object: false,
    };
    (at, upload)
}

#[test]
fn an_upload_becomes_an_object_of_the_parts_that_are_named() {
    let index = open(&TestDisk::default());
    run(async {
        let id = bucket(&index).await.id;
        let (at, upload) = upload();
        let begun = at.clone();
        index
            .change(move |t: &mut Transaction<'_>| Uploads(t).begin(&begun, &upload))
            .await
            .unwrap();
        let md5 = [
            "900150983cd24fb0d6963f7d28e17f72",
            "0cc175b9c0f1b6a831c399e269772661",
        ];
        let came = [
            (1, part(PART_MIN, md5[0], "b1")),
            (1, part(PART_MIN, md5[0], "b2")),
            (3, part(7, md5[1], "b3")),
            (7, part(7, md5[1], "b4")),
        ];
        for (number, part) in came {
            let at = at.clone();
            index
                .change(move |t: &mut Transaction<'_>| Uploads(t).put_part(&at, number, &part))
                .await
                .unwrap();
        }
        assert_eq!(dead(&index), ["b1"], "the part that was replaced");
        let complete = |numbers: &[u32]| {
            let named = numbers.iter().map(|number| NamedPart {
                number: *number,
                etag: Some(md5[usize::from(*number != 1)].to_owned()),
            });
            let (at, named) = (at.clone(), named.collect::<Vec<_>>());
            index.change(move |t: &mut Transaction<'_>| {
                Uploads(t).complete(&at, &named, (&Condition::Any, 9), |_, _| Ok(None))
            })
        };
        for (numbers, why) in [
            (&[3, 1][..], "rising number"),
            (&[][..], "rising number"),
            (&[1, 2], "part 2 did not come"),
            (&[3, 7], "part 3 has 7 bytes"),
        ] {
            let error = complete(numbers).await.unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        }
        let (content, version) = complete(&[1, 3]).await.unwrap();
        assert_eq!((content.size, version), (PART_MIN + 7, None));
        // The MD5 of both MD5s, as any tool has it.
        assert_eq!(content.etag, "5a97ffff06ef635f37d1459628ab50ee-2");
        assert_eq!(content.blobs, [blob("b2"), blob("b3")]);
        assert_eq!(dead(&index), ["b1", "b4"]);
        assert!(index.upload(id, "big", "u1").is_err());
        assert_eq!(index.uploads(id).unwrap(), []);
        let found = index.version(id, "big", None).unwrap().unwrap();
        assert_eq!(found.version.content, Some(content));
        delete(&index, "big", None).await;
        assert_eq!(dead(&index), ["b1", "b2", "b3", "b4"]);
    });
}

#[test]
fn an_upload_that_is_ended_leaves_nothing() {
    let index = open(&TestDisk::default());
    run(async {
        let id = bucket(&index).await.id;
        let (at, upload) = upload();
        let (begun, put, ended) = (at.clone(), at.clone(), at.clone());
        index
            .change(move |t: &mut Transaction<'_>| Uploads(t).begin(&begun, &upload))
            .await
            .unwrap();
        let some = part(7, "00", "b1");
        index
            .change(move |t: &mut Transaction<'_>| Uploads(t).put_part(&put, 1, &some))
            .await
            .unwrap();
        assert_eq!(index.upload(id, "big", "u1").unwrap().1.len(), 1);
        index
            .change(move |t: &mut Transaction<'_>| Uploads(t).abort(&ended))
            .await
            .unwrap();
        assert_eq!(
            (index.uploads(id).unwrap(), dead(&index)),
            (vec![], vec!["b1".to_owned()])
        );
    });
}

#[test]
fn an_index_is_of_its_stores_and_a_lost_one_is_not_made_anew() {
    let disk = TestDisk::default();
    drop(open(&disk));
    let error = Index::open(disk, 0, "s1").err().unwrap();
    assert!(matches!(error, IndexError::OtherStores { .. }), "{error}");
    let disk = TestDisk::default();
    disk.0.lock().unwrap().blobs = true;
    let error = Index::open(disk, 0, "s0").err().unwrap();
    assert!(matches!(error, IndexError::Lost), "{error}");
}

#[test]
fn bytes_that_a_version_has_are_not_given_up_by_a_request_that_was_cut_off() {
    let index = open(&TestDisk::default());
    run(async {
        bucket(&index).await;
        put(&index, "a", with_blob("1", "b1")).await;
        for id in ["b1", "b2"] {
            let blob = blob(id);
            let give_up = move |t: &mut Transaction<'_>| t.give_up(&blob);
            index.change(give_up).await.unwrap();
        }
        assert_eq!(dead(&index), ["b2"]);
    });
}

#[test]
fn a_bucket_that_was_made_anew_is_another_one() {
    let index = open(&TestDisk::default());
    run(async {
        let first = bucket(&index).await.id;
        let again = index.change(|t: &mut Transaction<'_>| {
            t.delete_bucket("photos")?;
            t.create_bucket("photos", "bio", 2)
        });
        let second = again.await.unwrap().id;
        let still = |id| index.change(move |t: &mut Transaction<'_>| t.is_still("photos", id));
        assert!(still(first).await.is_err() && still(second).await.is_ok());
        // What was meant for the first one is said of no other.
        let tag = |id| {
            index.change(move |t: &mut Transaction<'_>| {
                t.change_bucket(("photos", id), |it| it.versioning = Versioning::Enabled)
            })
        };
        assert!(tag(first).await.is_err() && tag(second).await.is_ok());
    });
}

#[test]
fn what_is_said_of_a_version_is_not_said_of_the_one_that_replaced_it() {
    let index = open(&TestDisk::default());
    run(async {
        let id = bucket(&index).await.id;
        put(&index, "a", object("1")).await;
        let admitted = index.version(id, "a", None).unwrap().unwrap().number;
        put(&index, "a", object("2")).await;
        let grant = |number| {
            index.change(move |t: &mut Transaction<'_>| {
                t.change_version(("photos", id), ("a", number), |it| {
                    it.grants = Some(Vec::new());
                    Ok(())
                })
            })
        };
        let refused = grant(admitted).await;
        assert!(matches!(
            refused,
            Err(IndexError::Refused(Refused::NoKey(_)))
        ));
        let now = index.version(id, "a", None).unwrap().unwrap();
        assert_eq!(now.version.grants, None);
        grant(now.number).await.unwrap();
        let now = index.version(id, "a", None).unwrap().unwrap();
        assert_eq!(now.version.grants, Some(Vec::new()));
    });
}

#[test]
fn a_listing_looks_at_so_many_rows_and_goes_on_behind_them() {
    let index = open(&TestDisk::default());
    run(async {
        let id = bucket(&index).await.id;
        version_all(&index, Versioning::Enabled).await;
        // Deleted keys alone, and two that are there at the end.
        let make = |t: &mut Transaction<'_>| {
            for n in 0..listing::ROWS_MAX {
                let key = format!("d/{n:06}");
                t.delete(
                    ("photos", &key),
                    None,
                    &DeleteIf::default(),
                    ("astro", SECOND),
                )?;
            }
            for key in ["d/z", "e"] {
                t.put(("photos", key), object("1"), b"", &Condition::Any)?;
            }
            Ok(())
        };
        index.change(make).await.unwrap();
        for (delimiter, expected) in [("", vec!["d/z", "e"]), ("/", vec!["e"])] {
            let mut wanted = Wanted {
                delimiter: delimiter.to_owned(),
                most: 10,
                ..Wanted::default()
            };
            let (mut keys, mut prefixes, mut parts) = (Vec::new(), Vec::new(), 0);
            loop {
                let listed = index.list(id, &wanted).unwrap();
                keys.extend(listed.entries.into_iter().map(|it| it.0));
                prefixes.extend(listed.prefixes);
                parts += 1;
                let Some((next, _)) = listed.next else { break };
                wanted.after = Some(next);
            }
            assert_eq!(
                (keys, parts),
                (expected.iter().map(ToString::to_string).collect(), 2)
            );
            assert_eq!(prefixes.len(), delimiter.len());
        }
    });
}

/// Keys that were not deleted and their ETags.
type Plain = BTreeMap<String, String>;

fn contents(index: &Index) -> Plain {
    let Some(bucket) = index.bucket("photos").unwrap() else {
        return Plain::new();
    };
    let all = Wanted {
        most: 1000,
        ..Wanted::default()
    };
    let listed = index.list(bucket.id, &all).unwrap();
    let pairs = listed.entries.into_iter();
    pairs
        .map(|(key, found, _)| (key, etag(Some(found)).unwrap()))
        .collect()
}

#[test]
fn after_a_power_cut_at_any_write_all_that_was_answered_is_there_and_nothing_is_there_in_part() {
    for seed in 0..40_u64 {
        for cut in 0..14 {
            let disk = TestDisk::default();
            let bits = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed >> 1;
            disk.0.lock().unwrap().cut = Some((cut, bits));
            let mut plain = Plain::new();
            // What is under way when the power is cut may be there or not.
            let mut under_way = None;
            if let Ok(index) = Index::open(disk.clone(), 0, "s0") {
                run(async {
                    let make = |t: &mut Transaction<'_>| t.create_bucket("photos", "astro", 1);
                    if index.change(make).await.is_err() {
                        return;
                    }
                    for n in 0..20_u64 {
                        let key = format!("k{}", (n * 7 + seed) % 5);
                        let mut after = plain.clone();
                        let done = if n % 4 == 3 {
                            after.remove(&key);
                            let delete = move |t: &mut Transaction<'_>| {
                                t.delete(
                                    ("photos", &key),
                                    None,
                                    &DeleteIf::default(),
                                    ("astro", SECOND),
                                )
                            };
                            index.change(delete).await.map(drop)
                        } else {
                            let text = format!("{n}").repeat(1 + (n as usize * 900) % 5000);
                            after.insert(key.clone(), text.clone());
                            put_on(&index, &key, object(&text), Condition::Any)
                                .await
                                .map(drop)
                        };
                        if done.is_err() {
                            under_way = Some(after);
                            return;
                        }
                        plain = after;
                    }
                });
            }
            let bytes = disk.0.lock().unwrap().bytes.clone();
            let found = contents(&open(&TestDisk(Arc::new(Mutex::new(State {
                bytes,
                ..State::default()
            })))));
            assert!(
                found == plain || under_way.as_ref() == Some(&found),
                "seed {seed}, cut at write {cut}: {:?}",
                found.keys()
            );
        }
    }
}

#[test]
fn after_a_write_that_failed_nothing_is_taken_until_it_is_opened_again() {
    let disk = TestDisk::default();
    let index = open(&disk);
    run(async {
        bucket(&index).await;
        let next = disk.0.lock().unwrap().writes;
        disk.0.lock().unwrap().cut = Some((next, 0));
        let error = put_on(&index, "a", object("1"), Condition::Any)
            .await
            .unwrap_err();
        assert!(error.to_string().contains("the power is cut"), "{error}");
        let error = put_on(&index, "b", object("1"), Condition::Any)
            .await
            .unwrap_err();
        assert!(matches!(error, IndexError::Ended(_)), "{error}");
    });
    drop(index);
    let index = open(&disk);
    run(async {
        put(&index, "b", object("2")).await;
        let contents = contents(&index);
        assert_eq!(contents.keys().collect::<Vec<_>>(), ["b"]);
    });
}

/// What a listing has, done with plain maps.
fn plain_list(keys: &Pairs, wanted: &Wanted) -> (Vec<String>, Vec<String>, bool) {
    let mut shown: Vec<(String, bool)> = Vec::new();
    for key in keys.keys().filter(|it| it.starts_with(&wanted.prefix)) {
        let rest = &key[wanted.prefix.len()..];
        let at = (!wanted.delimiter.is_empty())
            .then(|| rest.find(&wanted.delimiter))
            .flatten();
        let entry = match at {
            Some(at) => (
                key[..wanted.prefix.len() + at + wanted.delimiter.len()].to_owned(),
                true,
            ),
            None => (key.clone(), false),
        };
        let listed = wanted.after.as_ref().is_some_and(|after| entry.0 <= *after);
        if !listed && shown.last() != Some(&entry) {
            shown.push(entry);
        }
    }
    let more = shown.len() > wanted.most;
    shown.truncate(wanted.most);
    let of = |is_prefix| {
        let some = shown.iter().filter(move |it| it.1 == is_prefix);
        some.map(|it| it.0.clone()).collect::<Vec<_>>()
    };
    (of(false), of(true), more && wanted.most > 0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn listings_are_those_of_a_plain_map(
        keys in proptest::collection::btree_map("[ab/]{1,5}", "[ab/]{0,1}", 0..20),
        prefix in "[ab/]{0,2}",
        delimiter in "(/|b|)",
        after in proptest::option::of("[ab/]{0,4}"),
        most in 0_usize..6,
    ) {
        let index = open(&TestDisk::default());
        run(async {
            let id = bucket(&index).await.id;
            version_all(&index, Versioning::Enabled).await;
            let mut plain = Pairs::new();
            for (key, deleted) in &keys {
                put(&index, key, object("1")).await;
                put(&index, key, object("2")).await;
                match deleted.is_empty() {
                    true => plain.insert(key.clone(), String::new()).map_or((), drop),
                    false => drop(delete(&index, key, None).await),
                }
            }
            let mut wanted = Wanted { prefix, delimiter, after, most, ..Wanted::default() };
            let mut parts = 0;
            loop {
                let listed = index.list(id, &wanted).unwrap();
                let (expected, prefixes, more) = plain_list(&plain, &wanted);
                let shown: Vec<String> = listed.entries.iter().map(|it| it.0.clone()).collect();
                assert_eq!((shown, &listed.prefixes, listed.next.is_some()), (expected, &prefixes, more));
                assert!(listed.entries.iter().all(|it| it.2));
                let Some((next, _)) = listed.next else { break };
                wanted.after = Some(next);
                parts += 1;
                assert!(parts <= plain.len(), "it ends");
            }
            // All versions, part by part, are all that were made.
            let mut wanted = Wanted { most: most.max(1), versions: true, ..Wanted::default() };
            let mut numbers = Vec::new();
            loop {
                let listed = index.list(id, &wanted).unwrap();
                numbers.extend(listed.entries.iter().map(|it| (it.0.clone(), it.1.number, it.2)));
                let Some((key, number)) = listed.next else { break };
                (wanted.after, wanted.after_number) = (Some(key), number);
            }
            let deleted = keys.values().filter(|it| !it.is_empty()).count();
            assert_eq!(numbers.len(), 2 * keys.len() + deleted);
            assert!(numbers.is_sorted_by(|a, b| (&a.0, b.1) < (&b.0, a.1)));
            assert_eq!(numbers.iter().filter(|it| it.2).count(), keys.len());
        });
    }
}

/// A bucket with object lock and versions.
async fn lockable(index: &Index) {
    bucket(index).await;
    let change = |t: &mut Transaction<'_>| {
        let id = t.bucket("photos")?.id;
        t.change_bucket(("photos", id), |it| {
            it.versioning = Versioning::Enabled;
            it.lock = Some(LockRule::default());
        })
    };
    index.change(change).await.unwrap();
}

fn locked(text: &str, mode: LockMode, until: u64) -> Version {
    Version {
        lock: Lock {
            retention: Some(Retention { mode, until }),
            legal_hold: None,
        },
        ..with_blob(text, text)
    }
}

async fn remove(index: &Index, version: VersionId, change: Change) -> Result<Deleted, IndexError> {
    let delete = move |t: &mut Transaction<'_>| {
        let at = ("photos", "a");
        t.delete(at, Some(version), &DeleteIf::default(), ("astro", change))
    };
    index.change(delete).await
}

#[test]
fn a_locked_version_outlives_deletions_its_bucket_and_the_sweep() {
    run(async {
        let index = open(&TestDisk::default());
        lockable(&index).await;
        let version = put(&index, "a", locked("x", LockMode::Compliance, 10)).await;
        let version = version.unwrap();
        let at = |now| Change { now, bypass: true };
        let refused = remove(&index, version, at(9)).await;
        assert!(matches!(
            refused,
            Err(IndexError::Refused(Refused::Locked(_)))
        ));
        // A delete marker hides it, and comes and goes.
        let marker = delete(&index, "a", None).await;
        assert!(marker.marker);
        let gone = index.change(|t| t.delete_bucket("photos")).await;
        assert!(matches!(
            gone,
            Err(IndexError::Refused(Refused::NotEmpty(_)))
        ));
        remove(&index, marker.version.unwrap(), at(9))
            .await
            .unwrap();
        // What a cut-off request gives up is its bytes no more.
        index.change(|t| t.give_up(&blob("x"))).await.unwrap();
        assert!(index.dead(None, 10).unwrap().is_empty());
        remove(&index, version, at(10)).await.unwrap();
        assert_eq!(index.dead(None, 10).unwrap(), [blob("x")]);
    });
}

#[test]
fn a_locked_version_without_number_is_not_replaced_by_a_put_or_a_marker() {
    run(async {
        let index = open(&TestDisk::default());
        lockable(&index).await;
        let suspend = |t: &mut Transaction<'_>| {
            let id = t.bucket("photos")?.id;
            t.change_bucket(("photos", id), |it| it.versioning = Versioning::Suspended)
        };
        index.change(suspend).await.unwrap();
        put(&index, "a", locked("x", LockMode::Governance, 10)).await;
        let again = put_on(&index, "a", with_blob("y", "y"), Condition::Any).await;
        assert!(matches!(
            again,
            Err(IndexError::Refused(Refused::Locked(_)))
        ));
        let marker = |t: &mut Transaction<'_>| {
            t.delete(
                ("photos", "a"),
                None,
                &DeleteIf::default(),
                ("astro", SECOND),
            )
        };
        let marker = index.change(marker).await;
        assert!(matches!(
            marker,
            Err(IndexError::Refused(Refused::Locked(_)))
        ));
        assert!(!index.has_blob("y").unwrap() && index.dead(None, 9).unwrap().is_empty());
    });
}

#[test]
fn an_upload_gives_its_lock_to_the_object_and_a_bucket_without_takes_none() {
    run(async {
        let index = open(&TestDisk::default());
        bucket(&index).await;
        let lock = locked("x", LockMode::Governance, 10).lock;
        let refused = put_on(
            &index,
            "a",
            Version {
                lock,
                ..object("x")
            },
            Condition::Any,
        )
        .await;
        assert!(matches!(refused, Err(IndexError::Refused(Refused::NoLock))));
        let change = |t: &mut Transaction<'_>| {
            let id = t.bucket("photos")?.id;
            t.change_bucket(("photos", id), |it| it.lock = Some(LockRule::default()))
        };
        index.change(change).await.unwrap();
        let (at, begun) = upload();
        let begun = Upload { lock, ..begun };
        let complete = move |t: &mut Transaction<'_>| {
            Uploads(t).begin(&at, &begun)?;
            Uploads(t).put_part(&at, 1, &part(7, "0cc175b9c0f1b6a831c399e269772661", "b"))?;
            let named = [NamedPart {
                number: 1,
                etag: None,
            }];
            Uploads(t).complete(&at, &named, (&Condition::Any, 9), |_, _| Ok(None))?;
            Ok(t.newest(1, "big")?.map(|it| it.version.lock))
        };
        assert_eq!(index.change(complete).await.unwrap(), Some(lock));
    });
}
