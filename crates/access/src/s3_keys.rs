//! Access keys of S3 clients, in a meta store. Signatures are compared with the secret itself, so it is sealed, not hashed.
//!
//! ```text
//! s3key/NAME   {"version":1,"account":"astro","account_id":..,"sealed":"..","created":..,"note":"..",
//!               "terms":{"reservation":"r-..","caps":{"read":..}},"lasts":{"until":..,"session":".."}}
//! ```
//!
//! The daemon seals and opens; here a secret is bytes.
//!
//! Always true:
//! 1. A key is good for the account that it was made for, never for a later one of the same name.
//! 2. The key of an account that is switched off or gone is good for nothing, nor is one whose time is out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use vdisk::meta::{Compare, Op, whole_range};
use vdisk::record::{CapRecord, RecordError, read};

use crate::account::AccountState;
use crate::error::AccessError;
use crate::name::AccountName;
use crate::registry::Registry;
use crate::swap::{again, swap};
use crate::token::NOTE_MAX;

/// Before the name, in a meta store.
const S3_KEYS: &str = "s3key/";
/// Temporary ones of an account.
const TEMPORARY_MAX: usize = 100;
/// The most there may be.
pub const S3_KEYS_MAX: usize = 10_000;

/// An access key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct S3Key {
    /// 1.
    pub version: u32,
    /// Whose it is; `None`: the daemon's owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<AccountName>,
    /// Which account of this name.
    #[serde(default)]
    pub account_id: u64,
    /// The secret, sealed by the daemon, in base64.
    pub sealed: String,
    /// In seconds since 1970.
    pub created: u64,
    /// What it is for, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// How requests with it are served.
    #[serde(default, skip_serializing_if = "S3Terms::are_plain")]
    pub terms: S3Terms,
    /// It is good for a time only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasts: Option<Temporary>,
}

/// How requests with a key, or to a bucket, are served; by default as any others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct S3Terms {
    /// They come under this reservation of stores: its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<String>,
    /// What they get at most, all together.
    #[serde(default, skip_serializing_if = "CapRecord::is_none")]
    pub caps: CapRecord,
}

impl S3Terms {
    /// As any others?
    pub fn are_plain(&self) -> bool {
        *self == S3Terms::default()
    }
}

/// How long a temporary key is good, and what comes with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Temporary {
    /// The first second in which it is good no more, since 1970.
    pub until: u64,
    /// The SHA-256 of its session token, in hexadecimal digits.
    pub session: String,
}

impl S3Key {
    fn decode(key: &str, bytes: &[u8]) -> Result<(String, S3Key), RecordError> {
        let record: S3Key = read(key, bytes)?;
        let name = key.strip_prefix(S3_KEYS).unwrap_or_default();
        Ok((name.to_owned(), record))
    }

    fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data")
    }
}

/// The access keys of a meta store.
pub struct S3Keys<'a>(pub &'a Registry);

type Result<T, E = AccessError> = std::result::Result<T, E>;

