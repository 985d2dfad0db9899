//! What every meta store must do: one case, one sentence.
//!
//! Each case gets two clients of one store and a prefix of its own; others may use the store at the same time.
//! [`all_cases`] makes a test of each for one backend.

use std::rc::Rc;

use base::Nanos;
use vdisk::meta::{
    Compare, Entry, Event, KEY_MAX, LeaseId, MetaError, MetaStore, Op, Outcome, PAGE_MAX, Revision,
    TXN_PARTS_MAX, VALUE_MAX, Watch, whole_range,
};

/// Two clients of one store, and where a case may write.
pub struct Place {
    pub one: Rc<dyn MetaStore>,
    pub two: Rc<dyn MetaStore>,
    pub root: String,
}

/// Makes a test of each case; `$run` calls it with a [`Place`].
macro_rules! all_cases {
    ($run:path) => {
        all_cases!(@ $run:
            a_key_holds_what_was_put_last
            keys_come_in_the_order_of_their_bytes_and_in_pages
            a_prefix_ends_where_the_next_one_begins
            a_transaction_is_done_whole_or_not_at_all
            a_refused_transaction_says_what_is_there
            each_change_has_a_greater_revision
            a_transaction_that_changes_nothing_has_no_revision_of_its_own
            a_watch_from_the_past_sees_everything_once_in_order
            a_watch_from_the_future_sees_only_that
            a_watch_behind_a_range_misses_nothing
            two_watchers_see_the_same
            a_watch_whose_wait_is_dropped_loses_nothing
            a_lease_that_runs_out_takes_its_keys_along
            a_lease_that_is_kept_goes_on
            a_lease_that_is_ended_takes_its_keys_along_in_one_step
            keys_move_between_leases
            nothing_is_put_under_a_lease_that_is_not_there
            big_values_are_kept_and_bigger_ones_refused
            empty_values_are_values
            what_can_never_be_is_refused_with_the_limit
            many_at_once_lose_no_increment
            many_pages_come_together
        );
    };
    (@ $run:path: $($case:ident)*) => {
        $(
            #[test]
            fn $case() {
                $run(stringify!($case), |place| Box::pin(crate::suite::$case(place)));
            }
        )*
    };
}
pub(crate) use all_cases;

impl Place {
    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.root)
    }

    async fn put(&self, name: &str, value: &[u8]) -> Revision {
        self.put_under(name, value, None).await
    }

    async fn put_under(&self, name: &str, value: &[u8], lease: Option<LeaseId>) -> Revision {
        done(
            self.one
                .txn(vec![], vec![self.op(name, value, lease)])
                .await,
        )
    }

    async fn delete(&self, name: &str) -> Revision {
        let key = self.key(name);
        done(self.one.txn(vec![], vec![Op::Delete { key }]).await)
    }

    fn op(&self, name: &str, value: &[u8], lease: Option<LeaseId>) -> Op {
        Op::Put {
            key: self.key(name),
            value: value.to_vec(),
            lease,
        }
    }

    async fn get(&self, name: &str) -> Option<Entry> {
        self.two.get(&self.key(name)).await.unwrap()
    }

    async fn names(&self) -> Vec<String> {
        let (entries, _) = whole_range(&*self.two, &self.root).await.unwrap();
        let name = |entry: Entry| entry.key[self.root.len()..].to_owned();
        entries.into_iter().map(name).collect()
    }

    /// The next `count` changes, as `name=value` and `-name`, with their revisions.
    async fn read(&self, watch: &mut Box<dyn Watch>, count: usize) -> Vec<(String, Revision)> {
        let mut seen = Vec::new();
        while seen.len() < count {
            for event in watch.next().await.unwrap() {
                let name = &event.key()[self.root.len()..];
                let what = match &event {
                    Event::Put(entry) => {
                        format!("{name}={}", String::from_utf8_lossy(&entry.value))
                    }
                    Event::Deleted { .. } => format!("-{name}"),
                };
                seen.push((what, event.revision()));
            }
        }
        seen
    }
}

fn done(outcome: Result<Outcome, MetaError>) -> Revision {
    match outcome {
        Ok(Outcome::Done(revision)) => revision,
        other => panic!("not done: {other:?}"),
    }
}

fn refused(outcome: Result<Outcome, MetaError>) -> Vec<Option<Entry>> {
    match outcome {
        Ok(Outcome::Refused(held)) => held,
        other => panic!("not refused: {other:?}"),
    }
}

