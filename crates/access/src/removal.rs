//! Accounts that are removed: with their projects and tokens, and to the end, also if a crash comes between.
//!
//! ```text
//! delete: the account -> Deleted    from here on nothing of it, nor of its projects, is let in
//!         its projects -> Deleted, tokens, quotas      \
//!         records without bookings -> (none)            > finish: again by `delete`, `create` and `sweep`
//! ```
//!
//! Always true:
//! 1. No account is made of a name whose projects are not gone, so that none of them is let in again.
//! 2. What is removed is what was looked at: a later account of the name has another identity.

use vdisk::meta::{Compare, Entry, Op};

use crate::account::{Account, AccountState};
use crate::error::AccessError;
use crate::name::AccountName;
use crate::quota::Quota;
use crate::registry::Registry;
use crate::swap::{again, swap};
use crate::token::TokenRecord;
use crate::usage::Usage;

type Result<T> = std::result::Result<T, AccessError>;

/// Removals from a registry.
pub(crate) struct Removal<'a>(pub &'a Registry);

impl Removal<'_> {
    /// Removes an account, and its projects with it: nothing of them is let in from now on. While bookings count against its
    /// name, the name waits. Answers the names. One that was interrupted is finished by asking again.
    ///
    /// # Errors
    /// [`AccessError::NoAccount`]; else the meta store or a record.
    pub async fn delete(&self, name: &AccountName, now: u64) -> Result<Vec<AccountName>> {
        let Some((account, _)) = self.0.read(name).await? else {
            return Err(self.0.no_account(name).await?);
        };
        let again = account.state == AccountState::Deleted;
        self.mark_deleted(&account, None).await?;
        let gone = self.finish(&account, now).await?;
        match again && gone.is_empty() {
            true => Err(self.0.no_account(name).await?),
            false => Ok([vec![name.clone()], gone].concat()),
        }
    }

    /// Finishes all deletions that were begun, and frees names that nothing counts against any more.
    ///
    /// # Errors
    /// The meta store, or the first record that stood in the way; the others are finished.
    pub async fn sweep(&self, now: u64) -> Result<()> {
        let mut trouble = None;
        for name in self.0.names().await? {
            // One that cannot be finished keeps no other.
            if let Err(error) = self.sweep_one(&name, now).await {
                trouble.get_or_insert(error);
            }
        }
        trouble.map_or(Ok(()), Err)
    }

    async fn sweep_one(&self, name: &AccountName, now: u64) -> Result<()> {
        match self.0.read(name).await? {
            Some((account, _)) if account.state == AccountState::Deleted => {
                self.finish(&account, now).await.map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Nothing of this account is let in from now on. One that is removed with the account it belongs to, `with`, stays if
    /// there is a later account of that name: is it gone?
    async fn mark_deleted(&self, account: &Account, with: Option<&AccountName>) -> Result<bool> {
        let name = &account.name;
        let marked = again(name.as_str(), async || {
            let mut compares = Vec::new();
            if let Some(with) = with {
                let found = self.0.read(with).await?;
                let there = found.as_ref().map(|(it, _)| it.state);
                if there.is_some_and(|state| state != AccountState::Deleted) {
                    return Ok(Some(false));
                }
                let changed = found.map_or_else(Default::default, |(_, entry)| entry.changed);
                compares.push(Compare::Unchanged(Account::key(with), changed));
            }
            let found = self.0.read(name).await?;
            let Some((mut found, entry)) = found.filter(|(it, _)| it.id == account.id) else {
                return Ok(Some(true));
            };
            if found.state == AccountState::Deleted {
                return Ok(Some(true));
            }
            found.state = AccountState::Deleted;
            found.users.clear();
            found.groups.clear();
            compares.push(Compare::Unchanged(entry.key.clone(), entry.changed));
            let quota = Op::Delete {
                key: Quota::key(name),
            };
            let ops = vec![Op::put(entry.key, found.encode()), quota];
            Ok(swap(self.0.meta(), compares, ops).await?.map(|()| true))
        });
        marked.await
    }

    /// Does the rest of a deletion: of projects, tokens, and records that nothing counts against. The projects' names.
    async fn finish(&self, account: &Account, now: u64) -> Result<Vec<AccountName>> {
        let gone = self.end_projects(&account.name).await?;
        self.end_tokens(account.id).await?;
        for name in gone.iter().chain([&account.name]) {
            self.forget(name, now).await?;
        }
        Ok(gone)
    }

    /// Removes the projects of an account that is deleted or not there: what an interrupted deletion left.
    pub async fn end_projects(&self, name: &AccountName) -> Result<Vec<AccountName>> {
        let mut gone = Vec::new();
        for project in self.0.names().await? {
            if project.parent().as_ref() != Some(name) {
                continue;
            }
            let found = self.0.read(&project).await?.map(|it| it.0);
            let there = found.filter(|it| it.state != AccountState::Deleted);
            let Some(project) = there else { continue };
            if self.mark_deleted(&project, Some(name)).await? {
                self.end_tokens(project.id).await?;
                gone.push(project.name);
            }
        }
        Ok(gone)
    }

    /// Removes the tokens of the account with this identity.
    async fn end_tokens(&self, account: u64) -> Result<()> {
        for (id, record) in self.0.tokens().await? {
            if record.account_id == account {
                let key = TokenRecord::key(id);
                self.0
                    .meta()
                    .txn(Vec::new(), vec![Op::Delete { key }])
                    .await?;
            }
        }
        Ok(())
    }

    /// Frees the name of a deleted account, if nothing counts against it.
    async fn forget(&self, name: &AccountName, now: u64) -> Result<()> {
        let forgotten = again(name.as_str(), async || {
            let found = self.0.read(name).await?;
            let deleted = found.filter(|(it, _)| it.state == AccountState::Deleted);
            let Some((_, entry)) = deleted else {
                return Ok(Some(()));
            };
            let key = Usage::key(name);
            let usage_entry = self.0.meta().get(&key).await?;
            let changed = usage_entry
                .as_ref()
                .map_or_else(Default::default, |it: &Entry| it.changed);
            let usage = usage_entry.map(|it| Usage::decode(&key, &it.value));
            if usage.transpose()?.is_some_and(|it| it.at(now).count() > 0) {
                return Ok(Some(()));
            }
            let compares = vec![
                Compare::Unchanged(entry.key.clone(), entry.changed),
                Compare::Unchanged(key.clone(), changed),
            ];
            let keys = [entry.key, key, Quota::key(name)];
            let ops = keys.map(|key| Op::Delete { key }).into();
            swap(self.0.meta(), compares, ops).await
        });
        forgotten.await
    }
}
