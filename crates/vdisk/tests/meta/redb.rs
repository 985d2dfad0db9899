//! The store in a file: the suite in real time, and what a file can meet.

use std::future::Future;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::pin::Pin;
use std::process::{Command, Stdio};

use base::Nanos;
use env::{RealConfig, Runtime};
use redb::{Database, TableDefinition};
use vdisk::meta::{Compare, LeaseId, MetaError, MetaStore, Op, Redb, RedbError, Revision};

use crate::suite::{Place, all_cases};

type Case = fn(Place) -> Pin<Box<dyn Future<Output = ()>>>;

fn run(name: &'static str, case: Case) {
    let dir = tempfile::tempdir().unwrap();
    let store = Redb::open(&dir.path().join("meta.redb")).unwrap();
    let handle = store.handle();
    real(async move {
        let (one, two) = (handle.client(), handle.client());
        let root = format!("{name}/");
        case(Place { one, two, root }).await;
    });
}

all_cases!(run);

fn real<T: 'static>(future: impl Future<Output = T> + 'static) -> T {
    Runtime::real(RealConfig::default())
        .unwrap()
        .block_on(future)
}

/// One sitting: opens the file, does this, closes it.
fn sitting<T: 'static, F: Future<Output = T> + 'static>(
    path: &Path,
    work: impl FnOnce(std::rc::Rc<dyn MetaStore>) -> F,
) -> T {
    let store = Redb::open(path).unwrap();
    let handle = store.handle();
    real(work(handle.client()))
}

fn put(key: &str, value: &str, lease: Option<LeaseId>) -> Op {
    Op::Put {
        key: key.into(),
        value: value.into(),
        lease,
    }
}

#[test]
fn after_a_restart_everything_is_there_and_leases_have_their_whole_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meta.redb");
    let ttl = Nanos::secs(2);
    let (lease, before, revision) = sitting(&path, |meta| async move {
        let lease = meta.lease(ttl).await.unwrap();
        let ended = meta.lease(ttl).await.unwrap();
        meta.txn(
            vec![],
            vec![put("a", "1", None), put("b", "2", Some(lease))],
        )
        .await
        .unwrap();
        meta.txn(
            vec![],
            vec![put("a", "3", None), put("c", "4", Some(ended))],
        )
        .await
        .unwrap();
        meta.revoke(ended).await.unwrap();
        env::sleep(Nanos::millis(1200)).await;
        let page = meta.range("", None, 10).await.unwrap();
        (lease, page.entries, page.revision)
    });
    sitting(&path, |meta| async move {
        let opened = env::now();
        let page = meta.range("", None, 10).await.unwrap();
        assert_eq!((page.entries, page.revision), (before, revision));
        // What was before is forgotten; from here on nothing is.
        let mut old = meta.watch("", Revision(2)).await.unwrap();
        let error = old.next().await.unwrap_err();
        assert!(matches!(error, MetaError::Compacted { oldest, .. } if oldest.0 == revision.0 + 1));
        let mut watch = meta.watch("", Revision(revision.0 + 1)).await.unwrap();
        let events = watch.next().await.unwrap();
        assert_eq!(events[0].key(), "b");
        assert_eq!(events[0].revision().0, revision.0 + 1);
        assert!(
            env::now().since(opened) > Nanos::millis(1500),
            "the lease had its whole time again"
        );
        assert!(matches!(
            meta.keep(lease).await,
            Err(MetaError::NoLease { .. })
        ));
        let new = meta.lease(ttl).await.unwrap();
        assert!(
            new.0 > lease.0 + 1,
            "the number of a lease is never given again"
        );
    });
}

#[test]
fn leases_of_a_process_that_crashed_are_over_when_the_file_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meta.redb");
    let (crashed, closed) = (dir.path().join("crashed"), dir.path().join("closed"));
    let ttl = Nanos::secs(3600);
    let (copied, to) = (path.clone(), crashed.clone());
    let lease = sitting(&path, |meta| async move {
        let lease = meta.lease(ttl).await.unwrap();
        let puts = vec![put("a", "1", None), put("b", "2", Some(lease))];
        meta.txn(vec![], puts).await.unwrap();
        // As a crash leaves it.
        std::fs::copy(copied, to).unwrap();
        lease
    });
    std::fs::copy(&path, &closed).unwrap();
    let over = move |meta: std::rc::Rc<dyn MetaStore>| async move {
        assert_eq!(meta.get("a").await.unwrap().unwrap().value, b"1");
        let kept = meta.keep(lease).await;
        assert_eq!(meta.get("b").await.unwrap().is_some(), kept.is_ok());
        kept.is_err()
    };
    assert!(sitting(&crashed, move |meta| async move {
        let gone = over(meta.clone()).await;
        let next = meta.lease(ttl).await.unwrap();
        assert!(next > lease, "no number is given twice");
        gone
    }));
    // It stays so, also for who looks without writing anything.
    assert!(sitting(&crashed, over));

    // Where it was closed, who took the lease may be there, and is as long as it lasts: also if the next process crashes.
    let to = crashed.clone();
    std::fs::remove_file(&crashed).unwrap();
    let copied = closed.clone();
    assert!(!sitting(&closed, move |meta| async move {
        let gone = over(meta).await;
        std::fs::copy(copied, to).unwrap();
        gone
    }));
    assert!(!sitting(&crashed, over));
}

