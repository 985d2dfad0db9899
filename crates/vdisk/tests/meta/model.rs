//! Random operations on a store and on the plainest thing that could be right.

use std::collections::BTreeMap;
use std::rc::Rc;

use base::Nanos;
use env::{RealConfig, Runtime};
use proptest::prelude::*;
use vdisk::meta::{
    Compare, Entry, Event, LeaseId, MemoryMetaStore, MetaError, MetaStore, Op, Outcome, Redb,
    Revision,
};

#[derive(Debug, Clone)]
enum Step {
    Txn(Vec<(u8, u8, u8)>, Vec<(u8, u8, Option<u8>)>),
    Get(u8),
    Range(u8, Option<u8>, usize),
    Lease(u8),
    Keep(u8),
    Revoke(u8),
    /// The clock goes on (virtual time only).
    Wait(u8),
    /// Closed and opened again (files only).
    Restart,
}

const KEYS: [&str; 8] = [
    "a",
    "a\0",
    "a/b",
    "a0",
    "b",
    "b\u{7f}",
    "\u{10ffff}",
    "\u{1}",
];
const PREFIXES: [&str; 5] = ["", "a", "a/", "b", "z"];

fn step() -> impl Strategy<Value = Step> {
    let compares = prop::collection::vec((0..8u8, 0..3u8, 0..3u8), 0..3);
    let ops = prop::collection::vec((0..8u8, any::<u8>(), prop::option::of(0..4u8)), 0..4);
    prop_oneof![
        8 => (compares, ops).prop_map(|(compares, ops)| Step::Txn(compares, ops)),
        2 => (0..8u8).prop_map(Step::Get),
        2 => (0..5u8, prop::option::of(0..8u8), 1..9usize).prop_map(|(p, a, m)| Step::Range(p, a, m)),
        1 => (1..5u8).prop_map(Step::Lease),
        1 => (0..4u8).prop_map(Step::Keep),
        1 => (0..4u8).prop_map(Step::Revoke),
        1 => (1..3u8).prop_map(Step::Wait),
        1 => Just(Step::Restart),
    ]
}

/// A map, a counter, and all that ever happened.
#[derive(Default)]
struct Model {
    revision: u64,
    entries: BTreeMap<String, Entry>,
    /// By their place in the run: id, time, end.
    leases: Vec<(LeaseId, Nanos, u64)>,
    events: Vec<Event>,
}

impl Model {
    fn alive(&self, id: LeaseId) -> bool {
        self.leases.iter().any(|lease| lease.0 == id)
    }

    fn apply(&mut self, ops: &[Op]) {
        let revision = Revision(self.revision + 1);
        let before = self.events.len();
        for op in ops {
            match op {
                Op::Put { key, value, lease } => {
                    let created = self.entries.get(key).map_or(revision, |it| it.created);
                    let entry = Entry {
                        key: key.clone(),
                        value: value.clone(),
                        created,
                        changed: revision,
                        lease: *lease,
                    };
                    self.entries.insert(key.clone(), entry.clone());
                    self.events.push(Event::Put(entry));
                }
                Op::Delete { key } => {
                    if self.entries.remove(key).is_some() {
                        let key = key.clone();
                        self.events.push(Event::Deleted { key, revision });
                    }
                }
            }
        }
        if self.events.len() > before {
            self.revision += 1;
        }
    }

    fn end(&mut self, id: LeaseId) {
        self.leases.retain(|lease| lease.0 != id);
        let under = self.entries.values().filter(|it| it.lease == Some(id));
        let deletes: Vec<Op> = under
            .map(|it| Op::Delete {
                key: it.key.clone(),
            })
            .collect();
        self.apply(&deletes);
    }

    fn run_out(&mut self, now: u64) {
        let mut ended: Vec<(u64, LeaseId)> = self
            .leases
            .iter()
            .filter(|lease| lease.2 <= now)
            .map(|lease| (lease.2, lease.0))
            .collect();
        ended.sort_unstable();
        for (_, id) in ended {
            self.end(id);
        }
    }

    fn holds(&self, compare: &Compare) -> bool {
        match compare {
            Compare::Absent(key) => !self.entries.contains_key(key),
            Compare::Present(key) => self.entries.contains_key(key),
            Compare::Unchanged(key, revision) => match self.entries.get(key) {
                Some(entry) => entry.changed == *revision,
                None => revision.0 == 0,
            },
        }
    }
}

/// Goes through all steps and compares after each.
async fn walk(meta: Rc<dyn MetaStore>, mut model: Model, steps: Vec<Step>) -> Model {
    for step in steps {
        one_step(&*meta, &mut model, &step).await;
        let page = meta.range("", None, 100).await.unwrap();
        let expected: Vec<Entry> = model.entries.values().cloned().collect();
        assert_eq!(page.entries, expected, "after {step:?}");
        assert_eq!(page.revision.0, model.revision, "after {step:?}");
    }
    model
}

