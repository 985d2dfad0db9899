//! A meta store in memory that fails on demand: the one of simulations and of tests.
//!
//! ```text
//! client --request: delay, loss--> server: one task, one transaction after another, leases by env's clock
//!        <--answer: delay, loss---
//! ```
//!
//! It keeps true time, whatever the clocks of its clients' hosts show. Each client has faults of its own, so that one node can be cut off while others go on. A request that is on its way
//! arrives even if its client is gone.
//!
//! Always true:
//! 1. In virtual time one seed gives the same answers at the same nanoseconds.
//! 2. Requests are carried out in the order they arrive; requests with the same delay in the order they were sent.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use base::{Instant, Nanos};
use env::sync::{Event as Notify, channel};

use super::checked::{Asked, Checked};
use super::state::{Changes, Decision, Memory, State};
use super::{
    Compare, Entry, Event, LeaseId, MetaError, MetaStore, Op, Outcome, Page, Pending, Revision,
    Watch,
};

/// What goes wrong between one client and the store. The default: nothing, and no time passes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Faults {
    /// No connection can be made: everything is [`MetaError::Unavailable`] at once.
    pub refused: bool,
    /// Requests and answers vanish; the client waits for `timeout`, and does not know.
    pub cut: bool,
    /// The least time of a request to the store, and of the answer back.
    pub delay_least: Nanos,
    /// The most.
    pub delay_most: Nanos,
    /// The part of requests that vanish before they reach the store, 0 to 1.
    pub requests_lost: f64,
    /// The part of answers that vanish after the store did what was asked, 0 to 1.
    pub answers_lost: f64,
    /// How long a client waits for an answer.
    pub timeout: Nanos,
}

impl Default for Faults {
    fn default() -> Faults {
        Faults {
            refused: false,
            cut: false,
            delay_least: Nanos(0),
            delay_most: Nanos(0),
            requests_lost: 0.0,
            answers_lost: 0.0,
            timeout: Nanos::secs(5),
        }
    }
}

type Request = Box<dyn FnOnce(&mut State, Instant)>;

struct Inner {
    name: String,
    state: RefCell<State>,
    /// On their way, by when they arrive and when they were sent.
    requests: RefCell<BTreeMap<(Instant, u64), Request>>,
    sent: Cell<u64>,
    /// The server has something new to do.
    todo: Notify,
    /// Something changed, or a client's faults did.
    changed: Notify,
}

/// The store itself. Lives as long as it or one of its clients is held.
///
/// # Example
/// ```
/// use vdisk::meta::{Compare, Faults, MetaError, MetaStore, Op, Outcome, MemoryMetaStore};
/// env::Runtime::simulated(7).block_on(async {
///     let store = MemoryMetaStore::new("memory");
///     let (a, b) = (store.client(), store.client());
///     let put = |value: &str| Op::Put { key: "k".into(), value: value.into(), lease: None };
///     a.set_faults(Faults { answers_lost: 1.0, ..Faults::default() });
///     let lost = a.txn(vec![Compare::Absent("k".into())], vec![put("a")]).await;
///     assert!(matches!(lost, Err(MetaError::Unknown { .. })));
///     // It was done all the same.
///     let refused = b.txn(vec![Compare::Absent("k".into())], vec![put("b")]).await;
///     assert!(matches!(refused, Ok(Outcome::Refused(held)) if held[0].as_ref().unwrap().value == b"a"));
/// });
/// ```
pub struct MemoryMetaStore {
    inner: Rc<Inner>,
    _server: env::CancelOnDrop<()>,
}

/// One node's way to a [`MemoryMetaStore`].
pub struct MemoryMetaClient {
    store: Rc<MemoryMetaStore>,
    link: Rc<Link>,
}

/// What lies between a client, its watches, and the store.
struct Link {
    faults: Cell<Faults>,
    chance: RefCell<env::Rng>,
}

impl Link {
    fn delay(&self) -> Nanos {
        let faults = self.faults.get();
        let spread = faults.delay_most.saturating_sub(faults.delay_least).0;
        faults.delay_least + Nanos(self.chance.borrow_mut().below(spread + 1))
    }

    fn lost(&self, part: f64) -> bool {
        self.faults.get().cut || (part > 0.0 && self.chance.borrow_mut().chance(part))
    }

    fn is_down(&self) -> bool {
        let faults = self.faults.get();
        faults.cut || faults.refused
    }
}

impl MemoryMetaStore {
    /// An empty one, on this thread's runtime; `name` is what errors call it.
    pub fn new(name: &str) -> Rc<MemoryMetaStore> {
        MemoryMetaStore::with_memory(name, Memory::default())
    }

