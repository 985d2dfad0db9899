//! An account: its role, and the users of this machine who are it.
//!
//! ```text
//! account/NAME   {"version":1,"name":"astro","id":..,"role":"booker","state":"on",...}
//!
//! (none)  -> On        create
//! On     <-> Off       set: nothing of it is let in while it is off
//! On, Off -> Deleted   delete, while bookings still count against its name
//! Deleted -> (none)    delete or create again, once none does
//! ```
//!
//! Always true of a record that was read: it says the name of its key.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use vdisk::record::{RecordError, read};

use crate::name::AccountName;
use crate::role::Role;

/// Before the name, in a meta store.
pub const ACCOUNTS: &str = "account/";
/// The most users of an account, and the most groups.
pub const USERS_MAX: usize = 64;

/// Is it let in?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccountState {
    /// Yes.
    #[default]
    On,
    /// Not for now.
    Off,
    /// Never again; the name waits until nothing counts against it.
    Deleted,
}

/// An account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Account {
    /// 1.
    pub version: u32,
    /// What it is called.
    pub name: AccountName,
    /// Told apart from an earlier account of this name by this.
    pub id: u64,
    /// How far it may go.
    pub role: Role,
    /// Is it let in?
    pub state: AccountState,
    /// Numbers of users of this machine who are it at the Unix socket.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub users: BTreeSet<u32>,
    /// Groups whose members are.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub groups: BTreeSet<u32>,
    /// When it was made, in seconds since 1970.
    pub created: u64,
}

impl Account {
    /// The key of its record.
    pub fn key(name: &AccountName) -> String {
        format!("{ACCOUNTS}{name}")
    }

    /// As it is kept.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data")
    }

    /// Reads the record under `key`.
    ///
    /// # Errors
    /// [`RecordError`]: of another version, or not as this program writes it.
    pub fn decode(key: &str, bytes: &[u8]) -> Result<Account, RecordError> {
        let account: Account = read(key, bytes)?;
        if Account::key(&account.name) != key {
            let why = format!("it says it is {}", account.name);
            return Err(RecordError::malformed(key, why));
        }
        if account.users.len() > USERS_MAX || account.groups.len() > USERS_MAX {
            let why = format!("it has more than {USERS_MAX} users or groups");
            return Err(RecordError::malformed(key, why));
        }
        Ok(account)
    }
}