fn bad(result: Result<impl std::fmt::Debug, MetaError>) -> String {
    match result {
        Err(error @ MetaError::Bad { .. }) => error.to_string(),
        other => panic!("not refused as bad: {other:?}"),
    }
}

fn what(seen: &[(String, Revision)]) -> Vec<&str> {
    seen.iter().map(|(what, _)| what.as_str()).collect()
}

pub async fn a_key_holds_what_was_put_last(place: Place) {
    assert_eq!(place.get("k").await, None);
    let first = place.put("k", b"one").await;
    let second = place.put("k", b"two \x00\xff\xfe").await;
    let expected = Entry {
        key: place.key("k"),
        value: b"two \x00\xff\xfe".to_vec(),
        created: first,
        changed: second,
        lease: None,
    };
    assert_eq!(place.get("k").await, Some(expected));
    place.delete("k").await;
    assert_eq!(place.get("k").await, None);
    let again = place.put("k", b"three").await;
    assert_eq!(place.get("k").await.unwrap().created, again);
}

/// Names that an order by characters, or a C string, would put elsewhere.
const STRANGE: [&str; 14] = [
    "\0",
    "\0\0",
    "\u{1}",
    " ",
    "/",
    "0",
    "A",
    "a",
    "a\0",
    "a/",
    "a0",
    "\u{7f}",
    "\u{ff}",
    "\u{10ffff}",
];

pub async fn keys_come_in_the_order_of_their_bytes_and_in_pages(place: Place) {
    for name in STRANGE.iter().rev() {
        place.put(name, name.as_bytes()).await;
    }
    assert_eq!(place.names().await, STRANGE);
    for most in [1, 3, 13, 14, 15] {
        let (mut names, mut after, mut pages) = (Vec::new(), None::<String>, 0);
        loop {
            let page = place.one.range(&place.root, after.as_deref(), most);
            let page = page.await.unwrap();
            pages += 1;
            assert!(page.entries.len() <= most);
            after = page.entries.last().map(|entry| entry.key.clone());
            names.extend(page.entries.into_iter().map(|it| it.value));
            if !page.more {
                break;
            }
        }
        assert_eq!(names, STRANGE.map(str::as_bytes));
        assert_eq!(pages, STRANGE.len().div_ceil(most));
    }
    // What lies behind a key need not be there itself, nor under the prefix.
    let behind = async |after: &str| {
        let page = place.one.range(&place.root, Some(after), 1).await.unwrap();
        page.entries.into_iter().next().map(|it| it.value)
    };
    assert_eq!(behind(&place.key("B")).await.unwrap(), b"a");
    assert_eq!(behind("").await.unwrap(), b"\0");
    assert_eq!(behind(&place.key("\u{10ffff}")).await, None);
    assert_eq!(behind("\u{10ffff}").await, None);
}

pub async fn a_prefix_ends_where_the_next_one_begins(place: Place) {
    for name in [
        "a",
        "a\u{7f}",
        "a\u{7f}x",
        "a\u{80}",
        "a\u{10ffff}",
        "a\u{10ffff}z",
        "b",
    ] {
        place.put(name, b"").await;
    }
    let count = async |prefix: &str| {
        let prefix = place.key(prefix);
        place
            .one
            .range(&prefix, None, 100)
            .await
            .unwrap()
            .entries
            .len()
    };
    assert_eq!(count("").await, 7);
    assert_eq!(count("a").await, 6);
    assert_eq!(count("a\u{7f}").await, 2);
    assert_eq!(count("a\u{80}").await, 1);
    assert_eq!(count("a\u{10ffff}").await, 2);
    assert_eq!(count("b").await, 1);
    assert_eq!(count("c").await, 0);
    // Every key there is.
    let page = place.one.range("", None, 1).await.unwrap();
    assert_eq!((page.entries.len(), page.more), (1, true));
}

pub async fn a_transaction_is_done_whole_or_not_at_all(place: Place) {
    place.put("there", b"1").await;
    let ops = vec![
        place.op("new", b"2", None),
        Op::Delete {
            key: place.key("there"),
        },
        place.op("also", b"3", None),
    ];
    let compares = |name: &str| {
        vec![
            Compare::Present(place.key("there")),
            Compare::Absent(place.key(name)),
        ]
    };
    refused(place.one.txn(compares("there"), ops.clone()).await);
    assert_eq!(place.names().await, ["there"]);
    let revision = done(place.one.txn(compares("new"), ops).await);
    assert_eq!(place.names().await, ["also", "new"]);
    for name in ["also", "new"] {
        assert_eq!(place.get(name).await.unwrap().changed, revision);
    }
}

