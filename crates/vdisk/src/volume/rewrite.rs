//! One copy's bytes from the others, page by page where there is damage.
//!
//! Always true: a page is written over with what an in-sync copy of the same object has, or not at all.

use std::ops::Range;
use std::rc::Rc;

use base::{Buf, View};
use store::Change;

use super::copies::{CHUNK, Copies, Copy, CopyError, PAGE};
use super::extent::ExtentEntry;
use super::pieces::ExtentRange;
use super::replica::{Replica, SyncState};
use super::state::Core;
use crate::names::StoreNumber;
use crate::replica::connect::{Connection, ConnectionError};

/// What became of a stretch of one copy.
#[derive(Default)]
pub(super) struct Rewritten {
    pub bytes: u64,
    /// Pages that no other copy has.
    pub lost: Vec<(u64, Lost)>,
}

/// Why no in-sync copy has a page.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Lost {
    pub why: String,
    /// No store that is out may have it.
    pub surely: bool,
}

/// A stretch of one store's copy that is to be written anew.
pub(super) struct Stretch {
    pub range: Range<u64>,
    /// What lies behind the end of the other copies are zeroes.
    pub to_its_end: bool,
}

/// Writes stretches of one copy anew from the others.
#[derive(Clone, Copy)]
pub(super) struct Rewrite<'a> {
    core: &'a Rc<Core>,
}

impl<'a> Rewrite<'a> {
    pub fn of(core: &'a Rc<Core>) -> Rewrite<'a> {
        Rewrite { core }
    }

    /// Writes a stretch of one copy anew, from the others.
    pub(super) async fn copy_over(
        self,
        placed: &ExtentEntry,
        replica: &Replica,
        change: Change,
        stretch: Stretch,
    ) -> Result<Rewritten, CopyError> {
        let mut done = Rewritten::default();
        let numbers = placed.stores();
        let mut others: Vec<Copy<'_>> = Vec::new();
        let gone = |it: &Replica| {
            let why = format!("there is no link to store {}", it.info.name);
            CopyError::From(ConnectionError::Gone(why))
        };
        let connection = replica.connection().ok_or_else(|| gone(replica))?;
        for other in self.core.replicas.needed(&numbers) {
            if other.info.number != replica.info.number {
                others.push((other, other.connection().ok_or_else(|| gone(other))?));
            }
        }
        let Range { start: mut at, end } = stretch.range;
        // Below this it goes page by page.
        let mut fine = at;
        while at < end {
            let most = if at < fine { PAGE } else { CHUNK };
            let len = most.min(end - at).min(self.core.replicas.write_max.get());
            match self.read_whole(&placed.object, &others, at, len).await {
                Ok(data) if data.is_empty() && !stretch.to_its_end => break,
                Ok(data) => {
                    let data = padded(data, len, stretch.to_its_end);
                    let write = connection.write(&placed.object, at, data, change);
                    let written = Copies::of(self.core)
                        .change_at(replica, &connection, write)
                        .await;
                    written.map_err(CopyError::To)?;
                    done.bytes += len;
                }
                // What is wrong is wrong with some page of it.
                Err(_) if len > PAGE => {
                    fine = at + len;
                    continue;
                }
                Err(ConnectionError::Damaged(why)) => {
                    if !self
                        .reads_well_now(replica, &connection, placed, (at, len), change)
                        .await?
                    {
                        done.lost.push((at, self.why_lost(&numbers, why)));
                    } else {
                        done.bytes += len;
                    }
                }
                Err(error) => return Err(CopyError::From(error)),
            }
            at += len;
        }
        Ok(done)
    }

    /// A page that no other copy has, and that was noted as damaged, may be read rightly after all: the read may have failed for
    /// a while. Written over with itself it counts as whole.
    async fn reads_well_now(
        self,
        replica: &Replica,
        connection: &Rc<dyn Connection>,
        placed: &ExtentEntry,
        (at, len): (u64, u64),
        change: Change,
    ) -> Result<bool, CopyError> {
        let Ok(data) = self
            .core
            .within(connection.read(&placed.object, at, len))
            .await
        else {
            return Ok(false);
        };
        if data.is_empty() {
            return Ok(false);
        }
        let data = padded(data.freeze(), len, true);
        let write = connection.write(&placed.object, at, data, change);
        let written = Copies::of(self.core)
            .change_at(replica, connection, write)
            .await;
        written.map(|()| true).map_err(CopyError::To)
    }

    /// Why a page is on no in-sync copy, and whether one that is out may have it.
    fn why_lost(self, numbers: &[StoreNumber], why: String) -> Lost {
        let out = numbers
            .iter()
            .filter_map(|one| self.core.replicas.get(*one));
        let mut out =
            out.filter(|it| !it.is_needed() && !self.core.replicas.has_left(it.info.number));
        match out.next() {
            Some(replica) => Lost {
                why: format!(
                    "waits for store {}, which is out of sync: {why}",
                    replica.info.name
                ),
                surely: false,
            },
            None => Lost { why, surely: true },
        }
    }

    /// From the first of `copies` that has all of it. [`ConnectionError::Damaged`]: none of them has, and each said so.
    async fn read_whole(
        self,
        object: &str,
        copies: &[Copy<'_>],
        at: u64,
        len: u64,
    ) -> Result<View, ConnectionError> {
        let mut failed = ConnectionError::Damaged("no other copy is in sync".to_owned());
        for (_, connection) in copies {
            match self.core.within(connection.read(object, at, len)).await {
                Ok(data) => return Ok(data.freeze()),
                Err(error @ ConnectionError::Damaged(_)) => {
                    if matches!(failed, ConnectionError::Damaged(_)) {
                        failed = error;
                    }
                }
                // Clients use the connection, too: it is for them to find out whether it is of use.
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Each copy has damage somewhere in the piece: page by page from any that has the page.
    pub(super) async fn read_by_pages(
        self,
        placed: &ExtentEntry,
        piece: ExtentRange,
    ) -> Result<Buf, ConnectionError> {
        let numbers = placed.stores();
        let in_sync = |it: &&Replica| it.sync_state() == SyncState::InSync;
        let replicas = numbers
            .iter()
            .filter_map(|number| self.core.replicas.get(*number));
        let copies: Vec<Copy<'_>> = (replicas.filter(in_sync))
            .filter_map(|replica| Some((replica, replica.connection()?)))
            .collect();
        let mut whole = Buf::zeroed(piece.len as usize);
        let end = piece.from + piece.len;
        let mut at = piece.from;
        while at < end {
            let len = (PAGE - at % PAGE).min(end - at);
            let data = self.read_whole(&placed.object, &copies, at, len).await?;
            let from = (at - piece.from) as usize;
            whole[from..from + data.len()].copy_from_slice(&data);
            at += len;
        }
        Ok(whole)
    }
}

/// With zeroes behind it, up to `len`, if that is wanted.
fn padded(data: View, len: u64, wanted: bool) -> View {
    if !wanted || data.len() as u64 == len {
        return data;
    }
    let mut whole = Buf::zeroed(len as usize);
    whole[..data.len()].copy_from_slice(&data);
    whole.freeze()
}
