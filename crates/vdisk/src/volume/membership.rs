//! Which stores leave the in-sync set, and when may they not?
//!
//! Always true:
//! 1. A store leaves the in-sync set with a generation before every change it may have missed.
//! 2. None leaves that has the last in-sync copy of something; nodes of the map are written elsewhere first.

use std::cell::Cell;
use std::rc::Rc;

use super::commit::MapIo;

use replication::membership::{self, Shrunk};

use super::error::VolumeError;
#[cfg(test)]
use super::life::Mutation;
use super::node_io::NodeIo;
use super::record_io::RecordIo;
use super::state::Core;
use crate::names::{Generation, StoreNumber};
use crate::record::VolumeRecord;
use crate::replica::connect::ConnectionError;

/// Takes stores out of the in-sync set.
#[derive(Clone, Copy)]
pub(super) struct Membership<'a> {
    core: &'a Rc<Core>,
}

impl<'a> Membership<'a> {
    pub fn of(core: &'a Rc<Core>) -> Membership<'a> {
        Membership { core }
    }

    /// Puts stores that may have missed a change out, in the record. `false`: one of them has the last in-sync copy of some
    /// extent, and nothing was done.
    pub(super) async fn shrink_set(self, numbers: &[StoreNumber]) -> Result<bool, VolumeError> {
        self.spare_nodes(numbers).await?;
        #[cfg(test)]
        let skip_swap = self.core.mutated(Mutation::AnswerBeforeSwap);
        #[cfg(not(test))]
        let skip_swap = false;
        let shrunk = Cell::new(Shrunk::Nothing);
        let change = |record: &mut VolumeRecord| {
            let floor =
                |record: &VolumeRecord, newly| self.core.redundancy_floor_after(record, newly);
            let since = self.core.replication.borrow().out_since(record);
            shrunk.set(membership::shrink(record, numbers, since, floor));
            Ok(shrunk.get() == Shrunk::Out)
        };
        match skip_swap {
            true => drop(change(&mut self.core.volume_record().clone())),
            false => RecordIo::of(self.core).change_record(change).await?,
        }
        if shrunk.get() == Shrunk::LastCopy {
            return Ok(false);
        }
        for replica in numbers
            .iter()
            .filter_map(|number| self.core.replicas.get(*number))
        {
            RecordIo::of(self.core).leave_set(replica);
        }
        Ok(true)
    }

    /// Has nodes of which these stores have the last in-sync copies written elsewhere, where extents can do without them.
    async fn spare_nodes(self, numbers: &[StoreNumber]) -> Result<(), VolumeError> {
        let mut out = self.core.volume_record().out.clone();
        out.extend(numbers.iter().map(|number| (*number, Generation(0))));
        if self.core.maps.nodes.redundancy_floor(&out) == Some(0)
            && NodeIo::of(self.core).renew_thin_nodes(&out, 1).await?
        {
            match MapIo::of(self.core).commit().await {
                Err(error) if !error.passes() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) async fn give_up(self, store: StoreNumber) -> Result<bool, VolumeError> {
        let Some(replica) = self.core.replicas.get(store).filter(|it| it.is_needed()) else {
            return Ok(true);
        };
        // A connection that just broke may be there again in a moment.
        let (until, mut tries) = (env::now() + self.core.settings.timeout, 0);
        while replica.connection().is_none() && env::now() < until {
            self.core.usable()?;
            self.core.pause(&mut tries).await;
        }
        if let Some(connection) = replica.connection() {
            match self.core.within(connection.space()).await {
                Ok(_) => return Ok(false),
                Err(ConnectionError::Fenced { why, .. }) => return Err(self.core.fence(why)),
                Err(error) if error.ends_connection() => replica.lose(&connection, false),
                Err(_) => {}
            }
        }
        self.shrink_set(&[store]).await
    }
}
