//! Reservations that accounts make at this daemon's stores, store by store: each counts against its account's quota, belongs to
//! that account alone, and ends with it.
//!
//! ```text
//! charge (meta store) -> hold and commit at the stores -> answer
//!                            \-> refused: given back
//! every 3 s:    its account is off or deleted -> released at all stores, given back
//! every minute: charged at these stores, and not there -> given back: a crash came between, or the meta store was silent
//! ```
//!
//! A reservation's identity is that of its group: half of the first store's, which says whose charges a daemon looks after, and
//! half by chance.
//!
//! Always true:
//! 1. What a reservation takes is charged before a store is asked, and given back when no store has it any more: whole if
//!    it was never made, else without what was promised until then.
//! 2. A reservation belongs to an account whose usage has its identity: not to a later account of the name.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use access::charge::{QuotaError, charge_alone, is_on, refund_alone, take_back_alone};
use access::name::AccountName;
use access::quota::Commitment;
use access::registry::{AccessError, Registry};
use axum::http::StatusCode;
use policy::share::Slot;

use super::booking::Stores;
use super::cluster_thread::ClusterThread;
use super::control::{Control, Failure};
use super::release::end;
use crate::api::store::{Reservation, ReserveAsk};
use crate::daemon::common::secrets;
use crate::daemon::common::when::unix_seconds;

/// Between two looks at the accounts of reservations.
const EVERY: Duration = Duration::from_secs(3);
/// Charges are looked at every so many times.
const LOST_EVERY: u64 = 20;

/// The reservations of accounts at this daemon's stores.
#[derive(Clone, Copy)]
pub(super) struct Charged<'a>(pub &'a Control);

/// Those that are being made, and those that were.
#[derive(Default)]
pub struct Making(Mutex<Made>);

#[derive(Default)]
struct Made {
    /// Charged, and perhaps not at their stores yet.
    making: BTreeSet<u128>,
    /// Seen at their stores, since this daemon was started.
    stood: BTreeSet<u128>,
}

/// For whom a reservation is made.
#[derive(Debug, Clone)]
pub struct Payer {
    pub account: AccountName,
    /// Which one of the name, where the caller is that.
    pub id: Option<u64>,
}

/// What a reservation that is at no store took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// It was never made.
    Never,
    /// It ends now: what was promised until here was taken.
    UntilNow,
}

/// One of them, until this is dropped.
pub(super) struct BeingMade<'a>(&'a Making, u128);

impl Making {
    pub(super) fn begin(&self, id: u128) -> BeingMade<'_> {
        self.with(|all| all.making.insert(id));
        BeingMade(self, id)
    }

    /// It is at its stores.
    pub(super) fn stands(&self, id: u128) {
        self.with(|all| all.stood.insert(id));
    }

    /// What was taken by one that is charged until `until`, and at no store at `now`?
    fn taken(&self, id: u128, until: u64, now: u64) -> Taken {
        match self.with(|all| all.stood.contains(&id)) || until <= now {
            true => Taken::UntilNow,
            false => Taken::Never,
        }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Made) -> T) -> T {
        // It is whole between any two operations.
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for BeingMade<'_> {
    fn drop(&mut self) {
        self.0.with(|all| all.making.remove(&self.1));
    }
}

/// A new identity of a reservation whose first store is `uuid`.
///
/// # Errors
/// The system gives no randomness.
pub(super) fn fresh_id(uuid: u128) -> Result<u128, Failure> {
    let random = secrets::fresh().map_err(|error| {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Failure::new(status, error.to_string(), "try again")
    })?;
    let random: [u8; 8] = *random.first_chunk().expect("32 bytes");
    Ok(half(uuid) << 64 | u128::from(u64::from_le_bytes(random)))
}

fn half(uuid: u128) -> u128 {
    uuid >> 64
}

/// The identity of a reservation, as it is shown.
pub(super) fn id_of(it: &Reservation) -> Option<u128> {
    u128::from_str_radix(it.group.as_ref()?, 16).ok()
}

/// What a reservation takes of its account's quota: at each of its stores as much. It begins now at the earliest.
pub(super) fn commitment(asked: &ReserveAsk, slot: Slot, id: u128) -> Commitment {
    let stores = asked.stores.len() as u64;
    Commitment {
        id,
        rate: asked.rate_bytes_per_second.saturating_mul(stores),
        from: slot.start.0.max(now().min(slot.end.0.saturating_sub(1))),
        until: slot.end.0,
        space: asked.space_bytes.saturating_mul(stores),
    }
}

fn now() -> u64 {
    unix_seconds() as u64
}

