//! Quotas, checked in the transaction that commits a booking.
//!
//! ```text
//! charge(account, booking) -> read account, quota, usage of the account and of the one it belongs to
//!    -> fits? -> compares: nothing of that has changed; operations: the new usage
//! caller: these and its own in one transaction -> Refused: charge again | Unknown: charge again, the same identity counts once
//! ```
//!
//! Always true:
//! 1. A transaction with a charge's compares commits only if the quota, the usage and the account are as they were read.
//! 2. The same booking counts once, however often it is charged.

use base::Nanos;
use vdisk::meta::{Compare, MetaError, MetaStore, Op, Outcome, TxnPart};
use vdisk::record::RecordError;

use crate::account::{Account, AccountState};
use crate::name::AccountName;
use crate::quota::{Commitment, Quota, QuotaExcess, fits};
use crate::usage::{COMMITMENTS_MAX, Usage};

/// How often a charge by itself is tried again that another change came before: many book at once.
const TRIES: u64 = 24;

/// Why a booking does not count against a quota.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuotaError {
    /// A limit would be exceeded.
    #[error("the quota of account {account} does not allow it: {excess}")]
    Excess {
        /// Whose quota: the account's, or that of the one it belongs to.
        account: AccountName,
        /// Which limit, and what is left.
        excess: QuotaExcess,
    },
    /// There is no such account, or it is switched off.
    #[error(
        "account {0} is switched off or not there; an admin makes it with `tanada account create {0}`, or switches it on \
         with `tanada account set {0} --on`"
    )]
    NoAccount(AccountName),
    /// It has too many bookings, whatever its quota.
    #[error(
        "account {account} has {count} bookings that are not over, and more are not counted; cancel some, or book for a \
         project of its own"
    )]
    TooMany {
        /// Whose.
        account: AccountName,
        /// How many.
        count: usize,
    },
    /// A slot that cannot be.
    #[error(
        "a booking from {from} until {until} (seconds since 1970) cannot be; let it last 1 s to 136 years"
    )]
    Slot {
        /// Its first second.
        from: u64,
        /// The first one behind it.
        until: u64,
    },
    /// A slot that is over.
    #[error(
        "a booking until {until} (seconds since 1970) is over at {now}; book one that ends later"
    )]
    Over {
        /// The first second behind it.
        until: u64,
        /// When it was asked for.
        now: u64,
    },
    /// Other bookings came before, again and again.
    #[error("the quota of account {0} changes all the time; try again")]
    Busy(AccountName),
    /// A record is not as it should be.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The meta store.
    #[error(transparent)]
    Meta(#[from] MetaError),
}

/// What a booking made or changed at `now` (seconds since 1970) adds to its transaction.
///
/// A quota applies to the account and to the one that it, as a project, belongs to; both count.
///
/// # Errors
/// [`QuotaError`]: a limit, no account, or the meta store.
///
/// # Example
/// ```
/// use access::charge::charge;
/// use access::quota::Commitment;
/// use access::registry::{NewAccount, Registry};
/// use access::role::Role;
/// use vdisk::meta::{MemoryMetaStore, MetaStore, Outcome};
/// # env::Runtime::simulated(1).block_on(async {
/// let meta = MemoryMetaStore::new("memory").client();
/// let registry = Registry::new(meta.clone());
/// let astro: access::name::AccountName = "astro".parse().unwrap();
/// registry.create(&NewAccount::new(astro.clone(), Role::Booker), 0).await.unwrap();
/// let booking = Commitment { id: 7, rate: 100_000_000, from: 100, until: 200, space: 0 };
/// loop {
///     let charge = charge(&*meta, &astro, &booking, 50).await.unwrap();
///     // With the booking's own compares and operations.
///     match meta.txn(charge.compares, charge.ops).await.unwrap() {
///         Outcome::Done(_) => break,
///         Outcome::Refused(_) => continue,
///     }
/// }
/// # });
/// ```
pub async fn charge(
    meta: &dyn MetaStore,
    account: &AccountName,
    new: &Commitment,
    now: u64,
) -> Result<TxnPart, QuotaError> {
    charge_one_of(meta, (account, None), new, now).await
}

/// As [`charge`]; `id` says which one of the account's name is meant.
async fn charge_one_of(
    meta: &dyn MetaStore,
    (account, id): (&AccountName, Option<u64>),
    new: &Commitment,
    now: u64,
) -> Result<TxnPart, QuotaError> {
    check_slot(new, now)?;
    read_limits(meta, (account, id)).await?.charge(new, now)
}