    fn with_memory(name: &str, memory: Memory) -> Rc<MemoryMetaStore> {
        let inner = Rc::new(Inner {
            name: name.to_owned(),
            state: RefCell::new(State::new(memory)),
            requests: RefCell::default(),
            sent: Cell::new(0),
            todo: Notify::default(),
            changed: Notify::default(),
        });
        let server = env::spawn(serve(Rc::clone(&inner)));
        Rc::new(MemoryMetaStore {
            inner,
            _server: env::cancel_scope(server),
        })
    }

    /// A way to the store without faults.
    pub fn client(self: &Rc<Self>) -> Rc<MemoryMetaClient> {
        Rc::new(MemoryMetaClient {
            store: Rc::clone(self),
            link: Rc::new(Link {
                faults: Cell::default(),
                chance: RefCell::new(env::rng("meta twin client")),
            }),
        })
    }

    /// Forgets the changes before a revision: a watch from there fails with [`MetaError::Compacted`].
    pub fn compact(&self, before: Revision) {
        self.inner.state.borrow_mut().compact(before);
        self.inner.changed.notify_all();
    }

    /// As after a restart of the store: each lease has its whole time again, all changes so far are forgotten.
    pub fn restart(&self) {
        self.inner.state.borrow_mut().restart(env::true_now());
        self.inner.todo.notify_all();
        self.inner.changed.notify_all();
    }

    /// The transactions done so far.
    pub fn revision(&self) -> Revision {
        self.inner.state.borrow().revision()
    }
}

/// Works whenever something arrives or ends, each at its moment.
async fn serve(inner: Rc<Inner>) {
    loop {
        let notified = inner.todo.wait();
        match inner.work(env::true_now()) {
            None => notified.await,
            Some(next) => {
                let _ = env::timeout(next.since(env::true_now()), notified).await;
            }
        }
    }
}

impl Inner {
    /// Ends leases and carries out what has arrived; when there is more to do.
    fn work(&self, now: Instant) -> Option<Instant> {
        let mut state = self.state.borrow_mut();
        let before = state.revision();
        for lease in state.run_out(now) {
            state.revoke(lease);
        }
        let arrived = {
            let mut requests = self.requests.borrow_mut();
            let later = requests.split_off(&(now + Nanos(1), 0));
            std::mem::replace(&mut *requests, later)
        };
        for request in arrived.into_values() {
            request(&mut state, now);
        }
        if state.revision() > before {
            self.changed.notify_all();
        }
        let next_request = self.requests.borrow().keys().next().map(|(at, _)| *at);
        state.next_end().into_iter().chain(next_request).min()
    }
}

impl MemoryMetaClient {
    /// What goes wrong from now on. An answer that is on its way meets the faults there are when it arrives.
    pub fn set_faults(&self, faults: Faults) {
        self.link.faults.set(faults);
        self.store.inner.changed.notify_all();
    }

    /// What goes wrong at present.
    pub fn faults(&self) -> Faults {
        self.link.faults.get()
    }

    /// The store that it leads to.
    pub fn store(&self) -> &Rc<MemoryMetaStore> {
        &self.store
    }

    /// One request and its answer. `changes`: is it unknown what happened if no answer comes?
    async fn ask<T: 'static>(
        &self,
        asked: Asked<'_>,
        changes: bool,
        run: impl FnOnce(&mut State, Instant) -> T + 'static,
    ) -> Result<T, MetaError> {
        let inner = &self.store.inner;
        let link = &self.link;
        let faults = link.faults.get();
        let fail = |known: bool, why: String| {
            let (store, asked) = (inner.name.clone(), asked.to_string());
            if known {
                MetaError::Unavailable { store, asked, why }
            } else {
                MetaError::Unknown { store, asked, why }
            }
        };
        if faults.refused {
            return Err(fail(true, "the connection is refused".to_owned()));
        }
        let (reply, mut answer) = channel();
        if !link.lost(faults.requests_lost) {
            let at = env::true_now() + link.delay();
            let sent = inner.sent.get();
            inner.sent.set(sent + 1);
            let request: Request = Box::new(move |state, now| {
                // The client that asked may be gone.
                let _ = reply.send(run(state, now));
            });
            inner.requests.borrow_mut().insert((at, sent), request);
            inner.todo.notify_all();
        }
        let exchange = async {
            if let Ok(result) = answer.receive().await {
                env::sleep(link.delay()).await;
                if !link.lost(link.faults.get().answers_lost) {
                    return result;
                }
            }
            std::future::pending().await
        };
        env::timeout(faults.timeout, exchange)
            .await
            .map_err(|elapsed| fail(!changes, elapsed.to_string()))
    }

    fn checked<'a>(&'a self, asked: Asked<'a>) -> Checked<'a> {
        Checked {
            store: &self.store.inner.name,
            asked,
        }
    }

    fn no_lease(&self, lease: LeaseId) -> MetaError {
        MetaError::NoLease {
            store: self.store.inner.name.clone(),
            lease,
        }
    }
}

