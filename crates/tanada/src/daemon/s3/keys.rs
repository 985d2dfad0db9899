//! The access keys that are good now, for signatures to be compared with, and how their requests are served.
//!
//! ```text
//! meta store -> sealed secrets, whose account is on -> opened -> by name
//! ```
//!
//! Always true:
//! 1. Where the meta store is silent, what was known last goes on.
//! 2. A key whose secret does not open here is good for nothing, and said once in the log.
//! 3. A temporary key whose token cannot be read is opened by none.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use access::s3_buckets::S3Bucket;
use access::s3_keys::{S3Key, S3Terms};
use anyhow::anyhow;
use config::Config;
use reservations::records::Versioned;
use s3::{AccessKey, Keys, Reserved, ServiceTerms};

use super::seal::Seal;
use crate::daemon::common::secrets;

/// Of names, after `TA`.
const NAME_DIGITS: usize = 18;
/// Of names and secrets.
const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
/// What the daemon's owner is called as an account.
const OWNER: &str = "tanada";

/// The access keys of a daemon.
#[derive(Default)]
pub struct KeyRing {
    /// `None`: it has no gateway.
    seal: Option<Seal>,
    good: RwLock<BTreeMap<String, AccessKey>>,
    /// How requests to buckets are served, by gateway and number.
    buckets: RwLock<BTreeMap<(String, u64), ServiceTerms>>,
    /// Those that were said not to open.
    unopened: Mutex<BTreeSet<String>>,
    /// Those that this daemon deleted.
    ended: Mutex<BTreeSet<String>>,
}

/// Keys, what is said of buckets, and the reservations of both that stand.
pub struct AllTerms {
    /// By name, and whether each is good.
    pub keys: Vec<(String, S3Key, bool)>,
    /// Gateway, name and what is said.
    pub buckets: Vec<(String, String, S3Bucket)>,
    /// By their ids as texts.
    pub reservations: BTreeMap<String, Versioned>,
}

impl AllTerms {
    /// How requests under these terms are served.
    fn served(&self, terms: &S3Terms) -> ServiceTerms {
        let known = terms.reservation.as_ref();
        let known = known.and_then(|id| self.reservations.get(id));
        ServiceTerms {
            reservation: known.map(|it| {
                let promise = &it.record.promise;
                Reserved {
                    id: it.id.0,
                    read: promise.read,
                    write: promise.write,
                    slot: (promise.from, promise.until),
                }
            }),
            caps: terms.caps.into(),
        }
    }
}

/// A SHA-256, from hexadecimal digits.
fn bytes_of(hex: &str) -> Option<[u8; 32]> {
    let digits = hex.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    });
    digits.collect::<Option<Vec<u8>>>()?.try_into().ok()
}

/// The keys as one gateway sees them.
pub struct OfGateway {
    pub ring: Arc<KeyRing>,
    pub gateway: String,
}

impl Keys for OfGateway {
    fn find(&self, name: &str) -> Option<AccessKey> {
        self.ring.find(name)
    }

    fn account(&self, name: &str) -> Option<String> {
        self.ring.account(name)
    }

    fn bucket_terms(&self, id: u64) -> ServiceTerms {
        let buckets = self
            .ring
            .buckets
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let found = buckets.get(&(self.gateway.clone(), id));
        found.cloned().unwrap_or_default()
    }
}

impl KeyRing {
    fn find(&self, name: &str) -> Option<AccessKey> {
        let good = self.good.read().unwrap_or_else(PoisonError::into_inner);
        good.get(name).cloned()
    }

    fn account(&self, name: &str) -> Option<String> {
        let good = self.good.read().unwrap_or_else(PoisonError::into_inner);
        let is_it = |account: &str| {
            account == name || account.rsplit_once('.').is_some_and(|it| it.0 == name)
        };
        let mut all = good.values().map(|it| &it.account);
        all.find(|it| is_it(it)).cloned()
    }

    /// Of a daemon: its sealing key is made with its first gateway.
    ///
    /// # Errors
    /// The file of the sealing key.
    pub fn open(config: &Config) -> anyhow::Result<KeyRing> {
        let seal = match config.s3.is_empty() {
            true => None,
            false => Some(Seal::new(&secrets::read_or_make(&sealing_key(
                &config.data_dir,
            ))?)),
        };
        Ok(KeyRing {
            seal,
            ..KeyRing::default()
        })
    }

    /// A new name and secret, and the secret sealed; `None` where there is no gateway.
    ///
    /// # Errors
    /// The system gives no randomness.
    pub fn fresh(&self) -> anyhow::Result<Option<(String, String, String)>> {
        let Some(seal) = &self.seal else {
            return Ok(None);
        };
        let name = format!("TA{}", letters(NAME_DIGITS)?);
        let secret = letters(40)?;
        let sealed = seal.seal(&name, &secret)?;
        Ok(Some((name, secret, sealed)))
    }

    /// Has the daemon a gateway?
    pub fn is_used(&self) -> bool {
        self.seal.is_some()
    }

    /// The key of this name was deleted: it is good for nothing from now on, whatever a look found before.
    pub fn end(&self, name: &str) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.insert(name.to_owned());
        let mut good = self.good.write().unwrap_or_else(PoisonError::into_inner);
        good.remove(name);
    }

    /// Goes by these from now on.
    pub fn take_over(&self, all: AllTerms) {
        let Some(seal) = &self.seal else { return };
        let mut good = BTreeMap::new();
        let served = |terms: &S3Terms| all.served(terms);
        let buckets = all.buckets.iter().map(|(gateway, _, it)| {
            let terms = served(&it.terms);
            ((gateway.clone(), it.bucket), terms)
        });
        *self.buckets.write().unwrap_or_else(PoisonError::into_inner) = buckets.collect();
        for (name, key, _) in all.keys.iter().filter(|it| it.2) {
            let name = name.clone();
            let Some(secret) = seal.open(&name, &key.sealed) else {
                let mut unopened = self.unopened.lock().unwrap_or_else(PoisonError::into_inner);
                if unopened.insert(name.clone()) {
                    tracing::warn!(
                        key = name,
                        "an access key was sealed under another key than this daemon's: copy DATA_DIR/keys/s3.seal of the \
                         daemon that made it, or make another one"
                    );
                }
                continue;
            };
            // A later account of the name has another number; the owner's name has no dot.
            let account = key.account.as_ref().map_or_else(
                || OWNER.to_owned(),
                |it| format!("{it}.{:016x}", key.account_id),
            );
            let lasts = key.lasts.as_ref();
            let session = lasts.map(|it| bytes_of(&it.session).unwrap_or_default());
            let key = AccessKey {
                secret,
                account,
                payer: key.account.as_ref().map(ToString::to_string),
                terms: served(&key.terms),
                session,
            };
            good.insert(name, key);
        }
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        good.retain(|name, _| !ended.contains(name));
        *self.good.write().unwrap_or_else(PoisonError::into_inner) = good;
    }
}

/// Where the sealing key is.
fn sealing_key(data_dir: &Path) -> std::path::PathBuf {
    data_dir.join("keys").join("s3.seal")
}

fn letters(count: usize) -> anyhow::Result<String> {
    let mut bytes = vec![0; count];
    getrandom::fill(&mut bytes)
        .map_err(|error| anyhow!("the system gives no randomness: {error}"))?;
    // 32 letters: five bits of each byte, evenly.
    let letter = |byte: &u8| char::from(ALPHABET[usize::from(byte & 31)]);
    Ok(bytes.iter().map(letter).collect())
}