fn check_slot(new: &Commitment, now: u64) -> Result<(), QuotaError> {
    let (from, until) = (new.from, new.until);
    let length = until.checked_sub(from);
    if !length.is_some_and(|length| (1..=u64::from(u32::MAX)).contains(&length)) {
        return Err(QuotaError::Slot { from, until });
    }
    match until <= now {
        true => Err(QuotaError::Over { until, now }),
        false => Ok(()),
    }
}

/// What an account may have and has, and the one that it belongs to, at one moment: many questions, one look.
pub struct Limits(Vec<Limit>);

/// Of one account.
struct Limit {
    account: AccountName,
    quota: Quota,
    usage: Usage,
    /// Account and quota are as they were read.
    compares: [Compare; 2],
    /// The usage is.
    used: Compare,
}

/// What an account may have and has now.
///
/// # Errors
/// [`QuotaError`]: no account, a record, or the meta store.
pub async fn limits(meta: &dyn MetaStore, account: &AccountName) -> Result<Limits, QuotaError> {
    read_limits(meta, (account, None)).await
}

async fn read_limits(
    meta: &dyn MetaStore,
    (account, id): (&AccountName, Option<u64>),
) -> Result<Limits, QuotaError> {
    let mut all = Vec::new();
    for name in account.chain() {
        let (is_there, on) = looked_up(meta, &name).await?;
        let is_meant = |it: u64| name != *account || id.is_none_or(|id| id == it);
        if !on.is_some_and(is_meant) {
            return Err(QuotaError::NoAccount(name));
        }
        let key = Quota::key(&name);
        let entry = meta.get(&key).await?;
        let changed = entry
            .as_ref()
            .map_or_else(Default::default, |it| it.changed);
        let quota = entry.map(|entry| Quota::decode(&key, &entry.value));
        let (used, usage) = read_usage(meta, &name).await?;
        all.push(Limit {
            account: name,
            quota: quota.transpose()?.unwrap_or_default(),
            usage,
            compares: [is_there, Compare::Unchanged(key, changed)],
            used,
        });
    }
    Ok(Limits(all))
}

impl Limits {
    /// As [`charge`], by what was read then.
    ///
    /// # Errors
    /// [`QuotaError`]: a limit.
    pub fn charge(&self, new: &Commitment, now: u64) -> Result<TxnPart, QuotaError> {
        check_slot(new, now)?;
        let mut charge = TxnPart::default();
        for it in &self.0 {
            let account = || it.account.clone();
            fits(&it.quota, &it.usage, new, now).map_err(|excess| QuotaError::Excess {
                account: account(),
                excess,
            })?;
            let after = it.usage.with(new, now);
            let count = after.count() as usize;
            if count > COMMITMENTS_MAX {
                let account = account();
                return Err(QuotaError::TooMany { account, count });
            }
            charge.compares.extend(it.compares.iter().cloned());
            add(
                &mut charge,
                &it.account,
                (it.used.clone(), &it.usage),
                &after,
            );
        }
        Ok(charge)
    }
}

/// What a booking that ends at `now` adds to its transaction. What it was promised until then stays counted.
///
/// Adds nothing where nothing counts any more, be the account there or not.
///
/// # Errors
/// [`QuotaError`]: a record, or the meta store.
pub async fn refund(
    meta: &dyn MetaStore,
    account: &AccountName,
    id: u128,
    now: u64,
) -> Result<TxnPart, QuotaError> {
    take_out(meta, account, id, |usage| usage.without(id, now)).await
}

/// The usages of an account and of the one it belongs to, where they have a booking, as `without` makes them.
async fn take_out(
    meta: &dyn MetaStore,
    account: &AccountName,
    id: u128,
    without: impl Fn(&Usage) -> Usage,
) -> Result<TxnPart, QuotaError> {
    let mut charge = TxnPart::default();
    for name in account.chain() {
        let (compare, usage) = read_usage(meta, &name).await?;
        if usage.get(id).is_some() {
            let left = without(&usage);
            add(&mut charge, &name, (compare, &usage), &left);
        }
    }
    Ok(charge)
}

