//! Accounts and tokens in a meta store: made, changed, found by what a client shows.
//!
//! ```text
//! certificate shown -> not in revoked/, account/NAME of the identity in it, and the one it belongs to   -> Caller
//! token shown       -> token/ID -> hash, time -> account/NAME, and the one it belongs to -> Caller
//! user at a socket  -> accounts that name the user, else a group of it              -> Caller
//! ```
//!
//! Nothing is remembered between two questions: what is switched off or revoked is so for the next request.
//!
//! Always true:
//! 1. A token or certificate is good for the account that it was made for, never for a later one of the same name.
//! 2. Changes are compare-and-swaps (`swap`).

use std::rc::Rc;

use vdisk::meta::{Compare, Entry, MetaStore, Op, whole_range};

use crate::account::{ACCOUNTS, Account, AccountState};
use crate::caller::{Caller, How};
use crate::changes::{check_token, check_users};
use crate::name::AccountName;
use crate::quota::Quota;
use crate::removal::Removal;
use crate::swap::{again, swap};
use crate::token::{TOKENS, Token, TokenError, TokenId, TokenRecord};
use crate::usage::Usage;

pub use crate::changes::{AccountChange, NewAccount, Peer};
pub use crate::error::AccessError;

/// Before the serial numbers of revoked certificates, in a cluster's meta store (`vdisk::cluster::revoked`).
const REVOKED: &str = "revoked/";
/// Tokens that are over for so long are forgotten: 30 days.
const FORGET: u64 = 30 * 24 * 3600;
/// So many of them at a time.
const FORGET_MAX: usize = 64;

/// The accounts and tokens of a meta store.
pub struct Registry {
    meta: Rc<dyn MetaStore>,
}

type Result<T> = std::result::Result<T, AccessError>;

impl Registry {
    /// Those in `meta`.
    pub fn new(meta: Rc<dyn MetaStore>) -> Registry {
        Registry { meta }
    }

    // --- who is it ------------------------------------------------------------------------------------

    /// Whose token is it, at `now` (seconds since 1970)?
    ///
    /// # Errors
    /// [`AccessError::Token`] says why it is not taken; else the meta store or a record.
    pub async fn by_token(&self, text: &str, now: u64) -> Result<Caller> {
        let token = Token::parse(text)?;
        let id = token.id;
        let key = TokenRecord::key(id);
        let entry = self.meta.get(&key).await?;
        let entry = entry.ok_or(TokenError::Unknown(id))?;
        let (_, record) = TokenRecord::decode(&key, &entry.value)?;
        record.judge(&token, now)?;
        let name = record.account;
        let account = self.open_account(&name).await?;
        match account.filter(|it| it.id == record.account_id) {
            Some(account) => Ok(Caller::of(account, How::Token(id))),
            None => Err(TokenError::AccountOff { id, account: name }.into()),
        }
    }

    /// Who is it that showed the certificate `serial` of the account `name` with this identity?
    ///
    /// # Errors
    /// [`AccessError::Revoked`]; [`AccessError::NotOfAccount`]: that account is switched off or gone; else the meta store or
    /// a record.
    pub async fn by_certificate(
        &self,
        (name, id): (&AccountName, u64),
        serial: &str,
    ) -> Result<Caller> {
        // This daemon hears of it, too, and a moment later.
        let revoked = self.meta.get(&format!("{REVOKED}{serial}")).await?;
        if revoked.is_some() {
            return Err(AccessError::Revoked(serial.to_owned()));
        }
        let account = self.open_account(name).await?;
        match account.filter(|it| it.id == id) {
            Some(account) => Ok(Caller::of(account, How::Certificate(serial.to_owned()))),
            None => Err(AccessError::NotOfAccount {
                serial: serial.to_owned(),
                account: name.clone(),
            }),
        }
    }