pub async fn a_refused_transaction_says_what_is_there(place: Place) {
    let revision = place.put("k", b"mine").await;
    let held = place.get("k").await;
    let put = || vec![place.op("k", b"other", None)];
    let key = || place.key("k");
    for compare in [
        Compare::Absent(key()),
        Compare::Unchanged(key(), Revision(revision.0 - 1)),
        Compare::Unchanged(key(), Revision(revision.0 + 1)),
        Compare::Unchanged(key(), Revision(0)),
    ] {
        let compares = vec![
            Compare::Absent(place.key("none")),
            compare,
            Compare::Present(key()),
        ];
        let said = refused(place.one.txn(compares, put()).await);
        assert_eq!(said, [None, held.clone(), held.clone()]);
    }
    let gone = vec![Compare::Present(place.key("none"))];
    assert_eq!(refused(place.one.txn(gone, put()).await), [None]);
    let unchanged = vec![
        Compare::Unchanged(key(), revision),
        Compare::Unchanged(place.key("none"), Revision(0)),
    ];
    done(place.one.txn(unchanged, put()).await);
    assert_eq!(place.get("k").await.unwrap().value, b"other");
}

pub async fn each_change_has_a_greater_revision(place: Place) {
    let mut last = Revision(0);
    for round in 0..20u8 {
        let client = if round % 2 == 0 {
            &place.one
        } else {
            &place.two
        };
        let op = match round % 5 {
            4 => Op::Delete {
                key: place.key("k"),
            },
            _ => place.op("k", &[round], None),
        };
        let revision = done(client.txn(vec![], vec![op]).await);
        assert!(revision > last, "{revision} after {last}");
        let page = place.two.range(&place.root, None, 10).await.unwrap();
        assert!(page.revision >= revision, "a range sees what was answered");
        last = revision;
    }
}

pub async fn a_transaction_that_changes_nothing_has_no_revision_of_its_own(place: Place) {
    let put = place.put("other", b"1").await;
    let mut watch = place.one.watch(&place.root, put).await.unwrap();
    place.delete("none").await;
    done(
        place
            .one
            .txn(vec![Compare::Absent(place.key("none"))], vec![])
            .await,
    );
    place.delete("other").await;
    let seen = place.read(&mut watch, 2).await;
    assert_eq!(what(&seen), ["other=1", "-other"]);
}

pub async fn a_watch_from_the_past_sees_everything_once_in_order(place: Place) {
    let mut expected = Vec::new();
    for round in 0..30 {
        let (name, value) = (format!("k{}", round % 4), format!("{round}"));
        expected.push((
            format!("{name}={value}"),
            place.put(&name, value.as_bytes()).await,
        ));
    }
    expected.push(("-k2".to_owned(), place.delete("k2").await));
    let ops = vec![
        place.op("z", b"last", None),
        Op::Delete {
            key: place.key("k1"),
        },
        place.op("a", b"first", None),
    ];
    let together = done(place.one.txn(vec![], ops).await);
    for name in ["z=last", "-k1", "a=first"] {
        expected.push((name.to_owned(), together));
    }
    let mut watch = place.two.watch(&place.root, expected[0].1).await.unwrap();
    assert_eq!(place.read(&mut watch, expected.len()).await, expected);
    // From the middle, and on into what comes.
    let mut watch = place.two.watch(&place.root, expected[10].1).await.unwrap();
    expected.push(("k0=new".to_owned(), place.put("k0", b"new").await));
    assert_eq!(
        place.read(&mut watch, expected.len() - 10).await,
        expected[10..]
    );
    // Only what is under the prefix.
    let mut watch = place
        .two
        .watch(&place.key("k1"), expected[0].1)
        .await
        .unwrap();
    let seen = place.read(&mut watch, 9).await;
    assert_eq!(what(&seen)[7..], ["k1=29", "-k1"]);
}

pub async fn a_watch_from_the_future_sees_only_that(place: Place) {
    let now = place.put("k", b"0").await;
    // Others may write at the same time, so not every revision is ours.
    let from = Revision(now.0 + 40);
    let mut watch = place.two.watch(&place.root, from).await.unwrap();
    let mut expected = Vec::new();
    for round in 1..=60 {
        let value = format!("{round}");
        let revision = place.put("k", value.as_bytes()).await;
        if revision >= from {
            expected.push((format!("k={value}"), revision));
        }
    }
    assert!(expected.len() >= 20);
    assert_eq!(place.read(&mut watch, expected.len()).await, expected);
}

