//! Records of reservations in the meta store, read and changed.
//!
//! Always true: a swap whose answer was lost is asked again until it is known, or the answer says that it is not.

use std::rc::Rc;

use base::Nanos;
use vdisk::meta::{
    Compare, Entry, MetaError, MetaStore, Op, Outcome, Revision, TxnPart, whole_range,
};

use crate::error::ReservationError;
use crate::record::{PREFIX, Reservation, ReservationId, Target, name_key};

/// How often a transaction without an answer is asked again.
const TRIES: u32 = 5;
/// Between two of them.
const AGAIN: Nanos = Nanos::millis(200);

/// A record, and the transaction that wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versioned {
    /// Whose it is.
    pub id: ReservationId,
    /// What it says.
    pub record: Reservation,
    /// Since when.
    pub changed: Revision,
}

/// A record as an entry has it; one that cannot be read is logged, and hides no other.
pub(crate) fn read(entry: &Entry) -> Option<Versioned> {
    let record = Reservation::decode(&entry.key, &entry.value);
    match (ReservationId::parse(&entry.key), record) {
        (Some(id), Ok(record)) => Some(Versioned {
            id,
            record,
            changed: entry.changed,
        }),
        (None, _) => {
            tracing::warn!(key = entry.key, "this is the key of no reservation");
            None
        }
        (_, Err(error)) => {
            tracing::warn!(%error, "a reservation is left alone");
            None
        }
    }
}

/// What became of a swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swapped {
    /// The record is as wanted.
    Done,
    /// It, or what was compared beside it, had changed.
    Not,
}

/// The records. Cheap to clone.
#[derive(Clone)]
pub struct Records(pub Rc<dyn MetaStore>);

impl Records {
    /// One of them.
    ///
    /// # Errors
    /// [`ReservationError::Meta`], [`ReservationError::Record`].
    pub async fn get(&self, id: ReservationId) -> Result<Option<Versioned>, ReservationError> {
        let key = id.key();
        let Some(entry) = self.0.get(&key).await? else {
            return Ok(None);
        };
        Ok(Some(Versioned {
            id,
            record: Reservation::decode(&key, &entry.value)?,
            changed: entry.changed,
        }))
    }

    /// All that can be read. One that cannot is logged, and hides no other.
    ///
    /// # Errors
    /// [`ReservationError::Meta`].
    pub async fn all(&self) -> Result<Vec<Versioned>, ReservationError> {
        let (entries, _) = whole_range(&*self.0, PREFIX).await?;
        Ok(entries.iter().filter_map(read).collect())
    }

    /// The reservation of this name that is not over.
    ///
    /// # Errors
    /// As for [`Records::get`].
    pub async fn find(
        &self,
        account: &str,
        name: &str,
    ) -> Result<Option<Versioned>, ReservationError> {
        let entry = self.0.get(&name_key(account, name)).await?;
        let text = entry
            .as_ref()
            .and_then(|it| std::str::from_utf8(&it.value).ok());
        match text.and_then(ReservationId::parse) {
            Some(id) => self.get(id).await,
            None => Ok(None),
        }
    }

    /// Makes what is decided about a target by all records wait for other such decisions: of two that read the records side
    /// by side one is done and one is not.
    ///
    /// # Errors
    /// [`ReservationError::Meta`].
    pub async fn one_at_a_time(
        &self,
        target: &Target,
        id: ReservationId,
    ) -> Result<TxnPart, ReservationError> {
        let Some(key) = target.key() else {
            return Ok(TxnPart::default());
        };
        let changed = self.0.get(&key).await?.map(|it| it.changed);
        Ok(TxnPart {
            compares: vec![Compare::Unchanged(key.clone(), changed.unwrap_or_default())],
            ops: vec![Op::put(key, id.to_string().into_bytes())],
        })
    }

    /// Puts a new record under its name. [`Swapped::Not`]: the name is taken, or what was compared beside it had changed.
    ///
    /// # Errors
    /// [`ReservationError::Meta`]; then it may be there yet, with nothing held.
    pub async fn put_new(
        &self,
        id: ReservationId,
        record: &Reservation,
        beside: TxnPart,
    ) -> Result<Swapped, ReservationError> {
        let name = name_key(&record.account, &record.name);
        let mut compares = vec![Compare::Absent(id.key()), Compare::Absent(name.clone())];
        compares.extend(beside.compares);
        let mut ops = vec![
            Op::put(name, id.to_string().into_bytes()),
            Op::put(id.key(), record.encode()),
        ];
        ops.extend(beside.ops);
        self.txn(id, record, compares, ops).await
    }

    /// Changes a record as it was read, and `beside` with it.
    ///
    /// # Errors
    /// [`ReservationError::Meta`]: [`MetaError::Unknown`] if it may have been done or may be yet.
    pub async fn swap(
        &self,
        known: &Versioned,
        record: &Reservation,
        beside: TxnPart,
    ) -> Result<Swapped, ReservationError> {
        let mut compares = vec![Compare::Unchanged(known.id.key(), known.changed)];
        compares.extend(beside.compares);
        let mut ops = vec![Op::put(known.id.key(), record.encode())];
        ops.extend(beside.ops);
        if known.record.over_since.is_none() && record.over_since.is_some() {
            // The name is free for another one, from this step on: later ones may be another's.
            let key = name_key(&record.account, &record.name);
            ops.push(Op::Delete { key });
        }
        self.txn(known.id, record, compares, ops).await
    }

    /// Forgets a record that is over.
    ///
    /// # Errors
    /// [`ReservationError::Meta`].
    pub async fn forget(&self, known: &Versioned) -> Result<(), ReservationError> {
        let key = known.id.key();
        let compares = vec![Compare::Unchanged(key.clone(), known.changed)];
        self.0.txn(compares, vec![Op::Delete { key }]).await?;
        Ok(())
    }

    /// One transaction that ends with `record`; asked again where no answer came.
    async fn txn(
        &self,
        id: ReservationId,
        record: &Reservation,
        compares: Vec<Compare>,
        ops: Vec<Op>,
    ) -> Result<Swapped, ReservationError> {
        let mut unknown: Option<MetaError> = None;
        for _ in 0..TRIES {
            match self.0.txn(compares.clone(), ops.clone()).await {
                Ok(Outcome::Done(_)) => return Ok(Swapped::Done),
                Ok(Outcome::Refused(_)) if unknown.is_none() => return Ok(Swapped::Not),
                // Perhaps because the one before, whose answer was lost, was done.
                Ok(Outcome::Refused(_)) => {
                    let now = self.get(id).await?;
                    return Ok(match now.is_some_and(|it| it.record == *record) {
                        true => Swapped::Done,
                        false => Swapped::Not,
                    });
                }
                Err(error @ MetaError::Unknown { .. }) => unknown = Some(error),
                Err(MetaError::Unavailable { .. }) if unknown.is_some() => {}
                Err(error) => return Err(error.into()),
            }
            env::sleep(AGAIN).await;
        }
        Err(unknown.expect("else it was answered").into())
    }
}

/// Waits a while before what another change came before is tried again.
pub(crate) async fn again(tried: u64) {
    let wait = env::rng("again").below(10 * tried);
    env::sleep(Nanos::millis(1 + wait.min(200))).await;
}
