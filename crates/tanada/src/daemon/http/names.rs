//! Whose is a booking, and who may see names and capabilities?
//!
//! ```text
//! a reservation at a store -> the account that its holder names, if the account's usage has it | the daemon's owner
//! another holder           -> an account of that name: its owner | none: it is the daemon's owner's
//! caller             -> sees its own names, as operator all; a capability as its owner alone
//! ```
//!
//! Always true: where the accounts cannot be looked up, a holder that could be one counts as one, and a reservation at a store
//! as none of the caller's; the daemon's owner goes on.

use std::collections::BTreeSet;

use access::caller::Caller;
use access::name::AccountName;
use access::role::Action;
use store::qos::manager::ManagerReport;

use super::account_records::Accounts;
use super::charged::{Charged, id_of};
use super::control::{Control, Failure};
use crate::api::cluster::Disk;
use crate::api::health::Health;
use crate::api::status::Status;
use crate::api::store::{Reservation, Store};
use crate::api::trash::DeletedVolume;
use crate::api::volume::Volume;

/// Does the caller see who this holder is? Holders that are no accounts are the daemon's owner's.
fn sees(caller: &Caller, holder: &str) -> bool {
    caller.may(Action::Names, holder.parse().ok().as_ref())
}

/// Takes the name of a booking's holder, and of its objects, from those who may not see them.
pub(super) fn hide(caller: &Caller, holder: &mut String, scope: &mut String) {
    if !sees(caller, holder) {
        holder.clear();
        scope.clear();
    }
}

/// The same of all sessions of a store, and of what it says beside them.
pub(super) fn hide_in_store(caller: &Caller, store: &mut Store) {
    for session in &mut store.sessions {
        hide(caller, &mut session.holder, &mut session.scope);
        if !sees(caller, &session.account) {
            session.account.clear();
        }
    }
    hide_in_manager(caller, &mut store.node);
    // It names objects, whose names begin with what a holder's scope says.
    if caller.role.is_none() {
        store.first_bad.clear();
    }
}

/// Takes the names of holders from what was promised before.
fn hide_in_manager(caller: &Caller, manager: &mut ManagerReport) {
    let ended = manager.ended.iter_mut().map(|it| &mut it.holder);
    let closed = manager.delivered.iter_mut().map(|it| &mut it.holder);
    for holder in ended.chain(closed) {
        if !sees(caller, holder) {
            holder.clear();
        }
    }
}

/// The same of the queues of hybrids.
pub(super) fn hide_in_volumes(caller: &Caller, volumes: &mut [Volume]) {
    for volume in volumes {
        if let Some(queue) = &mut volume.queue {
            hide_in_manager(caller, queue);
        }
    }
}

/// Takes who muted a code from those who may not see that.
pub(super) fn hide_in_health(caller: &Caller, health: &mut Health) {
    if !caller.may(Action::Names, None) {
        health.mutes.iter_mut().for_each(|mute| mute.who.clear());
    }
}

/// The same of all that a status has.
pub(super) fn hide_in_status(caller: &Caller, status: &mut Status) {
    hide_in_health(caller, &mut status.machine.health);
    hide_in_stores(caller, &mut status.stores);
    hide_in_volumes(caller, &mut status.volumes);
}

/// The same of all stores.
pub(super) fn hide_in_stores(caller: &Caller, stores: &mut [Store]) {
    for store in stores {
        hide_in_store(caller, store);
    }
}

/// The identities of what belongs to a caller's account.
pub(super) struct Mine(BTreeSet<u128>);

/// What belongs to the caller's account, as far as it can be looked up.
pub(super) async fn mine(control: &Control, caller: &Caller) -> Mine {
    match &caller.account {
        Some(account) => Mine(Charged(control).all_of(account).await),
        None => Mine(BTreeSet::new()),
    }
}

/// The same of a reservation: one that an earlier account of the caller's name had is not its own.
pub(super) fn hide_in_reservation(caller: &Caller, mine: &Mine, it: &mut Reservation) {
    let is_mine = id_of(it).is_some_and(|id| mine.0.contains(&id));
    let named: Option<AccountName> = it.holder.parse().ok();
    let owner = named.filter(|name| is_mine || caller.account.as_ref() != Some(name));
    if !caller.may(Action::Names, owner.as_ref()) {
        it.holder.clear();
        it.scope.clear();
    }
}

/// The account that a reservation at a store belongs to; `None`: it is the daemon's owner's.
///
/// # Errors
/// Status 503: that cannot be looked up, and it is not the daemon's owner who asks, whom nothing keeps out.
pub(super) async fn owner_of(
    control: &Control,
    caller: &Caller,
    it: &Reservation,
) -> Result<Option<AccountName>, Failure> {
    let (Ok(name), Some(id)) = (it.holder.parse::<AccountName>(), id_of(it)) else {
        return Ok(None);
    };
    if control.records.were_never_made() {
        return Ok(None);
    }
    match Charged(control).is_of(&name, id).await {
        Ok(is_of) => Ok(is_of.then_some(name)),
        Err(_) if caller.is_owner() => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// The same of a volume's reservation.
pub(super) fn hide_in_disk(caller: &Caller, disk: &mut Disk) {
    disk.terms.holder.take_if(|holder| !sees(caller, holder));
}

/// Takes who deleted a volume from those who may not see that.
pub(super) fn hide_in_trash(caller: &Caller, volume: &mut DeletedVolume) {
    volume.deleted_by.take_if(|by| !sees(caller, by));
}

/// The account that owns what `holder` has; `None`: it is the daemon's owner's.
pub(super) async fn owner(control: &Control, caller: &Caller, holder: &str) -> Option<AccountName> {
    let name: AccountName = holder.parse().ok()?;
    if caller.account.as_ref() == Some(&name) {
        return Some(name);
    }
    if control.records.were_never_made() {
        return None;
    }
    let asked = name.clone();
    let found = Accounts(control).ask(async move |it| it.has(&asked).await);
    // The daemon's owner goes on: what is not charged belongs to no account.
    let unknown = !caller.is_owner();
    found.await.unwrap_or(unknown).then_some(name)
}

/// For whom a caller books who writes this holder: itself, or, as operator, another account.
///
/// # Errors
/// Status 403: it may not book for that account.
pub(super) async fn holder(
    control: &Control,
    caller: &Caller,
    holder: &str,
) -> Result<String, Failure> {
    let Some(own) = &caller.account else {
        return Ok(holder.to_owned());
    };
    match owner(control, caller, holder).await {
        Some(other) if other != *own => {
            caller.check(Action::Book, Some(&other))?;
            Ok(other.to_string())
        }
        // The name of a user, as `tanada` writes it unasked, is no account.
        _ => Ok(own.to_string()),
    }
}

/// May the caller have the capability of this reservation?
///
/// # Errors
/// Status 403: it may not; as for [`owner_of`].
pub(super) async fn check_capability(
    control: &Control,
    caller: &Caller,
    it: &Reservation,
) -> Result<(), Failure> {
    let owner = owner_of(control, caller, it).await?;
    Ok(caller.check(Action::Capability, owner.as_ref())?)
}

/// Whose is this reservation that the caller is to amend or cancel? As [`owner_of`].
///
/// # Errors
/// Status 403: it may not; as for [`owner_of`].
pub(super) async fn check_book(
    control: &Control,
    caller: &Caller,
    it: &Reservation,
) -> Result<Option<AccountName>, Failure> {
    let owner = owner_of(control, caller, it).await?;
    caller.check(Action::Book, owner.as_ref())?;
    Ok(owner)
}

#[cfg(test)]
#[path = "names_tests.rs"]
mod tests;
