//! Whose sessions are they, and how much of the spare time did each account get?
//!
//! ```text
//! spare time -> the account served least for its weight -> in it the session served least for its own -> a piece
//! ```
//!
//! An account is one line to the others, however many sessions it has. What is promised is no account's spare time, and
//! counts for none.
//!
//! Choice: PROBS shares what is left over among accesses, so an application that opens sixteen gets sixteen parts. Here the
//! accounts share it, by start-time fair queueing on two levels (hierarchical packet fair queueing, SIGCOMM 1996).
//!
//! Always true:
//! 1. An account is known as long as it has a session.
//! 2. One that asks again after a pause begins where the others are.
//! 3. The owner's account weighs as much as all others together that wait: replication and rebuilds are its.

use std::collections::{BTreeMap, BTreeSet};

use base::Nanos;

/// An account as schedulers know it, and its part of what is left over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account {
    /// Its number at this device.
    pub id: u64,
    /// Relative to other accounts; zero counts as one, and more than [`Account::WEIGHT_MAX`] as that.
    pub weight: u32,
}

impl Account {
    /// The most that an account weighs.
    pub const WEIGHT_MAX: u32 = 1000;
    /// The daemon's owner: what no other account does. It weighs at least as much as all others that wait.
    pub const OWNER: Account = Account { id: 0, weight: 1 };
}

impl Default for Account {
    fn default() -> Self {
        Account::OWNER
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Standing {
    weight: u32,
    sessions: usize,
    /// Device time it got of what was spare, by its weight, in thousandths.
    spare: u128,
    /// The greatest spare tag of a session served so.
    line_spare: u128,
}

/// The accounts that have sessions.
#[derive(Debug, Clone, Default)]
pub(super) struct Accounts {
    known: BTreeMap<u64, Standing>,
    /// The tag of the account last served from spare time.
    spare: u128,
}

impl Accounts {
    /// A session of it was opened; what it weighs now.
    pub fn joined(&mut self, account: Account) {
        let known = self.known.entry(account.id).or_default();
        known.weight = account.weight.clamp(1, Account::WEIGHT_MAX);
        known.sessions += 1;
    }

    /// A session of it was closed.
    pub fn left(&mut self, id: u64) {
        if let Some(known) = self.known.get_mut(&id) {
            known.sessions -= 1;
            if known.sessions == 0 {
                self.known.remove(&id);
            }
        }
    }

    /// It weighs so much from now on, if it has sessions.
    pub fn set(&mut self, account: Account) {
        if let Some(known) = self.known.get_mut(&account.id) {
            known.weight = account.weight.clamp(1, Account::WEIGHT_MAX);
        }
    }

    /// None of its sessions waited, and one does now.
    pub fn came_back(&mut self, id: u64) {
        if let Some(known) = self.known.get_mut(&id) {
            known.spare = known.spare.max(self.spare);
        }
    }

    /// How much it got for its weight.
    pub fn spare(&self, id: u64) -> u128 {
        self.known.get(&id).map_or(0, |known| known.spare)
    }

    /// Where a session of it begins that asks again.
    pub fn line_spare(&self, id: u64) -> u128 {
        self.known.get(&id).map_or(0, |known| known.line_spare)
    }

    /// It is the next to be served from spare time, with a session of this tag.
    pub fn chosen(&mut self, id: u64, line_spare: u128) {
        if let Some(known) = self.known.get_mut(&id) {
            known.line_spare = known.line_spare.max(line_spare);
            self.spare = known.spare;
        }
    }

    /// What all accounts weigh together that `waiting` names, the owner's aside.
    pub fn weight_beside_owner(&self, waiting: impl Iterator<Item = u64>) -> u32 {
        let others: BTreeSet<u64> = waiting.filter(|id| *id != Account::OWNER.id).collect();
        let known = others.iter().filter_map(|id| self.known.get(id));
        known.fold(0, |sum, it| sum.saturating_add(it.weight))
    }

    /// It was served so, which costs `charge`; it weighs `least` at least.
    pub fn served(&mut self, id: u64, charge: Nanos, least: u32) {
        if let Some(known) = self.known.get_mut(&id) {
            known.spare += u128::from(charge.0) * 1000 / u128::from(known.weight.max(least));
        }
    }
}