/// The accounts cannot be asked.
fn unknown(why: &impl std::fmt::Display) -> Failure {
    let todo = "the daemon's owner and root go on; look at the daemon's log and the meta store, and try again";
    Failure::new(StatusCode::SERVICE_UNAVAILABLE, why.to_string(), todo)
}

fn refused(error: &QuotaError) -> Failure {
    let status = match error {
        QuotaError::Slot { .. } | QuotaError::Over { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        QuotaError::Busy(_) | QuotaError::Meta(_) => StatusCode::SERVICE_UNAVAILABLE,
        QuotaError::Record(_) => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::CONFLICT,
    };
    Failure::of_sentence(status, &error.to_string(), "look at the daemon's log")
}

impl Charged<'_> {
    /// Charges what a reservation takes.
    ///
    /// # Errors
    /// Status 409: the quota does not allow it; 503: the meta store is silent.
    pub(super) async fn charge(self, payer: &Payer, it: Commitment) -> Result<(), Failure> {
        let Payer { account, id } = payer.clone();
        let charged = self.0.records.with(&self.0.threads, async move |meta| {
            charge_alone(&*meta, (&account, id), &it, now()).await
        });
        let charged = charged.await.map_err(|silent| unknown(&silent))?;
        charged.map_err(|error| refused(&error))
    }

    /// Gives back what a reservation takes, if no store has it any more. What fails now is done later (`give_back_lost`).
    pub(super) async fn settle(self, account: &AccountName, id: u128, taken: Taken) {
        let Ok(all) = Stores(self.0).reservations().await else {
            return;
        };
        if all.iter().any(|it| id_of(it) == Some(id)) {
            return;
        }
        self.give_back(account.clone(), id, taken).await;
    }

    async fn give_back(self, account: AccountName, id: u128, taken: Taken) {
        let shown = account.clone();
        let given = self
            .0
            .records
            .with(&self.0.threads, async move |meta| match taken {
                Taken::Never => take_back_alone(&*meta, &account, id, now()).await,
                Taken::UntilNow => refund_alone(&*meta, &account, id, now()).await,
            });
        let why = match given.await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(silent) => silent.to_string(),
        };
        tracing::warn!(account = %shown, why, "what a reservation took of a quota is given back later");
    }

    /// Does this reservation belong to that account?
    ///
    /// # Errors
    /// Status 503: that cannot be looked up.
    pub(super) async fn is_of(self, account: &AccountName, id: u128) -> Result<bool, Failure> {
        let account = account.clone();
        let found = self.0.records.with(&self.0.threads, async move |meta| {
            let usage = access::charge::usage(&*meta, &account).await?;
            Ok::<_, QuotaError>(usage.get(id).is_some())
        });
        let found = found.await.map_err(|silent| unknown(&silent))?;
        found.map_err(|error| unknown(&error))
    }

    /// What belongs to an account.
    pub(super) async fn all_of(self, account: &AccountName) -> BTreeSet<u128> {
        let account = account.clone();
        let found = self.0.records.with(&self.0.threads, async move |meta| {
            let usage = access::charge::usage(&*meta, &account).await;
            let usage = usage.unwrap_or_default();
            usage.commitments().map(|it| it.id).collect()
        });
        found.await.unwrap_or_default()
    }

    /// Halves of the identities that reservations at this daemon's stores begin with.
    async fn own_halves(self) -> Result<BTreeSet<u128>, Failure> {
        let stores = Stores(self.0);
        let mut own = BTreeSet::new();
        let names: Vec<String> = stores.store_names().map(str::to_owned).collect();
        for name in names {
            let uuid = stores.at_store(&name, async |store| store.node.store().uuid());
            own.insert(half(uuid.await?));
        }
        Ok(own)
    }

    /// Ends what `named` and its projects have, here and over the cluster. What cannot be reached now ends within seconds.
    pub(super) async fn end_of_account(self, named: &AccountName) {
        let cluster = ClusterThread(self.0);
        if cluster.has_cluster() {
            let account = named.to_string();
            let ended = cluster.at_open(async move |open| {
                let service = &open.reservations.service;
                service.end_account(&account).await
            });
            if let Ok(Err(error)) = ended.await {
                tracing::info!(account = %named, %error, "what an account has ends with the next sweep");
            }
        }
        self.end_of_accounts_off(Some(named)).await;
    }

    /// Ends reservations whose accounts are switched off or deleted: of all, or of `named` and its projects.
    async fn end_of_accounts_off(self, named: Option<&AccountName>) {
        if self.0.records.were_never_made() {
            return;
        }
        let (Ok(own), Ok(all)) = (self.own_halves().await, Stores(self.0).reservations().await)
        else {
            return;
        };
        let mut of: BTreeMap<AccountName, BTreeMap<u128, Vec<Reservation>>> = BTreeMap::new();
        for it in all {
            let id = id_of(&it).filter(|id| own.contains(&half(*id)));
            if let (Some(id), Ok(account)) = (id, it.holder.parse::<AccountName>()) {
                self.0.making.stands(id);
                if named.is_some_and(|named| !account.chain().contains(named)) {
                    continue;
                }
                let of_account = of.entry(account).or_default();
                of_account.entry(id).or_default().push(it);
            }
        }
        for (account, reservations) in of {
            let asked = account.clone();
            let over = self.0.records.with(&self.0.threads, async move |meta| {
                // What it has is read only then.
                if is_on(&*meta, &asked).await? {
                    return Ok(None);
                }
                access::charge::usage(&*meta, &asked).await.map(Some)
            });
            let over = over.await.map_err(|silent| unknown(&silent));
            let usage = match over.and_then(|over| over.map_err(|error| unknown(&error))) {
                Ok(Some(usage)) => usage,
                Ok(None) => continue,
                // What cannot be looked up goes on.
                Err(failure) => {
                    let why = failure.refusal.error;
                    tracing::debug!(%account, why, "an account cannot be looked up");
                    continue;
                }
            };
            for (id, parts) in reservations {
                if usage.get(id).is_none() {
                    continue;
                }
                let ended = end(Stores(self.0), parts).await;
                let ids = ended.iter().flatten().map(|it| it.id.clone());
                let ids: Vec<String> = ids.collect();
                tracing::info!(%account, ?ids, "a reservation ends with its account");
                self.settle(&account, id, Taken::UntilNow).await;
            }
        }
    }

    /// What is charged at these stores: whose, its identity, and its end. An account whose record cannot be read is left out.
    async fn charged_at(
        self,
        own: BTreeSet<u128>,
    ) -> Result<Vec<(AccountName, u128, u64)>, String> {
        let looked = self.0.records.with(&self.0.threads, async move |meta| {
            let mut charged = Vec::new();
            for account in Registry::new(Rc::clone(&meta)).names().await? {
                let usage = match access::charge::usage(&*meta, &account).await {
                    Ok(usage) => usage,
                    Err(error) => {
                        tracing::warn!(%account, %error, "what a crash left charged to this account is not given back");
                        continue;
                    }
                };
                let own = usage.commitments().filter(|it| own.contains(&half(it.id)));
                charged.extend(own.map(|it| (account.clone(), it.id, it.until)));
            }
            Ok::<_, AccessError>(charged)
        });
        let charged = looked.await.map_err(|silent| silent.to_string())?;
        charged.map_err(|error| error.to_string())
    }

    /// Gives back what was charged at these stores for reservations that are not there.
    pub(super) async fn give_back_lost(self) {
        if self.0.records.were_never_made() {
            return;
        }
        let Ok(own) = self.own_halves().await else {
            return;
        };
        let mut charged = match self.charged_at(own).await {
            Ok(charged) => charged,
            Err(why) => {
                tracing::warn!(
                    why,
                    "what a crash left charged to accounts is given back later"
                );
                return;
            }
        };
        // In this order: what was charged before is in the first if it is not at its stores, and at its stores if it has left it.
        let making = &self.0.making;
        making.with(|all| charged.retain(|(_, id, _)| !all.making.contains(id)));
        let Ok(all) = Stores(self.0).reservations().await else {
            return;
        };
        let there: BTreeSet<u128> = all.iter().filter_map(id_of).collect();
        let counts: BTreeSet<u128> = charged.iter().map(|(_, id, _)| *id).collect();
        for (account, id, until) in charged {
            if !there.contains(&id) {
                let taken = making.taken(id, until, now());
                self.give_back(account, id, taken).await;
            }
        }
        making.with(|all| {
            all.stood.extend(&there);
            let Made { making, stood } = all;
            stood.retain(|id| there.contains(id) || counts.contains(id) || making.contains(id));
        });
    }

    /// Finishes deletions of accounts.
    async fn sweep(self) {
        if self.0.records.were_never_made() {
            return;
        }
        let swept = self.0.records.with(&self.0.threads, async move |meta| {
            Registry::new(meta).sweep(now()).await
        });
        if let Ok(Err(error)) = swept.await {
            tracing::warn!(%error, "deleted accounts are finished later");
        }
    }
}

/// Looks after the reservations of accounts, for ever.
pub async fn keep(control: Arc<Control>) {
    let mut round = 0_u64;
    loop {
        let charged = Charged(&control);
        charged.end_of_accounts_off(None).await;
        if round.is_multiple_of(LOST_EVERY) {
            charged.give_back_lost().await;
            charged.sweep().await;
        }
        round += 1;
        tokio::time::sleep(EVERY).await;
    }
}
