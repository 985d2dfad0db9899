//! The ways of other threads to the file's thread.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use base::Nanos;
use env::Poster;
use tokio::sync::{oneshot, watch};

use super::thread::{Command, Job, Work};
use crate::meta::checked::{Asked, Checked};
use crate::meta::state::{Changes, Decision};
use crate::meta::{
    Compare, Entry, Event, LeaseId, MetaError, MetaStore, Op, Outcome, Page, Pending, Revision,
    Watch,
};

/// The way to a [`Redb`](super::Redb) from any thread.
#[derive(Clone)]
pub struct RedbHandle {
    name: Arc<str>,
    poster: Poster<Command>,
    /// The revision that is durable; for watches that wait.
    durable: watch::Receiver<u64>,
}

/// One thread's way to a [`Redb`](super::Redb).
struct Client {
    handle: RedbHandle,
}

impl RedbHandle {
    pub(super) fn new(
        path: &Path,
        poster: Poster<Command>,
        durable: watch::Receiver<u64>,
    ) -> RedbHandle {
        RedbHandle {
            name: path.display().to_string().into(),
            poster,
            durable,
        }
    }

    /// Has the file closed once all that was asked before is done.
    pub(super) fn close(&self) {
        let _ = self.poster.post(Command::Close);
    }

    /// The store, for the thread that calls.
    pub fn client(&self) -> Rc<dyn MetaStore> {
        Rc::new(Client {
            handle: self.clone(),
        })
    }

    /// One command and its answer. `changes`: is it unknown what happened if the commit fails?
    async fn ask<T: Send + 'static>(
        &self,
        asked: Asked<'_>,
        changes: bool,
        run: impl FnOnce(&mut Work) -> T + Send + 'static,
    ) -> Result<T, MetaError> {
        let (reply, answer) = oneshot::channel::<Result<T, String>>();
        let job: Job = Box::new(move |work| {
            let result = run(work);
            work.answers.push(Box::new(move |failed| {
                // The client that asked may be gone.
                let _ = reply.send(match failed {
                    None => Ok(result),
                    Some(why) => Err(why.to_owned()),
                });
            }));
        });
        let closed = || "it is closed".to_owned();
        let (why, unknown) = match self.poster.post(Command::Job(job)) {
            Err(_) => (closed(), false),
            Ok(()) => match answer.await {
                Ok(Ok(result)) => return Ok(result),
                Ok(Err(why)) => (why, changes),
                Err(_) => (closed(), false),
            },
        };
        let (store, asked) = (self.name.to_string(), asked.to_string());
        Err(if unknown {
            MetaError::Unknown { store, asked, why }
        } else {
            MetaError::Unavailable { store, asked, why }
        })
    }

    fn checked<'a>(&'a self, asked: Asked<'a>) -> Checked<'a> {
        Checked {
            store: &self.name,
            asked,
        }
    }

    fn no_lease(&self, lease: LeaseId) -> MetaError {
        MetaError::NoLease {
            store: self.name.to_string(),
            lease,
        }
    }
}

impl MetaStore for Client {
    fn get<'a>(&'a self, key: &'a str) -> Pending<'a, Option<Entry>> {
        Box::pin(async move {
            let asked = Asked::Get(key);
            self.handle.checked(asked).key(key)?;
            let key = key.to_owned();
            let read = move |work: &mut Work| work.state.get(&key);
            self.handle.ask(asked, false, read).await
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
            let most = self.handle.checked(asked).page(prefix, most)?;
            let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
            let read = move |work: &mut Work| work.state.range(&prefix, after.as_deref(), most);
            self.handle.ask(asked, false, read).await
        })
    }

    fn txn(&self, compares: Vec<Compare>, ops: Vec<Op>) -> Pending<'_, Outcome> {
        Box::pin(async move {
            let asked = Asked::Txn(&compares, &ops);
            self.handle.checked(asked).txn(&compares, &ops)?;
            let (compares_there, ops_there) = (compares.clone(), ops.clone());
            let decide = move |work: &mut Work| match work.state.txn(&compares_there, ops_there) {
                Decision::Refused(held) => Ok(Outcome::Refused(held)),
                Decision::NoLease(lease) => Err(lease),
                Decision::Done(revision, events) => {
                    work.note(events);
                    Ok(Outcome::Done(revision))
                }
            };
            let decided = self.handle.ask(asked, true, decide).await?;
            decided.map_err(|lease| self.handle.no_lease(lease))
        })
    }

    fn watch<'a>(&'a self, prefix: &'a str, from: Revision) -> Pending<'a, Box<dyn Watch>> {
        Box::pin(async move {
            let asked = Asked::Watch(prefix);
            self.handle.checked(asked).prefix(prefix)?;
            self.handle.ask(asked, false, |_| ()).await?;
            let watch: Box<dyn Watch> = Box::new(FileWatch {
                handle: self.handle.clone(),
                prefix: prefix.to_owned(),
                from,
                over: None,
            });
            Ok(watch)
        })
    }

    fn lease(&self, ttl: Nanos) -> Pending<'_, LeaseId> {
        Box::pin(async move {
            self.handle.checked(Asked::Lease).ttl(ttl)?;
            let take = move |work: &mut Work| {
                let id = work.state.lease(ttl, work.now);
                work.leases.insert(id, Some(ttl));
                id
            };
            self.handle.ask(Asked::Lease, false, take).await
        })
    }

    fn keep(&self, lease: LeaseId) -> Pending<'_, Nanos> {
        Box::pin(async move {
            let keep = move |work: &mut Work| work.state.keep(lease, work.now);
            let kept = self.handle.ask(Asked::Keep, false, keep).await?;
            kept.ok_or_else(|| self.handle.no_lease(lease))
        })
    }

    fn revoke(&self, lease: LeaseId) -> Pending<'_, ()> {
        Box::pin(async move {
            let end = move |work: &mut Work| work.end_lease(lease);
            let ended = self.handle.ask(Asked::Revoke, true, end).await?;
            ended
                .then_some(())
                .ok_or_else(|| self.handle.no_lease(lease))
        })
    }
}

struct FileWatch {
    handle: RedbHandle,
    prefix: String,
    /// Everything before was handed out.
    from: Revision,
    /// The oldest revision there was when ours was forgotten.
    over: Option<Revision>,
}

impl FileWatch {
    async fn wait(&mut self) -> Result<Vec<Event>, MetaError> {
        loop {
            if let Some(oldest) = self.over {
                return Err(MetaError::Compacted {
                    store: self.handle.name.to_string(),
                    oldest,
                });
            }
            let (prefix, from) = (self.prefix.clone(), self.from);
            let look = move |work: &mut Work| work.state.changes(&prefix, from);
            let asked = Asked::Watch(&self.prefix);
            match self.handle.ask(asked, false, look).await? {
                Changes::Forgotten(oldest) => self.over = Some(oldest),
                Changes::Found(events, next) => {
                    self.from = next;
                    if !events.is_empty() {
                        return Ok(events);
                    }
                    // An error says that the thread is gone; the next call says so.
                    let _ = self.handle.durable.wait_for(|now| *now >= next.0).await;
                }
            }
        }
    }
}

impl Watch for FileWatch {
    fn next(&mut self) -> Pending<'_, Vec<Event>> {
        Box::pin(self.wait())
    }
}