impl MetaStore for MemoryMetaClient {
    fn get<'a>(&'a self, key: &'a str) -> Pending<'a, Option<Entry>> {
        Box::pin(async move {
            let asked = Asked::Get(key);
            self.checked(asked).key(key)?;
            let key = key.to_owned();
            self.ask(asked, false, move |state, _| state.get(&key))
                .await
        })
    }

    fn range<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        most: usize,
    ) -> Pending<'a, Page> {
        Box::pin(async move {
            let asked = Asked::Range(prefix);
            let most = self.checked(asked).page(prefix, most)?;
            let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
            let read = move |state: &mut State, _| state.range(&prefix, after.as_deref(), most);
            self.ask(asked, false, read).await
        })
    }

    fn txn(&self, compares: Vec<Compare>, ops: Vec<Op>) -> Pending<'_, Outcome> {
        Box::pin(async move {
            let asked = Asked::Txn(&compares, &ops);
            self.checked(asked).txn(&compares, &ops)?;
            let (compares_there, ops_there) = (compares.clone(), ops.clone());
            let decide = move |state: &mut State, _| state.txn(&compares_there, ops_there);
            match self.ask(asked, true, decide).await? {
                Decision::Refused(held) => Ok(Outcome::Refused(held)),
                Decision::NoLease(lease) => Err(self.no_lease(lease)),
                Decision::Done(revision, _) => Ok(Outcome::Done(revision)),
            }
        })
    }

    fn watch<'a>(&'a self, prefix: &'a str, from: Revision) -> Pending<'a, Box<dyn Watch>> {
        Box::pin(async move {
            let asked = Asked::Watch(prefix);
            self.checked(asked).prefix(prefix)?;
            self.ask(asked, false, |_, _| ()).await?;
            let watch: Box<dyn Watch> = Box::new(MemoryMetaWatch {
                store: Rc::clone(&self.store),
                link: Rc::clone(&self.link),
                prefix: prefix.to_owned(),
                from,
                over: None,
            });
            Ok(watch)
        })
    }

    fn lease(&self, ttl: Nanos) -> Pending<'_, LeaseId> {
        Box::pin(async move {
            self.checked(Asked::Lease).ttl(ttl)?;
            let take = move |state: &mut State, now| state.lease(ttl, now);
            self.ask(Asked::Lease, false, take).await
        })
    }

    fn keep(&self, lease: LeaseId) -> Pending<'_, Nanos> {
        Box::pin(async move {
            let keep = move |state: &mut State, now| state.keep(lease, now);
            let kept = self.ask(Asked::Keep, false, keep).await?;
            kept.ok_or_else(|| self.no_lease(lease))
        })
    }

    fn revoke(&self, lease: LeaseId) -> Pending<'_, ()> {
        Box::pin(async move {
            let end = move |state: &mut State, _| state.revoke(lease).map(drop);
            let ended = self.ask(Asked::Revoke, true, end).await?;
            ended.ok_or_else(|| self.no_lease(lease))
        })
    }
}

// --- watches ------------------------------------------------------------------------------------------

struct MemoryMetaWatch {
    store: Rc<MemoryMetaStore>,
    /// Its client's: while that is cut off, nothing comes.
    link: Rc<Link>,
    prefix: String,
    /// Everything before was handed out.
    from: Revision,
    /// The oldest revision there was when ours was forgotten.
    over: Option<Revision>,
}

impl MemoryMetaWatch {
    async fn wait(&mut self) -> Result<Vec<Event>, MetaError> {
        let inner = &self.store.inner;
        loop {
            if let Some(oldest) = self.over {
                return Err(MetaError::Compacted {
                    store: inner.name.clone(),
                    oldest,
                });
            }
            let notified = inner.changed.wait();
            if self.link.is_down() {
                notified.await;
                continue;
            }
            let changes = inner.state.borrow().changes(&self.prefix, self.from);
            match changes {
                Changes::Forgotten(oldest) => self.over = Some(oldest),
                Changes::Found(events, next) if events.is_empty() => {
                    self.from = next;
                    notified.await;
                }
                Changes::Found(events, next) => {
                    env::sleep(self.link.delay()).await;
                    if !self.link.is_down() {
                        self.from = next;
                        return Ok(events);
                    }
                }
            }
        }
    }
}

impl Watch for MemoryMetaWatch {
    fn next(&mut self) -> Pending<'_, Vec<Event>> {
        Box::pin(self.wait())
    }
}
