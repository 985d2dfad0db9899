//! What is asked of the accounts: one to be made, one to be changed, and a user to be found in them.

use std::collections::BTreeSet;

use crate::account::USERS_MAX;
use crate::error::AccessError;
use crate::name::AccountName;
use crate::quota::Quota;
use crate::role::Role;
use crate::token::{LIFETIME_MAX, NOTE_MAX};

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

/// Refuses more users or groups than an account can have.
pub(crate) fn check_users(
    name: &AccountName,
    users: &BTreeSet<u32>,
    groups: &BTreeSet<u32>,
) -> Result<(), AccessError> {
    match users.len() > USERS_MAX || groups.len() > USERS_MAX {
        true => Err(AccessError::TooManyUsers { name: name.clone() }),
        false => Ok(()),
    }
}

/// Refuses a token that lasts no time or too long, or has a note that cannot be shown.
pub(crate) fn check_token(lifetime: u64, note: &str) -> Result<(), AccessError> {
    if lifetime == 0 || lifetime > LIFETIME_MAX {
        let why = format!("it would last {lifetime} s; let it last 1 s to ten years");
        return Err(AccessError::BadToken(why));
    }
    if note.len() > NOTE_MAX || note.chars().any(char::is_control) {
        let why = format!("its note has at most {NOTE_MAX} bytes, none that controls a terminal");
        return Err(AccessError::BadToken(why));
    }
    Ok(())
}
