//! Tokens: `tanada_<16 hexadecimal digits>_<43 of base64url>`, an identity and 32 secret bytes.
//!
//! ```text
//! token/ID   {"version":1,"account":"astro","sha256":"..","created":..,"expires":..}
//! shown -> parse -> the record of its identity -> judge: hash, revoked, expired
//! ```
//!
//! Pure but for [`Token::fresh`]. The secret is random, so its SHA-256 alone is enough at rest: there is nothing to guess.
//!
//! Always true:
//! 1. How long a comparison takes does not depend on how much of a secret is right.
//! 2. Only a token whose secret is right learns that it is revoked or expired.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use vdisk::record::{RecordError, read};

use crate::name::AccountName;

/// Before the identity, in a meta store.
pub const TOKENS: &str = "token/";
/// What a token begins with.
const PREFIX: &str = "tanada_";
/// Of the identity.
const ID_DIGITS: usize = 16;
/// Of the secret, 32 bytes.
const SECRET_CHARACTERS: usize = 43;
/// How long a token is good unless asked otherwise, in seconds: 90 days.
pub const LIFETIME: u64 = 90 * 24 * 3600;
/// The longest time: ten years.
pub const LIFETIME_MAX: u64 = 3650 * 24 * 3600;
/// The longest note.
pub const NOTE_MAX: usize = 200;

/// Does it begin as tokens of accounts do?
pub fn looks_like(text: &str) -> bool {
    text.starts_with(PREFIX)
}

/// Which token; no secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId(pub u64);

impl TokenId {
    /// The last four digits, for people: `..3f2a`.
    pub fn shown(self) -> String {
        format!("..{:04x}", self.0 & 0xffff)
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for TokenId {
    type Err = String;

    fn from_str(text: &str) -> Result<TokenId, String> {
        let digits = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        let good = text.len() == ID_DIGITS && text.bytes().all(digits);
        let number = good.then(|| u64::from_str_radix(text, 16).ok()).flatten();
        number.map(TokenId).ok_or_else(|| {
            let shown: String = text.chars().take(40).collect();
            format!("{shown:?} is no token's identity: that has 16 digits of 0-9 a-f")
        })
    }
}

/// A token as its bearer has it. Its secret is in no `Debug`.
#[derive(Clone)]
pub struct Token {
    /// Which.
    pub id: TokenId,
    secret: [u8; 32],
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}, secret)", self.id)
    }
}

/// Why a token is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// It does not look like one.
    #[error(
        "what was shown is no token: one is tanada_, 16 hexadecimal digits, _ and 43 characters; copy it whole, without \
         a line end"
    )]
    Malformed,
    /// No such token, or its secret is another one.
    #[error("token {} is not known here; ask an admin for one (`tanada token create`)", .0.shown())]
    Unknown(TokenId),
    /// Its time is over.
    #[error(
        "token {} ended {} ago; ask an admin for a new one (`tanada token create`)",
        .id.shown(),
        span_words(*.ago)
    )]
    Expired {
        /// Which.
        id: TokenId,
        /// Seconds since then.
        ago: u64,
    },
    /// It was revoked.
    #[error("token {} was revoked; ask an admin for a new one (`tanada token create`)", .0.shown())]
    Revoked(TokenId),
    /// Its account is switched off or gone, or the one that its project belongs to.
    #[error(
        "token {} is of account {account}, which is switched off or gone; an admin switches it on with `tanada account \
         set {account} --on`",
        .id.shown()
    )]
    AccountOff {
        /// Which.
        id: TokenId,
        /// Whose.
        account: AccountName,
    },
}

/// A span in one unit, for people.
pub(crate) fn span_words(seconds: u64) -> String {
    let (n, unit) = match seconds {
        s if s >= 2 * 86_400 => (s / 86_400, "days"),
        s if s >= 2 * 3600 => (s / 3600, "h"),
        s if s >= 120 => (s / 60, "min"),
        s => (s, "s"),
    };
    format!("{n} {unit}")
}