#[test]
fn a_request_to_a_closed_store_fails_as_closed() {
    let dir = tempfile::tempdir().unwrap();
    let store = Redb::open(&dir.path().join("meta.redb")).unwrap();
    let handle = store.handle();
    real(async move {
        let meta = handle.client();
        let mut watch = meta.watch("", Revision(1)).await.unwrap();
        let waiting = env::spawn(async move { watch.next().await });
        env::yield_now().await;
        drop(store);
        for error in [
            meta.txn(vec![], vec![put("a", "1", None)])
                .await
                .unwrap_err(),
            waiting.await.unwrap_err(),
        ] {
            assert!(matches!(error, MetaError::Unavailable { .. }), "{error}");
            assert!(error.to_string().contains("it is closed"), "{error}");
        }
    });
}

#[test]
fn a_file_that_is_in_use_foreign_or_newer_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meta.redb");
    let open = Redb::open(&path).unwrap();
    let error = Redb::open(&path).err().unwrap();
    assert!(matches!(error, RedbError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("is in use"), "{error}");
    drop(open);

    let counters = TableDefinition::<&str, u64>::new("tanada-meta");
    let newer = |version| {
        let database = Database::create(&path).unwrap();
        let txn = database.begin_write().unwrap();
        txn.open_table(counters)
            .unwrap()
            .insert("version", version)
            .unwrap();
        txn.commit().unwrap();
    };
    newer(2);
    let error = Redb::open(&path).err().unwrap();
    assert!(
        matches!(error, RedbError::Version { version: 2, .. }),
        "{error}"
    );
    newer(1);
    Redb::open(&path).unwrap();

    let foreign = dir.path().join("foreign.redb");
    let database = Database::create(&foreign).unwrap();
    let txn = database.begin_write().unwrap();
    txn.open_table(TableDefinition::<u64, u64>::new("theirs"))
        .unwrap();
    txn.commit().unwrap();
    drop(database);
    let error = Redb::open(&foreign).err().unwrap();
    assert!(matches!(error, RedbError::Foreign { .. }), "{error}");

    let text = dir.path().join("text");
    let words = "no database at all, but plain words\n".repeat(200);
    std::fs::write(&text, &words).unwrap();
    let error = Redb::open(&text).err().unwrap();
    assert!(matches!(error, RedbError::Database { .. }), "{error}");
    assert_eq!(std::fs::read_to_string(&text).unwrap(), words);
}

#[test]
fn a_record_that_is_too_short_or_ahead_of_its_time_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meta.redb");
    let entries = TableDefinition::<&str, &[u8]>::new("entries");
    for record in [&[0; 23][..], &[0xff; 24][..]] {
        drop(Redb::open(&path).unwrap());
        let database = Database::create(&path).unwrap();
        let txn = database.begin_write().unwrap();
        txn.open_table(entries)
            .unwrap()
            .insert("broken", record)
            .unwrap();
        txn.commit().unwrap();
        drop(database);
        let error = Redb::open(&path).err().unwrap();
        assert!(matches!(error, RedbError::Damaged { .. }), "{error}");
        assert!(error.to_string().contains("key 'broken'"), "{error}");
        std::fs::remove_file(&path).unwrap();
    }
}

/// Set for the process that is killed.
const VICTIM: &str = "TANADA_META_VICTIM";

#[test]
fn what_was_answered_is_there_after_kill_9() {
    if let Some(path) = std::env::var_os(VICTIM) {
        // The victim: counts for ever, and says each number once it was answered.
        sitting(Path::new(&path), |meta| async move {
            for count in 1u64.. {
                let pair = ["left", "right"].map(|key| put(key, &count.to_string(), None));
                meta.txn(vec![], pair.to_vec()).await.unwrap();
                println!("answered {count}");
            }
        });
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meta.redb");
    for least in [1u64, 40, 100] {
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "redb::what_was_answered_is_there_after_kill_9",
                "--nocapture",
            ])
            .env(VICTIM, &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut answered = 0;
        let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
        while answered < least {
            let line = lines.next().unwrap().unwrap();
            if let Some((_, count)) = line.split_once("answered ") {
                answered = count.parse().unwrap();
            }
        }
        victim.kill().unwrap();
        victim.wait().unwrap();
        for line in lines {
            if let Some(count) = line
                .unwrap()
                .strip_prefix("answered ")
                .and_then(|it| it.parse().ok())
            {
                answered = count;
            }
        }
        sitting(&path, move |meta| async move {
            let page = meta.range("", None, 10).await.unwrap();
            let counts: Vec<u64> = page
                .entries
                .iter()
                .map(|entry| String::from_utf8_lossy(&entry.value).parse().unwrap())
                .collect();
            assert_eq!(counts.len(), 2);
            assert_eq!(counts[0], counts[1], "a transaction is whole");
            assert!(
                counts[0] >= answered,
                "{} after {answered} was answered",
                counts[0]
            );
            let absent = vec![Compare::Absent("left".into())];
            meta.txn(absent, vec![]).await.unwrap();
        });
    }
}
