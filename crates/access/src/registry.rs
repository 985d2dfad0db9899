//! Accounts and tokens in a meta store: made, changed, found by what a client shows.
//!
//! ```text
//! token shown       -> token/ID -> hash, time -> account/NAME, and the one it belongs to -> Caller
//! user at a socket  -> accounts that name the user, else a group of it              -> Caller
//! ```
//!
//! Nothing is remembered between two questions: what is switched off or revoked is so for the next request.
//!
//! Always true:
//! 1. A token is good for the account that it was made for, never for a later one of the same name.
//! 2. A change that another one came before has no effect, and is tried again a few times at most.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

use base::Nanos;
use vdisk::meta::{Compare, Entry, MetaError, MetaStore, Op, Outcome, whole_range};
use vdisk::record::RecordError;

use crate::account::{ACCOUNTS, Account, AccountState, USERS_MAX};
use crate::caller::{Caller, How};
use crate::name::AccountName;
use crate::quota::Quota;
use crate::role::Role;
use crate::token::{LIFETIME_MAX, NOTE_MAX, TOKENS, Token, TokenError, TokenId, TokenRecord};
use crate::usage::Usage;

/// How often something is tried again that another change came before.
const TRIES: u64 = 6;
/// Tokens that are over for so long are forgotten: 30 days.
const FORGET: u64 = 30 * 24 * 3600;
/// So many of them at a time.
const FORGET_MAX: usize = 64;

/// Why something about an account was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// No such account.
    #[error("there is no account {name}; {}", there_are(.known))]
    NoAccount {
        /// Which.
        name: AccountName,
        /// Those there are.
        known: Vec<AccountName>,
    },
    /// The name is taken.
    #[error("account {0} is there already; `tanada account set {0}` changes it")]
    Exists(AccountName),
    /// A deleted account of the name has bookings that are not over.
    #[error(
        "a deleted account was called {name}, and {bookings} of its bookings are not over; cancel them, wait, or take \
         another name"
    )]
    NameWaits {
        /// The name.
        name: AccountName,
        /// How many.
        bookings: u64,
    },
    /// A project of an account that is not there.
    #[error(
        "{name} would be a project of {account}, which is not there; `tanada account create {account}` makes it first"
    )]
    NoParent {
        /// The project.
        name: AccountName,
        /// Its account.
        account: AccountName,
    },
    /// Too many users or groups.
    #[error(
        "account {name} would have more than {USERS_MAX} users or groups; name a group that has them"
    )]
    TooManyUsers {
        /// Which.
        name: AccountName,
    },
    /// A lifetime or a note that cannot be.
    #[error("the token cannot be made: {0}")]
    BadToken(String),
    /// No such token.
    #[error("there is no token {0}; `tanada token list` shows those there are")]
    NoToken(TokenId),
    /// What was shown is not taken.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Several accounts name the user.
    #[error(
        "user {user} is in {}; say which one: TANADA_ACCOUNT=NAME for `tanada`, the header `Tanada-Account: NAME` for others",
        names(.accounts)
    )]
    Ambiguous {
        /// The user's number.
        user: u32,
        /// The accounts.
        accounts: Vec<AccountName>,
    },
    /// Other changes came before, again and again.
    #[error("{0} changes all the time; try again")]
    Busy(String),
    /// A record is not as it should be.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The meta store.
    #[error(transparent)]
    Meta(#[from] MetaError),
}

fn names(accounts: &[AccountName]) -> String {
    let names: Vec<&str> = accounts.iter().map(AccountName::as_str).collect();
    names.join(", ")
}

fn there_are(known: &[AccountName]) -> String {
    match known.is_empty() {
        true => "there are none: `tanada account create NAME` makes one".to_owned(),
        false => format!("there are {}", names(known)),
    }
}

/// An account to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAccount {
    /// What it is called.
    pub name: AccountName,
    /// How far it may go.
    pub role: Role,
    /// Users of this machine who are it, by number.
    pub users: BTreeSet<u32>,
    /// Groups whose members are.
    pub groups: BTreeSet<u32>,
    /// What it may have.
    pub quota: Option<Quota>,
}