    /// For which account does a user of this machine ask? `None`: no account names the user, or none called `wanted` does.
    ///
    /// # Errors
    /// [`AccessError::Ambiguous`] if several do and `wanted` names none; else the meta store or a record.
    pub async fn by_user(
        &self,
        peer: Peer<'_>,
        wanted: Option<&AccountName>,
    ) -> Result<Option<Caller>> {
        let mut named = Vec::new();
        let mut grouped = Vec::new();
        for account in self.accounts().await? {
            if account.state != AccountState::On {
                continue;
            }
            let in_group = peer
                .groups
                .iter()
                .any(|group| account.groups.contains(group));
            match account.users.contains(&peer.user) {
                true => named.push(account),
                false if in_group => grouped.push(account),
                false => {}
            }
        }
        let mut candidates = match wanted {
            Some(_) => named.into_iter().chain(grouped).collect(),
            // A user who is named is meant more than one who is in a group.
            None if named.is_empty() => grouped,
            None => named,
        };
        if let Some(wanted) = wanted {
            candidates.retain(|it| it.name == *wanted);
        }
        if candidates.len() > 1 {
            return Err(AccessError::Ambiguous {
                user: peer.user,
                accounts: candidates.into_iter().map(|it| it.name).collect(),
            });
        }
        let Some(account) = candidates.pop() else {
            return Ok(None);
        };
        let open = self.open_account(&account.name).await?;
        Ok(open.map(|account| Caller::of(account, How::User(peer.user))))
    }

    /// An account that is let in, and so is the one that it belongs to.
    async fn open_account(&self, name: &AccountName) -> Result<Option<Account>> {
        let mut open = None;
        for name in name.chain() {
            let found = self.read(&name).await?.map(|it| it.0);
            let on = found.filter(|account| account.state == AccountState::On);
            let Some(account) = on else { return Ok(None) };
            open.get_or_insert(account);
        }
        Ok(open)
    }

    // --- accounts and quotas --------------------------------------------------------------------------

    pub(crate) fn meta(&self) -> &dyn MetaStore {
        &*self.meta
    }

    pub(crate) async fn read(&self, name: &AccountName) -> Result<Option<(Account, Entry)>> {
        let key = Account::key(name);
        let Some(entry) = self.meta.get(&key).await? else {
            return Ok(None);
        };
        let account = Account::decode(&key, &entry.value)?;
        Ok(Some((account, entry)))
    }

    /// All accounts, by name; deleted ones as long as their bookings last.
    ///
    /// # Errors
    /// The meta store, or a record.
    pub async fn accounts(&self) -> Result<Vec<Account>> {
        let (entries, _) = whole_range(&*self.meta, ACCOUNTS).await?;
        let accounts = entries.iter().map(|it| Account::decode(&it.key, &it.value));
        Ok(accounts.collect::<std::result::Result<_, _>>()?)
    }

    /// The names of all accounts, as [`Registry::accounts`]; their records may be beyond reading.
    ///
    /// # Errors
    /// The meta store.
    pub async fn names(&self) -> Result<Vec<AccountName>> {
        let (entries, _) = whole_range(&*self.meta, ACCOUNTS).await?;
        let names = entries
            .iter()
            .filter_map(|it| it.key.strip_prefix(ACCOUNTS));
        Ok(names.filter_map(|name| name.parse().ok()).collect())
    }

    /// One account that was not deleted.
    ///
    /// # Errors
    /// [`AccessError::NoAccount`]; else the meta store or a record.
    pub async fn account(&self, name: &AccountName) -> Result<Account> {
        match self.find(name).await? {
            Some((account, _)) => Ok(account),
            None => Err(self.no_account(name).await?),
        }
    }

    /// Is there such an account? Deleted ones count as long as their bookings last.
    ///
    /// # Errors
    /// The meta store, or a record.
    pub async fn has(&self, name: &AccountName) -> Result<bool> {
        Ok(self.read(name).await?.is_some())
    }

    async fn find(&self, name: &AccountName) -> Result<Option<(Account, Entry)>> {
        let found = self.read(name).await?;
        Ok(found.filter(|(account, _)| account.state != AccountState::Deleted))
    }

    pub(crate) async fn no_account(&self, name: &AccountName) -> Result<AccessError> {
        let all = self.accounts().await?.into_iter();
        let known = all.filter(|it| it.state != AccountState::Deleted);
        Ok(AccessError::NoAccount {
            name: name.clone(),
            known: known.map(|it| it.name).collect(),
        })
    }