pub async fn a_watch_behind_a_range_misses_nothing(place: Place) {
    const WRITES: u32 = 60;
    let writer = Rc::clone(&place.one);
    let key = place.key("count");
    let writing = env::spawn(async move {
        for round in 1..=WRITES {
            let put = Op::Put {
                key: key.clone(),
                value: round.to_string().into_bytes(),
                lease: None,
            };
            done(writer.txn(vec![], vec![put]).await);
            env::yield_now().await;
        }
    });
    let mut next = 1;
    let mut seen_all = false;
    while !seen_all {
        // Whatever the moment: the value of the range, then each one after it.
        let (entries, revision) = whole_range(&*place.two, &place.root).await.unwrap();
        let value = |bytes: &[u8]| String::from_utf8_lossy(bytes).parse::<u32>().unwrap();
        let at = entries.first().map_or(0, |entry| value(&entry.value));
        assert!(at + 1 >= next, "time does not go back");
        let from = Revision(revision.0 + 1);
        let mut watch = place.two.watch(&place.root, from).await.unwrap();
        next = at + 1;
        seen_all = at == WRITES;
        for _ in 0..5 {
            if seen_all {
                break;
            }
            for event in watch.next().await.unwrap() {
                let Event::Put(entry) = event else {
                    panic!("nothing was deleted")
                };
                assert_eq!(value(&entry.value), next, "one was missed or doubled");
                seen_all = next == WRITES;
                next += 1;
            }
        }
    }
    writing.await;
}

pub async fn two_watchers_see_the_same(place: Place) {
    let first = place.put("a", b"1").await;
    let mut one = place.one.watch(&place.root, first).await.unwrap();
    let mut two = place.two.watch(&place.root, first).await.unwrap();
    for round in 0..20 {
        place.put(&format!("k{round}"), b"x").await;
    }
    let seen = place.read(&mut one, 21).await;
    assert_eq!(place.read(&mut two, 21).await, seen);
    drop(one);
    place.put("after", b"y").await;
    assert_eq!(what(&place.read(&mut two, 1).await), ["after=y"]);
}

pub async fn a_watch_whose_wait_is_dropped_loses_nothing(place: Place) {
    let first = place.put("k", b"0").await;
    let mut watch = place.two.watch(&place.root, first).await.unwrap();
    let mut seen = Vec::new();
    let mut written = 0u32;
    while seen.len() < 21 {
        if written < 20 {
            written += 1;
            place.put("k", written.to_string().as_bytes()).await;
        }
        // Sometimes dropped before it was polled twice, sometimes later.
        let call_timeout = Nanos::micros(u64::from(written) * 40);
        if let Ok(events) = env::timeout(call_timeout, watch.next()).await {
            seen.extend(events.unwrap());
        }
    }
    let values: Vec<String> = seen
        .iter()
        .map(|event| match event {
            Event::Put(entry) => String::from_utf8_lossy(&entry.value).into_owned(),
            Event::Deleted { key, .. } => panic!("{key} was deleted"),
        })
        .collect();
    let expected: Vec<String> = (0..=20).map(|round| round.to_string()).collect();
    assert_eq!(values, expected);
}

/// The least that etcd knows.
const TTL: Nanos = Nanos::secs(2);

pub async fn a_lease_that_runs_out_takes_its_keys_along(place: Place) {
    let lease = place.one.lease(TTL).await.unwrap();
    let asked = env::now();
    let first = place.put_under("b", b"1", Some(lease)).await;
    place.put_under("a", b"2", Some(lease)).await;
    place.put("stays", b"3").await;
    assert_eq!(place.get("b").await.unwrap().lease, Some(lease));
    let mut watch = place.two.watch(&place.root, first).await.unwrap();
    let seen = place.read(&mut watch, 5).await;
    assert_eq!(what(&seen), ["b=1", "a=2", "stays=3", "-a", "-b"]);
    assert_eq!(seen[3].1, seen[4].1, "both go in one step");
    let lasted = env::now().since(asked);
    // Its time began before we looked at the clock; allow for the way there.
    assert!(lasted + Nanos::millis(500) > TTL, "gone after {lasted}");
    assert_eq!(place.names().await, ["stays"]);
    let error = place.one.keep(lease).await.unwrap_err();
    assert!(
        matches!(error, MetaError::NoLease { lease: id, .. } if id == lease),
        "{error}"
    );
}