/// Charges a booking whose own record is elsewhere, in a transaction by itself. The caller charges first, then books, then
/// gives back ([`take_back_alone`]) what was refused: a crash leaves a charge at most.
///
/// `id` is the identity of the account that is meant, if the caller knows it: a later one of the name pays nothing.
///
/// # Errors
/// [`QuotaError`], as for [`charge`]. After [`QuotaError::Busy`] and [`QuotaError::Meta`] it may be charged.
pub async fn charge_alone(
    meta: &dyn MetaStore,
    (account, id): (&AccountName, Option<u64>),
    new: &Commitment,
    now: u64,
) -> Result<(), QuotaError> {
    alone(meta, account, async || {
        charge_one_of(meta, (account, id), new, now).await
    })
    .await
}

/// As [`refund`], in a transaction by itself.
///
/// # Errors
/// [`QuotaError`], as for [`refund`]; then ask again.
pub async fn refund_alone(
    meta: &dyn MetaStore,
    account: &AccountName,
    id: u128,
    now: u64,
) -> Result<(), QuotaError> {
    alone(meta, account, async || refund(meta, account, id, now).await).await
}

/// Gives back the whole of what [`charge_alone`] charged for a booking that was never made, be its slot over or not.
///
/// # Errors
/// [`QuotaError`], as for [`refund`]; then ask again.
pub async fn take_back_alone(
    meta: &dyn MetaStore,
    account: &AccountName,
    id: u128,
    now: u64,
) -> Result<(), QuotaError> {
    alone(meta, account, async || {
        take_out(meta, account, id, |usage| usage.as_if_never(id, now)).await
    })
    .await
}

/// Commits what `look` finds, until no other change comes before; tries a few times.
async fn alone(
    meta: &dyn MetaStore,
    account: &AccountName,
    look: impl AsyncFn() -> Result<TxnPart, QuotaError>,
) -> Result<(), QuotaError> {
    for tried in 1..=TRIES {
        let found = look().await?;
        if found.ops.is_empty() {
            return Ok(());
        }
        match meta.txn(found.compares, found.ops).await {
            Ok(Outcome::Done(_)) => return Ok(()),
            // The same booking counts once, whatever came of it before.
            Ok(Outcome::Refused(_)) | Err(MetaError::Unknown { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let wait = env::rng("again").below(40 * tried);
        env::sleep(Nanos::millis(5 + wait)).await;
    }
    Err(QuotaError::Busy(account.clone()))
}

/// What counts against the quota of an account alone, projects of it included.
///
/// # Errors
/// [`QuotaError`]: a record, or the meta store.
pub async fn usage(meta: &dyn MetaStore, account: &AccountName) -> Result<Usage, QuotaError> {
    Ok(read_usage(meta, account).await?.1)
}

/// The usage of one account goes from `before` to `after`.
fn add(
    part: &mut TxnPart,
    name: &AccountName,
    (compare, before): (Compare, &Usage),
    after: &Usage,
) {
    part.compares.push(compare);
    let key = Usage::key(name);
    match (after.is_empty(), before.is_empty()) {
        (false, _) => part.ops.push(Op::put(key, after.encode())),
        (true, false) => part.ops.push(Op::Delete { key }),
        (true, true) => {}
    }
}

/// Is an account let in, and the one it belongs to?
///
/// # Errors
/// [`QuotaError`]: a record, or the meta store.
pub async fn is_on(meta: &dyn MetaStore, account: &AccountName) -> Result<bool, QuotaError> {
    for name in account.chain() {
        if looked_up(meta, &name).await?.1.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The identity of an account that is let in. With what must be so when that counts.
async fn looked_up(
    meta: &dyn MetaStore,
    name: &AccountName,
) -> Result<(Compare, Option<u64>), QuotaError> {
    let key = Account::key(name);
    let entry = meta.get(&key).await?;
    let changed = entry
        .as_ref()
        .map_or_else(Default::default, |it| it.changed);
    let account = entry.map(|entry| Account::decode(&key, &entry.value));
    let account = account.transpose()?;
    let on = account.filter(|it| it.state == AccountState::On);
    Ok((Compare::Unchanged(key, changed), on.map(|it| it.id)))
}

async fn read_usage(
    meta: &dyn MetaStore,
    name: &AccountName,
) -> Result<(Compare, Usage), QuotaError> {
    let key = Usage::key(name);
    let entry = meta.get(&key).await?;
    let changed = entry
        .as_ref()
        .map_or_else(Default::default, |it| it.changed);
    let usage = entry.map(|entry| Usage::decode(&key, &entry.value));
    let usage = usage.transpose()?.unwrap_or_default();
    Ok((Compare::Unchanged(key, changed), usage))
}