    /// Makes an account.
    ///
    /// # Errors
    /// [`AccessError`]: the name is taken or waits, or there is no account that it would be a project of.
    pub async fn create(&self, new: &NewAccount, now: u64) -> Result<Account> {
        let name = &new.name;
        check_users(name, &new.users, &new.groups)?;
        let mut id = [0; 8];
        env::secret("account id", &mut id);
        let account = Account {
            version: 1,
            name: name.clone(),
            id: u64::from_le_bytes(id),
            role: new.role,
            state: AccountState::On,
            users: new.users.clone(),
            groups: new.groups.clone(),
            created: now,
        };
        let made = again(name.as_str(), async || {
            let mut compares = Vec::new();
            if let Some(parent) = name.parent() {
                let Some((_, entry)) = self.find(&parent).await? else {
                    let (name, account) = (name.clone(), parent);
                    return Err(AccessError::NoParent { name, account });
                };
                // Not while it is being deleted: its projects are counted then.
                compares.push(Compare::Unchanged(entry.key, entry.changed));
            }
            compares.push(match self.read(name).await? {
                None => {
                    Removal(self).end_projects(name).await?;
                    Compare::Absent(Account::key(name))
                }
                Some((earlier, _)) if earlier.state != AccountState::Deleted => {
                    // An attempt whose outcome was unknown.
                    if earlier.id == account.id {
                        return Ok(Some(()));
                    }
                    return Err(AccessError::Exists(name.clone()));
                }
                Some((_, entry)) => {
                    Removal(self).end_projects(name).await?;
                    self.check_free(name, now).await?;
                    Compare::Unchanged(entry.key, entry.changed)
                }
            });
            let mut ops = vec![Op::put(Account::key(name), account.encode())];
            match &new.quota {
                Some(quota) => ops.push(Op::put(Quota::key(name), quota.encode())),
                None => ops.push(Op::Delete {
                    key: Quota::key(name),
                }),
            }
            swap(&*self.meta, compares, ops).await
        });
        made.await?;
        Ok(account)
    }

    /// Refuses a name that bookings of a deleted account still have.
    async fn check_free(&self, name: &AccountName, now: u64) -> Result<()> {
        match self.usage(name).await?.at(now).count() {
            0 => Ok(()),
            bookings => Err(AccessError::NameWaits {
                name: name.clone(),
                bookings,
            }),
        }
    }

    /// Changes an account; answers it as it is then.
    ///
    /// # Errors
    /// [`AccessError::NoAccount`], [`AccessError::TooManyUsers`]; else the meta store or a record.
    pub async fn change(&self, name: &AccountName, change: &AccountChange) -> Result<Account> {
        let changed = again(name.as_str(), async || {
            let Some((mut account, entry)) = self.find(name).await? else {
                return Err(self.no_account(name).await?);
            };
            account.role = change.role.unwrap_or(account.role);
            account.state = match change.on {
                Some(false) => AccountState::Off,
                Some(true) => AccountState::On,
                None => account.state,
            };
            account.users = change.users.clone().unwrap_or(account.users);
            account.groups = change.groups.clone().unwrap_or(account.groups);
            check_users(name, &account.users, &account.groups)?;
            let compare = Compare::Unchanged(entry.key, entry.changed);
            let done = swap(
                &*self.meta,
                vec![compare],
                vec![Op::put(Account::key(name), account.encode())],
            );
            Ok(done.await?.map(|()| account))
        });
        changed.await
    }

    /// Removes an account, and its projects with it: nothing of them is let in from now on. While bookings count against its
    /// name, the name waits. Answers the names. One that was interrupted is finished by asking again.
    ///
    /// # Errors
    /// [`AccessError::NoAccount`]; else the meta store or a record.
    pub async fn delete(&self, name: &AccountName, now: u64) -> Result<Vec<AccountName>> {
        Removal(self).delete(name, now).await
    }

    /// Finishes all deletions that were begun, and frees names that nothing counts against any more.
    ///
    /// # Errors
    /// The meta store, or a record.
    pub async fn sweep(&self, now: u64) -> Result<()> {
        Removal(self).sweep(now).await
    }

    /// What an account may have.
    ///
    /// # Errors
    /// The meta store, or a record.
    pub async fn quota(&self, name: &AccountName) -> Result<Quota> {
        let key = Quota::key(name);
        let entry = self.meta.get(&key).await?;
        let quota = entry.map(|it| Quota::decode(&key, &it.value));
        Ok(quota.transpose()?.unwrap_or_default())
    }

    /// Sets it; bookings that are there stay.
    ///
    /// # Errors
    /// [`AccessError::NoAccount`]; else the meta store or a record.
    pub async fn set_quota(&self, name: &AccountName, quota: &Quota) -> Result<()> {
        let set = again(name.as_str(), async || {
            let Some((_, entry)) = self.find(name).await? else {
                return Err(self.no_account(name).await?);
            };
            let compare = Compare::Unchanged(entry.key, entry.changed);
            let op = Op::put(Quota::key(name), quota.encode());
            swap(&*self.meta, vec![compare], vec![op]).await
        });
        set.await
    }