pub async fn a_lease_that_is_kept_goes_on(place: Place) {
    let lease = place.one.lease(TTL).await.unwrap();
    let mut kept = env::now();
    place.put_under("k", b"1", Some(lease)).await;
    let begun = env::now();
    while env::now().since(begun) < Nanos(TTL.0 * 3) {
        env::sleep(Nanos(TTL.0 / 4)).await;
        let asked = env::now();
        match place.one.keep(lease).await {
            Ok(lasts) => {
                assert!(lasts >= TTL, "{lasts} are less than what was asked for");
                kept = asked;
            }
            // Only if this machine held us up.
            Err(error) => {
                assert!(env::now().since(kept) >= TTL, "{error}");
                return;
            }
        }
    }
    assert_eq!(place.get("k").await.map(|it| it.lease), Some(Some(lease)));
    place.one.revoke(lease).await.unwrap();
}

pub async fn a_lease_that_is_ended_takes_its_keys_along_in_one_step(place: Place) {
    let lease = place.one.lease(Nanos::secs(60)).await.unwrap();
    let first = place.put_under("c", b"1", Some(lease)).await;
    place.put_under("a", b"2", Some(lease)).await;
    place.put_under("b", b"3", Some(lease)).await;
    place.delete("b").await;
    place.two.revoke(lease).await.unwrap();
    assert!(place.names().await.is_empty());
    let mut watch = place.one.watch(&place.root, first).await.unwrap();
    let seen = place.read(&mut watch, 6).await;
    assert_eq!(what(&seen)[4..], ["-a", "-c"]);
    assert_eq!(seen[4].1, seen[5].1);
    let error = place.one.revoke(lease).await.unwrap_err();
    assert!(matches!(error, MetaError::NoLease { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains(&lease.0.to_string()) && text.contains("take a new one"),
        "{text}"
    );
}

pub async fn keys_move_between_leases(place: Place) {
    let old = place.one.lease(Nanos::secs(60)).await.unwrap();
    let new = place.one.lease(Nanos::secs(60)).await.unwrap();
    assert_ne!(old, new);
    place.put_under("moved", b"1", Some(old)).await;
    place.put_under("moved", b"2", Some(new)).await;
    place.put_under("freed", b"1", Some(old)).await;
    place.put("freed", b"2").await;
    place.put_under("kept", b"1", Some(old)).await;
    place.one.revoke(old).await.unwrap();
    assert_eq!(place.names().await, ["freed", "moved"]);
    assert_eq!(place.get("freed").await.unwrap().lease, None);
    place.one.revoke(new).await.unwrap();
    assert_eq!(place.names().await, ["freed"]);
}

pub async fn nothing_is_put_under_a_lease_that_is_not_there(place: Place) {
    let lease = place.one.lease(Nanos::secs(60)).await.unwrap();
    place.one.revoke(lease).await.unwrap();
    let ops = || vec![place.op("a", b"1", None), place.op("b", b"2", Some(lease))];
    let error = place.one.txn(vec![], ops()).await.unwrap_err();
    assert!(
        matches!(error, MetaError::NoLease { lease: id, .. } if id == lease),
        "{error}"
    );
    assert!(place.names().await.is_empty());
    // Compares come first.
    let held = refused(
        place
            .one
            .txn(vec![Compare::Present(place.key("a"))], ops())
            .await,
    );
    assert_eq!(held, [None]);
}

pub async fn big_values_are_kept_and_bigger_ones_refused(place: Place) {
    let big: Vec<u8> = (0..VALUE_MAX).map(|at| (at / 3) as u8).collect();
    let first = place.put("big", &big).await;
    assert!(place.get("big").await.unwrap().value == big);
    let mut watch = place.two.watch(&place.root, first).await.unwrap();
    let events = watch.next().await.unwrap();
    assert!(matches!(&events[..], [Event::Put(entry)] if entry.value == big));
    // As much as a transaction can have: many keys of many bytes beside it, compared too.
    let name = |at: usize| format!("{at:0>500}");
    let mut ops: Vec<Op> = (1..TXN_PARTS_MAX)
        .map(|at| place.op(&name(at), b"", None))
        .collect();
    ops.push(place.op("big", &big, None));
    let compares = (1..TXN_PARTS_MAX / 2).map(|at| Compare::Absent(place.key(&name(at))));
    let compares: Vec<Compare> = compares.collect();
    done(place.one.txn(compares.clone(), ops.clone()).await);
    assert_eq!(
        refused(place.one.txn(compares.clone(), ops).await).len(),
        compares.len()
    );

    let mut bigger = big;
    bigger.push(0);
    let text = bad(place
        .one
        .txn(vec![], vec![place.op("big", &bigger, None)])
        .await);
    assert!(
        text.contains("1048577 bytes") && text.contains("1048576"),
        "{text}"
    );
    let half = &bigger[..VALUE_MAX / 2 + 100_000];
    let both = vec![place.op("a", half, None), place.op("b", half, None)];
    let text = bad(place.one.txn(vec![], both).await);
    assert!(text.contains("together"), "{text}");
    assert_eq!(place.get("a").await, None);
}

pub async fn empty_values_are_values(place: Place) {
    let first = place.put("k", b"").await;
    assert_eq!(place.get("k").await.unwrap().value, b"");
    done(
        place
            .one
            .txn(vec![Compare::Present(place.key("k"))], vec![])
            .await,
    );
    let mut watch = place.one.watch(&place.root, first).await.unwrap();
    assert_eq!(what(&place.read(&mut watch, 1).await), ["k="]);
}

pub async fn what_can_never_be_is_refused_with_the_limit(place: Place) {
    let delete = |key: &str| Op::Delete { key: key.into() };
    let text = bad(place.one.get("").await);
    assert!(text.contains("at least one byte"), "{text}");
    let text = bad(place
        .one
        .txn(vec![Compare::Absent(String::new())], vec![])
        .await);
    assert!(text.contains("at least one byte"), "{text}");
    let long = place.key(&"k".repeat(KEY_MAX));
    let text = bad(place.one.txn(vec![], vec![delete(&long)]).await);
    assert!(text.contains("at most 1024") && text.len() < 300, "{text}");
    let twice = vec![place.op("k", b"1", None), delete(&place.key("k"))];
    let text = bad(place.one.txn(vec![], twice).await);
    assert!(text.contains("two operations"), "{text}");
    let many = (0..=TXN_PARTS_MAX).map(|at| delete(&place.key(&at.to_string())));
    let text = bad(place.one.txn(vec![], many.collect()).await);
    assert!(
        text.contains("129 operations") && text.contains("at most 128"),
        "{text}"
    );
    bad(place.one.range(&place.root, None, 0).await);
    bad(place.one.lease(Nanos(0)).await);
    bad(place.one.lease(Nanos::secs(100_000)).await);
    // No harm done.
    place.put("k", b"1").await;
}

pub async fn many_at_once_lose_no_increment(place: Place) {
    const WRITERS: usize = 12;
    const ROUNDS: u64 = 8;
    let key = place.key("count");
    let tasks: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let store = Rc::clone(if writer % 2 == 0 {
                &place.one
            } else {
                &place.two
            });
            let key = key.clone();
            env::spawn(async move {
                let mut added = 0;
                let mut held = store.get(&key).await.unwrap();
                while added < ROUNDS {
                    let (revision, count) = held.map_or((Revision(0), 0), |it| {
                        (it.changed, u64::from_le_bytes(it.value.try_into().unwrap()))
                    });
                    let put = Op::Put {
                        key: key.clone(),
                        value: (count + 1).to_le_bytes().to_vec(),
                        lease: None,
                    };
                    let compare = Compare::Unchanged(key.clone(), revision);
                    held = match store.txn(vec![compare], vec![put]).await.unwrap() {
                        Outcome::Done(_) => {
                            added += 1;
                            store.get(&key).await.unwrap()
                        }
                        Outcome::Refused(mut held) => held.remove(0),
                    };
                }
            })
        })
        .collect();
    env::sync::join_all(tasks).await;
    let count = place.get("count").await.unwrap().value;
    assert_eq!(count, (WRITERS as u64 * ROUNDS).to_le_bytes());
}

pub async fn many_pages_come_together(place: Place) {
    let many = PAGE_MAX + 24;
    let names: Vec<String> = (0..many).map(|at| format!("{at:05}")).collect();
    for names in names.chunks(TXN_PARTS_MAX) {
        let ops = names
            .iter()
            .map(|name| place.op(name, name.as_bytes(), None));
        done(place.one.txn(vec![], ops.collect()).await);
    }
    let page = place
        .one
        .range(&place.root, None, usize::MAX)
        .await
        .unwrap();
    assert!(page.more && page.entries.len() <= PAGE_MAX);
    assert_eq!(place.names().await, names);
}