async fn one_step(meta: &dyn MetaStore, model: &mut Model, step: &Step) {
    let lease_at = |model: &Model, at: u8| match model.leases.get(usize::from(at)) {
        Some(lease) => lease.0,
        // One that never was.
        None => LeaseId(1 << 40),
    };
    let key = |at: u8| KEYS[usize::from(at)].to_owned();
    let now = env::now().0;
    match step {
        Step::Txn(compares, ops) => {
            let compares: Vec<Compare> = compares
                .iter()
                .map(|&(at, kind, off)| match kind {
                    0 => Compare::Absent(key(at)),
                    1 => Compare::Present(key(at)),
                    // Often what is there, sometimes what was.
                    _ => {
                        let changed = model.entries.get(&key(at)).map_or(0, |it| it.changed.0);
                        Compare::Unchanged(
                            key(at),
                            Revision(changed.saturating_sub(u64::from(off / 2))),
                        )
                    }
                })
                .collect();
            let mut seen = Vec::new();
            let mut list = Vec::new();
            for &(at, value, lease) in ops {
                if seen.contains(&at) {
                    continue;
                }
                seen.push(at);
                list.push(match value % 4 {
                    0 => Op::Delete { key: key(at) },
                    _ => Op::Put {
                        key: key(at),
                        value: vec![value; usize::from(value % 5)],
                        lease: lease
                            .filter(|_| value % 2 == 0)
                            .map(|at| lease_at(model, at)),
                    },
                });
            }
            let said = meta.txn(compares.clone(), list.clone()).await;
            if !compares.iter().all(|compare| model.holds(compare)) {
                let held = compares
                    .iter()
                    .map(|it| model.entries.get(it.key()).cloned());
                assert_eq!(said.unwrap(), Outcome::Refused(held.collect()));
                return;
            }
            let lost = list.iter().find_map(|op| match op {
                Op::Put {
                    lease: Some(id), ..
                } if !model.alive(*id) => Some(*id),
                _ => None,
            });
            if let Some(id) = lost {
                assert!(matches!(said, Err(MetaError::NoLease { lease, .. }) if lease == id));
                return;
            }
            model.apply(&list);
            assert_eq!(said.unwrap(), Outcome::Done(Revision(model.revision)));
        }
        Step::Get(at) => {
            let expected = model.entries.get(&key(*at)).cloned();
            assert_eq!(meta.get(&key(*at)).await.unwrap(), expected);
        }
        Step::Range(prefix, after, most) => {
            let prefix = PREFIXES[usize::from(*prefix)];
            let after = after.map(key);
            let page = meta.range(prefix, after.as_deref(), *most).await.unwrap();
            let all: Vec<Entry> = model
                .entries
                .values()
                .filter(|it| it.key.starts_with(prefix))
                .filter(|it| after.as_ref().is_none_or(|after| it.key > *after))
                .cloned()
                .collect();
            assert_eq!(page.more, all.len() > *most);
            assert_eq!(page.entries, all[..all.len().min(*most)]);
        }
        Step::Lease(seconds) => {
            // Real time shall not matter: there leases outlast the test.
            let scale = if env::is_simulated() { 1 } else { 3600 };
            let ttl = Nanos::secs(u64::from(*seconds) * scale);
            let id = meta.lease(ttl).await.unwrap();
            assert!(!model.alive(id));
            model.leases.push((id, ttl, now + ttl.0));
        }
        Step::Keep(at) => {
            let id = lease_at(model, *at);
            let said = meta.keep(id).await;
            match model.leases.iter_mut().find(|lease| lease.0 == id) {
                Some((_, ttl, ends)) => {
                    assert_eq!(said.unwrap(), *ttl);
                    *ends = now + ttl.0;
                }
                None => assert!(matches!(said, Err(MetaError::NoLease { .. }))),
            }
        }
        Step::Revoke(at) => {
            let id = lease_at(model, *at);
            let said = meta.revoke(id).await;
            assert_eq!(said.is_ok(), model.alive(id));
            model.end(id);
        }
        Step::Wait(seconds) if env::is_simulated() => {
            env::sleep(Nanos::secs(u64::from(*seconds))).await;
            model.run_out(env::now().0);
        }
        Step::Wait(_) | Step::Restart => {}
    }
}

async fn compare_events(meta: Rc<dyn MetaStore>, expected: Vec<Event>) {
    let Some(first) = expected.first() else {
        return;
    };
    let mut watch = meta.watch("", first.revision()).await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < expected.len() {
        seen.extend(watch.next().await.unwrap());
    }
    assert_eq!(seen, expected);
}

fn new_model() -> Model {
    Model {
        revision: 1,
        ..Model::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_twin_does_what_a_plain_map_does(steps in prop::collection::vec(step(), 1..60), seed: u64) {
        Runtime::simulated(seed).block_on(async move {
            let memory = MemoryMetaStore::new("twin");
            let model = walk(memory.client(), new_model(), steps).await;
            compare_events(memory.client(), model.events).await;
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn the_file_does_what_a_plain_map_does_over_restarts(steps in prop::collection::vec(step(), 1..40)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("meta.redb");
        let mut model = new_model();
        for sitting in steps.split(|step| matches!(step, Step::Restart)) {
            let store = Redb::open(&path).unwrap();
            let (handle, steps) = (store.handle(), sitting.to_vec());
            let before = model.events.len();
            let runtime = Runtime::real(RealConfig::default()).unwrap();
            model = runtime.block_on(async move {
                let model = walk(handle.client(), model, steps).await;
                compare_events(handle.client(), model.events[before..].to_vec()).await;
                model
            });
        }
    }
}