impl Token {
    /// A new one: random, in virtual time from the run's seed.
    pub fn fresh() -> Token {
        let (mut id, mut secret) = ([0; 8], [0; 32]);
        env::secret("token id", &mut id);
        env::secret("token secret", &mut secret);
        Token {
            id: TokenId(u64::from_le_bytes(id)),
            secret,
        }
    }

    /// Reads what a client shows.
    ///
    /// # Errors
    /// [`TokenError::Malformed`].
    pub fn parse(text: &str) -> Result<Token, TokenError> {
        let parts = text
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split_once('_'));
        let (id, secret) = parts.ok_or(TokenError::Malformed)?;
        let id = id.parse().map_err(|_| TokenError::Malformed)?;
        if secret.len() != SECRET_CHARACTERS {
            return Err(TokenError::Malformed);
        }
        let bytes = URL_SAFE_NO_PAD.decode(secret);
        let secret = bytes.ok().and_then(|bytes| bytes.try_into().ok());
        let secret = secret.ok_or(TokenError::Malformed)?;
        Ok(Token { id, secret })
    }

    /// As it is shown once, and never again.
    pub fn reveal(&self) -> String {
        format!(
            "{PREFIX}{}_{}",
            self.id,
            URL_SAFE_NO_PAD.encode(self.secret)
        )
    }

    /// What is kept of it.
    fn hash(&self) -> String {
        hex(&Sha256::digest(self.secret))
    }
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What is kept of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRecord {
    /// 1.
    pub version: u32,
    /// Whose it is.
    pub account: AccountName,
    /// And of which account of this name.
    pub account_id: u64,
    /// Of the secret, in hexadecimal.
    sha256: String,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// From then on it is good no more.
    pub expires: u64,
    /// When it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<u64>,
    /// What it is for, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl TokenRecord {
    /// The record of `token`, good for `lifetime` seconds from `now` on.
    pub fn new(
        token: &Token,
        (account, account_id): (AccountName, u64),
        (now, lifetime): (u64, u64),
        note: String,
    ) -> TokenRecord {
        TokenRecord {
            version: 1,
            account,
            account_id,
            sha256: token.hash(),
            created: now,
            expires: now.saturating_add(lifetime),
            revoked: None,
            note,
        }
    }

    /// The key of a token's record.
    pub fn key(id: TokenId) -> String {
        format!("{TOKENS}{id}")
    }

    /// As it is kept.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data")
    }

    /// Reads the record under `key`, and which token it is.
    ///
    /// # Errors
    /// [`RecordError`]: of another version, or not as this program writes it.
    pub fn decode(key: &str, bytes: &[u8]) -> Result<(TokenId, TokenRecord), RecordError> {
        let id = key.strip_prefix(TOKENS).unwrap_or_default();
        let id = id
            .parse()
            .map_err(|why: String| RecordError::malformed(key, why))?;
        let record: TokenRecord = read(key, bytes)?;
        let digits = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if record.sha256.len() != 64 || !record.sha256.bytes().all(digits) {
            return Err(RecordError::malformed(key, "it holds no SHA-256"));
        }
        if record.note.len() > NOTE_MAX {
            return Err(RecordError::malformed(key, "its note is too long"));
        }
        Ok((id, record))
    }

    /// Is what was shown this token, and good at `now` (seconds since 1970)?
    ///
    /// # Errors
    /// [`TokenError`] says why not.
    pub fn judge(&self, shown: &Token, now: u64) -> Result<(), TokenError> {
        let (is, id) = (shown.hash(), shown.id);
        if !bool::from(is.as_bytes().ct_eq(self.sha256.as_bytes())) {
            return Err(TokenError::Unknown(id));
        }
        if self.revoked.is_some() {
            return Err(TokenError::Revoked(id));
        }
        if now >= self.expires {
            let ago = now - self.expires;
            return Err(TokenError::Expired { id, ago });
        }
        Ok(())
    }
}