impl S3Keys<'_> {
    /// All of them, by name, and whether each is good in second `now`.
    ///
    /// # Errors
    /// The meta store, or a record.
    pub async fn all(&self, now: u64) -> Result<Vec<(String, S3Key, bool)>> {
        let (entries, _) = whole_range(self.0.meta(), S3_KEYS).await?;
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let accounts = self.0.accounts().await?;
        let on: BTreeMap<_, _> = (accounts.iter())
            .filter(|it| it.state == AccountState::On)
            .map(|it| (&it.name, it.id))
            .collect();
        let is_good = |key: &S3Key| match &key.account {
            None => true,
            Some(name) => {
                let all_on = name.chain().iter().all(|it| on.contains_key(it));
                all_on && on.get(name) == Some(&key.account_id)
            }
        };
        let keys = entries.iter().map(|entry| {
            let (name, key) = S3Key::decode(&entry.key, &entry.value)?;
            let lasts = key.lasts.as_ref().is_none_or(|it| now < it.until);
            let good = lasts && is_good(&key);
            Ok((name, key, good))
        });
        keys.collect()
    }

    /// Makes one called `name`: `wanted`, of which account of its name is found here. Temporary ones whose time is long out go.
    ///
    /// # Errors
    /// [`AccessError::NoAccount`], [`AccessError::BadToken`]; else the meta store or a record.
    pub async fn make(&self, name: &str, wanted: S3Key) -> Result<S3Key> {
        let note = &wanted.note;
        if note.len() > NOTE_MAX || note.chars().any(char::is_control) {
            let why =
                format!("its note has at most {NOTE_MAX} bytes, none that controls a terminal");
            return Err(AccessError::BadToken(why));
        }
        if self.without_old(&wanted).await? >= S3_KEYS_MAX {
            let why = format!("there are {S3_KEYS_MAX} access keys already; delete some");
            return Err(AccessError::BadToken(why));
        }
        let at = format!("{S3_KEYS}{name}");
        let made = again(name, async || {
            let mut compares = vec![Compare::Absent(at.clone())];
            let mut key = wanted.clone();
            if let Some(account) = &wanted.account {
                let found = self.0.account(account).await?;
                key.account_id = found.id;
                let Some((_, entry)) = self.0.read(account).await? else {
                    return Err(self.0.no_account(account).await?);
                };
                compares.push(Compare::Unchanged(entry.key, entry.changed));
            }
            if let Some(earlier) = self.0.meta().get(&at).await? {
                // An attempt whose outcome was unknown, or chance beyond reason.
                return match earlier.value == key.encode() {
                    true => Ok(Some(key)),
                    false => Err(AccessError::Busy(at.clone())),
                };
            }
            let op = Op::put(at.clone(), key.encode());
            let done = swap(self.0.meta(), compares, vec![op]).await?;
            Ok(done.map(|()| key))
        });
        made.await
    }

    /// How many there are beside `wanted`, without the temporary ones that ended: those are deleted.
    ///
    /// # Errors
    /// [`AccessError::BadToken`]: its account has too many temporary ones.
    async fn without_old(&self, wanted: &S3Key) -> Result<usize> {
        let all = self.all(wanted.created).await?;
        let ended = |key: &S3Key| {
            let lasts = key.lasts.as_ref();
            lasts.is_some_and(|it| it.until <= wanted.created)
        };
        let mut left = 0;
        let mut own = 0;
        for (name, key, _) in &all {
            if ended(key) {
                self.delete(name).await?;
                continue;
            }
            left += 1;
            own += usize::from(key.lasts.is_some() && key.account == wanted.account);
        }
        match wanted.lasts.is_some() && own >= TEMPORARY_MAX {
            true => Err(AccessError::BadToken(format!(
                "the account has {TEMPORARY_MAX} temporary access keys already; delete some, or wait until one ends"
            ))),
            false => Ok(left),
        }
    }

    /// Changes how requests with it are served.
    ///
    /// # Errors
    /// [`AccessError::NoS3Key`]; else the meta store or a record.
    pub async fn set(&self, name: &str, change: impl Fn(&mut S3Terms)) -> Result<S3Key> {
        let at = format!("{S3_KEYS}{name}");
        let set = again(name, async || {
            let entry = self.0.meta().get(&at).await?;
            let entry = entry.ok_or_else(|| AccessError::NoS3Key(name.to_owned()))?;
            let (_, mut key) = S3Key::decode(&at, &entry.value)?;
            change(&mut key.terms);
            let compare = Compare::Unchanged(at.clone(), entry.changed);
            let op = Op::put(at.clone(), key.encode());
            let done = swap(self.0.meta(), vec![compare], vec![op]).await?;
            Ok(done.map(|()| key))
        });
        set.await
    }

    /// Deletes one: it is good for nothing from now on.
    ///
    /// # Errors
    /// [`AccessError::NoS3Key`]; else the meta store.
    pub async fn delete(&self, name: &str) -> Result<S3Key> {
        let at = format!("{S3_KEYS}{name}");
        let entry = self.0.meta().get(&at).await?;
        let entry = entry.ok_or_else(|| AccessError::NoS3Key(name.to_owned()))?;
        let (_, key) = S3Key::decode(&at, &entry.value)?;
        self.0
            .meta()
            .txn(Vec::new(), vec![Op::Delete { key: at }])
            .await?;
        Ok(key)
    }
}