    /// What counts against it.
    ///
    /// # Errors
    /// The meta store, or a record.
    pub async fn usage(&self, name: &AccountName) -> Result<Usage> {
        let key = Usage::key(name);
        let entry = self.meta.get(&key).await?;
        let usage = entry.map(|it| Usage::decode(&key, &it.value));
        Ok(usage.transpose()?.unwrap_or_default())
    }

    // --- tokens ---------------------------------------------------------------------------------------

    /// Makes a token, good for `lifetime` seconds from `now` on: the one time that it can be seen.
    ///
    /// # Errors
    /// [`AccessError::NoAccount`], [`AccessError::BadToken`]; else the meta store or a record.
    pub async fn make_token(
        &self,
        name: &AccountName,
        (now, lifetime): (u64, u64),
        note: &str,
    ) -> Result<(Token, TokenRecord)> {
        check_token(lifetime, note)?;
        self.forget_old(now).await?;
        let token = Token::fresh();
        let key = TokenRecord::key(token.id);
        let made = again(name.as_str(), async || {
            let Some((account, entry)) = self.find(name).await? else {
                return Err(self.no_account(name).await?);
            };
            let of = (name.clone(), account.id);
            let record = TokenRecord::new(&token, of, (now, lifetime), note.to_owned());
            if let Some(earlier) = self.meta.get(&key).await? {
                // An attempt whose outcome was unknown, or chance beyond reason.
                return match earlier.value == record.encode() {
                    true => Ok(Some(record)),
                    false => Err(AccessError::Busy(key.clone())),
                };
            }
            let compares = vec![
                Compare::Unchanged(entry.key, entry.changed),
                Compare::Absent(key.clone()),
            ];
            let done = swap(
                &*self.meta,
                compares,
                vec![Op::put(key.clone(), record.encode())],
            );
            Ok(done.await?.map(|()| record))
        });
        let record = made.await?;
        Ok((token, record))
    }

    /// Removes tokens that have been over for long.
    async fn forget_old(&self, now: u64) -> Result<()> {
        let old = |record: &TokenRecord| {
            let over = record.revoked.unwrap_or(record.expires).min(record.expires);
            over.saturating_add(FORGET) < now
        };
        let all = self.tokens().await?.into_iter();
        let ids = all.filter(|(_, record)| old(record)).map(|(id, _)| id);
        let ops = ids.take(FORGET_MAX).map(|id| Op::Delete {
            key: TokenRecord::key(id),
        });
        let ops: Vec<Op> = ops.collect();
        if !ops.is_empty() {
            self.meta.txn(Vec::new(), ops).await?;
        }
        Ok(())
    }

    /// All tokens, without their secrets.
    ///
    /// # Errors
    /// The meta store, or a record.
    pub async fn tokens(&self) -> Result<Vec<(TokenId, TokenRecord)>> {
        let (entries, _) = whole_range(&*self.meta, TOKENS).await?;
        let tokens = entries
            .iter()
            .map(|it| TokenRecord::decode(&it.key, &it.value));
        Ok(tokens.collect::<std::result::Result<_, _>>()?)
    }

    /// One token.
    ///
    /// # Errors
    /// [`AccessError::NoToken`]; else the meta store or a record.
    pub async fn token(&self, id: TokenId) -> Result<TokenRecord> {
        let key = TokenRecord::key(id);
        let entry = self.meta.get(&key).await?.ok_or(AccessError::NoToken(id))?;
        Ok(TokenRecord::decode(&key, &entry.value)?.1)
    }

    /// Makes a token good for nothing, at once and for ever.
    ///
    /// # Errors
    /// [`AccessError::NoToken`]; else the meta store or a record.
    pub async fn revoke(&self, id: TokenId, now: u64) -> Result<TokenRecord> {
        let key = TokenRecord::key(id);
        let revoked = again(&key, async || {
            let entry = self.meta.get(&key).await?.ok_or(AccessError::NoToken(id))?;
            let (_, mut record) = TokenRecord::decode(&key, &entry.value)?;
            if record.revoked.is_some() {
                return Ok(Some(record));
            }
            record.revoked = Some(now);
            let compare = Compare::Unchanged(key.clone(), entry.changed);
            let done = swap(
                &*self.meta,
                vec![compare],
                vec![Op::put(key.clone(), record.encode())],
            );
            Ok(done.await?.map(|()| record))
        });
        revoked.await
    }
}
