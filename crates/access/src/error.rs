//! Why something about an account was not done.

use vdisk::meta::MetaError;
use vdisk::record::RecordError;

use crate::account::USERS_MAX;
use crate::name::AccountName;
use crate::token::{TokenError, TokenId};

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
    /// No such access key.
    #[error("there is no access key {0}; `tanada s3 key list` shows those there are")]
    NoS3Key(String),
    /// What was shown is not taken.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// A certificate that was shown is revoked.
    #[error(
        "the certificate {0} is revoked; an admin issues another one with `tanada cluster ca issue --account`"
    )]
    Revoked(String),
    /// The account of a certificate that was shown is switched off or deleted; there may be a later one of the name.
    #[error(
        "the certificate {serial} is for an account {account} that is switched off or not there any more; an admin switches \
         it on (`tanada account set {account} --on`), or issues one for the account of that name that is there now \
         (`tanada cluster ca issue --account {account}`)"
    )]
    NotOfAccount {
        /// The certificate's serial number.
        serial: String,
        /// What the account was called.
        account: AccountName,
    },
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