impl NewAccount {
    /// One without users, groups and quota.
    pub fn new(name: AccountName, role: Role) -> NewAccount {
        NewAccount {
            name,
            role,
            users: BTreeSet::new(),
            groups: BTreeSet::new(),
            quota: None,
        }
    }
}

/// What is to change of an account; what is `None` stays.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccountChange {
    /// How far it may go.
    pub role: Option<Role>,
    /// Is it let in?
    pub on: Option<bool>,
    /// All its users.
    pub users: Option<BTreeSet<u32>>,
    /// All its groups.
    pub groups: Option<BTreeSet<u32>>,
}

/// A user of this machine at the other end of a Unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer<'a> {
    /// The user's number.
    pub user: u32,
    /// The groups of its process.
    pub groups: &'a [u32],
}

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
            Some(account) => Ok(Caller {
                account: Some(name),
                role: Some(account.role),
                how: How::Token(id),
            }),
            None => Err(TokenError::AccountOff { id, account: name }.into()),
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
        Ok(open.map(|account| Caller {
            account: Some(account.name),
            role: Some(account.role),
            how: How::User(peer.user),
        }))
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

    // --- accounts -------------------------------------------------------------------------------------

    async fn read(&self, name: &AccountName) -> Result<Option<(Account, Entry)>> {
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

    async fn no_account(&self, name: &AccountName) -> Result<AccessError> {
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
        let made = self.again(name.as_str(), async || {
            let mut compares = Vec::new();
            if let Some(parent) = name.parent() {
                if self.find(&parent).await?.is_none() {
                    let (name, account) = (name.clone(), parent);
                    return Err(AccessError::NoParent { name, account });
                }
                compares.push(Compare::Present(Account::key(&parent)));
            }
            compares.push(match self.read(name).await? {
                None => Compare::Absent(Account::key(name)),
                Some((earlier, _)) if earlier.state != AccountState::Deleted => {
                    // An attempt whose outcome was unknown.
                    if earlier.id == account.id {
                        return Ok(Some(()));
                    }
                    return Err(AccessError::Exists(name.clone()));
                }
                Some((_, entry)) => {
                    self.check_free(name, now).await?;
                    Compare::Unchanged(entry.key, entry.changed)
                }
            });
            let mut ops = vec![put(Account::key(name), account.encode())];
            match &new.quota {
                Some(quota) => ops.push(put(Quota::key(name), quota.encode())),
                None => ops.push(Op::Delete {
                    key: Quota::key(name),
                }),
            }
            self.swap(compares, ops).await
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
        let changed = self.again(name.as_str(), async || {
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
            let done = self.swap(
                vec![compare],
                vec![put(Account::key(name), account.encode())],
            );
            Ok(done.await?.map(|()| account))
        });
        changed.await
    }

    /// Removes an account, and its projects with it: nothing of them is let in from now on. While bookings count against its
    /// name, the name waits. Answers the names.
    ///
    /// # Errors
    /// [`AccessError::NoAccount`]; else the meta store or a record.
    pub async fn delete(&self, name: &AccountName, now: u64) -> Result<Vec<AccountName>> {
        // The account first: from then on its projects are not let in either.
        let mut gone = vec![name.clone()];
        self.delete_one(name, now).await?;
        for account in self.accounts().await? {
            let of_it = account.name.parent().as_ref() == Some(name);
            if of_it && account.state != AccountState::Deleted {
                self.delete_one(&account.name, now).await?;
                gone.push(account.name);
            }
        }
        for (id, record) in self.tokens().await? {
            if gone.contains(&record.account) {
                let key = TokenRecord::key(id);
                self.meta.txn(Vec::new(), vec![Op::Delete { key }]).await?;
            }
        }
        Ok(gone)
    }

    async fn delete_one(&self, name: &AccountName, now: u64) -> Result<()> {
        let tried = Cell::new(false);
        let deleted = self.again(name.as_str(), async || {
            let Some((mut account, entry)) = self.find(name).await? else {
                // An attempt whose outcome was unknown.
                return match tried.get() {
                    true => Ok(Some(())),
                    false => Err(self.no_account(name).await?),
                };
            };
            tried.set(true);
            let usage_key = Usage::key(name);
            let usage_entry = self.meta.get(&usage_key).await?;
            let usage_changed = usage_entry
                .as_ref()
                .map_or_else(Default::default, |it| it.changed);
            let usage = usage_entry.map(|it| Usage::decode(&usage_key, &it.value));
            let waits = usage.transpose()?.is_some_and(|it| it.at(now).count() > 0);
            let compares = vec![
                Compare::Unchanged(entry.key.clone(), entry.changed),
                Compare::Unchanged(usage_key.clone(), usage_changed),
            ];
            let quota = Op::Delete {
                key: Quota::key(name),
            };
            let ops = match waits {
                true => {
                    account.state = AccountState::Deleted;
                    account.users.clear();
                    account.groups.clear();
                    vec![put(entry.key, account.encode()), quota]
                }
                false => {
                    let keys = [entry.key, usage_key].map(|key| Op::Delete { key });
                    keys.into_iter().chain([quota]).collect()
                }
            };
            self.swap(compares, ops).await
        });
        deleted.await
    }

    // --- quotas ---------------------------------------------------------------------------------------

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
        let set = self.again(name.as_str(), async || {
            let Some((_, entry)) = self.find(name).await? else {
                return Err(self.no_account(name).await?);
            };
            let compare = Compare::Unchanged(entry.key, entry.changed);
            let op = put(Quota::key(name), quota.encode());
            self.swap(vec![compare], vec![op]).await
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
        if lifetime == 0 || lifetime > LIFETIME_MAX {
            let why = format!("it would last {lifetime} s; let it last 1 s to ten years");
            return Err(AccessError::BadToken(why));
        }
        if note.len() > NOTE_MAX || note.chars().any(char::is_control) {
            let why =
                format!("its note has at most {NOTE_MAX} bytes, none that controls a terminal");
            return Err(AccessError::BadToken(why));
        }
        self.forget_old(now).await?;
        let token = Token::fresh();
        let key = TokenRecord::key(token.id);
        let made = self.again(name.as_str(), async || {
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
            let done = self.swap(compares, vec![put(key.clone(), record.encode())]);
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
        let revoked = self.again(&key, async || {
            let entry = self.meta.get(&key).await?.ok_or(AccessError::NoToken(id))?;
            let (_, mut record) = TokenRecord::decode(&key, &entry.value)?;
            if record.revoked.is_some() {
                return Ok(Some(record));
            }
            record.revoked = Some(now);
            let compare = Compare::Unchanged(key.clone(), entry.changed);
            let done = self.swap(vec![compare], vec![put(key.clone(), record.encode())]);
            Ok(done.await?.map(|()| record))
        });
        revoked.await
    }

    // --- changes --------------------------------------------------------------------------------------

    /// One transaction; `None` if another change came before, or its outcome is unknown: look again.
    async fn swap(&self, compares: Vec<Compare>, ops: Vec<Op>) -> Result<Option<()>> {
        match self.meta.txn(compares, ops).await {
            Ok(Outcome::Done(_)) => Ok(Some(())),
            Ok(Outcome::Refused(_)) | Err(MetaError::Unknown { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Tries something until no other change comes before, a few times.
    async fn again<T>(
        &self,
        what: &str,
        attempt: impl AsyncFn() -> Result<Option<T>>,
    ) -> Result<T> {
        for tried in 1..=TRIES {
            if let Some(done) = attempt().await? {
                return Ok(done);
            }
            let wait = env::rng("again").below(40 * tried);
            env::sleep(Nanos::millis(5 + wait)).await;
        }
        Err(AccessError::Busy(what.to_owned()))
    }
}

fn put(key: String, value: Vec<u8>) -> Op {
    Op::Put {
        key,
        value,
        lease: None,
    }
}

fn check_users(name: &AccountName, users: &BTreeSet<u32>, groups: &BTreeSet<u32>) -> Result<()> {
    match users.len() > USERS_MAX || groups.len() > USERS_MAX {
        true => Err(AccessError::TooManyUsers { name: name.clone() }),
        false => Ok(()),
    }
}
